//! For tests: a server that gives its answers by script, over real sockets.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the connection does after an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Then {
    Keep,
    Close,
    Reset,
    Stall,
}

/// A server that gives its answers in order, whatever is asked, over as many connections as are made.
#[derive(Debug)]
pub(super) struct Scripted {
    pub(super) address: SocketAddr,
    pub(super) asked: Arc<Mutex<Vec<String>>>,
    pub(super) connections: Arc<Mutex<u64>>,
}

impl Scripted {
    pub(super) async fn start(answers: Vec<(String, Then)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("bound");
        let (asked, connections) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let answers = Arc::new(Mutex::new(answers.into_iter()));
        let (heads, count) = (Arc::clone(&asked), Arc::clone(&connections));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *count.lock().expect("not poisoned") += 1;
                tokio::spawn(serve(stream, Arc::clone(&heads), Arc::clone(&answers)));
            }
        });
        Self { address, asked, connections }
    }

    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("not poisoned").clone()
    }
}

async fn serve(mut stream: TcpStream, asked: Arc<Mutex<Vec<String>>>, answers: Arc<Mutex<std::vec::IntoIter<(String, Then)>>>) {
    let mut head = Vec::new();
    while let Ok(byte) = stream.read_u8().await {
        head.push(byte);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let mut text = String::from_utf8(std::mem::take(&mut head)).expect("ASCII");
        let lower = text.to_ascii_lowercase();
        let length =
            lower.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |value| value.parse().expect("a length"));
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.expect("the announced body");
        text += &String::from_utf8(body).expect("text");
        asked.lock().expect("not poisoned").push(text);
        let Some((answer, then)) = answers.lock().expect("not poisoned").next() else { return };
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
        match then {
            Then::Keep => {}
            Then::Close => return,
            Then::Reset => {
                let zero = Duration::ZERO;
                rustix::net::sockopt::set_socket_linger(&stream, Some(zero)).expect("a socket");
                return;
            }
            Then::Stall => std::future::pending().await,
        }
    }
}

/// `HTTP/1.1` answer with this status line, headers and body; its length as given.
pub(super) fn answer(status: &str, headers: &str, length: usize, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
}

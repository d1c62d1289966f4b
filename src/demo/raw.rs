//! Plain GETs: what the same reads bring without a mount, so many at a time. The yardstick beside the mount's figures, and as cheap a
//! client as there is: one thread, kept connections, bodies counted and thrown away. It checks lengths, not contents.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::process::thread_cpu;
use super::reader::Measured;

/// An object to read: its key and the length it must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Key or, for a reader of files, path below the mount.
    pub key: String,
    pub size: u64,
}

/// Reads all of `wanted` from `bucket`, in order, over this many connections.
///
/// # Errors
/// When the server refuses one or gives another length.
pub async fn plain_gets(address: SocketAddr, bucket: &str, wanted: Arc<[Wanted]>, connections: usize) -> io::Result<Measured> {
    let (cursor, cpu_before, begun) = (Arc::new(AtomicUsize::new(0)), thread_cpu(), Instant::now());
    let mut workers = JoinSet::new();
    for _ in 0..connections.clamp(1, wanted.len().max(1)) {
        workers.spawn(one_connection(address, bucket.to_owned(), Arc::clone(&wanted), Arc::clone(&cursor)));
    }
    let mut latencies = Vec::with_capacity(wanted.len());
    while let Some(worker) = workers.join_next().await {
        latencies.extend(worker.map_err(io::Error::other)??);
    }
    let elapsed = begun.elapsed();
    // All of this ran on the caller's thread where its runtime has only one; elsewhere the figure means nothing and is left out.
    let single = tokio::runtime::Handle::current().metrics().num_workers() == 1;
    let cpu = if single { thread_cpu().zip(cpu_before).map(|(after, before)| after.saturating_sub(before)) } else { None };
    let bytes = wanted.iter().map(|wanted| wanted.size).sum();
    Ok(Measured::new(bytes, elapsed, cpu, latencies))
}

async fn one_connection(address: SocketAddr, bucket: String, wanted: Arc<[Wanted]>, cursor: Arc<AtomicUsize>) -> io::Result<Vec<Duration>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let driver = tokio::spawn(connection);
    let mut latencies = Vec::new();
    while let Some(Wanted { key, size }) = wanted.get(cursor.fetch_add(1, Relaxed)) {
        let begun = Instant::now();
        let request = Request::get(format!("/{bucket}/{key}")).header("host", address.to_string());
        let request = request.body(Empty::<Bytes>::new()).map_err(io::Error::other)?;
        let mut response = sender.send_request(request).await.map_err(io::Error::other)?;
        if response.status() != StatusCode::OK {
            return Err(io::Error::other(format!("GET of {key}: {}", response.status())));
        }
        let mut received = 0;
        while let Some(frame) = response.body_mut().frame().await {
            received += frame.map_err(io::Error::other)?.data_ref().map_or(0, Bytes::len) as u64;
        }
        if received != *size {
            return Err(io::Error::other(format!("GET of {key}: {received} bytes, {size} expected")));
        }
        latencies.push(begun.elapsed());
    }
    driver.abort();
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::server::fault::{Does, Fault, Operation, When};
    use crate::demo::server::{Server, ServerConfig};

    #[tokio::test]
    async fn each_object_is_asked_for_once_over_kept_connections() {
        let server = Server::start(ServerConfig::default()).unwrap();
        let wanted: Arc<[Wanted]> = (0..50_u64).map(|n| Wanted { key: format!("d/{n}"), size: n * 100 }).collect();
        for wanted in wanted.iter() {
            server.put(&wanted.key, vec![1; usize::try_from(wanted.size).unwrap()]);
        }
        let measured = plain_gets(server.address(), "demo", Arc::clone(&wanted), 4).await.unwrap();
        let counters = server.counters();
        assert_eq!((counters.get, counters.connections, counters.bytes), (50, 4, measured.bytes));
        assert_eq!((measured.files, measured.bytes), (50, 122_500));
        assert!(counters.in_flight_peak <= 4);
        server.add_fault(Fault::on(Operation::Get, When::Nth(7), Does::Cut { after: 10 }));
        plain_gets(server.address(), "demo", wanted, 4).await.unwrap_err();
    }
}

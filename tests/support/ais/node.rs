//! What proxies and targets have in common: connections, the scripted fault, the wait before the first byte, and the way to the handlers.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::Shared;
use super::body::{Ending, Reply};
use super::conn::{Connection, Socket};
use super::counters::count;
use super::fault::{Does, Op};
use super::request::{Failure, Request, Route};

/// Requests remembered at most: enough for a test, no leak in a benchmark.
const MAX_RECORDED: usize = 10_000;
/// Of a request: an uploaded object, or a batch of some thousand names.
const MAX_BODY_BYTES: usize = 256 << 20;

/// A request as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    /// The node asked.
    pub(crate) node: String,
    pub(crate) op: Op,
    pub(crate) method: String,
    /// As sent, still encoded.
    pub(crate) target: String,
    /// Lower-case names and their values.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
}

/// Who answers.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: String,
    pub(super) is_target: bool,
}

/// Accepts until told to stop, or aborted; the connections end with it.
pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>, node: Arc<Node>, stop: Arc<Notify>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let counting = &shared.counting;
                    count(if node.is_target { &counting.target_connections } else { &counting.proxy_connections });
                    // Without it, the end of a body waits for the client's delayed ACK, 40 ms.
                    let _ = stream.set_nodelay(true);
                    connections.spawn(serve(stream, Arc::clone(&shared), Arc::clone(&node)));
                }
                // Out of descriptors: give those who hold some the time to end.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
            () = stop.notified() => break,
        }
    }
    drop(listener);
    connections.shutdown().await;
}

async fn serve(stream: TcpStream, shared: Arc<Shared>, node: Arc<Node>) {
    let connection = Arc::new(Connection::default());
    let socket = Socket::new(stream, Arc::clone(&connection));
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let (shared, node, connection) = (Arc::clone(&shared), Arc::clone(&node), Arc::clone(&connection));
        async move { respond(&shared, &node, &connection, request).await }
    });
    // A connection that ends badly is the client's concern, or the script's.
    let _ended: Result<(), Infallible> = http1::Builder::new().serve_connection(socket, service).await.or(Ok(()));
}

/// The answer to one request; an `Err` closes the connection without one.
async fn respond(
    shared: &Arc<Shared>,
    node: &Node,
    connection: &Arc<Connection>,
    request: hyper::Request<Incoming>,
) -> io::Result<Response<Reply>> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY_BYTES).collect().await.map_err(io::Error::other)?.to_bytes();
    let (uri, method) = (parts.uri.to_string(), parts.method.clone());
    let request = match Request::parse(parts, body) {
        Ok(request) => request,
        Err(failure) => return Ok(Response::builder().status(failure.status).body(Reply::text(failure.message)).expect("a status")),
    };
    let op = op_of(&request);
    let counting = &shared.counting;
    count(if node.is_target { &counting.target_requests } else { &counting.proxy_requests });
    if let Some(list) = shared.recorded.lock().expect("no holder panics").as_mut().filter(|list| list.len() < MAX_RECORDED) {
        let text = |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = request.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
        list.push(Recorded { node: node.id.clone(), op, method: method.to_string(), target: uri, headers, body: request.body.clone() });
    }
    let fault = {
        let mut script = shared.script.lock().expect("no holder panics");
        // the subject of a batch is in its body: not looked for where nobody asks
        if script.is_empty() { None } else { script.strike(op, &node.id, node.is_target, &subject(&request, op)) }
    };
    if fault.is_some() {
        count(&counting.faults);
    }
    let wait = if node.is_target { shared.config.target_first_byte } else { shared.config.proxy_first_byte };
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
    match &fault {
        Some(Does::Delay(more)) => tokio::time::sleep(*more).await,
        Some(Does::Hang) => std::future::pending().await,
        Some(Does::CloseBeforeAnswer) => return Err(io::Error::other("a scripted fault closes the connection here")),
        Some(Does::Reset { .. }) => connection.reset.store(true, Relaxed),
        _ => {}
    }
    let answer = match refused(shared, &request, fault.as_ref()) {
        Some(failure) => Err(failure),
        None if node.is_target => shared.at_target(node, connection, &request, op, fault.as_ref()).await,
        None => shared.at_proxy(node, &request, op),
    };
    let answer = answer.unwrap_or_else(|failure| {
        match failure.status {
            StatusCode::UNAUTHORIZED => count(&counting.unauthorized),
            StatusCode::FORBIDDEN => count(&counting.forbidden),
            _ => {}
        }
        failure.answer(&request, &node.id)
    });
    Ok(answer.map(|reply| match fault {
        Some(Does::Cut { after } | Does::Reset { after }) => reply.ending(Ending::Cut { after }),
        Some(Does::Stall { after }) => reply.ending(Ending::Stall { after }),
        Some(Does::Corrupt { at }) => reply.corrupted(at),
        _ => reply,
    }))
}

/// What answers instead of the cluster.
fn refused(shared: &Shared, request: &Request, fault: Option<&Does>) -> Option<Failure> {
    if let Some(Does::Status { status, tcode, retry_after }) = fault {
        let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let failure = Failure::new(status, tcode, "a scripted fault");
        return Some(match retry_after {
            Some(seconds) => failure.with("retry-after", seconds.to_string()),
            None => failure,
        });
    }
    let starting = shared.starting.load(Relaxed) && !(request.route == Route::Health && request.get("readiness").is_none());
    starting.then(|| Failure::new(StatusCode::SERVICE_UNAVAILABLE, "", "cluster is starting up, please try again"))
}

fn op_of(request: &Request) -> Op {
    match (&request.method, &request.route) {
        (&Method::GET, Route::Buckets(Some(_)) | Route::S3 { bucket: Some(_), key: None }) => Op::List,
        (&Method::GET, Route::Object { .. } | Route::S3 { key: Some(_), .. }) => Op::Get,
        (&Method::HEAD, Route::Object { .. } | Route::S3 { key: Some(_), .. }) => Op::Head,
        (&Method::PUT | &Method::DELETE, Route::Object { .. } | Route::S3 { key: Some(_), .. }) => Op::Write,
        (&Method::GET, Route::Moss(_)) => Op::Batch,
        (&Method::GET, Route::Node) if request.value("what") == "smap" => Op::Smap,
        (&Method::POST | &Method::DELETE, Route::Buckets(Some(_))) => Op::Job,
        (_, Route::Health) => Op::Health,
        _ => Op::Other,
    }
}

/// The name a rule's prefix is compared with.
fn subject(request: &Request, op: Op) -> String {
    let body = || serde_json::from_slice::<serde_json::Value>(&request.body).unwrap_or_default();
    let text = |value: Option<&serde_json::Value>| value.and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    match (&request.route, op) {
        (Route::Object { key, .. } | Route::S3 { key: Some(key), .. }, _) => key.clone(),
        (Route::S3 { .. }, Op::List) => request.value("prefix").to_owned(),
        (_, Op::List) => text(body().pointer("/value/prefix")),
        (_, Op::Batch) => text(body().pointer("/in/0/objname")),
        _ => String::new(),
    }
}

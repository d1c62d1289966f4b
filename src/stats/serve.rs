//! `--listen ADDRESS`: `/metrics` (Prometheus), `/stats.json`, `/healthz` over HTTP, for scrapers and dashboards.
//!
//! It promises to answer while the mount hangs (a snapshot takes no lock of the read path) and to hold a bounded number of connections, each
//! for a bounded time. It has no secrets to keep and asks for no password: whoever may reach the address may read the figures.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::prometheus;
use super::snapshot::Snapshot;

/// Connections at once: a few scrapers and a person. More wait in the kernel's backlog.
const CONNECTIONS: usize = 16;
/// A connection is for one question; a scraper's own timeout is 10 s.
const CONNECTION_DEADLINE: Duration = Duration::from_secs(10);

/// Gives the snapshot of now.
pub type Source = Arc<dyn Fn() -> Snapshot + Send + Sync>;

/// Takes the address.
///
/// # Errors
/// One line that names the address and the remedy.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!(
                "--listen {address}: the address is taken by another process; choose another port, or {}:0 for a free one",
                address.ip()
            )
        }
        std::io::ErrorKind::AddrNotAvailable => format!("--listen {address}: this machine does not have that address"),
        std::io::ErrorKind::PermissionDenied => format!("--listen {address}: not permitted; ports below 1024 need root"),
        _ => format!("--listen {address}: {error}"),
    })
}

/// Answers until `shutdown` resolves.
pub async fn serve(listener: TcpListener, source: Source, shutdown: impl Future<Output = ()>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    tokio::pin!(shutdown);
    loop {
        let slot = tokio::select! {
            () = &mut shutdown => return,
            slot = Arc::clone(&slots).acquire_owned() => slot.expect("the semaphore is never closed"),
        };
        let stream = tokio::select! {
            () = &mut shutdown => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, most likely: trying again at once would spin.
                    tracing::warn!("--listen cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let source = Arc::clone(&source);
        tokio::spawn(async move {
            // Out of time or a broken connection: the client's business, it asks again.
            let _ = tokio::time::timeout(CONNECTION_DEADLINE, connection(stream, source)).await;
            drop(slot);
        });
    }
}

async fn connection(stream: TcpStream, source: Source) -> Result<(), hyper::Error> {
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let response = answer(request.method(), request.uri().path(), &source);
        async move { Ok::<_, Infallible>(response) }
    });
    hyper::server::conn::http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service).await
}

fn answer(method: &Method, path: &str, source: &Source) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        let mut response = page(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET\n".to_owned());
        response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match path {
        "/metrics" => page(StatusCode::OK, prometheus::CONTENT_TYPE, prometheus::render(&source())),
        "/stats.json" => page(StatusCode::OK, "application/json", source().to_json() + "\n"),
        "/healthz" => health(&source()),
        _ => page(StatusCode::NOT_FOUND, "text/plain", "there is /metrics, /stats.json and /healthz\n".to_owned()),
    }
}

/// Healthy is a mount whose files can be listed. A degraded tier is not ill: reads go on, and the stats say so.
fn health(s: &Snapshot) -> Response<Full<Bytes>> {
    match s.namespace.listing.as_str() {
        "failed" => page(StatusCode::SERVICE_UNAVAILABLE, "text/plain", "the listing failed\n".to_owned()),
        _ => page(StatusCode::OK, "text/plain", "ok\n".to_owned()),
    }
}

fn page(status: StatusCode, content_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::oneshot;

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn answers_until_shutdown() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let source: Source = Arc::new(|| Snapshot { schema: 1, ..Snapshot::default() });
        let server = tokio::spawn(serve(listener, source, async move { drop(stopped.await) }));

        let metrics = ask(address, "GET /metrics").await;
        assert!(
            metrics.starts_with("HTTP/1.1 200") && metrics.contains("version=0.0.4") && metrics.contains("belady_opens_total 0"),
            "{metrics}"
        );
        let json = ask(address, "GET /stats.json").await;
        let body = json.split("\r\n\r\n").nth(1).unwrap();
        assert_eq!(serde_json::from_str::<Snapshot>(body).unwrap().schema, 1);
        assert!(ask(address, "GET /healthz").await.ends_with("ok\n"));
        assert!(ask(address, "GET /nothing").await.starts_with("HTTP/1.1 404"));
        assert!(ask(address, "POST /metrics").await.starts_with("HTTP/1.1 405"));

        stop.send(()).unwrap();
        server.await.unwrap();
        assert!(TcpStream::connect(address).await.is_err(), "the address is free again");
    }

    #[tokio::test]
    async fn a_taken_address_is_named_with_its_remedy() {
        let taken = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let error = bind(taken.local_addr().unwrap()).await.unwrap_err();
        assert!(error.contains("taken by another process") && error.contains("127.0.0.1:"), "{error}");
    }

    #[test]
    fn a_failed_listing_is_ill() {
        let mut s = Snapshot::default();
        assert_eq!(health(&s).status(), StatusCode::OK);
        s.namespace.listing = "failed".into();
        assert_eq!(health(&s).status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}

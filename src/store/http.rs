//! What our two HTTP clients (S3's lean GET, AIStore) have in common: the pooled connection, headers that are read with care, a body that is exactly
//! as long as it must be, and why no answer came.
//!
//! Nothing here repeats a request or follows a redirect.

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::stats::Stats;
use crate::store::{Body, StoreError};
use crate::types::ErrorKind;

/// What a URL's path may hold as it is (RFC 3986's unreserved characters, which SigV4 also leaves, and the slash); all else is escaped, once.
pub(super) const PATH_ESCAPED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');
/// A pooled connection is let go after this long: below the 20 s after which S3 closes idle ones, so that we rarely write into a closed one.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// A connection whose peer has vanished is noticed after about this long.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// Of a server's words, this many characters are shown.
pub(super) const TEXT_MAX_CHARS: usize = 200;
/// Who we say we are.
pub(super) const USER_AGENT: &str = concat!("belady/", env!("CARGO_PKG_VERSION"));

/// Connections, pooled per host.
pub(super) type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A client that keeps at most `connections` idle ones per host.
pub(super) fn client(tls: rustls::ClientConfig, connect_timeout: Duration, connections: usize) -> HttpClient {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(connect_timeout));
    tcp.set_keepalive(Some(TCP_KEEPALIVE));
    let connector = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .pool_max_idle_per_host(connections)
        .build(connector)
}

/// The `Host` header as hyper would write it: without the scheme's own port. It is signed, so it must be exact.
pub(super) fn host_header(uri: &http::Uri, authority: &http::uri::Authority) -> String {
    match (uri.scheme_str(), authority.port_u16()) {
        (Some("http"), Some(80)) | (Some("https"), Some(443)) => authority.host().to_owned(),
        _ => authority.as_str().to_owned(),
    }
}

/// A header's text; `None` if it is missing or not ASCII.
pub(super) fn text(headers: &HeaderMap, name: impl header::AsHeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// What AIStore leaves as it is in a `Location`, and a URL cannot have (Go's `http.Redirect` encodes only what is not ASCII).
const RAW: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`').add(b'{').add(b'|').add(b'}');

/// The address that a `Location` means; `None`: it is none.
pub(super) fn location(text: &str) -> Option<http::Uri> {
    utf8_percent_encode(text, RAW).to_string().parse().ok()
}

/// `Content-Length`, if it is a number.
pub(super) fn content_length(headers: &HeaderMap) -> Option<u64> {
    text(headers, header::CONTENT_LENGTH).and_then(|value| value.parse().ok())
}

/// `bytes 0-9/100` or `bytes 0-9/*` → the range and, if said, the object's size.
pub(super) fn content_range(value: &str) -> Option<(Range<u64>, Option<u64>)> {
    let (range, total) = value.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (first.trim().parse::<u64>().ok()?, last.trim().parse::<u64>().ok()?);
    let end = last.checked_add(1)?;
    (first < end).then_some((first..end, total.trim().parse().ok()))
}

/// The beginning of a body, at most `max` bytes (more is an error, as is a body that does not end in `time`): for answers that are read as a whole.
pub(super) async fn collect(body: Incoming, max: usize, time: Duration) -> Result<Bytes, String> {
    match tokio::time::timeout(time, Limited::new(body, max).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) => Err(visible(&error.to_string())),
        Err(_) => Err(format!("it did not end in {} s", time.as_secs_f64())),
    }
}

/// A body on its way.
pub(super) struct Reading {
    pub(super) what: String,
    pub(super) incoming: Incoming,
    pub(super) remaining: u64,
    pub(super) idle_timeout: Duration,
    pub(super) stats: Arc<Stats>,
    pub(super) started: Instant,
    pub(super) began: Instant,
    pub(super) _permit: Option<OwnedSemaphorePermit>,
}

impl Reading {
    /// The body as a stream of exactly `remaining` bytes. It holds the permit, so that connections stay bounded until the body is read or dropped.
    pub(super) fn stream(self) -> Body {
        futures_util::stream::unfold(Some(self), |reading| async {
            let mut reading = reading?;
            match reading.next().await {
                Ok(Some(chunk)) => Some((Ok(chunk), Some(reading))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed()
    }

    /// The next chunk; `None` after the last one.
    async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        loop {
            // With a Content-Length hyper knows that this was all, and the connection is back in its pool. A chunked body must still show its end.
            if self.remaining == 0 && self.incoming.is_end_stream() {
                self.finished();
                return Ok(None);
            }
            let Ok(frame) = tokio::time::timeout(self.idle_timeout, self.incoming.frame()).await else {
                let text = format!("{}: no byte for {} s, {} still to come", self.what, self.idle_timeout.as_secs_f64(), self.remaining);
                return Err(StoreError::new(ErrorKind::Timeout, text));
            };
            match frame {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    let len = data.len() as u64;
                    self.stats.store.bytes.add(len);
                    self.remaining = self.remaining.checked_sub(len).ok_or_else(|| {
                        StoreError::new(ErrorKind::Corrupt, format!("{}: more bytes came than were asked for", self.what))
                    })?;
                    if !data.is_empty() {
                        return Ok(Some(data));
                    }
                }
                None if self.remaining == 0 => {
                    self.finished();
                    return Ok(None);
                }
                None => return Err(self.ended_early("")),
                Some(Err(error)) => return Err(self.ended_early(&format!(": {error}"))),
            }
        }
    }

    fn ended_early(&self, detail: &str) -> StoreError {
        StoreError::new(ErrorKind::Network, format!("{}: body ended early, {} bytes missing{detail}", self.what, self.remaining))
    }

    fn finished(&self) {
        let micros = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.stats.store.latency.record(self.began.elapsed().as_secs(), micros);
    }
}

/// Bounded, and on one line: it goes to terminals and logs.
pub(super) fn visible(text: &str) -> String {
    text.chars().take(TEXT_MAX_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Why no answer came, from the transport's chain of errors (hyper's, or hyper's inside the SDK's).
pub(super) fn transport_error(what: &str, endpoint: &str, error: &(dyn Error + 'static)) -> StoreError {
    let mut connecting = false;
    let mut cause: &(dyn Error + 'static) = error;
    loop {
        if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
            return StoreError::new(
                ErrorKind::Invalid,
                format!(
                    "{what}: TLS to {endpoint} failed: {tls}; check --endpoint-url, or trust the store's own authority with --ca-bundle FILE"
                ),
            );
        }
        connecting |= cause.downcast_ref::<hyper_util::client::legacy::Error>().is_some_and(hyper_util::client::legacy::Error::is_connect);
        // An io::Error hides the TLS error it carries from `source()`.
        let inner = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref).map(|e| e as &(dyn Error + 'static));
        match inner.or_else(|| cause.source()) {
            Some(next) => cause = next,
            None => break,
        }
    }
    let text = visible(&cause.to_string());
    let timed_out = text.contains("deadline has elapsed") || text.contains("timed out") || text.contains("timeout");
    let kind = if timed_out { ErrorKind::Timeout } else { ErrorKind::Network };
    if connecting {
        StoreError::new(kind, format!("{what}: cannot connect to {endpoint}: {text}; check --endpoint-url and the network"))
    } else {
        StoreError::new(kind, format!("{what}: the connection to {endpoint} failed: {text}"))
    }
}

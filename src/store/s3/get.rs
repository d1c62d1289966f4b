//! The lean GET: one signed request over a pooled connection, because the SDK spends more than twice its CPU on each (`benches/get_cpu.rs`).
//!
//! It signs with the SDK's own signer, sends over hyper, and hands out the body as it comes. It promises exactly the bytes asked for, of the
//! version asked for, or an error: status, `Content-Range`, `ETag` and length are all checked, and nothing is decoded. It does not repeat
//! (but once, for expired credentials). It follows AIStore's redirects to its targets, and no others ([`super::redirect`]): an `Authorization`
//! never travels to another host.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings, UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use percent_encoding::utf8_percent_encode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::S3Config;
use super::credentials::{CachedCredentials, Held};
use super::error::{Complaint, ERROR_BODY_MAX_BYTES};
use super::redirect::{Redirect, redirect};
use crate::stats::Stats;
use crate::store::http::{
    self as shared, HttpClient, PATH_ESCAPED, Reading, USER_AGENT, content_length, content_range, host_header, text, transport_error,
};
use crate::store::{Body, StoreError};
use crate::types::{ErrorKind, ObjectId};

/// An error body comes with its head or not at all.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Objects whose first answer's ETag is remembered; an entry is some 200 bytes.
const FIRST_MAX: u64 = 10_000;

/// The client for bodies. One per store.
pub(super) struct Getter {
    client: HttpClient,
    bucket: String,
    /// Scheme, authority and, in path style, the bucket; no slash at its end.
    base: String,
    host: String,
    region: String,
    /// `None`: anonymous.
    credentials: Option<Arc<CachedCredentials>>,
    requester_pays: bool,
    settings: SigningSettings,
    answer_timeout: Duration,
    idle_timeout: Duration,
    permits: Arc<Semaphore>,
    /// Of objects that were listed without one: the first answer's ETag.
    first: moka::sync::Cache<ObjectId, Arc<str>>,
    stats: Arc<Stats>,
    began: Instant,
}

impl fmt::Debug for Getter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Getter").field("base", &self.base).field("region", &self.region).finish_non_exhaustive()
    }
}

impl Getter {
    /// A client for the bucket at `base` (as the SDK's endpoint rules gave it).
    pub(super) fn new(
        config: &S3Config,
        base: &str,
        region: &str,
        credentials: Option<Arc<CachedCredentials>>,
        tls: rustls::ClientConfig,
        stats: Arc<Stats>,
    ) -> Result<Self, StoreError> {
        let refuse = |reason: &str| StoreError::new(ErrorKind::Invalid, format!("the endpoint {base:?} {reason}: check --endpoint-url"));
        let uri: http::Uri = base.parse().map_err(|_| refuse("is not a URL"))?;
        let authority = uri.authority().ok_or_else(|| refuse("names no host"))?;
        if authority.as_str().contains('@') {
            return Err(refuse("contains a user name"));
        }
        // None at all would wait for ever.
        let connections = config.max_connections.clamp(1, Semaphore::MAX_PERMITS);
        let client = shared::client(tls, config.connect_timeout, connections);
        let mut settings = SigningSettings::default();
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        Ok(Self {
            client,
            bucket: config.bucket.clone(),
            base: base.to_owned(),
            host: host_header(&uri, authority),
            region: region.to_owned(),
            credentials,
            requester_pays: config.requester_pays,
            settings,
            answer_timeout: config.connect_timeout + config.first_byte_timeout,
            idle_timeout: config.idle_timeout,
            permits: Arc::new(Semaphore::new(connections)),
            first: moka::sync::Cache::new(FIRST_MAX),
            stats,
            began: Instant::now(),
        })
    }

    /// See [`crate::store::Store::read`].
    pub(super) async fn get(&self, id: &ObjectId, range: Range<u64>) -> Result<Body, StoreError> {
        let what = format!("object {:?} in bucket {:?}", id.key, self.bucket);
        if range.is_empty() {
            return Err(StoreError::new(ErrorKind::Invalid, format!("{what}: an empty range was asked for")));
        }
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|_| StoreError::new(ErrorKind::Shutdown, format!("{what}: the store is shut down")))?;
        let mut held = match &self.credentials {
            Some(credentials) => Some(credentials.get().await?),
            None => None,
        };
        let mut renewed = false;
        loop {
            let started = Instant::now();
            let mut response = self.send(&what, id, &range, held.as_ref()).await?;
            let mut by_aistore = false;
            match redirect(&self.base, response.status(), response.headers(), &id.key) {
                Redirect::None => {}
                Redirect::Refused(reason) => return Err(StoreError::new(ErrorKind::Invalid, format!("{what}: {reason}"))),
                Redirect::Follow(target) => {
                    let bytes = format!("bytes={}-{}", range.start, range.end - 1);
                    let _ = shared::collect(response.into_body(), ERROR_BODY_MAX_BYTES, BODY_TIMEOUT).await;
                    response = self.at_target(&what, Method::GET, &target, Some(&bytes)).await?;
                    by_aistore = true;
                }
            }
            if response.status().is_success() {
                check_answer(&what, response.status().as_u16(), response.headers(), id, &range, by_aistore)?;
                if by_aistore && id.etag.starts_with('~') {
                    self.remember(&what, id, response.headers())?;
                }
                return Ok(self.body(what, response.into_body(), range.end - range.start, permit, started));
            }
            let complaint = complaint(response).await;
            if let (true, false, Some(credentials), Some(used)) = (complaint.is_expired_token(), renewed, &self.credentials, &held) {
                held = Some(credentials.renew(used.generation).await?);
                renewed = true;
                continue;
            }
            let error = complaint.into_error(&what);
            if error.kind == ErrorKind::Throttled {
                self.stats.store.throttled.add(1);
            }
            return Err(error);
        }
    }

    /// What AIStore lists has no ETag where a bucket's checksum is not MD5: then its first answer's is remembered, and later ones must have the same.
    fn remember(&self, what: &str, id: &ObjectId, headers: &HeaderMap) -> Result<(), StoreError> {
        let changed = |detail: String| StoreError::new(ErrorKind::Changed, format!("{what}: is another version than before ({detail})"));
        let etag = text(headers, header::ETAG).filter(|etag| !etag.is_empty());
        let etag = etag.ok_or_else(|| changed("the answer does not say which".to_owned()))?;
        let first = self.first.get_with(id.clone(), || Arc::from(etag));
        if *first == *etag { Ok(()) } else { Err(changed(format!("ETag {etag} now, {first} before"))) }
    }

    /// One request; its answer's head.
    async fn send(&self, what: &str, id: &ObjectId, range: &Range<u64>, held: Option<&Held>) -> Result<Response<Incoming>, StoreError> {
        let request = self.request(id, range, held).map_err(|reason| StoreError::new(ErrorKind::Invalid, format!("{what}: {reason}")))?;
        self.stats.store.get.add(1);
        self.answer(what, &self.host, request).await
    }

    async fn answer(&self, what: &str, host: &str, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, StoreError> {
        match tokio::time::timeout(self.answer_timeout, self.client.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(transport_error(what, host, &error)),
            Err(_) => {
                let seconds = self.answer_timeout.as_secs_f64();
                Err(StoreError::new(ErrorKind::Timeout, format!("{what}: no answer from {host} in {seconds} s")))
            }
        }
    }

    /// The same request at the target that a redirect named: its own mark is all the permission it needs, so nothing of ours goes along but the range.
    pub(super) async fn at_target(
        &self,
        what: &str,
        method: Method,
        target: &http::Uri,
        range: Option<&str>,
    ) -> Result<Response<Incoming>, StoreError> {
        self.stats.store.redirects.add(1);
        let mut request = Request::builder().method(method).uri(target).header("user-agent", USER_AGENT);
        if let Some(range) = range {
            request = request.header(header::RANGE, range);
        }
        let request = request.body(Full::default());
        let request = request.map_err(|error| StoreError::new(ErrorKind::Invalid, format!("{what}: cannot be asked for: {error}")))?;
        self.answer(what, target.authority().map_or("the target", http::uri::Authority::as_str), request).await
    }

    /// The request, signed.
    fn request(&self, id: &ObjectId, range: &Range<u64>, held: Option<&Held>) -> Result<Request<Full<Bytes>>, String> {
        let uri = format!("{}/{}", self.base, utf8_percent_encode(&id.key, &PATH_ESCAPED));
        let range = format!("bytes={}-{}", range.start, range.end - 1);
        let if_match = if_match(&id.etag);
        let mut headers: Vec<(&'static str, &str)> = vec![("host", &self.host), ("range", &range)];
        if let Some(etag) = &if_match {
            headers.push(("if-match", etag));
        }
        if self.requester_pays {
            headers.push(("x-amz-request-payer", "requester"));
        }
        let mut request = Request::get(&uri);
        for (name, value) in &headers {
            request = request.header(*name, *value);
        }
        request = request.header("user-agent", USER_AGENT);
        let mut request = request.body(Full::default()).map_err(|error| format!("cannot be asked for: {error}"))?;
        if let Some(held) = held {
            let signable = SignableRequest::new("GET", uri, headers.into_iter(), SignableBody::UnsignedPayload);
            let params = v4::SigningParams::builder()
                .identity(&held.identity)
                .region(&self.region)
                .name("s3")
                .time(super::wall_clock())
                .settings(self.settings.clone())
                .build()
                .map_err(|error| format!("cannot be signed: {error}"))?
                .into();
            let signed = signable.and_then(|signable| sign(signable, &params)).map_err(|error| format!("cannot be signed: {error}"))?;
            signed.into_parts().0.apply_to_request_http1x(&mut request);
        }
        Ok(request)
    }

    /// The body as a stream of exactly `len` bytes.
    fn body(&self, what: String, incoming: Incoming, len: u64, permit: OwnedSemaphorePermit, started: Instant) -> Body {
        Reading {
            what,
            incoming,
            remaining: len,
            idle_timeout: self.idle_timeout,
            stats: Arc::clone(&self.stats),
            started,
            began: self.began,
            _permit: Some(permit),
        }
        .stream()
    }
}

/// The `If-Match` of a version: none for one that is no ETag (`~…`, see [`crate::types::ObjectMeta::version`]) and for weak ones, which never match
/// (RFC 9110 §13.1.1). Some stores list ETags without their quotes.
fn if_match(etag: &str) -> Option<String> {
    match etag {
        "" => None,
        _ if etag.starts_with('~') || etag.starts_with("W/") => None,
        _ if etag.starts_with('"') => Some(etag.to_owned()),
        _ => Some(format!("\"{etag}\"")),
    }
}

/// The tag without weakness and quotes: what may be compared between a listing and an answer.
fn bare(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"')
}

/// Whether a 2xx answer is the range asked for, of the version asked for. The times that AIStore lists are those of the last access, not of a version.
fn check_answer(
    what: &str,
    status: u16,
    headers: &HeaderMap,
    id: &ObjectId,
    range: &Range<u64>,
    by_aistore: bool,
) -> Result<(), StoreError> {
    let changed =
        |detail: String| Err(StoreError::new(ErrorKind::Changed, format!("{what}: is another version than the one listed ({detail})")));
    let corrupt = |detail: String| Err(StoreError::new(ErrorKind::Corrupt, format!("{what}: the answer makes no sense: {detail}")));
    let is_etag = !id.etag.is_empty() && !id.etag.starts_with('~');
    // For stores that ignore If-Match, and for weak tags, with which it cannot be sent.
    if let (true, Some(etag)) = (is_etag, text(headers, header::ETAG))
        && bare(etag) != bare(&id.etag)
    {
        return changed(format!("ETag {etag}"));
    }
    let asked = range.end - range.start;
    let length = content_length(headers);
    let total = match status {
        206 => {
            let given = text(headers, header::CONTENT_RANGE);
            let Some((given, total)) = given.and_then(content_range) else { return corrupt(format!("206 with Content-Range {given:?}")) };
            if given != *range {
                let shorter = total.is_some_and(|total| total < range.end);
                let detail = format!("bytes {}-{} came for {}-{}", given.start, given.end - 1, range.start, range.end - 1);
                return if shorter { changed(detail) } else { corrupt(detail) };
            }
            total
        }
        200 if range.start == 0 => length,
        _ => return corrupt(format!("status {status} to a request for a range; the store or a proxy ignores Range")),
    };
    if let Some(length) = length.filter(|length| *length != asked) {
        return corrupt(format!("{length} bytes announced where {asked} were asked for"));
    }
    match (id.etag.strip_prefix('~').and_then(|version| version.split_once('-')), total) {
        (Some((size, _)), Some(total)) if size.parse() != Ok(total) => changed(format!("{total} bytes now, {size} when listed")),
        (Some((_, listed)), _) => match modified(headers) {
            Some(now) if !by_aistore && listed != "0" && listed.parse() != Ok(now) => changed("Last-Modified differs".to_owned()),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// `Last-Modified` in seconds since 1970.
pub(super) fn modified(headers: &HeaderMap) -> Option<i64> {
    let text = text(headers, header::LAST_MODIFIED)?;
    aws_smithy_types::DateTime::from_str(text, aws_smithy_types::date_time::Format::HttpDate).ok().map(|time| time.secs())
}

/// What an answer that is no success says. Its body is read only to a bound, and not for long.
async fn complaint(response: Response<Incoming>) -> Complaint {
    let status = response.status().as_u16();
    let region = response.headers().get("x-amz-bucket-region").and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    let body = shared::collect(response.into_body(), ERROR_BODY_MAX_BYTES, BODY_TIMEOUT).await.unwrap_or_default();
    Complaint::new(status, &region, &body)
}

#[cfg(test)]
mod tests;

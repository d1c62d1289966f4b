//! A request, parsed: which API, bucket and object, the query, the range. And the errors AIStore answers with.

use bytes::Bytes;
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use hyper::http::response::Builder;
use hyper::{Method, Response, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::json;

use super::body::Reply;
use super::objects::Bck;

/// What Go's `url.URL` leaves in a path as it is.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'/')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

/// The part of the API that a path belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// `/v1/buckets[/B]`.
    Buckets(Option<String>),
    /// `/v1/objects/B/O` and the easy URLs.
    Object {
        bucket: String,
        key: String,
    },
    /// `/v1/ml/moss[/B][/xid/wid/nat]`, the items after `moss`.
    Moss(Vec<String>),
    /// `/v1/daemon`, `/v1/cluster`.
    Node,
    Health,
    /// `/s3`, `/s3/B`, `/s3/B/K`.
    S3 {
        bucket: Option<String>,
        key: Option<String>,
    },
    Unknown,
}

/// A request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) route: Route,
    /// Decoded.
    pub(super) path: String,
    /// As sent.
    pub(super) raw_query: String,
    query: Vec<(String, String)>,
    /// Of an easy URL: `/s3/...` is the S3 dialect, the others name a provider.
    provider: Option<String>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Request {
    pub(super) fn parse(parts: Parts, body: Bytes) -> Result<Self, Failure> {
        let bad = || Failure::new(StatusCode::BAD_REQUEST, "", "invalid URL");
        let path = percent_decode_str(parts.uri.path()).decode_utf8().map_err(|_| bad())?.into_owned();
        let raw_query = parts.uri.query().unwrap_or_default().to_owned();
        let mut query = Vec::new();
        for pair in raw_query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = value.replace('+', " ");
            query.push((name.to_owned(), percent_decode_str(&value).decode_utf8().map_err(|_| bad())?.into_owned()));
        }
        let mut provider = None;
        let rest = path.strip_prefix('/').unwrap_or_default();
        let (first, after) = rest.split_once('/').unwrap_or((rest, ""));
        let route = match first {
            "v1" => Self::v1(after),
            "s3" => {
                let (bucket, key) = after.split_once('/').unwrap_or((after, ""));
                let some = |text: String| (!text.is_empty()).then_some(text);
                Route::S3 { bucket: some(bucket.to_owned()), key: some(clean(key)) }
            }
            "ais" | "aws" | "gs" | "gcp" | "az" | "azure" | "oci" | "oc" => {
                provider = Some(first.to_owned());
                Self::v1(&format!("objects/{after}"))
            }
            _ => Route::Unknown,
        };
        Ok(Self { method: parts.method, route, path, raw_query, query, provider, headers: parts.headers, body })
    }

    fn v1(path: &str) -> Route {
        let (first, after) = path.split_once('/').unwrap_or((path, ""));
        match first {
            "buckets" => Route::Buckets((!after.is_empty()).then(|| after.trim_end_matches('/').to_owned())),
            "objects" => match after.split_once('/') {
                Some((bucket, key)) if !bucket.is_empty() => Route::Object { bucket: bucket.to_owned(), key: key.to_owned() },
                _ => Route::Unknown,
            },
            "ml" => match after.strip_prefix("moss") {
                Some(items) => Route::Moss(items.split('/').filter(|item| !item.is_empty()).map(str::to_owned).collect()),
                None => Route::Unknown,
            },
            "daemon" | "cluster" => Route::Node,
            "health" => Route::Health,
            _ => Route::Unknown,
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn value(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The answer to what no handler knows.
    pub(super) fn unknown(&self) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, "", format!("invalid request URI: '{} {}'", self.method, self.path))
    }

    pub(super) fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }

    /// The bucket of this name with the query's provider and namespace.
    pub(super) fn bck(&self, name: &str) -> Result<Bck, Failure> {
        let provider = self.provider.as_deref().unwrap_or_else(|| self.value("provider"));
        Bck::new(provider, self.value("namespace"), name)
            .ok_or_else(|| Failure::new(StatusCode::BAD_REQUEST, "", format!("invalid bucket {name:?} or provider {provider:?}")))
    }

    /// In the S3 dialect what is not ASCII stays as it is, where nothing else is escaped.
    pub(super) fn encoded_path_s3(path: &str) -> String {
        if path.is_ascii() || path.contains(['%', '?', '#', ' ', '+']) { Self::encoded_path(path) } else { path.to_owned() }
    }

    /// The path as a redirect has it (`ais/prxred.go`, Go's `http.Redirect`): encoded as usual only where it has one of `%?# +`; else as it is,
    /// but for what is not ASCII. So `<`, `"` or `\` come raw, and a line break as a blank.
    pub(super) fn encoded_path(path: &str) -> String {
        if path.contains(['%', '?', '#', ' ', '+']) {
            return utf8_percent_encode(path, PATH).to_string();
        }
        // a header cannot carry the other controls here (Go sends them raw)
        utf8_percent_encode(&path.replace(['\r', '\n'], " "), CONTROLS).to_string()
    }
}

/// The S3 dialect joins a key's parts anew (`path.Join`): `a//b`, `a/./b` and `a/b/` all are `a/b` to it.
fn clean(key: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in key.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part == ".." && parts.last().is_some_and(|last| *last != "..") {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

/// AIStore's rule for names (`cmn/cos/err.go`).
pub(super) fn check_key(key: &str) -> Result<(), Failure> {
    let bad = key.is_empty() || key.ends_with('/') || key.starts_with("~/") || key.split('/').any(|part| part == "." || part == "..");
    if bad { Err(Failure::new(StatusCode::BAD_REQUEST, "errInvalidPath", format!("invalid object name {key:?}"))) } else { Ok(()) }
}

/// Bytes `start..end` of an object of this size; `None`: all of it.
pub(super) fn range(header: Option<&str>, size: u64) -> Result<Option<(u64, u64)>, Failure> {
    let Some(header) = header else { return Ok(None) };
    let refuse = || {
        Failure::new(
            StatusCode::RANGE_NOT_SATISFIABLE,
            "ErrRangeNotSatisfiable",
            format!("range {header:?} is not satisfiable (size {size})"),
        )
        .with("content-range", format!("bytes */{size}"))
    };
    let several = || Failure::new(StatusCode::RANGE_NOT_SATISFIABLE, "ErrUnsupp", "cannot multi-range read - operation not supported");
    let list = header.strip_prefix("bytes=").ok_or_else(refuse)?;
    if list.contains(',') {
        return Err(several());
    }
    let (first, last) = list.split_once('-').ok_or_else(refuse)?;
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| refuse());
    let (start, end) = match (first.trim(), last.trim()) {
        ("", suffix) => (size.saturating_sub(number(suffix)?), size),
        (start, "") => (number(start)?, size),
        (start, last) => (number(start)?, number(last)?.saturating_add(1).min(size)),
    };
    if start >= end || start >= size { Err(refuse()) } else { Ok(Some((start, end))) }
}

/// An error answer.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    pub(super) tcode: String,
    pub(super) message: String,
    pub(super) headers: Vec<(&'static str, String)>,
}

impl Failure {
    pub(super) fn new(status: StatusCode, tcode: &str, message: impl Into<String>) -> Self {
        Self { status, tcode: tcode.to_owned(), message: message.into(), headers: Vec::new() }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(super) fn no_bucket(bck: &Bck) -> Self {
        let (tcode, what) = if bck.is_remote() { ("ErrRemoteBckNotFound", "remote bucket") } else { ("ErrBckNotFound", "bucket") };
        Self::new(StatusCode::NOT_FOUND, tcode, format!("{what} \"{bck}\" does not exist"))
    }

    pub(super) fn no_object(bck: &Bck, key: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "ErrNotFound", format!("t[fake]: {bck}/{key} does not exist"))
    }

    pub(super) fn text(&self, request: &Request, node: &str) -> String {
        json!({
            "tcode": self.tcode,
            "message": self.message,
            "method": request.method.as_str(),
            "url_path": request.path,
            "remote_addr": "127.0.0.1:1",
            "caller": "",
            "node": node,
            "status": self.status.as_u16(),
        })
        .to_string()
    }

    /// JSON in the body; for HEAD in a header; XML in the S3 dialect.
    pub(super) fn answer(self, request: &Request, node: &str) -> Response<Reply> {
        let mut response = Response::builder().status(self.status);
        for (name, value) in &self.headers {
            response = response.header(*name, value);
        }
        if matches!(request.route, Route::S3 { .. }) {
            return self.s3_answer(request, response);
        }
        let text = self.text(request, node);
        response = response.header("content-type", "application/json").header("x-content-type-options", "nosniff");
        let made = if request.is_head() {
            response.header("hdr-error", header_text(&text)).body(Reply::empty())
        } else {
            response.body(Reply::text(text))
        };
        made.expect("names are ours, and values were made printable")
    }

    fn s3_answer(self, request: &Request, response: Builder) -> Response<Reply> {
        let code = match (self.tcode.as_str(), self.status) {
            ("ErrNotFound", _) => "NoSuchKey",
            ("ErrBckNotFound" | "ErrRemoteBckNotFound", _) => "NoSuchBucket",
            (_, StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED) => "AccessDenied",
            (_, StatusCode::RANGE_NOT_SATISFIABLE) => "InvalidRange",
            (_, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) => "SlowDown",
            ("", _) => "InvalidRequest",
            (tcode, _) => tcode,
        };
        let (message, path) = (xml(&self.message), xml(&request.path));
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message><Resource>{path}</Resource>\
             <RequestId></RequestId></Error>"
        );
        let body = if request.is_head() { Reply::empty() } else { Reply::text(body) };
        let response = response.header("content-type", "application/xml");
        response.body(body).expect("names are ours, and values are printable")
    }
}

/// Without what a header may not carry.
fn header_text(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii() && !c.is_ascii_control() { c.to_string() } else { c.escape_unicode().to_string() }).collect()
}

pub(super) fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;")
}

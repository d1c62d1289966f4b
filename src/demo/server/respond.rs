//! Answers one request: parse, suffer the scripted fault, check the signature, then list, HEAD or GET.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::SystemTime;

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use hyper::header::{self, HeaderMap};
use hyper::http::request::Parts;
use hyper::http::response::Builder;
use hyper::{Method, Response, StatusCode};
use percent_encoding::percent_decode_str;

use super::body::{Ending, Length, Paced, Reply};
use super::conn::Connection;
use super::counters::InFlight;
use super::fault::{Does, Operation};
use super::list::{Query, Refused, escape, page};
use super::objects::Object;
use super::{Shared, auth};

/// What a request asks for.
#[derive(Debug)]
struct Target {
    operation: Operation,
    bucket: String,
    key: String,
    /// Decoded, in their order.
    query: Vec<(String, String)>,
}

/// An S3 error, to be sent as XML.
#[derive(Debug)]
struct Failure {
    status: StatusCode,
    code: &'static str,
    message: String,
    headers: Vec<(&'static str, String)>,
}

impl Failure {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), headers: Vec::new() }
    }

    fn with(mut self, header: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((header, value.into()));
        self
    }
}

type Answer = Result<Response<Reply>, Failure>;

/// The answer to one request; an `Err` closes the connection without one.
pub(super) async fn respond(shared: &Shared, connection: &Arc<Connection>, request: &Parts) -> io::Result<Response<Reply>> {
    let target = match Target::parse(request) {
        Ok(target) => target,
        Err(failure) => return Ok(shared.failed(failure, request)),
    };
    let counting = &shared.counting;
    let counter = match target.operation {
        Operation::List => &counting.list,
        Operation::Head => &counting.head,
        Operation::Get => &counting.get,
        Operation::Other => &counting.other,
    };
    let number = counter.fetch_add(1, Relaxed);
    let in_flight = (target.operation == Operation::Get).then(|| InFlight::enter(counting));
    let matched = if target.operation == Operation::List { target.value("prefix") } else { &target.key };
    let fault = shared.script.lock().expect("no holder panics").strike(target.operation, matched);
    if fault.is_some() {
        counting.faults.fetch_add(1, Relaxed);
    }
    shared.record(target.operation, &target.key, request);
    let wait = shared.config.first_byte.wait(number, shared.config.seed);
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
    match &fault {
        Some(Does::Delay(more)) => tokio::time::sleep(*more).await,
        Some(Does::Hang) => std::future::pending().await,
        Some(Does::CloseBeforeAnswer) => return Err(io::Error::other("a scripted fault closes the connection here")),
        Some(Does::CloseIdle) => connection.close_after_answer.store(true, Relaxed),
        Some(Does::ResetBeforeBody) => connection.reset.store(true, Relaxed),
        _ => {}
    }
    let answer = match refused_by(fault.as_ref(), &target, request) {
        Some(failure) => Err(failure),
        None => shared.answer(connection, request, &target, fault.as_ref(), in_flight),
    };
    Ok(answer.unwrap_or_else(|failure| shared.failed(failure, request)))
}

/// The faults that answer instead of the bucket.
fn refused_by(fault: Option<&Does>, target: &Target, request: &Parts) -> Option<Failure> {
    match fault? {
        Does::Status { status, code, retry_after } => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let failure = Failure::new(status, code, "a scripted fault");
            Some(match retry_after {
                Some(seconds) => failure.with("retry-after", seconds.to_string()),
                None => failure,
            })
        }
        Does::ErrorAsSuccess { code } => Some(Failure::new(StatusCode::OK, code, "a scripted fault")),
        Does::Redirect { region } => Some(
            Failure::new(StatusCode::MOVED_PERMANENTLY, "PermanentRedirect", "The bucket is in another region.")
                .with("x-amz-bucket-region", *region),
        ),
        Does::RefuseEmptyQuery if target.query.iter().any(|(name, value)| value.is_empty() && name != "location") => {
            Some(Failure::new(StatusCode::BAD_REQUEST, "InvalidArgument", "a query parameter is empty"))
        }
        Does::RefuseContentLength if request.headers.contains_key(header::CONTENT_LENGTH) => {
            Some(Failure::new(StatusCode::BAD_REQUEST, "InvalidRequest", "Content-Length on a request without a body"))
        }
        _ => None,
    }
}

impl Target {
    fn parse(request: &Parts) -> Result<Self, Failure> {
        let refuse = |_| Failure::new(StatusCode::BAD_REQUEST, "InvalidURI", "Couldn't parse the specified URI.");
        let path = request.uri.path().strip_prefix('/').unwrap_or_default();
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        let key = percent_decode_str(key).decode_utf8().map_err(refuse)?.into_owned();
        let mut query = Vec::new();
        for pair in request.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = value.replace('+', " ");
            query.push((name.to_owned(), percent_decode_str(&value).decode_utf8().map_err(refuse)?.into_owned()));
        }
        let location = query.iter().any(|(name, _)| name == "location");
        let operation = match (&request.method, bucket.is_empty(), key.is_empty()) {
            (&Method::GET, false, true) if !location => Operation::List,
            (&Method::GET, false, false) => Operation::Get,
            (&Method::HEAD, false, false) => Operation::Head,
            _ => Operation::Other,
        };
        Ok(Self { operation, bucket: bucket.to_owned(), key, query })
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    fn value(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }
}

impl Shared {
    fn answer(
        &self,
        connection: &Arc<Connection>,
        request: &Parts,
        target: &Target,
        fault: Option<&Does>,
        in_flight: Option<InFlight>,
    ) -> Answer {
        if let Some(credentials) = &self.config.credentials {
            #[expect(clippy::disallowed_methods, reason = "a signature carries wall-clock time")]
            let now = SystemTime::now();
            auth::check(request, credentials, &self.config.region, now).map_err(|auth::Denied(status, code, message)| {
                self.counting.refused.fetch_add(1, Relaxed);
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::FORBIDDEN);
                Failure::new(status, code, message).with("x-amz-bucket-region", &self.config.region)
            })?;
        }
        if !matches!(request.method, Method::GET | Method::HEAD) {
            let message = "The specified method is not allowed against this resource.";
            return Err(Failure::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).with("allow", "GET, HEAD"));
        }
        if target.bucket.is_empty() {
            let name = &self.config.bucket;
            return Ok(self.xml(format!(
                "<ListAllMyBucketsResult><Owner><ID>belady</ID></Owner><Buckets><Bucket><Name>{name}</Name>\
                 <CreationDate>2023-11-14T22:13:20Z</CreationDate></Bucket></Buckets></ListAllMyBucketsResult>"
            )));
        }
        if target.bucket != self.config.bucket {
            return Err(Failure::new(StatusCode::NOT_FOUND, "NoSuchBucket", "The specified bucket does not exist"));
        }
        match target.operation {
            Operation::List => self.list(target, fault),
            Operation::Other => Ok(self.xml(format!("<LocationConstraint>{}</LocationConstraint>", self.config.region))),
            Operation::Head | Operation::Get => {
                let found = self.objects.read().expect("no holder panics").get(&target.key).cloned();
                let missing = || Failure::new(StatusCode::NOT_FOUND, "NoSuchKey", "The specified key does not exist.");
                let object: Arc<Object> = found.ok_or_else(missing)?;
                self.object(connection, request, &object, fault, in_flight)
            }
        }
    }

    fn list(&self, target: &Target, fault: Option<&Does>) -> Answer {
        let query = Query {
            prefix: target.value("prefix").to_owned(),
            delimiter: target.value("delimiter").to_owned(),
            start_after: target.value("start-after").to_owned(),
            token: target.get("continuation-token").map(str::to_owned),
            max_keys: target.get("max-keys").map(str::to_owned),
            url_encoded: target.value("encoding-type") == "url",
        };
        let objects = self.objects.read().expect("no holder panics");
        let xml = page(&self.config.bucket, &objects, &query, fault)
            .map_err(|Refused(code, message)| Failure::new(StatusCode::BAD_REQUEST, code, message))?;
        Ok(self.headers(StatusCode::OK).header(header::CONTENT_TYPE, "application/xml").body(Reply::text(xml)).expect(OUR_HEADERS))
    }

    fn object(
        &self,
        connection: &Arc<Connection>,
        request: &Parts,
        object: &Object,
        fault: Option<&Does>,
        in_flight: Option<InFlight>,
    ) -> Answer {
        let size = object.content.size();
        let (status, start, end) = select(&request.headers, object, fault)?;
        let etag = if fault == Some(&Does::WrongEtag) { "\"00000000000000000000000000000bad\"" } else { &*object.etag };
        let mut response = self
            .headers(status)
            .header(header::ETAG, etag)
            .header(header::LAST_MODIFIED, http_time(object.mtime_seconds))
            .header(header::ACCEPT_RANGES, "bytes");
        if !object.headers.iter().any(|(name, _)| name == header::CONTENT_TYPE) {
            response = response.header(header::CONTENT_TYPE, "binary/octet-stream");
        }
        for (name, value) in &object.headers {
            response = response.header(name, value);
        }
        if status == StatusCode::NOT_MODIFIED {
            return Ok(response.body(Reply::text("")).expect(OUR_HEADERS));
        }
        if status == StatusCode::PARTIAL_CONTENT {
            response = response.header(header::CONTENT_RANGE, format!("bytes {start}-{}/{size}", end - 1));
        }
        let delta = if let Some(Does::WrongContentLength { delta }) = fault { *delta } else { 0 };
        let told = (end - start).saturating_add_signed(delta);
        let untold = fault == Some(&Does::NoContentLength);
        if !untold {
            response = response.header(header::CONTENT_LENGTH, told);
        }
        let length = if untold || delta > 0 { Length::Untold } else { Length::Told };
        let Some(in_flight) = in_flight else { return Ok(response.body(Reply::text("").length(length)).expect(OUR_HEADERS)) };
        let left = |after: u64| (end - start).saturating_sub(after);
        let ending = match fault {
            Some(Does::Cut { after }) => Ending::Cut { left: left(*after) },
            Some(Does::Stall { after }) => Ending::Stall { left: left(*after) },
            Some(Does::ResetBeforeBody) => Ending::Cut { left: end - start },
            Some(Does::WrongContentLength { delta: 1.. }) => Ending::Cut { left: 0 },
            _ => Ending::Whole,
        };
        let paced = Paced {
            connection: Arc::clone(connection),
            total: Arc::clone(&self.pace),
            connection_bytes_per_second: self.config.connection_bytes_per_second,
            total_bytes_per_second: self.config.total_bytes_per_second,
        };
        let reply = Reply::object(&object.content, start, start + told.min(end - start), in_flight);
        Ok(response.body(reply.paced(paced).ending(ending).length(length)).expect(OUR_HEADERS))
    }

    fn xml(&self, inner: String) -> Response<Reply> {
        let xml = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{inner}");
        self.headers(StatusCode::OK).header(header::CONTENT_TYPE, "application/xml").body(Reply::text(xml)).expect(OUR_HEADERS)
    }

    fn failed(&self, failure: Failure, request: &Parts) -> Response<Reply> {
        let mut response = self.headers(failure.status).header(header::CONTENT_TYPE, "application/xml");
        for (name, value) in failure.headers {
            response = response.header(name, value);
        }
        // S3's errors for HEAD have no body: the client knows the status only.
        let body = if request.method == Method::HEAD {
            String::new()
        } else {
            let (code, message, resource) = (failure.code, escape(&failure.message), escape(request.uri.path()));
            format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message><Resource>{resource}</Resource></Error>"
            )
        };
        response.body(Reply::text(body)).unwrap_or_else(|_| Response::new(Reply::text("")))
    }

    fn headers(&self, status: StatusCode) -> Builder {
        let id = self.next_request.fetch_add(1, Relaxed);
        Response::builder().status(status).header("x-amz-request-id", format!("{id:016X}")).header(header::SERVER, "belady-demo")
    }
}

const OUR_HEADERS: &str = "names and values are ours, or were checked when the object was put";

/// Conditions (RFC 9110 §13.2.2: If-Match before If-None-Match) and range: status and bytes.
fn select(headers: &HeaderMap, object: &Object, fault: Option<&Does>) -> Result<(StatusCode, u64, u64), Failure> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let is_ours =
        |list: &str| list == "*" || list.split(',').any(|tag| tag.trim() == &*object.etag || tag.trim() == object.etag.trim_matches('"'));
    let size = object.content.size();
    if text(header::IF_MATCH).is_some_and(|list| !is_ours(list)) {
        let message = "At least one of the pre-conditions you specified did not hold";
        return Err(Failure::new(StatusCode::PRECONDITION_FAILED, "PreconditionFailed", message));
    }
    if text(header::IF_NONE_MATCH).is_some_and(is_ours) {
        return Ok((StatusCode::NOT_MODIFIED, 0, 0));
    }
    let range = if fault == Some(&Does::IgnoreRange) { None } else { text(header::RANGE).and_then(parse_range) };
    let (start, end) = match range {
        None => return Ok((StatusCode::OK, 0, size)),
        Some(Range::From(start, last)) => (start, last.map_or(size, |last| size.min(last.saturating_add(1)))),
        Some(Range::Last(count)) => (size.saturating_sub(count), size),
    };
    if start >= end {
        let failure = Failure::new(StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange", "The requested range is not satisfiable");
        return Err(failure.with("content-range", format!("bytes */{size}")));
    }
    Ok((StatusCode::PARTIAL_CONTENT, start, end))
}

#[derive(Debug, PartialEq, Eq)]
enum Range {
    /// From here to this last byte or the end.
    From(u64, Option<u64>),
    /// So many bytes at the end.
    Last(u64),
}

/// One range; what is none (several, another unit, reversed) is ignored, as RFC 9110 §14.2 allows.
fn parse_range(text: &str) -> Option<Range> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    match (first, last) {
        ("", last) => Some(Range::Last(last.parse().ok()?)),
        (first, "") => Some(Range::From(first.parse().ok()?, None)),
        (first, last) => {
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last).then_some(Range::From(first, Some(last)))
        }
    }
}

fn http_time(seconds: i64) -> String {
    DateTime::from_secs(seconds).fmt(Format::HttpDate).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_rfc_9110_says() {
        for (text, range) in [
            ("bytes=0-0", Some(Range::From(0, Some(0)))),
            ("bytes=5-", Some(Range::From(5, None))),
            ("bytes=-3", Some(Range::Last(3))),
            ("bytes=5-4", None),
            ("bytes=-", None),
            ("bytes=0-1,3-4", None),
            ("lines=0-1", None),
            ("bytes=x-1", None),
        ] {
            assert_eq!(parse_range(text), range, "{text}");
        }
    }
}

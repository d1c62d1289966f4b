//! What an S3 answer that is not the one asked for means: its kind, and one line for people.
//!
//! Pure. Only `Code` and `Message` of an error body are taken: some codes carry the access key and the signed text beside them, and
//! those must reach no log. A text names the object or bucket, what the store said and, where one is known, the remedy.

use std::error::Error;

use crate::store::StoreError;
use crate::store::http::visible;
use crate::types::ErrorKind;

/// An error body is read up to here; S3's are below 1 KiB.
pub(super) const ERROR_BODY_MAX_BYTES: usize = 8 << 10;

/// What the store said went wrong.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Complaint {
    pub(super) status: u16,
    /// S3's error code; empty where there was no body (HEAD).
    pub(super) code: String,
    pub(super) message: String,
    /// Header `x-amz-bucket-region`, or empty.
    pub(super) region: String,
}

impl Complaint {
    /// From an answer's status, region header and (the beginning of its) body.
    pub(super) fn new(status: u16, region: &str, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(&body[..body.len().min(ERROR_BODY_MAX_BYTES)]);
        Self { status, code: element(&text, "Code"), message: element(&text, "Message"), region: visible(region) }
    }

    /// Whether new credentials may help: the ones used have expired.
    pub(super) fn is_expired_token(&self) -> bool {
        matches!(self.code.as_str(), "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" | "RequestExpired")
    }

    /// Whether the bucket is in another region than the one signed for.
    pub(super) fn is_wrong_region(&self) -> bool {
        matches!(self.status, 301 | 307 | 308)
            || matches!(self.code.as_str(), "PermanentRedirect" | "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException")
    }

    fn kind(&self) -> ErrorKind {
        match self.code.as_str() {
            "NoSuchKey" | "NoSuchBucket" | "NoSuchVersion" => return ErrorKind::NotFound,
            "PreconditionFailed" | "InvalidRange" => return ErrorKind::Changed,
            "SlowDown" | "RequestLimitExceeded" | "Throttling" | "ThrottlingException" | "TooManyRequests" | "BandwidthLimitExceeded" => {
                return ErrorKind::Throttled;
            }
            "RequestTimeout" => return ErrorKind::Timeout,
            "InternalError" => return ErrorKind::Server,
            "AccessDenied"
            | "InvalidAccessKeyId"
            | "SignatureDoesNotMatch"
            | "InvalidObjectState"
            | "RequestTimeTooSkewed"
            | "InvalidToken" => {
                return ErrorKind::Denied;
            }
            _ if self.is_expired_token() => return ErrorKind::Denied,
            _ => {}
        }
        match self.status {
            404 => ErrorKind::NotFound,
            412 | 416 => ErrorKind::Changed,
            401 | 403 => ErrorKind::Denied,
            429 | 503 => ErrorKind::Throttled,
            408 => ErrorKind::Timeout,
            500.. => ErrorKind::Server,
            // 2xx and 1xx come here only when an answer makes no sense.
            ..300 => ErrorKind::Corrupt,
            _ => ErrorKind::Invalid,
        }
    }

    /// The failure, said about `what` (`object "k" in bucket "b"`, `bucket "b"`).
    pub(super) fn into_error(self, what: &str) -> StoreError {
        let kind = self.kind();
        let said = match (self.code.is_empty(), self.message.is_empty()) {
            (true, _) => format!("HTTP {}", self.status),
            (false, true) => format!("HTTP {} {}", self.status, self.code),
            (false, false) => format!("HTTP {} {}: {}", self.status, self.code, self.message.trim_end_matches('.')),
        };
        let remedy = self.remedy(kind, what);
        StoreError::new(kind, if remedy.is_empty() { format!("{what}: {said}") } else { format!("{what}: {remedy} ({said})") })
    }

    fn remedy(&self, kind: ErrorKind, what: &str) -> String {
        if self.is_wrong_region() {
            return if self.region.is_empty() {
                "is at another endpoint or in another region: use --region or --endpoint-url".to_owned()
            } else {
                format!("is in another region: use --region {}", self.region)
            };
        }
        const NO_BUCKET: &str = "no such bucket here: check the name and --endpoint-url";
        let text = match (kind, self.code.as_str()) {
            (_, "NoSuchBucket") => NO_BUCKET,
            (ErrorKind::NotFound, _) if what.starts_with("bucket ") => NO_BUCKET,
            (_, "InvalidObjectState") => "is archived and must be restored before it can be read",
            (_, "RequestTimeTooSkewed") => "this machine's clock is wrong: set it (the store refuses signatures more than 15 minutes off)",
            (_, "InvalidAccessKeyId") => "the store does not know this access key: check the credentials, --profile and --endpoint-url",
            (_, "SignatureDoesNotMatch") => {
                "the secret key does not belong to the access key, or a proxy changes requests: check the credentials"
            }
            (_, "InvalidToken") => "the session token is not valid: get new credentials",
            (_, "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" | "RequestExpired") => {
                "the credentials have expired: renew them"
            }
            (ErrorKind::Denied, _) => {
                "access denied: check the credentials and the policy (s3:GetObject, s3:ListBucket), or --no-sign-request for a public bucket"
            }
            (ErrorKind::Changed, _) => "is another version than the one listed",
            (ErrorKind::NotFound, _) => "does not exist",
            (ErrorKind::Corrupt, "") => "the answer is not one of S3: check --endpoint-url",
            (ErrorKind::Throttled, _) => "the store asks for a slower pace",
            (ErrorKind::Server, _) => "the store has failed: ask again later, or see its log",
            _ => "",
        };
        text.to_owned()
    }
}

/// The text of the first `<name>…</name>`, unescaped; empty if there is none. A scanner, not a parser: an error body has no nesting that matters.
fn element(text: &str, name: &str) -> String {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let Some((_, rest)) = text.split_once(open.as_str()) else { return String::new() };
    let Some((inner, _)) = rest.split_once(close.as_str()) else { return String::new() };
    let plain = inner.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'").replace("&amp;", "&");
    visible(&plain)
}

/// An answer whose body could not be read or understood.
pub(super) fn body_error(what: &str, status: u16, error: &(dyn Error + 'static)) -> StoreError {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<hyper::Error>() {
            return StoreError::new(ErrorKind::Network, format!("{what}: body ended early: {}", visible(&error.to_string())));
        }
        cause = error.source();
    }
    Complaint { status, ..Complaint::default() }.into_error(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::http::TEXT_MAX_CHARS;

    fn said(status: u16, code: &str) -> StoreError {
        let body = format!(
            "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>a &lt;b&gt; c.</Message><AWSAccessKeyId>AKIAX</AWSAccessKeyId></Error>"
        );
        Complaint::new(status, "", body.as_bytes()).into_error("object \"k\"")
    }

    #[test]
    fn answers_have_kinds() {
        for (status, code, kind) in [
            (404, "NoSuchKey", ErrorKind::NotFound),
            (404, "", ErrorKind::NotFound),
            (412, "PreconditionFailed", ErrorKind::Changed),
            (416, "InvalidRange", ErrorKind::Changed),
            (403, "AccessDenied", ErrorKind::Denied),
            (400, "ExpiredToken", ErrorKind::Denied),
            (400, "RequestTimeout", ErrorKind::Timeout),
            (400, "MalformedThing", ErrorKind::Invalid),
            (503, "SlowDown", ErrorKind::Throttled),
            (429, "", ErrorKind::Throttled),
            (200, "SlowDown", ErrorKind::Throttled),
            (500, "InternalError", ErrorKind::Server),
            (502, "", ErrorKind::Server),
            (301, "PermanentRedirect", ErrorKind::Invalid),
        ] {
            assert_eq!(said(status, code).kind, kind, "{status} {code}");
        }
    }

    #[test]
    fn texts_name_object_cause_and_remedy_and_no_key() {
        for (status, code, needle) in [
            (403, "InvalidObjectState", "archived"),
            (403, "RequestTimeTooSkewed", "clock"),
            (403, "AccessDenied", "--no-sign-request"),
            (301, "PermanentRedirect", "--region"),
            (404, "NoSuchBucket", "check the name"),
            (400, "Weird", "Weird: a <b> c"),
        ] {
            let text = said(status, code).to_string();
            assert!(text.starts_with("object \"k\": ") && text.contains(needle) && !text.contains("AKIAX"), "{text}");
        }
        let named = Complaint::new(301, "eu-west-1", b"").into_error("bucket \"b\"").to_string();
        assert!(named.contains("use --region eu-west-1"), "{named}");
    }

    #[test]
    fn bodies_that_are_no_xml_do_no_harm() {
        for body in ["", "<html>", "<Code>", "<Code></Code>", "<Code>a\nb\u{1}</Code>", "</Code><Code>"] {
            let complaint = Complaint::new(500, "", body.as_bytes());
            assert!(!complaint.code.contains('\n') && complaint.into_error("x").kind == ErrorKind::Server, "{body:?}");
        }
        let long = format!("<Code>{}</Code>", "x".repeat(4000));
        assert_eq!(Complaint::new(500, "", long.as_bytes()).code.len(), TEXT_MAX_CHARS);
    }
}

//! What an AIStore answer that is not the one asked for means: its kind, and one line for people. Pure.
//!
//! Source: NVIDIA/aistore `cmn/err.go`. Errors come as JSON in the body, or in the header `Hdr-Error` where there is no body (HEAD).

use serde::Deserialize;

use crate::store::StoreError;
use crate::store::http::visible;
use crate::types::ErrorKind;

/// An error body is read up to here; AIStore's are below 2 KiB.
pub(super) const ERROR_BODY_MAX_BYTES: usize = 8 << 10;

/// What the cluster said went wrong.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Complaint {
    pub(super) status: u16,
    /// AIStore's name of the error's type, e.g. `ErrBckNotFound`; may be empty.
    code: String,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Wire {
    tcode: String,
    message: String,
}

impl Complaint {
    /// From a status and the text of a body or of `Hdr-Error`, whatever that is.
    pub(super) fn new(status: u16, text: &[u8]) -> Self {
        let text = &text[..text.len().min(ERROR_BODY_MAX_BYTES)];
        let wire = serde_json::from_slice(text).unwrap_or_else(|_| {
            // Old servers, and proxies between us, answer in plain text; pages of HTML say nothing.
            let plain = String::from_utf8_lossy(text);
            let is_page = plain.trim_start().starts_with('<');
            Wire { tcode: String::new(), message: if is_page { String::new() } else { plain.into_owned() } }
        });
        Self { status, code: visible(&wire.tcode), message: visible(wire.message.trim()) }
    }

    /// Whether the bucket, and not the object, is what is not there.
    fn is_about_the_bucket(&self, what: &str) -> bool {
        what.starts_with("bucket ") || self.code.contains("Bck") || self.message.starts_with("bucket ")
    }

    /// Whether a listing's session is over: it can be taken up again with a new one.
    pub(super) const fn is_gone(&self) -> bool {
        self.status == 410
    }

    /// Whether this may be the answer of a server that does not know the path at all, rather than one about an object or a token.
    pub(super) fn is_about_the_path(&self) -> bool {
        matches!(self.status, 400 | 404 | 405 | 501) && !self.code.contains("NotFound") && !self.code.contains("Bck")
    }

    /// Whether it is a directory of a target that was asked for: it has no object's metadata, and AIStore calls that an error of its own (500).
    fn is_a_directory(&self) -> bool {
        self.status == 500 && self.code == "ErrLmetaNotFound"
    }

    pub(super) fn kind(&self) -> ErrorKind {
        match self.status {
            _ if self.is_a_directory() => ErrorKind::NotFound,
            404 => ErrorKind::NotFound,
            // Gone or overwritten behind the cluster's back; a range beyond the end of what is there now.
            409 | 410 | 412 | 416 => ErrorKind::Changed,
            401 | 403 => ErrorKind::Denied,
            429 => ErrorKind::Throttled,
            408 | 504 => ErrorKind::Timeout,
            // No room in the cluster for a cold object: that does not pass by itself, and readers should be told soon.
            507 => ErrorKind::Io,
            500.. => ErrorKind::Server,
            ..=399 => ErrorKind::Corrupt,
            _ => ErrorKind::Invalid,
        }
    }

    /// The failure, said about `what` (`object "k" in bucket "b"`, `bucket "b"`). `token`: where our token comes from, if there is one.
    pub(super) fn into_error(self, what: &str, token: Option<&str>) -> StoreError {
        let kind = self.kind();
        let said = match (self.code.is_empty(), self.message.is_empty()) {
            (_, true) => format!("HTTP {}", self.status),
            (true, false) => format!("HTTP {}: {}", self.status, self.message),
            (false, false) => format!("HTTP {} {}: {}", self.status, self.code, self.message),
        };
        let remedy = match (self.status, token) {
            (401, None) => {
                "the cluster asks for a token: set AIS_AUTHN_TOKEN, or AIS_AUTHN_TOKEN_FILE to the file that holds it".to_owned()
            }
            (401, Some(place)) => format!("the cluster does not take the token of {place}: get a new one"),
            (403, None) => "access denied: set AIS_AUTHN_TOKEN or AIS_AUTHN_TOKEN_FILE to a token that may read this bucket".to_owned(),
            (403, Some(place)) => format!("access denied: the token of {place} may not read this"),
            (404, _) if self.is_about_the_bucket(what) => {
                "no such bucket here: check its name, its ?provider= and ?namespace=, and --endpoint-url".to_owned()
            }
            (404, _) => "does not exist".to_owned(),
            _ if self.is_a_directory() => "does not exist (it is a folder)".to_owned(),
            (409 | 410 | 412 | 416, _) => "is another version than the one listed".to_owned(),
            (429, _) => "the cluster asks for a slower pace".to_owned(),
            (503, _) => "the cluster is starting, or has no target in service".to_owned(),
            (507, _) => "the cluster has no room to fetch it from the cloud".to_owned(),
            (500.., _) => "the cluster has failed: ask again later, or see its log".to_owned(),
            (..=399, _) => "the answer is not one of AIStore: check --endpoint-url".to_owned(),
            _ => String::new(),
        };
        StoreError::new(kind, if remedy.is_empty() { format!("{what}: {said}") } else { format!("{what}: {remedy} ({said})") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_OBJECT: &str = r#"{"tcode":"ErrObjNotFound","message":"ais://b/k does not exist","method":"GET","status":404}"#;

    fn said(status: u16, text: &str) -> StoreError {
        Complaint::new(status, text.as_bytes()).into_error("object \"k\" in bucket \"b\"", None)
    }

    #[test]
    fn answers_have_kinds_and_remedies() {
        for (status, body, kind, needle) in [
            (404, NO_OBJECT, ErrorKind::NotFound, "does not exist"),
            (404, r#"{"tcode":"ErrBckNotFound","message":"x"}"#, ErrorKind::NotFound, "no such bucket"),
            (401, "", ErrorKind::Denied, "AIS_AUTHN_TOKEN"),
            (403, "", ErrorKind::Denied, "AIS_AUTHN_TOKEN"),
            (409, "", ErrorKind::Changed, "another version"),
            (410, "", ErrorKind::Changed, "another version"),
            (416, "", ErrorKind::Changed, "another version"),
            (429, "", ErrorKind::Throttled, "slower pace"),
            (503, "starting up\n", ErrorKind::Server, "starting up"),
            (507, "", ErrorKind::Io, "no room"),
            (500, "<html>oops", ErrorKind::Server, "HTTP 500"),
            (200, "", ErrorKind::Corrupt, "--endpoint-url"),
            (400, r#"{"message":"bad \u0007 name"}"#, ErrorKind::Invalid, "bad   name"),
        ] {
            let error = said(status, body);
            assert_eq!(error.kind, kind, "{status}");
            assert!(error.to_string().starts_with("object \"k\"") && error.to_string().contains(needle), "{error}");
        }
        let with = Complaint::new(401, b"").into_error("bucket \"b\"", Some("AIS_AUTHN_TOKEN_FILE /t")).to_string();
        assert!(with.contains("AIS_AUTHN_TOKEN_FILE /t"), "{with}");
    }

    #[test]
    fn garbage_does_no_harm() {
        for text in ["", "{", "[]", "null", "\u{0}\u{1}", "{\"message\":7}", &"x".repeat(100_000)] {
            let error = said(500, text);
            assert!(!error.to_string().contains('\n') && error.to_string().len() < 600, "{error}");
        }
        assert!(!said(500, "a\nb").to_string().contains('\n'));
    }

    #[test]
    fn a_server_without_a_path_is_told_from_one_without_the_object() {
        assert!(Complaint::new(404, b"404 page not found").is_about_the_path());
        assert!(Complaint::new(400, br#"{"message":"invalid path /v1/ml"}"#).is_about_the_path());
        assert!(!Complaint::new(404, NO_OBJECT.as_bytes()).is_about_the_path());
        assert!(!Complaint::new(429, b"").is_about_the_path() && !Complaint::new(401, b"").is_about_the_path());
    }
}

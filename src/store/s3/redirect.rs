//! AIStore's S3 endpoint answers GET and HEAD with a 307 to the target that has the object. It is followed; a redirect of anybody else is not.
//!
//! What is asked of it: the answer says `Server: AIStore`; the `Location` is an absolute URL of the same scheme (never from TLS to plain text), without
//! a user name; it ends in the same key; and it carries AIStore's own mark, the query keys `pid` (the proxy that sent us) and `utm` (when), beside
//! which a cluster that signs puts its signature (`u`). Our `Authorization` and all `x-amz-*` headers stay behind: the target takes the mark for
//! permission. It is followed once, and not remembered: it is for one request.

use http::{HeaderMap, StatusCode, Uri, header};
use percent_encoding::percent_decode_str;

use crate::store::http::{location, text};

/// What an answer asks us to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// It is no redirect of AIStore.
    None,
    Follow(Uri),
    /// It is one, but not one that may be followed: why.
    Refused(&'static str),
}

/// Looks at the head of an answer to a request at `base` for `key`.
pub(super) fn redirect(base: &str, status: StatusCode, headers: &HeaderMap, key: &str) -> Redirect {
    let by_aistore = text(headers, header::SERVER).is_some_and(|server| server.to_ascii_lowercase().starts_with("aistore"));
    if status != StatusCode::TEMPORARY_REDIRECT || !by_aistore {
        return Redirect::None;
    }
    let Some(target) = text(headers, header::LOCATION).and_then(location) else {
        return Redirect::Refused("AIStore redirects without saying where to");
    };
    let (Some(scheme), Some(authority)) = (target.scheme_str(), target.authority()) else {
        return Redirect::Refused("AIStore redirects to something that is no absolute address");
    };
    if !base.starts_with(&format!("{scheme}://")) || authority.as_str().contains('@') {
        return Redirect::Refused("AIStore redirects to another scheme, or to an address with a user name: not followed");
    }
    let path = percent_decode_str(target.path()).decode_utf8();
    if !path.is_ok_and(|path| path.strip_suffix(key).is_some_and(|rest| rest.ends_with('/'))) {
        return Redirect::Refused("AIStore redirects to another key: not followed");
    }
    let has = |name: &str| target.query().is_some_and(|query| query.split('&').any(|part| part.split('=').next() == Some(name)));
    if !has("pid") || !has("utm") {
        return Redirect::Refused("AIStore redirects without its mark (pid, utm): not followed");
    }
    Redirect::Follow(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(server: &'static str, location: &str) -> Redirect {
        let mut headers = HeaderMap::new();
        headers.insert(header::SERVER, http::HeaderValue::from_static(server));
        headers.insert(header::LOCATION, location.parse().expect("a value"));
        redirect("http://p:8080/s3/b", StatusCode::TEMPORARY_REDIRECT, &headers, "a/x y")
    }

    #[test]
    fn only_aistores_own_marked_redirects_are_followed() {
        let good = "http://t:8081/s3/b/a/x%20y?pid=p&utm=1";
        assert_eq!(asked("AIStore", good), Redirect::Follow(good.parse().expect("an address")));
        assert!(matches!(asked("AIStore", &good.replace("%20", " ")), Redirect::Follow(_)), "as AIStore writes it");
        assert_eq!(asked("nginx", good), Redirect::None);
        for bad in [
            "https://t:8081/s3/b/a/x%20y?pid=p&utm=1",
            "http://me@t:8081/s3/b/a/x%20y?pid=p&utm=1",
            "/s3/b/a/x%20y?pid=p&utm=1",
            "http://t:8081/s3/b/other?pid=p&utm=1",
            "http://t:8081/s3/b/za/x%20y?pid=p&utm=1",
            "http://t:8081/s3/b/a/x%20y",
            "http://t:8081/s3/b/a/x%20y?utm=1",
        ] {
            assert!(matches!(asked("AIStore", bad), Redirect::Refused(_)), "{bad}");
        }
    }
}

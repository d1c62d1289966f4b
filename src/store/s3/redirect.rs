//! AIStore's S3 endpoint answers GET and HEAD with a 307 to the target that has the object. It is followed; a redirect of anybody else is not.
//!
//! What is asked of it: the answer says `Server: AIStore`; the `Location` is an absolute URL of the same scheme (never from TLS to plain text), without
//! a user name; it ends in the same key (UTF-8 as it is where nothing else is escaped); and it carries AIStore's own mark, the query keys `pid` (the proxy that sent us) and `utm` (when), beside
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
    let said = headers.get(header::LOCATION).and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
    let Some(target) = said.and_then(location) else {
        return Redirect::Refused("AIStore redirects without saying where to");
    };
    let (Some(scheme), Some(authority)) = (target.scheme_str(), target.authority()) else {
        return Redirect::Refused("AIStore redirects to something that is no absolute address");
    };
    if !base.starts_with(&format!("{scheme}://")) || authority.as_str().contains('@') {
        return Redirect::Refused("AIStore redirects to another scheme, or to an address with a user name: not followed");
    }
    if !ends_in(&target, key) {
        return Redirect::Refused(if key.contains('?') {
            // 5.0 cuts the key there, and sends us to whoever would have the rest
            "AIStore's S3 endpoint cannot serve a name with '?' in it: mount the bucket as ais://"
        } else {
            "AIStore redirects to another key: not followed"
        });
    }
    let has = |name: &str| target.query().is_some_and(|query| query.split('&').any(|part| part.split('=').next() == Some(name)));
    if !has("pid") || !has("utm") {
        return Redirect::Refused("AIStore redirects without its mark (pid, utm): not followed");
    }
    Redirect::Follow(target)
}

fn ends_in(target: &Uri, key: &str) -> bool {
    let path = percent_decode_str(target.path()).decode_utf8();
    path.is_ok_and(|path| path.strip_suffix(key).is_some_and(|rest| rest.ends_with('/')))
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

    #[test]
    fn keys_that_aistore_writes_raw_are_read() {
        let asked = |location: &[u8], key: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::SERVER, http::HeaderValue::from_static("AIStore"));
            headers.insert(header::LOCATION, http::HeaderValue::from_bytes(location).expect("a value"));
            match redirect("http://p:8080/s3/b", StatusCode::TEMPORARY_REDIRECT, &headers, key) {
                Redirect::Follow(target) => Some(target.to_string()),
                Redirect::None | Redirect::Refused(_) => None,
            }
        };
        // as seen from AIStore 5.0
        assert_eq!(
            asked("http://t:8081/s3/b/ü/文.bin?pid=p&utm=1".as_bytes(), "ü/文.bin").as_deref(),
            Some("http://t:8081/s3/b/%C3%BC/%E6%96%87.bin?pid=p&utm=1")
        );
        assert_eq!(asked(b"http://t:8081/s3/b/a?b=&pid=p&utm=1", "a?b"), None, "another key's target");
        assert_eq!(asked(b"http://t:8081/s3/b/\xff?pid=p&utm=1", "\u{ff}"), None);
    }
}

//! Checks of AWS signature version 4 in the Authorization header: the signature is computed again from what arrived and compared.
//!
//! It does not check presigned URLs or streaming (aws-chunked) bodies: nothing is uploaded here.

use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials as SigningCredentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SessionTokenMode, SignableBody, SignableRequest, SigningSettings, UriPathNormalizationMode,
    sign,
};
use aws_sigv4::sign::v4;
use aws_smithy_types::DateTime;
use hyper::header::HeaderMap;
use hyper::http::request::Parts;

/// S3 refuses a request whose clock is further off.
const MAX_SKEW: Duration = Duration::from_secs(15 * 60);

/// Who may read. Debug shows no secret.
#[derive(Clone)]
pub struct Credentials {
    pub access_key: String,
    pub secret_key: String,
    /// Temporary credentials carry one.
    pub session_token: Option<String>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// Why a request is refused: S3's status, code and text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Denied(pub(super) u16, pub(super) &'static str, pub(super) String);

/// Checks `request` against `credentials` of a bucket in `region` at the time `now`.
pub(super) fn check(request: &Parts, credentials: &Credentials, region: &str, now: SystemTime) -> Result<(), Denied> {
    let denied = |code, text: &str| Denied(403, code, text.to_owned());
    let header = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok());
    let Some(authorization) = header("authorization") else { return Err(denied("AccessDenied", "Access Denied")) };
    let malformed = || Denied(400, "AuthorizationHeaderMalformed", "The authorization header is malformed.".to_owned());
    let claim = Claim::parse(authorization).ok_or_else(malformed)?;
    if claim.access_key != credentials.access_key {
        return Err(denied("InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records."));
    }
    if claim.region != region {
        let text = format!("The authorization header is malformed; the region '{}' is wrong; expecting '{region}'", claim.region);
        return Err(Denied(400, "AuthorizationHeaderMalformed", text));
    }
    if header("x-amz-security-token") != credentials.session_token.as_deref() {
        return Err(Denied(400, "InvalidToken", "The provided token is malformed or otherwise invalid.".to_owned()));
    }
    let time = header("x-amz-date").and_then(parse_time).ok_or_else(|| denied("AccessDenied", "A valid x-amz-date header is required"))?;
    let skew = now.duration_since(time).unwrap_or_else(|error| error.duration());
    if skew > MAX_SKEW {
        return Err(denied("RequestTimeTooSkewed", "The difference between the request time and the current time is too large."));
    }
    // S3 wants these signed: a signature that leaves them out proves nothing about the request.
    if !["host", "x-amz-date"].iter().all(|name| claim.signed_headers.contains(name)) {
        return Err(denied("AccessDenied", "There were headers present in the request which were not signed"));
    }
    let ours = authorization_for(request, &claim, credentials, time).ok_or_else(malformed)?;
    if Claim::parse(&ours).is_some_and(|ours| ours.signed_headers == claim.signed_headers && ours.signature == claim.signature) {
        Ok(())
    } else {
        Err(denied("SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided."))
    }
}

/// An Authorization header, taken apart.
#[derive(Debug)]
struct Claim<'a> {
    access_key: &'a str,
    region: &'a str,
    signed_headers: Vec<&'a str>,
    signature: &'a str,
}

impl<'a> Claim<'a> {
    fn parse(header: &'a str) -> Option<Self> {
        let fields = header.strip_prefix("AWS4-HMAC-SHA256 ")?;
        let field = |name: &str| fields.split(',').find_map(|field| field.trim().strip_prefix(name));
        let mut credential = field("Credential=")?.rsplitn(5, '/');
        let (terminator, service, region) = (credential.next()?, credential.next()?, credential.next()?);
        let (_date, access_key) = (credential.next()?, credential.next()?);
        let signed_headers = field("SignedHeaders=")?.split(';').collect();
        (terminator == "aws4_request" && service == "s3").then_some(Self {
            access_key,
            region,
            signed_headers,
            signature: field("Signature=")?,
        })
    }
}

/// The Authorization header this request must carry.
fn authorization_for(request: &Parts, claim: &Claim<'_>, credentials: &Credentials, time: SystemTime) -> Option<String> {
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    // The header of this name is among the signed ones where the client signed it; nothing is added.
    settings.payload_checksum_kind = PayloadChecksumKind::NoHeader;
    settings.session_token_mode =
        if claim.signed_headers.contains(&"x-amz-security-token") { SessionTokenMode::Include } else { SessionTokenMode::Exclude };
    settings.excluded_headers = None;
    let token = credentials.session_token.clone();
    let identity = SigningCredentials::new(&credentials.access_key, &credentials.secret_key, token, None, "demo").into();
    let parameters =
        v4::SigningParams::builder().identity(&identity).region(claim.region).name("s3").time(time).settings(settings).build().ok()?.into();
    let headers = signed_headers(&request.headers, &claim.signed_headers)?;
    let host = request.headers.get("host")?.to_str().ok()?;
    let uri = format!("http://{host}{}", request.uri.path_and_query()?);
    let hash = request.headers.get("x-amz-content-sha256")?.to_str().ok()?;
    let body = SignableBody::Precomputed(hash.to_owned());
    let signable = SignableRequest::new(request.method.as_str(), uri, headers.into_iter(), body).ok()?;
    let (instructions, _) = sign(signable, &parameters).ok()?.into_parts();
    let authorization = instructions.headers().find(|(name, _)| *name == "authorization")?.1.to_owned();
    Some(authorization)
}

/// Names and values of the headers that were signed; `None` when one of them is missing.
fn signed_headers<'a>(headers: &'a HeaderMap, names: &[&'a str]) -> Option<Vec<(&'a str, &'a str)>> {
    let mut signed = Vec::with_capacity(names.len());
    for name in names {
        let before = signed.len();
        for value in headers.get_all(*name) {
            signed.push((*name, value.to_str().ok()?));
        }
        if signed.len() == before {
            return None;
        }
    }
    Some(signed)
}

/// `20260131T235959Z`.
fn parse_time(text: &str) -> Option<SystemTime> {
    if text.len() != 16 || !text.is_ascii() {
        return None;
    }
    let rfc3339 =
        format!("{}-{}-{}T{}:{}:{}Z", &text[..4], &text[4..6], &text[6..8], &text[9..11], &text[11..13], text[13..].strip_suffix('Z')?);
    let time = DateTime::from_str(&rfc3339, aws_smithy_types::date_time::Format::DateTime).ok()?;
    SystemTime::try_from(time).ok()
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    /// The GET of the S3 documentation ("Signature Calculations for the Authorization Header"): an answer we did not compute.
    fn documented() -> (Parts, Credentials, SystemTime) {
        let request = Request::get("/test.txt")
            .header("host", "examplebucket.s3.amazonaws.com")
            .header("range", "bytes=0-9")
            .header("x-amz-content-sha256", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
            .header("x-amz-date", "20130524T000000Z")
            .header(
                "authorization",
                "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
                 SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
                 Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            );
        let credentials = Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            session_token: None,
        };
        (request.body(()).unwrap().into_parts().0, credentials, parse_time("20130524T000000Z").unwrap())
    }

    fn code(request: &Parts, credentials: &Credentials, now: SystemTime) -> &'static str {
        check(request, credentials, "us-east-1", now).map_or_else(|denied| denied.1, |()| "ok")
    }

    #[test]
    fn the_documented_signature_is_accepted_and_nothing_near_it() {
        let (mut request, credentials, now) = documented();
        assert_eq!(code(&request, &credentials, now), "ok");
        assert_eq!(code(&request, &credentials, now + MAX_SKEW), "ok");
        assert_eq!(code(&request, &credentials, now + MAX_SKEW + Duration::from_secs(1)), "RequestTimeTooSkewed");
        assert_eq!(code(&request, &credentials, now - MAX_SKEW - Duration::from_secs(1)), "RequestTimeTooSkewed");
        let wrong_secret = Credentials { secret_key: "x".to_owned(), ..credentials.clone() };
        assert_eq!(code(&request, &wrong_secret, now), "SignatureDoesNotMatch");
        let other_key = Credentials { access_key: "x".to_owned(), ..credentials.clone() };
        assert_eq!(code(&request, &other_key, now), "InvalidAccessKeyId");
        assert_eq!(check(&request, &credentials, "eu-west-1", now).unwrap_err().1, "AuthorizationHeaderMalformed");
        request.headers.insert("range", "bytes=0-10".parse().unwrap());
        assert_eq!(code(&request, &credentials, now), "SignatureDoesNotMatch");
        request.headers.remove("authorization");
        assert_eq!(code(&request, &credentials, now), "AccessDenied");
    }

    #[test]
    fn nonsense_is_refused_without_a_panic() {
        let (mut request, credentials, now) = documented();
        for text in ["", "x", "AWS4-HMAC-SHA256 ", "AWS4-HMAC-SHA256 Credential=////,SignedHeaders=,Signature=", "Basic eDp5"] {
            request.headers.insert("authorization", text.parse().unwrap());
            assert_ne!(code(&request, &credentials, now), "ok", "{text}");
        }
        for text in ["", "20130524T000000", "20130524T0000é0Z", "2013052400000000", "20139924T000000Z"] {
            assert!(parse_time(text).is_none(), "{text}");
        }
        assert!(!format!("{credentials:?}").contains("wJalr"));
    }
}

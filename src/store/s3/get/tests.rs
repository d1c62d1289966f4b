//! The lean GET against a server that answers by script, over real sockets. Time-outs are short or never reached; nothing is timed.

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use tokio::net::TcpListener;

use futures_util::StreamExt;

use super::*;
use crate::store::scripted::{Scripted, Then, answer};

impl Scripted {
    fn getter(&self, change: impl FnOnce(&mut S3Config)) -> Getter {
        let mut config = S3Config::new("b");
        config.first_byte_timeout = Duration::from_secs(20);
        config.idle_timeout = Duration::from_secs(20);
        change(&mut config);
        let credentials = (!config.no_sign_request).then(|| {
            let keys = Credentials::new("AKIDEXAMPLE", "secret", Some("token".into()), None, "test");
            Arc::new(CachedCredentials::new(SharedCredentialsProvider::new(keys), "a test"))
        });
        let tls = crate::store::tls::client_config(None).expect("TLS");
        Getter::new(&config, &format!("http://{}/b", self.address), "us-east-1", credentials, tls, Arc::default()).expect("an endpoint")
    }
}

fn id() -> ObjectId {
    ObjectId { key: Arc::from("k"), etag: Arc::from("\"e\"") }
}

/// The right answer to bytes 2..6 of a ten-byte object.
fn right() -> String {
    answer("206 Partial Content", "Content-Range: bytes 2-5/10\r\nETag: \"e\"\r\n", 4, "2345")
}

async fn read(getter: &Getter, id: &ObjectId, range: Range<u64>) -> Result<String, StoreError> {
    let mut body = getter.get(id, range).await?;
    let mut all = Vec::new();
    while let Some(chunk) = body.next().await {
        all.extend_from_slice(&chunk?);
    }
    Ok(String::from_utf8(all).expect("text"))
}

/// One answer to a GET of bytes 2..6: the bytes, or the kind of failure and its text.
async fn check(answer: String, then: Then) -> Result<String, (ErrorKind, String)> {
    let server = Scripted::start(vec![(answer, then)]).await;
    let getter = server.getter(|_| {});
    let got = read(&getter, &id(), 2..6).await.map_err(|error| (error.kind, error.to_string()));
    assert_eq!(server.asked().len(), 1, "a store does not repeat: {got:?}");
    if let Err((_, text)) = &got {
        assert!(text.starts_with("object \"k\" in bucket \"b\": "), "{text}");
    }
    got
}

fn kind(got: Result<String, (ErrorKind, String)>) -> ErrorKind {
    got.expect_err("not the bytes").0
}

#[tokio::test]
async fn exactly_the_bytes_asked_for_or_an_error() {
    let whole = "Content-Range: bytes 2-5/10\r\n";
    assert_eq!(check(right(), Then::Keep).await.expect("right"), "2345");
    assert_eq!(check(right().replace("ETag", "X-Nothing"), Then::Keep).await.expect("an ETag may be missing"), "2345");
    let chunked = |body: &str| format!("HTTP/1.1 206 OK\r\nTransfer-Encoding: chunked\r\n{whole}\r\n{body}");
    assert_eq!(check(chunked("4\r\n2345\r\n0\r\n\r\n"), Then::Keep).await.expect("chunked"), "2345");
    assert_eq!(kind(check(chunked("3\r\n234\r\n0\r\n\r\n"), Then::Keep).await), ErrorKind::Network);
    assert_eq!(kind(check(chunked("5\r\n23456\r\n0\r\n\r\n"), Then::Keep).await), ErrorKind::Corrupt);
    assert_eq!(kind(check(chunked("4\r\n2345\r\n1\r\n6\r\n0\r\n\r\n"), Then::Keep).await), ErrorKind::Corrupt);
    for (status, headers, length) in [
        ("206 OK", "Content-Range: bytes 3-6/10\r\n", 4),
        ("206 OK", "Content-Range: bytes 2-6/10\r\n", 5),
        ("206 OK", "Content-Range: bytes=2-5\r\n", 4),
        ("206 OK", "", 4),
        ("206 OK", whole, 3),
        ("200 OK", "", 10),
        ("204 No Content", "", 0),
    ] {
        let got = check(answer(status, headers, length, &"x".repeat(length)), Then::Close).await;
        assert_eq!(kind(got), ErrorKind::Corrupt, "{status} {headers} {length}");
    }
}

#[tokio::test]
async fn the_version_asked_for_or_an_error() {
    let other = right().replace("\"e\"", "\"f\"");
    assert_eq!(kind(check(other, Then::Keep).await), ErrorKind::Changed);
    assert_eq!(kind(check(answer("412 Precondition Failed", "", 0, ""), Then::Keep).await), ErrorKind::Changed);
    assert_eq!(kind(check(answer("416 Range Not Satisfiable", "", 0, ""), Then::Keep).await), ErrorKind::Changed);
    let shrunk = answer("206 OK", "Content-Range: bytes 2-3/4\r\n", 2, "23");
    assert_eq!(kind(check(shrunk, Then::Keep).await), ErrorKind::Changed);
}

#[tokio::test]
async fn if_match_is_sent_for_strong_etags_only_and_the_rest_is_compared() {
    for (etag, sent, answered, bytes) in [
        ("\"e\"", Some("\"e\""), "ETag: \"e\"", true),
        ("e", Some("\"e\""), "ETag: \"e\"", true),
        ("W/\"e\"", None, "ETag: W/\"e\"", true),
        ("W/\"e\"", None, "ETag: W/\"f\"", false),
        ("~10-1700000000", None, "Last-Modified: Tue, 14 Nov 2023 22:13:20 GMT", true),
        ("~10-1700000000", None, "Last-Modified: Tue, 14 Nov 2023 22:13:21 GMT", false),
        ("~11-0", None, "X-Nothing: 1", false),
        ("~10-0", None, "X-Nothing: 1", true),
    ] {
        let server = Scripted::start(vec![(right().replace("ETag: \"e\"", answered), Then::Keep)]).await;
        let id = ObjectId { key: Arc::from("k"), etag: Arc::from(etag) };
        let got = read(&server.getter(|_| {}), &id, 2..6).await.map_err(|error| error.kind);
        assert_eq!(got, if bytes { Ok("2345".to_owned()) } else { Err(ErrorKind::Changed) }, "{etag} {answered}");
        let head = &server.asked()[0];
        let line = head.lines().find_map(|line| line.strip_prefix("if-match: "));
        assert_eq!(line, sent, "{head}");
    }
}

#[tokio::test]
async fn a_whole_object_may_come_as_200() {
    let server = Scripted::start(vec![
        (answer("200 OK", "", 4, "0123"), Then::Keep),
        (answer("206 OK", "Content-Range: bytes 0-3/4\r\n", 4, "0123"), Then::Keep),
        // Gzip in the bucket is gzip to us.
        (answer("200 OK", "Content-Encoding: gzip\r\n", 4, "0123"), Then::Keep),
        (answer("200 OK", "", 5, "01234"), Then::Keep),
    ])
    .await;
    let getter = server.getter(|_| {});
    for _ in 0..3 {
        assert_eq!(read(&getter, &id(), 0..4).await.expect("whole"), "0123");
    }
    assert_eq!(read(&getter, &id(), 0..4).await.expect_err("a longer object").kind, ErrorKind::Corrupt);
}

#[tokio::test]
async fn bodies_and_connections_that_end_early_are_network_errors() {
    for then in [Then::Close, Then::Reset] {
        for sent in [
            answer("206 OK", "Content-Range: bytes 2-5/10\r\n", 4, "23"),
            answer("206 OK", "Content-Range: bytes 2-5/10\r\n", 4, ""),
            String::new(),
            "HTTP/1.1 206 OK\r\nContent-".to_owned(),
        ] {
            assert_eq!(kind(check(sent.clone(), then).await), ErrorKind::Network, "{sent:?} then {then:?}");
        }
    }
    let text = check(answer("206 OK", "Content-Range: bytes 2-5/10\r\n", 4, "23"), Then::Close).await.expect_err("short").1;
    assert!(text.contains("body ended early, 2 bytes missing"), "{text}");
}

#[tokio::test]
async fn stalls_are_time_outs() {
    let stalled_body = answer("206 OK", "Content-Range: bytes 2-5/10\r\n", 4, "23");
    // What must not run out is long: a busy machine takes its time.
    let (short, long) = (Duration::from_millis(25), Duration::from_secs(30));
    for (sent, first_byte, idle, needle) in [(stalled_body, long, short, "no byte for"), (String::new(), short, long, "no answer from")] {
        let server = Scripted::start(vec![(sent, Then::Stall)]).await;
        let getter = server.getter(|config| {
            config.idle_timeout = idle;
            config.connect_timeout = short;
            config.first_byte_timeout = first_byte;
        });
        let error = read(&getter, &id(), 2..6).await.expect_err("stalled");
        assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
        assert!(error.to_string().contains(needle), "{error}");
    }
}

#[tokio::test]
async fn answers_that_are_errors_have_their_kind_and_reason() {
    let body = |code: &str| format!("<Error><Code>{code}</Code><Message>why</Message><AWSAccessKeyId>AKIDEXAMPLE</AWSAccessKeyId></Error>");
    for (status, code, kind, needle) in [
        ("403 Forbidden", "InvalidObjectState", ErrorKind::Denied, "archived"),
        ("403 Forbidden", "RequestTimeTooSkewed", ErrorKind::Denied, "clock"),
        ("404 Not Found", "NoSuchKey", ErrorKind::NotFound, "does not exist"),
        ("503 Slow Down", "SlowDown", ErrorKind::Throttled, "SlowDown: why"),
        ("500 Internal", "InternalError", ErrorKind::Server, "why"),
        ("301 Moved Permanently", "PermanentRedirect", ErrorKind::Invalid, "--region eu-west-1"),
        ("307 Temporary Redirect", "TemporaryRedirect", ErrorKind::Invalid, "--region eu-west-1"),
    ] {
        let body = body(code);
        let headers = "x-amz-bucket-region: eu-west-1\r\nLocation: http://127.0.0.1:1/elsewhere\r\n";
        let (got, text) = check(answer(status, headers, body.len(), &body), Then::Keep).await.expect_err(status);
        assert_eq!(got, kind, "{text}");
        assert!(text.contains(needle) && !text.contains("AKID"), "{text}");
    }
    let endless = "x".repeat(ERROR_BODY_MAX_BYTES * 4);
    assert_eq!(kind(check(answer("500 Internal", "", endless.len(), &endless), Then::Keep).await), ErrorKind::Server);
}

#[tokio::test]
async fn expired_credentials_are_renewed_once() {
    let expired = "<Error><Code>ExpiredToken</Code></Error>";
    let refusal = || (answer("400 Bad Request", "", expired.len(), expired), Then::Keep);
    let server = Scripted::start(vec![refusal(), (right(), Then::Keep), refusal(), refusal()]).await;
    let getter = server.getter(|_| {});
    assert_eq!(read(&getter, &id(), 2..6).await.expect("after renewal"), "2345");
    let error = read(&getter, &id(), 2..6).await.expect_err("still expired");
    assert_eq!((error.kind, server.asked().len()), (ErrorKind::Denied, 4), "{error}");
}

#[tokio::test]
async fn connections_are_reused_and_a_closed_one_is_replaced() {
    let server = Scripted::start(vec![(right(), Then::Keep), (right(), Then::Close), (right(), Then::Close), (right(), Then::Keep)]).await;
    let getter = server.getter(|config| config.max_connections = 1);
    for _ in 0..4 {
        // A close that arrives while we send is a Network error, which the door repeats; here as there.
        while let Err(error) = read(&getter, &id(), 2..6).await {
            assert_eq!(error.kind, ErrorKind::Network, "{error}");
        }
    }
    assert_eq!(*server.connections.lock().expect("not poisoned"), 3);
}

#[tokio::test]
async fn keys_are_escaped_once_and_the_request_is_signed() {
    let server = Scripted::start(vec![(right(), Then::Keep), (right(), Then::Keep)]).await;
    let odd = ObjectId { key: Arc::from("a//b/../k +%20=a:b#c?d&e@f,g;h'i\"j(k)!~*$é\n.bin"), etag: Arc::from("\"e\"") };
    let getter = server.getter(|config| config.requester_pays = true);
    read(&getter, &odd, 2..6).await.expect("right");
    let head = server.asked().remove(0);
    let path = "/b/a//b/../k%20%2B%2520%3Da%3Ab%23c%3Fd%26e%40f%2Cg%3Bh%27i%22j%28k%29%21~%2A%24%C3%A9%0A.bin";
    assert!(head.starts_with(&format!("GET {path} HTTP/1.1\r\n")), "{head}");
    for line in [
        "range: bytes=2-5",
        "x-amz-request-payer: requester",
        "x-amz-security-token: token",
        "x-amz-content-sha256: UNSIGNED-PAYLOAD",
        "SignedHeaders=host;if-match;range;x-amz-content-sha256;x-amz-date;x-amz-request-payer;x-amz-security-token",
        &format!("host: {}", server.address),
    ] {
        assert!(head.contains(line), "{line} in {head}");
    }
    for absent in ["accept-encoding", "content-length", "expect", "transfer-encoding"] {
        assert!(!head.to_ascii_lowercase().contains(absent), "{absent} in {head}");
    }
    let anonymous = server.getter(|config| config.no_sign_request = true);
    read(&anonymous, &odd, 2..6).await.expect("right");
    let head = server.asked().remove(1);
    assert!(!head.contains("authorization") && !head.contains("x-amz"), "{head}");
}

#[tokio::test]
async fn a_dead_endpoint_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let nobody = Scripted { address, asked: Arc::default(), connections: Arc::default() };
    let error = read(&nobody.getter(|_| {}), &id(), 0..4).await.expect_err("nobody there");
    assert_eq!(error.kind, ErrorKind::Network);
    assert!(error.to_string().contains(&format!("cannot connect to {address}")), "{error}");
}

#[tokio::test]
async fn what_was_received_is_counted() {
    let server = Scripted::start(vec![(right(), Then::Keep), (answer("503 Slow Down", "", 0, ""), Then::Keep)]).await;
    let getter = server.getter(|_| {});
    read(&getter, &id(), 2..6).await.expect("right");
    read(&getter, &id(), 2..6).await.expect_err("throttled");
    let store = &getter.stats.store;
    assert_eq!((store.get.get(), store.bytes.get(), store.throttled.get()), (2, 4, 1));
}

proptest::proptest! {
    /// Escaped once, a key comes back as it was, and no character of it can end the path or need escaping again.
    #[test]
    fn any_key_survives_its_escaping(key in "\\PC{0,20}|[ -~]{0,20}|[\u{0}-\u{ff}]{0,20}") {
        let escaped = utf8_percent_encode(&key, &PATH_ESCAPED).to_string();
        proptest::prop_assert_eq!(percent_encoding::percent_decode_str(&escaped).decode_utf8().expect("UTF-8"), key);
        proptest::prop_assert!(escaped.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.~/%".contains(&b)), "{}", escaped);
    }

    /// A server's headers and bodies are anybody's: no text of them panics, and a range is never empty.
    #[test]
    fn no_header_or_body_panics(text in "(bytes )?[0-9]{0,21}-[0-9]{0,21}/[0-9*]{0,21}|\\PC{0,40}", body in proptest::collection::vec(0_u8.., 0..100)) {
        if let Some((range, _)) = content_range(&text) {
            proptest::prop_assert!(!range.is_empty());
        }
        let error = Complaint::new(500, &text, &[b"<Code>".as_slice(), &body].concat()).into_error("object");
        proptest::prop_assert!(!error.to_string().contains('\n'));
    }
}

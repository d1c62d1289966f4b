//! The store as a whole against a server that answers by script: lists, HEADs, and what is said when a bucket cannot be had.

use super::*;
use crate::store::scripted::{Scripted, Then, answer};

const EMPTY: &str = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";

fn ok(body: &str) -> (String, Then) {
    (answer("200 OK", "Content-Type: application/xml\r\n", body.len(), body), Then::Keep)
}

fn refusal(status: &str, code: &str, region: &str) -> (String, Then) {
    let body = format!("<Error><Code>{code}</Code><Message>why</Message></Error>");
    let headers = if region.is_empty() { String::new() } else { format!("x-amz-bucket-region: {region}\r\n") };
    (answer(status, &headers, body.len(), &body), Then::Keep)
}

/// Connects to a bucket on this server, with keys from a file, so that nothing depends on the environment.
async fn connect(server: &Scripted, change: impl FnOnce(&mut S3Config)) -> Result<S3Store, StoreError> {
    let dir = tempfile::tempdir().expect("temp dir");
    let keys = dir.path().join("env");
    std::fs::write(&keys, "AWS_ACCESS_KEY_ID=AKIDEXAMPLE\nAWS_SECRET_ACCESS_KEY=topsecret\n").expect("write");
    let mut config = S3Config { endpoint_url: Some(format!("http://{}", server.address)), ..S3Config::new("b") };
    (config.env_file, config.region) = (Some(keys), Some("us-east-1".into()));
    change(&mut config);
    S3Store::connect(config, "p/", Arc::default()).await
}

#[tokio::test]
async fn the_region_is_followed_once() {
    for (status, code) in [("301 Moved Permanently", "PermanentRedirect"), ("400 Bad Request", "AuthorizationHeaderMalformed")] {
        let server = Scripted::start(vec![refusal(status, code, "eu-west-1"), ok(EMPTY)]).await;
        connect(&server, |_| {}).await.expect("follows");
        let asked = server.asked();
        assert_eq!(asked.len(), 2);
        assert!(asked[0].contains("/us-east-1/s3/") && asked[1].contains("/eu-west-1/s3/"), "{asked:?}");
        let server = Scripted::start(vec![refusal(status, code, "eu-west-1"), refusal(status, code, "eu-west-2")]).await;
        let error = connect(&server, |_| {}).await.expect_err("not again");
        assert!(error.to_string().contains("use --region eu-west-2"), "{error}");
        assert_eq!(server.asked().len(), 2);
    }
}

#[tokio::test]
async fn a_bucket_that_cannot_be_had_is_explained_in_one_line_without_keys() {
    for (status, code, kind, needle) in [
        ("404 Not Found", "NoSuchBucket", ErrorKind::NotFound, "no such bucket"),
        ("403 Forbidden", "AccessDenied", ErrorKind::Denied, "s3:ListBucket"),
        ("403 Forbidden", "SignatureDoesNotMatch", ErrorKind::Denied, "secret key"),
        ("403 Forbidden", "InvalidAccessKeyId", ErrorKind::Denied, "does not know this access key"),
        ("403 Forbidden", "RequestTimeTooSkewed", ErrorKind::Denied, "clock"),
        ("301 Moved Permanently", "PermanentRedirect", ErrorKind::Invalid, "--region or --endpoint-url"),
    ] {
        let server = Scripted::start(vec![refusal(status, code, "")]).await;
        let error = connect(&server, |_| {}).await.expect_err(code);
        let text = error.to_string();
        assert_eq!((error.kind, server.asked().len()), (kind, 1), "one request: {text}");
        assert!(text.starts_with("bucket \"b\": ") && text.contains(needle), "{text}");
        assert!(!text.contains('\n') && !text.contains("AKID") && !text.contains("topsecret"), "{text}");
    }
    let page = Scripted::start(vec![ok("<html>Welcome to nginx</html>")]).await;
    let error = connect(&page, |_| {}).await.expect_err("not S3");
    assert!(error.to_string().contains("--endpoint-url"), "{error}");
    let tls = Scripted::start(vec![(String::new(), Then::Close)]).await;
    let error = connect(&tls, |config| config.endpoint_url = Some(format!("https://{}", tls.address))).await.expect_err("no TLS there");
    assert!(error.to_string().contains("https://"), "{error}");
}

#[tokio::test]
async fn a_bucket_that_is_busy_is_asked_again() {
    let server = Scripted::start(vec![refusal("500 Internal Server Error", "InternalError", ""), ok(EMPTY)]).await;
    connect(&server, |_| {}).await.expect("the second time");
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn a_list_asks_for_what_is_needed_and_nothing_empty() {
    let server = Scripted::start(vec![ok(EMPTY), ok(EMPTY), ok(EMPTY)]).await;
    let store = connect(&server, |config| config.requester_pays = true).await.expect("a bucket");
    store.list("", None, None).await.expect("a page");
    store.list("a b/", Some("a b/c"), None).await.expect("a page");
    let asked = server.asked();
    let lines: Vec<&str> = asked.iter().map(|head| head.lines().next().unwrap_or_default()).collect();
    assert_eq!(lines[0], "GET /b/?list-type=2&encoding-type=url&max-keys=1&prefix=p%2F HTTP/1.1");
    assert_eq!(lines[1], "GET /b/?list-type=2&encoding-type=url&max-keys=1000 HTTP/1.1");
    assert_eq!(lines[2], "GET /b/?list-type=2&encoding-type=url&max-keys=1000&prefix=a%20b%2F&start-after=a%20b%2Fc HTTP/1.1");
    assert!(asked.iter().all(|head| head.contains("x-amz-request-payer: requester")), "{asked:?}");
}

#[tokio::test]
async fn an_endpoint_may_have_a_base_path() {
    let found = answer("206 Partial Content", "Content-Range: bytes 0-0/1\r\n", 1, "x");
    let server = Scripted::start(vec![ok(EMPTY), ok(EMPTY), (found, Then::Keep)]).await;
    let store = connect(&server, |config| config.endpoint_url = Some(format!("http://{}/s3", server.address))).await.expect("a bucket");
    store.head("k").await.expect("there");
    drop(store.read(&ObjectId { key: "k".into(), etag: "".into() }, 0..1).await.expect("there"));
    let paths: Vec<String> = server.asked().iter().map(|head| head.split([' ', '?']).nth(1).unwrap_or_default().to_owned()).collect();
    assert_eq!(paths, ["/s3/b/", "/s3/b/k", "/s3/b/k"]);
}

#[tokio::test]
async fn an_anonymous_store_signs_nothing() {
    let server = Scripted::start(vec![ok(EMPTY)]).await;
    connect(&server, |config| config.no_sign_request = true).await.expect("a public bucket");
    assert!(!server.asked()[0].to_ascii_lowercase().contains("authorization"));
}

#[tokio::test]
async fn a_head_without_a_length_is_made_up_for_by_a_listing() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nETag: \"e\"\r\n\r\n".to_owned();
    let entry = "<ListBucketResult><Contents><Key>k</Key><Size>7</Size><ETag>\"e\"</ETag></Contents></ListBucketResult>";
    let other = entry.replace("<Key>k<", "<Key>kk<");
    let server = Scripted::start(vec![ok(EMPTY), (head.clone(), Then::Keep), ok(entry), (head, Then::Keep), ok(&other)]).await;
    let store = connect(&server, |_| {}).await.expect("a bucket");
    let found = store.head("k").await.expect("listed");
    assert_eq!((found.size, &*found.etag), (7, "\"e\""));
    assert_eq!(store.head("k").await.expect_err("only another key").kind, ErrorKind::Corrupt);
}

#[tokio::test]
async fn pages_that_break_off_are_errors() {
    let cut = "<ListBucketResult><Contents><Key>a</Key><Size>1</Size></Contents><Contents><Key>b";
    let flag = "<ListBucketResult><IsTruncated>true</IsTruncated><Contents><Key>a</Key><Size>1</Size></Contents></ListBucketResult>";
    let short = (answer("200 OK", "", EMPTY.len() + 50, EMPTY), Then::Close);
    let server = Scripted::start(vec![ok(EMPTY), ok(cut), ok(flag), short]).await;
    let store = connect(&server, |_| {}).await.expect("a bucket");
    for kind in [ErrorKind::Corrupt, ErrorKind::Corrupt, ErrorKind::Network] {
        let error = store.list("", None, None).await.expect_err("not a whole page");
        assert_eq!(error.kind, kind, "{error}");
    }
}

#[tokio::test]
async fn addresses_of_buckets_follow_the_rules_of_the_sdk() {
    for (bucket, endpoint, path_style, url) in [
        ("b-b", None, false, "https://b-b.s3.eu-west-1.amazonaws.com"),
        ("b-b", None, true, "https://s3.eu-west-1.amazonaws.com/b-b"),
        // A certificate for *.s3.amazonaws.com does not cover two labels.
        ("a.b.c", None, false, "https://s3.eu-west-1.amazonaws.com/a.b.c"),
        ("b", Some("http://host:8080/s3/"), true, "http://host:8080/s3/b"),
        ("b-b", Some("https://host/"), false, "https://b-b.host"),
    ] {
        assert_eq!(connect::bucket_url(bucket, endpoint, "eu-west-1", path_style).await.expect(bucket), url);
    }
}

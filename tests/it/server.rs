//! The demo's S3 server against clients that are not ours: the AWS SDK, and a bare socket where the SDK would hide what happened.

use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::{BehaviorVersion, Credentials as SdkCredentials, Region};
use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::types::EncodingType;
use belady::demo::dataset::DatasetSpec;
use belady::demo::server::fault::{Does, Fault, ListField, Operation, When};
use belady::demo::server::{Credentials, Server, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Keys that some server or client has got wrong before.
const ODD_KEYS: [&str; 18] = [
    "a b",
    "a+b",
    "a%20b",
    "a%b",
    "a#b",
    "a?b=c",
    "a&b<c>\"d'",
    "ü/ñ/漢字/🦀",
    "a//b",
    "./a",
    "../a",
    "a/",
    "a\nb",
    "a\u{1}b",
    "p",
    "p/q",
    "=",
    "~!$()*,;:@",
];

/// A client of this server with these keys (none: anonymous).
fn client(server: &Server, keys: Option<(&str, &str)>, region: &str) -> Client {
    let http = aws_smithy_http_client::Builder::new().build_http();
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(http)
        .region(Region::new(region.to_owned()))
        .endpoint_url(server.url())
        .force_path_style(true)
        .retry_config(RetryConfig::disabled());
    let config = match keys {
        Some((access, secret)) => config.credentials_provider(SdkCredentials::new(access, secret, None, None, "test")),
        None => config.allow_no_auth(),
    };
    Client::from_conf(config.build())
}

fn started() -> (Server, Client) {
    let server = Server::start(ServerConfig::default()).unwrap();
    let client = client(&server, None, "us-east-1");
    (server, client)
}

/// S3's error code, or "ok".
fn code<T, E: ProvideErrorMetadata>(result: &Result<T, E>) -> &str {
    match result {
        Ok(_) => "ok",
        Err(error) => error.code().unwrap_or("none"),
    }
}

async fn all_keys(client: &Client, bucket: &str) -> (Vec<String>, usize) {
    let (mut keys, mut pages, mut token) = (Vec::new(), 0, None);
    loop {
        let page =
            client.list_objects_v2().bucket(bucket).encoding_type(EncodingType::Url).set_continuation_token(token).send().await.unwrap();
        pages += 1;
        for object in page.contents() {
            let key = object.key().unwrap();
            keys.push(percent_encoding::percent_decode_str(key).decode_utf8().unwrap().into_owned());
        }
        token = page.next_continuation_token().map(str::to_owned);
        assert_eq!(page.is_truncated(), Some(token.is_some()));
        if token.is_none() {
            return (keys, pages);
        }
    }
}

#[tokio::test]
async fn listings_are_complete_at_every_page_boundary() {
    for count in [0_usize, 1, 999, 1000, 1001, 2000, 2001] {
        let (server, client) = started();
        let wanted: Vec<String> = (0..count).map(|n| format!("d{:02}/f{n:05}", n % 7)).collect();
        for key in &wanted {
            server.put(key, "x");
        }
        let (keys, pages) = all_keys(&client, "demo").await;
        assert_eq!(keys, server.keys(), "{count}");
        assert_eq!((keys.len(), pages), (count, count.div_ceil(1000).max(1)), "{count}");
        assert_eq!(server.counters().list, pages as u64);
    }
}

#[tokio::test]
async fn odd_keys_are_listed_and_read() {
    let (server, client) = started();
    for key in ODD_KEYS {
        server.put(key, format!("bytes of {key}"));
    }
    assert_eq!(all_keys(&client, "demo").await.0, server.keys());
    for key in ODD_KEYS {
        let got = client.get_object().bucket("demo").key(key).send().await.unwrap();
        assert_eq!(got.body.collect().await.unwrap().into_bytes(), format!("bytes of {key}"), "{key:?}");
        let head = client.head_object().bucket("demo").key(key).send().await.unwrap();
        assert_eq!(head.content_length(), Some(9 + key.len() as i64), "{key:?}");
    }
    let counters = server.counters();
    assert_eq!((counters.get, counters.head), (18, 18));
}

#[tokio::test]
async fn plain_listings_escape_what_xml_cannot_hold() {
    let (server, client) = started();
    for key in ["a&b<c>\"d'", "a b+c", "ü漢🦀"] {
        server.put(key, "x");
    }
    let page = client.list_objects_v2().bucket("demo").send().await.unwrap();
    let keys: Vec<&str> = page.contents().iter().filter_map(|object| object.key()).collect();
    assert_eq!(keys, server.keys());
}

#[tokio::test]
async fn delimiter_start_after_and_max_keys_do_what_s3_does() {
    let (server, client) = started();
    for key in ["a", "b/1", "b/2", "b/c/3", "d", "e/1"] {
        server.put(key, "x");
    }
    let list = || client.list_objects_v2().bucket("demo");
    let page = list().delimiter("/").send().await.unwrap();
    let prefixes: Vec<&str> = page.common_prefixes().iter().filter_map(|p| p.prefix()).collect();
    assert_eq!((page.contents().len(), prefixes, page.key_count()), (2, vec!["b/", "e/"], Some(4)));
    let page = list().prefix("b/").delimiter("/").send().await.unwrap();
    assert_eq!((page.contents().len(), page.common_prefixes()[0].prefix()), (2, Some("b/c/")));
    let page = list().start_after("b/2").send().await.unwrap();
    assert_eq!(page.contents()[0].key(), Some("b/c/3"));
    let page = list().max_keys(0).send().await.unwrap();
    assert_eq!((page.contents().len(), page.is_truncated()), (0, Some(false)));
    let page = list().max_keys(5000).send().await.unwrap();
    assert_eq!(page.max_keys(), Some(1000));
}

#[tokio::test]
async fn ranges_and_conditions_answer_as_s3() {
    let (server, client) = started();
    let etag = server.put("k", "0123456789");
    server.put("empty", "");
    let get = || client.get_object().bucket("demo");
    for (range, wanted) in [("bytes=0-0", "0"), ("bytes=2-4", "234"), ("bytes=7-", "789"), ("bytes=-2", "89"), ("bytes=0-99", "0123456789")]
    {
        let got = get().key("k").range(range).send().await.unwrap();
        assert!(got.content_range().unwrap().ends_with("/10"), "{range}");
        assert_eq!(got.body.collect().await.unwrap().into_bytes(), wanted, "{range}");
    }
    assert_eq!(code(&get().key("k").range("bytes=10-").send().await), "InvalidRange");
    assert_eq!(code(&get().key("empty").range("bytes=0-0").send().await), "InvalidRange");
    assert_eq!(get().key("empty").send().await.unwrap().content_length(), Some(0));
    assert_eq!(code(&get().key("k").if_match(&*etag).send().await), "ok");
    assert_eq!(code(&get().key("k").if_match("\"other\"").send().await), "PreconditionFailed");
    let unchanged = get().key("k").if_none_match(&*etag).send().await.unwrap_err();
    assert_eq!(unchanged.raw_response().unwrap().status().as_u16(), 304);
    let head = client.head_object().bucket("demo").key("k").send().await.unwrap();
    assert_eq!((head.e_tag(), head.content_length()), (Some(&*etag), Some(10)));
    let (before, listed) = (head.last_modified().copied(), client.list_objects_v2().bucket("demo").send().await.unwrap());
    assert_eq!(listed.contents()[1].last_modified().copied(), before);
    assert!(server.touch("k"));
    let after = client.head_object().bucket("demo").key("k").send().await.unwrap();
    assert!(after.last_modified().copied() > before && after.e_tag() == Some(&*etag));
    assert_ne!(server.put("k", "012345678X"), etag);
    assert_eq!(code(&get().key("k").if_match(&*etag).send().await), "PreconditionFailed");
}

#[tokio::test]
async fn what_is_not_there_is_said_so() {
    let (server, client) = started();
    server.put("k", "x");
    assert!(server.delete("k") && !server.delete("k"));
    assert_eq!(code(&client.get_object().bucket("demo").key("k").send().await), "NoSuchKey");
    assert_eq!(code(&client.get_object().bucket("other").key("k").send().await), "NoSuchBucket");
    assert_eq!(code(&client.list_objects_v2().bucket("other").send().await), "NoSuchBucket");
    assert!(client.head_object().bucket("demo").key("k").send().await.unwrap_err().into_service_error().is_not_found());
    client.head_bucket().bucket("demo").send().await.unwrap();
    assert_eq!(code(&client.put_object().bucket("demo").key("k").send().await), "MethodNotAllowed");
}

#[tokio::test]
async fn signatures_are_checked() {
    let keys = Credentials { access_key: "AKID".to_owned(), secret_key: "secret".to_owned(), session_token: None };
    let server = Server::start(ServerConfig { credentials: Some(keys), ..ServerConfig::default() }).unwrap();
    for key in ODD_KEYS {
        server.put(key, "x");
    }
    let right = client(&server, Some(("AKID", "secret")), "us-east-1");
    for key in ODD_KEYS {
        let got = right.get_object().bucket("demo").key(key).range("bytes=0-0").if_match("*").send().await;
        assert_eq!(code(&got), "ok", "{key:?}");
    }
    assert_eq!(all_keys(&right, "demo").await.0, server.keys());
    assert_eq!(code(&right.list_objects_v2().bucket("demo").prefix("ü/ +&=").start_after("~ é").send().await), "ok");
    assert_eq!(server.counters().refused, 0);
    for (keys, region, wanted) in [
        (Some(("AKID", "wrong")), "us-east-1", "SignatureDoesNotMatch"),
        (Some(("OTHER", "secret")), "us-east-1", "InvalidAccessKeyId"),
        (Some(("AKID", "secret")), "eu-west-1", "AuthorizationHeaderMalformed"),
        (None, "us-east-1", "AccessDenied"),
    ] {
        let client = client(&server, keys, region);
        assert_eq!(code(&client.get_object().bucket("demo").key("p").send().await), wanted);
        assert_eq!(code(&client.list_objects_v2().bucket("demo").send().await), wanted);
    }
    assert_eq!(server.counters().refused, 8);
}

#[tokio::test]
async fn stored_headers_come_back_and_bodies_are_never_decoded() {
    let (server, client) = started();
    let headers =
        vec![("content-encoding".parse().unwrap(), "gzip".parse().unwrap()), ("content-type".parse().unwrap(), "x/y".parse().unwrap())];
    server.put_with("z", &b"\x1f\x8b not really"[..], headers);
    let got = client.get_object().bucket("demo").key("z").send().await.unwrap();
    assert_eq!((got.content_encoding(), got.content_type(), got.content_length()), (Some("gzip"), Some("x/y"), Some(13)));
    assert_eq!(got.body.collect().await.unwrap().into_bytes(), &b"\x1f\x8b not really"[..]);
}

#[tokio::test]
async fn a_generated_dataset_and_a_directory_are_served_byte_for_byte() {
    let (server, client) = started();
    let dataset = DatasetSpec { files: 30, mean_bytes: 200_000, ..DatasetSpec::default() }.build();
    server.add_dataset(&dataset);
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("sub")).unwrap();
    let large: Vec<u8> = (0..700_000_u32).map(|n| n as u8).collect();
    std::fs::write(directory.path().join("sub/file"), &large).unwrap();
    server.add_directory(directory.path(), "dir/").unwrap();
    for entry in &dataset.entries {
        let got = client.get_object().bucket("demo").key(&entry.key).send().await.unwrap();
        assert_eq!(got.e_tag(), Some(&*entry.content.etag()));
        assert!(entry.content.matches(&got.body.collect().await.unwrap().into_bytes()), "{}", entry.key);
    }
    let first = &dataset.entries[0];
    let got = client.get_object().bucket("demo").key(&first.key).range("bytes=10-999").send().await.unwrap();
    assert_eq!(got.body.collect().await.unwrap().into_bytes(), first.content.to_bytes()[10..1000]);
    assert_eq!(server.counters().bytes, dataset.total_bytes() + 990);
    let got = client.get_object().bucket("demo").key("dir/sub/file").range("bytes=5-").send().await.unwrap();
    assert_eq!(got.body.collect().await.unwrap().into_bytes(), large[5..]);
}

/// One request over a bare socket: all bytes until the server closes or is silent for this long (tokio's paused clock: no real wait).
async fn raw(server: &Server, requests: &str) -> (String, std::io::Result<()>) {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(requests.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    let ended = stream.read_to_end(&mut received).await.map(|_| ());
    (String::from_utf8_lossy(&received).into_owned(), ended)
}

const GET: &str = "GET /demo/k HTTP/1.1\r\nhost: x\r\n\r\n";
const GET_AND_CLOSE: &str = "GET /demo/k HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

/// Head and body of an answer.
fn split(answer: &str) -> (String, &str) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    (head.to_lowercase(), body)
}

#[tokio::test]
async fn faults_of_the_body_do_what_they_say() {
    let (server, _) = started();
    let bytes = "0123456789".repeat(1000);
    server.put("k", bytes.clone());
    for (does, want_head, want_body) in [
        (Does::Cut { after: 1000 }, "content-length: 10000", 1000),
        (Does::Cut { after: 0 }, "content-length: 10000", 0),
        (Does::WrongContentLength { delta: 5 }, "content-length: 10005", 10_000),
        (Does::WrongContentLength { delta: -5 }, "content-length: 9995", 9_995),
        (Does::WrongEtag, "bad\"", 10_000),
    ] {
        server.clear_faults();
        server.add_fault(Fault::on(Operation::Get, When::Always, does.clone()));
        let (answer, ended) = raw(&server, GET_AND_CLOSE).await;
        let (head, body) = split(&answer);
        assert!(head.starts_with("http/1.1 200") && head.contains(want_head), "{does:?}: {head}");
        assert_eq!(body, &bytes[..want_body], "{does:?}");
        assert!(ended.is_ok(), "{does:?}");
    }
    server.clear_faults();
    server.add_fault(Fault::on(Operation::Get, When::Always, Does::NoContentLength));
    let (answer, _) = raw(&server, GET_AND_CLOSE).await;
    let (head, _) = split(&answer);
    assert!(head.contains("transfer-encoding: chunked") && !head.contains("content-length"), "{head}");
    assert_eq!(server.counters().faults, 6);
    assert_eq!(server.counters().in_flight, 0);
}

#[tokio::test]
async fn faults_of_the_connection_do_what_they_say() {
    let (server, _) = started();
    server.put("k", "0123456789");
    let check = async |does: Does| {
        server.clear_faults();
        server.add_fault(Fault::on(Operation::Get, When::Always, does));
        raw(&server, GET).await
    };
    let (answer, ended) = check(Does::CloseBeforeAnswer).await;
    assert!(answer.is_empty() && ended.is_ok(), "{answer} {ended:?}");
    let (answer, ended) = check(Does::CloseIdle).await;
    assert!(answer.ends_with("0123456789") && !answer.to_lowercase().contains("connection: close") && ended.is_ok(), "{answer} {ended:?}");
    let (answer, ended) = check(Does::ResetBeforeBody).await;
    assert!(!answer.ends_with('9'), "{answer}");
    assert_eq!(ended.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_stall_and_a_hang_last_until_the_client_gives_up() {
    let (server, _) = started();
    server.put("k", "0123456789");
    server.add_fault(Fault::on(Operation::Get, When::Nth(1), Does::Stall { after: 4 }));
    server.add_fault(Fault::on(Operation::Get, When::Nth(2), Does::Hang));
    let mut stalled = TcpStream::connect(server.address()).await.unwrap();
    stalled.write_all(GET.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"0123") {
        assert!(stalled.read_buf(&mut received).await.unwrap() > 0);
    }
    let mut hung = TcpStream::connect(server.address()).await.unwrap();
    hung.write_all(GET.as_bytes()).await.unwrap();
    let third = raw(&server, GET_AND_CLOSE).await.0;
    assert!(third.ends_with("0123456789"), "others are served meanwhile: {third}");
    assert!(stalled.try_read(&mut [0; 9]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
    assert_eq!(server.counters().in_flight, 2);
    drop((stalled, hung));
    let gone = async {
        while server.counters().in_flight > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("the server notices that they are gone");
}

#[tokio::test]
async fn faults_that_answer_instead_of_the_bucket() {
    let (server, client) = started();
    server.put("k", "0123456789");
    let check = async |does: Does, extra: &str| {
        server.clear_faults();
        server.add_fault(Fault::on(Operation::Get, When::Always, does).below("k"));
        let request = GET_AND_CLOSE.replace("host: x\r\n", &format!("host: x\r\n{extra}"));
        raw(&server, &request).await.0.to_lowercase()
    };
    let slow = Does::Status { status: 503, code: "SlowDown", retry_after: Some(3) };
    let answer = check(slow, "").await;
    assert!(
        answer.starts_with("http/1.1 503") && answer.contains("retry-after: 3") && answer.contains("<code>slowdown</code>"),
        "{answer}"
    );
    let answer = check(Does::ErrorAsSuccess { code: "InternalError" }, "").await;
    assert!(answer.starts_with("http/1.1 200") && answer.contains("<code>internalerror</code>"), "{answer}");
    let answer = check(Does::Redirect { region: "eu-west-1" }, "").await;
    assert!(answer.starts_with("http/1.1 301") && answer.contains("x-amz-bucket-region: eu-west-1"), "{answer}");
    let answer = check(Does::IgnoreRange, "range: bytes=2-3\r\n").await;
    assert!(answer.starts_with("http/1.1 200") && answer.ends_with("0123456789"), "{answer}");
    let answer = check(Does::RefuseContentLength, "content-length: 0\r\n").await;
    assert!(answer.starts_with("http/1.1 400"), "{answer}");
    assert!(check(Does::RefuseContentLength, "").await.starts_with("http/1.1 200"));
    server.clear_faults();
    server.add_fault(Fault::on(Operation::Head, When::Always, Does::NoContentLength));
    let head = client.head_object().bucket("demo").key("k").send().await.unwrap();
    assert_eq!(head.content_length(), None);
}

#[tokio::test]
async fn faults_of_a_listing_do_what_they_say() {
    let (server, client) = started();
    for n in 0..3 {
        server.put(&format!("k{n}"), "x");
    }
    let check = async |does: Does, token: Option<String>| {
        server.clear_faults();
        server.add_fault(Fault::on(Operation::List, When::Always, does));
        client.list_objects_v2().bucket("demo").max_keys(2).set_continuation_token(token).send().await
    };
    let page = check(Does::MissingToken, None).await.unwrap();
    assert_eq!((page.is_truncated(), page.next_continuation_token()), (Some(true), None));
    let page = check(Does::MissingTruncated, None).await.unwrap();
    assert!(page.is_truncated().is_none() && page.next_continuation_token().is_some());
    let token = page.next_continuation_token().map(str::to_owned);
    let page = check(Does::RepeatPage, token).await.unwrap();
    assert_eq!(page.contents()[0].key(), Some("k0"));
    let page = check(Does::OmitListFields(vec![ListField::ETag, ListField::LastModified, ListField::StorageClass]), None).await.unwrap();
    let object = &page.contents()[0];
    assert!(object.e_tag().is_none() && object.last_modified().is_none() && object.storage_class().is_none() && object.size() == Some(1));
    let refused = client.list_objects_v2().bucket("demo").prefix("").send();
    server.clear_faults();
    server.add_fault(Fault::on(Operation::List, When::Always, Does::RefuseEmptyQuery));
    assert_eq!(code(&refused.await), "InvalidArgument");
    assert_eq!(code(&check(Does::RefuseEmptyQuery, None).await), "ok");
}

#[tokio::test]
async fn requests_can_be_looked_at_afterwards() {
    let (server, client) = started();
    server.put("k", "0123456789");
    server.record_requests();
    client.get_object().bucket("demo").key("k").range("bytes=1-2").if_match("*").send().await.unwrap();
    let recorded = server.recorded();
    assert_eq!(recorded.len(), 1);
    assert_eq!(
        (recorded[0].key.as_str(), recorded[0].range.as_deref(), recorded[0].if_match.as_deref()),
        ("k", Some("bytes=1-2"), Some("*"))
    );
    assert!(recorded[0].headers.iter().any(|name| name == "user-agent"));
    server.reset_counters();
    assert_eq!(server.counters(), Default::default());
    let address = server.address();
    server.stop();
    tokio::task::yield_now().await;
    assert!(TcpStream::connect(address).await.is_err());
}

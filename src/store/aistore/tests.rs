//! The store against servers that answer by script: what a well-behaved cluster never does, and what an old one does.

use futures_util::StreamExt;

use super::*;
use crate::store::scripted::{Scripted, Then, answer};

const EMPTY: &str = r#"{"uuid":"U","entries":[],"continuation_token":""}"#;
const SUM: &str = "xxhash2:44bc2cf5ad770999"; // of "abc"

fn ok(body: &str) -> (String, Then) {
    (answer("200 OK", "", body.len(), body), Then::Keep)
}

fn refusal(status: &str, body: &str) -> (String, Then) {
    (answer(status, "", body.len(), body), Then::Keep)
}

fn moved(status: &str, location: &str) -> (String, Then) {
    (answer(status, &format!("Location: {location}\r\n"), 0, ""), Then::Keep)
}

/// Connects through a server that answers the first page and the cluster map (there is none), then `answers`.
async fn connect(answers: Vec<(String, Then)>, change: impl FnOnce(&mut AisConfig)) -> (Scripted, AisStore) {
    let first = [ok(EMPTY), refusal("404 Not Found", "")];
    let server = Scripted::start(first.into_iter().chain(answers).collect()).await;
    let mut config = AisConfig::new(Bucket::new("b"), vec![format!("http://{}", server.address)]);
    (config.first_byte_timeout, config.idle_timeout) = (Duration::from_secs(20), Duration::from_secs(20));
    change(&mut config);
    let store = AisStore::connect(config, "p/", Arc::default()).await.expect("a bucket");
    (server, store)
}

fn id(etag: &str) -> ObjectId {
    ObjectId { key: "k".into(), etag: etag.into() }
}

async fn read(store: &AisStore, etag: &str, range: Range<u64>) -> Result<Vec<u8>, ErrorKind> {
    let mut body = store.read(&id(etag), range).await.map_err(|error| error.kind)?;
    let mut all = Vec::new();
    while let Some(chunk) = body.next().await {
        all.extend_from_slice(&chunk.map_err(|error| error.kind)?);
    }
    Ok(all)
}

/// One answer to a GET of these bytes.
async fn check(etag: &str, range: Range<u64>, status: &str, headers: &str, body: &str) -> Result<Vec<u8>, ErrorKind> {
    let (server, store) = connect(vec![(answer(status, headers, body.len(), body), Then::Keep)], |_| {}).await;
    let got = read(&store, etag, range).await;
    assert_eq!(server.asked().len(), 3, "a store does not repeat: {got:?}");
    got
}

#[tokio::test]
async fn a_server_that_answers_in_json_is_read_and_its_session_echoed() {
    let first = r#"{"uuid":"U","entries":[{"name":"p/a","size":"3"}],"continuation_token":"p/a"}"#;
    let last = r#"{"uuid":"U","entries":[{"name":"p/b"}],"continuation_token":""}"#;
    let (server, store) = connect(vec![ok(first), refusal("410 Gone", ""), ok(last)], |_| {}).await;
    let page = store.list("p/", None, None).await.expect("a page");
    let next = store.list("p/", None, page.next.as_deref()).await.expect("the last");
    assert_eq!((page.objects.len(), &*next.objects[0].key, next.next), (1, "p/b", None));
    let asked = server.asked();
    assert!(
        asked[0].starts_with("GET /v1/buckets/b?provider=ais HTTP/1.1\r\n") && asked[0].contains("accept: application/msgpack"),
        "{}",
        asked[0]
    );
    assert!(asked[3].contains(r#""uuid":"U""#) && asked[3].contains(r#""continuation_token":"p/a""#), "{}", asked[3]);
    assert!(asked[4].contains(r#""uuid":"""#) && asked[4].contains(r#""continuation_token":"p/a""#), "a new session: {}", asked[4]);
}

#[tokio::test]
async fn exactly_the_bytes_asked_for_of_the_version_asked_for() {
    let sum = "Ais-Checksum-Value: 44bc2cf5ad770999\r\n";
    let range = |text: &str| format!("{sum}Content-Range: bytes {text}\r\n");
    assert_eq!(check(SUM, 0..3, "200 OK", sum, "abc").await.expect("right"), b"abc");
    assert_eq!(check(SUM, 0..3, "200 OK", "", "abc").await.expect("proven by its bytes"), b"abc");
    assert_eq!(check(SUM, 1..3, "206 OK", &range("1-2/3"), "bc").await.expect("right"), b"bc");
    for (asked, status, headers, body, kind) in [
        (0..3, "200 OK", sum.to_owned(), "abd", ErrorKind::Corrupt),
        (0..3, "200 OK", "Ais-Checksum-Value: 0000000000000000\r\n".to_owned(), "abc", ErrorKind::Changed),
        (0..3, "200 OK", String::new(), "ab", ErrorKind::Changed),
        (0..3, "206 OK", range("0-2/3"), "abc", ErrorKind::Corrupt),
        (0..3, "204 No Content", sum.to_owned(), "", ErrorKind::Corrupt),
        (1..3, "200 OK", sum.to_owned(), "abc", ErrorKind::Corrupt),
        (1..3, "206 OK", sum.to_owned(), "bc", ErrorKind::Corrupt),
        (1..3, "206 OK", range("0-1/3"), "ab", ErrorKind::Corrupt),
        (1..3, "206 OK", range("1-1/2"), "b", ErrorKind::Changed),
        (1..3, "206 OK", range("1-2/3"), "b", ErrorKind::Corrupt),
        (1..3, "206 OK", "Content-Range: bytes 1-2/3\r\n".to_owned(), "bc", ErrorKind::Changed),
    ] {
        assert_eq!(check(SUM, asked.clone(), status, &headers, body).await, Err(kind), "{asked:?} {status} {headers}");
    }
    let (_, store) = connect(vec![], |_| {}).await;
    let empty = 1;
    assert_eq!(read(&store, SUM, empty..empty).await, Err(ErrorKind::Invalid));
}

#[tokio::test]
async fn answers_that_cannot_be_compared_are_held_against_the_first_of_them() {
    let part = |sum: &str| (answer("206 OK", &format!("Content-Range: bytes 1-2/9\r\nAis-Checksum-Value: {sum}\r\n"), 2, "bc"), Then::Keep);
    let (_server, store) = connect(vec![part("aa"), part("aa"), part("bb")], |_| {}).await;
    let cold = "md5:900150983cd24fb0d6963f7d28e17f72";
    assert_eq!(read(&store, cold, 1..3).await.as_deref(), Ok(b"bc".as_slice()));
    assert_eq!(read(&store, cold, 1..3).await.as_deref(), Ok(b"bc".as_slice()));
    assert_eq!(read(&store, cold, 1..3).await, Err(ErrorKind::Changed));
}

#[tokio::test]
async fn an_object_larger_than_thought_is_asked_for_by_range() {
    let large = (answer("200 OK", "Ais-Checksum-Value: aa\r\n", 9, "abcdefghi"), Then::Close);
    let part = (answer("206 OK", "Content-Range: bytes 0-2/9\r\nAis-Checksum-Value: aa\r\n", 3, "abc"), Then::Keep);
    let (server, store) = connect(vec![large, part], |_| {}).await;
    assert_eq!(read(&store, "cksum:aa", 0..3).await.as_deref(), Ok(b"abc".as_slice()));
    let asked = server.asked();
    assert!(!asked[2].contains("range:") && asked[3].contains("range: bytes=0-2"), "{asked:?}");
}

#[tokio::test]
async fn a_redirect_carries_the_range_and_no_token_and_is_not_followed_for_ever() {
    let target = Scripted::start(vec![(answer("206 OK", "Content-Range: bytes 1-2/3\r\nAis-Version: 7\r\n", 2, "bc"), Then::Keep)]).await;
    let location = format!("http://{}/v1/objects/b/k?provider=ais&pid=p&utm=1", target.address);
    let token = |config: &mut AisConfig| config.token = Some(TokenSource::Value("secret".into()));
    let (server, store) = connect(vec![moved("301 Moved Permanently", &location)], token).await;
    assert_eq!(read(&store, "v:7", 1..3).await.as_deref(), Ok(b"bc".as_slice()));
    let (at_proxy, at_target) = (server.asked().remove(2), target.asked().remove(0));
    assert!(at_proxy.contains("authorization: Bearer secret") && at_proxy.contains("range: bytes=1-2"), "{at_proxy}");
    assert!(
        at_target.starts_with("GET /v1/objects/b/k?provider=ais&pid=p&utm=1 ") && at_target.contains("range: bytes=1-2"),
        "{at_target}"
    );
    assert!(!at_target.to_ascii_lowercase().contains("authorization"), "{at_target}");
    for bad in ["", "/v1/objects/b/k", "ftp://t/x", "http://u:p@t/x"] {
        let (_server, store) = connect(vec![moved("301 Moved Permanently", bad)], |_| {}).await;
        assert_eq!(read(&store, "v:7", 1..3).await, Err(ErrorKind::Corrupt), "{bad}");
    }
    let circle = Scripted::start(vec![]).await;
    let again = || moved("307 Temporary Redirect", &format!("http://{}/x", circle.address));
    let (_server, store) = connect(vec![moved("301 Moved", &format!("http://{}/x", circle.address))], |_| {}).await;
    assert_eq!(read(&store, "v:7", 1..3).await, Err(ErrorKind::Network), "no answer there");
    let circle = Scripted::start(vec![again(), again(), again()]).await;
    let (_server, store) = connect(vec![moved("301 Moved", &format!("http://{}/x", circle.address))], |_| {}).await;
    assert!(read(&store, "v:7", 1..3).await.is_err());
    assert!(circle.asked().len() <= 2, "{:?}", circle.asked());
}

#[tokio::test]
async fn an_old_server_is_asked_for_a_plain_head_from_then_on() {
    let found = || {
        (answer("200 OK", "Ais-Checksum-Type: xxhash2\r\nAis-Checksum-Value: 44BC2CF5AD770999\r\nAis-Version: 1\r\n", 3, ""), Then::Keep)
    };
    let (server, store) = connect(vec![refusal("400 Bad Request", ""), found(), found()], |_| {}).await;
    for _ in 0..2 {
        let head = store.head("k").await.expect("there");
        assert_eq!((head.size, &*head.etag, head.mtime_seconds), (3, SUM, 0), "a missing time is 0, always");
    }
    let lines: Vec<String> = server.asked().iter().skip(2).map(|head| head.lines().next().unwrap_or_default().to_owned()).collect();
    assert!(lines[0].contains("&props=name%2Csize%2Cchecksum"), "{lines:?}");
    assert!(lines[1..].iter().all(|line| line == "HEAD /v1/objects/b/k?provider=ais HTTP/1.1"), "{lines:?}");
    let no_length = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
    let (_server, store) = connect(vec![(no_length, Then::Close)], |_| {}).await;
    assert_eq!(store.head("k").await.expect_err("no length").kind, ErrorKind::Corrupt);
}

#[tokio::test]
async fn a_batch_asks_as_documented_and_garbage_in_it_is_an_error() {
    let wanted: Vec<Wanted> = ["a", "b"].map(|key| Wanted { id: ObjectId { key: key.into(), etag: SUM.into() }, size: 3 }).to_vec();
    for body in ["", "x", &"garbage ".repeat(100), "<html>not a TAR</html>", &"\0".repeat(1024)] {
        let target = Scripted::start(vec![(answer("200 OK", "", body.len(), body), Then::Keep)]).await;
        let to = format!("http://{}/v1/ml/moss/b/x/w/1?tid=t", target.address);
        let (server, store) = connect(vec![moved("307 Temporary Redirect", &to)], |_| {}).await;
        let pieces: Vec<_> = store.read_batch(&wanted).await.expect("begins").collect().await;
        assert!(pieces.len() == 1 && pieces[0].is_err(), "{body:?}: {pieces:?}");
        for asked in [&server.asked()[2], &target.asked()[0]] {
            let json = asked.split("\r\n\r\n").nth(1).expect("a body");
            let json: serde_json::Value = serde_json::from_str(json).expect("JSON");
            let all =
                serde_json::json!({"mime": ".tar", "in": [{"objname": "a"}, {"objname": "b"}], "coer": true, "onob": true, "strm": true});
            assert_eq!(json, all, "sent again as it was");
        }
        assert!(server.asked()[2].starts_with("GET /v1/ml/moss/b?provider=ais "));
    }
    // A 404 about the bucket says nothing about batches.
    let missing = refusal("404 Not Found", r#"{"tcode":"ErrBckNotFound","message":"bucket gone"}"#);
    let (_server, store) = connect(vec![missing], |_| {}).await;
    assert_eq!(store.read_batch(&wanted).await.err().map(|error| error.kind), Some(ErrorKind::NotFound));
    assert!(store.batch_limits().is_some());
}

#[tokio::test]
async fn a_bucket_that_cannot_be_had_is_explained_in_one_line() {
    for (status, body, kind, needle) in [
        ("404 Not Found", r#"{"tcode":"ErrBckNotFound","message":"x"}"#, ErrorKind::NotFound, "no such bucket"),
        ("401 Unauthorized", "", ErrorKind::Denied, "AIS_AUTHN_TOKEN"),
        ("200 OK", "<html>Welcome to nginx</html>", ErrorKind::Corrupt, "makes no sense"),
        ("301 Moved Permanently", "", ErrorKind::Corrupt, "redirects"),
    ] {
        let server = Scripted::start(vec![refusal(status, body)]).await;
        let config = AisConfig::new(Bucket::new("b"), vec![format!("http://{}", server.address)]);
        let error = AisStore::connect(config, "", Arc::default()).await.expect_err(status);
        let text = error.to_string();
        assert!(error.kind == kind && text.starts_with("bucket \"b\": ") && text.contains(needle) && !text.contains('\n'), "{text}");
    }
    let tls = Scripted::start(vec![(String::new(), Then::Close)]).await;
    let mut config = AisConfig::new(Bucket::new("b"), vec![format!("https://{}", tls.address)]);
    (config.connect_timeout, config.first_byte_timeout) = (Duration::from_millis(25), Duration::from_millis(25));
    assert_eq!(AisStore::connect(config, "", Arc::default()).await.expect_err("no TLS there").kind, ErrorKind::Timeout);
    for endpoints in [vec![], vec!["localhost".to_owned()], vec!["http://me:secret@h".to_owned()]] {
        let error = AisStore::connect(AisConfig::new(Bucket::new("b"), endpoints), "", Arc::default()).await.expect_err("no address");
        assert!(error.kind == ErrorKind::Invalid && !error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn the_environment_is_read_as_aistores_programs_read_it() {
    let with = |pairs: &[(&str, &str)]| {
        let pairs: Vec<(String, String)> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let variable = move |name: &str| pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        AisConfig::new(Bucket::new("b"), vec![]).from_environment(&variable)
    };
    let all = with(&[
        ("AIS_ENDPOINT", "http://p:1"),
        ("AIS_AUTHN_TOKEN", "t"),
        ("AIS_AUTHN_TOKEN_FILE", "/f"),
        ("AIS_CRT", "/c"),
        ("AIS_CRT_KEY", "/k"),
        ("AIS_CLIENT_CA", "/ca"),
        ("AIS_SKIP_VERIFY_CRT", "true"),
    ])
    .expect("all of it");
    assert_eq!((all.endpoints, all.ca_bundle, all.skip_verify), (vec!["http://p:1".to_owned()], Some("/ca".into()), true));
    assert!(matches!(all.token, Some(TokenSource::Value(token)) if token == "t"), "the token itself wins");
    assert_eq!(all.identity.expect("a pair").key, PathBuf::from("/k"));
    let file = with(&[("AIS_AUTHN_TOKEN", ""), ("AIS_AUTHN_TOKEN_FILE", "/f"), ("AIS_SKIP_VERIFY_CRT", "0")]).expect("a file");
    assert!(matches!(file.token, Some(TokenSource::File(path)) if path.as_os_str() == "/f") && !file.skip_verify);
    for (bad, names) in
        [(("AIS_CRT", "/c"), "AIS_CRT_KEY"), (("AIS_CRT_KEY", "/c"), "AIS_CRT:"), (("AIS_SKIP_VERIFY_CRT", "maybe"), "neither")]
    {
        let error = with(&[bad]).expect_err("half").to_string();
        assert!(error.contains(names), "{error}");
    }
}

//! The fake AIStore itself, as a bare HTTP client sees it: what NVIDIA's client does not show (`ais_official.rs`), above all its faults and
//! limits. A test of our client is worth no more than the server it talks to.

use std::io::Read;
use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::ais::hash::xxh64;
use crate::support::ais::{Access, AisCluster, AisConfig, BatchConfig, BucketSpec, Checksum, Does, Fault, Op, When};
use crate::support::ais_http::{Answer, Http, object};

fn start(config: AisConfig) -> (AisCluster, Http) {
    let cluster = AisCluster::start(config);
    let http = Http::new(&cluster.endpoint());
    (cluster, http)
}

fn list(value: &Value) -> Value {
    json!({ "action": "list", "name": "", "value": value })
}

/// Names of all pages of a list.
async fn list_all(http: &Http, target: &str, mut value: Value) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    loop {
        let page = http.ask(target, &list(&value)).await.json();
        let name = |entry: &Value| entry["name"].as_str().expect("a name").to_owned();
        pages.push(page["entries"].as_array().expect("entries").iter().map(name).collect());
        if page["continuation_token"] == "" {
            return pages;
        }
        value["uuid"] = page["uuid"].clone();
        value["continuation_token"] = page["continuation_token"].clone();
    }
}

/// Names and bytes of a TAR, and whether it has its end.
fn untar(body: &[u8]) -> (Vec<(String, Vec<u8>)>, bool) {
    let mut archive = tar::Archive::new(body);
    let mut entries = Vec::new();
    for entry in archive.entries().expect("a TAR") {
        let Ok(mut entry) = entry else { break };
        let mut bytes = Vec::new();
        let name = String::from_utf8(entry.path_bytes().into_owned()).expect("UTF-8");
        if entry.read_to_end(&mut bytes).is_err() || bytes.len() as u64 != entry.size() {
            break;
        }
        entries.push((name, bytes));
    }
    (entries, body.ends_with(&[0; 1024]))
}

fn batch(names: &[&str]) -> Value {
    let entries: Vec<Value> = names.iter().map(|name| json!({ "objname": name })).collect();
    json!({ "in": entries, "coer": true, "onob": true, "strm": true })
}

#[tokio::test]
async fn each_get_is_redirected_to_the_target_that_has_it() {
    let (cluster, http) = start(AisConfig { proxies: 2, ..AisConfig::default() });
    for key in ["a", "x y#?%+&ü.bin", "/lead", "a//b", "<xml>\"&amp;'", "\\back"] {
        cluster.put("b", key, key.to_owned());
        let first = http.send(Method::GET, &object("b", "ais", key), &[], "").await.expect("an answer");
        assert_eq!(first.status, StatusCode::MOVED_PERMANENTLY);
        let to = first.header("location");
        assert!(to.starts_with(&cluster.node_url(&cluster.target_of("b", key).expect("targets"))), "{to}");
        let again = http.send(Method::GET, &object("b", "ais", key), &[], "").await.expect("an answer");
        assert_ne!(again.header("location"), to, "no two redirects are equal");
        assert_eq!(http.get(to).await.body, key);
        let head = http.send(Method::HEAD, &object("b", "ais", key), &[], "").await.expect("an answer");
        assert_eq!(head.status, StatusCode::TEMPORARY_REDIRECT);
    }
    let missing = http.get(&object("b", "ais", "no")).await;
    assert_eq!((missing.status, missing.json()["status"].as_u64()), (StatusCode::NOT_FOUND, Some(404)));
    let missing = http.follow(Method::HEAD, &object("b", "ais", "no"), &[], "").await.expect("an answer");
    assert!(missing.status == StatusCode::NOT_FOUND && missing.header("hdr-error").contains("ErrNotFound"), "{missing:?}");
    for bad in ["dir/", "a/./b", "a/../b", "~/x"] {
        assert_eq!(http.get(&object("b", "ais", bad)).await.status, StatusCode::BAD_REQUEST, "{bad}");
    }
    assert_eq!(http.get("/ais/b/a").await.body, "a", "the easy URL");
    assert_eq!(http.get("/v1/objects/none/a?provider=ais").await.json()["tcode"], "ErrBckNotFound");
    let (counters, other) = (cluster.counters(), Http::new(&cluster.endpoints()[1]));
    assert_eq!((counters.redirects, counters.target_get), (21, 8));
    assert_eq!(other.get(&object("b", "ais", "a")).await.body, "a");
}

#[tokio::test]
async fn lists_have_pages_folders_and_both_encodings() {
    let (cluster, http) = start(AisConfig { page_max: Some(4), ..AisConfig::default() });
    let target = "/v1/buckets/im?provider=ais";
    let keys = ["a", "b/1", "b/2", "b/c/3", "b0", "c/4", "d", "e/5", "f"];
    for key in keys {
        cluster.put("im", key, key.repeat(3));
    }
    let pages = list_all(&http, target, json!({ "props": "name,size" })).await;
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 1]);
    assert_eq!(pages.concat(), keys);
    for pagesize in 1..6 {
        let top = list_all(&http, target, json!({ "flags": "2048", "pagesize": pagesize })).await.concat();
        assert_eq!(top, ["a", "b/", "b0", "c/", "d", "e/", "f"], "{pagesize}");
        let below = list_all(&http, target, json!({ "flags": "2048", "prefix": "b/", "pagesize": pagesize })).await.concat();
        assert_eq!(below, ["b/1", "b/2", "b/c/"], "{pagesize}");
        let after = list_all(&http, target, json!({ "start_after": "b/2", "pagesize": pagesize })).await.concat();
        assert_eq!(after, keys[3..], "{pagesize}");
    }
    let page = http.ask(target, &list(&json!({ "props": "name,size,checksum,version", "prefix": "a" }))).await.json();
    let sum = format!("{:016x}", xxh64(b"aaa", 0));
    assert_eq!(page["entries"][0], json!({ "name": "a", "size": "3", "checksum": sum, "version": "1", "flags": 64 }));
    let headers = [("accept", "application/msgpack"), ("content-type", "application/json")];
    let packed = http.send(Method::GET, target, &headers, list(&json!({ "prefix": "a" })).to_string()).await.expect("an answer");
    #[derive(serde::Deserialize)]
    struct Page {
        #[serde(rename = "Entries")]
        entries: Vec<Entry>,
    }
    #[derive(serde::Deserialize)]
    struct Entry {
        n: String,
        s: u64,
    }
    let page: Page = rmp_serde::from_slice(&packed.body).expect("msgpack");
    assert_eq!((page.entries[0].n.as_str(), page.entries[0].s), ("a", 3));
    // a prefix that is a folder, without its slash: targets that have the folder list that alone
    let all: Vec<String> = ["d/1", "d/2", "d/3", "d/4", "d/5", "d0", "d1", "d2", "d3", "d4", "d5"].map(str::to_owned).to_vec();
    for key in &all {
        cluster.put("dirs", key, "x");
    }
    let target_of = |key: &str| cluster.target_of("dirs", key).expect("targets");
    let with_folder: Vec<String> = all[..5].iter().map(|key| target_of(key)).collect();
    let listed = list_all(&http, "/v1/buckets/dirs?provider=ais", json!({ "prefix": "d" })).await.concat();
    let wanted = all.iter().filter(|key| key.starts_with("d/") || !with_folder.contains(&target_of(key)));
    assert_eq!(listed, wanted.cloned().collect::<Vec<_>>());
    assert!(listed.len() < all.len());
    let folder = with_folder.contains(&target_of("d"));
    let got = http.get(&object("dirs", "ais", "d")).await;
    assert_eq!(got.json()["tcode"], if folder { "ErrLmetaNotFound" } else { "ErrNotFound" });
    // what a sloppy client sends
    let null = http.ask(target, &json!({ "action": "list", "value": null })).await;
    assert_eq!(null.status, StatusCode::BAD_REQUEST, "without a value it is a list of buckets, and that has another path");
    assert_eq!(http.ask("/v1/buckets?provider=ais", &json!({ "action": "list", "value": null })).await.json()[1]["name"], "im");
    let no_uuid = http.ask(target, &list(&json!({ "continuation_token": "b/2" }))).await;
    assert_eq!(no_uuid.status, StatusCode::BAD_REQUEST);
    let number = http.ask(target, &list(&json!({ "flags": 2048 }))).await;
    assert_eq!(number.status, StatusCode::BAD_REQUEST, "flags are a number in a string");
    assert_eq!(http.ask("/v1/buckets/no?provider=ais", &list(&json!({}))).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn ranges_checksums_and_both_kinds_of_head() {
    let (cluster, http) = start(AisConfig::default());
    let body: Vec<u8> = (0..1000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let target = object("b", "ais", "o");
    cluster.put("b", "o", body.clone());
    for (range, status, wanted, content_range) in [
        ("bytes=0-0", 206, &body[..1], "bytes 0-0/1000"),
        ("bytes=990-", 206, &body[990..], "bytes 990-999/1000"),
        ("bytes=999-5000", 206, &body[999..], "bytes 999-999/1000"),
        ("bytes=-3", 206, &body[997..], "bytes 997-999/1000"),
        ("bytes=1000-", 416, &[][..], "bytes */1000"),
        ("bytes=1-2,5-6", 416, &[][..], ""),
    ] {
        let answer = http.get_range(&target, range).await;
        assert_eq!((answer.status.as_u16(), answer.header("content-range")), (status, content_range), "{range}");
        if status == 206 {
            assert_eq!(answer.body, wanted, "{range}");
            assert_eq!(answer.header("ais-checksum-value"), format!("{:016x}", xxh64(&body, 0)), "the whole object's");
        }
    }
    let spec = |checksum, read_range_checksum| BucketSpec { checksum, read_range_checksum };
    for (bucket, checksum, kind, whole) in [
        ("x", Checksum::Xxhash2, "xxhash2", "44bc2cf5ad770999"),
        ("m", Checksum::Md5, "md5", "900150983cd24fb0d6963f7d28e17f72"),
        ("c", Checksum::Crc32c, "crc32c", "364b3fb7"),
        ("n", Checksum::None, "", ""),
    ] {
        cluster.create_bucket(bucket, spec(checksum, true));
        cluster.put(bucket, "o", "abc");
        let answer = http.get(&object(bucket, "ais", "o")).await;
        assert_eq!(answer.header("ais-checksum-type"), kind);
        assert_eq!(answer.header("ais-checksum-value"), whole);
        if bucket == "x" {
            let ranged = http.get_range(&object(bucket, "ais", "o"), "bytes=1-1").await;
            assert_eq!(ranged.header("ais-checksum-value"), format!("{:016x}", xxh64(b"b", 0)), "the range's");
        }
    }
    let head = async |target: &str| http.follow(Method::HEAD, target, &[], "").await.expect("an answer");
    let v2 = head(&format!("{target}&props=name,size,version,etag,last-modified")).await;
    assert_eq!((v2.header("content-length"), v2.header("ais-version"), v2.header("ais-present")), ("1000", "1", "true"));
    assert!(
        v2.header("etag").starts_with("\"v1-") && v2.header("last-modified").ends_with("GMT") && v2.header("ais-checksum-value").is_empty()
    );
    assert_eq!(head(&format!("{target}&props=cached")).await.status, StatusCode::BAD_REQUEST);
    let v1 = head(&target).await;
    assert!(v1.header("last-modified").is_empty() && !v1.header("ais-checksum-value").is_empty());
    let (old, http) = start(AisConfig { head_v2: false, ..AisConfig::default() });
    old.put("s3://b", "o", "abc");
    let v1 = http.follow(Method::HEAD, &format!("{}&props=etag,last-modified", object("b", "aws", "o")), &[], "").await.expect("an answer");
    assert!(v1.header("last-modified").is_empty() && !v1.header("etag").contains('"') && !v1.header("etag").is_empty(), "{v1:?}");
}

#[tokio::test]
async fn a_cold_object_is_fetched_whole_and_once() {
    let (cluster, http) = start(AisConfig { cold_fetch: Duration::from_millis(50), ..AisConfig::default() });
    let target = object("cold", "aws", "k");
    cluster.put("s3://cold", "k", vec![7; 100_000]);
    let head = http.follow(Method::HEAD, &target, &[], "").await.expect("an answer");
    assert_eq!((head.header("ais-present"), cluster.counters().cold_fetches), ("false", 0));
    let both = futures_util::future::join(http.get_range(&target, "bytes=0-9"), http.get_range(&target, "bytes=10-19")).await;
    assert_eq!((both.0.body.len(), both.1.body.len()), (10, 10));
    let counters = cluster.counters();
    assert_eq!((counters.cold_fetches, counters.cold_bytes, counters.target_ranges), (1, 100_000, 2));
    // straight from a target that does not have it: a second copy
    let owner = cluster.target_of("s3://cold", "k").expect("targets");
    let wrong = ["t1", "t2", "t3"].into_iter().find(|id| *id != owner).expect("another");
    assert_eq!(http.get(&format!("{}{target}", cluster.node_url(wrong))).await.status, StatusCode::OK);
    assert_eq!((cluster.copies("s3://cold", "k"), cluster.counters().cold_fetches, cluster.counters().wrong_target), (2, 2, 1));
    cluster.evict("s3://cold");
    assert_eq!(cluster.copies("s3://cold", "k"), 0);
    // in a batch a cold object is missing; a job brings it
    let (names, _) = untar(&http.ask("/v1/ml/moss/cold?provider=aws", &batch(&["k"])).await.body);
    assert_eq!(names, [("__404__/k".to_owned(), Vec::new())]);
    let job = json!({ "action": "prefetch-listrange", "value": { "template": "k" } }).to_string();
    let id = http.send(Method::POST, "/v1/buckets/cold?provider=aws", &[], job).await.expect("an answer").text();
    let ask = json!({ "id": id, "kind": "prefetch-listrange" });
    while http.ask("/v1/cluster?what=qryxstats", &ask).await.json()["t1"][0]["end-time"] == "0001-01-01T00:00:00Z" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (names, whole) = untar(&http.ask("/v1/ml/moss/cold?provider=aws", &batch(&["k"])).await.body);
    assert!(names[0].1.len() == 100_000 && whole);
}

#[tokio::test]
async fn batches_keep_order_and_end_as_upstream_ends_them() {
    let config = BatchConfig { max_pending: 1, ..BatchConfig::default() };
    let (cluster, http) = start(AisConfig { batch: Some(config), ..AisConfig::default() });
    let names: Vec<String> = (0..20).map(|n| format!("k{n}")).collect();
    for name in &names {
        cluster.put("b", name, name.repeat(500));
    }
    let moss = "/v1/ml/moss/b?provider=ais";
    let mut order: Vec<&str> = names.iter().rev().map(String::as_str).collect();
    order.extend(["k3", "k3"]);
    let (entries, whole) = untar(&http.ask(moss, &batch(&order)).await.body);
    assert!(whole);
    let wanted: Vec<(String, Vec<u8>)> = order.iter().map(|name| ((*name).to_owned(), name.repeat(500).into_bytes())).collect();
    assert_eq!(entries, wanted);
    // six may be missing, at the seventh it ends: cleanly for HTTP and for TAR, and only the count tells
    for (missing, ends) in [(6, false), (7, true)] {
        let order: Vec<&str> = ["no"].into_iter().cycle().take(missing).chain(["k1", "k2"]).collect();
        let answer = http.ask(moss, &batch(&order)).await;
        let (entries, whole) = untar(&answer.body);
        assert_eq!((answer.status, answer.broken, whole, entries.len()), (StatusCode::OK, false, true, if ends { 7 } else { 8 }));
    }
    let mut strict = batch(&["k1", "no", "k2"]);
    strict["coer"] = json!(false);
    let (entries, whole) = untar(&http.ask(moss, &strict).await.body);
    assert!(whole && entries.len() == 1);
    // scripted ends
    cluster.fault(Fault::at_targets(Op::Batch, When::First(1), Does::CutEntry { entry: 2 }));
    let cut = http.ask(moss, &batch(&order)).await;
    assert!(cut.broken && untar(&cut.body).0 == wanted[..2], "{}", cut.body.len());
    for end_of_archive in [false, true] {
        cluster.clear_faults();
        cluster.fault(Fault::at_targets(Op::Batch, When::First(1), Does::EndBatch { after_entries: 3, end_of_archive }));
        let ended = http.ask(moss, &batch(&order)).await;
        assert!(!ended.broken && untar(&ended.body) == (wanted[..3].to_vec(), end_of_archive));
    }
    cluster.clear_faults();
    // refusals
    cluster.set_pressure(true);
    assert_eq!(http.ask(moss, &batch(&["k1"])).await.status, StatusCode::TOO_MANY_REQUESTS);
    cluster.set_pressure(false);
    let mut bad = batch(&["k1"]);
    bad["in"][0]["start"] = json!(5);
    assert_eq!(http.ask(moss, &bad).await.status, StatusCode::BAD_REQUEST, "a start without a length");
    // a range beyond the end: the batch ends there, or the whole object comes, as its target is the chosen one or not
    let mut beyond = batch(&["k1", "k2"]);
    (beyond["in"][0]["start"], beyond["in"][0]["length"]) = (json!(5_000), json!(9));
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..40 {
        let (entries, whole) = untar(&http.ask(moss, &beyond).await.body);
        assert!(whole);
        seen.insert(entries.iter().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>());
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [vec![], vec![1_000, 1_000]]);
    let to = http.send(Method::GET, moss, &[], batch(&["k1"]).to_string()).await.expect("an answer");
    assert_eq!(to.status, StatusCode::TEMPORARY_REDIRECT);
    let unmarked = to.header("location").replace("pid=", "not=");
    assert_eq!(http.ask(&unmarked, &batch(&["k1"])).await.status, StatusCode::UNAUTHORIZED);
    let without_body = http.send(Method::GET, to.header("location"), &[], "").await.expect("an answer");
    assert_eq!(without_body.status, StatusCode::BAD_REQUEST);
    let to = http.send(Method::GET, moss, &[], batch(&["k1"]).to_string()).await.expect("an answer");
    cluster.add_target("t9");
    assert_eq!(http.ask(to.header("location"), &batch(&["k1"])).await.status, StatusCode::CONFLICT, "the map has changed");
    assert_eq!(cluster.counters().batch_refused, 1);
    let (_old, http) = start(AisConfig { batch: None, ..AisConfig::default() });
    assert!(http.ask(moss, &batch(&["k1"])).await.status.is_client_error());
}

#[tokio::test]
async fn a_batch_ends_in_words_when_the_map_changes() {
    let config = BatchConfig { per_entry: Duration::from_millis(20), ..BatchConfig::default() };
    let (cluster, http) = start(AisConfig { batch: Some(config), ..AisConfig::default() });
    cluster.put("b", "k", "x");
    let body = batch(&["k"; 50]);
    let asked = http.ask("/v1/ml/moss/b?provider=ais", &body);
    let changed = async {
        while cluster.counters().batches == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        cluster.set_maintenance("t1", true);
    };
    let (answer, ()) = futures_util::future::join(asked, changed).await;
    let (entries, whole) = untar(&answer.body);
    assert!(!answer.broken && !whole && (1..50).contains(&entries.len()), "{}", entries.len());
    assert!(answer.text().contains("ErrMembershipChange"));
}

#[tokio::test]
async fn members_of_a_shard_are_read_and_listed() {
    let (cluster, http) = start(AisConfig::default());
    let mut shard = tar::Builder::new(Vec::new());
    for (name, body) in [("d/7.jpg", "seven"), ("d/7.seg.png", "mask"), ("d/70.jpg", "seventy"), ("d/7.jpg", "again")] {
        let mut header = tar::Header::new_gnu();
        header.set_size(body.len() as u64);
        shard.append_data(&mut header, name, body.as_bytes()).expect("a vector takes all");
    }
    cluster.put("b", "s.tar", shard.into_inner().expect("a vector takes all"));
    let target = object("b", "ais", "s.tar");
    assert_eq!(http.get(&format!("{target}&archpath=d/7.jpg")).await.body, "seven", "the first of equal names");
    assert_eq!(http.get(&format!("{target}&archpath=no")).await.status, StatusCode::NOT_FOUND);
    assert_eq!(http.get_range(&format!("{target}&archpath=d/7.jpg"), "bytes=0-1").await.status, StatusCode::BAD_REQUEST);
    let sample = untar(&http.get(&format!("{target}&archregx=d/7&archmode=wdskey")).await.body);
    assert_eq!(sample.0.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["d/7.jpg", "d/7.seg.png", "d/7.jpg"]);
    let page = http.ask("/v1/buckets/b?provider=ais", &list(&json!({ "flags": "8" }))).await.json();
    assert_eq!(page["entries"][0]["flags"], 64 | 512);
    assert_eq!(page["entries"][1], json!({ "name": "s.tar/d/7.jpg", "size": "5", "flags": 64 | 128 }));
}

#[tokio::test]
async fn a_batch_whose_reader_stops_is_ended() {
    let config = BatchConfig { write_deadline: Duration::from_millis(200), ..BatchConfig::default() };
    let (cluster, http) = start(AisConfig { batch: Some(config), targets: 1, ..AisConfig::default() });
    // more than any socket buffers
    cluster.put("b", "large", vec![1; 64 << 20]);
    let body = batch(&["large", "large"]).to_string();
    let to = http.send(Method::GET, "/v1/ml/moss/b?provider=ais", &[], body.clone()).await.expect("an answer");
    let location: hyper::Uri = to.header("location").parse().expect("a URL");
    let mut socket = tokio::net::TcpStream::connect(location.authority().expect("an address").as_str()).await.expect("connects");
    let path = location.path_and_query().expect("a path");
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    tokio::io::AsyncWriteExt::write_all(&mut socket, request.as_bytes()).await.expect("writes");
    tokio::time::sleep(Duration::from_millis(600)).await;
    let mut rest = Vec::new();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut socket, &mut rest).await;
    assert!(rest.len() < 64 << 20, "{}", rest.len());
    assert_eq!(cluster.counters().in_flight, 0);
}

#[tokio::test]
async fn the_map_changes_and_objects_are_elsewhere() {
    let (cluster, http) = start(AisConfig { proxies: 2, ..AisConfig::default() });
    for n in 0..50 {
        cluster.put("b", &format!("k{n}"), "x");
    }
    let map = async || http.get("/v1/daemon?what=smap").await.json();
    let targets = |map: &Value| map["tmap"].as_object().expect("targets").keys().cloned().collect::<Vec<_>>();
    let first = map().await;
    assert_eq!((first["version"].clone(), targets(&first)), (json!("1"), vec!["t1".into(), "t2".into(), "t3".into()]));
    assert_eq!(first["tmap"]["t1"]["id_digest"], json!(14_214_570_646_889_990_061_u64));
    assert_eq!(first["tmap"]["t1"]["public_net"]["direct_url"], json!(cluster.node_url("t1")));
    let read_all = async || {
        for n in 0..50 {
            assert_eq!(http.get(&object("b", "ais", &format!("k{n}"))).await.body, "x", "k{n}");
        }
    };
    cluster.add_target("t4");
    assert!((0..50).any(|n| cluster.target_of("b", &format!("k{n}")).as_deref() == Some("t4")));
    read_all().await;
    cluster.set_maintenance("t1", true);
    assert!((0..50).all(|n| cluster.target_of("b", &format!("k{n}")).as_deref() != Some("t1")));
    assert_eq!(map().await["tmap"]["t1"]["flags"], 4);
    read_all().await;
    let moved = (0..50).map(|n| format!("k{n}")).find(|key| cluster.target_of("b", key).as_deref() == Some("t2")).expect("some");
    cluster.remove_target("t2");
    assert_eq!(targets(&map().await), ["t1", "t3", "t4"]);
    assert!(http.send(Method::GET, &format!("{}/v1/health", cluster.node_url("t2")), &[], "").await.is_none(), "its port is closed");
    read_all().await;
    let owner = cluster.target_of("b", &moved).expect("targets");
    let wrong = ["t1", "t3", "t4"].into_iter().find(|id| *id != owner).expect("another");
    let stale = http.get(&format!("{}{}", cluster.node_url(wrong), object("b", "ais", &moved))).await;
    assert_eq!(stale.status, StatusCode::NOT_FOUND, "an ais object is on its target only");
    cluster.set_placement("t3", Some(10.0));
    assert_eq!(map().await["tmap"]["t3"]["placement"]["weight"], "10");
    read_all().await;
    assert_eq!(cluster.map_version(), 5);
    cluster.set_primary("p2");
    assert_eq!(map().await["proxy_si"]["daemon_id"], "p2");
    cluster.stop_node("p1");
    assert!(http.send(Method::GET, "/v1/health", &[], "").await.is_none());
    assert_eq!(Http::new(&cluster.node_url("p2")).get(&object("b", "ais", "k1")).await.body, "x");
    cluster.restart_node("p1");
    assert_eq!(http.get(&object("b", "ais", "k1")).await.body, "x");
}

#[tokio::test]
async fn tokens_are_checked_at_proxies_and_signed_redirects_are_good_once() {
    let tokens = vec![("all".to_owned(), Access::All), ("some".to_owned(), Access::Buckets(vec!["ais://b".to_owned()]))];
    let (cluster, http) = start(AisConfig { tokens: Some(tokens), sign: true, ..AisConfig::default() });
    for bucket in ["b", "c"] {
        cluster.put(bucket, "k", "x");
    }
    let status = async |token: Option<&str>, bucket: &str| {
        let http = token.map_or_else(|| http.clone(), |token| http.clone().token(token));
        http.get(&object(bucket, "ais", "k")).await.status.as_u16()
    };
    assert_eq!((status(None, "b").await, status(Some("old"), "b").await), (401, 401));
    assert_eq!((status(Some("some"), "b").await, status(Some("some"), "c").await, status(Some("all"), "c").await), (200, 403, 200));
    let all = http.clone().token("all");
    let to = all.send(Method::GET, &object("b", "ais", "k"), &[], "").await.expect("an answer");
    let to = to.header("location").to_owned();
    assert!(to.contains("&vpams=1&x="), "{to}");
    let other = to.replace("/b/k?", "/c/k?");
    assert_eq!(http.get(&other).await.status, StatusCode::FORBIDDEN, "for another path");
    assert_eq!(http.get(&to).await.status, StatusCode::FORBIDDEN, "spent by that");
    let to = all.send(Method::GET, &object("b", "ais", "k"), &[], "").await.expect("an answer").header("location").to_owned();
    assert_eq!((http.get(&to).await.status, http.get(&to).await.status), (StatusCode::OK, StatusCode::FORBIDDEN));
    let direct = format!("{}{}", cluster.node_url(&cluster.target_of("b", "k").expect("targets")), object("b", "ais", "k"));
    assert_eq!(http.get(&direct).await.status, StatusCode::FORBIDDEN);
    let counters = cluster.counters();
    assert_eq!((counters.direct, counters.direct_refused, counters.bad_redirects, counters.unauthorized), (1, 1, 3, 2));
    cluster.set_tokens(Some(vec![("new".to_owned(), Access::All)]));
    assert_eq!((status(Some("all"), "b").await, status(Some("new"), "b").await), (401, 200));
}

#[tokio::test]
async fn faults_strike_where_they_say() {
    let (cluster, http) = start(AisConfig::default());
    let body: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let (target, url) = (object("b", "ais", "k"), object("b", "ais", "other"));
    cluster.put("b", "k", body.clone());
    cluster.put("b", "other", "x");
    let strike = async |does: Does| -> Option<Answer> {
        cluster.clear_faults();
        cluster.fault(Fault::at_targets(Op::Get, When::First(1), does).below("k"));
        assert_eq!(http.get(&url).await.body, "x", "another key is not struck");
        http.follow(Method::GET, &target, &[], Bytes::new()).await
    };
    for (status, tcode) in [(429, "ErrTooManyRequests"), (503, ""), (507, "ErrCapExceeded")] {
        let answer = strike(Does::Status { status, tcode, retry_after: Some(1) }).await.expect("an answer");
        assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (status, "1"));
        assert_eq!(answer.json()["tcode"], tcode);
    }
    for does in [Does::Cut { after: 70_000 }, Does::Reset { after: 70_000 }] {
        let answer = strike(does.clone()).await.expect("headers");
        assert!(answer.broken && answer.body.len() <= 70_000 && body.starts_with(&answer.body), "{does:?}: {}", answer.body.len());
        assert_eq!(answer.header("content-length"), "200000");
    }
    let corrupt = strike(Does::Corrupt { at: 150_000 }).await.expect("an answer");
    assert_eq!(corrupt.body.iter().zip(&body).filter(|(a, b)| a != b).count(), 1);
    assert_eq!(corrupt.header("ais-checksum-value"), format!("{:016x}", xxh64(&body, 0)));
    assert!(strike(Does::CloseBeforeAnswer).await.is_none());
    let old = strike(Does::Overwrite(Bytes::from_static(b"new"))).await.expect("an answer");
    assert!(old.body == body && old.header("ais-version") == "1");
    let new = http.get(&target).await;
    assert!(new.body == "new" && new.header("ais-version") == "2" && new.header("ais-checksum-value") != old.header("ais-checksum-value"));
    let hung = tokio::time::timeout(Duration::from_millis(100), strike(Does::Hang)).await;
    assert!(hung.is_err());
    cluster.clear_faults();
    cluster.set_starting(true);
    assert_eq!(http.get(&target).await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(http.get("/v1/health?readiness=true").await.status, StatusCode::SERVICE_UNAVAILABLE);
    cluster.set_starting(false);
    assert_eq!(http.get(&target).await.status, StatusCode::OK);
    // 3 statuses, cut, reset, corrupt, close (and the pool's retry on a fresh connection is not struck), overwrite, hang
    assert!(cluster.counters().faults >= 9, "{:?}", cluster.counters());
}

#[tokio::test]
async fn the_s3_dialect_lists_all_at_once_and_redirects_with_xml() {
    let (cluster, http) = start(AisConfig { page_max: Some(3), ..AisConfig::default() });
    for n in 0..10 {
        cluster.put("b", &format!("d{}/k&{n}", n % 2), format!("{n}"));
    }
    let listed = http.get("/s3/b?list-type=2&max-keys=2").await.text();
    assert_eq!((listed.matches("<Key>").count(), listed.matches("<IsTruncated>false").count()), (10, 1), "{listed}");
    assert!(listed.contains("<Key>d0/k&amp;0</Key>") && listed.contains("<Size>1</Size>"), "{listed}");
    let folders = http.get("/s3/b?list-type=2&delimiter=%2F").await.text();
    assert!(folders.contains("<CommonPrefixes><Prefix>d0/</Prefix></CommonPrefixes>") && !folders.contains("<Key>"), "{folders}");
    let to = http.send(Method::GET, "/s3/b/d0/k%260", &[], "").await.expect("an answer");
    assert_eq!((to.status, to.header("server")), (StatusCode::TEMPORARY_REDIRECT, "AIStore"));
    assert!(to.text().contains("<Code>TemporaryRedirect</Code>") && to.text().contains("<Endpoint>http://127.0.0.1:"), "{}", to.text());
    let got = http.get_range(to.header("location"), "bytes=0-0").await;
    assert!(got.status == StatusCode::PARTIAL_CONTENT && got.body == "0" && got.header("etag").starts_with('"'), "{got:?}");
    assert_eq!(http.get("/s3/b//d0/./k%260").await.body, "0", "a key is joined anew");
    let missing = http.get("/s3/b/no").await;
    assert!(missing.status == StatusCode::NOT_FOUND && missing.text().contains("<Code>NoSuchKey</Code>"), "{}", missing.text());
    cluster.put("s3://b", "k", "x");
    assert!(http.get("/s3/b?list-type=2").await.text().contains("AmbiguousBucketName"));
}

#[tokio::test]
async fn objects_come_and_go_over_http_too() {
    let (cluster, http) = start(AisConfig::default());
    http.create_bucket("new", "ais").await;
    http.create_bucket("new", "ais").await;
    http.put("new", "ais", "a b/ü", Bytes::from_static(b"one")).await;
    assert_eq!(http.get(&object("new", "ais", "a b/ü")).await.body, "one");
    let direct = format!("{}{}", cluster.node_url("t1"), object("new", "ais", "a b/ü"));
    let refused = http.send(Method::PUT, &direct, &[], "x").await.expect("an answer");
    assert_eq!(refused.status, StatusCode::BAD_REQUEST, "writes come through a proxy");
    http.delete("new", "ais", "a b/ü").await;
    assert_eq!(http.get(&object("new", "ais", "a b/ü")).await.status, StatusCode::NOT_FOUND);
    http.destroy_bucket("new", "ais").await;
    assert_eq!(http.get(&object("new", "ais", "a b/ü")).await.json()["tcode"], "ErrBckNotFound");
}

//! Our AIStore client against the fake cluster: the store contract, and each point of the client's checklist (its number is in the test's name).

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belady::stats::Stats;
use belady::store::aistore::bucket::{Bucket, Namespace, provider};
use belady::store::aistore::{AisConfig, AisStore, TokenSource};
use belady::store::batch::{Piece, Wanted};
use belady::store::listing::list_all;
use belady::store::s3::{S3Config, S3Store};
use belady::store::{Store, StoreError};
use belady::types::{ErrorKind, ObjectId, ObjectMeta};
use bytes::Bytes;
use futures_util::StreamExt;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

use crate::store_contract::{Keys, Writer, contract, objects};
use crate::support::ais::{Access, AisCluster, AisConfig as Fake, BatchConfig, BucketSpec, Checksum, Does, Fault, Op, When};
use crate::support::belady::Belady;

/// A store over a bucket of the fake, and its counters.
#[derive(Debug)]
struct Client {
    store: Arc<dyn Store>,
    stats: Arc<Stats>,
}

fn config(cluster: &AisCluster, bucket: &str) -> AisConfig {
    let (scheme, name) = bucket.split_once("://").unwrap_or(("ais", bucket));
    let bucket = Bucket { provider: provider(scheme).expect("a provider"), ..Bucket::new(name) };
    let mut config = AisConfig::new(bucket, vec![cluster.endpoint()]);
    // What must not run out is long: a busy machine takes its time.
    (config.first_byte_timeout, config.idle_timeout) = (Duration::from_secs(30), Duration::from_secs(30));
    config
}

async fn try_open(config: AisConfig) -> Result<Client, StoreError> {
    let stats = Arc::new(Stats::default());
    let store = AisStore::connect(config, "", Arc::clone(&stats)).await?;
    Ok(Client { store: Arc::new(store), stats })
}

async fn open(config: AisConfig) -> Client {
    try_open(config).await.expect("the bucket is there")
}

impl Client {
    async fn listed(&self) -> Vec<ObjectMeta> {
        list_all(&self.store, "", &|_| {}).await.expect("a complete listing")
    }

    async fn id(&self, key: &str) -> ObjectId {
        let listed = self.listed().await;
        listed.iter().find(|object| &*object.key == key).unwrap_or_else(|| panic!("{key} is not listed")).version()
    }

    async fn read(&self, id: &ObjectId, range: std::ops::Range<u64>) -> Result<Vec<u8>, StoreError> {
        let mut body = self.store.read(id, range).await?;
        let mut all = Vec::new();
        while let Some(chunk) = body.next().await {
            all.extend_from_slice(&chunk?);
        }
        Ok(all)
    }

    /// Entries as they ended, and how the batch ended.
    async fn batch(&self, wanted: &[Wanted]) -> (Vec<Result<Vec<u8>, ErrorKind>>, Result<(), ErrorKind>) {
        let mut pieces = match self.store.read_batch(wanted).await {
            Ok(pieces) => pieces,
            Err(error) => return (Vec::new(), Err(error.kind)),
        };
        let (mut ended, mut open) = (Vec::new(), Vec::new());
        while let Some(piece) = pieces.next().await {
            match piece {
                Ok(Piece::Chunk(chunk)) => open.extend_from_slice(&chunk),
                Ok(Piece::End(end)) => {
                    let bytes = std::mem::take(&mut open);
                    ended.push(end.map(|()| bytes).map_err(|error| error.kind));
                }
                Err(error) => return (ended, Err(error.kind)),
            }
        }
        (ended, Ok(()))
    }
}

fn wanted(listed: &[ObjectMeta]) -> Vec<Wanted> {
    listed.iter().map(|object| Wanted { id: object.version(), size: object.size }).collect()
}

fn body(key: &str, length: usize) -> Vec<u8> {
    key.bytes().cycle().zip(0_u8..=250).map(|(a, b)| a ^ b).cycle().take(length).collect()
}

/// Objects `k00`, `k01`, … of some sizes.
fn fill(cluster: &AisCluster, bucket: &str, count: usize) -> BTreeMap<String, Vec<u8>> {
    let objects: BTreeMap<_, _> = (0..count).map(|n| (format!("k{n:02}"), body(&format!("k{n}"), 1 + n * 997))).collect();
    for (key, bytes) in &objects {
        cluster.put(bucket, key, bytes.clone());
    }
    objects
}

struct Behind<'a>(&'a AisCluster, &'a str);

#[async_trait]
impl Writer for Behind<'_> {
    async fn put(&self, key: &str, body: &[u8]) {
        self.0.put(self.1, key, body.to_vec());
    }
    async fn delete(&self, key: &str) {
        assert!(self.0.delete(self.1, key), "{key:?} was there");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn aistore_keeps_the_contract_in_every_kind_of_bucket() {
    for (bucket, checksum, read_range_checksum, fake) in [
        ("b", Checksum::Xxhash2, false, Fake::default()),
        ("b", Checksum::Xxhash2, false, Fake { sign: true, proxies: 2, page_max: Some(700), ..Fake::default() }),
        ("b", Checksum::Md5, true, Fake { head_v2: false, ..Fake::default() }),
        ("b", Checksum::None, false, Fake::default()),
        ("s3://b", Checksum::Xxhash2, false, Fake::default()),
    ] {
        let cluster = AisCluster::start(fake);
        cluster.create_bucket(bucket, BucketSpec { checksum, read_range_checksum });
        let mut objects = objects(Keys::Paths);
        // redirects lose these (a line break becomes a blank)
        objects.retain(|key, _| !key.contains(char::is_control));
        for (key, body) in &objects {
            cluster.put(bucket, key, body.clone());
        }
        let client = open(config(&cluster, bucket)).await;
        contract(client.store, &Behind(&cluster, bucket), &objects).await;
        assert_eq!(cluster.counters().bad_redirects, 0, "each redirect is used once: {bucket} {checksum:?}");
    }
}

#[tokio::test]
async fn checklist_1_redirects_are_followed_each_time_and_never_remembered() {
    let cluster = AisCluster::start(Fake { sign: true, ..Fake::default() });
    cluster.put("b", "k", "some bytes");
    let client = open(config(&cluster, "b")).await;
    let id = client.id("k").await;
    cluster.reset_counters();
    for _ in 0..5 {
        assert_eq!(client.read(&id, 0..10).await.expect("its bytes"), b"some bytes");
    }
    let seen = cluster.counters();
    assert_eq!((seen.proxy_get, seen.redirects, seen.bad_redirects, seen.direct_refused), (5, 5, 0, 1), "{seen:?}");
    // one more: the first was tried straight at the target, which takes only what is signed
    assert_eq!((client.stats.store.redirects.get(), client.stats.store.direct.get(), client.stats.store.get.get()), (5, 0, 6));
}

#[tokio::test]
async fn checklist_2_targets_are_asked_directly_where_that_is_allowed() {
    let cluster = AisCluster::start(Fake::default());
    let objects = fill(&cluster, "b", 40);
    let client = open(config(&cluster, "b")).await;
    let listed = client.listed().await;
    cluster.reset_counters();
    for object in &listed {
        assert_eq!(client.read(&object.version(), 0..object.size).await.expect("its bytes"), objects[&*object.key]);
    }
    let seen = cluster.counters();
    assert_eq!((seen.direct, seen.wrong_target, seen.proxy_get), (40, 0, 0), "{seen:?}");
    assert_eq!(client.stats.store.direct.get(), 40);
    // A token, weights and signatures each close the way.
    let refused = AisCluster::start(Fake { tokens: Some(vec![("T".into(), Access::All)]), ..Fake::default() });
    let weighted = AisCluster::start(Fake::default());
    weighted.set_placement("t1", Some(3.0));
    for (cluster, token) in [(&refused, Some("T")), (&weighted, None)] {
        let objects = fill(cluster, "b", 3);
        let client = open(AisConfig { token: token.map(|token| TokenSource::Value(token.into())), ..config(cluster, "b") }).await;
        for object in client.listed().await {
            assert_eq!(client.read(&object.version(), 0..object.size).await.expect("its bytes"), objects[&*object.key]);
        }
        let seen = cluster.counters();
        assert_eq!((seen.direct, seen.proxy_get, seen.unauthorized), (0, 3, 0), "{seen:?}");
    }
}

#[tokio::test]
async fn checklist_2_a_refused_direct_request_goes_to_the_proxy_at_once() {
    let cluster = AisCluster::start(Fake::default());
    let objects = fill(&cluster, "b", 4);
    let client = open(config(&cluster, "b")).await;
    let listed = client.listed().await;
    cluster.fault(Fault::at_targets(Op::Get, When::First(1), Does::Status { status: 403, tcode: "", retry_after: None }));
    for object in listed {
        assert_eq!(client.read(&object.version(), 0..object.size).await.expect("its bytes"), objects[&*object.key]);
    }
    assert_eq!((client.stats.store.direct.get(), cluster.counters().proxy_get), (0, 4), "once refused, it is left alone");
}

#[tokio::test]
async fn checklist_2_keys_of_targets_do_not_close_the_direct_way_and_signing_does() {
    for (sign, direct) in [(false, 8), (true, 1)] {
        let cluster = AisCluster::start(Fake { keys: true, sign, ..Fake::default() });
        let objects = fill(&cluster, "b", 8);
        let client = open(config(&cluster, "b")).await;
        for object in client.listed().await {
            assert_eq!(client.read(&object.version(), 0..object.size).await.expect("its bytes"), objects[&*object.key]);
        }
        let seen = cluster.counters();
        assert_eq!((seen.direct, seen.direct_refused), (direct, u64::from(sign)), "tried once where it is refused: {seen:?}");
    }
}

#[tokio::test]
async fn a_batch_leaves_its_connection_for_the_next() {
    let batch = BatchConfig { end: Duration::from_millis(20), ..BatchConfig::default() };
    let cluster = AisCluster::start(Fake { targets: 1, batch: Some(batch), ..Fake::default() });
    let objects = fill(&cluster, "b", 20);
    let client = open(config(&cluster, "b")).await;
    let wanted = wanted(&client.listed().await);
    cluster.reset_counters();
    for _ in 0..8 {
        let (entries, end) = client.batch(&wanted).await;
        assert!(end.is_ok() && entries.into_iter().zip(objects.values()).all(|(entry, bytes)| entry.as_ref() == Ok(bytes)));
    }
    let seen = cluster.counters();
    assert_eq!((seen.batches, seen.target_connections), (8, 1), "{seen:?}");
}

#[tokio::test]
async fn checklist_9_what_the_s3_dialect_lists_without_an_etag_is_read_in_ranges_of_one_version() {
    let cluster = AisCluster::start(Fake::default());
    for key in ["big", "ü/文.bin"] {
        cluster.put("b", key, body(key, 400_000));
    }
    let mut config = S3Config { endpoint_url: Some(format!("{}/s3", cluster.endpoint())), ..S3Config::new("b") };
    (config.no_sign_request, config.region) = (true, Some("us-east-1".to_owned()));
    let stats = Arc::new(Stats::default());
    let store: Arc<dyn Store> = Arc::new(S3Store::connect(config, "", Arc::clone(&stats)).await.expect("the bucket is there"));
    let client = Client { store, stats };
    for object in client.listed().await {
        let (id, was) = (object.version(), body(&object.key, 400_000));
        assert!(id.etag.starts_with('~'), "listed without one: {id:?}");
        for range in [0..100_000, 100_000..400_000] {
            let bytes = client.read(&id, range.start as u64..range.end as u64).await.expect("its bytes");
            assert_eq!(bytes, was[range]);
        }
        assert_eq!(client.store.head(&object.key).await.expect("there").size, 400_000);
        cluster.put("b", &object.key, body("new", 400_000));
        assert_eq!(client.read(&id, 0..100).await.expect_err("another version").kind, ErrorKind::Changed);
    }
}

#[tokio::test]
async fn checklist_2_the_map_is_renewed_when_targets_join_leave_and_rest() {
    let cluster = AisCluster::start(Fake { targets: 4, ..Fake::default() });
    let objects = fill(&cluster, "b", 60);
    let client = open(config(&cluster, "b")).await;
    let listed = client.listed().await;
    let all = async || {
        for object in &listed {
            assert_eq!(client.read(&object.version(), 0..object.size).await.expect("its bytes"), objects[&*object.key]);
        }
    };
    // The map is asked for at most once a second, in the background: read on until it is there.
    let settle = async |what: &str| {
        let began = std::time::Instant::now();
        loop {
            cluster.reset_counters();
            all().await;
            let seen = cluster.counters();
            if seen.direct == 60 && seen.wrong_target == 0 && seen.proxy_get == 0 {
                return;
            }
            assert!(began.elapsed().as_secs() < 60, "{what}: {seen:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    settle("at first").await;
    cluster.add_target("t5");
    settle("t5 joined").await;
    cluster.remove_target("t2");
    settle("t2 left").await;
    cluster.set_maintenance("t3", true);
    settle("t3 rests").await;
    // One that dies stays in the map until the cluster notices: its objects cannot be had, the error passes by itself.
    cluster.stop_node("t1");
    for object in &listed {
        match client.read(&object.version(), 0..object.size).await {
            Ok(bytes) => assert_eq!(bytes, objects[&*object.key]),
            Err(error) => assert!(error.kind.is_transient(), "{error}"),
        }
    }
    cluster.remove_target("t1");
    settle("t1 is gone").await;
}

#[tokio::test]
async fn checklist_3_listings_are_whole_in_pages_and_errors_otherwise() {
    let cluster = AisCluster::start(Fake { page_max: Some(7), ..Fake::default() });
    let objects = fill(&cluster, "b", 20);
    cluster.create_bucket("empty", BucketSpec::default());
    let client = open(config(&cluster, "b")).await;
    cluster.reset_counters();
    let listed = client.listed().await;
    assert_eq!(listed.iter().map(|object| object.key.to_string()).collect::<Vec<_>>(), objects.keys().cloned().collect::<Vec<_>>());
    let seen = cluster.counters();
    assert_eq!((seen.proxy_list, seen.proxy_list_msgpack), (3, 3), "{seen:?}");
    assert!(open(config(&cluster, "empty")).await.listed().await.is_empty());
    let error = try_open(config(&cluster, "none")).await.expect_err("no bucket");
    assert!(error.kind == ErrorKind::NotFound && error.to_string().contains("no such bucket"), "{error}");
    // A cloud's bucket begins only at its beginning; what was to be left out is.
    fill(&cluster, "s3://cloud", 20);
    let cloud = open(config(&cluster, "s3://cloud")).await;
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = cloud.store.list("", Some("k11"), after.as_deref()).await.expect("a page");
        found.extend(page.objects.into_iter().map(|object| object.key.to_string()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found, (12..20).map(|n| format!("k{n:02}")).collect::<Vec<_>>());
    // Pages that break off.
    for does in [Does::Cut { after: 30 }, Does::Reset { after: 30 }] {
        cluster.fault(Fault::at_proxies(Op::List, When::First(1), does));
        let error = client.store.list("", None, None).await.expect_err("half a page");
        assert!(error.kind.is_transient(), "{error}");
        cluster.clear_faults();
    }
    cluster.fault(Fault::at_proxies(Op::List, When::Always, Does::Corrupt { at: 0 }));
    assert_eq!(client.store.list("", None, None).await.expect_err("garbage").kind, ErrorKind::Corrupt);
}

#[tokio::test]
async fn checklist_4_both_kinds_of_head_tell_the_listed_version() {
    for head_v2 in [true, false] {
        for bucket in ["b", "s3://b"] {
            let cluster = AisCluster::start(Fake { head_v2, ..Fake::default() });
            cluster.put(bucket, "k", "bytes");
            let client = open(config(&cluster, bucket)).await;
            let listed = client.listed().await.remove(0);
            assert_eq!(client.store.head("k").await.expect("there"), listed, "{bucket}, V2 {head_v2}");
            let error = client.store.head("none").await.expect_err("not there");
            assert!(error.kind == ErrorKind::NotFound && error.to_string().contains("ErrNotFound"), "from the header: {error}");
        }
    }
}

#[tokio::test]
async fn checklist_5_ranges_are_of_one_version() {
    for (bucket, spec) in [
        ("b", BucketSpec::default()),
        ("b", BucketSpec { read_range_checksum: true, ..BucketSpec::default() }),
        ("b", BucketSpec { checksum: Checksum::None, ..BucketSpec::default() }),
        ("s3://b", BucketSpec::default()),
    ] {
        let cluster = AisCluster::start(Fake::default());
        cluster.create_bucket(bucket, spec);
        let (old, new) = (body("old", 100_000), body("new", 100_000));
        cluster.put(bucket, "k", old.clone());
        let client = open(config(&cluster, bucket)).await;
        let id = client.id("k").await;
        assert_eq!(client.read(&id, 99_999..100_000).await.expect("the last byte"), old[99_999..], "{bucket} {spec:?}");
        assert_eq!(client.read(&id, 1..50_000).await.expect("a range"), old[1..50_000]);
        assert_eq!(client.read(&id, 99_999..100_001).await.expect_err("beyond").kind, ErrorKind::Changed);
        assert_eq!(client.read(&id, 100_000..100_001).await.expect_err("beyond").kind, ErrorKind::Changed);
        // Overwritten while the first range comes: that one is old, the next is refused.
        cluster.fault(Fault::at_targets(Op::Get, When::First(1), Does::Overwrite(Bytes::from(new.clone()))));
        match client.read(&id, 10..60_000).await {
            Ok(bytes) => assert!(bytes == old[10..60_000]),
            Err(error) => assert_eq!(error.kind, ErrorKind::Changed, "{error}"),
        }
        let error = client.read(&id, 60_000..100_000).await.expect_err("of another version");
        assert_eq!(error.kind, ErrorKind::Changed, "{bucket} {spec:?}: {error}");
        assert_eq!(client.read(&client.id("k").await, 60_000..100_000).await.expect("the new one"), new[60_000..]);
    }
}

#[tokio::test]
async fn checklist_6_corrupt_and_cut_bodies_are_noticed() {
    for (bucket, checksum) in
        [("b", Checksum::Xxhash2), ("b", Checksum::Md5), ("b", Checksum::Crc32c), ("b", Checksum::Xxhash), ("s3://b", Checksum::Xxhash2)]
    {
        let cluster = AisCluster::start(Fake::default());
        cluster.create_bucket(bucket, BucketSpec { checksum, ..BucketSpec::default() });
        let bytes = body("k", 70_000);
        cluster.put(bucket, "k", bytes.clone());
        let client = open(config(&cluster, bucket)).await;
        let id = client.id("k").await;
        cluster.fault(Fault::at_targets(Op::Get, When::First(1), Does::Corrupt { at: 69_999 }));
        assert_eq!(client.read(&id, 0..70_000).await.expect_err("a wrong byte").kind, ErrorKind::Corrupt, "{bucket} {checksum:?}");
        cluster.clear_faults();
        for does in [Does::Cut { after: 30_000 }, Does::Reset { after: 30_000 }] {
            cluster.fault(Fault::at_targets(Op::Get, When::First(1), does));
            assert_eq!(client.read(&id, 0..70_000).await.expect_err("cut").kind, ErrorKind::Network);
            cluster.clear_faults();
        }
        assert_eq!(client.read(&id, 30_000..70_000).await.expect("the rest"), bytes[30_000..]);
        assert_eq!(client.read(&id, 0..70_000).await.expect("all"), bytes);
    }
}

#[tokio::test]
async fn checklist_7_every_trouble_has_its_kind() {
    let cluster = AisCluster::start(Fake::default());
    cluster.put("b", "k", "bytes");
    let client = open(AisConfig { direct: false, ..config(&cluster, "b") }).await;
    let id = client.id("k").await;
    for (status, kind) in [
        (429, ErrorKind::Throttled),
        (503, ErrorKind::Server),
        (500, ErrorKind::Server),
        (507, ErrorKind::Io),
        (409, ErrorKind::Changed),
        (410, ErrorKind::Changed),
    ] {
        cluster.fault(Fault::at_targets(Op::Get, When::First(1), Does::Status { status, tcode: "ErrX", retry_after: None }));
        assert_eq!(client.read(&id, 0..5).await.expect_err("refused").kind, kind, "{status}");
        cluster.clear_faults();
    }
    assert_eq!(client.stats.store.throttled.get(), 1);
    cluster.fault(Fault::at_targets(Op::Get, When::First(1), Does::CloseBeforeAnswer));
    assert_eq!(client.read(&id, 0..5).await.expect_err("no answer").kind, ErrorKind::Network);
    cluster.clear_faults();
    let short = AisConfig { direct: false, idle_timeout: Duration::from_millis(50), ..config(&cluster, "b") };
    let impatient = open(short).await;
    cluster.fault(Fault::at_targets(Op::Get, When::First(1), Does::Stall { after: 3 }));
    assert_eq!(impatient.read(&id, 0..5).await.expect_err("stalled").kind, ErrorKind::Timeout);
    assert_eq!(client.read(&id, 0..5).await.expect("well again"), b"bytes");
    // Starting: asked again at the mount; not found out by waiting for ever.
    cluster.set_starting(true);
    assert_eq!(client.read(&id, 0..5).await.expect_err("starting").kind, ErrorKind::Server);
    let (opened, ()) = tokio::join!(open(config(&cluster, "b")), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        cluster.set_starting(false);
    });
    assert_eq!(opened.read(&id, 0..5).await.expect("started"), b"bytes");
}

#[tokio::test]
async fn checklist_7_another_proxy_is_asked_where_one_is_down() {
    let cluster = AisCluster::start(Fake { proxies: 3, ..Fake::default() });
    let objects = fill(&cluster, "b", 6);
    // One is known, the others are the map's.
    let client = open(AisConfig { direct: false, ..config(&cluster, "b") }).await;
    let listed = client.listed().await;
    cluster.stop_node("p1");
    cluster.set_primary("p2");
    for object in &listed {
        assert_eq!(client.read(&object.version(), 0..object.size).await.expect("by another proxy"), objects[&*object.key]);
    }
    assert_eq!(client.listed().await.len(), 6);
    cluster.stop_node("p2");
    assert_eq!(client.store.head("k00").await.expect("by the last").size, 1);
    cluster.stop_node("p3");
    let error = client.store.head("k00").await.expect_err("nobody");
    assert!(error.kind == ErrorKind::Network && error.to_string().contains("127.0.0.1"), "{error}");
    cluster.restart_node("p1");
    assert_eq!(client.store.head("k00").await.expect("back").size, 1);
    // The first of those given is down at the start.
    let endpoints = vec![cluster.node_url("p3"), cluster.node_url("p1")];
    assert_eq!(open(AisConfig { endpoints, ..config(&cluster, "b") }).await.listed().await.len(), 6);
}

#[tokio::test]
async fn checklist_7_a_token_file_is_read_again_and_a_wrong_token_is_named() {
    let tokens =
        |token: &str| Some(vec![(token.to_owned(), Access::All), ("poor".to_owned(), Access::Buckets(vec!["ais://other".to_owned()]))]);
    let cluster = AisCluster::start(Fake { tokens: tokens("one"), ..Fake::default() });
    cluster.put("b", "k", "bytes");
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), "{\"token\": \"one\"}").expect("writes");
    cluster.record_requests();
    let client = open(AisConfig { token: Some(TokenSource::File(file.path().into())), ..config(&cluster, "b") }).await;
    let id = client.id("k").await;
    assert_eq!(client.read(&id, 0..5).await.expect("with the first token"), b"bytes");
    cluster.set_tokens(tokens("two"));
    std::fs::write(file.path(), "two").expect("writes");
    assert_eq!(client.read(&id, 0..5).await.expect("with the second"), b"bytes");
    for recorded in cluster.recorded() {
        let shown = format!("{recorded:?}");
        assert!(!shown.contains("at_target: true") || !shown.to_ascii_lowercase().contains("bearer"), "a token at a target: {shown}");
    }
    cluster.set_tokens(tokens("three"));
    for (token, names) in [
        (None, "set AIS_AUTHN_TOKEN"),
        (Some(TokenSource::Value("secret".into())), "the token of AIS_AUTHN_TOKEN:"),
        (Some(TokenSource::Value("poor".into())), "may not read this"),
        (Some(TokenSource::File(file.path().into())), "AIS_AUTHN_TOKEN_FILE"),
    ] {
        let error = try_open(AisConfig { token, ..config(&cluster, "b") }).await.expect_err("refused");
        let text = error.to_string();
        assert!(error.kind == ErrorKind::Denied && text.contains(names) && !text.contains("secret"), "{text}");
    }
}

#[tokio::test]
async fn checklist_8_a_batch_brings_the_entries_in_order_duplicates_and_empty_ones_too() {
    for bucket in ["b", "s3://b"] {
        let cluster = AisCluster::start(Fake::default());
        let mut objects = fill(&cluster, bucket, 30);
        let long = format!("d/{}", "x".repeat(300));
        for (key, bytes) in
            [("empty", vec![]), (long.as_str(), body("long", 600)), ("__404__/k00", body("odd", 10)), ("ü b#?%+", body("u", 10))]
        {
            cluster.put(bucket, key, bytes.clone());
            objects.insert(key.to_owned(), bytes);
        }
        cluster.warm(bucket);
        let client = open(config(&cluster, bucket)).await;
        let mut all = wanted(&client.listed().await);
        all.reverse();
        all.push(all[3].clone());
        cluster.reset_counters();
        let (entries, end) = client.batch(&all).await;
        assert_eq!(end, Ok(()), "{bucket}");
        assert_eq!(entries.len(), all.len());
        for (entry, wanted) in entries.iter().zip(&all) {
            assert_eq!(entry.as_ref(), Ok(&objects[&*wanted.id.key]), "{:?}", wanted.id.key);
        }
        let seen = cluster.counters();
        assert_eq!((seen.batches, seen.target_get), (1, 0), "{seen:?}");
        let stats = &client.stats.store;
        assert_eq!((stats.batch.get(), stats.batch_entries.get(), stats.batch_fallbacks.get()), (1, all.len() as u64, 0));
        let limits = client.store.batch_limits().expect("there are batches");
        assert!(limits.least >= 16 && limits.bytes <= 64 << 20 && (2..=4).contains(&limits.at_once));
    }
}

#[tokio::test]
async fn checklist_8_what_is_not_there_or_another_version_ends_in_its_own_error() {
    let cluster = AisCluster::start(Fake::default());
    let objects = fill(&cluster, "b", 20);
    let client = open(config(&cluster, "b")).await;
    let all = wanted(&client.listed().await);
    cluster.delete("b", "k03");
    cluster.put("b", "k05", "shorter or longer");
    let same_length = body("other", objects["k07"].len());
    cluster.put("b", "k07", same_length);
    let (entries, end) = client.batch(&all).await;
    assert_eq!(end, Ok(()));
    for (at, (entry, wanted)) in entries.into_iter().zip(&all).enumerate() {
        match at {
            3 => assert_eq!(entry, Err(ErrorKind::NotFound)),
            5 => assert_eq!(entry, Err(ErrorKind::Changed)),
            7 => assert_eq!(entry, Err(ErrorKind::Corrupt)),
            _ => assert_eq!(entry.as_ref(), Ok(&objects[&*wanted.id.key])),
        }
    }
    let stats = &client.stats.store;
    assert_eq!((stats.batch_entries.get(), stats.batch_fallbacks.get()), (17, 1));
    // Cold objects are missing to a batch; so are those without a checksum.
    let cold = objects.keys().next().expect("one");
    cluster.put("s3://cold", cold, "bytes");
    let client = open(config(&cluster, "s3://cold")).await;
    assert_eq!(client.store.batch_limits(), None, "nothing listed can be checked");
    let listed = wanted(&client.listed().await);
    assert_eq!(client.batch(&listed).await, (vec![Err(ErrorKind::Invalid)], Ok(())));
    assert_eq!(cluster.counters().cold_fetches, 0);
}

#[tokio::test]
async fn checklist_8_a_stream_that_breaks_loses_its_tail_and_nothing_else() {
    let cluster = AisCluster::start(Fake { batch: Some(BatchConfig { max_soft_errors: 2, ..BatchConfig::default() }), ..Fake::default() });
    let objects = fill(&cluster, "b", 40);
    let client = open(config(&cluster, "b")).await;
    let all = wanted(&client.listed().await);
    let good = |entries: &[Result<Vec<u8>, ErrorKind>]| {
        for (entry, wanted) in entries.iter().zip(&all) {
            assert_eq!(entry.as_ref(), Ok(&objects[&*wanted.id.key]), "{:?}", wanted.id.key);
        }
        entries.len()
    };
    for (does, whole, kind) in [
        (Does::EndBatch { after_entries: 11, end_of_archive: false }, 11, ErrorKind::Network),
        (Does::CutEntry { entry: 12 }, 12, ErrorKind::Network),
        (Does::EndBatch { after_entries: 0, end_of_archive: true }, 0, ErrorKind::Network),
        (Does::Cut { after: 700 }, 1, ErrorKind::Network),
        (Does::Reset { after: 1 }, 0, ErrorKind::Network),
        // The first byte of the first header.
        (Does::Corrupt { at: 0 }, 0, ErrorKind::Corrupt),
    ] {
        cluster.fault(Fault::at_targets(Op::Batch, When::First(1), does.clone()));
        let (entries, end) = client.batch(&all).await;
        // A reset may overtake bytes that were sent before it.
        assert!(good(&entries) <= whole && end == Err(kind), "{does:?}: {} entries, {end:?}", entries.len());
        assert!(matches!(does, Does::Reset { .. }) || entries.len() == whole, "{does:?}");
        cluster.clear_faults();
    }
    // A byte of an entry: that one alone is refused.
    cluster.fault(Fault::at_targets(Op::Batch, When::First(1), Does::Corrupt { at: 512 }));
    let (mut entries, end) = client.batch(&all).await;
    assert_eq!((entries.remove(0), end), (Err(ErrorKind::Corrupt), Ok(())));
    assert_eq!(entries.iter().filter(|entry| entry.is_ok()).count(), 39);
    cluster.clear_faults();
    // Names are of no use: the place counts.
    cluster.fault(Fault::at_targets(Op::Batch, When::First(1), Does::RenameEntries));
    let (entries, end) = client.batch(&all).await;
    assert_eq!((good(&entries), end), (40, Ok(())));
    cluster.clear_faults();
    // Too many missing: the cluster ends it.
    for key in ["k01", "k02", "k03", "k04"] {
        cluster.delete("b", key);
    }
    let (entries, end) = client.batch(&all).await;
    assert_eq!((entries.len(), end), (4, Err(ErrorKind::Network)), "one there, three missing");
    assert!(client.store.batch_limits().is_some());
    assert_eq!(client.stats.store.batch_fallbacks.get(), 8);
}

#[tokio::test]
async fn checklist_8_pressure_is_told_and_a_server_without_batches_is_asked_once() {
    let cluster = AisCluster::start(Fake::default());
    fill(&cluster, "b", 20);
    let client = open(config(&cluster, "b")).await;
    let all = wanted(&client.listed().await);
    cluster.set_pressure(true);
    assert_eq!(client.batch(&all).await, (vec![], Err(ErrorKind::Throttled)));
    assert_eq!(client.stats.store.throttled.get(), 1);
    cluster.set_pressure(false);
    assert_eq!(client.batch(&all).await.1, Ok(()));

    let old = AisCluster::start(Fake { batch: None, ..Fake::default() });
    let objects = fill(&old, "b", 20);
    let client = open(config(&old, "b")).await;
    let listed = client.listed().await;
    assert!(client.store.batch_limits().is_some(), "not known yet");
    for _ in 0..2 {
        assert_eq!(client.batch(&wanted(&listed)).await, (vec![], Err(ErrorKind::Invalid)));
        assert_eq!(client.store.batch_limits(), None);
    }
    assert_eq!(old.counters().proxy_batch, 1);
    assert_eq!(client.read(&listed[5].version(), 0..listed[5].size).await.expect("singly"), objects["k05"]);
}

#[tokio::test]
async fn checklist_9_the_s3_dialect_is_read_by_our_s3_client() {
    let cluster = AisCluster::start(Fake { sign: true, page_max: Some(300), ..Fake::default() });
    cluster.create_bucket("b", BucketSpec { checksum: Checksum::Md5, ..BucketSpec::default() });
    let mut objects: BTreeMap<String, Vec<u8>> = (0..1500).map(|n| (format!("d/{n:04}"), body("k", 1 + n % 50))).collect();
    objects.insert("x y#?%+ü.bin".to_owned(), body("odd", 400_000));
    for (key, bytes) in &objects {
        cluster.put("b", key, bytes.clone());
    }
    let mut config = S3Config { endpoint_url: Some(format!("{}/s3", cluster.endpoint())), ..S3Config::new("b") };
    (config.no_sign_request, config.region) = (true, Some("us-east-1".to_owned()));
    let stats = Arc::new(Stats::default());
    let store: Arc<dyn Store> = Arc::new(S3Store::connect(config, "", Arc::clone(&stats)).await.expect("the bucket is there"));
    let client = Client { store, stats };
    let listed = client.listed().await;
    assert_eq!(listed.len(), objects.len(), "all pages in one reply");
    for object in listed.iter().step_by(100).chain(listed.last()) {
        let head = client.store.head(&object.key).await.expect("there");
        assert_eq!((head.size, head.version()), (object.size, object.version()));
        assert_eq!(client.read(&object.version(), 0..object.size).await.expect("its bytes"), objects[&*object.key]);
    }
    let odd = listed.last().expect("many").version();
    assert_eq!(client.read(&odd, 100..300_000).await.expect("a range"), objects[&*odd.key][100..300_000]);
    cluster.put("b", &odd.key, body("new", 400_000));
    assert_eq!(client.read(&odd, 300_000..400_000).await.expect_err("another version").kind, ErrorKind::Changed);
    assert_eq!(client.store.head("none").await.expect_err("not there").kind, ErrorKind::NotFound);
    let seen = cluster.counters();
    assert!(seen.bad_redirects == 0 && seen.redirects > 30, "{seen:?}");
    assert_eq!(client.stats.store.redirects.get(), seen.redirects);
}

#[tokio::test]
async fn checklist_10_names_are_escaped_once_and_impossible_ones_are_not_asked_for() {
    let cluster = AisCluster::start(Fake::default());
    let names = ["a b", "a#b", "a?b", "a%b", "a%20b", "a+b", "é/😀", "d/a b#c?d%e+f&g=h", "a", "a.d/b", "~b"];
    for name in names {
        cluster.put("b", name, name.to_owned());
    }
    for direct in [true, false] {
        let client = open(AisConfig { direct, ..config(&cluster, "b") }).await;
        for object in client.listed().await {
            let bytes = client.read(&object.version(), 0..object.size).await.expect("its bytes");
            assert_eq!(bytes, object.key.as_bytes());
            assert_eq!(client.store.head(&object.key).await.expect("there"), object);
        }
        cluster.reset_counters();
        for name in ["dir/", "a//b", "/a", "a/./b", "a/../a", "..", "~/x", ""] {
            let id = ObjectId { key: name.into(), etag: "v:1".into() };
            assert_eq!(client.store.head(name).await.expect_err(name).kind, ErrorKind::NotFound, "{name:?}");
            assert_eq!(client.read(&id, 0..1).await.expect_err(name).kind, ErrorKind::NotFound, "{name:?}");
        }
        assert_eq!((cluster.counters().proxy_get, cluster.counters().proxy_head), (0, 0));
    }
}

#[tokio::test]
async fn members_of_shards_are_read_by_their_path() {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in [("a/1.jpg", b"one".as_slice()), ("a/ü 2.jpg", b"two!"), ("e", b"")] {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append_data(&mut header, name, bytes).expect("appends");
    }
    let cluster = AisCluster::start(Fake::default());
    cluster.put("b", "s.tar", builder.into_inner().expect("a TAR"));
    let client = open(config(&cluster, "b")).await;
    let id = client.id("s.tar").await;
    for (name, bytes) in [("a/1.jpg", b"one".as_slice()), ("a/ü 2.jpg", b"two!"), ("e", b"")] {
        let member = client.store.read_member(&id, name).await.expect("it is in there");
        assert_eq!(member.size, bytes.len() as u64);
        let all: Vec<u8> = member.body.map(|chunk| chunk.expect("bytes")).collect::<Vec<_>>().await.concat();
        assert_eq!(all, bytes, "{name}");
    }
    assert_eq!(client.store.read_member(&id, "none").await.expect_err("not in there").kind, ErrorKind::NotFound);
    cluster.put("b", "s.tar", "another");
    cluster.fault(Fault::at_targets(Op::Get, When::Nth(2), Does::Cut { after: 1 }));
    assert!(client.store.read_member(&id, "a/1.jpg").await.is_err(), "of another version");
    assert_eq!(cluster.counters().target_archpath, 5);
}

#[tokio::test]
async fn what_will_be_read_is_announced_only_where_it_was_asked_for() {
    let cluster = AisCluster::start(Fake::default());
    fill(&cluster, "s3://b", 3);
    fill(&cluster, "b", 3);
    let keys: Vec<Arc<str>> = ["k00", "k02"].map(Arc::from).to_vec();
    open(config(&cluster, "s3://b")).await.store.announce(&keys).await;
    open(AisConfig { announce: true, ..config(&cluster, "b") }).await.store.announce(&keys).await;
    assert!(cluster.jobs().is_empty(), "off, or nothing behind the bucket");
    let client = open(AisConfig { announce: true, ..config(&cluster, "s3://b") }).await;
    client.store.announce(&keys).await;
    let jobs = cluster.jobs();
    assert_eq!((jobs.len(), jobs[0].kind.as_str(), &jobs[0].names), (1, "prefetch-listrange", &vec!["k00".to_owned(), "k02".to_owned()]));
}

#[test]
fn namespaces_of_other_clusters_are_queries() {
    let bucket = Bucket { namespace: Namespace::parse("@u-1#ns").expect("a namespace"), ..Bucket::new("b") };
    assert_eq!(bucket.query(), "provider=ais&namespace=%40u-1%23ns");
}

/// Runs `openssl` in this folder.
fn openssl(folder: &Path, line: &str) {
    let output = Command::new("openssl").args(line.split(' ')).current_dir(folder).output().expect("openssl starts");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A TLS server that wants a client certificate and answers everything with an empty page of a listing.
fn tls_server(folder: &Path) -> SocketAddr {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("ca.pem")).expect("a certificate")).expect("an authority");
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().expect("a verifier");
    let chain = vec![CertificateDer::from_pem_file(folder.join("node.pem")).expect("a certificate")];
    let key = PrivateKeyDer::from_pem_file(folder.join("node.key")).expect("a key");
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config = Arc::new(config.with_client_cert_verifier(clients).with_single_cert(chain, key).expect("a pair"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
            let mut stream = rustls::StreamOwned::new(rustls::ServerConnection::new(Arc::clone(&config)).expect("a session"), stream);
            let mut request = [0; 4096];
            if stream.read(&mut request).is_ok() {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 14\r\n\r\n{\"entries\":[]}");
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        }
    });
    address
}

#[tokio::test]
async fn tls_trusts_whom_the_variables_say_and_shows_the_client_certificate() {
    if Command::new("openssl").arg("version").output().is_err() {
        assert!(std::env::var_os("BELADY_TEST_REQUIRE_ALL").is_none(), "openssl is missing");
        eprintln!("left out: openssl, which makes the certificates, is missing");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let folder = folder.path();
    let ec = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(folder, &format!("req -x509 {ec} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"));
    openssl(folder, &format!("req {ec} -keyout node.key -out node.csr -subj /CN=node"));
    std::fs::write(folder.join("ext"), "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n").expect("writes");
    openssl(folder, "x509 -req -in node.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out node.pem -days 2 -extfile ext");
    let address = tls_server(folder);
    let path = |name: &str| folder.join(name).to_str().expect("plain").to_owned();
    let with = async |pairs: &[(&str, String)]| {
        let pairs = pairs.to_vec();
        let variable = move |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
        let config = AisConfig::new(Bucket::new("b"), vec![format!("https://{address}")]).from_environment(&variable).expect("settings");
        try_open(config).await.map(|_| ())
    };
    let pair = [("AIS_CRT", path("node.pem")), ("AIS_CRT_KEY", path("node.key"))];
    let and = |more: (&'static str, String)| [pair.as_slice(), &[more]].concat();
    with(&and(("AIS_CLIENT_CA", path("ca.pem")))).await.expect("trusted, and known");
    with(&and(("AIS_SKIP_VERIFY_CRT", "1".to_owned()))).await.expect("anybody, and known");
    let error = with(&pair).await.expect_err("an authority nobody knows");
    assert!(error.kind == ErrorKind::Invalid && error.to_string().contains("--ca-bundle"), "{error}");
    assert!(with(&[("AIS_CLIENT_CA", path("ca.pem"))]).await.is_err(), "without a certificate of ours");
}

/// The whole program: a mount of a bucket of the cluster, by its URL and its environment.
#[test]
fn a_bucket_of_a_cluster_is_mounted_and_read() {
    let cluster = AisCluster::start(Fake::default());
    let objects = fill(&cluster, "b", 20);
    for (key, bytes) in &objects {
        cluster.put("ais://@uuid#ns/b", &format!("p/{key}"), bytes.clone());
    }
    let endpoint = cluster.endpoint();
    for (url, args) in [
        ("ais://b", vec!["--endpoint-url", endpoint.as_str()]),
        ("ais://@uuid#ns/b/p", vec!["--endpoint-url", "http://127.0.0.1:1", "--endpoint-url", endpoint.as_str()]),
        ("ais://b/p?namespace=%40uuid%23ns", vec!["--endpoint-url", endpoint.as_str()]),
    ] {
        let mount = Belady::mount(url, &args);
        for (key, bytes) in &objects {
            assert_eq!(&std::fs::read(mount.dir.join(key)).expect("reads"), bytes, "{url} {key}");
        }
        assert!(mount.stat("/store/direct") + mount.stat("/store/redirects") >= 20.0, "{url}");
        assert_eq!(mount.unmount(), 0);
    }
    let error = Belady::try_mount("ais://none", &["--endpoint-url", &endpoint]).expect_err("no bucket");
    assert!(error.contains("no such bucket"), "{error}");
    let error = Belady::try_mount("ais://b", &[]).expect_err("no address");
    assert!(error.contains("AIS_ENDPOINT"), "{error}");
    let error = Belady::try_mount("s3://b", &["--endpoint-url", "http://a", "--endpoint-url", "http://b"]).expect_err("two");
    assert!(error.contains("takes one address"), "{error}");
}

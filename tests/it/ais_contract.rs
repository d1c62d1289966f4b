//! The contract over AIStore: our store against the fake cluster, by proxies alone, straight to targets, and with tokens and signed redirects;
//! and against a real cluster, where one is named (`BELADY_TEST_AIS_ENDPOINT`). Objects are put over HTTP in each case.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use belady::stats::Stats;
use belady::store::Store;
use belady::store::aistore::bucket::Bucket;
use belady::store::aistore::{AisConfig as StoreConfig, AisStore, TokenSource};
use belady::store::batch::{Piece, Wanted};
use belady::store::listing::list_all;
use futures_util::{StreamExt, stream};

use crate::store_contract::{Keys, Writer, contract, objects};
use crate::support::ais::{Access, AisCluster, AisConfig, Counters};
use crate::support::ais_http::Http;

/// Entries of a batch: as many as the door asks for at once, or about.
const BATCH: usize = 1_000;
/// Uploads on their way at once.
const UPLOADS: usize = 16;

/// A bucket of a cluster.
struct Behind {
    http: Http,
    bucket: String,
}

#[async_trait]
impl Writer for Behind {
    async fn put(&self, key: &str, body: &[u8]) {
        self.http.put(&self.bucket, "ais", key, body.to_vec()).await;
    }
    async fn delete(&self, key: &str) {
        self.http.delete(&self.bucket, "ais", key).await;
    }
}

/// Names that AIStore takes (`cmn/cos/err.go`), less those that its redirects lose (a line break becomes a blank, in Go's `net/http`), and those
/// that the store does not ask for (`a//b`: two names of one file).
fn is_valid(key: &str) -> bool {
    let part = |part: &str| !matches!(part, "" | "." | "..");
    !key.contains(char::is_control) && !key.starts_with("~/") && key.split('/').all(part)
}

/// Makes a bucket of these objects, checks the contract over it, and destroys it.
async fn holds(endpoint: &str, token: Option<String>, direct: bool, objects: &BTreeMap<String, Vec<u8>>) {
    let http = Http::new(endpoint);
    let http = match &token {
        Some(token) => http.token(token),
        None => http,
    };
    let writer = Behind { http, bucket: format!("belady-test-contract-{}", std::process::id()) };
    writer.http.create_bucket(&writer.bucket, "ais").await;
    let uploads = stream::iter(objects).map(|(key, body)| writer.put(key, body));
    uploads.buffer_unordered(UPLOADS).collect::<()>().await;
    let mut config = StoreConfig::new(Bucket::new(writer.bucket.as_str()), vec![endpoint.to_owned()]);
    config.token = token.map(TokenSource::Value);
    config.direct = direct;
    let store: Arc<dyn Store> = Arc::new(AisStore::connect(config, "", Arc::new(Stats::default())).await.expect("the bucket is there"));
    batches_bring_what_was_asked_for(&store, objects).await;
    contract(store, &writer, objects).await;
    writer.http.destroy_bucket(&writer.bucket, "ais").await;
}

/// Every object but the large one, in an order that is not the listing's, in one batch: each entry is its object.
async fn batches_bring_what_was_asked_for(store: &Arc<dyn Store>, objects: &BTreeMap<String, Vec<u8>>) {
    let listed = list_all(store, "", &|_| {}).await.expect("a complete listing");
    let small = listed.iter().rev().filter(|object| object.size < 1 << 20);
    let wanted: Vec<Wanted> = small.map(|object| Wanted { id: object.version(), size: object.size }).take(BATCH).collect();
    let mut pieces = store.read_batch(&wanted).await.expect("the cluster has GetBatch");
    let (mut entries, mut open) = (Vec::new(), Vec::new());
    while let Some(piece) = pieces.next().await {
        match piece.expect("the batch does not end early") {
            Piece::Chunk(chunk) => open.extend_from_slice(&chunk),
            Piece::End(end) => {
                end.expect("it is there");
                entries.push(std::mem::take(&mut open));
            }
        }
    }
    assert_eq!(entries.len(), wanted.len());
    for (entry, wanted) in entries.iter().zip(&wanted) {
        assert_eq!(entry, &objects[&*wanted.id.key], "{:?}", wanted.id.key);
    }
}

async fn holds_on_the_fake(config: AisConfig, token: Option<&str>, direct: bool) -> Counters {
    let cluster = AisCluster::start(config);
    let objects = objects(Keys::Any).into_iter().filter(|(key, _)| is_valid(key)).collect();
    holds(&cluster.endpoint(), token.map(str::to_owned), direct, &objects).await;
    cluster.counters()
}

#[tokio::test(flavor = "multi_thread")]
async fn aistore_through_proxies_keeps_the_contract() {
    let counters = holds_on_the_fake(AisConfig { proxies: 2, page_max: Some(700), ..AisConfig::default() }, None, false).await;
    assert_eq!((counters.direct, counters.wrong_target), (0, 0), "{counters:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn aistore_straight_to_targets_keeps_the_contract() {
    let counters = holds_on_the_fake(AisConfig::default(), None, true).await;
    assert!(counters.direct > 0 && counters.direct_refused == 0 && counters.wrong_target == 0, "{counters:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn aistore_with_tokens_and_signatures_keeps_the_contract() {
    let tokens = Some(vec![("good".to_owned(), Access::All)]);
    let counters = holds_on_the_fake(AisConfig { tokens, sign: true, ..AisConfig::default() }, Some("good"), true).await;
    assert_eq!((counters.bad_redirects, counters.unauthorized, counters.direct_refused), (0, 0, 0), "{counters:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_cluster_keeps_the_contract() {
    let Some(endpoint) = std::env::var_os("BELADY_TEST_AIS_ENDPOINT") else {
        eprintln!("left out: BELADY_TEST_AIS_ENDPOINT names no cluster");
        return;
    };
    let token = std::env::var_os("AIS_AUTHN_TOKEN").and_then(|token| token.into_string().ok());
    let endpoint = endpoint.to_str().expect("a URL");
    // an ais:// bucket's objects are files of its targets
    let objects = objects(Keys::Paths).into_iter().filter(|(key, _)| is_valid(key)).collect();
    for direct in [false, true] {
        holds(endpoint, token.clone(), direct, &objects).await;
    }
}

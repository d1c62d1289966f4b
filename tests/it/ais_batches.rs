//! The door, the cache and the AIStore client together, over the fake cluster: many small objects with few requests, and single reads
//! wherever that fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use belady::cache::{CacheConfig, TieredCache, tier_counters};
use belady::demo::dataset::{Dataset, DatasetSpec};
use belady::fetch::{Door, DoorConfig, DoorEvent};
use belady::stats::Stats;
use belady::store::Store;
use belady::store::aistore::{AisConfig, AisStore, bucket::Bucket};
use belady::store::listing::list_all;
use belady::types::{ErrorKind, ObjectMeta};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::support::ais::{AisCluster, AisConfig as ClusterConfig, Does, Fault, Op, When};

/// How long a test may wait for anything. Not how long anything takes.
const PATIENCE: Duration = Duration::from_secs(60);
const FILES: u32 = 300;

struct Rig {
    cluster: AisCluster,
    dataset: Dataset,
    door: Arc<Door>,
    stats: Arc<Stats>,
    objects: Vec<ObjectMeta>,
    events: mpsc::Receiver<DoorEvent>,
}

impl Rig {
    async fn new(cluster: ClusterConfig, bucket: &str, config: impl FnOnce(&mut AisConfig)) -> Self {
        let cluster = AisCluster::start(cluster);
        let dataset = DatasetSpec { files: FILES, classes: 4, mean_bytes: 10 << 10, ..DatasetSpec::default() }.build();
        cluster.add_dataset(bucket, &dataset);
        let tiers = CacheConfig { memory: Some(64 << 20), ..CacheConfig::default() };
        let stats = Arc::new(Stats { tiers: tier_counters(&tiers), ..Stats::default() });
        let (cache, _notes) = TieredCache::new(tiers, Arc::clone(&stats)).expect("a memory tier");
        let mut client = AisConfig::new(Bucket::new("b"), vec![cluster.endpoint()]);
        config(&mut client);
        let store: Arc<dyn Store> = Arc::new(AisStore::connect(client, "", Arc::clone(&stats)).await.expect("connects"));
        let objects = list_all(&store, "", &|_| ()).await.expect("listed");
        let config = DoorConfig { max_requests: 64, max_bandwidth: None, read_deadline: PATIENCE };
        let (told, events) = mpsc::channel(1000);
        let door = Door::new(store, cache, Arc::clone(&stats), Handle::current(), config, Some(told));
        cluster.reset_counters();
        Self { cluster, dataset, door, stats, objects, events }
    }

    /// Fetches all ahead; what failed, and how.
    async fn fetch_all(&mut self) -> BTreeMap<String, ErrorKind> {
        self.objects.iter().for_each(|object| self.door.prefetch(object, 0));
        let mut failed = BTreeMap::new();
        for _ in 0..self.objects.len() {
            match timeout(PATIENCE, self.events.recv()).await.expect("every flight ends").expect("the door lives") {
                DoorEvent::Fetched { .. } => {}
                DoorEvent::Failed { id, kind } => drop(failed.insert(id.key.to_string(), kind)),
            }
        }
        failed
    }

    /// All but the failed ones are here, and right.
    async fn check(&self, failed: &BTreeMap<String, ErrorKind>) {
        let gets = self.cluster.counters().target_get;
        for object in self.objects.iter().filter(|object| !failed.contains_key(&*object.key)) {
            let opened = self.door.open(object).await.expect("here");
            let mut bytes = vec![0; usize::try_from(object.size).expect("small")];
            opened.file.read_exact_at(&mut bytes, 0).expect("read");
            let entry = self.dataset.entries.iter().find(|entry| *entry.key == *object.key).expect("of the dataset");
            assert!(entry.content.matches(&bytes), "{} has wrong bytes", object.key);
        }
        assert_eq!(self.cluster.counters().target_get, gets, "all were here");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_objects_come_by_batches() {
    let mut rig = Rig::new(ClusterConfig::default(), "ais://b", |_| ()).await;
    let failed = rig.fetch_all().await;
    assert!(failed.is_empty(), "{failed:?}");
    let seen = rig.cluster.counters();
    assert_eq!(seen.target_get + seen.batch_entries, u64::from(FILES) + rig.stats.store.hedges.get(), "each once");
    // A few may find no company in time, on a busy machine.
    assert!((seen.batches + seen.target_get) * 10 <= u64::from(FILES), "{seen:?}");
    assert_eq!(rig.stats.store.batch.get(), seen.batches);
    rig.check(&failed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_streams_are_finished_by_plain_gets() {
    for does in [Does::CutEntry { entry: 10 }, Does::EndBatch { after_entries: 10, end_of_archive: true }, Does::CorruptEntry { entry: 10 }]
    {
        let mut rig = Rig::new(ClusterConfig::default(), "ais://b", |_| ()).await;
        rig.cluster.fault(Fault::at_targets(Op::Batch, When::First(1), does.clone()));
        let failed = rig.fetch_all().await;
        assert!(failed.is_empty(), "{does:?}: {failed:?}");
        let seen = rig.cluster.counters();
        assert!(seen.target_get > 0 && seen.target_get <= u64::from(FILES), "{does:?}: {seen:?}");
        // What found no company for a batch goes alone, and was in none.
        let (singles, entries) = (rig.stats.store.batch_singles.get(), rig.stats.store.batch_entries.get());
        assert!((1..=seen.target_get).contains(&singles), "{does:?}: {singles} of batches, {seen:?}");
        // one that takes long on a busy machine is asked for twice
        let hedges = rig.stats.store.hedges.get();
        assert_eq!(entries + seen.target_get, u64::from(FILES) + hedges, "{does:?}: singly only what did not come");
        rig.check(&failed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_cluster_is_left_alone_for_a_while_and_then_asked_for_batches_again() {
    let mut rig = Rig::new(ClusterConfig::default(), "ais://b", |_| ()).await;
    let busy = Does::Status { status: 429, tcode: "ErrTooManyRequests", retry_after: None };
    rig.cluster.fault(Fault::at_targets(Op::Batch, When::First(2), busy));
    let failed = rig.fetch_all().await;
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(rig.cluster.counters().target_get, 0);
    assert!(rig.stats.store.throttled.get() > 0);
    rig.check(&failed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_without_get_batch_is_asked_for_it_once_or_by_all_that_ask_at_once() {
    let mut rig = Rig::new(ClusterConfig { batch: None, ..ClusterConfig::default() }, "ais://b", |_| ()).await;
    let failed = rig.fetch_all().await;
    assert!(failed.is_empty(), "{failed:?}");
    let seen = rig.cluster.counters();
    assert!((1..=3).contains(&seen.proxy_batch), "{}", seen.proxy_batch);
    assert_eq!(seen.target_get, u64::from(FILES));
    rig.check(&failed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_is_gone_concerns_no_other() {
    let mut rig = Rig::new(ClusterConfig::default(), "ais://b", |_| ()).await;
    let gone = rig.objects[5].key.to_string();
    assert!(rig.cluster.delete("ais://b", &gone));
    let failed = rig.fetch_all().await;
    assert_eq!(failed, BTreeMap::from([(gone, ErrorKind::NotFound)]));
    assert_eq!(rig.stats.store.batch_singles.get(), 1);
    rig.check(&failed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cold_objects_are_read_whole_and_announced_where_that_is_wanted() {
    for announce in [false, true] {
        let remote = |client: &mut AisConfig| {
            client.bucket.provider = "aws";
            client.announce = announce;
        };
        let mut rig = Rig::new(ClusterConfig::default(), "aws://b", remote).await;
        assert_eq!(rig.door.announce_max(), announce.then_some(256));
        if announce {
            rig.door.announce(rig.objects.iter().map(|object| Arc::clone(&object.key)).take(256).collect());
            let begun = std::time::Instant::now();
            while rig.cluster.jobs().iter().all(|job| !job.finished) {
                assert!(begun.elapsed() < PATIENCE, "no job");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(rig.cluster.jobs()[0].names.len(), 256);
        }
        let failed = rig.fetch_all().await;
        assert!(failed.is_empty(), "{failed:?}");
        let seen = rig.cluster.counters();
        assert_eq!(seen.target_ranges, 0, "a range of a cold object fetches all of it");
        assert_eq!(seen.cold_fetches, u64::from(FILES), "each once");
        assert_eq!(rig.cluster.jobs().len(), usize::from(announce));
        rig.check(&failed).await;
    }
}

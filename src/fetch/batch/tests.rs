//! The real door and cache over a store in memory that gives batches by script. Time is tokio's, paused.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use proptest::prelude::*;
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::*;
use crate::cache::{CacheConfig, TieredCache, charge_of, tier_counters};
use crate::fetch::{DoorConfig, DoorEvent, Opened};
use crate::stats::Stats;
use crate::store::batched::{BatchFault, Batched};
use crate::store::fault::{Fault, Faulty, Operation, Rule};
use crate::store::{Body, Page, Store, StoreError};
use crate::types::{ErrorKind, ObjectId, ObjectMeta, Outcome};

/// Objects in memory; a read of one takes 5 ms.
#[derive(Debug)]
struct Held(BTreeMap<String, Bytes>);

#[async_trait]
impl Store for Held {
    async fn list(&self, _: &str, _: Option<&str>, _: Option<&str>) -> Result<Page, StoreError> {
        Ok(Page { objects: Vec::new(), next: None })
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        Err(StoreError::new(ErrorKind::NotFound, key))
    }

    async fn read(&self, id: &ObjectId, range: Range<u64>) -> Result<Body, StoreError> {
        sleep(Duration::from_millis(5)).await;
        let bytes = self.0.get(&*id.key).ok_or_else(|| StoreError::new(ErrorKind::NotFound, &*id.key))?;
        let cut = bytes.slice(usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap());
        Ok(stream::iter([Ok(cut)]).boxed())
    }
}

const LIMITS: BatchLimits = BatchLimits { least: 4, most: 64, bytes: 1 << 20, at_once: 2 };
const MEMORY: u64 = 8 << 20;

struct Rig {
    door: Arc<Door>,
    store: Arc<Batched>,
    stats: Arc<Stats>,
    objects: Vec<ObjectMeta>,
    contents: Vec<Bytes>,
    events: mpsc::Receiver<DoorEvent>,
}

impl Rig {
    fn new(sizes: &[u64], memory: u64, script: Vec<Option<BatchFault>>) -> Self {
        Self::failing(sizes, memory, script, vec![])
    }

    /// With rules for the single reads; batches are not concerned.
    fn failing(sizes: &[u64], memory: u64, script: Vec<Option<BatchFault>>, rules: Vec<Rule>) -> Self {
        let (mut held, mut objects, mut contents) = (BTreeMap::new(), Vec::new(), Vec::new());
        for (n, &size) in sizes.iter().enumerate() {
            let key = format!("f{n:04}");
            let bytes: Bytes = (0..size).map(|at| u8::try_from((at * 31 + n as u64 * 7) % 251).unwrap()).collect();
            objects.push(ObjectMeta { key: key.as_str().into(), size, etag: "\"1\"".into(), mtime_seconds: 0 });
            held.insert(key, bytes.clone());
            contents.push(bytes);
        }
        let held = Arc::new(Held(held));
        let store = Arc::new(Batched::new(Arc::clone(&held) as Arc<dyn Store>, LIMITS, script).reading(Arc::new(Faulty::new(held, rules))));
        let tiers = CacheConfig { memory: Some(memory), ..CacheConfig::default() };
        let stats = Arc::new(Stats { tiers: tier_counters(&tiers), ..Stats::default() });
        let (cache, _notes) = TieredCache::new(tiers, Arc::clone(&stats)).unwrap();
        let config = DoorConfig { max_requests: 16, max_bandwidth: None, read_deadline: Duration::from_secs(60) };
        let (told, events) = mpsc::channel(10_000);
        let door = Door::new(Arc::clone(&store) as Arc<dyn Store>, cache, Arc::clone(&stats), Handle::current(), config, Some(told));
        Self { door, store, stats, objects, contents, events }
    }

    fn ahead(&self, files: Range<usize>) {
        files.for_each(|file| self.door.prefetch(&self.objects[file], 0));
    }

    /// The next `count` events: what was fetched, and what failed how.
    async fn events(&mut self, count: usize) -> (BTreeSet<String>, BTreeMap<String, ErrorKind>) {
        let (mut fetched, mut failed) = (BTreeSet::new(), BTreeMap::new());
        for _ in 0..count {
            let again = match self.events.recv().await.expect("the door lives") {
                DoorEvent::Fetched { id, .. } => !fetched.insert(id.key.to_string()),
                DoorEvent::Failed { id, kind } => failed.insert(id.key.to_string(), kind).is_some(),
            };
            assert!(!again, "an event twice");
        }
        (fetched, failed)
    }

    async fn all_come(&mut self, count: usize) {
        let (fetched, failed) = self.events(count).await;
        assert_eq!((fetched.len(), failed), (count, BTreeMap::new()));
    }

    fn check(&self, file: usize, opened: &Opened) {
        let mut bytes = vec![0; self.contents[file].len()];
        opened.file.read_exact_at(&mut bytes, 0).expect("a cached file is read");
        assert!(bytes == self.contents[file], "file {file} has wrong bytes");
    }

    async fn check_all(&self) {
        for file in 0..self.objects.len() {
            let opened = self.door.open(&self.objects[file]).await.unwrap_or_else(|error| panic!("file {file}: {error}"));
            self.check(file, &opened);
        }
    }

    fn asked(&self) -> Vec<Vec<usize>> {
        let number = |id: &ObjectId| id.key[1..].parse().expect("a number");
        self.store.asked().iter().map(|batch| batch.iter().map(number).collect()).collect()
    }

    fn singles(&self) -> Vec<usize> {
        let mut singles: Vec<usize> = self.store.singles().iter().map(|id| id.key[1..].parse().expect("a number")).collect();
        singles.sort_unstable();
        singles
    }

    fn extra(&self) -> u64 {
        self.stats.store.bytes_extra.get()
    }
}

#[tokio::test(start_paused = true)]
async fn small_objects_come_by_few_requests_in_the_order_wanted() {
    let mut rig = Rig::new(&[1000; 200], MEMORY, vec![]);
    rig.ahead(0..200);
    rig.all_come(200).await;
    assert_eq!(rig.asked().concat(), (0..200).collect::<Vec<_>>(), "in order, none twice");
    assert_eq!((rig.asked().len(), rig.singles(), rig.store.most_running()), (4, vec![], 2));
    assert_eq!((rig.stats.store.batch_singles.get(), rig.extra()), (0, 0));
    rig.check_all().await;
    assert_eq!(rig.singles(), Vec::<usize>::new(), "all were here");
    assert_eq!(rig.stats.prefetch.useful.get(), 200);
}

#[tokio::test(start_paused = true)]
async fn each_entry_lands_while_the_stream_goes_on() {
    let mut rig = Rig::new(&[1000; 50], MEMORY, vec![Some(BatchFault::Slow(Duration::from_secs(1)))]);
    rig.ahead(0..50);
    let began = Instant::now();
    rig.all_come(10).await;
    assert_eq!(began.elapsed().as_secs(), 10);
    let opened = rig.door.open(&rig.objects[3]).await.expect("here");
    assert_eq!(opened.outcome, Outcome::InTime);
    assert_eq!(began.elapsed().as_secs(), 10, "at once");
    rig.all_come(40).await;
    assert_eq!((rig.asked().len(), rig.singles().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_reader_takes_what_waits_out_of_the_batch_and_few_go_alone() {
    let mut rig = Rig::new(&[1000; 3], MEMORY, vec![]);
    rig.ahead(0..3);
    let began = Instant::now();
    let opened = rig.door.open(&rig.objects[1]).await.expect("fetched");
    assert_eq!((opened.outcome, began.elapsed().as_millis()), (Outcome::Late, 5), "at once, by a GET of its own");
    rig.check(1, &opened);
    rig.all_come(3).await;
    assert!(began.elapsed() <= former::WAIT_MAX + Duration::from_millis(10));
    assert_eq!((rig.asked().len(), rig.singles()), (0, vec![0, 1, 2]));
}

#[tokio::test(start_paused = true)]
async fn a_reader_waits_for_what_is_on_the_wire_but_not_for_long() {
    let mut rig = Rig::new(&[1000; 50], MEMORY, vec![Some(BatchFault::Slow(Duration::from_millis(300)))]);
    rig.ahead(0..50);
    sleep(Duration::from_millis(10)).await;
    let began = Instant::now();
    let soon = rig.door.open(&rig.objects[1]).await.expect("comes");
    assert_eq!((soon.outcome, began.elapsed() < Duration::from_millis(700)), (Outcome::Late, true));
    assert_eq!(rig.singles(), Vec::<usize>::new());
    let began = Instant::now();
    let later = rig.door.open(&rig.objects[40]).await.expect("is fetched beside it");
    assert_eq!(later.outcome, Outcome::Late);
    assert!(began.elapsed() < LATE_MOST + Duration::from_millis(10), "{:?}", began.elapsed());
    rig.check(40, &later);
    rig.all_come(50).await;
    assert_eq!((rig.singles(), rig.stats.store.hedges.get(), rig.extra()), (vec![40], 1, 1000), "the entry came too, as extra bytes");
}

#[tokio::test(start_paused = true)]
async fn a_get_beside_a_batch_may_fail_before_or_after_it() {
    let gone = || vec![Rule::new(Operation::Read, Some("f0040"), 0..99, Fault::Fail(ErrorKind::NotFound))];
    let slow = Some(BatchFault::Slow(Duration::from_millis(100)));
    let mut rig = Rig::failing(&[1000; 50], MEMORY, vec![slow], gone());
    rig.ahead(0..50);
    sleep(Duration::from_millis(10)).await;
    let opened = rig.door.open(&rig.objects[40]).await.expect("the batch brings it after all");
    rig.check(40, &opened);
    rig.all_come(50).await;
    assert_eq!(rig.stats.store.hedges.get(), 1);

    let hangs = vec![Rule::new(Operation::Read, Some("f0040"), 0..1, Fault::StallAfter(300))];
    let mut rig = Rig::failing(&[1000; 50], MEMORY, vec![slow], hangs);
    rig.ahead(0..50);
    sleep(Duration::from_millis(10)).await;
    let opened = rig.door.open(&rig.objects[40]).await.expect("the batch was faster");
    rig.check(40, &opened);
    rig.all_come(50).await;
    assert_eq!((rig.extra(), rig.stats.store.hedges.get()), (300, 1), "what had come of the GET");

    // the batch falls first, then the GET, which takes longer than the silence
    let late = vec![Rule::new(Operation::Read, Some("f0040"), 0..99, Fault::Fail(ErrorKind::Network))];
    let rig = Rig::failing(&[1000; 50], MEMORY, vec![Some(BatchFault::StallAt(10))], late);
    rig.ahead(0..50);
    sleep(Duration::from_millis(10)).await;
    let error = rig.door.open(&rig.objects[40]).await.map(|opened| opened.outcome).expect_err("there is no way to it");
    assert_eq!((error.kind, rig.stats.panics.get()), (ErrorKind::Network, 0));
}

#[tokio::test(start_paused = true)]
async fn the_tail_of_a_cut_stream_is_finished_by_single_reads() {
    let mut rig = Rig::new(&[1000; 40], MEMORY, vec![Some(BatchFault::CutIn(25))]);
    rig.ahead(0..40);
    rig.all_come(40).await;
    assert_eq!(rig.singles(), (25..40).collect::<Vec<_>>(), "no entry that came is asked for again");
    assert_eq!(rig.asked(), [(0..40).collect::<Vec<_>>()]);
    assert_eq!((rig.stats.store.batch_singles.get(), rig.extra()), (15, 500));
    rig.check_all().await;
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_is_missing_or_wrong_concerns_no_other() {
    for fault in [BatchFault::Missing(7), BatchFault::Corrupt(7), BatchFault::TooLong(7), BatchFault::TooShort(7)] {
        let mut rig = Rig::new(&[1000; 20], MEMORY, vec![Some(fault)]);
        rig.ahead(0..20);
        rig.all_come(20).await;
        assert_eq!((rig.singles(), rig.stats.store.batch_singles.get()), (vec![7], 1), "{fault:?}");
        rig.check_all().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_asks_for_a_slower_pace_gets_it() {
    let throttled = Some(BatchFault::Fail(ErrorKind::Throttled));
    let mut rig = Rig::new(&[1000; 40], MEMORY, vec![throttled; 2]);
    rig.ahead(0..40);
    rig.all_come(40).await;
    assert_eq!((rig.asked().len(), rig.singles().len()), (3, 0));
    assert_eq!(rig.asked()[2], (0..40).collect::<Vec<_>>(), "in the order wanted still");
    assert!(rig.door.gate.limit() < 16, "and the gate heard of it");

    let mut rig = Rig::new(&[1000; 40], MEMORY, vec![throttled; 40]);
    rig.ahead(0..40);
    sleep(Duration::from_millis(4)).await; // refused, and waiting
    let began = Instant::now();
    rig.door.open(&rig.objects[9]).await.expect("a reader need not wait with it");
    assert!(began.elapsed() < Duration::from_millis(50));
    rig.all_come(40).await;
    assert_eq!((rig.asked().len(), rig.singles()), (4, (0..40).collect::<Vec<_>>()), "and in the end single reads do");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_never_answers_is_given_up_and_batches_rest() {
    for fault in [BatchFault::Hang, BatchFault::StallAt(0), BatchFault::Fail(ErrorKind::Server)] {
        let mut rig = Rig::new(&[1000; 100], MEMORY, vec![Some(fault); 3]);
        for k in 0..3 {
            rig.ahead(k * 20..k * 20 + 20);
            let began = Instant::now();
            rig.all_come(20).await;
            assert!(began.elapsed() < Duration::from_secs(6), "{fault:?}");
        }
        rig.ahead(60..80);
        rig.all_come(20).await;
        assert_eq!((rig.asked().len(), rig.singles().len()), (3, 80), "{fault:?}: three were poor");
        assert_eq!(rig.door.batch_least(), None);
        sleep(Duration::from_secs(31)).await;
        rig.ahead(80..100);
        rig.all_come(20).await;
        assert_eq!((rig.asked().len(), rig.singles().len()), (4, 80), "and then one tells");
        rig.check_all().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_without_batches_is_asked_once() {
    let mut rig = Rig::new(&[1000; 100], MEMORY, vec![Some(BatchFault::Unknown)]);
    assert!(rig.door.objects_at_once(1000) > 16);
    rig.ahead(0..100);
    rig.all_come(100).await;
    assert_eq!((rig.asked().len(), rig.singles().len()), (1, 100));
    assert_eq!((rig.door.objects_at_once(1000), rig.door.batch_least()), (16, None));
}

#[tokio::test(start_paused = true)]
async fn a_panic_leaves_no_flight_hanging() {
    let mut rig = Rig::new(&[1000; 40], MEMORY, vec![Some(BatchFault::PanicAt(5))]);
    rig.ahead(0..40);
    rig.all_come(40).await;
    assert_eq!((rig.singles(), rig.stats.panics.get()), ((5..40).collect::<Vec<_>>(), 1));
    rig.check_all().await;
    rig.ahead(0..40);
    assert_eq!(lock(&rig.door.batches.inner).former.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_has_no_room_is_not_asked_for() {
    let mut rig = Rig::new(&[1000; 40], charge_of(1000) * 30, vec![]);
    rig.ahead(0..40);
    let (fetched, failed) = rig.events(40).await;
    assert_eq!((fetched.len(), failed.len()), (30, 10));
    assert!(failed.values().all(|&kind| kind == ErrorKind::NoSpace));
    assert_eq!((rig.asked().concat().len(), rig.singles().len()), (30, 0));
}

#[tokio::test(start_paused = true)]
async fn large_objects_and_stores_without_batches_go_as_ever() {
    let mut rig = Rig::new(&[500_000; 8], MEMORY, vec![]);
    rig.ahead(0..8);
    rig.all_come(8).await;
    assert_eq!((rig.asked().len(), rig.singles().len()), (0, 8));
    assert_eq!(rig.door.objects_at_once(500_000), 16);
}

#[test]
fn shutting_down_in_the_middle_of_a_batch_leaves_nothing_behind() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (door, stats) = runtime.block_on(async {
        let mut rig = Rig::new(&[1000; 40], MEMORY, vec![Some(BatchFault::StallAt(10))]);
        rig.ahead(0..40);
        rig.all_come(10).await;
        (Arc::downgrade(&rig.door), rig.stats)
    });
    assert!(stats.tiers[0].used_bytes.get() >= 40 * charge_of(1000));
    runtime.shutdown_timeout(Duration::from_secs(5));
    assert!(door.upgrade().is_none(), "no task holds the door");
    assert_eq!(stats.tiers[0].used_bytes.get(), 0, "nor room");
}

fn fault() -> impl Strategy<Value = Option<BatchFault>> {
    let entry = 0..40usize;
    prop_oneof![
        3 => Just(None),
        1 => entry.clone().prop_map(|k| Some(BatchFault::CutIn(k))),
        1 => entry.clone().prop_map(|k| Some(BatchFault::StallAt(k))),
        1 => entry.clone().prop_map(|k| Some(BatchFault::Missing(k))),
        1 => entry.clone().prop_map(|k| Some(BatchFault::Corrupt(k))),
        1 => entry.clone().prop_map(|k| Some(BatchFault::TooLong(k))),
        1 => entry.clone().prop_map(|k| Some(BatchFault::TooShort(k))),
        1 => entry.prop_map(|k| Some(BatchFault::PanicAt(k))),
        1 => (1..400u64).prop_map(|ms| Some(BatchFault::Slow(Duration::from_millis(ms)))),
        1 => Just(Some(BatchFault::Hang)),
        1 => Just(Some(BatchFault::Fail(ErrorKind::Network))),
        2 => Just(Some(BatchFault::Fail(ErrorKind::Throttled))),
        1 => Just(Some(BatchFault::Unknown)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the store does: every flight ends, every landed byte is right, rooms and bytes on the way stay within their budgets, no more
    /// batches than allowed are under way, and in the end nothing is left of any of it.
    #[test]
    fn every_flight_ends_and_every_byte_is_right(
        sizes in prop::collection::vec(prop_oneof![1..5_000u64, 1..300_000u64], 1..150),
        script in prop::collection::vec(fault(), 0..12),
        memory in prop_oneof![Just(64u64 << 20), 100_000..4_000_000u64],
        demands in prop::collection::vec((0..150usize, 0..3_000u64), 0..40),
        bursts in 1..50usize,
    ) {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut rig = Rig::new(&sizes, memory, script);
            let files = sizes.len();
            let ahead = {
                let (door, objects) = (Arc::clone(&rig.door), rig.objects.clone());
                tokio::spawn(async move {
                    for (n, object) in objects.iter().enumerate() {
                        door.prefetch(object, 0);
                        if n % bursts == bursts - 1 {
                            sleep(Duration::from_millis(7)).await;
                        }
                    }
                })
            };
            let watch = {
                let (door, stats) = (Arc::clone(&rig.door), Arc::clone(&rig.stats));
                tokio::spawn(async move {
                    loop {
                        assert!(stats.tiers[0].used_bytes.get() <= stats.tiers[0].capacity_bytes.get());
                        assert!(door.gate.running_bytes() <= door.gate.bytes_max());
                        sleep(Duration::from_millis(3)).await;
                    }
                })
            };
            let readers: Vec<_> = demands
                .iter()
                .filter(|(file, _)| *file < files)
                .map(|&(file, ms)| {
                    let (door, object) = (Arc::clone(&rig.door), rig.objects[file].clone());
                    tokio::spawn(async move {
                        sleep(Duration::from_millis(ms)).await;
                        let began = Instant::now();
                        (file, door.open(&object).await, began.elapsed())
                    })
                })
                .collect();
            for reader in readers {
                let (file, opened, took) = reader.await.expect("no panic");
                match opened {
                    Ok(opened) => rig.check(file, &opened),
                    Err(error) => assert_eq!(error.kind, ErrorKind::NoSpace),
                }
                // its own GET after at most LATE_MOST, but the gate may be full of batches that hang
                assert!(took < Duration::from_secs(8), "a reader waited {took:?}");
            }
            ahead.await.expect("no panic");
            let deadline = Instant::now() + Duration::from_secs(120);
            while !lock(&rig.door.flights).is_empty() {
                assert!(Instant::now() < deadline, "a flight hangs");
                sleep(Duration::from_millis(50)).await;
            }
            assert!(!watch.is_finished(), "a budget was passed");
            watch.abort();
            let mut seen = HashMap::new();
            while let Ok(event) = rig.events.try_recv() {
                let id = match event { DoorEvent::Fetched { id, .. } | DoorEvent::Failed { id, .. } => id };
                *seen.entry(id).or_insert(0) += 1;
            }
            assert_eq!(seen.len(), files, "everybody was told");
            for (file, object) in rig.objects.iter().enumerate() {
                if let crate::cache::Lookup::Hit(found) = rig.door.cache.lookup(&object.version(), object.size) {
                    rig.check(file, &Opened { file: found, outcome: Outcome::Miss });
                }
            }
            sleep(Duration::from_secs(10)).await; // streams that outlived their flights
            assert!(rig.store.most_running() <= LIMITS.at_once);
            let inner = lock(&rig.door.batches.inner);
            assert_eq!((inner.former.running(), inner.former.len(), inner.driving), (0, 0, false));
            drop(inner);
            assert_eq!(rig.door.gate.running_bytes(), 0);
            assert_eq!(rig.stats.prefetch.in_flight.get(), 0);
        });
    }
}

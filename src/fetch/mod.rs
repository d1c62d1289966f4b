//! The door: the only way to the store, for demand and prefetch alike.
//!
//! One fetch per object version at a time: whoever else wants it joins. Demand goes first and promotes a prefetch that still waits. What is
//! fetched lands in the cache, within its budget, before anybody reads it. Retries, pacing and hedging are here and nowhere else.
//!
//! Not here: what to fetch ahead and what to let go (`plan`), where bytes are kept (`cache`), what a reader is told (`fs`).

use std::collections::HashMap;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use crate::cache::{CachedFile, FirstUse, Lookup, TieredCache};
use crate::stats::Stats;
use crate::store::retry::{self, Patience};
use crate::store::{Store, StoreError};
use crate::types::{ErrorKind, ObjectId, ObjectMeta, Outcome};

pub mod batch;
pub mod concurrency;
pub mod gate;
pub mod goodput;
pub mod large;
pub mod pace;
pub mod queue;
pub mod sequential;
mod whole;

use batch::Batches;
use gate::{Gate, Ticket};
use goodput::{Goodput, Rate};
use large::LargeObject;
pub use large::LargeReader;
use pace::Pace;
use queue::Priority;

/// Objects up to this size are always held whole: one GET, one complete file, kernel passthrough. Larger ones are read by ranges.
/// 16 MiB: at 1 Gb/s a whole one takes a tenth of a second, which an OPEN may wait; beyond it a reader of a part pays too much.
pub const WHOLE_MAX_BYTES: u64 = 16 << 20;

/// Large objects kept in part at once: a loader's open shards.
const LARGES_MAX: u64 = 256;
/// A part nobody has read for this long goes: shards are re-opened within an epoch, or not before the next.
const LARGE_IDLE: Duration = Duration::from_secs(600);

/// An announcement that is not answered by then is given up: another is due.
const ANNOUNCE_LIMIT: Duration = Duration::from_secs(10);

/// Why bytes could not be had. Clone: readers that share a fetch share its failure.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct FetchError {
    pub kind: ErrorKind,
    pub message: Arc<str>,
}

impl FetchError {
    /// An error of this kind with this text.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl AsRef<str>) -> Self {
        Self { kind, message: Arc::from(message.as_ref()) }
    }
}

impl From<StoreError> for FetchError {
    fn from(error: StoreError) -> Self {
        Self { kind: error.kind, message: error.message }
    }
}

/// Limits of the door.
#[derive(Clone, Copy, Debug)]
pub struct DoorConfig {
    /// Requests at once, prefetch and demand together.
    pub max_requests: usize,
    /// Bytes per second, if capped.
    pub max_bandwidth: Option<u64>,
    /// How long a reader is tried for.
    pub read_deadline: Duration,
}

/// What the cache knows without waiting.
#[derive(Debug)]
pub enum Peek {
    /// Complete and readable now; the outcome to report for this open.
    Ready(Arc<CachedFile>, Outcome),
    /// Needs a disk or the store: use [`Door::open`].
    Absent,
}

/// A whole object, held.
#[derive(Debug)]
pub struct Opened {
    pub file: Arc<CachedFile>,
    pub outcome: Outcome,
}

/// What happened at the door, for the planner.
#[derive(Clone, Debug)]
pub enum DoorEvent {
    /// Complete in a tier; `ahead`: it was a prefetch.
    Fetched { id: ObjectId, tier: usize, ahead: bool },
    /// Not in a tier after all: it failed, or had room only as long as its readers hold it (`NoSpace`).
    Failed { id: ObjectId, kind: ErrorKind },
}

/// Where a flight's bytes came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Cache,
    Store,
}

/// Why a flight was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Demand,
    Ahead { tier: usize },
}

type Landing = Result<(Arc<CachedFile>, Source), FetchError>;

/// A fetch under way.
#[derive(Debug)]
struct Flight {
    object: ObjectMeta,
    id: ObjectId,
    ticket: Ticket,
    purpose: Purpose,
    /// Whether a reader waits for it.
    demanded: AtomicBool,
    /// Told when one begins to.
    demand: Notify,
    /// Bytes that came for it by requests of its own.
    received: AtomicU64,
    landing: watch::Sender<Option<Landing>>,
}

/// The door. One per mount.
#[derive(Debug)]
pub struct Door {
    store: Arc<dyn Store>,
    cache: Arc<TieredCache>,
    stats: Arc<Stats>,
    runtime: Handle,
    config: DoorConfig,
    began: Instant,
    gate: Arc<Gate>,
    batches: Batches,
    pace: Option<Mutex<Pace>>,
    goodput: Mutex<Goodput>,
    flights: Mutex<HashMap<ObjectId, Arc<Flight>>>,
    /// Large objects in part: those being read, and for a while those that were.
    larges: moka::sync::Cache<ObjectId, Arc<LargeObject>>,
    events: Option<mpsc::Sender<DoorEvent>>,
    /// Nothing is planned yet: the task takes what is here from the cache when something is.
    unplanned: AtomicBool,
    /// The store is being told what will be read soon: one announcement at a time.
    announcing: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // every critical section here is a single map or counter operation: nothing is left half done by a panic
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Door {
    /// A door to `store` that fills `cache`; `events` goes to the prefetch task, if there is one.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        cache: Arc<TieredCache>,
        stats: Arc<Stats>,
        runtime: Handle,
        config: DoorConfig,
        events: Option<mpsc::Sender<DoorEvent>>,
    ) -> Arc<Self> {
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let pace = config.max_bandwidth.map(|rate| Mutex::new(Pace::new(rate as f64)));
        let gate = Gate::new(config.max_requests, config.max_bandwidth, Arc::clone(&stats));
        Arc::new(Self {
            store,
            cache,
            batches: Batches::new(&gate),
            gate,
            stats,
            runtime,
            config,
            began: Instant::now(),
            pace,
            goodput: Mutex::default(),
            flights: Mutex::default(),
            larges: moka::sync::Cache::builder().max_capacity(LARGES_MAX).time_to_idle(LARGE_IDLE).build(),
            events,
            unplanned: AtomicBool::new(false),
            announcing: AtomicBool::new(false),
        })
    }

    /// Whether landings are told. Whoever has said `true` and then looks into the cache misses none: what lands is in it before this is asked.
    pub fn tell_landings(&self, tell: bool) {
        self.unplanned.store(!tell, SeqCst);
    }

    /// Never waits, touches no disk.
    #[must_use]
    pub fn peek(&self, object: &ObjectMeta) -> Peek {
        match self.cache.lookup(&object.version(), object.size) {
            Lookup::Hit(file) => {
                let outcome = self.first_use(&object.version());
                Peek::Ready(file, outcome)
            }
            Lookup::Unsure | Lookup::Miss => Peek::Absent,
        }
    }

    /// Demand: the whole object (size 1..=[`WHOLE_MAX_BYTES`]), from cache, flight or store. Cancel-safe: dropping the future does not
    /// stop the fetch. Returns when it is there or has failed for good.
    ///
    /// # Errors
    /// The fetch failed for good; `Changed` when the store has another version; `NoSpace` when neither a tier nor the transient budget
    /// has room: then read it by ranges ([`Self::open_large`]).
    pub async fn open(self: &Arc<Self>, object: &ObjectMeta) -> Result<Opened, FetchError> {
        loop {
            match self.join_or_fetch(object).await {
                Err(Refused::Impatient) => {} // each turn waits for a flight to end, and the next one is likely ours
                Err(Refused::Failed(error)) => return Err(error),
                Ok(opened) => return Ok(opened),
            }
        }
    }

    async fn join_or_fetch(self: &Arc<Self>, object: &ObjectMeta) -> Result<Opened, Refused> {
        let id = object.version();
        let (flight, joined) = {
            let mut flights = lock(&self.flights);
            if let Some(flight) = flights.get(&id) {
                (Arc::clone(flight), true)
            } else if let Lookup::Hit(file) = self.cache.lookup(&id, object.size) {
                // looked up after the flights: a landing is in the cache before its flight is gone
                drop(flights);
                let outcome = self.first_use(&id);
                return Ok(Opened { file, outcome });
            } else {
                (self.take_off(&mut flights, object, Purpose::Demand), false)
            }
        };
        if joined {
            flight.demanded.store(true, Relaxed);
            flight.demand.notify_one();
            self.batches.withdraw(&flight);
            self.gate.promote(flight.ticket);
        }
        let (file, source) = match flight.landed().await {
            Ok(landed) => landed,
            Err(error) if joined && flight.gave_up_early(&error) => return Err(Refused::Impatient),
            Err(error) => return Err(Refused::Failed(error)),
        };
        let first_use = self.first_use(&id);
        let outcome = match (source, joined) {
            (Source::Cache, _) => first_use,
            (Source::Store, true) => Outcome::Late,
            (Source::Store, false) => Outcome::Miss,
        };
        Ok(Opened { file, outcome })
    }

    /// Prefetch into `tier`. Answers with one [`DoorEvent`], later; joins what is under way.
    pub fn prefetch(self: &Arc<Self>, object: &ObjectMeta, tier: usize) {
        let id = object.version();
        let mut flights = lock(&self.flights);
        if !flights.contains_key(&id) {
            self.stats.prefetch.issued.add(1);
            self.take_off(&mut flights, object, Purpose::Ahead { tier });
        }
    }

    /// A reader of one object by ranges, one per handle (it learns whether the handle reads sequentially).
    #[must_use]
    pub fn open_large(self: &Arc<Self>, object: &ObjectMeta) -> LargeReader {
        let shared = self.larges.get_with(object.version(), || Arc::new(LargeObject::new(object)));
        shared.look_for_room_again();
        LargeReader::new(Arc::clone(self), shared)
    }

    /// Lets go of parts of large objects that nobody reads: room is wanted for others.
    fn drop_idle_parts(&self) {
        const HELD_BY_US: usize = 2; // the set's own, and the one in hand
        for (id, large) in &self.larges {
            if Arc::strong_count(&large) <= HELD_BY_US {
                self.larges.invalidate(id.as_ref());
            }
        }
        self.larges.run_pending_tasks(); // what was removed is dropped only here
    }

    /// As [`TieredCache::limit_memory`], at the cost of parts of large objects that nobody reads too.
    #[must_use]
    pub fn limit_memory(&self, bytes: u64) -> u64 {
        match self.cache.limit_memory(bytes) {
            0 => 0,
            _ => {
                self.drop_idle_parts();
                self.cache.limit_memory(bytes)
            }
        }
    }

    /// Lets go of a version that is no longer wanted, stale or damaged. Its bytes stay counted until its last holder drops it.
    pub fn forget(&self, id: &ObjectId) {
        self.cache.retire(id);
    }

    /// One counted HEAD: what the key is now.
    ///
    /// # Errors
    /// As the store says, after retries.
    pub async fn head(self: &Arc<Self>, key: &str) -> Result<ObjectMeta, FetchError> {
        let began = Instant::now();
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut permit = self.gate.enter(self.gate.ticket(), 0, Priority::Demand).await;
            match self.store.head(key).await {
                Ok(meta) => return Ok(meta),
                Err(error) => {
                    if error.kind == ErrorKind::Throttled {
                        permit.throttled();
                    }
                    drop(permit);
                    self.pause(error, attempt, began, Patience::Deadline(self.config.read_deadline)).await?;
                }
            }
        }
    }

    /// What the store delivered lately, and its usual slow end: of a whole batch, where objects come by batches.
    #[must_use]
    pub fn measured(&self) -> (Rate, Duration) {
        let rate = lock(&self.goodput).best(self.began.elapsed());
        let slow = self.stats.store.latency.usual(self.began.elapsed().as_secs(), 0.999);
        (rate, Duration::from_micros(slow).max(self.batches.slow_end(self)))
    }

    /// How many keys may be announced at once; `None`: the store does not want to know, or is being told just now.
    #[must_use]
    pub fn announce_max(&self) -> Option<usize> {
        self.store.announce_max().filter(|_| !self.announcing.load(Relaxed))
    }

    /// Tells the store which keys will be read soon. Later and as a hint: a failure is a line in the log.
    pub fn announce(self: &Arc<Self>, keys: Vec<Arc<str>>) {
        if keys.is_empty() || self.announcing.swap(true, Relaxed) {
            return;
        }
        let door = Arc::clone(self);
        self.runtime.spawn(async move {
            let over = Announcing(&door);
            let permit = door.gate.enter(door.gate.ticket(), 0, Priority::Ahead).await;
            if tokio::time::timeout(ANNOUNCE_LIMIT, door.store.announce(&keys)).await.is_err() {
                tracing::debug!(keys = keys.len(), "an announcement was not answered");
            }
            drop(permit);
            drop(over);
        });
    }

    /// The cache behind the door.
    #[must_use]
    pub fn cache(&self) -> &Arc<TieredCache> {
        &self.cache
    }

    /// Objects of `mean_bytes` that may be on their way at once: as many as requests, or what all batches carry where they go by batches.
    #[must_use]
    pub fn objects_at_once(&self, mean_bytes: u64) -> usize {
        self.config.max_requests.max(self.batches.entries_max(self, mean_bytes))
    }

    /// Fewest objects that go by a batch, where objects go by batches now.
    #[must_use]
    pub fn batch_least(&self) -> Option<usize> {
        self.batches.least(self)
    }

    fn first_use(&self, id: &ObjectId) -> Outcome {
        match self.cache.opened(id) {
            FirstUse::FetchedAhead => {
                self.stats.prefetch.useful.add(1);
                Outcome::InTime
            }
            FirstUse::Before => Outcome::Retained,
        }
    }

    fn take_off(self: &Arc<Self>, flights: &mut HashMap<ObjectId, Arc<Flight>>, object: &ObjectMeta, purpose: Purpose) -> Arc<Flight> {
        let flight = Arc::new(Flight {
            object: object.clone(),
            id: object.version(),
            ticket: self.gate.ticket(),
            purpose,
            demanded: AtomicBool::new(purpose == Purpose::Demand),
            demand: Notify::new(),
            received: AtomicU64::new(0),
            landing: watch::Sender::new(None),
        });
        flights.insert(flight.id.clone(), Arc::clone(&flight));
        self.runtime.spawn(whole::fly(Arc::clone(self), Arc::clone(&flight)));
        flight
    }

    /// Sleeps before the next attempt, or gives the error back.
    async fn pause(&self, error: StoreError, attempt: u32, began: Instant, patience: Patience) -> Result<(), FetchError> {
        if error.kind != ErrorKind::Throttled {
            self.stats.store.errors.add(1); // the store counts the answers that asked for a slower pace
        }
        match retry::next_delay(error.kind, attempt, began.elapsed(), patience, retry::jitter()) {
            Some(delay) => {
                tracing::debug!(%error, attempt, ?delay, "the store failed, trying again");
                self.stats.store.retries.add(1);
                tokio::time::sleep(delay).await;
                Ok(())
            }
            None => Err(error.into()),
        }
    }

    async fn paced(&self, bytes: u64) {
        if let Some(pace) = &self.pace {
            let wait = lock(pace).take(self.began.elapsed(), bytes);
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
        }
    }
}

/// While it lives the store is being told something.
struct Announcing<'a>(&'a Door);

impl Drop for Announcing<'_> {
    fn drop(&mut self) {
        self.0.announcing.store(false, Relaxed);
    }
}

/// Why a reader got no file from a flight.
enum Refused {
    /// It had less patience left than this reader has: a prefetch, or the fetch of a reader who came long before.
    Impatient,
    Failed(FetchError),
}

impl Flight {
    /// Whether another fetch may end better for somebody who joined this one.
    fn gave_up_early(&self, error: &FetchError) -> bool {
        error.kind.is_transient() || error.kind == ErrorKind::NoSpace && matches!(self.purpose, Purpose::Ahead { .. })
    }

    async fn landed(&self) -> Landing {
        let mut landing = self.landing.subscribe();
        let landed = landing.wait_for(Option::is_some).await;
        match landed.as_deref() {
            Ok(Some(result)) => result.clone(),
            // the flight owns the sender and lives as long as this borrow
            Ok(None) | Err(_) => Err(FetchError::new(ErrorKind::Shutdown, "the fetch was abandoned: the mount is going away")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{CacheConfig, tier_counters};
    use crate::store::directory::DirectoryStore;
    use crate::store::listing::list_all;

    #[tokio::test]
    async fn a_reader_that_joins_a_fetch_as_it_gives_up_fetches_itself() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("file"), b"here all the time").unwrap();
        let tiers = CacheConfig { memory: Some(1 << 20), ..CacheConfig::default() };
        let stats = Arc::new(Stats { tiers: tier_counters(&tiers), ..Stats::default() });
        let (cache, _notes) = TieredCache::new(tiers, Arc::clone(&stats)).unwrap();
        let store: Arc<dyn Store> = Arc::new(DirectoryStore::open(directory.path(), Arc::clone(&stats)).await.unwrap());
        let object = list_all(&store, "", &|_| ()).await.unwrap().remove(0);
        let config = DoorConfig { max_requests: 4, max_bandwidth: None, read_deadline: Duration::from_secs(60) };
        let door = Door::new(store, cache, stats, Handle::current(), config, None);
        let ahead = Purpose::Ahead { tier: 0 };
        for (purpose, kind) in [(ahead, ErrorKind::Network), (ahead, ErrorKind::NoSpace), (Purpose::Demand, ErrorKind::Timeout)] {
            let flight = Arc::new(Flight {
                object: object.clone(),
                id: object.version(),
                ticket: door.gate.ticket(),
                purpose,
                demanded: AtomicBool::new(false),
                demand: Notify::new(),
                received: AtomicU64::new(0),
                landing: watch::Sender::new(None),
            });
            lock(&door.flights).insert(flight.id.clone(), Arc::clone(&flight));
            let reader = tokio::spawn({
                let (door, object) = (Arc::clone(&door), object.clone());
                async move { door.open(&object).await.map(|opened| opened.file.size()) }
            });
            while !flight.demanded.load(Relaxed) {
                tokio::task::yield_now().await;
            }
            lock(&door.flights).remove(&flight.id);
            flight.landing.send_replace(Some(Err(FetchError::new(kind, "at the end of its own patience"))));
            assert_eq!(reader.await.unwrap().expect("the reader has its own patience"), object.size);
            door.forget(&object.version());
        }
    }
}

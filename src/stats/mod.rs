//! Every counter of the mount, each a field of one struct. Counting is a leaf: it uses only `types`, takes no lock on the read path
//! and never fails. [`snapshot::Snapshot`] is what all views show: text, JSON (schema 1), Prometheus, HTTP.
//!
//! *Access* = one (object, stream, epoch) when an order is known, one open otherwise; a re-open in the same epoch is not one. Each is exactly
//! one [`Outcome`].

pub mod latency;
pub mod prometheus;
pub mod serve;
pub mod snapshot;
pub mod text;
pub mod verdict;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::types::Outcome;

/// A number that many threads count up (or set). Relaxed: each is exact by itself, two of them may be a moment apart.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }
    /// Takes `n` off (gauges).
    pub fn sub(&self, n: u64) {
        self.0.fetch_sub(n, Relaxed);
    }
    /// Sets a gauge.
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }
    /// The value now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Accesses and their bytes by outcome.
#[derive(Debug, Default)]
pub struct Outcomes {
    pub retained: Counter,
    pub in_time: Counter,
    pub late: Counter,
    pub miss: Counter,
    pub retained_bytes: Counter,
    pub in_time_bytes: Counter,
    pub late_bytes: Counter,
    pub miss_bytes: Counter,
}

impl Outcomes {
    /// Counts one access of an object of `bytes`.
    pub fn count(&self, outcome: Outcome, bytes: u64) {
        let (count, sum) = match outcome {
            Outcome::Retained => (&self.retained, &self.retained_bytes),
            Outcome::InTime => (&self.in_time, &self.in_time_bytes),
            Outcome::Late => (&self.late, &self.late_bytes),
            Outcome::Miss => (&self.miss, &self.miss_bytes),
        };
        count.add(1);
        sum.add(bytes);
    }
}

/// What readers did and got.
#[derive(Debug, Default)]
pub struct Reads {
    /// Opens answered without error.
    pub opens: Counter,
    /// Opens answered with kernel passthrough (their reads are not seen here).
    pub passthrough_opens: Counter,
    /// READ requests answered.
    pub reads: Counter,
    pub accesses: Outcomes,
    /// Sizes of the objects opened.
    pub opened_bytes: Counter,
    /// Bytes given in answer to READ (not those of passthrough and the page cache).
    pub served_bytes: Counter,
    /// Summed time opens and reads waited for the store, microseconds.
    pub wait_micros: Counter,
    /// Time in which all reader processes of one rank waited at once, microseconds.
    pub starved_micros: Counter,
    /// Of these two, what passed while no order was followed.
    pub wait_unfollowed_micros: Counter,
    pub starved_unfollowed_micros: Counter,
    /// Opens and reads answered with an error that is the store's or ours (not ENOENT, EROFS).
    pub errors: Counter,
    /// Events the planner did not get because its queue was full.
    pub events_dropped: Counter,
    /// Opens that `--record-opens` did not write because its queue was full or the file failed.
    pub opens_unrecorded: Counter,
}

/// What was fetched ahead.
#[derive(Debug, Default)]
pub struct Prefetch {
    pub issued: Counter,
    /// Prefetched and then read.
    pub useful: Counter,
    /// Prefetched and retired unread.
    pub wasted: Counter,
    pub wasted_bytes: Counter,
    /// Gauge.
    pub in_flight: Counter,
    /// Gauge: the look-ahead in force, bytes.
    pub window_bytes: Counter,
    /// Gauge: the look-ahead that the measurements ask for, bytes.
    pub window_wanted_bytes: Counter,
}

/// What was asked of the store.
#[derive(Debug, Default)]
pub struct StoreCounters {
    pub list: Counter,
    pub head: Counter,
    pub get: Counter,
    pub batch: Counter,
    /// Entries of these batches that came and were the version asked for.
    pub batch_entries: Counter,
    /// Batches that did not bring all they were asked for: the rest is read singly.
    pub batch_fallbacks: Counter,
    /// Objects that were asked for by a batch and fetched singly after all.
    pub batch_singles: Counter,
    /// Redirects followed, each for its one request.
    pub redirects: Counter,
    /// GETs answered by the target itself, without a redirect.
    pub direct: Counter,
    /// Body bytes received, all of them.
    pub bytes: Counter,
    /// Of these, bytes of hedged, retried and abandoned requests.
    pub bytes_extra: Counter,
    pub retries: Counter,
    /// Second requests for a first byte that was late.
    pub hedges: Counter,
    pub throttled: Counter,
    pub errors: Counter,
    /// Gauge: requests allowed at once now.
    pub concurrency: Counter,
    /// Time from request to last byte of whole requests, over the last 60 s.
    pub latency: latency::Latencies,
}

/// State of a tier, as shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TierState {
    #[default]
    Ok,
    /// Errors were seen: reads bypass it, a probe runs.
    Degraded,
    Off,
}

/// One tier's counters.
#[derive(Debug, Default)]
pub struct TierCounters {
    pub name: String,
    pub path: String,
    pub capacity_bytes: Counter,
    /// Everything that takes room: complete, partial, temporary, evicted but still open.
    pub used_bytes: Counter,
    pub objects: Counter,
    pub hits: Counter,
    pub admitted: Counter,
    pub evicted: Counter,
    pub errors: Counter,
    /// 0 ok, 1 degraded, 2 off (see [`TierState`]).
    pub state: Counter,
}

/// One order, as the planner sees it: written whole by the prefetch task, read by snapshots.
#[derive(Clone, Debug, Default)]
pub struct OrderStatus {
    pub id: String,
    pub job: String,
    pub root: String,
    /// declared, given or inferred.
    pub source: &'static str,
    /// searching, locked or lost.
    pub state: &'static str,
    pub kind: String,
    pub seed: u64,
    pub world: u32,
    pub ranks: String,
    pub epoch: u64,
    pub position: u64,
    pub length: u64,
    /// 0..=1: the belief, as a probability of the hypothesis against uniform.
    pub confidence: f64,
    /// Opens seen since the order began to be followed, and those of them that were predicted.
    pub observed: u64,
    pub predicted: u64,
    /// Why it was dropped or changed last; empty if never.
    pub note: String,
    /// The order as `--order` takes it.
    pub hypothesis: String,
    /// Seconds that searches took until it was found; 0: it was declared.
    pub search_seconds: f64,
    pub epochs: Vec<EpochStatus>,
    /// Paths of the files that will be read next.
    pub upcoming: Vec<String>,
    /// ... if the order goes on otherwise than supposed: the condition, in words.
    pub perhaps: Vec<(String, Vec<String>)>,
}

/// One epoch of one order.
#[derive(Clone, Debug, Default)]
pub struct EpochStatus {
    pub epoch: u64,
    pub accesses: u64,
    pub retained: u64,
    pub in_time: u64,
    pub late: u64,
    pub miss: u64,
    pub retained_bytes: u64,
    pub in_time_bytes: u64,
    pub late_bytes: u64,
    pub miss_bytes: u64,
    pub store_bytes: u64,
    pub seconds: f64,
    pub starved_seconds: f64,
    pub bound_retained_rate: f64,
    pub bound_store_bytes: u64,
}

/// The namespace, as listed.
#[derive(Debug, Default)]
pub struct Namespace {
    pub objects: Counter,
    pub bytes: Counter,
    pub hidden_keys: Counter,
    /// 0 running, 1 complete, 2 failed.
    pub listing: Counter,
}

/// All of it. One per mount.
#[derive(Debug, Default)]
pub struct Stats {
    pub url: String,
    pub mountpoint: String,
    /// Whether orders are looked for in what is opened.
    pub finds_orders: bool,
    pub reads: Reads,
    pub prefetch: Prefetch,
    pub store: StoreCounters,
    /// Fastest first, as configured; fixed at mount.
    pub tiers: Vec<TierCounters>,
    pub orders: Mutex<Vec<OrderStatus>>,
    /// Imported orders, as `--order` takes them, that no readers have proved yet.
    pub imported: Mutex<Vec<String>>,
    /// ... and those of earlier runs, likewise.
    pub kept: Mutex<Vec<String>>,
    /// Declared orders that are being computed.
    pub computing: Mutex<Vec<String>>,
    /// What no order explains, and how far it was searched, for people.
    pub unexplained: Mutex<Vec<String>>,
    pub namespace: Namespace,
    pub manifest_id: Mutex<String>,
    /// 1 when the kernel reads cached files without us.
    pub passthrough: Counter,
    /// What the kernel or our rights deny us, each with its cost, for people.
    pub notes: Mutex<Vec<String>>,
    /// Parts that panicked and were restarted or given up.
    pub panics: Counter,
}

impl Stats {
    /// Adds a note for people, once.
    pub fn note(&self, text: impl Into<String>) {
        let text = text.into();
        let mut notes = self.notes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !notes.contains(&text) {
            notes.push(text);
        }
    }

    /// Takes back a note that no longer holds.
    pub fn unnote(&self, text: &str) {
        self.notes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).retain(|note| note != text);
    }
}

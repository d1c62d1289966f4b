//! All counters at one moment, in the shape every view shows: `stats.json`, schema 1.
//!
//! Scripts and dashboards rely on the names: fields are added, never renamed or taken away; another meaning is another schema number.
//! Counters count since the mount began, sizes are bytes, times are seconds. Each number is exact by itself; two of them may be a moment apart.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{EpochStatus, OrderStatus, Outcomes, Stats, TierCounters};

/// Number of the schema below.
pub const SCHEMA: u32 = 1;

/// Everything that is known of a mount now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    pub schema: u32,
    pub version: String,
    pub url: String,
    pub mountpoint: String,
    pub uptime_seconds: f64,
    pub manifest_id: String,
    pub reads: Reads,
    pub orders: Vec<Order>,
    /// Imported, and not proved by readers yet; as `--order` takes them.
    #[serde(default)]
    pub imported: Vec<String>,
    /// Kept from earlier runs, and not proved by readers yet.
    #[serde(default)]
    pub kept: Vec<String>,
    /// Declared, and being computed.
    #[serde(default)]
    pub computing: Vec<String>,
    /// What no order explains, and how far it was searched, for people.
    #[serde(default)]
    pub unexplained: Vec<String>,
    /// Whether orders are looked for in what is opened.
    #[serde(default)]
    pub finds_orders: bool,
    pub prefetch: Prefetch,
    pub store: Store,
    pub tiers: Vec<Tier>,
    pub namespace: Namespace,
    pub kernel: Kernel,
    /// What the kernel or our rights deny us, for people.
    pub notes: Vec<String>,
    /// Parts that panicked and were restarted or given up.
    pub panics: u64,
}

/// What readers did and got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reads {
    pub opens: u64,
    pub passthrough_opens: u64,
    pub requests: u64,
    pub accesses: u64,
    pub retained: u64,
    pub in_time: u64,
    pub late: u64,
    pub miss: u64,
    pub bytes: ReadBytes,
    /// (retained + in_time) / accesses; 0 when there were none.
    pub ready_rate: f64,
    /// Retained bytes / accessed bytes: what is compared with the bound.
    pub retained_rate: f64,
    /// Keyed by the tier's name.
    pub hits: BTreeMap<String, u64>,
    /// Summed over all readers.
    pub wait_seconds: f64,
    /// Time in which all reader processes of one rank waited at once.
    pub starved_seconds: f64,
    /// Of both, what passed while no order was followed.
    #[serde(default)]
    pub wait_unfollowed_seconds: f64,
    #[serde(default)]
    pub starved_unfollowed_seconds: f64,
    pub errors: u64,
    pub events_dropped: u64,
    /// What `--record-opens` lost.
    #[serde(default)]
    pub opens_unrecorded: u64,
}

/// Bytes of the accesses by outcome, and of the answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadBytes {
    pub opened: u64,
    /// Answered to READ; what the kernel reads by passthrough or from its page cache is not seen here.
    pub served: u64,
    pub retained: u64,
    pub in_time: u64,
    pub late: u64,
    pub miss: u64,
}

/// One order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Order {
    pub id: String,
    pub job: String,
    pub root: String,
    pub source: String,
    pub state: String,
    pub kind: String,
    pub seed: u64,
    pub world: u32,
    pub ranks: String,
    pub epoch: u64,
    pub position: u64,
    pub length: u64,
    pub confidence: f64,
    pub observed: u64,
    pub predicted: u64,
    pub note: String,
    #[serde(default)]
    pub hypothesis: String,
    #[serde(default)]
    pub search_seconds: f64,
    pub epochs: Vec<EpochOfOrder>,
}

/// One epoch of one order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochOfOrder {
    pub epoch: u64,
    pub accesses: u64,
    pub retained: u64,
    pub in_time: u64,
    pub late: u64,
    pub miss: u64,
    pub bytes: OutcomeBytes,
    pub store_bytes: u64,
    pub seconds: f64,
    pub starved_seconds: f64,
    pub bound: Bound,
}

/// Bytes by outcome.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutcomeBytes {
    pub retained: u64,
    pub in_time: u64,
    pub late: u64,
    pub miss: u64,
}

/// The best any cache of this size could have done in the epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    pub retained_rate: f64,
    pub store_bytes: u64,
}

/// What was fetched ahead.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prefetch {
    pub issued: u64,
    pub useful: u64,
    pub wasted: u64,
    pub wasted_bytes: u64,
    pub in_flight: u64,
    pub window_bytes: u64,
    pub window_wanted_bytes: u64,
}

/// What was asked of the store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Store {
    pub requests: Requests,
    /// Entries of the batches that came whole.
    pub batch_entries: u64,
    /// Batches that did not bring all they were asked for.
    pub batch_fallbacks: u64,
    /// Objects asked for by a batch and fetched singly after all.
    pub batch_singles: u64,
    /// Redirects followed.
    pub redirects: u64,
    /// GETs answered by a target without a redirect.
    pub direct: u64,
    pub bytes: u64,
    pub bytes_extra: u64,
    pub retries: u64,
    /// Second requests for a first byte that was late.
    pub hedges: u64,
    pub throttled: u64,
    pub errors: u64,
    /// Requests allowed at once now.
    pub concurrency: u64,
    pub latency_seconds: Latency,
}

/// Requests by kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    pub list: u64,
    pub head: u64,
    pub get: u64,
    pub batch: u64,
}

/// Request to last byte, over the last 60 s; 0 when nothing was asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub p50: f64,
    pub p99: f64,
}

/// One tier of the cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tier {
    pub name: String,
    pub path: String,
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    pub objects: u64,
    pub hits: u64,
    pub admitted: u64,
    pub evicted: u64,
    pub errors: u64,
    /// ok, degraded or off.
    pub state: String,
}

/// The namespace, as listed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Namespace {
    pub objects: u64,
    pub bytes: u64,
    pub hidden_keys: u64,
    /// running, complete or failed.
    pub listing: String,
}

/// What the kernel does for us.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    pub passthrough: bool,
}

impl Snapshot {
    /// Reads all counters, `uptime` after the mount began.
    #[must_use]
    pub fn take(stats: &Stats, uptime: Duration) -> Self {
        let now = uptime.as_secs();
        let latency = |q| micros(stats.store.latency.quantile(now, q));
        // A panicked writer leaves these lists whole (they are replaced, never edited in parts), so poison says nothing here.
        let orders = stats.orders.lock().unwrap_or_else(PoisonError::into_inner).iter().map(order).collect();
        let list = |list: &Mutex<Vec<String>>| list.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let manifest_id = stats.manifest_id.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            url: stats.url.clone(),
            mountpoint: stats.mountpoint.clone(),
            uptime_seconds: uptime.as_secs_f64(),
            manifest_id,
            reads: reads(stats),
            orders,
            imported: list(&stats.imported),
            kept: list(&stats.kept),
            computing: list(&stats.computing),
            unexplained: list(&stats.unexplained),
            finds_orders: stats.finds_orders,
            prefetch: Prefetch {
                issued: stats.prefetch.issued.get(),
                useful: stats.prefetch.useful.get(),
                wasted: stats.prefetch.wasted.get(),
                wasted_bytes: stats.prefetch.wasted_bytes.get(),
                in_flight: stats.prefetch.in_flight.get(),
                window_bytes: stats.prefetch.window_bytes.get(),
                window_wanted_bytes: stats.prefetch.window_wanted_bytes.get(),
            },
            store: Store {
                requests: Requests {
                    list: stats.store.list.get(),
                    head: stats.store.head.get(),
                    get: stats.store.get.get(),
                    batch: stats.store.batch.get(),
                },
                batch_entries: stats.store.batch_entries.get(),
                batch_fallbacks: stats.store.batch_fallbacks.get(),
                batch_singles: stats.store.batch_singles.get(),
                redirects: stats.store.redirects.get(),
                direct: stats.store.direct.get(),
                bytes: stats.store.bytes.get(),
                bytes_extra: stats.store.bytes_extra.get(),
                retries: stats.store.retries.get(),
                hedges: stats.store.hedges.get(),
                throttled: stats.store.throttled.get(),
                errors: stats.store.errors.get(),
                concurrency: stats.store.concurrency.get(),
                latency_seconds: Latency { p50: latency(0.5), p99: latency(0.99) },
            },
            tiers: stats.tiers.iter().map(tier).collect(),
            namespace: Namespace {
                objects: stats.namespace.objects.get(),
                bytes: stats.namespace.bytes.get(),
                hidden_keys: stats.namespace.hidden_keys.get(),
                listing: match stats.namespace.listing.get() {
                    0 => "running",
                    1 => "complete",
                    _ => "failed",
                }
                .to_owned(),
            },
            kernel: Kernel { passthrough: stats.passthrough.get() != 0 },
            notes: list(&stats.notes),
            panics: stats.panics.get(),
        }
    }

    /// The JSON text of this snapshot, one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("keys are strings and no part refuses to serialize")
    }
}

fn reads(stats: &Stats) -> Reads {
    let reads = &stats.reads;
    let Outcomes { retained, in_time, late, miss, retained_bytes, in_time_bytes, late_bytes, miss_bytes } = &reads.accesses;
    let bytes = ReadBytes {
        opened: reads.opened_bytes.get(),
        served: reads.served_bytes.get(),
        retained: retained_bytes.get(),
        in_time: in_time_bytes.get(),
        late: late_bytes.get(),
        miss: miss_bytes.get(),
    };
    let (retained, in_time, late, miss) = (retained.get(), in_time.get(), late.get(), miss.get());
    // The sum of the four, and not a fifth counter: an access is exactly one of them.
    let accesses = retained + in_time + late + miss;
    Reads {
        opens: reads.opens.get(),
        passthrough_opens: reads.passthrough_opens.get(),
        requests: reads.reads.get(),
        accesses,
        retained,
        in_time,
        late,
        miss,
        ready_rate: rate(retained + in_time, accesses),
        retained_rate: rate(bytes.retained, bytes.retained + bytes.in_time + bytes.late + bytes.miss),
        bytes,
        hits: stats.tiers.iter().map(|tier| (tier.name.clone(), tier.hits.get())).collect(),
        wait_seconds: micros(reads.wait_micros.get()),
        starved_seconds: micros(reads.starved_micros.get()),
        wait_unfollowed_seconds: micros(reads.wait_unfollowed_micros.get()),
        starved_unfollowed_seconds: micros(reads.starved_unfollowed_micros.get()),
        errors: reads.errors.get(),
        events_dropped: reads.events_dropped.get(),
        opens_unrecorded: reads.opens_unrecorded.get(),
    }
}

fn order(order: &OrderStatus) -> Order {
    Order {
        id: order.id.clone(),
        job: order.job.clone(),
        root: order.root.clone(),
        source: order.source.to_owned(),
        state: order.state.to_owned(),
        kind: order.kind.clone(),
        seed: order.seed,
        world: order.world,
        ranks: order.ranks.clone(),
        epoch: order.epoch,
        position: order.position,
        length: order.length,
        confidence: order.confidence,
        observed: order.observed,
        predicted: order.predicted,
        note: order.note.clone(),
        hypothesis: order.hypothesis.clone(),
        search_seconds: order.search_seconds,
        epochs: order.epochs.iter().map(epoch).collect(),
    }
}

fn epoch(epoch: &EpochStatus) -> EpochOfOrder {
    EpochOfOrder {
        epoch: epoch.epoch,
        accesses: epoch.accesses,
        retained: epoch.retained,
        in_time: epoch.in_time,
        late: epoch.late,
        miss: epoch.miss,
        bytes: OutcomeBytes {
            retained: epoch.retained_bytes,
            in_time: epoch.in_time_bytes,
            late: epoch.late_bytes,
            miss: epoch.miss_bytes,
        },
        store_bytes: epoch.store_bytes,
        seconds: epoch.seconds,
        starved_seconds: epoch.starved_seconds,
        bound: Bound { retained_rate: epoch.bound_retained_rate, store_bytes: epoch.bound_store_bytes },
    }
}

fn tier(tier: &TierCounters) -> Tier {
    Tier {
        name: tier.name.clone(),
        path: tier.path.clone(),
        capacity_bytes: tier.capacity_bytes.get(),
        used_bytes: tier.used_bytes.get(),
        objects: tier.objects.get(),
        hits: tier.hits.get(),
        admitted: tier.admitted.get(),
        evicted: tier.evicted.get(),
        errors: tier.errors.get(),
        state: match tier.state.get() {
            0 => "ok",
            1 => "degraded",
            _ => "off",
        }
        .to_owned(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people and comparisons; counters stay far below 2^52")]
fn rate(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[expect(clippy::cast_precision_loss, reason = "2^52 µs are 142 years")]
fn micros(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::super::StoreCounters;
    use super::*;
    use crate::types::Outcome;
    use serde_json::Value;

    /// Schema 1 as published: every name in it must be there, with a value of the same kind.
    const PUBLISHED: &str = r#"
    {"schema":1,"version":"0.1.0","url":"s3://b/p","mountpoint":"/data","uptime_seconds":1.0,"manifest_id":"",
     "reads":{"opens":0,"accesses":0,"retained":0,"in_time":0,"late":0,"miss":0,"bytes":{"opened":0,"served":0,"retained":0,"in_time":0,"late":0,"miss":0},
              "ready_rate":0.0,"retained_rate":0.0,"hits":{"memory":0,"disk":0},"wait_seconds":0.0,"starved_seconds":0.0,"errors":0},
     "orders":[{"id":"train","job":"","root":"train","source":"declared","state":"searching","kind":"torch-distributed","seed":0,"world":8,"ranks":"0-7","epoch":0,
                "position":0,"length":0,"confidence":0.0,"observed":0,"predicted":0,
                "epochs":[{"epoch":0,"accesses":0,"retained":0,"in_time":0,"late":0,"miss":0,"bytes":{},"store_bytes":0,"seconds":0.0,"starved_seconds":0.0,
                           "bound":{"retained_rate":0.0,"store_bytes":0}}]}],
     "prefetch":{"issued":0,"useful":0,"wasted":0,"in_flight":0,"window_bytes":0,"window_wanted_bytes":0},
     "store":{"requests":{"list":0,"head":0,"get":0,"batch":0},"bytes":0,"bytes_extra":0,"retries":0,"throttled":0,"errors":0,"latency_seconds":{"p50":0.0,"p99":0.0}},
     "tiers":[{"name":"memory","path":"","capacity_bytes":0,"used_bytes":0,"objects":0,"hits":0,"admitted":0,"evicted":0,"errors":0,"state":"ok"},
              {"name":"disk","path":"/c","capacity_bytes":0,"used_bytes":0,"objects":0,"hits":0,"admitted":0,"evicted":0,"errors":0,"state":"ok"}],
     "namespace":{"objects":0,"bytes":0,"hidden_keys":0,"listing":"running"},"kernel":{"passthrough":false}}"#;

    fn stats() -> Stats {
        let stats = Stats {
            url: "s3://b/p".into(),
            mountpoint: "/data".into(),
            tiers: vec![
                TierCounters { name: "memory".into(), ..TierCounters::default() },
                TierCounters { name: "disk".into(), path: "/c".into(), ..TierCounters::default() },
            ],
            store: StoreCounters::default(),
            ..Stats::default()
        };
        let order = OrderStatus {
            id: "train".into(),
            root: "train".into(),
            source: "declared",
            state: "searching",
            kind: "torch-distributed".into(),
            world: 8,
            ranks: "0-7".into(),
            epochs: vec![EpochStatus::default()],
            ..OrderStatus::default()
        };
        stats.orders.lock().unwrap().push(order);
        stats
    }

    /// Everything in `published` is in `ours`; numbers keep their kind (a float stays a float).
    fn check_contains(path: &str, published: &Value, ours: &Value) {
        match (published, ours) {
            (Value::Object(published), Value::Object(ours)) => {
                for (name, value) in published {
                    check_contains(&format!("{path}.{name}"), value, ours.get(name).unwrap_or_else(|| panic!("{path}.{name} is missing")));
                }
            }
            (Value::Array(published), Value::Array(ours)) => {
                assert_eq!(published.len(), ours.len(), "{path}");
                for (published, ours) in published.iter().zip(ours) {
                    check_contains(path, published, ours);
                }
            }
            _ => assert_eq!(published, ours, "{path}"),
        }
    }

    #[test]
    fn a_snapshot_is_schema_1() {
        let snapshot = Snapshot::take(&stats(), Duration::from_secs(1));
        let mut published: Value = serde_json::from_str(PUBLISHED).unwrap();
        published["version"] = env!("CARGO_PKG_VERSION").into();
        check_contains("", &published, &serde_json::to_value(&snapshot).unwrap());
    }

    #[test]
    fn a_snapshot_survives_its_json() {
        let snapshot = Snapshot::take(&stats(), Duration::from_millis(1500));
        assert_eq!(serde_json::from_str::<Snapshot>(&snapshot.to_json()).unwrap(), snapshot);
    }

    #[test]
    fn rates_follow_their_definitions() {
        let stats = stats();
        let reads = |stats: &Stats| Snapshot::take(stats, Duration::ZERO).reads;
        assert_eq!((reads(&stats).ready_rate, reads(&stats).retained_rate), (0.0, 0.0), "nothing read is 0, not NaN");
        for (outcome, bytes) in [(Outcome::Retained, 300), (Outcome::InTime, 100), (Outcome::Late, 100), (Outcome::Miss, 500)] {
            stats.reads.accesses.count(outcome, bytes);
        }
        assert_eq!(reads(&stats).accesses, 4);
        assert_eq!(reads(&stats).ready_rate, 0.5);
        assert_eq!(reads(&stats).retained_rate, 0.3, "of bytes, not of accesses");
    }

    #[test]
    fn states_have_names() {
        let stats = stats();
        stats.tiers[1].state.set(1);
        stats.namespace.listing.set(2);
        stats.passthrough.set(1);
        stats.tiers[0].hits.add(3);
        let snapshot = Snapshot::take(&stats, Duration::ZERO);
        assert_eq!((snapshot.tiers[0].state.as_str(), snapshot.tiers[1].state.as_str()), ("ok", "degraded"));
        assert_eq!(snapshot.namespace.listing, "failed");
        assert!(snapshot.kernel.passthrough);
        assert_eq!(snapshot.reads.hits["memory"], 3);
    }
}

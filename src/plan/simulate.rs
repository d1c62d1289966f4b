//! The planner against a store, a cache and readers of virtual time: an epoch of a million files in a second, the same every time.
//!
//! For `belady plan` (what will a run cost before paying), for tests and for benches. The store is one pipe: a latency drawn per request and a
//! bandwidth shared in order of arrival. The cache keeps its own books and refuses what does not fit, so that the planner's cannot be wrong
//! unnoticed. Readers are threads over one list, or DataLoader workers as orders.md §4 describes them. It models no disk and no decode.

mod readers;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::{Action, EpochCount, EpochFiles, Event, OrderConfig, OrderState, Planner, PlannerConfig, PlannerView};
use crate::types::{Epoch, ErrorKind, FileIndex, Outcome};

/// The store, as seen through the door.
#[derive(Clone, Copy, Debug)]
pub struct StoreModel {
    pub latency: Duration,
    /// Share of requests that take ten times the latency, per mille.
    pub slow_per_mille: u32,
    pub bytes_per_second: f64,
    pub in_flight_max: u32,
}

impl Default for StoreModel {
    /// An S3-like store over 10 Gbit/s.
    fn default() -> Self {
        Self { latency: Duration::from_millis(20), slow_per_mille: 10, bytes_per_second: 1e9, in_flight_max: 64 }
    }
}

/// Who reads.
#[derive(Clone, Copy, Debug)]
pub enum Readers {
    /// Threads (of one process) that take the next place of the merged stream each.
    Threads { threads: u32 },
    /// One DataLoader per local rank.
    Loader { workers: u32, batch: u32, prefetch_factor: u32 },
}

/// What process ids the planner is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processes {
    Known,
    /// All 0: the readers live in another pid namespace.
    Unknown,
}

/// One run: what is declared to the planner and what really happens.
#[derive(Clone, Debug)]
pub struct Run {
    pub declared: OrderConfig,
    /// The order declared, by epoch: what the planner is answered.
    pub predicted: Script,
    /// The order really read, by number of the pass.
    pub actual: Script,
    /// Place of the first pass the readers begin at (per merged stream).
    pub start_place: u32,
    pub passes: u64,
    pub readers: Readers,
    /// Compute time of one sample on one rank.
    pub compute: Duration,
    /// Rank r computes slower by r times this share: ranks drift apart, in per mille.
    pub skew_per_mille: u32,
    /// Passes of this run wait for this run (by number) to finish as many: validation after training.
    pub after: Option<usize>,
    /// ... but for so many more of them: 1 for training, whose next epoch waits for validation.
    pub lead: u64,
}

/// Orders by epoch number; cheap to clone.
#[derive(Clone)]
pub struct Script(pub Arc<dyn Fn(Epoch) -> EpochFiles + Send + Sync>);

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Script")
    }
}

/// All of a simulation.
#[derive(Clone, Debug)]
pub struct Simulation {
    pub tiers: Vec<u64>,
    pub sizes: Arc<[u64]>,
    pub store: StoreModel,
    pub runs: Vec<Run>,
    pub processes: Processes,
    /// Opened and Released events lost, per mille.
    pub lost_per_mille: u32,
    pub seed: u64,
}

/// What came of one order.
#[derive(Clone, Debug)]
pub struct OrderForecast {
    pub state: OrderState,
    pub note: String,
    pub observed: u64,
    pub predicted: u64,
    pub epochs: Vec<EpochCount>,
    /// Opens of this run when its order was first seen lost.
    pub lost_at: Option<u64>,
    /// Its opens in all.
    pub opens: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Forecast {
    pub seconds: f64,
    pub store_bytes: u64,
    pub store_requests: u64,
    /// Seconds readers waited, summed over readers.
    pub wait_seconds: f64,
    pub orders: Vec<OrderForecast>,
    pub view: PlannerView,
    /// Actions that make no sense: a fetch of a file that is here or in flight, or beyond the budget. Must be empty.
    pub faults: Vec<String>,
}

impl Simulation {
    /// Runs to the end.
    #[must_use]
    pub fn run(&self) -> Forecast {
        World::new(self).run()
    }
}

/// xorshift64*: seeded, and good enough for latencies.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub(crate) const fn per_mille(&mut self, share: u32) -> bool {
        (self.next() >> 32) % 1000 < share as u64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Arrived(u32),
    /// (run, reader) goes on.
    Reader(usize, usize),
    /// (run, rank): the main process has consumed a batch.
    Consumed(usize, usize),
    Computed(usize, Epoch),
    Tick,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Held {
    #[default]
    No,
    /// In flight; asked for ahead into this tier.
    Ahead(usize),
    Demand(Option<usize>),
    Here {
        tier: usize,
        fresh: bool,
    },
}

/// A thread or a worker.
#[derive(Debug)]
struct Reader {
    rank: usize,
    idle: bool,
    process: u32,
    /// Batches to read, for workers: first step and end step of the rank's stream.
    batches: VecDeque<(u32, u32)>,
    reading: Option<FileIndex>,
}

#[derive(Debug, Default)]
struct Rank {
    /// Steps of the stream handed out.
    dispatched: u32,
    batches_out: u64,
    /// Batches read completely, waiting in order.
    complete: VecDeque<bool>,
    delivered: u64,
    busy: bool,
    pass: u64,
}

#[derive(Debug)]
struct Live {
    orders: VecDeque<(u64, Arc<EpochFiles>)>,
    readers: Vec<Reader>,
    ranks: Vec<Rank>,
    /// Threads: next place.
    next: u32,
    pass: u64,
    passes_done: u64,
    opens: u64,
    lost_at: Option<u64>,
    /// Passes that may have begun.
    permitted: u64,
}

struct World<'a> {
    plan: &'a Simulation,
    planner: Planner,
    now: Duration,
    events: BinaryHeap<Reverse<(Duration, u64, What)>>,
    sequence: u64,
    held: Vec<Held>,
    waiting: std::collections::HashMap<u32, Vec<(usize, usize, Duration)>>,
    handles: std::collections::HashMap<u32, u32>,
    retired_open: std::collections::HashMap<u32, (usize, u64)>,
    used: Vec<u64>,
    pipe: Duration,
    flights: u32,
    queue: VecDeque<u32>,
    dice: Dice,
    live: Vec<Live>,
    next_process: u32,
    store_bytes: u64,
    store_requests: u64,
    waited: Duration,
    faults: Vec<String>,
    actions: Vec<Action>,
}

/// At most so many faults are described.
const FAULTS_MAX: usize = 20;

impl<'a> World<'a> {
    fn new(plan: &'a Simulation) -> Self {
        let mut config = PlannerConfig::new(plan.tiers.clone());
        config.in_flight_max = plan.store.in_flight_max;
        let mut planner = Planner::new(config, Arc::clone(&plan.sizes));
        for run in &plan.runs {
            planner.add_order(run.declared.clone());
        }
        Self {
            plan,
            planner,
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            sequence: 0,
            held: vec![Held::No; plan.sizes.len()],
            waiting: std::collections::HashMap::new(),
            handles: std::collections::HashMap::new(),
            retired_open: std::collections::HashMap::new(),
            used: vec![0; plan.tiers.len()],
            pipe: Duration::ZERO,
            flights: 0,
            queue: VecDeque::new(),
            dice: Dice::new(plan.seed),
            live: Vec::new(),
            next_process: 1,
            store_bytes: 0,
            store_requests: 0,
            waited: Duration::ZERO,
            faults: Vec::new(),
            actions: Vec::new(),
        }
    }

    fn at(&mut self, time: Duration, what: What) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, what)));
    }

    fn run(mut self) -> Forecast {
        self.tell(Event::Tick);
        self.at(Duration::from_millis(100), What::Tick);
        for number in 0..self.plan.runs.len() {
            self.begin(number);
        }
        while let Some(Reverse((time, _, what))) = self.events.pop() {
            self.now = time;
            match what {
                What::Arrived(file) => self.arrived(FileIndex(file)),
                What::Reader(run, reader) => self.go_on(run, reader),
                What::Consumed(run, rank) => self.consumed(run, rank),
                What::Computed(run, epoch) => {
                    let files = Arc::new((self.plan.runs[run].predicted.0)(epoch));
                    self.tell(Event::Order { order: run, epoch, way: 0, files });
                }
                What::Tick => {
                    let running = (0..self.live.len()).any(|r| self.live[r].passes_done < self.plan.runs[r].passes);
                    let s = self.plan.store;
                    let slow = if s.slow_per_mille > 0 { s.latency * 10 } else { s.latency };
                    self.tell(Event::Measured {
                        bytes_per_second: s.bytes_per_second,
                        latency_p999: slow,
                        requests_per_second: 0.0,
                        in_flight_max: s.in_flight_max,
                    });
                    self.tell(Event::Tick);
                    if running {
                        self.at(time + Duration::from_millis(100), What::Tick);
                    }
                }
            }
        }
        self.report()
    }

    fn report(self) -> Forecast {
        let orders = (0..self.planner.orders())
            .map(|o| {
                let view = self.planner.order(o);
                OrderForecast {
                    state: view.state,
                    note: view.note.to_owned(),
                    observed: view.observed,
                    predicted: view.predicted,
                    epochs: self.planner.epochs(o).cloned().collect(),
                    lost_at: self.live[o].lost_at,
                    opens: self.live[o].opens,
                }
            })
            .collect();
        Forecast {
            seconds: self.now.as_secs_f64(),
            store_bytes: self.store_bytes,
            store_requests: self.store_requests,
            wait_seconds: self.waited.as_secs_f64(),
            orders,
            view: self.planner.view(),
            faults: self.faults,
        }
    }

    fn fault(&mut self, text: String) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(text);
        }
    }

    // --- the planner ---

    fn tell(&mut self, event: Event) {
        let mut actions = std::mem::take(&mut self.actions);
        self.planner.handle(self.now, event, &mut actions);
        for action in actions.drain(..) {
            match action {
                Action::Compute { order, epoch, .. } => self.at(self.now + Duration::from_millis(5), What::Computed(order, epoch)),
                Action::Retire { file } => self.retire(file),
                Action::Fetch { file, tier } => self.fetch_ahead(file, tier),
            }
        }
        self.actions = actions;
    }

    fn retire(&mut self, file: FileIndex) {
        match self.held[file.at()] {
            Held::Here { tier, .. } => {
                self.held[file.at()] = Held::No;
                if self.handles.contains_key(&file.0) {
                    self.retired_open.entry(file.0).or_insert((tier, 0)).1 += self.plan.sizes[file.at()];
                } else {
                    self.used[tier] -= self.plan.sizes[file.at()];
                }
            }
            other => self.fault(format!("retire of {file:?} which is {other:?}")),
        }
    }

    fn reserve(&mut self, size: u64, from: usize) -> Option<usize> {
        let tier = (from..self.used.len()).find(|&t| self.used[t] + size <= self.plan.tiers[t])?;
        self.used[tier] += size;
        Some(tier)
    }

    fn fetch_ahead(&mut self, file: FileIndex, tier: usize) {
        match self.held[file.at()] {
            Held::No => match self.reserve(self.plan.sizes[file.at()], tier) {
                Some(tier) => {
                    self.held[file.at()] = Held::Ahead(tier);
                    self.queue.push_back(file.0);
                    self.launch();
                }
                None => {
                    if self.plan.lost_per_mille == 0
                        && self.retired_open.is_empty()
                        && !self.held.iter().any(|h| matches!(h, Held::Demand(Some(_))))
                    {
                        self.fault(format!("fetch of {file:?} beyond the budget: {:?} of {:?}", self.used, self.plan.tiers));
                    }
                    self.tell(Event::Failed { file, kind: ErrorKind::NoSpace });
                }
            },
            // Single-flight: it joins, and is reported when it arrives.
            Held::Demand(_) => {}
            other => self.fault(format!("fetch of {file:?} which is {other:?}")),
        }
    }

    // --- the store ---

    fn launch(&mut self) {
        while self.flights < self.plan.store.in_flight_max
            && let Some(file) = self.queue.pop_front()
        {
            let size = self.plan.sizes[file as usize];
            let store = self.plan.store;
            self.flights += 1;
            self.store_bytes += size;
            self.store_requests += 1;
            let latency = store.latency * if self.dice.per_mille(store.slow_per_mille) { 10 } else { 1 };
            #[expect(clippy::cast_precision_loss, reason = "a model")]
            let transfer = Duration::from_secs_f64(size as f64 / store.bytes_per_second);
            self.pipe = self.pipe.max(self.now) + transfer;
            self.at(self.pipe + latency, What::Arrived(file));
        }
    }

    fn arrived(&mut self, file: FileIndex) {
        self.flights -= 1;
        let (tier, ahead) = match self.held[file.at()] {
            Held::Ahead(tier) => (Some(tier), true),
            Held::Demand(tier) => (tier, false),
            other => unreachable!("{file:?} arrived and is {other:?}"),
        };
        let readers = self.waiting.remove(&file.0).unwrap_or_default();
        self.held[file.at()] = tier.map_or(Held::No, |tier| Held::Here { tier, fresh: ahead && readers.is_empty() });
        match tier {
            Some(tier) => self.tell(Event::Fetched { file, tier, ahead }),
            None => self.tell(Event::Failed { file, kind: ErrorKind::NoSpace }),
        }
        let outcome = if ahead { Outcome::Late } else { Outcome::Miss };
        for (number, (run, reader, since)) in readers.into_iter().enumerate() {
            self.waited += self.now - since;
            self.has_opened(run, reader, file, if number == 0 { outcome } else { Outcome::Late });
        }
        self.launch();
    }
}

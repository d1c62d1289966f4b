//! The one task that owns the [`Planner`]: events in, actions out. It decides nothing.
//!
//! Readers reach it over a bounded queue that they never wait on; the door over another. Orders are computed on a blocking thread. When
//! this task is gone (it panicked, or the mount drains), the mount is a plain cached one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior};

use crate::cache::hash_of;
use crate::dataset::maps::NamesText;
use crate::dataset::{Manifest, Node};
use crate::fetch::{Door, DoorEvent, WHOLE_MAX_BYTES};
use crate::infer::{Engine, Followed, InferConfig, Inference, JobResult, Memo, Told};
use crate::observe::record::Recorder;
use crate::observe::watch::Watcher;
use crate::order::SharedSampler;
use crate::order::spec::OrderSpec;
use crate::plan::{Action, EpochFiles, Event, OrderIndex, OrderState, Planner, Way};
use crate::stats::Stats;
use crate::types::{Epoch, ErrorKind, FileIndex, ObjectId, ObjectMeta, ReadEvent};

mod announce;
mod gathering;
mod jobs;
pub mod keeping;
mod report;
mod searching;
pub mod starved;
mod texts;

pub use report::predicted;
use starved::Starvation;

/// Events taken from a queue at once.
const BATCH: usize = 256;
/// How often the planner hears that time has passed, and stats are written.
const TICK: Duration = Duration::from_millis(100);
/// Orders taken from readers' environments at most.
const DECLARED_MAX: usize = 64;
/// Orders computed and not yet taken.
const COMPUTED_MAX: usize = 8;

/// One order of this mount.
#[derive(Debug)]
pub struct Order {
    pub spec: OrderSpec,
    pub sampler: SharedSampler,
    /// File of each sample index.
    pub samples: Arc<[FileIndex]>,
}

/// What the task works with.
pub struct Parts {
    pub manifest: Arc<Manifest>,
    pub door: Arc<Door>,
    pub stats: Arc<Stats>,
    pub orders: Vec<Order>,
    /// How orders are found out, where none is declared.
    pub infer: Option<InferConfig>,
    /// Where orders are kept for later runs; none without a cache directory.
    pub keeper: Option<keeping::Keeper>,
    /// Where every open is recorded.
    pub recorder: Option<Recorder>,
    /// Whether readers' environments are looked at for hints.
    pub peek: bool,
    /// Orders found elsewhere ([`crate::infer::Inference::import`]).
    pub imports: mpsc::Receiver<OrderSpec>,
    /// Resolves when all that an earlier run left in the cache is known.
    pub scanned: oneshot::Receiver<()>,
    /// What the memory tier, the first one, may hold now; the sender is gone where there is none.
    pub memory_limit: watch::Receiver<u64>,
    /// The version of a file that readers get now.
    pub object: Arc<dyn Fn(FileIndex) -> ObjectMeta + Send + Sync>,
    /// Tells the kernel to drop a file's pages; must not block.
    pub invalidate: Arc<dyn Fn(FileIndex) + Send + Sync>,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("orders", &self.orders).finish_non_exhaustive()
    }
}

type Computed = (OrderIndex, Epoch, Way, Arc<EpochFiles>);

struct Task {
    parts: Parts,
    /// Of the files of the manifest.
    mean_bytes: u64,
    engine: Engine,
    /// An order is, or was, followed: what the cache has is planned. Before, the mount is a plain cached one.
    planned: bool,
    /// All that an earlier run left in the cache is known.
    scanned: bool,
    searching: searching::Searching,
    /// Who reads; none where no order is found out.
    watcher: Option<Watcher>,
    began: Instant,
    actions: Vec<Action>,
    /// File of each version asked for and not yet answered.
    asked: HashMap<ObjectId, FileIndex>,
    starvation: Starvation,
    gathering: gathering::Gathering,
    announcer: announce::Announcer,
    texts: texts::Texts,
    computed: mpsc::Sender<Computed>,
    report: report::Reporter,
    /// Of each order, as published.
    states: Vec<OrderState>,
    /// What readers declared in their environment, each once.
    declared: HashSet<String>,
    jobs: jobs::Jobs,
}

/// Runs until the senders are gone or `stop` says so.
pub async fn run(
    parts: Parts,
    mut reads: mpsc::Receiver<ReadEvent>,
    mut landings: mpsc::Receiver<DoorEvent>,
    mut stop: watch::Receiver<bool>,
) {
    let (computed, mut orders) = mpsc::channel(COMPUTED_MAX);
    let (searched, mut results) = mpsc::channel(searching::SEARCHES_MAX);
    let (texts, mut read_texts) = mpsc::channel(texts::TEXTS_MAX);
    let mut remembered = keeping::load(parts.keeper.clone().filter(|_| parts.infer.is_some()));
    let mut task = Task::new(parts, computed, searched, texts);
    let mut scanning = true;
    task.tick();
    task.act();
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut read_batch, mut landing_batch) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    let (mut gathered, mut gathering) = (std::pin::pin!(tokio::time::sleep(Duration::ZERO)), false);
    loop {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            // nobody waits for what they tell before anything is planned
            n = landings.recv_many(&mut landing_batch, BATCH), if task.planned || !gathering => {
                if n == 0 { break }
                for event in landing_batch.drain(..) { task.landed(event); }
            }
            () = &mut gathered, if gathering => gathering = false,
            n = reads.recv_many(&mut read_batch, BATCH), if !gathering => {
                if n == 0 { break }
                gathering = n < BATCH;
                let now = task.now();
                for event in read_batch.drain(..) { task.read(now, event); }
                let followed = task.is_followed();
                gathered.as_mut().reset(Instant::now() + task.gathering.time(followed));
            }
            _ = &mut task.parts.scanned, if scanning => {
                scanning = false;
                task.scanned = true;
                if task.planned { task.found(); }
            }
            Ok(()) = task.parts.memory_limit.changed() => {
                let bytes = *task.parts.memory_limit.borrow_and_update();
                task.handle(Event::Capacity { tier: 0, bytes });
            }
            Some((order, epoch, way, files)) = orders.recv() => task.handle(Event::Order { order, epoch, way, files }),
            Some(spec) = task.parts.imports.recv() => task.import(spec),
            Some((result, seconds)) = results.recv() => task.searched(result, seconds),
            Some(text) = read_texts.recv() => task.engine.text(text),
            Some(memo) = remembered.recv() => task.remember(memo),
            _ = tick.tick() => task.tick(),
        }
        task.settle();
        task.act();
        task.search();
        task.keep();
        task.tell_changes();
    }
    task.searching.stop();
    task.publish();
    task.keep_last().await;
}

impl Task {
    fn new(
        parts: Parts,
        computed: mpsc::Sender<Computed>,
        searched: mpsc::Sender<(JobResult, f64)>,
        texts: mpsc::Sender<NamesText>,
    ) -> Self {
        let sizes: Arc<[u64]> = (0..parts.manifest.len()).map(|i| parts.manifest.object(FileIndex(narrow(i))).size).collect();
        let files = sizes.len();
        let mean_bytes =
            sizes.iter().fold(0, |sum: u64, &size| sum.saturating_add(size)) / u64::try_from(sizes.len().max(1)).unwrap_or(u64::MAX);
        let tiers = parts.stats.tiers.iter().map(|tier| tier.capacity_bytes.get()).collect();
        let planner = Planner::new(report::planner_config(tiers), Arc::clone(&sizes));
        let inference = parts.infer.map(|config| Inference::new(Arc::clone(&parts.manifest), sizes, config));
        let mut engine = Engine::new(planner, inference);
        for order in &parts.orders {
            engine.declare(
                report::order_config(&order.spec),
                Followed::declared(order.spec.clone(), Arc::clone(&order.sampler), Arc::clone(&order.samples)),
            );
        }
        let start = |_| match Watcher::start("/proc", parts.peek, Arc::clone(&parts.stats)) {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                tracing::warn!("no thread to see who reads: {error}");
                None
            }
        };
        let watcher = parts.infer.and_then(start);
        let threads = parts.infer.map_or(1, |infer| infer.threads);
        // until an order is found the mount is a plain cached one
        parts.door.tell_landings(parts.infer.is_none());
        Self {
            planned: parts.infer.is_none(),
            scanned: false,
            searching: searching::Searching::new(threads, Arc::clone(&parts.stats), searched),
            watcher,
            parts,
            mean_bytes,
            engine,
            began: Instant::now(),
            actions: Vec::new(),
            asked: HashMap::new(),
            starvation: Starvation::default(),
            gathering: gathering::Gathering::default(),
            announcer: announce::Announcer::new(files),
            texts: texts::Texts::new(texts),
            computed,
            report: report::Reporter::default(),
            states: Vec::new(),
            declared: HashSet::new(),
            jobs: jobs::Jobs::default(),
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn since_began(&self, at: std::time::Instant) -> Duration {
        Instant::from_std(at).saturating_duration_since(self.began)
    }

    fn handle(&mut self, event: Event) {
        self.handle_at(self.now(), event);
    }

    fn handle_at(&mut self, now: Duration, event: Event) {
        self.engine.handle(now, event, &mut self.actions);
    }

    /// Tells the planner what an earlier run left here. It has begun without: what it asked for meanwhile came from there too.
    fn found(&mut self) {
        let cache = Arc::clone(self.parts.door.cache());
        let tiers: HashMap<_, _> = cache.contents().into_iter().map(|(hash, _, tier)| (hash, tier)).collect();
        let present: Vec<(FileIndex, usize)> = (0..self.parts.manifest.len())
            .filter_map(|i| {
                let file = FileIndex(narrow(i));
                let id = self.parts.manifest.object(file).version();
                let tier = *tiers.get(&hash_of(&id))?;
                cache.set_planned(&id, true).then_some((file, tier))
            })
            .collect();
        self.handle(Event::Present(present));
    }

    fn read(&mut self, now: Duration, event: ReadEvent) {
        match event {
            ReadEvent::Opened { file, process, outcome, at } => {
                let then = self.since_began(at);
                if let Some(recorder) = &self.parts.recorder {
                    recorder.record(then, process, file);
                }
                self.starvation.active(then, process);
                self.gathering.opened();
                if let Some(watcher) = &mut self.watcher {
                    watcher.opened(now, process);
                }
                self.handle_at(now, Event::Opened { file, process, outcome });
                if self.parts.infer.is_some() {
                    self.texts.opened(file, &self.parts);
                }
            }
            ReadEvent::Released { file } => self.handle_at(now, Event::Released { file }),
            ReadEvent::WaitBegan { process, at } => self.starvation.wait_began(self.since_began(at), process),
            ReadEvent::WaitEnded { process, at } => self.starvation.wait_ended(self.since_began(at), process),
        }
    }

    fn landed(&mut self, event: DoorEvent) {
        match event {
            DoorEvent::Fetched { id, tier, ahead } => {
                if !self.planned {
                    return; // a plain cached mount: the cache decides
                }
                let Some(file) = self.asked.remove(&id).or_else(|| self.file_of(&id)) else { return };
                self.parts.door.cache().set_planned(&id, true);
                self.handle(Event::Fetched { file, tier, ahead });
            }
            DoorEvent::Failed { id, kind } => {
                if let Some(file) = self.asked.remove(&id) {
                    self.handle(Event::Failed { file, kind });
                }
            }
        }
    }

    fn file_of(&self, id: &ObjectId) -> Option<FileIndex> {
        match self.parts.manifest.find(id.key.strip_prefix(self.parts.manifest.prefix())?) {
            Some(Node::File(file)) => Some(file),
            Some(Node::Dir(_)) | None => None,
        }
    }

    fn tick(&mut self) {
        let (rate, latency_p999) = self.parts.door.measured();
        let in_flight_max = u32::try_from(self.parts.door.objects_at_once(self.mean_bytes)).unwrap_or(u32::MAX);
        let batch_least = self.parts.door.batch_least().map_or(0, |least| u32::try_from(least).unwrap_or(u32::MAX));
        self.handle(Event::Batches { least: batch_least });
        self.handle(Event::Measured {
            bytes_per_second: rate.bytes_per_second,
            latency_p999,
            requests_per_second: rate.requests_per_second,
            in_flight_max,
        });
        self.handle(Event::Tick);
        self.announce();
        self.publish();
    }

    /// Tells the store what comes after what is being fetched, where it wants to know.
    fn announce(&mut self) {
        let now = self.now();
        let Some(most) = self.parts.door.announce_max().filter(|_| self.announcer.is_due(now)) else { return };
        let planner = self.engine.planner();
        let followed = (0..planner.orders()).filter(|&order| planner.order(order).state == OrderState::Locked);
        let upcoming = followed.flat_map(|order| planner.upcoming(order, now, announce::DEPTH)).map(|(_, file)| file);
        let files = self.announcer.next(now, upcoming, |file| planner.is_near(file), most, rand::random());
        let keys = files.into_iter().map(|file| (self.parts.object)(file).key).collect();
        self.parts.door.announce(keys);
    }

    fn act(&mut self) {
        while !self.actions.is_empty() {
            for action in std::mem::take(&mut self.actions) {
                match action {
                    Action::Fetch { file, tier } => self.fetch(file, tier),
                    Action::Retire { file } => {
                        self.parts.door.forget(&(self.parts.object)(file).version());
                        (self.parts.invalidate)(file);
                    }
                    Action::Compute { order, epoch, way } => self.compute(order, epoch, way),
                }
            }
        }
    }

    fn fetch(&mut self, file: FileIndex, tier: usize) {
        let object = (self.parts.object)(file);
        if object.size > WHOLE_MAX_BYTES {
            // read by ranges: whole, it would lie in memory on its way to a disk, outside every budget
            return self.handle(Event::Failed { file, kind: ErrorKind::Invalid });
        }
        self.asked.insert(object.version(), file);
        self.parts.door.prefetch(&object, tier);
    }

    fn compute(&self, order: OrderIndex, epoch: Epoch, way: Way) {
        let Some(wanted) = self.engine.wanted(order, epoch, way) else { return };
        let computed = self.computed.clone();
        tokio::task::spawn_blocking(move || {
            // fails only when the task is gone
            drop(computed.blocking_send((order, epoch, way, Arc::new(wanted.files()))));
        });
    }

    /// An order that another node found: it waits for its readers.
    fn import(&mut self, spec: OrderSpec) {
        if self.engine.import(spec.clone()) {
            self.report.imported(spec);
        }
    }

    /// Lets the inference see what was opened, by whom.
    fn settle(&mut self) {
        let now = self.now();
        match &mut self.watcher {
            Some(watcher) => {
                if watcher.settle() {
                    self.jobs.forget();
                    for (job, hints) in watcher.told() {
                        let ranks = hints.ranks().map(|(world, ranks)| (world, ranks.collect()));
                        let seed = hints.seed.and_then(|seed| u32::try_from(seed).ok());
                        self.engine.told(jobs::number(&job), Told { seed, ranks });
                    }
                    // A candidate like those found elsewhere: opens must confirm it.
                    for spec in watcher.declared() {
                        if self.declared.len() < DECLARED_MAX && self.declared.insert(spec.to_string()) {
                            self.engine.import(spec.clone());
                        }
                    }
                }
                let (readers, jobs) = (watcher.readers(), &mut self.jobs);
                self.engine.settle(now, |process| jobs.of(readers, process));
            }
            None => self.engine.settle(now, |_| Some(jobs::NOBODY)),
        }
    }

    /// Starts the searches that are due.
    fn search(&mut self) {
        for brief in [true, false] {
            while self.searching.may_start(brief)
                && let Some(job) = self.engine.next_job(brief)
            {
                self.searching.start(job);
            }
        }
    }

    /// A search has ended.
    fn searched(&mut self, result: JobResult, seconds: f64) {
        self.searching.ended(result.group(), result.rung.is_brief());
        let now = self.now();
        if !self.engine.finished(now, result, seconds, &mut self.actions) {
            return;
        }
        if self.is_followed() && !self.planned {
            self.planned = true;
            self.parts.door.tell_landings(true);
            if self.scanned {
                self.found();
            }
        }
    }

    fn is_followed(&self) -> bool {
        let planner = self.engine.planner();
        (0..planner.orders()).any(|order| planner.order(order).state == OrderState::Locked)
    }

    /// What an earlier run left.
    fn remember(&mut self, memo: Memo) {
        match memo {
            Memo::Order(spec) => {
                if self.engine.import((*spec).clone()) {
                    self.report.kept(*spec);
                }
            }
            Memo::Pass(kept) => self.engine.remember(kept),
        }
    }

    /// Hands on what later runs gain by.
    fn keep(&mut self) {
        let memos = self.engine.memos(false);
        if let Some(keeper) = self.parts.keeper.as_ref().filter(|_| !memos.is_empty()) {
            drop(keeper.save(memos));
        }
    }

    async fn keep_last(&mut self) {
        let memos = self.engine.memos(true);
        if let Some(keeper) = self.parts.keeper.as_ref().filter(|_| !memos.is_empty()) {
            // fails only when the thread panicked: then it is not kept
            let _ = keeper.save(memos).await;
        }
    }

    /// A change of state is published at once: a tick may be many opens late.
    fn tell_changes(&mut self) {
        let planner = self.engine.planner();
        let orders = planner.orders();
        let changed = self.states.len() != orders || (0..orders).any(|order| self.states[order] != planner.order(order).state);
        if changed {
            self.states = (0..orders).map(|order| planner.order(order).state).collect();
            self.publish();
        }
    }

    fn publish(&mut self) {
        let now = self.now();
        let starved = self.starvation.at(now);
        self.parts.stats.reads.starved_micros.set(u64::try_from(starved.as_micros()).unwrap_or(u64::MAX));
        let manifest = &self.parts.manifest;
        self.report.publish(&self.engine, now, starved, &|file| manifest.path(file).to_owned(), &self.parts.stats);
    }
}

/// Manifests are indexed by `u32`: `Manifest::build` refuses more.
fn narrow(index: usize) -> u32 {
    u32::try_from(index).expect("a manifest has fewer than 2^32 files")
}

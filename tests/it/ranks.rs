//! Many ranks on one node: simulated DataLoaders of up to 64 processes, through the state machine that the daemon runs. Searches take their
//! time, jobs are told apart, epochs turn with new workers, and ranks are as far apart as a run lets them be.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use belady::dataset::Manifest;
use belady::infer::{Engine, InferConfig, Inference, JobResult, Rung, Told};
use belady::order::infer::Control;
use belady::order::mt19937::Mt19937;
use belady::order::torch::randperm;
use belady::plan::{Event, OrderState, Planner, PlannerConfig};
use belady::types::{FileIndex, ObjectMeta, Outcome};

const BRIEF: InferConfig = InferConfig { threads: 1, exhaustive: false, deep: false, patient: false };
/// How long a search takes: some tens of opens of 64 readers.
const SEARCH: Duration = Duration::from_millis(8);
/// ... and for each whole order that is compared with the opens, beside 64 readers that want the cores, too: as measured.
const WHOLE_ORDER: Duration = Duration::from_millis(6);
/// Orders that a look at known ones counts in any case.
const FREE_ORDERS: f64 = 16.0;

/// A die that is the same in every run (xorshift64*).
pub(crate) struct Die(pub(crate) u64);

impl Die {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }
}

/// One open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) at: u64,
    process: u32,
    job: u64,
    sample: u32,
}

/// A job: what each of its ranks here reads, epoch by epoch.
pub(crate) struct Run {
    /// Of the job, or one for each rank.
    pub(crate) jobs: Vec<u64>,
    pub(crate) ranks: Vec<VecDeque<Vec<u32>>>,
    pub(crate) workers: u64,
    pub(crate) batch: usize,
    /// Microseconds of a start, a worker after the other, and a rank after the other.
    pub(crate) begin: (u64, u64),
    /// Whether every step waits for all ranks, as gradients do.
    pub(crate) lockstep: bool,
}

/// A rank's loader.
#[derive(Default)]
struct Loader {
    batches: Vec<Vec<u32>>,
    first_process: u32,
    /// Per worker: its next batch, and the place in it.
    at: Vec<(usize, usize)>,
    done: Vec<bool>,
    /// Epochs that are over, and batches of this one that were used.
    epoch: usize,
    used: usize,
    speed: u64,
}

/// Plays runs that begin at their times; opens in the order of time.
pub(crate) fn play(run: Run, from: u64, first_process: u32, die: &mut Die) -> Vec<Open> {
    let Run { jobs, mut ranks, workers, batch, begin, lockstep } = run;
    let mut loaders: Vec<Loader> = ranks.iter().map(|_| Loader { speed: 800 + die.below(400), ..Loader::default() }).collect();
    let mut due: BinaryHeap<Reverse<(u64, usize, usize)>> = BinaryHeap::new();
    let (mut opens, mut next_process) = (Vec::new(), first_process);
    let mut turn: Vec<(usize, u64)> = (0..ranks.len()).map(|rank| (rank, from + rank as u64 * begin.1)).collect();
    loop {
        for (rank, at) in turn.drain(..) {
            let Some(places) = ranks[rank].pop_front() else {
                loaders[rank].epoch = usize::MAX; // nobody waits for it
                continue;
            };
            let loader = &mut loaders[rank];
            loader.batches = places.chunks(batch).map(<[u32]>::to_vec).collect();
            loader.done = vec![false; loader.batches.len()];
            (loader.first_process, loader.at) = (next_process, (0..workers as usize).map(|worker| (worker, 0)).collect());
            next_process += workers as u32;
            due.extend(
                (0..workers).map(|worker| Reverse((at + (worker + 1) * begin.0 + die.below(begin.0.max(1)), rank, worker as usize))),
            );
        }
        let Some(Reverse((at, rank, worker))) = due.pop() else { return opens };
        let loader = &mut loaders[rank];
        let (number, place) = loader.at[worker];
        let Some(files) = loader.batches.get(number) else { continue };
        if number >= loader.used + 2 * workers as usize {
            due.push(Reverse((at + 500, rank, worker)));
            continue;
        }
        opens.push(Open { at, process: loader.first_process + worker as u32, job: jobs[rank % jobs.len()], sample: files[place] });
        loader.at[worker] = (number, place + 1);
        if place + 1 == files.len() {
            loader.done[number] = true;
            loader.at[worker] = (number + workers as usize, 0);
        }
        due.push(Reverse((at + 10 * loader.speed + die.below(20 * loader.speed), rank, worker)));
        // a step is taken when its batch is there, and all have taken the one before
        let mut goes_on = true;
        while goes_on {
            goes_on = false;
            let slowest = loaders.iter().map(|loader| (loader.epoch, loader.used)).min().unwrap_or_default();
            for (rank, loader) in loaders.iter_mut().enumerate() {
                let all = !lockstep || (loader.epoch, loader.used) == slowest;
                if all && loader.done.get(loader.used).copied().unwrap_or(false) {
                    (loader.used, goes_on) = (loader.used + 1, true);
                    if loader.used == loader.batches.len() {
                        (loader.epoch, loader.used) = (loader.epoch + 1, 0);
                        (loader.batches, loader.done) = (Vec::new(), Vec::new());
                        turn.push((rank, at + 5_000));
                    }
                }
            }
        }
    }
}

/// What ranks of a DistributedSampler read from `start` on, by rank.
pub(crate) fn dealt(n: u32, seed: u64, world: u32, ranks: &[u32], start: u32) -> Vec<Vec<u32>> {
    let order = randperm(n, &mut Mt19937::new(seed));
    let total = n.div_ceil(world) * world;
    ranks.iter().map(|rank| (start + rank..total).step_by(world as usize).map(|place| order[(place % n) as usize]).collect()).collect()
}

/// Several epochs of them.
fn epochs(n: u32, seeds: std::ops::Range<u64>, world: u32, ranks: &[u32]) -> Vec<VecDeque<Vec<u32>>> {
    let mut all = vec![VecDeque::new(); ranks.len()];
    for seed in seeds {
        for (of_rank, places) in all.iter_mut().zip(dealt(n, seed, world, ranks, 0)) {
            of_rank.push_back(places);
        }
    }
    all
}

fn path(sample: u32) -> String {
    format!("train/c{:03}/img_{sample:06}.png", sample / 100)
}

/// The state machine, with searches that take [`SEARCH`].
pub(crate) struct Node {
    pub(crate) engine: Engine,
    running: VecDeque<(u64, JobResult)>,
    job_of: HashMap<u32, u64>,
    pub(crate) opens: u64,
    /// Opens before each order was followed first, or anew with another world.
    pub(crate) locked_at: Vec<(u64, String)>,
    /// Opens since the first lock that no order had, with their number.
    pub(crate) unpredicted: Vec<u64>,
    /// Opens that an order counted as its own while it was believed, and did not have there.
    pub(crate) wrong: u64,
    pub(crate) lost: Vec<(u64, String)>,
    states: Vec<(OrderState, String)>,
}

impl Node {
    pub(crate) fn new(n: u32) -> Self {
        let object = |sample: u32| ObjectMeta { key: path(sample).as_str().into(), size: 1, etag: "".into(), mtime_seconds: 0 };
        let manifest = Arc::new(Manifest::build("", (0..n).map(object).collect()));
        let sizes: Arc<[u64]> = vec![1; manifest.len()].into();
        let planner = Planner::new(PlannerConfig::new(Vec::new()), Arc::clone(&sizes));
        Self {
            engine: Engine::new(planner, Some(Inference::new(manifest, sizes, BRIEF))),
            running: VecDeque::new(),
            job_of: HashMap::new(),
            opens: 0,
            locked_at: Vec::new(),
            unpredicted: Vec::new(),
            wrong: 0,
            lost: Vec::new(),
            states: Vec::new(),
        }
    }

    pub(crate) fn play(&mut self, opens: &[Open]) {
        for open in opens {
            let now = Duration::from_micros(open.at);
            while self.running.front().is_some_and(|(at, _)| *at <= open.at) {
                let (_, result) = self.running.pop_front().expect("just seen");
                let mut out = Vec::new();
                self.engine.finished(now, result, SEARCH.as_secs_f64(), &mut out);
                self.engine.compute_here(now, &mut out);
                self.look();
            }
            self.job_of.insert(open.process, open.job);
            let (mut out, event) =
                (Vec::new(), Event::Opened { file: FileIndex(open.sample), process: open.process, outcome: Outcome::Miss });
            let before = self.unforeseen();
            self.engine.handle(now, event, &mut out);
            for (number, unforeseen) in self.unforeseen().into_iter().enumerate().filter(|&(number, _)| before.contains_key(&number)) {
                self.wrong += unforeseen.1 - before[&number];
            }
            self.opens += 1;
            if self.engine.planner().claimed().is_none() && !self.locked_at.is_empty() {
                self.unpredicted.push(self.opens);
            }
            self.engine.handle(now, Event::Released { file: FileIndex(open.sample) }, &mut out);
            self.engine.compute_here(now, &mut out);
            self.engine.settle(now, |process| self.job_of.get(&process).copied());
            while let Some(job) = self.engine.next_job(true).or_else(|| self.engine.next_job(false)) {
                let result = job.run(Control { stop: &AtomicBool::new(false), threads: 1 });
                let orders = if result.rung == Rung::Known { (result.tried - FREE_ORDERS).max(0.0) } else { 0.0 };
                let until = open.at + (SEARCH + WHOLE_ORDER.mul_f64(orders)).as_micros() as u64;
                self.running.insert(self.running.partition_point(|(at, _)| *at <= until), (until, result));
            }
            self.look();
        }
    }

    /// By order that is believed: opens of its readers that it did not have where they were.
    fn unforeseen(&self) -> HashMap<usize, u64> {
        let views = (0..self.engine.followed().len()).map(|number| (number, self.engine.planner().order(number)));
        views.filter(|(_, view)| view.state == OrderState::Locked).map(|(number, view)| (number, view.observed - view.predicted)).collect()
    }

    /// Whether an order that is said to be this was followed at the last look.
    pub(crate) fn is_followed(&self, what: &str) -> bool {
        self.states.iter().any(|(state, words)| *state == OrderState::Locked && words.contains(what))
    }

    fn look(&mut self) {
        for (number, followed) in self.engine.followed().iter().enumerate() {
            let view = self.engine.planner().order(number);
            let now =
                (view.state, format!("world {} ranks {} seed {}", followed.spec.world, followed.spec.ranks_text(), followed.spec.seed));
            if self.states.len() == number {
                self.states.push((OrderState::Searching, String::new()));
            }
            if self.states[number] != now {
                match now.0 {
                    OrderState::Locked => self.locked_at.push((self.opens, format!("{number}: {} epoch {}", now.1, view.epoch))),
                    _ => self.lost.push((self.opens, format!("{number}: {} {}", now.1, view.note))),
                }
                self.states[number] = now;
            }
        }
    }

    pub(crate) fn text(&self) -> String {
        let counts: Vec<String> = (0..self.engine.followed().len())
            .map(|number| {
                let view = self.engine.planner().order(number);
                format!("{number}: {} epoch {}, {} observed, {} predicted", view.state.as_str(), view.epoch, view.observed, view.predicted)
            })
            .collect();
        format!(
            "{} opens, {} wrong; locked {:?}; lost {:?}; {} unpredicted {:?}; {counts:?}",
            self.opens,
            self.wrong,
            self.locked_at,
            self.lost,
            self.unpredicted.len(),
            &self.unpredicted[..self.unpredicted.len().min(100)]
        )
    }
}

/// Opens until all first processes have opened something.
pub(crate) fn with_all(opens: &[Open], processes: usize) -> u64 {
    let mut seen = std::collections::HashSet::new();
    opens.iter().position(|open| seen.insert(open.process) && seen.len() == processes).expect("all come") as u64 + 1
}

/// A job on ranks 0 to 7 of 128, three epochs.
fn job(n: u32, jobs: Vec<u64>, begin: (u64, u64), lockstep: bool) -> Vec<Open> {
    let ranks: Vec<u32> = (0..8).collect();
    play(Run { jobs, ranks: epochs(n, 0..3, 128, &ranks), workers: 8, batch: 4, begin, lockstep }, 0, 100, &mut Die(3))
}

/// Opens while a search runs, and at most until the next one is due.
pub(crate) const WHILE_SEARCHED: u64 = 48;

#[test]
fn eight_ranks_of_a_world_are_one_order_through_its_epochs() {
    for (lockstep, begin) in [(true, (2_000, 3_000)), (false, (2_000, 3_000)), (true, (300, 0))] {
        let opens = job(16_000, vec![1], begin, lockstep);
        let mut node = Node::new(16_000);
        node.play(&opens);
        let text = format!("{lockstep} {begin:?}: {}", node.text());
        let allowed = (with_all(&opens, 64) + 16).max(128) + WHILE_SEARCHED;
        assert!(node.locked_at.len() == 1 && node.locked_at[0].0 <= allowed, "{allowed} allowed: {text}");
        assert!(node.locked_at[0].1.contains("world 128 ranks 0-7 "), "{text}");
        assert!(node.lost.is_empty() && node.unpredicted.is_empty(), "{text}");
        let view = node.engine.planner().order(0);
        assert!(view.observed == view.predicted && view.observed == 3_000 - node.locked_at[0].0, "{text}");
    }
}

/// All ranks end up in one order, and only opens before that are not foretold.
fn become_one(opens: &[Open]) {
    let mut node = Node::new(24_000);
    node.play(opens);
    let text = node.text();
    assert_eq!(node.engine.followed().len(), 1, "{text}");
    assert!(node.lost.is_empty() && node.locked_at.last().expect("locked").1.contains("ranks 0-7 "), "{text}");
    // a rank has read 8 opens until it is looked for, and as many as come while it is
    let complete = node.locked_at.last().expect("locked").0;
    assert!(node.unpredicted.iter().all(|&open| open <= complete), "{text}");
    assert!(node.unpredicted.len() <= 7 * 24, "{text}");
}

#[test]
fn ranks_that_begin_later_are_taken_in() {
    become_one(&job(24_000, vec![1], (5_000, 40_000), true));
}

/// What launchers say in the environment: true, of another world, of other ranks. Only where opens agree, ranks are known before they begin.
#[test]
fn an_environment_is_a_hint_that_opens_confirm() {
    let opens = job(24_000, vec![1], (5_000, 40_000), true);
    for (world, ranks, helps) in [(128, 0..8, true), (2, 0..2, false), (8, 0..8, false), (128, 8..16, false)] {
        let mut node = Node::new(24_000);
        node.engine.told(1, Told { seed: Some(77), ranks: Some((world, ranks.clone().collect())) });
        node.play(&opens);
        let text = format!("{world} {ranks:?}: {}", node.text());
        assert_eq!(node.engine.followed().len(), 1, "{text}");
        assert!(node.lost.is_empty() && node.locked_at.iter().all(|(_, what)| what.contains("world 128 ")), "{text}");
        assert!(node.locked_at.last().expect("locked").1.contains("ranks 0-7 "), "{text}");
        assert_eq!(node.locked_at.len() == 1 && node.unpredicted.is_empty(), helps, "{text}");
    }
}

/// The seed is Lightning's, and nobody would guess it.
#[test]
fn the_seed_of_the_environment_is_tried() {
    let run = |told: Option<u32>| {
        let n = 6_000;
        let all = epochs(n, 3_141_592_653..3_141_592_655, 16, &[4, 5]);
        let opens =
            play(Run { jobs: vec![1], ranks: all, workers: 2, batch: 8, begin: (2_000, 3_000), lockstep: true }, 0, 100, &mut Die(9));
        let mut node = Node::new(n);
        if told.is_some() {
            node.engine.told(1, Told { seed: told, ranks: None });
        }
        node.play(&opens);
        (node.locked_at.len(), node.text())
    };
    let (locked, text) = run(Some(3_141_592_653));
    assert_eq!(locked, 1, "{text}");
    assert_eq!(run(None).0, 0, "brief searches do not find it");
    assert_eq!(run(Some(5)).0, 0, "nor does another");
}

/// A script that is started anew for each epoch, a second after the last.
#[test]
fn a_process_for_each_epoch_goes_on_in_one_order() {
    let n = 3_000;
    let (mut node, mut die, mut from) = (Node::new(n), Die(11), 0);
    for epoch in 0..5u32 {
        let ranks = epochs(n, u64::from(epoch)..u64::from(epoch) + 1, 1, &[0]);
        let run = Run { jobs: vec![u64::from(epoch) + 1], ranks, workers: 4, batch: 16, begin: (2_000, 0), lockstep: true };
        let opens = play(run, from, 100 + 100 * epoch, &mut die);
        node.play(&opens);
        from = opens.last().expect("opens").at + 1_000_000;
    }
    let text = node.text();
    assert_eq!((node.engine.followed().len(), node.locked_at.len()), (1, 1), "{text}");
    assert!(node.lost.is_empty() && node.unpredicted.is_empty(), "{text}");
    let view = node.engine.planner().order(0);
    assert!(view.epoch == 4 && view.observed == 5 * u64::from(n) - node.locked_at[0].0, "{text}");
}

/// From eight terminals, so that nothing but the opens tells that they belong together.
#[test]
fn ranks_that_are_jobs_of_their_own_become_one_order() {
    become_one(&job(24_000, (1..9).collect(), (2_000, 60_000), true));
}

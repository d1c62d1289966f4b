//! Orders whose passes take turns over one cache: training, validation, training.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use super::simulate::{Forecast, Readers, Run, Script};
use super::tests::{check_followed, run_of, shuffled, simulation};
use super::{Action, Event, OrderConfig, Planner, PlannerConfig};
use crate::types::{FileIndex, Outcome};

/// Training and validation in turn; each waits for the other.
fn in_turn(n: u32, m: u32, passes: u64, readers: Readers, compute: [Duration; 2]) -> Vec<Run> {
    let train = Run { compute: compute[0], after: Some(1), lead: 1, ..run_of(&shuffled(0..n, 1, 1, 0..1), passes, readers) };
    let validation = Run { compute: compute[1], after: Some(0), ..run_of(&shuffled(n..n + m, 2, 1, 0..1), passes, readers) };
    vec![train, validation]
}

/// A script of one process that opens files one after the other; each fetch takes `LATENCY`.
struct Line {
    planner: Planner,
    scripts: Vec<Script>,
    now: Duration,
    here: Vec<bool>,
    fresh: Vec<bool>,
    used: u64,
    capacity: u64,
    flying: Vec<bool>,
    events: BinaryHeap<Reverse<(Duration, u32)>>,
    ticked: Duration,
}

const LATENCY: Duration = Duration::from_millis(20);
const TICK: Duration = Duration::from_millis(100);

impl Line {
    fn new(files: u32, capacity: u64, scripts: Vec<Script>) -> Self {
        let config = PlannerConfig { in_flight_max: 32, ..PlannerConfig::new(vec![capacity]) };
        let mut planner = Planner::new(config, vec![1000; files as usize].into());
        scripts.iter().for_each(|_| _ = planner.add_order(OrderConfig::default()));
        let no = vec![false; files as usize];
        let mut line = Self {
            planner,
            scripts,
            now: Duration::ZERO,
            here: no.clone(),
            fresh: no.clone(),
            used: 0,
            capacity,
            flying: no,
            events: BinaryHeap::new(),
            ticked: Duration::ZERO,
        };
        line.tell(Event::Tick);
        line
    }

    fn tell(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut out = Vec::new();
            self.planner.handle(self.now, event, &mut out);
            for action in out {
                match action {
                    Action::Compute { order, epoch, way } => {
                        events.push(Event::Order { order, epoch, way, files: Arc::new((self.scripts[order].0)(epoch)) });
                    }
                    Action::Fetch { file, .. } => {
                        assert!(!self.here[file.at()] && !self.flying[file.at()]);
                        if self.used + 1000 > self.capacity {
                            events.insert(0, Event::Failed { file, kind: crate::types::ErrorKind::NoSpace });
                            continue;
                        }
                        self.used += 1000;
                        self.flying[file.at()] = true;
                        self.events.push(Reverse((self.now + LATENCY, file.0)));
                    }
                    Action::Retire { file } => {
                        self.here[file.at()] = false;
                        self.used -= 1000;
                    }
                }
            }
        }
    }

    /// Time goes on until then.
    fn until(&mut self, then: Duration) {
        loop {
            let arrival = self.events.peek().map(|Reverse((at, _))| *at).unwrap_or(Duration::MAX);
            let next = arrival.min(self.ticked + TICK);
            if next > then {
                break;
            }
            self.now = self.now.max(next);
            if next == arrival {
                let Some(Reverse((_, file))) = self.events.pop() else { continue };
                self.flying[file as usize] = false;
                self.here[file as usize] = true;
                self.fresh[file as usize] = true;
                self.tell(Event::Fetched { file: FileIndex(file), tier: 0, ahead: true });
            } else {
                self.ticked = next;
                self.tell(Event::Tick);
            }
        }
        self.now = self.now.max(then);
    }

    /// True if it was neither here nor on its way.
    fn open(&mut self, file: FileIndex, compute: Duration) -> bool {
        let outcome = match (self.here[file.at()], self.flying[file.at()]) {
            (true, _) if std::mem::take(&mut self.fresh[file.at()]) => Outcome::InTime,
            (true, _) => Outcome::Retained,
            (_, true) => Outcome::Late,
            _ => Outcome::Miss,
        };
        if outcome == Outcome::Late {
            while self.flying[file.at()] {
                self.until(self.now + Duration::from_millis(1));
            }
            self.fresh[file.at()] = false;
        }
        let room = self.used + 1000 <= self.capacity;
        if outcome == Outcome::Miss {
            self.until(self.now + LATENCY);
            // it may have been asked for meanwhile
            if room && !self.here[file.at()] && !self.flying[file.at()] && self.used + 1000 <= self.capacity {
                self.here[file.at()] = true;
                self.used += 1000;
                self.tell(Event::Fetched { file, tier: 0, ahead: false });
            }
        }
        self.tell(Event::Opened { file, process: 7, outcome });
        self.until(self.now + compute);
        self.tell(Event::Released { file });
        outcome == Outcome::Miss
    }

    /// Files read one after the other, with so many microseconds for each; the misses.
    fn read(&mut self, files: &[FileIndex], compute: u64) -> usize {
        files.iter().filter(|&&file| self.open(file, Duration::from_micros(compute))).count()
    }
}

fn misses(forecast: &Forecast, order: usize) -> Vec<u64> {
    forecast.orders[order].epochs.iter().map(|epoch| epoch.miss).collect()
}

/// From the second epoch on hardly anything is missed that would fit the window: each has all of it while it is read, and the other's front comes when the
/// end of its pass is in sight.
#[test]
fn orders_in_turn_have_the_window_in_turn() {
    let loader = |workers| Readers::Loader { workers, batch: 16, prefetch_factor: 2 };
    for readers in [Readers::Threads { threads: 1 }, loader(2), loader(4)] {
        for (m, per_mille) in [(100, 250), (300, 250), (300, 500)] {
            let runs = in_turn(1000 - m, m, 5, readers, [5000, 1000].map(Duration::from_micros));
            let forecast = simulation(1000, 1000 * per_mille, runs).run();
            (0..2).for_each(|order| check_followed(&forecast, order));
            let (train, validation) = (misses(&forecast, 0), misses(&forecast, 1));
            assert!(
                train[1..5].iter().chain(&validation[1..5]).all(|&miss| miss <= 2),
                "{readers:?} {m} {per_mille}: {train:?} {validation:?}"
            );
            // what is given up and fetched again costs little
            let bound: u64 = forecast.orders.iter().flat_map(|order| &order.epochs).map(|epoch| epoch.bound_store_bytes).sum();
            assert!(forecast.store_bytes * 100 <= bound * 110, "{readers:?} {m} {per_mille}: {} of {bound}", forecast.store_bytes);
        }
    }
}

/// Training goes on while it is validated: both begin when the epoch ends.
#[test]
fn validation_beside_the_next_epoch_leaves_training_its_room() {
    for (m, per_mille) in [(700, 500), (200, 300)] {
        let mut runs = in_turn(800, m, 6, super::tests::LOADER, [5000, 100].map(Duration::from_micros));
        (runs[0].after, runs[0].lead) = (None, 0);
        let forecast = simulation(800 + m, u64::from(800 + m) * per_mille, runs).run();
        check_followed(&forecast, 0);
        let train = misses(&forecast, 0);
        assert!(train[1..6].iter().all(|&miss| miss <= 88), "{m} {per_mille}: {train:?}");
    }
}

/// What a script looks at between two epochs (`dataset[0]`) lies anywhere in the next one. It is no reader that went past what lies before.
#[test]
fn single_reads_far_into_the_next_epoch_leave_no_gap() {
    let n = 1500;
    for (validation, strays) in [(0, 1), (0, 2), (300, 1), (300, 2)] {
        for place in [0, 40, 400, 700, 1300] {
            let mut scripts = vec![shuffled(0..n, 5, 1, 0..1)];
            scripts.extend((validation > 0).then(|| shuffled(n..n + validation, 6, 1, 0..1)));
            let mut line = Line::new(n + validation, 400_000, scripts.clone());
            for epoch in 0..3 {
                let missed = line.read(&(scripts[0].0)(epoch).files, 2000);
                assert!(missed <= 10, "{validation} {strays} {place}: {missed} in epoch {epoch}");
                let others = scripts.get(1).map_or(Vec::new(), |script| (script.0)(epoch).files);
                let (before, after) = others.split_at(others.len() / 2);
                line.read(before, 1000);
                let next = (scripts[0].0)(epoch + 1).files;
                line.read(&[next[place], next[place + 37]][..strays], 2000);
                line.read(after, 1000);
            }
        }
    }
}

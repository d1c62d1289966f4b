//! The planner's own count: every open of an exactly right order is where it was predicted, and what it predicts is there in time.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::simulate::Dice;
use super::{Action, EpochFiles, Event, OrderConfig, OrderState, Planner, PlannerConfig, Way};
use crate::order::mt19937::Mt19937;
use crate::order::torch::randperm;
use crate::types::{Epoch, FileIndex, Outcome};

/// An epoch of `DataLoader(shuffle=True)` after `torch.manual_seed(seed)`.
pub(super) fn torch(n: u32, seed: u64, epoch: Epoch) -> Vec<FileIndex> {
    torch_from(n, seed, 3 + 4 * epoch)
}

/// ... that is seeded with an output of the default generator.
pub(super) fn torch_from(n: u32, seed: u64, output: u64) -> Vec<FileIndex> {
    let mut default = Mt19937::new(seed);
    default.skip(output);
    randperm(n, &mut Mt19937::new(u64::from(default.random()))).into_iter().map(FileIndex).collect()
}

/// A loader whose workers are new processes each epoch and begin up to a round of batches apart.
pub(super) struct Loader {
    pub(super) workers: usize,
    pub(super) batch: usize,
    pub(super) dice: Dice,
    pub(super) next_process: u32,
}

impl Loader {
    fn below(&mut self, n: usize) -> usize {
        usize::try_from((self.dice.next() >> 33) % n as u64).expect("small")
    }

    /// The opens of an epoch: worker w reads batches w, w + W, ..; main hands batch b out when batch b − 2W was delivered in order.
    pub(super) fn epoch(&mut self, files: &[FileIndex]) -> Vec<(u32, FileIndex)> {
        let first = self.next_process;
        self.next_process += u32::try_from(self.workers).expect("few");
        if self.workers == 1 {
            return files.iter().map(|&file| (first, file)).collect();
        }
        let batches: Vec<&[FileIndex]> = files.chunks(self.batch).collect();
        let round = self.workers * self.batch;
        let starts: Vec<usize> = (0..self.workers).map(|_| self.below(round)).collect();
        let mut queues: Vec<VecDeque<(usize, usize)>> = vec![VecDeque::new(); self.workers]; // (batch, place in it)
        let (mut handed, mut delivered, mut complete) = (0, 0, vec![false; batches.len()]);
        let mut opens = Vec::with_capacity(files.len());
        while opens.len() < files.len() {
            while handed < batches.len() && handed < delivered + 2 * self.workers {
                queues[handed % self.workers].push_back((handed, 0));
                handed += 1;
            }
            let ready: Vec<usize> = (0..self.workers).filter(|&w| opens.len() >= starts[w] && !queues[w].is_empty()).collect();
            let worker = if ready.is_empty() {
                (0..self.workers).find(|&w| !queues[w].is_empty()).expect("some are left")
            } else {
                ready[self.below(ready.len())]
            };
            let (batch, at) = queues[worker].pop_front().expect("ready");
            opens.push((first + u32::try_from(worker).expect("few"), batches[batch][at]));
            if at + 1 < batches[batch].len() {
                queues[worker].push_front((batch, at + 1));
            } else {
                complete[batch] = true;
                while delivered < batches.len() && complete[delivered] {
                    delivered += 1;
                }
            }
        }
        opens
    }
}

/// The planner beside a store that answers at once.
pub(super) struct Desk {
    pub(super) planner: Planner,
    pub(super) here: HashSet<u32>,
    pub(super) now: Duration,
    pub(super) orders: Vec<Box<dyn Fn(Epoch, Way) -> EpochFiles>>,
}

impl Desk {
    pub(super) fn new(files: u32, capacity: u64) -> Self {
        let planner = Planner::new(PlannerConfig::new(vec![capacity]), vec![1000; files as usize].into());
        Self { planner, here: HashSet::new(), now: Duration::ZERO, orders: Vec::new() }
    }

    pub(super) fn tell(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let mut out = Vec::new();
            self.planner.handle(self.now, event, &mut out);
            for action in out {
                match action {
                    Action::Fetch { file, tier } => {
                        self.here.insert(file.0);
                        events.push_back(Event::Fetched { file, tier, ahead: true });
                    }
                    Action::Retire { file } => {
                        self.here.remove(&file.0);
                    }
                    Action::Compute { order, epoch, way } => {
                        events.push_back(Event::Order { order, epoch, way, files: Arc::new((self.orders[order])(epoch, way)) });
                    }
                }
            }
        }
    }

    /// True if it was here.
    pub(super) fn open(&mut self, process: u32, file: FileIndex) -> bool {
        self.now += Duration::from_millis(1);
        if self.now.as_millis().is_multiple_of(100) {
            self.tell(Event::Tick);
        }
        let here = self.here.contains(&file.0);
        self.tell(Event::Opened { file, process, outcome: if here { Outcome::InTime } else { Outcome::Miss } });
        if !here {
            self.here.insert(file.0);
            self.tell(Event::Fetched { file, tier: 0, ahead: false });
        }
        self.tell(Event::Released { file });
        here
    }
}

#[test]
fn every_open_of_a_right_order_is_predicted_whatever_the_loader() {
    let mut bad = Vec::new();
    for (n, workers, batch, seed) in [
        (2_000, 1, 32, 42),
        (2_000, 4, 32, 123_456),
        (2_000, 2, 32, 42),
        (2_000, 8, 16, 7),
        (10_000, 4, 256, 1),
        (5_000, 16, 64, 3),
        (300, 4, 32, 5),
        (2_000, 4, 1, 5),
    ] {
        // every other run has workers that persist
        for run in 1..6 {
            let mut desk = Desk::new(n, u64::from(n) * 400 + 8_000_000);
            desk.orders.push(Box::new(move |epoch, _| EpochFiles { files: torch(n, seed, epoch), stride: 1 }));
            desk.planner.add_order(OrderConfig::default());
            desk.tell(Event::Tick);
            let mut loader = Loader { workers, batch, dice: Dice::new(run), next_process: 100 };
            let (mut opens, mut misses) = (0, [0u64; 4]);
            for epoch in 0..4u64 {
                if run % 2 == 0 {
                    loader.next_process = 100;
                }
                for (process, file) in loader.epoch(&torch(n, seed, epoch)) {
                    opens += 1;
                    misses[epoch as usize] += u64::from(!desk.open(process, file));
                }
                desk.tell(Event::Tick);
            }
            let order = desk.planner.order(0);
            assert_eq!(order.state, OrderState::Locked, "{}", order.note);
            let accesses: Vec<u64> = desk.planner.epochs(0).map(|epoch| epoch.accesses).collect();
            if (order.observed, order.predicted) != (opens, opens) || misses[1..].iter().any(|&m| m > 0) || accesses != [u64::from(n); 4] {
                bad.push(format!(
                    "n={n} W={workers} B={batch} run {run}: {} of {} ({opens} opens), misses {misses:?} of {accesses:?}",
                    order.predicted, order.observed
                ));
            }
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}

/// Validation after each epoch: from its second pass on it is there before its readers, although training's look-ahead is full.
#[test]
fn validation_is_fetched_ahead_beside_a_full_look_ahead() {
    let (n, m) = (2_000u32, 200u32);
    for workers in [1, 2, 4] {
        let mut desk = Desk::new(n + m, u64::from(n + m) * 200);
        desk.orders.push(Box::new(move |epoch, _| EpochFiles { files: torch(n, 7, epoch), stride: 1 }));
        desk.orders.push(Box::new(move |_, _| EpochFiles { files: (n..n + m).map(FileIndex).collect(), stride: 1 }));
        desk.planner.add_order(OrderConfig::default());
        desk.planner.add_order(OrderConfig::default());
        desk.tell(Event::Tick);
        let mut loader = Loader { workers, batch: 32, dice: Dice::new(1), next_process: 100 };
        let validation: Vec<FileIndex> = (n..n + m).map(FileIndex).collect();
        for epoch in 0..4u64 {
            for (process, file) in loader.epoch(&torch(n, 7, epoch)) {
                desk.open(process, file);
            }
            let misses = loader.epoch(&validation).into_iter().filter(|&(process, file)| !desk.open(process, file)).count();
            assert!(epoch == 0 || misses <= 8, "{workers} workers, epoch {epoch}: {misses} misses");
        }
        let rows: Vec<u64> = desk.planner.epochs(1).map(|epoch| epoch.accesses).collect();
        assert_eq!(rows, [u64::from(m); 4], "{workers} workers");
        assert_eq!(desk.planner.order(1).predicted, desk.planner.order(1).observed);
    }
}

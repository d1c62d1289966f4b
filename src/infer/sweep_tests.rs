//! Jobs of a sweep: several read the same files at the same time, over a cache that is small against the data.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::verify::{Logged, manifest_of};
use super::{Engine, InferConfig, Inference, Memo, Rung};
use crate::order::infer::Control;
use crate::order::mt19937::Mt19937;
use crate::order::spec::OrderKind;
use crate::order::torch::randperm;
use crate::plan::{Event, OrderState, Planner, PlannerConfig};
use crate::types::{FileIndex, Outcome};

const N: u32 = 1_500;
/// Files that the cache holds.
const CACHED: usize = 400;

/// xorshift64
struct Die(u64);

impl Die {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// What a sweep reads.
#[derive(Clone, Copy, Debug)]
enum Read {
    /// `DataLoader(shuffle=True)` of a seed.
    Torch(u64),
    /// Another order each epoch, that no search finds.
    Unknown(u64),
}

impl Read {
    fn order(self, epoch: u32) -> Vec<u32> {
        match self {
            Self::Torch(seed) => {
                let mut generator = Mt19937::new(seed);
                generator.skip(3 + 4 * u64::from(epoch));
                randperm(N, &mut Mt19937::new(u64::from(generator.random())))
            }
            Self::Unknown(seed) => {
                let mut die = Die((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(epoch + 1) << 32);
                let mut order: Vec<u32> = (0..N).collect();
                (1..u64::from(N)).rev().for_each(|i| order.swap(i as usize, die.below(i + 1) as usize));
                order
            }
        }
    }
}

/// An open, and whose.
#[derive(Clone, Copy, Debug)]
struct Open {
    micros: u64,
    job: u64,
    process: u32,
    file: u32,
}

/// A reader of a job: what it has still to read, and when it reads next.
struct Reader {
    process: u32,
    micros: u64,
    files: VecDeque<u32>,
}

/// Jobs that begin so many milliseconds apart, with so many workers (0: none) that are new ones in each epoch.
fn sweep(jobs: &[Read], workers: u32, epochs: u32, apart: u64, die: u64) -> Vec<Open> {
    let (mut die, mut opens, mut cached) = (Die(die), Vec::new(), VecDeque::new());
    let mut readers: Vec<Vec<Reader>> = jobs.iter().map(|_| Vec::new()).collect();
    let mut next_epoch = vec![0; jobs.len()];
    loop {
        for (job, own) in readers.iter_mut().enumerate() {
            let epoch = next_epoch[job];
            if own.iter().any(|reader| !reader.files.is_empty()) || epoch == epochs {
                continue;
            }
            next_epoch[job] += 1;
            let begins = own.iter().map(|reader| reader.micros).max().unwrap_or(job as u64 * apart * 1_000) + 3_000;
            let (order, of) = (jobs[job].order(epoch), workers.max(1));
            *own = (0..of)
                .map(|worker| Reader {
                    process: 1_000 * (job as u32 + 1) + if workers == 0 { 0 } else { worker + workers * epoch },
                    micros: begins + u64::from(worker) * 2_000,
                    files: order.chunks(16).skip(worker as usize).step_by(of as usize).flatten().copied().collect(),
                })
                .collect();
        }
        let all = readers.iter_mut().zip(1u64..).flat_map(|(own, job)| own.iter_mut().map(move |reader| (job, reader)));
        let next = all.filter(|(_, reader)| !reader.files.is_empty()).min_by_key(|(_, reader)| reader.micros);
        let Some((job, reader)) = next else { return opens };
        let file = reader.files.pop_front().unwrap();
        opens.push(Open { micros: reader.micros, job, process: reader.process, file });
        let is_here = cached.contains(&file);
        if !is_here {
            cached.push_back(file);
            cached.drain(..cached.len().saturating_sub(CACHED));
        }
        let of_batch = if reader.files.len() % 16 == 0 { 1_500 } else { 0 };
        let held_up = if die.below(50) == 0 { 8_000 } else { 0 };
        reader.micros += if is_here { 300 } else { 3_000 } + die.below(400) + of_batch + held_up;
    }
}

/// What came of it.
struct Played {
    engine: Engine,
    opens: usize,
    /// Opens that an order had where they were.
    claimed: usize,
    /// By rung.
    searches: [usize; Rung::ALL.len()],
    /// Each time an order was locked: opens before, and its kind and epochs.
    locks: Vec<(usize, OrderKind, Option<u64>)>,
    /// Passes that were kept.
    kept: usize,
    /// Opens at which nothing was locked any more.
    lost: Vec<usize>,
}

/// `job`: as it is known.
fn play(opens: &[Open], job: impl Fn(&Open) -> u64) -> Played {
    let path = |sample: u32| format!("train/c{}/img_{sample:05}.png", sample / 150);
    let log: Vec<Logged> = (0..N).map(|sample| Logged { at: Duration::ZERO, process: 0, path: path(sample) }).collect();
    let manifest = Arc::new(manifest_of(&log));
    let sizes: Arc<[u64]> = vec![1; manifest.len()].into();
    let planner = Planner::new(PlannerConfig::new(Vec::new()), Arc::clone(&sizes));
    let config = InferConfig { exhaustive: false, ..InferConfig::default() };
    let engine = Engine::new(planner, Some(Inference::new(manifest, sizes, config)));
    let (searches, locks, lost) = ([0; Rung::ALL.len()], Vec::new(), Vec::new());
    let mut played = Played { engine, opens: opens.len(), claimed: 0, searches, locks, kept: 0, lost };
    let (mut out, mut locked) = (Vec::new(), HashMap::new());
    for (number, open) in opens.iter().enumerate() {
        let (engine, now) = (&mut played.engine, Duration::from_micros(open.micros));
        let (file, process) = (FileIndex(open.file), open.process);
        engine.handle(now, Event::Opened { file, process, outcome: Outcome::Miss }, &mut out);
        played.claimed += usize::from(engine.planner().claimed().is_some());
        engine.compute_here(now, &mut out);
        engine.settle(now, |_| Some(job(open)));
        while let Some(search) = engine.next_job(true).or_else(|| engine.next_job(false)) {
            played.searches[search.rung() as usize] += 1;
            let result = search.run(Control { stop: &AtomicBool::new(false), threads: 1 });
            engine.finished(now, result, 0.0, &mut out);
            engine.compute_here(now, &mut out);
        }
        played.kept += engine.memos(false).iter().filter(|memo| matches!(memo, Memo::Pass(_))).count();
        for (order, followed) in engine.followed().iter().enumerate() {
            let is_locked = engine.planner().order(order).state == OrderState::Locked;
            match (locked.insert(order, is_locked).unwrap_or(false), is_locked) {
                (false, true) => played.locks.push((number, followed.spec.kind, followed.spec.epochs)),
                (true, false) => played.lost.push(number),
                _ => {}
            }
        }
    }
    played
}

/// Three orders are one then, and the planner has an open in whichever of them is nearer: each explains it. The passes of the others were broken
/// off by it again and again, searched for (hundreds of times a minute) and kept.
#[test]
fn jobs_that_read_one_order_at_once_are_searched_for_once() {
    for (jobs, workers, apart) in [(3, 2, 5), (3, 0, 100), (2, 2, 1_000)] {
        let opens = sweep(&vec![Read::Torch(0); jobs], workers, 3, apart, 7_919);
        let played = play(&opens, |open| open.job);
        let shown = format!("{jobs} {workers} {apart}: {} of {}, {:?}, {:?}", played.claimed, played.opens, played.searches, played.locks);
        assert!(played.claimed * 100 >= played.opens * 99, "{shown}");
        assert!(played.searches.iter().sum::<usize>() <= 40 && played.kept == 0, "{shown}");
        assert!(played.locks.iter().all(|(_, kind, _)| *kind != OrderKind::List), "{shown}");
    }
}

/// Nobody knows whose opens they are: a «pass» is what one reads until it has some files that another one had.
#[test]
fn what_several_readers_read_is_kept_by_nobody_and_not_searched_for_each_time() {
    let jobs = [0, 1, 2].map(Read::Unknown);
    let played = play(&sweep(&jobs, 0, 2, 5, 7_919), |_| 1);
    assert_eq!((played.kept, played.locks.len()), (0, 0), "{:?}", played.locks);
    let of = |rung: Rung| played.searches[rung as usize];
    assert!(of(Rung::Usual) + of(Rung::Likely) <= 16, "{:?}", played.searches);
}

/// A job that is broken off has read a part of its pass: one that reads the same again is followed to the part's end, and not beyond, whatever else
/// that part may be taken for: the order of its own names, or a pass that was kept.
#[test]
fn a_part_of_a_pass_is_no_pass() {
    let order = Read::Unknown(3).order(0);
    let part = 600;
    let read = |job: u64, from: u64, files: &[u32]| -> Vec<Open> {
        let open = |(&file, at)| Open { micros: from + at * 2_000, job, process: job as u32, file };
        files.iter().zip(0u64..).map(open).collect()
    };
    let again = [order.clone(), order.clone(), order.clone()].concat();
    let opens = [read(1, 0, &order[..part]), read(2, 6_000_000, &again)].concat();
    let played = play(&opens, |open| open.job);
    let shown = format!("{:?} {:?} {:?}", played.locks, played.lost, played.engine.followed());
    let (at, kind, epochs) = played.locks[0];
    assert!((part + 192..part + 320).contains(&at) && (kind, epochs) == (OrderKind::List, Some(1)), "{shown}");
    // nothing else is believed until it is read again
    assert!((2 * part - 8..2 * part + 8).contains(&played.lost[0]), "{shown}");
    assert!(played.locks.get(1).is_some_and(|lock| lock.0 > part + order.len() + 192), "{shown}");
    assert!(played.locks.iter().all(|lock| lock.1 == OrderKind::List), "{shown}");
    // it was read whole meanwhile: that is a pass
    assert_eq!(played.engine.followed()[0].spec.epochs, None, "{shown}");
    let view = played.engine.planner().order(0);
    assert_eq!((view.state, view.length), (OrderState::Locked, u64::from(N)), "{shown}");
}

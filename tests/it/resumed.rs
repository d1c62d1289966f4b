//! A run that is taken up again on a mount that knew it: with other worlds and other ranks on this node, from within an epoch, by new
//! processes, behind the samples that were used and not behind those that its workers had read ahead.

use std::collections::VecDeque;
use std::ops::Range;

use belady::infer::Memo;

use crate::ranks::{Die, Node, Run, dealt, play, with_all};

const N: u32 = 64_000;
/// Opens after the last new worker's first by which it is found, and no fewer than [`LEAST`] after the first.
const AFTER_LAST: u64 = 64;
const LEAST: u64 = 128;
/// Opens that the order of the run before may have had elsewhere: eight tell, and a search takes some more.
const WRONG: u64 = 24;
/// Seconds until the first open of the next run: an interpreter starts, and torch is loaded.
const START: u64 = 3_000_000;

/// A run's world, its ranks here, and the samples of the whole job from which on and up to which it reads, of the epochs one after the other.
#[derive(Clone)]
struct Leg {
    world: u32,
    ranks: Range<u32>,
    samples: Range<u64>,
}

fn leg(world: u32, ranks: Range<u32>, samples: Range<f64>) -> Leg {
    let samples = (samples.start * f64::from(N)) as u64..(samples.end * f64::from(N)) as u64;
    Leg { world, ranks, samples }
}

impl Leg {
    /// What each rank reads, epoch by epoch, and `ahead` samples more.
    fn lists(&self, ahead: usize) -> Vec<VecDeque<Vec<u32>>> {
        let mut all = vec![VecDeque::new(); self.ranks.len()];
        let (first, last) = (self.samples.start / u64::from(N), (self.samples.end - 1) / u64::from(N));
        let ranks: Vec<u32> = self.ranks.clone().collect();
        for epoch in first..=last {
            let from = if epoch == first { (self.samples.start % u64::from(N)) as u32 } else { 0 };
            let to = if epoch == last { (self.samples.end - epoch * u64::from(N)) as u32 } else { N };
            let most = ((to - from).div_ceil(self.world)) as usize + if epoch == last { ahead } else { 0 };
            for (of_rank, places) in all.iter_mut().zip(dealt(N, epoch, self.world, &ranks, from)) {
                of_rank.push_back(places.into_iter().take(most).collect());
            }
        }
        all
    }
}

/// Plays the legs one after the other. Each but the first is found soon, and little is taken for the order of the leg before.
fn resumed(name: &str, workers: u64, batch: usize, same_job: bool, legs: &[Leg]) {
    let (mut node, mut die, mut from) = (Node::new(N), Die(5), 0);
    for (number, leg) in legs.iter().enumerate() {
        let ahead = 2 * workers as usize * batch;
        let job = if same_job { 1 } else { number as u64 + 1 };
        let readers = leg.ranks.len() * workers as usize;
        let run = Run { jobs: vec![job], ranks: leg.lists(ahead), workers, batch, begin: (2_000, 3_000), lockstep: true };
        let opens = play(run, from, 1_000 * (number as u32 + 1), &mut die);
        let before = node.opens;
        (node.locked_at, node.unpredicted, node.lost, node.wrong) = (Vec::new(), Vec::new(), Vec::new(), 0);
        node.play(&opens);
        let text = format!("{name}, same job {same_job}: world {} from {before}: {}", leg.world, node.text());
        let ranks = if leg.ranks.len() == 1 { leg.ranks.start.to_string() } else { format!("{}-{}", leg.ranks.start, leg.ranks.end - 1) };
        let wanted = format!("world {} ranks {ranks} ", leg.world);
        // The same ranks may just go on, and what is read here as a whole is one order whoever reads it.
        let is_whole = |leg: &Leg| leg.ranks.len() == leg.world as usize;
        let whole = number > 0 && is_whole(leg) && is_whole(&legs[number - 1]);
        let found = node.locked_at.iter().find(|(_, what)| !whole && what.contains(&wanted)).map_or(before, |(at, _)| *at);
        assert!(found > before || node.is_followed(if whole { "" } else { &wanted }), "not found: {text}");
        let allowed = before + (with_all(&opens, readers) + AFTER_LAST).max(LEAST);
        assert!(number == 0 || found <= allowed, "{allowed} allowed: {text}");
        // What was read ahead, and is read again, no order has as its next.
        let again = if whole { ahead as u64 } else { 0 };
        assert!(node.wrong <= WRONG + again, "{} wrong: {text}", node.wrong);
        let later = node.unpredicted.iter().filter(|&&open| open > found).count();
        assert!(later * 100 <= opens.len(), "{later} unpredicted after {found}: {text}");
        assert_eq!(node.engine.followed().len(), 1, "{text}");
        from = opens.last().expect("opens").at + START;
    }
}

fn both(name: &str, workers: u64, batch: usize, legs: &[Leg]) {
    for same_job in [false, true] {
        resumed(name, workers, batch, same_job, legs);
    }
}

/// PyTorch's elastic sampler, as the benchmark has it.
#[test]
fn on_96_then_128_then_64_ranks() {
    both("96 → 128 → 64", 8, 8, &[leg(96, 0..8, 0.0..0.47), leg(128, 0..8, 0.47..1.49), leg(64, 0..8, 1.49..2.1)]);
}

/// Rank r of 64 is ranks r and r + 64 of 128: half of what it opens is where the old order has something.
#[test]
fn on_twice_or_half_as_many_ranks() {
    both("64 → 128", 8, 8, &[leg(64, 8..16, 0.0..0.3), leg(128, 8..16, 0.3..0.9)]);
    both("128 → 64", 8, 8, &[leg(128, 8..16, 0.0..0.4), leg(64, 8..16, 0.4..0.8)]);
    both("16 → 8", 4, 16, &[leg(16, 0..8, 0.0..0.2), leg(8, 0..8, 0.2..0.4)]);
}

#[test]
fn with_other_ranks_on_this_node() {
    both("128 → 128", 8, 8, &[leg(128, 0..8, 0.0..0.4), leg(128, 40..48, 0.4..0.9)]);
}

#[test]
fn with_the_same_ranks() {
    both("128 → 128", 8, 8, &[leg(128, 0..8, 0.0..0.4), leg(128, 0..8, 0.4..0.9)]);
}

#[test]
fn on_many_ranks_after_one_and_on_one_after_many() {
    both("1 → 8", 4, 32, &[leg(1, 0..1, 0.0..0.15), leg(8, 0..8, 0.15..0.4)]);
    both("8 → 1", 4, 32, &[leg(8, 0..8, 0.0..0.2), leg(1, 0..1, 0.2..0.4)]);
}

/// On a mount that has only what an earlier one kept.
#[test]
fn from_what_an_earlier_mount_kept() {
    let (mut before, mut die) = (Node::new(N), Die(5));
    let first = leg(128, 0..8, 0.0..1.4);
    let run = |leg: &Leg, from, process, die: &mut Die| {
        let ranks = leg.lists(128);
        play(Run { jobs: vec![1], ranks, workers: 8, batch: 8, begin: (2_000, 3_000), lockstep: true }, from, process, die)
    };
    before.play(&run(&first, 0, 1_000, &mut die));
    let kept = before.engine.memos(true);
    for (world, samples) in [(64, 1.4..1.8), (128, 0.7..0.9), (96, 1.105..1.3)] {
        let leg = leg(world, 8..16, samples);
        let mut node = Node::new(N);
        for memo in kept.clone() {
            let Memo::Order(spec) = memo else { continue };
            node.engine.import(*spec);
        }
        let opens = run(&leg, START, 2_000, &mut die);
        node.play(&opens);
        let wanted = format!("world {world} ranks 8-15 ");
        let allowed = (with_all(&opens, 64) + AFTER_LAST).max(LEAST);
        let found = node.locked_at.iter().find(|(_, what)| what.contains(&wanted)).map(|(at, _)| *at);
        assert!(found.is_some_and(|at| at <= allowed), "{wanted}, {allowed} allowed: {}", node.text());
        assert!(node.wrong == 0 && node.engine.followed().len() == 1, "{}", node.text());
    }
}

/// Several epochs on.
#[test]
fn epochs_after_it_was_found() {
    both("epochs", 8, 8, &[leg(128, 0..8, 0.0..4.2), leg(64, 0..8, 4.2..4.6)]);
}

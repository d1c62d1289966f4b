//! WebDataset without a seed, or with a text: its generator is seeded with one of the first million numbers, so the shards that each of a loader's workers
//! opens are enough to find it.
//!
//! Each worker has every t-th shard, where t workers read in all, and all of them draw the same numbers. An item leaves the buffer by one draw, so the
//! front of a stream gives the first draws. Source: `webdataset/compat.py`, `filters.py`.
//!
//! Not here: seeds of processes that each drew their own, and runs whose ranks read on other nodes only.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::super::cost;
use super::super::job::Search;
use super::super::torch::USUAL_SEEDS;
use super::{HITS_MAX, Price};
use crate::dataset::maps::CandidateMap as Map;
use crate::order::infer::Sighting;
use crate::order::infer::backward::{Backward, agrees, drawn};
use crate::order::python::{Random, Seed};
use crate::order::spec::{OrderKind, OrderSpec};
use crate::order::webdataset::{Buffer, draws};
use crate::types::{Rank, SampleIndex};

/// `random.randint(0, 1000000)`.
const SEEDS: Range<u64> = 0..1_000_001;
/// Seeds after which it ends if one is proved: some milliseconds.
const SLICE: usize = 1 << 16;
/// `shardshuffle`, as scripts have it, the likeliest first; and the items gathered before the first is given.
const BUFFERS: [u32; 6] = [100, 1_000, 500, 200, 50, 10];
const INITIAL: u32 = 100;
/// Draws of one stream from which a seed is no chance: 40 bits with ten shards to choose from.
const DRAWS_LEAST: usize = 12;
/// Shards at most: more files are samples.
const SHARDS_MAX: u32 = 1 << 16;
/// How many times as much as torch's seeds those of Python cost.
const PYTHON: f64 = 4.5;
/// Core-seconds of one that passes the first draw: its whole state, one word after the other, and a block of outputs.
const WHOLE_SECONDS: f64 = 6e-6;

/// How shards are dealt to the streams here, and what the streams drew.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Drawn {
    world: u32,
    ranks: Vec<Rank>,
    workers: u32,
    buffer: Buffer,
    /// The longest stream's; the others agree with it as far as they chose from as many.
    draws: Vec<(u32, u32)>,
}

/// All that may be, without two that come to the same search.
pub(super) fn drawn_here(sighting: &Sighting) -> Vec<Drawn> {
    if !sighting.streams_known || sighting.n > SHARDS_MAX {
        return Vec::new();
    }
    let mut streams: BTreeMap<u32, Vec<SampleIndex>> = BTreeMap::new();
    for &(stream, sample) in &sighting.opens {
        let stream = streams.entry(stream).or_default();
        if !stream.contains(&sample) {
            stream.push(sample);
        }
    }
    let streams: Vec<Vec<SampleIndex>> = streams.into_values().collect();
    let Some((world, ranks, workers)) = dealt(&streams) else { return Vec::new() };
    let mut found: Vec<Drawn> = Vec::new();
    for size in BUFFERS {
        let buffer = Buffer { size, initial: INITIAL };
        let turn = (world * workers) as usize;
        let all: Option<Vec<_>> =
            streams.iter().map(|given| draws((given[0] % (world * workers)..sighting.n).step_by(turn), buffer, given)).collect();
        let Some(draws) = all.as_deref().and_then(agreed) else { continue };
        if draws.len() >= DRAWS_LEAST && found.iter().all(|other| other.draws != draws) {
            found.push(Drawn { world, ranks: ranks.clone(), workers, buffer, draws });
        }
    }
    found
}

/// Streams that draw the same numbers: the longest of them, if the others agree with it.
fn agreed(streams: &[Vec<(u32, u32)>]) -> Option<Vec<(u32, u32)>> {
    let longest = streams.iter().max_by_key(|draws| draws.len())?;
    let agrees = |draws: &Vec<(u32, u32)>| {
        let alike = draws.iter().zip(longest).take_while(|(one, other)| one.0 == other.0);
        alike.into_iter().all(|(one, other)| one.1 == other.1)
    };
    streams.iter().all(agrees).then(|| longest.clone())
}

/// World, ranks here and workers of each: shard s is worker s / world % workers of rank s % world.
fn dealt(streams: &[Vec<SampleIndex>]) -> Option<(u32, Vec<Rank>, u32)> {
    let steps = streams.iter().flat_map(|stream| stream.iter().map(|&shard| shard.abs_diff(stream[0])));
    let turn = steps.fold(0, gcd);
    let mine: BTreeSet<u32> = streams.iter().map(|stream| stream[0].checked_rem(turn).unwrap_or(0)).collect();
    if turn == 0 || mine.len() < streams.len() {
        return None;
    }
    (1..=turn).filter(|world| turn.is_multiple_of(*world)).find_map(|world| {
        let ranks: BTreeSet<Rank> = mine.iter().map(|place| place % world).collect();
        let workers = turn / world;
        (ranks.len() * workers as usize == mine.len()).then(|| (world, ranks.into_iter().collect(), workers))
    })
}

const fn gcd(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Search<'_> {
    pub(super) fn shards_price(&self, map: &Map) -> Price {
        let seeds = SEEDS.end as f64;
        let of = |drawn: Drawn| PYTHON * cost::seeds(seeds, 1) + seeds / (f64::from(drawn.draws[0].0) + 1.0) * WHOLE_SECONDS;
        let price: f64 = drawn_here(&self.job.sighting(map)).into_iter().map(of).sum();
        if price > 0.0 { Price::Of(price) } else { Price::Skipped }
    }

    /// Numbers and texts that give the draws.
    pub(super) fn shards(&mut self, map: &Map) {
        for drawn_here in drawn_here(&self.job.sighting(map)) {
            self.tried += (SEEDS.end + USUAL_SEEDS.len() as u64) as f64;
            let texts = USUAL_SEEDS.map(|seed| seed.to_string().into_boxed_str());
            let is_drawn = |text: &str| agrees(Backward::Python, Random::of(&Seed::Text(text.into())).generator(), &drawn_here.draws);
            for text in texts.into_iter().filter(|text| is_drawn(text)) {
                self.shards_of(map, &drawn_here, 0, Some(text));
            }
            for start in SEEDS.step_by(SLICE) {
                if self.is_over() {
                    return;
                }
                let slice = start..SEEDS.end.min(start + SLICE as u64);
                for seed in drawn(Backward::Python, &drawn_here.draws, 0, slice, self.control, None).into_iter().take(HITS_MAX) {
                    self.shards_of(map, &drawn_here, u64::from(seed), None);
                }
            }
        }
    }

    fn shards_of(&mut self, map: &Map, drawn: &Drawn, seed: u64, seed_text: Option<Box<str>>) {
        let kind = OrderKind::Webdataset { buffer: drawn.buffer, deterministic: false };
        let why = if seed_text.is_some() { "a usual text as WDS_SEED" } else { "all seeds that webdataset takes by itself" };
        let spec = OrderSpec {
            seed_text,
            world: drawn.world,
            ranks: drawn.ranks.clone(),
            workers: Some(drawn.workers),
            ..Self::spec(map, kind, seed)
        };
        self.confirm(map, spec, 0, why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_dealt_to_ranks_and_then_to_workers() {
        let stream = |first: u32, turn: u32| [5, 0, 3, 8, 1].map(|k| first + turn * k).to_vec();
        let of = |firsts: &[u32], turn| dealt(&firsts.iter().map(|&first| stream(first, turn)).collect::<Vec<_>>());
        assert_eq!(of(&[0], 1), Some((1, vec![0], 1)));
        assert_eq!(of(&[2, 0, 3, 1], 4), Some((1, vec![0], 4)));
        // rank 1 of 4 with 3 workers; ranks 2 and 3 of 4 with 2
        assert_eq!(of(&[1, 5, 9], 12), Some((4, vec![1], 3)));
        assert_eq!(of(&[2, 3, 6, 7], 8), Some((4, vec![2, 3], 2)));
        // a worker has not begun, and two that have the same shards
        assert_eq!(of(&[0, 1, 2], 4), Some((4, vec![0, 1, 2], 1)));
        assert_eq!(of(&[0, 4], 4), None);
        assert_eq!(dealt(&[]), None);
    }

    #[test]
    fn draws_are_those_of_the_generator() {
        let spec: OrderSpec = "webdataset:seed=777:buffer=100:workers=3".parse().unwrap();
        let places = spec.sampler(900).unwrap().order(0).places;
        let opens: Vec<(u32, SampleIndex)> = (0..).map(|k: u32| 2 - k % 3).zip(places).take(60).collect();
        let all = drawn_here(&Sighting { n: 900, opens: opens.clone(), streams_known: true });
        // the larger buffers are not to be told from one another yet
        assert_eq!(all.iter().map(|drawn| drawn.buffer.size).collect::<Vec<_>>(), [100, 1000]);
        assert!(agrees(Backward::Python, Random::of(&Seed::Number(777)).generator(), &all[0].draws));
        assert!(!agrees(Backward::Python, Random::of(&Seed::Number(777)).generator(), &all[1].draws));
        // what is opened twice is one shard; a stray refutes
        let twice = opens.iter().flat_map(|&open| [open, open]).collect();
        assert_eq!(drawn_here(&Sighting { n: 900, opens: twice, streams_known: true }), all);
        let stray = opens.iter().copied().chain([(0, 899)]).collect();
        assert!(drawn_here(&Sighting { n: 900, opens: stray, streams_known: true }).is_empty());
    }
}

//! An order that starts deep in a stream of torch's generator: its state from 20,000 places, and the seed that it came from.

use std::collections::BTreeMap;

use super::super::job::Search;
use super::super::maps::MapSet;
use super::{MAPS_OF_COSTLY, Price};
use crate::dataset::maps::CandidateMap as Map;
use crate::order::infer::linear::{Solved, solve};
use crate::order::infer::needed::LINEAR_PLACES;
use crate::order::infer::rewind::rewind;
use crate::order::infer::turns::Turns;
use crate::order::spec::OrderKind;
use crate::order::torch::{Count, RandomSource, outputs_of_randperm};
use crate::types::{FileIndex, SampleIndex};

/// Outputs looked back over for the seed, 4 core-s: a model of two thousand million parameters was initialised, or hundreds of epochs of
/// ImageNet were drawn.
const BACK_MOST: u64 = 1 << 31;

/// Numbers of samples that are tried: maps of one number are one system of equations.
const NUMBERS_MAX: usize = 2;
/// Core-seconds of one (`benches/README.md`), and of the way back to the seed.
const SECONDS: f64 = 12.0;

impl Search<'_> {
    pub(super) fn linear_price(&self) -> Price {
        if self.step > 0 || self.job.far.len() < LINEAR_PLACES { Price::NotNow } else { Price::Of(SECONDS) }
    }

    /// A generator in any state, whose permutation is read by one process and its workers.
    pub(super) fn linear(&mut self, maps: &mut MapSet) {
        let maps: Vec<Map> = (0..MAPS_OF_COSTLY).map_while(|at| maps.get(at)).collect();
        let mut numbers: Vec<u32> = Vec::new();
        for map in &maps {
            if !numbers.contains(&map.len()) && numbers.len() < NUMBERS_MAX {
                numbers.push(map.len());
            }
        }
        for n in numbers {
            let maps: Vec<(&Map, Turns)> =
                maps.iter().filter(|map| map.len() == n).map(|map| (map, Turns::new(streams(&self.job.far, map)))).collect();
            let supposed: Vec<(usize, usize)> =
                maps.iter().enumerate().flat_map(|(map, (_, turns))| (0..turns.len()).map(move |which| (map, which))).collect();
            if supposed.is_empty() {
                continue;
            }
            self.tried += supposed.len() as f64;
            let order = |at: usize| {
                let (map, which) = supposed[at];
                maps[map].1.order(which)
            };
            let Solved::State { which, words } = solve(n, supposed.len(), &order, self.control) else { continue };
            let Some(at) = rewind(&words, BACK_MOST, self.control) else { continue };
            let map = maps[supposed[which].0].0;
            let source = RandomSource::Stream { offset: at.offset, between: between(n, at.offset) };
            let spec = Self::spec(map, OrderKind::TorchRandom { source, count: Count::default() }, u64::from(at.seed));
            let why = format!("the generator's state after {} outputs of seed {}, by linear algebra", at.offset, at.seed);
            self.prove(map, &spec, 0, &why);
            if self.best.is_some() {
                return;
            }
        }
    }
}

/// Outputs until the next permutation, as the place of this one tells: a generator given to the loader or its sampler draws one more at each
/// epoch's end, torchdata's loader with workers one at each beginning. The default generator is used by others: as often as by a loader alone.
fn between(n: u32, offset: u64) -> u64 {
    let permutation = outputs_of_randperm(n);
    let given = 2 * permutation + RandomSource::BASE_SEED;
    if offset % given == RandomSource::BASE_SEED && offset > given {
        permutation + RandomSource::BASE_SEED
    } else if offset > 0 && offset.is_multiple_of(permutation) {
        permutation
    } else {
        RandomSource::BASE_SEED
    }
}

/// What each process opened, in the sequence of their numbers: a loader's workers are started one after the other. Other files than the map's are
/// other programs'.
fn streams(opens: &[(u32, FileIndex)], map: &Map) -> Vec<Vec<SampleIndex>> {
    let mut streams: BTreeMap<u32, Vec<SampleIndex>> = BTreeMap::new();
    for &(process, file) in opens {
        if let Some(sample) = map.index_of(file) {
            streams.entry(process).or_default().push(sample);
        }
    }
    streams.into_values().collect()
}

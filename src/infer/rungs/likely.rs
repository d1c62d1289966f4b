//! Likely seeds of torch's generators, breadth first: what is likely and cheap of all families, then deeper.
//!
//! Seeds are tried in vector code (`order/infer/exhaustive`).

use std::ops::Range;

use super::super::job::{Clue, Search};
use super::super::proof;
use super::super::torch::{Fronts, OUTPUTS, USUAL_SEEDS};
use super::{HITS_MAX, fronts};
use crate::dataset::maps::CandidateMap as Map;
use crate::order::infer::dictionary::{SMALL_SEEDS, common_seeds, targets};
use crate::order::infer::exhaustive::{Seeds, exhaustive};
use crate::order::infer::meet::MEET_FROM;
use crate::order::infer::target::{FIRST_PLACES, Target};
use crate::order::mt19937::Mt19937;
use crate::order::spec::OrderKind;
use crate::order::torch::{Count, RandomSource};
use crate::types::Epoch;

/// How deep the first steps of the dictionary go: outputs of the default generators, seeds of a fresh generator for one process that reads
/// everything, and those for any world size and first place (which cost 16,000 draws each). They find what most scripts do in milliseconds.
const DEPTHS: [(u64, u64, u32); 3] = [(64, 512, 64), (1 << 12, 1 << 14, 512), (1 << 14, 1 << 15, 2_048)];
/// Epochs of usual seeds that the first step tries, for one process that reads everything, and for ranks of a world.
const USUAL_EPOCHS: u32 = 16;
const USUAL_EPOCHS_DEALT: u32 = 3;
/// Opens from which on the dictionary goes beyond its first step: before, workers may be missing and nothing is found at any depth.
const DEEP_FROM: usize = 64;
/// The seed of a `torch.Generator()` that nobody seeded; its low word counts.
const UNSEEDED: u64 = 67_280_421_310_721;

impl Search<'_> {
    /// Breadth first: what is likely and cheap of all families, then deeper. Seeds are tried in vector code (`order/infer/exhaustive`).
    pub(in crate::infer) fn likely(&mut self, map: &Map) {
        let sighting = self.job.sighting(map);
        if sighting.n < 2 || sighting.opens.len() < proof::OPENS_LEAST {
            return;
        }
        let (whole, given) = (fronts(&sighting, 0), fronts(&sighting, 2));
        let mut dealt = Fronts::new(&sighting);
        let (mut outputs, mut seeds, mut ranks) = (0, 0, 0);
        for (to_output, to_seed, to_rank) in DEPTHS {
            let roots: Vec<u32> = USUAL_SEEDS.iter().map(|&seed| seed as u32).collect();
            self.default_generators(map, &whole, &roots, outputs..to_output);
            self.small_seeds(map, &whole, Seeds::Range(seeds..to_seed));
            if outputs == 0 {
                self.small_seeds(map, &whole, Seeds::List(&usual_sums(USUAL_EPOCHS)));
                self.given_generators(map, &whole, &given);
            }
            self.dealt(map, &mut dealt, ranks..to_rank);
            if outputs == 0 {
                self.dealt(map, &mut dealt, usual_sums(USUAL_EPOCHS_DEALT));
            }
            if self.is_over() || !self.job.deep || sighting.opens.len() < DEEP_FROM {
                return;
            }
            (outputs, seeds, ranks) = (to_output, to_seed, to_rank);
        }
        drop(dealt);
        self.default_generators(map, &whole, &common_seeds(), 0..OUTPUTS);
        if self.is_over() {
            return;
        }
        // At n = 50,000 and more all seeds cost less than these first places.
        let first_places = if sighting.n < MEET_FROM { FIRST_PLACES } else { FIRST_PLACES / 4 };
        let all = targets(std::slice::from_ref(&sighting), first_places);
        self.tried += (SMALL_SEEDS.end - SMALL_SEEDS.start) as f64 * all.len() as f64;
        let found = exhaustive(&all, SMALL_SEEDS, self.control, None);
        self.hits(map, &all, &found.hits, "a small seed");
    }

    /// Outputs of default generators with these seeds.
    fn default_generators(&mut self, map: &Map, whole: &[Target], roots: &[u32], outputs: Range<u64>) {
        if self.is_over() {
            return;
        }
        let each = usize::try_from(outputs.end - outputs.start).unwrap_or(usize::MAX);
        let mut words = Vec::with_capacity(roots.len() * each);
        for &root in roots {
            let mut generator = Mt19937::new(u64::from(root));
            generator.skip(outputs.start);
            words.extend((0..each).map(|_| generator.random()));
        }
        self.tried += words.len() as f64;
        let found = exhaustive(whole, Seeds::List(&words), self.control, None);
        for hit in found.hits.iter().take(HITS_MAX) {
            for at in (0..words.len()).filter(|&at| words[at] == hit.seed) {
                self.default_output(map, u64::from(roots[at / each]), outputs.start + (at % each) as u64);
            }
        }
    }

    fn default_output(&mut self, map: &Map, root: u64, offset: u64) {
        let before = |clue: &&Clue| match clue.spec.kind {
            OrderKind::TorchRandom { source: RandomSource::Default { offset: first, stride }, .. } => {
                clue.spec.seed == root && clue.spec.files == map.rule && first + clue.epoch * stride < offset
            }
            _ => false,
        };
        if let Some(clue) = self.job.clues.iter().find(before) {
            let (spec, epoch) = Self::goes_on(clue, offset);
            self.prove(map, &spec, epoch, "the default generator goes on");
            return;
        }
        let source = RandomSource::Default { offset, stride: RandomSource::STRIDE };
        let spec = Self::spec(map, OrderKind::TorchRandom { source, count: Count::default() }, root);
        self.prove(map, &spec, 0, &format!("output {offset} of the default generator with seed {root}"));
    }

    /// A fresh generator for one process that reads everything.
    fn small_seeds(&mut self, map: &Map, whole: &[Target], seeds: Seeds<'_>) {
        if self.is_over() {
            return;
        }
        self.tried += match &seeds {
            Seeds::Range(range) => (range.end - range.start) as f64,
            Seeds::List(list) => list.len() as f64,
        };
        let found = exhaustive(whole, seeds, self.control, None);
        for hit in found.hits.iter().take(HITS_MAX) {
            self.fresh(map, hit.seed);
        }
    }

    /// A fresh generator, any world size and ranks.
    fn dealt(&mut self, map: &Map, fronts: &mut Fronts, seeds: impl IntoIterator<Item = u32>) {
        for seed in seeds {
            if self.best.is_some() || seed % 16 == 0 && self.control.stopped() {
                return;
            }
            self.tried += 1.0;
            if fronts.fits_dealt(seed) {
                self.fresh(map, seed);
            }
        }
    }

    pub(super) fn fresh(&mut self, map: &Map, seed: u32) {
        let (root, epoch) = split_seed(seed);
        let spec = Self::spec(map, OrderKind::TorchDistributed, root);
        self.prove(map, &spec, epoch, &format!("seed + epoch = {seed} of a fresh generator"));
    }

    /// `DataLoader(generator=g)` and `RandomSampler(generator=g)`, in their first epoch.
    fn given_generators(&mut self, map: &Map, whole: &[Target], given: &[Target]) {
        if self.is_over() {
            return;
        }
        let seeds: Vec<u32> = USUAL_SEEDS.iter().map(|&seed| seed as u32).chain(0..1024).chain([UNSEEDED as u32]).collect();
        self.tried += seeds.len() as f64;
        let full = |seed: u32| if seed == UNSEEDED as u32 { UNSEEDED } else { u64::from(seed) };
        for hit in exhaustive(given, Seeds::List(&seeds), self.control, None).hits.iter().take(HITS_MAX) {
            self.given(map, RandomSource::Loader, full(hit.seed));
        }
        // Small ones are a fresh generator's, too.
        for hit in exhaustive(whole, Seeds::List(&[UNSEEDED as u32]), self.control, None).hits.iter().take(HITS_MAX) {
            self.given(map, RandomSource::Sampler, full(hit.seed));
        }
    }

    pub(super) fn given(&mut self, map: &Map, source: RandomSource, seed: u64) {
        let spec = Self::spec(map, OrderKind::TorchRandom { source, count: Count::default() }, seed);
        self.prove(map, &spec, 0, &format!("a generator with seed {seed}, given to the loader"));
    }
}

/// Usual seeds, each plus the first epochs, without those that the first step has anyhow.
fn usual_sums(epochs: u32) -> Vec<u32> {
    let (_, _, first) = DEPTHS[0];
    let sums = USUAL_SEEDS.iter().flat_map(|&seed| (0..epochs).map(move |epoch| seed as u32 + epoch));
    sums.filter(|&sum| sum >= first).collect()
}

/// Seed and epoch of a sum: a usual seed near below it, or the default seed 0.
fn split_seed(sum: u32) -> (u64, Epoch) {
    let sum = u64::from(sum);
    if sum == 0 || USUAL_SEEDS.contains(&sum) {
        return (sum, 0);
    }
    if sum <= 300 { (0, sum) } else { (sum, 0) }
}

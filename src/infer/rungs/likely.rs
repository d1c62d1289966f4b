//! Likely seeds of torch's generators, breadth first: what is likely and cheap of all families, then deeper.
//!
//! Seeds are tried in vector code (`order/infer/exhaustive`).

use std::ops::Range;

use super::super::cost;
use super::super::group::{DEEP_AT, NODE};
use super::super::job::{Clue, Search};
use super::super::maps::MapSet;
use super::super::proof;
use super::super::torch::{Fronts, NEAR, OUTPUTS, USUAL_SEEDS, WIDE};
use super::numbers::Part;
use super::repeated::REPEATS;
use super::{HITS_MAX, MAPS_OF_COSTLY, PROBES, PROBES_OF_COSTLY, Price, fronts};
use crate::dataset::maps::CandidateMap as Map;
use crate::order::infer::dictionary::{SMALL_SEEDS, common_seeds, targets};
use crate::order::infer::exhaustive::{Seeds, exhaustive};
use crate::order::infer::meet::MEET_FROM;
use crate::order::infer::target::{FIRST_PLACES, Target};
use crate::order::mt19937::Mt19937;
use crate::order::spec::OrderKind;
use crate::order::torch::{Count, RandomSource};
use crate::types::Epoch;

/// The steps, each what it adds.
const STEPS: [Step; 12] = [
    Step::First,
    Step::Model,
    Step::Numbers(Part::First),
    Step::Wide,
    Step::Numbers(Part::Ranks),
    Step::Numbers(Part::Later),
    Step::OtherMaps,
    Step::Ranks,
    Step::Longer,
    Step::WideRanks,
    Step::Common,
    Step::Small,
];

/// Those that the other maps have, too.
const OF_OTHER_MAPS: [Step; 4] = [Step::First, Step::Model, Step::Numbers(Part::First), Step::Wide];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// What most scripts do: a millisecond.
    First,
    /// A small model was initialised before.
    Model,
    /// All seeds of five digits, and dates.
    Numbers(Part),
    /// Ranks of large worlds, and runs resumed in mid-epoch.
    Wide,
    /// All of these in the other maps.
    OtherMaps,
    /// Seed + epoch up to some thousand, at the first ranks.
    Ranks,
    /// A larger model.
    Longer,
    WideRanks,
    /// Less usual seeds behind a model's initialisation.
    Common,
    /// All small seeds, in the first places.
    Small,
}

/// Outputs of usual and common default generators that the first step looks at, a small model's initialisation behind which an epoch's seed lies
/// ([`OUTPUTS`] is a larger one's), seeds of a fresh generator for one process that reads everything, and those for ranks of a world.
const FIRST_OUTPUTS: u64 = 64;
const MODEL_OUTPUTS: u64 = 1 << 14;
const FIRST_SEEDS: u64 = 512;
const FIRST_RANKS: u32 = 64;
const RANKS: u32 = 2_048;
/// Epochs of usual seeds that the first step tries, for one process that reads everything, and for ranks of a world.
const USUAL_EPOCHS: u32 = 16;
const USUAL_EPOCHS_DEALT: u32 = 3;
/// Opens from which on the dictionary goes beyond its first step: before, workers may be missing and nothing is found at any depth.
const DEEP_FROM: usize = DEEP_AT as usize;
/// The seed of a `torch.Generator()` that nobody seeded; its low word counts.
const UNSEEDED: u64 = 67_280_421_310_721;

impl Search<'_> {
    pub(super) fn likely_price(&self, map: &Map, maps: &MapSet) -> Price {
        let (n, opens) = (map.len(), self.job.opens().len());
        let Some(&step) = STEPS.get(self.step as usize) else { return Price::NotNow };
        if n < 2 || opens < proof::OPENS_LEAST {
            return Price::NotNow;
        }
        if !matches!(step, Step::First | Step::Wide | Step::OtherMaps) && (!self.job.deep || opens < DEEP_FROM) {
            return Price::Skipped;
        }
        let usual = USUAL_SEEDS.len() as f64;
        let dealt = |seeds: f64, places: u32| cost::draws(seeds * f64::from(places.min(n)));
        let (first, first_ranks) = (first_seconds(n), first_ranks());
        let model = cost::seeds(usual * (MODEL_OUTPUTS as f64), 2);
        let numbers = |part| self.numbers_price(n, part);
        let wide = dealt(first_ranks, WIDE);
        let (numbering, among) = self.other_maps(maps);
        let times = among as f64;
        Price::Of(match step {
            Step::First => return Price::Free(first),
            Step::Model => return Price::FreeAtFirst(model),
            Step::Numbers(part @ Part::First) => return Price::FreeAtFirst(numbers(part)),
            Step::Numbers(part) => numbers(part),
            Step::Wide if self.streams() >= NODE as usize => return Price::Free(wide),
            Step::OtherMaps if !self.job.deep => 0.0,
            Step::Wide => wide,
            Step::OtherMaps => numbering + (times - 1.0) * (first + model + numbers(Part::First) + wide),
            Step::Ranks => times * dealt(f64::from(RANKS), NEAR),
            Step::Longer => times * cost::seeds(usual * (OUTPUTS - MODEL_OUTPUTS) as f64, 2),
            Step::WideRanks => times * dealt(f64::from(RANKS), WIDE),
            Step::Common => times * cost::seeds(common_seeds().len() as f64 * OUTPUTS as f64, 2),
            Step::Small => {
                let seeds = SMALL_SEEDS.end as f64;
                let firsts = 2 * self.streams();
                times * (cost::seeds(seeds, 2 + first_places(n) as usize) + cost::passing(seeds, first_places(n), firsts, n, opens))
            }
        })
    }

    /// Takes the step that is due.
    pub(super) fn likely(&mut self, maps: &mut MapSet) {
        let step = STEPS[self.step as usize];
        let range = match step {
            Step::First | Step::Model | Step::Numbers(_) | Step::Wide => 0..1,
            Step::OtherMaps => 1..MAPS_OF_COSTLY,
            _ => 0..MAPS_OF_COSTLY,
        };
        for at in range {
            let Some(map) = maps.get(at).filter(|_| !self.is_over()) else { return };
            if step == Step::OtherMaps {
                let deep = self.job.deep && self.job.opens().len() >= DEEP_FROM;
                for step in if deep { &OF_OTHER_MAPS[..] } else { &[Step::First, Step::Wide] } {
                    self.likely_in(&map, *step);
                }
            } else {
                self.likely_in(&map, step);
            }
        }
    }

    fn likely_in(&mut self, map: &Map, step: Step) {
        let sighting = self.job.sighting(map);
        if self.is_over() || sighting.n < 2 || sighting.opens.len() < proof::OPENS_LEAST {
            return;
        }
        let seeds = self.usual_seeds();
        match step {
            Step::First => {
                let (whole, given) = (fronts(&sighting, 0, PROBES), fronts(&sighting, 2, PROBES));
                let common = common_seeds().into_iter().filter(|seed| !seeds.contains(seed));
                let common: Vec<u32> = seeds.iter().copied().chain(common).collect();
                self.default_generators(map, &whole, &common, 0..FIRST_OUTPUTS);
                self.small_seeds(map, &whole, Seeds::Range(0..FIRST_SEEDS));
                self.small_seeds(map, &whole, Seeds::List(&usual_sums(&seeds, USUAL_EPOCHS)));
                self.given_generators(map, &whole, &given);
                let mut dealt = Fronts::new(&sighting);
                self.dealt(map, &mut dealt, NEAR, (0..FIRST_RANKS).chain(usual_sums(&seeds, USUAL_EPOCHS_DEALT)));
                self.dealt_outputs(map, &mut dealt, NEAR);
                self.replaced(map, &mut dealt, 0..FIRST_OUTPUTS);
            }
            Step::Model => {
                let whole = fronts(&sighting, 0, PROBES_OF_COSTLY);
                self.default_generators(map, &whole, &seeds, FIRST_OUTPUTS..MODEL_OUTPUTS);
            }
            Step::Numbers(part) => self.numbers(map, &sighting, part),
            Step::Wide => {
                let mut dealt = Fronts::new(&sighting);
                self.dealt(map, &mut dealt, WIDE, (0..FIRST_RANKS).chain(usual_sums(&seeds, USUAL_EPOCHS_DEALT)));
                self.dealt_outputs(map, &mut dealt, WIDE);
            }
            Step::OtherMaps => {}
            Step::Ranks => self.dealt(map, &mut Fronts::new(&sighting), NEAR, FIRST_RANKS..RANKS),
            Step::Longer => self.default_generators(map, &fronts(&sighting, 0, PROBES_OF_COSTLY), &seeds, MODEL_OUTPUTS..OUTPUTS),
            Step::WideRanks => self.dealt(map, &mut Fronts::new(&sighting), WIDE, FIRST_RANKS..RANKS),
            Step::Common => self.default_generators(map, &fronts(&sighting, 0, PROBES_OF_COSTLY), &common_seeds(), 0..OUTPUTS),
            Step::Small => {
                let all = targets(std::slice::from_ref(&sighting), first_places(sighting.n));
                self.tried += (SMALL_SEEDS.end - SMALL_SEEDS.start) as f64 * all.len() as f64;
                let found = exhaustive(&all, SMALL_SEEDS, self.control, None);
                self.hits(map, &all, &found.hits, "a small seed");
            }
        }
    }

    /// The first step, for the readers of a node: what most scripts do, by whoever has gone some steps.
    pub(in crate::infer) fn usual(&mut self, maps: &mut MapSet) {
        let Some(map) = maps.get(0) else { return };
        self.cost += first_seconds(map.len());
        self.free = self.cost;
        self.likely_in(&map, Step::First);
    }

    /// Seeds people write, and the one that the environment names.
    fn usual_seeds(&self) -> Vec<u32> {
        let usual = USUAL_SEEDS.iter().map(|&seed| seed as u32);
        let told = self.job.told.seed.filter(|&seed| !USUAL_SEEDS.contains(&u64::from(seed)));
        told.into_iter().chain(usual).collect()
    }

    /// Processes among the opens.
    pub(super) fn streams(&self) -> usize {
        self.job.opens().iter().map(|seen| seen.process).collect::<std::collections::HashSet<u32>>().len()
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
        self.default_seeds(map, whole, &words, |at| (roots[at / each], outputs.start + (at % each) as u64));
    }

    /// Epoch seeds, and of which default generator each is which output.
    pub(super) fn default_seeds(&mut self, map: &Map, whole: &[Target], words: &[u32], of: impl Fn(usize) -> (u32, u64)) {
        if self.is_over() {
            return;
        }
        self.tried += words.len() as f64;
        let found = exhaustive(whole, Seeds::List(words), self.control, None);
        for hit in found.hits.iter().take(HITS_MAX) {
            for at in (0..words.len()).filter(|&at| words[at] == hit.seed) {
                let (root, output) = of(at);
                self.default_output(map, u64::from(root), output);
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
    fn dealt(&mut self, map: &Map, fronts: &mut Fronts, places: u32, seeds: impl IntoIterator<Item = u32>) {
        for seed in seeds {
            if self.best.is_some() || seed % 16 == 0 && self.control.stopped() {
                return;
            }
            self.tried += 1.0;
            if fronts.fits_dealt(seed, places) {
                self.fresh(map, seed);
            }
        }
    }

    /// A fresh generator seeded from the default one before anything else was: accelerate's, in several processes.
    fn dealt_outputs(&mut self, map: &Map, fronts: &mut Fronts, places: u32) {
        for root in USUAL_SEEDS {
            let mut generator = Mt19937::new(root);
            let offset = RandomSource::FIRST_SEED;
            generator.skip(offset);
            if self.is_over() {
                return;
            }
            self.tried += 1.0;
            if fronts.fits_dealt(generator.random(), places) {
                self.default_output(map, root, offset);
            }
        }
    }

    pub(super) fn fresh(&mut self, map: &Map, seed: u32) {
        let (root, epoch) = split_seed(seed);
        let spec = Self::spec(map, OrderKind::TorchDistributed, root);
        // The same permutation with every sample three times: timm seeds with the epoch alone.
        let twice = format!("seed + epoch = {seed} of a fresh generator, every sample {REPEATS} times");
        let repeats = REPEATS;
        let kind = if root == 0 { OrderKind::TimmRepeatAug { repeats } } else { OrderKind::TorchvisionRepeatAug { repeats } };
        // Uneven steps are nothing else; even ones are those of a smaller world, too, and then of that.
        self.repeated(map, kind, root, epoch, &twice, |world| !world.is_multiple_of(REPEATS));
        if self.best.is_none() {
            self.prove(map, &spec, epoch, &format!("seed + epoch = {seed} of a fresh generator"));
        }
        if self.best.is_none() {
            self.repeated(map, kind, root, epoch, &twice, |world| world.is_multiple_of(REPEATS));
        }
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
fn usual_sums(seeds: &[u32], epochs: u32) -> Vec<u32> {
    let sums = seeds.iter().flat_map(|&seed| (0..epochs).map(move |epoch| seed.wrapping_add(epoch)));
    sums.filter(|&sum| sum >= FIRST_RANKS).collect()
}

/// At n = 50,000 and more all seeds cost less than these first places.
const fn first_places(n: u32) -> u32 {
    if n < MEET_FROM { FIRST_PLACES } else { FIRST_PLACES / 4 }
}

/// Shuffles that the first step deals to ranks: of small seeds, of usual ones in their first epochs, and of the first output of usual default
/// generators.
fn first_ranks() -> f64 {
    f64::from(FIRST_RANKS + USUAL_SEEDS.len() as u32 * (USUAL_EPOCHS_DEALT + 1))
}

/// Core-seconds of the first step.
fn first_seconds(n: u32) -> f64 {
    cost::draws(first_ranks() * f64::from(NEAR.min(n)))
}

/// Seed and epoch of a sum: a usual seed near below it, or the default seed 0.
fn split_seed(sum: u32) -> (u64, Epoch) {
    let sum = u64::from(sum);
    if sum == 0 || USUAL_SEEDS.contains(&sum) {
        return (sum, 0);
    }
    if sum <= 300 { (0, sum) } else { (sum, 0) }
}

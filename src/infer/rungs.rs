//! The rungs of the ladder, each over one candidate map: which orders are compared with the opens.
//!
//! Source: field notes «orders» §5, §6. The searches through many seeds are `order/infer`'s.

use std::ops::Range;
use std::sync::Arc;

use super::job::{Clue, Found, Search};
use super::proof;
use super::sequential::is_certain;
use super::torch::{self, Fronts, OUTPUTS, USUAL_SEEDS};
use crate::dataset::maps::CandidateMap as Map;
use crate::order::again::Again;
use crate::order::infer::backward::{Backward, backward};
use crate::order::infer::default_generator::{OUTPUTS_OF_COMMON, OUTPUTS_OF_SMALL, locate};
use crate::order::infer::dictionary::{SMALL_SEEDS, common_seeds, epoch_seeds, targets};
use crate::order::infer::exhaustive::{ALL_SEEDS, Hit, exhaustive};
use crate::order::infer::meet::{Assume, meet};
use crate::order::infer::target::{FIRST_PLACES, Target};
use crate::order::mt19937::Mt19937;
use crate::order::spec::{OrderKind, OrderSpec};
use crate::order::torch::{Count, RandomSource};
use crate::plan::EpochFiles;
use crate::types::{Epoch, FileIndex, SampleIndex, SampleRule};

/// Outputs of a known default generator that are looked through for the next epoch's seed: a transform that draws 8 numbers for each of
/// 128,000 samples in the main process (or one, for a million) stays within. By opens seen: the usual strides (two or four outputs a loader)
/// are tried at once.
const AHEAD: [(usize, u64); 3] = [(0, 64), (32, 1 << 14), (128, 1 << 20)];
/// Epochs after a known one that are tried: a resumed run, skipped epochs.
const EPOCHS_AHEAD: Epoch = 64;
/// How deep the first steps of the dictionary go: outputs of the default generators, seeds of a fresh generator for one process that reads
/// everything, and those for any world size and first place (which cost 16,000 draws each). They find what most scripts do in milliseconds.
const DEPTHS: [(u64, u32, u32); 3] = [(64, 1 << 12, 128), (1 << 12, 1 << 14, 512), (1 << 14, 1 << 15, 2_048)];
/// Opens from which on the dictionary goes beyond its first step: before, workers may be missing and nothing is found at any depth.
const DEEP_FROM: usize = 64;
/// Orders of the cheap rung, for the proof's threshold.
const CHEAP_TRIED: f64 = 16.0;
/// Shuffled samples that the rung of other libraries may cost, some seconds of one core.
const SHUFFLED_MAX: u64 = 1 << 29;
/// Seeds below which a fresh generator is more likely than a chance output of a default one.
const FRESH_BELOW: u32 = 1 << 22;
/// Orders without a seed, or whose seed is always the same.
const FIXED: [&str; 3] = ["dali", "dali:stick_to_shard=true", "dlio:loader=files"];
/// Orders that a usual seed may make, in their first epoch.
const SEEDED: [&str; 12] = [
    "numpy-legacy",
    "numpy-generator",
    "python-shuffle",
    "python-sample",
    "torch-subset",
    "torchdata",
    "torchdata:workers=2",
    "webdataset",
    "webdataset:deterministic=true",
    "mosaic:algorithm=py1s:shard_samples=1000",
    "mosaic:shard_samples=1000",
    "grain",
];
/// Those of them that are tried in later epochs, too.
const AGAIN: [&str; 3] = ["numpy-legacy", "numpy-generator", "python-shuffle"];
/// Seeds of the dictionary's first step.
const FIRST_SEEDS: usize = 10;
/// How many.
const LATER_EPOCHS: Epoch = 4;
/// More hits than this are chance: the opens were too few.
const HITS_MAX: usize = 64;

impl Search<'_> {
    pub(super) fn known(&mut self, map: &Map) {
        self.tried = self.tried.max(CHEAP_TRIED);
        // Of this part of the dataset, neither more nor less; and for this pass only, until it has come again.
        if map.root == self.job.root {
            let sequential = |clue: &&Clue| clue.spec.kind == OrderKind::Sequential && clue.spec.root == map.root;
            let known = self.job.clues.iter().find(sequential);
            if known.is_some() || is_certain(&self.job.manifest, &map.root, &map.samples, |file| map.index_of(file), &self.job.front) {
                self.one_epoch = known.is_none_or(|clue| clue.epoch == self.job.pass);
                self.prove(map, &Self::spec(map, OrderKind::Sequential, 0), self.job.pass, "files come in the order of their names");
                self.one_epoch = false;
            }
        }
        for clue in self.job.clues.iter().filter(|clue| clue.spec.root == map.root && clue.spec.files == map.rule) {
            self.follow(map, clue);
        }
        if self.best.is_none() {
            self.recorded(map);
        }
    }

    /// What a known order does next.
    fn follow(&mut self, map: &Map, clue: &Clue) {
        let spec = &clue.spec;
        let sighting = self.job.sighting(map);
        if sighting.n < 2 || sighting.opens.is_empty() {
            return;
        }
        self.prove(map, spec, clue.epoch, "the epoch is read again");
        match spec.kind {
            OrderKind::TorchRandom { source: RandomSource::Default { offset, stride }, count } => {
                let now = offset + clue.epoch * stride;
                let mut fronts = Fronts::new(&sighting);
                let mut from = now + 1;
                for (_, ahead) in AHEAD.into_iter().filter(|&(opens, _)| sighting.opens.len() >= opens) {
                    let next = torch::outputs_that_fit(&mut fronts, spec.seed, from, now + ahead, &self.control);
                    self.tried += (now + ahead - from) as f64;
                    from = now + ahead;
                    for next in next {
                        let stride = next - now;
                        // Numbered on, where the outputs before allow it.
                        let (first, epoch) = match next.checked_sub((clue.epoch + 1).saturating_mul(stride)) {
                            Some(first) => (first, clue.epoch + 1),
                            None => (next, 0),
                        };
                        let source = RandomSource::Default { offset: first, stride };
                        let spec = OrderSpec { kind: OrderKind::TorchRandom { source, count }, ..spec.clone() };
                        let why = format!("the default generator goes on, {stride} outputs after the epoch before");
                        self.prove(map, &spec, epoch, &why);
                    }
                    if self.best.is_some() {
                        break;
                    }
                }
            }
            OrderKind::Sequential | OrderKind::List => {}
            // This epoch's seed was found, and nothing else.
            _ if clue.epochs == Some(1) => {}
            _ => {
                for kind in Self::ways_on(spec.kind) {
                    self.tried += 1.0;
                    self.prove(map, &OrderSpec { kind, ..spec.clone() }, clue.epoch + 1, "the generator of the epoch before goes on");
                }
                for epoch in clue.epoch + 1..=clue.epoch + EPOCHS_AHEAD {
                    self.tried += 1.0;
                    if self.best.is_some() {
                        break;
                    }
                    self.prove(map, spec, epoch, "a later epoch of the order before");
                }
            }
        }
    }

    /// The other ways in which a program may shuffle again.
    fn ways_on(kind: OrderKind) -> Vec<OrderKind> {
        let all = Again::ALL.map(|(_, again)| again);
        let all = all.into_iter();
        match kind {
            OrderKind::NumpyLegacy { .. } => all.map(|again| OrderKind::NumpyLegacy { again }).collect(),
            OrderKind::NumpyGenerator { .. } => all.map(|again| OrderKind::NumpyGenerator { again }).collect(),
            OrderKind::PythonShuffle { .. } => all.map(|again| OrderKind::PythonShuffle { again }).collect(),
            OrderKind::PythonSample { k, .. } => all.map(|again| OrderKind::PythonSample { k, again }).collect(),
            _ => Vec::new(),
        }
    }

    /// The order in which files were read before.
    fn recorded(&mut self, map: &Map) {
        let Some(recorded) = self.job.recorded.as_ref().filter(|recorded| recorded.len() >= 256) else { return };
        let mut spec = Self::spec(map, OrderKind::List, 0);
        spec.files = SampleRule::list("recorded");
        let files = Arc::new(EpochFiles { files: recorded.to_vec(), stride: 1 });
        let evidence = proof::evidence(&files, self.job.opens(), &self.job.sizes);
        let samples: Arc<[FileIndex]> = recorded.iter().copied().collect();
        let Ok(sampler) = spec.sampler(u32::try_from(samples.len()).unwrap_or(0)) else { return };
        if evidence.proves(self.tried) {
            let (ln, why) = (evidence.ln - self.tried.ln(), "files come as they were read before".to_owned());
            self.best = Some((evidence.ln, Found { spec, epoch: self.job.pass, sampler, samples, files, epochs: None, ln, why }));
        }
    }

    /// Breadth first: what is likely and cheap of all families, then deeper.
    pub(super) fn likely(&mut self, map: &Map) {
        let sighting = self.job.sighting(map);
        if sighting.n < 2 || sighting.opens.len() < proof::OPENS_LEAST {
            return;
        }
        let mut fronts = Fronts::new(&sighting);
        let (mut outputs, mut whole, mut dealt) = (0, 0, 0);
        for (to_output, to_whole, to_dealt) in DEPTHS {
            self.default_generators(map, &mut fronts, outputs..to_output);
            self.fresh_generators(map, &mut fronts, whole..to_whole, dealt..to_dealt);
            if outputs == 0 && self.best.is_none() {
                self.given_generators(map, &mut fronts);
            }
            if self.best.is_some() || self.control.stopped() || !self.job.deep || sighting.opens.len() < DEEP_FROM {
                return;
            }
            (outputs, whole, dealt) = (to_output, to_whole, to_dealt);
        }
        // All at once, in vector code: the outputs of 150 default generators, then four million seeds at 64 first places.
        let words = epoch_seeds(&common_seeds(), u32::try_from(OUTPUTS).unwrap_or(u32::MAX));
        let whole: Vec<Target> = targets(std::slice::from_ref(&sighting), 0);
        self.tried += words.len() as f64 * whole.len() as f64;
        let found = exhaustive(&whole, crate::order::infer::exhaustive::Seeds::List(&words), self.control, None);
        self.hits(map, &found.hits, "an output of a usual default generator");
        if self.best.is_some() || self.control.stopped() {
            return;
        }
        let all = targets(std::slice::from_ref(&sighting), FIRST_PLACES);
        self.tried += (SMALL_SEEDS.end - SMALL_SEEDS.start) as f64 * all.len() as f64;
        let found = exhaustive(&all, SMALL_SEEDS, self.control, None);
        self.hits(map, &found.hits, "a small seed");
    }

    fn default_generators(&mut self, map: &Map, fronts: &mut Fronts, outputs: Range<u64>) {
        for root in USUAL_SEEDS {
            self.tried += (outputs.end - outputs.start) as f64;
            for offset in torch::outputs_that_fit(fronts, root, outputs.start, outputs.end, &self.control) {
                self.default_output(map, root, offset);
            }
            if self.best.is_some() || self.control.stopped() {
                return;
            }
        }
    }

    fn default_output(&mut self, map: &Map, root: u64, offset: u64) {
        let source = RandomSource::Default { offset, stride: RandomSource::STRIDE };
        let spec = Self::spec(map, OrderKind::TorchRandom { source, count: Count::default() }, root);
        self.prove(map, &spec, 0, &format!("output {offset} of the default generator with seed {root}"));
    }

    fn fresh_generators(&mut self, map: &Map, fronts: &mut Fronts, whole: Range<u32>, dealt: Range<u32>) {
        self.tried += f64::from(whole.end - whole.start) + f64::from(dealt.end - dealt.start);
        for seed in whole.start.min(dealt.start)..whole.end {
            if whole.contains(&seed) && fronts.fits_from_the_start(seed) || dealt.contains(&seed) && fronts.fits_dealt(seed) {
                self.fresh(map, seed);
            }
            if self.best.is_some() || seed % 256 == 0 && self.control.stopped() {
                return;
            }
        }
    }

    fn fresh(&mut self, map: &Map, seed: u32) {
        let (root, epoch) = split_seed(seed);
        let spec = Self::spec(map, OrderKind::TorchDistributed, root);
        self.prove(map, &spec, epoch, &format!("seed + epoch = {seed} of a fresh generator"));
    }

    /// `DataLoader(generator=g)` and `RandomSampler(generator=g)`, in their first epoch.
    fn given_generators(&mut self, map: &Map, fronts: &mut Fronts) {
        for seed in USUAL_SEEDS.into_iter().chain(0..1024).chain([67_280_421_310_721]) {
            for (source, skip) in [(RandomSource::Loader, 2), (RandomSource::Sampler, 0)] {
                self.tried += 1.0;
                let mut generator = Mt19937::new(seed);
                generator.skip(skip);
                if fronts.fits_whole(&mut generator) {
                    self.given(map, source, seed);
                }
            }
            if self.best.is_some() || self.control.stopped() {
                return;
            }
        }
    }

    fn given(&mut self, map: &Map, source: RandomSource, seed: u64) {
        let spec = Self::spec(map, OrderKind::TorchRandom { source, count: Count::default() }, seed);
        self.prove(map, &spec, 0, &format!("a generator with seed {seed}, given to the loader"));
    }

    /// Seeds that a search found: which stream do they belong to?
    fn hits(&mut self, map: &Map, hits: &[Hit], why: &str) {
        if hits.len() > HITS_MAX {
            return;
        }
        for hit in hits {
            let mut known = false;
            if hit.seed >= FRESH_BELOW {
                let common = locate(hit.seed, &common_seeds(), OUTPUTS_OF_COMMON, self.control);
                let small: Vec<u32> = (0..1 << 16).collect();
                let places = if common.is_empty() { locate(hit.seed, &small, OUTPUTS_OF_SMALL, self.control) } else { common };
                for at in places.iter().take(4) {
                    self.default_output(map, u64::from(at.seed), at.offset);
                    known = self.best.is_some();
                }
            } else {
                self.fresh(map, hit.seed);
                known = self.best.is_some();
            }
            if !known {
                self.given(map, RandomSource::Loader, u64::from(hit.seed));
            }
            if self.best.is_none() {
                // The seed of this one epoch; where it came from is not known.
                self.one_epoch = true;
                let spec = Self::spec(map, OrderKind::TorchDistributed, u64::from(hit.seed));
                self.prove(map, &spec, 0, &format!("seed {} of this epoch, {why}", hit.seed));
                self.one_epoch = false;
            }
            if self.best.is_some() {
                return;
            }
        }
    }

    pub(super) fn meet(&mut self, map: &Map) {
        let sighting = self.job.sighting(map);
        for offset in [0, 2] {
            self.tried += ALL_SEEDS.end as f64;
            let found = meet(&sighting, offset, Assume::Neighbours, self.control);
            self.hits(map, &found.hits, "of all that there are");
            if self.best.is_some() {
                return;
            }
        }
    }

    pub(super) fn exhaustive(&mut self, map: &Map) {
        let sighting = self.job.sighting(map);
        let all = targets(std::slice::from_ref(&sighting), 8);
        self.tried += ALL_SEEDS.end as f64 * all.len() as f64;
        let found = exhaustive(&all, ALL_SEEDS, self.control, None);
        self.hits(map, &found.hits, "of all that there are");
    }

    /// Fixed orders, and shuffles that settle their first place last: a whole order each.
    pub(super) fn others(&mut self, map: &Map) {
        let mut left = SHUFFLED_MAX / u64::from(map.len()).max(1);
        let (seeds, later_epochs) = if self.job.deep { (USUAL_SEEDS.len(), LATER_EPOCHS) } else { (FIRST_SEEDS, 1) };
        let fixed = FIXED.iter().map(|text| (0, (*text).to_owned()));
        let seeded = USUAL_SEEDS.into_iter().take(seeds).flat_map(|seed| SEEDED.iter().map(move |text| (0, format!("{text}:seed={seed}"))));
        // Runs that were joined later; in the first epoch all ways to go on are one.
        let later = (1..later_epochs).flat_map(|epoch| {
            USUAL_SEEDS.into_iter().flat_map(move |seed| {
                AGAIN.iter().flat_map(move |kind| {
                    ["permutation", "in-place", "reseeded"].map(|again| (epoch, format!("{kind}:again={again}:seed={seed}")))
                })
            })
        });
        for (epoch, text) in fixed.chain(seeded).chain(later) {
            if left == 0 || self.best.is_some() || self.control.stopped() {
                return;
            }
            left -= 1;
            self.tried += 1.0;
            let Ok(spec) = text.parse::<OrderSpec>() else { continue };
            let named = Self::spec(map, spec.kind, spec.seed);
            let spec = OrderSpec { id: named.id, root: named.root, files: named.files, ..spec };
            self.prove(map, &spec, epoch, &text);
        }
    }

    /// After an epoch of a shuffle that settles its first place last: the seed, from the order's end; the epoch after it is compared.
    pub(super) fn backward(&mut self, map: &Map) {
        let Some(recorded) = &self.job.recorded else { return };
        let order: Option<Vec<SampleIndex>> = recorded.iter().map(|&file| map.index_of(file)).collect();
        let Some(order) = order.filter(|order| u32::try_from(order.len()) == Ok(map.len())) else { return };
        for (shuffle, kind) in [
            (Backward::Numpy, (|again| OrderKind::NumpyLegacy { again }) as fn(Again) -> OrderKind),
            (Backward::Python, |again| OrderKind::PythonShuffle { again }),
        ] {
            self.tried += ALL_SEEDS.end as f64;
            for seed in backward(shuffle, &order, 0, ALL_SEEDS, self.control, None).into_iter().take(HITS_MAX) {
                for again in [Again::Permutation, Again::InPlace, Again::Reseeded] {
                    let spec = Self::spec(map, kind(again), u64::from(seed));
                    self.prove(map, &spec, 1, &format!("the epoch before was {} with seed {seed}", kind(again)));
                }
            }
            if self.best.is_some() || self.control.stopped() {
                return;
            }
        }
    }
}

/// Seed and epoch of a sum: a usual seed near below it, or the default seed 0.
fn split_seed(sum: u32) -> (u64, Epoch) {
    let sum = u64::from(sum);
    if sum == 0 || USUAL_SEEDS.contains(&sum) {
        return (sum, 0);
    }
    if sum <= 300 { (0, sum) } else { (sum, 0) }
}

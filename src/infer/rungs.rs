//! The rungs of the ladder, each over one candidate map: which orders are compared with the opens.
//!
//! Source: field notes «orders» §5, §6. The searches through many seeds are `order/infer`'s.

use std::ops::Range;

use super::job::{Clue, Search};
use super::proof;
use super::sequential::is_certain;
use super::torch::{self, Fronts, OUTPUTS, USUAL_SEEDS};
use crate::dataset::maps::CandidateMap as Map;
use crate::order::again::Again;
use crate::order::infer::Sighting;
use crate::order::infer::backward::{Backward, backward};
use crate::order::infer::default_generator::{OUTPUTS_OF_COMMON, OUTPUTS_OF_SMALL, locate};
use crate::order::infer::dictionary::{SMALL_SEEDS, common_seeds, targets};
use crate::order::infer::exhaustive::{ALL_SEEDS, Hit, Seeds, exhaustive};
use crate::order::infer::meet::{Assume, MEET_FROM, meet};
use crate::order::infer::target::{FIRST_PLACES, Layout, Target};
use crate::order::mt19937::Mt19937;
use crate::order::spec::{OrderKind, OrderSpec};
use crate::order::torch::{Count, RandomSource};
use crate::types::{Epoch, SampleIndex};

/// Outputs of a known default generator that are looked through for the next epoch's seed: a transform that draws 8 numbers for each of
/// 128,000 samples in the main process (or one, for a million) stays within. By opens seen: the usual strides (two or four outputs a loader)
/// are tried at once.
const AHEAD: [(usize, u64); 3] = [(0, 64), (32, 1 << 14), (128, 1 << 20)];
/// Epochs after a known one that are tried: a resumed run, skipped epochs.
const EPOCHS_AHEAD: Epoch = 64;
/// Samples shuffled for them at most, for one clue.
const AHEAD_SAMPLES: u64 = 1 << 23;
/// How deep the first steps of the dictionary go: outputs of the default generators, seeds of a fresh generator for one process that reads
/// everything, and those for any world size and first place (which cost 16,000 draws each). They find what most scripts do in milliseconds.
const DEPTHS: [(u64, u64, u32); 3] = [(64, 512, 64), (1 << 12, 1 << 14, 512), (1 << 14, 1 << 15, 2_048)];
/// Epochs of usual seeds that the first step tries, for one process that reads everything, and for ranks of a world.
const USUAL_EPOCHS: u32 = 16;
const USUAL_EPOCHS_DEALT: u32 = 3;
/// Opens from which on the dictionary goes beyond its first step: before, workers may be missing and nothing is found at any depth.
const DEEP_FROM: usize = 64;
/// Orders of the cheap rung, for the proof's threshold.
const CHEAP_TRIED: f64 = 16.0;
/// Samples shuffled at most by the rung of other libraries: 2 s of one core at 8 ns each.
const SHUFFLED_MAX: u64 = 1 << 28;
/// Samples of a shard of MosaicML's, as it is tried.
const MOSAIC_SAMPLES: u64 = 1000;
/// Samples of all its shards at most: 4 bytes each, and 30 ms. Datasets of more files are seldom made of shards.
const MOSAIC_MAX: u64 = 1 << 22;
/// The seed of a `torch.Generator()` that nobody seeded; its low word counts.
const UNSEEDED: u64 = 67_280_421_310_721;
/// Default generators kept as clues for one epoch's seed.
const RIVALS_MAX: usize = 4;
/// Orders without a seed, or whose seed is always the same.
const FIXED: [&str; 5] = [
    "dali",
    "dali:stick_to_shard=true",
    "dlio:loader=files",
    "mosaic:algorithm=py1s:shard_samples=1000:seed=9176",
    "mosaic:shard_samples=1000:seed=9176",
];
/// Orders that a usual seed may make, in their first epoch.
const SEEDED: [&str; 10] = [
    "numpy-legacy",
    "numpy-generator",
    "python-shuffle",
    "python-sample",
    "torch-subset",
    "torchdata",
    "torchdata:workers=2",
    "webdataset",
    "webdataset:deterministic=true",
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
            OrderKind::TorchRandom { source: RandomSource::Default { offset, stride }, .. } => {
                let now = offset + clue.epoch * stride;
                let whole = fronts(&sighting, 0);
                let mut from = now + 1;
                for (opens, ahead) in AHEAD.into_iter().filter(|&(opens, _)| sighting.opens.len() >= opens) {
                    let mut next = self.outputs_that_fit(&whole, spec.seed, from..now + ahead);
                    if opens == 0 {
                        // The first few even if a worker has not begun yet.
                        next.extend(torch::outputs_that_fit(&mut Fronts::new(&sighting), spec.seed, from, now + ahead, &self.control));
                        next.sort_unstable();
                        next.dedup();
                    }
                    self.tried += (now + ahead - from) as f64;
                    from = now + ahead;
                    for next in next {
                        let (spec, epoch) = Self::goes_on(clue, next);
                        let why = format!("the default generator goes on, {} outputs after the epoch before", next - now);
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
                // A whole order each.
                let ahead = (AHEAD_SAMPLES / u64::from(map.len())).clamp(2, EPOCHS_AHEAD);
                for epoch in clue.epoch + 1..=clue.epoch + ahead {
                    self.tried += 1.0;
                    if self.best.is_some() {
                        break;
                    }
                    self.prove(map, spec, epoch, "a later epoch of the order before");
                }
            }
        }
    }

    /// The order whose next epoch is seeded with output `next` of the clue's default generator, and that epoch: numbered on, where the
    /// outputs before allow it.
    fn goes_on(clue: &Clue, next: u64) -> (OrderSpec, Epoch) {
        let OrderKind::TorchRandom { source: RandomSource::Default { offset, stride }, count } = clue.spec.kind else {
            return (clue.spec.clone(), clue.epoch);
        };
        let stride = next - (offset + clue.epoch * stride);
        let (offset, epoch) = match next.checked_sub((clue.epoch + 1).saturating_mul(stride)) {
            Some(first) => (first, clue.epoch + 1),
            None => (next, 0),
        };
        let source = RandomSource::Default { offset, stride };
        (OrderSpec { kind: OrderKind::TorchRandom { source, count }, ..clue.spec.clone() }, epoch)
    }

    fn outputs_that_fit(&self, whole: &[Target], seed: u64, outputs: Range<u64>) -> Vec<u64> {
        let mut generator = Mt19937::new(seed);
        generator.skip(outputs.start);
        let words: Vec<u32> = outputs.clone().map(|_| generator.random()).collect();
        let found = exhaustive(whole, Seeds::List(&words), self.control, None);
        let is_hit = |word: u32| found.hits.iter().any(|hit| hit.seed == word);
        outputs.zip(&words).filter(|&(_, &word)| is_hit(word)).map(|(output, _)| output).take(HITS_MAX).collect()
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

    /// Breadth first: what is likely and cheap of all families, then deeper. Seeds are tried in vector code (`order/infer/exhaustive`).
    pub(super) fn likely(&mut self, map: &Map) {
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

    fn is_over(&self) -> bool {
        self.best.is_some() || self.control.stopped()
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

    fn fresh(&mut self, map: &Map, seed: u32) {
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

    fn given(&mut self, map: &Map, source: RandomSource, seed: u64) {
        let spec = Self::spec(map, OrderKind::TorchRandom { source, count: Count::default() }, seed);
        self.prove(map, &spec, 0, &format!("a generator with seed {seed}, given to the loader"));
    }

    /// Seeds that a search through all of them found. That one is an output of some likely default generator proves nothing: among 10^9
    /// outputs there is one by chance. So the epoch's own seed is told, and the generators are clues, which the next epoch confirms or not.
    fn hits(&mut self, map: &Map, targets: &[Target], hits: &[Hit], why: &str) {
        if hits.len() > HITS_MAX {
            return;
        }
        for hit in hits {
            if targets.get(hit.target).is_some_and(|target| target.offset == 2) {
                self.given(map, RandomSource::Loader, u64::from(hit.seed));
            } else if u64::from(hit.seed) < SMALL_SEEDS.end {
                self.fresh(map, hit.seed);
            } else {
                self.one_epoch = true;
                let spec = Self::spec(map, OrderKind::TorchDistributed, u64::from(hit.seed));
                self.prove(map, &spec, 0, &format!("seed {} of this epoch, {why}", hit.seed));
                self.one_epoch = false;
                if self.best.is_some() && self.job.deep {
                    self.rivals(map, hit.seed);
                }
            }
            if self.best.is_some() {
                return;
            }
        }
    }

    /// Default generators that have this output: what the next epoch is compared with.
    fn rivals(&mut self, map: &Map, seed: u32) {
        let mut places = locate(seed, &common_seeds(), OUTPUTS_OF_COMMON, self.control);
        places.extend(locate(seed, &(0..1 << 16).collect::<Vec<u32>>(), OUTPUTS_OF_SMALL, self.control));
        for at in places.into_iter().take(RIVALS_MAX) {
            let source = RandomSource::Default { offset: at.offset, stride: RandomSource::STRIDE };
            let spec = Self::spec(map, OrderKind::TorchRandom { source, count: Count::default() }, u64::from(at.seed));
            self.rivals.push(Clue { spec, epoch: 0, epochs: None });
        }
    }

    pub(super) fn meet(&mut self, map: &Map) {
        let sighting = self.job.sighting(map);
        for offset in [0, 2] {
            self.tried += ALL_SEEDS.end as f64;
            let found = meet(&sighting, offset, Assume::Neighbours, self.control);
            let target: Vec<Target> = Target::streams(0, &sighting, offset, Layout::Whole).into_iter().collect();
            self.hits(map, &target, &found.hits, "of all that there are");
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
        self.hits(map, &all, &found.hits, "of all that there are");
    }

    /// Fixed orders, and shuffles that settle their first place last: a whole order each.
    pub(super) fn others(&mut self, map: &Map) {
        let mut left = SHUFFLED_MAX;
        let n = u64::from(map.len());
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
            // A file of MosaicML's is a shard of so many samples, all of which are shuffled.
            let (cost, most) = if text.starts_with("mosaic") { (n * MOSAIC_SAMPLES, MOSAIC_MAX) } else { (n * (epoch + 1), SHUFFLED_MAX) };
            if self.is_over() {
                return;
            }
            if cost > most.min(left) {
                continue;
            }
            left -= cost;
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

/// Usual seeds, each plus the first epochs, without those that the first step has anyhow.
fn usual_sums(epochs: u32) -> Vec<u32> {
    let (_, _, first) = DEPTHS[0];
    let sums = USUAL_SEEDS.iter().flat_map(|&seed| (0..epochs).map(move |epoch| seed as u32 + epoch));
    sums.filter(|&sum| sum >= first).collect()
}

/// One process from place 0: as the opens came, and without what may have been a probe before (`ds[0]`): the opens of a first process
/// that opened two at most, or the first open.
fn fronts(sighting: &Sighting, offset: u32) -> Vec<Target> {
    let Some(&(first, _)) = sighting.opens.first() else { return Vec::new() };
    if !sighting.streams_known {
        return Target::unordered(0, sighting, offset).into_iter().collect();
    }
    let own = sighting.opens.iter().filter(|&&(stream, _)| stream == first).count();
    let opens = if own <= 2 && own < sighting.opens.len() {
        sighting.opens.iter().copied().filter(|&(stream, _)| stream != first).collect()
    } else {
        sighting.opens[1..].to_vec()
    };
    let without = Sighting { opens, ..*sighting };
    [sighting, &without].into_iter().filter_map(|sighting| Target::streams(0, sighting, offset, Layout::Whole)).collect()
}

/// Seed and epoch of a sum: a usual seed near below it, or the default seed 0.
fn split_seed(sum: u32) -> (u64, Epoch) {
    let sum = u64::from(sum);
    if sum == 0 || USUAL_SEEDS.contains(&sum) {
        return (sum, 0);
    }
    if sum <= 300 { (0, sum) } else { (sum, 0) }
}

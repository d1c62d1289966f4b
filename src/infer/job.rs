//! A search: one rung of the ladder over the opens of one segment. It runs where its caller likes, for as long as `Control` lets it, and
//! returns only what is proved.

use std::ops::Range;
use std::sync::Arc;

use super::proof::{self, Evidence};
use super::torch::{self, Fronts, OUTPUTS, USUAL_SEEDS};
use crate::dataset::Manifest;
use crate::dataset::maps::{CandidateMap as Map, Maps};
use crate::order::SharedSampler;
use crate::order::infer::{Control, Sighting};
use crate::order::mt19937::Mt19937;
use crate::order::spec::{OrderKind, OrderSpec};
use crate::order::torch::{Count, RandomSource};
use crate::plan::{EpochFiles, Seen};
use crate::types::{Epoch, FileIndex, SampleIndex, SampleRule};

/// Maps that a search tries.
const MAPS_MAX: usize = 4;
/// Opens that a search looks at: enough for every proof, and the same few however late it runs.
const LOOKED_AT: usize = 512;
/// Outputs of a known default generator that are looked through for the next epoch's seed: a transform that draws 8 numbers for each of
/// 128,000 samples in the main process (or one, for a million) stays within.
const AHEAD: u64 = 1 << 20;
/// ... and those of loaders alone: two or four a loader, some loaders.
const NEAR: u64 = 64;
/// Epochs after a known one that are tried: a resumed run, skipped epochs.
const EPOCHS_AHEAD: Epoch = 64;
/// How deep the dictionary goes, step by step: outputs of the default generators, seeds of a fresh generator for one process that reads
/// everything, and those for any world size (which cost 16,000 draws each). The first step finds what a script without a model on the CPU does.
const DEPTHS: [(u64, u32, u32); 4] = [(64, 1 << 12, 128), (1 << 12, 1 << 14, 512), (1 << 14, 1 << 15, 2_048), (OUTPUTS, 1 << 16, 2_048)];
/// Orders of the ladder's cheap rung that were not counted one by one, for the proof's threshold.
const CHEAP_TRIED: f64 = 16.0;

/// A rung of the ladder, cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rung {
    /// Sequential, the order as it was read before, what a known generator does next.
    Known,
    /// Likely seeds.
    Dictionary,
}

impl Rung {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Known => "known orders",
            Self::Dictionary => "likely seeds",
        }
    }
}

/// An order that was proved before: where the next epoch may come from.
#[derive(Clone, Debug)]
pub struct Clue {
    pub spec: OrderSpec,
    pub epoch: Epoch,
}

/// What to search, and in what.
#[derive(Debug)]
pub struct Job {
    pub(super) group: usize,
    pub(super) segment: u64,
    pub(super) rung: Rung,
    pub(super) root: String,
    pub(super) manifest: Arc<Manifest>,
    pub(super) sizes: Arc<[u64]>,
    /// From the front of the segment.
    pub(super) front: Vec<Seen>,
    pub(super) clues: Vec<Clue>,
    /// Passes before this one: the number of the epoch, where the order itself has none.
    pub(super) pass: Epoch,
    /// The order of the segment before, as it was read.
    pub(super) recorded: Option<Arc<Vec<FileIndex>>>,
}

/// An order that explains the opens.
#[derive(Clone, Debug)]
pub struct Found {
    pub spec: OrderSpec,
    pub epoch: Epoch,
    pub sampler: SharedSampler,
    pub samples: Arc<[FileIndex]>,
    /// The order of `epoch`.
    pub files: Arc<EpochFiles>,
    /// Epochs known, from this one on; `None`: all.
    pub epochs: Option<u64>,
    /// ln of the likelihood ratio against uniform, after the number of orders tried.
    pub ln: f64,
    /// How it was found, for people.
    pub why: String,
}

/// What came of a search.
#[derive(Clone, Debug)]
pub struct JobResult {
    pub(super) group: usize,
    pub(super) segment: u64,
    pub rung: Rung,
    pub found: Option<Found>,
    /// Orders compared with the opens.
    pub tried: f64,
}

struct Search<'a> {
    job: &'a Job,
    control: Control<'a>,
    tried: f64,
    best: Option<(f64, Found)>,
}

impl Job {
    #[must_use]
    pub const fn rung(&self) -> Rung {
        self.rung
    }

    /// Searches.
    #[must_use]
    pub fn run(&self, control: Control<'_>) -> JobResult {
        let mut search = Search { job: self, control, tried: 1.0, best: None };
        let opened: Vec<FileIndex> = self.front.iter().map(|seen| seen.file).take(LOOKED_AT).collect();
        for map in Maps::new(&self.manifest, &opened, &[]).take(MAPS_MAX) {
            match self.rung {
                Rung::Known => search.known(&map),
                Rung::Dictionary => search.dictionary(&map),
            }
            if search.best.is_some() || control.stopped() {
                break;
            }
        }
        let found = search.best.map(|(_, found)| found);
        JobResult { group: self.group, segment: self.segment, rung: self.rung, found, tried: search.tried }
    }

    fn opens(&self) -> &[Seen] {
        &self.front[..self.front.len().min(LOOKED_AT)]
    }

    fn sighting(&self, map: &Map) -> Sighting {
        let streams_known = self.opens().iter().all(|seen| seen.process != 0);
        let mut streams: Vec<u32> = Vec::new();
        let mut number = |process: u32| {
            let at = streams.iter().position(|&known| known == process).unwrap_or_else(|| {
                streams.push(process);
                streams.len() - 1
            });
            u32::try_from(at).unwrap_or(0)
        };
        let opens = self.opens().iter().filter_map(|seen| Some((number(seen.process), map.index_of(seen.file)?))).collect();
        Sighting { n: map.len(), opens, streams_known }
    }
}

impl Search<'_> {
    fn spec(map: &Map, kind: OrderKind, seed: u64) -> OrderSpec {
        OrderSpec {
            id: if map.root.is_empty() { kind.to_string() } else { map.root.clone() },
            root: map.root.clone(),
            files: map.rule.clone(),
            seed,
            ..OrderSpec::of(kind)
        }
    }

    /// Compares one epoch of an order with the opens; world and ranks are read off them.
    fn prove(&mut self, map: &Map, spec: &OrderSpec, epoch: Epoch, why: &str) {
        let Ok(whole) = (OrderSpec { world: 1, ranks: vec![0], ..spec.clone() }).sampler(map.len()) else { return };
        let order = whole.order(epoch);
        let mut place_of = vec![u32::MAX; map.len() as usize];
        for (place, &sample) in (0u32..).zip(&order.places) {
            let first = &mut place_of[sample as usize];
            *first = place.min(*first);
        }
        let place = |sample: SampleIndex| Some(place_of[sample as usize]).filter(|&place| place != u32::MAX);
        let Some(shape) = proof::shape(place, &self.job.sighting(map)) else { return };
        let mut spec = spec.clone();
        if !shape.is_whole() || (spec.kind == OrderKind::TorchDistributed && shape.world > 1) {
            if !spec.kind.has_world() {
                return;
            }
            (spec.world, spec.ranks) = (shape.world, shape.ranks);
        } else if spec.kind == OrderKind::TorchDistributed {
            // What one process reads of a fresh generator: a DistributedSampler of one, or accelerate's.
            spec.kind = OrderKind::TorchRandperm;
            (spec.world, spec.ranks) = (1, vec![0]);
        }
        let Ok(sampler) = spec.sampler(map.len()) else { return };
        let files = Arc::new(EpochFiles::new(&sampler.order(epoch), &map.samples));
        let evidence = proof::evidence(&files, self.job.opens(), &self.job.sizes);
        self.judge(map, spec, epoch, sampler, files, evidence, why);
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one hypothesis, once")]
    fn judge(
        &mut self,
        map: &Map,
        spec: OrderSpec,
        epoch: Epoch,
        sampler: SharedSampler,
        files: Arc<EpochFiles>,
        evidence: Evidence,
        why: &str,
    ) {
        if !evidence.proves(self.tried) || self.best.as_ref().is_some_and(|(ln, _)| *ln >= evidence.ln) {
            return;
        }
        let ln = evidence.ln - self.tried.ln();
        let found = Found { spec, epoch, sampler, samples: Arc::clone(&map.samples), files, epochs: None, ln, why: why.to_owned() };
        self.best = Some((evidence.ln, found));
    }

    fn known(&mut self, map: &Map) {
        self.tried = self.tried.max(CHEAP_TRIED);
        self.prove(map, &Self::spec(map, OrderKind::Sequential, 0), self.job.pass, "files come in the order of their names");
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
                // The usual strides first; then what transforms in the main process draw.
                let mut from = now + 1;
                for ahead in [NEAR, 1 << 14, AHEAD] {
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
            _ => {
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
    fn dictionary(&mut self, map: &Map) {
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
            if self.best.is_some() || self.control.stopped() {
                return;
            }
            (outputs, whole, dealt) = (to_output, to_whole, to_dealt);
        }
    }

    fn default_generators(&mut self, map: &Map, fronts: &mut Fronts, outputs: Range<u64>) {
        for root in USUAL_SEEDS {
            self.tried += (outputs.end - outputs.start) as f64;
            for offset in torch::outputs_that_fit(fronts, root, outputs.start, outputs.end, &self.control) {
                let source = RandomSource::Default { offset, stride: RandomSource::STRIDE };
                let spec = Self::spec(map, OrderKind::TorchRandom { source, count: Count::default() }, root);
                self.prove(map, &spec, 0, &format!("output {offset} of the default generator with seed {root}"));
            }
            if self.best.is_some() || self.control.stopped() {
                return;
            }
        }
    }

    fn fresh_generators(&mut self, map: &Map, fronts: &mut Fronts, whole: Range<u32>, dealt: Range<u32>) {
        self.tried += f64::from(whole.end - whole.start) + f64::from(dealt.end - dealt.start);
        for seed in whole.start.min(dealt.start)..whole.end {
            if whole.contains(&seed) && fronts.fits_from_the_start(seed) || dealt.contains(&seed) && fronts.fits_dealt(seed) {
                let (root, epoch) = split_seed(seed);
                let spec = Self::spec(map, OrderKind::TorchDistributed, root);
                self.prove(map, &spec, epoch, &format!("seed + epoch = {seed} of a fresh generator"));
            }
            if self.best.is_some() || seed % 256 == 0 && self.control.stopped() {
                return;
            }
        }
    }

    /// `DataLoader(generator=g)` and `RandomSampler(generator=g)`, in their first epoch.
    fn given_generators(&mut self, map: &Map, fronts: &mut Fronts) {
        for seed in USUAL_SEEDS.into_iter().chain(0..1024).chain([67_280_421_310_721]) {
            for (source, skip) in [(RandomSource::Loader, 2), (RandomSource::Sampler, 0)] {
                self.tried += 1.0;
                let mut generator = Mt19937::new(seed);
                generator.skip(skip);
                if fronts.fits_whole(&mut generator) {
                    let spec = Self::spec(map, OrderKind::TorchRandom { source, count: Count::default() }, seed);
                    self.prove(map, &spec, 0, &format!("a generator with seed {seed}, given to the loader"));
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

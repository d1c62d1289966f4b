//! A search: one rung of the ladder over the opens of one segment. It runs where its caller likes, for as long as `Control` lets it, and
//! returns only what is proved.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::batches::{Dealt, dealt};
use super::doubles::without_doubles;
use super::kept::{Kept, Memo};
use super::maps::MapSet;
use super::proof::{self, Evidence};
use super::rungs::{all_seeds, backward_seeds};
use super::told::Told;
use crate::dataset::Manifest;
use crate::dataset::maps::{CandidateMap as Map, NamesText};
use crate::order::SharedSampler;
use crate::order::infer::fit::fit_whole;
use crate::order::infer::{Control, Sighting};
use crate::order::spec::{OrderKind, OrderSpec};
use crate::plan::{EpochFiles, Seen};
use crate::types::{Epoch, FileIndex, QuickMap, SampleIndex};

/// Opens below which all of them may be of one directory by chance: of a large dataset, whose other numberings cost a second, only the likeliest is
/// tried then.
const MAPS_FROM: usize = 64;
/// Files from which on a dataset is large in this sense.
const LARGE: usize = 1 << 18;
/// Opens that a search looks at: enough for every proof, and the same few however late it runs.
pub(super) const LOOKED_AT: usize = 512;

/// ... and for three places 227 apart, with many workers and large batches.
const MEET_LOOKED_AT: usize = 2_048;

/// A rung of the ladder, cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rung {
    /// More ranks of the order that is followed.
    Widen,
    /// Sequential, the order as it was read before, what a known generator does next.
    Known,
    /// The most usual seeds of torch's generators.
    Usual,
    /// Likely seeds of torch's generators.
    Likely,
    /// All seeds of torch's generator, from three places 227 apart: at n = 1.28M a fraction of a core-second.
    Meet,
    /// Likely seeds of other generators, and fixed orders: a whole shuffle each.
    Others,
    /// All 2^32 of them, one after the other.
    Exhaustive,
    /// All 2^32 seeds of numpy's and Python's shuffles, from the end of a whole order.
    Backward,
    /// Any state of torch's generator, from 20,000 ordered places.
    Linear,
    /// Not an order, but where the seed of the one that is followed may have come from.
    Origin,
}

impl Rung {
    pub(super) const ALL: [Self; 10] = [
        Self::Widen,
        Self::Known,
        Self::Usual,
        Self::Likely,
        Self::Meet,
        Self::Others,
        Self::Exhaustive,
        Self::Backward,
        Self::Linear,
        Self::Origin,
    ];

    /// Whether it takes tens of milliseconds at most: readers wait for what it finds, so it needs not stand behind them.
    #[must_use]
    pub const fn is_brief(self) -> bool {
        matches!(self, Self::Widen | Self::Known | Self::Usual)
    }

    /// Whether all seeds are tried: that is worth it as long as the pass goes on for longer, whatever else was spent.
    pub(super) const fn is_long(self) -> bool {
        matches!(self, Self::Meet | Self::Exhaustive | Self::Backward | Self::Linear)
    }

    /// What a search of this name does not find, though its name might promise it.
    pub(super) const fn leaves_out(self) -> Option<&'static str> {
        match self {
            Self::Meet => Some("ranks of a world"),
            Self::Exhaustive => Some("ranks of a world, if none of the first 64 reads here"),
            _ => None,
        }
    }

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Widen => "more ranks",
            Self::Known => "known orders",
            Self::Usual => "usual seeds",
            Self::Likely => "likely seeds",
            Self::Others => "other libraries",
            Self::Meet => "all seeds, met in the middle",
            Self::Exhaustive => "all seeds",
            Self::Backward => "all seeds, from the end",
            Self::Linear => "any state, by linear algebra",
            Self::Origin => "default generators with the seed found",
        }
    }
}

/// An order that was proved before: where the next epoch may come from.
#[derive(Clone, Debug)]
pub struct Clue {
    pub spec: OrderSpec,
    pub epoch: Epoch,
    /// Epochs known, from that one on; `None`: all.
    pub epochs: Option<u64>,
}

impl Clue {
    /// What later runs keep of it; where it holds is part of it.
    pub(super) fn memo(&self) -> Memo {
        Memo::Order(Box::new(OrderSpec { epoch: self.epoch, epochs: self.epochs, ..self.spec.clone() }))
    }
}

/// What to search, and in what.
#[derive(Debug)]
pub struct Job {
    pub(super) group: u64,
    pub(super) segment: u64,
    pub(super) rung: Rung,
    /// The group's root, and the files below it.
    pub(super) root: String,
    pub(super) files: u32,
    pub(super) manifest: Arc<Manifest>,
    pub(super) sizes: Arc<[u64]>,
    /// From the front of the segment, and the files opened in all of it.
    pub(super) front: Vec<Seen>,
    pub(super) distinct: usize,
    /// The order that is followed, its epoch now, and the last opens that it did not have.
    pub(super) followed: Option<(OrderSpec, Epoch)>,
    pub(super) strangers: Vec<Seen>,
    /// The epoch that the group's order was in last, whether it is followed or not.
    pub(super) last_epoch: Option<Epoch>,
    /// Its files, by sample, or those of the one before.
    pub(super) numbering: Option<Map>,
    /// Processes and files of many more of its opens, where this rung needs them.
    pub(super) far: Vec<(u32, FileIndex)>,
    pub(super) clues: Vec<Clue>,
    /// Orders of other runs and other nodes.
    pub(super) remembered: Vec<Clue>,
    /// Passes of this or an earlier run that no order explained.
    pub(super) kept: Vec<Kept>,
    /// Texts read before the samples, which may name them.
    pub(super) texts: Arc<Vec<NamesText>>,
    /// Maps of an earlier search over the same readers' opens.
    pub(super) maps: Option<MapSet>,
    /// Maps that known orders are looked for in: those that are there already, where nothing is known.
    pub(super) maps_max: usize,
    /// Whether likely seeds are tried beyond the first step.
    pub(super) deep: bool,
    /// The step it begins with: those before found nothing in the same opens.
    pub(super) step: u32,
    /// Whether steps that most scripts are found by are free still, and those that many are.
    pub(super) is_free: bool,
    pub(super) is_first: bool,
    /// Whether what lies far ahead of known orders is looked through.
    pub(super) goes_far: bool,
    /// Core-seconds that steps may cost which are not free.
    pub(super) allowance: f64,
    /// Set when what it looks for is moot: another pass has begun.
    pub(super) stop: Arc<AtomicBool>,
    /// Passes before this one: the number of the epoch, where the order itself has none.
    pub(super) pass: Epoch,
    /// The order of the segment before, as it was read.
    pub(super) recorded: Option<Arc<Vec<FileIndex>>>,
    /// ... and whether that was a pass, not a part of one.
    pub(super) is_pass: bool,
    pub(super) told: Told,
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
    /// It is the order that is followed, with more ranks.
    pub(super) wider: Option<Wider>,
}

/// What [`crate::plan::Planner::widen`] is told.
#[derive(Clone, Debug)]
pub(super) struct Wider {
    pub(super) epochs: Vec<(Epoch, Arc<EpochFiles>)>,
    pub(super) new: Vec<u32>,
    pub(super) opens: Vec<Seen>,
}

/// What came of a search.
#[derive(Debug)]
pub struct JobResult {
    pub(super) group: u64,
    pub(super) segment: u64,
    pub rung: Rung,
    pub found: Option<Found>,
    /// Orders compared with the opens.
    pub tried: f64,
    pub(super) rivals: Vec<Clue>,
    /// The maps, for the next search of this segment.
    pub(super) maps: Option<MapSet>,
    /// How far it came, and the price of the next step: that was not paid for. None: there is no other.
    pub(super) step: u32,
    pub(super) owed: Option<f64>,
    /// Core-seconds, as they are reckoned, and those of them for steps that are free.
    pub cost: f64,
    pub(super) free: f64,
}

impl JobResult {
    #[must_use]
    pub const fn group(&self) -> u64 {
        self.group
    }
}

pub(super) struct Search<'a> {
    pub(super) job: &'a Job,
    pub(super) control: Control<'a>,
    pub(super) tried: f64,
    pub(super) best: Option<(f64, Found)>,
    /// Epochs of known orders that were compared, in whatever world.
    pub(super) compared: Vec<(OrderSpec, Epoch)>,
    /// What is proved holds for its epoch alone.
    pub(super) one_epoch: bool,
    /// Default generators that have the seed found, perhaps by chance.
    pub(super) rivals: Vec<Clue>,
    /// As in [`JobResult`].
    pub(super) step: u32,
    pub(super) owed: Option<f64>,
    pub(super) cost: f64,
    pub(super) free: f64,
    /// What is proved explains each open.
    pub(super) is_exact: bool,
}

impl Job {
    #[must_use]
    pub const fn rung(&self) -> Rung {
        self.rung
    }

    /// Whose search it is: one at a time runs for a group.
    #[must_use]
    pub const fn group(&self) -> u64 {
        self.group
    }

    /// What is to be told of a search that takes long: what it is and what it costs.
    #[must_use]
    pub fn budget(&self) -> Option<String> {
        let seconds = match self.rung {
            Rung::Exhaustive => all_seeds(),
            Rung::Backward => backward_seeds(),
            _ => return None,
        };
        let root = if self.root.is_empty() { "the mount" } else { &self.root };
        Some(format!("the order in which {root} is read is searched for: {}, some {seconds:.0} core-seconds", self.rung.name()))
    }

    /// To be set by whoever wants it to end soon; the inference does when the search is moot.
    #[must_use]
    pub fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Searches.
    #[must_use]
    pub fn run(mut self, control: Control<'_>) -> JobResult {
        let maps = self.maps.take().filter(|maps| maps.suits(&self.front, &self.texts));
        let mut maps = maps.unwrap_or_else(|| MapSet::new(&self.manifest, &self.front, &self.texts));
        let mut result = self.search(&mut maps, control, 1.0);
        // What is read twice is no order. Samples that are repeated are one: so first as it is.
        if result.found.is_none()
            && !control.stopped()
            // these look at no front
            && !matches!(self.rung, Rung::Origin | Rung::Widen)
            && let Some(files) = maps.get(0).map(|map| map.len() as usize)
            && let Some(front) = without_doubles(&self.front, files)
        {
            self.front = front;
            let once = self.search(&mut maps, control, result.tried);
            result = JobResult { cost: result.cost + once.cost, free: result.free + once.free, ..once };
        }
        JobResult { maps: Some(maps), ..result }
    }

    /// `tried`: orders that were compared with these opens before.
    fn search(&self, maps: &mut MapSet, control: Control<'_>, tried: f64) -> JobResult {
        let mut search = Search {
            job: self,
            control,
            tried,
            best: None,
            compared: Vec::new(),
            one_epoch: false,
            rivals: Vec::new(),
            step: self.step,
            owed: None,
            cost: 0.0,
            free: 0.0,
            is_exact: false,
        };
        match self.rung {
            Rung::Known => search.known_orders(maps, if self.is_early() { 1 } else { self.maps_max }),
            Rung::Origin => search.origin(),
            Rung::Usual => search.usual(maps),
            Rung::Widen => search.widen(),
            _ => search.climb(maps),
        }
        let Search { tried, best, rivals, step, owed, cost, free, .. } = search;
        let found = best.map(|(_, found)| found);
        JobResult { group: self.group, segment: self.segment, rung: self.rung, found, tried, rivals, maps: None, step, owed, cost, free }
    }

    /// As if it had found nothing, at this cost.
    #[cfg(test)]
    pub(super) fn in_vain(self, cost: f64) -> JobResult {
        let Self { group, segment, rung, maps, step, .. } = self;
        JobResult { group, segment, rung, found: None, tried: 1.0, rivals: Vec::new(), maps, step, owed: None, cost, free: 0.0 }
    }

    /// Too early for another numbering of a large dataset.
    pub(super) fn is_early(&self) -> bool {
        self.front.len() < MAPS_FROM && self.manifest.len() >= LARGE
    }

    /// The text of a file in the mount.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.texts.iter().find(|text| self.manifest.path(text.file) == path).map(|text| &*text.text)
    }

    pub(super) fn opens(&self) -> &[Seen] {
        let looked_at = if self.rung == Rung::Meet { MEET_LOOKED_AT } else { LOOKED_AT };
        &self.front[..self.front.len().min(looked_at)]
    }

    /// Streams are numbered by their process: a loader's workers are started one after the other, in the order in which batches are dealt to them.
    pub(super) fn sighting(&self, map: &Map) -> Sighting {
        let opens = self.opens();
        let mut processes: Vec<u32> = opens.iter().map(|seen| seen.process).collect();
        processes.sort_unstable();
        processes.dedup();
        let number = |process: u32| u32::try_from(processes.partition_point(|&other| other < process)).unwrap_or(u32::MAX);
        let streams_known = !processes.contains(&0);
        let opens = opens.iter().filter_map(|seen| Some((number(seen.process), map.index_of(seen.file)?))).collect();
        Sighting { n: map.len(), opens, streams_known }
    }
}

impl Search<'_> {
    pub(super) fn spec(map: &Map, kind: OrderKind, seed: u64) -> OrderSpec {
        OrderSpec {
            id: if map.root.is_empty() { kind.to_string() } else { map.root.clone() },
            root: map.root.clone(),
            files: map.rule.clone(),
            seed,
            ..OrderSpec::of(kind)
        }
    }

    /// Compares one epoch of an order with the opens; world and ranks are read off them.
    pub(super) fn prove(&mut self, map: &Map, spec: &OrderSpec, epoch: Epoch, why: &str) {
        if let OrderKind::TimmRepeatAug { .. } | OrderKind::TorchvisionRepeatAug { .. } = spec.kind {
            return self.repeated(map, spec.kind, spec.seed, epoch, why, |_| true);
        }
        let Ok(whole) = (OrderSpec { world: 1, ranks: vec![0], ..spec.clone() }).sampler(map.len()) else { return };
        let order = whole.order(epoch);
        let sighting = self.job.sighting(map);
        // Only the opened samples' places: most orders fall here.
        let front: Vec<(u32, SampleIndex)> =
            self.job.front.iter().filter_map(|seen| Some((seen.process, map.index_of(seen.file)?))).collect();
        let mut opened = vec![0u64; (map.len() as usize).div_ceil(64)];
        for &(_, sample) in &front {
            opened[sample as usize / 64] |= 1 << (sample % 64);
        }
        let mut place_of: QuickMap<SampleIndex, u32> = QuickMap::default();
        for (place, &sample) in (0u32..).zip(&order.places) {
            if opened[sample as usize / 64] >> (sample % 64) & 1 == 1 {
                place_of.entry(sample).or_insert(place);
            }
        }
        let shape = proof::shape(|sample| place_of.get(&sample).copied(), &sighting);
        let Some(shape) = shape else { return };
        let mut spec = spec.clone();
        if spec.kind == OrderKind::TorchRandperm && shape.world > 1 {
            // One process read it all; now ranks do.
            spec.kind = OrderKind::TorchDistributed;
        }
        let dealt = if shape.world == 1 && sighting.streams_known { dealt_to(&front, &place_of) } else { Dealt::Whole };
        // What is known to be dealt in batches stays so until more is seen.
        let in_batches = spec.world > 1 && spec.kind.dealt_in_batches() == Some(spec.kind);
        if !in_batches {
            let told = fit_whole(&sighting, &order.places);
            let workers = match (told.workers, spec.workers) {
                // One reader is a worker, or the process that trains: opens do not say which.
                (Some(1), None | Some(0)) => spec.workers,
                // what other readers had says nothing of this one, but for torchdata, whose order depends on it
                (Some(1), Some(_)) if !matches!(spec.kind, OrderKind::Torchdata { .. }) => None,
                (workers, _) => workers,
            };
            (spec.batch, spec.workers) = (told.batch.filter(|_| told.workers.is_some()), workers);
        }
        drop(order);
        if let Dealt::Part { batch, world, ranks, workers } = dealt {
            let Some(kind) = spec.kind.dealt_in_batches() else { return };
            (spec.kind, spec.world, spec.ranks) = (kind, world, ranks);
            (spec.batch, spec.workers) = (Some(batch), Some(workers));
        } else if in_batches {
        } else if dealt == Dealt::Unclear {
            return;
        } else if !shape.is_whole() || (spec.kind == OrderKind::TorchDistributed && shape.world > 1) {
            if !spec.kind.has_world() || shape.steps < proof::STEPS_LEAST {
                return;
            }
            (spec.world, spec.ranks) = (shape.world, self.job.told.ranks_with(shape.world, shape.ranks));
        } else if spec.kind == OrderKind::TorchDistributed {
            // What one process reads of a fresh generator: a DistributedSampler of one, or accelerate's.
            spec.kind = OrderKind::TorchRandperm;
            (spec.world, spec.ranks) = (1, vec![0]);
        }
        self.confirm(map, spec, epoch, why);
    }

    /// An order as this node reads it, by the opens in their sequence.
    pub(super) fn confirm(&mut self, map: &Map, spec: OrderSpec, epoch: Epoch, why: &str) {
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
        self.is_exact = evidence.inside >= 1.0 && evidence.rising >= 1.0;
        let found = Found {
            spec,
            epoch,
            sampler,
            samples: Arc::clone(&map.samples),
            files,
            epochs: self.one_epoch.then_some(1),
            ln,
            why: why.to_owned(),
            wider: None,
        };
        self.best = Some((evidence.ln, found));
    }
}

/// How batches are dealt to the processes here, by the places of their opens.
fn dealt_to(opens: &[(u32, SampleIndex)], place_of: &QuickMap<SampleIndex, u32>) -> Dealt {
    let mut number: QuickMap<u32, usize> = QuickMap::default();
    let mut streams: Vec<Vec<u32>> = Vec::new();
    for (process, sample) in opens {
        let Some(&place) = place_of.get(sample) else { continue };
        let at = *number.entry(*process).or_insert(streams.len());
        if at == streams.len() {
            streams.push(Vec::new());
        }
        streams[at].push(place);
    }
    dealt(&streams)
}

//! The cheapest rung: a pass in listing order, and what a known generator does next.

use std::ops::Range;

use super::super::cost;
use super::super::job::{Clue, Search};
use super::super::maps::{MAPS_MAX, MapSet};
use super::super::sequential::{begins, is_certain};
use super::super::torch::{self, Fronts};
use super::{HITS_MAX, PROBES, fronts};
use crate::dataset::maps::CandidateMap as Map;
use crate::order::again::Again;
use crate::order::infer::Sighting;
use crate::order::infer::exhaustive::{Seeds, exhaustive};
use crate::order::infer::target::Target;
use crate::order::mt19937::Mt19937;
use crate::order::spec::{OrderKind, OrderSpec};
use crate::order::torch::RandomSource;
use crate::types::Epoch;

/// Outputs of a known default generator that are looked through for the next epoch's seed: a transform that draws 8 numbers for each of
/// 128,000 samples in the main process (or one, for a million) stays within. By opens seen: the usual strides (two or four outputs a loader)
/// are tried at once.
const AHEAD: [(usize, u64); 3] = [(0, 64), (32, 1 << 14), (128, 1 << 20)];
/// Orders of the cheap rung, for the proof's threshold.
const CHEAP_TRIED: f64 = 16.0;
/// Core-seconds that a part of this rung takes at most, to be free where what is likely is: all outputs ahead take 12 ms with AVX-512 and 45 ms with
/// AVX2, all epochs ahead 130 ms. Where no streams are known, seeds pass by chance, and all outputs take half a second.
const FREE_MOST: f64 = 0.15;

impl Search<'_> {
    /// Looks for them in the numbering of the order before, which is there, and in so many maps, as far as there are.
    pub(in crate::infer) fn known_orders(&mut self, maps: &mut MapSet, most: usize) {
        let own = self.job.numbering.as_ref();
        if let Some(own) = own {
            self.known(own);
            if self.best.is_none() {
                self.recorded();
            }
            if self.best.is_none() {
                self.remembered(std::slice::from_ref(own), false);
            }
            // A walk may follow one numbering nearly and another one exactly.
            let is_found = self.best.as_ref().is_some_and(|(_, found)| self.is_exact || found.spec.kind != OrderKind::Sequential);
            // To number a large dataset anew takes longer than dozens of readers need for their first steps.
            if is_found || !self.is_worth_far() {
                return;
            }
        }
        let most = most.max(maps.computed().len().min(MAPS_MAX));
        if !self.job.remembered.is_empty() {
            // all of them at once: what is remembered names its own
            let _last = maps.get(most.saturating_sub(1));
            self.remembered(maps.computed(), true);
        }
        for at in 0..most {
            let Some(map) = maps.get(at) else { break };
            if own.is_some_and(|own| own.root == map.root && own.rule == map.rule) {
                continue;
            }
            self.known(&map);
            if self.is_exact && self.best.is_some() || self.control.stopped() {
                break;
            }
        }
        if self.best.is_none() && own.is_none() {
            self.recorded();
        }
        if self.best.is_none() {
            self.kept();
        }
    }

    fn known(&mut self, map: &Map) {
        self.tried = self.tried.max(CHEAP_TRIED);
        // Of this part of the dataset, neither more nor less; and for this pass only, until it has come again.
        if map.root == self.job.root {
            let sequential = |clue: &&Clue| clue.spec.kind == OrderKind::Sequential && clue.spec.root == map.root;
            let known = self.job.clues.iter().find(sequential);
            if known.is_some() && begins(map, &self.job.front) || is_certain(&self.job.manifest, map, &self.job.front) {
                self.one_epoch = known.is_none_or(|clue| clue.epoch == self.job.pass);
                self.prove(map, &Self::spec(map, OrderKind::Sequential, 0), self.job.pass, "files come in the order of their names");
                self.one_epoch = false;
            }
        }
        let mut fronts = None;
        let clues = || self.job.clues.iter().filter(|clue| clue.spec.root == map.root && clue.spec.files == map.rule);
        for clue in clues() {
            self.follow(map, clue, &mut fronts);
        }
        for clue in clues() {
            self.far_epochs(map, clue);
        }
    }

    /// What a known order does next.
    fn follow(&mut self, map: &Map, clue: &Clue, own: &mut Option<Fronts>) {
        let spec = &clue.spec;
        let sighting = self.job.sighting(map);
        if sighting.n < 2 || sighting.opens.is_empty() {
            return;
        }
        if spec.kind != OrderKind::Sequential {
            self.prove_once(map, spec, clue.epoch, "the epoch is read again");
        }
        if self.best.is_none() {
            self.prove_dealt(map, spec, clue.epoch, "other ranks of the epoch");
        }
        self.next_permutation(map, clue, &sighting, own);
        let with_replacement = matches!(spec.kind, OrderKind::TorchRandom { count, .. } if count.replacement);
        if self.best.is_none() && (spec.subset.is_some() || with_replacement) {
            self.usual_strides(map, clue);
            return;
        }
        if self.best.is_some() {
            return;
        }
        match spec.kind {
            OrderKind::TorchRandom { source: RandomSource::Default { offset, stride }, .. } => {
                let now = offset + clue.epoch * stride;
                let whole = fronts(&sighting, 0, PROBES);
                let mut from = now + 1;
                let looked_at = self.looked_at(clue, now);
                for (opens, ahead) in AHEAD.into_iter().filter(|&(opens, _)| sighting.opens.len() >= opens) {
                    if opens > 0 && (looked_at || !self.pays(outputs(now + ahead - from, whole.len(), &sighting))) {
                        break;
                    }
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
                self.near_epochs(map, clue);
            }
        }
    }

    /// Whether a part of this rung that few scripts need is due, and free or paid for: then it is taken down.
    pub(in crate::infer) fn pays(&mut self, seconds: f64) -> bool {
        let is_free = self.job.is_free && seconds <= FREE_MOST;
        let is_paid = self.job.goes_far && (is_free || self.cost - self.free + seconds <= self.job.allowance);
        if is_paid {
            self.cost += seconds;
            self.free += if is_free { seconds } else { 0.0 };
        }
        is_paid
    }

    /// Whether what lies far ahead of an output of a clue's generator was looked through for a clue before it, but for a few outputs.
    fn looked_at(&self, clue: &Clue, now: u64) -> bool {
        let before = self.job.clues.iter().take_while(|before| !std::ptr::eq(*before, clue));
        let is_near = |other: u64| now.checked_sub(other).is_some_and(|ahead| ahead < AHEAD[1].1 / 2);
        let same =
            |other: &Clue| (&other.spec.root, &other.spec.files, other.spec.seed) == (&clue.spec.root, &clue.spec.files, clue.spec.seed);
        before.into_iter().any(|other| match other.spec.kind {
            OrderKind::TorchRandom { source: RandomSource::Default { offset, stride }, .. } => {
                same(other) && is_near(offset + other.epoch * stride)
            }
            _ => false,
        })
    }

    /// The order whose next epoch is seeded with output `next` of the clue's default generator, and that epoch: numbered on, where the
    /// outputs before allow it.
    pub(in crate::infer) fn goes_on(clue: &Clue, next: u64) -> (OrderSpec, Epoch) {
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
        let knows = |again: &Again| kind.shuffled(*again).again() == Some(*again);
        Again::ALL.map(|(_, again)| again).into_iter().filter(knows).map(|again| kind.shuffled(again)).collect()
    }
}

/// Core-seconds for so many outputs of a generator.
#[expect(clippy::cast_precision_loss, reason = "a million")]
fn outputs(outputs: u64, targets: usize, sighting: &Sighting) -> f64 {
    let (outputs, opens) = (outputs as f64, sighting.opens.len());
    // Where it is not known who opened what, the first place is any of the opens.
    let by_chance = if sighting.streams_known { 0.0 } else { cost::passing(outputs, 1, opens, sighting.n, opens) };
    cost::seeds(outputs, targets) + by_chance
}

//! The cheapest rung: a pass in listing order, and what a known generator does next.

use std::ops::Range;

use super::super::job::{Clue, Search};
use super::super::maps::{MAPS_MAX, MapSet};
use super::super::sequential::{begins, is_certain};
use super::super::torch::{self, Fronts};
use super::{HITS_MAX, PROBES, fronts};
use crate::dataset::maps::CandidateMap as Map;
use crate::order::again::Again;
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
                self.near_epochs(map, clue);
            }
        }
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

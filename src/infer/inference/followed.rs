//! What becomes of a group when an order of its is followed: it is kept for later runs, other groups are told, ranks are taken in, and its
//! generator goes on.

use std::sync::Arc;
use std::time::Duration;

use super::super::engine::Followed;
use super::super::group::{FIRST_TRY, Group, JOBS_MAX, WIDEN_AT};
use super::super::job::{Clue, Found, Rung};
use super::super::strides::{self, Beside, Shown};
use super::Inference;
use crate::dataset::maps::CandidateMap as Map;
use crate::order::spec::{OrderKind, OrderSpec};
use crate::order::torch::RandomSource;
use crate::plan::OrderIndex;
use crate::types::{Epoch, FileIndex};

/// Epochs whose seeds are kept where the stream they come from is not known.
const EPOCHS_KEPT: Epoch = 16;

impl Inference {
    /// Who else reads, beside the readers of an order, since then.
    pub(in crate::infer) fn beside(&self, order: OrderIndex, since: Option<Duration>) -> Beside {
        let Some(group) = self.groups.iter().find(|group| group.order == Some(order)) else { return Beside::default() };
        let others = self.groups.iter().filter(|other| other.order != Some(order) && other.jobs.iter().any(|job| group.jobs.contains(job)));
        let read = others.filter(|other| since.is_some_and(|since| other.segment.read_at() > Some(since)));
        Beside { readers: group.segment.readers() as usize, others: read.count() as u64 }
    }

    /// The strides that an order has shown in earlier runs.
    pub(in crate::infer) fn shown(&self, spec: &OrderSpec) -> Shown {
        let mut shown = Shown::default();
        let first = |spec: &OrderSpec| strides::output_of(spec, 0).map(|(output, _)| (spec.seed, output));
        for clue in self.imported.iter().rev().filter(|clue| clue.spec.root == spec.root && first(&clue.spec) == first(spec)) {
            if let Some((_, stride)) = strides::output_of(&clue.spec, 0).filter(|&(_, stride)| stride != RandomSource::STRIDE) {
                shown.note(stride);
            }
        }
        shown
    }

    /// An order has gone on from its `epoch` on by another way than was supposed.
    pub(in crate::infer) fn went_on(&mut self, order: OrderIndex, spec: &OrderSpec) {
        let Some(group) = self.groups.iter_mut().find(|group| group.order == Some(order)) else { return };
        let clue = Clue { epoch: spec.epoch, epochs: None, spec: spec.clone() };
        if is_worth_keeping(&clue) {
            self.memos.push(clue.memo());
        }
        group.learn(clue);
    }

    /// Whether another group follows the same order as this one: jobs of a sweep with one seed. The planner counts each open for one of the two, whichever
    /// has it nearer, and either explains it.
    pub(super) fn is_twin(&self, at: usize, order: OrderIndex) -> bool {
        let Some(own) = &self.groups[at].followed else { return false };
        let other = self.groups.iter().find(|group| group.order == Some(order)).and_then(|group| group.followed.as_ref());
        other.is_some_and(|other| is_the_same(own, other))
    }

    /// Whether another group's order has had what a group reads where it was: a new process for each epoch. Two orders for one sequence would each
    /// wait for what was opened as the other's. What the search took it for counts for nothing: threads that take turns look like ranks.
    pub(super) fn goes_on_in(&mut self, at: usize) -> bool {
        let Some((order, opens)) = self.groups[at].had_by else { return false };
        let other = self.groups.iter().position(|group| group.order == Some(order) && group.followed.is_some());
        let all = opens >= FIRST_TRY && opens * 10 >= self.groups[at].segment.count * 9;
        let Some(other) = other.filter(|&other| other != at && all) else { return false };
        // the latest: those of epochs that are over are gone
        let group = self.merge(at, other, true);
        group.jobs.drain(..group.jobs.len().saturating_sub(JOBS_MAX));
        true
    }

    /// A group becomes part of another; `claimed`: the other's order had its opens.
    fn merge(&mut self, at: usize, other: usize, claimed: bool) -> &mut Group {
        let joined = self.groups.remove(at);
        let group = &mut self.groups[if other > at { other - 1 } else { other }];
        group.jobs.extend(&joined.jobs);
        group.segment.take_in(&joined.segment.trail(), claimed);
        group
    }

    /// Whether what a group reads is of other ranks of an order that is followed, at the same time: of its own, or another group's. Then they
    /// are one group, and the order will take the ranks in.
    pub(super) fn joins(&mut self, at: usize, found: &Found, now: impl Fn(OrderIndex) -> Option<Epoch>) -> bool {
        let other = self.groups.iter().position(|group| {
            let Some((spec, epoch)) = group.followed.as_ref().zip(group.order.and_then(&now)) else { return false };
            let more = found.spec.ranks.iter().any(|rank| !spec.ranks.contains(rank));
            let ahead = sum(&found.spec, found.epoch).checked_sub(sum(spec, epoch)).is_some_and(|ahead| ahead <= 1);
            spec.world > 1 && more && ahead && is_dealt_alike(spec, &found.spec) && group.segment.is_followed()
        });
        let Some(other) = other else { return false };
        if other != at {
            if self.groups[other].jobs.len() + self.groups[at].jobs.len() > JOBS_MAX {
                return false;
            }
            self.merge(at, other, false).widen_at = 0;
        } else {
            self.groups[other].widen_at = 0;
        }
        true
    }

    /// The order that a proposal became, and its epoch's files.
    pub fn adopted(&mut self, id: u64, order: OrderIndex, followed: &Followed, files: &[FileIndex], locked: bool) {
        let Some(at) = self.groups.iter().position(|group| group.id == id) else { return };
        let group = &mut self.groups[at];
        (group.order, group.anew) = (Some(order), false);
        group.followed = locked.then(|| followed.spec.clone());
        let spec = &followed.spec;
        // A list as it was read numbers nothing: whoever reads it again would read «in the order of its names».
        group.numbering = (locked && spec.kind != OrderKind::List)
            .then(|| Map::new(spec.root.clone(), spec.files.clone(), Arc::clone(&followed.samples)));
        group.widen_at = WIDEN_AT;
        group.segment.expected = u32::try_from(files.len()).unwrap_or(u32::MAX);
        if !locked {
            return;
        }
        if let Some(clue) = group.clues.first().filter(|clue| is_worth_keeping(clue)) {
            self.memos.push(clue.memo());
        }
        group.segment.explain(files);
        // Others of this part of the dataset may be ranks of the same order.
        let (root, Some(clue)) = (group.root.clone(), group.clues.first().cloned()) else { return };
        for group in self.groups.iter_mut().filter(|group| group.id != id && group.root == root && group.segment.is_unexplained()) {
            group.learn(clue.clone());
            group.tries[Rung::Known as usize] = (FIRST_TRY, 0);
        }
    }

    /// The order of a group has more ranks now.
    pub fn widened(&mut self, id: u64, spec: &OrderSpec, files: &[FileIndex]) {
        let Some(group) = self.groups.iter_mut().find(|group| group.id == id) else { return };
        if let Some(clue) = group.clues.iter_mut().find(|clue| is_dealt_alike(&clue.spec, spec) && clue.spec.seed == spec.seed) {
            clue.spec.ranks.clone_from(&spec.ranks);
            self.memos.push(clue.memo());
        }
        group.followed = Some(spec.clone());
        group.segment.expected = u32::try_from(files.len()).unwrap_or(u32::MAX);
        group.segment.explain(files);
        (group.widen_at, group.widened) = (group.segment.strange.max(WIDEN_AT), 0);
    }
}

/// What an epoch is seeded with, where that is the seed and the epoch together: seed 1 in epoch 0 is seed 0 in epoch 1.
fn sum(spec: &OrderSpec, epoch: Epoch) -> u64 {
    spec.seed.wrapping_add(epoch)
}

/// The same order but for seed and ranks.
fn is_dealt_alike(one: &OrderSpec, other: &OrderSpec) -> bool {
    let rest =
        |spec: &OrderSpec| OrderSpec { seed: 0, ranks: Vec::new(), epoch: 0, epochs: None, batch: None, workers: None, ..spec.clone() };
    one.kind == OrderKind::TorchDistributed && rest(one) == rest(other)
}

/// The same order, wherever it was found. Lists have no more in common than their name.
fn is_the_same(one: &OrderSpec, other: &OrderSpec) -> bool {
    let rest = |spec: &OrderSpec| OrderSpec { epoch: 0, epochs: None, batch: None, workers: None, ..spec.clone() };
    one.kind == other.kind && one.kind != OrderKind::List && one.seed == other.seed && rest(one) == rest(other)
}

/// Whether later runs gain by it: not what is found without knowing, nor the single epochs of a stream that nobody knows.
fn is_worth_keeping(clue: &Clue) -> bool {
    !matches!(clue.spec.kind, OrderKind::Sequential | OrderKind::List) && (clue.epochs.is_none() || clue.epoch < EPOCHS_KEPT)
}

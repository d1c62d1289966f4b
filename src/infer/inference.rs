//! What readers open, by group, and which search is due: the ladder.
//!
//! A *group* is what reads one part of the dataset (its root) for one job: train, validation, another job each have a hypothesis of their own.
//! Every segment of a group climbs the ladder from its cheapest rung until an order is proved; then it rests for as long as the planner
//! predicts what is opened.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::again::RECORDED_LEAST;
use super::cost::Account;
use super::engine::Followed;
use super::group::{FIRST_TRY, Group, JOBS_MAX, STRANGERS, WIDEN_AT};
use super::job::{Clue, Found, Job, JobResult, Rung};
use super::kept::{Kept, Memo, Shelf, concerns};
use super::maps::MAPS_MAX;
use super::roots::Roots;
use super::segment::Segment;
use super::strides::{self, Beside, Shown};
use super::walks::{Reads, reads};
use crate::dataset::Manifest;
use crate::dataset::maps::NamesText;
use crate::order::spec::{OrderKind, OrderSpec};
use crate::order::torch::RandomSource;
use crate::plan::{OrderIndex, Seen};
use crate::types::{Epoch, FileIndex};

/// Groups told apart: the parts of a dataset, times the jobs of one node. Opens of more are not looked at.
const GROUPS_MAX: usize = 16;
/// Orders remembered per group, to go on from.
const CLUES_MAX: usize = 8;
/// Epochs whose seeds are kept where the stream they come from is not known.
const EPOCHS_KEPT: Epoch = 16;
/// Opens up to which a pass that does not look like a walk is compared with the maps that are there.
const WALKS_UNTIL: u32 = 128;

/// What searches may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InferConfig {
    /// Threads of a search, ≥ 1.
    pub threads: usize,
    /// Whether all 2^32 seeds may be tried.
    pub exhaustive: bool,
    /// Whether likely seeds are tried beyond the first few thousand.
    pub deep: bool,
    /// Nobody waits: a search is worth it even if the pass is over sooner (a log of opens).
    pub patient: bool,
}

impl Default for InferConfig {
    fn default() -> Self {
        Self { threads: 1, exhaustive: true, deep: true, patient: false }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Inference {
    manifest: Arc<Manifest>,
    sizes: Arc<[u64]>,
    roots: Roots,
    groups: Vec<Group>,
    segments: u64,
    config: InferConfig,
    /// Orders found elsewhere, the latest first.
    imported: Vec<Clue>,
    /// Passes that no order explained.
    shelf: Shelf,
    texts: Arc<Vec<NamesText>>,
    /// What is to be kept for later runs; taken by the task.
    memos: Vec<Memo>,
}

/// A proved order, and what must be played back to follow it.
#[derive(Debug)]
pub struct Proposal {
    pub(super) group: u64,
    pub(super) order: Option<OrderIndex>,
    pub(super) found: Found,
    pub(super) trail: Vec<Seen>,
}

impl Inference {
    #[must_use]
    pub fn new(manifest: Arc<Manifest>, sizes: Arc<[u64]>, config: InferConfig) -> Self {
        let roots = Roots::new(&manifest);
        Self {
            manifest,
            sizes,
            roots,
            groups: Vec::new(),
            segments: 0,
            config,
            imported: Vec::new(),
            shelf: Shelf::default(),
            texts: Arc::default(),
            memos: Vec::new(),
        }
    }

    /// An open, of which job (0: not known), and which followed order had it where it was.
    pub fn opened(&mut self, seen: Seen, job: u64, claimed: Option<OrderIndex>) {
        let Some(at) = self.group_of(seen, job, claimed) else { return };
        let group = &mut self.groups[at];
        let claimed = claimed.is_some() && claimed == group.order && !group.anew;
        let begins = group.segment.open(seen, claimed);
        // Whole, or over.
        if (begins.is_some() || group.segment.distinct == group.files)
            && let Some(kept) = group.keep()
        {
            note(&mut self.shelf, &mut self.memos, kept);
        }
        if let Some(opens) = begins {
            self.segments += 1;
            group.begin(self.segments, self.manifest.len(), opens);
        }
    }

    /// The group an open belongs to. None: there are too many.
    fn group_of(&mut self, seen: Seen, job: u64, claimed: Option<OrderIndex>) -> Option<usize> {
        let root = self.roots.of(self.manifest.path(seen.file));
        let of_root = |group: &Group| group.root == root;
        if let Some(at) = self.groups.iter().position(|group| of_root(group) && group.jobs.contains(&job)) {
            return Some(at);
        }
        // Whose reader is not known: of the order that had it, or of the only readers there are.
        if job == 0 {
            let at = self.groups.iter().position(|group| of_root(group) && claimed.is_some() && claimed == group.order);
            let mut all = self.groups.iter().enumerate().filter(|(_, group)| of_root(group)).map(|(at, _)| at);
            let only = all.next().filter(|_| all.next().is_none());
            if at.or(only).is_some() {
                return at.or(only);
            }
        }
        // A job that was started anew goes on where another has fallen silent.
        if let Some(at) = self.groups.iter().position(|group| of_root(group) && group.segment.is_silent(seen.now)) {
            self.segments += 1;
            let group = &mut self.groups[at];
            if let Some(kept) = group.keep() {
                note(&mut self.shelf, &mut self.memos, kept);
            }
            (group.jobs, group.anew, group.followed) = (vec![job], true, None);
            group.begin(self.segments, self.manifest.len(), Vec::new());
            return Some(at);
        }
        if self.groups.len() == GROUPS_MAX {
            return None;
        }
        self.segments += 1;
        let others = self.groups.iter().flat_map(|group| &group.clues);
        let clues = others.filter(|clue| clue.spec.root == root).cloned().collect();
        self.groups.push(Group {
            id: self.segments,
            root: root.to_owned(),
            jobs: vec![job],
            segment: Segment::new(self.segments, self.manifest.len()),
            passes: 0,
            order: None,
            followed: None,
            samples: None,
            anew: false,
            widen_at: WIDEN_AT,
            widened: 0,
            clues,
            recorded: None,
            files: files_below(&self.manifest, root),
            tries: Group::no_tries(),
            settled: [(0, 0); 3],
            began: seen.now,
            account: Account::default(),
            owed: [None; Rung::ALL.len()],
            looked_at: 0,
            vain: [0; Rung::ALL.len()],
            origin: false,
            whole_before: false,
            maps: None,
            busy: [None, None],
            is_kept: false,
            note: String::new(),
        });
        Some(self.groups.len() - 1)
    }

    /// The passes that nobody explained so far, and all that is to be kept. Called when the mount ends.
    pub fn end(&mut self) -> Vec<Memo> {
        for group in &mut self.groups {
            // One that was cut short is kept if it is as long as the one before.
            let before = group.recorded.as_ref().map_or(0, |before| before.len());
            if before > 0
                && group.segment.order.len() * 100 >= before * 99
                && let Some(kept) = group.keep()
            {
                note(&mut self.shelf, &mut self.memos, kept);
            }
        }
        self.memos()
    }

    /// What is to be kept for later runs, once.
    pub fn memos(&mut self) -> Vec<Memo> {
        std::mem::take(&mut self.memos)
    }

    /// A pass of an earlier run: tried from the next opens on.
    pub fn remember(&mut self, kept: Kept) {
        let root = kept.root.clone();
        if self.shelf.put(kept) {
            self.try_known(&root);
        }
    }

    /// A text that readers opened before their first sample.
    pub fn text(&mut self, text: NamesText) {
        Arc::make_mut(&mut self.texts).push(text);
        for group in self.groups.iter_mut().filter(|group| group.segment.is_unexplained()) {
            group.maps = None;
            group.try_anew();
        }
    }

    fn try_known(&mut self, root: &str) {
        for group in self.groups.iter_mut().filter(|group| concerns(&group.root, root)) {
            group.tries[Rung::Known as usize] = (FIRST_TRY, 0);
        }
    }

    /// An order found elsewhere, or in an earlier run: tried on the readers of its root, from their next opens on. False: there are enough.
    pub fn import(&mut self, spec: OrderSpec) -> bool {
        let clue = Clue { epoch: spec.epoch, epochs: spec.epochs, spec };
        if self.imported.iter().any(|known| known.spec == clue.spec) {
            return true;
        }
        let room = self.imported.len() < GROUPS_MAX * CLUES_MAX;
        if room {
            self.try_known(&clue.spec.root);
            self.imported.insert(0, clue);
        }
        room
    }

    /// The next search that is due; `brief`: of those that take no time. One of each runs for a group. `now`: the epoch an order is in.
    pub fn next_job(&mut self, brief: bool, now: impl Fn(OrderIndex) -> Option<Epoch>) -> Option<Job> {
        let config = self.config;
        for number in 0..self.groups.len() {
            while let Some(rung) = self.groups[number].due(&config, brief) {
                let step = self.groups[number].begin_try(rung, &config);
                if let Some(job) = self.job(number, rung, step, &now) {
                    return Some(job);
                }
            }
        }
        None
    }

    /// The search, if it makes sense for what was opened.
    fn job(&mut self, number: usize, rung: Rung, step: u32, now: impl Fn(OrderIndex) -> Option<Epoch>) -> Option<Job> {
        let group = &self.groups[number];
        let remembered: Vec<Clue> = self.imported.iter().filter(|clue| concerns(&clue.spec.root, &group.root)).cloned().collect();
        // This pass itself proves nothing.
        let is_other = |kept: &Kept| !group.is_kept || kept.epoch != group.passes;
        let kept: Vec<Kept> = self.shelf.of(&group.root).into_iter().filter(is_other).collect();
        let (reads, goes_over) = reads(&self.manifest, group.files, group.segment.front());
        let computed = group.maps.as_ref().map_or(0, |maps| maps.computed().len());
        let mut maps_max = MAPS_MAX;
        let mut allowance = group.allowance(rung, &self.config);
        match (rung, reads) {
            (Rung::Origin | Rung::Widen, _) => {}
            // Orders are known, or a walk has gone over into another directory: all maps. Otherwise not one more is made for it.
            (Rung::Known, _) if !group.clues.is_empty() || !remembered.is_empty() || reads == Reads::Walk && goes_over => {}
            (Rung::Known, _) if group.recorded.as_ref().is_some_and(|before| before.len() >= RECORDED_LEAST) || !kept.is_empty() => {
                maps_max = computed.max(1);
            }
            (Rung::Known, _) if computed > 0 && group.segment.count <= WALKS_UNTIL => maps_max = computed,
            // only what is free
            (Rung::Usual, Reads::Corner) => {}
            (Rung::Likely, Reads::Corner) if !self.config.patient => allowance = 0.0,
            (Rung::Known, _) | (_, Reads::Walk) | (Rung::Others, Reads::Corner) => return None,
            // nothing could be paid for
            (Rung::Others, _) if allowance <= 0.0 => return None,
            (Rung::Likely, _) if allowance <= 0.0 && !group.is_free(&self.config) => return None,
            _ => {}
        }
        let group = &mut self.groups[number];
        let stop = Arc::new(AtomicBool::new(false));
        group.busy[usize::from(rung.is_brief())] = Some(Arc::clone(&stop));
        let epoch = group.order.and_then(now);
        Some(Job {
            group: group.id,
            segment: group.segment.number,
            rung,
            followed: group.followed.clone().zip(epoch).filter(|_| rung == Rung::Widen),
            samples: group.samples.clone().filter(|_| rung == Rung::Widen),
            strangers: if rung == Rung::Widen { group.segment.strangers(STRANGERS) } else { Vec::new() },
            root: group.root.clone(),
            manifest: Arc::clone(&self.manifest),
            sizes: Arc::clone(&self.sizes),
            front: group.segment.front().to_vec(),
            far: if rung == Rung::Linear { group.segment.far().to_vec() } else { Vec::new() },
            clues: group.clues.clone(),
            remembered,
            kept,
            texts: Arc::clone(&self.texts),
            maps: group.maps.take(),
            maps_max,
            deep: self.config.deep,
            step,
            is_free: group.is_free(&self.config),
            allowance,
            stop,
            pass: group.passes,
            recorded: group.recorded.clone(),
        })
    }

    /// What a search found. `now`: the epoch an order is in, while it is followed.
    pub fn finished(&mut self, result: JobResult, now: impl Fn(OrderIndex) -> Option<Epoch>) -> Option<Proposal> {
        let at = self.groups.iter().position(|group| group.id == result.group)?;
        let group = &mut self.groups[at];
        let busy = group.busy[usize::from(result.rung.is_brief())].take();
        let was_stopped = busy.is_some_and(|stop| stop.load(std::sync::atomic::Ordering::Relaxed));
        if result.rung != Rung::Widen {
            // two searches have a set each: the one that knows more is kept
            let known = group.maps.as_ref().map_or(0, |maps| maps.computed().len());
            let maps = result.maps.filter(|maps| result.found.is_none() || maps.is_small());
            if maps.as_ref().map_or(0, |maps| maps.computed().len()) >= known {
                group.maps = maps;
            }
        }
        if result.rung == Rung::Origin {
            group.clues.splice(1..1, result.rivals);
            group.clues.truncate(CLUES_MAX);
            group.tries[Rung::Known as usize] = (FIRST_TRY, 0);
            return None;
        }
        if !result.rung.is_long() {
            group.account.spend(result.cost);
        }
        let Some(found) = result.found else {
            if result.segment == group.segment.number && !was_stopped {
                group.owed[result.rung as usize] = result.owed.map(|price| (result.step, price));
                // 1: nothing was supposed, because places were missing.
                let was_tried = result.rung != Rung::Linear || result.tried > 1.0;
                let is_vain = result.owed.is_none() || result.step > 0;
                group.vain[result.rung as usize] += u8::from(result.rung.is_long() && is_vain && was_tried);
            }
            group.note = format!("{} of {} explain nothing: {:.0} orders tried", result.rung.name(), group.root, result.tried);
            return None;
        };
        if found.wider.is_some() {
            group.note.clone_from(&found.why);
            return Some(Proposal { group: group.id, order: group.order, found, trail: Vec::new() });
        }
        if result.segment == group.segment.number && !group.segment.is_unexplained() {
            // Another search was quicker, and what it found holds.
            return None;
        }
        if self.joins(at, &found, &now) {
            return None;
        }
        let group = &mut self.groups[at];
        group.clues.retain(|clue| clue.spec != found.spec);
        group.clues.insert(0, Clue { spec: found.spec.clone(), epoch: found.epoch, epochs: found.epochs });
        group.clues.truncate(CLUES_MAX);
        group.vain = [0; Rung::ALL.len()];
        group.origin = self.config.deep && result.rung.is_long() && is_one_seed(&found);
        if result.segment != group.segment.number {
            // Another pass has begun meanwhile: what is known now is tried on it at once.
            group.tries[Rung::Known as usize] = (FIRST_TRY, 0);
            return None;
        }
        group.note.clone_from(&found.why);
        Some(Proposal { group: group.id, order: group.order, found, trail: group.segment.trail() })
    }

    /// Who else reads, beside the readers of an order, since then.
    pub(super) fn beside(&self, order: OrderIndex, since: Option<Duration>) -> Beside {
        let Some(group) = self.groups.iter().find(|group| group.order == Some(order)) else { return Beside::default() };
        let others = self.groups.iter().filter(|other| other.order != Some(order) && other.jobs.iter().any(|job| group.jobs.contains(job)));
        let read = others.filter(|other| since.is_some_and(|since| other.segment.read_at() > Some(since)));
        Beside { readers: group.segment.readers() as usize, others: read.count() as u64 }
    }

    /// The strides that an order has shown in earlier runs.
    pub(super) fn shown(&self, spec: &OrderSpec) -> Shown {
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
    pub(super) fn went_on(&mut self, order: OrderIndex, spec: &OrderSpec) {
        let Some(group) = self.groups.iter_mut().find(|group| group.order == Some(order)) else { return };
        let clue = Clue { epoch: spec.epoch, epochs: None, spec: spec.clone() };
        group.clues.retain(|known| known.spec != clue.spec);
        if is_worth_keeping(&clue) {
            self.memos.push(Memo::Order(Box::new(spec.clone())));
        }
        group.clues.insert(0, clue);
        group.clues.truncate(CLUES_MAX);
    }

    /// Whether what a group reads is of other ranks of an order that is followed, at the same time: of its own, or another group's. Then they
    /// are one group, and the order will take the ranks in.
    fn joins(&mut self, at: usize, found: &Found, now: impl Fn(OrderIndex) -> Option<Epoch>) -> bool {
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
            let joined = self.groups.remove(at);
            let group = &mut self.groups[if other > at { other - 1 } else { other }];
            group.jobs.extend(&joined.jobs);
            group.segment.take_in(&joined.segment.trail());
            group.widen_at = 0;
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
        group.samples = locked.then(|| Arc::clone(&followed.samples));
        group.widen_at = WIDEN_AT;
        group.segment.expected = u32::try_from(files.len()).unwrap_or(u32::MAX);
        if !locked {
            return;
        }
        if let Some(clue) = group.clues.first().filter(|clue| is_worth_keeping(clue)) {
            let spec = OrderSpec { epoch: clue.epoch, epochs: clue.epochs, ..clue.spec.clone() };
            self.memos.push(Memo::Order(Box::new(spec)));
        }
        group.segment.explain(files);
        // Others of this part of the dataset may be ranks of the same order.
        let (root, clue) = (group.root.clone(), group.clues.first().cloned());
        let others = self.groups.iter_mut().filter(|group| group.id != id && group.root == root && group.segment.is_unexplained());
        for (group, clue) in others.flat_map(|group| clue.clone().map(|clue| (group, clue))) {
            group.clues.retain(|known| known.spec != clue.spec);
            group.clues.insert(0, clue);
            group.clues.truncate(CLUES_MAX);
            group.tries[Rung::Known as usize] = (FIRST_TRY, 0);
        }
    }

    /// The order of a group has more ranks now.
    pub fn widened(&mut self, id: u64, spec: &OrderSpec, files: &[FileIndex]) {
        let Some(group) = self.groups.iter_mut().find(|group| group.id == id) else { return };
        if let Some(clue) = group.clues.iter_mut().find(|clue| is_dealt_alike(&clue.spec, spec) && clue.spec.seed == spec.seed) {
            clue.spec.ranks.clone_from(&spec.ranks);
            self.memos.push(Memo::Order(Box::new(OrderSpec { epoch: clue.epoch, epochs: clue.epochs, ..clue.spec.clone() })));
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

/// Whether all that is known is the seed of one epoch, one of all that there are.
const fn is_one_seed(found: &Found) -> bool {
    matches!(found.spec.kind, OrderKind::TorchRandperm | OrderKind::TorchDistributed) && found.epochs.is_some()
}

/// Whether later runs gain by it: not what is found without knowing, nor the single epochs of a stream that nobody knows.
fn is_worth_keeping(clue: &Clue) -> bool {
    !matches!(clue.spec.kind, OrderKind::Sequential | OrderKind::List) && (clue.epochs.is_none() || clue.epoch < EPOCHS_KEPT)
}

fn note(shelf: &mut Shelf, memos: &mut Vec<Memo>, kept: Kept) {
    if shelf.put(kept.clone()) {
        memos.push(Memo::Pass(kept));
    }
}

fn files_below(manifest: &Manifest, root: &str) -> u32 {
    let below = |file: &u32| {
        let path = manifest.path(FileIndex(*file));
        root.is_empty() || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'))
    };
    let all = u32::try_from(manifest.len()).unwrap_or(u32::MAX);
    u32::try_from((0..all).filter(below).count()).unwrap_or(u32::MAX)
}

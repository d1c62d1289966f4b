//! What readers open, by group, and which search is due: the ladder.
//!
//! A *group* is what reads one part of the dataset (its root) for one job: train, validation, another job each have a hypothesis of their own.
//! Every segment of a group climbs the ladder from its cheapest rung until an order is proved; then it rests for as long as the planner
//! predicts what is opened.

mod followed;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::again;
use super::cost::{Account, Quick};
use super::group::{CLUES_MAX, FIRST_TRY, Group, STRANGERS, WIDEN_AT};
use super::job::{Clue, Found, Job, JobResult, Rung};
use super::kept::{Kept, Memo, Shelf, concerns};
use super::maps::MAPS_MAX;
use super::roots::Roots;
use super::segment::Segment;
use super::told::{Jobs, Told};
use super::walks::{Reads, reads};
use crate::dataset::Manifest;
use crate::dataset::maps::NamesText;
use crate::order::spec::{OrderKind, OrderSpec};
use crate::plan::{OrderIndex, Seen};
use crate::types::{Epoch, FileIndex};

/// Groups told apart: the parts of a dataset, times the jobs of one node. Opens of more are not looked at.
const GROUPS_MAX: usize = 16;
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

impl InferConfig {
    /// A log whose answer is wanted at once: all searches together take some seconds at most (`cost::Quick`).
    #[must_use]
    pub const fn is_quick(&self) -> bool {
        self.patient && !self.exhaustive
    }
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
    quick: Quick,
    /// Orders found elsewhere, the latest first.
    imported: Vec<Clue>,
    /// Passes that no order explained.
    shelf: Shelf,
    texts: Arc<Vec<NamesText>>,
    /// What is to be kept for later runs; taken by the task.
    memos: Vec<Memo>,
    told: Jobs,
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
            quick: Quick::default(),
            imported: Vec::new(),
            shelf: Shelf::default(),
            texts: Arc::default(),
            memos: Vec::new(),
            told: Jobs::default(),
        }
    }

    /// An open, of which job (0: not known), and which followed order had it where it was.
    pub fn opened(&mut self, seen: Seen, job: u64, claimed: Option<OrderIndex>) {
        let Some(at) = self.group_of(seen, job, claimed) else { return };
        let is_own = claimed.is_some_and(|order| self.groups[at].order == Some(order) || self.is_twin(at, order));
        let group = &mut self.groups[at];
        if let Some(order) = claimed.filter(|_| !is_own) {
            let opens = group.had_by.map_or(0, |(by, opens)| if by == order { opens } else { 0 });
            group.had_by = Some((order, opens + 1));
        }
        let claimed = is_own && !group.anew;
        let begins = group.segment.open(seen, claimed);
        if group.segment.lost_streams() {
            group.try_anew();
        }
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
            (group.jobs, group.anew, group.followed, group.torn) = (vec![job], true, None, 0);
            group.begin(self.segments, self.manifest.len(), Vec::new());
            group.began_with = group.passes;
            return Some(at);
        }
        if self.groups.len() == GROUPS_MAX {
            return None;
        }
        self.segments += 1;
        let others = self.groups.iter().flat_map(|group| &group.clues);
        let clues = others.filter(|clue| clue.spec.root == root).cloned().collect();
        let files = files_below(&self.manifest, root);
        self.groups.push(Group {
            id: self.segments,
            root: root.to_owned(),
            jobs: vec![job],
            segment: Segment::new(self.segments, self.manifest.len()),
            passes: 0,
            order: None,
            followed: None,
            numbering: None,
            had_by: None,
            anew: false,
            widen_at: WIDEN_AT,
            widened: 0,
            clues,
            recorded: None,
            is_pass: false,
            far_at: 0,
            rests_until: 0,
            is_going_on: false,
            files,
            tries: Group::no_tries(files),
            settled: [(0, 0); 3],
            began: seen.now,
            account: Account::default(),
            quick: self.quick,
            owed: [None; Rung::ALL.len()],
            looked_at: 0,
            usual_at: 0,
            compared_at: 0,
            began_with: 0,
            vain: [0; Rung::ALL.len()],
            origin: false,
            whole_before: false,
            maps: None,
            busy: [None, None],
            is_kept: false,
            in_vain: None,
            torn: 0,
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
            group.compared_at = 0;
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

    /// What the environment of one of a job's processes says.
    pub fn told(&mut self, job: u64, told: Told) {
        self.told.tell(job, told);
    }

    /// What no order explains, how far it was searched, and what was left out: for people.
    pub fn unexplained(&self) -> impl Iterator<Item = String> {
        self.groups.iter().filter(|group| group.segment.is_unexplained()).filter_map(|group| {
            let root = if group.root.is_empty() { "the mount" } else { &group.root };
            if let Some(few) = group.too_few() {
                return Some(format!("{root}: {few}"));
            }
            let (rung, tried) = group.in_vain?;
            let left_out = rung.leaves_out().map_or(String::new(), |what| format!("; not looked for: {what}"));
            let quick = if self.config.is_quick() { group.too_dear() } else { Vec::new() };
            let quick = if quick.is_empty() { quick.concat() } else { format!("; left out to be quick: {}", quick.join(", ")) };
            Some(format!(
                "{root}: no order explains what was opened last; searched up to {} ({tried:.0} tried){left_out}{quick}",
                rung.name()
            ))
        })
    }

    /// The next search that is due; `brief`: of those that take no time. One of each runs for a group. `now`: the epoch an order is in, while it is
    /// followed; `last`: ... or was in.
    pub fn next_job(&mut self, brief: bool, now: impl Fn(OrderIndex) -> Option<Epoch>, last: impl Fn(OrderIndex) -> Epoch) -> Option<Job> {
        let config = self.config;
        for number in 0..self.groups.len() {
            self.groups[number].quick = self.quick;
            loop {
                let remembers = |root: &str| self.imported.iter().any(|clue| concerns(&clue.spec.root, root));
                let Some(rung) = self.groups[number].due(&config, brief, remembers) else { break };
                let (goes_far, owed) = (self.groups[number].goes_far(), self.groups[number].owed[rung as usize]);
                let step = self.groups[number].begin_try(rung, &config);
                if let Some(job) = self.job(number, rung, step, &now, &last) {
                    return Some(Job { goes_far, ..job });
                }
                self.groups[number].put_off(rung, owed);
            }
        }
        None
    }

    /// The search, if it makes sense for what was opened.
    fn job(
        &mut self,
        number: usize,
        rung: Rung,
        step: u32,
        now: impl Fn(OrderIndex) -> Option<Epoch>,
        last: impl Fn(OrderIndex) -> Epoch,
    ) -> Option<Job> {
        let group = &self.groups[number];
        let remembered: Vec<Clue> = self.imported.iter().filter(|clue| concerns(&clue.spec.root, &group.root)).cloned().collect();
        // This pass itself proves nothing.
        let is_other = |kept: &Kept| !group.is_kept || kept.epoch != group.passes;
        let kept: Vec<Kept> = self.shelf.of(&group.root).into_iter().filter(is_other).collect();
        let (reads, goes_over) = reads(&self.manifest, group.files, group.segment.front());
        let computed = group.maps.as_ref().map_or(0, |maps| maps.computed().len());
        let (mut maps_max, mut is_compared) = (MAPS_MAX, false);
        let mut allowance = group.allowance(rung, &self.config);
        match (rung, reads) {
            (Rung::Origin | Rung::Widen, _) => {}
            // Orders are known, or a walk has gone over into another directory: all maps. Otherwise not one more is made for it.
            (Rung::Known, _) if !group.clues.is_empty() || !remembered.is_empty() || reads == Reads::Walk && goes_over => {}
            (Rung::Known, _)
                if again::tells(group.segment.count, group.compared_at)
                    && (!kept.is_empty() || group.recorded.as_ref().is_some_and(|before| before.len() >= again::RECORDED_LEAST)) =>
            {
                maps_max = computed.max(1);
                is_compared = true;
            }
            (Rung::Known, _) if computed > 0 && group.segment.count <= WALKS_UNTIL => maps_max = computed,
            // only what is free
            (Rung::Usual, Reads::Corner) => {}
            (Rung::Likely, Reads::Corner) if !self.config.patient => {
                // what is paid for waits until it is no corner any more
                if !group.is_free(&self.config) || group.is_going_on {
                    return None;
                }
                allowance = 0.0;
            }
            (Rung::Known, _) | (_, Reads::Walk) | (Rung::Others, Reads::Corner) => return None,
            // nothing could be paid for
            (Rung::Others, _) if allowance <= 0.0 => return None,
            (Rung::Likely, _) if allowance <= 0.0 && !group.is_free(&self.config) => return None,
            _ => {}
        }
        let group = &mut self.groups[number];
        if is_compared {
            group.compared_at = group.segment.count;
        }
        let stop = Arc::new(AtomicBool::new(false));
        group.busy[usize::from(rung.is_brief())] = Some(Arc::clone(&stop));
        let epoch = group.order.and_then(now);
        Some(Job {
            group: group.id,
            segment: group.segment.number,
            rung,
            followed: group.followed.clone().zip(epoch).filter(|_| rung == Rung::Widen),
            numbering: group.numbering.clone().filter(|_| matches!(rung, Rung::Widen | Rung::Known)),
            strangers: if rung == Rung::Widen { group.segment.strangers(STRANGERS) } else { Vec::new() },
            last_epoch: group.order.map(last),
            root: group.root.clone(),
            files: group.files,
            manifest: Arc::clone(&self.manifest),
            sizes: Arc::clone(&self.sizes),
            front: group.segment.front().to_vec(),
            distinct: group.segment.distinct as usize,
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
            is_first: group.is_first(&self.config),
            goes_far: true,
            allowance,
            stop,
            pass: group.passes,
            recorded: group.recorded.clone(),
            is_pass: group.is_pass,
            told: self.told.of(&group.jobs),
        })
    }

    /// What a search found. `now`: the epoch an order is in, while it is followed.
    pub fn finished(&mut self, result: JobResult, now: impl Fn(OrderIndex) -> Option<Epoch>) -> Option<Proposal> {
        let at = self.groups.iter().position(|group| group.id == result.group)?;
        self.quick.spend(result.rung, self.groups[at].files, result.cost, result.free);
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
            // how an order goes on is looked for in each pass: what is free of that is no debt
            group.account.spend(result.cost - if result.rung == Rung::Known { result.free } else { 0.0 });
        }
        let Some(found) = result.found else {
            if result.segment == group.segment.number && !was_stopped {
                group.owed[result.rung as usize] = result.owed.map(|price| (result.step, price));
                // 1: nothing was supposed, because places were missing.
                let was_tried = result.rung != Rung::Linear || result.tried > 1.0;
                let is_vain = result.owed.is_none() || result.step > 0;
                group.vain[result.rung as usize] += u8::from(result.rung.is_long() && is_vain && was_tried);
            }
            // what was not paid for at all is no search
            let is_searched = result.owed.is_none() || result.tried > 1.0;
            let is_dearest = group.in_vain.is_none_or(|(dearest, _)| dearest <= result.rung);
            if result.segment == group.segment.number && is_searched && is_dearest {
                group.in_vain = Some((result.rung, result.tried));
            }
            return None;
        };
        if found.wider.is_some() {
            return Some(Proposal { group: group.id, order: group.order, found, trail: Vec::new() });
        }
        if result.segment == group.segment.number && !group.segment.is_unexplained() {
            // Another search was quicker, and what it found holds.
            return None;
        }
        if self.goes_on_in(at) || self.joins(at, &found, &now) {
            return None;
        }
        let group = &mut self.groups[at];
        group.learn(Clue { spec: found.spec.clone(), epoch: found.epoch, epochs: found.epochs });
        group.vain = [0; Rung::ALL.len()];
        group.origin = self.config.deep && result.rung.is_long() && is_one_seed(&found);
        if result.segment != group.segment.number {
            // Another pass has begun meanwhile: what is known now is tried on it at once.
            group.tries[Rung::Known as usize] = (FIRST_TRY, 0);
            return None;
        }
        Some(Proposal { group: group.id, order: group.order, found, trail: group.segment.trail() })
    }
}

/// Whether all that is known is the seed of one epoch, one of all that there are.
const fn is_one_seed(found: &Found) -> bool {
    matches!(found.spec.kind, OrderKind::TorchRandperm | OrderKind::TorchDistributed) && found.epochs.is_some()
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

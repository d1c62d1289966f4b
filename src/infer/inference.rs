//! What readers open, by group, and which search is due: the ladder.
//!
//! A *group* is what reads one part of the dataset (its root) for one job: train, validation, another job each have a hypothesis of their own.
//! Every segment of a group climbs the ladder from its cheapest rung until an order is proved; then it rests for as long as the planner
//! predicts what is opened.

use std::sync::Arc;

use super::group::{FIRST_TRY, Group, schedule};
use super::job::{Clue, Found, Job, JobResult, Rung};
use super::kept::{Kept, Memo, Shelf, concerns};
use super::roots::Roots;
use super::segment::Segment;
use crate::dataset::Manifest;
use crate::dataset::maps::NamesText;
use crate::order::spec::{OrderKind, OrderSpec};
use crate::plan::{OrderIndex, Seen};
use crate::types::{Epoch, FileIndex};

/// Groups told apart: the parts of a dataset, times the jobs of one node. Opens of more are not looked at.
const GROUPS_MAX: usize = 16;
/// Orders remembered per group, to go on from.
const CLUES_MAX: usize = 8;
/// Epochs whose seeds are kept where the stream they come from is not known.
const EPOCHS_KEPT: Epoch = 16;
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
    pub(super) group: usize,
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
        let root = self.roots.of(self.manifest.path(seen.file));
        let at = self.groups.iter().position(|group| group.root == root && group.job == job);
        // A job that was started anew goes on where another has fallen silent.
        let at = at.or_else(|| {
            let at = self.groups.iter().position(|group| group.root == root && group.segment.is_silent(seen.now))?;
            self.groups[at].job = job;
            Some(at)
        });
        let group = match at {
            Some(at) => &mut self.groups[at],
            None if self.groups.len() < GROUPS_MAX => {
                self.segments += 1;
                let others = self.groups.iter().flat_map(|group| &group.clues);
                let clues = others.filter(|clue| clue.spec.root == root).cloned().collect();
                let segment = Segment::new(self.segments, self.manifest.len());
                self.groups.push(Group {
                    root: root.to_owned(),
                    job,
                    segment,
                    passes: 0,
                    order: None,
                    clues,
                    recorded: None,
                    files: files_below(&self.manifest, root),
                    tries: Group::no_tries(),
                    settled: (0, 0),
                    whole_before: false,
                    maps: None,
                    busy: false,
                    is_kept: false,
                    note: String::new(),
                });
                self.groups.last_mut().expect("pushed above")
            }
            None => return,
        };
        let claimed = claimed.is_some() && claimed == group.order;
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
            group.tries = Group::no_tries();
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

    /// The next search that is due. One at a time runs for a group.
    pub fn next_job(&mut self) -> Option<Job> {
        let config = self.config;
        let (number, rung) = self.groups.iter().enumerate().find_map(|(number, group)| Some((number, group.due(&config)?)))?;
        let group = &mut self.groups[number];
        group.busy = true;
        let tries = &mut group.tries[rung as usize];
        let (first, times, _) = schedule(rung);
        if rung == Rung::Likely && group.segment.count < first {
            // An early try: all workers seemed to be there. It does not count for the others' time.
            group.settled = (group.settled.0 + 1, group.segment.count);
        } else {
            *tries = (group.segment.count.saturating_mul(times).max(first), tries.1 + 1);
            if rung == Rung::Likely {
                group.settled = (group.settled.0 + 1, group.segment.count);
            }
        }
        Some(Job {
            group: number,
            segment: group.segment.number,
            rung,
            root: group.root.clone(),
            manifest: Arc::clone(&self.manifest),
            sizes: Arc::clone(&self.sizes),
            front: group.segment.front().to_vec(),
            clues: group.clues.clone(),
            remembered: self.imported.iter().filter(|clue| concerns(&clue.spec.root, &group.root)).cloned().collect(),
            kept: self.shelf.of(&group.root),
            texts: Arc::clone(&self.texts),
            maps: group.maps.clone(),
            deep: config.deep,
            pass: group.passes,
            recorded: group.recorded.clone(),
        })
    }

    /// What a search found.
    pub fn finished(&mut self, result: JobResult) -> Option<Proposal> {
        let group = self.groups.get_mut(result.group)?;
        group.busy = false;
        group.maps = result.maps.filter(|_| result.found.is_none());
        let Some(found) = result.found else {
            group.note = format!("{} of {} explain nothing: {:.0} orders tried", result.rung.name(), group.root, result.tried);
            return None;
        };
        group.clues.retain(|clue| clue.spec != found.spec);
        group.clues.insert(0, Clue { spec: found.spec.clone(), epoch: found.epoch, epochs: found.epochs });
        group.clues.splice(1..1, result.rivals);
        group.clues.truncate(CLUES_MAX);
        if result.segment != group.segment.number {
            // Another pass has begun meanwhile: what is known now is tried on it at once.
            group.tries[Rung::Known as usize] = (FIRST_TRY, 0);
            return None;
        }
        group.note.clone_from(&found.why);
        Some(Proposal { group: result.group, order: group.order, found, trail: group.segment.trail() })
    }

    /// The order that a proposal became.
    pub fn adopted(&mut self, group: usize, order: OrderIndex, files: u32, locked: bool) {
        if let Some(group) = self.groups.get_mut(group) {
            group.order = Some(order);
            group.segment.expected = files;
            if locked {
                if let Some(clue) = group.clues.first().filter(|clue| is_worth_keeping(clue)) {
                    let spec = OrderSpec { epoch: clue.epoch, epochs: clue.epochs, ..clue.spec.clone() };
                    self.memos.push(Memo::Order(Box::new(spec)));
                }
                group.segment.explain();
            }
        }
    }
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

//! What readers open, by group, and which search is due: the ladder.
//!
//! A *group* is what reads one part of the dataset (its root) for one job: train, validation, another job each have a hypothesis of their own.
//! Every segment of a group climbs the ladder from its cheapest rung until an order is proved; then it rests for as long as the planner
//! predicts what is opened.

use std::sync::Arc;

use super::job::{Clue, Found, Job, JobResult, Rung};
use super::roots::Roots;
use super::segment::Segment;
use crate::dataset::Manifest;
use crate::plan::{OrderIndex, Seen};
use crate::types::{Epoch, FileIndex};

/// Groups told apart: the parts of a dataset, times the jobs of one node. Opens of more are not looked at.
const GROUPS_MAX: usize = 16;
/// Orders remembered per group, to go on from.
const CLUES_MAX: usize = 4;
/// Opens after which known orders are tried (again): each time twice as many.
const FIRST_TRY: u32 = 8;
/// The dictionary's turn (field notes «orders» §5c): so many opens, or so many after the last new process, and never before this many.
const SEARCH_AT: u32 = 128;
const AFTER_NEWEST: u32 = 16;
const SEARCH_LEAST: u32 = 24;
/// Tries of a rung in one segment: with four and sixteen times the opens, workers that began late have come, too.
const TRIES_MAX: u32 = 3;

/// Readers of one root, of one job.
#[derive(Debug)]
struct Group {
    root: String,
    job: u64,
    segment: Segment,
    /// Segments before.
    passes: Epoch,
    order: Option<OrderIndex>,
    clues: Vec<Clue>,
    recorded: Option<Arc<Vec<FileIndex>>>,
    /// Opens at which known orders are tried next.
    known_at: u32,
    /// Opens at which the dictionary is tried next, and how often it was.
    dictionary_at: u32,
    dictionary_tries: u32,
    /// A search runs.
    busy: bool,
    /// What was searched last and came of it, for people.
    note: String,
}

impl Group {
    fn begin(&mut self, number: u64, files: usize, opens: Vec<(Seen, bool)>) {
        let mut next = Segment::new(number, files);
        next.expected = self.segment.expected;
        for (seen, claimed) in opens {
            // it has just begun: nothing in it is another beginning
            next.open(seen, claimed);
        }
        let before = std::mem::replace(&mut self.segment, next);
        self.passes += 1;
        self.recorded = Some(Arc::new(before.order));
        self.known_at = FIRST_TRY;
        self.dictionary_at = SEARCH_AT;
        self.dictionary_tries = 0;
    }

    fn due(&self) -> Option<Rung> {
        let segment = &self.segment;
        if self.busy || segment.count < FIRST_TRY || !segment.is_unexplained() {
            return None;
        }
        let settled = segment.count >= SEARCH_LEAST && segment.count - segment.newest_at >= AFTER_NEWEST;
        let more = self.dictionary_tries > 0;
        if segment.count >= self.known_at {
            Some(Rung::Known)
        } else if self.dictionary_tries < TRIES_MAX && (segment.count >= self.dictionary_at || settled && !more) {
            Some(Rung::Dictionary)
        } else {
            None
        }
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
    pub fn new(manifest: Arc<Manifest>, sizes: Arc<[u64]>) -> Self {
        let roots = Roots::new(&manifest);
        Self { manifest, sizes, roots, groups: Vec::new(), segments: 0 }
    }

    /// An open, of which job (0: not known), and which followed order had it where it was.
    pub fn opened(&mut self, seen: Seen, job: u64, claimed: Option<OrderIndex>) {
        let root = self.roots.of(self.manifest.path(seen.file));
        let at = self.groups.iter().position(|group| group.root == root && group.job == job);
        let group = match at {
            Some(at) => &mut self.groups[at],
            None if self.groups.len() < GROUPS_MAX => {
                self.segments += 1;
                let segment = Segment::new(self.segments, self.manifest.len());
                self.groups.push(Group {
                    root: root.to_owned(),
                    job,
                    segment,
                    passes: 0,
                    order: None,
                    clues: Vec::new(),
                    recorded: None,
                    known_at: FIRST_TRY,
                    dictionary_at: SEARCH_AT,
                    dictionary_tries: 0,
                    busy: false,
                    note: String::new(),
                });
                self.groups.last_mut().expect("pushed above")
            }
            None => return,
        };
        let claimed = claimed.is_some() && claimed == group.order;
        if let Some(opens) = group.segment.open(seen, claimed) {
            self.segments += 1;
            group.begin(self.segments, self.manifest.len(), opens);
        }
    }

    /// The next search that is due. One at a time runs for a group.
    pub fn next_job(&mut self) -> Option<Job> {
        let (number, rung) = self.groups.iter().enumerate().find_map(|(number, group)| Some((number, group.due()?)))?;
        let group = &mut self.groups[number];
        group.busy = true;
        match rung {
            Rung::Known => group.known_at = group.segment.count.saturating_mul(2),
            Rung::Dictionary => {
                group.dictionary_tries += 1;
                group.dictionary_at = group.segment.count.saturating_mul(4).max(SEARCH_AT);
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
            pass: group.passes,
            recorded: group.recorded.clone(),
        })
    }

    /// What a search found.
    pub fn finished(&mut self, result: JobResult) -> Option<Proposal> {
        let group = self.groups.get_mut(result.group)?;
        group.busy = false;
        let Some(found) = result.found else {
            group.note = format!("{} of {} explain nothing: {:.0} orders tried", result.rung.name(), group.root, result.tried);
            return None;
        };
        group.clues.retain(|clue| clue.spec != found.spec);
        group.clues.insert(0, Clue { spec: found.spec.clone(), epoch: found.epoch });
        group.clues.truncate(CLUES_MAX);
        if result.segment != group.segment.number {
            // Another pass has begun meanwhile: what is known now is tried on it at once.
            group.known_at = group.known_at.min(group.segment.count.max(FIRST_TRY));
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
                group.segment.explain();
            }
        }
    }
}

//! Readers of one part of the dataset for one job, and which rung of the ladder is due for them.
//!
//! Not here: which opens are theirs (`inference`), and what a rung does (`rungs`).

use std::sync::Arc;

use super::inference::InferConfig;
use super::job::{Clue, Rung};
use super::kept::Kept;
use super::segment::Segment;
use crate::dataset::maps::CandidateMap;
use crate::order::infer::lanes::CodePath;
use crate::order::infer::meet::{MEET_FROM, MEET_OPENS};
use crate::plan::{OrderIndex, Seen};
use crate::types::{Epoch, FileIndex};

/// Opens after which known orders are tried (again): each time twice as many.
pub(super) const FIRST_TRY: u32 = 8;
/// The dictionary's turn (field notes «orders» §5c): so many opens, or so many after the last new process, and never before this many.
const SEARCH_AT: u32 = 128;
const AFTER_NEWEST: u32 = 16;
const SEARCH_LEAST: u32 = 24;
/// Such tries in one segment: workers may begin one by one.
const SETTLED_TRIES: u32 = 8;
/// Opens for the exhaustive search: so many that a hit is no chance even where streams are not known.
const EXHAUSTIVE_AT: u32 = 256;
/// Core-seconds of it by code path, half as much again as measured (`benches/README.md`: 31, 106, 254): other work goes on.
const fn exhaustive_core_seconds(path: CodePath) -> f64 {
    match path {
        CodePath::Avx512 => 46.0,
        CodePath::Avx2 => 160.0,
        CodePath::Portable => 380.0,
    }
}

/// When a rung is tried in one segment: first at so many opens, then each time at so many times as many, at most so often.
pub(super) const fn schedule(rung: Rung) -> (u32, u32, u32) {
    match rung {
        Rung::Known => (FIRST_TRY, 2, 16),
        // with four and sixteen times the opens, workers that began late have come, too
        Rung::Likely => (SEARCH_AT, 4, 3),
        Rung::Others => (SEARCH_AT, 16, 2),
        Rung::Meet => (MEET_OPENS as u32, 2, 2),
        Rung::Exhaustive | Rung::Backward => (EXHAUSTIVE_AT, 1, 1),
    }
}

/// Readers of one root, of one job.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) root: String,
    pub(super) job: u64,
    pub(super) segment: Segment,
    /// Segments before.
    pub(super) passes: Epoch,
    pub(super) order: Option<OrderIndex>,
    pub(super) clues: Vec<Clue>,
    pub(super) recorded: Option<Arc<Vec<FileIndex>>>,
    /// Files below the root: no map has more.
    pub(super) files: u32,
    /// Per rung: opens at which it is tried next, and how often it was.
    pub(super) tries: [(u32, u32); Rung::ALL.len()],
    /// Early tries of the dictionary in this segment, and how many opens there were at the last one.
    pub(super) settled: (u32, u32),
    /// An order of a pass that is over was searched for from its end.
    pub(super) whole_before: bool,
    /// Maps of the last search; none while an order is followed: they are large.
    pub(super) maps: Option<Arc<Vec<CandidateMap>>>,
    /// A search runs.
    pub(super) busy: bool,
    /// Its pass is kept for later runs.
    pub(super) is_kept: bool,
    /// What was searched last and came of it, for people.
    pub(super) note: String,
}

impl Group {
    pub(super) fn begin(&mut self, number: u64, files: usize, opens: Vec<(Seen, bool)>) {
        let mut next = Segment::new(number, files);
        next.expected = self.segment.expected;
        for (seen, claimed) in opens {
            // it has just begun: nothing in it is another beginning
            next.open(seen, claimed);
        }
        let before = std::mem::replace(&mut self.segment, next);
        self.passes += 1;
        self.whole_before = before.distinct > 1 && before.distinct == self.files && before.is_unexplained();
        self.recorded = Some(Arc::new(before.order));
        self.tries = Self::no_tries();
        self.settled = (0, 0);
        self.is_kept = false;
    }

    /// The pass, if it is worth keeping and not kept yet.
    pub(super) fn keep(&mut self) -> Option<Kept> {
        let segment = &self.segment;
        if self.is_kept || !segment.was_unexplained() || !Kept::is_worth(segment.order.len(), self.files) {
            return None;
        }
        self.is_kept = true;
        Some(Kept { root: self.root.clone(), epoch: self.passes, files: Arc::new(segment.order.clone()) })
    }

    pub(super) fn no_tries() -> [(u32, u32); Rung::ALL.len()] {
        Rung::ALL.map(|rung| (schedule(rung).0, 0))
    }

    pub(super) fn due(&self, config: &InferConfig) -> Option<Rung> {
        let segment = &self.segment;
        if self.busy || segment.count < FIRST_TRY || !segment.is_unexplained() || segment.may_begin() {
            return None;
        }
        // All workers seem to have begun, and none of them had at the last such try.
        let settled = segment.count >= SEARCH_LEAST
            && segment.count - segment.newest_at >= AFTER_NEWEST
            && self.settled.0 < SETTLED_TRIES
            && (self.settled.0 == 0 || segment.newest_at > self.settled.1);
        let is_due = |rung: Rung| {
            let (at, tried) = self.tries[rung as usize];
            if rung == Rung::Likely && settled {
                return true;
            }
            let time = segment.count >= at;
            let sense = match rung {
                Rung::Known | Rung::Likely => true,
                // where all seeds cost less than these, they come first
                Rung::Others => self.files < MEET_FROM || self.tries[Rung::Meet as usize].1 > 0,
                Rung::Meet => self.files >= MEET_FROM,
                Rung::Exhaustive => config.exhaustive && self.is_worth(config),
                Rung::Backward => config.exhaustive && self.whole_before,
            };
            time && sense && tried < schedule(rung).2
        };
        Rung::ALL.into_iter().find(|&rung| is_due(rung))
    }

    /// Whether the pass goes on for longer than the exhaustive search takes.
    fn is_worth(&self, config: &InferConfig) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let search = exhaustive_core_seconds(CodePath::best()) / config.threads as f64;
        let left = f64::from(self.files.saturating_sub(self.segment.distinct)) / self.segment.rate();
        config.patient || left > search
    }
}

//! One pass of readers through one epoch's order: which places were opened, where each process is, and how likely the next open is.
//!
//! A pass is also the unit of a hypothesis: "the readers are in epoch e, here" is a pass with a [`Belief`]. It does not decide anything;
//! `cursor.rs` compares passes.

mod begins;
mod come;
mod recent;
mod streams;
mod until;
mod widened;

use std::collections::VecDeque;
use std::sync::Arc;

use super::EpochFiles;
use super::belief::{Belief, Density, ELSEWHERE, Kernel};
use super::count::EpochCount;
use super::next_use::Round;
use crate::types::{Epoch, FileIndex, QuickMap};
use begins::Begins;
use come::Coming;
use recent::Recent;
use streams::Last;

/// An epoch's order and its inverse: the places of each file, in compressed rows (8 bytes a file).
#[derive(Debug)]
pub(crate) struct EpochIndex {
    pub(crate) epoch: Epoch,
    pub(crate) order: Arc<EpochFiles>,
    starts: Vec<u32>,
    places: Vec<u32>,
    pub(crate) bytes: u64,
    /// First and last of its files, as the listing has them.
    extent: (FileIndex, FileIndex),
}

impl EpochIndex {
    pub(crate) fn new(epoch: Epoch, order: Arc<EpochFiles>, sizes: &[u64]) -> Self {
        let mut starts = vec![0u32; sizes.len() + 1];
        let mut bytes = 0;
        for file in &order.files {
            starts[file.at() + 1] += 1;
            bytes += sizes[file.at()];
        }
        for file in 0..sizes.len() {
            starts[file + 1] += starts[file];
        }
        let mut places = vec![0u32; order.files.len()];
        // Filled from the back, so that each row ends up ascending and `starts` is shifted into place by the fill itself.
        let len = u32::try_from(order.files.len()).expect("orders longer than 2^32 are refused before");
        for (place, file) in (0..len).rev().zip(order.files.iter().rev()) {
            let slot = &mut starts[file.at() + 1];
            *slot -= 1;
            places[*slot as usize] = place;
        }
        // Now starts[f + 1] is the beginning of row f.
        starts.rotate_left(1);
        let files = sizes.len();
        starts[files] = len;
        let extent = order.files.iter().min().copied().zip(order.files.iter().max().copied());
        let extent = extent.unwrap_or((FileIndex(0), FileIndex(0)));
        Self { epoch, order, starts, places, bytes, extent }
    }

    /// The same order as the epoch after it.
    pub(crate) fn again(one: &Arc<Self>) -> Arc<Self> {
        let Self { epoch, order, starts, places, bytes, extent } = &**one;
        let (starts, places) = (starts.clone(), places.clone());
        Arc::new(Self { epoch: epoch + 1, order: Arc::clone(order), starts, places, bytes: *bytes, extent: *extent })
    }

    /// Whether a file is of the part of the dataset that this order is over: what its readers open elsewhere (validation, another walk) says
    /// nothing of it.
    pub(crate) fn is_over(&self, file: FileIndex) -> bool {
        self.extent.0 <= file && file <= self.extent.1
    }

    pub(crate) fn places(&self, file: FileIndex) -> &[u32] {
        &self.places[self.starts[file.at()] as usize..self.starts[file.at() + 1] as usize]
    }

    pub(crate) fn len(&self) -> u32 {
        // Event::Order refuses longer ones.
        u32::try_from(self.order.files.len()).unwrap_or(u32::MAX)
    }
}

/// How an open looks from a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    /// The place it would be: the next unopened one of this file, or an opened one.
    pub(crate) place: Option<u32>,
    /// Not opened before in this pass.
    pub(crate) fresh: bool,
    /// Likelihood ratio against uniform.
    pub(crate) ratio: f64,
    /// Among the places that a loader opens next: what the look-ahead is for.
    pub(crate) near: bool,
    /// The first open of its process in this pass.
    pub(crate) begins: bool,
}

impl Sight {
    /// What an open of this ratio says for the order. Where a worker begins, within its loader's reach, says nothing: its first batch may be any of them, and a
    /// node of many workers would speak against an order that is right.
    pub(crate) fn evidence(&self, ratio: f64) -> f64 {
        if self.fresh && self.near && self.begins { ratio.max(1.0) } else { ratio }
    }
    /// The open is where the order had it.
    pub(crate) fn is_predicted(&self) -> bool {
        self.expected() != Expected::Elsewhere
    }
    pub(crate) fn expected(&self) -> Expected {
        match self {
            Self { fresh: true, ratio, .. } if *ratio >= 1.0 => Expected::Next,
            Self { fresh: true, near: true, .. } => Expected::InReach,
            Self { fresh: false, ratio, .. } if *ratio >= 1.0 => Expected::Behind,
            _ => Expected::Elsewhere,
        }
    }
}

/// Where an open is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Likely to be the next, for its process or all of them.
    Next,
    /// Not likely, but a loader may open it now.
    InReach,
    /// The next of a process that reads what another one has read before it.
    Behind,
    Elsewhere,
}

/// Steps searched backwards for the end of a run of opened places.
const RUN_SEARCH: u32 = 8;
/// How far ahead of the slowest a loader's workers open before that was seen: half of the epoch, at most 16 workers of each rank with 2 batches
/// of 128, at least 4 with 2 of 32.
const REACH_SHARE: u32 = 2;
const REACH_LEAST: u32 = 256;
const REACH_MOST: u32 = 4096;
/// Of a pass that may come next so many places are fetched before it is opened: four opens tell whether it comes, and its readers open more only
/// while that is found out; a small part of the epoch, if it does not come.
const FRONT_SHARE: u32 = 16;
const FRONT_LEAST: u32 = 64;
const FRONT_MOST: u32 = 512;
/// So many places are known in the sequence in which they are opened, which its readers follow when it has come: what 4 workers with 2 batches of
/// 256 have open at once. By place, the last worker's first batch would come after the others'.
const OPENING_SHARE: u32 = 4;
const OPENING_MOST: u32 = 2048;
/// Opens of a pass until it has begun: fewer may be single reads (`dataset[0]`, a logged sample).
pub(crate) const BEGUN: u32 = 8;

#[derive(Debug)]
pub(crate) struct Pass {
    pub(crate) index: Arc<EpochIndex>,
    pub(crate) round: Round,
    pub(crate) belief: Belief,
    pub(crate) density: Density,
    pub(crate) count: EpochCount,
    /// Prefetch has looked at all places before this one.
    pub(crate) scan: u32,
    /// ... and at so many of those that are opened first, where it is not known which pass comes next.
    pub(crate) looked: usize,
    /// Where prefetch leapt with the front, over places it has not looked at, and where to.
    leapt: Option<(u32, u32)>,
    /// One past the furthest place it came to before it went back.
    beyond: u32,
    /// Places before this one are over: opened or passed over.
    pub(crate) tail: u32,
    kernel: Kernel,
    opened: Vec<u64>,
    opened_count: u32,
    /// Maximal runs of opened places along each rank's stream.
    runs: u32,
    last: QuickMap<u32, Last>,
    begins: Begins,
    /// The last jump forward that was longer than a step, in places; 0: none yet.
    jump: u32,
    /// Where reading begins, if known.
    start: Option<u32>,
    /// One past the furthest place opened where it was expected.
    high: u32,
    opens: u64,
    recent: Vec<Recent>,
    /// The first places opened, in their sequence, up to [`OPENING_MOST`].
    first: Vec<u32>,
    front: u32,
    /// An open was where it was expected.
    begun: bool,
    coming: Coming,
    /// Largest distance between the slowest and the fastest reader, in this pass and in the one before.
    widest: u32,
    widest_before: u32,
    /// Opens whose predecessor is to be looked at again, in their order: (number of the open, the place before it if unopened).
    early: VecDeque<(u64, Option<u32>)>,
    late: VecDeque<(u64, Option<u32>)>,
}

impl Pass {
    pub(crate) fn new(index: Arc<EpochIndex>, round: Round, start: Option<u32>) -> Self {
        let len = index.len();
        let begin = start.unwrap_or(0).min(len);
        Self {
            round,
            belief: Belief::default(),
            density: Density::default(),
            count: EpochCount { epoch: index.epoch, ..EpochCount::default() },
            scan: begin,
            looked: 0,
            leapt: None,
            beyond: 0,
            tail: begin,
            kernel: Kernel::new(len as usize),
            opened: vec![0; (len as usize).div_ceil(64)],
            opened_count: 0,
            runs: 0,
            last: QuickMap::default(),
            begins: Begins::default(),
            jump: 0,
            start,
            high: begin,
            opens: 0,
            recent: (0..index.order.stride.max(1)).map(|_| Recent::default()).collect(),
            first: Vec::new(),
            front: begin,
            begun: false,
            coming: Coming::default(),
            widest: 0,
            widest_before: 0,
            early: VecDeque::new(),
            late: VecDeque::new(),
            index,
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.index.len()
    }
    pub(crate) fn file(&self, place: u32) -> FileIndex {
        self.index.order.files[place as usize]
    }
    pub(crate) fn is_opened(&self, place: u32) -> bool {
        self.opened[place as usize / 64] >> (place % 64) & 1 == 1
    }
    pub(crate) const fn opened_count(&self) -> u32 {
        self.opened_count
    }
    pub(crate) fn knows(&self, process: u32) -> bool {
        self.last.contains_key(&process)
    }

    /// Where the slowest of the recent readers is.
    pub(crate) const fn front(&self) -> u32 {
        self.front
    }

    /// The slowest rank decides; one that has not begun is at the start, if that is known.
    fn find_front(&self) -> u32 {
        let fronts = self.recent.iter().map(|rank| rank.places.front().map(|&(_, place)| place).or(self.start));
        fronts.flatten().min().unwrap_or(self.front)
    }

    /// One past the furthest place opened where it was expected.
    pub(crate) const fn high(&self) -> u32 {
        self.high
    }

    /// The places that its loader opened first, in their sequence; by place where the beginning was not seen. Of the next pass it opens the same.
    pub(crate) fn opening(&self) -> Vec<u32> {
        let most = (self.len() / OPENING_SHARE).clamp(FRONT_LEAST, OPENING_MOST);
        if self.first.contains(&0) { self.first.iter().copied().take(most as usize).collect() } else { (0..most).collect() }
    }

    /// So many of them are fetched before it is known that it comes.
    pub(crate) fn front_places(&self) -> usize {
        (self.len() / FRONT_SHARE).clamp(FRONT_LEAST, FRONT_MOST) as usize
    }

    /// How far readers are apart.
    pub(crate) const fn spread(&self) -> u32 {
        self.high.saturating_sub(self.front())
    }

    /// ... at most, here and in the pass before.
    pub(crate) fn widest(&self) -> u32 {
        self.widest.max(self.widest_before)
    }

    /// Whether a loader whose slowest worker is at the front may open this place now. It proves nothing (design §4), and where workers begin one
    /// after the other, or go over each other's batches, the ratio alone would not have it.
    fn is_near(&self, place: u32, last: Option<u32>) -> bool {
        if !self.begun && self.start.is_none() || last.is_some_and(|last| place < last) || place < self.tail {
            return false;
        }
        let usual = (self.len() / REACH_SHARE).clamp(REACH_LEAST, REACH_MOST.saturating_mul(self.index.order.stride.max(1)));
        // As far again as was seen: the slowest may be a whole round behind.
        let reach = if self.widest_before > 0 { self.widest().saturating_mul(2).max(REACH_LEAST) } else { usual.max(self.widest) };
        place < self.front.saturating_add(reach) || last.is_none() && self.begins.is_next(place)
    }

    /// Close to its end: another pass may begin any moment.
    pub(crate) fn is_ending(&self) -> bool {
        let len = self.len();
        self.high.saturating_add((len / 50).max(64)) >= len
    }

    /// The place an open of `file` by a process at `last` is: the first unopened one ahead of it, else any unopened, else any.
    fn place_of(&self, file: FileIndex, last: Option<u32>) -> Option<(u32, bool)> {
        let places = self.index.places(file);
        let mut unopened = None;
        for &place in places {
            if !self.is_opened(place) {
                if last.is_none_or(|last| place > last) {
                    return Some((place, true));
                }
                unopened = unopened.or(Some(place));
            }
        }
        unopened.map(|place| (place, true)).or_else(|| places.first().map(|&place| (place, false)))
    }

    /// How likely this open is if the readers are in this pass.
    pub(crate) fn sight(&self, file: FileIndex, process: u32) -> Sight {
        let known = if process == 0 { None } else { self.last.get(&process).copied() };
        let (last, marked) = (known.map(|known| known.place), known.and_then(|known| known.marked));
        let Some((place, fresh)) = self.place_of(file, last) else {
            return Sight { place: None, fresh: false, ratio: ELSEWHERE, near: false, begins: false };
        };
        if !fresh {
            let is_next = last.is_some_and(|last| self.is_next(last, place));
            let ratio = if is_next { self.kernel.forward(1) } else { ELSEWHERE };
            return Sight { place: Some(place), fresh, ratio, near: false, begins: false };
        }
        let from_front = (self.begun || self.start.is_some()).then(|| {
            // At the front a place is one step ahead; what is behind the front is measured from what is over.
            match place {
                _ if place >= self.front => self.kernel.forward(place - self.front + 1),
                _ if place >= self.tail => self.kernel.forward(place - self.tail + 1),
                _ => self.kernel.backward(self.front - place),
            }
        });
        let by_process = match (last, from_front) {
            // Mostly it goes on from its last place; but that may be a coincidence of another epoch, or a pool's next task.
            (Some(last), Some(front)) => 0.7 * self.step_or_jump(last, place) + 0.3 * front,
            (Some(last), None) => self.step_or_jump(last, place),
            (None, Some(front)) => front,
            (None, None) => 1.0, // any offset is as likely as any other
        };
        let ratio = match self.run_distance(place) {
            // Which of the runs goes on is not known, so each gets its share.
            Some(steps) => 0.5 * by_process + 0.5 * self.kernel.forward(steps) / f64::from(self.runs.max(1)),
            None if self.runs == 0 => by_process,
            None => 0.5 * by_process,
        };
        Sight { place: Some(place), fresh, ratio, near: self.is_near(place, marked), begins: process != 0 && marked.is_none() }
    }

    /// Takes over what is known of the loader from the pass before.
    pub(crate) fn learn_from(&mut self, before: &Self) {
        self.jump = before.jump;
        self.widest_before = before.widest();
    }

    /// ... of a pass that has ended.
    pub(crate) const fn follows(&mut self, ended: &Self) {
        self.widest_before = ended.widest;
    }

    /// Steps back along the rank's stream to the nearest opened place.
    fn run_distance(&self, place: u32) -> Option<u32> {
        let stride = self.index.order.stride.max(1);
        (1..=RUN_SEARCH).find(|k| place.checked_sub(k * stride).is_some_and(|before| self.is_opened(before)))
    }

    /// An open that belongs here.
    pub(crate) fn mark(&mut self, place: u32, process: u32, expected: Expected) {
        let marked = self.marked(process);
        let began = process != 0 && marked.is_none();
        let stride = self.index.order.stride.max(1);
        let had_begun = self.has_begun();
        let steps = self.run_distance(place);
        self.comes(steps);
        if let Some(before) = marked.filter(|&before| place > before && place - before > stride) {
            self.jump = place - before;
        }
        self.follow(process, place);
        if let Some(last) = self.last.get_mut(&process) {
            last.marked = Some(place);
        }
        self.opens += 1;
        if self.first.len() < OPENING_MOST as usize {
            self.first.push(place);
        }
        let before = place.checked_sub(stride);
        let before_opened = before.is_none_or(|before| self.is_opened(before));
        if !self.is_opened(place) {
            self.opened[place as usize / 64] |= 1 << (place % 64);
            self.opened_count += 1;
            let joins_before = before.is_some_and(|before| self.is_opened(before));
            let joins_after = place.checked_add(stride).is_some_and(|after| after < self.len() && self.is_opened(after));
            self.runs = (self.runs + 1).saturating_sub(u32::from(joins_before) + u32::from(joins_after));
        }
        self.density.open(false);
        if expected != Expected::Elsewhere {
            self.begun = true;
            // One open in reach may be a single read: where a reader is, his next one tells.
            if expected != Expected::InReach || steps.is_some() {
                self.high = self.high.max(place + 1);
                self.recent[(place % stride) as usize].push(place);
            }
            if began {
                self.begins.note(place);
            }
            let gap = before.filter(|_| !before_opened);
            match process {
                // A worker's first open is the start of a batch: the place before it is another worker's, for as long as a batch takes.
                _ if began => {}
                // What another program opens lies anywhere in the order: nobody has gone past the place before it.
                _ if expected == Expected::InReach => {}
                // Nobody's batches can be told apart: only the long wait is fair.
                0 => self.late.push_back((self.opens, gap)),
                _ => self.early.push_back((self.opens, gap)),
            }
        }
        self.has_marked(had_begun);
        if self.has_come() && self.begun {
            self.front = self.find_front();
            self.widest = self.widest.max(self.spread());
        }
        self.judge_gaps();
    }

    /// Two waits for the place before an opened one: a short one that a wrong world size fails at once, and one longer than the loader's
    /// spread for everything subtler. Both queues are bounded by their waits.
    fn judge_gaps(&mut self) {
        // One round of all processes, or 64 opens: a batch of one sample has its predecessor in another process.
        let early_wait = 64 + 2 * u64::try_from(self.last.len()).unwrap_or(0).min(64);
        while let Some(&(at, gap)) = self.early.front().filter(|&&(at, _)| at + early_wait <= self.opens) {
            self.early.pop_front();
            let gap = gap.filter(|&place| !self.is_opened(place));
            self.density.passed_early(gap.is_some());
            self.late.push_back((at, gap));
        }
        let late_wait = (2 * u64::from(self.spread())).clamp(128, 1 << 16);
        while let Some(&(_, gap)) = self.late.front().filter(|&&(at, _)| at + late_wait <= self.opens) {
            self.late.pop_front();
            self.density.passed_late(gap.is_some_and(|place| !self.is_opened(place)));
        }
    }

    /// An unopened place is over: the run of opened places before it will not go on. (Runs that lost events cut short would otherwise
    /// gather, and each open count for less and less where processes are unknown.)
    pub(crate) fn end_run(&mut self, place: u32) {
        let stride = self.index.order.stride.max(1);
        if place.checked_sub(stride).is_some_and(|before| self.is_opened(before)) {
            self.runs = self.runs.saturating_sub(1);
        }
    }

    /// Places before this are passed over for good: nobody recent is near them.
    pub(crate) fn over(&self) -> u32 {
        // Single reads in an epoch to come are no readers that went past what lies before.
        if !self.has_begun() {
            return self.tail;
        }
        // The grace is one more spread and the recent opens: a restarted worker may come back for its batch.
        self.front().saturating_sub(self.spread().saturating_add(256))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(files: &[u32], stride: u32, n: usize) -> Pass {
        let order = EpochFiles { files: files.iter().map(|&f| FileIndex(f)).collect(), stride };
        Pass::new(Arc::new(EpochIndex::new(0, Arc::new(order), &vec![1; n])), 0, Some(0))
    }

    #[test]
    fn the_inverse_lists_every_place_of_a_file_in_order() {
        let pass = pass(&[3, 1, 3, 0, 3, 1], 1, 5);
        assert_eq!(pass.index.places(FileIndex(3)), [0, 2, 4]);
        assert_eq!(pass.index.places(FileIndex(1)), [1, 5]);
        assert_eq!(pass.index.places(FileIndex(0)), [3]);
        assert!(pass.index.places(FileIndex(2)).is_empty());
        assert!(pass.index.places(FileIndex(4)).is_empty());
    }

    #[test]
    fn repeated_files_take_their_places_one_after_the_other() {
        let mut pass = pass(&[3, 1, 3, 0], 1, 4);
        for expected in [Some(0), Some(2)] {
            let sight = pass.sight(FileIndex(3), 1);
            assert_eq!((sight.place, sight.fresh), (expected, true));
            pass.mark(expected.unwrap(), 1, Expected::Next);
        }
        assert!(!pass.sight(FileIndex(3), 1).fresh);
    }

    #[test]
    fn runs_are_counted_along_each_ranks_stream() {
        let files: Vec<u32> = (0..64).collect();
        let mut pass = pass(&files, 2, 64);
        for place in [0, 2, 4, 1, 5, 3] {
            pass.mark(place, 1, Expected::Next);
        }
        assert_eq!(pass.runs, 2);
        assert_eq!(pass.opened_count(), 6);
    }
}

//! One pass of a group's readers, as far as it is remembered: its front and its last opens. Where it begins is found here, too.
//!
//! Bounded: [`FRONT`] and [`LAST`] opens, eight bytes for each of the first [`FAR`], one bit a file, and four bytes a file for the order as it
//! was read (what a later epoch is compared with). Not here: what is made of it.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use crate::plan::Seen;
use crate::types::{FileIndex, QuickMap};

/// Opens of the front that are remembered. Every search but the linear one is content with 1,024.
pub(super) const FRONT: usize = 2_048;
/// Opens of the front whose process and file are remembered, for the linear one: its 20,000 places and what many workers read ahead, twice.
pub(super) const FAR: usize = 2 * FAR_FIRST as usize;
/// Opens at which that is tried: 8 workers that read 2 batches of 256 ahead have left no gap in the first 20,000 places.
pub(super) const FAR_FIRST: u32 = 24_576;
/// Last opens that are remembered: with them a hypothesis finds its place in mid-epoch.
pub(super) const LAST: usize = 2_048;
/// Processes of a segment that are told apart: as many as any node's workers. Later ones count as one.
const PROCESSES_MAX: usize = 4_096;
/// Opens looked back over for a new beginning.
const LOOK_BACK: usize = 32;
/// Repeated files among them that make one: a file opened twice by chance is one.
const REPEATS: usize = 6;
/// One of so many opens that comes again, all through a pass, shows that readers are mixed: until the next «pass» begins by it, it is one of twenty.
const MIXED_OF: u32 = 40;
/// A file that was opened so many opens ago comes again for another rank (repeated augmentation). An epoch later it was opened longer ago, but for
/// datasets of few files (in words of 64).
const YOUNG: usize = 128;
const YOUNG_FROM: usize = 1_024 / 64;
/// Opens of only new processes that make one, when the others have read [`SETTLED`] opens or files come again.
const ONLY_NEW: usize = 16;
/// Opens after which it shows that nearly all are of processes that open one file each and are gone (`pipe:cat` for each shard, a shell's loop):
/// more than a node's workers open while they all begin. Their ids tell nothing then.
pub(super) const PASSING: u32 = 256;
/// Files that such processes open twice, and processes of another kind among them.
const NOT_PASSING: u32 = 6;
/// More than a loader reads ahead while one of its workers is still starting (256 a batch, 2 batches, 2 workers).
const SETTLED: u32 = 1_024;
/// Opens not predicted among the last [`LOOK_BACK`] that end what was predicted.
const UNCLAIMED: usize = 8;
/// One of so many of the last opens that are where the order has them: it is read by one rank of that many, at least.
const FOLLOWED_SHARE: usize = 16;
/// A program that is started again takes this long before its first open.
const SILENCE: Duration = Duration::from_secs(2);
/// Longest order recorded, in files: 64 MiB.
const RECORDED_MAX: usize = 16 << 20;

/// An open with what is known of it.
#[derive(Clone, Copy, Debug)]
struct Noted {
    seen: Seen,
    /// It was where a followed order had it.
    claimed: bool,
    /// The file was opened before in this segment.
    repeat: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Segment {
    /// Numbers grow; results of searches name theirs.
    pub(super) number: u64,
    front: Vec<Seen>,
    /// Process and file of the first opens, without those of a file twice in a row; empty once an order explains the pass.
    far: Vec<(u32, FileIndex)>,
    is_explained: bool,
    last: VecDeque<Noted>,
    /// Opens, and distinct files among them.
    pub(super) count: u32,
    pub(super) distinct: u32,
    /// Opens of files that had been opened long before, and that no followed order had.
    repeats: u32,
    /// Opens when the last new process came.
    pub(super) newest_at: u32,
    pub(super) began: Duration,
    processes: QuickMap<u32, u32>,
    /// Its processes open one file each.
    is_passing: bool,
    opened: Vec<u64>,
    /// Files in the sequence of their first open.
    pub(super) order: Vec<FileIndex>,
    /// Files that can be in it; 0: not known.
    pub(super) expected: u32,
    /// Opens that were where a followed order had them.
    claimed: u32,
    /// Opens that were not, of files not opened before, since the order was found.
    pub(super) strange: u32,
}

impl Segment {
    pub(super) fn new(number: u64, files: usize) -> Self {
        Self {
            number,
            front: Vec::new(),
            far: Vec::new(),
            is_explained: false,
            last: VecDeque::new(),
            count: 0,
            distinct: 0,
            repeats: 0,
            newest_at: 0,
            began: Duration::ZERO,
            processes: QuickMap::default(),
            is_passing: false,
            opened: vec![0; files.div_ceil(64)],
            order: Vec::new(),
            expected: 0,
            claimed: 0,
            strange: 0,
        }
    }

    /// Notes an open. `Some`: another pass has begun, and these are its opens, this one included.
    pub(super) fn open(&mut self, seen: Seen, claimed: bool) -> Option<Vec<(Seen, bool)>> {
        let seen = if self.is_passing { Seen { process: 0, ..seen } } else { seen };
        let repeat = self.is_opened(seen.file);
        if self.expected > 0 && self.distinct >= self.expected && repeat && !claimed {
            return Some(vec![(seen, claimed)]);
        }
        // The same process opens a file twice in a row (a header first): nothing begins. Nor where several ranks read one sample.
        let opened = |back: usize| self.last.iter().rev().take(back).any(|noted| noted.seen.file == seen.file);
        let again = repeat && opened(4);
        let noted = Noted { seen, claimed, repeat: repeat && !again && !(self.opened.len() >= YOUNG_FROM && opened(YOUNG)) };
        let new = !self.processes.contains_key(&seen.process) && self.processes.len() < PROCESSES_MAX;
        if new {
            self.newest_at = self.count;
        }
        let first = self.count;
        self.processes.entry(seen.process).or_insert(first);
        if self.last.len() == LAST {
            self.last.pop_front();
        }
        self.last.push_back(noted);
        self.count += 1;
        self.claimed += u32::from(claimed);
        self.repeats += u32::from(noted.repeat && !claimed);
        self.strange += u32::from(!claimed && !repeat);
        if self.count == 1 {
            self.began = seen.now;
        }
        if self.front.len() < FRONT {
            self.front.push(seen);
        }
        if !again && !self.is_explained && self.far.len() < FAR {
            self.far.push((seen.process, seen.file));
        }
        if !repeat {
            self.opened[seen.file.at() / 64] |= 1 << (seen.file.0 % 64);
            self.distinct += 1;
            if self.order.len() < RECORDED_MAX {
                self.order.push(seen.file);
            }
        }
        if self.count == PASSING && self.are_all_new(NOT_PASSING) {
            self.forget_processes();
        }
        self.begins()
    }

    /// Each open is of another process, but for so many.
    pub(super) fn are_all_new(&self, but: u32) -> bool {
        u32::try_from(self.processes.len()).is_ok_and(|processes| processes + but >= self.count)
    }

    /// They are nobody known: the forms that need no streams do.
    fn forget_processes(&mut self) {
        self.is_passing = true;
        self.front.iter_mut().for_each(|seen| seen.process = 0);
        self.last.iter_mut().for_each(|noted| noted.seen.process = 0);
        self.far.iter_mut().for_each(|(process, _)| *process = 0);
        self.processes = QuickMap::from_iter([(0, 0)]);
        self.newest_at = 0;
    }

    /// It has just shown that no streams can be told: all is to be looked at again.
    pub(super) const fn lost_streams(&self) -> bool {
        self.is_passing && self.count == PASSING
    }

    fn is_opened(&self, file: FileIndex) -> bool {
        self.opened[file.at() / 64] >> (file.0 % 64) & 1 == 1
    }

    /// Whether the last opens are another pass.
    fn begins(&mut self) -> Option<Vec<(Seen, bool)>> {
        let recent = || self.last.iter().rev().take(LOOK_BACK);
        let count = |is: &dyn Fn(&Noted) -> bool| recent().filter(|noted| is(noted)).count();
        if self.count as usize <= LOOK_BACK * 2 {
            return None;
        }
        if count(&|noted| noted.repeat && !noted.claimed) >= REPEATS {
            return Some(self.split(|noted| noted.repeat && !noted.claimed));
        }
        let claimed_before = self.last.iter().rev().skip(UNCLAIMED).take(LOOK_BACK * 2).filter(|noted| noted.claimed).count() > LOOK_BACK;
        if claimed_before && self.last.iter().rev().take(UNCLAIMED + 2).filter(|noted| !noted.claimed).count() >= UNCLAIMED {
            return Some(self.only_new().unwrap_or_else(|| self.split(|noted| !noted.claimed)));
        }
        let oldest = self.count - u32::try_from(ONLY_NEW).unwrap_or(0);
        let only_new =
            self.last.iter().rev().take(ONLY_NEW).all(|noted| self.processes.get(&noted.seen.process).is_some_and(|&at| at >= oldest));
        let unclaimed = || self.last.iter().rev().take(ONLY_NEW).filter(|noted| !noted.claimed).count();
        // A run that is taken up again with another world has some of its files where the old one had them.
        let departs = claimed_before && unclaimed() >= ONLY_NEW / 4;
        // Where each open is another process' no run begins.
        if only_new && !self.are_all_new(0) && (oldest > SETTLED || departs || count(&|noted| noted.repeat) > 0) {
            let start = self.last.len() - ONLY_NEW;
            return Some(self.last.iter().skip(start).map(|noted| (noted.seen, noted.claimed)).collect());
        }
        None
    }

    /// The longest stretch of last opens that is all of processes which begin in it: a run that was started again. 0: none.
    fn new_stretch(&self) -> usize {
        let (mut first, mut longest) = (u32::MAX, 0);
        for (back, noted) in (1u32..).zip(self.last.iter().rev().take(LOOK_BACK * 2)) {
            first = first.min(self.processes.get(&noted.seen.process).copied().unwrap_or(0));
            if first >= self.count - back {
                longest = back as usize;
            }
        }
        longest
    }

    fn only_new(&self) -> Option<Vec<(Seen, bool)>> {
        let start = self.last.len() - Some(self.new_stretch()).filter(|&back| back >= UNCLAIMED / 2)?;
        Some(self.last.iter().skip(start).map(|noted| (noted.seen, noted.claimed)).collect())
    }

    /// Another run may have begun: a few more opens tell, and until then both are mixed.
    pub(super) fn may_begin(&self) -> bool {
        let stretch = self.new_stretch();
        (UNCLAIMED / 2..ONLY_NEW).contains(&stretch) && stretch < self.count as usize
    }

    /// The opens from the first one of the other pass on: the earliest in the look-back after which hardly any is of the old one.
    fn split(&self, other: impl Fn(&Noted) -> bool) -> Vec<(Seen, bool)> {
        let recent: Vec<&Noted> = self.last.iter().rev().take(LOOK_BACK * 2).collect();
        // going back: the longest stretch in which others prevail
        let (mut best, mut score, mut most) = (0, 0i32, 0i32);
        for (back, noted) in recent.iter().enumerate() {
            score += if other(noted) { 1 } else { -2 };
            if score > most {
                (best, most) = (back, score);
            }
        }
        // What a new process opened first is of the new pass, and so are the opens between.
        recent[..=best].iter().rev().map(|noted| (noted.seen, noted.claimed)).collect()
    }

    /// The remembered opens that lead to where the readers are: from the front on, or only the last ones, if some between are forgotten.
    pub(super) fn trail(&self) -> Vec<Seen> {
        let between = (self.count as usize).saturating_sub(self.front.len());
        if between == 0 {
            return self.front.clone();
        }
        let last = self.last.iter().map(|noted| noted.seen);
        if between <= self.last.len() {
            self.front.iter().copied().chain(last.skip(self.last.len() - between)).collect()
        } else {
            last.collect()
        }
    }

    pub(super) fn front(&self) -> &[Seen] {
        &self.front
    }

    pub(super) fn far(&self) -> &[(u32, FileIndex)] {
        &self.far
    }

    /// A followed order explains what was opened of these files so far.
    pub(super) fn explain(&mut self, files: &[FileIndex]) {
        (self.far, self.is_explained) = (Vec::new(), true);
        self.claimed = self.count;
        let explained: HashSet<FileIndex> = files.iter().copied().collect();
        for noted in &mut self.last {
            noted.claimed |= explained.contains(&noted.seen.file);
        }
        self.strange = self.last.iter().filter(|noted| !noted.claimed && !noted.repeat).count() as u32;
    }

    /// The last opens that no followed order had, the earliest first.
    pub(super) fn strangers(&self, most: usize) -> Vec<Seen> {
        let strange = self.last.iter().filter(|noted| !noted.claimed && !noted.repeat).map(|noted| noted.seen);
        let all: Vec<Seen> = strange.collect();
        all[all.len().saturating_sub(most)..].to_vec()
    }

    /// Opens of readers that turn out to read the same order.
    pub(super) fn take_in(&mut self, opens: &[Seen], claimed: bool) {
        for &seen in opens {
            self.open(seen, claimed);
        }
    }

    /// Readers of the followed order are among those who read now.
    pub(super) fn is_followed(&self) -> bool {
        let recent = self.last.len().min(LOOK_BACK * 2 + self.strange as usize);
        let claimed = self.last.iter().rev().take(recent).filter(|noted| noted.claimed).count();
        claimed > recent / FOLLOWED_SHARE
    }

    /// Whether it ended before half of its files were read, of so many that there are.
    pub(super) fn is_torn(&self, files: u32) -> bool {
        let all = if self.expected > 0 { self.expected.min(files) } else { files };
        self.distinct < all / 2
    }

    /// Whether files came again all through it, not only where the next pass began: several readers are mixed, and the sequence of the files is nobody's.
    pub(super) const fn is_mixed(&self) -> bool {
        self.repeats > (REPEATS + REPEATS / 2) as u32 && self.repeats > self.count / MIXED_OF
    }

    /// Whether most of the pass was where no followed order had it.
    pub(super) const fn was_unexplained(&self) -> bool {
        self.claimed <= self.count / 2
    }

    /// Of the last opens, at most 16: those that no followed order had.
    pub(super) fn is_unexplained(&self) -> bool {
        let recent = self.last.len().min(16);
        let unclaimed = self.last.iter().rev().take(recent).filter(|noted| !noted.claimed).count();
        unclaimed * 4 > recent
    }

    /// Nobody has opened anything for a while: whoever opens now may be another job.
    pub(super) fn is_silent(&self, now: Duration) -> bool {
        self.last.back().is_some_and(|noted| now > noted.seen.now + SILENCE)
    }

    /// Processes that have opened something, as far as they are told apart.
    pub(super) fn readers(&self) -> u32 {
        u32::try_from(self.processes.len()).unwrap_or(u32::MAX)
    }

    /// Whether a process has come since so many opens, whose opens are among those that are looked at.
    pub(super) fn has_newcomer_since(&self, opens: u32) -> bool {
        self.newest_at > opens && (self.newest_at as usize) < FRONT
    }

    /// Whether each open's process is known.
    pub(super) fn has_streams(&self) -> bool {
        !self.processes.contains_key(&0)
    }

    /// Seconds from then to the last open.
    pub(super) fn elapsed(&self, since: Duration) -> f64 {
        self.last.back().map_or(0.0, |noted| noted.seen.now.saturating_sub(since).as_secs_f64())
    }

    /// When the last open was.
    pub(super) fn read_at(&self) -> Option<Duration> {
        self.last.back().map(|noted| noted.seen.now)
    }

    /// Opens a second in this segment.
    pub(super) fn rate(&self) -> f64 {
        let seconds = self.elapsed(self.began);
        if seconds > 0.0 { f64::from(self.count) / seconds } else { f64::INFINITY }
    }
}

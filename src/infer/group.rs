//! Readers of one part of the dataset for one job, and which rung of the ladder is due for them.
//!
//! Not here: which opens are theirs (`inference`), and what a rung does (`rungs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::cost::{Account, Quick};
use super::inference::InferConfig;
use super::job::{Clue, LOOKED_AT, Rung};
use super::kept::Kept;
use super::maps::MapSet;
use super::rungs::{all_seeds, backward_seeds};
use super::segment::{FAR_FIRST, Segment};
use crate::dataset::maps::CandidateMap as Map;
use crate::order::infer::meet::{MEET_FROM, MEET_OPENS};
use crate::order::infer::needed::LINEAR_PLACES;
use crate::order::spec::OrderSpec;
use crate::plan::{OrderIndex, Seen};
use crate::types::{Epoch, FileIndex};

/// Orders remembered per group, to go on from.
pub(super) const CLUES_MAX: usize = 8;
/// Opens after which known orders are tried (again): each time twice as many.
pub(super) const FIRST_TRY: u32 = 8;
/// Opens after which, each time, the most usual seeds are tried, however many workers are still to begin.
const USUAL_AT: u32 = 32;
/// Opens that a followed order did not have, after which they are compared with its other ranks.
pub(super) const WIDEN_AT: u32 = 8;
/// ... so many of them, the last ones.
pub(super) const STRANGERS: usize = 256;
/// Jobs of one order: ranks of a node, each started by hand.
pub(super) const JOBS_MAX: usize = 64;
/// The dictionary's turn (field notes «orders» §5c): so many opens, or so many after the last new process, and never before this many.
const SEARCH_AT: u32 = 128;
const AFTER_NEWEST: u32 = 16;
const SEARCH_LEAST: u32 = 24;
/// Behind a model's initialisation it looks early: that is free, or waits for being paid by itself.
pub(super) const DEEP_AT: u32 = 64;
/// Processes from which on the readers may well be a node's ranks.
pub(super) const NODE: u32 = 4;
/// Such tries in one segment: workers may begin one by one.
const SETTLED_TRIES: u32 = 8;
/// Opens for the exhaustive search: so many that a hit is no chance even where streams are not known.
const EXHAUSTIVE_AT: u32 = 256;
/// Opens of a search that its repetition would only repeat, unless a process has come since: so many, and so many of each process.
const CONCLUSIVE: u32 = 64;
const OF_EACH: u32 = 8;
/// Of fewer files, all permutations are fewer than what the dictionary tries, times the odds that are asked for (15! = e^28): nothing can be proved.
const FILES_LEAST: u32 = 16;
/// Passes of a job in which the first steps of the dictionary are free: what came before the first one's order (samples that were looked at, many
/// processes that began one by one) is not before the second one's. Whoever reads at random begins a pass with every repeated file.
const FREE_PASSES: Epoch = 2;
/// Opens from which on it costs more to look far ahead of a known order than to look near it (`rungs/known`).
const FAR_FEW: u32 = 128;
/// Passes in a row that broke off before half of their files were read, from which on nothing is free: several readers are mixed, and each «pass» is what
/// one of them reads between two files of another's. A few are chance: a run that is broken off and started again.
const TORN_FREE: u32 = 2;
/// A pass over so many of the files is whole: the last batch may be dropped. Of a part of them it is known once two of like length came one after the other;
/// until then it may be what was read until a job was broken off, or until another one began to read the same.
pub(super) const WHOLE_PERCENT: usize = 90;
const LIKE_PERCENT: usize = 2;
/// Passes in which a search through all seeds ended in vain: then the group's orders are none of its kind.
const VAIN_MAX: u8 = 2;

/// When a rung is tried in one segment: first at so many opens, then each time at so many times as many, at most so often.
pub(super) const fn schedule(rung: Rung) -> (u32, u32, u32) {
    match rung {
        Rung::Widen => (0, 1, 0),
        // up to as many opens as are remembered
        Rung::Known => (FIRST_TRY, 2, 12),
        // by the last of these, some of a node's processes have gone a few steps, however many there are
        Rung::Usual => (USUAL_AT, 1, 6),
        // again at twice that; with four and sixteen times the opens, workers that began late have come, too
        Rung::Likely => (DEEP_AT, 4, 4),
        Rung::Others => (SEARCH_AT, 16, 2),
        Rung::Meet => (MEET_OPENS as u32, 2, 2),
        Rung::Exhaustive | Rung::Backward | Rung::Origin => (EXHAUSTIVE_AT, 1, 1),
        Rung::Linear => (FAR_FIRST, 2, 2),
    }
}

/// Readers of one root, of one job.
#[derive(Debug)]
pub(super) struct Group {
    /// Never used again.
    pub(super) id: u64,
    pub(super) root: String,
    /// Those that read one order: ranks may be jobs of their own. At most [`JOBS_MAX`].
    pub(super) jobs: Vec<u64>,
    pub(super) segment: Segment,
    /// Segments before.
    pub(super) passes: Epoch,
    pub(super) order: Option<OrderIndex>,
    /// What is followed as that order.
    pub(super) followed: Option<OrderSpec>,
    /// Its files, by sample; of the one that was followed last.
    pub(super) numbering: Option<Map>,
    /// Another group's order that has its opens where they are, and how many of them.
    pub(super) had_by: Option<(OrderIndex, u32)>,
    /// Another job reads here since that was found: until its own order is, the old one has its files by chance.
    pub(super) anew: bool,
    /// Strange opens at which more ranks are looked for next.
    pub(super) widen_at: u32,
    /// How often they were, in vain.
    pub(super) widened: u32,
    pub(super) clues: Vec<Clue>,
    /// The pass before, as it was read, if it was read as one.
    pub(super) recorded: Option<Arc<Vec<FileIndex>>>,
    /// ... and was no part of one, as far as is known: nearly all files, or as many as the one before.
    pub(super) is_pass: bool,
    /// Files below the root: no map has more.
    pub(super) files: u32,
    /// Per rung: opens at which it is tried next, and how often it was.
    pub(super) tries: [(u32, u32); Rung::ALL.len()],
    /// Tries in this segment because all workers seemed to be there, and how many opens there were at the last one: of known
    /// orders, of the dictionary's first step, of all of it.
    pub(super) settled: [(u32, u32); 3],
    /// An order of a pass that is over was searched for from its end.
    pub(super) whole_before: bool,
    /// Maps of the last search; none while an order is followed, where they are large.
    pub(super) maps: Option<MapSet>,
    /// When it began to read, and what its searches have cost since.
    pub(super) began: Duration,
    pub(super) account: Account,
    /// What was spent on all groups, where that has a bound.
    pub(super) quick: Quick,
    /// By rung: the step that was not paid for in this segment, and its price.
    pub(super) owed: [Option<(u32, f64)>; Rung::ALL.len()],
    /// Opens of this segment at the last try of the dictionary, and of its first step alone.
    pub(super) looked_at: u32,
    pub(super) usual_at: u32,
    /// ... and when passes before were last compared with them, where nothing else is known.
    pub(super) compared_at: u32,
    /// Opens of this segment at which what waits to be paid for is looked at again: before, it made no sense for what was read.
    pub(super) rests_until: u32,
    /// The last try went on with a step that had to be paid for.
    pub(super) is_going_on: bool,
    /// Opens of this segment when it was last looked for far ahead of known orders.
    pub(super) far_at: u32,
    /// The pass that its job began with.
    pub(super) began_with: Epoch,
    /// By rung: passes in which it ended in vain.
    pub(super) vain: [u8; Rung::ALL.len()],
    /// Where the seed that is followed comes from is to be looked for.
    pub(super) origin: bool,
    /// A search runs, a long one or a brief one: sets this to end it.
    pub(super) busy: [Option<Arc<AtomicBool>>; 2],
    /// Its pass is kept for later runs.
    pub(super) is_kept: bool,
    /// The dearest search over this segment that explained nothing, and how many orders were tried: for people.
    pub(super) in_vain: Option<(Rung, f64)>,
    /// Passes in a row, the last ones, that broke off early.
    pub(super) torn: u32,
}

impl Group {
    pub(super) fn begin(&mut self, number: u64, files: usize, opens: Vec<(Seen, bool)>) {
        let mut next = Segment::new(number, files);
        next.expected = self.segment.expected;
        (self.widen_at, self.widened) = (WIDEN_AT, 0);
        for (seen, claimed) in opens {
            // it has just begun: nothing in it is another beginning
            next.open(seen, claimed);
        }
        let before = std::mem::replace(&mut self.segment, next);
        self.passes += 1;
        self.whole_before = before.distinct > 1 && before.distinct == self.files && before.is_unexplained();
        let read = before.order.len();
        let is_like = self.recorded.as_ref().is_some_and(|other| other.len().abs_diff(read) * 100 <= read * LIKE_PERCENT);
        self.is_pass = read * 100 >= self.files as usize * WHOLE_PERCENT || is_like;
        self.torn = if before.is_torn(self.files) && !is_like { self.torn + 1 } else { 0 };
        self.recorded = (!before.is_mixed()).then(|| Arc::new(before.order));
        self.try_anew();
        (self.is_kept, self.had_by, self.in_vain) = (false, None, None);
        for stop in self.busy.iter().flatten() {
            stop.store(true, Ordering::Relaxed);
        }
    }

    /// All rungs, from the first step on.
    pub(super) fn try_anew(&mut self) {
        self.tries = Self::no_tries(self.files);
        self.owed = [None; Rung::ALL.len()];
        (self.settled, self.looked_at, self.usual_at) = ([(0, 0); 3], 0, 0);
        (self.compared_at, self.far_at, self.rests_until) = (0, 0, 0);
    }

    /// The pass, if it is worth keeping and not kept yet.
    pub(super) fn keep(&mut self) -> Option<Kept> {
        let segment = &self.segment;
        if self.is_kept
            || self.torn >= TORN_FREE
            || segment.is_mixed()
            || !segment.was_unexplained()
            || !Kept::is_worth(segment.order.len(), self.files)
        {
            return None;
        }
        self.is_kept = true;
        Some(Kept { root: self.root.clone(), epoch: self.passes, files: Arc::new(segment.order.clone()) })
    }

    /// The latest order to go on from.
    pub(super) fn learn(&mut self, clue: Clue) {
        self.clues.retain(|known| known.spec != clue.spec);
        self.clues.insert(0, clue);
        self.clues.truncate(CLUES_MAX);
    }

    /// ... where there are so many files.
    pub(super) fn no_tries(files: u32) -> [(u32, u32); Rung::ALL.len()] {
        Rung::ALL.map(|rung| match (rung, schedule(rung).0) {
            // A pass over a few shards is over before: half of it will do.
            (Rung::Others, at) => (at.min((files / 2).max(SEARCH_LEAST)), 0),
            (_, at) => (at, 0),
        })
    }

    /// The rung that is due; `brief`: of the brief ones; `remembers`: whether orders of other runs may be read here.
    pub(super) fn due(&self, config: &InferConfig, brief: bool, remembers: impl Fn(&str) -> bool) -> Option<Rung> {
        let segment = &self.segment;
        if self.busy[usize::from(brief)].is_some() {
            return None;
        }
        // Looked at last: at most opens nothing is due.
        let looks = || segment.count >= FIRST_TRY && segment.is_unexplained() && !segment.may_begin();
        // Strangers that are no ranks of it may be the run that comes after, with another world: both have their turn.
        let known = || self.widened > 0 && self.begins(Rung::Known, config) && looks();
        if brief && self.may_widen() && !known() {
            return Some(Rung::Widen);
        }
        // Nothing is known but the listing, which has had its tries.
        if brief && self.clues.is_empty() && self.begins(Rung::Usual, config) && looks() && !remembers(&self.root) {
            return Some(Rung::Usual);
        }
        // What was begun goes on with the cheapest step of all.
        let price = |rung: Rung| self.owed[rung as usize].map_or(0.0, |(_, price)| price);
        let due = Rung::ALL.into_iter().filter(|rung| rung.is_brief() == brief);
        let due = due.filter(|&rung| self.begins(rung, config) || self.goes_on(rung, config));
        let due = due.min_by(|&a, &b| price(a).total_cmp(&price(b)));
        let origin = (self.origin && !brief).then_some(Rung::Origin);
        due.filter(|_| looks()).or(origin)
    }

    /// Some read the order that is followed, and some do not: they may be ranks of it.
    fn may_widen(&self) -> bool {
        let dealt = self.followed.as_ref().is_some_and(|spec| spec.world > 1 && spec.ranks.len() < spec.world as usize);
        dealt && self.segment.strange >= self.widen_at && self.segment.is_followed()
    }

    /// Whether the rung begins with its first step.
    fn begins(&self, rung: Rung, config: &InferConfig) -> bool {
        let segment = &self.segment;
        if self.files < FILES_LEAST && rung != Rung::Known {
            return false;
        }
        let (at, tried) = self.tries[rung as usize];
        // The whole of an epoch will do, where there are hardly more places than are needed.
        let at = if rung == Rung::Linear && tried == 0 { at.min(self.files - self.files / 64) } else { at };
        let time = segment.count >= at && tried < schedule(rung).2 && self.vain[rung as usize] < VAIN_MAX;
        // What was refuted is refuted, as long as nobody came.
        let fresh = self.looked_at < CONCLUSIVE.max(OF_EACH * segment.readers())
            || segment.has_newcomer_since(self.looked_at)
            || !segment.has_streams();
        match rung {
            Rung::Widen => false,
            Rung::Known => time || self.settled(rung).is_some(),
            Rung::Usual => {
                let is_paid = self.is_free(config) || !config.patient && self.left() > 0.0;
                (fresh && self.is_usual_due() && time || self.settled(rung).is_some()) && is_paid
            }
            // A file of each process says nothing of its stream.
            Rung::Likely => (fresh && time || self.settled(rung).is_some()) && !segment.are_all_new(0),
            Rung::Others => time && self.is_met() && (tried == 0 || fresh),
            Rung::Meet => time && self.files >= MEET_FROM,
            Rung::Exhaustive => {
                let met = self.is_met() && self.owed[Rung::Meet as usize].is_none();
                time && config.exhaustive && met && all_seeds() <= self.allowance(rung, config)
            }
            Rung::Backward => time && config.exhaustive && self.whole_before && backward_seeds() <= self.allowance(rung, config),
            Rung::Linear => time && config.exhaustive && self.files as usize >= LINEAR_PLACES,
            Rung::Origin => false,
        }
    }

    /// Whether the most usual seeds are worth another look: where each reader has gone some steps or a new process has come, and once with twice as
    /// many opens, of which a few samples that were looked at before are less.
    fn is_usual_due(&self) -> bool {
        let (segment, at) = (&self.segment, self.usual_at);
        at < OF_EACH * segment.readers()
            || segment.has_newcomer_since(at)
            || at < DEEP_AT && segment.count >= 2 * at
            || !segment.has_streams()
    }

    /// Whether the step that was not paid for can be paid for now.
    fn goes_on(&self, rung: Rung, config: &InferConfig) -> bool {
        self.segment.count >= self.rests_until
            && self.owed[rung as usize].is_some_and(|(_, price)| price <= self.allowance(rung, config))
            && (self.is_met() || rung == Rung::Meet)
            && (config.exhaustive || !matches!(rung, Rung::Exhaustive | Rung::Backward | Rung::Linear))
    }

    /// All workers seem to have begun, and none of them had at the last such try. Its number in `settled`.
    fn settled(&self, rung: Rung) -> Option<usize> {
        let (number, least) = match rung {
            Rung::Known => (0, SEARCH_LEAST),
            Rung::Usual => (1, SEARCH_LEAST),
            // of fewer readers, what comes before the whole of it has had its turn
            Rung::Likely => (2, if self.segment.readers() < NODE { DEEP_AT } else { SEARCH_LEAST }),
            _ => return None,
        };
        let (segment, (tries, at)) = (&self.segment, self.settled[number]);
        let settled = segment.count >= least
            && segment.count - segment.newest_at >= AFTER_NEWEST
            && tries < SETTLED_TRIES
            && (tries == 0 || segment.has_newcomer_since(at));
        settled.then_some(number)
    }

    /// Where all seeds cost less than what others ask, they come first.
    const fn is_met(&self) -> bool {
        self.files < MEET_FROM || self.tries[Rung::Meet as usize].1 > 0
    }

    /// What was to go on makes no sense for what was read so far: it waits for twice as many opens.
    pub(super) fn put_off(&mut self, rung: Rung, owed: Option<(u32, f64)>) {
        if owed.is_some() {
            (self.owed[rung as usize], self.rests_until) = (owed, 2 * self.segment.count);
        }
    }

    /// Core-seconds that a rung may take now.
    pub(super) fn allowance(&self, rung: Rung, config: &InferConfig) -> f64 {
        if config.is_quick() && (rung.is_long() || matches!(rung, Rung::Likely | Rung::Others)) {
            return self.quick.left(rung, self.files);
        }
        if config.patient || !config.deep {
            return f64::INFINITY;
        }
        // What is not free waits for what costs less there.
        if rung == Rung::Likely && !self.is_met() {
            return 0.0;
        }
        if rung.is_long() {
            #[expect(clippy::cast_precision_loss, reason = "a few threads")]
            return self.rest() * config.threads as f64;
        }
        self.left()
    }

    /// Seconds that its pass takes still, at the pace so far.
    fn rest(&self) -> f64 {
        f64::from(self.files.saturating_sub(self.segment.distinct)) / self.segment.rate()
    }

    /// Core-seconds that its searches may take.
    fn left(&self) -> f64 {
        self.account.left(self.segment.elapsed(self.began), self.rest())
    }

    /// Whether the first steps of the dictionary are free: in a job's first passes, and wherever something was found.
    pub(super) fn is_free(&self, config: &InferConfig) -> bool {
        if config.is_quick() {
            return self.quick.is_free();
        }
        let is_early = self.passes - self.began_with < FREE_PASSES || !self.clues.is_empty();
        is_early && self.torn < TORN_FREE || config.patient
    }

    /// Whether more is known than when it was last looked for far ahead of known orders: few opens are, and the first ones are all that is looked at.
    pub(super) fn goes_far(&self) -> bool {
        let (count, at) = (self.segment.count, self.far_at);
        count < FAR_FEW || at < FAR_FEW || (at as usize) < LOOKED_AT && (count >= 4 * at || self.segment.has_newcomer_since(at))
    }

    /// Whether all that is free at first is so still: after that pass it is paid for, which a training's takes a moment for.
    pub(super) fn is_first(&self, config: &InferConfig) -> bool {
        (self.passes == self.began_with || !self.clues.is_empty()) && self.torn < TORN_FREE || config.patient
    }

    /// Why nothing can be found yet, where so little was read, in words.
    pub(super) fn too_few(&self) -> Option<String> {
        let (files, opens) = (self.files, self.segment.count);
        if files < FILES_LEAST {
            Some(format!("{files} files: so few prove no order, whatever sequence they come in ({FILES_LEAST} are the least)"))
        } else {
            let is_first = self.passes == 0 && self.clues.is_empty();
            (is_first && opens < FIRST_TRY).then(|| format!("{opens} opens: so few prove no order ({FIRST_TRY} are the least)"))
        }
    }

    /// What a quick answer does without, in words.
    pub(super) fn too_dear(&self) -> Vec<String> {
        let owed = Rung::ALL.into_iter().filter(|&rung| self.owed[rung as usize].is_some()).map(|rung| {
            // where nothing was tried, its name says it all
            let (step, _) = self.owed[rung as usize].unwrap_or_default();
            if step > 0 { format!("more of «{}»", rung.name()) } else { rung.name().to_owned() }
        });
        let places = self.files as usize >= LINEAR_PLACES && self.segment.count >= schedule(Rung::Linear).0;
        let long = [
            (Rung::Exhaustive, self.segment.count >= EXHAUSTIVE_AT && self.files >= FILES_LEAST),
            (Rung::Backward, self.whole_before),
            (Rung::Linear, places),
        ];
        let long = long.into_iter().filter(|&(_, makes_sense)| makes_sense).map(|(rung, _)| rung.name().to_owned());
        owed.chain(long).collect()
    }

    /// A try of a rung is counted; the step it begins with.
    pub(super) fn begin_try(&mut self, rung: Rung, config: &InferConfig) -> u32 {
        if rung == Rung::Widen {
            // what is no rank of it is compared more and more seldom
            self.widened += 1;
            self.widen_at = self.segment.strange + WIDEN_AT * self.widened;
            return 0;
        }
        if rung == Rung::Origin {
            self.origin = false;
            return 0;
        }
        self.is_going_on = !self.begins(rung, config);
        if self.is_going_on {
            return self.owed[rung as usize].take().map_or(0, |(step, _)| step);
        }
        let (count, settled) = (self.segment.count, self.settled(rung));
        if rung == Rung::Known && self.goes_far() {
            self.far_at = count;
        }
        self.owed[rung as usize] = None;
        let (first, times, _) = schedule(rung);
        // What has just been looked at need not be again.
        let mut step = 0;
        if rung == Rung::Likely {
            step = u32::from(self.usual_at > 0 && (count < self.usual_at + FIRST_TRY || !self.is_usual_due()));
            self.looked_at = count;
        }
        if matches!(rung, Rung::Usual | Rung::Likely) && step == 0 {
            self.usual_at = count;
        }
        if let Some(number) = settled {
            let of = &mut self.settled[number];
            *of = (of.0 + 1, count);
        }
        let (at, tried) = &mut self.tries[rung as usize];
        // A try because all workers seem to be there does not count for the others' time.
        if count >= *at {
            let later = count.saturating_mul(times);
            let next = match rung {
                Rung::Known if count < SEARCH_AT => later.min(count + USUAL_AT),
                Rung::Usual => count + USUAL_AT,
                Rung::Likely if count < SEARCH_AT => SEARCH_AT,
                _ => later,
            };
            (*at, *tried) = (next.max(first), *tried + 1);
        }
        step
    }
}

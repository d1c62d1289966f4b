//! What else may come after the current pass, beside the successor: the same epoch once more, because `set_epoch` is easily forgotten, and other
//! ways on ([`WayOn`]: a generator of which nobody knows how much is drawn between two epochs). Side by side, until opens decide.
//!
//! Not here: which ways are likely (their maker knows), and what is fetched of them (`ahead`).

use std::sync::Arc;

use super::super::pass::{EpochIndex, Pass};
use super::super::{Going, Way, WayOn};
use super::ahead::fetched;
use super::choice::GATHERED;
use super::{Cursor, EPOCHS_MAX};
use crate::types::{Epoch, FileIndex};

/// Other ways on held at once: each is the order of an epoch (12 bytes a file) for the last [`LAST_SHARE`] of the one before.
const WAYS_MAX: usize = EPOCHS_MAX;
/// They are computed in the last eighth of an epoch, or when prefetch comes to it: some 0.1 s each for a million files.
const LAST_SHARE: u32 = 8;
/// ln of what a rival nobody has seen is less likely than the successor: it must be clearly better.
const UNSEEN: f64 = -2.0;

/// Another pass that may come next.
#[derive(Debug)]
pub(super) struct Rival {
    pub(super) pass: Pass,
    /// The way that leads to it; none: the other epoch of two that come again and again.
    pub(super) way: Option<Way>,
    /// Its front is fetched before it is seen.
    pub(super) likely: bool,
}

impl Rival {
    /// ln of its likelihood, before any open against a successor that is supposed.
    pub(super) fn ln(&self) -> f64 {
        self.pass.belief.ln() + if self.likely { 0.0 } else { UNSEEN }
    }
}

impl Cursor {
    /// The ways on that are worth a comparison, the likeliest first.
    pub(crate) fn set_ways(&mut self, ways: &[WayOn]) {
        self.ways.clear();
        self.ways.extend(ways.iter().filter(|on| on.way != self.way).take(WAYS_MAX));
        for rival in &mut self.rivals {
            if let Some(on) = self.ways.iter().find(|on| rival.way == Some(on.way)) {
                rival.likely = on.likely;
            }
        }
    }

    pub(crate) fn going(&self) -> Going {
        let pass = self.passes.front();
        Going {
            way: self.way,
            proven: self.proven,
            reached: self.reached,
            epoch: pass.map_or(self.last_epoch, |pass| pass.index.epoch),
            began: pass.and_then(|pass| pass.count.began),
        }
    }

    /// The next way whose epoch is to be computed, one at a time; `None`: none, or not yet.
    pub(super) fn next_way(&self) -> Option<(Epoch, Way)> {
        let (current, next) = (self.passes.front()?, self.passes.get(1)?);
        let reached = u64::from(current.scan.max(current.high()));
        let is_time = reached + u64::from(current.len() / LAST_SHARE) >= u64::from(current.len());
        if !is_time || self.repeats || self.settled == next.round || next.has_come() {
            return None;
        }
        let new = |&way: &Way| way != self.way && self.rivals.iter().all(|rival| rival.way != Some(way));
        let way = self.ways.iter().map(|on| on.way).find(new)?;
        Some((self.epoch_of(next.round)?, way))
    }

    /// The epoch that a way leads to has arrived.
    pub(super) fn on_way(&mut self, index: Arc<EpochIndex>, way: Way) {
        let Some(on) = self.ways.iter().find(|on| on.way == way).copied() else { return };
        let (Some(current), Some(next)) = (self.passes.front(), self.passes.get(1)) else { return };
        let known = self.rivals.iter().any(|rival| rival.way == Some(way));
        if known || self.settled == next.round || next.has_come() {
            return;
        }
        let mut pass = Pass::new(index, next.round, Some(0));
        pass.learn_from(current);
        if !self.is_contested() {
            (self.opening, self.came) = (current.opening(), None);
        }
        self.rivals.push(Rival { pass, way: Some(way), likely: on.likely });
    }

    /// The other thing that may come next: the same epoch again, or the next one where the same has been coming.
    pub(super) fn oppose(&mut self) {
        let Some(current) = self.passes.front() else { return };
        if self.rivals.iter().any(|rival| rival.way.is_none()) || !(current.is_ending() || self.belief.ln() < GATHERED) {
            return;
        }
        // Of a pass that comes again and again there is nothing else to come.
        if self.same_next && !self.repeats {
            return;
        }
        let epoch = current.index.epoch;
        let index = if self.repeats { self.known.get(&(epoch + 1)) } else { Some(&current.index) };
        if let Some(index) = index {
            let pass = Pass::new(Arc::clone(index), current.round + 1, Some(0));
            self.rivals.push(Rival { pass, way: None, likely: false });
        }
    }

    /// The best of the rivals: (number, ln of its belief).
    pub(super) fn best_rival(&self) -> Option<(usize, f64)> {
        let believed = self.rivals.iter().map(|rival| rival.pass.belief.ln()).enumerate();
        believed.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Whether opens have to tell by which way it goes on.
    pub(super) fn is_contested(&self) -> bool {
        self.rivals.iter().any(|rival| rival.way.is_some())
    }

    /// A rival takes the successor's place once it is trusted and clearly ahead of all; or the ways that were not taken go.
    pub(super) fn decide(&mut self) {
        let (Some(successor), Some((best, ln))) = (self.passes.get(1).map(|pass| pass.belief), self.best_rival()) else { return };
        let others = self.rivals.iter().enumerate().filter(|&(number, _)| number != best).map(|(_, rival)| rival.pass.belief.ln());
        let against = others.fold(successor.ln(), f64::max);
        if self.rivals[best].pass.belief.is_trusted() && ln > against + GATHERED {
            self.take_over(best);
        } else if self.is_contested() && successor.is_trusted() && successor.ln() > ln + GATHERED {
            self.settle_rivals();
        }
    }

    /// The successor came: it is told how the order goes on, and the rivals go.
    pub(super) fn settle_rivals(&mut self) {
        let contested = self.is_contested();
        let Some(successor) = self.passes.get_mut(1) else { return };
        for rival in &self.rivals {
            successor.count.merge(&rival.pass.count); // a stray or two of the first opens
        }
        if contested {
            self.proven = true;
            (self.settled, self.came) = (successor.round, Some(successor.round));
        }
        for rival in std::mem::take(&mut self.rivals) {
            self.let_go(&rival.pass);
        }
    }

    pub(super) fn forget_opening(&mut self) {
        self.opening.clear();
        self.came = None;
    }

    /// What was fetched of a pass that does not come is not due soon any more.
    fn let_go(&mut self, pass: &Pass) {
        self.stale.extend(fetched(&self.opening, pass));
    }

    fn take_over(&mut self, number: usize) {
        let mut rival = self.rivals.swap_remove(number);
        let others = std::mem::take(&mut self.rivals).into_iter().map(|other| other.pass);
        for other in others.chain(self.passes.remove(1)) {
            rival.pass.count.merge(&other.count);
            self.let_go(&other);
        }
        let mut pass = rival.pass;
        self.came = Some(pass.round).filter(|_| rival.way.is_some());
        if let Some(way) = rival.way {
            let epoch = pass.index.epoch;
            (self.way, self.proven, self.reached, self.settled) = (way, true, epoch, pass.round);
            self.known.retain(|&known, _| known < epoch);
            self.known.insert(epoch, Arc::clone(&pass.index));
            // what is on its way was of another
            self.asked.clear();
            self.same_next = false;
            self.note = format!("epoch {epoch} was reached by another way than supposed");
        } else {
            self.repeats = !self.repeats;
            self.note = if self.repeats {
                format!("epoch {} is read again: is set_epoch called?", pass.index.epoch)
            } else {
                format!("epoch {} follows again", pass.index.epoch)
            };
            self.depth = if self.repeats { Some(1) } else { None };
        }
        self.next_use.truncate(pass.round);
        self.next_use.push(&pass.index.order.files);
        for place in 0..pass.len() {
            if pass.is_opened(place) {
                self.next_use.take(pass.file(place), pass.round);
            }
        }
        pass.scan = pass.scan.max(pass.front());
        self.passes.insert(1, pass);
        self.rekey = true;
    }

    /// Files fetched for a pass that does not come, since the last call.
    pub(crate) fn take_stale(&mut self) -> Vec<FileIndex> {
        std::mem::take(&mut self.stale)
    }
}

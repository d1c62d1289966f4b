//! Which pass an open belongs to: the current one, its successor, or the successor's rival, the same epoch once more.
//!
//! Each process carries its odds of having moved on. One open that looks like the next epoch is a coincidence in mid-epoch and the rule at
//! its end.

use std::sync::Arc;

use super::super::pass::{Pass, Sight};
use super::Cursor;
use crate::types::FileIndex;

/// An open this likely in the current pass needs no comparison with the others: by chance it happens once in 20 opens at most.
const PLAIN: f64 = 20.0;
/// ln odds against "this process has moved on to the next epoch" in mid-epoch: one open near the start of the next epoch is a coincidence, two are not.
const MID_EPOCH: f64 = -7.0;
/// ... and close to the end of the epoch.
const AT_THE_END: f64 = -2.0;
/// Opens in the next pass that may be mistaken ones.
const STRAYS: u32 = 8;
/// ln odds a process can gather: it may have gone on long since, or be many processes (id 0).
const GATHERED: f64 = 7.0;
const GATHERED_UNKNOWN: f64 = 2.0;

/// Which pass an open belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Current,
    Successor,
    Rival,
}

/// Where an open belongs in this order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(super) which: Which,
    pub(super) sight: Sight,
    pub(super) successor: Option<Sight>,
    pub(super) rival: Option<Sight>,
    /// ln odds of having moved on, this open included; `None` if it was not in question.
    pub(super) odds: Option<f64>,
}

impl Choice {
    pub(crate) const fn ratio(&self) -> f64 {
        self.sight.ratio
    }
    pub(crate) const fn is_in_stream(&self) -> bool {
        self.sight.place.is_some()
    }
    /// It is where the order had it.
    pub(crate) fn is_predicted(&self) -> bool {
        self.sight.is_predicted()
    }
    pub(crate) const fn is_access(&self) -> bool {
        self.sight.fresh
    }
}

impl Cursor {
    /// The other thing that may come next: the same epoch again, or the next one where the same has been coming.
    pub(super) fn oppose(&mut self) {
        let Some(current) = self.passes.front() else { return };
        if self.rival.is_some() || !(current.is_ending() || self.belief.ln() < GATHERED) {
            return;
        }
        // Of a pass that comes again and again there is nothing else to come.
        if self.same_next && !self.repeats {
            return;
        }
        let epoch = current.index.epoch;
        let index = if self.repeats { self.known.get(&(epoch + 1)) } else { Some(&current.index) };
        if let Some(index) = index {
            self.rival = Some(Pass::new(Arc::clone(index), current.round + 1, Some(0)));
        }
    }

    /// Where an open would belong. Changes nothing: orders are compared by it.
    pub(crate) fn locate(&self, file: FileIndex, process: u32) -> Option<Choice> {
        let current = self.passes.front().filter(|_| self.is_locked())?;
        let sight = current.sight(file, process);
        let successor = self.passes.get(1);
        let begun = successor.is_some_and(|s| s.opened_count() > 0) || self.rival.as_ref().is_some_and(|r| r.opened_count() > 0);
        let plain = Choice { which: Which::Current, sight, successor: None, rival: None, odds: None };
        if sight.fresh && sight.ratio >= PLAIN && !begun {
            return Some(plain);
        }
        let next = successor.map(|s| s.sight(file, process));
        let rival = self.rival.as_ref().map(|r| r.sight(file, process));
        // Which of the two comes next is believed by what came so far; until the rival has shown itself it must be clearly better.
        let ahead = match (&self.rival, successor) {
            (Some(r), Some(s)) => (r.belief.ln() - s.belief.ln() - 2.0).clamp(-GATHERED, GATHERED).exp(),
            _ => 1.0,
        };
        // A pass of the same order (the same epoch again, a sequential one) cannot claim what is still unopened in this one.
        let weigh = |other: Option<Sight>, weight: f64| {
            let claims = other.filter(|other| other.fresh && !(sight.fresh && other.place == sight.place));
            claims.map_or(0.0, |other| other.ratio * weight)
        };
        let (as_next, as_rival) = (weigh(next, 1.0), weigh(rival, ahead));
        let (other, which, chosen) = if as_rival > as_next { (as_rival, Which::Rival, rival) } else { (as_next, Which::Successor, next) };
        let Some(chosen) = chosen.filter(|_| other > 0.0) else { return Some(plain) };
        let least = if current.opened_count() == current.len() {
            0.0
        } else if successor.is_some_and(|s| s.opened_count() >= STRAYS) || current.is_ending() {
            AT_THE_END
        } else {
            MID_EPOCH
        };
        let most = if process == 0 { GATHERED_UNKNOWN } else { GATHERED };
        let before = self.odds.get(&process).copied().unwrap_or(least).clamp(least, most);
        // A worker's first batch may lie far into the epoch, where the ratio alone would not have it. What the current pass has is still its.
        let other = if chosen.near && !sight.fresh { other.max(1.0) } else { other };
        let odds = before + other.ln() - sight.ratio.max(1e-9).ln();
        let choice = Choice { successor: next, rival, odds: Some(odds.clamp(MID_EPOCH, most)), ..plain };
        Some(if odds > 0.0 { Choice { which, sight: chosen, ..choice } } else { choice })
    }

    /// The rival takes the successor's place once it is trusted and clearly ahead.
    pub(super) fn decide_rival(&mut self) {
        let against = self.passes.get(1).map_or(0.0, |s| s.belief.ln());
        let Some(mut rival) = self.rival.take_if(|r| r.belief.is_trusted() && r.belief.ln() > against + GATHERED) else { return };
        self.repeats = !self.repeats;
        self.note = if self.repeats {
            format!("epoch {} is read again: is set_epoch called?", rival.index.epoch)
        } else {
            format!("epoch {} follows again", rival.index.epoch)
        };
        self.next_use.truncate(rival.round);
        self.next_use.push(&rival.index.order.files);
        for place in 0..rival.len() {
            if rival.is_opened(place) {
                self.next_use.take(rival.file(place), rival.round);
            }
        }
        rival.scan = rival.scan.max(rival.front());
        if let Some(successor) = self.passes.remove(1) {
            rival.count.merge(&successor.count);
        }
        self.depth = if self.repeats { Some(1) } else { None };
        self.passes.push_back(rival);
        self.rekey = true;
    }
}

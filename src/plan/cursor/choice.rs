//! Which pass an open belongs to: the current one, its successor, or one of the successor's rivals.
//!
//! Each process carries its odds of having moved on. One open that looks like the next epoch is a coincidence in mid-epoch and the rule at
//! its end.

use super::super::pass::Sight;
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
pub(super) const GATHERED: f64 = 7.0;
const GATHERED_UNKNOWN: f64 = 2.0;

/// Which pass an open belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Current,
    Successor,
    Rival(usize),
}

/// Where an open belongs in this order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(super) which: Which,
    pub(super) sight: Sight,
    /// Likelihood ratio of the open: over all that may come next, where it has moved on.
    ratio: f64,
    /// ln odds of having moved on, this open included; `None` if it was not in question.
    pub(super) odds: Option<f64>,
}

impl Choice {
    pub(crate) const fn ratio(&self) -> f64 {
        self.ratio
    }
    /// What it says for the order.
    pub(crate) fn evidence(&self) -> f64 {
        self.sight.evidence(self.ratio)
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
    /// Where an open would belong. Changes nothing: orders are compared by it.
    pub(crate) fn locate(&self, file: FileIndex, process: u32) -> Option<Choice> {
        let current = self.passes.front().filter(|_| self.is_locked())?;
        let sight = current.sight(file, process);
        let successor = self.passes.get(1);
        let begun = successor.is_some_and(|s| s.opened_count() > 0) || self.rivals.iter().any(|rival| rival.pass.opened_count() > 0);
        let plain = Choice { which: Which::Current, sight, ratio: sight.ratio, odds: None };
        if sight.fresh && sight.ratio >= PLAIN && !begun {
            return Some(plain);
        }
        // What comes next is believed by what came so far.
        let successors = successor.map(|pass| (Which::Successor, pass, pass.belief.ln()));
        let rivals = (0..).zip(&self.rivals).map(|(number, rival)| (Which::Rival(number), &rival.pass, rival.ln()));
        let all = || successors.into_iter().chain(rivals.clone());
        let top = all().map(|(_, _, ln)| ln).fold(f64::NEG_INFINITY, f64::max);
        let (mut weights, mut ratios, mut chosen) = (0.0, 0.0, None::<(f64, Which, Sight)>);
        for (which, pass, ln) in all() {
            let weight = (ln - top).max(-GATHERED).exp();
            weights += weight;
            let other = pass.sight(file, process);
            // A pass of the same order (the same epoch again, a sequential one) cannot claim what is still unopened in this one.
            if !other.fresh || sight.fresh && other.place == sight.place {
                continue;
            }
            let share = weight * other.ratio;
            ratios += share;
            if chosen.is_none_or(|(most, ..)| share > most) {
                chosen = Some((share, which, other));
            }
        }
        let Some((_, which, chosen)) = chosen.filter(|&(share, ..)| share > 0.0) else { return Some(plain) };
        // As likely as they are together: the best of several would be likely by chance.
        let other = ratios / weights;
        let least = if current.opened_count() == current.len() {
            0.0
        } else if all().any(|(_, pass, _)| pass.opened_count() >= STRAYS) || current.is_ending() {
            AT_THE_END
        } else {
            MID_EPOCH
        };
        let most = if process == 0 { GATHERED_UNKNOWN } else { GATHERED };
        let before = self.odds.get(&process).copied().unwrap_or(least).clamp(least, most);
        // A worker's first batch may lie far into the epoch, where the ratio alone would not have it. What the current pass has is still its.
        let other = if chosen.near && !sight.fresh { other.max(1.0) } else { other };
        let odds = before + other.ln() - sight.ratio.max(1e-9).ln();
        let choice = Choice { odds: Some(odds.clamp(MID_EPOCH, most)), ..plain };
        Some(if odds > 0.0 { Choice { which, sight: chosen, ratio: other, ..choice } } else { choice })
    }

    /// An open that was in question, in all passes that may come next: what has moved on is theirs, if they are the right ones.
    pub(super) fn look_back(&mut self, file: FileIndex, process: u32, given: Which) {
        let successor = self.passes.get_mut(1).map(|pass| (Which::Successor, pass));
        let rivals = (0..).zip(&mut self.rivals).map(|(number, rival)| (Which::Rival(number), &mut rival.pass));
        for (which, pass) in successor.into_iter().chain(rivals) {
            let sight = pass.sight(file, process);
            if given != Which::Current {
                pass.belief.add(sight.ratio);
            }
            match sight.place.filter(|_| sight.fresh) {
                Some(_) if which == given => {}
                Some(place) if given != Which::Current => pass.mark(place, process, sight.expected()),
                Some(place) => pass.follow(process, place),
                None => {}
            }
        }
    }
}

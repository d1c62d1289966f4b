//! When the next pass begins: orders that take turns (training, validation, training) wait for the others' opens, about as many each time.

use std::time::Duration;

use super::super::residency::Class;
use super::{Choice, Cursor, Pass, Round, Which};
use crate::types::FileIndex;

/// Opens of others that make a pause: fewer come by while a loader starts its workers.
pub(crate) const PAUSE: u64 = 64;
/// Places that prefetch goes back over per call: most of a cached epoch take no room in the window.
const STEPS_BACK: u32 = 1024;

/// What an order waits for between its passes.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Opens of other orders, as of the last open of a pass that has begun.
    left_at: u64,
    /// ... from there to the begin of the next pass, the last two times. The shorter one counts: who is expected too early holds a share of the
    /// window, who is expected too late is read without prefetch.
    pauses: [Option<u64>; 2],
    /// Where prefetch went back to, because others needed the room sooner.
    stopped: Option<(Round, u32)>,
}

/// Until the next pass begins, after what is left of the current one; in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pause {
    /// Of this pause.
    pub(crate) left: f64,
    /// Of the one after the next pass.
    pub(crate) next: f64,
    /// Nobody knows how long it lasts, or it lasts longer than known.
    pub(crate) is_open: bool,
}

impl Pause {
    /// It may end any moment.
    pub(crate) const OPEN: Self = Self { left: 0.0, next: 0.0, is_open: true };
}

impl Turn {
    /// Whether prefetch stopped at this place, to leave room to others.
    pub(super) fn is_stopped_at(&self, round: Round, place: u32) -> bool {
        self.stopped == Some((round, place))
    }
}

impl Cursor {
    /// An open has been assigned; other orders had `others` opens so far. True if a pass has just begun with it: it is to be told by [`Self::begins`].
    pub(crate) fn goes_on(&mut self, others: u64, choice: &Choice) -> bool {
        let pass = match choice.which {
            Which::Current => self.passes.front(),
            Which::Successor => self.passes.get(1),
            Which::Rival(number) => self.rivals.get(number).map(|rival| &rival.pass),
        };
        let begins = pass.is_some_and(Pass::begins) && choice.is_access();
        if choice.which == Which::Current && !begins && pass.is_some_and(Pass::has_begun) {
            self.turn.left_at = others;
        }
        begins
    }

    /// A pass has begun. `in_turn`: no other order is in mid-epoch.
    pub(crate) fn begins(&mut self, others: u64, in_turn: bool) {
        // of the first one nothing is known where it came first
        if others > 0 {
            let pause = if in_turn { others.saturating_sub(self.turn.left_at) } else { 0 };
            self.turn.pauses = [Some(pause), self.turn.pauses[0]];
        }
        self.turn.left_at = others;
    }

    /// Opens of other orders in a pause, and those that came since the last pass; `None`: not known. The pass that begins ends the pause.
    pub(crate) fn opens_of_others(&self, now: Duration, others: u64) -> Option<(u64, u64)> {
        let pause = self.turn.pauses.iter().copied().flatten().min().filter(|&pause| pause >= PAUSE)?;
        let begins = self.passes.get(self.next_to_begin()).is_some_and(Pass::has_come) && !self.waits(now);
        Some((pause, if begins { pause } else { others.saturating_sub(self.turn.left_at) }))
    }

    /// Number of the pass that is next to begin.
    pub(super) fn next_to_begin(&self) -> usize {
        usize::from(self.passes.front().is_some_and(Pass::has_begun))
    }

    /// Between two passes. How long that lasts is nobody's guess.
    pub(crate) fn is_between(&self) -> bool {
        self.next_to_begin() == 0 || self.passes.front().is_none_or(Pass::is_ending)
    }

    /// Places a second.
    pub(crate) fn pace(&self) -> f64 {
        self.rate.places_per_second()
    }

    /// Seconds until `other` has read its pass, if that began after the last open of this one.
    pub(crate) fn is_followed_by(&self, other: &Self) -> Option<f64> {
        let pass = other.passes.front()?;
        let took_over = self.rate.has_begun() && pass.count.began.is_some_and(|began| began > self.rate.opened_at());
        took_over.then(|| other.rate.seconds_for(pass.opens_until(pass.len())))
    }

    /// Between two passes, or little after.
    pub(crate) fn is_near_a_boundary(&self) -> bool {
        self.is_between() || self.passes.front().is_none_or(|pass| u64::from(pass.opened_count()) < PAUSE)
    }

    /// Seconds until the first place to come of each pass: the current one, its successor.
    pub(super) fn starts(&self, now: Duration, pause: Pause) -> [f64; 2] {
        // Who was silent in mid-epoch is expected to be silent as long again.
        let silence = if self.is_between() && !self.is_silent(now) { 0.0 } else { self.rate.silence(now).as_secs_f64() };
        let (before, between) = if self.next_to_begin() == 0 { (pause.left, pause.next) } else { (0.0, pause.left) };
        let current = self.passes.front().map_or(0, |pass| pass.opens_until(pass.len()));
        let first = silence + before;
        [first, first + self.rate.seconds_for(current) + between]
    }

    /// The file fetched ahead that is read last, if it is here and read in more than `due` seconds: prefetch goes back to before it, and waits there
    /// until it is the turn of this place. In at most [`STEPS_BACK`] steps.
    pub(crate) fn give_up(&mut self, now: Duration, pause: Pause, due: f64, class: impl Fn(FileIndex) -> Class) -> Option<FileIndex> {
        let starts = self.starts(now, pause);
        let mut steps = STEPS_BACK;
        for number in (0..self.passes.len()).rev() {
            let pass = &mut self.passes[number];
            let mut opens = pass.opens_until(pass.scan);
            while pass.scan > pass.front() {
                let place = pass.scan - 1;
                let is_to_come = !pass.is_opened(place);
                opens = opens.saturating_sub(u32::from(is_to_come));
                let class = if is_to_come { class(pass.file(place)) } else { Class::Kept };
                // What is on its way gives no room.
                if steps == 0 || class == Class::InFlight || starts[number] + self.rate.seconds_for(opens) <= due {
                    return None;
                }
                steps -= 1;
                (pass.scan, self.turn.stopped) = (place, Some((pass.round, place)));
                if class == Class::Ready {
                    return Some(pass.file(place));
                }
            }
        }
        let all = 0..self.passes.len() + self.rivals.len();
        let numbers = all.map(|at| if at < self.passes.len() { at } else { at - self.passes.len() + 2 });
        let (looked, number) = numbers.map(|number| (self.pass(number).looked, number)).max()?;
        if starts[number.min(1)] <= due {
            return None;
        }
        let file = |at: usize| {
            let (pass, place) = (self.pass(number), *self.opening.get(at)?);
            (place < pass.len() && !pass.is_opened(place)).then(|| pass.file(place))
        };
        let (at, file) = (0..looked).rev().find_map(|at| file(at).filter(|&file| class(file) == Class::Ready).map(|file| (at, file)))?;
        self.pass_mut(number).looked = at;
        Some(file)
    }

    /// It is its turn. True if prefetch had stopped.
    pub(crate) const fn resume(&mut self) -> bool {
        self.turn.stopped.take().is_some()
    }
}

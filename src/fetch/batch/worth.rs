//! Whether batches are worth asking for now. Pure; time is an argument.
//!
//! A server that is asked for too much says so (429), and is left alone for as long as the one retry policy says. One that answers batches badly (hangs,
//! cuts, has little of what is asked for, as a cluster with a cold bucket) costs a request and gains nothing: after [`POOR_MAX`] such batches in
//! a row, single reads it is for [`REST`], and then one batch tells.

use std::time::Duration;

use crate::store::retry::{self, Patience};
use crate::types::ErrorKind;

/// Poor batches in a row before it is believed: one may be a target that left just then.
const POOR_MAX: u32 = 3;
/// How long single reads serve then: a rebalance or a restart takes about as long.
const REST: Duration = Duration::from_secs(30);
/// Refusals (429) of one batch after the other before single reads must do: as many attempts as a prefetch has.
const REFUSALS_MAX: u32 = 4;

/// See the module.
#[derive(Debug, Default)]
pub struct Worth {
    poor: u32,
    refusals: u32,
    /// When the first of those refusals came.
    refused_at: Duration,
    held_until: Duration,
    rests_until: Duration,
}

impl Worth {
    /// A batch ended: so many entries were asked for, and so many came.
    pub fn ended(&mut self, now: Duration, asked: usize, came: usize) {
        self.refusals = 0;
        if came * 2 >= asked {
            self.poor = 0;
            return;
        }
        self.poor += 1;
        if self.poor >= POOR_MAX {
            self.rests_until = now + REST;
            self.poor = POOR_MAX - 1; // the next poor one is enough
        }
    }

    /// A batch was refused for now (429). True: its entries may wait for another; no batch goes out before [`Self::held_until`]. `jitter` as for
    /// [`retry::next_delay`].
    pub fn refused(&mut self, now: Duration, jitter: f64) -> bool {
        if now < self.held_until {
            return true; // it was under way when another was refused: one cause
        }
        if self.refusals == 0 {
            self.refused_at = now;
        }
        self.refusals += 1;
        let elapsed = now.saturating_sub(self.refused_at);
        match retry::next_delay(ErrorKind::Throttled, self.refusals, elapsed, Patience::Attempts(REFUSALS_MAX), jitter) {
            Some(delay) => {
                self.held_until = now + delay;
                true
            }
            None => {
                self.refusals = 0;
                self.rests_until = now + REST;
                false
            }
        }
    }

    /// Whether entries should gather for batches.
    #[must_use]
    pub fn pays(&self, now: Duration) -> bool {
        now >= self.rests_until
    }

    /// No batch goes out before this time.
    #[must_use]
    pub const fn held_until(&self) -> Duration {
        self.held_until
    }

    /// How many batches at once: one alone after a rest, until it has told.
    #[must_use]
    pub fn places(&self, most: usize) -> usize {
        if self.poor > 0 && self.rests_until > Duration::ZERO { most.min(1) } else { most }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn three_poor_batches_in_a_row_are_a_rest_and_then_one_tells() {
        let mut worth = Worth::default();
        for (at, came) in [(1, 0), (2, 49), (3, 50), (4, 0), (5, 0)] {
            worth.ended(s(at), 100, came);
        }
        assert!(worth.pays(s(5)), "a good one in between");
        worth.ended(s(6), 100, 10);
        assert!(!worth.pays(s(6)) && !worth.pays(s(35)) && worth.pays(s(36)));
        assert_eq!(worth.places(4), 1);
        worth.ended(s(36), 100, 0);
        assert!(!worth.pays(s(37)));
        worth.ended(s(70), 100, 100);
        assert_eq!((worth.pays(s(70)), worth.places(4)), (true, 4));
    }

    #[test]
    fn refusals_hold_batches_back_for_longer_each_time_and_then_single_reads_do() {
        let mut worth = Worth::default();
        let mut now = s(1);
        let mut holds = Vec::new();
        for _ in 0..REFUSALS_MAX - 1 {
            assert!(worth.refused(now, 1.0));
            assert!(worth.refused(now, 1.0), "several at once are one");
            holds.push(worth.held_until() - now);
            now = worth.held_until();
        }
        assert!(holds.windows(2).all(|pair| pair[1] == pair[0] * 2), "{holds:?}");
        assert!(!worth.refused(now, 1.0));
        assert!(!worth.pays(now));
        assert!(worth.refused(now + REST, 1.0), "from the beginning");
    }
}

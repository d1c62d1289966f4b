//! How fast an order is read.

use std::time::Duration;

use crate::types::Outcome;

/// Places a second, waits left out as well as opens alone can tell.
#[derive(Debug, Default)]
pub(super) struct Rate {
    pub(super) places_per_second: f64,
    since: Duration,
    opens: u32,
    waits: u32,
}

impl Rate {
    /// Opens per measurement: two batches of the usual size.
    const OPENS: u32 = 64;

    pub(super) fn open(&mut self, now: Duration, outcome: Outcome) {
        self.opens += 1;
        self.waits += u32::from(matches!(outcome, Outcome::Late | Outcome::Miss));
        if self.opens == Self::OPENS {
            let seconds = now.saturating_sub(self.since).as_secs_f64().max(1e-6);
            let rate = f64::from(self.opens) / seconds;
            // A span with waits only shows that the readers can do at least so much.
            self.places_per_second = match (self.places_per_second, self.waits) {
                (0.0, _) => rate,
                (old, 0) => 0.8 * old + 0.2 * rate,
                (old, _) => old.max(rate),
            };
            *self = Self { places_per_second: self.places_per_second, since: now, opens: 0, waits: 0 };
        }
    }
}

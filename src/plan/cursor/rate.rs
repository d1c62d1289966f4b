//! How fast an order is read, and for how long it has not been.

use std::time::Duration;

use crate::types::Outcome;

/// Places a second, waits left out as well as opens alone can tell; and the silences between opens.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// 0: not known yet.
    places_per_second: f64,
    /// Begin of the running measurement.
    since: Option<Duration>,
    opens: u32,
    waits: u32,
    /// The last open that was an access.
    opened_at: Duration,
    /// The longest time between two opens, halved from epoch to epoch: a loader's pause, not last week's.
    pause: Duration,
}

impl Rate {
    /// Opens per measurement: two batches of the usual size.
    const OPENS: u32 = 64;
    /// Until then, the time since the first open tells, from so many opens on;
    const FEW: u32 = 8;
    /// before, a loader on local disks is supposed: readers that begin must not stand behind those that were measured.
    const UNKNOWN: f64 = 1000.0;
    /// Readers that are silent for so many times the longest pause, and this long, are taken for gone: killed, or busy with another dataset.
    const GONE_PAUSES: u32 = 4;
    const GONE: Duration = Duration::from_secs(2);
    /// ... and this long between two passes: validation waits for the end of training's epoch, and a model is saved.
    const GONE_BETWEEN: Duration = Duration::from_secs(60);

    pub(super) fn open(&mut self, now: Duration, outcome: Outcome) {
        if self.since.is_some() {
            self.pause = self.pause.max(now.saturating_sub(self.opened_at));
        }
        let since = *self.since.get_or_insert(now);
        self.opened_at = now;
        self.opens += 1;
        self.waits += u32::from(matches!(outcome, Outcome::Late | Outcome::Miss));
        if self.opens == Self::OPENS {
            let rate = f64::from(self.opens) / now.saturating_sub(since).as_secs_f64().max(1e-6);
            // A span with waits only shows that the readers can do at least so much.
            self.places_per_second = match (self.places_per_second, self.waits) {
                (0.0, _) => rate,
                (old, 0) => 0.8 * old + 0.2 * rate,
                (old, _) => old.max(rate),
            };
            (self.since, self.opens, self.waits) = (Some(now), 0, 0);
        }
    }

    /// An epoch has ended.
    pub(super) fn epoch(&mut self) {
        self.pause /= 2;
    }

    pub(super) fn places_per_second(&self) -> f64 {
        match self.since {
            _ if self.places_per_second > 0.0 => self.places_per_second,
            Some(since) if self.opens >= Self::FEW => f64::from(self.opens) / self.opened_at.saturating_sub(since).as_secs_f64().max(1e-6),
            _ => Self::UNKNOWN,
        }
    }

    /// Seconds that so many opens take.
    pub(super) fn seconds_for(&self, opens: u32) -> f64 {
        f64::from(opens) / self.places_per_second()
    }

    pub(super) const fn has_begun(&self) -> bool {
        self.since.is_some()
    }

    pub(super) const fn opened_at(&self) -> Duration {
        self.opened_at
    }

    pub(super) fn silence(&self, now: Duration) -> Duration {
        now.saturating_sub(self.opened_at)
    }

    /// Opens that would have come in the silence, at the pace seen before.
    pub(super) fn opens_missed(&self, now: Duration) -> f64 {
        self.silence(now).as_secs_f64() * self.places_per_second()
    }

    /// Nobody reads it any more, as far as silence can tell. Of readers that have not begun it tells nothing.
    pub(super) fn is_silent(&self, now: Duration, between_passes: bool) -> bool {
        let least = if between_passes { Self::GONE_BETWEEN } else { Self::GONE };
        self.has_begun() && self.silence(now) > least.max(self.pause * Self::GONE_PAUSES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn close_to(left: f64, right: f64) -> bool {
        (left - right).abs() <= right * 0.05
    }

    #[test]
    fn the_pace_is_known_after_a_few_opens_wherever_they_begin() {
        let mut rate = Rate::default();
        let begin = Duration::from_secs(1000);
        for open in 0..200 {
            let now = begin + open * 10 * MS;
            rate.open(now, Outcome::InTime);
            if open >= 20 {
                assert!(close_to(rate.seconds_for(100), 1.0), "{open}: {}", rate.seconds_for(100));
            }
        }
    }

    #[test]
    fn waits_do_not_make_readers_slow() {
        let mut rate = Rate::default();
        for open in 1..=64 {
            rate.open(open * MS, Outcome::InTime);
        }
        for open in 1..=640 {
            rate.open(64 * MS + open * 20 * MS, Outcome::Miss);
        }
        assert!(close_to(rate.seconds_for(1000), 1.0));
    }

    #[test]
    fn silence_is_measured_against_the_pauses_seen() {
        let mut rate = Rate::default();
        assert!(!rate.is_silent(Duration::from_secs(300), false), "it has not begun");
        let mut now = Duration::from_secs(100);
        for open in 0..100 {
            now += if open % 25 == 24 { Duration::from_secs(4) } else { MS };
            rate.open(now, Outcome::InTime);
        }
        assert!(!rate.is_silent(now + Duration::from_secs(15), false), "a step of the model takes four seconds");
        assert!(rate.is_silent(now + Duration::from_secs(17), false) && !rate.is_silent(now + Duration::from_secs(17), true));
        rate.epoch();
        rate.epoch();
        assert!(rate.is_silent(now + Duration::from_secs(5), false), "that was long ago");
    }
}

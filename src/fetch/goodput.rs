//! What the store has delivered lately: the best second of the last ten, as BBR takes a windowed maximum. Pure; time is an argument.

use std::time::Duration;

/// Length of a slot.
const SLOT: Duration = Duration::from_millis(250);
/// Slots kept: ten seconds.
const SLOTS: usize = 40;
/// Slots that make the second which is looked for.
const WINDOW: usize = 4;

/// Bytes and requests per slot, as a ring.
#[derive(Debug)]
pub struct Goodput {
    slots: [(u64, u32); SLOTS],
    newest: u64,
}

/// The best second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    pub bytes_per_second: f64,
    pub requests_per_second: f64,
}

impl Default for Goodput {
    fn default() -> Self {
        Self { slots: [(0, 0); SLOTS], newest: 0 }
    }
}

impl Goodput {
    fn turn(&mut self, now: Duration) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "584 million years of slots")]
        let slot = (now.as_millis() / SLOT.as_millis()) as u64;
        let fresh = slot.saturating_sub(self.newest).min(SLOTS as u64);
        for back in 0..fresh {
            self.slots[(slot - back) as usize % SLOTS] = (0, 0);
        }
        self.newest = self.newest.max(slot);
        self.newest as usize % SLOTS
    }

    /// A request ended with this many bytes.
    pub fn record(&mut self, now: Duration, bytes: u64) {
        let at = self.turn(now);
        self.slots[at].0 += bytes;
        self.slots[at].1 += 1;
    }

    /// The best of the last ten seconds.
    pub fn best(&mut self, now: Duration) -> Rate {
        let newest = self.turn(now);
        let mut best = Rate::default();
        for end in 0..=SLOTS - WINDOW {
            let (mut bytes, mut requests) = (0, 0);
            for k in 0..WINDOW {
                let (b, r) = self.slots[(newest + SLOTS - end - k) % SLOTS];
                bytes += b;
                requests += r;
            }
            let seconds = SLOT.as_secs_f64() * WINDOW as f64;
            #[expect(clippy::cast_precision_loss, reason = "a rate")]
            let rate = bytes as f64 / seconds;
            best.bytes_per_second = best.bytes_per_second.max(rate);
            best.requests_per_second = best.requests_per_second.max(f64::from(requests) / seconds);
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_best_second_for_ten() {
        let mut goodput = Goodput::default();
        let at = Duration::from_millis;
        for ms in (0..2_000).step_by(10) {
            goodput.record(at(ms), 1_000);
        }
        let rate = goodput.best(at(2_000));
        assert!((rate.bytes_per_second - 100_000.0).abs() < 5_000.0, "{rate:?}");
        assert!((rate.requests_per_second - 100.0).abs() < 5.0, "{rate:?}");
        assert!(goodput.best(at(9_000)).bytes_per_second > 90_000.0);
        assert_eq!(goodput.best(at(60_000)), Rate::default());
    }
}

//! `--max-bandwidth`: bytes are let through at a rate, with a quarter of a second of unused rate carried over. Pure; time is an argument.

use std::time::Duration;

/// A token bucket that hands out waiting times.
#[derive(Debug)]
pub struct Pace {
    bytes_per_second: f64,
    /// When the bytes let through so far would have passed at the rate.
    paid_until: Duration,
}

/// Unused rate that is carried over: short bursts after a pause are fine, long ones are what the cap is against.
const CREDIT: Duration = Duration::from_millis(250);

impl Pace {
    /// At most this rate on average.
    #[must_use]
    pub const fn new(bytes_per_second: f64) -> Self {
        Self { bytes_per_second, paid_until: Duration::ZERO }
    }

    /// Takes `bytes` through; the caller waits this long before it takes more.
    pub fn take(&mut self, now: Duration, bytes: u64) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let cost = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second.max(1.0));
        self.paid_until = self.paid_until.max(now.saturating_sub(CREDIT)) + cost;
        self.paid_until.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_the_rate_over_time() {
        let mut pace = Pace::new(1e6);
        let mut now = Duration::from_secs(5);
        for _ in 0..100 {
            now += pace.take(now, 100_000);
        }
        let took = (now - Duration::from_secs(5)).as_secs_f64();
        assert!((9.7..=10.0).contains(&took), "10 MB at 1 MB/s less the credit: {took}");
    }
}

//! How many requests at once: more while more bring more, fewer when the store says so. Pure; time is an argument.
//!
//! A round lasts until as many requests have ended as are allowed at once. While jobs wait for a place, a round that brought at least
//! [`GAIN`] more goodput than the last level did raises the limit by a quarter; after [`HOLD_ROUNDS`] rounds without a gain it tries
//! again, and goes back if that brought nothing. A throttled answer (429, 503) takes it to [`BACKOFF`] of itself, at most once a round.
//! (The shape is BBR's probe cycle, Cardwell et al. 2016, on requests instead of bytes.)

use std::time::Duration;

/// A raise is worth it from 3 % more goodput on: less is noise.
const GAIN: f64 = 1.03;
/// Rounds between two tries for more.
const HOLD_ROUNDS: u32 = 8;
/// What a throttled answer leaves.
const BACKOFF: f64 = 0.7;
/// A round is never judged on less time than this: bursts would read as goodput.
const ROUND_MIN: Duration = Duration::from_millis(40);
/// Where it begins: enough to fill a 1 Gb/s link with 100 KB objects at 50 ms.
const START: usize = 64;
/// It never falls below this.
const LEAST: usize = 4;

/// The controller.
#[derive(Debug)]
pub struct Concurrency {
    limit: f64,
    most: f64,
    round_began: Duration,
    round_requests: u32,
    round_bytes: u64,
    /// Whether jobs waited for a place all through the round.
    saturated: bool,
    throttled: bool,
    /// Goodput of the level below the one being tried, and that level, to go back to.
    reference: f64,
    previous: f64,
    held: u32,
    probing: bool,
}

impl Concurrency {
    /// Up to `most` requests at once.
    #[must_use]
    pub fn new(most: usize) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
        let (limit, most) = (START.min(most.max(1)) as f64, most.max(1) as f64);
        Self {
            limit,
            most,
            round_began: Duration::ZERO,
            round_requests: 0,
            round_bytes: 0,
            saturated: true,
            throttled: false,
            reference: 0.0,
            previous: limit,
            held: 0,
            probing: true,
        }
    }

    /// Requests allowed at once.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and `most`")]
    pub fn limit(&self) -> usize {
        self.limit.round().clamp(1.0, self.most) as usize
    }

    /// A request ended. `waiting`: whether other jobs wait for its place. `throttled`: the store asked for less.
    pub fn ended(&mut self, now: Duration, bytes: u64, waiting: bool, throttled: bool) {
        if self.round_requests == 0 && self.round_bytes == 0 {
            self.saturated = true;
        }
        self.round_requests += 1;
        self.round_bytes += bytes;
        self.saturated &= waiting;
        if throttled && !self.throttled {
            self.throttled = true;
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let least = LEAST as f64;
            self.limit = (self.limit * BACKOFF).max(least.min(self.most));
        }
        let elapsed = now.saturating_sub(self.round_began);
        #[expect(clippy::cast_possible_truncation, reason = "a few hundred")]
        if self.round_requests >= self.limit() as u32 && elapsed >= ROUND_MIN {
            self.judge(elapsed);
            (self.round_began, self.round_requests, self.round_bytes) = (now, 0, 0);
            self.throttled = false;
        }
    }

    fn judge(&mut self, elapsed: Duration) {
        if self.throttled || !self.saturated {
            // the limit did not bind, or has just been cut: nothing to learn about more
            self.probing = false;
            self.held = 0;
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let goodput = self.round_bytes as f64 / elapsed.as_secs_f64();
        if self.probing {
            if goodput >= self.reference * GAIN {
                self.raise(goodput);
            } else {
                self.limit = self.previous;
                self.probing = false;
                self.held = 0;
            }
            return;
        }
        self.held += 1;
        if self.held >= HOLD_ROUNDS {
            self.raise(goodput);
        }
    }

    fn raise(&mut self, goodput: f64) {
        self.reference = goodput;
        self.previous = self.limit;
        self.limit = (self.limit * 1.25).ceil().min(self.most);
        self.probing = self.limit > self.previous;
        self.held = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store that gives each connection `per_request` bytes in `latency`, up to `total` bytes/s.
    fn settle(most: usize, latency: f64, per_request: u64, total: f64, seconds: f64) -> usize {
        let mut controller = Concurrency::new(most);
        let mut now = 0.0;
        while now < seconds {
            let limit = controller.limit();
            let round = (limit as f64 * per_request as f64 / total).max(latency);
            for i in 0..limit {
                controller.ended(Duration::from_secs_f64(now + round * (i + 1) as f64 / limit as f64), per_request, true, false);
            }
            now += round;
        }
        controller.limit()
    }

    #[test]
    fn grows_to_what_the_link_bears_and_stops_there() {
        // 100 KB at 50 ms: 2 MB/s a request; 1 GB/s: 500 requests fill it
        assert_eq!(settle(256, 0.05, 100_000, 1e9, 20.0), 256);
        // 200 MB/s: 100 requests fill it
        let settled = settle(256, 0.05, 100_000, 200e6, 60.0);
        assert!((95..=160).contains(&settled), "{settled}");
    }

    #[test]
    fn backs_off_once_a_round_and_not_below_the_least() {
        let mut controller = Concurrency::new(256);
        controller.ended(Duration::from_millis(1), 0, true, true);
        controller.ended(Duration::from_millis(2), 0, true, true);
        assert_eq!(controller.limit(), 45);
        for ms in 3..20_000u64 {
            controller.ended(Duration::from_millis(ms), 0, true, true);
        }
        assert_eq!(controller.limit(), LEAST);
    }

    #[test]
    fn learns_nothing_while_nobody_waits() {
        let mut controller = Concurrency::new(256);
        for ms in 0..10_000u64 {
            controller.ended(Duration::from_millis(ms), 100_000 * ms, false, false);
        }
        assert_eq!(controller.limit(), START);
    }

    #[test]
    fn a_cap_of_one_is_one() {
        let mut controller = Concurrency::new(1);
        for ms in 0..5_000u64 {
            controller.ended(Duration::from_millis(ms * 10), 1000, true, ms % 7 == 0);
            assert_eq!(controller.limit(), 1);
        }
    }
}

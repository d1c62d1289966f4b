//! Whether and when a failed request is tried again: one policy for listing, demand and prefetch. A store itself never repeats.
//!
//! Only what may pass by itself is repeated (5xx, 429, timeouts, resets, short bodies): a 403 or 404 fails in one round. Delays double
//! with full jitter (Brooker, "Exponential Backoff and Jitter"), so that nodes that failed together don't come back together.

use std::time::Duration;

use crate::types::ErrorKind;

/// First delay before jitter: a few round trips of a store in the same region.
const BASE: Duration = Duration::from_millis(50);
/// Longest delay before jitter: a throttling bucket recovers within seconds, and a reader's deadline is minutes away.
const CAP: Duration = Duration::from_secs(8);
/// A throttled request starts from a longer delay: the store has asked for it.
const THROTTLED_BASE: Duration = Duration::from_millis(200);

/// Who waits for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// A reader waits: try until its deadline.
    Deadline(Duration),
    /// Nobody waits yet: this many attempts, then the planner is told.
    Attempts(u32),
}

/// How long to wait before attempt number `attempt + 1`, when attempt number `attempt` (1-based) failed with `kind`, `elapsed` after the
/// first began; `None`: give up. `jitter` is uniform in 0..1.
#[must_use]
pub fn next_delay(kind: ErrorKind, attempt: u32, elapsed: Duration, patience: Patience, jitter: f64) -> Option<Duration> {
    if !kind.is_transient() {
        return None;
    }
    let base = if kind == ErrorKind::Throttled { THROTTLED_BASE } else { BASE };
    let ceiling = base.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(CAP);
    let delay = ceiling.mul_f64(jitter.clamp(0.05, 1.0)); // never at once: a dead server would be hammered
    match patience {
        Patience::Deadline(limit) => (elapsed + delay < limit).then_some(delay),
        Patience::Attempts(most) => (attempt < most).then_some(delay),
    }
}

/// Uniform in 0..1, different on each node and call. The one place where randomness has no seed: nothing but a delay depends on it.
#[must_use]
pub fn jitter() -> f64 {
    rand::random()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permanent_errors_fail_in_one_round() {
        for kind in
            [ErrorKind::NotFound, ErrorKind::Denied, ErrorKind::Changed, ErrorKind::Invalid, ErrorKind::NoSpace, ErrorKind::Shutdown]
        {
            assert_eq!(next_delay(kind, 1, Duration::ZERO, Patience::Attempts(9), 0.5), None, "{kind:?}");
        }
    }

    #[test]
    fn delays_grow_and_stay_under_the_cap() {
        let at = |attempt| next_delay(ErrorKind::Server, attempt, Duration::ZERO, Patience::Attempts(u32::MAX), 1.0).expect("transient");
        assert_eq!(at(1), BASE);
        assert_eq!(at(3), BASE * 4);
        assert_eq!(at(40), CAP);
    }

    #[test]
    fn a_deadline_is_not_slept_through() {
        let patience = Patience::Deadline(Duration::from_secs(10));
        assert!(next_delay(ErrorKind::Timeout, 9, Duration::from_secs(1), patience, 0.5).is_some());
        assert_eq!(next_delay(ErrorKind::Timeout, 9, Duration::from_secs(9), patience, 1.0), None);
    }
}

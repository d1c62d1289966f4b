//! Whether a tier is to be trusted: a pure state machine; time is an argument. A tier that fails is bypassed, probed, and taken back when a
//! probe succeeds. A full disk is no failure: see [`super::tier`].

use std::time::{Duration, Instant};

use crate::stats::TierState;

/// One bad sector or one file deleted under us is not a bad disk; five in a row are.
const ERRORS_IN_A_ROW: u32 = 5;
/// Often enough to be back soon after a cable is plugged in, seldom enough to cost nothing.
const PROBE_EVERY: Duration = Duration::from_secs(30);
/// Failed probes until the tier is called off (five minutes).
const PROBES_UNTIL_OFF: u32 = 10;
/// An off tier is still probed, ten times less often.
const PROBE_OFF_EVERY: Duration = Duration::from_secs(300);

/// The state of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Ok { errors: u32 },
    Degraded { probes: u32, next: Instant },
    Off { next: Instant },
}

impl Default for Health {
    fn default() -> Self {
        Self::Ok { errors: 0 }
    }
}

impl Health {
    pub(super) fn state(self) -> TierState {
        match self {
            Self::Ok { .. } => TierState::Ok,
            Self::Degraded { .. } => TierState::Degraded,
            Self::Off { .. } => TierState::Off,
        }
    }

    /// An operation on the tier failed.
    #[must_use]
    pub(super) fn failed(self, now: Instant) -> Self {
        match self {
            Self::Ok { errors } if errors + 1 < ERRORS_IN_A_ROW => Self::Ok { errors: errors + 1 },
            Self::Ok { .. } => Self::Degraded { probes: 0, next: now + PROBE_EVERY },
            Self::Degraded { .. } | Self::Off { .. } => self,
        }
    }

    /// An operation has not ended for so long that no more are to be begun.
    #[must_use]
    pub(super) fn hung(self, now: Instant) -> Self {
        match self {
            Self::Ok { .. } => Self::Degraded { probes: 0, next: now + PROBE_EVERY },
            Self::Degraded { .. } | Self::Off { .. } => self,
        }
    }

    /// An operation succeeded. One that began before the tier was given up does not bring it back: only a probe does.
    #[must_use]
    pub(super) fn succeeded(self) -> Self {
        match self {
            Self::Ok { .. } => Self::default(),
            Self::Degraded { .. } | Self::Off { .. } => self,
        }
    }

    pub(super) fn probe_is_due(self, now: Instant) -> bool {
        match self {
            Self::Ok { .. } => false,
            Self::Degraded { next, .. } | Self::Off { next } => now >= next,
        }
    }

    #[must_use]
    pub(super) fn probed(self, well: bool, now: Instant) -> Self {
        match self {
            Self::Ok { .. } => self,
            _ if well => Self::default(),
            Self::Degraded { probes, .. } if probes + 1 < PROBES_UNTIL_OFF => {
                Self::Degraded { probes: probes + 1, next: now + PROBE_EVERY }
            }
            Self::Degraded { .. } | Self::Off { .. } => Self::Off { next: now + PROBE_OFF_EVERY },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_errors(errors: u32, now: Instant) -> Health {
        (0..errors).fold(Health::default(), |health, _| health.failed(now))
    }

    #[test]
    fn only_errors_in_a_row_degrade() {
        let now = Instant::now();
        assert_eq!(after_errors(ERRORS_IN_A_ROW - 1, now).state(), TierState::Ok);
        assert_eq!(after_errors(ERRORS_IN_A_ROW - 1, now).succeeded().failed(now).state(), TierState::Ok);
        assert_eq!(after_errors(ERRORS_IN_A_ROW, now).state(), TierState::Degraded);
    }

    #[test]
    fn only_a_good_probe_brings_it_back_and_bad_ones_turn_it_off() {
        let start = Instant::now();
        let mut health = after_errors(ERRORS_IN_A_ROW, start);
        assert!(!health.probe_is_due(start) && health.probe_is_due(start + PROBE_EVERY));
        assert_eq!(health.succeeded().state(), TierState::Degraded, "a straggler");
        let mut now = start;
        for probe in 1..=PROBES_UNTIL_OFF {
            now += PROBE_EVERY;
            assert!(health.probe_is_due(now), "probe {probe}");
            assert_eq!(health.probed(true, now), Health::default());
            health = health.probed(false, now);
            assert!(!health.probe_is_due(now));
        }
        assert_eq!(health.state(), TierState::Off);
        assert!(!health.probe_is_due(now + PROBE_EVERY) && health.probe_is_due(now + PROBE_OFF_EVERY));
        assert_eq!(health.probed(true, now).state(), TierState::Ok);
    }
}

//! How much the memory tier may hold, by what the machine and the control groups around us have left. Pure: time is an argument.
//!
//! Pages of the tier are not the kernel's to reclaim, so what others need we must give back ourselves, in time. Promises: after a look the limit
//! leaves the floor free in every place whose memory may run out, even when the tier fills up to it, unless it is at its least already; it never
//! exceeds what was configured; while others use a constant amount it shrinks once at most. It knows nothing of who else uses the memory.

use std::time::Duration;

use crate::config::machine::Headroom;

/// Of the total, kept free for everybody else. The kernel itself begins to reclaim in earnest at about a fiftieth ...
const FLOOR_SHARE: u64 = 50;
/// ... but no less than this: what a few DataLoader workers take for their batches between two looks.
const FLOOR_LEAST: u64 = 256 << 20;
/// In a small container that would be most of it: an eighth at most.
const FLOOR_SHARE_MOST: u64 = 8;
/// Beyond the floor, its half: we shrink to this distance and grow only beyond it, so that small changes of others change nothing.
const MARGIN_SHARE: u64 = 2;
/// The limit grows by this part of what was configured: sixteen refills that the store hardly notices, and others can take the room back between.
const STEPS: u64 = 16;
/// A shrunk tier still holds some look-ahead: less would make every read wait for the store, and saves nobody from anything.
const LEAST_BYTES: u64 = 16 << 20;
/// As the planner's least window ...
const LEAST_FILES: u64 = 8;
/// ... unless files are huge: as much as the files that nobody keeps may take.
const LEAST_FILES_BYTES: u64 = 64 << 20;

/// How often to look, and how slowly to grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    pub look_every: Duration,
    /// No growth before the room has been there for so long.
    pub calm: Duration,
    pub grow_every: Duration,
}

impl Default for Pace {
    /// A second is less than a trainer takes to use up the floor. Half a minute outlasts the breath between two batches, a checkpoint, a
    /// fork of workers; 16 steps of 10 s make under three minutes back to the full size, a part of any epoch.
    fn default() -> Self {
        Self { look_every: Duration::from_secs(1), calm: Duration::from_secs(30), grow_every: Duration::from_secs(10) }
    }
}

/// The limit, and what it remembers to move slowly.
#[derive(Debug)]
pub(super) struct Policy {
    configured: u64,
    least: u64,
    pace: Pace,
    limit: u64,
    /// Since when the next step would fit; `None` while it would not.
    calm_since: Option<Duration>,
    grew_at: Option<Duration>,
}

impl Policy {
    /// `mean_file`: bytes of a file of the mount, on average.
    pub(super) fn new(configured: u64, mean_file: u64, pace: Pace) -> Self {
        let least = LEAST_BYTES.max(mean_file.saturating_mul(LEAST_FILES).min(LEAST_FILES_BYTES)).min(configured);
        Self { configured, least, pace, limit: configured, calm_since: None, grew_at: None }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// What the tier may hold now that it uses `used` and the places have so much left. Without figures it stays as it is.
    pub(super) fn look(&mut self, now: Duration, places: &[Headroom], used: u64) -> u64 {
        let Some((most, good)) = places.iter().map(|place| bounds(place, used)).reduce(|a, b| (a.0.min(b.0), a.1.min(b.1))) else {
            return self.limit;
        };
        let next = self.limit.saturating_add(self.configured.div_ceil(STEPS)).min(self.configured);
        if self.limit > most {
            self.limit = good.max(self.least).min(self.limit);
            self.calm_since = None;
        } else if self.limit == self.configured || next > good {
            self.calm_since = None;
        } else if now.saturating_sub(*self.calm_since.get_or_insert(now)) >= self.pace.calm
            && self.grew_at.is_none_or(|grew| now.saturating_sub(grew) >= self.pace.grow_every)
        {
            self.limit = next;
            self.grew_at = Some(now);
        }
        self.limit
    }
}

/// The limits that would leave the floor free in this place, and the floor and its margin. What the tier uses is its own to give: the sum of that and
/// what is left does not change as it fills.
fn bounds(place: &Headroom, used: u64) -> (u64, u64) {
    let floor = (place.total / FLOOR_SHARE).max(FLOOR_LEAST).min(place.total / FLOOR_SHARE_MOST);
    let all = used.saturating_add(place.available);
    (all.saturating_sub(floor), all.saturating_sub(floor + floor / MARGIN_SHARE))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// A machine of 64 GiB: floor 1.28 GiB, margin half of it.
    fn machine(available: u64) -> [Headroom; 1] {
        [Headroom { available, total: 64 * GIB }]
    }

    #[test]
    fn nothing_happens_while_there_is_room() {
        let mut policy = Policy::new(8 * GIB, 100_000, Pace::default());
        for n in 0..100 {
            assert_eq!(policy.look(seconds(n), &machine(40 * GIB), n * 80 * MIB), 8 * GIB);
        }
        assert_eq!(policy.look(seconds(100), &[], 8 * GIB), 8 * GIB, "no figures, no change");
    }

    #[test]
    fn it_gives_back_what_is_missing_and_a_margin_at_once() {
        let mut policy = Policy::new(8 * GIB, 100_000, Pace::default());
        let floor = 64 * GIB / 50;
        assert_eq!(policy.look(seconds(0), &machine(floor), 8 * GIB), 8 * GIB, "at the floor");
        let limit = policy.look(seconds(1), &machine(floor - 1), 8 * GIB);
        assert_eq!(limit, 8 * GIB - floor / 2 - 1, "a byte below it: back above it by the margin");
        assert_eq!(policy.look(seconds(2), &machine(floor - 1), 8 * GIB), limit, "not given back yet: the same is asked for");
        assert_eq!(policy.look(seconds(3), &machine(0), 0), 16 * MIB, "never below the least");
    }

    /// An empty tier must not grow into the floor between two looks either.
    #[test]
    fn what_it_could_still_take_counts_as_well() {
        let mut policy = Policy::new(8 * GIB, 100_000, Pace::default());
        let floor = 64 * GIB / 50;
        assert_eq!(policy.look(seconds(0), &machine(4 * GIB), 0), 4 * GIB - floor - floor / 2);
    }

    #[test]
    fn it_grows_back_after_calm_in_steps() {
        let mut policy = Policy::new(16 * GIB, 100_000, Pace::default());
        policy.look(seconds(0), &machine(0), 4 * GIB);
        let shrunk = policy.limit();
        let mut changes = Vec::new();
        for n in 1..=300 {
            let before = policy.limit();
            if policy.look(seconds(n), &machine(40 * GIB), before) != before {
                changes.push((n, policy.limit() - before));
            }
        }
        assert_eq!(changes[..3], [(31, GIB), (41, GIB), (51, GIB)]);
        assert_eq!((policy.limit(), shrunk), (16 * GIB, 4 * GIB - 64 * GIB / 50 - 64 * GIB / 100));
    }

    #[test]
    fn a_moment_of_pressure_begins_the_calm_anew() {
        let mut policy = Policy::new(16 * GIB, 100_000, Pace::default());
        policy.look(seconds(0), &machine(0), 16 * GIB);
        let shrunk = policy.limit();
        for n in 1..200 {
            let available = if n % 25 == 0 { 2 * GIB } else { 40 * GIB };
            assert_eq!(policy.look(seconds(n), &machine(available), shrunk), shrunk, "{n}");
        }
    }

    #[test]
    fn the_tightest_place_decides() {
        let mut policy = Policy::new(8 * GIB, 100_000, Pace::default());
        let group = Headroom { available: 100 * MIB, total: 4 * GIB };
        // floor 256 MiB, margin 128 MiB
        assert_eq!(policy.look(seconds(0), &[machine(40 * GIB)[0], group], 2 * GIB), 2 * GIB - 284 * MIB);
        let small = Headroom { available: 100 * MIB, total: 800 * MIB };
        assert_eq!(Policy::new(GIB, 1, Pace::default()).look(seconds(0), &[small], 200 * MIB), 150 * MIB, "an eighth, and half of it");
    }

    #[test]
    fn the_least_follows_the_files_up_to_a_point() {
        let least = |configured, mean| {
            let mut policy = Policy::new(configured, mean, Pace::default());
            policy.look(seconds(0), &machine(0), 0)
        };
        assert_eq!([least(GIB, 100_000), least(GIB, 4 * MIB), least(GIB, GIB)], [16 * MIB, 32 * MIB, 64 * MIB]);
        assert_eq!(least(3 * MIB, 100_000), 3 * MIB, "a tier that small is left alone");
        assert_eq!(least(0, u64::MAX), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever others do: within its bounds, never into the floor, no faster up than said.
        #[test]
        fn the_floor_stays_free_and_growth_is_slow(
            configured in 0..20 * GIB,
            others in prop::collection::vec((0..70 * GIB, 0..=100u64, 1..40u64), 1..60),
        ) {
            let mut policy = Policy::new(configured, 100_000, Pace::default());
            let least = policy.least;
            let (mut now, mut grew) = (0, None::<u64>);
            let mut used = 0;
            for (others, fill, wait) in others {
                now += wait;
                used = used.max(policy.limit() / 100 * fill);
                let place = Headroom { available: (64 * GIB).saturating_sub(others).saturating_sub(used), total: 64 * GIB };
                let before = policy.limit();
                let limit = policy.look(seconds(now), &[place], used);
                prop_assert!((least..=configured).contains(&limit));
                prop_assert!(limit == least || limit + 64 * GIB / 50 <= used + place.available);
                if limit > before {
                    prop_assert!(limit - before <= configured.div_ceil(STEPS));
                    prop_assert!(grew.is_none_or(|grew| now - grew >= 10));
                    grew = Some(now);
                }
                used = used.min(limit);
            }
        }

        /// Others use the same all the time, the tier fills and empties as it likes: it shrinks once at most, and comes to rest.
        #[test]
        fn it_does_not_oscillate(
            configured in 1..40 * GIB,
            others in 0..64 * GIB,
            fills in prop::collection::vec(0..=100u64, 400..500),
        ) {
            let mut policy = Policy::new(configured, 100_000, Pace::default());
            let (mut shrunk, mut last) = (0, 0);
            for (now, fill) in (0..).zip(fills) {
                let used = (policy.limit() / 100 * fill).min(64 * GIB - others);
                let place = Headroom { available: 64 * GIB - others - used, total: 64 * GIB };
                let before = policy.limit();
                let limit = policy.look(seconds(now), &[place], used);
                shrunk += u32::from(limit < before);
                last = if limit == before { last } else { now };
            }
            prop_assert!(shrunk <= 1, "{shrunk}");
            prop_assert!(last <= 200, "{last}");
        }
    }
}

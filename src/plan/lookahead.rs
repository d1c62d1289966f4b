//! The window: how many bytes to hold ahead of the readers.
//!
//! *Wanted* = store rate × its usual p99.9 latency + what the loader opens at once + what readers hold open (clairvoyance §3.4), between 8 files
//! (or four small batches, where the store gives objects by batches) and a quarter of the tiers. That much is kept free of retained files. *The limit* on bytes ahead begins there and doubles when readers
//! wait, up to all free room, because then the store is what binds; it shrinks slowly when they do not.

use std::time::Duration;

/// Files' worth of window before anything was measured: hides 64 × the compute time of a sample.
const DEFAULT_FILES: u64 = 64;
/// Least window: fewer do not overlap even on a perfect store.
const LEAST_FILES: u64 = 8;
/// Least window in batches, where objects come by batches: one being read, one on its way, one forming, and one for what comes between.
const LEAST_BATCHES: u64 = 4;
/// A change of the wanted window below an eighth is noise, and every change of the reserve evicts or wastes kept files.
const HYSTERESIS: u64 = 8;
/// The limit doubles at most this often: a burst of waits has one cause.
const GROW_EVERY: Duration = Duration::from_millis(50);
/// Without waits for this long, the limit shrinks.
const CALM: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug)]
pub(crate) struct Window {
    capacity: u64,
    /// All there is to read: nobody wants more of it ahead.
    data: u64,
    mean_size: u64,
    measured: Option<(f64, Duration)>,
    /// Files of the least window.
    least_files: u64,
    wanted: u64,
    in_force: u64,
    limit: u64,
    grew_at: Duration,
    waited_at: Duration,
}

impl Window {
    pub(crate) fn new(capacity: u64, mean_size: u64, data: u64) -> Self {
        let mut window = Self {
            capacity,
            data,
            mean_size: mean_size.max(1),
            measured: None,
            least_files: LEAST_FILES,
            wanted: 0,
            in_force: 0,
            limit: 0,
            grew_at: Duration::ZERO,
            waited_at: Duration::ZERO,
        };
        window.update(0, 0);
        window
    }

    /// Bytes kept free of retained files.
    pub(crate) const fn bytes(&self) -> u64 {
        self.in_force
    }
    pub(crate) const fn mean_size(&self) -> u64 {
        self.mean_size
    }
    /// What the measurements ask for, before the clamp to a quarter of the tiers.
    pub(crate) const fn wanted(&self) -> u64 {
        self.wanted
    }
    /// Bytes that may be ahead of the readers now.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.max(self.in_force)
    }

    pub(crate) fn measured(&mut self, bytes_per_second: f64, latency_p999: Duration) {
        if bytes_per_second.is_finite() && bytes_per_second > 0.0 {
            self.measured = Some((bytes_per_second, latency_p999));
        }
    }

    /// Files come by batches of at least so many; 0: singly.
    pub(crate) fn batches_of(&mut self, files: u32) {
        self.least_files = LEAST_FILES.max(LEAST_BATCHES * u64::from(files));
    }

    /// Recomputes the window; true if the reserve changed.
    pub(crate) fn update(&mut self, burst_bytes: u64, open_bytes: u64) -> bool {
        let store = match self.measured {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "finite and positive; saturates")]
            Some((rate, latency)) => (rate * latency.as_secs_f64()) as u64,
            None => DEFAULT_FILES * self.mean_size,
        };
        self.wanted = store.saturating_add(burst_bytes).saturating_add(open_bytes).min(self.data).max(self.least_files * self.mean_size);
        let target = self.wanted.min(self.capacity / 4).max((LEAST_FILES * self.mean_size).min(self.capacity));
        let changed = self.in_force.abs_diff(target) > self.in_force / HYSTERESIS;
        if changed {
            self.in_force = target;
        }
        changed
    }

    /// The tiers are larger or smaller now; [`Self::update`] finds the window that fits.
    pub(crate) fn resize(&mut self, capacity: u64) {
        self.capacity = capacity;
        self.in_force = self.in_force.min(capacity);
        self.limit = self.limit.min(capacity);
    }

    /// A reader waited for a file that was predicted: the store is behind.
    pub(crate) fn waited(&mut self, now: Duration, free: u64) {
        self.waited_at = now;
        if now >= self.grew_at + GROW_EVERY {
            self.grew_at = now;
            self.limit = self.limit().saturating_mul(2).min(free.max(self.in_force));
        }
    }

    /// Once per tick.
    pub(crate) fn calm(&mut self, now: Duration) {
        if now > self.waited_at + CALM {
            self.limit = (self.limit - self.limit / 32).max(self.in_force);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_rate_times_tail_latency_plus_bursts_within_its_bounds() {
        let mut window = Window::new(100_000, 100, u64::MAX);
        assert_eq!(window.bytes(), 6_400);
        window.measured(100_000.0, Duration::from_millis(100));
        window.update(2_000, 1_000);
        assert_eq!(window.bytes(), 13_000);
        assert!(!window.update(2_500, 1_000), "an eighth is noise");
        window.update(1_000_000, 0);
        assert_eq!((window.bytes(), window.wanted()), (25_000, 1_010_000));
        window.measured(1.0, Duration::from_millis(1));
        window.update(0, 0);
        assert_eq!(window.bytes(), 800);
        window.batches_of(16);
        window.update(0, 0);
        assert_eq!(window.bytes(), 6_400, "four batches");
        window.batches_of(0);
        window.update(0, 0);
        assert_eq!(window.bytes(), 800);
        let mut all = Window::new(100_000, 100, 5_000);
        all.update(1_000_000, 0);
        assert_eq!((all.bytes(), all.wanted()), (5_000, 5_000), "no more than there is");
    }

    #[test]
    fn waits_double_the_limit_up_to_free_room_and_calm_shrinks_it() {
        let mut window = Window::new(100_000, 100, u64::MAX);
        window.waited(Duration::from_secs(1), 50_000);
        assert_eq!(window.limit(), 12_800);
        window.waited(Duration::from_secs(1), 50_000);
        assert_eq!(window.limit(), 12_800, "one cause, one step");
        window.waited(Duration::from_secs(2), 20_000);
        assert_eq!(window.limit(), 20_000);
        for tick in 0..1000 {
            window.calm(Duration::from_millis(5_000 + tick * 100));
        }
        assert_eq!(window.limit(), 6_400);
    }
}

//! What came of one pass: how many accesses of which kind, and what the ideal cache would have had.

use std::time::Duration;

use crate::types::{Epoch, Outcome};

/// Accesses, bytes and time of one pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EpochCount {
    pub epoch: Epoch,
    pub accesses: u64,
    pub retained: u64,
    pub in_time: u64,
    pub late: u64,
    pub miss: u64,
    pub retained_bytes: u64,
    pub in_time_bytes: u64,
    pub late_bytes: u64,
    pub miss_bytes: u64,
    /// From its first open to its last.
    pub seconds: f64,
    /// What the ideal cache of the same capacity would have retained of the same accesses, by bytes.
    pub bound_retained_rate: f64,
    /// Bytes accessed that the ideal cache must have fetched.
    pub bound_store_bytes: u64,
    /// Of the accesses so far, bytes the ideal cache had.
    pub(crate) bound_retained_bytes: u64,
    pub(crate) began: Option<Duration>,
}

impl EpochCount {
    /// Bytes accessed.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.retained_bytes + self.in_time_bytes + self.late_bytes + self.miss_bytes
    }

    /// Takes over accesses that were counted for a pass that turned out to be another.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.accesses += other.accesses;
        self.retained += other.retained;
        self.in_time += other.in_time;
        self.late += other.late;
        self.miss += other.miss;
        self.retained_bytes += other.retained_bytes;
        self.in_time_bytes += other.in_time_bytes;
        self.late_bytes += other.late_bytes;
        self.miss_bytes += other.miss_bytes;
        self.bound_retained_bytes += other.bound_retained_bytes;
        self.bound();
    }

    /// Brings the bound's rate and store bytes up to date.
    pub(crate) fn bound(&mut self) {
        let bytes = self.bytes();
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rate = if bytes == 0 { 0.0 } else { self.bound_retained_bytes as f64 / bytes as f64 };
        self.bound_retained_rate = rate;
        self.bound_store_bytes = bytes.saturating_sub(self.bound_retained_bytes);
    }

    pub(crate) fn count(&mut self, now: Duration, outcome: Outcome, size: u64) {
        let (count, bytes) = match outcome {
            Outcome::Retained => (&mut self.retained, &mut self.retained_bytes),
            Outcome::InTime => (&mut self.in_time, &mut self.in_time_bytes),
            Outcome::Late => (&mut self.late, &mut self.late_bytes),
            Outcome::Miss => (&mut self.miss, &mut self.miss_bytes),
        };
        *count += 1;
        *bytes += size;
        self.accesses += 1;
        let began = *self.began.get_or_insert(now);
        self.seconds = now.saturating_sub(began).as_secs_f64();
    }
}

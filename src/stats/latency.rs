//! Latencies of the last minute, in log-spaced buckets: bounded memory, no lock, quantiles to within 12 %.
//!
//! A minute is cut into slots: a record goes to the slot of its time, a quantile looks at the slots of the last minute, and a slot is emptied
//! when its turn comes again. It promises bounded memory and a bounded error. It does not promise every record: while one thread empties a
//! slot, a few that others record at that moment may be lost.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Slots of the minute's quantiles, asked for at every fetch; a finer slide would change no decision.
const COARSE: (usize, u64) = (6, 10);
/// ... and of the usual slow end: seconds, because a burst lasts as long.
const FINE: (usize, u64) = (60, 1);
/// Buckets per power of two. The middle of a bucket is at most 1/16 = 6.3 % off, half of what is promised.
const SUB_BUCKETS: u64 = 8;
/// log2 of [`SUB_BUCKETS`].
const SUB_BITS: u32 = 3;
/// Powers of two told apart above 8 µs; the last bucket takes all from 2^36 µs (19 hours) on, far beyond any deadline.
const OCTAVES: u64 = 33;
/// 0..8 µs exactly, then [`SUB_BUCKETS`] per octave.
const BUCKETS: usize = (SUB_BUCKETS + SUB_BUCKETS * OCTAVES) as usize;

type Counts = [u64; BUCKETS];

/// A part of the minute.
#[derive(Debug)]
struct Slot {
    /// Which it is, counted from 1; 0 = never used.
    turn: AtomicU64,
    counts: Box<[AtomicU32]>,
}

/// A minute of them.
#[derive(Debug)]
struct Slots {
    slots: Box<[Slot]>,
    seconds: u64,
}

impl Slots {
    fn new((slots, seconds): (usize, u64)) -> Self {
        let slot = |_| Slot { turn: AtomicU64::new(0), counts: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect() };
        Self { slots: (0..slots).map(slot).collect(), seconds }
    }

    /// The slot a time lies in, counted from 1.
    const fn turn_of(&self, now_seconds: u64) -> u64 {
        now_seconds / self.seconds + 1
    }

    fn at(&self, turn: u64) -> &Slot {
        &self.slots[(turn % self.slots.len() as u64) as usize]
    }

    fn record(&self, now_seconds: u64, bucket: usize) {
        let turn = self.turn_of(now_seconds);
        let slot = self.at(turn);
        let seen = slot.turn.load(Relaxed);
        // Only one thread wins the turn and empties the slot. A record from the past (seen > turn) is counted where it landed.
        if seen < turn && slot.turn.compare_exchange(seen, turn, Relaxed, Relaxed).is_ok() {
            for count in &slot.counts {
                count.store(0, Relaxed);
            }
        }
        slot.counts[bucket].fetch_add(1, Relaxed);
    }

    /// Those of the last minute, the latest first.
    fn recent(&self, now_seconds: u64) -> impl Iterator<Item = &Slot> {
        let turn = self.turn_of(now_seconds);
        let oldest = (turn + 1).saturating_sub(self.slots.len() as u64).max(1);
        (oldest..=turn)
            .rev()
            .map(|turn| (turn, self.at(turn)))
            .filter(|(turn, slot)| slot.turn.load(Relaxed) == *turn)
            .map(|(_, slot)| slot)
    }
}

/// Sliding histogram. Its owner passes the time.
#[derive(Debug)]
pub struct Latencies {
    coarse: Slots,
    fine: Slots,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { coarse: Slots::new(COARSE), fine: Slots::new(FINE) }
    }
}

impl Latencies {
    /// Records one latency, `micros` long, at `now_seconds` since the mount began.
    pub fn record(&self, now_seconds: u64, micros: u64) {
        let bucket = bucket_of(micros);
        self.coarse.record(now_seconds, bucket);
        self.fine.record(now_seconds, bucket);
    }

    /// The quantile `q` (0..=1) over the last 60 s, microseconds; 0 when nothing was recorded.
    #[must_use]
    pub fn quantile(&self, now_seconds: u64, q: f64) -> u64 {
        let mut sums = [0; BUCKETS];
        for slot in self.coarse.recent(now_seconds) {
            add(&mut sums, slot);
        }
        quantile(&sums, q)
    }

    /// The quantile `q` as it usually is: the median over stretches of the last 60 s, each of as few seconds as have a record beyond it. One bad
    /// stretch (a start, a burst of our own making) does not count for a minute; what is slow all the time does.
    #[must_use]
    pub fn usual(&self, now_seconds: u64, q: f64) -> u64 {
        let mut quantiles = Vec::new();
        let mut sums = [0; BUCKETS];
        for slot in self.fine.recent(now_seconds) {
            add(&mut sums, slot);
            #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
            if sums.iter().sum::<u64>() as f64 * (1.0 - q) >= 1.0 {
                quantiles.push(quantile(&sums, q));
                sums = [0; BUCKETS];
            }
        }
        if quantiles.is_empty() {
            return quantile(&sums, q);
        }
        quantiles.sort_unstable();
        quantiles[quantiles.len() / 2]
    }
}

fn add(sums: &mut Counts, slot: &Slot) {
    for (sum, count) in sums.iter_mut().zip(&slot.counts) {
        *sum += u64::from(count.load(Relaxed));
    }
}

/// Microseconds; 0 when nothing was counted.
fn quantile(sums: &Counts, q: f64) -> u64 {
    let total: u64 = sums.iter().sum();
    if total == 0 {
        return 0;
    }
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank within `total`, clamped"
    )]
    let rank = ((q.clamp(0.0, 1.0) * total as f64).ceil() as u64).clamp(1, total);
    let mut below = 0;
    for (bucket, sum) in sums.iter().enumerate() {
        below += sum;
        if below >= rank {
            return middle_of(bucket);
        }
    }
    unreachable!("the sums add up to total, and rank <= total")
}

fn bucket_of(micros: u64) -> usize {
    if micros < SUB_BUCKETS {
        return micros as usize;
    }
    let octave = micros.ilog2() - SUB_BITS;
    let within = (micros >> octave) - SUB_BUCKETS;
    let bucket = SUB_BUCKETS + u64::from(octave) * SUB_BUCKETS + within;
    (bucket as usize).min(BUCKETS - 1)
}

fn middle_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < SUB_BUCKETS {
        return bucket;
    }
    let (octave, within) = ((bucket - SUB_BUCKETS) / SUB_BUCKETS, (bucket - SUB_BUCKETS) % SUB_BUCKETS);
    let low = (SUB_BUCKETS + within) << octave;
    low + (1 << octave) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_recorded_is_zero() {
        assert_eq!(Latencies::default().quantile(0, 0.99), 0);
    }

    #[test]
    fn quantiles_of_a_known_set() {
        let latencies = Latencies::default();
        for millis in 1..=100 {
            latencies.record(5, millis * 1_000);
        }
        for (q, exact) in [(0.0, 1_000u64), (0.5, 50_000), (0.99, 99_000), (1.0, 100_000)] {
            let got = latencies.quantile(5, q);
            assert!(got.abs_diff(exact) * 100 <= exact * 12, "q {q}: {got} against {exact}");
        }
    }

    #[test]
    fn the_last_minute_only() {
        let latencies = Latencies::default();
        latencies.record(0, 1_000_000);
        latencies.record(55, 10);
        assert!(latencies.quantile(59, 1.0) > 900_000, "still within the minute");
        assert!(latencies.quantile(60, 1.0) < 12, "the first slot has left it");
        assert_eq!(latencies.quantile(200, 1.0), 0, "all have");
        latencies.record(600, 7);
        assert_eq!(latencies.quantile(600, 1.0), 7, "a slot used again starts empty");
    }

    #[test]
    fn one_bad_second_is_not_what_is_usual_and_what_is_always_slow_is() {
        let latencies = Latencies::default();
        // of 2,000 a second four take 50 ms; in the first second many take half a second
        for second in 0..5 {
            for k in 0..2_000 {
                let slow = if k % 500 == 0 { 50_000 } else { 1_000 };
                latencies.record(second, if second == 0 && k % 20 == 0 { 500_000 } else { slow });
            }
            let usual = latencies.usual(second, 0.999);
            assert_eq!(usual > 400_000, second < 2, "{usual} in second {second}");
            assert!(usual > 45_000, "{usual}");
        }
        assert!(latencies.quantile(4, 0.999) > 400_000);
        assert_eq!(latencies.usual(200, 0.999), 0, "all have left");
    }

    #[test]
    fn where_little_is_read_the_usual_slow_end_is_that_of_the_minute() {
        let latencies = Latencies::default();
        for second in 0..60 {
            latencies.record(second, if second == 7 { 300_000 } else { 1_000 });
        }
        assert_eq!(latencies.usual(59, 0.999), latencies.quantile(59, 0.999));
        assert!(latencies.usual(59, 0.999) > 250_000);
    }

    #[test]
    fn many_threads_count_every_record_of_a_running_slot() {
        let latencies = Latencies::default();
        latencies.record(1, 3);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| latencies.record(1, 3)));
            }
        });
        let counted: u32 = latencies.coarse.slots.iter().map(|slot| slot.counts[3].load(Relaxed)).sum();
        assert_eq!(counted, 4001);
    }

    proptest! {
        #[test]
        fn one_record_is_its_own_quantile_within_12_percent(micros in 0u64..(1 << 35), q in 0.0f64..=1.0) {
            let latencies = Latencies::default();
            latencies.record(0, micros);
            let got = latencies.quantile(0, q);
            prop_assert!(got.abs_diff(micros) * 100 <= micros * 12, "{got} for {micros}");
        }

        #[test]
        fn buckets_grow_with_the_value(a in any::<u64>(), b in any::<u64>()) {
            prop_assert_eq!(bucket_of(a.min(b)) <= bucket_of(a.max(b)), true);
            prop_assert!(bucket_of(a) < BUCKETS);
        }
    }
}

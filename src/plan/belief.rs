//! How much an order is believed: one likelihood ratio per hypothesis, fed by every open.
//!
//! Promises: under uniformly random opens a hypothesis exceeds a ratio of 10^6 with probability below 10^-6 (Ville's inequality), and a
//! right one is trusted after two or three opens in sequence. [`Density`] catches what order alone cannot see: a stream of the right
//! sequence but the wrong world size, in which files are foreign or left out. Does not know files, epochs or processes.

/// ln 10^6: from here on the planner prefetches on a hypothesis' word (design §4).
pub(crate) const TRUST: f64 = 13.815_510_557_964_274;
/// ln 10^-3: below it the hypothesis is dropped (design §4).
pub(crate) const DROP: f64 = -6.907_755_278_982_137;
/// ln 10^-6: a hypothesis that was hopeless for an hour must still be able to win within a few opens.
const FLOOR: f64 = -13.815_510_557_964_274;
/// ln 10^9: and one that was right for an hour must be droppable within a dozen.
const CEILING: f64 = 20.723_265_836_946_41;

/// Share of the probability given to opens ahead of the last one of the same process.
const FORWARD: f64 = 0.75;
/// Behind it: other workers' batches, restarted workers.
const BACKWARD: f64 = 0.2;
/// A file that is not in the stream, or was opened already: the remaining 5 %, spread evenly.
pub(crate) const ELSEWHERE: f64 = 0.05;

/// Scale-free kernel over distances in an order of `n` places, as a ratio to the uniform 1/n. It needs no batch size: 1/d gives every
/// octave of distance the same weight, so a step of 1 and a jump over the other workers' batches are both likely.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    /// n / H_n.
    gain: f64,
}

impl Kernel {
    pub(crate) fn new(places: usize) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "places are below 2^32")]
        let n = places.max(1) as f64;
        // H_n to better than 1/(2n), Euler–Mascheroni; exact enough for a weight.
        let harmonic = if places < 2 { 1.0 } else { n.ln() + 0.577_215_664_9 + 0.5 / n };
        Self { gain: n / harmonic }
    }

    /// Ratio of an open `steps` ≥ 1 ahead of the last.
    pub(crate) fn forward(self, steps: u32) -> f64 {
        FORWARD * self.gain / f64::from(steps.max(1))
    }

    /// Ratio of an open `steps` ≥ 1 behind the last.
    pub(crate) fn backward(self, steps: u32) -> f64 {
        BACKWARD * self.gain / f64::from(steps.max(1))
    }
}

/// The logarithm of a likelihood ratio, clamped.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Belief(f64);

impl Belief {
    pub(crate) const fn trusted() -> Self {
        Self(TRUST)
    }
    pub(crate) fn add(&mut self, ratio: f64) {
        self.0 = (self.0 + ratio.max(1e-9).ln()).clamp(FLOOR, CEILING);
    }
    pub(crate) const fn ln(self) -> f64 {
        self.0
    }
    pub(crate) fn is_trusted(self) -> bool {
        self.0 >= TRUST
    }
    pub(crate) fn is_lost(self) -> bool {
        self.0 < DROP
    }
    /// As a probability against the uniform hypothesis at equal prior.
    pub(crate) fn confidence(self) -> f64 {
        1.0 / (1.0 + (-self.0).exp())
    }
}

/// The last up to 256 yes-or-no observations.
#[derive(Clone, Debug, Default)]
struct Last256 {
    bits: [u64; 4],
    next: u8,
    seen: u32,
    hits: u32,
}

impl Last256 {
    fn push(&mut self, hit: bool) {
        let (word, mask) = (usize::from(self.next / 64), 1u64 << (self.next % 64));
        if self.bits[word] & mask != 0 {
            self.hits -= 1;
        }
        self.bits[word] &= !mask;
        if hit {
            self.bits[word] |= mask;
            self.hits += 1;
        }
        self.next = self.next.wrapping_add(1);
        self.seen = (self.seen + 1).min(256);
    }

    /// At least `least` observations, and more than `percent` of them hits.
    fn exceeds(&self, least: u32, percent: u32) -> bool {
        self.seen >= least && self.hits * 100 > self.seen * percent
    }
}

/// What the stream's density says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not enough seen.
    Open,
    Fits,
    /// Too many opens of files that this node should not read.
    Foreign,
    /// Too many places passed over.
    Skipped,
}

/// Counts foreign opens and places passed over, apart from likelihood: a stream of world 4 read with world 8 is in perfect order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Density {
    foreign: Last256,
    /// Judged early, see [`Self::passed_early`].
    early: Last256,
    late: Last256,
}

impl Density {
    /// Tolerated share, percent, over 256 opens: lost events and loaders that drop a batch stay below it.
    const TOLERATED: u32 = 10;
    /// ... of places passed over: each lost event is one, and 5 % of events may be lost.
    const TOLERATED_GAPS: u32 = 20;
    /// A wrong world size leaves out at least half the places and, before each open, always the one before: 60 % of 64 cannot be a
    /// batch boundary unless batches have one sample, and then the early wait covers it.
    const EARLY_PERCENT: u32 = 60;
    /// A wrong world size makes at least half of all opens foreign.
    const EARLY_FOREIGN_PERCENT: u32 = 40;
    const EARLY_LEAST: u32 = 64;

    pub(crate) fn open(&mut self, foreign: bool) {
        self.foreign.push(foreign);
    }
    /// Whether hardly any of the opens were of files that this node should not read, however few there were.
    pub(crate) fn is_own(&self) -> bool {
        !self.foreign.exceeds(1, Self::TOLERATED)
    }
    /// Whether the place before an opened one was still unopened a short while later.
    pub(crate) fn passed_early(&mut self, passed: bool) {
        self.early.push(passed);
    }
    /// ... and after more than the loader's spread.
    pub(crate) fn passed_late(&mut self, passed: bool) {
        self.late.push(passed);
    }

    pub(crate) fn verdict(&self) -> Verdict {
        if self.foreign.exceeds(256, Self::TOLERATED) || self.foreign.exceeds(Self::EARLY_LEAST, Self::EARLY_FOREIGN_PERCENT) {
            Verdict::Foreign
        } else if self.late.exceeds(256, Self::TOLERATED_GAPS) || self.early.exceeds(Self::EARLY_LEAST, Self::EARLY_PERCENT) {
            Verdict::Skipped
        } else if self.foreign.seen >= 128 && self.early.seen >= 64 {
            Verdict::Fits
        } else {
            Verdict::Open
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_is_trusted_after_a_few_opens_and_dropped_after_a_dozen_random_ones() {
        let kernel = Kernel::new(20_000);
        let mut belief = Belief::default();
        for _ in 0..2 {
            belief.add(kernel.forward(1));
        }
        assert!(belief.is_trusted());
        for _ in 0..100 {
            belief.add(kernel.forward(1));
        }
        let mut opens = 0;
        while !belief.is_lost() {
            belief.add(if opens % 2 == 0 { kernel.forward(6_000) } else { kernel.backward(6_000) });
            opens += 1;
        }
        assert!(opens <= 16, "{opens}");
    }

    #[test]
    fn the_kernel_is_a_probability() {
        let n = 1000u32;
        let kernel = Kernel::new(n as usize);
        let total: f64 = (1..=n).map(|d| (kernel.forward(d) + kernel.backward(d)) / f64::from(n)).sum();
        assert!((total + ELSEWHERE - 1.0).abs() < 0.001, "{total}");
    }

    #[test]
    fn density_sees_foreign_files_and_gaps() {
        let mut world_too_large = Density::default();
        let mut right = Density::default();
        for k in 0..64 {
            world_too_large.open(k % 2 == 0);
            right.open(k % 20 == 0);
            right.passed_early(k % 32 == 0);
        }
        assert_eq!(world_too_large.verdict(), Verdict::Foreign);
        assert_eq!(right.verdict(), Verdict::Open);
        for _ in 0..64 {
            right.open(false);
        }
        assert_eq!(right.verdict(), Verdict::Fits);
        for _ in 0..200 {
            right.passed_early(true);
        }
        assert_eq!(right.verdict(), Verdict::Skipped);
    }
}

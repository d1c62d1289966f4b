//! The seed of numpy's legacy or Python's shuffle from the end of a recorded whole order.
//!
//! Source: field notes «orders» §6, first row. Both settle the last place first, so the first draws are known once an epoch has been seen to
//! its end; later epochs follow from the seed. Draws are by rejection: an output counts only when its bits are not above the place, so a
//! block of seeds is tested on its first output that counts.
//! Costs: numpy's as `exhaustive`; Python's `init_by_array` takes three times the steps through memory (`benches/README.md`).
//!
//! Not here: seeds above 2^32, numpy's `default_rng` (`dictionary::whole_orders`), and later epochs (`order::again`).

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use multiversion::multiversion;

use super::Control;
use super::exhaustive::{ALL_SEEDS, HITS_MAX};
use super::lanes::{CodePath, Kernels, LANES, Lanes};
use super::words::{SHIFT, WORDS};
use crate::order::mt19937::Mt19937;
use crate::types::SampleIndex;

/// Whose shuffle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backward {
    /// `np.random.seed(s); np.random.shuffle(list)`, or `RandomState(s).permutation(n)`.
    Numpy,
    /// `random.seed(s); random.shuffle(list)`.
    Python,
}

/// Draws looked at for a seed that passed the first: from n = 30 on more than 100 bits.
const DRAWS: usize = 64;
/// Seeds of one slice of work: 10 ms.
const SLICE: u64 = 1 << 15;
/// First outputs looked at: with rejection half of the time one seed in 4096 is undecided and goes to the whole check.
const OUTPUTS_MAX: u32 = 12;
/// One seed in so many may go to the whole check undecided.
const UNDECIDED: f64 = 4096.0;

/// The draws that the end of a whole order reveals, the first (for place n - 1) first, at most `count`. None when `order` is no permutation.
fn draws_from_the_end(order: &[SampleIndex], count: usize) -> Option<Vec<(u32, u32)>> {
    let n = u32::try_from(order.len()).ok()?;
    let mut place_of: Vec<u32> = (0..n).collect();
    let mut array: Vec<SampleIndex> = (0..n).collect();
    let mut draws = Vec::new();
    for last in (1..n).rev().take(count) {
        let sample = order[last as usize];
        let place = *place_of.get(sample as usize)?;
        if place > last {
            return None;
        }
        draws.push((last, place));
        let moved = array[last as usize];
        array[place as usize] = moved;
        array[last as usize] = sample;
        place_of[moved as usize] = place;
        place_of[sample as usize] = last;
    }
    Some(draws)
}

/// How an output becomes a number from 0 to `max`: (output >> shift) & mask, again while it is above.
#[derive(Clone, Copy, Debug)]
struct Bits {
    shift: u32,
    mask: u32,
    max: u32,
}

impl Backward {
    const fn bits(self, max: u32) -> Bits {
        match self {
            Self::Numpy => Bits { shift: 0, mask: u32::MAX >> max.leading_zeros(), max },
            // The top bits, as many as max + 1 has.
            Self::Python => Bits { shift: (max + 1).leading_zeros(), mask: u32::MAX, max },
        }
    }

    fn generator(self, seed: u32) -> Mt19937 {
        match self {
            Self::Numpy => Mt19937::new(u64::from(seed)),
            Self::Python => Mt19937::by_array(&[seed]),
        }
    }
}

/// Seeds of `range` (within [`ALL_SEEDS`]) whose shuffle of 0..n ends as `order`, the generator having given `offset` (≤ 200) outputs before; rising, at
/// most [`HITS_MAX`]; several when n is tiny. `order` is whole: n samples. Stopped early it returns those found so far.
#[must_use]
pub fn backward(
    shuffle: Backward,
    order: &[SampleIndex],
    offset: u32,
    range: Range<u64>,
    control: Control<'_>,
    progress: Option<&AtomicU64>,
) -> Vec<u32> {
    let Some(draws) = draws_from_the_end(order, DRAWS) else { return Vec::new() };
    drawn(shuffle, &draws, offset, range, control, progress)
}

/// ... whose generator gives these draws, each the greatest possible number and the drawn one.
#[must_use]
pub fn drawn(
    shuffle: Backward,
    draws: &[(u32, u32)],
    offset: u32,
    range: Range<u64>,
    control: Control<'_>,
    progress: Option<&AtomicU64>,
) -> Vec<u32> {
    let Some(&(last, draw)) = draws.first() else { return Vec::new() };
    let first = shuffle.bits(last);
    let rejected = {
        let values = 2f64.powi(if shuffle == Backward::Numpy { 32 - last.leading_zeros() } else { 32 - (last + 1).leading_zeros() } as i32);
        1.0 - (f64::from(last) + 1.0) / values
    };
    let outputs = if rejected <= 0.0 { 1 } else { ((UNDECIDED.ln() / -rejected.ln()).ceil() as u32).clamp(1, OUTPUTS_MAX) };
    let end = range.end.min(ALL_SEEDS.end);
    let kernels = Kernels::of(CodePath::best());
    let base = Python::base();
    // Offsets beyond the first twist would need words that the recurrence does not give.
    let offset = offset.min(200);
    let seeded = |seed: u32| {
        let mut generator = shuffle.generator(seed);
        generator.skip(u64::from(offset));
        generator
    };
    let next = AtomicU64::new(range.start);
    let found = Mutex::new(Vec::new());
    let work = || {
        let mut words = Words::new(offset, outputs);
        let mut python = (shuffle == Backward::Python).then(Python::new);
        while !control.stopped() {
            let start = next.fetch_add(SLICE, Ordering::Relaxed);
            if start >= end {
                return;
            }
            let stop = end.min(start + SLICE);
            for block in (start..stop).step_by(LANES) {
                let seeds = Lanes::from(block as u32);
                match &mut python {
                    None => (kernels.words)(&seeds, &words.stops, &mut words.slots),
                    Some(python) => python.words(&base, &seeds, &mut words),
                }
                let marks = words.first_that_counts(kernels, first, draw);
                for lane in (0..LANES).filter(|&lane| marks.0[lane] != 0) {
                    let seed = block + lane as u64;
                    if seed < stop && agrees(shuffle, seeded(seed as u32), draws) {
                        let mut found = found.lock().expect("no thread panics with the lock");
                        if found.len() < HITS_MAX {
                            found.push(seed as u32);
                        }
                    }
                }
            }
            if let Some(progress) = progress {
                progress.fetch_add(stop - start, Ordering::Relaxed);
            }
        }
    };
    control.on_all_threads(work);
    let mut found = found.into_inner().expect("no thread panics with the lock");
    found.sort_unstable();
    found
}

/// Whether the generator gives these draws next.
#[must_use]
pub fn agrees(shuffle: Backward, mut generator: Mt19937, draws: &[(u32, u32)]) -> bool {
    draws.iter().all(|&(last, draw)| {
        let bits = shuffle.bits(last);
        loop {
            let value = (generator.random() >> bits.shift) & bits.mask;
            if value <= bits.max {
                return value == draw;
            }
        }
    })
}

/// The state words that the first outputs need.
struct Words {
    offset: u32,
    outputs: u32,
    /// Rising: offset..=offset + outputs, and offset + 397..offset + 397 + outputs.
    stops: Vec<u32>,
    slots: Vec<Lanes>,
}

impl Words {
    fn new(offset: u32, outputs: u32) -> Self {
        let far = offset + SHIFT as u32;
        let stops: Vec<u32> = (offset..=offset + outputs).chain(far..far + outputs).collect();
        let slots = vec![Lanes::ZERO; stops.len()];
        Self { offset, outputs, stops, slots }
    }

    /// !0 for seeds whose first output that counts is the draw, or that have none among these outputs.
    fn first_that_counts(&self, kernels: Kernels, bits: Bits, draw: u32) -> Lanes {
        let near = self.outputs as usize + 1;
        let mut undecided = [!0u32; LANES];
        let mut right = [0u32; LANES];
        for at in 0..self.outputs as usize {
            let mut outputs = Lanes::ZERO;
            (kernels.output)(&self.slots[at], &self.slots[at + 1], &self.slots[near + at], &mut outputs);
            decide(&outputs.0, bits, draw, &mut undecided, &mut right);
        }
        let mut marks = Lanes::ZERO;
        for lane in 0..LANES {
            marks.0[lane] = right[lane] | undecided[lane];
        }
        marks
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn decide(outputs: &[u32; LANES], bits: Bits, draw: u32, undecided: &mut [u32; LANES], right: &mut [u32; LANES]) {
    for lane in 0..LANES {
        let value = (outputs[lane] >> bits.shift) & bits.mask;
        let counts = u32::from(value <= bits.max).wrapping_neg();
        right[lane] |= undecided[lane] & counts & u32::from(value == draw).wrapping_neg();
        undecided[lane] &= !counts;
    }
}

/// `init_by_array` with one word, for a block of seeds: 624 words of each, 624 KiB.
struct Python {
    state: Vec<Lanes>,
}

impl Python {
    fn new() -> Self {
        Self { state: vec![Lanes::ZERO; WORDS] }
    }

    /// `init_genrand(19650218)`, where all seeds begin.
    fn base() -> [u32; WORDS] {
        let mut base = [19_650_218u32; WORDS];
        for at in 1..WORDS {
            base[at] = super::words::seed_step(base[at - 1], at as u32);
        }
        base
    }

    fn words(&mut self, base: &[u32; WORDS], seeds: &Lanes, words: &mut Words) {
        init_by_array(base, &seeds.0, &mut self.state);
        for (&stop, slot) in words.stops.iter().zip(&mut words.slots) {
            *slot = self.state[stop as usize];
        }
        debug_assert!(words.offset as usize + words.outputs as usize + SHIFT <= WORDS);
    }
}

/// Two passes over the state, each word from the one before it.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn init_by_array(base: &[u32; WORDS], seeds: &[u32; LANES], state: &mut [Lanes]) {
    let mut before = [base[0]; LANES];
    for at in 1..WORDS {
        let word = &mut state[at].0;
        for lane in 0..LANES {
            before[lane] = (base[at] ^ (before[lane] ^ (before[lane] >> 30)).wrapping_mul(1_664_525)).wrapping_add(seeds[lane]);
            word[lane] = before[lane];
        }
    }
    // The pass has 624 steps: one more, on word 1.
    let word = &mut state[1].0;
    for lane in 0..LANES {
        before[lane] = (word[lane] ^ (before[lane] ^ (before[lane] >> 30)).wrapping_mul(1_664_525)).wrapping_add(seeds[lane]);
        word[lane] = before[lane];
    }
    for at in (2..WORDS).chain([1]) {
        let word = &mut state[at].0;
        for lane in 0..LANES {
            before[lane] = (word[lane] ^ (before[lane] ^ (before[lane] >> 30)).wrapping_mul(1_566_083_941)).wrapping_sub(at as u32);
            word[lane] = before[lane];
        }
    }
    state[0].0 = [0x8000_0000; LANES];
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::order::again::Library;
    use crate::order::numpy::Legacy;
    use crate::order::python::Random;

    fn search(shuffle: Backward, order: &[SampleIndex], offset: u32, seed: u32) -> Vec<u32> {
        let go = AtomicBool::new(false);
        let start = u64::from(seed.saturating_sub(700));
        backward(shuffle, order, offset, start..start + 1500, Control { stop: &go, threads: 2 }, None)
    }

    #[test]
    fn the_seed_is_found_from_the_end() {
        // Just above and at powers of two: rejection half of the time and never.
        for n in [40u32, 64, 65, 1000, 1024, 1025, 2000] {
            for seed in [0, 3, 123, 3_000_000_017, u32::MAX - 3] {
                let mut order: Vec<SampleIndex> = (0..n).collect();
                Legacy::seeded(u64::from(seed)).shuffle(&mut order);
                assert_eq!(search(Backward::Numpy, &order, 0, seed), [seed], "numpy, {n}");
                assert!(!search(Backward::Python, &order, 0, seed).contains(&seed));
                let mut order: Vec<SampleIndex> = (0..n).collect();
                Random::seeded(u64::from(seed)).shuffle(&mut order);
                assert_eq!(search(Backward::Python, &order, 0, seed), [seed], "Python, {n}");
            }
        }
    }

    #[test]
    fn outputs_taken_before_are_skipped() {
        let mut generator = Mt19937::new(55);
        generator.skip(7);
        let mut order: Vec<SampleIndex> = (0..300).collect();
        for last in (1..300).rev() {
            let draw = std::iter::repeat_with(|| generator.random() & (u32::MAX >> (last as u32).leading_zeros()))
                .find(|&draw| draw <= last as u32);
            order.swap(last, draw.unwrap() as usize);
        }
        assert_eq!(search(Backward::Numpy, &order, 7, 55), [55]);
        assert!(search(Backward::Numpy, &order, 0, 55).is_empty());
    }

    #[test]
    fn what_is_no_permutation_has_no_seed() {
        assert!(search(Backward::Numpy, &[1, 1, 1], 0, 0).is_empty());
        assert!(search(Backward::Numpy, &[0, 9, 3], 0, 0).is_empty());
        assert!(search(Backward::Numpy, &[], 0, 0).is_empty());
        let go = AtomicBool::new(true);
        let stopped = Control { stop: &go, threads: 1 };
        assert!(backward(Backward::Numpy, &[1, 0, 2], 0, ALL_SEEDS, stopped, None).is_empty());
    }
}

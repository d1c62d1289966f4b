//! Many seeds at once: the steps of a seed search over arrays that the compiler turns into vector code, compiled for AVX-512, AVX2 and
//! the baseline, and chosen at run time.
//!
//! Source: field notes «orders» §5a. An output of a fresh generator needs 397 steps of the seeding recurrence, and almost all time goes
//! there. The steps of one seed wait for each other; 256 seeds side by side keep every vector port busy.
//!
//! Not here: which seeds to try and what is asked of them (`exhaustive`).

use multiversion::multiversion;

use super::words::{inverse_of_odd, mixed, seed_step, temper};

/// Seeds of one block. 16 AVX-512 registers: enough independent chains to hide the latency of a multiplication, few enough to stay in
/// registers (measured: 64 lanes reach half the speed of 256, 512 no more).
pub const LANES: usize = 256;

/// One word for each seed of a block.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Lanes(pub(crate) [u32; LANES]);

impl Lanes {
    pub(crate) const ZERO: Self = Self([0; LANES]);

    /// `first`, `first + 1`, …, around the end of the numbers.
    pub(crate) fn from(first: u32) -> Self {
        let mut lanes = Self::ZERO;
        for (lane, word) in (0..).zip(&mut lanes.0) {
            *word = first.wrapping_add(lane);
        }
        lanes
    }
}

/// Which code runs. All give the same answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodePath {
    Avx512,
    Avx2,
    Portable,
}

impl CodePath {
    /// Those this processor can run, the fastest first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let mut paths = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
            {
                paths.push(Self::Avx512);
            }
            if is_x86_feature_detected!("avx2") {
                paths.push(Self::Avx2);
            }
        }
        paths.push(Self::Portable);
        paths
    }

    /// The fastest.
    #[must_use]
    pub fn best() -> Self {
        Self::available()[0]
    }
}

/// The test «output modulo `modulus` is `residue`» without a division: (output - residue) is a multiple of 2^k·odd exactly when its
/// product with the odd part's inverse, rotated right by k, is at most `u32::MAX / modulus` (Granlund and Montgomery 1994, section 9).
/// Outputs below the residue may pass wrongly (one in 2^32/modulus of them): the full check finds them out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Modulus {
    pub(crate) modulus: u32,
    inverse: u32,
    zeros: u32,
    limit: u32,
    /// floor(2^32 / modulus), for remainders.
    reciprocal: u64,
}

impl Modulus {
    /// `modulus` ≥ 2.
    pub(crate) const fn new(modulus: u32) -> Self {
        let zeros = modulus.trailing_zeros();
        Self {
            modulus,
            inverse: inverse_of_odd(modulus >> zeros),
            zeros,
            limit: u32::MAX / modulus,
            reciprocal: (1 << 32) / modulus as u64,
        }
    }
}

/// The kernels for one code path. A block of 256 seeds costs about 3 to 20 µs, so a call through a pointer costs nothing.
#[derive(Clone, Copy)]
pub(crate) struct Kernels {
    /// State words of the seeds: those with the rising indices `stops`, one slot each.
    pub(crate) words: fn(seeds: &Lanes, stops: &[u32], slots: &mut [Lanes]),
    /// Output o from the state words o, o + 1 and o + 397.
    pub(crate) output: fn(upper: &Lanes, lower: &Lanes, far: &Lanes, output: &mut Lanes),
    /// Word o of the next block from the state words o and o + 1, in place of word o + 397.
    pub(crate) twist: fn(upper: &Lanes, lower: &Lanes, word: &mut Lanes),
    /// Sets `marks` to !0 where the output has one of the residues, to 0 elsewhere; true if there is any.
    pub(crate) mark: fn(output: &Lanes, modulus: Modulus, residues: &[u32], marks: &mut Lanes) -> bool,
    /// Output modulo `modulus`.
    pub(crate) remainder: fn(output: &Lanes, modulus: Modulus, remainders: &mut Lanes),
    /// Goes on from state words of index `from` (any words) to index `to`.
    pub(crate) advance: fn(words: &mut Lanes, from: u32, to: u32),
}

impl Kernels {
    pub(crate) fn of(path: CodePath) -> Self {
        match path {
            CodePath::Avx512 => avx512::KERNELS,
            CodePath::Avx2 => avx2::KERNELS,
            CodePath::Portable => portable::KERNELS,
        }
    }
}

#[inline(always)]
fn advance(words: &mut Lanes, from: u32, to: u32) {
    // A copy, so that the words can stay in registers.
    let mut now = words.0;
    for at in from + 1..=to {
        for word in &mut now {
            *word = seed_step(*word, at);
        }
    }
    words.0 = now;
}

#[inline(always)]
fn words(seeds: &Lanes, stops: &[u32], slots: &mut [Lanes]) {
    let mut now = *seeds;
    let mut at = 0;
    for (&stop, slot) in stops.iter().zip(slots) {
        advance(&mut now, at, stop);
        at = stop;
        *slot = now;
    }
}

#[inline(always)]
fn output(upper: &Lanes, lower: &Lanes, far: &Lanes, output: &mut Lanes) {
    for lane in 0..LANES {
        output.0[lane] = temper(far.0[lane] ^ mixed(upper.0[lane], lower.0[lane]));
    }
}

#[inline(always)]
fn twist(upper: &Lanes, lower: &Lanes, word: &mut Lanes) {
    for lane in 0..LANES {
        word.0[lane] ^= mixed(upper.0[lane], lower.0[lane]);
    }
}

#[inline(always)]
fn mark(output: &Lanes, modulus: Modulus, residues: &[u32], marks: &mut Lanes) -> bool {
    let Modulus { inverse, zeros, limit, .. } = modulus;
    let mut found = [0u32; LANES];
    for &residue in residues {
        for (found, output) in found.iter_mut().zip(&output.0) {
            let quotient = output.wrapping_sub(residue).wrapping_mul(inverse).rotate_right(zeros);
            *found |= u32::from(quotient <= limit).wrapping_neg();
        }
    }
    marks.0 = found;
    found.iter().fold(0, |any, mark| any | mark) != 0
}

#[inline(always)]
fn remainder(output: &Lanes, modulus: Modulus, remainders: &mut Lanes) {
    let Modulus { modulus, reciprocal, .. } = modulus;
    for lane in 0..LANES {
        let output = output.0[lane];
        // At most one too small.
        let quotient = ((u64::from(output) * reciprocal) >> 32) as u32;
        let remainder = output.wrapping_sub(quotient.wrapping_mul(modulus));
        remainders.0[lane] = if remainder >= modulus { remainder - modulus } else { remainder };
    }
}

/// The kernels once more for a target, inlined into functions that may use its instructions.
macro_rules! kernels {
    ($path:ident, $target:literal) => {
        mod $path {
            use super::{Kernels, Lanes, Modulus, multiversion};

            pub(super) const KERNELS: Kernels = Kernels { words, output, twist, mark, remainder, advance };

            #[multiversion(targets($target))]
            fn words(seeds: &Lanes, stops: &[u32], slots: &mut [Lanes]) {
                super::words(seeds, stops, slots);
            }

            #[multiversion(targets($target))]
            fn output(upper: &Lanes, lower: &Lanes, far: &Lanes, output: &mut Lanes) {
                super::output(upper, lower, far, output);
            }

            #[multiversion(targets($target))]
            fn twist(upper: &Lanes, lower: &Lanes, word: &mut Lanes) {
                super::twist(upper, lower, word);
            }

            #[multiversion(targets($target))]
            fn mark(output: &Lanes, modulus: Modulus, residues: &[u32], marks: &mut Lanes) -> bool {
                super::mark(output, modulus, residues, marks)
            }

            #[multiversion(targets($target))]
            fn remainder(output: &Lanes, modulus: Modulus, remainders: &mut Lanes) {
                super::remainder(output, modulus, remainders);
            }

            #[multiversion(targets($target))]
            fn advance(words: &mut Lanes, from: u32, to: u32) {
                super::advance(words, from, to);
            }
        }
    };
}

kernels!(avx512, "x86_64+avx512f+avx512bw+avx512dq+avx512vl");
kernels!(avx2, "x86_64+avx2");
// What every processor of its kind has.
kernels!(portable, "x86_64+sse2");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::infer::words::{Lazy, SHIFT};

    #[test]
    fn every_path_gives_the_generators_outputs() {
        for path in CodePath::available() {
            let kernels = Kernels::of(path);
            for (first, at) in [(0u32, 0u32), (42, 2), (u32::MAX - 100, 226)] {
                let mut slots = [Lanes::ZERO; 3];
                (kernels.words)(&Lanes::from(first), &[at, at + 1, at + SHIFT as u32], &mut slots);
                let mut outputs = Lanes::ZERO;
                (kernels.output)(&slots[0], &slots[1], &slots[2], &mut outputs);
                for lane in [0, 1, 77, 100, 101, LANES - 1] {
                    let mut lazy = Lazy::new(first.wrapping_add(lane as u32));
                    lazy.skip(at);
                    assert_eq!(outputs.0[lane], lazy.output(), "{path:?}, output {at}, lane {lane}");
                }
                let mut part = slots[1];
                (kernels.advance)(&mut part, at + 1, at + SHIFT as u32);
                assert_eq!(part.0, slots[2].0);
            }
        }
    }

    #[test]
    fn residues_are_found_without_division() {
        let mut outputs = Lanes::ZERO;
        for (lane, output) in (0u32..).zip(&mut outputs.0) {
            *output = if lane < 128 { lane } else { lane.wrapping_mul(0x9e37_79b9) };
        }
        for path in CodePath::available() {
            let kernels = Kernels::of(path);
            for modulus in [2, 3, 7, 10, 64, 1000, 1024, 1_281_167, 1_281_166, 14_197_120] {
                let m = Modulus::new(modulus);
                let mut remainders = Lanes::ZERO;
                (kernels.remainder)(&outputs, m, &mut remainders);
                let residues = [0, 1, 5 % modulus, outputs.0[200] % modulus];
                let mut marks = Lanes::ZERO;
                assert!((kernels.mark)(&outputs, m, &residues, &mut marks));
                for lane in 0..LANES {
                    let output = outputs.0[lane];
                    assert_eq!(remainders.0[lane], output % modulus);
                    let right = residues.contains(&(output % modulus));
                    let wrongly_low = residues.iter().any(|&residue| output < residue);
                    assert!(if right { marks.0[lane] == !0 } else { marks.0[lane] == 0 || wrongly_low }, "{path:?} {output} % {modulus}");
                }
            }
        }
    }
}

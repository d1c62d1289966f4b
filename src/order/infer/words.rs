//! The Mersenne Twister taken apart: single words, both directions.
//!
//! Source: Matsumoto and Nishimura 1998 (`mt19937ar.c`); torch's `ATen/core/MT19937RNGEngine.h` seeds as its `init_genrand` does.
//! Costs: [`Lazy::new`] about 1 µs (624 steps, each waiting for the last), an output about 2 ns.
//!
//! Not here: many seeds at once (`lanes`).

use crate::order::mt19937::Mt19937;

pub(crate) const WORDS: usize = 624;
pub(crate) const SHIFT: usize = 397;
/// The multiplier of `init_genrand`.
pub(crate) const MULTIPLIER: u32 = 1_812_433_253;
/// Its inverse modulo 2^32.
const MULTIPLIER_INVERSE: u32 = inverse_of_odd(MULTIPLIER);
pub(crate) const MATRIX: u32 = 0x9908_b0df;

/// The inverse of an odd number modulo 2^32 (Newton: each round doubles the right bits, beginning with 3).
pub(crate) const fn inverse_of_odd(odd: u32) -> u32 {
    let mut inverse = odd;
    let mut round = 0;
    while round < 4 {
        inverse = inverse.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(inverse)));
        round += 1;
    }
    inverse
}

/// State word `at` from word `at` - 1.
#[inline(always)]
pub(crate) const fn seed_step(word: u32, at: u32) -> u32 {
    (word ^ (word >> 30)).wrapping_mul(MULTIPLIER).wrapping_add(at)
}

/// State word `at` - 1 from word `at`.
#[inline(always)]
pub(crate) const fn seed_step_back(word: u32, at: u32) -> u32 {
    let mixed = word.wrapping_sub(at).wrapping_mul(MULTIPLIER_INVERSE);
    mixed ^ (mixed >> 30)
}

/// What the twist xors in: the upper bit of one word and the lower 31 of the next, times the matrix.
#[inline(always)]
pub(crate) const fn mixed(upper: u32, lower: u32) -> u32 {
    let word = (upper & 0x8000_0000) | (lower & 0x7fff_ffff);
    (word >> 1) ^ ((lower & 1).wrapping_neg() & MATRIX)
}

/// The inverse of [`mixed`]: the upper word's top bit and the lower word's other 31, in one word. The matrix has its top bit set, a
/// shifted word has not, so the top bit tells whether the matrix was xored in.
#[inline(always)]
pub(crate) const fn unmixed(mixed: u32) -> u32 {
    let odd = mixed >> 31;
    ((mixed ^ (odd.wrapping_neg() & MATRIX)) << 1) | odd
}

#[inline(always)]
pub(crate) const fn temper(mut word: u32) -> u32 {
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c_5680;
    word ^= (word << 15) & 0xefc6_0000;
    word ^ (word >> 18)
}

/// The state word whose output is `output`.
pub(crate) const fn untemper(output: u32) -> u32 {
    let mut word = output ^ (output >> 18);
    word ^= (word << 15) & 0xefc6_0000;
    // Seven bits more are right after each round; 32 bits need five.
    let mut low = word;
    let mut round = 0;
    while round < 4 {
        low = word ^ ((low << 7) & 0x9d2c_5680);
        round += 1;
    }
    let high = low ^ (low >> 11);
    low ^ (high >> 11)
}

/// A generator that twists one word at a time: right for the many candidates that fall after a few outputs.
#[derive(Clone)]
pub(crate) struct Lazy {
    words: [u32; WORDS],
    next: usize,
}

impl Lazy {
    pub(crate) fn new(seed: u32) -> Self {
        let mut words = [seed; WORDS];
        let mut word = seed;
        for (at, slot) in (0u32..).zip(&mut words).skip(1) {
            word = seed_step(word, at);
            *slot = word;
        }
        Self { words, next: 0 }
    }

    pub(crate) fn output(&mut self) -> u32 {
        let at = self.next;
        let wrapped = |at: usize| if at >= WORDS { at - WORDS } else { at };
        self.next = wrapped(at + 1);
        self.words[at] = self.words[wrapped(at + SHIFT)] ^ mixed(self.words[at], self.words[self.next]);
        temper(self.words[at])
    }

    pub(crate) fn skip(&mut self, outputs: u32) {
        for _ in 0..outputs {
            self.output();
        }
    }
}

/// Where a search takes outputs from, one after the other.
pub(crate) trait Outputs {
    fn next_output(&mut self) -> u32;
}

impl Outputs for Lazy {
    fn next_output(&mut self) -> u32 {
        self.output()
    }
}

impl Outputs for Mt19937 {
    fn next_output(&mut self) -> u32 {
        self.random()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_step_can_be_undone(word: u32, other: u32, at in 1u32..624) {
            prop_assert_eq!(untemper(temper(word)), word);
            prop_assert_eq!(temper(untemper(word)), word);
            prop_assert_eq!(seed_step_back(seed_step(word, at), at), word);
            prop_assert_eq!(unmixed(mixed(word, other)), (word & 0x8000_0000) | (other & 0x7fff_ffff));
            prop_assert_eq!(inverse_of_odd(word | 1).wrapping_mul(word | 1), 1);
        }

        #[test]
        fn lazy_outputs_are_the_generators(seed: u32, skipped in 0u32..1500) {
            let (mut lazy, mut whole) = (Lazy::new(seed), Mt19937::new(u64::from(seed)));
            lazy.skip(skipped);
            whole.skip(u64::from(skipped));
            for _ in 0..700 {
                prop_assert_eq!(lazy.output(), whole.random());
            }
        }
    }
}

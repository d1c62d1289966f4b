//! The Mersenne Twister of 64-bit words: C++'s `std::mt19937_64`.
//!
//! Nishimura 2000 (`mt19937-64.c`). Not here: seeding by an array.

const WORDS: usize = 312;
const SHIFT: usize = 156;

/// A generator in some state.
#[derive(Clone, Debug)]
pub struct Mt19937x64 {
    state: [u64; WORDS],
    /// The next word to give out; `WORDS` when the block is used up.
    next: usize,
}

impl Mt19937x64 {
    /// `std::mt19937_64(seed)`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = [0; WORDS];
        let mut word = seed;
        for (i, slot) in (0u64..).zip(&mut state) {
            if i > 0 {
                word = 6_364_136_223_846_793_005u64.wrapping_mul(word ^ (word >> 62)).wrapping_add(i);
            }
            *slot = word;
        }
        Self { state, next: WORDS }
    }

    /// The next 64-bit output.
    pub fn random(&mut self) -> u64 {
        if self.next == WORDS {
            self.twist();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= (word >> 29) & 0x5555_5555_5555_5555;
        word ^= (word << 17) & 0x71d6_7fff_eda6_0000;
        word ^= (word << 37) & 0xfff7_eee0_0000_0000;
        word ^ (word >> 43)
    }

    /// The next block of words.
    fn twist(&mut self) {
        let s = &mut self.state;
        for i in 0..WORDS {
            let word = (s[i] & 0xffff_ffff_8000_0000) | (s[(i + 1) % WORDS] & 0x7fff_ffff);
            s[i] = s[(i + SHIFT) % WORDS] ^ (word >> 1) ^ ((word & 1).wrapping_neg() & 0xb502_6f5a_a966_19e9);
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 10,000th output for seed 5489 is fixed by the C++ standard ([rand.predef]).
    #[test]
    fn the_standards_known_answer() {
        let mut generator = Mt19937x64::new(5489);
        let last = std::iter::repeat_with(|| generator.random()).nth(9_999);
        assert_eq!(last, Some(9_981_545_732_273_789_042));
    }
}

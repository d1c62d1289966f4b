//! The Mersenne Twister: the source of every permutation made by torch on the CPU, by numpy's `RandomState`, by Python's `random` and by
//! C++'s `std::mt19937`. They differ in how it is seeded.
//!
//! Matsumoto and Nishimura 1998 (`mt19937ar.c`). Not here: the 53-bit doubles.

const WORDS: usize = 624;
const SHIFT: usize = 397;

/// A generator in some state. Equal states give equal outputs for ever.
#[derive(Clone, Debug)]
pub struct Mt19937 {
    state: [u32; WORDS],
    /// The next word to give out; `WORDS` when the block is used up.
    next: usize,
}

impl Mt19937 {
    /// `torch.Generator().manual_seed(seed)`: only the low 32 bits count, so -1 and 2^64-1 are one seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = [0; WORDS];
        #[expect(clippy::cast_possible_truncation, reason = "torch drops the high word too")]
        let mut word = seed as u32;
        for (i, slot) in (0u32..).zip(&mut state) {
            if i > 0 {
                word = 1_812_433_253u32.wrapping_mul(word ^ (word >> 30)).wrapping_add(i);
            }
            *slot = word;
        }
        Self { state, next: WORDS }
    }

    /// A generator whose last 624 words before tempering were these. The twist does not care where in a block they begin.
    #[must_use]
    pub const fn from_words(words: [u32; WORDS]) -> Self {
        Self { state: words, next: WORDS }
    }

    /// `init_by_array`: Python's `random.seed(int)`, its words from the lowest on, at least one.
    ///
    /// # Panics
    /// When `key` is empty.
    #[must_use]
    pub fn by_array(key: &[u32]) -> Self {
        let mut state = Self::new(19_650_218).state;
        let mut i = 1;
        for place in 0..WORDS.max(key.len()) {
            let j = place % key.len();
            let before = state[i - 1];
            let word = (state[i] ^ (before ^ (before >> 30)).wrapping_mul(1_664_525)).wrapping_add(key[j]);
            #[expect(clippy::cast_possible_truncation, reason = "a place in a seed of a few words")]
            let word = word.wrapping_add(j as u32);
            state[i] = word;
            i += 1;
            if i == WORDS {
                state[0] = state[WORDS - 1];
                i = 1;
            }
        }
        for _ in 1..WORDS {
            let before = state[i - 1];
            #[expect(clippy::cast_possible_truncation, reason = "below 624")]
            let word = (state[i] ^ (before ^ (before >> 30)).wrapping_mul(1_566_083_941)).wrapping_sub(i as u32);
            state[i] = word;
            i += 1;
            if i == WORDS {
                state[0] = state[WORDS - 1];
                i = 1;
            }
        }
        state[0] = 0x8000_0000;
        Self { state, next: WORDS }
    }

    /// The next 32-bit output.
    pub fn random(&mut self) -> u32 {
        if self.next == WORDS {
            self.twist();
        }
        let word = self.state[self.next];
        self.next += 1;
        temper(word)
    }

    /// Two outputs, the first one in the high word: what `tensor.random_()` draws for a 64-bit integer.
    pub fn random64(&mut self) -> u64 {
        let high = u64::from(self.random());
        (high << 32) | u64::from(self.random())
    }

    /// Leaves `count` outputs out. Costs one pass over the state for 624 of them.
    pub fn skip(&mut self, mut count: u64) {
        loop {
            let left = WORDS - self.next;
            if count <= left as u64 {
                self.next = WORDS - (left - usize::try_from(count).expect("at most 624, checked above"));
                return;
            }
            count -= left as u64;
            self.twist();
        }
    }

    /// The next block of 624 words. Three loops without a modulus, so that the compiler can use vector instructions.
    fn twist(&mut self) {
        let s = &mut self.state;
        for i in 0..WORDS - SHIFT {
            s[i] = s[i + SHIFT] ^ mixed(s[i], s[i + 1]);
        }
        for i in WORDS - SHIFT..WORDS - 1 {
            s[i] = s[i + SHIFT - WORDS] ^ mixed(s[i], s[i + 1]);
        }
        s[WORDS - 1] = s[SHIFT - 1] ^ mixed(s[WORDS - 1], s[0]);
        self.next = 0;
    }
}

const fn mixed(upper: u32, lower: u32) -> u32 {
    let word = (upper & 0x8000_0000) | (lower & 0x7fff_ffff);
    (word >> 1) ^ ((lower & 1).wrapping_neg() & 0x9908_b0df)
}

const fn temper(mut word: u32) -> u32 {
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c_5680;
    word ^= (word << 15) & 0xefc6_0000;
    word ^ (word >> 18)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 10,000th output for seed 5489 is fixed by the C++ standard ([rand.predef]).
    #[test]
    fn the_standards_known_answer() {
        let mut generator = Mt19937::new(5489);
        generator.skip(9_999);
        assert_eq!(generator.random(), 4_123_659_995);
    }

    /// The first outputs that the authors' `mt19937ar.out` gives for `init_by_array({0x123, 0x234, 0x345, 0x456})`.
    #[test]
    fn the_authors_known_answer() {
        let mut generator = Mt19937::by_array(&[0x123, 0x234, 0x345, 0x456]);
        assert_eq!([(); 5].map(|()| generator.random()), [1_067_595_299, 955_945_823, 477_289_528, 4_107_218_783, 4_228_976_476]);
    }

    #[test]
    fn skipping_equals_drawing() {
        for count in [0, 1, 2, 623, 624, 625, 1247, 1248, 1249, 5000] {
            for before in [0, 1, 623, 624] {
                let (mut drawn, mut skipped) = (Mt19937::new(42), Mt19937::new(42));
                for _ in 0..before {
                    assert_eq!(drawn.random(), skipped.random());
                }
                for _ in 0..count {
                    drawn.random();
                }
                skipped.skip(count);
                assert_eq!(drawn.random64(), skipped.random64(), "{before} then {count}");
            }
        }
    }

    #[test]
    fn only_the_low_word_of_the_seed_counts() {
        assert_eq!(Mt19937::new(5).random(), Mt19937::new((1 << 32) + 5).random());
        assert_ne!(Mt19937::new(5).random(), Mt19937::new(6).random());
    }
}

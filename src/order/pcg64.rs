//! numpy's default bit generator: PCG64 (XSL-RR 128/64, O'Neill 2014) seeded through `SeedSequence`, as `np.random.default_rng(seed)` has it.
//!
//! Source: `numpy/random/bit_generator.pyx` (the hash), `src/pcg64/pcg64.h`, `src/distributions/distributions.c` (bounded integers).

/// `SeedSequence`'s constants (numpy/random/bit_generator.pyx).
const POOL: usize = 4;
const INIT_A: u32 = 0x43b0_d7e5;
const MULT_A: u32 = 0x931e_8875;
const INIT_B: u32 = 0x8b51_f9dd;
const MULT_B: u32 = 0x58f3_8ded;
const MIX_LEFT: u32 = 0xca01_f9dd;
const MIX_RIGHT: u32 = 0x4973_f715;

/// The multiplier of the 128-bit congruential generator below PCG64.
const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;

/// `SeedSequence(entropy).generate_state(8)`, for an entropy of one integer.
fn seed_words(entropy: u64) -> [u32; 8] {
    #[expect(clippy::cast_possible_truncation, reason = "split into words")]
    let words = [entropy as u32, (entropy >> 32) as u32];
    let mut hash = INIT_A;
    let mut hashed = |mut value: u32| {
        value ^= hash;
        hash = hash.wrapping_mul(MULT_A);
        value = value.wrapping_mul(hash);
        value ^ (value >> 16)
    };
    // A missing word counts as 0, which is what the high word of a small seed is.
    let mut pool = [0; POOL];
    for (place, slot) in pool.iter_mut().enumerate() {
        *slot = hashed(words.get(place).copied().unwrap_or(0));
    }
    for source in 0..POOL {
        for target in (0..POOL).filter(|&target| target != source) {
            let mixed = MIX_LEFT.wrapping_mul(pool[target]).wrapping_sub(MIX_RIGHT.wrapping_mul(hashed(pool[source])));
            pool[target] = mixed ^ (mixed >> 16);
        }
    }
    let mut hash = INIT_B;
    std::array::from_fn(|place| {
        let mut value = pool[place % POOL] ^ hash;
        hash = hash.wrapping_mul(MULT_B);
        value = value.wrapping_mul(hash);
        value ^ (value >> 16)
    })
}

/// A generator in some state.
#[derive(Clone, Debug)]
pub struct Pcg64 {
    state: u128,
    increment: u128,
    /// The high half of the last output, when only its low half was used.
    half: Option<u32>,
}

impl Pcg64 {
    /// `np.random.default_rng(seed).bit_generator`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let words = seed_words(seed);
        let long = |place: usize| u128::from(words[2 * place]) | (u128::from(words[2 * place + 1]) << 32);
        let (start, sequence) = ((long(0) << 64) | long(1), (long(2) << 64) | long(3));
        let mut generator = Self { state: 0, increment: (sequence << 1) | 1, half: None };
        generator.step();
        generator.state = generator.state.wrapping_add(start);
        generator.step();
        generator
    }

    const fn step(&mut self) {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
    }

    /// The next 64-bit output.
    pub const fn next64(&mut self) -> u64 {
        self.step();
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of the state")]
        let (high, low) = ((self.state >> 64) as u64, self.state as u64);
        (high ^ low).rotate_right((self.state >> 122) as u32)
    }

    /// The next 32 bits: the low half of an output, then its high half.
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of an output")]
    pub const fn next32(&mut self) -> u32 {
        if let Some(half) = self.half.take() {
            return half;
        }
        let output = self.next64();
        self.half = Some((output >> 32) as u32);
        output as u32
    }

    /// `Generator.integers(low, high)`, high excluded and above low, for a range below 2^32 (Lemire 2019).
    ///
    /// # Panics
    /// When `high - low` is not from 1 to 2^32 - 1.
    pub fn integers(&mut self, low: i64, high: i64) -> i64 {
        let range = u32::try_from(high - low).ok().filter(|&range| range > 0).expect("a range from 1 to 2^32 - 1");
        if range == 1 {
            return low; // numpy draws nothing for it
        }
        let mut product = u64::from(self.next32()) * u64::from(range);
        #[expect(clippy::cast_possible_truncation, reason = "the low half decides")]
        if (product as u32) < range {
            let threshold = range.wrapping_neg() % range;
            while (product as u32) < threshold {
                product = u64::from(self.next32()) * u64::from(range);
            }
        }
        low + i64::try_from(product >> 32).expect("below 2^32")
    }

    /// `Generator.random()`: from 0 to 1, 53 bits.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub fn double(&mut self) -> f64 {
        (self.next64() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `np.random.SeedSequence(42).generate_state(8)`, `default_rng(42)` and `default_rng(2**63 - 1)`, asked of numpy 1.24.
    #[test]
    fn numpys_own_answers() {
        let expected =
            [3_444_837_047, 2_669_555_309, 2_046_530_742, 3_581_440_988, 1_691_623_607, 2_099_784_219, 1_184_028_159, 862_288_241];
        assert_eq!(seed_words(42), expected);
        let mut generator = Pcg64::new(42);
        let expected = [14_276_969_152_011_380_360, 8_095_878_257_575_067_585, 15_838_336_090_824_644_132];
        assert_eq!([(); 3].map(|()| generator.next64()), expected);
        let mut generator = Pcg64::new((1 << 63) - 1);
        assert_eq!([(); 5].map(|()| generator.integers(0, 1000)), [436, 175, 222, 469, 612]);
        // doubles take a whole output each and leave the half that is waiting alone
        assert_eq!([(); 2].map(|()| generator.double()), [0.304_932_636_216_670_3, 0.476_166_330_537_581_6]);
        assert_eq!([(); 4].map(|()| generator.integers(-5, 10)), [7, 7, 7, 5]);
        assert_eq!(generator.integers(0, (1 << 31) + 5), 1_132_924_560);
        assert_eq!(generator.integers(3, 4), 3);
        assert_eq!(generator.double(), 0.173_772_403_290_689_33);
    }
}

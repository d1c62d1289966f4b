//! grain's shuffle: a small block cipher of the index, keyed by seed + epoch, walked until it falls below n.
//!
//! Source: google/grain `index_shuffle.cc` (Simon, Beaulieu et al. 2013, with 4 rounds and keys from C++'s `std::seed_seq`), and
//! `MapDataset.shuffle`, `IndexSampler`: each epoch has the seed (seed + epoch) mod 2^32. Each place costs a few nanoseconds by itself.

use crate::order::Shuffle;
use crate::types::{Epoch, SampleIndex};

/// What grain's samplers and datasets pass.
const ROUNDS: usize = 4;

/// `std::seed_seq{seed}.generate` of four words ([rand.util.seedseq] of the C++ standard, for one word in and four out).
fn keys(seed: u32) -> [u32; ROUNDS] {
    const fn t(x: u32) -> u32 {
        x ^ (x >> 27)
    }
    // p and q of the standard for n = 4: t = 1, p = 1, q = 2.
    let mut b = [0x8b8b_8b8b_u32; ROUNDS];
    for k in 0..ROUNDS {
        let r1 = t(b[k] ^ b[(k + 1) % 4] ^ b[(k + 3) % 4]).wrapping_mul(1_664_525);
        let extra = match k {
            0 => 1,
            1 => seed.wrapping_add(1),
            _ => u32::try_from(k).expect("below 4"),
        };
        let r2 = r1.wrapping_add(extra);
        b[(k + 1) % 4] = b[(k + 1) % 4].wrapping_add(r1);
        b[(k + 2) % 4] = b[(k + 2) % 4].wrapping_add(r2);
        b[k] = r2;
    }
    for k in 0..ROUNDS {
        let r3 = t(b[k].wrapping_add(b[(k + 1) % 4]).wrapping_add(b[(k + 3) % 4])).wrapping_mul(1_566_083_941);
        let r4 = r3.wrapping_sub(u32::try_from(k).expect("below 4"));
        b[(k + 1) % 4] ^= r3;
        b[(k + 2) % 4] ^= r4;
        b[k] = r4;
    }
    b
}

/// The permutation of 0..n under one key.
#[derive(Clone, Copy, Debug)]
pub struct Cipher {
    keys: [u32; ROUNDS],
    /// Bits of half a block.
    half: u32,
    max: u64,
}

impl Cipher {
    /// For indices 0 to `max`, below 2^32.
    #[must_use]
    pub fn new(max: u32, seed: u32) -> Self {
        // ceil(log2(max)), made even, at least 16. For max = 2^k that is one bit short, in grain too: it then repeats an index.
        let bits = max.checked_sub(1).map_or(0, |max| u32::BITS - max.leading_zeros());
        Self { keys: keys(seed), half: (bits + bits % 2).max(16) / 2, max: u64::from(max) }
    }

    fn encrypt(&self, value: u64) -> u64 {
        let (width, mask) = (self.half, (1u64 << self.half) - 1);
        let rotate = |x: u64, by: u32| ((x << by) | (x >> (width - by))) & mask;
        let f = |x: u64| (rotate(x, 1) & rotate(x, 8)) ^ rotate(x, 2);
        let (mut left, mut right) = ((value >> width) & mask, value & mask);
        for pair in self.keys.chunks_exact(2) {
            left ^= f(right) ^ (u64::from(pair[0]) & mask);
            right ^= f(left) ^ (u64::from(pair[1]) & mask);
        }
        (left << width) | right
    }

    /// `index_shuffle(index, max_index, seed, rounds=4)`.
    #[must_use]
    pub fn shuffled(&self, index: SampleIndex) -> SampleIndex {
        if self.max == 0 {
            return 0;
        }
        let mut value = self.encrypt(u64::from(index));
        while value > self.max {
            value = self.encrypt(value);
        }
        SampleIndex::try_from(value).expect("at most max, a u32")
    }
}

/// `grain.MapDataset.source(...).shuffle(seed=seed)`, epoch by epoch.
#[derive(Clone, Debug)]
pub struct IndexShuffle {
    pub n: u32,
    pub seed: u32,
}

impl Shuffle for IndexShuffle {
    fn epoch(&self, epoch: Epoch) -> Vec<SampleIndex> {
        let Some(max) = self.n.checked_sub(1) else { return Vec::new() };
        #[expect(clippy::cast_possible_truncation, reason = "grain takes the seed of an epoch modulo 2^32")]
        let seed = self.seed.wrapping_add(epoch as u32);
        let cipher = Cipher::new(max, seed);
        (0..self.n).map(|index| cipher.shuffled(index)).collect()
    }

    fn len(&self) -> u32 {
        self.n
    }
}

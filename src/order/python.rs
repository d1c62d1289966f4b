//! Python's `random.shuffle` and `random.sample`, bit for bit (CPython 3.11; the arithmetic is that of 3.2 and later).
//!
//! `shuffle` settles the last place first, `sample` the first. Source: CPython's `Lib/random.py` (`_randbelow_with_getrandbits`) and
//! `Modules/_randommodule.c`. Not here: seeds that are texts or floats (they are hashed first), `random.random()`.

use crate::order::Shuffle;
use crate::order::again::{Again, Library};
use crate::order::mt19937::Mt19937;
use crate::types::{Epoch, SampleIndex};

/// `random.Random(seed)`.
#[derive(Clone, Debug)]
pub struct Random(Mt19937);

impl Random {
    /// `_randbelow(n)`: the top bits of an output, again while they are not below `n` (≥ 1).
    pub fn below(&mut self, n: u32) -> u32 {
        let bits = u32::BITS - n.leading_zeros();
        loop {
            let value = self.0.random() >> (u32::BITS - bits);
            if value < n {
                return value;
            }
        }
    }

    /// `sample(range(n), k)`.
    ///
    /// # Panics
    /// When `k` is above `n`.
    pub fn sample(&mut self, n: u32, k: u32) -> Vec<SampleIndex> {
        assert!(k <= n, "a sample of {k} of {n}");
        if u64::from(n) <= pool_limit(k) {
            let mut pool: Vec<SampleIndex> = (0..n).collect();
            let pick = |left| {
                let place = self.below(left) as usize;
                let picked = pool[place];
                pool[place] = pool[left as usize - 1];
                picked
            };
            return (n - k + 1..=n).rev().map(pick).collect();
        }
        let mut seen = std::collections::HashSet::with_capacity(k as usize);
        let pick = |_| loop {
            let value = self.below(n);
            if seen.insert(value) {
                return value;
            }
        };
        (0..k).map(pick).collect()
    }
}

/// Up to this many Python copies the population, as that is smaller than a set of `k`: 21, for k > 5 and 4 ** ceil(log(3k, 4)) more.
fn pool_limit(k: u32) -> u64 {
    let mut limit = 21;
    if k > 5 {
        let mut power = 1;
        while power < 3 * u64::from(k) {
            power *= 4;
        }
        limit += power;
    }
    limit
}

impl Library for Random {
    fn seeded(seed: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "split into words")]
        let words = [seed as u32, (seed >> 32) as u32];
        Self(Mt19937::by_array(if words[1] == 0 { &words[..1] } else { &words }))
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let choices = u32::try_from(last + 1).expect("no more items than samples, whose number is a u32");
            items.swap(last, self.below(choices) as usize);
        }
    }
}

/// `random.sample(range(n), k)`, of a running generator ([`Again::Permutation`]), of one of seed + epoch, or once.
#[derive(Clone, Debug)]
pub struct Sample {
    pub n: u32,
    /// At most `n`.
    pub k: u32,
    pub seed: u64,
    pub again: Again,
}

impl Shuffle for Sample {
    fn epoch(&self, epoch: Epoch) -> Vec<SampleIndex> {
        let (seed, earlier) = match self.again {
            Again::Permutation | Again::InPlace => (self.seed, epoch),
            Again::Reseeded => (self.seed.wrapping_add(epoch), 0),
            Again::Never => (self.seed, 0),
        };
        let mut generator = Random::seeded(seed);
        let mut places = generator.sample(self.n, self.k);
        for _ in 0..earlier {
            places = generator.sample(self.n, self.k);
        }
        places
    }

    fn len(&self) -> u32 {
        self.k
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `random.seed(s); [random.randrange(10) for _ in range(8)]`, asked of CPython 3.11.
    #[test]
    fn pythons_own_answers() {
        let below = |seed| {
            let mut random = Random::seeded(seed);
            [(); 8].map(|()| random.below(10))
        };
        assert_eq!(below(0), [6, 6, 0, 4, 8, 7, 6, 4]);
        assert_eq!(below(1 << 32), [1, 5, 6, 0, 0, 9, 5, 8]);
        assert_eq!(Random::seeded(3).below(1), 0);
    }

    #[test]
    fn a_sample_is_copied_or_tried_as_python_does() {
        assert_eq!([0, 5, 6, 50, 100].map(pool_limit), [21, 21, 21 + 64, 21 + 256, 21 + 1024]);
        let mut sample = Random::seeded(9).sample(1000, 50);
        sample.sort_unstable();
        sample.dedup();
        assert_eq!(sample.len(), 50);
        assert!(Random::seeded(9).sample(0, 0).is_empty());
    }
}

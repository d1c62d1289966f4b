//! Python's `random.shuffle` and `random.sample`, bit for bit (CPython 3.11; the arithmetic is that of 3.2 and later).
//!
//! `shuffle` settles the last place first, `sample` the first. Source: CPython's `Lib/random.py` (`_randbelow_with_getrandbits`) and
//! `Modules/_randommodule.c`. Not here: seeds that are floats, `random.random()`.

use sha2::{Digest, Sha512};

use crate::order::Shuffle;
use crate::order::again::{Again, Library};
use crate::order::mt19937::Mt19937;
use crate::types::{Epoch, SampleIndex};

/// What `random.seed` is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seed {
    Number(u64),
    /// The text "42" is not the number 42.
    Text(Box<str>),
}

impl Seed {
    /// `seed + epoch`; Python adds no number to a text.
    #[must_use]
    pub fn plus(&self, epoch: Epoch) -> Self {
        match self {
            Self::Number(seed) => Self::Number(seed.wrapping_add(epoch)),
            Self::Text(_) => self.clone(),
        }
    }
}

/// `random.Random(seed)`.
#[derive(Clone, Debug)]
pub struct Random(Mt19937);

impl Random {
    #[must_use]
    pub fn of(seed: &Seed) -> Self {
        match seed {
            Seed::Number(seed) => Self::seeded(*seed),
            Seed::Text(text) => Self(Mt19937::by_array(&words_of(text))),
        }
    }

    /// The generator below.
    #[must_use]
    pub fn generator(self) -> Mt19937 {
        self.0
    }

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

/// A text as a number: its bytes and then their SHA-512, the first byte the highest; in words from the lowest on.
fn words_of(text: &str) -> Vec<u32> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.extend(Sha512::digest(text.as_bytes()));
    let word = |bytes: &[u8]| bytes.iter().fold(0, |word, &byte| (word << 8) | u32::from(byte));
    let mut words: Vec<u32> = bytes.rchunks(4).map(word).collect();
    // Python's number has no word that is 0 above its highest bit.
    while words.len() > 1 && words.last() == Some(&0) {
        words.pop();
    }
    words
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
    pub seed: Seed,
    pub again: Again,
}

impl Shuffle for Sample {
    fn epoch(&self, epoch: Epoch) -> Vec<SampleIndex> {
        let (seed, earlier) = match self.again {
            Again::Permutation | Again::InPlace => (self.seed.clone(), epoch),
            Again::Reseeded => (self.seed.plus(epoch), 0),
            Again::Never => (self.seed.clone(), 0),
        };
        let mut generator = Random::of(&seed);
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

    /// `random.seed(s); [random.randrange(10) for _ in range(8)]`, asked of CPython 3.11.
    #[test]
    fn pythons_own_answers_for_texts() {
        let below = |text: &str| {
            let mut random = Random::of(&Seed::Text(text.into()));
            [(); 8].map(|()| random.below(10))
        };
        assert_eq!(below(""), [7, 9, 3, 6, 3, 5, 9, 0]);
        assert_eq!(below("a"), [4, 8, 1, 9, 9, 8, 2, 9]);
        assert_eq!(below("42"), [7, 7, 4, 1, 0, 1, 9, 7]);
        assert_eq!(below("WDS éü 漢"), [8, 5, 8, 2, 0, 3, 6, 0]);
        assert_eq!(below(&"x".repeat(300)), [3, 0, 0, 0, 2, 3, 8, 0]);
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

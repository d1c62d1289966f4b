//! torch's permutations and samplers, bit for bit (torch 1.13 to 2.15, CPU).
//!
//! Compared with the orders real torch made in `tests/golden`; what each sampler draws, and when, was read off them and off torch's
//! source (`torch/utils/data/sampler.py`, `distributed.py`). A shuffle here yields the whole epoch: where a resumed run begins is its
//! follower's business. accelerate, the Trainer, Lightning and torchdata differ in where the seed comes from and how places are dealt.
//!
//! Not here: sampling by weights (the weights are not known), and `random_split` (`order::subset`).

use crate::order::Shuffle;
use crate::order::mt19937::Mt19937;
use crate::types::{Epoch, SampleIndex};

/// From this many items on torch draws 64 bits an item (`randperm_cpu`: n < (2^32 - 1) / 20 keeps the modulus bias small).
const WIDE_FROM: u32 = u32::MAX / 20;

/// `torch.randperm(n, generator=generator)` on the CPU. Uses n - 1 outputs, or 2n from `WIDE_FROM` items on.
#[must_use]
pub fn randperm(n: u32, generator: &mut Mt19937) -> Vec<SampleIndex> {
    if n < WIDE_FROM { randperm_narrow(n, generator) } else { randperm_wide(n, generator) }
}

/// Forward Fisher-Yates: place i is final after draw i.
fn randperm_narrow(n: u32, generator: &mut Mt19937) -> Vec<SampleIndex> {
    let mut places: Vec<SampleIndex> = (0..n).collect();
    for i in 0..n.saturating_sub(1) {
        let z = generator.random() % (n - i);
        places.swap(i as usize, (i + z) as usize);
    }
    places
}

/// Inside-out Fisher-Yates over 64-bit draws (read in torch's source; no golden vector is this long).
fn randperm_wide(n: u32, generator: &mut Mt19937) -> Vec<SampleIndex> {
    let mut places: Vec<SampleIndex> = vec![0; n as usize];
    for i in 0..n {
        let z = usize::try_from(generator.random64() % (u64::from(i) + 1)).expect("at most i, a place of this vector");
        places[i as usize] = places[z];
        places[z] = i;
    }
    places
}

/// Outputs that one `randperm(n)` takes.
#[must_use]
pub(crate) const fn outputs_of_randperm(n: u32) -> u64 {
    if n < WIDE_FROM { (n as u64).saturating_sub(1) } else { 2 * n as u64 }
}

/// Where a sampler takes its randomness from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RandomSource {
    /// `DataLoader(shuffle=True)` after `torch.manual_seed(seed)`: each epoch draws a seed of its own from the default generator.
    /// Output `offset` (0-based) is epoch 0's, then one every `stride`. Only the low word of the 64-bit draw matters.
    Default { offset: u64, stride: u64 },
    /// `DataLoader(shuffle=True, generator=g)`: the loader's base seed and the permutation come from g, and a second, unused
    /// permutation when the sampler is exhausted.
    Loader,
    /// `sampler=RandomSampler(ds, generator=g)`: as [`Self::Loader`], without the base seed.
    Sampler,
    /// A fresh generator seeded with seed + epoch (`DistributedSampler`, accelerate's `SeedableRandomSampler`, the Trainer).
    Reseeded,
    /// Permutations straight from the default generator: `SubsetRandomSampler`, and `RandomSampler` up to torch 1.8. The first one
    /// begins at output `offset`, `between` outputs are drawn by others between two of them.
    Stream { offset: u64, between: u64 },
    /// A generator that was seeded once with output `offset` of the default generator; epoch e is its permutation number
    /// `first + e * step` (torchdata's `StatefulDataLoader`; accelerate in several processes).
    Built { offset: u64, first: u64, step: u64 },
}

impl RandomSource {
    /// Nothing else drew: the loader's base seed is outputs 0 and 1, the sampler's seed outputs 2 and 3.
    pub const OFFSET: u64 = 3;
    /// Base seed and sampler seed, two outputs each.
    pub const STRIDE: u64 = 4;
    /// The base seed's two outputs come before each permutation that is drawn straight from the default generator.
    pub const BASE_SEED: u64 = 2;
    /// A 64-bit seed drawn first of all: its low word is output 1.
    pub const FIRST_SEED: u64 = 1;

    /// The same program, whose default generator had given `outputs` before it got there.
    #[must_use]
    pub const fn after(self, outputs: u64) -> Self {
        match self {
            Self::Default { offset, stride } => Self::Default { offset: offset.saturating_add(outputs), stride },
            Self::Stream { offset, between } => Self::Stream { offset: offset.saturating_add(outputs), between },
            Self::Built { offset, first, step } => Self::Built { offset: offset.saturating_add(outputs), first, step },
            Self::Loader | Self::Sampler | Self::Reseeded => self,
        }
    }
}

/// How many samples an epoch draws, and whether they may repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Count {
    /// `RandomSampler(num_samples=…)`; `None`: as many as there are.
    pub num_samples: Option<u32>,
    /// `RandomSampler(replacement=True)`.
    pub replacement: bool,
}

/// `RandomSampler` and what is built like it.
#[derive(Clone, Debug)]
pub struct Random {
    pub n: u32,
    pub seed: u64,
    pub source: RandomSource,
    pub count: Count,
}

impl Random {
    /// One whole permutation an epoch.
    #[must_use]
    pub const fn whole(n: u32, seed: u64, source: RandomSource) -> Self {
        Self { n, seed, source, count: Count { num_samples: None, replacement: false } }
    }

    /// Outputs that `RandomSampler` takes of its generator in one epoch: whole permutations, and one more that is cut (since torch 1.11
    /// also where nothing of it is used).
    fn outputs_of_epoch(&self) -> u64 {
        if self.count.replacement {
            return u64::from(self.len());
        }
        (u64::from(self.len() / self.n.max(1)) + 1) * outputs_of_randperm(self.n)
    }

    /// The generator as it is when `epoch` begins. A given generator runs on through all epochs, so a late epoch costs the draws of all
    /// before it (some 0.1 s for a hundred epochs of ImageNet).
    fn generator(&self, epoch: Epoch) -> Mt19937 {
        let mut generator = Mt19937::new(self.seed);
        let permutation = outputs_of_randperm(self.n);
        match self.source {
            RandomSource::Default { offset, stride } => {
                generator.skip(offset.saturating_add(epoch.saturating_mul(stride)));
                Mt19937::new(u64::from(generator.random()))
            }
            RandomSource::Loader => {
                generator.skip(epoch.saturating_mul(2 + self.outputs_of_epoch()).saturating_add(2));
                generator
            }
            RandomSource::Sampler => {
                generator.skip(epoch.saturating_mul(self.outputs_of_epoch()));
                generator
            }
            RandomSource::Reseeded => Mt19937::new(self.seed.wrapping_add(epoch)),
            RandomSource::Stream { offset, between } => {
                generator.skip(epoch.saturating_mul(permutation.saturating_add(between)).saturating_add(offset));
                generator
            }
            RandomSource::Built { offset, first, step } => {
                generator.skip(offset);
                let mut generator = Mt19937::new(u64::from(generator.random()));
                generator.skip(epoch.saturating_mul(step).saturating_add(first).saturating_mul(permutation));
                generator
            }
        }
    }
}

impl Shuffle for Random {
    fn epoch(&self, epoch: Epoch) -> Vec<SampleIndex> {
        let mut generator = self.generator(epoch);
        let len = self.len() as usize;
        if self.count.replacement {
            // `randint(high=n)`, in slices of 32 that do not show.
            return if self.n == 0 { Vec::new() } else { (0..len).map(|_| generator.random() % self.n).collect() };
        }
        let mut places = randperm(self.n, &mut generator);
        while places.len() < len && self.n > 0 {
            places.extend(randperm(self.n, &mut generator));
        }
        places.truncate(len);
        places
    }

    fn len(&self) -> u32 {
        if self.n == 0 { 0 } else { self.count.num_samples.unwrap_or(self.n) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::order::shard::{Block, Shard, Tail};
    use crate::order::{Dealt, Sampler};

    fn is_permutation(places: &[SampleIndex]) -> bool {
        let mut sorted = places.to_vec();
        sorted.sort_unstable();
        sorted.iter().copied().eq(0..u32::try_from(places.len()).unwrap())
    }

    #[test]
    fn the_wide_form_permutes_too() {
        for n in [0, 1, 2, 3, 1000] {
            assert!(is_permutation(&randperm_wide(n, &mut Mt19937::new(7))), "{n}");
        }
        assert_ne!(randperm_wide(1000, &mut Mt19937::new(7)), randperm_narrow(1000, &mut Mt19937::new(7)));
        assert_eq!(WIDE_FROM, 214_748_364);
    }

    #[test]
    fn more_samples_than_there_are_are_several_permutations() {
        let count = |num_samples, replacement| Count { num_samples: Some(num_samples), replacement };
        let random = Random { count: count(25, false), ..Random::whole(10, 3, RandomSource::Sampler) };
        let places = random.epoch(0);
        assert_eq!(places.len(), 25);
        assert!(is_permutation(&places[..10]) && is_permutation(&places[10..20]));
        assert_eq!(random.outputs_of_epoch(), 27);
        let random = Random { count: count(25, true), ..Random::whole(10, 3, RandomSource::Sampler) };
        assert_eq!((random.epoch(1).len(), random.outputs_of_epoch()), (25, 25));
        assert!(Random { count: count(5, true), ..Random::whole(0, 3, RandomSource::Sampler) }.epoch(0).is_empty());
    }

    fn distributed(n: u32, seed: u64, world: u32, ranks: Vec<u32>, tail: Tail) -> Dealt {
        let shuffle = Arc::new(Random::whole(n, seed, RandomSource::Reseeded));
        Dealt { shuffle, subset: None, shard: Shard { world, ranks, tail, block: Block::Places(1), batch: None } }
    }

    proptest! {
        #[test]
        fn all_ranks_together_read_every_sample(n in 0u32..200, world in 1u32..20, seed: u64, epoch in 0u64..100) {
            let order = distributed(n, seed, world, (0..world).collect(), Tail::Pad).order(epoch);
            let mut times = vec![0u32; n as usize];
            for &sample in &order.places {
                times[sample as usize] += 1;
            }
            let (most, least) = (times.iter().max().copied().unwrap_or(0), times.iter().min().copied().unwrap_or(0));
            prop_assert!(n == 0 || least >= 1, "a sample is missing");
            prop_assert!(most - least <= 1, "padding repeats from the start, evenly");
            prop_assert_eq!(order.places.len() % world as usize, 0);
        }

        #[test]
        fn ranks_merge_step_by_step(
            n in 0u32..200, world in 1u32..12, picks in proptest::collection::vec(any::<bool>(), 12), seed: u64, tail in 0usize..3,
        ) {
            let tail = [Tail::Pad, Tail::Drop, Tail::Uneven][tail];
            let ranks: Vec<u32> = (0..world).filter(|&r| r == world - 1 || picks[r as usize]).collect();
            let merged = distributed(n, seed, world, ranks.clone(), tail);
            let order = merged.order(3);
            prop_assert_eq!(order.stride as usize, ranks.len());
            prop_assert_eq!(order.places.len() as u64, merged.len());
            for (r, &rank) in ranks.iter().enumerate() {
                let alone = distributed(n, seed, world, vec![rank], tail).order(3);
                let stream: Vec<_> = order.places.iter().skip(r).step_by(ranks.len()).copied().collect();
                prop_assert_eq!(stream, alone.places);
            }
        }

        #[test]
        fn every_source_permutes_and_epochs_differ(n in 20u32..200, seed: u64, epoch in 0u64..40) {
            for source in [
                RandomSource::Default { offset: RandomSource::OFFSET, stride: RandomSource::STRIDE },
                RandomSource::Loader,
                RandomSource::Sampler,
                RandomSource::Reseeded,
                RandomSource::Stream { offset: 2, between: 2 },
                RandomSource::Built { offset: 1, first: 1, step: 2 },
            ] {
                let shuffle = Random::whole(n, seed, source);
                let places = shuffle.epoch(epoch);
                prop_assert!(is_permutation(&places));
                prop_assert_eq!(places.len(), shuffle.len() as usize);
                prop_assert_ne!(places, shuffle.epoch(epoch + 1));
            }
        }
    }
}

//! torch's permutations and samplers, bit for bit (torch 1.13 to 2.15, CPU).
//!
//! Compared with the orders real torch made in `tests/golden`; what each sampler draws, and when, was read off them and off torch's
//! source. A sampler here yields the whole epoch: where a resumed run begins is its follower's business.
//!
//! Not here: sampling with replacement or by weights, `random_split`, and what accelerate or Lightning put on top.

use crate::order::mt19937::Mt19937;
use crate::order::shard::Shard;
use crate::order::{EpochOrder, Sampler};
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
const fn outputs_of_randperm(n: u32) -> u64 {
    if n < WIDE_FROM { (n as u64).saturating_sub(1) } else { 2 * n as u64 }
}

/// `DistributedSampler(shuffle=True)`: each epoch is `randperm` of seed + epoch, dealt to the ranks.
#[derive(Clone, Debug)]
pub struct Distributed {
    pub n: u32,
    pub seed: u64,
    pub shard: Shard,
}

impl Sampler for Distributed {
    fn order(&self, epoch: Epoch) -> EpochOrder {
        let permutation = randperm(self.n, &mut Mt19937::new(self.seed.wrapping_add(epoch)));
        self.shard.deal(self.n, |place| permutation[place])
    }

    fn len(&self) -> u64 {
        self.shard.len(self.n)
    }
}

/// Where a `RandomSampler` takes its randomness from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RandomSource {
    /// `DataLoader(shuffle=True)` after `torch.manual_seed(seed)`: each epoch draws a seed of its own from the default generator.
    /// Output `offset` (0-based) is epoch 0's, then one every `stride`. Only the low word of the 64-bit draw matters.
    Default { offset: u64, stride: u64 },
    /// `DataLoader(shuffle=True, generator=g)`: the loader's base seed and the permutation come from g, and a second, unused
    /// permutation when the sampler is exhausted.
    Loader,
    /// `sampler=RandomSampler(ds, generator=g)`: as [`Self::Loader`], without the base seed.
    Sampler,
    /// A fresh generator seeded with seed + epoch (accelerate's `SeedableRandomSampler`, the Trainer of transformers).
    Reseeded,
}

impl RandomSource {
    /// Nothing else drew: the loader's base seed is outputs 0 and 1, the sampler's seed outputs 2 and 3.
    pub const OFFSET: u64 = 3;
    /// Base seed and sampler seed, two outputs each.
    pub const STRIDE: u64 = 4;
}

/// `RandomSampler` without replacement, read by one process.
#[derive(Clone, Debug)]
pub struct Random {
    pub n: u32,
    pub seed: u64,
    pub source: RandomSource,
    pub shard: Shard,
}

impl Random {
    /// The generator as it is when the permutation of `epoch` begins. A given generator runs on through all epochs, so a late epoch
    /// costs the draws of all before it (some 0.1 s for a hundred epochs of ImageNet).
    fn generator(&self, epoch: Epoch) -> Mt19937 {
        let mut generator = Mt19937::new(self.seed);
        let permutation = outputs_of_randperm(self.n);
        match self.source {
            RandomSource::Default { offset, stride } => {
                generator.skip(offset.saturating_add(epoch.saturating_mul(stride)));
                Mt19937::new(u64::from(generator.random()))
            }
            RandomSource::Loader => {
                generator.skip(epoch.saturating_mul(2 + 2 * permutation).saturating_add(2));
                generator
            }
            RandomSource::Sampler => {
                generator.skip(epoch.saturating_mul(2 * permutation));
                generator
            }
            RandomSource::Reseeded => Mt19937::new(self.seed.wrapping_add(epoch)),
        }
    }
}

impl Sampler for Random {
    fn order(&self, epoch: Epoch) -> EpochOrder {
        let permutation = randperm(self.n, &mut self.generator(epoch));
        self.shard.deal(self.n, |place| permutation[place])
    }

    fn len(&self) -> u64 {
        self.shard.len(self.n)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    fn distributed(n: u32, seed: u64, world: u32, ranks: Vec<u32>, drop_last: bool) -> Distributed {
        Distributed { n, seed, shard: Shard { world, ranks, drop_last, batch: None } }
    }

    proptest! {
        #[test]
        fn all_ranks_together_read_every_sample(n in 0u32..200, world in 1u32..20, seed: u64, epoch in 0u64..100) {
            let order = distributed(n, seed, world, (0..world).collect(), false).order(epoch);
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
        fn ranks_are_equally_long_and_merge_step_by_step(
            n in 0u32..200, world in 1u32..12, picks in proptest::collection::vec(any::<bool>(), 12), seed: u64, drop_last: bool,
        ) {
            let ranks: Vec<u32> = (0..world).filter(|&r| r == world - 1 || picks[r as usize]).collect();
            let merged = distributed(n, seed, world, ranks.clone(), drop_last);
            let order = merged.order(3);
            prop_assert_eq!(order.stride as usize, ranks.len());
            prop_assert_eq!(order.places.len() as u64, merged.len());
            for (r, &rank) in ranks.iter().enumerate() {
                let alone = distributed(n, seed, world, vec![rank], drop_last).order(3);
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
            ] {
                let sampler = Random { n, seed, source, shard: Shard::whole() };
                let order = sampler.order(epoch);
                prop_assert!(is_permutation(&order.places));
                prop_assert_eq!(order.places.len() as u64, sampler.len());
                prop_assert_ne!(order, sampler.order(epoch + 1));
            }
        }
    }
}

//! How one global order is dealt to the ranks of a job, and which part of it this node reads.
//!
//! The rule is `DistributedSampler`'s: padded from the front (or cut) to a multiple of the world size, then rank r takes places
//! r, r + world, r + 2·world, … One rank in a world of one is the plain case.

use crate::order::EpochOrder;
use crate::types::{Rank, SampleIndex};

/// The local ranks of a job and what is left off at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Processes of the whole job, ≥ 1.
    pub world: u32,
    /// Those on this node: rising, each below `world`, at least one.
    pub ranks: Vec<Rank>,
    /// `DistributedSampler(drop_last=True)`: cut to a multiple of the world size instead of padding.
    pub drop_last: bool,
    /// `DataLoader(batch_size=…, drop_last=True)`: each rank leaves its last, incomplete batch off.
    pub batch: Option<u32>,
}

impl Shard {
    /// One process reads everything.
    #[must_use]
    pub fn whole() -> Self {
        Self { world: 1, ranks: vec![0], drop_last: false, batch: None }
    }

    /// Samples that each rank reads of `n`.
    fn per_rank(&self, n: u32) -> u32 {
        let dealt = if self.drop_last { n / self.world } else { n.div_ceil(self.world) };
        self.batch.map_or(dealt, |batch| dealt - dealt % batch)
    }

    /// Samples that all local ranks read together of `n`.
    #[must_use]
    pub fn len(&self, n: u32) -> u64 {
        u64::from(self.per_rank(n)) * self.ranks.len() as u64
    }

    /// The local ranks' streams, merged, of the global order that `sample_at` gives for places `0..n`.
    #[must_use]
    pub fn deal(&self, n: u32, sample_at: impl Fn(usize) -> SampleIndex) -> EpochOrder {
        let (n, world) = (n as usize, self.world as usize);
        let mut places = Vec::with_capacity(self.ranks.len() * self.per_rank(n as u32) as usize);
        for step in 0..self.per_rank(n as u32) as usize {
            for &rank in &self.ranks {
                let place = step * world + rank as usize;
                // Padding repeats the order from its start, as often as a world larger than the dataset needs.
                places.push(sample_at(if place < n { place } else { place % n }));
            }
        }
        EpochOrder { places, stride: u32::try_from(self.ranks.len()).expect("no more ranks than the world, a u32") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(n: u32, shard: &Shard, expected: &[SampleIndex]) {
        let order = shard.deal(n, |place| u32::try_from(place).unwrap());
        assert_eq!(order.places, expected);
        assert_eq!(order.places.len() as u64, shard.len(n));
        assert_eq!(order.stride as usize, shard.ranks.len());
    }

    #[test]
    fn deals_pads_and_cuts() {
        let shard = |world, ranks: &[Rank], drop_last, batch| Shard { world, ranks: ranks.to_vec(), drop_last, batch };
        check(4, &Shard::whole(), &[0, 1, 2, 3]);
        check(0, &Shard::whole(), &[]);
        check(7, &shard(3, &[0, 2], false, None), &[0, 2, 3, 5, 6, 1]);
        check(7, &shard(3, &[0, 2], true, None), &[0, 2, 3, 5]);
        check(2, &shard(5, &[0, 1, 2, 3, 4], false, None), &[0, 1, 0, 1, 0]);
        check(2, &shard(5, &[4], true, None), &[]);
        check(7, &shard(1, &[0], false, Some(3)), &[0, 1, 2, 3, 4, 5]);
        check(7, &shard(2, &[1], false, Some(4)), &[1, 3, 5, 0]);
    }
}

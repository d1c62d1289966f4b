//! How one global order is dealt to the ranks of a job, and which part of it this node reads.
//!
//! One rule covers what libraries do: blocks of places go to the ranks in turn. A block of one place is torch's `DistributedSampler`
//! (rank r takes r, r + world, r + 2·world, …), a block of one batch accelerate's `BatchSamplerShard`, one long block for each rank a
//! contiguous part. One rank in a world of one is the plain case.

use crate::order::EpochOrder;
use crate::types::{Rank, SampleIndex};

/// What happens where the places do not go evenly into the ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tail {
    /// The order is padded from its start, as often as it takes.
    #[default]
    Pad,
    /// What does not fill a block for every rank is left off.
    Drop,
    /// The last ranks read less.
    Uneven,
}

impl Tail {
    pub(crate) const ALL: [(&str, Self); 3] = [("pad", Self::Pad), ("drop", Self::Drop), ("uneven", Self::Uneven)];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, tail)| *tail == self).map_or("", |(name, _)| name)
    }
}

/// Which places make a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Block {
    /// So many places (≥ 1), then it is the next rank's turn.
    Places(u32),
    /// One block for each rank, of ceil(n / world) places.
    Parts,
    /// One block for each rank, as even as can be: rank r begins at floor(n · r / world). [`Tail`] is not asked.
    EvenParts,
}

/// The local ranks of a job and what is left off at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Processes of the whole job, ≥ 1.
    pub world: u32,
    /// Those on this node: rising, each below `world`, at least one.
    pub ranks: Vec<Rank>,
    pub tail: Tail,
    pub block: Block,
    /// `DataLoader(batch_size=…, drop_last=True)`: each rank leaves its last, incomplete batch off.
    pub batch: Option<u32>,
}

/// What one rank reads: places `first`, `first + 1`, … in runs of `block`, `turn` places from the start of one run to that of the next.
#[derive(Clone, Copy, Debug)]
struct Share {
    first: u64,
    block: u64,
    turn: u64,
    len: u64,
}

impl Shard {
    /// One process reads everything.
    #[must_use]
    pub fn whole() -> Self {
        Self { world: 1, ranks: vec![0], tail: Tail::Pad, block: Block::Places(1), batch: None }
    }

    fn share(&self, rank: Rank, n: u32) -> Share {
        let (n, world, rank) = (u64::from(n), u64::from(self.world), u64::from(rank));
        let (first, block, len) = match self.block {
            Block::EvenParts => (n * rank / world, n.max(1), n * (rank + 1) / world - n * rank / world),
            Block::Places(_) | Block::Parts => {
                let block = if let Block::Places(places) = self.block { u64::from(places) } else { n.div_ceil(world).max(1) };
                let turn = block * world;
                let len = match self.tail {
                    Tail::Pad => n.div_ceil(turn) * block,
                    Tail::Drop => n / turn * block,
                    Tail::Uneven => n / turn * block + (n % turn).saturating_sub(rank * block).min(block),
                };
                (rank * block, block, len)
            }
        };
        let len = self.batch.map_or(len, |batch| len - len % u64::from(batch));
        Share { first, block, turn: block * world, len }
    }

    /// Samples that all local ranks read together of `n`.
    #[must_use]
    pub fn len(&self, n: u32) -> u64 {
        self.ranks.iter().map(|&rank| self.share(rank, n).len).sum()
    }

    /// The local ranks' streams, merged, of the global order that `sample_at` gives for places `0..n`.
    #[must_use]
    pub fn deal(&self, n: u32, sample_at: impl Fn(usize) -> SampleIndex) -> EpochOrder {
        let shares: Vec<Share> = self.ranks.iter().map(|&rank| self.share(rank, n)).collect();
        let (n, longest) = (u64::from(n), shares.iter().map(|share| share.len).max().unwrap_or(0));
        let mut places = Vec::with_capacity(usize::try_from(self.len(n as u32)).expect("an epoch fits into memory"));
        for step in 0..longest {
            for share in shares.iter().filter(|share| step < share.len) {
                let place = if share.block == 1 {
                    share.first + step * share.turn
                } else {
                    share.first + step / share.block * share.turn + step % share.block
                };
                // Padding repeats the order from its start, as often as a world larger than the dataset needs.
                places.push(sample_at(if place < n { place } else { place % n } as usize));
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

    fn shard(world: u32, ranks: &[Rank], tail: Tail, block: Block, batch: Option<u32>) -> Shard {
        Shard { world, ranks: ranks.to_vec(), tail, block, batch }
    }

    #[test]
    fn deals_pads_and_cuts() {
        let shard = |world, ranks: &[Rank], tail, batch| shard(world, ranks, tail, Block::Places(1), batch);
        check(4, &Shard::whole(), &[0, 1, 2, 3]);
        check(0, &Shard::whole(), &[]);
        check(7, &shard(3, &[0, 2], Tail::Pad, None), &[0, 2, 3, 5, 6, 1]);
        check(7, &shard(3, &[0, 2], Tail::Drop, None), &[0, 2, 3, 5]);
        check(7, &shard(3, &[0, 2], Tail::Uneven, None), &[0, 2, 3, 5, 6]);
        check(2, &shard(5, &[0, 1, 2, 3, 4], Tail::Pad, None), &[0, 1, 0, 1, 0]);
        check(2, &shard(5, &[4], Tail::Drop, None), &[]);
        check(2, &shard(5, &[1, 4], Tail::Uneven, None), &[1]);
        check(7, &shard(1, &[0], Tail::Pad, Some(3)), &[0, 1, 2, 3, 4, 5]);
        check(7, &shard(2, &[1], Tail::Pad, Some(4)), &[1, 3, 5, 0]);
    }

    #[test]
    fn blocks_go_round() {
        let shard = |ranks: &[Rank], tail, block| shard(2, ranks, tail, block, None);
        check(9, &shard(&[0], Tail::Pad, Block::Places(2)), &[0, 1, 4, 5, 8, 0]);
        check(9, &shard(&[1], Tail::Pad, Block::Places(2)), &[2, 3, 6, 7, 1, 2]);
        check(9, &shard(&[0, 1], Tail::Drop, Block::Places(2)), &[0, 2, 1, 3, 4, 6, 5, 7]);
        check(9, &shard(&[0, 1], Tail::Uneven, Block::Places(2)), &[0, 2, 1, 3, 4, 6, 5, 7, 8]);
        check(7, &shard(&[0, 1], Tail::Uneven, Block::Parts), &[0, 4, 1, 5, 2, 6, 3]);
        check(7, &shard(&[1], Tail::Pad, Block::Parts), &[4, 5, 6, 0]);
        check(7, &shard(&[0], Tail::Pad, Block::EvenParts), &[0, 1, 2]);
        check(7, &shard(&[1], Tail::Pad, Block::EvenParts), &[3, 4, 5, 6]);
        check(0, &shard(&[1], Tail::Pad, Block::EvenParts), &[]);
        check(0, &shard(&[1], Tail::Uneven, Block::Parts), &[]);
    }
}

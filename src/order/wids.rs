//! The samplers of `wids` (part of WebDataset up to 0.2): chunks in random order, then the samples of each chunk.
//!
//! `ShardListSampler`, `ChunkedSampler` and `DistributedChunkedSampler`, source `wids/wids.py`: Python's generator with the seed
//! seed + 1289738273 * epoch shuffles the list of chunks (not in epoch 0, unless `shufflefirst`), then each chunk's indices as it comes to it.

use crate::order::Shuffle;
use crate::order::again::Library;
use crate::order::python::Random;
use crate::types::{Epoch, SampleIndex};

/// What the seed grows by each epoch.
const EPOCH_STEP: u64 = 1_289_738_273;

/// Samples in chunks of `chunk`, each of `parts` equal parts of the dataset (ranks) shuffled by itself with the same seed.
#[derive(Clone, Debug)]
pub struct Chunked {
    pub n: u32,
    pub seed: u64,
    /// `chunksize`, ≥ 1. 1: the items are shards, and only their order is of interest.
    pub chunk: u32,
    /// `num_replicas`, ≥ 1.
    pub parts: u32,
    /// `shufflefirst`.
    pub shuffle_first: bool,
    /// `shuffle`: off, nothing is shuffled at all in a `ChunkedSampler`.
    pub shuffle: bool,
}

impl Shuffle for Chunked {
    fn epoch(&self, epoch: Epoch) -> Vec<SampleIndex> {
        let part = self.n.div_ceil(self.parts).max(1);
        let mut places = Vec::with_capacity(self.n as usize);
        for start in (0..self.n).step_by(part as usize) {
            let end = start.saturating_add(part).min(self.n);
            let mut random = Random::seeded(self.seed.wrapping_add(EPOCH_STEP.wrapping_mul(epoch)));
            let mut chunks: Vec<SampleIndex> = (start..end).step_by(self.chunk as usize).collect();
            if self.shuffle && (self.shuffle_first || epoch > 0) {
                random.shuffle(&mut chunks);
            }
            for chunk in chunks {
                let from = places.len();
                places.extend(chunk..chunk.saturating_add(self.chunk).min(end));
                if self.shuffle && self.chunk > 1 {
                    random.shuffle(&mut places[from..]);
                }
            }
        }
        places
    }

    fn len(&self) -> u32 {
        self.n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunk order of ten shards in epoch 1 as wids itself gives it (field notes); epoch 0 keeps the list's order.
    #[test]
    fn shards_as_wids_orders_them() {
        let shards = Chunked { n: 10, seed: 0, chunk: 1, parts: 1, shuffle_first: false, shuffle: true };
        assert_eq!(shards.epoch(1), [7, 8, 2, 1, 4, 0, 9, 3, 6, 5]);
        assert_eq!(shards.epoch(0), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_ne!(Chunked { shuffle_first: true, ..shards }.epoch(0), shards.epoch(0));
    }

    #[test]
    fn a_part_and_a_chunk_stay_together() {
        let chunked = Chunked { n: 23, seed: 5, chunk: 4, parts: 2, shuffle_first: true, shuffle: true };
        let places = chunked.epoch(3);
        assert!(places[..12].iter().all(|&place| place < 12) && places[12..].iter().all(|&place| place >= 12));
        for chunk in places[..12].chunks(4) {
            assert!(chunk.iter().all(|place| place / 4 == chunk[0] / 4), "{places:?}");
        }
        assert!(Chunked { n: 0, ..chunked }.epoch(1).is_empty());
    }
}

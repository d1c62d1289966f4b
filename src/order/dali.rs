//! The order in which DALI's `fn.readers.file(random_shuffle=True)` reads files: the same in every run and every epoch, whatever its seed is
//! (the seed only picks from the prefetch buffer).
//!
//! The list is shuffled once, by `std::shuffle` with `std::mt19937(524287)`. The C++ standard does not fix that algorithm; here it is the one of
//! libstdc++ from GCC 11 on (`bits/stl_algo.h`, `bits/uniform_int_dist.h`: Lemire's method, and two places of one draw while n < 2^16), which
//! DALI's wheels are built with. Seen by strace of DALI 2.4.
//!
//! Not here: `shuffle_after_epoch=True` (its generator is not known), `pad_last_batch`.

use crate::order::mt19937::Mt19937;
use crate::order::shard::{Block, Shard, Tail};
use crate::order::{EpochOrder, Sampler};
use crate::types::{Epoch, Rank, SampleIndex};

/// `kDaliDataloaderSeed`.
const SEED: u64 = 524_287;

/// `uniform_int_distribution{0, range - 1}` over a generator of 32 bits; `range` from 1 to 2^32 - 1.
fn uniform(range: u32, generator: &mut Mt19937) -> u32 {
    let mut product = u64::from(generator.random()) * u64::from(range);
    #[expect(clippy::cast_possible_truncation, reason = "the low half decides")]
    if (product as u32) < range {
        let threshold = range.wrapping_neg() % range;
        while (product as u32) < threshold {
            product = u64::from(generator.random()) * u64::from(range);
        }
    }
    u32::try_from(product >> 32).expect("below range")
}

/// `std::shuffle` of 0..n.
#[must_use]
pub fn std_shuffle(n: u32, generator: &mut Mt19937) -> Vec<SampleIndex> {
    let mut places: Vec<SampleIndex> = (0..n).collect();
    if n == 0 {
        return places;
    }
    let mut place: u32 = 1;
    if u32::MAX / n >= n {
        if n.is_multiple_of(2) {
            places.swap(1, uniform(2, generator) as usize);
            place = 2;
        }
        while place < n {
            let (first, second) = (place + 1, place + 2);
            let both = uniform(first * second, generator);
            places.swap(place as usize, (both / second) as usize);
            places.swap(place as usize + 1, (both % second) as usize);
            place += 2;
        }
    } else {
        for place in 1..n {
            places.swap(place as usize, uniform(place + 1, generator) as usize);
        }
    }
    places
}

/// The file reader of the pipelines of one job.
#[derive(Clone, Debug)]
pub struct FileReader {
    pub n: u32,
    /// `num_shards`.
    pub world: u32,
    /// The `shard_id`s of this node.
    pub ranks: Vec<Rank>,
    /// `stick_to_shard`; otherwise a reader runs on into the next shard at each epoch.
    pub stick: bool,
    /// `random_shuffle`.
    pub shuffle: bool,
}

impl Sampler for FileReader {
    fn order(&self, epoch: Epoch) -> EpochOrder {
        let files = if self.shuffle { std_shuffle(self.n, &mut Mt19937::new(SEED)) } else { (0..self.n).collect() };
        let shift = if self.stick { 0 } else { u32::try_from(epoch % u64::from(self.world)).expect("below the world, a u32") };
        let ranks: Vec<Rank> =
            self.ranks.iter().map(|&rank| ((u64::from(rank) + u64::from(shift)) % u64::from(self.world)) as Rank).collect();
        let shard = Shard { world: self.world, ranks, tail: Tail::Uneven, block: Block::EvenParts, batch: None };
        shard.deal(self.n, |place| files[place])
    }

    /// Of epoch 0: shards differ by one file, so other epochs may have a file more or less.
    fn len(&self) -> u64 {
        let shard = Shard { world: self.world, ranks: self.ranks.clone(), tail: Tail::Uneven, block: Block::EvenParts, batch: None };
        shard.len(self.n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_permute() {
        for n in [0, 1, 2, 3, 10, 65_535, 65_536, 70_001] {
            let mut places = std_shuffle(n, &mut Mt19937::new(SEED));
            assert!(n < 10 || !places.is_sorted());
            places.sort_unstable();
            assert!(places.into_iter().eq(0..n), "{n}");
        }
    }

    #[test]
    fn a_reader_runs_on_into_the_next_shard() {
        let reader = |ranks: &[Rank], stick| FileReader { n: 10, world: 4, ranks: ranks.to_vec(), stick, shuffle: true };
        let files = std_shuffle(10, &mut Mt19937::new(SEED));
        assert_eq!(reader(&[3], false).order(0).places, files[7..]);
        assert_eq!(reader(&[3], false).order(1).places, files[..2]);
        assert_eq!(reader(&[3], true).order(1).places, files[7..]);
        assert_eq!(reader(&[0, 1], true).order(0).places, [files[0], files[2], files[1], files[3], files[4]]);
        assert_eq!(reader(&[0, 1], true).len(), 5);
    }
}

//! The order in which DALI's `fn.readers.file` reads files. It never depends on the pipeline's seed: with `random_shuffle=True` that seed only picks
//! from the prefetch buffer.
//!
//! `random_shuffle=True`: the list is shuffled once, by `std::shuffle` with `std::mt19937(524287)`; the same order in every run and every epoch.
//! `shuffle_after_epoch=True`: before each epoch, the first among them, the list is shuffled by a new generator whose seed is made of
//! `shuffle_after_epoch_seed` (524287 where it is not given) and the epoch's number, from 1: up to DALI 2.1 `std::mt19937(seed + epoch)`, from 2.2 on
//! `std::mt19937_64(seed + epoch * 2^32)`. It goes on from the list of the epoch before, or, in a pipeline with checkpointing, from the first one.
//! Source: `dali/operators/reader/loader/file_label_loader.h` for the older rule; the newer one is what DALI 2.2 to 2.4 does. Both agree with what
//! DALI 1.53, 2.0, 2.1, 2.2 and 2.4 read.
//!
//! The C++ standard does not fix `std::shuffle`; here it is the one of libstdc++ from GCC 11 on (`bits/stl_algo.h`, `bits/uniform_int_dist.h`: Lemire's
//! method, and two places of one draw while n^2 is within the generator's range), which DALI's wheels are built with.
//!
//! Not here: `pad_last_batch`, the order of files in DALI's readers of containers.

use std::sync::{Mutex, PoisonError};

use crate::order::again::Again;
use crate::order::mt19937::Mt19937;
use crate::order::mt19937_64::Mt19937x64;
use crate::order::shard::{Block, Shard, Tail};
use crate::order::{EpochOrder, Sampler};
use crate::types::{Epoch, Rank, SampleIndex};

/// `kDaliDataloaderSeed`.
pub const SEED: u64 = 524_287;

/// A generator of C++ that `std::shuffle` draws from.
pub trait Engine {
    /// Its greatest output; the least is 0.
    const MAX: u64;

    /// `uniform_int_distribution{0, range - 1}`; `range` from 1 to `MAX`.
    fn uniform(&mut self, range: u64) -> u64;
}

impl Engine for Mt19937 {
    const MAX: u64 = u32::MAX as u64;

    fn uniform(&mut self, range: u64) -> u64 {
        let low = u64::from(u32::MAX);
        let mut product = u64::from(self.random()) * range;
        if product & low < range {
            let threshold = (low + 1 - range) % range;
            while product & low < threshold {
                product = u64::from(self.random()) * range;
            }
        }
        product >> 32
    }
}

impl Engine for Mt19937x64 {
    const MAX: u64 = u64::MAX;

    fn uniform(&mut self, range: u64) -> u64 {
        let low = u128::from(u64::MAX);
        let mut product = u128::from(self.random()) * u128::from(range);
        if product & low < u128::from(range) {
            let threshold = u128::from(range.wrapping_neg() % range);
            while product & low < threshold {
                product = u128::from(self.random()) * u128::from(range);
            }
        }
        u64::try_from(product >> 64).expect("below range")
    }
}

/// `std::shuffle`.
pub fn std_shuffle<T, E: Engine>(items: &mut [T], generator: &mut E) {
    let n = items.len() as u64;
    let index = |value: u64| usize::try_from(value).expect("below n");
    if n < 2 {
        return;
    }
    let mut place = 1;
    if E::MAX / n >= n {
        if n.is_multiple_of(2) {
            items.swap(1, index(generator.uniform(2)));
            place = 2;
        }
        while place < n {
            let (first, second) = (place + 1, place + 2);
            let both = generator.uniform(first * second);
            items.swap(index(place), index(both / second));
            items.swap(index(place + 1), index(both % second));
            place += 2;
        }
    } else {
        for place in 1..n {
            items.swap(index(place), index(generator.uniform(place + 1)));
        }
    }
}

/// Which generator `shuffle_after_epoch` uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Generator {
    /// Up to DALI 2.1.
    Mt19937,
    /// From DALI 2.2 on.
    #[default]
    Mt19937x64,
}

impl Generator {
    pub(crate) const ALL: [(&str, Self); 2] = [("mt19937", Self::Mt19937), ("mt19937_64", Self::Mt19937x64)];

    fn shuffle(self, seed: u64, epoch: Epoch, files: &mut [SampleIndex]) {
        // It counts its epochs from 1.
        let number = epoch.wrapping_add(1);
        match self {
            Self::Mt19937 => std_shuffle(files, &mut Mt19937::new(seed.wrapping_add(number))),
            Self::Mt19937x64 => std_shuffle(files, &mut Mt19937x64::new(seed.wrapping_add(number << 32))),
        }
    }
}

/// What is done to the list of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Files {
    /// Nothing.
    Listed,
    /// `random_shuffle`: shuffled once.
    Shuffled,
    /// `shuffle_after_epoch`; `again` is [`Again::InPlace`], or with checkpointing [`Again::Reseeded`].
    EachEpoch { seed: u64, generator: Generator, again: Again },
}

/// The file reader of the pipelines of one job.
#[derive(Debug)]
pub struct FileReader {
    n: u32,
    files: Files,
    /// `stick_to_shard`; otherwise a reader runs on into the next shard at each epoch.
    stick: bool,
    shard: Shard,
    /// The list as the last epoch asked for left it, and the next epoch: epochs in a row cost one shuffle each.
    left: Mutex<Option<(Epoch, Vec<SampleIndex>)>>,
}

impl FileReader {
    /// `world` is `num_shards`, `ranks` are the `shard_id`s of this node.
    #[must_use]
    pub const fn new(n: u32, files: Files, stick: bool, world: u32, ranks: Vec<Rank>) -> Self {
        let shard = Shard { world, ranks, tail: Tail::Uneven, block: Block::EvenParts, batch: None };
        Self { n, files, stick, shard, left: Mutex::new(None) }
    }

    fn list(&self, epoch: Epoch) -> Vec<SampleIndex> {
        let listed = || (0..self.n).collect::<Vec<SampleIndex>>();
        match self.files {
            Files::Listed => listed(),
            Files::Shuffled => {
                let mut files = listed();
                std_shuffle(&mut files, &mut Mt19937::new(SEED));
                files
            }
            Files::EachEpoch { seed, generator, again: Again::InPlace } => {
                let left = self.left.lock().unwrap_or_else(PoisonError::into_inner).take();
                let (next, mut files) = left.filter(|(next, _)| *next <= epoch).unwrap_or_else(|| (0, listed()));
                (next..=epoch).for_each(|epoch| generator.shuffle(seed, epoch, &mut files));
                *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some((epoch.saturating_add(1), files.clone()));
                files
            }
            Files::EachEpoch { seed, generator, .. } => {
                let mut files = listed();
                generator.shuffle(seed, epoch, &mut files);
                files
            }
        }
    }
}

impl Sampler for FileReader {
    fn order(&self, epoch: Epoch) -> EpochOrder {
        let files = self.list(epoch);
        let world = u64::from(self.shard.world);
        // A list that is shuffled again has other files in the same shard.
        let shift = if self.stick || matches!(self.files, Files::EachEpoch { .. }) { 0 } else { epoch % world };
        let ranks = self.shard.ranks.iter().map(|&rank| ((u64::from(rank) + shift) % world) as Rank).collect();
        Shard { ranks, ..self.shard.clone() }.deal(self.n, |place| files[place])
    }

    /// Of epoch 0: shards differ by one file, so other epochs may have a file more or less.
    fn len(&self) -> u64 {
        self.shard.len(self.n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn once(n: u32) -> Vec<SampleIndex> {
        FileReader::new(n, Files::Shuffled, true, 1, vec![0]).list(0)
    }

    #[test]
    fn all_forms_permute() {
        for n in [0, 1, 2, 3, 10, 65_535, 65_536, 70_001] {
            let each = Files::EachEpoch { seed: 1, generator: Generator::Mt19937x64, again: Again::InPlace };
            for mut places in [once(n), FileReader::new(n, each, false, 1, vec![0]).list(2)] {
                assert!(n < 10 || !places.is_sorted());
                places.sort_unstable();
                assert!(places.into_iter().eq(0..n), "{n}");
            }
        }
    }

    #[test]
    fn a_reader_runs_on_into_the_next_shard() {
        let reader = |ranks: &[Rank], stick| FileReader::new(10, Files::Shuffled, stick, 4, ranks.to_vec());
        let files = once(10);
        assert_eq!(reader(&[3], false).order(0).places, files[7..]);
        assert_eq!(reader(&[3], false).order(1).places, files[..2]);
        assert_eq!(reader(&[3], true).order(1).places, files[7..]);
        assert_eq!(reader(&[0, 1], true).order(0).places, [files[0], files[2], files[1], files[3], files[4]]);
        assert_eq!(reader(&[0, 1], true).len(), 5);
    }

    #[test]
    fn epochs_may_be_asked_for_in_any_order() {
        let each = Files::EachEpoch { seed: SEED, generator: Generator::Mt19937, again: Again::InPlace };
        let fresh = |epoch| FileReader::new(100, each, false, 1, vec![0]).list(epoch);
        let reader = FileReader::new(100, each, false, 1, vec![0]);
        for epoch in [0, 1, 3, 3, 2, 5, 0] {
            assert_eq!(reader.list(epoch), fresh(epoch), "{epoch}");
        }
    }
}

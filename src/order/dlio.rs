//! The orders of DLIO, the loader below MLPerf Storage: `np.random.seed(seed)` or of seed + epoch, then `np.random.shuffle`.
//!
//! Source: `dlio_benchmark/utils/config.py` (`reconfigure`), `data_loader/torch_data_loader.py` (`dlio_sampler`), read, not run. A place is a
//! file. Epochs are numbered from 1 there, from 0 here.
//!
//! - Its PyTorch loader reads each rank's contiguous part of the samples in listing order, shuffle or not: the shuffled index map is only
//!   looked up by number. Versions that shuffle the part are [`Loader::TorchShuffled`].
//! - Its iterative loaders (TensorFlow, DALI) shuffle the list of all files, again in place at each epoch; rank r begins at file
//!   r * (files / world).
//!
//! Not here: several samples in a file, `read_threads` (a file per sample, one thread).

use crate::order::Shuffle;
use crate::order::again::Library;
use crate::order::numpy::Legacy;
use crate::types::{Epoch, SampleIndex};

/// Which loader reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Loader {
    /// PyTorch: each rank's part in listing order.
    #[default]
    Torch,
    /// Versions whose PyTorch sampler shuffles each rank's part.
    TorchShuffled,
    /// TensorFlow, DALI: the list of files is shuffled.
    Files,
}

impl Loader {
    pub(crate) const ALL: [(&str, Self); 3] = [("torch", Self::Torch), ("torch-shuffled", Self::TorchShuffled), ("files", Self::Files)];
}

/// The samples of a job, rank after rank, each with its contiguous part.
#[derive(Clone, Debug)]
pub struct Dlio {
    pub n: u32,
    pub seed: u64,
    pub loader: Loader,
    /// `seed_change_epoch`: seed + epoch (from 1), otherwise the same seed each time.
    pub change: bool,
    /// Processes, ≥ 1.
    pub world: u32,
}

impl Dlio {
    /// The generator of the epoch that DLIO counts as `number`.
    fn seeded(&self, number: u64) -> Legacy {
        Legacy::seeded(if self.change { self.seed.wrapping_add(number) } else { self.seed })
    }
}

impl Shuffle for Dlio {
    fn epoch(&self, epoch: Epoch) -> Vec<SampleIndex> {
        let mut places: Vec<SampleIndex> = (0..self.n).collect();
        let number = epoch.saturating_add(1);
        match self.loader {
            Loader::Torch => {}
            Loader::TorchShuffled => {
                let part = self.n.div_ceil(self.world).max(1) as usize;
                places.chunks_mut(part).for_each(|part| self.seeded(number).shuffle(part));
            }
            Loader::Files => (1..=number).for_each(|number| self.seeded(number).shuffle(&mut places)),
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

    #[test]
    fn lists_are_shuffled_in_place_and_parts_by_themselves() {
        let files = Dlio { n: 12, seed: 123, loader: Loader::Files, change: true, world: 2 };
        let mut list: Vec<u32> = (0..12).collect();
        for epoch in 0..3 {
            Legacy::seeded(124 + epoch).shuffle(&mut list);
            assert_eq!(files.epoch(epoch), list);
        }
        let parts = Dlio { loader: Loader::TorchShuffled, change: false, ..files.clone() };
        assert_eq!(parts.epoch(0), parts.epoch(1));
        assert_eq!(parts.epoch(0)[..6], Legacy::seeded(123).permutation(6));
        assert!(parts.epoch(0)[6..].iter().all(|&place| place >= 6));
        assert!(Dlio { loader: Loader::Torch, ..files }.epoch(5).is_sorted());
    }
}

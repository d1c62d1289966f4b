//! Repeated augmentation: every sample several times in a row, dealt to different ranks (Berman et al. 2019).
//!
//! Two spellings of one rule: `timm.data.distributed_sampler.RepeatAugSampler` (from DeiT), and `RASampler` of torchvision's reference scripts.
//! Each rank reads floor(n / 256) * 256 / world places of the repeated, padded list; a sample comes back within `repeats` places.
//! Of less than 256 samples timm's ranks read ceil(n / world), torchvision's none.

use crate::order::Shuffle;
use crate::order::mt19937::Mt19937;
use crate::order::torch::randperm;
use crate::types::{Epoch, SampleIndex};

/// Places are selected in multiples of this (both libraries; from DeiT's `main.py`).
const ROUND: u32 = 256;

/// The repeated list as far as ranks read it: dealt one place at a time, without padding.
#[derive(Clone, Debug)]
pub struct RepeatAug {
    pub n: u32,
    pub world: u32,
    /// How often each sample comes, ≥ 1.
    pub repeats: u32,
    /// timm seeds with the epoch alone (0), torchvision with seed + epoch.
    pub seed: u64,
    /// timm's rule for less than 256 samples.
    pub timm: bool,
}

impl RepeatAug {
    /// Places that each rank reads.
    const fn per_rank(&self) -> u32 {
        if self.timm && self.n < ROUND { self.n.div_ceil(self.world) } else { self.n / ROUND * ROUND / self.world }
    }
}

impl Shuffle for RepeatAug {
    fn epoch(&self, epoch: Epoch) -> Vec<SampleIndex> {
        let permutation = randperm(self.n, &mut Mt19937::new(self.seed.wrapping_add(epoch)));
        let repeated = u64::from(self.n) * u64::from(self.repeats);
        // The list is padded from its own start; what is read is mostly shorter than it.
        let place = |place: u64| permutation[usize::try_from(place % repeated / u64::from(self.repeats)).expect("a place below n")];
        (0..u64::from(self.len())).map(place).collect()
    }

    fn len(&self) -> u32 {
        self.per_rank() * self.world
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_comes_in_a_row_and_the_list_is_cut() {
        let augmented = RepeatAug { n: 1000, world: 4, repeats: 3, seed: 0, timm: true };
        let places = augmented.epoch(2);
        assert_eq!(places.len(), 768);
        assert!(places.chunks(3).all(|samples| samples.iter().all(|&sample| sample == samples[0])));
        let few = RepeatAug { n: 10, ..augmented };
        assert_eq!((few.len(), RepeatAug { timm: false, ..few }.len()), (12, 0));
    }
}

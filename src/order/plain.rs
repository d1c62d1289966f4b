//! The order of a loader that does not shuffle: `shuffle=False`, a validation pass, a given list of files.

use crate::order::shard::Shard;
use crate::order::{EpochOrder, Sampler};
use crate::types::{Epoch, SampleIndex};

/// Samples as they are numbered, every epoch.
#[derive(Clone, Debug)]
pub struct Sequential {
    pub n: u32,
    pub shard: Shard,
}

impl Sampler for Sequential {
    fn order(&self, _epoch: Epoch) -> EpochOrder {
        self.shard.deal(self.n, |place| SampleIndex::try_from(place).expect("a place below n, a u32"))
    }

    fn len(&self) -> u64 {
        self.shard.len(self.n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_is_the_listing() {
        let sampler = Sequential { n: 5, shard: Shard::whole() };
        assert_eq!(sampler.order(0).places, [0, 1, 2, 3, 4]);
        assert_eq!(sampler.order(9), sampler.order(0));
        assert_eq!((sampler.len(), sampler.is_empty()), (5, false));
    }
}

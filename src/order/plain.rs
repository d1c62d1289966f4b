//! The order of a loader that does not shuffle: `shuffle=False`, a validation pass, a given list of files.

use crate::order::Shuffle;
use crate::types::{Epoch, SampleIndex};

/// Samples as they are numbered, every epoch.
#[derive(Clone, Debug)]
pub struct Sequential {
    pub n: u32,
}

impl Shuffle for Sequential {
    fn epoch(&self, _epoch: Epoch) -> Vec<SampleIndex> {
        (0..self.n).collect()
    }

    fn len(&self) -> u32 {
        self.n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_is_the_listing() {
        let shuffle = Sequential { n: 5 };
        assert_eq!(shuffle.epoch(0), [0, 1, 2, 3, 4]);
        assert_eq!(shuffle.epoch(9), shuffle.epoch(0));
        assert_eq!((shuffle.len(), shuffle.is_empty()), (5, false));
    }
}

//! After an epoch of a shuffle that settles its first place last: its seed, from the order's end.

use super::super::job::Search;
use super::HITS_MAX;
use crate::dataset::maps::CandidateMap as Map;
use crate::order::again::Again;
use crate::order::infer::backward::{Backward, backward};
use crate::order::infer::exhaustive::ALL_SEEDS;
use crate::order::spec::OrderKind;
use crate::types::SampleIndex;

impl Search<'_> {
    /// After an epoch of a shuffle that settles its first place last: the seed, from the order's end; the epoch after it is compared.
    pub(in crate::infer) fn backward(&mut self, map: &Map) {
        let Some(recorded) = &self.job.recorded else { return };
        let order: Option<Vec<SampleIndex>> = recorded.iter().map(|&file| map.index_of(file)).collect();
        let Some(order) = order.filter(|order| u32::try_from(order.len()) == Ok(map.len())) else { return };
        for (shuffle, kind) in [
            (Backward::Numpy, (|again| OrderKind::NumpyLegacy { again }) as fn(Again) -> OrderKind),
            (Backward::Python, |again| OrderKind::PythonShuffle { again }),
        ] {
            self.tried += ALL_SEEDS.end as f64;
            for seed in backward(shuffle, &order, 0, ALL_SEEDS, self.control, None).into_iter().take(HITS_MAX) {
                for again in [Again::Permutation, Again::InPlace, Again::Reseeded] {
                    let spec = Self::spec(map, kind(again), u64::from(seed));
                    self.prove(map, &spec, 1, &format!("the epoch before was {} with seed {seed}", kind(again)));
                }
            }
            if self.best.is_some() || self.control.stopped() {
                return;
            }
        }
    }
}

//! After an epoch of a shuffle that settles its first place last: its seed, from the order's end.

use super::super::cost;
use super::super::job::Search;
use super::super::maps::MapSet;
use super::{HITS_MAX, MAPS_OF_COSTLY, Price};
use crate::order::again::Again;
use crate::order::infer::backward::{Backward, backward};
use crate::order::infer::exhaustive::ALL_SEEDS;
use crate::order::spec::OrderKind;
use crate::types::SampleIndex;

/// The shuffles, a step each, and how many times as much as torch's seeds theirs cost (`benches/README.md`).
const SHUFFLES: [(Backward, f64); 2] = [(Backward::Numpy, 1.2), (Backward::Python, 4.5)];

/// Core-seconds of both, in one map.
pub(in crate::infer) fn backward_seeds() -> f64 {
    SHUFFLES.iter().map(|(_, times)| times).sum::<f64>() * cost::seeds(ALL_SEEDS.end as f64, 1)
}

const fn kind(shuffle: Backward, again: Again) -> OrderKind {
    match shuffle {
        Backward::Numpy => OrderKind::NumpyLegacy { again },
        Backward::Python => OrderKind::PythonShuffle { again },
    }
}

impl Search<'_> {
    pub(super) fn backward_price(&self, maps: &MapSet) -> Price {
        let Some((_, times)) = SHUFFLES.get(self.step as usize) else { return Price::NotNow };
        let among = maps.computed().len().clamp(1, MAPS_OF_COSTLY) as f64;
        Price::Of(times * among * cost::seeds(ALL_SEEDS.end as f64, 1))
    }

    /// The seed from the order's end; the epoch after it is compared.
    pub(super) fn backward(&mut self, maps: &mut MapSet) {
        let (shuffle, _) = SHUFFLES[self.step as usize];
        let Some(recorded) = &self.job.recorded else { return };
        for map in maps.computed().iter().take(MAPS_OF_COSTLY) {
            if self.is_over() {
                return;
            }
            let order: Option<Vec<SampleIndex>> = recorded.iter().map(|&file| map.index_of(file)).collect();
            let Some(order) = order.filter(|order| u32::try_from(order.len()) == Ok(map.len())) else { continue };
            self.tried += ALL_SEEDS.end as f64;
            for seed in backward(shuffle, &order, 0, ALL_SEEDS, self.control, None).into_iter().take(HITS_MAX) {
                for again in [Again::Permutation, Again::InPlace, Again::Reseeded] {
                    let spec = Self::spec(map, kind(shuffle, again), u64::from(seed));
                    self.prove(map, &spec, 1, &format!("the epoch before was {} with seed {seed}", kind(shuffle, again)));
                }
            }
        }
    }
}

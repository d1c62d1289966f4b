//! `RandomSampler(replacement=True)`: the draws themselves, modulo n, so that files come again within an epoch.

use std::ops::Range;

use super::super::job::Search;
use super::super::torch::{Fronts, USUAL_SEEDS};
use super::HITS_MAX;
use crate::dataset::maps::CandidateMap as Map;
use crate::order::infer::outputs::outputs_of;
use crate::order::mt19937::Mt19937;
use crate::order::spec::OrderKind;
use crate::order::torch::{Count, RandomSource};

impl Search<'_> {
    /// Draws with replacement, by outputs of likely default generators, or by a likely generator that was given. Some nanoseconds each.
    pub(super) fn replaced(&mut self, map: &Map, fronts: &mut Fronts, outputs: Range<u64>) {
        let count = Count { num_samples: None, replacement: true };
        let mut found: Vec<(u64, RandomSource)> = Vec::new();
        for root in USUAL_SEEDS {
            if self.is_over() {
                return;
            }
            let mut default = Mt19937::new(root);
            default.skip(outputs.start);
            let seeds: Vec<u32> = outputs.clone().map(|_| default.random()).collect();
            for ((offset, &seed), first) in outputs.clone().zip(&seeds).zip(outputs_of(&seeds, &[0])) {
                self.tried += 1.0;
                if fronts.is_first_of(first) && fronts.fits_replaced(&mut Mt19937::new(u64::from(seed))) {
                    found.push((root, RandomSource::Default { offset, stride: RandomSource::STRIDE }));
                }
            }
            if outputs.start == 0 {
                let mut given = Mt19937::new(root);
                for source in [RandomSource::Sampler, RandomSource::Loader] {
                    if source == RandomSource::Loader {
                        given.skip(RandomSource::BASE_SEED);
                    }
                    self.tried += 1.0;
                    if fronts.fits_replaced(&mut given.clone()) {
                        found.push((root, source));
                    }
                }
            }
        }
        for (seed, source) in found.into_iter().take(HITS_MAX) {
            self.prove(map, &Self::spec(map, OrderKind::TorchRandom { source, count }, seed), 0, "draws with replacement");
        }
    }
}

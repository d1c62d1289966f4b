//! All 2^32 seeds of torch's generator: met in the middle where that is cheap, one after the other elsewhere. And what a seed found there
//! says of the epochs after.

use super::super::job::{Clue, Search};
use super::HITS_MAX;
use crate::dataset::maps::CandidateMap as Map;
use crate::order::infer::default_generator::{OUTPUTS_OF_COMMON, OUTPUTS_OF_SMALL, locate};
use crate::order::infer::dictionary::{SMALL_SEEDS, common_seeds, targets};
use crate::order::infer::exhaustive::{ALL_SEEDS, Hit, exhaustive};
use crate::order::infer::meet::{Assume, meet};
use crate::order::infer::target::{Layout, Target};
use crate::order::spec::OrderKind;
use crate::order::torch::{Count, RandomSource};

/// Default generators kept as clues for one epoch's seed.
const RIVALS_MAX: usize = 4;

impl Search<'_> {
    pub(in crate::infer) fn meet(&mut self, map: &Map) {
        let sighting = self.job.sighting(map);
        for offset in [0, 2] {
            self.tried += ALL_SEEDS.end as f64;
            let found = meet(&sighting, offset, Assume::Neighbours, self.control);
            let target: Vec<Target> = Target::streams(0, &sighting, offset, Layout::Whole).into_iter().collect();
            self.hits(map, &target, &found.hits, "of all that there are");
            if self.best.is_some() {
                return;
            }
        }
    }

    pub(in crate::infer) fn exhaustive(&mut self, map: &Map) {
        let sighting = self.job.sighting(map);
        let all = targets(std::slice::from_ref(&sighting), 8);
        self.tried += ALL_SEEDS.end as f64 * all.len() as f64;
        let found = exhaustive(&all, ALL_SEEDS, self.control, None);
        self.hits(map, &all, &found.hits, "of all that there are");
    }

    /// Seeds that a search through all of them found. That one is an output of some likely default generator proves nothing: among 10^9
    /// outputs there is one by chance. So the epoch's own seed is told, and the generators are clues, which the next epoch confirms or not.
    pub(super) fn hits(&mut self, map: &Map, targets: &[Target], hits: &[Hit], why: &str) {
        if hits.len() > HITS_MAX {
            return;
        }
        for hit in hits {
            if targets.get(hit.target).is_some_and(|target| target.offset == 2) {
                self.given(map, RandomSource::Loader, u64::from(hit.seed));
            } else if u64::from(hit.seed) < SMALL_SEEDS.end {
                self.fresh(map, hit.seed);
            } else {
                self.one_epoch = true;
                let spec = Self::spec(map, OrderKind::TorchDistributed, u64::from(hit.seed));
                self.prove(map, &spec, 0, &format!("seed {} of this epoch, {why}", hit.seed));
                self.one_epoch = false;
                if self.best.is_some() && self.job.deep {
                    self.rivals(map, hit.seed);
                }
            }
            if self.best.is_some() {
                return;
            }
        }
    }

    /// Default generators that have this output: what the next epoch is compared with.
    fn rivals(&mut self, map: &Map, seed: u32) {
        let mut places = locate(seed, &common_seeds(), OUTPUTS_OF_COMMON, self.control);
        places.extend(locate(seed, &(0..1 << 16).collect::<Vec<u32>>(), OUTPUTS_OF_SMALL, self.control));
        for at in places.into_iter().take(RIVALS_MAX) {
            let source = RandomSource::Default { offset: at.offset, stride: RandomSource::STRIDE };
            let spec = Self::spec(map, OrderKind::TorchRandom { source, count: Count::default() }, u64::from(at.seed));
            self.rivals.push(Clue { spec, epoch: 0, epochs: None });
        }
    }
}

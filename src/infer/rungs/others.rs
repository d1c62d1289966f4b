//! Fixed orders, and shuffles that settle their first place last: a whole order each.

use super::super::job::Search;
use super::super::torch::USUAL_SEEDS;
use crate::dataset::maps::CandidateMap as Map;
use crate::order::spec::OrderSpec;
use crate::types::Epoch;

/// Samples shuffled at most by the rung of other libraries: 2 s of one core at 8 ns each.
const SHUFFLED_MAX: u64 = 1 << 28;
/// Samples of a shard of MosaicML's, as it is tried.
const MOSAIC_SAMPLES: u64 = 1000;
/// Samples of all its shards at most: 4 bytes each, and 30 ms. Datasets of more files are seldom made of shards.
const MOSAIC_MAX: u64 = 1 << 22;
/// Orders without a seed, or whose seed is always the same.
const FIXED: [&str; 5] = [
    "dali",
    "dali:stick_to_shard=true",
    "dlio:loader=files",
    "mosaic:algorithm=py1s:shard_samples=1000:seed=9176",
    "mosaic:shard_samples=1000:seed=9176",
];
/// Orders that a usual seed may make, in their first epoch.
const SEEDED: [&str; 10] = [
    "numpy-legacy",
    "numpy-generator",
    "python-shuffle",
    "python-sample",
    "torch-subset",
    "torchdata",
    "torchdata:workers=2",
    "webdataset",
    "webdataset:deterministic=true",
    "grain",
];
/// Those of them that are tried in later epochs, too.
const AGAIN: [&str; 3] = ["numpy-legacy", "numpy-generator", "python-shuffle"];
/// Seeds of the dictionary's first step.
const FIRST_SEEDS: usize = 10;
/// How many.
const LATER_EPOCHS: Epoch = 4;

impl Search<'_> {
    /// Fixed orders, and shuffles that settle their first place last: a whole order each.
    pub(in crate::infer) fn others(&mut self, map: &Map) {
        let mut left = SHUFFLED_MAX;
        let n = u64::from(map.len());
        let (seeds, later_epochs) = if self.job.deep { (USUAL_SEEDS.len(), LATER_EPOCHS) } else { (FIRST_SEEDS, 1) };
        let fixed = FIXED.iter().map(|text| (0, (*text).to_owned()));
        let seeded = USUAL_SEEDS.into_iter().take(seeds).flat_map(|seed| SEEDED.iter().map(move |text| (0, format!("{text}:seed={seed}"))));
        // Runs that were joined later; in the first epoch all ways to go on are one.
        let later = (1..later_epochs).flat_map(|epoch| {
            USUAL_SEEDS.into_iter().flat_map(move |seed| {
                AGAIN.iter().flat_map(move |kind| {
                    ["permutation", "in-place", "reseeded"].map(|again| (epoch, format!("{kind}:again={again}:seed={seed}")))
                })
            })
        });
        for (epoch, text) in fixed.chain(seeded).chain(later) {
            // A file of MosaicML's is a shard of so many samples, all of which are shuffled.
            let (cost, most) = if text.starts_with("mosaic") { (n * MOSAIC_SAMPLES, MOSAIC_MAX) } else { (n * (epoch + 1), SHUFFLED_MAX) };
            if self.is_over() {
                return;
            }
            if cost > most.min(left) {
                continue;
            }
            left -= cost;
            self.tried += 1.0;
            let Ok(spec) = text.parse::<OrderSpec>() else { continue };
            let named = Self::spec(map, spec.kind, spec.seed);
            let spec = OrderSpec { id: named.id, root: named.root, files: named.files, ..spec };
            self.prove(map, &spec, epoch, &text);
        }
    }
}

//! Fixed orders, and shuffles that settle their first place last: a whole order each.

use super::super::cost;
use super::super::job::Search;
use super::super::maps::MapSet;
use super::super::torch::USUAL_SEEDS;
use super::{MAPS_OF_COSTLY, Price, splits};
use crate::dataset::maps::CandidateMap as Map;
use crate::order::spec::OrderSpec;
use crate::types::Epoch;

/// Samples shuffled at most by a step of this rung in one map: 3 s of one core.
const SHUFFLED_MAX: u64 = 1 << 28;
/// Samples of a shard of MosaicML's, as it is tried.
const MOSAIC_SAMPLES: u64 = 1000;
/// Samples of all its shards at most: 4 bytes each, and 30 ms. Datasets of more files are seldom made of shards.
const MOSAIC_MAX: u64 = 1 << 22;
/// Orders without a seed, or whose seed is always the same.
const FIXED: [&str; 7] = [
    "dali",
    "dali:stick_to_shard=true",
    EACH_EPOCH[0],
    EACH_EPOCH[1],
    "dlio:loader=files",
    "mosaic:algorithm=py1s:shard_samples=1000:seed=9176",
    "mosaic:shard_samples=1000:seed=9176",
];
/// DALI's `shuffle_after_epoch`, from 2.2 on and before.
const EACH_EPOCH: [&str; 2] = ["dali:shuffle_after_epoch=true", "dali:shuffle_after_epoch=true:generator=mt19937"];
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
/// Usual seeds of the steps: 0 and 42, ten, all.
const SEEDS: [usize; 4] = [0, 2, 10, USUAL_SEEDS.len()];
/// How many later epochs.
const LATER_EPOCHS: Epoch = 4;

/// The steps: which seeds from, and whether in the first map or in the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Fixed orders, and the first seeds.
    First,
    Ten,
    /// WebDataset's shards, with any seed that it takes by itself.
    Shards,
    /// Loaders over a part of the dataset.
    Splits,
    All,
    /// What the first steps have, in the other maps.
    OtherMaps,
    /// Runs that were joined later.
    Later,
    /// The rest of it in the other maps.
    Rest,
}

const STEPS: [Step; 8] = [Step::First, Step::Ten, Step::Shards, Step::Splits, Step::All, Step::OtherMaps, Step::Later, Step::Rest];

impl Step {
    /// Epoch and order of each.
    fn orders(self) -> Vec<(Epoch, String)> {
        let seeded = |from: usize, to: usize| {
            let seeds = USUAL_SEEDS[SEEDS[from]..SEEDS[to]].iter();
            seeds.flat_map(|seed| SEEDED.iter().map(move |text| (0, format!("{text}:seed={seed}"))))
        };
        let fixed = || FIXED.iter().map(|text| (0, (*text).to_owned()));
        // In the first epoch all ways to go on are one.
        let later = || {
            (1..LATER_EPOCHS).flat_map(|epoch| {
                let each =
                    EACH_EPOCH.iter().flat_map(move |text| ["in-place", "reseeded"].map(|again| (epoch, format!("{text}:again={again}"))));
                each.chain(USUAL_SEEDS.into_iter().flat_map(move |seed| {
                    AGAIN.iter().flat_map(move |kind| {
                        ["permutation", "in-place", "reseeded"].map(|again| (epoch, format!("{kind}:again={again}:seed={seed}")))
                    })
                }))
            })
        };
        match self {
            Self::First => fixed().chain(seeded(0, 1)).collect(),
            Self::Ten => seeded(1, 2).collect(),
            Self::Shards | Self::Splits => Vec::new(),
            Self::All => seeded(2, 3).collect(),
            Self::OtherMaps => fixed().chain(seeded(0, 2)).collect(),
            Self::Later => later().collect(),
            Self::Rest => seeded(2, 3).chain(later()).collect(),
        }
    }

    /// Samples shuffled for it in a map of so many.
    fn shuffled(self, n: u64) -> u64 {
        if self == Self::Splits {
            return splits::shuffled(n);
        }
        self.orders().iter().filter_map(|(epoch, text)| shuffled(*epoch, text, n)).sum::<u64>().min(SHUFFLED_MAX)
    }
}

/// Samples that are shuffled for one order of `n`; none: too many. A file of MosaicML's is a shard of so many samples, all of which are shuffled.
fn shuffled(epoch: Epoch, text: &str, n: u64) -> Option<u64> {
    let (cost, most) = if text.starts_with("mosaic") { (n * MOSAIC_SAMPLES, MOSAIC_MAX) } else { (n * (epoch + 1), SHUFFLED_MAX) };
    (cost <= most).then_some(cost)
}

impl Search<'_> {
    pub(super) fn others_price(&self, map: &Map, maps: &MapSet) -> Price {
        let Some(&step) = STEPS.get(self.step as usize) else { return Price::NotNow };
        if step == Step::Shards {
            return self.shards_price(map);
        }
        if !self.job.deep && !matches!(step, Step::First | Step::Ten | Step::Splits | Step::OtherMaps) {
            return Price::NotNow;
        }
        let (numbering, among) = self.other_maps(maps);
        let (numbering, times) = if matches!(step, Step::OtherMaps | Step::Rest) { (numbering, among.saturating_sub(1)) } else { (0.0, 1) };
        Price::Of(numbering + times as f64 * cost::samples(step.shuffled(u64::from(map.len())) as f64))
    }

    /// Takes the step that is due.
    pub(super) fn others(&mut self, maps: &mut MapSet) {
        let step = STEPS[self.step as usize];
        if step == Step::Shards {
            return maps.get(0).map_or((), |map| self.shards(&map));
        }
        if step == Step::Splits {
            return maps.get(0).map_or((), |map| self.splits(&map));
        }
        for at in if matches!(step, Step::OtherMaps | Step::Rest) { 1..MAPS_OF_COSTLY } else { 0..1 } {
            let Some(map) = maps.get(at) else { return };
            let mut left = SHUFFLED_MAX;
            for (epoch, text) in step.orders() {
                if self.is_over() {
                    return;
                }
                let Some(cost) = shuffled(epoch, &text, u64::from(map.len())).filter(|&cost| cost <= left) else { continue };
                left -= cost;
                self.tried += 1.0;
                let Ok(spec) = text.parse::<OrderSpec>() else { continue };
                let named = Self::spec(&map, spec.kind, spec.seed);
                let spec = OrderSpec { id: named.id, root: named.root, files: named.files, ..spec };
                self.prove(&map, &spec, epoch, &text);
            }
        }
    }
}

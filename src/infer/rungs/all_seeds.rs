//! All 2^32 seeds of torch's generator: met in the middle where that is cheap, one after the other elsewhere. And what a seed found there
//! says of the epochs after.

use super::super::cost;
use super::super::job::{Clue, Search};
use super::super::maps::{MAPS_MAX, MapSet};
use super::{HITS_MAX, Price};
use crate::dataset::maps::CandidateMap as Map;
use crate::order::infer::Sighting;
use crate::order::infer::default_generator::{OUTPUTS_OF_COMMON, OUTPUTS_OF_SMALL, locate};
use crate::order::infer::dictionary::{SMALL_SEEDS, common_seeds, targets};
use crate::order::infer::exhaustive::{ALL_SEEDS, Hit, exhaustive};
use crate::order::infer::meet::{Assume, meet};
use crate::order::infer::target::{FIRST_PLACES, Layout, Target};
use crate::order::spec::{OrderKind, OrderSpec};
use crate::order::torch::{Count, RandomSource};

/// Default generators kept as clues for one epoch's seed.
const RIVALS_MAX: usize = 4;

/// Steps of the meeting in the middle: outputs that a loader's own generator gave before, what is supposed, and in which maps. To number a large
/// dataset another way takes a second, so the first map has its turn first.
const MEETINGS: [(u32, usize, Among); 10] = [
    (0, 0, Among::First),
    (0, 1, Among::First),
    (0, 2, Among::First),
    (2, 0, Among::First),
    (0, 0, Among::Others),
    (0, 3, Among::All),
    (0, 4, Among::All),
    (2, 1, Among::All),
    (0, 5, Among::All),
    (2, 2, Among::All),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Among {
    First,
    Others,
    All,
}

/// All seeds one after the other may take so many times as long as meeting in the middle under all suppositions.
const MEET_SHARE: f64 = 3.0;

/// First places of ranks here, by step: those of a node's first ranks, then the others of the dictionary. Each costs what an offset does, and every
/// seed that passes its only gate a microsecond.
const FIRST_PLACES_OF: [std::ops::Range<u32>; 2] = [0..8, 8..FIRST_PLACES];

/// Core-seconds of all seeds against one process that reads everything and a node's first ranks.
pub(in crate::infer) fn all_seeds() -> f64 {
    cost::seeds(ALL_SEEDS.end as f64, 2 + FIRST_PLACES_OF[0].len())
}

/// Without processes that opened one or two files: a probe before, no worker.
fn workers(mut sighting: Sighting) -> Sighting {
    let mut opens: Vec<usize> = Vec::new();
    for &(stream, _) in &sighting.opens {
        opens.resize(opens.len().max(stream as usize + 1), 0);
        opens[stream as usize] += 1;
    }
    let number = |stream: u32| u32::try_from(opens[..stream as usize].iter().filter(|&&opens| opens > 2).count()).unwrap_or(u32::MAX);
    sighting.opens = sighting.opens.iter().filter(|open| opens[open.0 as usize] > 2).map(|open| (number(open.0), open.1)).collect();
    sighting
}

impl Search<'_> {
    pub(super) fn meet_price(&self, map: &Map, maps: &MapSet) -> Price {
        let Some(&(offset, part, among)) = MEETINGS.get(self.step as usize) else { return Price::NotNow };
        let triples = Assume::PARTS[part].count(&workers(self.job.sighting(map)), offset);
        let files = u32::try_from(self.job.manifest.len()).unwrap_or(u32::MAX);
        let numbering = if among == Among::First || maps.is_all() { 0.0 } else { cost::maps(files) };
        // those that number alike are one: seldom more than two
        let times = if among == Among::All { maps.computed().len().max(1) } else { 1 };
        let price = numbering + cost::triples(triples * times, map.len());
        // One after the other is surer then, and soon cheaper.
        if self.cost + price > all_seeds() / MEET_SHARE { Price::NotNow } else { Price::Of(price) }
    }

    pub(super) fn meet(&mut self, maps: &mut MapSet) {
        let (offset, part, among) = MEETINGS[self.step as usize];
        let range = match among {
            Among::First => 0..1,
            Among::Others => 1..MAPS_MAX,
            Among::All => 0..MAPS_MAX,
        };
        for at in range {
            let Some(map) = maps.get(at).filter(|_| !self.is_over()) else { return };
            let sighting = workers(self.job.sighting(&map));
            self.tried += ALL_SEEDS.end as f64;
            let found = meet(&sighting, offset, Assume::PARTS[part], self.control);
            let target: Vec<Target> = Target::streams(0, &sighting, offset, Layout::Whole).into_iter().collect();
            self.hits(&map, &target, &found.hits, "of all that there are");
        }
    }

    pub(super) fn exhaustive_price(&self, map: &Map) -> Price {
        let Some(places) = FIRST_PLACES_OF.get(self.step as usize) else { return Price::NotNow };
        let seeds = ALL_SEEDS.end as f64;
        let passing = cost::passing(seeds, places.end - places.start, 2 * self.streams(), map.len(), self.job.opens().len());
        Price::Of(if self.step == 0 { all_seeds() } else { cost::seeds(seeds, places.len()) + passing })
    }

    pub(super) fn exhaustive(&mut self, maps: &mut MapSet) {
        let Some(map) = maps.get(0) else { return };
        let sighting = self.job.sighting(&map);
        let places = FIRST_PLACES_OF[self.step as usize].clone();
        let mut all = targets(std::slice::from_ref(&sighting), if self.step == 0 { places.end } else { 0 });
        let rank = |first_place| Target::streams(0, &sighting, 0, Layout::Ranks { first_place });
        if self.step == 0 {
            // the rank that the environment names as the first of this node
            let told = self.job.told.ranks.as_ref().and_then(|(_, ranks)| ranks.first().copied());
            all.extend(told.filter(|first| !places.contains(first)).and_then(rank));
        } else {
            all = places.filter_map(rank).collect();
        }
        self.tried += ALL_SEEDS.end as f64 * all.len() as f64;
        let found = exhaustive(&all, ALL_SEEDS, self.control, None);
        self.hits(&map, &all, &found.hits, "of all that there are");
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
            }
            if self.best.is_some() {
                return;
            }
        }
    }

    /// Default generators that have the seed of the epoch that is followed now: what the next epoch is compared with.
    pub(in crate::infer) fn origin(&mut self) {
        let Some(followed) = self.job.clues.first() else { return };
        let seed = followed.spec.seed as u32;
        let mut places = locate(seed, &common_seeds(), OUTPUTS_OF_COMMON, self.control);
        places.extend(locate(seed, &(0..1 << 16).collect::<Vec<u32>>(), OUTPUTS_OF_SMALL, self.control));
        for at in places.into_iter().take(RIVALS_MAX) {
            let source = RandomSource::Default { offset: at.offset, stride: RandomSource::STRIDE };
            let kind = OrderKind::TorchRandom { source, count: Count::default() };
            let spec = OrderSpec {
                root: followed.spec.root.clone(),
                files: followed.spec.files.clone(),
                id: followed.spec.id.clone(),
                seed: u64::from(at.seed),
                ..OrderSpec::of(kind)
            };
            self.rivals.push(Clue { spec, epoch: 0, epochs: None });
        }
    }
}

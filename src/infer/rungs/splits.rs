//! Orders over a part of the dataset, chosen by a usual split: `random_split`, or the slices of a list that numpy shuffled.
//!
//! A split is refused by its own permutation: all opens lie between two usual cuts of it, or it is not the one. Only then are the usual seeds of
//! the loader tried, over the part. Costs a whole shuffle for each seed of a split (field notes «orders» §1).

use super::super::job::{Clue, Search};
use super::super::torch::{Fronts, NEAR, USUAL_SEEDS};
use super::{HITS_MAX, PROBES_OF_COSTLY, fronts};
use crate::dataset::maps::CandidateMap as Map;
use crate::order::again::Library;
use crate::order::infer::Sighting;
use crate::order::infer::exhaustive::{Seeds, exhaustive};
use crate::order::mt19937::Mt19937;
use crate::order::numpy::Legacy;
use crate::order::spec::{OrderKind, OrderSpec};
use crate::order::subset::{By, Parts, SplitSeed, Subset};
use crate::order::torch::{Count, RandomSource, outputs_of_randperm, randperm};
use crate::types::SampleIndex;

/// Opens from which a part can be told from the whole, and from a smaller one: of 96 all lie within 0.94 of it once in 400.
const OPENS_LEAST: usize = 96;
/// Samples shuffled at most: all usual seeds at ImageNet's size, 0.5 s.
const SHUFFLED_MAX: u64 = 1 << 26;
/// Seeds, times the two libraries that split.
const SPLITS: u64 = 2 * USUAL_SEEDS.len() as u64;
/// Where a dataset is cut, in percent.
const CUTS: [u32; 16] = [0, 5, 10, 15, 20, 25, 30, 40, 50, 60, 70, 75, 80, 85, 90, 95];
/// Opens are spread over at most this share of the permutation, in percent.
const SPREAD_MOST: u64 = 97;
/// Outputs of a default generator, and permutations straight from it, that are tried over a part.
const OUTPUTS: u64 = 64;
/// Seeds + epochs of a fresh generator over a part, beside the usual seeds.
const FRESH: u32 = 64;
/// ... and those of a distributed run.
const FRESH_DEALT: u32 = 4;
/// How a default generator's epochs may be apart, where they are over a part.
const STRIDES: [u64; 4] = [4, 2, 6, 8];

/// A part, and the opens in its own numbering.
struct Part {
    subset: Subset,
    sighting: Sighting,
    /// Outputs that a split by the default generator took of it, and its seed.
    before: Option<(u64, u64)>,
}

/// Samples that are shuffled for a dataset of so many.
pub(super) fn shuffled(n: u64) -> u64 {
    (n * SPLITS).min(SHUFFLED_MAX)
}

impl Search<'_> {
    /// Usual splits.
    pub(super) fn splits(&mut self, map: &Map) {
        let sighting = self.job.sighting(map);
        let n = map.len();
        if sighting.opens.len() < OPENS_LEAST {
            return;
        }
        let mut left = SHUFFLED_MAX;
        for seed in USUAL_SEEDS {
            for by in [By::Torch, By::NumpyLegacy] {
                if self.is_over() || u64::from(n) > left {
                    return;
                }
                left -= u64::from(n);
                let split = match by {
                    By::Torch => randperm(n, &mut Mt19937::new(seed)),
                    _ => Legacy::seeded(seed).permutation(n),
                };
                for part in parts(&sighting, &split, by, seed) {
                    self.part(map, &part);
                    // random_split without a generator: the loader's seeds come after it from the same one.
                    if by == By::Torch && !self.is_over() {
                        let Subset::Split { parts, part: number, .. } = part.subset else { continue };
                        let subset = Subset::Split { by, seed: SplitSeed::Default, parts, part: number };
                        self.part(map, &Part { subset, before: Some((seed, outputs_of_randperm(n))), ..part });
                    }
                }
            }
        }
    }

    /// The usual seeds over one part.
    fn part(&mut self, map: &Map, part: &Part) {
        let sighting = &part.sighting;
        let roots: Vec<u64> = USUAL_SEEDS.into_iter().filter(|&root| part.before.is_none_or(|(seed, _)| seed == root)).collect();
        let before = part.before.map_or(0, |(_, outputs)| outputs);
        let spec = |kind: OrderKind, seed: u64| OrderSpec { subset: Some(part.subset.clone()), ..Self::spec(map, kind, seed) };
        let default = |root: u64| {
            let mut generator = Mt19937::new(root);
            generator.skip(before);
            generator
        };
        let outputs = |root: &u64| {
            let mut generator = default(*root);
            (0..OUTPUTS).map(|_| generator.random()).collect::<Vec<u32>>()
        };
        let words: Vec<u32> = roots.iter().flat_map(outputs).collect();
        self.tried += 2.0 * words.len() as f64;
        let whole = fronts(sighting, 0, PROBES_OF_COSTLY);
        for hit in exhaustive(&whole, Seeds::List(&words), self.control, None).hits.iter().take(HITS_MAX) {
            let Some(at) = words.iter().position(|&word| word == hit.seed) else { continue };
            let (root, offset) = (roots[at / OUTPUTS as usize], (at % OUTPUTS as usize) as u64);
            let source = RandomSource::Default { offset, stride: RandomSource::STRIDE };
            let kind = OrderKind::TorchRandom { source, count: Count::default() };
            self.prove(map, &spec(kind, root), 0, "the default generator, over a part of the dataset");
        }
        let mut own = Fronts::new(sighting);
        for &root in &roots {
            if self.is_over() {
                return;
            }
            for offset in own.starts_that_fit(&mut default(root), OUTPUTS, &self.control).into_iter().take(HITS_MAX) {
                let kind = OrderKind::TorchSubset { offset, between: RandomSource::BASE_SEED };
                self.prove(map, &spec(kind, root), 0, "permutations of a part of the dataset, straight from the default generator");
            }
        }
        if self.is_over() || part.before.is_some() {
            return;
        }
        let fresh: Vec<u32> = (0..FRESH).chain(USUAL_SEEDS.map(|seed| seed as u32)).collect();
        self.tried += f64::from(FRESH) + USUAL_SEEDS.len() as f64;
        for hit in exhaustive(&whole, Seeds::List(&fresh), self.control, None).hits.iter().take(HITS_MAX) {
            self.prove(map, &spec(OrderKind::TorchDistributed, u64::from(hit.seed)), 0, "a fresh generator, over a part of the dataset");
        }
        for seed in (0..FRESH_DEALT).chain(USUAL_SEEDS.map(|seed| seed as u32)) {
            self.tried += 1.0;
            if !self.is_over() && own.fits_dealt(seed, NEAR) {
                self.prove(map, &spec(OrderKind::TorchDistributed, u64::from(seed)), 0, "a fresh generator, over a part of the dataset");
            }
        }
    }

    /// What a known order over a part does next, or one with replacement: the usual strides, a whole order each.
    pub(super) fn usual_strides(&mut self, map: &Map, clue: &Clue) {
        for stride in STRIDES {
            let kind = match clue.spec.kind {
                OrderKind::TorchRandom { source: RandomSource::Default { offset, stride: before }, count } => {
                    let now = offset + clue.epoch * before;
                    let Some(offset) = now.checked_sub(clue.epoch * stride) else { continue };
                    OrderKind::TorchRandom { source: RandomSource::Default { offset, stride }, count }
                }
                OrderKind::TorchSubset { offset, .. } if clue.epoch == 0 => OrderKind::TorchSubset { offset, between: stride },
                kind if stride == STRIDES[0] => kind,
                _ => continue,
            };
            if self.is_over() {
                return;
            }
            self.tried += 1.0;
            self.prove(map, &OrderSpec { kind, ..clue.spec.clone() }, clue.epoch + 1, "the generator of the epoch before goes on");
        }
    }
}

/// Parts of a split that all opens lie in.
fn parts(sighting: &Sighting, split: &[SampleIndex], by: By, seed: u64) -> Vec<Part> {
    let n = sighting.n;
    let mut opened = vec![0u64; (n as usize).div_ceil(64)];
    for &(_, sample) in &sighting.opens {
        opened[sample as usize / 64] |= 1 << (sample % 64);
    }
    let mut places = std::collections::HashMap::new();
    for (place, &sample) in (0u32..).zip(split) {
        if opened[sample as usize / 64] >> (sample % 64) & 1 == 1 {
            places.insert(sample, place);
        }
    }
    let (Some(&first), Some(&last)) = (places.values().min(), places.values().max()) else { return Vec::new() };
    if u64::from(last - first) * 100 > u64::from(n) * SPREAD_MOST {
        return Vec::new();
    }
    // A cut is rounded down or up.
    let at = |percent: u32| {
        let exact = u64::from(n) * u64::from(percent);
        [exact / 100, exact.div_ceil(100)].map(|cut| u32::try_from(cut).unwrap_or(n))
    };
    let from = CUTS.into_iter().rev().map(at).find(|cuts| cuts[0] <= first).unwrap_or([0; 2]);
    let to = CUTS.into_iter().chain([100]).map(at).find(|cuts| cuts[1] > last).unwrap_or([n; 2]);
    let mut parts: Vec<Part> = Vec::new();
    for from in from {
        for to in to {
            let counts: Vec<u32> = [from, to.saturating_sub(from), n - to].into_iter().filter(|&count| count > 0).collect();
            let subset = Subset::Split { by, seed: SplitSeed::Own(seed), parts: Parts::Counts(counts), part: usize::from(from > 0) };
            if from > first || to <= last || from == 0 && to == n || parts.iter().any(|part| part.subset == subset) {
                continue;
            }
            let opens = sighting.opens.iter().filter_map(|&(stream, sample)| Some((stream, places.get(&sample)? - from))).collect();
            parts.push(Part { subset, sighting: Sighting { n: to - from, opens, ..*sighting }, before: None });
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_read_off_the_places_in_its_split() {
        let n = 1_003;
        let split = randperm(n, &mut Mt19937::new(42));
        let of = |from: usize, to: usize| Sighting {
            n,
            opens: (0..96).map(|at| (0, split[from + at * (to - from) / 96])).collect(),
            streams_known: true,
        };
        let counts = |sighting: &Sighting| {
            let parts = parts(sighting, &split, By::Torch, 42);
            parts.into_iter().map(|part| (part.sighting.n, part.sighting.opens[0].1)).collect::<Vec<_>>()
        };
        // 802.4: cut at 802 or 803
        assert_eq!(counts(&of(0, 802)), [(802, 0), (803, 0)]);
        assert_eq!(counts(&of(803, 1_003)), [(201, 1), (200, 0)]);
        assert_eq!(counts(&of(0, 1_003)), []);
    }
}

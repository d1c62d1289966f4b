//! Numbers that people write as seeds, 117,000 of them, in torch's generators: in milliseconds, whatever n is.
//!
//! As for usual seeds, but in the first places alone: a fresh generator's epoch (`DistributedSampler`, the Trainer), one given to the loader, and
//! the first epochs' seeds that a default generator gives (`DataLoader(shuffle=True)` after `torch.manual_seed`).

use super::super::cost;
use super::super::group::NODE;
use super::super::job::Search;
use super::{HITS_MAX, PROBES_OF_COSTLY, fronts};
use crate::dataset::maps::CandidateMap as Map;
use crate::order::infer::Sighting;
use crate::order::infer::exhaustive::{Seeds, exhaustive};
use crate::order::infer::numbers::{SHORT, numbers};
use crate::order::infer::outputs::outputs_of;
use crate::order::infer::target::{Layout, Target};
use crate::order::torch::RandomSource;

/// Seeds, for prices: some more than there are of five digits.
const SEEDS: f64 = 1.2 * SHORT as f64;
/// First places of ranks that are tried for any readers, and core-seconds that the whole checks for these may take: where files are few and
/// readers many, one seed in some dozen asks for one.
const PLACES: [(u32, f64); 2] = [(8, 0.002), (224, 0.005)];
/// First places beyond, where a node has several ranks: that many are before it, and a multiple of two.
const NODES: std::ops::Range<u32> = 0..512;

/// Files of a rank, at least: fewer are no epoch that is worth a search.
const FILES_OF_RANK: u32 = 16;

/// Which of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// What scripts do.
    First,
    /// Ranks of larger worlds.
    Ranks,
    /// Loaders that were begun later.
    Later,
}

impl Part {
    /// Outputs of a default generator that may be an epoch's seed: the low words of what is drawn as 64 bits. Without a loader's base seed before,
    /// after it, and after a validation loader's, too; later up to the eighth epoch's.
    fn outputs(self) -> Vec<u32> {
        match self {
            Self::First => vec![1, 3, 5],
            Self::Ranks => Vec::new(),
            Self::Later => (7..32).step_by(2).collect(),
        }
    }

    /// First places of ranks, from 0 on.
    fn places(self, n: u32, streams: usize, opens: usize) -> u32 {
        let (most, seconds) = match self {
            Self::First => PLACES[0],
            Self::Ranks => PLACES[1],
            Self::Later => return 0,
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most as many as there are")]
        let paid = (seconds / cost::passing(SEEDS, 1, streams, n, opens)).min(f64::from(most)) as u32;
        paid.min(n / FILES_OF_RANK)
    }

    /// First ranks of nodes, beyond these places.
    fn nodes(self, n: u32, streams: usize, places: u32) -> impl Iterator<Item = u32> {
        let is_node = self == Self::Ranks && streams >= NODE as usize;
        NODES.step_by(2).filter(move |&first| is_node && (places..n / FILES_OF_RANK).contains(&first))
    }
}

impl Search<'_> {
    pub(super) fn numbers_price(&self, n: u32, part: Part) -> f64 {
        let (streams, opens) = (self.streams(), self.job.opens().len());
        let places = part.places(n, streams, opens);
        let outputs = part.outputs().len();
        let of_default = if outputs == 0 { 0.0 } else { cost::seeds(SEEDS, 1) * (1 + outputs) as f64 };
        let nodes = part.nodes(n, streams, places).count();
        // a second file must pass, too
        let second = nodes as f64 * streams as f64 / f64::from(n);
        let passing = cost::passing(SEEDS, 1, streams, n, opens) * (f64::from(places) + second);
        of_default + cost::seeds(SEEDS, 3 + places as usize + 2 * nodes) + passing
    }

    pub(super) fn numbers(&mut self, map: &Map, sighting: &Sighting, part: Part) {
        let seeds = numbers();
        let whole = fronts(sighting, 0, PROBES_OF_COSTLY);
        let dealt = |first_place| Target::streams(0, sighting, 0, Layout::Ranks { first_place });
        let node = |first_place| Target::streams(0, sighting, 0, Layout::Node { first_place });
        let places = part.places(sighting.n, self.streams(), self.job.opens().len());
        // ... and the rank that the environment names as the first of this node
        let told = self.job.told.ranks.as_ref().and_then(|(_, ranks)| ranks.first().copied()).filter(|&first| first >= places);
        let mut all: Vec<Target> =
            (0..places).chain(told).filter_map(dealt).chain(part.nodes(sighting.n, self.streams(), places).filter_map(node)).collect();
        if part == Part::First {
            all.extend(whole.iter().cloned().chain(fronts(sighting, 2, PROBES_OF_COSTLY)));
        }
        self.tried += (seeds.len() * all.len()) as f64;
        let found = exhaustive(&all, Seeds::List(&seeds), self.control, None);
        if found.hits.len() <= HITS_MAX {
            for hit in found.hits {
                match all[hit.target].offset {
                    0 => self.fresh(map, hit.seed),
                    _ => self.given(map, RandomSource::Loader, u64::from(hit.seed)),
                }
                if self.best.is_some() {
                    return;
                }
            }
        }
        let outputs = part.outputs();
        if outputs.is_empty() {
            return;
        }
        let words = outputs_of(&seeds, &outputs);
        self.default_seeds(map, &whole, &words, |at| (seeds[at % seeds.len()], u64::from(outputs[at / seeds.len()])));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_ranks_are_tried_as_cost_little() {
        let places = |n, streams, opens| [Part::First, Part::Ranks].map(|part| part.places(n, streams, opens));
        let [[first, more], [few, some]] = [places(1_281_167, 4, 512), places(1_000, 16, 64)];
        assert!(first == 8 && more > 128 && few < 2 && (1..8).contains(&some), "{first} {more} {few} {some}");
        let last = |n, streams| Part::Ranks.nodes(n, streams, some).last();
        assert_eq!((last(20_000, 8), last(1_000, 8), last(20_000, 2)), (Some(510), Some(60), None));
        assert_eq!(Part::First.outputs()[0], RandomSource::FIRST_SEED as u32);
    }
}

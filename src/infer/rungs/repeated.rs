//! Repeated augmentation: a permutation in which every sample comes three times, dealt to ranks place by place.
//!
//! Where the world is no multiple of three a rank's steps along the permutation differ by one, so its world is read off several of them.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::super::job::Search;
use crate::dataset::maps::CandidateMap as Map;
use crate::order::mt19937::Mt19937;
use crate::order::spec::{OrderKind, OrderSpec};
use crate::order::torch::randperm;
use crate::types::{Epoch, Rank};

/// What both libraries repeat by default.
pub(super) const REPEATS: u32 = 3;
/// Opens of a stream that are looked at: they are of one batch.
const LOOKED_AT: usize = 8;
/// ... and as many are needed.
const OPENS_LEAST: usize = 5;

impl Search<'_> {
    /// One epoch of such an order; world and ranks are read off the opens, and only some worlds are of interest.
    pub(in crate::infer) fn repeated(
        &mut self,
        map: &Map,
        kind: OrderKind,
        seed: u64,
        epoch: Epoch,
        why: &str,
        is_wanted: impl Fn(u32) -> bool,
    ) {
        let n = map.len();
        let sum = if matches!(kind, OrderKind::TimmRepeatAug { .. }) { epoch } else { seed.wrapping_add(epoch) };
        let sighting = self.job.sighting(map);
        if !sighting.streams_known || n < 2 {
            return;
        }
        let opened: HashSet<u32> = sighting.opens.iter().map(|&(_, sample)| sample).collect();
        let order = randperm(n, &mut Mt19937::new(sum));
        let place_of: HashMap<u32, u32> = order.into_iter().zip(0..).filter(|(sample, _)| opened.contains(sample)).collect();
        let mut streams: Vec<Vec<u32>> = Vec::new();
        for (stream, sample) in &sighting.opens {
            let at = *stream as usize;
            if at >= streams.len() {
                streams.resize(at + 1, Vec::new());
            }
            streams[at].extend(place_of.get(sample));
        }
        let Some((world, ranks)) = ranks(&streams).filter(|&(world, _)| is_wanted(world)) else { return };
        let spec = OrderSpec { world, ranks, ..Self::spec(map, kind, seed) };
        self.confirm(map, spec, epoch, why);
    }
}

/// World and ranks, from each stream's places in the permutation.
fn ranks(streams: &[Vec<u32>]) -> Option<(u32, Vec<Rank>)> {
    let fronts: Vec<&[u32]> =
        streams.iter().filter(|stream| stream.len() >= OPENS_LEAST).map(|all| &all[..all.len().min(LOOKED_AT)]).collect();
    // World → for each stream its places in the repeated list.
    let mut fitting: HashMap<u32, Vec<(usize, u32)>> = HashMap::new();
    for (at, places) in fronts.iter().enumerate() {
        let steps = places.len() as u32 - 1;
        let Some(all) = places[places.len() - 1].checked_sub(places[0]).filter(|&all| all > 0) else { continue };
        let (least, most) = ((REPEATS * all).saturating_sub(REPEATS - 1).div_ceil(steps), (REPEATS * all + REPEATS - 1) / steps);
        for world in least.max(2)..=most {
            for first in places[0] * REPEATS..(places[0] + 1) * REPEATS {
                if (0u32..).zip(*places).all(|(step, &place)| (first + world * step) / REPEATS == place) {
                    fitting.entry(world).or_default().push((at, first));
                }
            }
        }
    }
    let streams_of = |fits: &Vec<(usize, u32)>| fits.iter().map(|(at, _)| at).collect::<BTreeSet<_>>().len();
    let (world, fits) = fitting.into_iter().max_by_key(|(world, fits)| (streams_of(fits), std::cmp::Reverse(*world)))?;
    if streams_of(&fits) * 4 < fronts.len() * 3 {
        return None;
    }
    // Ranks that read the same samples cannot be told apart, and need not be: each stream gets one of its own.
    let mut taken: HashSet<u32> = HashSet::new();
    let mut ranks = BTreeSet::new();
    for at in 0..fronts.len() {
        let own = || fits.iter().filter(|fit| fit.0 == at).map(|fit| fit.1);
        if let Some(first) = own().find(|first| !taken.contains(first)).or_else(|| own().next()) {
            taken.insert(first);
            ranks.insert(first % world);
        }
    }
    Some((world, ranks.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn world_and_ranks_are_read_off_uneven_steps() {
        for (world, here) in [(2u32, 0..2), (4, 0..4), (8, 0..8), (8, 5..6), (16, 8..16), (32, 3..4)] {
            let stream = |rank: u32, from: u32| (from..from + 12).map(|step| (rank + world * step) / REPEATS).collect::<Vec<_>>();
            // two workers with batches of 16
            let streams: Vec<_> = here.clone().flat_map(|rank| [stream(rank, 0), stream(rank, 16)]).collect();
            assert_eq!(ranks(&streams), Some((world, here.collect())), "{world}");
        }
        assert_eq!(ranks(&[(0..12).map(|at| at * at).collect()]), None);
    }
}

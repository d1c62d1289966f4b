//! Likely generators: small seeds for torch, the outputs of likely default generators, and any other generator by a whole order each.
//!
//! Source: field notes «orders» §0, §5, §6 (ladder, rung 4). Costs: seeds 0..2^22 for torch at 64 first places 1 to 6 core-seconds (the
//! smaller n and the more streams, the more); 150 common default seeds × 65,536 outputs 0.1; another generator's candidate one whole shuffle (5 n ns) each.
//!
//! Not here: all 2^32 seeds (`exhaustive`), and what the other generators' shuffles are: a closure brings them.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::exhaustive::HITS_MAX;
use super::fit::{Fit, fit_whole};
use super::target::{FIRST_PLACES, Layout, Target};
use super::{Control, Sighting};
use crate::order::mt19937::Mt19937;
use crate::types::SampleIndex;

/// Seeds that people or sums of seed and epoch or rank give.
pub const SMALL_SEEDS: Range<u64> = 0..1 << 22;

/// Seeds beyond 0..100 that scripts are known to use.
const FAVOURITES: [u32; 50] = [
    111,
    123,
    128,
    200,
    222,
    233,
    256,
    300,
    314,
    321,
    333,
    400,
    404,
    420,
    444,
    500,
    512,
    555,
    600,
    666,
    700,
    777,
    800,
    888,
    900,
    999,
    1000,
    1001,
    1024,
    1111,
    1234,
    1337,
    2018,
    2019,
    2020,
    2021,
    2022,
    2023,
    2024,
    2025,
    2026,
    2048,
    3407,
    4096,
    5678,
    10_000,
    12_345,
    31_337,
    123_456,
    // an unseeded torch.Generator(): the low word of 67280421310721
    (67_280_421_310_721u64 & 0xffff_ffff) as u32,
];

/// The 150 seeds most worth trying at length: 0 to 99 and well-known others.
#[must_use]
pub fn common_seeds() -> Vec<u32> {
    (0..100).chain(FAVOURITES).collect()
}

/// All targets worth trying at an epoch's start for each sighting: torch's sampler alone and DataLoader's own generator (offset 2), read whole
/// or by some ranks of a distributed run; streams not known: the unordered form. `first_places`: first ranks of this node to try, up to
/// [`FIRST_PLACES`]; 0 leaves distributed runs out. The right seed
/// may hit under neighbouring first places too (one open counted as a stray): the fit with the largest ratio is the one.
#[must_use]
pub fn targets(sightings: &[Sighting], first_places: u32) -> Vec<Target> {
    let mut targets = Vec::new();
    for (index, sighting) in sightings.iter().enumerate() {
        for offset in [0, 2] {
            if sighting.streams_known {
                targets.extend(Target::streams(index, sighting, offset, Layout::Whole));
            } else {
                targets.extend(Target::unordered(index, sighting, offset));
            }
        }
        // DistributedSampler always takes a fresh generator.
        for first_place in 0..first_places.min(FIRST_PLACES) {
            targets.extend(Target::streams(index, sighting, 0, Layout::Ranks { first_place }));
        }
    }
    targets
}

/// The first `outputs` outputs of the default generator under each seed: candidates for an epoch's own seed, for
/// [`super::exhaustive::Seeds::List`]. 4 bytes each.
#[must_use]
pub fn epoch_seeds(seeds: &[u32], outputs: u32) -> Vec<u32> {
    let mut all = Vec::with_capacity(seeds.len() * outputs as usize);
    for &seed in seeds {
        let mut generator = Mt19937::new(u64::from(seed));
        all.extend((0..outputs).map(|_| generator.random()));
    }
    all
}

/// A candidate's fit to one sighting.
#[derive(Clone, Debug, PartialEq)]
pub struct WholeFit {
    /// Index into the sightings.
    pub sighting: usize,
    pub candidate: u64,
    pub fit: Fit,
}

/// Opens of a sighting that must lie in the order for a fit: all but one in 16 (what goes back in its stream has no place).
const PLACED_SHARE: f64 = 15.0 / 16.0;

/// Tries `candidates`, each with its whole order: `order(candidate, n, places)` fills `places` (empty when called) with the order of `n`
/// samples; leaving it empty means there is none. Finds resumed runs too, at any place. Returns those that are proven against chance given the number of
/// candidates, the best first, at most [`HITS_MAX`]. Costs one order and one pass over it for each candidate and distinct n.
pub fn whole_orders(
    sightings: &[Sighting],
    candidates: Range<u64>,
    control: Control<'_>,
    order: impl Fn(u64, u32, &mut Vec<SampleIndex>) + Sync,
) -> Vec<WholeFit> {
    let tried = (candidates.end.saturating_sub(candidates.start)) as f64 * sightings.len() as f64;
    let next = AtomicU64::new(candidates.start);
    let found = Mutex::new(Vec::new());
    let work = || {
        let mut places: Vec<SampleIndex> = Vec::new();
        while !control.stopped() {
            let candidate = next.fetch_add(1, Ordering::Relaxed);
            if candidate >= candidates.end {
                return;
            }
            let mut filled_for = None;
            for (index, sighting) in sightings.iter().enumerate() {
                if filled_for != Some(sighting.n) {
                    places.clear();
                    order(candidate, sighting.n, &mut places);
                    filled_for = Some(sighting.n);
                }
                if places.is_empty() {
                    continue;
                }
                let fit = fit_whole(sighting, &places);
                if f64::from(fit.placed) >= PLACED_SHARE * sighting.opens.len() as f64 && fit.proven(tried) {
                    let mut found = found.lock().expect("no thread panics with the lock");
                    if found.len() < HITS_MAX {
                        found.push(WholeFit { sighting: index, candidate, fit });
                    }
                }
            }
        }
    };
    control.on_all_threads(work);
    let mut found = found.into_inner().expect("no thread panics with the lock");
    found.sort_by(|a: &WholeFit, b| b.fit.log_ratio.total_cmp(&a.fit.log_ratio).then(a.candidate.cmp(&b.candidate)));
    found
}

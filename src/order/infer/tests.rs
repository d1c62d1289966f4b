//! Searches against recorded runs and against simulated DataLoaders.

use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

use super::dictionary::{common_seeds, epoch_seeds, targets, whole_orders};
use super::exhaustive::{Found, Seeds, exhaustive};
use super::fit::{Fit, fit};
use super::target::{Layout, Target};
use super::{Control, Sighting};
use crate::order::again::Library;
use crate::order::mt19937::Mt19937;
use crate::order::numpy::Legacy;
use crate::order::torch::randperm;
use crate::types::SampleIndex;

/// A run's first opens.
fn recorded(name: &str, opens: usize) -> Sighting {
    let text = include_str!("../../../tests/golden/recorded_opens.tsv");
    let rows = text.lines().map(|line| line.split('\t').collect::<Vec<_>>()).filter(|row| row[0] == name);
    let opens = rows.take(opens).map(|row| (row[1].parse().unwrap(), row[2].parse().unwrap())).collect();
    Sighting { n: 2000, opens, streams_known: true }
}

fn search<'a>(targets: &[Target], seeds: impl Into<Seeds<'a>>) -> Found {
    let go = AtomicBool::new(false);
    exhaustive(targets, seeds, Control { stop: &go, threads: 2 }, None)
}

/// `seeds` from 2^15 before a seed to 2^15 after it.
fn around(seed: u32) -> std::ops::Range<u64> {
    u64::from(seed.saturating_sub(1 << 15))..u64::from(seed) + (1 << 15)
}

#[test]
fn a_seeded_scripts_epochs_are_found_in_the_default_generators_outputs() {
    for (name, manual_seed, workers) in [("seed42-workers0", 42, 1), ("seed42-workers2", 42, 2), ("seed123456-workers4", 123_456, 4)] {
        // A small model was initialised before: the epoch's seed is output 13,005 of the default generator.
        let seeds = epoch_seeds(&[manual_seed], 1 << 14);
        let sighting = recorded(name, 128);
        let found = search(&[Target::streams(0, &sighting, 0, Layout::Whole).unwrap()], Seeds::List(&seeds));
        let [hit] = &found.hits[..] else { panic!("{name}: {} hits", found.hits.len()) };
        assert_eq!(seeds.iter().position(|&seed| seed == hit.seed), Some(13_005), "{name}");
        let fit = fit(&sighting, &hit.places);
        assert_eq!((fit.placed, fit.world, &fit.ranks[..], fit.first_step), (128, Some(1), &[0][..], 0), "{name}");
        assert_eq!(fit.workers, Some(workers), "{name}");
        assert_eq!(fit.batch, (workers > 1).then_some(32), "{name}");
        assert!(fit.proven(2f64.powi(32)), "{name}: {}", fit.log_ratio);
        // All further opens are where the order says.
        let later = recorded(name, 300);
        let whole = super::fit::fit_whole(&later, &randperm(2000, &mut Mt19937::new(u64::from(hit.seed))));
        assert_eq!(whole.placed, 300, "{name}");
    }
    assert_eq!(common_seeds().len(), 150);
}

/// The unseeded run's seed, found by a search of all 2^32.
const UNSEEDED: u32 = 3_929_339_167;

#[test]
fn an_unseeded_run_is_found_by_search() {
    let sighting = recorded("unseeded-workers2", 40);
    let both = [Target::streams(0, &sighting, 0, Layout::Whole).unwrap(), Target::streams(0, &sighting, 2, Layout::Whole).unwrap()];
    let found = search(&both, around(UNSEEDED));
    let seeds: Vec<_> = found.hits.iter().map(|hit| (hit.target, hit.seed)).collect();
    assert_eq!(seeds, [(0, UNSEEDED)]);
    let unordered = Sighting { streams_known: false, ..recorded("unseeded-workers2", 128) };
    let found = search(&[Target::unordered(0, &unordered, 0).unwrap()], around(UNSEEDED));
    assert_eq!(found.hits.iter().map(|hit| hit.seed).collect::<Vec<_>>(), [UNSEEDED]);
}

/// How a simulated job reads.
#[derive(Clone, Copy, Debug)]
struct Job {
    n: u32,
    batch: usize,
    workers: usize,
    world: usize,
    /// First rank here and how many.
    ranks: (usize, usize),
}

/// The first `count` opens of DataLoaders: each worker has its next two batches to read; a random one that has something left opens its next
/// file. Workers start one after the other, a few opens apart. Batches are handed on in order, as the parent process takes them.
fn simulate(job: Job, order: &[SampleIndex], dice: u32, count: usize) -> Vec<(u32, SampleIndex)> {
    let mut dice = Mt19937::new(u64::from(dice));
    let workers = job.workers.max(1);
    // By (rank, worker): places left to read, rising.
    let mut queues: Vec<std::collections::VecDeque<(usize, SampleIndex)>> = vec![Default::default(); job.ranks.1 * workers];
    for rank in 0..job.ranks.1 {
        let dealt = order.iter().skip(job.ranks.0 + rank).step_by(job.world).enumerate();
        for (step, &sample) in dealt {
            let batch = step / job.batch;
            queues[rank * workers + batch % workers].push_back((batch, sample));
        }
    }
    let start: Vec<usize> = (0..queues.len()).map(|queue| if queue == 0 { 0 } else { (dice.random() % 24) as usize }).collect();
    let mut streams = vec![None; queues.len()];
    let mut seen = 0;
    let mut opens = Vec::new();
    let mut tries = 0;
    while opens.len() < count && queues.iter().any(|queue| !queue.is_empty()) {
        tries += 1;
        let pick = dice.random() as usize % queues.len();
        // The oldest batch of the rank that is still being read holds the others back.
        let rank = pick / workers;
        let oldest = queues[rank * workers..(rank + 1) * workers].iter().filter_map(|queue| queue.front()).map(|front| front.0).min();
        let Some(&(batch, sample)) = queues[pick].front() else { continue };
        if tries < start[pick] || batch >= oldest.unwrap_or(0) + 2 * workers {
            continue;
        }
        queues[pick].pop_front();
        let stream = *streams[pick].get_or_insert_with(|| {
            seen += 1;
            seen - 1
        });
        opens.push((stream, sample));
    }
    opens
}

fn sighting_of(job: Job, seed: u32, opens: usize) -> Sighting {
    let order = randperm(job.n, &mut Mt19937::new(u64::from(seed)));
    Sighting { n: job.n, opens: simulate(job, &order, seed ^ 0x5eed, opens), streams_known: true }
}

fn whole(n: u32, batch: usize, workers: usize) -> Job {
    Job { n, batch, workers, world: 1, ranks: (0, 1) }
}

fn seed_of(round: u32) -> u32 {
    round.wrapping_mul(0x9e37_79b9).wrapping_add(77)
}

/// What a fit must say of a job whose opens it has.
fn check_fit(job: Job, sighting: &Sighting, fit: &Fit) {
    assert_eq!(fit.placed as usize, sighting.opens.len(), "{job:?}");
    assert!(fit.proven(2f64.powi(32) * 64.0), "{job:?}: {}", fit.log_ratio);
    assert_eq!(fit.world, Some(job.world as u32), "{job:?}");
    assert_eq!(fit.ranks, (job.ranks.0..job.ranks.0 + job.ranks.1).map(|rank| rank as u32).collect::<Vec<_>>(), "{job:?}");
    if let Some(batch) = fit.batch {
        assert_eq!(batch as usize, job.batch, "{job:?}");
        assert_eq!(fit.workers, Some(job.workers.max(1) as u32), "{job:?}");
    }
}

/// The table of field notes «orders» §5: 20 seeds each, found after 128 opens.
#[test]
fn simulated_loaders_are_found_after_128_opens() {
    let jobs = [
        whole(1000, 2, 4),
        whole(1000, 32, 0),
        whole(1000, 32, 2),
        whole(1000, 32, 4),
        whole(10_000, 32, 0),
        whole(10_000, 32, 2),
        whole(10_000, 32, 8),
        whole(100_000, 64, 4),
        whole(100_000, 128, 2),
        whole(100_000, 256, 8),
    ];
    for job in jobs {
        for round in 0..20 {
            let seed = seed_of(round);
            let sighting = sighting_of(job, seed, 128);
            let unordered = Sighting { streams_known: false, ..sighting.clone() };
            let targets = [Target::streams(0, &sighting, 0, Layout::Whole).unwrap(), Target::unordered(0, &unordered, 0).unwrap()];
            let found = search(&targets, u64::from(seed.saturating_sub(300))..u64::from(seed) + 300);
            let seeds: Vec<_> = found.hits.iter().map(|hit| (hit.target, hit.seed)).collect();
            assert_eq!(seeds, [(0, seed), (1, seed)], "{job:?}");
            check_fit(job, &sighting, &fit(&sighting, &found.hits[0].places));
        }
    }
}

/// Some ranks of a distributed job, the seed small: world, ranks, batch and workers are read off.
#[test]
fn ranks_of_a_distributed_job_are_found() {
    for (n, batch, workers, world, ranks, count) in
        [(1000, 8, 2, 8, (3, 1), 60), (1000, 4, 2, 8, (0, 8), 160), (10_000, 16, 2, 16, (8, 4), 160), (100_000, 32, 1, 64, (5, 1), 40)]
    {
        let job = Job { n, batch, workers, world, ranks };
        for round in 0..5 {
            let seed = 1000 * round + 7;
            let sighting = [sighting_of(job, seed, count)];
            // One first place more than needed on either side.
            let first = ranks.0 as u32;
            let wanted: Vec<Target> = targets(&sighting, 64)
                .into_iter()
                .filter(|target| matches!(target.layout, Layout::Ranks { first_place } if first_place.abs_diff(first) <= 1))
                .collect();
            let found = search(&wanted, u64::from(seed.saturating_sub(100))..u64::from(seed) + 100);
            let right: Vec<_> = found.hits.iter().filter(|hit| wanted[hit.target].layout == Layout::Ranks { first_place: first }).collect();
            assert_eq!(right.iter().map(|hit| hit.seed).collect::<Vec<_>>(), [seed], "{job:?}");
            check_fit(job, &sighting[0], &fit(&sighting[0], &right[0].places));
        }
    }
}

/// Any generator, any place in the epoch: here numpy's, joined in the middle.
#[test]
fn a_resumed_run_of_another_library_is_found_by_whole_orders() {
    let order = Legacy::seeded(123).permutation(500);
    let late: Vec<SampleIndex> = order[200..].to_vec();
    let opens = simulate(whole(500, 10, 2), &late, 1, 40);
    let sightings = [
        Sighting { n: 500, opens: opens.iter().map(|&(stream, sample)| (stream, 499 - sample)).collect(), streams_known: true },
        Sighting { n: 500, opens, streams_known: true },
    ];
    let go = AtomicBool::new(false);
    let control = Control { stop: &go, threads: 2 };
    let found = whole_orders(&sightings, 0..200, control, |seed, n, places| places.extend(Legacy::seeded(seed).permutation(n)));
    assert_eq!(found.iter().map(|found| (found.sighting, found.candidate)).collect::<Vec<_>>(), [(1, 123)]);
    let fit = &found[0].fit;
    assert_eq!((fit.placed, fit.world, fit.first_step, fit.batch, fit.workers), (40, Some(1), 200, Some(10), Some(2)));
}

/// A few opens that are none of the order do no harm, many do.
#[test]
fn strays_are_tolerated_up_to_one_in_64() {
    let seed = 4242;
    let clean = sighting_of(whole(10_000, 32, 2), seed, 128);
    for (strays, found_it) in [(0, true), (1, true), (2, true), (8, false)] {
        let mut sighting = clean.clone();
        for stray in 0..strays {
            sighting.opens[20 + 12 * stray].1 = 9_990 - stray as u32;
        }
        let found = search(&[Target::streams(0, &sighting, 0, Layout::Whole).unwrap()], 4200..4300);
        assert_eq!(found.hits.iter().any(|hit| hit.seed == seed), found_it, "{strays} strays");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn a_planted_seed_is_found_in_any_slice_with_any_maps(
        n in 300u32..60_000, seed: u32, before in 0u32..1 << 12, maps in 1usize..5, right in 0usize..5, offset in 0u32..120, front: bool,
    ) {
        let right = right % maps;
        let mut generator = Mt19937::new(u64::from(seed));
        generator.skip(u64::from(offset));
        let order = randperm(n, &mut generator);
        let map = |map: usize| -> Sighting {
            let shift = if map == right { 0 } else { 1 + map as u32 };
            let opens = order[..24].iter().map(|&sample| (0, (sample + shift) % n)).collect();
            Sighting { n, opens, streams_known: true }
        };
        let targets: Vec<Target> = (0..maps)
            .map(|index| {
                let sighting = map(index);
                let samples: Vec<_> = sighting.opens.iter().map(|open| open.1).collect();
                if front { Target::prefix(index, n, &samples, offset) } else { Target::streams(index, &sighting, offset, Layout::Whole) }
            })
            .collect::<Option<_>>()
            .unwrap();
        let start = u64::from(seed.saturating_sub(before));
        let found = search(&targets, start..start + (1 << 12) + 1);
        prop_assert_eq!(found.hits.iter().map(|hit| (targets[hit.target].sighting, hit.seed)).collect::<Vec<_>>(), [(right, seed)]);
    }
}

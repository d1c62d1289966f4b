//! Every seed of a range, up to all 2^32 of torch's generators.
//!
//! Source: field notes «orders» §5a. Costs: 397 steps a seed; `benches/README.md` has the seeds per core-second of each code path.
//! A search takes any number of targets at once (maps, offsets, first places): they share the steps.
//!
//! Not here: shortcuts for large n (`meet`), which seeds are likely (`dictionary`), and at which priority it runs: a caller may run it in
//! slices of the range.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Control;
use super::lanes::{CodePath, LANES, Lanes};
use super::replay::Replay;
use super::sieve::Sieve;
use super::target::Target;

/// All seeds.
pub const ALL_SEEDS: Range<u64> = 0..1 << 32;
/// Hits that are kept. More of them mean that the opens were too few, and none of them is to be believed.
pub const HITS_MAX: usize = 4096;
/// Seeds that a thread takes at a time: 1 ms to 10 ms, after which it looks whether to stop.
const SLICE: u64 = 1 << 16;

/// A seed whose order agrees with a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Index into the targets.
    pub target: usize,
    pub seed: u32,
    /// Place in the order of each open of the sighting (for a prefix: of each place given), None for a stray one.
    pub places: Vec<Option<u32>>,
}

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// By target, then seed; several when the opens allow several.
    pub hits: Vec<Hit>,
    /// Hits beyond [`HITS_MAX`] were dropped.
    pub overflow: bool,
    /// The whole range was tried: it was not stopped.
    pub complete: bool,
}

/// Which seeds to try.
#[derive(Clone, Debug)]
pub enum Seeds<'a> {
    /// Within [`ALL_SEEDS`]; what lies outside is left off.
    Range(Range<u64>),
    List(&'a [u32]),
}

impl Seeds<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::Range(range) => range.end.min(ALL_SEEDS.end).saturating_sub(range.start),
            Self::List(list) => list.len() as u64,
        }
    }

    /// The block that begins at number `at`; lanes beyond the end repeat or go on, and do not count.
    fn block(&self, at: u64) -> Lanes {
        match self {
            Self::Range(range) => Lanes::from((range.start + at) as u32),
            Self::List(list) => {
                let mut lanes = Lanes::ZERO;
                let at = usize::try_from(at).expect("a place in a slice");
                lanes.0.iter_mut().zip(&list[at..]).for_each(|(lane, &seed)| *lane = seed);
                lanes
            }
        }
    }
}

impl From<Range<u64>> for Seeds<'_> {
    fn from(range: Range<u64>) -> Self {
        Self::Range(range)
    }
}

/// Tries seeds against all targets. `progress`, if given, is raised by the seeds tried.
#[must_use]
pub fn exhaustive<'a>(targets: &[Target], seeds: impl Into<Seeds<'a>>, control: Control<'_>, progress: Option<&AtomicU64>) -> Found {
    exhaustive_by(CodePath::best(), targets, &seeds.into(), control, progress)
}

/// The same by a code path of the caller's choice (for measurements; a path this processor lacks falls back to the portable one).
#[must_use]
pub fn exhaustive_by(path: CodePath, targets: &[Target], seeds: &Seeds<'_>, control: Control<'_>, progress: Option<&AtomicU64>) -> Found {
    if targets.is_empty() {
        return Found { complete: true, ..Found::default() };
    }
    let total = seeds.len();
    let most = targets.iter().map(Target::n).max().unwrap_or(0);
    let sieve = Sieve::new(targets, path);
    let next = AtomicU64::new(0);
    let found = Mutex::new(Found { complete: true, ..Found::default() });
    let work = || {
        let mut scratch = sieve.scratch();
        let mut replay = Replay::new(most);
        loop {
            if control.stopped() {
                found.lock().expect("no thread panics with the lock").complete = false;
                return;
            }
            let start = next.fetch_add(SLICE, Ordering::Relaxed);
            if start >= total {
                return;
            }
            let end = total.min(start + SLICE);
            for first in (start..end).step_by(LANES) {
                let block = seeds.block(first);
                sieve.block(&block, &mut scratch, |target, lane| {
                    if first + lane as u64 >= end {
                        return;
                    }
                    let seed = block.0[lane];
                    if let Some(places) = targets[target].places(seed, &mut replay) {
                        let mut found = found.lock().expect("no thread panics with the lock");
                        if found.hits.len() < HITS_MAX {
                            found.hits.push(Hit { target, seed, places });
                        } else {
                            found.overflow = true;
                        }
                    }
                });
            }
            if let Some(progress) = progress {
                progress.fetch_add(end - start, Ordering::Relaxed);
            }
        }
    };
    control.on_all_threads(work);
    let mut found = found.into_inner().expect("no thread panics with the lock");
    found.hits.sort_by_key(|hit| (hit.target, hit.seed));
    found
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::order::infer::Sighting;
    use crate::order::infer::target::Layout;
    use crate::order::mt19937::Mt19937;
    use crate::order::torch::randperm;

    #[test]
    fn a_planted_seed_is_found_by_every_path_and_map() {
        let go = AtomicBool::new(false);
        let control = Control { stop: &go, threads: 2 };
        for (n, seed, offset) in [(100u32, 70_000u32, 0u32), (2000, 3_000_000_001, 2), (1_281_167, 1234, 0)] {
            let mut generator = Mt19937::new(u64::from(seed));
            generator.skip(u64::from(offset));
            let order = randperm(n, &mut generator);
            let front = &order[..12];
            let mirrored: Vec<_> = front.iter().map(|sample| n - 1 - sample).collect();
            let targets = [Target::prefix(0, n, &mirrored, offset).unwrap(), Target::prefix(1, n, front, offset).unwrap()];
            let start = u64::from(seed) / 1000 * 1000;
            for path in CodePath::available() {
                let progress = AtomicU64::new(0);
                let found = exhaustive_by(path, &targets, &(start..start + 5001).into(), control, Some(&progress));
                assert!(found.complete && !found.overflow);
                assert_eq!(progress.into_inner(), 5001);
                let seeds: Vec<_> = found.hits.iter().map(|hit| (hit.target, hit.seed)).collect();
                assert_eq!(seeds, [(1, seed)], "{path:?}, n = {n}");
            }
        }
    }

    #[test]
    fn the_range_ends_where_it_says() {
        let go = AtomicBool::new(false);
        let control = Control { stop: &go, threads: 1 };
        let order = randperm(1000, &mut Mt19937::new(500));
        let target = [Target::prefix(0, 1000, &order[..8], 0).unwrap()];
        assert_eq!(exhaustive(&target, 0..500, control, None).hits, []);
        assert_eq!(exhaustive(&target, 501..1000, control, None).hits, []);
        assert_eq!(exhaustive(&target, 500..501, control, None).hits.len(), 1);
        let stop = AtomicBool::new(true);
        let list: Vec<u32> = (0..700).map(|seed| seed * 3 + 2).collect();
        assert_eq!(exhaustive(&target, Seeds::List(&list), control, None).hits[0].seed, 500);
        assert!(!exhaustive(&target, ALL_SEEDS, Control { stop: &stop, threads: 2 }, None).complete);
    }

    #[test]
    fn one_stream_is_enough_for_the_streams_form() {
        let go = AtomicBool::new(false);
        let control = Control { stop: &go, threads: 1 };
        let order = randperm(1000, &mut Mt19937::new(77));
        let sighting = Sighting { n: 1000, opens: order[..40].iter().map(|&sample| (0, sample)).collect(), streams_known: true };
        let target = [Target::streams(0, &sighting, 0, Layout::Whole).unwrap()];
        let found = exhaustive(&target, 0..4096, control, None);
        assert_eq!(found.hits.len(), 1);
        assert_eq!(found.hits[0].seed, 77);
        assert_eq!(found.hits[0].places, (0..40).map(Some).collect::<Vec<_>>());
    }
}

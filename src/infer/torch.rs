//! The dictionary of torch's seeds: which likely generators make an order whose front was opened.
//!
//! torch settles the first places first, so a seed is refuted after a few draws (field notes «orders» §0). Three families: seeds given to a
//! fresh generator (`DistributedSampler`, accelerate, the Trainer: seed + epoch), outputs of a default generator with a likely seed
//! (`DataLoader(shuffle=True)`), and a generator given to the loader.

use std::collections::VecDeque;

use crate::order::infer::outputs::outputs_of;
use crate::order::infer::{Control, Sighting};
use crate::order::mt19937::Mt19937;
use crate::types::{QuickMap, SampleIndex};

/// Seeds people write, the most usual first.
pub(super) const USUAL_SEEDS: [u64; 24] =
    [0, 42, 1, 2, 3, 7, 10, 100, 123, 1234, 12345, 1337, 123_456, 2020, 2021, 2022, 2023, 2024, 2025, 2026, 3407, 9176, 999, 31];
/// Outputs of a default generator that are tried: a small CPU model's initialisation is passed.
pub(super) const OUTPUTS: u64 = 1 << 16;
/// Places that are looked at for ranks of a world: the first steps of 128 ranks and more, and, at length, four steps of 4,096.
pub(super) const NEAR: u32 = 1_024;
pub(super) const WIDE: u32 = 4 * 4096;
/// Streams whose first steps are looked at.
const STREAMS: usize = 8;
/// Opens of each of them: two equal steps may come after a probe, and a batch ends within.
const STEPS: usize = 6;
/// Places of one process's loader that are looked at.
const NARROW: u32 = 24;

/// The first opens of each stream, prepared for many seeds.
pub(super) struct Fronts {
    n: u32,
    streams: Vec<Vec<SampleIndex>>,
    /// Smallest position of each sample in any stream.
    position: QuickMap<SampleIndex, u32>,
    /// One bit a sample: first or second of a stream.
    first: Vec<u64>,
    /// ... and among the first [`STEPS`] of a stream whose steps are looked at.
    stepped: Vec<u64>,
    places: Vec<SampleIndex>,
    /// By place, what its draw is multiplied with to be taken modulo the samples left.
    reciprocals: Vec<u64>,
    /// The draws of the seed that is looked at.
    drawn: Vec<u32>,
}

impl Fronts {
    pub(super) fn new(sighting: &Sighting) -> Self {
        let mut streams: Vec<Vec<SampleIndex>> = Vec::new();
        for &(stream, sample) in &sighting.opens {
            let at = stream as usize;
            if streams.len() <= at {
                streams.resize(at + 1, Vec::new());
            }
            streams[at].push(sample);
        }
        let mut position: QuickMap<SampleIndex, u32> = QuickMap::default();
        let mut first = vec![0u64; (sighting.n as usize).div_ceil(64)];
        for stream in &streams {
            for (at, &sample) in (0u32..).zip(stream) {
                let least = position.entry(sample).or_insert(at);
                *least = at.min(*least);
            }
            for &sample in stream.iter().take(2) {
                first[sample as usize / 64] |= 1 << (sample % 64);
            }
        }
        let mut stepped = vec![0u64; first.len()];
        for &sample in stepping(&streams).flat_map(|stream| &stream[..stream.len().min(STEPS)]) {
            stepped[sample as usize / 64] |= 1 << (sample % 64);
        }
        let n = sighting.n;
        Self { n, streams, position, first, stepped, places: (0..n).collect(), reciprocals: Vec::new(), drawn: Vec::new() }
    }

    fn is_first(&self, sample: SampleIndex) -> bool {
        is_among(&self.first, sample)
    }

    /// One process, from place 0: place p is among the first p + 2 (a probe may come before) of some stream.
    pub(super) fn fits_whole(&mut self, generator: &mut Mt19937) -> bool {
        self.fits(|| generator.random())
    }

    /// Where among the next `outputs` of a generator permutations begin that fit, counted from its next one.
    pub(super) fn starts_that_fit(&mut self, generator: &mut Mt19937, outputs: u64, control: &Control<'_>) -> Vec<u64> {
        let mut window: VecDeque<u32> = (0..NARROW).map(|_| generator.random()).collect();
        let mut found = Vec::new();
        for start in 0..outputs {
            if self.n < 2 || start % 4096 == 0 && control.stopped() {
                break;
            }
            let mut here = window.iter().copied();
            if self.is_first(window[0] % self.n) && self.fits(|| here.next().expect("no more places than outputs")) {
                found.push(start);
            }
            window.pop_front();
            window.push_back(generator.random());
        }
        found
    }

    /// Whether the file of a first draw was opened first or second by some stream.
    pub(super) fn is_first_of(&self, output: u32) -> bool {
        self.n >= 2 && self.is_first(output % self.n)
    }

    /// The same for draws with replacement: no file gives way to another.
    pub(super) fn fits_replaced(&mut self, generator: &mut Mt19937) -> bool {
        let least = NARROW.min(u32::try_from(self.position.len()).unwrap_or(u32::MAX));
        let away = |place: &u32| self.position.get(&(generator.random() % self.n)).is_none_or(|at| at > &(place + 1));
        self.n >= 2 && (0..least).filter(away).count() * 4 <= least as usize
    }

    fn fits(&mut self, mut output: impl FnMut() -> u32) -> bool {
        let least = NARROW.min(self.n.saturating_sub(1)).min(u32::try_from(self.position.len()).unwrap_or(u32::MAX));
        let mut undo = Vec::with_capacity(NARROW as usize);
        let mut missed = 0;
        for place in 0..least {
            let other = place + output() % (self.n - place);
            self.places.swap(place as usize, other as usize);
            undo.push((place, other));
            let sample = self.places[place as usize];
            // Places of workers that have not begun are not opened yet; but those before any that was are the first of their streams.
            if self.position.get(&sample).is_none_or(|&at| at > place + 1) {
                missed += 1;
                if missed > place / 4 {
                    break;
                }
            }
        }
        let fits = undo.len() == least as usize && missed * 4 <= least;
        for (a, b) in undo.into_iter().rev() {
            self.places.swap(a as usize, b as usize);
        }
        fits
    }

    /// Any world size, any ranks: some stream goes in equal steps from within the first places.
    pub(super) fn fits_dealt(&mut self, seed: u32, places: u32) -> bool {
        let wide = places.min(self.n.saturating_sub(1));
        for place in self.reciprocals.len()..wide as usize {
            self.reciprocals.push(reciprocal(self.n - place as u32));
        }
        let mut generator = Mt19937::new(u64::from(seed));
        self.drawn.clear();
        let left = (0..wide).zip(&self.reciprocals);
        self.drawn.extend(left.map(|(place, &reciprocal)| place + remainder(generator.random(), self.n - place, reciprocal)));
        let mut found: Vec<(SampleIndex, u32)> = Vec::new();
        for (place, &other) in (0u32..).zip(&self.drawn) {
            self.places.swap(place as usize, other as usize);
            let sample = self.places[place as usize];
            if is_among(&self.stepped, sample) {
                found.push((sample, place));
            }
        }
        let fits = found.len() > 2 && stepping(&self.streams).any(|stream| steps_equally(stream, &found));
        // all are where they were: each at its own number
        for (place, &other) in (0u32..).zip(&self.drawn) {
            self.places[place as usize] = place;
            self.places[other as usize] = other;
        }
        fits
    }
}

/// The streams whose steps are looked at.
fn stepping(streams: &[Vec<SampleIndex>]) -> impl Iterator<Item = &Vec<SampleIndex>> {
    streams.iter().filter(|stream| stream.len() >= 3).take(STREAMS)
}

fn is_among(samples: &[u64], sample: SampleIndex) -> bool {
    samples[sample as usize / 64] >> (sample % 64) & 1 == 1
}

/// `found`: samples, and where they are.
fn steps_equally(stream: &[SampleIndex], found: &[(SampleIndex, u32)]) -> bool {
    let place_of = |sample: &SampleIndex| found.iter().find(|(of, _)| of == sample).map(|&(_, place)| place);
    let places: Vec<Option<u32>> = stream.iter().take(STEPS).map(place_of).collect();
    let step = |pair: &[Option<u32>]| pair[1]?.checked_sub(pair[0]?).filter(|&step| step > 0);
    let steps: Vec<Option<u32>> = places.windows(2).map(step).collect();
    // two equal steps: by chance once in n / 4
    steps.windows(2).any(|pair| pair[0].is_some() && pair[0] == pair[1])
}

/// 2^64 / `divisor`, rounded up: division by multiplication (Lemire, Kaser, Kurz 2019, «Faster remainder by direct computation»).
const fn reciprocal(divisor: u32) -> u64 {
    u64::MAX / divisor as u64 + 1
}

/// `value` modulo `divisor` (≥ 2), exactly.
#[expect(clippy::cast_possible_truncation, reason = "below the divisor")]
const fn remainder(value: u32, divisor: u32, reciprocal: u64) -> u32 {
    let fraction = reciprocal.wrapping_mul(value as u64);
    ((fraction as u128 * divisor as u128) >> 64) as u32
}

/// Outputs of the default generator seeded with `root`, in `from..to`, that seed an order which fits.
pub(super) fn outputs_that_fit(fronts: &mut Fronts, root: u64, from: u64, to: u64, control: &Control<'_>) -> Vec<u64> {
    let mut generator = Mt19937::new(root);
    generator.skip(from);
    let seeds: Vec<u32> = (from..to).map(|_| generator.random()).collect();
    let fits = |&(_, seed, first): &(u64, u32, u32)| {
        fronts.is_first_of(first) && !control.stopped() && fronts.fits_whole(&mut Mt19937::new(u64::from(seed)))
    };
    let firsts = outputs_of(&seeds, &[0]);
    (from..to).zip(seeds).zip(firsts).map(|((offset, seed), first)| (offset, seed, first)).filter(fits).map(|(offset, ..)| offset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::torch::randperm;

    #[test]
    fn remainders_are_exact() {
        for divisor in [2, 3, 7, 1_000, 1_281_167, u32::MAX] {
            for value in [0, 1, divisor - 1, divisor, 0x8000_0000, 0xffff_fffe, u32::MAX] {
                assert_eq!(remainder(value, divisor, reciprocal(divisor)), value % divisor, "{value} {divisor}");
            }
        }
    }

    fn two_workers(order: &[u32], step: usize, first: usize) -> Sighting {
        let own: Vec<u32> = order.iter().skip(first).step_by(step).copied().take(64).collect();
        let opens = own.iter().enumerate().map(|(at, &sample)| (u32::try_from(at / 8 % 2).unwrap(), sample)).collect();
        Sighting { n: u32::try_from(order.len()).unwrap(), opens, streams_known: true }
    }

    #[test]
    fn the_right_seed_fits_and_hardly_another() {
        let order = randperm(5_000, &mut Mt19937::new(77));
        let mut fronts = Fronts::new(&two_workers(&order, 1, 0));
        assert_eq!((0..5_000).filter(|&seed| fronts.fits_whole(&mut Mt19937::new(seed))).collect::<Vec<_>>(), [77]);
        let mut dealt = Fronts::new(&two_workers(&order, 128, 121));
        let fit: Vec<u32> = (0..200).filter(|&seed| dealt.fits_dealt(seed, NEAR)).collect();
        assert!(fit.contains(&77) && fit.len() < 20, "{fit:?}");
    }
}

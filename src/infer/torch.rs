//! The dictionary of torch's seeds: which likely generators make an order whose front was opened.
//!
//! torch settles the first places first, so a seed is refuted after a few draws (field notes «orders» §0). Three families: seeds given to a
//! fresh generator (`DistributedSampler`, accelerate, the Trainer: seed + epoch), outputs of a default generator with a likely seed
//! (`DataLoader(shuffle=True)`), and a generator given to the loader.

use std::collections::VecDeque;

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
    places: Vec<SampleIndex>,
    place_of: Vec<u32>,
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
        let n = sighting.n;
        Self { n, streams, position, first, places: (0..n).collect(), place_of: vec![u32::MAX; n as usize] }
    }

    fn is_first(&self, sample: SampleIndex) -> bool {
        self.first[sample as usize / 64] >> (sample % 64) & 1 == 1
    }

    /// One process, from place 0: place p is among the first p + 2 (a probe may come before) of some stream.
    pub(super) fn fits_from_the_start(&mut self, seed: u32) -> bool {
        if self.n < 2 || !self.is_first(first_output(seed) % self.n) {
            return false;
        }
        self.fits_whole(&mut Mt19937::new(u64::from(seed)))
    }

    /// As [`Self::fits_from_the_start`], with any generator.
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
        let mut generator = Mt19937::new(u64::from(seed));
        let mut undo = Vec::with_capacity(wide as usize);
        for place in 0..wide {
            let other = place + generator.random() % (self.n - place);
            self.places.swap(place as usize, other as usize);
            undo.push(other);
            self.place_of[self.places[place as usize] as usize] = place;
        }
        let fits = self.streams.iter().filter(|stream| stream.len() >= 3).take(STREAMS).any(|stream| self.steps_equally(stream));
        for place in (0..wide).rev() {
            self.place_of[self.places[place as usize] as usize] = u32::MAX;
            self.places.swap(place as usize, undo[place as usize] as usize);
        }
        fits
    }

    fn steps_equally(&self, stream: &[SampleIndex]) -> bool {
        let places: Vec<Option<u32>> =
            stream.iter().take(6).map(|&sample| Some(self.place_of[sample as usize]).filter(|&place| place != u32::MAX)).collect();
        let step = |pair: &[Option<u32>]| pair[1]?.checked_sub(pair[0]?).filter(|&step| step > 0);
        let steps: Vec<Option<u32>> = places.windows(2).map(step).collect();
        // two equal steps: by chance once in n / 4
        steps.windows(2).any(|pair| pair[0].is_some() && pair[0] == pair[1])
    }
}

/// The first output of a generator: 397 steps of its seeding, and one twist.
pub(super) fn first_output(seed: u32) -> u32 {
    let (first, mut word) = (seed, seed);
    let mut second = 0;
    for i in 1..=397u32 {
        word = 1_812_433_253u32.wrapping_mul(word ^ (word >> 30)).wrapping_add(i);
        if i == 1 {
            second = word;
        }
    }
    let mixed = (first & 0x8000_0000) | (second & 0x7fff_ffff);
    let mut out = word ^ (mixed >> 1) ^ ((mixed & 1).wrapping_neg() & 0x9908_b0df);
    out ^= out >> 11;
    out ^= (out << 7) & 0x9d2c_5680;
    out ^= (out << 15) & 0xefc6_0000;
    out ^ (out >> 18)
}

/// Outputs of the default generator seeded with `root`, in `from..to`, that seed an order which fits.
pub(super) fn outputs_that_fit(fronts: &mut Fronts, root: u64, from: u64, to: u64, control: &Control<'_>) -> Vec<u64> {
    let mut generator = Mt19937::new(root);
    generator.skip(from);
    let mut found = Vec::new();
    for offset in from..to {
        if offset % 4096 == 0 && control.stopped() {
            break;
        }
        if fronts.fits_from_the_start(generator.random()) {
            found.push(offset);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::torch::randperm;

    #[test]
    fn the_first_output_is_the_generators() {
        for seed in [0, 1, 42, 0xffff_ffff, 524_287] {
            assert_eq!(first_output(seed), Mt19937::new(u64::from(seed)).random());
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
        assert_eq!((0..5_000).filter(|&seed| fronts.fits_from_the_start(seed)).collect::<Vec<_>>(), [77]);
        let mut dealt = Fronts::new(&two_workers(&order, 128, 121));
        let fit: Vec<u32> = (0..200).filter(|&seed| dealt.fits_dealt(seed, NEAR)).collect();
        assert!(fit.contains(&77) && fit.len() < 20, "{fit:?}");
    }
}

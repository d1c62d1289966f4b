//! torch's forward Fisher-Yates, played draw by draw, without an array of n numbers for each candidate.
//!
//! Source: `randperm_cpu` (torch's `TensorFactories.cpp`): place i is final after draw i. Costs: about 3 ns a place, 8 n bytes a thread.
//!
//! Not here: the form for n ≥ 214,748,364, whose first places are not final.

use std::collections::HashMap;

use super::words::Outputs;
use crate::types::SampleIndex;

/// From this many samples on torch draws otherwise, and the front of the order says nothing.
pub const SEARCHABLE_BELOW: u32 = u32::MAX / 20;

/// The array being shuffled; places no candidate has touched yet hold their own number.
pub(crate) struct Replay {
    /// The candidate that wrote the place last (high word), and what it wrote. Fresh zeros cost nothing until they are touched.
    places: Vec<u64>,
    candidate: u32,
    n: u32,
    at: u32,
}

impl Replay {
    /// For permutations of up to `most` samples.
    pub(crate) fn new(most: u32) -> Self {
        Self { places: vec![0; most as usize], candidate: 0, n: 0, at: 0 }
    }

    /// A new permutation of `n` samples begins.
    pub(crate) fn begin(&mut self, n: u32) {
        debug_assert!(n as usize <= self.places.len());
        if self.candidate == u32::MAX {
            self.places.fill(0);
            self.candidate = 0;
        }
        self.candidate += 1;
        (self.n, self.at) = (n, 0);
    }

    fn get(&self, place: u32) -> SampleIndex {
        let word = self.places[place as usize];
        if (word >> 32) as u32 == self.candidate { word as SampleIndex } else { place }
    }

    /// The sample of the next place; there are n of them.
    pub(crate) fn next(&mut self, outputs: &mut impl Outputs) -> SampleIndex {
        let at = self.at;
        self.at += 1;
        let other = if at + 1 < self.n { at + outputs.next_output() % (self.n - at) } else { at };
        let sample = self.get(other);
        self.places[other as usize] = (u64::from(self.candidate) << 32) | u64::from(self.get(at));
        sample
    }
}

/// The draws that the first places of an order reveal: draw i modulo n - i. None when `order` is no beginning of a permutation of `n`.
/// For one front; [`Draws`] is for many.
#[must_use]
pub fn draws(n: u32, order: &[SampleIndex]) -> Option<Vec<u32>> {
    Draws::new(n).of(order).map(<[u32]>::to_vec)
}

/// Draws of many fronts of one dataset. Maps of the touched places only, so fronts may be short and n large.
#[derive(Debug)]
pub(crate) struct Draws {
    n: u32,
    /// What places hold, and where samples are, that are not at home.
    samples: HashMap<u32, SampleIndex>,
    places: HashMap<SampleIndex, u32>,
    draws: Vec<u32>,
}

impl Draws {
    pub(crate) fn new(n: u32) -> Self {
        Self { n, samples: HashMap::new(), places: HashMap::new(), draws: Vec::new() }
    }

    pub(crate) fn of(&mut self, order: &[SampleIndex]) -> Option<&[u32]> {
        self.samples.clear();
        self.places.clear();
        self.draws.clear();
        for (at, &sample) in (0u32..).zip(order) {
            let place = self.places.get(&sample).copied().unwrap_or(sample);
            if sample >= self.n || place < at {
                return None;
            }
            self.draws.push(place - at);
            let displaced = self.samples.get(&at).copied().unwrap_or(at);
            self.samples.insert(place, displaced);
            self.places.insert(displaced, place);
            self.places.insert(sample, at);
        }
        Some(&self.draws)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::order::infer::words::Lazy;
    use crate::order::mt19937::Mt19937;
    use crate::order::torch::randperm;

    proptest! {
        #[test]
        fn replays_are_torchs_permutations(n in 1u32..300, seeds: [u32; 3]) {
            let mut replay = Replay::new(300);
            for seed in seeds {
                let order = randperm(n, &mut Mt19937::new(u64::from(seed)));
                let mut lazy = Lazy::new(seed);
                replay.begin(n);
                let replayed: Vec<_> = (0..n).map(|_| replay.next(&mut lazy)).collect();
                prop_assert_eq!(&replayed, &order);
                let mut lazy = Lazy::new(seed);
                let drawn: Vec<_> = (0..n).map(|at| if at + 1 < n { lazy.output() % (n - at) } else { 0 }).collect();
                prop_assert_eq!(draws(n, &order), Some(drawn));
            }
        }
    }

    #[test]
    fn what_is_no_front_of_a_permutation_has_no_draws() {
        assert_eq!(draws(5, &[4, 0, 4]), None);
        assert_eq!(draws(5, &[5]), None);
        assert_eq!(draws(5, &[]), Some(vec![]));
    }
}

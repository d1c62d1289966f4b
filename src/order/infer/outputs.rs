//! Single outputs of many fresh generators, in vector code: which state words they take, kept once for all of them.
//!
//! Source: field notes «orders» §5a; `mt19937ar.c`. The twist of word o takes the words o, o + 1 and o + 397; from 227 on the last of these is a twisted
//! word, whose own three words are the seeding's, or once more so.
//!
//! Not here: what is asked of them (`sieve`), and outputs behind the first 623 (`Mt19937`).

use super::lanes::{CodePath, Kernels, LANES, Lanes};
use super::words::{SHIFT, WORDS};

/// Outputs whose far word is one of the seeding's.
const PERIOD: u32 = (WORDS - SHIFT) as u32;
/// The last output that needs no word of the second block.
pub(crate) const LAST_OUTPUT: u32 = WORDS as u32 - 2;

/// Some outputs of a generator, and what they take.
pub(crate) struct Outputs {
    pub(crate) kernels: Kernels,
    /// Rising indices of the state words that are kept.
    stops: Vec<u32>,
    /// Rising.
    numbers: Vec<u32>,
    /// For each the slots of its far word, and of each pair that is mixed in.
    slots: Vec<(usize, Vec<[usize; 2]>)>,
}

impl Outputs {
    /// Each at most [`LAST_OUTPUT`].
    pub(crate) fn new(numbers: impl IntoIterator<Item = u32>, path: CodePath) -> Self {
        let mut numbers: Vec<u32> = numbers.into_iter().collect();
        numbers.sort_unstable();
        numbers.dedup();
        let far = |number: u32| number % PERIOD + SHIFT as u32;
        let pairs = |number: u32| (number % PERIOD..=number).step_by(PERIOD as usize);
        let mut stops: Vec<u32> =
            numbers.iter().flat_map(|&number| pairs(number).flat_map(|at| [at, at + 1]).chain([far(number)])).collect();
        stops.sort_unstable();
        stops.dedup();
        let slot = |stop: u32| stops.binary_search(&stop).expect("collected above");
        let slots = numbers.iter().map(|&number| (slot(far(number)), pairs(number).map(|at| [slot(at), slot(at + 1)]).collect())).collect();
        Self { kernels: Kernels::of(path), stops, numbers, slots }
    }

    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Where among them this one is.
    pub(crate) fn number(&self, output: u32) -> usize {
        self.numbers.binary_search(&output).expect("one of those it was made for")
    }

    /// Room for a block's words.
    pub(crate) fn words(&self) -> Vec<Lanes> {
        vec![Lanes::ZERO; self.stops.len()]
    }

    /// The words of a block of seeds.
    pub(crate) fn begin(&self, seeds: &Lanes, words: &mut [Lanes]) {
        (self.kernels.words)(seeds, &self.stops, words);
    }

    /// The `number`th of the outputs, from the block's words.
    pub(crate) fn output(&self, number: usize, words: &[Lanes], output: &mut Lanes) {
        let (far, pairs) = &self.slots[number];
        let [before @ .., [upper, lower]] = pairs.as_slice() else { return };
        if before.is_empty() {
            return (self.kernels.output)(&words[*upper], &words[*lower], &words[*far], output);
        }
        let mut far = words[*far];
        for [upper, lower] in before {
            (self.kernels.twist)(&words[*upper], &words[*lower], &mut far);
        }
        (self.kernels.output)(&words[*upper], &words[*lower], &far, output);
    }
}

/// These outputs of the generators with these seeds, by output, then seed. `outputs` rise, and are below 623.
#[must_use]
pub fn outputs_of(seeds: &[u32], outputs: &[u32]) -> Vec<u32> {
    let wanted = Outputs::new(outputs.iter().copied(), CodePath::best());
    let mut words = wanted.words();
    let mut all = vec![0; seeds.len() * wanted.len()];
    for (first, block) in (0..).step_by(LANES).zip(seeds.chunks(LANES)) {
        let (mut lanes, mut output) = (Lanes::ZERO, Lanes::ZERO);
        lanes.0[..block.len()].copy_from_slice(block);
        wanted.begin(&lanes, &mut words);
        for number in 0..wanted.len() {
            wanted.output(number, &words, &mut output);
            let at = number * seeds.len() + first;
            all[at..at + block.len()].copy_from_slice(&output.0[..block.len()]);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::mt19937::Mt19937;

    #[test]
    fn they_are_the_generators() {
        let seeds: Vec<u32> = (0..300).map(|seed: u32| seed.wrapping_mul(0x9e37_79b9)).collect();
        let wanted = [0, 1, 3, 226, 227, 228, 396, 397, 453, 454, 455, LAST_OUTPUT];
        let outputs = outputs_of(&seeds, &wanted);
        for (at, &number) in wanted.iter().enumerate() {
            for (lane, &seed) in seeds.iter().enumerate() {
                let mut generator = Mt19937::new(u64::from(seed));
                generator.skip(u64::from(number));
                assert_eq!(outputs[at * seeds.len() + lane], generator.random(), "output {number} of {seed}");
            }
        }
    }
}

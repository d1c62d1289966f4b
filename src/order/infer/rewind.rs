//! Back from a generator's state to the seed it began with, however many outputs ago that was.
//!
//! Every 32-bit seed's state follows one recurrence, which no later state does but by chance; and the twist can be undone, word by word. So
//! a state found by linear algebra becomes a seed and a number of outputs: an order that can be written down, kept and handed on.
//! Costs: about 2 ns an output.

use super::Control;
use super::default_generator::At;
use super::words::{SHIFT, WORDS, seed_step, seed_step_back, unmixed};
use crate::order::mt19937::Mt19937;

/// Outputs between two looks at the stop sign (some milliseconds).
const LOOK_EVERY: u64 = 1 << 22;
/// Words of the recurrence that must agree before a seed is looked at: 2^-64 by chance.
const AGREE: usize = 3;

/// The seed whose generator has the raw words `words` before its next output, and how many outputs it gave before. `None`: not within `most`
/// outputs, or stopped.
#[must_use]
pub fn rewind(words: &[u32; WORDS], most: u64, control: Control<'_>) -> Option<At> {
    let mut words = *words;
    let at = |place: usize| place % WORDS;
    // The oldest word is at `first`. Of it outputs depend on the upper bit alone, and so does what was given here.
    let mut first = 0;
    for offset in 0..=most {
        let like = |step: usize| {
            let (word, next) = (words[at(first + step)], words[at(first + step + 1)]);
            seed_step(word, step as u32 + 1) == next
        };
        if (1..=AGREE).all(like) {
            let seed = seed_step_back(words[at(first + 1)], 1);
            let mut generator = Mt19937::new(u64::from(seed));
            let mut here = Mt19937::from_words(std::array::from_fn(|place| words[at(first + place)]));
            if (0..WORDS).all(|_| generator.random() == here.random()) {
                return Some(At { seed, offset });
            }
        }
        if offset % LOOK_EVERY == 0 && control.stopped() {
            return None;
        }
        // What the newest word was made of: the upper bit of the word before the oldest, and the lower bits of the oldest.
        let newest = at(first + WORDS - 1);
        let made_of = unmixed(words[newest] ^ words[at(first + SHIFT - 1)]);
        words[first] = words[first] & 0x8000_0000 | made_of & 0x7fff_ffff;
        // It takes the newest one's slot.
        words[newest] = made_of & 0x8000_0000;
        first = newest;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::order::infer::words::untemper;

    #[test]
    fn a_seed_is_found_from_any_later_state() {
        let go = AtomicBool::new(false);
        let control = Control { stop: &go, threads: 1 };
        for (seed, offset) in [(0u32, 624u64), (42, 625), (u32::MAX, 100_000), (0x8000_0001, 1_871)] {
            let mut generator = Mt19937::new(u64::from(seed));
            generator.skip(offset - WORDS as u64);
            let mut words: [u32; WORDS] = std::array::from_fn(|_| untemper(generator.random()));
            // What nobody can know.
            words[0] &= 0x8000_0000;
            assert_eq!(rewind(&words, 1 << 20, control), Some(At { seed, offset }), "{seed} {offset}");
            assert_eq!(rewind(&words, offset - 1, control), None);
        }
    }

    #[test]
    fn few_outputs_after_the_seeding_and_none_are_seen() {
        let go = AtomicBool::new(false);
        let control = Control { stop: &go, threads: 1 };
        for offset in [0, 1, 2, 300, 623] {
            let mut all: Vec<u32> = vec![77];
            (1..WORDS).for_each(|at| all.push(seed_step(all[at - 1], at as u32)));
            let mut generator = Mt19937::new(77);
            all.extend((0..offset).map(|_| untemper(generator.random())));
            let mut words: [u32; WORDS] = std::array::from_fn(|at| all[all.len() - WORDS + at]);
            words[0] &= 0x8000_0000;
            assert_eq!(rewind(&words, 1_000, control), Some(At { seed: 77, offset: offset as u64 }), "{offset}");
        }
    }
}

//! Which seed of torch's default generator gave an epoch its seed, and with which output.
//!
//! Source: field notes «orders» §5d. `DataLoader(shuffle=True)` draws each epoch's seed from the default generator, so a found seed is one of
//! its raw outputs. Words are compared before tempering; the twist runs in vector code. Costs: `benches/README.md`; 6 to 7 G outputs
//! a core-second with AVX-512: 150 common seeds × 2^24 outputs 0.4 core-s, seeds 0..65,535 × 65,536 outputs 0.7 core-s.
//!
//! One match among 10^9 positions is no proof (by chance 0.6 and 1.0 false ones come of the two searches above): all candidates are returned, and the next epoch
//! decides between them.
//!
//! Not here: default generators with an arbitrary seed (2^32 × offset outputs).

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use multiversion::multiversion;

use super::Control;
use super::words::{SHIFT, WORDS, mixed, seed_step, untemper};

/// A place in a default generator's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    pub seed: u32,
    /// The output with the value, 0-based.
    pub offset: u64,
}

/// Outputs of each common seed: a model of 10^7 parameters is initialised before the loader.
pub const OUTPUTS_OF_COMMON: u64 = 1 << 24;
/// Outputs of each seed below 65,536.
pub const OUTPUTS_OF_SMALL: u64 = 1 << 16;

/// All places in the first `outputs` outputs (rounded up to 624) of the generators with these seeds that give `epoch_seed`, rising.
/// Stopped early it returns those found so far.
#[must_use]
pub fn locate(epoch_seed: u32, seeds: &[u32], outputs: u64, control: Control<'_>) -> Vec<At> {
    let wanted = untemper(epoch_seed);
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let work = || {
        while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut words = [seed; WORDS];
            for at in 1..WORDS {
                words[at] = seed_step(words[at - 1], at as u32);
            }
            for start in (0..outputs).step_by(WORDS) {
                if control.stopped() {
                    return;
                }
                if twist_and_find(&mut words, wanted) {
                    let places = (start..).zip(&words).filter(|&(_, &word)| word == wanted);
                    let mut found = found.lock().expect("no thread panics with the lock");
                    found.extend(places.map(|(offset, _)| At { seed, offset }));
                }
            }
        }
    };
    control.on_all_threads(work);
    let mut found = found.into_inner().expect("no thread panics with the lock");
    found.sort_unstable();
    found
}

/// The next block, and whether it has the word.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn twist_and_find(words: &mut [u32; WORDS], wanted: u32) -> bool {
    const REST: usize = WORDS - SHIFT;
    let mut any = 0u32;
    for at in 0..REST {
        let word = words[at + SHIFT] ^ mixed(words[at], words[at + 1]);
        words[at] = word;
        any |= u32::from(word == wanted);
    }
    // In two parts: each reads only words that the part before has written, so that the compiler sees no dependence within.
    for (from, to) in [(REST, 2 * REST), (2 * REST, WORDS - 1)] {
        let (before, now) = words.split_at_mut(from);
        for at in 0..to - from {
            let next = if at + 1 < now.len() { now[at + 1] } else { 0 };
            let word = before[from - REST + at] ^ mixed(now[at], next);
            now[at] = word;
            any |= u32::from(word == wanted);
        }
    }
    words[WORDS - 1] = words[SHIFT - 1] ^ mixed(words[WORDS - 1], words[0]);
    any != 0 || words[WORDS - 1] == wanted
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::order::mt19937::Mt19937;

    #[test]
    fn every_output_is_located() {
        let go = AtomicBool::new(false);
        let control = Control { stop: &go, threads: 2 };
        for offset in [0u64, 1, 3, 226, 227, 228, 396, 453, 454, 455, 622, 623, 624, 13_005, 65_535] {
            let mut generator = Mt19937::new(42);
            generator.skip(offset);
            let seeds: Vec<u32> = (38..45).collect();
            assert_eq!(locate(generator.random(), &seeds, OUTPUTS_OF_SMALL, control), [At { seed: 42, offset }]);
        }
    }
}

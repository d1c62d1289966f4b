//! What the best possible cache of this capacity would have retained of these accesses.
//!
//! Computed as the accesses come, by a cache that obeys the retention key exactly, holds nothing for the window and fetches at no cost.
//! With equal sizes its hit rate is that of Bélády's MIN to 0.003 (clairvoyance §3.3, measured), on one node it is (C − window) / S. Several
//! orders share one ideal cache, as they share the real one.

use std::collections::BTreeSet;

use super::key::Key;
use super::next_use::Round;
use crate::types::FileIndex;

const NOT_HELD: Round = Round::MAX;

/// The ideal cache.
#[derive(Debug)]
pub(crate) struct Ideal {
    /// Round of the key a held file stands under; [`NOT_HELD`] otherwise.
    rounds: Vec<Round>,
    keys: BTreeSet<Key>,
    bytes: u64,
}

impl Ideal {
    pub(crate) fn new(files: usize) -> Self {
        Self { rounds: vec![NOT_HELD; files], keys: BTreeSet::new(), bytes: 0 }
    }

    /// A file that was in the cache at start.
    pub(crate) fn hold(&mut self, file: FileIndex, size: u64, next: Round, capacity: u64) {
        self.access(file, size, Some(next), capacity);
    }

    /// The next use of a held file became known or changed.
    pub(crate) fn rekey(&mut self, file: FileIndex, size: u64, next: Round) {
        let held = self.rounds[file.at()];
        if held != NOT_HELD && held != next && next != NOT_HELD {
            self.keys.remove(&Key::new(file, held, size));
            self.keys.insert(Key::new(file, next, size));
            self.rounds[file.at()] = next;
        }
    }

    /// One access, next used in `next`. True if the ideal cache had it.
    pub(crate) fn access(&mut self, file: FileIndex, size: u64, next: Option<Round>, capacity: u64) -> bool {
        let held = self.rounds[file.at()];
        if held != NOT_HELD {
            self.keys.remove(&Key::new(file, held, size));
            self.bytes -= size;
            self.rounds[file.at()] = NOT_HELD;
        }
        // The last representable round stands for "known, but beyond the horizon".
        let next = next.map_or(NOT_HELD - 1, |round| round.min(NOT_HELD - 1));
        let key = Key::new(file, next, size);
        self.keys.insert(key);
        self.bytes += size;
        self.rounds[file.at()] = next;
        while self.bytes > capacity
            && let Some(worst) = self.keys.pop_last()
        {
            self.bytes -= worst.size();
            self.rounds[worst.file().at()] = NOT_HELD;
        }
        held != NOT_HELD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_one_node_it_retains_the_cache_fraction_from_the_second_epoch_on() {
        let mut ideal = Ideal::new(1000);
        for round in 0..4u32 {
            let hits = (0..1000u32).filter(|k| ideal.access(FileIndex(k * 7 % 1000), 10, Some(round + 1), 2_000)).count();
            assert_eq!(hits, if round == 0 { 0 } else { 200 });
        }
    }

    #[test]
    fn it_prefers_the_sooner_use_and_the_smaller_file() {
        let mut ideal = Ideal::new(3);
        for (file, size, next) in [(0, 10, 5), (1, 10, 2), (2, 5, 2)] {
            ideal.access(FileIndex(file), size, Some(next), 15);
        }
        assert_eq!(ideal.rounds, [NOT_HELD, 2, 2]);
    }
}

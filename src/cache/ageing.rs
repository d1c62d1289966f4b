//! How old a cached file is, in passes over the data: opens since its last use against the number of distinct files opened since. Pure.
//!
//! Why: under shuffled epochs a file may go unread for almost two passes and still be part of the working set; only a file unread for longer
//! than that is not. For every other file, one gap between two uses holds at most two opens (one in the rest of this epoch, one in the next),
//! so over no span of time within the gap is `age > 2 x distinct` true: *never* inside a working set, exactly. Over any other set it becomes true when
//! the third pass begins. Whatever was last used before such a span has aged, for good: that point in time is the horizon.
//!
//! It does not order entries and does not know what is cached. Memory is bounded: it watches a sample of the files, by hash (Waldspurger et al.,
//! SHARDS, FAST'15); the argument above holds for every subset of the files.

use std::collections::HashMap;

/// Opens of one file closer together than this are one use: PIL verifies and reads, several workers share an index file.
const SAME_USE_OPENS: u64 = 64;
/// Files watched at most: some 4 MB, and a sample of this size gives ages to a percent.
const WATCHED_MAX: usize = 1 << 16;
/// The horizon is looked for this many times per pass: late by so little, and cheap.
const LOOKS_PER_PASS: usize = 256;
/// No span shorter than this says anything.
const SPAN_MIN: u64 = 16;

/// One open as remembered: number of the use, number of the open.
#[derive(Clone, Copy, Debug)]
struct Watched {
    slot: u32,
    opens: u64,
}

/// The clock. Its time is the number of uses of watched files.
#[derive(Debug)]
pub(super) struct Ageing {
    opens: u64,
    uses: u64,
    /// What was last used then or before has aged.
    horizon: u64,
    looked: u64,
    /// Ages are not known from before this use.
    since: u64,
    /// When (open, use) the sample was last found to be of the right size.
    fitted: (u64, u64),
    /// Files whose hash ends in this many zero bits are watched.
    sample_bits: u32,
    watched_max: usize,
    watched: HashMap<u64, Watched>,
    /// (use, file), ascending; live while the file's `slot` says so.
    slots: Vec<(u64, u64)>,
    /// Fenwick tree over `slots`: 1 for each live one.
    live: Vec<u32>,
}

impl Default for Ageing {
    fn default() -> Self {
        Self::watching(WATCHED_MAX)
    }
}

impl Ageing {
    fn watching(watched_max: usize) -> Self {
        Self {
            opens: 0,
            uses: 0,
            horizon: 0,
            looked: 0,
            since: 0,
            fitted: (0, 0),
            sample_bits: 0,
            watched_max,
            watched: HashMap::new(),
            slots: Vec::new(),
            live: vec![0; 2 * watched_max + 1],
        }
    }

    /// The time, to be remembered with an entry at its use.
    pub(super) fn now(&self) -> u64 {
        self.uses
    }

    /// Some file, cached or not, was opened.
    pub(super) fn opened(&mut self, file: u64) {
        self.opens += 1;
        self.fit_sample();
        if file.trailing_zeros() < self.sample_bits {
            return;
        }
        if self.slots.len() == 2 * self.watched_max {
            self.close_gaps();
        }
        if let Some(watched) = self.watched.get(&file) {
            if self.opens - watched.opens < SAME_USE_OPENS {
                return;
            }
            let old = watched.slot;
            self.count(old as usize, -1);
        }
        self.uses += 1;
        let slot = self.slots.len();
        self.slots.push((self.uses, file));
        self.count(slot, 1);
        self.watched.insert(file, Watched { slot: u32::try_from(slot).expect("at most twice WATCHED_MAX"), opens: self.opens });
        if self.uses - self.looked > (self.watched.len() / LOOKS_PER_PASS) as u64 {
            self.look_for_horizon();
        }
    }

    /// Whether a file last used at `used` has not been used for longer than two passes.
    pub(super) fn is_aged(&self, used: u64) -> bool {
        used <= self.horizon && self.horizon > 0
    }

    /// A span of d distinct files proves something when it is longer than 2d; so for spans of all lengths, the one of 2d + 1 is tried.
    fn look_for_horizon(&mut self) {
        self.looked = self.uses;
        let longest = self.uses - self.since.max(self.horizon);
        let mut span = SPAN_MIN;
        while span < longest {
            let needed = 2 * self.distinct_since(self.uses - span) + 1;
            if needed <= longest && needed > 2 * self.distinct_since(self.uses - needed) {
                self.horizon = self.uses - needed;
                return;
            }
            // In steps of a quarter: any length between one pass and two finds the same d.
            span += span / 4;
        }
    }

    fn distinct_since(&self, used: u64) -> u64 {
        let first = self.slots.partition_point(|&(at, _)| at <= used);
        u64::from(self.prefix(self.slots.len()) - self.prefix(first))
    }

    /// A full watch list halves the sample; few files used again and again (the data became fewer) double it. Either starts the ages anew: late,
    /// never wrong.
    fn fit_sample(&mut self) {
        let most = self.watched_max as u64;
        let opens = self.opens - self.fitted.0;
        if self.watched.len() > self.watched_max {
            self.sample_bits += 1;
        } else if self.sample_bits > 0 && opens >= 16 * most {
            let used = self.distinct_since(self.fitted.1);
            self.fitted = (self.opens, self.uses);
            if used >= most / 16 || opens < 8 * (used << self.sample_bits) {
                return;
            }
            self.sample_bits -= 1;
        } else {
            return;
        }
        self.fitted = (self.opens, self.uses);
        self.since = self.uses;
        self.watched.clear();
        self.slots.clear();
        self.live.fill(0);
    }

    /// Drops the slots that later uses made stale.
    fn close_gaps(&mut self) {
        let watched = &mut self.watched;
        let mut next = 0_u32;
        let mut old = 0_u32;
        self.slots.retain(|(_, file)| {
            let slot = watched.get_mut(file).filter(|watched| watched.slot == old);
            old += 1;
            // Renumbered slots are below `old`, so a stale slot of the same file later in the list cannot match one.
            slot.map(|watched| {
                watched.slot = next;
                next += 1;
            })
            .is_some()
        });
        self.live.fill(0);
        for slot in 0..self.slots.len() {
            self.count(slot, 1);
        }
    }

    fn count(&mut self, slot: usize, change: i32) {
        let mut at = slot + 1;
        while at < self.live.len() {
            self.live[at] = self.live[at].wrapping_add_signed(change);
            at += at & at.wrapping_neg();
        }
    }

    /// Live slots among the first `slots`.
    fn prefix(&self, slots: usize) -> u32 {
        let mut at = slots;
        let mut sum = 0;
        while at > 0 {
            sum += self.live[at];
            at &= at - 1;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;
    use rand::seq::SliceRandom;
    use rand::{RngExt, SeedableRng, rngs::SmallRng};

    use super::*;

    #[test]
    fn inside_a_working_set_nothing_ages_whatever_the_shuffle() {
        // With a small watch list too: the sample halves several times on the way.
        for (files, watched_max) in [(100, 1000), (1000, 1024), (1000, 100)] {
            let mut clock = Ageing::watching(watched_max);
            let mut rng = SmallRng::seed_from_u64(1);
            let names: Vec<u64> = (0..files).map(|_| rng.random()).collect();
            let mut order: Vec<usize> = (0..files).collect();
            let mut used = vec![0; files];
            for epoch in 0..6 {
                order.shuffle(&mut rng);
                for &file in &order {
                    assert!(epoch == 0 || !clock.is_aged(used[file]), "{files} {watched_max}");
                    clock.opened(names[file]);
                    clock.opened(names[file]); // a second open right away is no second use
                    used[file] = clock.now();
                }
            }
        }
    }

    #[test]
    fn a_set_left_behind_ages_in_the_third_pass_over_another() {
        for watched_max in [4096, 256] {
            let mut clock = Ageing::watching(watched_max);
            let mut rng = SmallRng::seed_from_u64(2);
            let names: Vec<u64> = (0..2000).map(|_| rng.random()).collect();
            for file in &names[..1000] {
                clock.opened(*file);
            }
            let left = clock.now();
            let passes = (1..20)
                .find(|_| {
                    names[1000..].iter().for_each(|file| clock.opened(*file));
                    clock.is_aged(left)
                })
                .unwrap();
            assert!(if watched_max == 4096 { passes == 3 } else { (3..=6).contains(&passes) }, "{passes} with {watched_max}");
        }
    }

    #[test]
    fn the_sample_grows_again_when_the_data_become_fewer() {
        let mut clock = Ageing::watching(256);
        let mut rng = SmallRng::seed_from_u64(3);
        (0..100_000).for_each(|_| clock.opened(rng.random()));
        assert!(clock.sample_bits > 4);
        let few: Vec<u64> = (0..200).map(|_| rng.random()).collect();
        (0..500).for_each(|_| few.iter().for_each(|file| clock.opened(*file)));
        assert!(clock.sample_bits <= 4, "{}", clock.sample_bits);
    }

    proptest! {
        #[test]
        fn distinct_is_what_a_set_would_say(opens in prop::collection::vec(0..100_u64, 1..300)) {
            let mut clock = Ageing::watching(110); // 300 opens need the gaps closed
            let mut uses = Vec::new();
            for file in opens {
                let before = clock.now();
                clock.opened(file);
                if clock.now() > before {
                    uses.push(file);
                }
                for since in (0..=uses.len()).rev().step_by(41) {
                    let distinct: HashSet<u64> = uses[since..].iter().copied().collect();
                    prop_assert_eq!(clock.distinct_since(since as u64), distinct.len() as u64);
                }
            }
        }
    }
}

//! What is cached: one entry per complete file of any tier, the order of their use, and who must go when there is no room. Pure.
//!
//! *Planned* entries are the planner's: it admits and retires them, nothing here ever chooses one as a victim. *Unplanned* ones go when the
//! planner needs the room, oldest use first; for another unplanned file they go only when they have aged (see [`super::ageing`]). So a steady
//! working set larger than the cache keeps a fixed part of itself (hit rate = cache fraction, where LRU has nearly nothing), a set left behind
//! makes room in its third pass, and a one-off read displaces nothing.

use std::collections::{BTreeMap, HashMap};

use super::ageing::Ageing;
use super::hash::FileHash;

/// Whose an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Planned,
    Unplanned,
}

/// Which unplanned entries may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victims {
    /// Any, for planned data.
    Unplanned,
    /// Those not used for longer than two passes, for unplanned data.
    Aged,
    /// Any, and as many as there are if that is not enough: the tier shrinks.
    Shed,
}

/// How an open found a cached file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstUse {
    /// It was fetched ahead, and this is the first open since.
    FetchedAhead,
    /// It was opened before, came from an earlier run, was fetched for this very open, or is not cached.
    Before,
}

/// Why an entry was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    FetchedAhead,
    Demanded,
    Recovered,
}

/// One file. `P` is what the tiers need to reach it.
#[derive(Debug)]
pub(super) struct Entry<P> {
    pub(super) size: u64,
    pub(super) tier: usize,
    /// Bytes that its end would free.
    pub(super) charge: u64,
    pub(super) standing: Standing,
    pub(super) origin: Origin,
    pub(super) payload: P,
    opened: bool,
    /// Order of use, unique.
    turn: u64,
    /// Time of use on the ageing clock.
    used: u64,
}

impl<P> Entry<P> {
    pub(super) fn new(size: u64, tier: usize, charge: u64, standing: Standing, origin: Origin, payload: P) -> Self {
        Self { size, tier, charge, standing, origin, payload, opened: false, turn: 0, used: 0 }
    }
}

/// What an open of a file says about its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) first: FirstUse,
    /// The tier that served it without the store.
    pub(super) hit: Option<usize>,
}

/// All entries.
#[derive(Debug)]
pub(super) struct Index<P> {
    entries: HashMap<FileHash, Entry<P>>,
    /// Unplanned entries by turn, one map per tier.
    unplanned: Vec<BTreeMap<u64, FileHash>>,
    clock: Ageing,
    turn: u64,
}

impl<P> Index<P> {
    pub(super) fn new(tiers: usize) -> Self {
        Self { entries: HashMap::new(), unplanned: vec![BTreeMap::new(); tiers], clock: Ageing::default(), turn: 0 }
    }

    pub(super) fn get(&self, hash: FileHash) -> Option<&Entry<P>> {
        self.entries.get(&hash)
    }

    pub(super) fn get_mut(&mut self, hash: FileHash) -> Option<&mut P> {
        self.entries.get_mut(&hash).map(|entry| &mut entry.payload)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (FileHash, &Entry<P>)> {
        self.entries.iter().map(|(&hash, entry)| (hash, entry))
    }

    /// Adds an entry as just used; gives back the one it replaces.
    pub(super) fn insert(&mut self, hash: FileHash, mut entry: Entry<P>) -> Option<Entry<P>> {
        let replaced = self.remove(hash);
        self.turn += 1;
        entry.turn = self.turn;
        entry.used = self.clock.now();
        if entry.standing == Standing::Unplanned {
            self.unplanned[entry.tier].insert(entry.turn, hash);
        }
        self.entries.insert(hash, entry);
        replaced
    }

    pub(super) fn remove(&mut self, hash: FileHash) -> Option<Entry<P>> {
        let entry = self.entries.remove(&hash)?;
        self.unplanned[entry.tier].remove(&entry.turn);
        Some(entry)
    }

    /// A file, cached or not, was opened: the clock goes on, the entry becomes the last used.
    pub(super) fn opened(&mut self, hash: FileHash) -> Use {
        self.clock.opened(hash.low());
        self.turn += 1;
        let Some(entry) = self.entries.get_mut(&hash) else { return Use { first: FirstUse::Before, hit: None } };
        if entry.standing == Standing::Unplanned {
            self.unplanned[entry.tier].remove(&entry.turn);
            self.unplanned[entry.tier].insert(self.turn, hash);
        }
        entry.turn = self.turn;
        entry.used = self.clock.now();
        let again = std::mem::replace(&mut entry.opened, true);
        let first = if entry.origin == Origin::FetchedAhead && !again { FirstUse::FetchedAhead } else { FirstUse::Before };
        Use { first, hit: (again || entry.origin != Origin::Demanded).then_some(entry.tier) }
    }

    /// Hands an entry to the planner, or takes it back from it.
    pub(super) fn set_standing(&mut self, hash: FileHash, standing: Standing) -> bool {
        let Some(entry) = self.entries.get_mut(&hash) else { return false };
        entry.standing = standing;
        match standing {
            Standing::Planned => self.unplanned[entry.tier].remove(&entry.turn),
            Standing::Unplanned => self.unplanned[entry.tier].insert(entry.turn, hash),
        };
        true
    }

    /// Removes entries of one tier, oldest use first, until they make up `bytes`; if they cannot, none at all, unless to shed. `held` ones stay: they free nothing.
    pub(super) fn take_victims(
        &mut self,
        tier: usize,
        bytes: u64,
        which: Victims,
        mut held: impl FnMut(FileHash, &P) -> bool,
    ) -> Vec<(FileHash, Entry<P>)> {
        let mut chosen = Vec::new();
        let mut sum = 0;
        for hash in self.unplanned[tier].values() {
            let entry = &self.entries[hash];
            // Ordered by use: the first that has not aged ends the search.
            if sum >= bytes || which == Victims::Aged && !self.clock.is_aged(entry.used) {
                break;
            }
            if !held(*hash, &entry.payload) {
                chosen.push(*hash);
                sum += entry.charge;
            }
        }
        if sum < bytes && which != Victims::Shed {
            chosen.clear();
        }
        chosen.into_iter().filter_map(|hash| self.remove(hash).map(|entry| (hash, entry))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;
    use rand::seq::SliceRandom;
    use rand::{RngExt, SeedableRng, rngs::SmallRng};

    use super::*;

    const FILES: usize = 20_000;

    /// A cache of equal files under one of two rules.
    trait Cache {
        /// Opens a file, admits it if the rule says so; whether it was there.
        fn read(&mut self, file: FileHash) -> bool;
    }

    struct NoEvictWithAgeing {
        index: Index<()>,
        room: usize,
    }

    impl Cache for NoEvictWithAgeing {
        fn read(&mut self, file: FileHash) -> bool {
            let hit = self.index.opened(file).hit.is_some();
            if self.index.get(file).is_none() {
                if self.index.entries.len() == self.room && self.index.take_victims(0, 1, Victims::Aged, |_, ()| false).is_empty() {
                    return false;
                }
                self.index.insert(file, Entry::new(1, 0, 1, Standing::Unplanned, Origin::Recovered, ()));
            }
            hit
        }
    }

    #[derive(Default)]
    struct Lru {
        turns: HashMap<FileHash, u64>,
        by_turn: BTreeMap<u64, FileHash>,
        room: usize,
        turn: u64,
    }

    impl Cache for Lru {
        fn read(&mut self, file: FileHash) -> bool {
            self.turn += 1;
            let old = self.turns.insert(file, self.turn);
            if let Some(turn) = old {
                self.by_turn.remove(&turn);
            }
            self.by_turn.insert(self.turn, file);
            if self.turns.len() > self.room {
                let (_, oldest) = self.by_turn.pop_first().unwrap();
                self.turns.remove(&oldest);
            }
            old.is_some()
        }
    }

    fn ageing(room: usize) -> NoEvictWithAgeing {
        NoEvictWithAgeing { index: Index::new(1), room }
    }

    fn lru(room: usize) -> Lru {
        Lru { room, ..Lru::default() }
    }

    struct Reader {
        files: Vec<FileHash>,
        rng: SmallRng,
    }

    impl Reader {
        fn of(seed: u64, files: usize) -> Self {
            let mut rng = SmallRng::seed_from_u64(seed);
            Self { files: (0..files).map(|_| FileHash(rng.random())).collect(), rng }
        }

        /// One shuffled epoch; its hit rate.
        #[expect(clippy::cast_precision_loss, reason = "small counts")]
        fn epoch(&mut self, cache: &mut impl Cache) -> f64 {
            self.files.shuffle(&mut self.rng);
            self.files.iter().filter(|&&file| cache.read(file)).count() as f64 / self.files.len() as f64
        }
    }

    #[test]
    fn a_steady_working_set_is_hit_exactly_as_often_as_it_fits() {
        // design.md §3 measured LRU at .005, .02, .155 and .48.
        for (tenths, lru_at_most) in [(1, 0.02), (2, 0.04), (5, 0.17), (8, 0.5)] {
            let room = FILES * tenths / 10;
            let c = tenths as f64 / 10.0;
            let (mut reader, mut ours, mut theirs) = (Reader::of(7, FILES), ageing(room), lru(room));
            reader.epoch(&mut ours);
            reader.epoch(&mut theirs);
            for _ in 0..2 {
                let hit = reader.epoch(&mut ours);
                assert!((hit - c).abs() < 1e-9, "hit {hit} at {c}");
            }
            let hit = reader.epoch(&mut theirs);
            assert!(hit < lru_at_most, "LRU {hit} at {c}");
        }
    }

    #[test]
    fn when_the_working_set_moves_the_cache_follows_within_three_epochs() {
        let mut ours = ageing(FILES * 12 / 10);
        let (mut first, mut second) = (Reader::of(1, FILES), Reader::of(2, FILES));
        first.epoch(&mut ours);
        assert!((first.epoch(&mut ours) - 1.0).abs() < 1e-9);
        let hits: Vec<f64> = (0..5).map(|_| second.epoch(&mut ours)).collect();
        assert!((hits[1] - 0.2).abs() < 1e-9, "what was free is filled at once: {hits:?}");
        assert!(hits[3] > 0.99 && (hits[4] - 1.0).abs() < 1e-9, "{hits:?}");
    }

    #[test]
    fn a_one_off_read_displaces_nothing() {
        let mut ours = ageing(FILES / 2);
        let mut reader = Reader::of(3, FILES);
        for _ in 0..3 {
            reader.epoch(&mut ours);
        }
        let mut checkpoint = Reader::of(4, 5_000);
        (0..2).for_each(|_| assert!(checkpoint.epoch(&mut ours) < 1e-9, "never let in"));
        (0..3).for_each(|_| assert!((reader.epoch(&mut ours) - 0.5).abs() < 1e-9));
    }

    #[test]
    fn the_first_open_of_a_file_fetched_ahead_is_told_apart() {
        let mut index = Index::new(1);
        let (ahead, demanded, recovered) = (FileHash(1), FileHash(2), FileHash(3));
        index.insert(ahead, Entry::new(1, 0, 1, Standing::Planned, Origin::FetchedAhead, ()));
        index.insert(demanded, Entry::new(1, 0, 1, Standing::Planned, Origin::Demanded, ()));
        index.insert(recovered, Entry::new(1, 0, 1, Standing::Unplanned, Origin::Recovered, ()));
        let mut open = |hash| index.opened(hash);
        assert_eq!(open(ahead), Use { first: FirstUse::FetchedAhead, hit: Some(0) });
        assert_eq!(open(ahead), Use { first: FirstUse::Before, hit: Some(0) });
        assert_eq!(open(demanded), Use { first: FirstUse::Before, hit: None }, "this open fetched it");
        assert_eq!(open(demanded), Use { first: FirstUse::Before, hit: Some(0) });
        assert_eq!(open(recovered), Use { first: FirstUse::Before, hit: Some(0) });
        assert_eq!(open(FileHash(4)), Use { first: FirstUse::Before, hit: None });
    }

    proptest! {
        #[test]
        fn victims_are_the_oldest_unplanned_enough_and_no_more(
            steps in prop::collection::vec((0..5u8, 0..12u128, 1..9u64), 1..120),
            need in 1..60u64,
            shed in any::<bool>(),
            held in prop::collection::hash_set(0..12u128, 0..4),
        ) {
            let mut index = Index::new(2);
            let mut by_use: Vec<u128> = Vec::new(); // the model: last used last
            for (step, file, charge) in steps {
                let hash = FileHash(file);
                match step {
                    0 => drop(index.remove(hash)),
                    1 => drop(index.set_standing(hash, Standing::Planned)),
                    2 => drop(index.set_standing(hash, Standing::Unplanned)),
                    3 => drop(index.opened(hash)),
                    _ => drop(index.insert(hash, Entry::new(charge, (file % 2) as usize, charge, Standing::Unplanned, Origin::Demanded, ()))),
                }
                if step >= 3 || step == 0 {
                    by_use.retain(|&other| other != file);
                    by_use.extend(index.get(hash).map(|_| file));
                }
            }
            let mut expected = Vec::new();
            let mut sum = 0;
            for file in by_use {
                let entry = index.get(FileHash(file)).unwrap();
                if entry.tier == 1 && entry.standing == Standing::Unplanned && !held.contains(&file) && sum < need {
                    sum += entry.charge;
                    expected.push(file);
                }
            }
            if sum < need && !shed {
                expected.clear();
            }
            let before = index.entries.len();
            let which = if shed { Victims::Shed } else { Victims::Unplanned };
            let taken = index.take_victims(1, need, which, |hash, ()| held.contains(&hash.0));
            prop_assert_eq!(taken.iter().map(|(hash, _)| hash.0).collect::<Vec<_>>(), expected.clone());
            prop_assert_eq!(index.entries.len(), before - expected.len());
            let listed: HashSet<FileHash> = index.unplanned.iter().flat_map(BTreeMap::values).copied().collect();
            let unplanned: HashSet<FileHash> =
                index.iter().filter(|(_, e)| e.standing == Standing::Unplanned).map(|(hash, _)| hash).collect();
            prop_assert_eq!(listed, unplanned);
        }
    }
}

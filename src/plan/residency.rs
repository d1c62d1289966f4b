//! The planner's books: which file is where, why it is there, and who goes next.
//!
//! Every resident file is in exactly one class: *in flight* (asked for ahead), *ready* (here, its use still to come), *kept* (its next use
//! is worth the room: ordered by the retention key) or *disposable* (used, and lost the key test). Disposables are retired lazily, oldest
//! first, when room is needed; a re-open until then still hits.
//!
//! Promises: what the planner asks for never takes a tier beyond its capacity (`shed.rs`: unless that shrinks); kept and promised bytes stay within capacity − reserve; a
//! file is retired only when no handle is open on it, because its bytes would not be freed before. The cache's own words (`Fetched`,
//! `Gone`, `Present`) always win over the books. Does no I/O and knows no orders: the key's round is handed in.

mod shed;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::Action;
use super::key::Key;
use super::next_use::{FAR, Round};
use crate::types::FileIndex;

/// Class of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Class {
    #[default]
    Absent,
    InFlight,
    Ready,
    Kept,
    Disposable,
}

/// 8 bytes a file.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    round: Round,
    class: Class,
    tier: u8,
    flags: u8,
}

/// A handle is open.
const OPEN: u8 = 1;
/// Fetched ahead and not opened since.
const AHEAD: u8 = 2;
/// Room among the kept is promised to it.
const PROMISED: u8 = 4;
/// Stands in the queue of disposables.
const QUEUED: u8 = 8;
/// Opened while in flight.
const READ: u8 = 16;
/// Open or in flight since before the last sweep.
const SUSPECT: u8 = 32;

/// One tier's books, bytes.
#[derive(Clone, Debug, Default)]
struct Tier {
    capacity: u64,
    /// Kept free of kept files, for the window.
    reserve: u64,
    in_flight: u64,
    ready: u64,
    /// Of in flight and ready, what will be kept after its use.
    promised: u64,
    kept: u64,
    disposable: u64,
    keys: BTreeSet<Key>,
    queue: VecDeque<FileIndex>,
}

impl Tier {
    const fn used(&self) -> u64 {
        self.in_flight + self.ready + self.kept + self.disposable
    }
    const fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used())
    }
    const fn limit(&self) -> u64 {
        self.capacity.saturating_sub(self.reserve)
    }
    const fn room_to_keep(&self) -> u64 {
        self.limit().saturating_sub(self.kept + self.promised)
    }
}

/// Fetched ahead and let go of unread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wasted {
    pub files: u64,
    pub bytes: u64,
}

/// The books.
#[derive(Debug)]
pub(crate) struct Residency {
    entries: Vec<Entry>,
    sizes: Arc<[u64]>,
    tiers: Vec<Tier>,
    in_flight_files: u32,
    ready_files: u32,
    pub(crate) wasted: Wasted,
    pub(crate) issued: u64,
    pub(crate) useful: u64,
    open_bytes: u64,
    open_bytes_peak: u64,
}

/// Entries of one tier looked at to find room for one file by its key; beyond that it is not worth it.
const DISPLACE_MAX: usize = 64;

impl Residency {
    pub(crate) fn new(capacities: &[u64], sizes: Arc<[u64]>) -> Self {
        Self {
            entries: vec![Entry::default(); sizes.len()],
            tiers: capacities.iter().take(usize::from(u8::MAX)).map(|&capacity| Tier { capacity, ..Tier::default() }).collect(),
            sizes,
            in_flight_files: 0,
            ready_files: 0,
            wasted: Wasted::default(),
            issued: 0,
            useful: 0,
            open_bytes: 0,
            open_bytes_peak: 0,
        }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.tiers.iter().map(|t| t.capacity).sum()
    }
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.tiers.iter().map(|t| t.kept).sum()
    }
    pub(crate) fn kept_limit(&self) -> u64 {
        self.tiers.iter().map(Tier::limit).sum()
    }
    /// In flight and ready.
    pub(crate) fn ahead_bytes(&self) -> u64 {
        self.tiers.iter().map(|t| t.in_flight + t.ready).sum()
    }
    pub(crate) fn ready_bytes(&self) -> u64 {
        self.tiers.iter().map(|t| t.ready).sum()
    }
    /// Room for run-ahead that displaces nothing worth keeping.
    pub(crate) fn free_for_ahead(&self) -> u64 {
        self.tiers.iter().map(|t| t.capacity.saturating_sub(t.kept)).sum()
    }
    pub(crate) const fn in_flight_files(&self) -> u32 {
        self.in_flight_files
    }
    pub(crate) const fn ahead_files(&self) -> u32 {
        self.in_flight_files + self.ready_files
    }
    pub(crate) fn class(&self, file: FileIndex) -> Class {
        self.entries[file.at()].class
    }
    pub(crate) fn round(&self, file: FileIndex) -> Round {
        self.entries[file.at()].round
    }
    pub(crate) fn files(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// Capacity of the largest tier.
    pub(crate) fn largest_tier(&self) -> u64 {
        self.tiers.iter().map(|t| t.capacity).max().unwrap_or(0)
    }
    /// Most bytes held open at once since the last call.
    pub(crate) fn take_open_peak(&mut self) -> u64 {
        std::mem::replace(&mut self.open_bytes_peak, self.open_bytes)
    }

    /// Keeps `window` bytes free of kept files, in the fastest tiers first.
    pub(crate) fn set_reserve(&mut self, window: u64) {
        let mut left = window;
        for tier in &mut self.tiers {
            tier.reserve = left.min(tier.capacity);
            left -= tier.reserve;
        }
    }

    fn size(&self, file: FileIndex) -> u64 {
        self.sizes[file.at()]
    }
    fn has(&self, file: FileIndex, flag: u8) -> bool {
        self.entries[file.at()].flags & flag != 0
    }
    fn set(&mut self, file: FileIndex, flag: u8) {
        self.entries[file.at()].flags |= flag;
    }
    fn unset(&mut self, file: FileIndex, flag: u8) {
        self.entries[file.at()].flags &= !flag;
    }

    /// Takes a file out of its class.
    fn take(&mut self, file: FileIndex) {
        let size = self.size(file);
        let entry = self.entries[file.at()];
        if entry.class == Class::Absent {
            return;
        }
        let tier = &mut self.tiers[usize::from(entry.tier)];
        match entry.class {
            Class::Absent => {}
            Class::InFlight => {
                tier.in_flight -= size;
                self.in_flight_files -= 1;
            }
            Class::Ready => {
                tier.ready -= size;
                self.ready_files -= 1;
            }
            Class::Kept => {
                tier.kept -= size;
                let was_there = tier.keys.remove(&Key::new(file, entry.round, size));
                debug_assert!(was_there, "the key is a function of what the entry says");
            }
            Class::Disposable => tier.disposable -= size,
        }
        if entry.flags & PROMISED != 0 {
            tier.promised -= size;
        }
        let entry = &mut self.entries[file.at()];
        entry.flags &= !(PROMISED | READ);
        entry.class = Class::Absent;
    }

    /// Puts an absent file into a class.
    fn put(&mut self, file: FileIndex, class: Class, tier: usize, round: Round) {
        debug_assert_eq!(self.class(file), Class::Absent);
        let size = self.size(file);
        let books = &mut self.tiers[tier];
        match class {
            Class::Absent => {}
            Class::InFlight => {
                books.in_flight += size;
                self.in_flight_files += 1;
            }
            Class::Ready => {
                books.ready += size;
                self.ready_files += 1;
            }
            Class::Kept => {
                books.kept += size;
                books.keys.insert(Key::new(file, round, size));
            }
            Class::Disposable => {
                books.disposable += size;
                if !self.has(file, QUEUED | OPEN) {
                    self.tiers[tier].queue.push_back(file);
                    self.set(file, QUEUED);
                }
            }
        }
        let entry = &mut self.entries[file.at()];
        entry.class = class;
        entry.round = round;
        entry.tier = u8::try_from(tier).expect("at most 255 tiers are taken");
    }

    fn change(&mut self, file: FileIndex, class: Class, round: Round) {
        let tier = usize::from(self.entries[file.at()].tier);
        self.take(file);
        self.put(file, class, tier, round);
    }

    /// A handle was opened.
    pub(crate) fn opened(&mut self, file: FileIndex) {
        if !self.has(file, OPEN) {
            self.open_bytes += self.size(file);
            self.open_bytes_peak = self.open_bytes_peak.max(self.open_bytes);
        }
        if self.has(file, AHEAD) {
            self.useful += 1;
        }
        self.set(file, OPEN);
        self.unset(file, AHEAD | SUSPECT);
        if self.class(file) == Class::InFlight {
            self.set(file, READ);
        }
    }

    /// The last handle was closed. True if that freed a file for retirement.
    pub(crate) fn released(&mut self, file: FileIndex) -> bool {
        if self.has(file, OPEN) {
            self.open_bytes -= self.size(file);
            self.unset(file, OPEN | SUSPECT);
        }
        let entry = self.entries[file.at()];
        if entry.class == Class::Disposable && entry.flags & QUEUED == 0 {
            self.tiers[usize::from(entry.tier)].queue.push_back(file);
            self.set(file, QUEUED);
            return true;
        }
        false
    }

    /// A fetch ahead was asked for; `promised` if it will be kept after its use.
    pub(crate) fn asked(&mut self, file: FileIndex, tier: usize, round: Round, promised: bool) {
        self.put(file, Class::InFlight, tier, round);
        self.issued += 1;
        self.unset(file, READ | SUSPECT);
        self.set(file, AHEAD);
        if promised {
            self.tiers[tier].promised += self.size(file);
            self.set(file, PROMISED);
        }
    }

    /// The file is complete. False if its use has been already and it must be settled now.
    pub(crate) fn fetched(&mut self, file: FileIndex, tier: usize, ahead: bool, due: Option<Round>) -> bool {
        let tier = tier.min(self.tiers.len().saturating_sub(1));
        let before = self.entries[file.at()];
        let (promised, read) = (before.flags & PROMISED != 0, before.flags & (READ | OPEN) != 0);
        self.take(file);
        if !ahead || read {
            self.unset(file, AHEAD);
        } else {
            self.set(file, AHEAD);
        }
        let unread = match before.class {
            Class::InFlight => !read,
            _ => due.is_some() && before.flags & OPEN == 0,
        };
        self.put(file, Class::Ready, tier, due.unwrap_or(FAR));
        // A promise holds for the tier it was given in.
        if promised && tier == usize::from(before.tier) {
            self.tiers[tier].promised += self.size(file);
            self.set(file, PROMISED);
        }
        unread
    }

    /// A fetch failed, or the cache let the file go.
    pub(crate) fn gone(&mut self, file: FileIndex) {
        if self.has(file, AHEAD) && self.class(file) != Class::InFlight {
            self.wasted.files += 1;
            self.wasted.bytes += self.size(file);
        }
        self.take(file);
        self.unset(file, AHEAD);
    }

    /// Found in the cache at start, or here without our asking and without an order: kept, whatever the limit says.
    pub(crate) fn present(&mut self, file: FileIndex, tier: usize, round: Round) {
        if self.tiers.is_empty() {
            return;
        }
        let tier = tier.min(self.tiers.len() - 1);
        self.take(file);
        self.put(file, Class::Kept, tier, round);
    }

    /// Its next use is in `round` now: nothing else changes.
    pub(crate) fn rekey(&mut self, file: FileIndex, round: Round) {
        if self.class(file) == Class::Kept && self.round(file) != round {
            self.change(file, Class::Kept, round);
        }
    }

    /// Without a test: kept because nothing is known, or ready because it is counted on.
    pub(crate) fn hold(&mut self, file: FileIndex, class: Class, round: Round) {
        if !matches!(self.class(file), Class::Absent | Class::InFlight) {
            self.change(file, class, round);
        }
    }

    /// The key test, after a use: kept while there is room or a larger key to displace, disposable otherwise.
    pub(crate) fn settle(&mut self, file: FileIndex, round: Round) {
        match self.class(file) {
            Class::Absent | Class::InFlight => return,
            Class::Kept => return self.rekey(file, round),
            Class::Ready | Class::Disposable => {}
        }
        let tier = usize::from(self.entries[file.at()].tier);
        let size = self.size(file);
        self.take(file);
        let key = Key::new(file, round, size);
        let room = self.tiers[tier].room_to_keep();
        let class = if room >= size || self.displace(tier, key, size - room) { Class::Kept } else { Class::Disposable };
        self.put(file, class, tier, round);
    }

    /// Makes files of a tier with keys larger than `key` disposable until `needed` bytes are given up; all or nothing.
    fn displace(&mut self, tier: usize, key: Key, needed: u64) -> bool {
        let mut given = 0;
        let mut victims = 0;
        for other in self.tiers[tier].keys.iter().rev().take(DISPLACE_MAX) {
            if *other <= key || given >= needed {
                break;
            }
            given += other.size();
            victims += 1;
        }
        if given < needed {
            return false;
        }
        for _ in 0..victims {
            let worst = *self.tiers[tier].keys.last().expect("as many were counted");
            self.change(worst.file(), Class::Disposable, worst.round());
        }
        true
    }

    /// Where a file to be fetched for its use in some round goes, and whether it is promised to be kept after it; room is made. `None`: no room.
    pub(crate) fn place(&mut self, file: FileIndex, after: Round, out: &mut Vec<Action>) -> Option<(usize, bool)> {
        let size = self.size(file);
        for tier in 0..self.tiers.len() {
            if self.tiers[tier].room_to_keep() >= size && self.make_room(tier, size, out) {
                return Some((tier, true));
            }
        }
        let key = Key::new(file, after, size);
        let worst = (0..self.tiers.len()).filter_map(|t| self.tiers[t].keys.last().map(|&k| (k, t))).max();
        if let Some((worst, tier)) = worst
            && worst > key
            // Where the window lives a file is read first and tested after; displacing now would cost a kept file its time.
            && self.tiers[tier].reserve == 0
            && self.reclaimable(tier) + worst.size() >= size
        {
            let needed = size.saturating_sub(self.tiers[tier].room_to_keep());
            if self.displace(tier, key, needed) && self.make_room(tier, size, out) {
                return Some((tier, true));
            }
        }
        (0..self.tiers.len()).find(|&tier| self.make_room(tier, size, out)).map(|tier| (tier, false))
    }

    /// Free bytes and those that retiring disposables would free.
    fn reclaimable(&self, tier: usize) -> u64 {
        self.tiers[tier].free() + self.tiers[tier].disposable
    }

    /// Retires disposables, and kept files beyond the limit, until `size` bytes are free.
    fn make_room(&mut self, tier: usize, size: u64, out: &mut Vec<Action>) -> bool {
        if self.tiers[tier].capacity < size {
            return false;
        }
        while self.tiers[tier].free() < size {
            if let Some(file) = self.tiers[tier].queue.pop_front() {
                self.unset(file, QUEUED);
                let entry = self.entries[file.at()];
                // An open one comes back when it is released.
                if entry.class == Class::Disposable && usize::from(entry.tier) == tier && entry.flags & OPEN == 0 {
                    self.gone(file);
                    out.push(Action::Retire { file });
                }
            } else if self.tiers[tier].kept + self.tiers[tier].promised > self.tiers[tier].limit()
                && let Some(&worst) = self.tiers[tier].keys.last()
            {
                self.change(worst.file(), Class::Disposable, worst.round());
            } else {
                return false;
            }
        }
        true
    }

    /// A visit of the slow sweep: handles and fetches whose end was never told are given up after two visits. True if it was given up.
    pub(crate) fn suspect(&mut self, file: FileIndex) -> bool {
        let stuck = self.has(file, OPEN) || self.class(file) == Class::InFlight;
        if !stuck {
            return false;
        }
        if !self.has(file, SUSPECT) {
            self.set(file, SUSPECT);
            return false;
        }
        if self.class(file) == Class::InFlight {
            self.gone(file);
        }
        self.released(file);
        self.unset(file, SUSPECT);
        true
    }

    /// What must hold after every event: each figure is the sum over the files.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        for (t, tier) in self.tiers.iter().enumerate() {
            let sum = |wanted: Class| -> u64 {
                (0..)
                    .zip(&self.entries)
                    .filter(|(_, e)| e.class == wanted && usize::from(e.tier) == t)
                    .map(|(f, _)| self.size(FileIndex(f)))
                    .sum()
            };
            assert_eq!((tier.in_flight, tier.ready), (sum(Class::InFlight), sum(Class::Ready)), "tier {t}");
            assert_eq!((tier.kept, tier.disposable), (sum(Class::Kept), sum(Class::Disposable)), "tier {t}");
            assert_eq!(tier.keys.iter().map(Key::size).sum::<u64>(), tier.kept);
            assert!(tier.promised <= tier.in_flight + tier.ready);
        }
    }

    #[cfg(test)]
    pub(crate) fn used(&self, tier: usize) -> u64 {
        self.tiers[tier].used()
    }
}

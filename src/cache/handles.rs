//! The open files that nobody need be using: a bounded set, so that a warm open costs no open(2) and a million cached files no million
//! descriptors. Second chance (CLOCK) in shards.
//!
//! Not moka: it drops what is removed from it at some later housekeeping, and a retired file must give its bytes back when its last *reader* is gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::file::CachedFile;
use super::hash::FileHash;

/// More than the cores that open at once on the machines we know; a shard is held for one hash look-up.
const SHARDS: usize = 64;

#[derive(Debug)]
struct Held {
    hash: FileHash,
    file: Arc<CachedFile>,
    used: bool,
}

#[derive(Debug, Default)]
struct Shard {
    at: HashMap<FileHash, usize>,
    held: Vec<Held>,
    hand: usize,
}

#[derive(Debug)]
pub(super) struct Handles {
    shards: Vec<Mutex<Shard>>,
    per_shard: usize,
}

impl Handles {
    pub(super) fn new(descriptors: usize) -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), per_shard: (descriptors / SHARDS).max(1) }
    }

    fn shard(&self, hash: FileHash) -> MutexGuard<'_, Shard> {
        // A panic while held leaves at worst a stale slot number, which `take` and `get` compare away.
        self.shards[(hash.low() % SHARDS as u64) as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, hash: FileHash) -> Option<Arc<CachedFile>> {
        let mut shard = self.shard(hash);
        let slot = *shard.at.get(&hash)?;
        let held = shard.held.get_mut(slot).filter(|held| held.hash == hash)?;
        held.used = true;
        Some(Arc::clone(&held.file))
    }

    /// Whether somebody besides this set holds the very handle that this set holds; `None` if it holds none.
    pub(super) fn is_shared(&self, hash: FileHash) -> Option<bool> {
        let shard = self.shard(hash);
        let held = shard.held.get(*shard.at.get(&hash)?)?;
        Some(Arc::strong_count(&held.file) > 1)
    }

    /// Adds a handle; the one it displaces comes back, to be dropped (closed) outside all locks.
    #[must_use]
    pub(super) fn put(&self, hash: FileHash, file: Arc<CachedFile>) -> Option<Arc<CachedFile>> {
        let mut shard = self.shard(hash);
        let new = Held { hash, file, used: false };
        if let Some(&slot) = shard.at.get(&hash) {
            return Some(std::mem::replace(&mut shard.held[slot], new).file);
        }
        if shard.held.len() < self.per_shard {
            let slot = shard.held.len();
            shard.held.push(new);
            shard.at.insert(hash, slot);
            return None;
        }
        while std::mem::take(&mut shard.next().used) {
            shard.hand += 1;
        }
        let slot = shard.hand % shard.held.len();
        shard.hand = slot + 1;
        let old = std::mem::replace(&mut shard.held[slot], new);
        shard.at.remove(&old.hash);
        shard.at.insert(hash, slot);
        Some(old.file)
    }

    #[must_use]
    pub(super) fn take(&self, hash: FileHash) -> Option<Arc<CachedFile>> {
        let mut shard = self.shard(hash);
        let slot = shard.at.remove(&hash)?;
        let taken = shard.held.swap_remove(slot);
        if let Some(moved) = shard.held.get(slot).map(|held| held.hash) {
            shard.at.insert(moved, slot);
        }
        Some(taken.file)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap().held.len()).sum()
    }
}

impl Shard {
    fn next(&mut self) -> &mut Held {
        let slot = self.hand % self.held.len();
        &mut self.held[slot]
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rand::{RngExt, SeedableRng, rngs::SmallRng};

    use super::*;
    use crate::cache::budget::Budget;
    use crate::cache::file::Data;
    use crate::cache::tier::{Place, Tier};
    use crate::stats::Stats;

    #[test]
    fn the_set_is_bounded_and_gives_up_what_is_not_used() {
        let handles = Handles::new(SHARDS * 4);
        let tier = Tier::new(None, Place::Heap, 0, true, &Arc::new(Stats::default()));
        let room = Arc::new(Budget::new(0, None).take_found(0));
        let file = || CachedFile::new(0, &tier, Data::Heap(Bytes::new()), &room, true);
        let mut rng = SmallRng::seed_from_u64(1);
        let dear = FileHash(rng.random());
        drop(handles.put(dear, file()));
        for _ in 0..5000 {
            drop(handles.put(FileHash(rng.random()), file()));
            assert!(handles.get(dear).is_some(), "used between any two others");
        }
        assert_eq!(handles.len(), SHARDS * 4);
        assert_eq!(handles.is_shared(dear), Some(false));
        let held = handles.take(dear).unwrap();
        assert!(handles.get(dear).is_none() && handles.is_shared(dear).is_none());
        drop(handles.put(dear, Arc::clone(&held)));
        assert_eq!(handles.is_shared(dear), Some(true));
        drop((handles, held));
        assert_eq!(Arc::strong_count(&room), 1, "nothing is kept back");
    }

    #[test]
    fn it_agrees_with_a_map_while_there_is_room() {
        let handles = Handles::new(SHARDS * 64);
        let tier = Tier::new(None, Place::Heap, 0, true, &Arc::new(Stats::default()));
        let room = Arc::new(Budget::new(0, None).take_found(0));
        let mut model: HashMap<FileHash, u64> = HashMap::new();
        let mut rng = SmallRng::seed_from_u64(2);
        for size in 0..3000_u64 {
            let hash = FileHash(rng.random_range(0..200));
            if rng.random_bool(0.4) {
                assert_eq!(handles.take(hash).map(|file| file.size()), model.remove(&hash));
            } else {
                let displaced = handles.put(hash, CachedFile::new(size, &tier, Data::Heap(Bytes::new()), &room, true));
                assert_eq!(displaced.map(|file| file.size()), model.insert(hash, size));
            }
            assert_eq!(handles.len(), model.len());
        }
        assert!(model.iter().all(|(&hash, &size)| handles.get(hash).is_some_and(|file| file.size() == size)));
    }
}

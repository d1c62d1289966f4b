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

//! The cache: an ordered list of tiers, each a place with a byte budget for complete, exact-length files, one per object version.
//!
//! It promises: a file is visible only when complete; its bytes are counted from before the first is written until it is unlinked and its last
//! holder is gone, and never exceed the tier's budget (but for the moment after [`TieredCache::limit_memory`] lowered it); what is damaged or
//! missing is a miss and a counter, never a reader's error; planned files are evicted by nobody but the planner; files on disks survive restarts,
//! and their checksum is looked at once per life before their first use.
//!
//! It does not fetch, does not decide what to plan, and does not wait: what touches a disk says so ("blocking"). Reading order: hash, budget,
//! ageing, index (what is kept, pure); memory, disk, health, tier (where); file, handles, shared, reserve, writer, partial, recover, janitor.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::types::{ErrorKind, ObjectId};

mod ageing;
mod automatic;
mod budget;
mod build;
mod disk;
mod file;
mod handles;
mod hash;
mod health;
mod index;
mod janitor;
mod memory;
mod partial;
mod recover;
mod reserve;
mod shared;
mod tier;
mod writer;

pub use automatic::{automatic_bytes, write_automatic_bytes};
pub use budget::charge_of;
pub use build::{CacheConfig, DiskTier, TRANSIENT_BYTES, tier_counters};
pub use file::CachedFile;
pub use hash::{FileHash, hash_of};
pub use index::FirstUse;
pub use partial::{BLOCK_BYTES, PartialFile};
pub use recover::Recovered;
pub use reserve::Reservation;
pub use writer::Writer;

use index::Standing;
use shared::Shared;

/// A failure of a tier. A reader never sees it: it is a counter and a miss.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct CacheError {
    pub kind: ErrorKind,
    pub message: String,
}

impl CacheError {
    fn io(what: String, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            _ => ErrorKind::Io,
        };
        Self { kind, message: format!("{what}: {error}") }
    }

    fn invalid(message: String) -> Self {
        Self { kind: ErrorKind::Invalid, message }
    }
}

/// Where a new file should go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The planner's word: this tier, or the next slower one with room.
    Planned { tier: usize },
    /// Nobody planned it: fastest tier with room, else in place of an entry not read for two passes, else nowhere.
    Unplanned,
    /// Not kept: lives as long as somebody holds it, within the transient budget.
    Transient,
}

/// What a lookup finds.
#[derive(Debug)]
pub enum Lookup {
    /// Ready.
    Hit(Arc<CachedFile>),
    /// Maybe on disk: [`TieredCache::open`] (blocking) decides.
    Unsure,
    /// Not here.
    Miss,
}

/// All tiers and their budgets. Dropping it releases the cache directories; files still held stay readable.
#[derive(Debug)]
pub struct TieredCache {
    shared: Arc<Shared>,
}

impl TieredCache {
    /// Never blocks. Counts nothing.
    #[must_use]
    pub fn lookup(&self, id: &ObjectId, size: u64) -> Lookup {
        self.shared.lookup(hash_of(id), size)
    }

    /// Blocking: opens (and verifies, once per daemon life) a file of a disk tier. Works at once after a restart, whatever [`Self::recover`] does.
    #[must_use]
    pub fn open(&self, id: &ObjectId, size: u64) -> Option<Arc<CachedFile>> {
        self.shared.open(hash_of(id), size, hash::proof_of(id))
    }

    /// To be called once for every open of a file, cached or not, after its bytes are there: the ageing clock counts opens. Counts a tier's hit
    /// unless this open is the one that fetched the file.
    pub fn opened(&self, id: &ObjectId) -> FirstUse {
        let used = self.shared.books().index.opened(hash_of(id));
        if let Some(tier) = used.hit {
            self.shared.tiers[tier].count(|counters| counters.hits.add(1));
        }
        used.first
    }

    /// Hands a cached file to the planner (it is never evicted then, only retired), or takes it back. Whether it is known.
    pub fn set_planned(&self, id: &ObjectId, planned: bool) -> bool {
        let standing = if planned { Standing::Planned } else { Standing::Unplanned };
        self.shared.books().index.set_standing(hash_of(id), standing)
    }

    /// Every cached file: its name (see [`hash_of`]), size and tier. After a restart complete once [`Self::recover`] has returned.
    #[must_use]
    pub fn contents(&self) -> Vec<(FileHash, u64, usize)> {
        self.shared.books().index.iter().map(|(hash, entry)| (hash, entry.size, entry.tier)).collect()
    }

    /// Takes room for `size` bytes. Never waits.
    ///
    /// # Errors
    /// `NoSpace` when the placement has none.
    pub fn reserve(&self, size: u64, placement: Placement) -> Result<Reservation, CacheError> {
        self.shared.reserve(size, placement)
    }

    /// Starts a file in reserved room.
    #[must_use]
    pub fn writer(&self, reservation: Reservation, id: &ObjectId, size: u64) -> Writer {
        Writer::new(&self.shared, reservation, hash_of(id), hash::proof_of(id), size)
    }

    /// What the memory tier may hold from now on, at most what it was built with: shown as its capacity. New reservations see it at once; unplanned
    /// files above it are evicted, oldest use first. Planned ones are the planner's to retire and open ones go when they are closed, so until
    /// then the tier uses more than its capacity: by so many bytes, which is the answer. To be called again while it is not 0. Blocks on no disk, but
    /// many files in memory take a while to end.
    #[must_use]
    pub fn limit_memory(&self, bytes: u64) -> u64 {
        let memory = self.shared.tiers.first().filter(|tier| tier.disk().is_none());
        memory.map_or(0, |tier| self.shared.limit_memory(tier, bytes))
    }

    /// Lets go of a version; whether it was known. Its bytes stay counted until the last holder drops it, on a disk also until it is unlinked.
    /// Waits for no disk, unless an absurd number of unlinks is owed.
    pub fn retire(&self, id: &ObjectId) -> bool {
        let known = self.shared.retire(hash_of(id));
        for tier in self.shared.tiers.iter().filter(|tier| tier.owed_count() > tier::OWED_MAX) {
            janitor::unlink_some(tier, 1);
        }
        known
    }

    /// Blocking, once after a start with disk tiers: counts what lies on them. Until it is done nothing is written to a disk tier that was not empty.
    pub fn recover(&self) -> Recovered {
        recover::recover(&self.shared)
    }

    /// Whether [`Self::recover`] is still to do or being done.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        self.shared.is_scanning()
    }

    /// Blocking: unlinks now what would be unlinked soon.
    pub fn settle(&self) {
        for tier in &self.shared.tiers {
            while janitor::unlink_some(tier, 1) > 0 {}
        }
    }

    /// Bytes of the transient files now.
    #[must_use]
    pub fn transient_used_bytes(&self) -> u64 {
        self.shared.transient.budget.used()
    }
}

impl Drop for TieredCache {
    fn drop(&mut self) {
        self.shared.closed.store(true, Relaxed);
        self.shared.wake.stop();
        self.shared.tiers.iter().filter_map(|tier| tier.disk()).for_each(disk::DiskDir::disown);
    }
}

//! Finding room for a new file: what is free, then what is given up but not yet unlinked, then what may be evicted. Nothing here waits for a disk.

use std::sync::Arc;

use super::budget::{Room, charge_of};
use super::hash::FileHash;
use super::index::{Origin, Standing, Victims};
use super::shared::{Shared, Stored};
use super::tier::{Place, Tier};
use super::{CacheError, Placement};
use crate::types::ErrorKind;

/// Room that another thread took between our eviction and our taking is looked for again, but not for ever.
const ATTEMPTS: usize = 4;

/// Evicted at once when a tier shrinks: the index is locked meanwhile, for some hundred files of 110 KB.
const SHED_BYTES: u64 = 64 << 20;

/// Files to be unlinked before their room is written into. Dropped, it leaves them to the janitor.
#[derive(Debug)]
pub(super) struct Claim {
    tier: Arc<Tier>,
    names: Vec<FileHash>,
}

impl Claim {
    /// Unlinks them and joins their room to `room`. Blocks on the disk.
    pub(super) fn settle(mut self, room: &mut Room) {
        for hash in std::mem::take(&mut self.names) {
            if let Some(freed) = self.tier.unlink(hash).and_then(Arc::into_inner) {
                room.absorb(freed);
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.tier.unclaim(&self.names);
    }
}

/// Room taken before a byte is written. Dropping it gives the room back.
#[derive(Debug)]
pub struct Reservation {
    pub(super) tier: Arc<Tier>,
    pub(super) room: Room,
    /// What the file will be charged: `room` plus, on a disk, what `claim` frees.
    pub(super) charge: u64,
    pub(super) claim: Claim,
    pub(super) standing: Standing,
    pub(super) origin: Origin,
    evicted: Vec<FileHash>,
}

impl Reservation {
    /// The file is fetched ahead of its use: its first open will be told so.
    #[must_use]
    pub fn fetched_ahead(mut self) -> Self {
        self.origin = Origin::FetchedAhead;
        self
    }

    /// Tier it will lie in; `None` for transient ones.
    #[must_use]
    pub fn tier(&self) -> Option<usize> {
        self.tier.number
    }

    /// The files that had to go for it (unplanned ones): the kernel's pages of them should go too.
    #[must_use]
    pub fn evicted(&self) -> &[FileHash] {
        &self.evicted
    }
}

impl Shared {
    pub(super) fn reserve(&self, size: u64, placement: Placement) -> Result<Reservation, CacheError> {
        self.refuse_closed()?;
        let charge = charge_of(size);
        let found = match placement {
            Placement::Transient => self.free_room(&self.transient, charge, Standing::Unplanned),
            Placement::Planned { tier } => {
                self.tiers.iter().skip(tier).find_map(|tier| self.room_in(tier, charge, Standing::Planned, Victims::Unplanned))
            }
            Placement::Unplanned => {
                let free = self.tiers.iter().find_map(|tier| self.free_room(tier, charge, Standing::Unplanned));
                free.or_else(|| self.tiers.iter().find_map(|tier| self.room_in(tier, charge, Standing::Unplanned, Victims::Aged)))
            }
        };
        found.ok_or_else(|| CacheError {
            kind: ErrorKind::NoSpace,
            message: format!("no room for {size} bytes in the cache ({placement:?})"),
        })
    }

    fn free_room(&self, tier: &Arc<Tier>, charge: u64, standing: Standing) -> Option<Reservation> {
        if !tier.is_ok() || !tier.is_scanned() {
            return None;
        }
        let room = tier.budget.take(charge)?;
        let claim = Claim { tier: Arc::clone(tier), names: Vec::new() };
        Some(Reservation { tier: Arc::clone(tier), room, charge, claim, standing, origin: Origin::Demanded, evicted: Vec::new() })
    }

    /// Room in one tier, at the cost of others if need be.
    pub(super) fn room_in(&self, tier: &Arc<Tier>, charge: u64, standing: Standing, which: Victims) -> Option<Reservation> {
        if !tier.is_ok() || !tier.is_scanned() || charge > tier.budget.limit() {
            return None;
        }
        let mut evicted = Vec::new();
        for _ in 0..ATTEMPTS {
            // On disks the room is joined from what is unlinked, so what a full disk lacks is no use to evict.
            let above = if tier.disk().is_none() { tier.budget.excess() } else { 0 };
            let missing = charge.saturating_sub(tier.budget.free()).saturating_add(above);
            let (names, mut claimed) = tier.claim(missing);
            let mut claim = Claim { tier: Arc::clone(tier), names };
            if claimed < missing {
                let (victims, freed) = self.evict(tier, missing - claimed, which);
                if victims.is_empty() {
                    return None;
                }
                if tier.disk().is_some() {
                    claim.names.extend(&victims);
                    claimed += freed;
                }
                evicted.extend(victims);
            }
            if let Some(room) = tier.budget.take(charge.saturating_sub(claimed)) {
                return Some(Reservation { tier: Arc::clone(tier), room, charge, claim, standing, origin: Origin::Demanded, evicted });
            }
        }
        None
    }

    /// Sets what a memory tier may hold now, and evicts unplanned files, oldest use first, down to it. Bytes still above it.
    pub(super) fn limit_memory(&self, tier: &Tier, bytes: u64) -> u64 {
        tier.budget.set_limit(bytes);
        tier.count(|counters| counters.capacity_bytes.set(tier.budget.limit()));
        let mut excess = tier.budget.excess();
        while excess > 0 {
            let (victims, freed) = self.evict(tier, excess.min(SHED_BYTES), Victims::Shed);
            if victims.is_empty() {
                break;
            }
            excess = excess.saturating_sub(freed);
        }
        tier.budget.excess()
    }

    /// Ends unplanned entries that make up `bytes`. On memory tiers their room is free now, on disks when they are unlinked.
    fn evict(&self, tier: &Tier, bytes: u64, which: Victims) -> (Vec<FileHash>, u64) {
        let Some(number) = tier.number else { return (Vec::new(), 0) };
        let mut handles = Vec::new();
        let victims = {
            let mut books = self.books();
            let victims = books.index.take_victims(number, bytes, which, |hash, stored| self.is_held(hash, stored));
            for (hash, entry) in &victims {
                handles.extend(self.handles.take(*hash));
                if matches!(tier.place, Place::Disk(_)) {
                    tier.owe_claimed(*hash, Arc::clone(&entry.payload.room));
                }
            }
            victims
        };
        drop(handles);
        tier.count(|counters| counters.evicted.add(victims.len() as u64));
        let mut names = Vec::with_capacity(victims.len());
        let mut freed = 0;
        for (hash, entry) in victims {
            freed += entry.charge;
            names.push(hash);
            self.forget(entry);
        }
        (names, freed)
    }

    /// Whether somebody reads it now, besides our own handles.
    fn is_held(&self, hash: FileHash, stored: &Stored) -> bool {
        if let Some(file) = &stored.heap {
            return Arc::strong_count(file) > 1;
        }
        match self.handles.is_shared(hash) {
            Some(shared) => shared || Arc::strong_count(&stored.room) > 2,
            None => Arc::strong_count(&stored.room) > 1,
        }
    }
}

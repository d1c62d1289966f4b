//! The budget of a tier: room is taken before a byte is written and given back when the last thing that needs it is gone. It promises that
//! the sum of all rooms never exceeds the capacity, and that the `used_bytes` gauge is exactly that sum. It decides nothing about who gets it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::stats::Stats;

/// Files take whole pages (tmpfs) or blocks (ext4, xfs default).
const BLOCK_BYTES: u64 = 4096;
/// Inode, directory entry and our own entry: measured at 1 KiB of slab per tmpfs file; about as much on ext4.
pub(super) const PER_FILE_BYTES: u64 = 1024;

/// Bytes of data rounded as the file system does it.
pub(super) fn rounded(bytes: u64) -> u64 {
    bytes.saturating_add(BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES
}

/// What one complete file of this size takes from the budget.
#[must_use]
pub fn charge_of(size: u64) -> u64 {
    rounded(size).saturating_add(PER_FILE_BYTES)
}

/// One budget. All numbers are bytes.
#[derive(Debug)]
pub(super) struct Budget {
    capacity: u64,
    /// The capacity, or less while the disk itself is full or the machine's memory is wanted by others.
    limit: AtomicU64,
    used: AtomicU64,
    /// Whose gauge shows `used`; transient files have none.
    gauge: Option<(Arc<Stats>, usize)>,
}

impl Budget {
    pub(super) fn new(capacity: u64, gauge: Option<(Arc<Stats>, usize)>) -> Arc<Self> {
        Arc::new(Self { capacity, limit: AtomicU64::new(capacity), used: AtomicU64::new(0), gauge })
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// What may be used now.
    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// There is less (or again more) than we were promised; never more than the capacity. What is used already may stay above it for a while.
    pub(super) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes.min(self.capacity), Relaxed);
    }

    pub(super) fn free(&self) -> u64 {
        self.limit().saturating_sub(self.used())
    }

    /// Used beyond the limit, after that was lowered.
    pub(super) fn excess(&self) -> u64 {
        self.used().saturating_sub(self.limit())
    }

    /// Takes room, or says that there is none.
    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> Option<Room> {
        self.raise(bytes).then(|| Room { budget: Arc::clone(self), bytes })
    }

    /// Counts what lies on the disk already, whatever the limit: recovery then evicts down to it.
    pub(super) fn take_found(self: &Arc<Self>, bytes: u64) -> Room {
        self.used.fetch_add(bytes, Relaxed);
        self.show(|gauge| gauge.add(bytes));
        Room { budget: Arc::clone(self), bytes }
    }

    fn raise(&self, bytes: u64) -> bool {
        let limit = self.limit();
        let raised = self.used.try_update(Relaxed, Relaxed, |used| used.checked_add(bytes).filter(|&sum| sum <= limit)).is_ok();
        if raised {
            self.show(|gauge| gauge.add(bytes));
        }
        raised
    }

    fn lower(&self, bytes: u64) {
        self.show(|gauge| gauge.sub(bytes));
        self.used.fetch_sub(bytes, Relaxed);
    }

    fn show(&self, change: impl Fn(&crate::stats::Counter)) {
        if let Some((stats, tier)) = &self.gauge
            && let Some(counters) = stats.tiers.get(*tier)
        {
            change(&counters.used_bytes);
        }
    }
}

/// Room taken. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Room {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Room {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Joins the room of something that is gone; both belong to one budget.
    pub(super) fn absorb(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.budget, &other.budget));
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Takes more, if there is more.
    pub(super) fn grow(&mut self, bytes: u64) -> bool {
        let raised = self.budget.raise(bytes);
        if raised {
            self.bytes += bytes;
        }
        raised
    }

    /// Gives back all above `bytes`.
    pub(super) fn shrink_to(&mut self, bytes: u64) {
        if let Some(surplus) = self.bytes.checked_sub(bytes) {
            self.bytes = bytes;
            self.budget.lower(surplus);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.budget.lower(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_charge_counts_whole_blocks_and_the_inode() {
        assert_eq!([0, 1, 4096, 4097].map(charge_of), [1024, 5120, 5120, 9216]);
        assert!(charge_of(u64::MAX) > u64::MAX - 8192, "no overflow");
    }

    proptest! {
        #[test]
        fn rooms_never_exceed_the_limit_and_all_come_back(steps in prop::collection::vec((0..5u8, 0..60u64), 0..200)) {
            let budget = Budget::new(100, None);
            let mut rooms: Vec<Room> = Vec::new();
            for (step, bytes) in steps {
                let free = budget.free();
                match (step, rooms.pop()) {
                    (0, Some(room)) => drop(room),
                    (1, Some(mut room)) => {
                        prop_assert_eq!(room.grow(bytes), bytes <= free);
                        rooms.push(room);
                    }
                    (2, Some(mut room)) => {
                        room.shrink_to(bytes);
                        rooms.push(room);
                    }
                    (3, Some(mut room)) => {
                        if let Some(other) = rooms.pop() {
                            room.absorb(other);
                        }
                        rooms.push(room);
                    }
                    (_, last) => {
                        rooms.extend(last);
                        let taken = budget.take(bytes);
                        prop_assert_eq!(taken.is_some(), bytes <= free);
                        rooms.extend(taken);
                    }
                }
                prop_assert_eq!(budget.used(), rooms.iter().map(Room::bytes).sum::<u64>());
                prop_assert!(budget.used() <= budget.limit());
            }
            drop(rooms);
            prop_assert_eq!(budget.used(), 0);
        }
    }
}

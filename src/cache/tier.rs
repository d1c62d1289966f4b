//! One tier: a place, its budget, its health, and (on disks) the files it still has to unlink.
//!
//! Files on disks are unlinked later, by the janitor or by whoever is about to write into the room they hold: an unlink can take a millisecond
//! and `retire` is called from threads that must not wait. Until then they are *owed*: off the index, on the disk, counted.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Acquire, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::CacheError;
use super::budget::{Budget, Room};
use super::disk::DiskDir;
use super::hash::FileHash;
use super::health::Health;
use super::memory::Tmpfs;
use crate::stats::{Stats, TierState};
use crate::types::ErrorKind;

/// Above this many owed unlinks `retire` does one itself: 8 MB of our memory.
pub(super) const OWED_MAX: usize = 1 << 16;

/// A disk operation that takes this long will not end: drives give up after 7 to 30 s, NFS never. Below the read deadline by far.
const HUNG: Duration = Duration::from_secs(10);

/// Where the files are.
#[derive(Debug)]
pub(super) enum Place {
    Tmpfs(Arc<Tmpfs>),
    Heap,
    Disk(DiskDir),
}

/// A file off the index whose name is still on the disk.
#[derive(Debug)]
struct OwedFile {
    /// `None` for one the scan has not counted yet.
    room: Option<Arc<Room>>,
    /// Somebody will write into its room and unlinks it first, or its unlink failed and is not tried again.
    claimed: bool,
    /// The janitor is unlinking it, and its room is somebody's who will write into it.
    promised: bool,
}

#[derive(Debug, Default)]
struct Owed {
    files: HashMap<FileHash, OwedFile>,
    /// Oldest first; names no longer in `files` are skipped.
    queue: VecDeque<FileHash>,
    /// The one the janitor is unlinking.
    tidied: Option<FileHash>,
    /// Rooms of files that the janitor has unlinked for those they are promised to; no more than there are claims.
    ready: HashMap<FileHash, Arc<Room>>,
}

/// Operations of a disk that have begun and not ended, by ticket: the first is the oldest.
#[derive(Debug, Default)]
struct Busy {
    ticket: u64,
    since: BTreeMap<u64, Instant>,
}

/// An operation on a tier; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Operation<'a> {
    tier: &'a Tier,
    ticket: Option<u64>,
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.tier.busy.lock().unwrap_or_else(PoisonError::into_inner).since.remove(&ticket);
        }
    }
}

#[derive(Debug)]
pub(super) struct Tier {
    /// Its number in the stats; `None` for the transient files' tier.
    pub(super) number: Option<usize>,
    pub(super) place: Place,
    pub(super) budget: Arc<Budget>,
    /// Whether what lay there at the start is counted: until then nothing is written, or the budget could be exceeded.
    pub(super) scanned: AtomicBool,
    stats: Arc<Stats>,
    health: Mutex<Health>,
    state: AtomicU8,
    owed: Mutex<Owed>,
    busy: Mutex<Busy>,
}

impl Tier {
    pub(super) fn new(number: Option<usize>, place: Place, capacity: u64, scanned: bool, stats: &Arc<Stats>) -> Arc<Self> {
        let tier = Self {
            number,
            place,
            budget: Budget::new(capacity, number.map(|number| (Arc::clone(stats), number))),
            scanned: AtomicBool::new(scanned),
            stats: Arc::clone(stats),
            health: Mutex::default(),
            state: AtomicU8::new(TierState::Ok as u8),
            owed: Mutex::default(),
            busy: Mutex::default(),
        };
        tier.count(|counters| counters.capacity_bytes.set(capacity));
        Arc::new(tier)
    }

    pub(super) fn count(&self, change: impl Fn(&crate::stats::TierCounters)) {
        if let Some(counters) = self.number.and_then(|number| self.stats.tiers.get(number)) {
            change(counters);
        }
    }

    pub(super) fn disk(&self) -> Option<&DiskDir> {
        if let Place::Disk(disk) = &self.place { Some(disk) } else { None }
    }

    /// Whether it may be read, written and passed through.
    pub(super) fn is_ok(&self) -> bool {
        self.state.load(Relaxed) == TierState::Ok as u8
    }

    pub(super) fn is_scanned(&self) -> bool {
        self.scanned.load(Acquire)
    }

    /// Begins an operation that may hang, unless another one does: so a hanging disk costs the threads that met it in [`HUNG`], and no more.
    pub(super) fn begin(&self, now: Instant) -> Result<Operation<'_>, CacheError> {
        if self.disk().is_none() {
            return Ok(Operation { tier: self, ticket: None });
        }
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let hangs = busy.since.first_key_value().is_some_and(|(_, &since)| now.saturating_duration_since(since) > HUNG);
        if hangs {
            drop(busy);
            self.count(|counters| counters.errors.add(1));
            self.change_health(|health| health.hung(now));
            return Err(CacheError { kind: ErrorKind::Io, message: "the cache disk hangs".into() });
        }
        busy.ticket += 1;
        let ticket = busy.ticket;
        busy.since.insert(ticket, now);
        Ok(Operation { tier: self, ticket: Some(ticket) })
    }

    /// An operation failed.
    pub(super) fn failed(&self) {
        self.count(|counters| counters.errors.add(1));
        self.change_health(|health| health.failed(Instant::now()));
    }

    /// A file was not what it should be; the disk itself answered, so its health is as it was.
    pub(super) fn damaged(&self) {
        self.count(|counters| counters.errors.add(1));
    }

    pub(super) fn succeeded(&self) {
        self.change_health(Health::succeeded);
    }

    fn change_health(&self, change: impl FnOnce(Health) -> Health) {
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        let before = health.state();
        *health = change(*health);
        let state = health.state();
        if state != before {
            self.state.store(state as u8, Relaxed);
            self.count(|counters| counters.state.set(state as u64));
            let name = self.number.and_then(|number| self.stats.tiers.get(number)).map_or("transient", |counters| counters.name.as_str());
            tracing::warn!(tier = name, from = ?before, to = ?state, "cache tier changed state");
        }
    }

    /// The disk under us is full before our budget is, and did not take `refused`: the rest is what we get, until [`Self::upkeep`] measures more.
    pub(super) fn is_full(&self, refused: u64) {
        self.budget.set_limit(self.budget.used().saturating_sub(refused));
    }

    /// What time brings: probes of a failed tier, the true size of a full disk. Touches the disk.
    pub(super) fn upkeep(&self, now: Instant) {
        let due = self.health.lock().unwrap_or_else(PoisonError::into_inner).probe_is_due(now);
        if due {
            let well = self.disk().is_none_or(|disk| disk.probe().is_ok());
            self.change_health(|health| health.probed(well, now));
        }
        if let Some(disk) = self.disk().filter(|_| self.is_ok() && self.budget.limit() < self.budget.capacity())
            && let Ok(available) = disk.available()
        {
            self.budget.set_limit(self.budget.used().saturating_add(available));
        }
    }

    fn owed(&self) -> MutexGuard<'_, Owed> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file left the index.
    pub(super) fn owe(&self, hash: FileHash, room: Option<Arc<Room>>) {
        let mut owed = self.owed();
        owed.files.insert(hash, OwedFile { room, claimed: false, promised: false });
        owed.queue.push_back(hash);
    }

    /// As [`Self::owe`], for a victim whose room is already spoken for.
    pub(super) fn owe_claimed(&self, hash: FileHash, room: Arc<Room>) {
        self.owed().files.insert(hash, OwedFile { room: Some(room), claimed: true, promised: false });
    }

    /// A new file took the name over.
    pub(super) fn is_published(&self, hash: FileHash) {
        self.owed().files.remove(&hash);
    }

    pub(super) fn owed_count(&self) -> usize {
        self.owed().queue.len()
    }

    /// Names whose unlinking would free at least `bytes`, or fewer if there are not so many. Files somebody still reads free nothing and stay.
    pub(super) fn claim(&self, bytes: u64) -> (Vec<FileHash>, u64) {
        let owed = &mut *self.owed();
        let (mut names, mut sum) = (Vec::new(), 0);
        for _ in 0..owed.queue.len() {
            if sum >= bytes {
                break;
            }
            let Some(hash) = owed.queue.pop_front() else { break };
            let Some(file) = owed.files.get_mut(&hash).filter(|file| !file.claimed) else { continue };
            match &file.room {
                Some(room) if Arc::strong_count(room) == 1 => {
                    sum += room.bytes();
                    file.claimed = true;
                    names.push(hash);
                }
                _ => owed.queue.push_back(hash),
            }
        }
        // What is being unlinked at this moment is as good.
        if sum < bytes
            && let Some(hash) = owed.tidied
            && let Some(file) = owed.files.get_mut(&hash).filter(|file| !file.promised)
            && let Some(room) = file.room.as_ref().filter(|room| Arc::strong_count(room) == 1)
        {
            sum += room.bytes();
            file.promised = true;
            names.push(hash);
        }
        (names, sum)
    }

    /// The claimed names will not be needed.
    pub(super) fn unclaim(&self, names: &[FileHash]) {
        let owed = &mut *self.owed();
        for hash in names {
            drop(owed.ready.remove(hash));
            let Some(file) = owed.files.get_mut(hash) else { continue };
            if !std::mem::take(&mut file.promised) {
                file.claimed = false;
                owed.queue.push_back(*hash);
            }
        }
    }

    /// The next name to unlink with [`Self::tidy`], one at a time.
    pub(super) fn next_owed(&self) -> Option<FileHash> {
        let owed = &mut *self.owed();
        while let Some(hash) = owed.queue.pop_front() {
            if let Some(file) = owed.files.get_mut(&hash).filter(|file| !file.claimed) {
                file.claimed = true;
                owed.tidied = Some(hash);
                return Some(hash);
            }
        }
        None
    }

    /// Unlinks what [`Self::next_owed`] said; its room is free then, or kept for whom it was promised to meanwhile.
    pub(super) fn tidy(&self, hash: FileHash) {
        let promised = |owed: &mut Owed| {
            owed.tidied = None;
            owed.files.get_mut(&hash).is_some_and(|file| std::mem::take(&mut file.promised))
        };
        let Some(disk) = self.disk() else { return };
        let _name = disk.lock_name(hash);
        if self.owed().files.contains_key(&hash) && disk.remove(hash).is_err() {
            // It stays owed, claimed and counted: the bytes are still there.
            promised(&mut self.owed());
            return self.failed();
        }
        let owed = &mut *self.owed();
        let promised = promised(owed);
        let room = owed.files.remove(&hash).and_then(|file| file.room);
        if let Some(room) = room.filter(|_| promised) {
            owed.ready.insert(hash, room);
        }
    }

    /// Unlinks an owed file, unless a new one has taken its name; its room, which may be held by readers.
    pub(super) fn unlink(&self, hash: FileHash) -> Option<Arc<Room>> {
        let disk = self.disk()?;
        let _name = disk.lock_name(hash);
        {
            let owed = &mut *self.owed();
            if !owed.files.contains_key(&hash) {
                return owed.ready.remove(&hash);
            }
        }
        if disk.remove(hash).is_err() {
            // It stays owed, claimed and counted: the bytes are still there.
            self.failed();
            return None;
        }
        self.owed().files.remove(&hash)?.room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk_tier(dir: &std::path::Path) -> Arc<Tier> {
        let disk = DiskDir::claim(dir, "ns").unwrap();
        Tier::new(None, Place::Disk(disk), 1 << 20, true, &Arc::default())
    }

    fn owed_room(tier: &Tier, hash: FileHash, bytes: u64) -> Arc<Room> {
        let room = Arc::new(tier.budget.take(bytes).unwrap());
        tier.owe(hash, Some(Arc::clone(&room)));
        room
    }

    #[test]
    fn a_failed_tier_comes_back_when_the_disk_does() {
        let dir = tempfile::tempdir().unwrap();
        let tier = disk_tier(dir.path());
        (0..5).for_each(|_| tier.failed());
        assert!(!tier.is_ok());
        tier.upkeep(Instant::now());
        assert!(!tier.is_ok(), "no probe is due yet");
        std::fs::remove_dir_all(dir.path()).unwrap();
        std::fs::write(dir.path(), "in the way").unwrap();
        tier.upkeep(Instant::now() + Duration::from_secs(31));
        assert!(!tier.is_ok(), "the probe failed");
        std::fs::remove_file(dir.path()).unwrap();
        tier.upkeep(Instant::now() + Duration::from_secs(62));
        assert!(tier.is_ok());
    }

    #[test]
    fn a_hanging_operation_stops_others_from_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let tier = disk_tier(dir.path());
        let start = Instant::now();
        let hanging = tier.begin(start).unwrap();
        drop(tier.begin(start + HUNG).unwrap());
        assert!(tier.is_ok());
        assert!(tier.begin(start + HUNG * 2).is_err() && !tier.is_ok());
        drop(hanging);
        drop(tier.begin(start + HUNG * 3).unwrap());
        assert!(!tier.is_ok(), "only a probe brings it back");
    }

    #[test]
    fn a_full_disk_is_measured_again() {
        let dir = tempfile::tempdir().unwrap();
        let tier = disk_tier(dir.path());
        let room = tier.budget.take(1000).unwrap();
        tier.is_full(400);
        assert_eq!(tier.budget.limit(), 600);
        tier.upkeep(Instant::now());
        assert_eq!(tier.budget.limit(), 1 << 20, "this disk has more free than our budget");
        drop(room);
    }

    #[test]
    fn claims_take_the_oldest_unheld_names_and_give_back_what_is_not_needed() {
        let dir = tempfile::tempdir().unwrap();
        let tier = disk_tier(dir.path());
        let held = owed_room(&tier, FileHash(1), 100);
        drop(owed_room(&tier, FileHash(2), 100));
        drop(owed_room(&tier, FileHash(3), 100));
        assert_eq!(tier.claim(50), (vec![FileHash(2)], 100));
        assert_eq!(tier.claim(500), (vec![FileHash(3)], 100), "a held one frees nothing, a claimed one is spoken for");
        tier.unclaim(&[FileHash(2)]);
        assert_eq!(tier.claim(1), (vec![FileHash(2)], 100));
        assert_eq!(tier.next_owed(), Some(FileHash(1)));
        assert_eq!(tier.next_owed(), None);
        tier.tidy(FileHash(1));
        drop(tier.unlink(FileHash(2)));
        assert_eq!(tier.budget.used(), 200, "the held and the claimed one");
        drop((held, tier.unlink(FileHash(3))));
        assert_eq!(tier.budget.used(), 0);
    }

    #[test]
    fn what_is_being_unlinked_makes_room_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let tier = disk_tier(dir.path());
        for settled_first in [false, true] {
            drop(owed_room(&tier, FileHash(1), 100));
            assert_eq!(tier.next_owed(), Some(FileHash(1)));
            assert_eq!(tier.claim(50), (vec![FileHash(1)], 100), "the janitor has it in hand");
            assert_eq!(tier.claim(50), (vec![], 0), "and it is promised now");
            let room = if settled_first {
                let room = tier.unlink(FileHash(1));
                tier.tidy(FileHash(1));
                room
            } else {
                tier.tidy(FileHash(1));
                tier.unlink(FileHash(1))
            };
            assert_eq!(tier.budget.used(), 100, "nobody else got it");
            drop(room.expect("the room that was promised"));
            assert_eq!(tier.budget.used(), 0);
            // Not needed after all, before and after the unlink.
            for tidied_first in [false, true] {
                drop(owed_room(&tier, FileHash(2), 100));
                assert_eq!(tier.next_owed(), Some(FileHash(2)));
                assert_eq!(tier.claim(50), (vec![FileHash(2)], 100));
                if tidied_first {
                    tier.tidy(FileHash(2));
                    tier.unclaim(&[FileHash(2)]);
                } else {
                    tier.unclaim(&[FileHash(2)]);
                    tier.tidy(FileHash(2));
                }
                assert_eq!((tier.budget.used(), tier.next_owed()), (0, None));
            }
        }
    }

    #[test]
    fn a_name_taken_over_by_a_new_file_is_not_unlinked() {
        let dir = tempfile::tempdir().unwrap();
        let tier = disk_tier(dir.path());
        drop(owed_room(&tier, FileHash(7), 100));
        let disk = tier.disk().unwrap();
        let file = disk.create(FileHash(7), 1).unwrap();
        disk.publish(FileHash(7), 1, &file, super::super::disk::Label { checksum: 0, size: 0, proof: 0 }).unwrap();
        tier.is_published(FileHash(7));
        assert!(tier.unlink(FileHash(7)).is_none() && tier.next_owed().is_none());
        disk.open(FileHash(7)).unwrap();
        assert_eq!(tier.budget.used(), 0);
    }
}

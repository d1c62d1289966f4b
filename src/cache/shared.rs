//! The heart of the cache: index, handles and tiers together, and what keeps them of one mind.
//!
//! Locks, in this order: a disk's name lock, the books, then (each for a few lines) a tier's owed list or a handle shard. No system call is made
//! under the books.

use std::collections::HashSet;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::budget::{Room, charge_of};
use super::disk::Unfit;
use super::file::{CachedFile, Data};
use super::handles::Handles;
use super::hash::FileHash;
use super::index::{Entry, Index, Origin, Standing};
use super::janitor::Wake;
use super::tier::{Place, Tier};
use super::{CacheError, Lookup};
use crate::types::ErrorKind;

/// What the index keeps of a file so that it can be reached.
#[derive(Debug)]
pub(super) struct Stored {
    /// Unique: tells this file from an earlier or later one of the same name.
    pub(super) serial: u64,
    pub(super) room: Arc<Room>,
    /// Heap tiers have no other way to a file.
    pub(super) heap: Option<Arc<CachedFile>>,
    /// Written in this life, or its checksum was found right in it.
    pub(super) verified: bool,
}

#[derive(Debug)]
pub(super) struct Books {
    pub(super) index: Index<Stored>,
    /// Let go of while a scan runs, which must not bring them back. Emptied by the scan's end.
    pub(super) gone: HashSet<FileHash>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) tiers: Vec<Arc<Tier>>,
    pub(super) transient: Arc<Tier>,
    pub(super) handles: Handles,
    pub(super) verify_always: bool,
    pub(super) closed: AtomicBool,
    pub(super) wake: Arc<Wake>,
    books: Mutex<Books>,
    serials: AtomicU64,
}

impl Shared {
    pub(super) fn new(tiers: Vec<Arc<Tier>>, transient: Arc<Tier>, descriptors: usize, verify_always: bool, wake: Arc<Wake>) -> Arc<Self> {
        Arc::new(Self {
            books: Mutex::new(Books { index: Index::new(tiers.len()), gone: HashSet::new() }),
            tiers,
            transient,
            handles: Handles::new(descriptors),
            verify_always,
            closed: AtomicBool::new(false),
            wake,
            serials: AtomicU64::new(1),
        })
    }

    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn serial(&self) -> u64 {
        self.serials.fetch_add(1, Relaxed)
    }

    pub(super) fn is_scanning(&self) -> bool {
        self.tiers.iter().any(|tier| !tier.is_scanned())
    }

    /// An open file, wrapped.
    pub(super) fn wrap(&self, size: u64, tier: &Arc<Tier>, data: Data, room: &Arc<Room>) -> Arc<CachedFile> {
        CachedFile::new(size, tier, data, room, !self.verify_always)
    }

    /// Never touches a disk.
    pub(super) fn lookup(&self, hash: FileHash, size: u64) -> Lookup {
        if let Some(file) = self.handles.get(hash) {
            if file.is_damaged() {
                self.drop_damaged(hash, None);
                return Lookup::Miss;
            }
            if file.size() != size || !file.home().is_ok() {
                return Lookup::Miss;
            }
            return if self.verify_always && !file.in_memory() { Lookup::Unsure } else { Lookup::Hit(file) };
        }
        let (tier, serial, room) = {
            let books = self.books();
            let Some(entry) = books.index.get(hash) else {
                let maybe = self.tiers.iter().any(|tier| !tier.is_scanned() && tier.is_ok()) && !books.gone.contains(&hash);
                return if maybe { Lookup::Unsure } else { Lookup::Miss };
            };
            let tier = &self.tiers[entry.tier];
            match (&tier.place, &entry.payload.heap) {
                _ if entry.size != size || !tier.is_ok() => return Lookup::Miss,
                (_, Some(file)) => return Lookup::Hit(Arc::clone(file)),
                (Place::Disk(_), _) => return Lookup::Unsure,
                _ => (Arc::clone(tier), entry.payload.serial, Arc::clone(&entry.payload.room)),
            }
        };
        self.reopen(hash, size, &tier, serial, &room).map_or(Lookup::Miss, Lookup::Hit)
    }

    /// Opens a file of the tmpfs again whose handle was given up.
    fn reopen(&self, hash: FileHash, size: u64, tier: &Arc<Tier>, serial: u64, room: &Arc<Room>) -> Option<Arc<CachedFile>> {
        let Place::Tmpfs(tmpfs) = &tier.place else { return None };
        let Ok(file) = tmpfs.open(serial) else {
            // Retired between the look into the books and the open: no failure. Anything else is one.
            if self.drop_damaged(hash, Some(serial)) {
                tier.failed();
            }
            return None;
        };
        let file = self.wrap(size, tier, Data::File(file), room);
        self.keep_handle(hash, serial, &file);
        Some(file)
    }

    /// Keeps a handle, if its file is still the one in the books.
    fn keep_handle(&self, hash: FileHash, serial: u64, file: &Arc<CachedFile>) {
        let displaced = {
            let mut books = self.books();
            match books.index.get_mut(hash).filter(|stored| stored.serial == serial) {
                Some(stored) => {
                    stored.verified = true;
                    self.handles.put(hash, Arc::clone(file))
                }
                None => None,
            }
        };
        drop(displaced);
    }

    /// Blocking: also disks.
    pub(super) fn open(&self, hash: FileHash, size: u64, proof: u64) -> Option<Arc<CachedFile>> {
        match self.lookup(hash, size) {
            Lookup::Hit(file) => return Some(file),
            Lookup::Miss => return None,
            Lookup::Unsure => {}
        }
        let known = self.books().index.get(hash).map(|entry| {
            let stored = &entry.payload;
            (entry.tier, stored.serial, Arc::clone(&stored.room), stored.verified)
        });
        if let Some((tier, serial, room, verified)) = known {
            let tier = &self.tiers[tier];
            let file = match self.read_disk(tier, hash, size, proof, verified) {
                Ok(file) => file,
                Err(Unfit::Hangs) => return None,
                Err(unfit) => {
                    if self.drop_damaged(hash, Some(serial)) {
                        note(tier, hash, &unfit);
                    }
                    return None;
                }
            };
            let file = self.wrap(size, tier, Data::File(file), &room);
            self.keep_handle(hash, serial, &file);
            return Some(file);
        }
        self.tiers.iter().filter(|tier| !tier.is_scanned() && tier.is_ok()).find_map(|tier| self.open_unscanned(tier, hash, size, proof))
    }

    /// A file the scan has not come to yet.
    fn open_unscanned(&self, tier: &Arc<Tier>, hash: FileHash, size: u64, proof: u64) -> Option<Arc<CachedFile>> {
        // Without labels nothing from an earlier life is believed; the scan removes it.
        tier.disk().filter(|disk| disk.keeps_labels)?;
        let file = match self.read_disk(tier, hash, size, proof, false) {
            Ok(file) => file,
            Err(Unfit::Hangs) => return None,
            Err(Unfit::Failed(error)) if error.kind() == std::io::ErrorKind::NotFound => return None,
            Err(unfit) => {
                note(tier, hash, &unfit);
                self.retire(hash);
                return None;
            }
        };
        let (number, serial) = self.adopt(tier, hash, size)?;
        if Some(number) != tier.number {
            return None;
        }
        let room = self.books().index.get(hash).map(|entry| Arc::clone(&entry.payload.room))?;
        let file = self.wrap(size, tier, Data::File(file), &room);
        self.keep_handle(hash, serial, &file);
        Some(file)
    }

    /// Takes a file found on a disk into the books, not verified yet; tier and serial of the entry there is now. `None` when it was let go of meanwhile.
    pub(super) fn adopt(&self, tier: &Arc<Tier>, hash: FileHash, size: u64) -> Option<(usize, u64)> {
        let serial = self.serial();
        let mut books = self.books();
        if let Some(entry) = books.index.get(hash) {
            return Some((entry.tier, entry.payload.serial));
        }
        if books.gone.contains(&hash) {
            return None;
        }
        let charge = charge_of(size);
        let stored = Stored { serial, room: Arc::new(tier.budget.take_found(charge)), heap: None, verified: false };
        let number = tier.number.expect("disks are numbered");
        books.index.insert(hash, Entry::new(size, number, charge, Standing::Unplanned, Origin::Recovered, stored));
        tier.count(|counters| counters.objects.add(1));
        Some((number, serial))
    }

    fn read_disk(&self, tier: &Tier, hash: FileHash, size: u64, proof: u64, verified: bool) -> Result<File, Unfit> {
        let disk = tier.disk().ok_or(Unfit::Damaged("it is on no disk"))?;
        let _busy = tier.begin(Instant::now()).map_err(|_| Unfit::Hangs)?;
        let file = disk.open(hash).map_err(Unfit::Failed)?;
        if file.metadata().map_err(Unfit::Failed)?.len() != size {
            return Err(Unfit::Damaged("its length is wrong"));
        }
        if (!verified || self.verify_always) && disk.keeps_labels {
            disk.verify(&file, size, proof)?;
        }
        tier.succeeded();
        Ok(file)
    }

    /// Makes a complete file known. On a disk the caller holds its name lock.
    pub(super) fn publish(&self, hash: FileHash, entry: Entry<Stored>, file: &Arc<CachedFile>) {
        let tier = Arc::clone(&self.tiers[entry.tier]);
        let in_heap = entry.payload.heap.is_some();
        let (replaced, displaced) = {
            let mut books = self.books();
            let replaced = books.index.insert(hash, entry);
            let old = self.handles.take(hash);
            if let Some(old) = &replaced {
                self.owe(hash, old);
            }
            tier.is_published(hash);
            (replaced, (old, if in_heap { None } else { self.handles.put(hash, Arc::clone(file)) }))
        };
        drop(displaced);
        tier.count(|counters| {
            counters.objects.add(1);
            counters.admitted.add(1);
        });
        if let Some(old) = replaced {
            self.forget(old);
        }
    }

    /// On a disk: the name is to be unlinked. Called with the books held, so that a file published later takes the name back.
    fn owe(&self, hash: FileHash, entry: &Entry<Stored>) {
        let tier = &self.tiers[entry.tier];
        if tier.disk().is_some() {
            tier.owe(hash, Some(Arc::clone(&entry.payload.room)));
        }
    }

    /// The rest of an entry's end, without the books. On memory tiers this unlinks.
    pub(super) fn forget(&self, entry: Entry<Stored>) {
        let tier = &self.tiers[entry.tier];
        tier.count(|counters| counters.objects.sub(1));
        match &tier.place {
            Place::Tmpfs(tmpfs) => {
                if tmpfs.unlink(entry.payload.serial).is_err() {
                    tier.failed();
                }
            }
            Place::Disk(_) => self.wake.now(),
            Place::Heap => {}
        }
    }

    /// Lets go of a version; whether it was known.
    pub(super) fn retire(&self, hash: FileHash) -> bool {
        self.end(hash, None).is_some_and(|tier| {
            tier.count(|counters| counters.evicted.add(1));
            true
        })
    }

    /// As [`Self::retire`], for a file that is not what it should be, if it is still that one.
    fn drop_damaged(&self, hash: FileHash, serial: Option<u64>) -> bool {
        self.end(hash, serial).is_some()
    }

    fn end(&self, hash: FileHash, serial: Option<u64>) -> Option<Arc<Tier>> {
        let (entry, handle) = {
            let mut books = self.books();
            if serial.is_some_and(|serial| books.index.get(hash).is_none_or(|entry| entry.payload.serial != serial)) {
                return None;
            }
            let entry = books.index.remove(hash);
            if let Some(entry) = &entry {
                self.owe(hash, entry);
            }
            if self.is_scanning() && books.gone.insert(hash) && entry.is_none() {
                self.tiers.iter().filter(|tier| !tier.is_scanned()).for_each(|tier| tier.owe(hash, None));
            }
            (entry, self.handles.take(hash))
        };
        drop(handle);
        let entry = entry?;
        let tier = Arc::clone(&self.tiers[entry.tier]);
        self.forget(entry);
        Some(tier)
    }

    pub(super) fn refuse_closed(&self) -> Result<(), CacheError> {
        if self.closed.load(Relaxed) {
            return Err(CacheError { kind: ErrorKind::Shutdown, message: "the cache is closed".into() });
        }
        Ok(())
    }
}

fn note(tier: &Tier, hash: FileHash, unfit: &Unfit) {
    match unfit {
        Unfit::Hangs => {}
        Unfit::Damaged(what) => {
            tier.damaged();
            tracing::warn!(file = %hash, "cached file dropped: {what}");
        }
        Unfit::Failed(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // Somebody emptied the cache directory: a miss for each file, no sign of a bad disk.
            tier.damaged();
            tracing::debug!(file = %hash, "cached file is gone");
        }
        Unfit::Failed(error) => {
            tier.failed();
            tracing::warn!(file = %hash, %error, "cached file dropped");
        }
    }
}

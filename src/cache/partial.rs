//! A large object, held in part: a sparse file of its full length and a map of the 128 KiB blocks that are there. Room is taken block by block,
//! before the bytes come. Complete, it becomes an ordinary cached file under its name. It does not survive a restart (recovery removes it), is not
//! in the index and never evicted: it lives as long as somebody holds it.
//!
//! On a disk tier everything here that reads, writes or makes room blocks; what is there and what is missing can be asked anywhere.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::budget::{PER_FILE_BYTES, Room, rounded};
use super::disk::{Label, checksum};
use super::file::{CachedFile, Data};
use super::hash::FileHash;
use super::index::{Entry, Origin, Standing, Victims};
use super::reserve::Reservation;
use super::shared::{Shared, Stored};
use super::tier::{Place, Tier};
use super::writer::failure;
use super::{CacheError, Placement, TieredCache, hash};
use crate::types::{ErrorKind, ObjectId};

/// A quarter of what one FUSE read-ahead asks for, and a multiple of every file system's block.
pub const BLOCK_BYTES: u64 = 128 << 10;

#[derive(Debug)]
enum Store {
    File(File),
    /// Zeroed lazily by the kernel: blocks never written take no memory. Empty once complete.
    Heap(Mutex<Vec<u8>>),
}

#[derive(Debug)]
struct State {
    /// Bit per block: all its bytes are there.
    present: Vec<u64>,
    /// Bit per block: its room is taken.
    roomed: Vec<u64>,
    /// Bytes from the block's start that are there, for blocks being written.
    filling: HashMap<u64, u64>,
    missing_blocks: u64,
    /// `None` once complete.
    room: Option<Room>,
    done: Option<Arc<CachedFile>>,
}

/// An object held in part.
#[derive(Debug)]
pub struct PartialFile {
    shared: Arc<Shared>,
    tier: Arc<Tier>,
    hash: FileHash,
    proof: u64,
    size: u64,
    serial: u64,
    standing: Standing,
    origin: Origin,
    store: Store,
    /// Held over slow work (making room, completing), one at a time; taken before `state`, which is held for lines only.
    slow: Mutex<()>,
    state: Mutex<State>,
}

impl PartialFile {
    /// An empty one, in the tier that the placement gives for a file of this size; the blocks' room is taken as they come. Transient: in memory,
    /// within the transient budget, and never completed.
    ///
    /// # Errors
    /// `NoSpace` when no tier of the placement is even as large; the tier failed.
    pub fn create(cache: &TieredCache, id: &ObjectId, size: u64, placement: Placement) -> Result<Self, CacheError> {
        let shared = &cache.shared;
        shared.refuse_closed()?;
        let hash = hash::hash_of(id);
        let standing = if matches!(placement, Placement::Planned { .. }) { Standing::Planned } else { Standing::Unplanned };
        let (tier, room) = shared.place_partial(size, placement)?;
        let serial = shared.serial();
        let failed = |error| failure(&tier, PER_FILE_BYTES, "making a partial file", &error);
        let words = size.div_ceil(BLOCK_BYTES).div_ceil(64);
        let (Ok(bytes), Ok(words)) = (usize::try_from(size), usize::try_from(words)) else {
            return Err(CacheError::invalid("larger than the address space".into()));
        };
        let store = match &tier.place {
            Place::Heap => Store::Heap(Mutex::new(vec![0; bytes])),
            Place::Tmpfs(tmpfs) if tier.number.is_none() => Store::File(tmpfs.create_unnamed().map_err(failed)?),
            Place::Tmpfs(tmpfs) => Store::File(tmpfs.create(serial).map_err(failed)?),
            Place::Disk(disk) => Store::File(disk.create(hash, serial).map_err(failed)?),
        };
        let state = State {
            present: vec![0; words],
            roomed: vec![0; words],
            filling: HashMap::new(),
            missing_blocks: size.div_ceil(BLOCK_BYTES),
            room: Some(room),
            done: None,
        };
        let partial = Self {
            shared: Arc::clone(shared),
            tier: Arc::clone(&tier),
            hash,
            proof: hash::proof_of(id),
            size,
            serial,
            standing,
            origin: Origin::Demanded,
            store,
            slow: Mutex::default(),
            state: Mutex::new(state),
        };
        if let Store::File(file) = &partial.store {
            file.set_len(size).map_err(failed)?;
        }
        Ok(partial)
    }

    /// The file is fetched ahead of its use: once complete, its first open will be told so.
    #[must_use]
    pub fn fetched_ahead(mut self) -> Self {
        self.origin = Origin::FetchedAhead;
        self
    }

    fn slow(&self) -> MutexGuard<'_, ()> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Length of the object.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Tier it lies in; `None` for a transient one.
    #[must_use]
    pub fn tier(&self) -> Option<usize> {
        self.tier.number
    }

    /// Whether reading and writing it never waits for a disk.
    #[must_use]
    pub fn in_memory(&self) -> bool {
        self.tier.disk().is_none()
    }

    fn blocks(&self, range: &Range<u64>) -> Range<u64> {
        range.start.min(self.size) / BLOCK_BYTES..range.end.min(self.size).div_ceil(BLOCK_BYTES)
    }

    fn bytes_of(&self, block: u64) -> u64 {
        (self.size - block * BLOCK_BYTES).min(BLOCK_BYTES)
    }

    /// What must still be fetched so that `range` is there: whole blocks, ascending, neighbours joined.
    #[must_use]
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let state = self.state();
        let mut missing: Vec<Range<u64>> = Vec::new();
        for block in self.blocks(&range).filter(|&block| !get(&state.present, block)) {
            let start = block * BLOCK_BYTES;
            let end = start + self.bytes_of(block);
            match missing.last_mut().filter(|last| last.end == start) {
                Some(last) => last.end = end,
                None => missing.push(start..end),
            }
        }
        missing
    }

    /// Takes the room of all blocks of `range` that have none yet, before they are fetched; all or none.
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn reserve(&self, range: Range<u64>) -> Result<(), CacheError> {
        let blocks = self.blocks(&range);
        let _slow = self.slow();
        let (wanted, bytes) = {
            let state = &mut *self.state();
            let Some(room) = &mut state.room else { return Ok(()) };
            let wanted: Vec<u64> = blocks.filter(|&block| !get(&state.roomed, block)).collect();
            let bytes = wanted.iter().map(|&block| rounded(self.bytes_of(block))).sum();
            if room.grow(bytes) {
                wanted.iter().for_each(|&block| set(&mut state.roomed, block));
                return Ok(());
            }
            (wanted, bytes)
        };
        let which = if self.standing == Standing::Planned { Victims::Unplanned } else { Victims::Aged };
        let no_room = |why: &str| CacheError { kind: ErrorKind::NoSpace, message: format!("no room for more of a large file: {why}") };
        let reservation = self.shared.room_in(&self.tier, bytes, self.standing, which).ok_or_else(|| no_room("the tier is full"))?;
        let Reservation { room: mut taken, claim, .. } = reservation;
        claim.settle(&mut taken);
        let short = bytes.saturating_sub(taken.bytes());
        if short > 0 && !taken.grow(short) {
            return Err(no_room("a file that should make room is read again"));
        }
        taken.shrink_to(bytes);
        let state = &mut *self.state();
        // Complete meanwhile? Not without these blocks.
        if let Some(room) = &mut state.room {
            room.absorb(taken);
            wanted.iter().for_each(|&block| set(&mut state.roomed, block));
        }
        Ok(())
    }

    /// Writes bytes of this version. A block is there once all its bytes came, in order or at once; a body may be written chunk by chunk from the
    /// start of a block on.
    ///
    /// # Errors
    /// `NoSpace`, the tier failed, or it is beyond the end.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), CacheError> {
        let end = offset.checked_add(data.len() as u64).filter(|&end| end <= self.size);
        let end =
            end.ok_or_else(|| CacheError::invalid(format!("write of {} bytes at {offset} in a file of {}", data.len(), self.size)))?;
        let blocks = self.blocks(&(offset..end));
        if data.is_empty() || blocks.clone().all(|block| get(&self.state().present, block)) {
            return Ok(());
        }
        self.reserve(offset..end)?;
        let _busy = self.tier.begin(Instant::now())?;
        match &self.store {
            Store::Heap(bytes) => {
                let bytes = &mut *bytes.lock().unwrap_or_else(PoisonError::into_inner);
                let at = usize::try_from(offset).expect("within bytes that are in memory");
                // Nothing is left to write into when a twin of this write completed the file.
                if let Some(place) = bytes.get_mut(at..at + data.len()) {
                    place.copy_from_slice(data);
                }
            }
            Store::File(file) => {
                file.write_all_at(data, offset)
                    .map_err(|error| failure(&self.tier, data.len() as u64, "writing a partial file", &error))?;
            }
        }
        self.note_written(offset, end, blocks);
        Ok(())
    }

    /// Only after the write: a block is never said to be there before it is.
    fn note_written(&self, offset: u64, end: u64, blocks: Range<u64>) {
        let state = &mut *self.state();
        for block in blocks.filter(|&block| !get(&state.present, block)).collect::<Vec<_>>() {
            let start = block * BLOCK_BYTES;
            let there = state.filling.get(&block).copied().unwrap_or(0);
            let (from, to) = (offset.max(start) - start, (end - start).min(self.bytes_of(block)));
            let there = if from <= there { there.max(to) } else { there };
            if there == self.bytes_of(block) {
                state.filling.remove(&block);
                set(&mut state.present, block);
                state.missing_blocks -= 1;
            } else {
                state.filling.insert(block, there);
            }
        }
    }

    /// Fills `buf` from `offset`; all of it or an error.
    ///
    /// # Errors
    /// Not all of it is there (`Invalid`), or the tier failed.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), CacheError> {
        let end = offset.saturating_add(buf.len() as u64);
        let done = {
            let state = self.state();
            let there = end <= self.size && self.blocks(&(offset..end)).all(|block| get(&state.present, block));
            if !there {
                return Err(CacheError::invalid(format!("bytes {offset}..{end} are not all there")));
            }
            state.done.clone()
        };
        match (&self.store, done) {
            (_, Some(file)) => file.read_exact_at(buf, offset),
            (Store::Heap(bytes), None) => {
                let at = usize::try_from(offset).expect("within bytes that are in memory");
                let bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(place) = bytes.get(at..at + buf.len()) else {
                    drop(bytes);
                    // Completed since we looked.
                    return self.complete()?.read_exact_at(buf, offset);
                };
                buf.copy_from_slice(place);
                Ok(())
            }
            (Store::File(file), None) => {
                let _busy = self.tier.begin(Instant::now())?;
                file.read_exact_at(buf, offset).map_err(|error| {
                    self.tier.failed();
                    CacheError::io("reading a partial file".into(), &error)
                })
            }
        }
    }

    /// Whether all bytes are there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.state().missing_blocks == 0
    }

    /// Publishes it under its name; again, gives the same file. On a disk this reads it all once for the checksum.
    ///
    /// # Errors
    /// Bytes are missing or it is transient (`Invalid`), or the tier failed: it stays partial.
    pub fn complete(&self) -> Result<Arc<CachedFile>, CacheError> {
        self.shared.refuse_closed()?;
        let _slow = self.slow();
        let missing_blocks = {
            let state = self.state();
            if let Some(file) = &state.done {
                return Ok(Arc::clone(file));
            }
            state.missing_blocks
        };
        let (0, Some(number)) = (missing_blocks, self.tier.number) else {
            return Err(CacheError::invalid("an incomplete or transient file has no name".into()));
        };
        let failed = |error| failure(&self.tier, 0, "completing a large file", &error);
        let (data, _name) = match (&self.store, self.tier.disk()) {
            (Store::Heap(bytes), _) => {
                (Data::Heap(std::mem::take(&mut *bytes.lock().unwrap_or_else(PoisonError::into_inner)).into()), None)
            }
            (Store::File(file), None) => (Data::File(file.try_clone().map_err(failed)?), None),
            (Store::File(file), Some(disk)) => {
                let label = Label { checksum: checksum(file, self.size).map_err(failed)?, size: self.size, proof: self.proof };
                let data = Data::File(file.try_clone().map_err(failed)?);
                let name = disk.lock_name(self.hash);
                disk.publish(self.hash, self.serial, file, label).map_err(failed)?;
                (data, Some(name))
            }
        };
        let room = Arc::new(self.state().room.take().expect("kept until it is done, and that is done once"));
        let charge = room.bytes();
        let heap = matches!(data, Data::Heap(_));
        let file = self.shared.wrap(self.size, &self.tier, data, &room);
        let stored = Stored { serial: self.serial, room, heap: heap.then(|| Arc::clone(&file)), verified: true };
        self.shared.publish(self.hash, Entry::new(self.size, number, charge, self.standing, self.origin, stored), &file);
        self.state().done = Some(Arc::clone(&file));
        Ok(file)
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if self.state().done.is_some() {
            return;
        }
        match &self.tier.place {
            // It has the name we gave it, and nobody else knows the name. What fails here, the next start removes.
            Place::Tmpfs(tmpfs) if self.tier.number.is_some() => drop(tmpfs.unlink(self.serial)),
            Place::Disk(disk) => disk.abandon(self.hash, self.serial),
            Place::Tmpfs(_) | Place::Heap => {}
        }
    }
}

impl Shared {
    /// The tier for a partial file of this size, with room for its inode.
    fn place_partial(&self, size: u64, placement: Placement) -> Result<(Arc<Tier>, Room), CacheError> {
        let fits = |tier: &&Arc<Tier>| tier.is_ok() && tier.is_scanned() && rounded(size) + PER_FILE_BYTES <= tier.budget.limit();
        let room = |tier: &Arc<Tier>| tier.budget.take(PER_FILE_BYTES).map(|room| (Arc::clone(tier), room));
        let spacious = |tier: &&Arc<Tier>| tier.budget.free() >= rounded(size) + PER_FILE_BYTES;
        let found = match placement {
            Placement::Transient => room(&self.transient),
            Placement::Planned { tier } => self.tiers.iter().skip(tier).filter(fits).find_map(room),
            Placement::Unplanned => {
                let free = self.tiers.iter().filter(fits).filter(spacious).find_map(room);
                // Else where the most of it may find room.
                free.or_else(|| self.tiers.iter().filter(fits).max_by_key(|tier| tier.budget.free()).and_then(room))
            }
        };
        found.ok_or_else(|| CacheError { kind: ErrorKind::NoSpace, message: format!("no tier for a file of {size} bytes") })
    }
}

fn get(bits: &[u64], block: u64) -> bool {
    bits[(block / 64) as usize] >> (block % 64) & 1 == 1
}

fn set(bits: &mut [u64], block: u64) {
    bits[(block / 64) as usize] |= 1 << (block % 64);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cache::{CacheConfig, DiskTier, Lookup, tier_counters};
    use crate::stats::Stats;

    const SIZE: u64 = 5 * BLOCK_BYTES + 1000;

    fn id() -> ObjectId {
        ObjectId { key: "shard-000.tar".into(), etag: "1".into() }
    }

    fn content() -> Vec<u8> {
        (0..SIZE).map(|at| (at ^ (at >> 8)) as u8).collect()
    }

    fn cache(config: CacheConfig) -> (Arc<TieredCache>, Arc<Stats>) {
        let stats = Arc::new(Stats { tiers: tier_counters(&config), ..Stats::default() });
        (TieredCache::new(config, Arc::clone(&stats)).unwrap().0, stats)
    }

    /// One cache of each kind, with this room.
    fn caches(bytes: u64, dir: &std::path::Path) -> Vec<(Arc<TieredCache>, Arc<Stats>)> {
        let disk = DiskTier { name: "disk".into(), path: dir.to_owned(), bytes, namespace: "ns".into() };
        let memory = CacheConfig { memory: Some(bytes), ..CacheConfig::default() };
        let heap = CacheConfig { memory_in_heap: true, ..memory.clone() };
        vec![cache(memory), cache(heap), cache(CacheConfig { disks: vec![disk], ..CacheConfig::default() })]
    }

    #[test]
    fn it_takes_room_by_blocks_and_becomes_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let content = content();
        for (cache, stats) in caches(1 << 20, dir.path()) {
            let used = || stats.tiers[0].used_bytes.get();
            let partial = PartialFile::create(&cache, &id(), SIZE, Placement::Planned { tier: 0 }).unwrap();
            assert_eq!(used(), PER_FILE_BYTES);
            assert_eq!(partial.missing(0..u64::MAX), std::slice::from_ref(&(0..SIZE)));
            partial.write_at(BLOCK_BYTES, &content[BLOCK_BYTES as usize..2 * BLOCK_BYTES as usize]).unwrap();
            assert_eq!(used(), PER_FILE_BYTES + BLOCK_BYTES);
            assert_eq!(partial.missing(1..SIZE), [0..BLOCK_BYTES, 2 * BLOCK_BYTES..SIZE]);
            assert!(partial.missing(BLOCK_BYTES + 5..BLOCK_BYTES + 6).is_empty());
            let mut read = [0; 100];
            partial.read_exact_at(&mut read, BLOCK_BYTES + 50).unwrap();
            assert_eq!(read, content[BLOCK_BYTES as usize + 50..BLOCK_BYTES as usize + 150]);
            assert!(partial.read_exact_at(&mut read, BLOCK_BYTES - 50).is_err() && partial.complete().is_err());
            assert!(matches!(cache.lookup(&id(), SIZE), Lookup::Miss | Lookup::Unsure) && cache.open(&id(), SIZE).is_none());

            for (at, chunk) in content.chunks(10_000).enumerate() {
                partial.write_at(at as u64 * 10_000, chunk).unwrap();
            }
            assert!(partial.is_complete());
            let file = partial.complete().unwrap();
            let charge = PER_FILE_BYTES + 5 * BLOCK_BYTES + 4096;
            assert_eq!((used(), file.tier(), file.size()), (charge, Some(0), SIZE));
            partial.write_at(0, &content).unwrap(); // a twin that came late
            partial.read_exact_at(&mut read, 0).unwrap();
            assert_eq!(read, content[..100]);
            assert!(Arc::ptr_eq(&file, &partial.complete().unwrap()));
            drop((partial, file));
            let Lookup::Hit(file) = cache.lookup(&id(), SIZE) else { panic!("it has its name") };
            let mut all = vec![0; SIZE as usize];
            file.read_exact_at(&mut all, 0).unwrap();
            assert!(all == content);
            drop(file);
            assert!(cache.retire(&id()));
            cache.settle();
            let deadline = Instant::now() + std::time::Duration::from_secs(10);
            while used() > 0 && Instant::now() < deadline {
                std::thread::yield_now(); // the janitor may be at it
            }
            assert_eq!(used(), 0);
        }
    }

    #[test]
    fn no_room_is_an_error_before_a_byte_and_dropping_gives_all_back() {
        let dir = tempfile::tempdir().unwrap();
        for (cache, stats) in caches(1 << 20, dir.path()) {
            let used = || stats.tiers[0].used_bytes.get();
            assert!(PartialFile::create(&cache, &id(), 1 << 20, Placement::Unplanned).is_err(), "never fits");
            let first = PartialFile::create(&cache, &id(), SIZE, Placement::Unplanned).unwrap();
            first.reserve(0..SIZE).unwrap();
            let second = PartialFile::create(&cache, &id(), SIZE, Placement::Planned { tier: 0 }).unwrap();
            assert_eq!(second.reserve(0..SIZE).unwrap_err().kind, ErrorKind::NoSpace);
            assert_eq!(used(), 2 * PER_FILE_BYTES + 5 * BLOCK_BYTES + 4096);
            second.write_at(0, &[1; BLOCK_BYTES as usize]).unwrap();
            assert!(first.write_at(SIZE, &[1]).is_err(), "beyond the end");
            drop(first);
            drop(second);
            assert_eq!(used(), 0);
            let transient = PartialFile::create(&cache, &id(), SIZE, Placement::Transient).unwrap();
            transient.write_at(0, &content()).unwrap();
            assert!(transient.is_complete() && transient.complete().is_err() && used() == 0);
            assert_eq!(cache.transient_used_bytes(), PER_FILE_BYTES + 5 * BLOCK_BYTES + 4096);
        }
        assert_eq!(dir.path().join("ns").read_dir().unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count(), 1);
        let folder = dir.path().join("ns").join(&hash::hash_of(&id()).to_string()[..2]);
        assert_eq!(folder.read_dir().unwrap().count(), 0, "no temporary is left");
    }

    #[test]
    fn completing_a_planned_one_makes_room_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        for (cache, stats) in caches(1 << 20, dir.path()) {
            for n in 0..8 {
                let id = ObjectId { key: n.to_string().into(), etag: "1".into() };
                let mut writer = cache.writer(cache.reserve(120_000, Placement::Unplanned).unwrap(), &id, 120_000);
                writer.write(vec![n; 120_000].into()).unwrap();
                writer.finish().unwrap();
            }
            let unplanned = PartialFile::create(&cache, &id(), SIZE, Placement::Unplanned).unwrap();
            assert!(unplanned.write_at(0, &content()).is_err(), "nothing has aged");
            drop(unplanned);
            let planned = PartialFile::create(&cache, &id(), SIZE, Placement::Planned { tier: 0 }).unwrap();
            planned.write_at(0, &content()).unwrap();
            planned.complete().unwrap();
            assert!(stats.tiers[0].used_bytes.get() <= 1 << 20);
            assert!((1..6).contains(&stats.tiers[0].evicted.get()), "{}", stats.tiers[0].evicted.get());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn blocks_are_there_exactly_when_all_their_bytes_came_in_order(
            writes in prop::collection::vec((0..SIZE, 1..300_000_u64), 1..30)
        ) {
            let (cache, _stats) = cache(CacheConfig { memory: Some(2 << 20), memory_in_heap: true, ..CacheConfig::default() });
            let partial = PartialFile::create(&cache, &id(), SIZE, Placement::Unplanned).unwrap();
            let content = content();
            let mut came = vec![false; SIZE as usize];
            for (start, len) in writes {
                let end = (start + len).min(SIZE);
                partial.write_at(start, &content[start as usize..end as usize]).unwrap();
                came[start as usize..end as usize].fill(true);
                let missing = partial.missing(0..SIZE);
                let mut there = vec![0; SIZE as usize];
                for block in 0..SIZE.div_ceil(BLOCK_BYTES) {
                    let (from, to) = (block * BLOCK_BYTES, ((block + 1) * BLOCK_BYTES).min(SIZE));
                    let range = from as usize..to as usize;
                    if missing.iter().all(|missing| missing.end <= from || missing.start >= to) {
                        prop_assert!(came[range.clone()].iter().all(|&came| came), "never said to be there when it is not");
                        partial.read_exact_at(&mut there[range.clone()], from).unwrap();
                        prop_assert!(there[range.clone()] == content[range]);
                    } else {
                        prop_assert!(!(start <= from && end >= to), "a whole block written at once is there");
                    }
                }
            }
        }
    }
}

//! The cache through its public face: budgets, restarts, damage, full and vanished disks.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use belady::cache::{
    CacheConfig, CacheError, CachedFile, DiskTier, FirstUse, Lookup, Placement, Recovered, TieredCache, Writer, hash_of, tier_counters,
};
use belady::stats::Stats;
use belady::types::{ErrorKind, ObjectId};
use bytes::Bytes;

const MIB: u64 = 1 << 20;

struct Bed {
    cache: Arc<TieredCache>,
    stats: Arc<Stats>,
    notes: Vec<String>,
}

fn build(config: CacheConfig) -> Result<Bed, CacheError> {
    let stats = Arc::new(Stats { tiers: tier_counters(&config), ..Stats::default() });
    let (cache, notes) = TieredCache::new(config, Arc::clone(&stats))?;
    Ok(Bed { cache, stats, notes })
}

fn memory(bytes: u64) -> Bed {
    build(CacheConfig { memory: Some(bytes), ..CacheConfig::default() }).unwrap()
}

fn heap(bytes: u64) -> Bed {
    build(CacheConfig { memory: Some(bytes), memory_in_heap: true, ..CacheConfig::default() }).unwrap()
}

fn disk_config(path: &Path, bytes: u64) -> CacheConfig {
    let tier = DiskTier { name: "disk".into(), path: path.to_owned(), bytes, namespace: "ns".into() };
    CacheConfig { disks: vec![tier], ..CacheConfig::default() }
}

fn disk(path: &Path, bytes: u64) -> Bed {
    build(disk_config(path, bytes)).unwrap()
}

fn id(n: u64) -> ObjectId {
    ObjectId { key: format!("train/{n}").into(), etag: "\"1\"".into() }
}

/// Bytes that differ between files and positions.
fn content(n: u64, size: u64) -> Bytes {
    (0..size).map(|at| (at.wrapping_mul(31) ^ n.wrapping_mul(97) ^ (at >> 8)) as u8).collect()
}

impl Bed {
    fn start(&self, n: u64, size: u64, placement: Placement) -> Result<Writer, CacheError> {
        Ok(self.cache.writer(self.cache.reserve(size, placement)?, &id(n), size))
    }

    fn put(&self, n: u64, size: u64, placement: Placement) -> Result<Arc<CachedFile>, CacheError> {
        let mut writer = self.start(n, size, placement)?;
        let content = content(n, size);
        for chunk in content.chunks(10_000) {
            writer.write(content.slice_ref(chunk))?;
        }
        assert_eq!(writer.written(), size);
        writer.finish()
    }

    fn used(&self, tier: usize) -> u64 {
        self.stats.tiers[tier].used_bytes.get()
    }

    fn errors(&self, tier: usize) -> u64 {
        self.stats.tiers[tier].errors.get()
    }

    fn hit(&self, n: u64, size: u64) -> Option<Arc<CachedFile>> {
        if let Lookup::Hit(file) = self.cache.lookup(&id(n), size) { Some(file) } else { None }
    }

    fn is_miss(&self, n: u64, size: u64) -> bool {
        matches!(self.cache.lookup(&id(n), size), Lookup::Miss)
    }
}

fn bytes_of(file: &CachedFile) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.size()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn charge(size: u64) -> u64 {
    size.next_multiple_of(4096) + 1024
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() { files.extend(files_below(&path)) } else { files.push(path) }
    }
    files
}

fn file_of(dir: &Path, n: u64) -> PathBuf {
    let name = hash_of(&id(n)).to_string();
    dir.join("ns").join(&name[..2]).join(&name)
}

#[test]
fn what_was_written_is_found_in_every_kind_of_tier() {
    let dir = tempfile::tempdir().unwrap();
    for (bed, in_memory) in [(memory(MIB), true), (heap(MIB), true), (disk(dir.path(), MIB), false)] {
        for size in [0, 1, 4096, 110_000] {
            let n = size;
            assert!(bed.is_miss(n, size));
            let file = bed.put(n, size, Placement::Unplanned).unwrap();
            assert_eq!((file.size(), file.tier(), file.in_memory()), (size, Some(0), in_memory));
            assert_eq!(bytes_of(&file), content(n, size));
            assert_eq!(bytes_of(&bed.hit(n, size).unwrap()), content(n, size));
            assert!(bed.is_miss(n, size + 1), "another size is another version");
            assert!(file.read_exact_at(&mut [0; 2], size).is_err(), "beyond the end");
            if let Some(fd) = file.passthrough_fd() {
                let twin = std::fs::File::from(fd.as_fd().try_clone_to_owned().unwrap());
                assert_eq!(twin.metadata().unwrap().len(), size);
            }
        }
        assert_eq!(bed.stats.tiers[0].objects.get(), 4);
    }
}

#[test]
fn the_heap_stands_in_where_mounts_are_denied() {
    let bed = heap(MIB);
    let file = bed.put(1, 5000, Placement::Planned { tier: 0 }).unwrap();
    assert!(file.passthrough_fd().is_none() && file.in_memory());
    assert_eq!(bed.used(0), charge(5000));
    assert!(bed.cache.retire(&id(1)));
    assert_eq!(bed.used(0), charge(5000), "still held");
    drop(file);
    assert_eq!(bed.used(0), 0);
}

#[test]
fn nothing_is_visible_or_left_before_it_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    for bed in [memory(MIB), heap(MIB), disk(dir.path(), MIB)] {
        let mut writer = bed.start(1, 10_000, Placement::Unplanned).unwrap();
        writer.write(content(1, 9_999)).unwrap();
        assert!(bed.is_miss(1, 10_000));
        assert_eq!(writer.finish().unwrap_err().kind, ErrorKind::Corrupt, "short");
        let mut writer = bed.start(1, 10_000, Placement::Unplanned).unwrap();
        assert_eq!(writer.write(content(1, 10_001)).unwrap_err().kind, ErrorKind::Corrupt, "long");
        drop(writer);
        assert!(bed.is_miss(1, 10_000));
        assert_eq!(bed.used(0), 0);
        let reservation = bed.cache.reserve(100, Placement::Unplanned).unwrap();
        let writer = bed.cache.writer(reservation, &id(1), 100_000);
        assert_eq!(writer.finish().unwrap_err().kind, ErrorKind::Invalid, "more than was reserved");
    }
    assert_eq!(files_below(&dir.path().join("ns")).len(), 2, "stamp and lock");
}

#[test]
fn evicted_but_open_files_stay_readable_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    for bed in [memory(MIB), disk(dir.path(), MIB)] {
        let file = bed.put(1, 50_000, Placement::Planned { tier: 0 }).unwrap();
        let second = bed.hit(1, 50_000).unwrap();
        assert!(bed.cache.retire(&id(1)) && !bed.cache.retire(&id(1)));
        assert!(bed.is_miss(1, 50_000));
        bed.cache.settle();
        assert_eq!(bed.used(0), charge(50_000));
        drop(file);
        assert_eq!(bed.used(0), charge(50_000));
        assert_eq!(bytes_of(&second), content(1, 50_000));
        drop(second);
        assert_eq!(bed.used(0), 0);
    }
}

#[test]
fn planned_data_is_never_evicted_and_takes_the_room_of_unplanned_data() {
    let dir = tempfile::tempdir().unwrap();
    let size = 99 << 10; // with its kilobyte exactly 101 KiB of charge
    for bed in [memory(10 * charge(size)), disk(dir.path(), 10 * charge(size))] {
        (0..6).for_each(|n| drop(bed.put(n, size, Placement::Unplanned).unwrap()));
        (6..10).for_each(|n| drop(bed.put(n, size, Placement::Planned { tier: 0 }).unwrap()));
        bed.cache.opened(&id(0)); // now the last used
        assert_eq!(bed.cache.reserve(size, Placement::Unplanned).unwrap_err().kind, ErrorKind::NoSpace, "nothing has aged");

        let reservation = bed.cache.reserve(size, Placement::Planned { tier: 0 }).unwrap();
        assert_eq!(reservation.evicted(), [hash_of(&id(1))], "the oldest unplanned one, and no more");
        drop(reservation);
        (20..26).for_each(|n| drop(bed.put(n, size, Placement::Planned { tier: 0 }).unwrap()));
        assert_eq!(bed.cache.reserve(size, Placement::Planned { tier: 0 }).unwrap_err().kind, ErrorKind::NoSpace, "only planned ones left");
        assert_eq!(bed.used(0), 10 * charge(size));
        assert!((6..10).chain(20..26).all(|n| bed.hit(n, size).is_some()));
        assert!(bed.cache.set_planned(&id(6), false) && !bed.cache.set_planned(&id(0), true));
        drop(bed.put(30, size, Placement::Planned { tier: 0 }).unwrap());
        assert!(bed.hit(6, size).is_none());
        // What is retired makes room at once, also where its unlink has yet to come.
        assert!(bed.cache.retire(&id(7)));
        drop(bed.put(31, size, Placement::Planned { tier: 0 }).unwrap());
        assert_eq!(bytes_of(&bed.hit(31, size).unwrap()), content(31, size));
        assert_eq!(bed.used(0), 10 * charge(size));
        // A smaller file gives the rest of its victim's room back.
        assert!(bed.cache.retire(&id(8)));
        bed.put(40, 1, Placement::Planned { tier: 0 }).unwrap();
        bed.cache.set_planned(&id(9), false);
        bed.put(41, size, Placement::Planned { tier: 0 }).unwrap();
        bed.cache.settle();
        assert_eq!(bed.used(0), 9 * charge(size) + charge(1));
    }
}

#[test]
fn a_full_tier_spills_planned_data_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let bed = build(CacheConfig { memory: Some(charge(1000)), ..disk_config(dir.path(), charge(1000)) }).unwrap();
    let tiers: Vec<_> = (0..3).map(|n| bed.put(n, 1000, Placement::Planned { tier: 0 }).map(|file| file.tier())).collect();
    assert!(matches!(tiers[..], [Ok(Some(0)), Ok(Some(1)), Err(_)]), "{tiers:?}");
    let mut contents = bed.cache.contents();
    contents.sort_by_key(|&(_, _, tier)| tier);
    assert_eq!(contents, [(hash_of(&id(0)), 1000, 0), (hash_of(&id(1)), 1000, 1)]);
}

#[test]
fn a_file_being_read_is_no_victim() {
    let bed = memory(2 * charge(1000));
    let read = bed.put(1, 1000, Placement::Unplanned).unwrap();
    drop(bed.put(2, 1000, Placement::Unplanned).unwrap());
    drop(bed.put(3, 1000, Placement::Planned { tier: 0 }).unwrap());
    assert!(bed.hit(1, 1000).is_some() && bed.hit(2, 1000).is_none());
    drop(read);
}

#[test]
fn a_memory_tier_shrinks_and_grows_while_in_use() {
    let size = 20_000;
    for bed in [memory(20 * charge(size)), heap(20 * charge(size))] {
        for n in 0..20 {
            bed.put(n, size, if n < 5 { Placement::Planned { tier: 0 } } else { Placement::Unplanned }).unwrap();
        }
        let held = bed.hit(5, size).unwrap();
        assert_eq!(bed.cache.limit_memory(12 * charge(size)), 0);
        assert_eq!((bed.used(0), bed.stats.tiers[0].capacity_bytes.get()), (12 * charge(size), 12 * charge(size)));
        assert!((6..14).all(|n| bed.is_miss(n, size)), "the oldest go");
        assert!((0..6).chain(14..20).all(|n| bed.hit(n, size).is_some()), "planned, read and young ones stay");
        // a new planned file is admitted in the place of an unplanned one, no more
        bed.put(30, size, Placement::Planned { tier: 0 }).unwrap();
        assert_eq!(bed.used(0), 12 * charge(size));

        assert_eq!(bed.cache.limit_memory(3 * charge(size)), 4 * charge(size), "six planned ones and the one being read");
        assert_eq!(bed.put(31, size, Placement::Unplanned).unwrap_err().kind, ErrorKind::NoSpace);
        assert_eq!(bytes_of(&held), content(5, size));
        drop(held);
        assert_eq!(bed.cache.limit_memory(3 * charge(size)), 3 * charge(size), "it goes when nobody reads it");
        assert!((0..3).all(|n| bed.cache.retire(&id(n))), "the planner lets go of the rest");
        assert_eq!((bed.used(0), bed.cache.limit_memory(u64::MAX)), (3 * charge(size), 0));
        assert_eq!(bed.stats.tiers[0].capacity_bytes.get(), 20 * charge(size), "never more than it was built with");
        for n in 40..57 {
            bed.put(n, size, Placement::Unplanned).unwrap();
        }
        assert_eq!(bed.used(0), 20 * charge(size));
    }
    let dir = tempfile::tempdir().unwrap();
    let bed = disk(dir.path(), MIB);
    bed.put(1, size, Placement::Unplanned).unwrap();
    assert_eq!(bed.cache.limit_memory(0), 0, "a disk is no memory tier");
    assert!(bed.hit(1, size).is_some());
}

#[test]
fn transient_files_have_their_own_budget() {
    for memory_in_heap in [false, true] {
        let bed = build(CacheConfig { transient_bytes: charge(5000), memory_in_heap, ..CacheConfig::default() }).unwrap();
        let file = bed.put(1, 5000, Placement::Transient).unwrap();
        assert_eq!((file.tier(), bytes_of(&file)), (None, content(1, 5000).to_vec()));
        assert!(bed.is_miss(1, 5000), "not kept");
        assert_eq!(bed.cache.transient_used_bytes(), charge(5000));
        assert_eq!(bed.put(2, 1, Placement::Transient).unwrap_err().kind, ErrorKind::NoSpace);
        assert!(bed.cache.reserve(1, Placement::Unplanned).is_err(), "no tier at all");
        drop(file);
        assert_eq!(bed.cache.transient_used_bytes(), 0);
    }
}

#[test]
fn first_uses_and_hits_are_told_apart() {
    let bed = memory(MIB);
    let reservation = bed.cache.reserve(3, Placement::Planned { tier: 0 }).unwrap().fetched_ahead();
    let mut writer = bed.cache.writer(reservation, &id(1), 3);
    writer.write(Bytes::from_static(b"abc")).unwrap();
    writer.finish().unwrap();
    drop(bed.put(2, 3, Placement::Unplanned).unwrap());
    let firsts = [1, 1, 2, 2, 3].map(|n| bed.cache.opened(&id(n)));
    assert_eq!(firsts, [FirstUse::FetchedAhead, FirstUse::Before, FirstUse::Before, FirstUse::Before, FirstUse::Before]);
    assert_eq!(bed.stats.tiers[0].hits.get(), 3, "the first open of 2 fetched it, 3 is not there");
}

#[test]
fn budgets_hold_under_threads_and_end_at_zero() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = |n: u64| 1 + n * 7919 % 60_000;
    for bed in [memory(MIB / 2), heap(MIB / 2), disk(dir.path(), MIB / 2)] {
        let most = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (bed, most) = (&bed, &most);
                scope.spawn(move || {
                    let mut held: HashMap<u64, Arc<CachedFile>> = HashMap::new();
                    for step in 0..400_u64 {
                        let n = (step * 37 + thread * 11) % 60;
                        let size = sizes(n);
                        let placement = if step % 3 == 0 { Placement::Unplanned } else { Placement::Planned { tier: 0 } };
                        if let Some(file) = bed.cache.open(&id(n), size) {
                            assert_eq!(bytes_of(&file), content(n, size));
                            bed.cache.opened(&id(n));
                            held.insert(n, file);
                        } else if let Ok(file) = bed.put(n, size, placement) {
                            held.insert(n, file);
                        }
                        if step % 5 == 0 {
                            bed.cache.retire(&id((n * 7) % 60));
                        }
                        if held.len() > 4 {
                            held.clear();
                        }
                        most.fetch_max(bed.used(0), Relaxed);
                    }
                });
            }
        });
        assert!(most.load(Relaxed) <= MIB / 2, "{}", most.load(Relaxed));
        assert!(bed.used(0) > 0 && most.load(Relaxed) > MIB / 4, "the test did fill it");
        for n in 0..60 {
            bed.cache.retire(&id(n));
        }
        bed.cache.settle();
        // The janitor may be in the middle of one.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while bed.used(0) > 0 && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert_eq!((bed.used(0), bed.stats.tiers[0].objects.get(), bed.errors(0)), (0, 0, 0));
    }
    assert_eq!(files_below(&dir.path().join("ns")).len(), 2, "stamp and lock");
}

#[test]
fn a_restart_keeps_the_cache_and_needs_no_scan_to_use_it() {
    let dir = tempfile::tempdir().unwrap();
    let first = disk(dir.path(), MIB);
    (0..5).for_each(|n| drop(first.put(n, 10_000, Placement::Unplanned).unwrap()));
    let used = first.used(0);
    drop(first);

    let second = disk(dir.path(), MIB);
    assert!(second.cache.is_recovering() && second.cache.contents().is_empty());
    assert!(matches!(second.cache.lookup(&id(1), 10_000), Lookup::Unsure));
    assert_eq!(bytes_of(&second.cache.open(&id(1), 10_000).unwrap()), content(1, 10_000));
    assert_eq!(second.used(0), charge(10_000), "counted when found");
    assert!(second.hit(1, 10_000).is_some(), "verified, open: a hit");
    assert!(second.cache.open(&id(9), 10_000).is_none());
    assert!(second.cache.reserve(1, Placement::Unplanned).is_err(), "nothing is written before all is counted");
    second.cache.retire(&id(2));
    assert!(second.cache.open(&id(2), 10_000).is_none(), "let go of before it was counted");

    assert_eq!(second.cache.recover(), Recovered { files: 4, bytes: 4 * charge(10_000), removed: 0, evicted: 0 });
    assert!(!second.cache.is_recovering() && second.is_miss(9, 10_000) && second.is_miss(2, 10_000));
    assert_eq!(second.used(0), used - charge(10_000));
    assert_eq!(second.cache.opened(&id(1)), FirstUse::Before);
    drop(second.put(2, 10_000, Placement::Unplanned).unwrap());
    second.cache.settle();
    assert!(second.cache.open(&id(2), 10_000).is_some(), "the new file is not taken for the old one");
}

#[test]
fn a_smaller_budget_after_a_restart_evicts_the_oldest() {
    let dir = tempfile::tempdir().unwrap();
    let first = disk(dir.path(), MIB);
    for n in 0..6 {
        drop(first.put(n, 10_000, Placement::Unplanned).unwrap());
        let file = std::fs::File::options().write(true).open(file_of(dir.path(), n)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1000 - n)).unwrap();
    }
    drop(first);
    let second = disk(dir.path(), 2 * charge(10_000));
    assert_eq!(second.cache.recover(), Recovered { files: 2, bytes: 2 * charge(10_000), removed: 0, evicted: 4 });
    assert!((0..2).all(|n| second.cache.open(&id(n), 10_000).is_some()), "the newest");
    assert!(second.used(0) <= 2 * charge(10_000));
}

#[test]
fn a_crash_leaves_nothing_that_is_served_or_stays() {
    let dir = tempfile::tempdir().unwrap();
    let first = disk(dir.path(), MIB);
    (0..3).for_each(|n| drop(first.put(n, 10_000, Placement::Unplanned).unwrap()));
    drop(first);
    let folder = file_of(dir.path(), 0).parent().unwrap().to_owned();
    std::fs::write(folder.join(".t-99"), "half a file").unwrap();
    std::fs::write(folder.join("thesis.tex"), "not ours").unwrap();
    std::fs::write(folder.join("f".repeat(32)), "our kind of name, no label").unwrap();
    std::fs::OpenOptions::new().write(true).open(file_of(dir.path(), 1)).unwrap().set_len(9_000).unwrap();

    let second = disk(dir.path(), MIB);
    assert_eq!(second.cache.recover(), Recovered { files: 2, bytes: 2 * charge(10_000), removed: 4, evicted: 0 });
    assert!(second.cache.open(&id(1), 10_000).is_none());
    assert!(second.cache.open(&id(0), 10_000).is_some() && second.cache.open(&id(2), 10_000).is_some());
    assert_eq!(files_below(&dir.path().join("ns")).len(), 2 + 2, "stamp, lock and two files");
}

#[test]
fn damage_is_noticed_before_first_use() {
    let dir = tempfile::tempdir().unwrap();
    let first = disk(dir.path(), MIB);
    (0..4).for_each(|n| drop(first.put(n, 300_000, Placement::Unplanned).err()));
    drop(first);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(file_of(dir.path(), 0)).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 299_999).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 299_999).unwrap();
    std::fs::copy(file_of(dir.path(), 1), file_of(dir.path(), 2)).unwrap(); // another version's bytes

    // With and without a scan before.
    for scan in [false, true] {
        let bed = disk(dir.path(), 2 * MIB);
        if scan {
            bed.cache.recover();
            std::fs::OpenOptions::new().write(true).open(file_of(dir.path(), 1)).unwrap().write_all_at(b"?", 7).unwrap();
            assert!(bed.cache.open(&id(1), 300_000).is_none());
            assert!(bed.is_miss(1, 300_000) && bed.errors(0) == 1);
        } else {
            assert!(bed.cache.open(&id(0), 300_000).is_none());
            assert!(bed.cache.open(&id(2), 300_000).is_none());
            assert_eq!(bed.errors(0), 2);
            assert_eq!(bytes_of(&bed.cache.open(&id(1), 300_000).unwrap()), content(1, 300_000));
        }
        bed.cache.recover();
        bed.cache.settle();
    }
}

#[test]
fn verify_always_looks_again_at_each_open_and_passes_nothing_through() {
    let dir = tempfile::tempdir().unwrap();
    let bed = build(CacheConfig { verify_always: true, ..disk_config(dir.path(), MIB) }).unwrap();
    assert!(bed.put(1, 10_000, Placement::Unplanned).unwrap().passthrough_fd().is_none());
    assert!(bed.cache.open(&id(1), 10_000).is_some());
    std::fs::OpenOptions::new().write(true).open(file_of(dir.path(), 1)).unwrap().write_all_at(b"?", 7).unwrap();
    assert!(bed.cache.open(&id(1), 10_000).is_none());
    assert_eq!(bed.errors(0), 1);
}

#[test]
fn a_file_cut_while_open_is_an_error_once_and_then_a_miss() {
    let dir = tempfile::tempdir().unwrap();
    let bed = disk(dir.path(), MIB);
    let file = bed.put(1, 10_000, Placement::Unplanned).unwrap();
    std::fs::OpenOptions::new().write(true).open(file_of(dir.path(), 1)).unwrap().set_len(5).unwrap();
    assert!(file.passthrough_fd().is_none(), "its length is looked at");
    assert!(file.read_exact_at(&mut [0; 100], 0).is_err());
    assert!(bed.is_miss(1, 10_000));
    assert_eq!(bed.errors(0), 1);
}

#[test]
fn the_cache_directory_may_vanish_and_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a b,c:d"); // names that break mount options elsewhere
    let bed = disk(&path, MIB);
    let held = bed.put(1, 10_000, Placement::Unplanned).unwrap();
    // More files than handles are kept could be: these must be opened again.
    (2..6).for_each(|n| drop(bed.put(n, 10_000, Placement::Unplanned).unwrap()));
    std::fs::remove_dir_all(&path).unwrap();
    assert_eq!(bytes_of(&held), content(1, 10_000));
    assert_eq!(bytes_of(&bed.put(7, 10_000, Placement::Unplanned).unwrap()), content(7, 10_000));
    assert!(file_of(&path, 7).exists());
    let message = build(disk_config(&path, MIB)).err().unwrap().message;
    assert!(message.contains("another mount"), "the lock is there again: {message}");
}

#[test]
fn one_mount_owns_a_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let first = disk(dir.path(), MIB);
    let held = first.put(1, 100, Placement::Unplanned).unwrap();
    let error = build(disk_config(dir.path(), MIB)).err().unwrap();
    assert!(error.message.contains("in use by another mount") && error.message.contains(dir.path().to_str().unwrap()), "{error}");
    let mut other = disk_config(dir.path(), MIB);
    other.disks[0].namespace = "other".into();
    build(other).unwrap();
    drop(first);
    build(disk_config(dir.path(), MIB)).unwrap();
    assert_eq!(bytes_of(&held), content(1, 100), "held files outlive the cache");
}

#[test]
fn a_full_disk_is_no_room_and_no_failure() {
    if !rustix::process::geteuid().is_root() {
        return; // needs a small file system of its own
    }
    let dir = tempfile::tempdir().unwrap();
    let _small = SmallFs::mount(dir.path(), 8 * MIB);
    let bed = disk(dir.path(), 100 * MIB);
    assert!(bed.notes.iter().any(|note| note.contains("100MiB") && note.contains("8MiB")), "{:?}", bed.notes);
    let errors: Vec<_> = (0..20).map(|n| bed.put(n, MIB, Placement::Planned { tier: 0 }).err().map(|error| error.kind)).collect();
    assert!(errors[..6].iter().all(Option::is_none), "{errors:?}");
    assert!(errors[8..].iter().all(|error| *error == Some(ErrorKind::NoSpace)), "{errors:?}");
    assert_eq!((bed.stats.tiers[0].state.get(), bed.errors(0)), (0, 1), "noticed once");
    assert!(bed.hit(0, MIB).is_some());
    // Its own files may still be replaced.
    assert!(bed.cache.retire(&id(0)));
    assert_eq!(bytes_of(&bed.put(30, MIB, Placement::Planned { tier: 0 }).unwrap()), content(30, MIB));
}

/// A tmpfs on a directory, gone with the value.
struct SmallFs(PathBuf);

impl SmallFs {
    fn mount(path: &Path, bytes: u64) -> Self {
        let options = std::ffi::CString::new(format!("size={bytes}")).unwrap();
        rustix::mount::mount("belady-test", path, "tmpfs", rustix::mount::MountFlags::empty(), options.as_c_str()).unwrap();
        Self(path.to_owned())
    }
}

impl Drop for SmallFs {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn a_failing_disk_degrades_and_is_bypassed() {
    let dir = tempfile::tempdir().unwrap();
    let bed = build(CacheConfig { memory: Some(MIB), ..disk_config(dir.path(), MIB) }).unwrap();
    let file = bed.put(0, 1000, Placement::Planned { tier: 1 }).unwrap();
    assert!(file.passthrough_fd().is_some());
    std::fs::remove_dir_all(dir.path().join("ns")).unwrap();
    std::fs::write(dir.path().join("ns"), "in the way").unwrap();
    for n in 1..=5 {
        assert_eq!(bed.stats.tiers[1].state.get(), 0);
        assert_eq!(bed.put(n, 1000, Placement::Planned { tier: 1 }).unwrap_err().kind, ErrorKind::Io);
    }
    assert_eq!((bed.stats.tiers[1].state.get(), bed.errors(1)), (1, 5));
    assert!(bed.is_miss(0, 1000) && file.passthrough_fd().is_none(), "neither looked up nor passed through");
    assert_eq!(bed.cache.reserve(1, Placement::Planned { tier: 1 }).unwrap_err().kind, ErrorKind::NoSpace, "nor written");
    bed.put(6, 1000, Placement::Planned { tier: 0 }).unwrap();
    assert_eq!(bytes_of(&file), content(0, 1000), "what is open stays readable");
}

/// Not a test by itself: what `a_kill_during_writes_leaves_no_bad_byte` runs as a process of its own.
#[test]
fn writes_until_killed() {
    #[expect(clippy::disallowed_methods, reason = "how a test tells its child process what to do")]
    let Ok(dir) = std::env::var("BELADY_TEST_KILL_DIR") else { return };
    let bed = disk(Path::new(&dir), 4 * MIB);
    bed.cache.recover();
    for n in 0.. {
        drop(bed.put(n % 100, 50_000, Placement::Unplanned));
        bed.cache.retire(&id((n + 30) % 100));
        println!("wrote {n}");
    }
}

#[test]
fn a_kill_during_writes_leaves_no_bad_byte() {
    use std::io::BufRead;
    let dir = tempfile::tempdir().unwrap();
    for round in 0..6 {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "cache::writes_until_killed", "--nocapture"])
            .env("BELADY_TEST_KILL_DIR", dir.path())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        let wrote = lines.map_while(Result::ok).filter(|line| line.contains("wrote")).take(40 + 7 * round).count();
        assert_eq!(wrote, 40 + 7 * round);
        child.kill().unwrap();
        child.wait().unwrap();

        let bed = disk(dir.path(), 4 * MIB);
        let found = (0..100).filter_map(|n| bed.cache.open(&id(n), 50_000).map(|file| (n, file)));
        let right = found.map(|(n, file)| assert!(bytes_of(&file) == content(n, 50_000))).count();
        assert!(right >= 25, "{right} kept");
        assert_eq!(bed.errors(0), 0, "nothing half written has a name");
        let recovered = bed.cache.recover();
        assert_eq!((recovered.files, bed.used(0)), (right as u64, right as u64 * charge(50_000)));
    }
}

#[test]
fn without_labels_nothing_is_kept_across_restarts_and_the_notes_say_so() {
    if !rustix::process::geteuid().is_root() {
        return; // needs a file system of its own
    }
    let dir = tempfile::tempdir().unwrap();
    rustix::mount::mount("belady-test", dir.path(), "ramfs", rustix::mount::MountFlags::empty(), None::<&std::ffi::CStr>).unwrap();
    let _unmounts = SmallFs(dir.path().to_owned());
    let first = disk(dir.path(), MIB);
    assert!(first.notes.iter().any(|note| note.contains("extended attributes")), "{:?}", first.notes);
    let file = first.put(1, 5000, Placement::Unplanned).unwrap();
    assert_eq!(bytes_of(&file), content(1, 5000));
    drop(file);
    assert!(first.cache.open(&id(1), 5000).is_some());
    drop(first);
    let second = disk(dir.path(), MIB);
    assert!(second.cache.open(&id(1), 5000).is_none(), "nothing vouches for it");
    assert_eq!(second.cache.recover(), Recovered { removed: 1, ..Recovered::default() });
    drop(second.put(1, 5000, Placement::Unplanned).unwrap());
}

//! After a restart: counts what lies on the disk tiers, removes what is not a complete file of ours, and evicts down to the budget, oldest first.
//! Lookups do not wait for it. It reads names and labels, not bytes: each file's checksum is looked at before its first use.

use std::collections::HashSet;
use std::fs::{DirEntry, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering::Release;

use super::disk::{DiskDir, label_of};
use super::hash::FileHash;
use super::shared::Shared;
use super::tier::Tier;

/// What a scan found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Complete files kept.
    pub files: u64,
    /// Their bytes, as counted in the budget.
    pub bytes: u64,
    /// Temporaries, short and foreign files removed.
    pub removed: u64,
    /// Files evicted because the budget is smaller than it was.
    pub evicted: u64,
}

#[derive(Debug)]
struct Found {
    modified: (i64, i64),
    hash: FileHash,
    size: u64,
}

/// Scans all tiers that need it. Blocking, seconds for a million files; once.
pub(super) fn recover(shared: &Shared) -> Recovered {
    let mut sum = Recovered::default();
    for tier in shared.tiers.iter().filter(|tier| !tier.is_scanned()) {
        let Some(disk) = tier.disk() else { continue };
        let (mut found, removed) = scan(tier, disk);
        sum.removed += removed;
        // The oldest become the least recently used, and so the first to go.
        found.sort_unstable_by_key(|found| (found.modified, found.hash));
        let mut kept: HashSet<FileHash> = HashSet::with_capacity(found.len());
        for file in &found {
            match shared.adopt(tier, file.hash, file.size) {
                Some((number, _)) if Some(number) == tier.number => drop(kept.insert(file.hash)),
                // Let go of meanwhile (then it is owed already), or a faster tier has it too.
                _ => {
                    tier.owe(file.hash, None);
                    drop(tier.unlink(file.hash));
                }
            }
        }
        for file in &found {
            if tier.budget.used() <= tier.budget.limit() {
                break;
            }
            if kept.contains(&file.hash) && shared.retire(file.hash) {
                drop(tier.unlink(file.hash));
                kept.remove(&file.hash);
                sum.evicted += 1;
            }
        }
        sum.files += kept.len() as u64;
        sum.bytes += tier.budget.used();
        tier.scanned.store(true, Release);
    }
    if !shared.is_scanning() {
        shared.books().gone.clear();
    }
    sum
}

fn scan(tier: &Tier, disk: &DiskDir) -> (Vec<Found>, u64) {
    let mut found = Vec::new();
    let mut removed = 0;
    for folder in disk.folders() {
        let Ok(entries) = folder.read_dir() else {
            tier.failed();
            continue;
        };
        for entry in entries.flatten() {
            if let Some(file) = complete(&folder, &entry, disk.keeps_labels) {
                found.push(file);
            } else if std::fs::remove_file(entry.path()).is_ok() {
                removed += 1;
            }
        }
    }
    (found, removed)
}

/// The file, if it is a complete one of ours where it should be.
fn complete(folder: &Path, entry: &DirEntry, keeps_labels: bool) -> Option<Found> {
    let name = entry.file_name();
    let name = name.to_str()?;
    let hash = FileHash::from_name(name)?;
    if !keeps_labels || !folder.ends_with(&name[..2]) || !entry.file_type().ok()?.is_file() {
        return None;
    }
    let file = File::open(entry.path()).ok()?;
    let metadata = file.metadata().ok()?;
    let label = label_of(&file).ok()??;
    (label.size == metadata.len()).then(|| Found { modified: (metadata.mtime(), metadata.mtime_nsec()), hash, size: label.size })
}

/// Whether there is anything to scan at all.
pub(super) fn is_empty(disk: &DiskDir) -> bool {
    disk.folders().is_empty()
}

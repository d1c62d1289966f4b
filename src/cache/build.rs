//! Making a cache from its configuration: places probed, directories claimed, and what is denied us said in words.

use std::path::PathBuf;
use std::sync::Arc;

use rustix::process::Resource;

use super::disk::DiskDir;
use super::janitor::{self, Wake};
use super::memory::Tmpfs;
use super::recover;
use super::shared::Shared;
use super::tier::{Place, Tier};
use super::{CacheError, TieredCache};
use crate::stats::{Stats, TierCounters};
use crate::types::ByteSize;

/// Default for files that nobody keeps: four of the largest that are held whole.
pub const TRANSIENT_BYTES: u64 = 64 << 20;
/// Descriptors kept at most: beyond it a warm open saves nothing that shows.
const HANDLES_MAX: u64 = 20_000;

/// One disk tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskTier {
    pub name: String,
    /// The cache directory; made if need be.
    pub path: PathBuf,
    pub bytes: u64,
    /// Folder for this endpoint and bucket: one plain name.
    pub namespace: String,
}

/// What to build. Tiers are numbered memory first, then the disks in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Bytes of the memory tier; `None` for no such tier.
    pub memory: Option<u64>,
    pub disks: Vec<DiskTier>,
    pub transient_bytes: u64,
    /// Checksum at every open of a disk file, no passthrough.
    pub verify_always: bool,
    /// No tmpfs even where we may mount one.
    pub memory_in_heap: bool,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self { memory: None, disks: Vec::new(), transient_bytes: TRANSIENT_BYTES, verify_always: false, memory_in_heap: false }
    }
}

/// The counters of the tiers that this configuration makes, in their order: for [`Stats::tiers`].
#[must_use]
pub fn tier_counters(config: &CacheConfig) -> Vec<TierCounters> {
    let memory = config.memory.map(|_| ("memory".to_owned(), String::new()));
    let disks = config.disks.iter().map(|disk| (disk.name.clone(), disk.path.display().to_string()));
    memory.into_iter().chain(disks).map(|(name, path)| TierCounters { name, path, ..TierCounters::default() }).collect()
}

impl TieredCache {
    /// Builds the tiers. The notes are for the user: what the machine denies and what it costs. Blocks on disks.
    ///
    /// # Errors
    /// A cache directory cannot be used: the message names it and the remedy.
    pub fn new(config: CacheConfig, stats: Arc<Stats>) -> Result<(Arc<Self>, Vec<String>), CacheError> {
        let numbers = usize::from(config.memory.is_some()) + config.disks.len();
        if stats.tiers.len() != numbers {
            return Err(CacheError::invalid(format!("stats of {} tiers for a cache of {numbers}", stats.tiers.len())));
        }
        let mut notes = Vec::new();
        let memory_bytes = config.memory.unwrap_or(0).saturating_add(config.transient_bytes);
        let tmpfs = if config.memory_in_heap { None } else { mount_tmpfs(memory_bytes, &mut notes) };
        let place = || tmpfs.as_ref().map_or(Place::Heap, |tmpfs| Place::Tmpfs(Arc::clone(tmpfs)));
        let transient = Tier::new(None, place(), config.transient_bytes, true, &stats);
        let mut tiers: Vec<Arc<Tier>> = config.memory.iter().map(|&bytes| Tier::new(Some(0), place(), bytes, true, &stats)).collect();
        for disk in &config.disks {
            let dir = DiskDir::claim(&disk.path, &disk.namespace)?;
            note_limits(disk, &dir, &mut notes);
            let empty = recover::is_empty(&dir);
            tiers.push(Tier::new(Some(tiers.len()), Place::Disk(dir), disk.bytes, empty, &stats));
        }
        let wake = Wake::new();
        janitor::start(tiers.clone(), Arc::clone(&wake)).map_err(|error| CacheError::io("starting the cache's thread".into(), &error))?;
        let shared = Shared::new(tiers, transient, handles(), config.verify_always, wake);
        Ok((Arc::new(Self { shared }), notes))
    }
}

fn mount_tmpfs(bytes: u64, notes: &mut Vec<String>) -> Option<Arc<Tmpfs>> {
    match Tmpfs::mount(bytes) {
        Ok(tmpfs) => Some(Arc::new(tmpfs)),
        Err(error) => {
            notes.push(format!(
                "memory tier on the heap: a private tmpfs was refused ({error}; needs CAP_SYS_ADMIN). Costs kernel passthrough for files in memory, \
                 some 10 us of CPU per file"
            ));
            None
        }
    }
}

fn note_limits(disk: &DiskTier, dir: &DiskDir, notes: &mut Vec<String>) {
    if !dir.keeps_labels {
        notes.push(format!(
            "cache directory {}: its file system has no user extended attributes, so cached files are not kept across restarts",
            disk.path.display()
        ));
    }
    if let Ok(stat) = rustix::fs::statvfs(dir.base()) {
        let total = stat.f_blocks.saturating_mul(stat.f_frsize);
        if total < disk.bytes {
            notes.push(format!(
                "cache directory {}: budget {} is more than the {} of its file system; it will be used until that is full",
                disk.path.display(),
                ByteSize(disk.bytes),
                ByteSize(total)
            ));
        }
        // Some file systems (btrfs) report none at all.
        if stat.f_files > 0 && stat.f_favail < stat.f_files / 20 {
            notes.push(format!("cache directory {}: fewer than 5 % of its file system's inodes are free", disk.path.display()));
        }
    }
}

/// How many descriptors to keep: a quarter of what we may have, after raising that to the hard limit.
fn handles() -> usize {
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // Refused: then the old limit holds, and is what we read next.
        let _ = rustix::process::setrlimit(Resource::Nofile, limit);
        limit = rustix::process::getrlimit(Resource::Nofile);
    }
    usize::try_from(limit.current.map_or(HANDLES_MAX, |current| (current / 4).min(HANDLES_MAX))).unwrap_or(1)
}

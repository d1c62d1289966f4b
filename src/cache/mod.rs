//! The cache: tiers of complete, exact-length files, each tier a place with a byte budget. Skeleton.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bytes::Bytes;

use crate::types::{ErrorKind, ObjectId};

/// A failure of a tier. A reader never sees it: it is a counter and a miss.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct CacheError {
    pub kind: ErrorKind,
    pub message: String,
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

/// One complete object version. While somebody holds it, its bytes stay readable and stay counted, also when it was retired.
#[derive(Debug)]
pub struct CachedFile {}

impl CachedFile {
    /// Length in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        0
    }
    /// Tier it lies in; `None` for transient ones.
    #[must_use]
    pub fn tier(&self) -> Option<usize> {
        None
    }
    /// A descriptor for kernel passthrough, if it is a file of exact length in a healthy tier.
    #[must_use]
    pub fn passthrough_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Whether reading it never waits for a disk.
    #[must_use]
    pub fn in_memory(&self) -> bool {
        true
    }
    /// Fills `buf` from `offset`; all of it or an error. Blocks on disk tiers.
    ///
    /// # Errors
    /// The disk failed or the file is shorter than it was: the caller drops it and fetches again.
    pub fn read_exact_at(&self, _buf: &mut [u8], _offset: u64) -> Result<(), CacheError> {
        Ok(())
    }
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

/// Room taken before a byte is written. Dropping it gives the room back.
#[derive(Debug)]
pub struct Reservation {}

/// A file being written.
#[derive(Debug)]
pub struct Writer {}

/// All tiers and their budgets.
#[derive(Debug)]
pub struct TieredCache {}

impl TieredCache {
    /// Never blocks. Counts nothing.
    #[must_use]
    pub fn lookup(&self, _id: &ObjectId, _size: u64) -> Lookup {
        Lookup::Miss
    }
    /// Blocking: opens (and verifies, once per daemon life) a file of a disk tier.
    #[must_use]
    pub fn open(&self, _id: &ObjectId, _size: u64) -> Option<Arc<CachedFile>> {
        None
    }
    /// Takes room for `size` bytes. Never waits.
    ///
    /// # Errors
    /// `NoSpace` when the placement has none.
    pub fn reserve(&self, _size: u64, _placement: Placement) -> Result<Reservation, CacheError> {
        Err(CacheError { kind: ErrorKind::NoSpace, message: String::new() })
    }
    /// Starts a file in reserved room.
    #[must_use]
    pub fn writer(&self, _reservation: Reservation, _id: &ObjectId, _size: u64) -> Writer {
        Writer {}
    }
    /// Lets go of a version. Its bytes stay counted until the last holder drops it.
    pub fn retire(&self, _id: &ObjectId) -> bool {
        false
    }
}

impl Writer {
    /// Appends. On a memory tier this is a copy; on a disk tier the bytes are kept until [`Self::finish`].
    ///
    /// # Errors
    /// The tier failed, or more bytes came than the size.
    pub fn write(&mut self, _chunk: Bytes) -> Result<(), CacheError> {
        Ok(())
    }
    /// Bytes so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        0
    }
    /// Whether [`Self::finish`] touches a disk and belongs on a blocking thread.
    #[must_use]
    pub fn finish_blocks(&self) -> bool {
        false
    }
    /// Checks the length, makes the file visible under its name, atomically.
    ///
    /// # Errors
    /// Short, or the tier failed: nothing is left behind.
    pub fn finish(self) -> Result<Arc<CachedFile>, CacheError> {
        Err(CacheError { kind: ErrorKind::NoSpace, message: String::new() })
    }
}

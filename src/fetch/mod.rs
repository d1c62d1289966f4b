//! The door: the only way to the store, for demand and prefetch alike. Skeleton.

use std::sync::Arc;

use bytes::Bytes;

use crate::cache::CachedFile;
use crate::types::{ErrorKind, ObjectId, ObjectMeta, Outcome};

/// Objects up to this size are always held whole: one GET, one complete file, kernel passthrough. Larger ones are read by ranges.
pub const WHOLE_MAX_BYTES: u64 = 16 << 20;

/// Why bytes could not be had. Clone: readers that share a fetch share its failure.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct FetchError {
    pub kind: ErrorKind,
    pub message: Arc<str>,
}

/// What the cache knows without waiting.
#[derive(Debug)]
pub enum Peek {
    /// Complete and readable now; the outcome to report for this open.
    Ready(Arc<CachedFile>, Outcome),
    /// Needs a disk or the store: use [`Door::open`].
    Absent,
}

/// A whole object, held.
#[derive(Debug)]
pub struct Opened {
    pub file: Arc<CachedFile>,
    pub outcome: Outcome,
}

/// The door.
#[derive(Debug)]
pub struct Door {}

impl Door {
    /// Never waits, touches no disk.
    #[must_use]
    pub fn peek(&self, _object: &ObjectMeta) -> Peek {
        Peek::Absent
    }
    /// Demand: the whole object (size 1..=[`WHOLE_MAX_BYTES`]), from cache, flight or store. Cancel-safe: dropping the future does not stop the fetch.
    /// Returns only when it is there or has failed for good; the caller has the deadline.
    ///
    /// # Errors
    /// The fetch failed for good; `Changed` when the store has another version.
    pub async fn open(self: &Arc<Self>, _object: &ObjectMeta) -> Result<Opened, FetchError> {
        Err(FetchError { kind: ErrorKind::Shutdown, message: "skeleton".into() })
    }
    /// A reader of one object larger than [`WHOLE_MAX_BYTES`], one per handle (it learns whether the handle reads sequentially).
    #[must_use]
    pub fn open_large(self: &Arc<Self>, _object: &ObjectMeta) -> LargeReader {
        LargeReader {}
    }
    /// Lets go of a version known to be stale or damaged.
    pub fn forget(&self, _id: &ObjectId) {}
    /// One counted HEAD: what the key is now.
    ///
    /// # Errors
    /// As the store says, after retries.
    pub async fn head(&self, _key: &str) -> Result<ObjectMeta, FetchError> {
        Err(FetchError { kind: ErrorKind::Shutdown, message: "skeleton".into() })
    }
}

/// Reads ranges of a large object.
#[derive(Debug)]
pub struct LargeReader {}

impl LargeReader {
    /// Exactly the bytes `offset..offset + len` (within the object).
    ///
    /// # Errors
    /// As [`Door::open`].
    pub async fn read(&self, _offset: u64, _len: u32) -> Result<Bytes, FetchError> {
        Err(FetchError { kind: ErrorKind::Shutdown, message: "skeleton".into() })
    }
    /// The complete cached file, once all its bytes are here (then passthrough is possible at the next open).
    #[must_use]
    pub fn complete(&self) -> Option<Arc<CachedFile>> {
        None
    }
    /// The outcome to report for this open, when the first bytes have been read.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        Outcome::Miss
    }
}

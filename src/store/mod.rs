//! The store: where the objects are. A store is honest: it returns exactly the bytes of the version asked for, or an error with a kind.
//!
//! It does not cache, does not prefetch, and does not retry: repeating is the door's decision (`fetch/retry.rs`), so that demand and
//! prefetch share one policy and one set of counters.

pub mod aistore;
pub mod batch;
pub mod batched;
pub mod directory;
pub mod fault;
mod http;
pub mod listing;
pub mod open;
pub mod retry;
pub mod s3;
#[cfg(test)]
mod scripted;
pub mod throttle;
pub mod tls;
pub mod url;

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;

use crate::store::batch::{BatchLimits, Pieces, Wanted};
use crate::types::{ErrorKind, ObjectId, ObjectMeta};

/// A failure of the store. Clone, because readers that share one request share its failure.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    /// What a caller may act on.
    pub kind: ErrorKind,
    /// For people: names the object or bucket, what the store said, and the remedy where there is one. Never a credential.
    pub message: Arc<str>,
}

impl StoreError {
    /// An error of this kind with this text.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl AsRef<str>) -> Self {
        Self { kind, message: Arc::from(message.as_ref()) }
    }
}

/// One page of a listing, keys in byte order.
#[derive(Clone, Debug)]
pub struct Page {
    /// The objects of this page.
    pub objects: Vec<ObjectMeta>,
    /// Where the next page begins; `None` on the last one.
    pub next: Option<String>,
}

/// The body of one GET: chunks in order. It yields exactly the bytes asked for, then ends; anything else is an error item and the end.
pub type Body = BoxStream<'static, Result<Bytes, StoreError>>;

/// A file inside a shard.
pub struct Member {
    /// Bytes of it.
    pub size: u64,
    pub body: Body,
}

impl Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("size", &self.size).finish_non_exhaustive()
    }
}

/// A bucket, seen from one prefix. Keys are full keys.
#[async_trait]
pub trait Store: Send + Sync + Debug {
    /// One page of the flat listing of all keys that start with `prefix`, at most 1,000, in byte order.
    /// `after`: `None` for the first page, then what [`Page::next`] said.
    /// `start_after`: keys up to and including this one are left out (for listing several key ranges in parallel).
    async fn list(&self, prefix: &str, start_after: Option<&str>, after: Option<&str>) -> Result<Page, StoreError>;

    /// Whether a listing can begin after any key (`start_after`) without reading what comes before: only then is it worth splitting.
    fn lists_in_ranges(&self) -> bool {
        true
    }

    /// Size, version and time of one object.
    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError>;

    /// The bytes `range` (not empty, within the object) of exactly this version. Resolves when the response's headers are in.
    /// `Changed` when the object is another version by now.
    async fn read(&self, id: &ObjectId, range: Range<u64>) -> Result<Body, StoreError>;

    /// What one ordered batch may carry now; `None`: single reads are all there is. A store may come to know that its server has no batches.
    fn batch_limits(&self) -> Option<BatchLimits> {
        None
    }

    /// Several whole objects in the order asked, none of them twice refused for another's sake (see [`Piece`](batch::Piece)).
    /// Resolves when the response's headers are in. Without anything better: one single read after the other.
    async fn read_batch<'a>(&'a self, wanted: &[Wanted]) -> Result<Pieces<'a>, StoreError> {
        Ok(batch::by_single_reads(self, wanted))
    }

    /// A file inside a shard of this version, as a whole, found by the store. `NotFound`: the shard or the file is not there; `Invalid`: this store cannot.
    async fn read_member(&self, shard: &ObjectId, member: &str) -> Result<Member, StoreError> {
        let text = format!("{member:?} in {:?}: this store reads no files inside shards", shard.key);
        Err(StoreError::new(ErrorKind::Invalid, text))
    }

    /// How many keys one announcement may have, where the store wants to be told what will be read soon. `None`: it does not.
    fn announce_max(&self) -> Option<usize> {
        None
    }

    /// Says which objects will be read next, in this order: a store in front of a slower one may fetch them. A hint: nothing depends on it, no failure is told.
    async fn announce(&self, _keys: &[Arc<str>]) {}
}

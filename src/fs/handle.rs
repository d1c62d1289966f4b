//! Open files: what each handle reads, and the table that the kernel's handle numbers point into.
//!
//! A handle is bound to one version of its object for life. It holds the cached file it reads, so that the bytes stay while it is open.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::cache::CachedFile;
use crate::fetch::LargeReader;
use crate::types::{FileIndex, ObjectMeta};

/// One open file.
#[derive(Debug)]
pub struct Handle {
    /// Its inode number.
    pub ino: u64,
    /// The process that opened it, as FUSE gives it.
    pub(crate) process: u32,
    pub(crate) content: Content,
}

/// Where its bytes come from.
#[derive(Debug)]
pub(crate) enum Content {
    /// Rendered at open.
    Control(Vec<u8>),
    /// A version of an object.
    Object(OpenObject),
}

/// An open version of an object.
#[derive(Debug)]
pub(crate) struct OpenObject {
    pub(crate) file: FileIndex,
    pub(crate) object: ObjectMeta,
    /// `None` for objects that are held whole.
    pub(crate) large: Option<LargeReader>,
    held: Mutex<Option<Arc<CachedFile>>>,
    /// Whether the open was told as an access already; large files are told when their first bytes came.
    told: AtomicBool,
}

impl OpenObject {
    pub(crate) fn new(file: FileIndex, object: ObjectMeta, large: Option<LargeReader>, held: Option<Arc<CachedFile>>) -> Self {
        Self { file, object, large, held: Mutex::new(held), told: AtomicBool::new(false) }
    }

    /// The complete cached file, if its bytes are here.
    pub(crate) fn held(&self) -> Option<Arc<CachedFile>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_none() {
            *held = self.large.as_ref().and_then(LargeReader::complete);
        }
        held.clone()
    }

    pub(crate) fn hold(&self, file: Arc<CachedFile>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
    }

    /// Drops a file that failed to read.
    pub(crate) fn let_go(&self) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// True exactly once.
    pub(crate) fn tell_once(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }
}

impl Handle {
    pub(crate) fn of(ino: u64, process: u32, object: OpenObject) -> Arc<Self> {
        Arc::new(Self { ino, process, content: Content::Object(object) })
    }

    pub(crate) fn object(&self) -> Option<&OpenObject> {
        match &self.content {
            Content::Object(object) => Some(object),
            Content::Control(_) => None,
        }
    }

    /// Whether the kernel must read it without its page cache.
    #[must_use]
    pub const fn is_control(&self) -> bool {
        matches!(self.content, Content::Control(_))
    }

    /// The complete file behind it, for kernel passthrough.
    #[must_use]
    pub fn complete(&self) -> Option<Complete> {
        let open = self.object()?;
        Some(Complete { file: open.held()?, size: open.object.size })
    }

    /// Length in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        match &self.content {
            Content::Object(open) => open.object.size,
            Content::Control(bytes) => bytes.len() as u64,
        }
    }

    /// How many bytes a READ of `size` at `offset` must return: never fewer, or the kernel takes it for the end of the file.
    pub(crate) fn span(&self, offset: u64, size: u32) -> u32 {
        u32::try_from(self.size().saturating_sub(offset)).map_or(size, |left| left.min(size))
    }
}

/// A complete object version in a cached file. Its bytes stay while somebody holds this.
#[derive(Clone, Debug)]
pub struct Complete {
    pub(crate) file: Arc<CachedFile>,
    size: u64,
}

impl Complete {
    /// The descriptor to pass through, if its tier allows. Whoever reads it reads without us and without our idea of its size: so the cache
    /// looks at the file's length each time, and here it is compared with the object's.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        if self.file.size() != self.size {
            tracing::error!("a cached file has {} bytes instead of {}: not passed through", self.file.size(), self.size);
            return None;
        }
        self.file.passthrough_fd()
    }
}

/// Locks of the table: more than session threads (4), few enough to stay small.
const SHARDS: usize = 16;

/// Handle numbers → handles. Bounded by what processes have open.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    next: AtomicU64,
    shards: [Mutex<HashMap<u64, Arc<Handle>>>; SHARDS],
}

impl Handles {
    pub(crate) fn insert(&self, handle: Arc<Handle>) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1; // 0 stays free: directories use it
        self.shard(number).lock().unwrap_or_else(PoisonError::into_inner).insert(number, handle);
        number
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<Handle>> {
        self.shard(number).lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }

    pub(crate) fn remove(&self, number: u64) -> Option<Arc<Handle>> {
        self.shard(number).lock().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }

    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let gone = std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner));
            drop(gone);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }

    #[expect(clippy::cast_possible_truncation, reason = "only the low bits choose a shard")]
    const fn shard(&self, number: u64) -> &Mutex<HashMap<u64, Arc<Handle>>> {
        &self.shards[number as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_spans_what_the_file_has_and_no_less() {
        let handle = Handle { ino: 1, process: 0, content: Content::Control(vec![0; 100]) };
        for (offset, size, expected) in [(0, 10, 10), (0, 100, 100), (0, 4096, 100), (90, 4096, 10), (100, 1, 0), (u64::MAX, 1, 0)] {
            assert_eq!(handle.span(offset, size), expected, "{offset}+{size}");
        }
    }

    #[test]
    fn numbers_lead_to_their_handles_until_removed() {
        let table = Handles::default();
        let numbers: Vec<u64> =
            (0..100).map(|ino| table.insert(Arc::new(Handle { ino, process: 0, content: Content::Control(Vec::new()) }))).collect();
        assert!(!numbers.contains(&0));
        for (ino, number) in numbers.iter().enumerate() {
            assert_eq!(table.get(*number).map(|h| h.ino), Some(ino as u64));
            assert!(table.remove(*number).is_some() && table.get(*number).is_none());
        }
        assert_eq!(table.len(), 0);
    }
}

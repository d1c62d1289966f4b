//! Objects that changed in the bucket since the listing: which version the mount serves now.
//!
//! The manifest is immutable and keeps the listing's versions; this small table overrides it. Most mounts never have an entry, and then it costs
//! one atomic load. It holds at most one entry per file.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::dataset::Manifest;
use crate::types::{FileIndex, ObjectMeta};

/// Locks for adopting: one stuck HEAD must not stall the adoption of other files, and 64 of them rarely meet.
const LOCKS: usize = 64;

/// The overrides.
#[derive(Debug)]
pub(crate) struct Versions {
    manifest: Arc<Manifest>,
    any: AtomicBool,
    adopted: RwLock<HashMap<FileIndex, ObjectMeta>>,
    /// Held from noticing a change until the kernel has forgotten the old pages.
    settling: Vec<tokio::sync::Mutex<()>>,
}

impl Versions {
    pub(crate) fn new(manifest: Arc<Manifest>) -> Self {
        let settling = (0..LOCKS).map(|_| tokio::sync::Mutex::new(())).collect();
        Self { manifest, any: AtomicBool::new(false), adopted: RwLock::default(), settling }
    }

    /// The version served now.
    pub(crate) fn current(&self, file: FileIndex) -> ObjectMeta {
        self.adopted_version(file).unwrap_or_else(|| self.manifest.object(file).clone())
    }

    /// Its length and modification time.
    pub(crate) fn size_and_mtime(&self, file: FileIndex) -> (u64, i64) {
        let of = |object: &ObjectMeta| (object.size, object.mtime_seconds);
        self.adopted_version(file).as_ref().map_or_else(|| of(self.manifest.object(file)), of)
    }

    /// Whether the file changed since the listing.
    pub(crate) fn is_adopted(&self, file: FileIndex) -> bool {
        self.adopted_version(file).is_some()
    }

    /// Whether `object` is no longer the version served.
    pub(crate) fn is_stale(&self, file: FileIndex, object: &ObjectMeta) -> bool {
        self.any.load(Ordering::Acquire) && self.current(file).version() != object.version()
    }

    /// From now on the file is `object`.
    pub(crate) fn adopt(&self, file: FileIndex, object: ObjectMeta) {
        self.adopted.write().unwrap_or_else(PoisonError::into_inner).insert(file, object);
        self.any.store(true, Ordering::Release);
    }

    /// The lock under which this file changes its version.
    pub(crate) async fn settle(&self, file: FileIndex) -> tokio::sync::MutexGuard<'_, ()> {
        self.settling[file.at() % LOCKS].lock().await
    }

    fn adopted_version(&self, file: FileIndex) -> Option<ObjectMeta> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.adopted.read().unwrap_or_else(PoisonError::into_inner).get(&file).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(key: &str, etag: &str, size: u64) -> ObjectMeta {
        ObjectMeta { key: key.into(), size, etag: etag.into(), mtime_seconds: 5 }
    }

    #[test]
    fn an_adopted_version_replaces_the_listed_one_and_makes_it_stale() {
        let listed = object("a", "\"1\"", 10);
        let versions = Versions::new(Arc::new(Manifest::build("", vec![listed.clone(), object("b", "\"1\"", 20)])));
        let (a, b) = (FileIndex(0), FileIndex(1));
        assert!(!versions.is_stale(a, &listed) && !versions.is_adopted(a));

        let fresh = object("a", "\"2\"", 11);
        versions.adopt(a, fresh.clone());
        assert!(versions.is_stale(a, &listed) && !versions.is_stale(a, &fresh));
        assert_eq!((versions.current(a), versions.size_and_mtime(a)), (fresh, (11, 5)));
        assert_eq!(versions.size_and_mtime(b), (20, 5), "other files keep the listing's");
    }
}

//! Objects that changed in the bucket since the listing: which version the mount serves now, and under which inode number.
//!
//! The manifest is immutable and keeps the listing's versions; this small table overrides it. Most mounts never have an entry, and then it costs
//! one atomic load. It holds at most one entry per file.
//!
//! A new version gets a number of its own, because the kernel keeps length and pages by number: under one number, a handle of the old version
//! would read the new one's pages, and end where the new one ends, without asking us. The old number is `ESTALE` from then on, on which the
//! kernel looks the name up again by itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::dataset::{Manifest, Node};
use crate::types::{FileIndex, ObjectMeta};

/// Numbers from here on belong to adopted versions, in the order of their adoption: above the manifest's, far below the control files'.
const ADOPTED_INO: u64 = 3 << 62;

/// Locks for adopting: one stuck HEAD must not stall the adoption of other files, and 64 of them rarely meet.
const LOCKS: usize = 64;

/// The overrides.
#[derive(Debug)]
pub(crate) struct Versions {
    manifest: Arc<Manifest>,
    any: AtomicBool,
    adopted: RwLock<Adopted>,
    /// Held from noticing a change until the kernel has forgotten the old pages.
    settling: Vec<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct Adopted {
    versions: HashMap<FileIndex, (ObjectMeta, u64)>,
    files: HashMap<u64, FileIndex>,
    count: u64,
}

/// What an inode number stands for here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Current(Node),
    /// A version that was replaced.
    Replaced,
    Unknown,
}

impl Versions {
    pub(crate) fn new(manifest: Arc<Manifest>) -> Self {
        let settling = (0..LOCKS).map(|_| tokio::sync::Mutex::new(())).collect();
        Self { manifest, any: AtomicBool::new(false), adopted: RwLock::default(), settling }
    }

    /// The version served now.
    pub(crate) fn current(&self, file: FileIndex) -> ObjectMeta {
        self.adopted_version(file).map_or_else(|| self.manifest.object(file).clone(), |(object, _)| object)
    }

    /// Its inode number.
    pub(crate) fn ino(&self, file: FileIndex) -> u64 {
        self.adopted_version(file).map_or_else(|| self.manifest.ino(Node::File(file)), |(_, ino)| ino)
    }

    /// What has this inode number now.
    pub(crate) fn node(&self, ino: u64) -> Number {
        match self.manifest.node(ino) {
            Some(Node::File(file)) if self.is_adopted(file) => Number::Replaced,
            Some(node) => Number::Current(node),
            None => match self.adopted.read().unwrap_or_else(PoisonError::into_inner) {
                adopted if (ADOPTED_INO..ADOPTED_INO + adopted.count).contains(&ino) => {
                    adopted.files.get(&ino).map_or(Number::Replaced, |&file| Number::Current(Node::File(file)))
                }
                _ => Number::Unknown,
            },
        }
    }

    /// The file with this inode number and the version that the number stands for; `None` if it is no file or no longer served.
    pub(crate) fn version_of(&self, ino: u64) -> Option<(FileIndex, ObjectMeta)> {
        if let Some(node) = self.manifest.node(ino) {
            let Node::File(file) = node else { return None };
            return (!self.is_adopted(file)).then(|| (file, self.manifest.object(file).clone()));
        }
        let adopted = self.adopted.read().unwrap_or_else(PoisonError::into_inner);
        let file = *adopted.files.get(&ino)?;
        adopted.versions.get(&file).map(|(object, _)| (file, object.clone()))
    }

    /// Its length and modification time.
    pub(crate) fn size_and_mtime(&self, file: FileIndex) -> (u64, i64) {
        let of = |object: &ObjectMeta| (object.size, object.mtime_seconds);
        self.adopted_version(file).map_or_else(|| of(self.manifest.object(file)), |(object, _)| of(&object))
    }

    /// Whether the file changed since the listing.
    pub(crate) fn is_adopted(&self, file: FileIndex) -> bool {
        self.adopted_version(file).is_some()
    }

    /// Whether `object` is no longer the version served.
    pub(crate) fn is_stale(&self, file: FileIndex, object: &ObjectMeta) -> bool {
        self.any.load(Ordering::Acquire) && self.current(file).version() != object.version()
    }

    /// From now on the file is `object`, under a new number.
    pub(crate) fn adopt(&self, file: FileIndex, object: ObjectMeta) {
        let mut guard = self.adopted.write().unwrap_or_else(PoisonError::into_inner);
        let adopted = &mut *guard;
        let ino = ADOPTED_INO + adopted.count;
        adopted.count += 1;
        if let Some((_, old)) = adopted.versions.insert(file, (object, ino)) {
            adopted.files.remove(&old);
        }
        adopted.files.insert(ino, file);
        drop(guard);
        self.any.store(true, Ordering::Release);
    }

    /// The lock under which this file changes its version.
    pub(crate) async fn settle(&self, file: FileIndex) -> tokio::sync::MutexGuard<'_, ()> {
        self.settling[file.at() % LOCKS].lock().await
    }

    fn adopted_version(&self, file: FileIndex) -> Option<(ObjectMeta, u64)> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.adopted.read().unwrap_or_else(PoisonError::into_inner).versions.get(&file).cloned()
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

    #[test]
    fn each_version_has_its_own_number_and_replaced_numbers_stay_dead() {
        let versions = Versions::new(Arc::new(Manifest::build("", vec![object("a", "\"1\"", 10), object("b", "\"1\"", 20)])));
        let (a, b) = (FileIndex(0), FileIndex(1));
        let mut dead = Vec::new();
        for size in 11..14 {
            dead.push(versions.ino(a));
            assert_eq!(versions.node(versions.ino(a)), Number::Current(Node::File(a)));
            versions.adopt(a, object("a", &format!("\"{size}\""), size));
            assert_eq!(versions.version_of(versions.ino(a)).map(|(file, object)| (file, object.size)), Some((a, size)));
            for &ino in &dead {
                assert!(versions.node(ino) == Number::Replaced && versions.version_of(ino).is_none() && ino != versions.ino(a));
            }
        }
        assert_eq!(versions.node(versions.ino(b)), Number::Current(Node::File(b)));
        assert_eq!(versions.node(versions.ino(a) + 1), Number::Unknown, "not given out yet");
    }
}

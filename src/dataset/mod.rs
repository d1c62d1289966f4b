//! The namespace: keys of a bucket ↔ paths of a directory tree ↔ samples of a dataset. Pure: it receives a listing, it does not make one.

use crate::types::{FileIndex, ObjectMeta};

/// Place of a directory in the manifest; 0 is the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DirIndex(pub u32);

/// A name resolves to one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    File(FileIndex),
    Dir(DirIndex),
}

/// The complete, immutable namespace of a mount.
#[derive(Debug, Default)]
pub struct Manifest {
    objects: Vec<ObjectMeta>,
}

impl Manifest {
    /// Builds the tree below `prefix` from a complete listing (any order; duplicates are an error of the caller).
    #[must_use]
    pub fn build(_prefix: &str, objects: Vec<ObjectMeta>) -> Self {
        Self { objects }
    }
    /// Visible files.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
    /// The object behind a file.
    #[must_use]
    pub fn object(&self, file: FileIndex) -> &ObjectMeta {
        &self.objects[file.at()]
    }
    /// Path of a file below the mount point, without a leading slash.
    #[must_use]
    pub fn path(&self, file: FileIndex) -> &str {
        &self.objects[file.at()].key
    }
    /// Stable inode number of a node; 1 for the root.
    #[must_use]
    pub fn ino(&self, _node: Node) -> u64 {
        1
    }
    /// Inode number → node.
    #[must_use]
    pub fn node(&self, _ino: u64) -> Option<Node> {
        None
    }
    /// One path component below a directory.
    #[must_use]
    pub fn child(&self, _dir: DirIndex, _name: &str) -> Option<Node> {
        None
    }
    /// All entries of a directory in byte order of their names: (name, node).
    pub fn children(&self, _dir: DirIndex) -> impl Iterator<Item = (&str, Node)> {
        std::iter::empty()
    }
    /// Number of entries of a directory.
    #[must_use]
    pub fn child_count(&self, _dir: DirIndex) -> usize {
        0
    }
    /// The `k`-th entry of a directory (same order as [`Self::children`]), O(1).
    #[must_use]
    pub fn nth_child(&self, _dir: DirIndex, _k: usize) -> Option<(&str, Node)> {
        None
    }
    #[must_use]
    pub fn parent(&self, _dir: DirIndex) -> DirIndex {
        DirIndex(0)
    }
    /// Newest modification time below the directory, seconds since 1970.
    #[must_use]
    pub fn dir_mtime_seconds(&self, _dir: DirIndex) -> i64 {
        0
    }
    /// A path below the mount point ("" = root).
    #[must_use]
    pub fn find(&self, _path: &str) -> Option<Node> {
        None
    }
    /// Hash of keys, sizes and ETags (32 hex digits): nodes that disagree on it disagree on every permutation.
    #[must_use]
    pub fn id(&self) -> &str {
        ""
    }
    /// Keys that no path can show (see naming.rs).
    #[must_use]
    pub fn hidden_keys(&self) -> u64 {
        0
    }
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        0
    }
}

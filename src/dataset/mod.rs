//! The namespace: keys of a bucket ↔ paths of a directory tree ↔ samples of a dataset. Pure: it receives a listing, it does not make one.
//!
//! [`Manifest`] is the tree, built once from a complete listing and immutable; `naming` says which key is which path, `inode` numbers
//! them, `samples` says which file is which sample, `maps` which numberings the first opens leave open, `file` writes and reads a manifest.
//!
//! Memory: about 140 bytes a file beside the texts of its key and ETag.

use crate::dataset::inode::{InodeTable, ROOT_INO};
use crate::dataset::naming::{HiddenKeys, name_of};
use crate::types::{FileIndex, ObjectMeta};

mod build;
pub mod file;
pub mod inode;
pub mod maps;
mod names;
pub mod naming;
pub mod samples;
mod sequence;

/// Place of a directory in the manifest; 0 is the root. Directories are in byte order of their paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DirIndex(pub u32);

impl DirIndex {
    /// The mount point.
    pub const ROOT: Self = Self(0);

    const fn at(self) -> usize {
        self.0 as usize
    }
}

/// A name resolves to one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    File(FileIndex),
    Dir(DirIndex),
}

/// A node in 32 bits: the top one says directory. So a manifest holds less than 2^31 files.
const DIR_BIT: u32 = 1 << 31;

impl Node {
    const fn packed(self) -> u32 {
        match self {
            Self::File(file) => file.0,
            Self::Dir(dir) => dir.0 | DIR_BIT,
        }
    }

    const fn unpacked(bits: u32) -> Self {
        if bits & DIR_BIT == 0 { Self::File(FileIndex(bits)) } else { Self::Dir(DirIndex(bits & !DIR_BIT)) }
    }
}

/// One directory.
#[derive(Debug)]
struct Dir {
    /// Below the mount, without a slash at either end.
    path: Box<str>,
    parent: DirIndex,
    ino: u64,
    mtime_seconds: i64,
    /// Its entries in [`Manifest::entries`], in byte order of their names.
    entries: std::ops::Range<u32>,
}

/// The complete, immutable namespace of a mount.
#[derive(Debug)]
pub struct Manifest {
    prefix: Box<str>,
    /// Visible files in byte order of their keys, which is that of their paths.
    objects: Vec<ObjectMeta>,
    /// Inode number of each file.
    inos: Vec<u64>,
    dirs: Vec<Dir>,
    /// Packed nodes, grouped by directory.
    entries: Vec<u32>,
    table: InodeTable,
    id: String,
    hidden: HiddenKeys,
    total_bytes: u64,
}

impl Default for Manifest {
    /// An empty mount.
    fn default() -> Self {
        Self::build("", Vec::new())
    }
}

impl Manifest {
    /// Builds the tree below `prefix` from a complete listing (any order; of two objects with one key the first counts).
    #[must_use]
    pub fn build(prefix: &str, objects: Vec<ObjectMeta>) -> Self {
        build::build(prefix, objects, HiddenKeys::default())
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

    /// Directories, the root included.
    #[must_use]
    pub fn dir_count(&self) -> usize {
        self.dirs.len()
    }

    /// What all keys begin with: empty, or with a slash at its end.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The object behind a file.
    #[must_use]
    pub fn object(&self, file: FileIndex) -> &ObjectMeta {
        &self.objects[file.at()]
    }

    /// Path of a file below the mount point, without a leading slash.
    #[must_use]
    pub fn path(&self, file: FileIndex) -> &str {
        &self.objects[file.at()].key[self.prefix.len()..]
    }

    /// Path of a directory below the mount point, without a leading slash; empty for the root.
    #[must_use]
    pub fn dir_path(&self, dir: DirIndex) -> &str {
        &self.dirs[dir.at()].path
    }

    /// Stable inode number of a node; 1 for the root. The top bit is clear.
    #[must_use]
    pub fn ino(&self, node: Node) -> u64 {
        match node {
            Node::File(file) => self.inos[file.at()],
            Node::Dir(dir) => self.dirs[dir.at()].ino,
        }
    }

    /// Inode number → node.
    #[must_use]
    pub fn node(&self, ino: u64) -> Option<Node> {
        if ino == ROOT_INO {
            return Some(Node::Dir(DirIndex::ROOT));
        }
        self.table.find(ino, |node| self.ino(Node::unpacked(node))).map(Node::unpacked)
    }

    /// One path component below a directory. O(log entries).
    #[must_use]
    pub fn child(&self, dir: DirIndex, name: &str) -> Option<Node> {
        let entries = self.entries(dir);
        let place = entries.binary_search_by(|&entry| self.name(Node::unpacked(entry)).cmp(name)).ok()?;
        Some(Node::unpacked(entries[place]))
    }

    /// All entries of a directory in byte order of their names: (name, node).
    pub fn children(&self, dir: DirIndex) -> impl Iterator<Item = (&str, Node)> {
        self.entries(dir).iter().map(|&entry| (self.name(Node::unpacked(entry)), Node::unpacked(entry)))
    }

    /// Number of entries of a directory.
    #[must_use]
    pub fn child_count(&self, dir: DirIndex) -> usize {
        self.entries(dir).len()
    }

    /// The `k`-th entry of a directory (same order as [`Self::children`]), O(1).
    #[must_use]
    pub fn nth_child(&self, dir: DirIndex, k: usize) -> Option<(&str, Node)> {
        let node = Node::unpacked(*self.entries(dir).get(k)?);
        Some((self.name(node), node))
    }

    /// The directory a directory is in; the root is in itself.
    #[must_use]
    pub fn parent(&self, dir: DirIndex) -> DirIndex {
        self.dirs[dir.at()].parent
    }

    /// Newest modification time below the directory, seconds since 1970 (an empty one: its marker's, or 0).
    #[must_use]
    pub fn dir_mtime_seconds(&self, dir: DirIndex) -> i64 {
        self.dirs[dir.at()].mtime_seconds
    }

    /// A path below the mount point ("" = root).
    #[must_use]
    pub fn find(&self, path: &str) -> Option<Node> {
        if path.is_empty() {
            return Some(Node::Dir(DirIndex::ROOT));
        }
        if let Ok(place) = self.objects.binary_search_by(|object| object.key[self.prefix.len()..].cmp(path)) {
            return Some(Node::File(file_index(place)));
        }
        self.find_dir(path).map(Node::Dir)
    }

    /// Hash of keys, sizes and ETags (32 hex digits): nodes that disagree on it disagree on every permutation.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Keys that no path can show (see `naming`).
    #[must_use]
    pub fn hidden_keys(&self) -> u64 {
        self.hidden.total()
    }

    /// The same by reason, with examples.
    #[must_use]
    pub fn hidden(&self) -> &HiddenKeys {
        &self.hidden
    }

    /// Bytes of all visible files.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    fn entries(&self, dir: DirIndex) -> &[u32] {
        let range = &self.dirs[dir.at()].entries;
        &self.entries[range.start as usize..range.end as usize]
    }

    fn name(&self, node: Node) -> &str {
        name_of(match node {
            Node::File(file) => self.path(file),
            Node::Dir(dir) => self.dir_path(dir),
        })
    }

    /// The directory with exactly this path.
    fn find_dir(&self, path: &str) -> Option<DirIndex> {
        let place = self.dirs.binary_search_by(|dir| (*dir.path).cmp(path)).ok()?;
        Some(dir_index(place))
    }

    /// All directories below `dir`, without itself, in byte order of their paths.
    fn dirs_below(&self, dir: DirIndex) -> impl Iterator<Item = DirIndex> {
        let (start, end) = subtree(&self.dirs, self.dir_path(dir), |dir| &dir.path);
        (start..end).map(dir_index).filter(move |&below| below != dir)
    }

    /// All files below `dir`, in byte order of their paths.
    fn files_below(&self, dir: DirIndex) -> impl Iterator<Item = FileIndex> {
        let (start, end) = subtree(&self.objects, self.dir_path(dir), |object| &object.key[self.prefix.len()..]);
        (start..end).map(file_index)
    }
}

/// The run of items, sorted by path, whose paths are below `dir`: those that begin with `dir/`, everything for the root.
fn subtree<T>(sorted: &[T], dir: &str, path: impl Fn(&T) -> &str) -> (usize, usize) {
    if dir.is_empty() {
        return (0, sorted.len());
    }
    let first_from = |end: u8| sorted.partition_point(|item| path(item).bytes().lt(dir.bytes().chain([end])));
    // '0' is the byte after '/'.
    (first_from(b'/'), first_from(b'0'))
}

fn file_index(place: usize) -> FileIndex {
    FileIndex(u32::try_from(place).expect("a manifest holds less than 2^31 files"))
}

fn dir_index(place: usize) -> DirIndex {
    DirIndex(u32::try_from(place).expect("a manifest holds less than 2^31 directories"))
}

#[cfg(test)]
mod tests;

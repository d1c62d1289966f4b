//! Names and attributes: lookup, getattr, readdir, statfs. All from memory.

use super::control::{self, ControlFile};
use super::error::{NO_ENTRY, STALE};
use super::versions::Number;
use super::{BeladyFs, Errno};
use crate::dataset::{DirIndex, Node};

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
}

/// Attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    pub ino: u64,
    pub kind: Kind,
    pub size: u64,
    pub mtime_seconds: i64,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// Whether the kernel may keep them: not for control files.
    pub cacheable: bool,
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub name: &'a str,
    pub attr: Attr,
    /// Where a listing goes on after it.
    pub next_offset: u64,
}

/// What statfs says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystemSize {
    /// Blocks of [`Self::BLOCK_BYTES`].
    pub blocks: u64,
    pub files: u64,
}

impl FileSystemSize {
    /// Size of a block: a page, as on disk file systems.
    pub const BLOCK_BYTES: u32 = 4096;
    /// Longest name the kernel's own path handling passes on.
    pub const NAME_MAX: u32 = 255;
}

/// What an inode number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Node(Node),
    ControlDir,
    Control(ControlFile),
}

/// A directory in the sense of statfs and `ls`: one block.
const DIR_SIZE_BYTES: u64 = 4096;

impl BeladyFs {
    /// A name in a directory.
    ///
    /// # Errors
    /// `ENOENT`: no such name, for good (the namespace does not change). `ENAMETOOLONG`: no file system has such a name, ours neither
    /// (the kernel passes 1024 bytes on to us).
    pub fn lookup(&self, parent: u64, name: &str) -> Result<Attr, Errno> {
        if name.len() > FileSystemSize::NAME_MAX as usize {
            return Err(Errno::NAMETOOLONG);
        }
        let place = match self.place(parent)? {
            Place::Node(Node::Dir(dir)) => match self.manifest.child(dir, name) {
                Some(node) => Place::Node(node),
                None if dir == DirIndex(0) && name == control::DIRECTORY => Place::ControlDir,
                None => return Err(NO_ENTRY),
            },
            Place::ControlDir => Place::Control(ControlFile::named(name).ok_or(NO_ENTRY)?),
            Place::Node(Node::File(_)) | Place::Control(_) => return Err(Errno::NOTDIR),
        };
        Ok(self.attr_of(place))
    }

    /// Attributes of an inode.
    ///
    /// # Errors
    /// `ENOENT`: this mount has no such inode. `ESTALE`: a version that was replaced; the kernel looks the name up again.
    pub fn getattr(&self, ino: u64) -> Result<Attr, Errno> {
        Ok(self.attr_of(self.place(ino)?))
    }

    /// Lists a directory from `offset` (0 or an entry's [`Entry::next_offset`]), until the end or until `add` says that its buffer is full.
    ///
    /// The order is fixed and an offset is a place in it, so that seekdir, rewinddir and several listings at once work without state.
    ///
    /// # Errors
    /// `ENOENT` or `ENOTDIR`.
    pub fn readdir(&self, ino: u64, offset: u64, mut add: impl FnMut(Entry<'_>) -> Full) -> Result<(), Errno> {
        let place = self.place(ino)?;
        let parent = match place {
            Place::Node(Node::Dir(dir)) => Place::Node(Node::Dir(self.manifest.parent(dir))),
            Place::ControlDir => Place::Node(Node::Dir(DirIndex(0))),
            Place::Node(Node::File(_)) | Place::Control(_) => return Err(Errno::NOTDIR),
        };
        let mut position = offset;
        loop {
            let (name, entry) = match position {
                0 => (".", place),
                1 => ("..", parent),
                _ => match self.nth_entry(place, position - 2) {
                    Some(found) => found,
                    None => return Ok(()),
                },
            };
            position += 1;
            if add(Entry { name, attr: self.attr_of(entry), next_offset: position }) == Full::Yes {
                return Ok(());
            }
        }
    }

    /// Size of the data set. Nothing is free: the mount is read-only.
    #[must_use]
    pub fn statfs(&self) -> FileSystemSize {
        let blocks = self.manifest.total_bytes().div_ceil(u64::from(FileSystemSize::BLOCK_BYTES));
        // Installers and df-based checks refuse a file system of size 0, which an empty prefix would be.
        FileSystemSize { blocks: blocks.max(1), files: (self.manifest.len() as u64).max(1) }
    }

    fn nth_entry(&self, dir: Place, k: u64) -> Option<(&str, Place)> {
        let k = usize::try_from(k).ok()?;
        match dir {
            Place::Node(Node::Dir(dir)) => self.manifest.nth_child(dir, k).map(|(name, node)| (name, Place::Node(node))),
            Place::ControlDir => control::ALL.get(k).map(|file| (file.name(), Place::Control(*file))),
            Place::Node(Node::File(_)) | Place::Control(_) => None,
        }
    }

    pub(super) fn place(&self, ino: u64) -> Result<Place, Errno> {
        match self.versions.node(ino) {
            Number::Current(node) => return Ok(Place::Node(node)),
            Number::Replaced => return Err(STALE),
            Number::Unknown => {}
        }
        if ino == control::DIRECTORY_INO {
            return Ok(Place::ControlDir);
        }
        ControlFile::of_ino(ino).map(Place::Control).ok_or(NO_ENTRY)
    }

    fn attr_of(&self, place: Place) -> Attr {
        let (ino, kind, (size, mtime_seconds)) = match place {
            Place::Node(Node::File(file)) => (self.versions.ino(file), Kind::File, self.versions.size_and_mtime(file)),
            Place::Node(Node::Dir(dir)) => {
                (self.manifest.ino(Node::Dir(dir)), Kind::Directory, (DIR_SIZE_BYTES, self.manifest.dir_mtime_seconds(dir)))
            }
            Place::ControlDir => (control::DIRECTORY_INO, Kind::Directory, (DIR_SIZE_BYTES, self.manifest.dir_mtime_seconds(DirIndex(0)))),
            Place::Control(file) => (file.ino(), Kind::File, (0, self.manifest.dir_mtime_seconds(DirIndex(0)))),
        };
        let mode = match kind {
            Kind::File => self.config.file_mode,
            Kind::Directory => self.config.dir_mode,
        };
        let cacheable = !matches!(place, Place::Control(_));
        Attr { ino, kind, size, mtime_seconds, mode: mode & 0o777, uid: self.config.uid, gid: self.config.gid, cacheable }
    }
}

/// Whether a listing's buffer took the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// It did not: ask again from here.
    Yes,
    No,
}

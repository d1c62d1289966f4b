//! The files of one disk tier: `<cache-dir>/<namespace>/XX/<32 hex digits>`, XX the first two. Only names, labels and system calls; what is counted
//! and who decides is elsewhere.
//!
//! One level of 256 folders, made when needed. Not two: ext4 and xfs index large folders by hash, and at 65,536 folders a cache of fewer files
//! would make, and later scan, a folder per file.
//!
//! A file is written under a temporary name in its folder, labelled, and renamed: under its own name it is always complete. It is not synced: after
//! a power cut it may hold anything, and the checksum in its label (an extended attribute) says so before its first use.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind as Io};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, XattrFlags};
use xxhash_rust::xxh3::Xxh3;

use super::CacheError;
use super::hash::FileHash;

/// Names the format. A change of layout, names or label needs another one.
pub(super) const STAMP: &str = "belady-cache-v1";
const LOCK: &str = "lock";
const PROBE: &str = ".probe";
const LABEL: &str = "user.belady";
const LABEL_VERSION: u8 = 1;
const LABEL_BYTES: usize = 25;
/// Two names that share a lock wait for each other's rename or unlink: at 64, hardly ever.
const NAME_LOCKS: usize = 64;
/// Read at once for a checksum: fits the second-level cache.
const VERIFY_BYTES: usize = 256 << 10;

/// What a file says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) checksum: u64,
    pub(super) size: u64,
    /// Second hash of the identity.
    pub(super) proof: u64,
}

impl Label {
    fn to_bytes(self) -> [u8; LABEL_BYTES] {
        let mut bytes = [LABEL_VERSION; LABEL_BYTES];
        bytes[1..9].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[9..17].copy_from_slice(&self.size.to_le_bytes());
        bytes[17..].copy_from_slice(&self.proof.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&version, fields) = bytes.split_first()?;
        let mut fields = fields.chunks_exact(8).map(|field| u64::from_le_bytes(field.try_into().expect("chunks of 8")));
        if version != LABEL_VERSION || bytes.len() != LABEL_BYTES {
            return None;
        }
        Some(Self { checksum: fields.next()?, size: fields.next()?, proof: fields.next()? })
    }
}

/// Why a file is not what its name says.
#[derive(Debug)]
pub(super) enum Unfit {
    /// Its bytes, length or label are wrong.
    Damaged(&'static str),
    Failed(io::Error),
    /// Nobody looked: the disk hangs.
    Hangs,
}

/// The folder of one namespace.
#[derive(Debug)]
pub(super) struct DiskDir {
    base: PathBuf,
    /// Whether the file system keeps labels; without them no file outlives the process.
    pub(super) keeps_labels: bool,
    names: Vec<Mutex<()>>,
    owner: Mutex<Option<File>>,
}

impl DiskDir {
    /// Makes or takes over the folder of a namespace and becomes its one owner.
    pub(super) fn claim(cache_dir: &Path, namespace: &str) -> Result<Self, CacheError> {
        assert!(!namespace.is_empty() && !namespace.contains('/') && !namespace.starts_with('.'), "a namespace is one folder name");
        let base = cache_dir.join(namespace);
        let refuse = |what: &str, error: &io::Error| CacheError::io(format!("cache directory {}: {what}", cache_dir.display()), error);
        make_dir(&base).map_err(|error| match error.kind() {
            Io::PermissionDenied => refuse("not writable; give this user write access or name another --cache-dir", &error),
            Io::ReadOnlyFilesystem => refuse("on a read-only file system; name another --cache-dir", &error),
            Io::NotADirectory | Io::AlreadyExists => refuse("not a directory; name a directory with --cache-dir", &error),
            _ => refuse("cannot be made; name another --cache-dir", &error),
        })?;
        let foreign = !base.join(STAMP).exists() && base.read_dir().map_err(|error| refuse("not readable", &error))?.next().is_some();
        if foreign {
            let message =
                format!("{}: not a cache of this version (no {STAMP} in it); remove it or name another --cache-dir", base.display());
            return Err(CacheError::invalid(message));
        }
        let mut dir =
            Self { base, keeps_labels: false, names: (0..NAME_LOCKS).map(|_| Mutex::default()).collect(), owner: Mutex::default() };
        dir.own().map_err(|error| match error.kind() {
            Io::WouldBlock => refuse("in use by another mount of this bucket; unmount it or name another --cache-dir", &error),
            _ => refuse("not writable; give this user write access or name another --cache-dir", &error),
        })?;
        dir.keeps_labels = dir.try_label().is_ok();
        Ok(dir)
    }

    /// Stamp and lock. The lock is the process's: it is gone with it, however it ends.
    fn own(&self) -> io::Result<()> {
        let lock = new_file(&self.base.join(LOCK), false)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        new_file(&self.base.join(STAMP), false)?;
        *self.owner.lock().unwrap_or_else(PoisonError::into_inner) = Some(lock);
        Ok(())
    }

    /// Lets another process take over.
    pub(super) fn disown(&self) {
        if let Some(lock) = self.owner.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // in so many words: a process that is being started just now holds a copy of the descriptor until its exec. Failing, closing it does the same
            let _ = rustix::fs::flock(&lock, FlockOperation::Unlock);
        }
    }

    fn try_label(&self) -> io::Result<()> {
        let stamp = OpenOptions::new().write(true).open(self.base.join(STAMP))?;
        Ok(rustix::fs::fsetxattr(&stamp, LABEL, &[0], XattrFlags::empty())?)
    }

    pub(super) fn base(&self) -> &Path {
        &self.base
    }

    /// While held, this name is neither renamed to nor unlinked by another thread.
    pub(super) fn lock_name(&self, hash: FileHash) -> MutexGuard<'_, ()> {
        self.names[(hash.low() % NAME_LOCKS as u64) as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folder(&self, hash: FileHash) -> PathBuf {
        self.base.join(format!("{:02x}", hash.0 >> 120))
    }

    fn path(&self, hash: FileHash) -> PathBuf {
        self.folder(hash).join(hash.to_string())
    }

    fn temporary(&self, hash: FileHash, serial: u64) -> PathBuf {
        self.folder(hash).join(format!(".t-{serial:x}"))
    }

    /// A new file under a temporary name. Folders that are not there, or no more, are made again.
    pub(super) fn create(&self, hash: FileHash, serial: u64) -> io::Result<File> {
        let path = self.temporary(hash, serial);
        match new_file(&path, true) {
            Err(error) if error.kind() == Io::NotFound => {
                if !self.base.is_dir() {
                    make_dir(&self.base)?;
                    self.own()?;
                }
                make_dir(&self.folder(hash))?;
                new_file(&path, true)
            }
            other => other,
        }
    }

    /// Gives the temporary file its name, complete as it is.
    pub(super) fn publish(&self, hash: FileHash, serial: u64, file: &File, label: Label) -> io::Result<()> {
        if self.keeps_labels {
            rustix::fs::fsetxattr(file, LABEL, &label.to_bytes(), XattrFlags::empty())?;
        }
        std::fs::rename(self.temporary(hash, serial), self.path(hash))
    }

    /// Takes away a temporary file that will not be published. It may be gone: then all is well.
    pub(super) fn abandon(&self, hash: FileHash, serial: u64) {
        // An error here is the next start's work: recovery removes temporaries.
        drop(std::fs::remove_file(self.temporary(hash, serial)));
    }

    pub(super) fn open(&self, hash: FileHash) -> io::Result<File> {
        let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        OpenOptions::new().read(true).custom_flags(flags).open(self.path(hash))
    }

    /// Whether the whole file is this version: length, identity, checksum. Reads by pread, not over a map: a failing disk is an error, not a SIGBUS.
    pub(super) fn verify(&self, file: &File, size: u64, proof: u64) -> Result<(), Unfit> {
        let label = label_of(file).map_err(Unfit::Failed)?.ok_or(Unfit::Damaged("it has no label"))?;
        if label.size != size || label.proof != proof {
            return Err(Unfit::Damaged("it is another version"));
        }
        if checksum(file, size).map_err(Unfit::Failed)? == label.checksum { Ok(()) } else { Err(Unfit::Damaged("its checksum is wrong")) }
    }

    /// Removes a file. That it is gone already is no error.
    pub(super) fn remove(&self, hash: FileHash) -> io::Result<()> {
        match std::fs::remove_file(self.path(hash)) {
            Err(error) if error.kind() != Io::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Bytes the file system would still give us.
    pub(super) fn available(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.base)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Writes, reads and removes a small file: whether the disk works again.
    pub(super) fn probe(&self) -> io::Result<()> {
        if !self.base.is_dir() {
            make_dir(&self.base)?;
            self.own()?;
        }
        let path = self.base.join(PROBE);
        let file = new_file(&path, false)?;
        let text = *b"belady probe";
        file.write_all_at(&text, 0)?;
        file.sync_data()?;
        let mut read = [0; 12];
        file.read_exact_at(&mut read, 0)?;
        std::fs::remove_file(&path)?;
        if read == text { Ok(()) } else { Err(io::Error::new(Io::InvalidData, "read other bytes than were written")) }
    }

    /// The folders of files that exist. Nothing outside of them is ever removed.
    pub(super) fn folders(&self) -> Vec<PathBuf> {
        (0..=u8::MAX).map(|folder| self.base.join(format!("{folder:02x}"))).filter(|folder| folder.is_dir()).collect()
    }
}

/// The label; `None` when there is none that we wrote.
pub(super) fn label_of(file: &File) -> io::Result<Option<Label>> {
    let mut bytes = [0; LABEL_BYTES + 1];
    match rustix::fs::fgetxattr(file, LABEL, &mut bytes[..]) {
        Ok(len) => Ok(Label::from_bytes(&bytes[..len])),
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::RANGE | rustix::io::Errno::NOTSUP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// xxh3-64 of the first `size` bytes.
pub(super) fn checksum(file: &File, size: u64) -> io::Result<u64> {
    let mut hasher = Xxh3::new();
    let mut buffer = vec![0; VERIFY_BYTES.min(usize::try_from(size).unwrap_or(usize::MAX))];
    let mut offset = 0;
    while offset < size {
        let len = usize::try_from(size - offset).unwrap_or(usize::MAX).min(buffer.len());
        file.read_exact_at(&mut buffer[..len], offset)?;
        hasher.update(&buffer[..len]);
        offset += len as u64;
    }
    Ok(hasher.digest())
}

fn make_dir(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn new_file(path: &Path, exclusive: bool) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).create_new(exclusive).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_round_trip_and_foreign_ones_are_none() {
        let label = Label { checksum: 1, size: u64::MAX, proof: 3 };
        assert_eq!(Label::from_bytes(&label.to_bytes()), Some(label));
        let mut other = label.to_bytes();
        other[0] = 2;
        assert_eq!(Label::from_bytes(&other), None);
        assert_eq!(Label::from_bytes(&label.to_bytes()[..24]), None);
        assert_eq!(Label::from_bytes(&[]), None);
    }

    #[test]
    fn a_directory_is_claimed_once_and_errors_name_it_and_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let owner = DiskDir::claim(dir.path(), "ns").unwrap();
        let message = DiskDir::claim(dir.path(), "ns").unwrap_err().message;
        assert!(message.contains("another mount") && message.contains(dir.path().to_str().unwrap()), "{message}");
        DiskDir::claim(dir.path(), "other").unwrap();
        owner.disown();
        DiskDir::claim(dir.path(), "ns").unwrap();

        std::fs::write(dir.path().join("file"), "").unwrap();
        let message = DiskDir::claim(&dir.path().join("file"), "ns").unwrap_err().message;
        assert!(message.contains("not a directory"), "{message}");

        std::fs::create_dir(dir.path().join("mine")).unwrap();
        std::fs::write(dir.path().join("mine/thesis.tex"), "").unwrap();
        let message = DiskDir::claim(dir.path(), "mine").unwrap_err().message;
        assert!(message.contains("not a cache"), "{message}");
    }

    #[test]
    fn a_probe_works_also_after_the_folder_was_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let owner = DiskDir::claim(dir.path(), "ns").unwrap();
        owner.probe().unwrap();
        std::fs::remove_dir_all(owner.base()).unwrap();
        owner.probe().unwrap();
        assert!(owner.base().join(STAMP).exists() && owner.available().unwrap() > 0);
    }
}

//! Where a memory tier keeps its files: a private tmpfs that no path leads to and that is gone with the process, or the heap where the kernel
//! denies us mounts. Never `/dev/shm`: DataLoader workers need it.
//!
//! Files are named by a serial number: nobody looks them up by name but this process, so a retired and refetched version never meets its
//! predecessor. One flat directory: tmpfs hashes its names, and each further directory would cost an inode.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

/// Above the budgets, so that our own count is what ends first: page rounding of files in flight.
const SLACK_BYTES: u64 = 16 << 20;

/// A detached tmpfs.
#[derive(Debug)]
pub(super) struct Tmpfs {
    root: OwnedFd,
}

impl Tmpfs {
    /// Needs CAP_SYS_ADMIN.
    pub(super) fn mount(bytes: u64) -> io::Result<Self> {
        let fs = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_set_string(&fs, "size", bytes.saturating_add(SLACK_BYTES).to_string())?;
        // The default allows one inode per two pages of RAM: too few for a memory full of tiny files. Ours are counted in the budget.
        rustix::mount::fsconfig_set_string(&fs, "nr_inodes", "0")?;
        rustix::mount::fsconfig_set_string(&fs, "mode", "0700")?;
        // Large folios where they lie within the file, so that no page more is taken than counted: reading 110 KB costs a third less CPU, reading
        // large files half (Linux 6.18). A kernel without transparent huge pages refuses the word and does without.
        let _refused = rustix::mount::fsconfig_set_string(&fs, "huge", "within_size");
        rustix::mount::fsconfig_create(&fs)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOEXEC | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let root = rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        Ok(Self { root })
    }

    pub(super) fn create(&self, serial: u64) -> io::Result<File> {
        self.file(&name(serial), OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    /// A file that never has a name.
    pub(super) fn create_unnamed(&self) -> io::Result<File> {
        self.file(".", OFlags::RDWR | OFlags::TMPFILE)
    }

    pub(super) fn open(&self, serial: u64) -> io::Result<File> {
        self.file(&name(serial), OFlags::RDONLY)
    }

    fn file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        Ok(File::from(rustix::fs::openat(&self.root, name, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?))
    }

    pub(super) fn unlink(&self, serial: u64) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.root, name(serial), AtFlags::empty())?)
    }
}

fn name(serial: u64) -> String {
    format!("{serial:x}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn files_are_found_by_serial_until_unlinked_and_readable_after() {
        let Ok(tmpfs) = Tmpfs::mount(1 << 20) else {
            assert!(!rustix::process::geteuid().is_root(), "root can mount");
            return;
        };
        let written = tmpfs.create(26).unwrap();
        written.write_all_at(b"bytes", 0).unwrap();
        assert!(tmpfs.create(26).is_err(), "a serial is used once");
        let opened = tmpfs.open(26).unwrap();
        tmpfs.unlink(26).unwrap();
        assert_eq!(tmpfs.open(26).unwrap_err().kind(), io::ErrorKind::NotFound);
        let mut read = [0; 5];
        opened.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(&read, b"bytes");
    }
}

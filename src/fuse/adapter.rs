//! `fuser`'s callbacks, each a few lines: translate, ask `fs`, answer. Runs on the session threads, which never wait and never die: a panic is
//! caught here, counted, and the request it belonged to answered with `EIO`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackingId, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, IoctlFlags, KernelConfig, LockOwner,
    OpenAccMode, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
};

use super::kernel::{self, Feature};
use super::open_mode::{self, Chosen, OpenModes, Refusal};
use crate::fs::error::{NO_ENTRY, READ_ONLY};
use crate::fs::{Answered, Attr, BeladyFs, Complete, Errno, FileSystemSize, Full, Handle, Kind, OpenStart, ReadAnswer};

/// Inode numbers are never reused for another file, so every generation is the same.
const GENERATION: Generation = Generation(0);

/// What the session threads and the tasks they start share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) fs: Arc<BeladyFs>,
    disable: BTreeSet<Feature>,
    modes: OpenModes<BackingId, Complete>,
    /// Whether the kernel passes reads through. Switched off for good when it refuses.
    passthrough: AtomicBool,
    /// Whether a single file was refused before.
    file_refused: AtomicBool,
}

/// The callbacks.
#[derive(Debug)]
pub(super) struct Adapter(pub(super) Arc<Shared>);

impl Shared {
    pub(super) fn new(fs: Arc<BeladyFs>, disable: BTreeSet<Feature>) -> Arc<Self> {
        Arc::new(Self {
            fs,
            disable,
            modes: OpenModes::default(),
            passthrough: AtomicBool::new(false),
            file_refused: AtomicBool::new(false),
        })
    }

    fn on(&self, feature: Feature) -> bool {
        !self.disable.contains(&feature)
    }

    pub(super) fn set_passthrough(&self, on: bool) {
        self.passthrough.store(on, Ordering::Relaxed);
        self.fs.stats().passthrough.set(u64::from(on));
    }

    /// Answers an open: by passthrough if the file is complete and the inode is not open otherwise.
    fn answer_open(&self, handle: Arc<Handle>, reply: ReplyOpen) {
        if handle.is_control() {
            let number = self.fs.register(handle, Answered::Reads);
            return reply.opened(FileHandle(number), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH);
        }
        let offer = if self.passthrough.load(Ordering::Relaxed) { handle.complete() } else { None };
        match self.modes.open(handle.ino, offer.as_ref(), |file| self.open_backing(&reply, file)) {
            Chosen::Passthrough(backing) => self.answer_passthrough(handle, &backing, reply),
            Chosen::Reads => {
                let keep = if self.on(Feature::KeepCache) { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
                let number = self.fs.register(handle, Answered::Reads);
                reply.opened(FileHandle(number), keep | FopenFlags::FOPEN_NOFLUSH);
            }
        }
    }

    fn answer_passthrough(&self, handle: Arc<Handle>, backing: &BackingId, reply: ReplyOpen) {
        let number = self.fs.register(handle, Answered::Passthrough);
        reply.opened_passthrough(FileHandle(number), FopenFlags::FOPEN_NOFLUSH, backing);
    }

    /// Registers a cached file with the kernel.
    fn open_backing(&self, reply: &ReplyOpen, file: &Complete) -> Option<BackingId> {
        match reply.open_backing(file.descriptor()?) {
            Ok(backing) => Some(backing),
            Err(error) => {
                self.passthrough_refused(&error);
                None
            }
        }
    }

    /// Without the right to pass through, nobody asks again; a single file that cannot be passed through is read the other way.
    fn passthrough_refused(&self, error: &std::io::Error) {
        let note = match open_mode::refusal(error) {
            Refusal::OfAll if self.passthrough.load(Ordering::Relaxed) => {
                self.set_passthrough(false);
                format!(
                    "kernel passthrough is off, the kernel refused it ({error}): warm reads cost about twice the CPU; it needs CAP_SYS_ADMIN"
                )
            }
            Refusal::OfFile if !self.file_refused.swap(true, Ordering::Relaxed) => format!(
                "the kernel passes some cached files not through ({error}): warm reads of them cost about twice the CPU; the cache directory must \
                 not lie on FUSE or on stacked overlays"
            ),
            Refusal::OfAll | Refusal::OfFile => return, // said before
        };
        self.note(note);
    }

    fn note(&self, note: String) {
        tracing::warn!("{note}");
        self.fs.stats().notes.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }

    fn ttl(&self, attr: &Attr) -> Duration {
        if attr.cacheable { self.fs.config().metadata_ttl } else { Duration::ZERO }
    }

    fn lookup(&self, parent: u64, name: &OsStr, reply: ReplyEntry) {
        // A name that is not UTF-8 is no key, and so no entry.
        match name.to_str().ok_or(NO_ENTRY).and_then(|name| self.fs.lookup(parent, name)) {
            Ok(attr) => reply.entry(&self.ttl(&attr), &file_attr(&attr), GENERATION),
            Err(errno) if errno == NO_ENTRY => reply.entry(&self.fs.config().metadata_ttl, &ABSENT, GENERATION),
            Err(errno) => reply.error(to_fuser(errno)),
        }
    }

    fn open(self: &Arc<Self>, ino: u64, process: u32, reply: ReplyOpen) {
        if let Some((backing, file)) = self.modes.join(ino) {
            match self.fs.open_shared(ino, process, file) {
                Ok(handle) => self.answer_passthrough(handle, &backing, reply),
                Err(errno) => {
                    self.modes.close(ino);
                    reply.error(to_fuser(errno));
                }
            }
            return;
        }
        match self.fs.open(ino, process) {
            Ok(OpenStart::Now(handle)) => self.answer_open(handle, reply),
            Ok(OpenStart::Wait(ticket)) => {
                let this = Arc::clone(self);
                self.fs.spawn(async move {
                    match this.fs.open_wait(ticket).await {
                        Ok(handle) => this.answer_open(handle, reply),
                        Err(errno) => reply.error(to_fuser(errno)),
                    }
                });
            }
            Err(errno) => reply.error(to_fuser(errno)),
        }
    }
}

impl Adapter {
    /// Runs a callback. A panic in it must not end the session thread; the reply it held is dropped, which is an `EIO`.
    fn guard(&self, callback: impl FnOnce(&Arc<Shared>)) {
        if catch_unwind(AssertUnwindSafe(|| callback(&self.0))).is_err() {
            self.0.fs.stats().panics.add(1);
            tracing::error!("a request panicked and was answered with an I/O error; the mount goes on");
        }
    }
}

impl ReadAnswer for ReplyData {
    fn bytes(self, data: &[u8]) {
        self.data(data);
    }
    fn fail(self, errno: Errno) {
        self.error(to_fuser(errno));
    }
}

fn to_fuser(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

fn file_attr(attr: &Attr) -> FileAttr {
    let seconds = Duration::from_secs(attr.mtime_seconds.unsigned_abs());
    let time = if attr.mtime_seconds < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
    let time: SystemTime = time.unwrap_or(UNIX_EPOCH);
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.size.div_ceil(512), // stat(2) counts in units of 512 whatever the block size
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: file_type(attr.kind),
        perm: attr.mode,
        nlink: match attr.kind {
            Kind::File => 1,
            Kind::Directory => 2, // what file systems say that do not count subdirectories
        },
        uid: attr.uid,
        gid: attr.gid,
        rdev: 0,
        blksize: FileSystemSize::BLOCK_BYTES,
        flags: 0,
    }
}

const fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
    }
}

/// Inode 0 in an answer to LOOKUP: the name does not exist, and the kernel may remember that. Python looks for many names that are not there.
const ABSENT: FileAttr = FileAttr {
    ino: INodeNo(0),
    size: 0,
    blocks: 0,
    atime: UNIX_EPOCH,
    mtime: UNIX_EPOCH,
    ctime: UNIX_EPOCH,
    crtime: UNIX_EPOCH,
    kind: FileType::RegularFile,
    perm: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: 0,
    flags: 0,
};

impl Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let passthrough = kernel::negotiate(config, &self.0.disable);
        self.0.set_passthrough(passthrough);
        if self.0.on(Feature::Passthrough) && !passthrough {
            let note =
                "kernel passthrough is off, this kernel does not offer it (Linux from 6.9 on does): warm reads cost about twice the CPU";
            self.0.note(note.to_owned());
        }
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.guard(|shared| shared.lookup(parent.0, name, reply));
    }

    /// Inodes are places in the manifest: nothing is kept per inode that the kernel knows.
    fn forget(&self, _req: &Request, _ino: INodeNo, _nlookup: u64) {}

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        self.guard(|shared| match shared.fs.getattr(ino.0) {
            Ok(attr) => reply.attr(&shared.ttl(&attr), &file_attr(&attr)),
            Err(errno) => reply.error(to_fuser(errno)),
        });
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(to_fuser(READ_ONLY));
        }
        let process = req.pid();
        self.guard(|shared| shared.open(ino.0, process, reply));
    }

    fn read(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let process = req.pid();
        self.guard(|shared| shared.fs.read(fh.0, offset, size, process, reply));
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.guard(|shared| {
            let last = shared.modes.close(ino.0);
            shared.fs.release(fh.0, last);
        });
        reply.ok();
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // Listings have a fixed order and never change while mounted, so the kernel may keep them.
        let keep = FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE;
        reply.opened(FileHandle(0), if self.0.on(Feature::CacheDir) { keep } else { FopenFlags::empty() });
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.guard(|shared| {
            let listed = shared.fs.readdir(ino.0, offset, |entry| {
                full(reply.add(INodeNo(entry.attr.ino), entry.next_offset, file_type(entry.attr.kind), entry.name))
            });
            match listed {
                Ok(()) => reply.ok(),
                Err(errno) => reply.error(to_fuser(errno)),
            }
        });
    }

    fn readdirplus(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        self.guard(|shared| {
            let listed = shared.fs.readdir(ino.0, offset, |entry| {
                let (ttl, attr) = (shared.ttl(&entry.attr), file_attr(&entry.attr));
                full(reply.add(INodeNo(entry.attr.ino), entry.next_offset, entry.name, &ttl, &attr, GENERATION))
            });
            match listed {
                Ok(()) => reply.ok(),
                Err(errno) => reply.error(to_fuser(errno)),
            }
        });
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.guard(|shared| {
            let size = shared.fs.statfs();
            let block = FileSystemSize::BLOCK_BYTES;
            reply.statfs(size.blocks, 0, 0, size.files, 0, block, FileSystemSize::NAME_MAX, block);
        });
    }

    /// CPython asks for the terminal settings of every file it opens (isatty): no is the answer, and to every other ioctl too.
    fn ioctl(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(fuser::Errno::ENOTTY);
    }

    // ENOSYS once, and the kernel never asks again: no attributes beyond stat, nothing to flush or sync; seeking for holes, access checks
    // (default_permissions) and locks are the kernel's.

    fn getxattr(&self, _req: &Request, _ino: INodeNo, _name: &OsStr, _size: u32, reply: ReplyXattr) {
        reply.error(fuser::Errno::ENOSYS);
    }
    fn listxattr(&self, _req: &Request, _ino: INodeNo, _size: u32, reply: ReplyXattr) {
        reply.error(fuser::Errno::ENOSYS);
    }
    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        reply.error(fuser::Errno::ENOSYS);
    }
    fn fsync(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.error(fuser::Errno::ENOSYS);
    }
    fn fsyncdir(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.error(fuser::Errno::ENOSYS);
    }
    fn access(&self, _req: &Request, _ino: INodeNo, _mask: fuser::AccessFlags, reply: ReplyEmpty) {
        reply.error(fuser::Errno::ENOSYS);
    }
    fn lseek(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _offset: i64, _whence: i32, reply: fuser::ReplyLseek) {
        reply.error(fuser::Errno::ENOSYS);
    }

    // The mount is read-only, so the kernel refuses all of these itself; should one come through, it is refused here.

    fn setattr(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<fuser::TimeOrNow>,
        _mtime: Option<fuser::TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.error(to_fuser(READ_ONLY));
    }
    fn mknod(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, _mode: u32, _umask: u32, _rdev: u32, reply: ReplyEntry) {
        reply.error(to_fuser(READ_ONLY));
    }
    fn mkdir(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, _mode: u32, _umask: u32, reply: ReplyEntry) {
        reply.error(to_fuser(READ_ONLY));
    }
    fn unlink(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(to_fuser(READ_ONLY));
    }
    fn rmdir(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(to_fuser(READ_ONLY));
    }
    fn symlink(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, _target: &Path, reply: ReplyEntry) {
        reply.error(to_fuser(READ_ONLY));
    }
    fn rename(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _newparent: INodeNo,
        _newname: &OsStr,
        _flags: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(to_fuser(READ_ONLY));
    }
    fn link(&self, _req: &Request, _ino: INodeNo, _newparent: INodeNo, _newname: &OsStr, reply: ReplyEntry) {
        reply.error(to_fuser(READ_ONLY));
    }
    fn create(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, _mode: u32, _umask: u32, _flags: i32, reply: ReplyCreate) {
        reply.error(to_fuser(READ_ONLY));
    }
    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: u64,
        _data: &[u8],
        _write_flags: fuser::WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.error(to_fuser(READ_ONLY));
    }
    fn setxattr(&self, _req: &Request, _ino: INodeNo, _name: &OsStr, _value: &[u8], _flags: i32, _position: u32, reply: ReplyEmpty) {
        reply.error(to_fuser(READ_ONLY));
    }
    fn removexattr(&self, _req: &Request, _ino: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(to_fuser(READ_ONLY));
    }
    fn fallocate(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _offset: u64, _length: u64, _mode: i32, reply: ReplyEmpty) {
        reply.error(to_fuser(READ_ONLY));
    }
}

const fn full(full: bool) -> Full {
    if full { Full::Yes } else { Full::No }
}

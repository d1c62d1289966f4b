//! One complete cached object version, open: its bytes and the room they take, for as long as somebody holds it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use bytes::Bytes;

use super::CacheError;
use super::budget::Room;
use super::tier::Tier;
use crate::types::ErrorKind;

#[derive(Debug)]
pub(super) enum Data {
    File(File),
    Heap(Bytes),
}

/// One complete object version. While somebody holds it, its bytes stay readable and stay counted, also when it was retired.
#[derive(Debug)]
pub struct CachedFile {
    size: u64,
    home: Arc<Tier>,
    data: Data,
    /// `--verify always` wants to see every read.
    passthrough: bool,
    damaged: AtomicBool,
    _room: Arc<Room>,
}

impl CachedFile {
    pub(super) fn new(size: u64, home: &Arc<Tier>, data: Data, room: &Arc<Room>, passthrough: bool) -> Arc<Self> {
        let home = Arc::clone(home);
        Arc::new(Self { size, home, data, passthrough, damaged: AtomicBool::new(false), _room: Arc::clone(room) })
    }

    /// Length in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Tier it lies in; `None` for transient ones.
    #[must_use]
    pub fn tier(&self) -> Option<usize> {
        self.home.number
    }

    pub(super) fn home(&self) -> &Arc<Tier> {
        &self.home
    }

    /// A descriptor for kernel passthrough, if it is a file of exact length in a healthy tier. The kernel reads it without us, so its length is
    /// looked at each time; whoever passes it through holds this file until the last such handle is closed.
    #[must_use]
    pub fn passthrough_fd(&self) -> Option<BorrowedFd<'_>> {
        let Data::File(file) = &self.data else { return None };
        if !self.passthrough || !self.home.is_ok() || self.is_damaged() {
            return None;
        }
        if file.metadata().is_ok_and(|metadata| metadata.len() == self.size) {
            return Some(file.as_fd());
        }
        self.note_damage();
        None
    }

    /// Whether reading it never waits for a disk.
    #[must_use]
    pub fn in_memory(&self) -> bool {
        self.home.disk().is_none()
    }

    /// Whether a read found it broken: it is not given out again.
    pub(super) fn is_damaged(&self) -> bool {
        self.damaged.load(Relaxed)
    }

    fn note_damage(&self) {
        if !self.damaged.swap(true, Relaxed) {
            self.home.failed();
        }
    }

    /// Fills `buf` from `offset`; all of it or an error. Blocks on disk tiers.
    ///
    /// # Errors
    /// The disk failed or the file is shorter than it was: the caller drops it and fetches again.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), CacheError> {
        let beyond = || CacheError::invalid(format!("read of {} bytes at {offset} in a cached file of {}", buf.len(), self.size));
        let end = offset.checked_add(buf.len() as u64).filter(|&end| end <= self.size).ok_or_else(beyond)?;
        match &self.data {
            Data::Heap(bytes) => {
                let range = usize::try_from(offset).and_then(|from| usize::try_from(end).map(|to| from..to));
                buf.copy_from_slice(&bytes[range.expect("within bytes that are in memory")]);
                Ok(())
            }
            Data::File(file) => self.read(file, buf, offset),
        }
    }

    fn read(&self, file: &File, buf: &mut [u8], offset: u64) -> Result<(), CacheError> {
        let _busy = self.home.begin(Instant::now())?;
        file.read_exact_at(buf, offset).map_err(|error| {
            self.note_damage();
            match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    CacheError { kind: ErrorKind::Corrupt, message: "cached file is shorter than it was".into() }
                }
                _ => CacheError::io("reading a cached file".into(), &error),
            }
        })
    }
}

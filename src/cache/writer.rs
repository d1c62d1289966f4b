//! Writing one complete file. It is invisible until [`Writer::finish`], and then it is whole.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use super::CacheError;
use super::budget::charge_of;
use super::disk::{DiskDir, Label};
use super::file::{CachedFile, Data};
use super::hash::FileHash;
use super::index::Entry;
use super::reserve::Reservation;
use super::shared::{Shared, Stored};
use super::tier::{Place, Tier};
use crate::types::ErrorKind;

/// Where the bytes go meanwhile.
#[derive(Debug)]
enum Sink {
    Tmpfs(File),
    Heap(Vec<u8>),
    /// On their way to a disk, which must not be waited for here.
    Chunks(Vec<Bytes>),
    /// It could not even begin.
    Failed(CacheError),
}

/// A file being written. Dropped unfinished, it leaves nothing behind.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    hash: FileHash,
    proof: u64,
    size: u64,
    serial: u64,
    written: u64,
    sink: Sink,
    /// Taken by `finish`.
    reservation: Option<Reservation>,
}

impl Writer {
    pub(super) fn new(shared: &Arc<Shared>, reservation: Reservation, hash: FileHash, proof: u64, size: u64) -> Self {
        let serial = shared.serial();
        let capacity = usize::try_from(size).unwrap_or(0);
        let sink = match &reservation.tier.place {
            _ if charge_of(size) > reservation.charge => {
                Sink::Failed(CacheError::invalid(format!("{size} bytes do not fit the room reserved")))
            }
            Place::Disk(_) => Sink::Chunks(Vec::new()),
            Place::Heap => Sink::Heap(Vec::with_capacity(capacity)),
            Place::Tmpfs(tmpfs) => {
                let file = if reservation.tier.number.is_some() { tmpfs.create(serial) } else { tmpfs.create_unnamed() };
                file.map_or_else(
                    |error| Sink::Failed(failure(&reservation.tier, reservation.charge, "making a file in memory", &error)),
                    Sink::Tmpfs,
                )
            }
        };
        Self { shared: Arc::clone(shared), hash, proof, size, serial, written: 0, sink, reservation: Some(reservation) }
    }

    /// Appends. On a memory tier this is a copy; on a disk tier the bytes are kept until [`Self::finish`].
    ///
    /// # Errors
    /// The tier failed, or more bytes came than the size.
    pub fn write(&mut self, chunk: Bytes) -> Result<(), CacheError> {
        let written = self.written + chunk.len() as u64;
        if written > self.size {
            return Err(CacheError { kind: ErrorKind::Corrupt, message: format!("{written} bytes came for a file of {}", self.size) });
        }
        match (&mut self.sink, &self.reservation) {
            (Sink::Tmpfs(file), Some(reservation)) => {
                file.write_all_at(&chunk, self.written)
                    .map_err(|error| failure(&reservation.tier, reservation.charge, "writing in memory", &error))?;
            }
            (Sink::Heap(bytes), _) => bytes.extend_from_slice(&chunk),
            (Sink::Chunks(chunks), _) => chunks.push(chunk),
            (Sink::Failed(error), _) => return Err(error.clone()),
            (Sink::Tmpfs(_), None) => return Err(CacheError::invalid("write after finish".into())),
        }
        self.written = written;
        Ok(())
    }

    /// Bytes so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Whether [`Self::finish`] touches a disk and belongs on a blocking thread.
    #[must_use]
    pub fn finish_blocks(&self) -> bool {
        matches!(self.sink, Sink::Chunks(_))
    }

    /// Checks the length, makes the file visible under its name, atomically.
    ///
    /// # Errors
    /// Short, or the tier failed: nothing is left behind.
    pub fn finish(mut self) -> Result<Arc<CachedFile>, CacheError> {
        self.shared.refuse_closed()?;
        if let Sink::Failed(error) = &self.sink {
            return Err(error.clone());
        }
        if self.written != self.size {
            return Err(CacheError { kind: ErrorKind::Corrupt, message: format!("{} of {} bytes came", self.written, self.size) });
        }
        let Some(reservation) = self.reservation.take() else { return Err(CacheError::invalid("finished twice".into())) };
        // From here on the sink is empty, so that dropping `self` unlinks nothing.
        match std::mem::replace(&mut self.sink, Sink::Chunks(Vec::new())) {
            Sink::Tmpfs(file) => Ok(self.finish_in_memory(reservation, Data::File(file))),
            Sink::Heap(bytes) => Ok(self.finish_in_memory(reservation, Data::Heap(Bytes::from(bytes)))),
            Sink::Chunks(chunks) => self.finish_on_disk(reservation, &chunks),
            Sink::Failed(error) => Err(error),
        }
    }

    fn finish_in_memory(&self, reservation: Reservation, data: Data) -> Arc<CachedFile> {
        let Reservation { tier, room, charge, standing, origin, .. } = reservation;
        let room = Arc::new(room);
        let heap = matches!(data, Data::Heap(_));
        let file = self.shared.wrap(self.size, &tier, data, &room);
        if let Some(number) = tier.number {
            let stored = Stored { serial: self.serial, room, heap: heap.then(|| Arc::clone(&file)), verified: true };
            self.shared.publish(self.hash, Entry::new(self.size, number, charge, standing, origin, stored), &file);
        }
        file
    }

    fn finish_on_disk(&self, reservation: Reservation, chunks: &[Bytes]) -> Result<Arc<CachedFile>, CacheError> {
        let Reservation { tier, mut room, charge, claim, standing, origin, .. } = reservation;
        claim.settle(&mut room);
        let missing = charge.saturating_sub(room.bytes());
        if missing > 0 && !room.grow(missing) {
            let message = "a file that should make room is read again".into();
            return Err(CacheError { kind: ErrorKind::NoSpace, message });
        }
        room.shrink_to(charge);
        let number = tier.number.expect("disks are numbered");
        let disk = tier.disk().expect("chunks are kept for disks");
        let _busy = tier.begin(Instant::now())?;
        let (file, checksum) = self.write_temporary(disk, chunks).map_err(|error| {
            disk.abandon(self.hash, self.serial);
            failure(&tier, charge, "writing to the cache disk", &error)
        })?;
        let label = Label { checksum, size: self.size, proof: self.proof };
        let _name = disk.lock_name(self.hash);
        disk.publish(self.hash, self.serial, &file, label).map_err(|error| {
            disk.abandon(self.hash, self.serial);
            failure(&tier, charge, "naming a cache file", &error)
        })?;
        tier.succeeded();
        let room = Arc::new(room);
        let file = self.shared.wrap(self.size, &tier, Data::File(file), &room);
        let stored = Stored { serial: self.serial, room, heap: None, verified: true };
        self.shared.publish(self.hash, Entry::new(self.size, number, charge, standing, origin, stored), &file);
        Ok(file)
    }

    fn write_temporary(&self, disk: &DiskDir, chunks: &[Bytes]) -> io::Result<(File, u64)> {
        let file = disk.create(self.hash, self.serial)?;
        let mut hasher = Xxh3::new();
        let mut offset = 0;
        for chunk in chunks {
            hasher.update(chunk);
            file.write_all_at(chunk, offset)?;
            offset += chunk.len() as u64;
        }
        Ok((file, hasher.digest()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let (Sink::Tmpfs(_), Some(Reservation { tier, .. })) = (&self.sink, &self.reservation)
            && let (Place::Tmpfs(tmpfs), Some(_)) = (&tier.place, tier.number)
        {
            // It has the name we gave it, and nobody else knows the name.
            drop(tmpfs.unlink(self.serial));
        }
    }
}

/// A full disk is no room; anything else is the tier's failure.
pub(super) fn failure(tier: &Tier, charge: u64, what: &str, error: &io::Error) -> CacheError {
    let error = CacheError::io(what.to_owned(), error);
    if error.kind == ErrorKind::NoSpace {
        tier.count(|counters| counters.errors.add(1));
        if tier.disk().is_some() {
            tier.is_full(charge);
        }
    } else {
        tier.failed();
    }
    error
}

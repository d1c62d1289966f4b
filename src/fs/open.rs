//! Opening a file: which version, are its bytes here, and if not, how long to wait for them.
//!
//! Small objects are held whole: an open waits for all bytes, at most [`super::OPEN_HOLD`], so that the kernel can then read the cached file
//! itself. After that the open succeeds anyway and the reads wait, where a process can be killed. Large objects are read by ranges and never wait here.

use std::sync::Arc;

use tokio::time::timeout;

use super::error::{self, Errno, IO, STALE};
use super::handle::{Complete, Content, Handle, OpenObject};
use super::namespace::Place;
use super::{BeladyFs, ControlFile, OnChange};
use crate::dataset::Node;
use crate::fetch::{Opened, Peek, WHOLE_MAX_BYTES};
use crate::types::{ErrorKind, FileIndex, ObjectMeta, Outcome};

/// The first half of an open.
#[derive(Debug)]
pub enum OpenStart {
    /// Answer now.
    Now(Arc<Handle>),
    /// Take the ticket to the runtime: [`BeladyFs::open_wait`].
    Wait(OpenTicket),
}

/// An open that has to wait.
#[derive(Debug)]
pub struct OpenTicket {
    ino: u64,
    process: u32,
    target: Target,
}

#[derive(Clone, Debug)]
enum Target {
    /// The version is the one that the inode number stands for.
    File(FileIndex, ObjectMeta),
    Control(ControlFile),
}

/// What a version of an object turned out to be.
enum Found {
    Empty(ObjectMeta),
    Whole(ObjectMeta, Opened),
    Large(ObjectMeta),
}

impl BeladyFs {
    /// Opens for reading. Never waits.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`; `ESTALE` for a version that was replaced: the kernel looks the name up again and finds the new one.
    pub fn open(self: &Arc<Self>, ino: u64, process: u32) -> Result<OpenStart, Errno> {
        match self.place(ino)? {
            Place::Node(Node::File(_)) => {}
            Place::Control(file) => return Ok(OpenStart::Wait(OpenTicket { ino, process, target: Target::Control(file) })),
            Place::Node(Node::Dir(_)) | Place::ControlDir => return Err(Errno::ISDIR),
        }
        let (file, object) = self.versions.version_of(ino).ok_or(STALE)?;
        if object.size == 0 {
            return Ok(OpenStart::Now(self.opened(ino, process, file, Found::Empty(object))));
        }
        if object.size > WHOLE_MAX_BYTES {
            return Ok(OpenStart::Now(self.opened(ino, process, file, Found::Large(object))));
        }
        match self.door.peek(&object) {
            Peek::Ready(held, outcome) => {
                Ok(OpenStart::Now(self.opened(ino, process, file, Found::Whole(object, Opened { file: held, outcome }))))
            }
            Peek::Absent => Ok(OpenStart::Wait(OpenTicket { ino, process, target: Target::File(file, object) })),
        }
    }

    /// An open of an inode that the kernel already reads from `held`: it must read the same file, whatever we would choose now.
    ///
    /// # Errors
    /// `ESTALE`: not a version served now.
    pub fn open_shared(self: &Arc<Self>, ino: u64, process: u32, held: Complete) -> Result<Arc<Handle>, Errno> {
        let (file, object) = self.versions.version_of(ino).ok_or(STALE)?;
        let outcome = match self.door.peek(&object) {
            Peek::Ready(_, outcome) => outcome,
            Peek::Absent => Outcome::Retained, // retired while open: the reader has it all the same
        };
        Ok(self.opened(ino, process, file, Found::Whole(object, Opened { file: held.file, outcome })))
    }

    /// The second half of an open that waits: at most the open hold, then the handle's reads wait instead.
    ///
    /// # Errors
    /// From the errno table; the store's last word.
    pub async fn open_wait(self: &Arc<Self>, ticket: OpenTicket) -> Result<Arc<Handle>, Errno> {
        let OpenTicket { ino, process, target } = ticket;
        let (file, object) = match target {
            Target::Control(file) => return self.open_control(ino, process, file).await,
            Target::File(file, object) => (file, object),
        };
        let (this, wanted) = (Arc::clone(self), object.clone());
        let mut finding = Box::pin(async move { this.find(file, wanted).await });
        let waiting = self.accounts.wait(process);
        let found = timeout(self.config.open_hold.min(self.config.read_deadline), &mut finding).await;
        drop(waiting);
        match found {
            Ok(Ok(found)) => Ok(self.opened(ino, process, file, found)),
            Ok(Err(errno)) => {
                if errno != STALE {
                    self.accounts.failed(); // on a stale one the kernel opens the new version
                }
                Err(errno)
            }
            Err(_) => Ok(self.open_pending(ino, process, file, object, finding)),
        }
    }

    /// A handle whose bytes are still on their way. The fetch goes on in the door; this only learns how it ended.
    fn open_pending(
        self: &Arc<Self>,
        ino: u64,
        process: u32,
        file: FileIndex,
        object: ObjectMeta,
        finding: impl Future<Output = Result<Found, Errno>> + Send + 'static,
    ) -> Arc<Handle> {
        let handle = Handle::of(ino, process, OpenObject::new(file, object, None, None));
        let (this, pending) = (Arc::clone(self), Arc::clone(&handle));
        self.spawn(async move {
            let Ok(Ok(Found::Whole(object, opened))) = timeout(this.config.read_deadline, finding).await else { return };
            let Some(open) = pending.object() else { return };
            if open.object.version() == object.version() {
                open.hold(opened.file);
            }
            if open.tell_once() {
                this.accounts.opened(file, process, opened.outcome, object.size);
            }
        });
        handle
    }

    async fn open_control(&self, ino: u64, process: u32, file: ControlFile) -> Result<Arc<Handle>, Errno> {
        let render = self.control.clone();
        let bytes = self.runtime.spawn_blocking(move || (render.0)(file)).await.map_err(|_| {
            self.accounts.stats.panics.add(1);
            IO
        })?;
        Ok(Arc::new(Handle { ino, process, content: Content::Control(bytes) }))
    }

    /// The bytes of this version. Noticing that it changed adopts the new one, and then this open is stale: the kernel looks the name up
    /// again, once, and opens the new version under its own number.
    async fn find(self: &Arc<Self>, file: FileIndex, object: ObjectMeta) -> Result<Found, Errno> {
        match self.door.open(&object).await {
            Ok(opened) => Ok(Found::Whole(object, opened)),
            // neither a tier nor the transient budget has room for all of it: by ranges, as large ones are
            Err(error) if error.kind == ErrorKind::NoSpace => Ok(Found::Large(object)),
            Err(error) if error.kind == ErrorKind::Changed && self.config.on_change == OnChange::ServeNew => {
                self.adopt(file, &object).await?;
                Err(STALE)
            }
            Err(error) => {
                tracing::error!("open of {} failed: {error}", object.key);
                Err(match error.kind {
                    ErrorKind::Changed => IO, // on-change fail
                    kind => error::at_open(kind),
                })
            }
        }
    }

    /// Learns which version replaced `stale` (one HEAD, whoever else noticed it too) and makes the kernel forget the old one.
    ///
    /// The old number's pages and attributes go, so that its handles ask us, and are refused.
    pub(super) async fn adopt(self: &Arc<Self>, file: FileIndex, stale: &ObjectMeta) -> Result<(), Errno> {
        let _settling = self.versions.settle(file).await;
        if self.versions.is_stale(file, stale) {
            return Ok(());
        }
        let fresh = self.door.head(&stale.key).await.map_err(|error| {
            tracing::error!("{} changed in the bucket, and asking for its new version failed: {error}", stale.key);
            error::at_open(error.kind)
        })?;
        if fresh.version() == stale.version() {
            tracing::error!("{}: the store refused this version and then named it again", stale.key);
            return Err(IO);
        }
        tracing::warn!("{} changed in the bucket: serving the new version from the next open on", stale.key);
        self.door.forget(&stale.version());
        let ino = self.versions.ino(file);
        self.versions.adopt(file, fresh);
        let invalidate = self.invalidate.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        if let Some(invalidate) = invalidate {
            self.runtime.spawn_blocking(move || invalidate(ino)).await.map_err(|_| IO)?;
        }
        Ok(())
    }

    /// Makes the handle and tells the access, if its outcome is known.
    fn opened(self: &Arc<Self>, ino: u64, process: u32, file: FileIndex, found: Found) -> Arc<Handle> {
        let (open, outcome) = match found {
            Found::Empty(object) => (OpenObject::new(file, object, None, None), Some(Outcome::Retained)), // nothing to fetch
            Found::Whole(object, opened) => (OpenObject::new(file, object, None, Some(opened.file)), Some(opened.outcome)),
            Found::Large(object) => {
                let reader = self.door.open_large(&object);
                // Complete since an earlier open: the kernel may then read it itself.
                let (held, outcome) = match self.door.peek(&object) {
                    Peek::Ready(held, outcome) => (Some(held), Some(outcome)),
                    Peek::Absent => (reader.complete(), None),
                };
                (OpenObject::new(file, object, Some(reader), held), outcome)
            }
        };
        let size = open.object.size;
        let told = outcome.filter(|_| open.tell_once());
        let handle = Handle::of(ino, process, open);
        if let Some(outcome) = told {
            self.accounts.opened(file, process, outcome, size);
        }
        handle
    }

    /// Enters an open file under a number for the kernel.
    #[must_use]
    pub fn register(&self, handle: Arc<Handle>, how: Answered) -> u64 {
        if handle.object().is_some() {
            let reads = &self.accounts.stats.reads;
            reads.opens.add(1);
            if how == Answered::Passthrough {
                reads.passthrough_opens.add(1);
            }
        }
        self.handles.insert(handle)
    }

    /// The kernel closed a handle. `last`: no other handle of the inode is open.
    pub fn release(&self, number: u64, last: bool) {
        let Some(handle) = self.handles.remove(number) else { return };
        let Some(open) = handle.object() else { return };
        if open.large.is_some() && open.tell_once() {
            // Opened, and no read reached us: what it read came from the kernel's page cache.
            self.accounts.opened(open.file, handle.process, Outcome::Retained, open.object.size);
        }
        if last {
            self.accounts.released(open.file);
        }
    }
}

/// How an open was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The kernel reads the cached file itself.
    Passthrough,
    /// Reads come to us, through the kernel's page cache or not.
    Reads,
}

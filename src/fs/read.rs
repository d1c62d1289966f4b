//! Reading an open file: all of what was asked for (up to the end of the file) or an errno, within the deadline. Never less: a short answer
//! makes the kernel believe that the file ends there, for every reader.
//!
//! Bytes in memory are answered on the session thread that asked; disk tiers are read on a bounded number of blocking threads; everything
//! else is a task on the runtime. Buffers are one per thread, reused.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::{Instant, timeout_at};

use super::error::{self, BAD_HANDLE, Errno, IO, STALE};
use super::handle::{Content, Handle, OpenObject};
use super::{BeladyFs, OnChange};
use crate::cache::{CacheError, CachedFile};
use crate::fetch::FetchError;
use crate::fetch::LargeReader;
use crate::types::{ErrorKind, Outcome};

/// Takes the answer of a read. Dropping it unanswered must mean `EIO`.
pub trait ReadAnswer: Send + 'static {
    /// All the bytes.
    fn bytes(self, data: &[u8]);
    fn fail(self, errno: Errno);
}

/// An answer that two sides may give; the first one does. (The deadline cannot stop a pread that hangs, but it can answer in its place.)
struct Once<A>(Arc<Mutex<Option<A>>>);

impl<A: ReadAnswer> Once<A> {
    fn new(answer: A) -> Self {
        Self(Arc::new(Mutex::new(Some(answer))))
    }
    fn share(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
    fn take(&self) -> Option<A> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What to read.
#[derive(Clone, Copy)]
struct Span {
    offset: u64,
    len: u32,
}

thread_local! {
    /// Grows to the largest READ the kernel sends (1 MiB) and stays: on the session threads, the runtime's, and at most 32 blocking ones.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` on this thread's buffer of `len` bytes.
fn with_buffer<R>(len: u32, f: impl FnOnce(&mut [u8]) -> R) -> R {
    BUFFER.with_borrow_mut(|buffer| {
        let len = len as usize;
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        f(&mut buffer[..len])
    })
}

impl BeladyFs {
    /// Reads `size` bytes at `offset`, or what the file has of them. Returns at once; the answer may come later.
    pub fn read<A: ReadAnswer>(self: &Arc<Self>, number: u64, offset: u64, size: u32, process: u32, answer: A) {
        let Some(handle) = self.handles.get(number) else { return answer.fail(BAD_HANDLE) };
        let span = Span { offset, len: handle.span(offset, size) };
        let open = match &handle.content {
            Content::Control(bytes) => return self.give(answer, slice(bytes, span)),
            Content::Object(_) if span.len == 0 => return self.give(answer, &[]),
            Content::Object(open) => open,
        };
        if self.versions.is_stale(open.file, &open.object) {
            return self.refuse(answer, STALE);
        }
        let answer = match open.held() {
            Some(held) if held.in_memory() => match self.give_from_memory(&held, span, answer) {
                Ok(()) => return,
                Err(answer) => {
                    self.let_go(open);
                    answer
                }
            },
            _ => answer,
        };
        let this = Arc::clone(self);
        self.spawn(async move { this.read_waiting(&handle, span, process, answer).await });
    }

    /// The slow way, under the deadline.
    async fn read_waiting<A: ReadAnswer>(self: &Arc<Self>, handle: &Handle, span: Span, process: u32, answer: A) {
        let Some(open) = handle.object() else { return };
        let began = Instant::now();
        if open.repeats_expired(began) {
            return self.refuse(answer, IO);
        }
        let deadline = began + self.config.read_deadline;
        let answer = Once::new(answer);
        let outcome = timeout_at(deadline, self.read_object(open, span, process, &answer)).await;
        let errno = match outcome {
            Ok(Ok(())) => return,
            Ok(Err(errno)) => errno,
            Err(_) => {
                tracing::error!("a read of {} had no bytes within {:?}", open.object.key, self.config.read_deadline);
                IO
            }
        };
        if began.elapsed() >= self.config.read_deadline / 2 {
            open.has_expired(Instant::now());
        }
        if let Some(answer) = answer.take() {
            self.refuse(answer, errno);
        }
    }

    async fn read_object<A: ReadAnswer>(
        self: &Arc<Self>,
        open: &OpenObject,
        span: Span,
        process: u32,
        answer: &Once<A>,
    ) -> Result<(), Errno> {
        const TRIES: usize = 2; // a cached file that fails is fetched again once; if that fails too, it is not the cache
        for _ in 0..TRIES {
            let held = match (open.held(), &open.large) {
                (Some(held), _) => held,
                (None, Some(reader)) => return self.read_range(reader, open, span, process, answer).await,
                (None, None) => {
                    let waiting = self.accounts.wait(process);
                    let opened = self.door.open(&open.object).await;
                    drop(waiting);
                    match opened {
                        Ok(opened) => {
                            open.hold(Arc::clone(&opened.file));
                            opened.file
                        }
                        // no room to hold it whole: just these bytes, kept nowhere
                        Err(error) if error.kind == ErrorKind::NoSpace => {
                            let reader = self.door.open_large(&open.object);
                            return self.read_range(&reader, open, span, process, answer).await;
                        }
                        Err(error) => return Err(self.failed_fetch(open, &error)),
                    }
                }
            };
            match self.give_from_file(held, span, answer).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    tracing::warn!("{}: its cached file failed and is fetched again: {error}", open.object.key);
                    self.let_go(open);
                }
            }
        }
        Err(IO)
    }

    /// Reads by ranges and answers.
    async fn read_range<A: ReadAnswer>(
        self: &Arc<Self>,
        reader: &LargeReader,
        open: &OpenObject,
        span: Span,
        process: u32,
        answer: &Once<A>,
    ) -> Result<(), Errno> {
        let waiting = self.accounts.wait(process);
        let read = reader.read(span.offset, span.len).await;
        drop(waiting);
        let bytes = read.map_err(|error| self.failed_fetch(open, &error))?;
        if open.tell_once() {
            self.accounts.opened(open.file, process, reader.outcome().unwrap_or(Outcome::Miss), open.object.size);
        }
        if bytes.len() != span.len as usize {
            tracing::error!("{}: {} bytes came where {} were asked for", open.object.key, bytes.len(), span.len);
            return Err(IO);
        }
        if let Some(answer) = answer.take() {
            self.give(answer, &bytes);
        }
        Ok(())
    }

    /// Reads a complete cached file and answers, on a blocking thread if it lies on a disk.
    async fn give_from_file<A: ReadAnswer>(
        self: &Arc<Self>,
        held: Arc<CachedFile>,
        span: Span,
        answer: &Once<A>,
    ) -> Result<(), CacheError> {
        if held.in_memory() {
            return self.give_once(&held, span, answer);
        }
        let gone = |what: &str| CacheError { kind: ErrorKind::Shutdown, message: what.to_owned() };
        let place = Arc::clone(&self.disk_reads).acquire_owned().await.map_err(|_| gone("the mount is going away"))?;
        let (this, answer) = (Arc::clone(self), answer.share());
        let read = move || {
            let _place = place;
            this.give_once(&held, span, &answer)
        };
        self.runtime.spawn_blocking(read).await.unwrap_or_else(|_| {
            self.accounts.stats.panics.add(1);
            Err(gone("the read panicked"))
        })
    }

    fn give_once<A: ReadAnswer>(&self, held: &CachedFile, span: Span, answer: &Once<A>) -> Result<(), CacheError> {
        with_buffer(span.len, |buffer| {
            held.read_exact_at(buffer, span.offset)?;
            if let Some(answer) = answer.take() {
                self.give(answer, buffer);
            }
            Ok(())
        })
    }

    fn give_from_memory<A: ReadAnswer>(&self, held: &CachedFile, span: Span, answer: A) -> Result<(), A> {
        with_buffer(span.len, |buffer| match held.read_exact_at(buffer, span.offset) {
            Ok(()) => {
                self.give(answer, buffer);
                Ok(())
            }
            Err(error) => {
                tracing::warn!("a file of the memory tier failed and is fetched again: {error}");
                Err(answer)
            }
        })
    }

    /// A fetch failed for good: the errno, and if the object changed, the new version is learned (after this read is answered: the kernel
    /// drops no page that a read still waits for).
    fn failed_fetch(self: &Arc<Self>, open: &OpenObject, error: &FetchError) -> Errno {
        if error.kind != ErrorKind::Changed {
            tracing::error!("read of {} failed: {error}", open.object.key);
            return error::at_read(error.kind);
        }
        if self.config.on_change == OnChange::Fail {
            tracing::error!("{} changed in the bucket since it was listed (on-change is fail): {error}", open.object.key);
            return IO;
        }
        let (this, file, stale) = (Arc::clone(self), open.file, open.object.clone());
        self.spawn(async move {
            // Its error is logged where it arises, and the next open tries again.
            let _ = tokio::time::timeout(this.config.read_deadline, this.adopt(file, &stale)).await;
        });
        STALE
    }

    fn let_go(&self, open: &OpenObject) {
        open.let_go();
        self.door.forget(&open.object.version());
    }

    fn give<A: ReadAnswer>(&self, answer: A, bytes: &[u8]) {
        let reads = &self.accounts.stats.reads;
        reads.reads.add(1); // before the answer: who has read finds it counted
        reads.served_bytes.add(bytes.len() as u64);
        answer.bytes(bytes);
    }

    fn refuse<A: ReadAnswer>(&self, answer: A, errno: Errno) {
        self.accounts.stats.reads.reads.add(1);
        self.accounts.failed();
        answer.fail(errno);
    }
}

fn slice(bytes: &[u8], span: Span) -> &[u8] {
    let from = usize::try_from(span.offset).unwrap_or(usize::MAX).min(bytes.len());
    &bytes[from..from + span.len as usize]
}

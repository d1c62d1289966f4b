//! A store that gives batches and fails at them by script, for tests: single reads are those of the store inside, and so are the bytes.
//!
//! The script has a line per batch, in the order they are asked for; a batch beyond it goes well. What was asked for is written down.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;

use crate::store::batch::{BatchLimits, Piece, Pieces, Wanted};
use crate::store::{Body, Page, Store, StoreError};
use crate::types::{ErrorKind, ObjectId, ObjectMeta};

/// What is done to a batch. Entries are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchFault {
    /// It fails with this kind.
    Fail(ErrorKind),
    /// No answer, ever.
    Hang,
    /// The stream ends with a network error in the middle of this entry.
    CutIn(usize),
    /// The stream stops before this entry and never goes on.
    StallAt(usize),
    /// This entry is not there.
    Missing(usize),
    /// This entry's bytes are wrong, and the store notices at its end.
    Corrupt(usize),
    /// This entry has a byte too many, and the store does not notice.
    TooLong(usize),
    /// This entry lacks its last byte, and the store does not notice.
    TooShort(usize),
    /// So much time before each entry.
    Slow(Duration),
    /// The task that reads the stream panics at this entry.
    PanicAt(usize),
    /// The server turns out to have no batches: this one fails, and no further ones are offered.
    Unknown,
}

/// See the module.
#[derive(Debug)]
pub struct Batched {
    inner: Arc<dyn Store>,
    /// Where single reads go.
    singly: Arc<dyn Store>,
    limits: BatchLimits,
    known: AtomicBool,
    script: Mutex<VecDeque<Option<BatchFault>>>,
    asked: Mutex<Vec<Vec<ObjectId>>>,
    singles: Mutex<Vec<ObjectId>>,
    running: Arc<AtomicUsize>,
    most_running: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a batch as running until its stream is dropped.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Batched {
    /// `inner` with batches, the first of which go by the script.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, limits: BatchLimits, script: Vec<Option<BatchFault>>) -> Self {
        Self {
            singly: Arc::clone(&inner),
            inner,
            limits,
            known: AtomicBool::new(true),
            script: Mutex::new(script.into()),
            asked: Mutex::default(),
            singles: Mutex::default(),
            running: Arc::default(),
            most_running: AtomicUsize::new(0),
        }
    }

    /// Single reads go to this store, which may fail on its own.
    #[must_use]
    pub fn reading(mut self, singly: Arc<dyn Store>) -> Self {
        self.singly = singly;
        self
    }

    /// What each batch asked for, refused ones too.
    #[must_use]
    pub fn asked(&self) -> Vec<Vec<ObjectId>> {
        lock(&self.asked).clone()
    }

    /// What was asked for by single reads.
    #[must_use]
    pub fn singles(&self) -> Vec<ObjectId> {
        lock(&self.singles).clone()
    }

    /// Most batches that were under way at once.
    #[must_use]
    pub fn most_running(&self) -> usize {
        self.most_running.load(SeqCst)
    }

    /// The pieces of one entry.
    async fn entry(inner: &Arc<dyn Store>, wanted: &Wanted, fault: Option<BatchFault>, at: usize) -> Vec<Result<Piece, StoreError>> {
        let key = &wanted.id.key;
        match fault {
            Some(BatchFault::Slow(time)) => tokio::time::sleep(time).await,
            Some(BatchFault::StallAt(k)) if k == at => std::future::pending().await,
            Some(BatchFault::PanicAt(k)) if k == at => panic!("a scripted panic at entry {k}"),
            Some(BatchFault::Missing(k)) if k == at => {
                return vec![Ok(Piece::End(Err(StoreError::new(ErrorKind::NotFound, format!("{key:?} is not here, by script")))))];
            }
            _ => {}
        }
        let mut bytes = Vec::new();
        let end = match inner.read(&wanted.id, 0..wanted.size).await {
            Err(error) => Err(error),
            Ok(mut body) => loop {
                match body.next().await {
                    Some(Ok(chunk)) => bytes.extend_from_slice(&chunk),
                    Some(Err(error)) => break Err(error),
                    None => break Ok(()),
                }
            },
        };
        let mut end = Ok(Piece::End(end));
        match fault {
            Some(BatchFault::CutIn(k)) if k == at => {
                bytes.truncate(bytes.len() / 2);
                end = Err(StoreError::new(ErrorKind::Network, "the stream was cut, by script"));
            }
            Some(BatchFault::Corrupt(k)) if k == at => {
                bytes.iter_mut().for_each(|byte| *byte = !*byte);
                end = Ok(Piece::End(Err(StoreError::new(ErrorKind::Corrupt, format!("{key:?} has wrong bytes, by script")))));
            }
            Some(BatchFault::TooLong(k)) if k == at => bytes.push(0),
            Some(BatchFault::TooShort(k)) if k == at => drop(bytes.pop()),
            _ => {}
        }
        // in two chunks, as a stream cuts anywhere
        let bytes = Bytes::from(bytes);
        let half = bytes.len() / 2;
        vec![Ok(Piece::Chunk(bytes.slice(..half))), Ok(Piece::Chunk(bytes.slice(half..))), end]
    }
}

#[async_trait]
impl Store for Batched {
    async fn list(&self, prefix: &str, start_after: Option<&str>, after: Option<&str>) -> Result<Page, StoreError> {
        self.inner.list(prefix, start_after, after).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.inner.head(key).await
    }

    async fn read(&self, id: &ObjectId, range: Range<u64>) -> Result<Body, StoreError> {
        lock(&self.singles).push(id.clone());
        self.singly.read(id, range).await
    }

    fn batch_limits(&self) -> Option<BatchLimits> {
        self.known.load(SeqCst).then_some(self.limits)
    }

    async fn read_batch<'a>(&'a self, wanted: &[Wanted]) -> Result<Pieces<'a>, StoreError> {
        lock(&self.asked).push(wanted.iter().map(|wanted| wanted.id.clone()).collect());
        let running = Running(Arc::clone(&self.running));
        self.most_running.fetch_max(self.running.fetch_add(1, SeqCst) + 1, SeqCst);
        let fault = lock(&self.script).pop_front().flatten();
        match fault {
            Some(BatchFault::Fail(kind)) => return Err(StoreError::new(kind, format!("a batch failed with a scripted {kind:?}"))),
            Some(BatchFault::Hang) => std::future::pending().await,
            Some(BatchFault::Unknown) => {
                self.known.store(false, SeqCst);
                return Err(StoreError::new(ErrorKind::Invalid, "no batches here, by script"));
            }
            _ => {}
        }
        let wanted: Vec<(usize, Wanted)> = wanted.iter().cloned().enumerate().collect();
        let inner = Arc::clone(&self.inner);
        let pieces = stream::iter(wanted).then(move |(at, wanted)| {
            let inner = Arc::clone(&inner);
            async move { stream::iter(Self::entry(&inner, &wanted, fault, at).await) }
        });
        let mut failed = false;
        let pieces = pieces.flatten().take_while(move |piece| {
            let go_on = !failed;
            failed |= piece.is_err();
            let _held = &running;
            std::future::ready(go_on)
        });
        Ok(pieces.boxed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::directory::DirectoryStore;

    async fn collect(store: &Batched, wanted: &[Wanted]) -> (Vec<Result<Vec<u8>, ErrorKind>>, Option<ErrorKind>) {
        let (mut entries, mut open) = (Vec::new(), Vec::new());
        let mut pieces = match store.read_batch(wanted).await {
            Ok(pieces) => pieces,
            Err(error) => return (entries, Some(error.kind)),
        };
        while let Some(piece) = pieces.next().await {
            match piece {
                Ok(Piece::Chunk(chunk)) => open.extend_from_slice(&chunk),
                Ok(Piece::End(end)) => {
                    let bytes = std::mem::take(&mut open);
                    entries.push(end.map(|()| bytes).map_err(|error| error.kind));
                }
                Err(error) => return (entries, Some(error.kind)),
            }
        }
        (entries, None)
    }

    #[tokio::test]
    async fn batches_come_in_order_and_fail_by_the_script() {
        let dir = tempfile::tempdir().expect("temp dir");
        let mut wanted = Vec::new();
        let inner = Arc::new(DirectoryStore::open(dir.path(), Arc::default()).await.expect("opens"));
        for (name, bytes) in [("c", "333"), ("a", "1"), ("b", "22")] {
            std::fs::write(dir.path().join(name), bytes).expect("write");
            wanted.push(Wanted { id: inner.head(name).await.expect("there").version(), size: bytes.len() as u64 });
        }
        let limits = BatchLimits { least: 1, most: 10, bytes: 1000, at_once: 1 };
        let script = [
            None,
            Some(BatchFault::CutIn(1)),
            Some(BatchFault::Missing(0)),
            Some(BatchFault::Corrupt(2)),
            Some(BatchFault::TooShort(0)),
            Some(BatchFault::Fail(ErrorKind::Throttled)),
            Some(BatchFault::Unknown),
        ];
        let store = Batched::new(inner, limits, script.into());
        let whole = |text: &str| Ok(text.as_bytes().to_vec());
        assert_eq!(collect(&store, &wanted).await, (vec![whole("333"), whole("1"), whole("22")], None));
        assert_eq!(collect(&store, &wanted).await, (vec![whole("333")], Some(ErrorKind::Network)));
        assert_eq!(collect(&store, &wanted).await, (vec![Err(ErrorKind::NotFound), whole("1"), whole("22")], None));
        assert_eq!(collect(&store, &wanted).await.0[2], Err(ErrorKind::Corrupt));
        assert_eq!(collect(&store, &wanted).await.0[0], whole("33"));
        assert_eq!(collect(&store, &wanted).await, (vec![], Some(ErrorKind::Throttled)));
        assert_eq!(store.batch_limits(), Some(limits));
        assert_eq!(collect(&store, &wanted).await, (vec![], Some(ErrorKind::Invalid)));
        assert_eq!((store.batch_limits(), store.most_running(), store.asked().len()), (None, 1, 7));
    }
}

//! Several whole objects with one request, in the order asked: what a store with an ordered batch read (AIStore's GetBatch) gives, and the
//! fall-back to single reads for all others.

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

use crate::store::{Store, StoreError};
use crate::types::ObjectId;

/// How much one batch may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Below so many entries single reads are faster.
    pub least: usize,
    /// Entries at most.
    pub most: usize,
    /// Bytes of all entries at most.
    pub bytes: u64,
    /// Batches under way at once at most.
    pub at_once: usize,
}

/// A piece of a batch's answer: the chunks of entry 0 and its end, the chunks of entry 1 and its end, … in the order asked.
#[derive(Debug)]
pub enum Piece {
    /// Bytes of the entry that is open now.
    Chunk(Bytes),
    /// The open entry is over: all its bytes came and are the version asked for, or why not. Only this entry is concerned.
    End(Result<(), StoreError>),
}

/// A batch's answer, as long as its store. An `Err` is the end: the open entry and all after it did not come.
pub type Pieces<'a> = BoxStream<'a, Result<Piece, StoreError>>;

/// One entry of a batch: the whole of this version.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub id: ObjectId,
    /// Bytes of the object, from the listing.
    pub size: u64,
}

/// A batch by single reads, one after the other: what [`Store::read_batch`] is where the store has nothing better. Each is asked for when the one
/// before it has ended, so that no answer waits half read.
pub(super) fn by_single_reads<'a, S: Store + ?Sized>(store: &'a S, wanted: &[Wanted]) -> Pieces<'a> {
    let bodies = stream::iter(wanted.to_vec()).then(move |Wanted { id, size }| async move {
        if size == 0 { Ok(stream::empty().boxed()) } else { store.read(&id, 0..size).await }
    });
    let pieces = bodies.flat_map(|entry| match entry {
        Err(error) => stream::iter([Ok(Piece::End(Err(error)))]).boxed(),
        Ok(body) => {
            let mut failed = false;
            let chunks = body.map(Some).chain(stream::iter([None])).filter_map(move |item| {
                let piece = match item {
                    Some(Ok(chunk)) => Some(Ok(Piece::Chunk(chunk))),
                    Some(Err(error)) => {
                        failed = true;
                        Some(Ok(Piece::End(Err(error))))
                    }
                    None if failed => None,
                    None => Some(Ok(Piece::End(Ok(())))),
                };
                std::future::ready(piece)
            });
            chunks.boxed()
        }
    });
    pieces.boxed()
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use async_trait::async_trait;

    use super::*;
    use crate::store::directory::DirectoryStore;
    use crate::store::{Body, Page};
    use crate::types::ObjectMeta;

    /// A directory, and how many reads were begun.
    #[derive(Debug)]
    struct Counted(DirectoryStore, AtomicUsize);

    #[async_trait]
    impl Store for Counted {
        async fn list(&self, prefix: &str, start_after: Option<&str>, after: Option<&str>) -> Result<Page, StoreError> {
            self.0.list(prefix, start_after, after).await
        }
        async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
            self.0.head(key).await
        }
        async fn read(&self, id: &ObjectId, range: Range<u64>) -> Result<Body, StoreError> {
            self.1.fetch_add(1, SeqCst);
            self.0.read(id, range).await
        }
    }

    #[tokio::test]
    async fn single_reads_begin_one_after_the_other() {
        let dir = tempfile::tempdir().expect("temp dir");
        let store = Counted(DirectoryStore::open(dir.path(), Arc::default()).await.expect("opens"), AtomicUsize::new(0));
        let mut wanted = Vec::new();
        for (name, bytes) in [("a", "1"), ("gone", "22"), ("empty", ""), ("c", "333")] {
            std::fs::write(dir.path().join(name), bytes).expect("write");
            wanted.push(Wanted { id: store.head(name).await.expect("there").version(), size: bytes.len() as u64 });
        }
        std::fs::remove_file(dir.path().join("gone")).expect("removes");
        let mut pieces = store.read_batch(&wanted).await.expect("begins");
        let (mut seen, mut ends) = (Vec::new(), 0);
        while let Some(piece) = pieces.next().await {
            match piece.expect("never fails as a whole") {
                Piece::Chunk(chunk) => seen.extend_from_slice(&chunk),
                Piece::End(end) => {
                    ends += 1;
                    assert_eq!(end.is_err(), ends == 2, "only the one that is gone");
                }
            }
            // the empty one is no read
            assert!(store.1.load(SeqCst) <= ends + 1, "{} begun, {ends} ended", store.1.load(SeqCst));
        }
        assert_eq!((seen.as_slice(), ends, store.1.load(SeqCst)), (b"1333".as_slice(), 4, 3));
    }
}

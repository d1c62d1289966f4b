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

/// A batch's answer. An `Err` is the end: the open entry and all after it did not come.
pub type Pieces = BoxStream<'static, Result<Piece, StoreError>>;

/// One entry of a batch: the whole of this version.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub id: ObjectId,
    /// Bytes of the object, from the listing.
    pub size: u64,
}

/// A batch by single reads, one after the other: what [`Store::read_batch`] is where the store has nothing better.
pub(super) async fn by_single_reads<S: Store + ?Sized>(store: &S, wanted: &[Wanted]) -> Result<Pieces, StoreError> {
    let mut entries = Vec::with_capacity(wanted.len());
    for Wanted { id, size } in wanted {
        entries.push(if *size == 0 { Ok(stream::empty().boxed()) } else { store.read(id, 0..*size).await });
    }
    let pieces = stream::iter(entries).flat_map(|entry| match entry {
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
    Ok(pieces.boxed())
}

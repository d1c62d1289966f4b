//! GetBatch: many whole objects with one request, as one TAR stream in the order asked (NVIDIA/aistore `docs/get_batch.md`, `xact/xs/moss.go`).
//!
//! A TAR entry says no version. So an entry counts only when its bytes have the checksum that is the object's identity, or was told together
//! with it ([`super::sums`]): then they are the version asked for by value, whatever the cluster sent. An object without such an identity is not asked for here; it ends in an
//! error of its own, and single reads follow. An entry that is another length, or has another checksum, ends in an error of its own, too.
//!
//! A stream that is cut or makes no sense is an `Err`: all entries that have not ended did not come. The cluster cuts readers that pause for
//! 30 s, so whoever takes the pieces must not wait for others between them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;

use super::Shared;
use super::bucket::check_name;
use super::checksum::Verifier;
use super::cluster::{Answer, Ask};
use super::untar::{Event, Untar};
use crate::stats::Stats;
use crate::store::StoreError;
use crate::store::batch::{BatchLimits, Piece, Pieces, Wanted};
use crate::types::ErrorKind;

/// What one batch may carry. The first byte takes 50–500 ms, so below 16 entries single reads are faster (AIStore's documentation); 512 entries or
/// 64 MiB are a second or less of one stream; 3 at once keep a node's link busy while one of them waits for its first byte, and stay far below the 96 per
/// target at which AIStore begins to throttle even with many nodes.
pub(super) const LIMITS: BatchLimits = BatchLimits { least: 16, most: 512, bytes: 64 << 20, at_once: 3 };
/// How a missing entry's name begins.
const MISSING: &[u8] = b"__404__/";
/// The target waits 20 s for an entry of another one before it gives up.
const ENTRY_TIMEOUT: Duration = Duration::from_secs(25);

/// What may follow the last entry: its padding, and the end of the archive, which some writers fill up to 10 KiB.
const TAIL_MAX_BYTES: usize = 64 << 10;
/// It is written in one go with the last entry; a new connection costs less than to wait longer.
const TAIL_TIMEOUT: Duration = Duration::from_millis(500);

/// Whether the cluster has GetBatch, as far as known.
pub(super) const UNKNOWN: u8 = 0;
pub(super) const PRESENT: u8 = 1;
pub(super) const ABSENT: u8 = 2;

/// The body of the request.
fn request(keys: &[&str]) -> Vec<u8> {
    let entries: Vec<_> = keys.iter().map(|key| serde_json::json!({"objname": key})).collect();
    let body = serde_json::json!({"mime": ".tar", "in": entries, "coer": true, "onob": true, "strm": true});
    serde_json::to_vec(&body).expect("strings")
}

/// One entry, and how it is known to be the right one.
#[derive(Debug)]
enum Entry {
    Asked {
        wanted: Wanted,
        verifier: Verifier,
    },
    /// Not asked for in a batch: why.
    Left(StoreError),
}

impl Shared {
    /// See [`crate::store::Store::batch_limits`].
    pub(super) fn batch_limits(&self) -> Option<BatchLimits> {
        let in_vain = self.listed.load(Relaxed) && !self.verifiable.load(Relaxed);
        (self.batches && self.moss.load(Relaxed) != ABSENT && !in_vain).then_some(LIMITS)
    }

    /// See [`crate::store::Store::read_batch`].
    pub(super) async fn read_batch(&self, wanted: &[Wanted]) -> Result<Pieces<'static>, StoreError> {
        let what = format!("a batch of {} objects in bucket {:?}", wanted.len(), self.bucket.name);
        let without =
            || StoreError::new(ErrorKind::Invalid, format!("{what}: this cluster has no batches (GetBatch); single reads follow"));
        if !self.batches || self.moss.load(Relaxed) == ABSENT {
            return Err(without());
        }
        let entries: VecDeque<Entry> = wanted.iter().map(|wanted| self.entry(wanted)).collect();
        let keys: Vec<&str> =
            entries.iter().filter_map(|entry| if let Entry::Asked { wanted, .. } = entry { Some(&*wanted.id.key) } else { None }).collect();
        if keys.is_empty() {
            let left = entries
                .into_iter()
                .filter_map(|entry| if let Entry::Left(error) = entry { Some(Ok(Piece::End(Err(error)))) } else { None });
            return Ok(futures_util::stream::iter(left.collect::<Vec<_>>()).boxed());
        }
        let permit = self.permit(&what).await?;
        let mut ask = Ask::new(Method::GET, format!("/v1/ml/moss/{}?{}", self.bucket.name, self.bucket.query()));
        ask.body = Bytes::from(request(&keys));
        self.stats.store.batch.add(1);
        let answer = self.cluster.ask(&what, &ask).await;
        let Answer { response, target } = answer.inspect_err(|_| self.stats.store.batch_fallbacks.add(1))?;
        if !response.status().is_success() {
            self.stats.store.batch_fallbacks.add(1);
            let complaint = self.cluster.complaint(response).await;
            // Only before a first success, and only from a proxy: later it is about this batch.
            if target.is_none() && complaint.is_about_the_path() && self.moss.compare_exchange(UNKNOWN, ABSENT, Relaxed, Relaxed).is_ok() {
                tracing::info!("{}", self.cluster.error(&what, complaint));
                return Err(without());
            }
            return Err(self.cluster.error(&what, complaint));
        }
        self.moss.store(PRESENT, Relaxed);
        let reading = Batch {
            what,
            incoming: response.into_body(),
            untar: Untar::new(),
            input: Bytes::new(),
            entries,
            open: None,
            stats: Arc::clone(&self.stats),
            whole: true,
            over: false,
            _permit: permit,
        };
        Ok(reading.stream())
    }

    fn entry(&self, wanted: &Wanted) -> Entry {
        let what = self.what(&wanted.id.key);
        let left = |kind, reason: &str| Entry::Left(StoreError::new(kind, format!("{what}: {reason}")));
        if let Err(reason) = check_name(&wanted.id.key) {
            return left(ErrorKind::NotFound, &format!("does not exist ({reason})"));
        }
        match self.verifier(&wanted.id) {
            Some(verifier) => Entry::Asked { wanted: wanted.clone(), verifier },
            None => left(ErrorKind::Invalid, "no checksum of it is known, so it cannot be read in a batch; a single read follows"),
        }
    }
}

/// The entry whose bytes are coming.
#[derive(Debug)]
struct Open {
    wanted: Wanted,
    verifier: Verifier,
    /// Why its bytes are not handed out.
    refused: Option<StoreError>,
}

/// A batch on its way.
struct Batch {
    what: String,
    incoming: Incoming,
    untar: Untar,
    input: Bytes,
    entries: VecDeque<Entry>,
    open: Option<Open>,
    stats: Arc<Stats>,
    /// All entries that ended were right.
    whole: bool,
    over: bool,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Batch {
    fn drop(&mut self) {
        if !self.whole || self.open.is_some() || !self.entries.is_empty() {
            self.stats.store.batch_fallbacks.add(1);
        }
    }
}

impl Batch {
    fn stream(self) -> Pieces<'static> {
        futures_util::stream::unfold(self, |mut batch| async move {
            if batch.over {
                return None;
            }
            let piece = batch.next().await?;
            batch.over = piece.is_err();
            Some((piece, batch))
        })
        .boxed()
    }

    /// The next piece; `None` after the last entry.
    async fn next(&mut self) -> Option<Result<Piece, StoreError>> {
        loop {
            if self.open.is_none() {
                match self.entries.front() {
                    None => {
                        self.drain().await;
                        return None;
                    }
                    Some(Entry::Left(_)) => {
                        self.whole = false;
                        let Some(Entry::Left(error)) = self.entries.pop_front() else { continue };
                        return Some(Ok(Piece::End(Err(error))));
                    }
                    Some(Entry::Asked { .. }) => {}
                }
            }
            match self.untar.next(&mut self.input) {
                Err(reason) => return Some(Err(self.failed(ErrorKind::Corrupt, &reason))),
                Ok(Some(event)) => {
                    if let Some(piece) = self.take(event) {
                        return Some(piece);
                    }
                }
                Ok(None) => {
                    if let Err(error) = self.fill().await {
                        return Some(Err(error));
                    }
                }
            }
        }
    }

    /// More bytes of the stream.
    async fn fill(&mut self) -> Result<(), StoreError> {
        match tokio::time::timeout(ENTRY_TIMEOUT, self.incoming.frame()).await {
            Err(_) => Err(self.failed(ErrorKind::Timeout, &format!("no byte for {} s", ENTRY_TIMEOUT.as_secs()))),
            Ok(None) => Err(self.failed(ErrorKind::Network, "the stream ended early")),
            Ok(Some(Err(error))) => Err(self.failed(ErrorKind::Network, &format!("the stream ended early: {error}"))),
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    self.stats.store.bytes.add(data.len() as u64);
                    self.input = data;
                }
                Ok(())
            }
        }
    }

    /// Reads on to the end of the stream, so that the connection is free for the next batch. Whatever is wrong there concerns no entry; a stream that
    /// does not end is dropped, its connection with it.
    async fn drain(&mut self) {
        let rest = tokio::time::timeout(TAIL_TIMEOUT, async {
            let mut left = TAIL_MAX_BYTES;
            while let Some(Ok(frame)) = self.incoming.frame().await {
                let length = frame.data_ref().map_or(0, Bytes::len);
                self.stats.store.bytes.add(length as u64);
                left = left.checked_sub(length)?;
            }
            Some(())
        });
        let _ = rest.await;
    }

    fn failed(&self, kind: ErrorKind, reason: &str) -> StoreError {
        let missing = self.entries.len() + usize::from(self.open.is_some());
        StoreError::new(kind, format!("{}: {reason}; {missing} entries did not come", self.what))
    }

    fn take(&mut self, event: Event) -> Option<Result<Piece, StoreError>> {
        match event {
            Event::Entry { name, size } => {
                let Some(Entry::Asked { wanted, verifier }) = self.entries.pop_front() else { return None };
                let refused = refusal(&wanted, &name, size);
                self.open = Some(Open { wanted, verifier, refused });
                None
            }
            Event::Data(data) => {
                let open = self.open.as_mut()?;
                if open.refused.is_some() {
                    return None;
                }
                open.verifier.update(&data);
                Some(Ok(Piece::Chunk(data)))
            }
            Event::EntryEnd => {
                let Open { wanted, verifier, refused } = self.open.take()?;
                let end = match refused {
                    Some(error) => Err(error),
                    None => verifier.finish().map_err(|reason| {
                        StoreError::new(
                            ErrorKind::Corrupt,
                            format!("object {:?}: the bytes that came in a batch are not the object's: {reason}", wanted.id.key),
                        )
                    }),
                };
                if end.is_ok() {
                    self.stats.store.batch_entries.add(1);
                } else {
                    self.whole = false;
                }
                Some(Ok(Piece::End(end)))
            }
            Event::End => Some(Err(self.failed(ErrorKind::Network, "the archive ended early"))),
        }
    }
}

/// Why an entry is not the one wanted, from its header.
fn refusal(wanted: &Wanted, name: &[u8], size: u64) -> Option<StoreError> {
    let key = wanted.id.key.as_bytes();
    // An object may itself be called so; then a missing one has the mark twice.
    let is_missing = name.starts_with(MISSING) && (!key.starts_with(MISSING) || name[MISSING.len()..].starts_with(MISSING));
    if is_missing {
        let text = format!("object {:?}: is not in the cluster (a single read says whether it exists)", wanted.id.key);
        return Some(StoreError::new(ErrorKind::NotFound, text));
    }
    (size != wanted.size).then(|| {
        let text =
            format!("object {:?}: is another version than the one listed ({size} bytes now, {} when listed)", wanted.id.key, wanted.size);
        StoreError::new(ErrorKind::Changed, text)
    })
}

//! Objects too large to be held whole from the start: read by ranges, shared by all their readers.
//!
//! A miss fetches what was asked for, rounded up to blocks of [`BLOCK_BYTES`]; a proven sequential reader ([`Sequential`]) is run ahead of
//! by parallel ranges of [`RANGE_BYTES`]. Ranges land in one sparse file with a block map; when its last block is there it becomes an
//! ordinary cached file. Without room in any tier every read is a GET of just its bytes.
//!
//! Every range carries the version: a reader never sees bytes of two.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::queue::Priority;
use super::sequential::Sequential;
use super::{Door, FetchError, lock};
use crate::cache::{BLOCK_BYTES, CacheError, CachedFile, PartialFile, Placement};
use crate::store::StoreError;
use crate::store::retry::Patience;
use crate::types::{ErrorKind, ObjectId, ObjectMeta, Outcome};

/// Bytes of one parallel range: at 8 MiB a connection is past its slow start, and a lost one costs little.
const RANGE_BYTES: u64 = 8 << 20;

/// One version of a large object, for all its readers.
#[derive(Debug)]
pub(super) struct LargeObject {
    object: ObjectMeta,
    id: ObjectId,
    state: Mutex<State>,
    /// A range landed or failed.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    place: Place,
    in_flight: Vec<Range<u64>>,
}

/// Where the bytes are kept.
#[derive(Clone, Debug)]
enum Place {
    /// Nobody has read yet.
    Untried,
    /// Blocks arrive here.
    Partial(Arc<PartialFile>),
    /// All of it.
    Whole(Arc<CachedFile>),
    /// No tier has room.
    Nowhere,
}

/// What a look at the state says a read has to do.
enum Step {
    ReadPartial(Arc<PartialFile>),
    ReadWhole(Arc<CachedFile>),
    /// Ranges this reader must fetch, and whether others fetch some of its bytes already.
    Fetch(Arc<PartialFile>, Vec<Range<u64>>, bool),
    Direct,
}

impl LargeObject {
    pub(super) fn new(object: &ObjectMeta) -> Self {
        let id = object.version();
        Self {
            object: object.clone(),
            id,
            state: Mutex::new(State { place: Place::Untried, in_flight: Vec::new() }),
            changed: Notify::new(),
        }
    }

    /// A new reader: there may be room by now, or the whole object, where there was none.
    pub(super) fn look_for_room_again(&self) {
        let mut state = lock(&self.state);
        if matches!(state.place, Place::Nowhere) {
            state.place = Place::Untried;
        }
    }

    /// Finds the object in the cache or starts a partial file. Off the async threads: both may touch a disk.
    async fn settle(self: &Arc<Self>, door: &Arc<Door>) {
        if !matches!(lock(&self.state).place, Place::Untried) {
            return;
        }
        let (this, cache) = (Arc::clone(self), Arc::clone(&door.cache));
        let found = door.runtime.spawn_blocking(move || {
            if let Some(file) = cache.open(&this.id, this.object.size) {
                return Place::Whole(file);
            }
            match PartialFile::create(&cache, &this.id, this.object.size, Placement::Unplanned) {
                Ok(partial) => Place::Partial(Arc::new(partial)),
                Err(_) => Place::Nowhere, // no tier, no room or a tier that failed (counted there): read straight from the store
            }
        });
        let found = found.await.unwrap_or(Place::Nowhere);
        let mut state = lock(&self.state);
        if matches!(state.place, Place::Untried) {
            state.place = found;
        }
    }

    fn look(&self, range: &Range<u64>) -> Step {
        let mut state = lock(&self.state);
        let partial = match &state.place {
            Place::Whole(file) => return Step::ReadWhole(Arc::clone(file)),
            Place::Nowhere | Place::Untried => return Step::Direct,
            Place::Partial(partial) => Arc::clone(partial),
        };
        let missing = partial.missing(range.clone());
        if missing.is_empty() {
            return Step::ReadPartial(partial);
        }
        let mut own = Vec::new();
        let mut others = false;
        for gap in missing {
            for piece in without(gap.clone(), &state.in_flight) {
                own.extend(split(piece));
            }
            others |= state.in_flight.iter().any(|busy| busy.start < gap.end && gap.start < busy.end);
        }
        state.in_flight.extend(own.iter().cloned());
        Step::Fetch(partial, own, others)
    }

    /// Fetches ranges this caller has marked in flight. Runs to its end also when the caller goes away.
    async fn fetch_all(
        self: &Arc<Self>,
        door: &Arc<Door>,
        partial: &Arc<PartialFile>,
        ranges: Vec<Range<u64>>,
        priority: Priority,
    ) -> Result<(), FetchError> {
        let jobs: Vec<_> = ranges
            .into_iter()
            .map(|range| {
                let (this, partial, runtime) = (Arc::clone(self), Arc::clone(partial), door.runtime.clone());
                let door = Arc::clone(door);
                runtime.spawn(async move {
                    let mark = InFlight { large: &this, range: range.clone() };
                    let fetched = this.fetch(&door, &partial, range, priority).await;
                    drop(mark);
                    fetched
                })
            })
            .collect();
        let mut outcome = Ok(());
        for job in jobs {
            let result =
                job.await.unwrap_or_else(|_| Err(FetchError::new(ErrorKind::Io, "a range fetch panicked; please report it with the log")));
            outcome = outcome.and(result);
        }
        outcome
    }

    async fn fetch(
        self: &Arc<Self>,
        door: &Arc<Door>,
        partial: &Arc<PartialFile>,
        range: Range<u64>,
        priority: Priority,
    ) -> Result<(), FetchError> {
        let (room, wanted, roomer) = (Arc::clone(partial), range.clone(), Arc::clone(door));
        let reserve = move || {
            room.reserve(wanted.clone()).or_else(|_| {
                roomer.drop_idle_parts();
                room.reserve(wanted)
            })
        };
        // before a byte is asked for: what has no place would be fetched twice
        if let Ok(Err(error)) = door.runtime.spawn_blocking(reserve).await {
            self.give_up_place(&error);
            return Ok(());
        }
        let bytes = self.get(door, range.clone(), priority).await?;
        let (this, partial) = (Arc::clone(self), Arc::clone(partial));
        let write = move || {
            partial.write_at(range.start, &bytes)?;
            if partial.is_complete() { partial.complete().map(Some) } else { Ok(None) }
        };
        match door.runtime.spawn_blocking(write).await {
            Ok(Ok(Some(file))) => lock(&this.state).place = Place::Whole(file),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => this.give_up_place(&error),
            Err(_) => return Err(FetchError::new(ErrorKind::Io, "a cache write panicked; please report it with the log")),
        }
        Ok(())
    }

    /// No room or a broken disk: straight from the store, until it is opened anew.
    fn give_up_place(&self, error: &CacheError) {
        tracing::debug!(%error, key = %self.object.key, "no place for blocks of a large object");
        let mut state = lock(&self.state);
        if matches!(state.place, Place::Partial(_)) {
            state.place = Place::Nowhere;
        }
    }

    /// The bytes of `range`, whole, with retries.
    async fn get(&self, door: &Arc<Door>, range: Range<u64>, priority: Priority) -> Result<Bytes, FetchError> {
        let mut permit = door.gate.enter(door.gate.ticket(), range.end - range.start, priority).await;
        let began = Instant::now();
        let wanted = usize::try_from(range.end - range.start).expect("ranges are at most a few MiB");
        let mut bytes = BytesMut::with_capacity(wanted);
        let mut attempt = 0;
        loop {
            attempt += 1;
            let from = range.start + bytes.len() as u64;
            let error = match self.receive(door, from..range.end, &mut bytes).await {
                Ok(()) if bytes.len() == wanted => break,
                Ok(()) => StoreError::new(ErrorKind::Network, format!("a range of {:?} ended early", self.object.key)),
                Err(error) => error,
            };
            if error.kind == ErrorKind::Throttled {
                permit.throttled();
            }
            let patience = match priority {
                Priority::Demand => Patience::Deadline(door.config.read_deadline),
                Priority::Ahead => Patience::Attempts(2), // a reader that comes for it starts over with its own patience
            };
            door.pause(error, attempt, began, patience).await?;
        }
        permit.count(wanted as u64);
        lock(&door.goodput).record(door.began.elapsed(), wanted as u64);
        Ok(bytes.freeze())
    }

    async fn receive(&self, door: &Door, range: Range<u64>, into: &mut BytesMut) -> Result<(), StoreError> {
        let mut body = door.store.read(&self.id, range).await?;
        while let Some(chunk) = body.next().await {
            let chunk = chunk?;
            into.extend_from_slice(&chunk);
            door.paced(chunk.len() as u64).await;
        }
        Ok(())
    }
}

/// Takes a range off the list, and wakes those who wait for it, also on panic and cancellation.
struct InFlight<'a> {
    large: &'a LargeObject,
    range: Range<u64>,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.large.state);
        if let Some(at) = state.in_flight.iter().position(|range| *range == self.range) {
            state.in_flight.swap_remove(at);
        }
        drop(state);
        self.large.changed.notify_waiters();
    }
}

/// Reads ranges of a large object for one handle.
#[derive(Debug)]
pub struct LargeReader {
    door: Arc<Door>,
    shared: Arc<LargeObject>,
    sequential: Mutex<Sequential>,
    outcome: Mutex<Option<Outcome>>,
}

impl LargeReader {
    pub(super) fn new(door: Arc<Door>, shared: Arc<LargeObject>) -> Self {
        Self { door, shared, sequential: Mutex::default(), outcome: Mutex::new(None) }
    }

    /// Exactly the bytes `offset..offset + len` (within the object).
    ///
    /// # Errors
    /// As [`Door::open`].
    pub async fn read(&self, offset: u64, len: u32) -> Result<Bytes, FetchError> {
        let large = &self.shared;
        large.settle(&self.door).await;
        let range = offset..offset + u64::from(len);
        self.run_ahead(&range);
        loop {
            let changed = large.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable(); // before the look, so that a landing in between is not slept through
            match large.look(&range) {
                Step::ReadWhole(file) => {
                    self.note(Outcome::Retained);
                    if let Some(bytes) = self.copy(&range, move |buf, at| file.read_exact_at(buf, at)).await? {
                        return Ok(bytes);
                    }
                }
                Step::ReadPartial(partial) => {
                    self.note(Outcome::Retained);
                    if let Some(bytes) = self.copy(&range, move |buf, at| partial.read_exact_at(buf, at)).await? {
                        return Ok(bytes);
                    }
                }
                Step::Direct => {
                    self.note(Outcome::Miss);
                    return large.get(&self.door, range, Priority::Demand).await;
                }
                Step::Fetch(partial, own, others) => {
                    self.note(if own.is_empty() { Outcome::Late } else { Outcome::Miss });
                    large.fetch_all(&self.door, &partial, own, Priority::Demand).await?;
                    if others && !partial.missing(range.clone()).is_empty() {
                        changed.await;
                    }
                }
            }
        }
    }

    /// The bytes from the cache; `None` when the cache has lost them: the next look goes to the store.
    async fn copy<F>(&self, range: &Range<u64>, read: F) -> Result<Option<Bytes>, FetchError>
    where
        F: FnOnce(&mut [u8], u64) -> Result<(), CacheError> + Send + 'static,
    {
        let (len, offset) = (usize::try_from(range.end - range.start).expect("a READ is at most a few MiB"), range.start);
        let copied = self.door.runtime.spawn_blocking(move || {
            let mut buf = vec![0; len];
            read(&mut buf, offset).map(|()| Bytes::from(buf))
        });
        match copied.await {
            Ok(Ok(bytes)) => Ok(Some(bytes)),
            Ok(Err(error)) => {
                tracing::warn!(%error, key = %self.shared.object.key, "a cached large object is unreadable, reading from the store");
                self.door.cache.retire(&self.shared.id);
                lock(&self.shared.state).place = Place::Nowhere;
                Ok(None)
            }
            Err(_) => Err(FetchError::new(ErrorKind::Io, "a cache read panicked; please report it with the log")),
        }
    }

    fn run_ahead(&self, range: &Range<u64>) {
        let ahead = lock(&self.sequential).read(range.start, range.end - range.start, self.shared.object.size);
        if ahead.is_empty() {
            return;
        }
        if let Step::Fetch(partial, own, _) = self.shared.look(&ahead) {
            let (door, shared) = (Arc::clone(&self.door), Arc::clone(&self.shared));
            self.door.runtime.spawn(async move {
                // a reader that needs these bytes asks again and gets its own error
                let _ = shared.fetch_all(&door, &partial, own, Priority::Ahead).await;
            });
        }
    }

    fn note(&self, outcome: Outcome) {
        lock(&self.outcome).get_or_insert(outcome);
    }

    /// The complete cached file, once all its bytes are here (then passthrough is possible at the next open).
    #[must_use]
    pub fn complete(&self) -> Option<Arc<CachedFile>> {
        match &lock(&self.shared.state).place {
            Place::Whole(file) => Some(Arc::clone(file)),
            Place::Untried | Place::Partial(_) | Place::Nowhere => None,
        }
    }

    /// The outcome to report for this open, once something was read.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        *lock(&self.outcome)
    }
}

/// `range` less the `busy` ones.
fn without(range: Range<u64>, busy: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut rest = vec![range];
    for taken in busy {
        rest = rest
            .into_iter()
            .flat_map(|piece| [piece.start..piece.end.min(taken.start), piece.start.max(taken.end)..piece.end])
            .filter(|piece| piece.start < piece.end)
            .collect();
    }
    rest
}

/// Pieces of at most [`RANGE_BYTES`], cut at multiples of it.
fn split(range: Range<u64>) -> Vec<Range<u64>> {
    debug_assert!(RANGE_BYTES.is_multiple_of(BLOCK_BYTES));
    let mut pieces = Vec::new();
    let mut from = range.start;
    while from < range.end {
        let to = (from / RANGE_BYTES + 1).saturating_mul(RANGE_BYTES).min(range.end);
        pieces.push(from..to);
        from = to;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "ranges are the data here")]
    fn ranges_are_taken_apart() {
        assert_eq!(without(0..10, &[3..5]), [0..3, 5..10]);
        assert_eq!(without(0..10, &[0..4, 8..12]), [4..8]);
        assert_eq!(without(4..6, &[0..10]), Vec::<Range<u64>>::new());
        assert_eq!(without(0..10, &[20..30]), [0..10]);
        let pieces = split(1..(RANGE_BYTES * 2 + 5));
        assert_eq!(pieces, [1..RANGE_BYTES, RANGE_BYTES..RANGE_BYTES * 2, RANGE_BYTES * 2..RANGE_BYTES * 2 + 5]);
    }
}

//! One batch: asked for, and drained without a pause into the cache's files, whatever readers do.
//!
//! Room is reserved before anything is asked for. Each entry is handed to its flight as soon as it is whole. What does not come (an entry that
//! is missing or wrong, all after a cut) is handed back by dropping its seat.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, timeout};

use super::{Answer, Seat};
use crate::cache::{Reservation, Writer};
use crate::fetch::gate::Permit;
use crate::fetch::whole::{reserve, writer_in};
use crate::fetch::{Door, lock};
use crate::store::StoreError;
use crate::store::batch::{Piece, Pieces, Wanted};
use crate::store::retry;
use crate::types::ErrorKind;

/// A batch that brings nothing for so long is given up: single reads take milliseconds, and a server that answers at all answers within half a second.
const SILENCE: Duration = Duration::from_secs(5);
/// After the last entry the stream should end by itself, and its connection is free for the next.
const FAREWELL: Duration = Duration::from_secs(1);

/// One batch under way, counted until it is dropped, also by a panic.
pub(super) struct Running {
    door: Arc<Door>,
    asked: usize,
    came: usize,
    /// Whether it says anything of its worth: one that was refused (429), or had room for nothing, does not.
    judged: bool,
}

impl Running {
    pub(super) fn new(door: &Arc<Door>, asked: usize) -> Self {
        Self { door: Arc::clone(door), asked, came: 0, judged: true }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let now = self.door.began.elapsed();
        {
            let mut inner = lock(&self.door.batches.inner);
            inner.former.ended();
            if self.judged {
                inner.worth.ended(now, self.asked, self.came);
            }
        }
        self.door.batches.changed.notify_one();
    }
}

/// An entry with room for it.
struct Entry {
    seat: Seat,
    room: Option<Reservation>,
}

/// Runs a batch to its end. Never fails itself.
pub(super) async fn run(mut running: Running, seats: Vec<(u64, Seat)>, mut permit: Permit) {
    let door = Arc::clone(&running.door);
    let ran = AssertUnwindSafe(bring(&door, &mut running, seats, &mut permit)).catch_unwind().await;
    if ran.is_err() {
        door.stats.panics.add(1);
        tracing::error!("a batch panicked: what it had not brought is fetched singly");
    }
    drop(permit); // before `running`: the next batch is let in when there is a place
}

async fn bring(door: &Arc<Door>, running: &mut Running, seats: Vec<(u64, Seat)>, permit: &mut Permit) {
    let mut entries = Vec::with_capacity(seats.len());
    for (_, seat) in seats {
        match reserve(door, &seat.flight) {
            Ok(room) => entries.push(Entry { seat, room: Some(room) }),
            Err(error) => drop(seat.answer.send(Answer::NoRoom(error))),
        }
    }
    running.asked = entries.len();
    running.judged = !entries.is_empty();
    if entries.is_empty() {
        return;
    }
    let wanted: Vec<Wanted> =
        entries.iter().map(|Entry { seat, .. }| Wanted { id: seat.flight.id.clone(), size: seat.flight.object.size }).collect();
    let began = Instant::now();
    let answer = timeout(SILENCE, door.store.read_batch(&wanted)).await;
    let pieces = match answer.unwrap_or_else(|_| Err(silent())) {
        Ok(pieces) => pieces,
        Err(error) => return refused(door, running, entries, permit, &error),
    };
    let mut intake = Intake { door, running, permit, left: entries.into_iter(), open: None };
    let end = intake.drain(pieces).await;
    let left = intake.left.len() + usize::from(intake.open.is_some());
    drop(intake);
    door.batches.latency.record(door.began.elapsed().as_secs(), u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
    if let Err(error) = end {
        door.stats.store.errors.add(1);
        door.stats.store.batch_singles.add(left as u64);
        tracing::debug!(%error, left, "a batch ended early: the rest is fetched singly");
    }
}

/// The request itself failed: a store that asks for a slower pace gets it, after that single reads will do.
fn refused(door: &Arc<Door>, running: &mut Running, entries: Vec<Entry>, permit: &mut Permit, error: &StoreError) {
    tracing::debug!(%error, entries = entries.len(), "a batch was refused");
    if error.kind == ErrorKind::Throttled {
        permit.throttled();
        running.judged = false;
        let again = lock(&door.batches.inner).worth.refused(door.began.elapsed(), retry::jitter());
        if again {
            door.stats.store.retries.add(1);
            // their room goes back meanwhile
            return door.batches.board_again(door, entries.into_iter().map(|entry| entry.seat).collect());
        }
    } else {
        door.stats.store.errors.add(1);
    }
    door.stats.store.batch_singles.add(entries.len() as u64);
}

fn silent() -> StoreError {
    StoreError::new(ErrorKind::Timeout, format!("a batch brought nothing for {} s", SILENCE.as_secs()))
}

/// The entry whose bytes come now.
struct Open {
    seat: Seat,
    /// `None`: nobody waits for it, or it cannot be written. Its bytes are let pass.
    writer: Option<Writer>,
    bytes: u64,
}

/// What takes the pieces.
struct Intake<'a> {
    door: &'a Arc<Door>,
    running: &'a mut Running,
    permit: &'a mut Permit,
    left: std::vec::IntoIter<Entry>,
    open: Option<Open>,
}

impl Intake<'_> {
    async fn drain(&mut self, mut pieces: Pieces<'_>) -> Result<(), StoreError> {
        while self.begin() {
            match timeout(SILENCE, pieces.next()).await {
                Ok(Some(Ok(Piece::Chunk(chunk)))) => {
                    let bytes = chunk.len() as u64;
                    self.write(chunk);
                    self.door.paced(bytes).await;
                }
                Ok(Some(Ok(Piece::End(end)))) => self.end(end),
                Ok(Some(Err(error))) => return Err(error),
                Ok(None) => return Err(StoreError::new(ErrorKind::Network, "a batch ended before its last entry")),
                Err(_) => return Err(silent()),
            }
        }
        // nothing more is expected; whatever is wrong with the stream's end concerns no entry
        let _ = timeout(FAREWELL, pieces.next()).await;
        Ok(())
    }

    /// Makes the next entry the open one; false: there is none.
    fn begin(&mut self) -> bool {
        if self.open.is_none() {
            self.open = self.left.next().map(|Entry { seat, room }| {
                // not asked for any more: a reader fetched it beside us
                let room = room.filter(|_| !seat.answer.is_closed());
                Open { writer: room.map(|room| writer_in(self.door, &seat.flight, room)), seat, bytes: 0 }
            });
        }
        self.open.is_some()
    }

    fn write(&mut self, chunk: Bytes) {
        let Some(open) = &mut self.open else { return };
        open.bytes += chunk.len() as u64;
        if let Some(writer) = &mut open.writer
            && let Err(error) = writer.write(chunk)
        {
            tracing::warn!(%error, key = %open.seat.flight.object.key, "an entry of a batch could not be written: it is fetched singly");
            open.writer = None;
        }
    }

    fn end(&mut self, end: Result<(), StoreError>) {
        let Some(open) = self.open.take() else { return };
        let (counters, flight, bytes) = (&self.door.stats.store, Arc::clone(&open.seat.flight), open.bytes);
        let size = flight.object.size;
        match (end, open.writer) {
            (Ok(()), Some(writer)) if writer.written() == size => {
                self.permit.count(size);
                lock(&self.door.goodput).record(self.door.began.elapsed(), size);
                let answer = Answer::Came(writer, self.permit.part(size));
                if open.seat.answer.send(answer).is_err() {
                    counters.bytes_extra.add(bytes); // a GET beside it was faster
                }
                self.running.came += 1;
            }
            (end, _) => {
                counters.bytes_extra.add(bytes);
                if open.seat.answer.is_closed() {
                    self.running.came += usize::from(end.is_ok());
                } else {
                    counters.batch_singles.add(1);
                }
                if let Err(error) = end {
                    tracing::debug!(%error, key = %flight.object.key, "an entry of a batch did not come: it is fetched singly");
                }
            }
        }
    }
}

impl Drop for Intake<'_> {
    fn drop(&mut self) {
        // what came of an entry that did not come whole
        if let Some(open) = &self.open {
            self.door.stats.store.bytes_extra.add(open.bytes);
        }
    }
}

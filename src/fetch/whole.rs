//! One whole object from the store into the cache: the flight that everybody who wants it waits for.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use tokio::time::Instant;

use super::gate::{Part, Permit};
use super::queue::Priority;
use super::{Door, DoorEvent, FetchError, Flight, Landing, Purpose, Source, batch, lock};
use crate::cache::{CacheError, CachedFile, Placement, Reservation, Writer};
use crate::store::retry::Patience;
use crate::store::{Body, StoreError};
use crate::types::ErrorKind;

/// Attempts at a prefetch that nobody waits for yet; then the planner is told and may ask again.
const AHEAD_ATTEMPTS: u32 = 4;
/// A first byte that is later than this many times the slow end (p99) of the last minute gets a second request.
const HEDGE_FACTOR: u32 = 2;
/// No hedge before this: on a fast store the slow end is scheduling noise.
const HEDGE_LEAST: Duration = Duration::from_millis(100);
/// Hedges per hundred GETs at most: extra load stays within 1 %.
const HEDGE_PERCENT: u64 = 1;

/// Runs a flight to its landing. Never fails itself: whoever waits gets the result, the planner an event.
pub(super) async fn fly(door: Arc<Door>, flight: Arc<Flight>) {
    let ahead = matches!(flight.purpose, Purpose::Ahead { .. });
    if ahead {
        door.stats.prefetch.in_flight.add(1);
    }
    let landing = AssertUnwindSafe(bring(&door, &flight)).catch_unwind().await.unwrap_or_else(|_| {
        door.stats.panics.add(1);
        tracing::error!(key = %flight.object.key, "a fetch panicked: its readers get EIO, the mount goes on");
        Err(FetchError::new(ErrorKind::Io, "a fetch panicked; please report it with the log"))
    });
    if ahead {
        door.stats.prefetch.in_flight.sub(1);
    }
    // every flight answers, also a demand's: the planner may have asked for the same object while it was under way
    let event = match landing.as_ref().map(|(file, _)| file.tier()) {
        Ok(Some(tier)) => DoorEvent::Fetched { id: flight.id.clone(), tier, ahead },
        Ok(None) => DoorEvent::Failed { id: flight.id.clone(), kind: ErrorKind::NoSpace },
        Err(error) => DoorEvent::Failed { id: flight.id.clone(), kind: error.kind },
    };
    // first the cache (done by `bring`), then the flight goes: a newcomer finds one or the other
    lock(&door.flights).remove(&flight.id);
    flight.landing.send_replace(Some(landing));
    if let Some(events) = door.events.as_ref().filter(|_| !door.unplanned.load(SeqCst)) {
        // waiting here keeps no reader: the landing is out. The prefetch task is the only receiver; when it is gone so is the plan
        let _ = events.send(event).await;
    }
}

async fn bring(door: &Arc<Door>, flight: &Arc<Flight>) -> Landing {
    if let Some(file) = from_cache(door, flight).await {
        return Ok((file, Source::Cache));
    }
    let (writer, claim) = match batch::ride(door, flight).await {
        Some(came) => came?,
        // boxed: most prefetches wait for a batch, and need not carry this meanwhile
        None => Box::pin(fetch_singly(door, flight)).await?,
    };
    let error = match land(door, writer, claim).await {
        Ok(file) => return Ok((file, Source::Store)),
        Err(error) => error,
    };
    if !flight.demanded.load(Relaxed) {
        return Err(error);
    }
    // the tier failed when all was written: a reader must not notice
    tracing::warn!(%error, key = %flight.object.key, "a cache tier failed: fetched again for its reader");
    door.stats.store.bytes_extra.add(flight.object.size);
    let (writer, permit) = Box::pin(fetch(door, flight, Room::Transient)).await?;
    land(door, writer, Claim::Permit(permit)).await.map(|file| (file, Source::Store))
}

/// What is held of the gate's bytes until the object's are where they belong.
#[derive(Debug)]
#[expect(dead_code, reason = "held for what their drops give back")]
pub(super) enum Claim {
    Permit(Permit),
    Part(Part),
}

/// By a request of its own.
pub(super) async fn fetch_singly(door: &Arc<Door>, flight: &Flight) -> Result<(Writer, Claim), FetchError> {
    fetch(door, flight, Room::Kept).await.map(|(writer, permit)| (writer, Claim::Permit(permit)))
}

/// Where a flight's bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// As its purpose has it.
    Kept,
    /// As long as its readers hold it.
    Transient,
}

/// All bytes of the object in a writer, with retries; a tier that fails meanwhile is replaced by the transient one, once.
async fn fetch(door: &Arc<Door>, flight: &Flight, mut place: Room) -> Result<(Writer, Permit), FetchError> {
    let priority = if flight.demanded.load(Relaxed) { Priority::Demand } else { Priority::Ahead };
    let mut permit = door.gate.enter(flight.ticket, flight.object.size, priority).await;
    let room = if place == Room::Kept { reserve(door, flight)? } else { transient(door, flight)? };
    let mut writer = writer_in(door, flight, room);
    let began = Instant::now();
    let mut attempt = 0;
    while writer.written() < flight.object.size {
        attempt += 1;
        let error = match receive(door, flight, &mut writer).await {
            Ok(()) => break,
            Err(Trouble::Cache(error)) if place == Room::Kept => {
                tracing::warn!(%error, key = %flight.object.key, "a cache tier failed during a write");
                door.stats.store.bytes_extra.add(writer.written());
                writer = writer_in(door, flight, transient(door, flight)?);
                place = Room::Transient;
                continue;
            }
            // nowhere to hold it whole: its readers read it by ranges
            Err(Trouble::Cache(error)) => return Err(FetchError::new(ErrorKind::NoSpace, error.message)),
            Err(Trouble::Store(error)) => error,
        };
        if error.kind == ErrorKind::Throttled {
            permit.throttled();
        }
        let patience =
            if flight.demanded.load(Relaxed) { Patience::Deadline(door.config.read_deadline) } else { Patience::Attempts(AHEAD_ATTEMPTS) };
        door.pause(error, attempt, began, patience).await?;
    }
    permit.count(flight.object.size);
    lock(&door.goodput).record(door.began.elapsed(), flight.object.size);
    Ok((writer, permit))
}

/// A disk tier may have it: look there first, off the async threads.
async fn from_cache(door: &Arc<Door>, flight: &Flight) -> Option<Arc<CachedFile>> {
    match door.cache.lookup(&flight.id, flight.object.size) {
        crate::cache::Lookup::Hit(file) => Some(file),
        crate::cache::Lookup::Miss => None,
        crate::cache::Lookup::Unsure => {
            let (cache, id, size) = (Arc::clone(&door.cache), flight.id.clone(), flight.object.size);
            door.runtime.spawn_blocking(move || cache.open(&id, size)).await.ok().flatten()
        }
    }
}

/// Room in the cache, as the purpose has it.
pub(super) fn reserve(door: &Door, flight: &Flight) -> Result<Reservation, FetchError> {
    let placement = match flight.purpose {
        Purpose::Ahead { tier } => Placement::Planned { tier },
        Purpose::Demand => Placement::Unplanned,
    };
    let reserved = door.cache.reserve(flight.object.size, placement).or_else(|_| {
        door.drop_idle_parts();
        door.cache.reserve(flight.object.size, placement)
    });
    match reserved {
        Ok(reservation) if flight.purpose == Purpose::Demand => Ok(reservation),
        Ok(reservation) => Ok(reservation.fetched_ahead()),
        Err(_) if flight.demanded.load(Relaxed) => transient(door, flight),
        Err(error) => Err(FetchError::new(error.kind, error.message)),
    }
}

fn transient(door: &Door, flight: &Flight) -> Result<Reservation, FetchError> {
    door.cache.reserve(flight.object.size, Placement::Transient).map_err(|error| FetchError::new(error.kind, error.message))
}

pub(super) fn writer_in(door: &Door, flight: &Flight, reservation: Reservation) -> Writer {
    door.cache.writer(reservation, &flight.id, flight.object.size)
}

enum Trouble {
    Store(StoreError),
    Cache(CacheError),
}

/// One request for what is still missing, into the writer.
async fn receive(door: &Arc<Door>, flight: &Flight, writer: &mut Writer) -> Result<(), Trouble> {
    let mut body = hedged(door, flight, writer.written()).await.map_err(Trouble::Store)?;
    while let Some(chunk) = body.next().await {
        let chunk: Bytes = chunk.map_err(Trouble::Store)?;
        let bytes = chunk.len() as u64;
        flight.received.fetch_add(bytes, Relaxed);
        writer.write(chunk).map_err(Trouble::Cache)?;
        door.paced(bytes).await;
    }
    if writer.written() < flight.object.size {
        return Err(Trouble::Store(StoreError::new(ErrorKind::Network, format!("the body of {:?} ended early", flight.object.key))));
    }
    Ok(())
}

/// A request, and a second one when the first byte is late; the first to answer serves.
async fn hedged(door: &Arc<Door>, flight: &Flight, from: u64) -> Result<Body, StoreError> {
    let read = || door.store.read(&flight.id, from..flight.object.size);
    let Some(patience) = hedge_after(door) else { return read().await };
    let first = read();
    tokio::pin!(first);
    tokio::select! {
        biased;
        body = &mut first => return body,
        () = tokio::time::sleep(patience) => {}
    }
    if !may_hedge(door) {
        return first.await;
    }
    door.stats.store.hedges.add(1);
    let second = read();
    tokio::pin!(second);
    tokio::select! {
        body = &mut first => match body { Ok(body) => Ok(body), Err(_) => second.await },
        body = &mut second => match body { Ok(body) => Ok(body), Err(_) => first.await },
    }
}

fn hedge_after(door: &Door) -> Option<Duration> {
    let slow = door.stats.store.latency.quantile(door.began.elapsed().as_secs(), 0.99);
    (slow > 0).then(|| (Duration::from_micros(slow) * HEDGE_FACTOR).max(HEDGE_LEAST))
}

fn may_hedge(door: &Door) -> bool {
    (door.stats.store.hedges.get() + 1) * 100 <= door.stats.store.get.get() * HEDGE_PERCENT
}

/// Makes the file visible; on a blocking thread when that touches a disk. Then its bytes lie in memory until the disk has them, and so long the claim
/// on them holds: a slow disk slows the fetching.
async fn land(door: &Arc<Door>, writer: Writer, claim: Claim) -> Result<Arc<CachedFile>, FetchError> {
    let finished = if writer.finish_blocks() {
        let finished = door.runtime.spawn_blocking(move || writer.finish()).await;
        drop(claim);
        finished.map_err(|_| FetchError::new(ErrorKind::Io, "a cache write panicked; please report it with the log"))?
    } else {
        drop(claim); // the place at the store is free, the rest is ours
        writer.finish()
    };
    finished.map_err(|error| FetchError::new(error.kind, error.message))
}

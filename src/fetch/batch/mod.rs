//! Small objects that are wanted ahead, many with one request, where the store can (`Store::read_batch`).
//!
//! A flight that nobody waits for yet takes a [`Seat`] and lets [`former`] decide when enough are together. The driver asks for one place at the
//! gate for all their bytes, and a reader's demand takes an object out until the very moment it is sent; then [`stream`] writes entry after
//! entry, and each flight lands by itself while the rest is still coming. A flight whose seat is gone, for whatever reason (the entry failed,
//! the stream was cut, a task panicked), goes on with a GET of its own: that is what dropping the other end means.
//!
//! A reader who wants an object that is on the wire waits for it, but not for long: then a GET is made beside it, and the first to come serves.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{Notify, oneshot};

use super::gate::{Gate, Part};
use super::queue::Priority;
use super::whole::{Claim, fetch_singly};
use super::{Door, FetchError, Flight, Purpose, lock};
use crate::cache::Writer;
use crate::stats::latency::Latencies;
use crate::store::batch::BatchLimits;

pub mod former;
mod stream;
#[cfg(test)]
mod tests;
pub mod worth;

use former::{Former, Step};
use worth::Worth;

/// Share of the gate's bytes that all batches together may claim: the rest is for readers and for what is not batched.
const GATE_SHARE: u64 = 2;
/// A reader waits for an object on the wire as long as the slow end of whole batches lately, within these: less is scheduling noise, and more
/// would be felt. Before the first batch has ended it is the upper one.
const LATE_LEAST: Duration = Duration::from_millis(100);
const LATE_MOST: Duration = Duration::from_secs(1);

/// A flight's place in a batch. Dropping it sends the flight on its own way.
#[derive(Debug)]
pub(super) struct Seat {
    flight: Arc<Flight>,
    answer: oneshot::Sender<Answer>,
}

/// What came of a seat.
#[derive(Debug)]
pub(super) enum Answer {
    /// All its bytes.
    Came(Writer, Part),
    /// There is no room for it, so it was not asked for.
    NoRoom(FetchError),
}

#[derive(Debug, Default)]
struct Inner {
    former: Former<Seat>,
    worth: Worth,
    /// Whether a driver runs.
    driving: bool,
}

/// All seats of a door.
#[derive(Debug)]
pub(super) struct Batches {
    inner: Mutex<Inner>,
    /// Enough came together, or a batch ended.
    changed: Notify,
    /// From the request of a batch to its last byte.
    latency: Latencies,
    /// Bytes of all batches at once at most.
    bytes_max: u64,
}

impl Batches {
    pub(super) fn new(gate: &Gate) -> Self {
        Self { inner: Mutex::default(), changed: Notify::new(), latency: Latencies::default(), bytes_max: gate.bytes_max() / GATE_SHARE }
    }

    /// What one batch may carry: what the store bears, within the gate's bytes.
    fn limits(&self, door: &Door) -> Option<BatchLimits> {
        let limits = door.store.batch_limits()?;
        let at_once = u64::try_from(limits.at_once.max(1)).unwrap_or(u64::MAX);
        Some(BatchLimits { bytes: limits.bytes.min(self.bytes_max / at_once), ..limits })
    }

    /// Batches at once: never more than half of the requests, or a reader would find no place.
    fn places(&self, door: &Door, limits: &BatchLimits, worth: &Worth) -> usize {
        worth.places(limits.at_once.min(door.gate.limit() / 2))
    }

    /// Objects of `mean` bytes that may be under way in batches at once; 0: none.
    pub(super) fn entries_max(&self, door: &Door, mean: u64) -> usize {
        let pays = lock(&self.inner).worth.pays(door.began.elapsed());
        let Some(limits) = self.limits(door).filter(|limits| pays && Former::<Seat>::fits(mean.max(1), limits)) else { return 0 };
        let fit = usize::try_from(limits.bytes / mean.max(1)).unwrap_or(usize::MAX);
        fit.min(limits.most).saturating_mul(limits.at_once.min(door.config.max_requests / 2))
    }

    /// Fewest entries of a batch, while batches are worth it.
    pub(super) fn least(&self, door: &Door) -> Option<usize> {
        let limits = self.limits(door)?;
        lock(&self.inner).worth.pays(door.began.elapsed()).then_some(limits.least)
    }

    /// How long an object takes that goes with a batch, at its slow end; zero: nothing is known.
    pub(super) fn slow_end(&self, door: &Door) -> Duration {
        match self.latency.usual(door.began.elapsed().as_secs(), 0.999) {
            0 => Duration::ZERO,
            micros => Duration::from_micros(micros) + former::GATHER,
        }
    }

    /// A reader waits for this flight now: out of what waits, if it does.
    pub(super) fn withdraw(&self, flight: &Flight) {
        let seat = lock(&self.inner).former.withdraw(flight.ticket);
        drop(seat); // not under the lock: it wakes the flight
    }

    /// A seat for the flight, if it may have one.
    fn board(&self, door: &Arc<Door>, flight: &Arc<Flight>) -> Option<oneshot::Receiver<Answer>> {
        let limits = self.limits(door)?;
        if !matches!(flight.purpose, Purpose::Ahead { .. }) || !Former::<Seat>::fits(flight.object.size, &limits) {
            return None;
        }
        let now = door.began.elapsed();
        let (answer, told) = oneshot::channel();
        let (start, wake) = {
            let mut inner = lock(&self.inner);
            // under the lock: whoever demands it from here on finds it among those that wait
            if flight.demanded.load(Relaxed) || !inner.worth.pays(now) || self.places(door, &limits, &inner.worth) == 0 {
                return None;
            }
            let seat = Seat { flight: Arc::clone(flight), answer };
            let wake = inner.former.add(now, flight.ticket, flight.object.size, seat, &limits);
            (!std::mem::replace(&mut inner.driving, true), wake)
        };
        if start {
            door.runtime.spawn(drive(Arc::clone(door)));
        } else if wake {
            self.changed.notify_one();
        }
        Some(told)
    }

    /// Seats of a batch that was refused for the moment wait for another, unless a reader wants them.
    fn board_again(&self, door: &Arc<Door>, seats: Vec<Seat>) {
        let Some(limits) = self.limits(door) else { return };
        let now = door.began.elapsed();
        let mut alone = Vec::new();
        let start = {
            let mut inner = lock(&self.inner);
            for seat in seats {
                if seat.flight.demanded.load(Relaxed) {
                    alone.push(seat);
                } else {
                    inner.former.add(now, seat.flight.ticket, seat.flight.object.size, seat, &limits);
                }
            }
            !inner.former.is_empty() && !std::mem::replace(&mut inner.driving, true)
        };
        if start {
            door.runtime.spawn(drive(Arc::clone(door)));
        }
    }
}

/// Waits for the flight's object to come with a batch. `None`: it has to be fetched singly.
pub(super) async fn ride(door: &Arc<Door>, flight: &Arc<Flight>) -> Option<Result<(Writer, Claim), FetchError>> {
    let mut told = door.batches.board(door, flight)?;
    let answer = tokio::select! {
        biased;
        answer = &mut told => answer.ok()?,
        () = overdue(door, flight) => return Some(beside(door, flight, told).await),
    };
    taken(flight, answer)
}

fn taken(flight: &Flight, answer: Answer) -> Option<Result<(Writer, Claim), FetchError>> {
    match answer {
        Answer::Came(writer, part) => Some(Ok((writer, Claim::Part(part)))),
        Answer::NoRoom(_) if flight.demanded.load(Relaxed) => None, // a reader may have what belongs to nobody
        Answer::NoRoom(error) => Some(Err(error)),
    }
}

/// Resolves when a reader has waited long enough for an object on the wire.
async fn overdue(door: &Door, flight: &Flight) {
    flight.demand.notified().await;
    let slow = door.batches.latency.quantile(door.began.elapsed().as_secs(), 0.99);
    let patience = if slow == 0 { LATE_MOST } else { Duration::from_micros(slow).clamp(LATE_LEAST, LATE_MOST) };
    tokio::time::sleep(patience).await;
}

/// A GET beside the batch. Whichever has all the bytes first serves; those of the other are extra.
async fn beside(door: &Arc<Door>, flight: &Arc<Flight>, mut told: oneshot::Receiver<Answer>) -> Result<(Writer, Claim), FetchError> {
    door.stats.store.hedges.add(1);
    let mut single = Box::pin(fetch_singly(door, flight));
    let mut may_come = true;
    let failed = loop {
        tokio::select! {
            biased;
            answer = &mut told, if may_come => match answer {
                Ok(Answer::Came(writer, part)) => {
                    door.stats.store.bytes_extra.add(flight.received.load(Relaxed));
                    return Ok((writer, Claim::Part(part)));
                }
                Ok(Answer::NoRoom(_)) | Err(_) => may_come = false,
            },
            fetched = &mut single => match fetched {
                Ok(fetched) => return Ok(fetched), // the batch counts its bytes as extra when it finds nobody waiting
                Err(error) => break error,
            },
        }
    };
    if may_come && let Ok(Answer::Came(writer, part)) = told.await {
        return Ok((writer, Claim::Part(part)));
    }
    Err(failed)
}

/// Sends batches until nothing waits.
async fn drive(door: Arc<Door>) {
    if AssertUnwindSafe(send_all(&door)).catch_unwind().await.is_err() {
        door.stats.panics.add(1);
        tracing::error!("the task that forms batches panicked: what waited there is fetched singly");
        let left = {
            let mut inner = lock(&door.batches.inner);
            inner.driving = false;
            inner.former.take_all()
        };
        drop(left);
    }
}

async fn send_all(door: &Arc<Door>) {
    let batches = &door.batches;
    loop {
        let limits = batches.limits(door);
        let now = door.began.elapsed();
        let step = {
            let mut inner = lock(&batches.inner);
            let step = match limits {
                Some(limits) if inner.worth.pays(now) => inner.step(now, &limits, batches.places(door, &limits, &inner.worth)),
                _ if inner.former.is_empty() => Step::Idle,
                _ => Step::Alone,
            };
            inner.driving = step != Step::Idle;
            step
        };
        match (step, limits) {
            (Step::Idle, _) => return,
            (Step::Batch(bytes), Some(limits)) => {
                let permit = door.gate.enter(door.gate.ticket(), bytes, Priority::Ahead).await;
                let seats = lock(&batches.inner).former.take(door.began.elapsed(), &limits, bytes);
                if !seats.is_empty() {
                    let running = stream::Running::new(door, seats.len());
                    door.runtime.spawn(stream::run(running, seats, permit));
                }
            }
            (Step::Alone | Step::Batch(_), _) => {
                let alone = lock(&batches.inner).former.take_all();
                drop(alone); // not under the lock: it wakes the flights
            }
            (Step::Wait(until), _) => {
                // whatever changes without a word (the store's limits, the gate's) is seen after this long
                let wait = until.saturating_sub(now).min(former::WAIT_MAX);
                let _ = tokio::time::timeout(wait, batches.changed.notified()).await;
            }
            (Step::WaitForPlace, _) => {
                let _ = tokio::time::timeout(former::WAIT_MAX, batches.changed.notified()).await;
            }
        }
    }
}

impl Inner {
    fn step(&self, now: Duration, limits: &BatchLimits, places: usize) -> Step {
        match self.former.step(now, limits, places) {
            Step::Batch(_) if now < self.worth.held_until() => Step::Wait(self.worth.held_until()),
            step => step,
        }
    }
}

//! The gate before the store: lets jobs in by [`Queue`], as many as [`Concurrency`] allows. Thin: both decide, this wakes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::fetch::concurrency::Concurrency;
use crate::fetch::queue::{Priority, Queue};
use crate::stats::Stats;

/// Bytes of requests on their way at once: 256 of a mebibyte, or sixteen of the largest whole objects. What is bound for a disk lies in memory until
/// it is complete, so this is memory beside the tiers.
const IN_FLIGHT_BYTES_MAX: u64 = 256 << 20;

/// Under a cap on the bandwidth, all that is on its way shares it: more than half a second's worth would keep the next reader waiting for what
/// is needed later. Never less than eight small files, or one request at a time would pay every latency.
fn capped_bytes(bandwidth: u64) -> u64 {
    (bandwidth / 2).clamp(1 << 20, IN_FLIGHT_BYTES_MAX)
}

/// Names a job before it waits, so that it can be promoted while it does.
pub type Ticket = u64;

#[derive(Debug)]
struct Inner {
    queue: Queue<Ticket>,
    concurrency: Concurrency,
    waiters: HashMap<Ticket, oneshot::Sender<Permit>>,
    next: Ticket,
}

/// The gate. One per mount.
#[derive(Debug)]
pub struct Gate {
    inner: Mutex<Inner>,
    began: Instant,
    stats: Arc<Stats>,
}

impl Gate {
    /// At most `most` requests at once; `bandwidth`: bytes per second, if capped.
    #[must_use]
    pub fn new(most: usize, bandwidth: Option<u64>, stats: Arc<Stats>) -> Arc<Self> {
        let concurrency = Concurrency::new(most);
        let queue = Queue::new(concurrency.limit(), bandwidth.map_or(IN_FLIGHT_BYTES_MAX, capped_bytes));
        let inner = Inner { queue, concurrency, waiters: HashMap::new(), next: 0 };
        Arc::new(Self { inner: Mutex::new(inner), began: Instant::now(), stats })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // every critical section leaves Inner whole, also when a later line of it panics
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A name for a job.
    pub fn ticket(&self) -> Ticket {
        let mut inner = self.lock();
        inner.next += 1;
        inner.next
    }

    /// Waits for a place for a request of so many bytes. Cancel-safe: a dropped waiter leaves its place to the next.
    pub async fn enter(self: &Arc<Self>, ticket: Ticket, bytes: u64, priority: Priority) -> Permit {
        let (tell, told) = oneshot::channel();
        {
            let mut inner = self.lock();
            inner.queue.push(ticket, bytes, priority);
            inner.waiters.insert(ticket, tell);
        }
        self.let_in();
        told.await.expect("let_in sends to a waiter before it drops its sender")
    }

    /// A reader waits for this job now.
    pub fn promote(&self, ticket: Ticket) {
        self.lock().queue.promote(&ticket);
    }

    /// Requests that may run at once now.
    pub fn limit(&self) -> usize {
        self.lock().concurrency.limit()
    }

    /// Bytes that may be on their way at once.
    pub fn bytes_max(&self) -> u64 {
        self.lock().queue.bytes_max()
    }

    /// Bytes on their way now.
    #[cfg(test)]
    pub(super) fn running_bytes(&self) -> u64 {
        self.lock().queue.running_bytes()
    }

    fn let_in(self: &Arc<Self>) {
        loop {
            let (waiter, claimed) = {
                let mut inner = self.lock();
                let Some((ticket, claimed)) = inner.queue.start_next() else { return };
                (inner.waiters.remove(&ticket), claimed)
            };
            let permit = Permit { gate: Arc::clone(self), claimed, bytes: 0, throttled: false };
            if let Some(waiter) = waiter {
                // a waiter that is gone gives the permit back right here, and the next one gets it
                drop(waiter.send(permit));
            }
        }
    }

    fn leave(self: &Arc<Self>, claimed: u64, bytes: u64, throttled: bool) {
        let now = self.began.elapsed();
        let limit = {
            let mut inner = self.lock();
            inner.queue.done(claimed);
            let waiting = inner.queue.waiting() > 0;
            inner.concurrency.ended(now, bytes, waiting, throttled);
            let limit = inner.concurrency.limit();
            inner.queue.set_limit(limit);
            limit
        };
        self.stats.store.concurrency.set(limit as u64);
        self.let_in();
    }
}

/// A place at the store, held while a request runs.
#[derive(Debug)]
pub struct Permit {
    gate: Arc<Gate>,
    claimed: u64,
    bytes: u64,
    throttled: bool,
}

impl Permit {
    /// Bytes came.
    pub const fn count(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// The store asked for less.
    pub const fn throttled(&mut self) {
        self.throttled = true;
    }

    /// Splits off the claim on so many of its bytes: they came, and lie in memory for as long as the part is held.
    pub fn part(&mut self, bytes: u64) -> Part {
        let bytes = bytes.min(self.claimed);
        self.claimed -= bytes;
        Part { gate: Arc::clone(&self.gate), bytes }
    }
}

/// The claim on some of the bytes of a request that brings several objects.
#[derive(Debug)]
pub struct Part {
    gate: Arc<Gate>,
    bytes: u64,
}

impl Drop for Part {
    fn drop(&mut self) {
        self.gate.lock().queue.done_in_part(self.bytes);
        self.gate.let_in();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gate.leave(self.claimed, self.bytes, self.throttled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cancelled_waiter_loses_no_place() {
        let gate = Gate::new(1, None, Arc::new(Stats::default()));
        let first = gate.enter(gate.ticket(), 1, Priority::Ahead).await;
        for _ in 0..3 {
            let waiting = gate.enter(gate.ticket(), 1, Priority::Demand);
            tokio::select! { biased; _ = waiting => panic!("the only place is taken"), () = std::future::ready(()) => () }
        }
        drop(first);
        let again = gate.enter(gate.ticket(), 1, Priority::Ahead).await;
        drop(again);
        assert_eq!(gate.lock().queue.running(), 0);
    }

    #[tokio::test]
    async fn what_came_of_a_large_job_makes_way_for_others() {
        let gate = Gate::new(8, Some(2 << 20), Arc::new(Stats::default()));
        let mut large = gate.enter(gate.ticket(), 1 << 20, Priority::Ahead).await;
        let parts = [large.part(1000), large.part(24)];
        let waiting = gate.enter(gate.ticket(), 1024, Priority::Ahead);
        tokio::pin!(waiting);
        for part in parts {
            tokio::select! { biased; _ = &mut waiting => panic!("there is no room yet"), () = std::future::ready(()) => () }
            drop(part);
        }
        drop(waiting.await);
        drop(large);
        let all = gate.enter(gate.ticket(), 1 << 20, Priority::Ahead).await;
        drop(all);
        assert_eq!(gate.lock().queue.running(), 0);
    }

    #[tokio::test]
    async fn a_promoted_job_overtakes() {
        let gate = Gate::new(1, None, Arc::new(Stats::default()));
        let first = gate.enter(gate.ticket(), 1, Priority::Ahead).await;
        let (a, b) = (gate.ticket(), gate.ticket());
        let order = Arc::new(Mutex::new(Vec::new()));
        let jobs: Vec<_> = [a, b]
            .into_iter()
            .map(|ticket| {
                let (gate, order) = (Arc::clone(&gate), Arc::clone(&order));
                tokio::spawn(async move {
                    let permit = gate.enter(ticket, 1, Priority::Ahead).await;
                    order.lock().expect("no panic").push(ticket);
                    drop(permit);
                })
            })
            .collect();
        while gate.lock().queue.waiting() < 2 {
            tokio::task::yield_now().await;
        }
        gate.promote(b);
        drop(first);
        for job in jobs {
            job.await.expect("no panic");
        }
        assert_eq!(*order.lock().expect("no panic"), [b, a]);
    }
}

//! What the server itself saw: the judge of "LIST pages only", "one GET for 64 readers" and "no byte twice".
//! Counted where the bytes leave, so a client that drops an answer half way is charged only for what it was handed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The live counters, shared by all connections.
#[derive(Debug, Default)]
pub(super) struct Counting {
    pub(super) list: AtomicU64,
    pub(super) head: AtomicU64,
    pub(super) get: AtomicU64,
    pub(super) other: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) connections: AtomicU64,
    pub(super) in_flight: AtomicU64,
    pub(super) in_flight_peak: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) faults: AtomicU64,
}

/// The counters at one moment; since the start or the last [`super::Server::reset_counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Pages of listings asked for.
    pub list: u64,
    /// HEAD of objects.
    pub head: u64,
    /// GET of objects, those answered with an error too.
    pub get: u64,
    /// Everything else (bucket location, list of buckets, refused methods).
    pub other: u64,
    /// Body bytes of objects handed out.
    pub bytes: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Object GETs between their arrival and their last byte, now.
    pub in_flight: u64,
    /// The most of them at once.
    pub in_flight_peak: u64,
    /// Requests answered 403 or 400 for their signature.
    pub refused: u64,
    /// Scripted faults that struck.
    pub faults: u64,
}

impl Counting {
    pub(super) fn now(&self) -> Counters {
        Counters {
            list: self.list.load(Relaxed),
            head: self.head.load(Relaxed),
            get: self.get.load(Relaxed),
            other: self.other.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            connections: self.connections.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            in_flight_peak: self.in_flight_peak.load(Relaxed),
            refused: self.refused.load(Relaxed),
            faults: self.faults.load(Relaxed),
        }
    }

    /// Zeroes all but `in_flight`, which the requests under way will still count down.
    pub(super) fn reset(&self) {
        let counters = [
            &self.list,
            &self.head,
            &self.get,
            &self.other,
            &self.bytes,
            &self.connections,
            &self.in_flight_peak,
            &self.refused,
            &self.faults,
        ];
        for counter in counters {
            counter.store(0, Relaxed);
        }
    }
}

/// One object GET under way: counts itself in, and out when dropped, whatever became of it.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Counting>);

impl InFlight {
    pub(super) fn enter(counting: &Arc<Counting>) -> Self {
        let now = counting.in_flight.fetch_add(1, Relaxed) + 1;
        counting.in_flight_peak.fetch_max(now, Relaxed);
        Self(Arc::clone(counting))
    }

    pub(super) fn sent(&self, bytes: u64) {
        self.0.bytes.fetch_add(bytes, Relaxed);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

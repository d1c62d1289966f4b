//! The body of an answer: a row of slices of what is in memory (no copy), broken off, stalled or falsified where a fault says so.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::counters::Counting;
use super::objects::Content;

/// A slice of something; sent when its time has come.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) content: Content,
    pub(super) position: u64,
    pub(super) end: u64,
    pub(super) not_before: Option<Instant>,
}

impl Segment {
    pub(super) fn bytes(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let end = bytes.len() as u64;
        Self { content: Content::Bytes(bytes), position: 0, end, not_before: None }
    }

    pub(super) fn length(&self) -> u64 {
        self.end - self.position
    }
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Whole,
    /// Broken off after so many bytes.
    Cut {
        after: u64,
    },
    /// Silent for ever after so many bytes.
    Stall {
        after: u64,
    },
}

/// One body under way: counts itself in, and out when dropped.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Counting>);

impl InFlight {
    pub(super) fn enter(counting: &Arc<Counting>) -> Self {
        let now = counting.in_flight.fetch_add(1, Relaxed) + 1;
        counting.in_flight_peak.fetch_max(now, Relaxed);
        Self(Arc::clone(counting))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

/// Something counted down when a body ends.
pub(super) struct Pending(pub(super) Arc<AtomicU64>);

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A body.
pub(super) struct Reply {
    segments: VecDeque<Segment>,
    sent: u64,
    left: u64,
    ending: Ending,
    /// Whether its length is told before (else chunked).
    told: bool,
    corrupt: Option<u64>,
    /// When the first is no longer the second, this text is sent instead of what is left.
    version: Option<(Arc<AtomicU64>, u64, String)>,
    waiting: Option<Pin<Box<Sleep>>>,
    /// hyper drops what it has buffered when a body fails: yield once to it before that.
    flushed: bool,
    in_flight: Option<InFlight>,
    pending: Option<Pending>,
}

impl Reply {
    pub(super) fn of(segments: impl IntoIterator<Item = Segment>) -> Self {
        let segments: VecDeque<_> = segments.into_iter().filter(|segment| segment.length() > 0).collect();
        let left = segments.iter().map(Segment::length).sum();
        Self {
            segments,
            sent: 0,
            left,
            ending: Ending::Whole,
            told: true,
            corrupt: None,
            version: None,
            waiting: None,
            flushed: false,
            in_flight: None,
            pending: None,
        }
    }

    pub(super) fn text(text: impl Into<Bytes>) -> Self {
        Self::of([Segment::bytes(text)])
    }

    pub(super) fn empty() -> Self {
        Self::of([])
    }

    pub(super) fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }

    pub(super) fn chunked(mut self) -> Self {
        self.told = false;
        self
    }

    pub(super) fn corrupted(mut self, at: u64) -> Self {
        self.corrupt = (self.left > 0).then(|| at % self.left.max(1));
        self
    }

    pub(super) fn counted(mut self, in_flight: InFlight) -> Self {
        self.in_flight = Some(in_flight);
        self
    }

    pub(super) fn pending(mut self, pending: Pending) -> Self {
        self.pending = Some(pending);
        self
    }

    pub(super) fn while_version(mut self, version: Arc<AtomicU64>, is: u64, lost: String) -> Self {
        self.version = Some((version, is, lost));
        self
    }

    fn cut(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if !self.flushed {
            self.flushed = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Some(Err(io::Error::other("the body breaks off here"))))
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        if let Some((_, _, lost)) = this.version.take_if(|(version, is, _)| version.load(Relaxed) != *is) {
            this.segments = [Segment::bytes(lost)].into();
            this.left = this.segments.iter().map(Segment::length).sum();
            this.waiting = None;
        }
        let mut limit = u64::MAX;
        match this.ending {
            Ending::Whole => {}
            Ending::Cut { after } if this.sent >= after => return this.cut(cx),
            Ending::Stall { after } if this.sent >= after => return Poll::Pending,
            Ending::Cut { after } | Ending::Stall { after } => limit = after - this.sent,
        }
        let Some(segment) = this.segments.front_mut() else { return Poll::Ready(None) };
        if let Some(at) = segment.not_before {
            let waiting = this.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
            ready!(waiting.as_mut().poll(cx));
            this.waiting = None;
            segment.not_before = None;
        }
        let mut piece = segment.content.piece(segment.position, segment.end.min(segment.position.saturating_add(limit)));
        let length = piece.len() as u64;
        segment.position += length;
        if segment.length() == 0 {
            this.segments.pop_front();
        }
        if let Some(at) = this.corrupt.filter(|at| (this.sent..this.sent + length).contains(at)) {
            let mut changed = piece.to_vec();
            let at = usize::try_from(at - this.sent).expect("64-bit targets only");
            changed[at] = !changed[at];
            piece = changed.into();
        }
        this.sent += length;
        this.left -= length;
        if let Some(InFlight(counting)) = &this.in_flight {
            counting.bytes.fetch_add(length, Relaxed);
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.ending == Ending::Whole && self.left == 0 && self.told
    }

    fn size_hint(&self) -> SizeHint {
        if self.told { SizeHint::with_exact(self.left) } else { SizeHint::default() }
    }
}

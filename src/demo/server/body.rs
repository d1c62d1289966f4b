//! The body of an answer: chunks that are slices of what is in memory (no copy), paced to a bandwidth where one is set, broken off or
//! stalled where a fault says so.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep_until};

use super::conn::Connection;
use super::counters::InFlight;
use super::objects::{Content, read_file};

/// Piece in which files are read: one read(2) of a quarter MiB costs little beside its copy.
const FILE_CHUNK_BYTES: u64 = 256 << 10;
/// Piece in which a paced body goes out: the finer, the smoother; 16 KiB at 10 MB/s is a piece each 1.6 ms, the timer's grain.
const PACED_CHUNK_BYTES: u64 = 16 << 10;

/// A bandwidth shared by all who reserve from it: each byte is sent at the earliest when those before it are through.
#[derive(Debug, Default)]
pub(super) struct Pace {
    free_at: Mutex<Option<Instant>>,
}

impl Pace {
    /// When `bytes` that are ready now have passed at this rate; 0 = no limit.
    fn reserve(&self, now: Instant, bytes: u64, bytes_per_second: u64) -> Instant {
        if bytes_per_second == 0 {
            return now;
        }
        #[expect(clippy::cast_precision_loss, reason = "a piece and a rate are far below 2^53")]
        let takes = Duration::from_secs_f64(bytes as f64 / bytes_per_second as f64);
        let mut free_at = self.free_at.lock().expect("no holder panics");
        let through = free_at.map_or(now, |free_at| free_at.max(now)) + takes;
        *free_at = Some(through);
        through
    }
}

/// Limits of one body.
#[derive(Debug)]
pub(super) struct Paced {
    pub(super) connection: Arc<Connection>,
    pub(super) total: Arc<Pace>,
    pub(super) connection_bytes_per_second: u64,
    pub(super) total_bytes_per_second: u64,
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// With its last byte.
    Whole,
    /// Broken off when this many bytes are left.
    Cut { left: u64 },
    /// Silent for ever when this many bytes are left.
    Stall { left: u64 },
}

/// Whether the length is told before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    Told,
    /// Chunked, or a Content-Length header that is not the body's.
    Untold,
}

enum Source {
    Bytes(Bytes),
    Generated(crate::demo::dataset::Generated),
    File { path: Arc<Path>, reading: Option<JoinHandle<io::Result<Bytes>>> },
}

/// A body.
pub(super) struct Reply {
    source: Source,
    position: u64,
    end: u64,
    ending: Ending,
    length: Length,
    paced: Option<Paced>,
    /// The piece that waits for its time.
    waiting: Option<(Pin<Box<Sleep>>, Bytes)>,
    /// hyper drops what it has buffered when a body fails: yield once to it before that.
    flushed: bool,
    in_flight: Option<InFlight>,
}

impl Reply {
    /// Bytes of an answer that is no object.
    pub(super) fn text(text: impl Into<Bytes>) -> Self {
        let bytes = text.into();
        let end = bytes.len() as u64;
        Self::new(Source::Bytes(bytes), 0, end, None)
    }

    /// Bytes `position..end` of an object.
    pub(super) fn object(content: &Content, position: u64, end: u64, in_flight: InFlight) -> Self {
        let source = match content {
            Content::Bytes(bytes) => Source::Bytes(bytes.clone()),
            Content::Generated(generated) => Source::Generated(generated.clone()),
            Content::File { path, .. } => Source::File { path: Arc::clone(path), reading: None },
        };
        Self::new(source, position, end, Some(in_flight))
    }

    fn new(source: Source, position: u64, end: u64, in_flight: Option<InFlight>) -> Self {
        let (ending, length) = (Ending::Whole, Length::Told);
        Self { source, position, end, ending, length, paced: None, waiting: None, flushed: false, in_flight }
    }

    pub(super) fn paced(mut self, paced: Paced) -> Self {
        let limited = paced.connection_bytes_per_second > 0 || paced.total_bytes_per_second > 0;
        self.paced = limited.then_some(paced);
        self
    }

    pub(super) fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }

    pub(super) fn length(mut self, length: Length) -> Self {
        self.length = length;
        self
    }

    /// Where the body stops to flow.
    fn stop(&self) -> u64 {
        match self.ending {
            Ending::Whole => self.end,
            Ending::Cut { left } | Ending::Stall { left } => self.end.saturating_sub(left).max(self.position),
        }
    }

    /// The next piece, at most `limit` bytes.
    fn piece(&mut self, cx: &mut Context<'_>, limit: u64) -> Poll<io::Result<Bytes>> {
        let (position, until) = (self.position, self.position + limit);
        match &mut self.source {
            Source::Bytes(bytes) => Poll::Ready(Ok(bytes.slice(to_usize(position)..to_usize(until)))),
            Source::Generated(generated) => Poll::Ready(Ok(generated.piece(position, until))),
            Source::File { path, reading } => {
                let task = reading.get_or_insert_with(|| {
                    let (path, length) = (Arc::clone(path), to_usize(limit.min(FILE_CHUNK_BYTES)));
                    tokio::task::spawn_blocking(move || read_file(&path, position, length))
                });
                let read = ready!(Pin::new(task).poll(cx));
                *reading = None;
                Poll::Ready(read.map_err(io::Error::other).and_then(|read| read))
            }
        }
    }

    fn send(&mut self, piece: Bytes) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(in_flight) = &self.in_flight {
            in_flight.sent(piece.len() as u64);
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

/// Positions in what is in memory fit.
fn to_usize(position: u64) -> usize {
    usize::try_from(position).expect("64-bit targets only")
}

impl Body for Reply {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        if let Some((sleep, _)) = &mut this.waiting {
            ready!(sleep.as_mut().poll(cx));
            let (_, piece) = this.waiting.take().expect("it was there a line ago");
            return this.send(piece);
        }
        let left = this.stop() - this.position;
        if left == 0 {
            return match this.ending {
                Ending::Whole => Poll::Ready(None),
                Ending::Stall { .. } => Poll::Pending,
                Ending::Cut { .. } if !this.flushed => {
                    this.flushed = true;
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                Ending::Cut { .. } => Poll::Ready(Some(Err(io::Error::other("a scripted fault cuts the body here")))),
            };
        }
        let limit = if this.paced.is_some() { left.min(PACED_CHUNK_BYTES) } else { left };
        let piece = match ready!(this.piece(cx, limit)) {
            Ok(piece) => piece,
            Err(error) => return Poll::Ready(Some(Err(error))),
        };
        // A cut or stall is a distance from the end: the end stays, the position moves.
        this.position += piece.len() as u64;
        if let Some(paced) = &this.paced {
            let (now, bytes) = (Instant::now(), piece.len() as u64);
            let through = paced.connection.pace.reserve(now, bytes, paced.connection_bytes_per_second);
            let through = through.max(paced.total.reserve(now, bytes, paced.total_bytes_per_second));
            this.waiting = Some((Box::pin(sleep_until(through)), piece));
            return self.poll_frame(cx);
        }
        this.send(piece)
    }

    fn is_end_stream(&self) -> bool {
        self.ending == Ending::Whole && self.position == self.end && self.waiting.is_none() && self.length == Length::Told
    }

    fn size_hint(&self) -> SizeHint {
        let waiting = self.waiting.as_ref().map_or(0, |(_, piece)| piece.len() as u64);
        match self.length {
            Length::Told => SizeHint::with_exact(self.end - self.position + waiting),
            Length::Untold => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bandwidth_is_kept_over_all_who_share_it() {
        let (pace, start) = (Pace::default(), Instant::now());
        let through: Vec<Instant> = (0..4).map(|_| pace.reserve(start, 500, 1_000)).collect();
        assert_eq!(through, (1..=4).map(|n| start + Duration::from_millis(500 * n)).collect::<Vec<_>>());
        let later = start + Duration::from_secs(10);
        assert_eq!(pace.reserve(later, 500, 1_000), later + Duration::from_millis(500), "idle time is not saved up");
        assert_eq!(pace.reserve(start, 500, 0), start, "0 is no limit");
    }
}

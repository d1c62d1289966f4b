//! One connection's socket, with switches: it may end with a TCP reset, and it may give up on a reader that takes nothing for too long.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// What the requests of one connection share.
#[derive(Debug, Default)]
pub(super) struct Connection {
    /// Close with a TCP reset (RST), not a FIN.
    pub(super) reset: AtomicBool,
    /// A write that waits longer than this ends the connection.
    pub(super) write_deadline: Mutex<Option<Duration>>,
}

/// The socket.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TokioIo<TcpStream>,
    connection: Arc<Connection>,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, connection: Arc<Connection>) -> Self {
        Self { stream: TokioIo::new(stream), connection, waiting: None }
    }

    fn written(&mut self, cx: &mut Context<'_>, wrote: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if wrote.is_ready() {
            self.waiting = None;
            return wrote;
        }
        let Some(deadline) = *self.connection.write_deadline.lock().expect("no holder panics") else { return wrote };
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(deadline)));
        match waiting.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the reader takes nothing"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.connection.reset.load(Relaxed) {
            // Failing to set it makes a FIN of the RST: the fault is milder, nothing else.
            let _ = self.stream.inner().set_zero_linger();
        }
    }
}

impl Read for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, buffer);
        self.written(cx, wrote)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffers: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.written(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.connection.reset.load(Relaxed) {
            // A FIN before the RST would let the client see a clean end.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

//! One connection's socket, with a switch: a scripted fault may reset it, or close it after an answer without having said so.
//! Everything else is passed through, vectored writes too (a body leaves without being copied).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::body::Pace;

/// What the requests of one connection share.
#[derive(Debug, Default)]
pub(super) struct Connection {
    /// Close when the answer in progress is out.
    pub(super) close_after_answer: AtomicBool,
    /// Close with a TCP reset (RST), not a FIN.
    pub(super) reset: AtomicBool,
    /// The bandwidth of this connection.
    pub(super) pace: Pace,
}

/// The socket.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TokioIo<TcpStream>,
    connection: Arc<Connection>,
    /// The answer after which to close has been flushed: reads see the end of the stream.
    ended: bool,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, connection: Arc<Connection>) -> Self {
        Self { stream: TokioIo::new(stream), connection, ended: false }
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
        if self.ended { Poll::Ready(Ok(())) } else { Pin::new(&mut self.stream).poll_read(cx, buffer) }
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buffer)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffers: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        // hyper flushes the socket when its own buffer is empty: from here on the answer is with the kernel.
        if flushed.is_ready() && self.connection.close_after_answer.load(Relaxed) {
            self.ended = true;
            cx.waker().wake_by_ref();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.connection.reset.load(Relaxed) {
            // A FIN before the RST would let the client see a clean end.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

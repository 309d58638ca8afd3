//! A connection with a write timeout. Errors of the HTTP library itself (a head that is too large
//! or malformed) are sent in the error envelope.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::StatusCode;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep},
};

use crate::api;

/// Bytes that a peer must read within each write timeout; fewer do not count as progress.
const PROGRESS: usize = 16 << 10;
/// Maximum bytes that are read from a refused peer, so that it gets the response before the close.
const DRAINED: usize = 256 << 10;
/// Maximum time of that.
const DRAIN_TIME: Duration = Duration::from_secs(1);

pub(super) struct WriteTimeoutStream {
    stream: TcpStream,
    patience: Duration,
    /// Runs while the peer reads nothing.
    timer: Pin<Box<Sleep>>,
    /// When the peer stopped reading, if it has.
    blocked_since: Option<Instant>,
    /// How long it read nothing since the last progress, and the bytes that it read meanwhile.
    blocked: Duration,
    taken: usize,
    /// The unsent rest of our response that replaces the library's.
    refusal: Vec<u8>,
    /// Whether the last response was an error, so that its request may not be read to its end.
    lingering: bool,
    /// Bytes to read from a refused peer, and the deadline.
    draining: Option<(usize, Pin<Box<Sleep>>)>,
}

impl WriteTimeoutStream {
    pub(super) fn new(stream: TcpStream, patience: Duration) -> Self {
        Self {
            stream,
            patience,
            timer: Box::pin(tokio::time::sleep(patience)),
            blocked_since: None,
            blocked: Duration::ZERO,
            taken: 0,
            refusal: Vec::new(),
            lingering: false,
            draining: None,
        }
    }

    /// Limits how long a write stays pending.
    fn poll_with_deadline(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = written {
            if let Some(since) = self.blocked_since.take() {
                self.blocked += since.elapsed();
            }
            self.taken += written.as_ref().map_or(0, |bytes| *bytes);
            if self.taken >= PROGRESS {
                (self.taken, self.blocked) = (0, Duration::ZERO);
            }
            return Poll::Ready(written);
        }
        if self.blocked_since.is_none() {
            let now = Instant::now();
            self.blocked_since = Some(now);
            let left = self.patience.saturating_sub(self.blocked);
            self.timer.as_mut().reset(now + left);
        }
        ready!(self.timer.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Sends the rest of our refusal.
    fn send_refusal(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.refusal.is_empty() {
            let written = Pin::new(&mut self.stream).poll_write(cx, &self.refusal);
            let written = ready!(self.poll_with_deadline(cx, written))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.refusal.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

/// Returns the status if `head` is the library's own refusal: one of its statuses, without a body
/// and without the request id that all our responses have.
fn own_refusal(head: &[u8]) -> Option<StatusCode> {
    let status = head.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    let status = StatusCode::from_bytes(status).ok()?;
    let status = match status {
        StatusCode::URI_TOO_LONG => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        other => other,
    };
    let known = matches!(status.as_u16(), 400 | 431) && head.ends_with(b"\r\n\r\n");
    let ours = head
        .windows(b"x-request-id:".len())
        .any(|part| part.eq_ignore_ascii_case(b"x-request-id:"));
    (known && !ours).then_some(status)
}

impl AsyncWrite for WriteTimeoutStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = bufs
            && let Some(status) = own_refusal(only)
        {
            self.lingering = true;
            self.refusal = api::raw_error_response(status);
            return Poll::Ready(Ok(only.len()));
        }
        if let Some(status) = bufs
            .first()
            .and_then(|head| head.strip_prefix(b"HTTP/1.1 "))
        {
            self.lingering = matches!(status.first(), Some(b'4' | b'5'));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.poll_with_deadline(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.send_refusal(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.send_refusal(cx))?;
        if this.draining.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        if !this.lingering {
            return Poll::Ready(Ok(()));
        }
        // If closed with unread bytes, the peer would be reset before it reads the refusal.
        let (left, until) = this
            .draining
            .get_or_insert_with(|| (DRAINED, Box::pin(tokio::time::sleep(DRAIN_TIME))));
        let mut space = [0; 8 << 10];
        while *left > 0 && until.as_mut().poll(cx).is_pending() {
            let mut buf = ReadBuf::new(&mut space);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut buf))?;
            match buf.filled().len() {
                0 => break,
                read => *left = left.saturating_sub(read),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for WriteTimeoutStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_librarys_own_refusals_are_replaced() {
        let bare = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\r\n";
        assert_eq!(own_refusal(bare).unwrap(), 431);
        for other in [
            "HTTP/1.1 400 Bad Request\r\nX-Request-Id: a\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\n\r\n",
            "event: delta\r\n\r\n",
        ] {
            assert_eq!(own_refusal(other.as_bytes()), None, "{other}");
        }
    }
}

//! Server-sent events of an upstream, within limits.
//!
//! `sse_stream` decodes the lines. This module adds idle and size limits, our error kinds, and the
//! last event of a body that ends without a blank line, which several servers send and the decoder
//! would drop. The meaning of events, including `[DONE]`, is elsewhere. Source: WHATWG HTML,
//! section 9.2.

use std::{pin::Pin, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use sse_stream::{Error, Sse, SseByteStream};
use tokio::{sync::Semaphore, task::yield_now, time::timeout};

use super::{ProviderError, ProviderErrorKind};
use crate::memory::{self, Reservation};

/// An event with data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The `event:` field.
    pub name: Option<String>,
    /// The `data:` lines, joined by `\n`.
    pub data: String,
}

/// Maximum bytes of one event, unless its format has larger events. Compatible servers that send a
/// whole answer at once have the largest.
pub const EVENT_CAP: usize = 1 << 20;

/// Bytes of events after which this task yields: a provider that sends faster than events are
/// parsed would otherwise occupy a thread for the whole stream.
const YIELD_BYTES: usize = 32 << 10;

/// Limits how many streams continue in one round of the scheduler. Hundreds of fast ones would
/// otherwise run between any two steps of every other request.
static TURNS: Semaphore = Semaphore::const_new(4);

/// Counts the bytes since the last blank line, which ends an event.
#[derive(Debug, Default)]
struct EventLength {
    bytes: usize,
    line: usize,
    /// Whether the last byte was a carriage return: a line feed after it belongs to the same line
    /// end.
    after_return: bool,
}

impl EventLength {
    /// Returns the largest count within this chunk.
    fn add(&mut self, chunk: &[u8]) -> usize {
        let mut largest = 0;
        let mut rest = chunk;
        while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (line, after) = rest.split_at(at);
            let is_feed = after.first() == Some(&b'\n');
            rest = after.get(1..).unwrap_or_default();
            self.bytes += at + 1;
            self.line += line.len();
            largest = largest.max(self.bytes);
            let is_second_half = is_feed && self.after_return && at == 0;
            self.after_return = !is_feed;
            if is_second_half {
                continue;
            }
            if self.line == 0 {
                self.bytes = 0;
            }
            self.line = 0;
        }
        self.bytes += rest.len();
        self.line += rest.len();
        self.after_return &= rest.is_empty();
        largest.max(self.bytes)
    }
}

/// Chunks of a fast body in memory: one is parsed, one waits, and one is being read.
const CHUNKS: usize = 3;

/// Reserves memory for the largest chunks, to whose size the connection's buffer grows for good.
#[derive(Debug)]
struct Buffer {
    bytes: usize,
    reserved: Option<Reservation>,
}

impl Buffer {
    fn hold(&mut self, chunk: &Bytes) {
        let more = chunk.len().saturating_sub(self.bytes);
        if let Some(reserved) = self.reserved.as_ref().filter(|_| more > 0) {
            reserved.add(CHUNKS * more);
        }
        self.bytes += more;
    }
}

pub struct Events {
    inner: Pin<Box<dyn Stream<Item = Result<Sse, Error>> + Send>>,
    /// Bytes of events since the last yield.
    since_yield: usize,
}

impl Events {
    /// Decodes `bytes`. A gap longer than `idle` between two chunks is a timeout; comments count,
    /// so a server can keep a slow response alive. Fails on a body of more than `cap` bytes or an
    /// event of more than `event_cap`.
    pub fn new<S>(bytes: S, idle: Duration, cap: usize, event_cap: usize) -> Self
    where
        S: Stream<Item = Result<Bytes, ProviderError>> + Send + 'static,
    {
        let buffer = Buffer {
            bytes: 0,
            reserved: memory::reservation(),
        };
        let state = Some((Box::pin(bytes), 0_usize, EventLength::default(), buffer));
        let bounded = stream::try_unfold(state, move |state| async move {
            let Some((mut bytes, seen, mut event, mut buffer)) = state else {
                return Ok(None);
            };
            let silent = |_| ProviderError::new(ProviderErrorKind::Timeout, "stream fell silent");
            let next = timeout(idle, bytes.next()).await.map_err(silent)?;
            let Some(chunk) = next.transpose()? else {
                // Only after a clean end: completes an event that has no blank line.
                return Ok(Some((Bytes::from_static(b"\n\n"), None)));
            };
            let seen = seen.saturating_add(chunk.len());
            buffer.hold(&chunk);
            if seen > cap {
                return Err(ProviderError::over_limit("stream over the cap"));
            }
            if event.add(&chunk) > event_cap {
                return Err(ProviderError::over_limit("event over the cap"));
            }
            Ok(Some((chunk, Some((bytes, seen, event, buffer)))))
        });
        Self {
            inner: Box::pin(SseByteStream::new(Box::pin(bounded))),
            since_yield: 0,
        }
    }

    /// Returns the next event with data, or `None` at the end of the body. Skips blocks without
    /// data (an id, a retry time, a keep-alive).
    pub async fn next(&mut self) -> Result<Option<Event>, ProviderError> {
        while let Some(block) = self.inner.next().await {
            let block = block.map_err(convert)?;
            if let Some(data) = block.data.filter(|data| !data.is_empty()) {
                self.since_yield += data.len();
                if self.since_yield > YIELD_BYTES {
                    self.since_yield = 0;
                    let _turn = TURNS.acquire().await;
                    yield_now().await;
                }
                return Ok(Some(Event {
                    name: block.event,
                    data,
                }));
            }
        }
        Ok(None)
    }
}

fn convert(error: Error) -> ProviderError {
    match error {
        Error::Body(source) => match source.downcast::<ProviderError>() {
            Ok(error) => *error,
            Err(_) => ProviderError::failed("stream broke"),
        },
        _ => ProviderError::failed("stream is not UTF-8"),
    }
}

#[cfg(test)]
mod tests;

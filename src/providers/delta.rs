//! Forwards a streamed answer to the caller and records what was delivered.

mod unread;

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::TextAnswer;
use crate::domain::{
    conversation::{Delta, Visibility},
    lock::lock,
    usage::TokenCounts,
};
pub use unread::Deltas;
use unread::Unread;

/// Receives the pieces of a streamed answer. Never waits, because a slow client must not stall paid
/// work. Unread pieces are kept up to a limit; the rest is sent at the end.
#[derive(Debug)]
pub struct DeltaSink {
    channel: UnboundedSender<Delta>,
    unread: Arc<Unread>,
    visibility: Visibility,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The pieces that were sent to the caller, and the provider's counts so far.
    delivered: TextAnswer,
    first_at: Option<Instant>,
    caller_gone: bool,
    /// Whether a cancel ended the delivery.
    is_closed: bool,
}

impl State {
    /// Whether the caller received any content. The marker of a choice is not content.
    fn has_delivered(&self) -> bool {
        let mut parts = self.delivered.parts.iter();
        parts.any(|part| !part.is_marker())
    }
}

impl DeltaSink {
    /// Creates a sink and its receiver. `visibility`: the pieces that are sent to the caller.
    pub fn channel(visibility: Visibility) -> (Self, Deltas) {
        let (channel, receiver) = unbounded_channel();
        let unread = Arc::<Unread>::default();
        let deltas = Deltas::new(receiver, Arc::clone(&unread), visibility);
        let sink = Self {
            channel,
            unread,
            visibility,
            state: Mutex::default(),
        };
        (sink, deltas)
    }

    /// Returns a new sink for the same channel, with no pieces recorded.
    #[must_use]
    pub fn another(&self) -> Self {
        Self {
            channel: self.channel.clone(),
            unread: Arc::clone(&self.unread),
            visibility: self.visibility,
            state: Mutex::default(),
        }
    }

    /// Forwards a piece unless the sink is closed. A disconnected caller does not stop the work.
    pub fn push(&self, piece: Delta) {
        let mut state = self.state();
        if state.first_at.is_none() {
            state.first_at = Some(Instant::now());
            *lock(&self.unread.counts) = Some(state.delivered.usage);
        }
        if state.is_closed {
            return;
        }
        let bytes = piece.bytes();
        let is_open = if self.unread.add(&piece) {
            self.channel.send(piece.clone()).is_ok()
        } else {
            // The caller gets the piece at the end.
            !self.channel.is_closed()
        };
        if !is_open {
            state.caller_gone = true;
        } else if piece.is_marker() || bytes > 0 && self.visibility.shows(&piece) {
            state.delivered.usage.uncounted_bytes += bytes;
            piece.add_to(&mut state.delivered.parts);
        }
    }

    /// Ends the delivery if anything was delivered. Returns whether it did.
    pub fn close(&self) -> bool {
        let mut state = self.state();
        state.is_closed = state.has_delivered();
        state.is_closed
    }

    pub fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Records the request id and the provider's counts, which cover every piece so far. Does
    /// nothing once the caller has disconnected: the counts would include undelivered pieces.
    pub fn note(&self, usage: Option<TokenCounts>, request_id: Option<&String>) {
        let mut state = self.state();
        if state.caller_gone {
            return;
        }
        let delivered = &mut state.delivered;
        if delivered.request_id.is_none() {
            delivered.request_id = request_id.cloned();
        }
        let Some(usage) = usage else { return };
        let before = delivered.usage;
        delivered.usage = match usage.output {
            // Some providers report 0 before the first piece.
            None | Some(0) => TokenCounts {
                output: before.output,
                uncounted_bytes: before.uncounted_bytes,
                ..usage
            },
            Some(_) => usage,
        };
    }

    pub fn has_delivered(&self) -> bool {
        self.state().has_delivered()
    }

    /// Returns the delivered pieces with the counts so far; `None` if there are none.
    pub fn delivered(&self) -> Option<TextAnswer> {
        let state = self.state();
        state.has_delivered().then(|| state.delivered.clone())
    }

    /// Returns the time of the first piece.
    pub fn first_at(&self) -> Option<Instant> {
        self.state().first_at
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::generation::Surface;

    fn text(text: &str) -> Delta {
        Delta::Text(text.to_owned())
    }

    fn counts(input: u64, output: Option<u64>) -> TokenCounts {
        TokenCounts {
            input: Some(input),
            output,
            ..TokenCounts::default()
        }
    }

    #[test]
    fn counts_hold_for_the_pieces_before_them() {
        let (sink, _receiver) = DeltaSink::channel(Visibility::TEXT);
        assert_eq!(sink.delivered(), None);
        sink.note(Some(counts(7, Some(0))), None);
        sink.push(text("Hello"));
        let uncounted = TokenCounts {
            uncounted_bytes: 5,
            ..counts(7, None)
        };
        assert_eq!(sink.delivered().unwrap().usage, uncounted);
        sink.note(Some(counts(7, Some(3))), Some(&"id".to_owned()));
        sink.push(text(" you"));
        // A later report without an output count keeps the earlier one.
        sink.note(Some(counts(8, None)), None);
        let delivered = sink.delivered().unwrap();
        let uncounted = TokenCounts {
            uncounted_bytes: 4,
            ..counts(8, Some(3))
        };
        assert_eq!(delivered.usage, uncounted);
        assert_eq!(delivered.text(), "Hello you");
        assert_eq!(delivered.request_id.as_deref(), Some("id"));
    }

    #[test]
    fn only_visible_pieces_count_as_delivered() {
        let pieces = [
            Delta::Thinking("hm".to_owned()),
            Delta::Signature("sig".to_owned()),
            Delta::Redacted("data".to_owned()),
        ];
        for (surface, bytes) in [
            (Surface::Generate, 0),
            (Surface::OpenAiChat, 0),
            (Surface::OpenAiResponses, 2),
            (Surface::AnthropicMessages, 9),
        ] {
            let (sink, mut receiver) = DeltaSink::channel(Visibility::of(surface));
            for piece in pieces.clone() {
                sink.push(piece.clone());
                assert_eq!(receiver.try_recv().unwrap(), piece, "{surface}");
            }
            let delivered = sink.delivered();
            assert_eq!(sink.has_delivered(), bytes > 0, "{surface}");
            let counted = delivered.map_or(0, |answer| answer.usage.uncounted_bytes);
            assert_eq!(counted, bytes, "{surface}");
        }
    }

    #[test]
    fn a_closed_sink_delivers_nothing_but_takes_counts() {
        let (sink, mut receiver) = DeltaSink::channel(Visibility::TEXT);
        assert!(!sink.close());
        sink.push(text("Hello"));
        assert!(sink.close() && sink.is_closed());
        sink.push(text(" there"));
        sink.note(Some(counts(7, Some(90))), None);
        assert_eq!(receiver.try_recv().unwrap(), text("Hello"));
        assert!(receiver.try_recv().is_none());
        let delivered = sink.delivered().unwrap();
        assert_eq!(delivered.text(), "Hello");
        assert_eq!(delivered.usage, counts(7, Some(90)));
    }

    #[test]
    fn what_nobody_gets_is_neither_kept_nor_counted() {
        let (sink, receiver) = DeltaSink::channel(Visibility::TEXT);
        sink.push(text("Hello"));
        drop(receiver);
        // Delivered pieces still count.
        sink.note(Some(counts(7, Some(2))), None);
        sink.push(text(" there"));
        sink.note(Some(counts(7, Some(90))), None);
        let delivered = sink.delivered().unwrap();
        assert_eq!(delivered.text(), "Hello");
        assert_eq!(delivered.usage, counts(7, Some(2)));
    }
}

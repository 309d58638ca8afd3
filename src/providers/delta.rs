//! Forwarding a streamed answer to the client, and recording what was delivered, which is what a
//! cancelled generation is charged for.

mod unread;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::TextAnswer;
use crate::domain::{
    conversation::{Delta, Part},
    usage::TokenCounts,
};
pub use unread::Deltas;
use unread::Unread;

/// Receives the pieces of a streamed answer. It never waits: a slow client must not stall paid
/// work. Of what a client has not read a bounded part is kept; the rest is sent at the end.
#[derive(Debug)]
pub struct DeltaSink {
    channel: UnboundedSender<Delta>,
    unread: Arc<Unread>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What the caller has got, and what the provider had counted by then.
    delivered: TextAnswer,
    first_at: Option<Instant>,
    /// The caller has disconnected, or is so slow that it gets the rest at the end.
    caller_gone: bool,
}

impl DeltaSink {
    pub fn channel() -> (Self, Deltas) {
        let (channel, receiver) = unbounded_channel();
        let unread = Arc::<Unread>::default();
        let deltas = Deltas::new(receiver, Arc::clone(&unread));
        let state = Mutex::default();
        let sink = Self {
            channel,
            unread,
            state,
        };
        (sink, deltas)
    }

    /// One for the same channel, which nothing has passed through.
    #[must_use]
    pub fn another(&self) -> Self {
        Self {
            channel: self.channel.clone(),
            unread: Arc::clone(&self.unread),
            state: Mutex::default(),
        }
    }

    /// Forwards a piece. A client that disconnects does not stop a generation that
    /// is paid for.
    pub fn push(&self, piece: Delta) {
        let mut state = self.state();
        state.first_at.get_or_insert_with(Instant::now);
        if self.unread.add(&piece) && self.channel.send(piece.clone()).is_ok() {
            state.delivered.usage.uncounted_bytes += piece.bytes();
            piece.add_to(&mut state.delivered.parts);
        } else {
            state.caller_gone = true;
        }
    }

    /// Records the provider's counts, which cover every piece so far, and its request id. Ignored
    /// once the client has disconnected: the counts would include pieces that it did not get.
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
            // Some providers report 0 before the first piece, which is not a count.
            None | Some(0) => TokenCounts {
                output: before.output,
                uncounted_bytes: before.uncounted_bytes,
                ..usage
            },
            Some(_) => usage,
        };
    }

    /// What was delivered; `None` when no text and no call was: not every caller is shown thinking.
    pub fn delivered(&self) -> Option<TextAnswer> {
        let state = self.state();
        let shown = |part: &Part| matches!(part, Part::Text { .. } | Part::ToolCall(_));
        let delivered = &state.delivered;
        delivered.parts.iter().any(shown).then(|| delivered.clone())
    }

    /// When the first piece came.
    pub fn first_at(&self) -> Option<Instant> {
        self.state().first_at
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let (sink, _receiver) = DeltaSink::channel();
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
    fn what_nobody_gets_is_neither_kept_nor_counted() {
        let (sink, receiver) = DeltaSink::channel();
        sink.push(text("Hello"));
        drop(receiver);
        // Still counts what was delivered.
        sink.note(Some(counts(7, Some(2))), None);
        sink.push(text(" there"));
        sink.note(Some(counts(7, Some(90))), None);
        let delivered = sink.delivered().unwrap();
        assert_eq!(delivered.text(), "Hello");
        assert_eq!(delivered.usage, counts(7, Some(2)));
    }
}

//! Buffers the pieces of a stream that its client has not read.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::{
    domain::{
        conversation::{Delta, Part, ReasoningField, Visibility, choices},
        lock::lock,
        usage::TokenCounts,
    },
    memory::{self, Reservation},
};

/// Maximum bytes of one stream, some 60,000 tokens.
const MAX_UNREAD: usize = 256 << 10;
/// Memory of a piece in addition to its text, in bytes.
const PIECE_BYTES: usize = 96;

/// Counts the pieces in a channel.
#[derive(Debug)]
pub struct Unread {
    bytes: AtomicUsize,
    /// Whether a piece was dropped; all later pieces are dropped too.
    has_overflowed: AtomicBool,
    /// The provider's counts before the first piece.
    pub counts: Mutex<Option<TokenCounts>>,
    reserved: Option<Reservation>,
}

impl Default for Unread {
    fn default() -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            has_overflowed: AtomicBool::new(false),
            counts: Mutex::default(),
            reserved: memory::reservation(),
        }
    }
}

fn size(piece: &Delta) -> usize {
    piece.bytes() + PIECE_BYTES
}

impl Unread {
    /// Reserves room for a piece. Returns `false` if it must be dropped. Only the provider's task
    /// adds pieces.
    pub fn add(&self, piece: &Delta) -> bool {
        if self.has_overflowed.load(Ordering::Acquire) {
            return false;
        }
        let size = size(piece);
        let reserved = self.reserved.as_ref();
        let is_kept = self.bytes.load(Ordering::Acquire) + size <= MAX_UNREAD
            && reserved.is_none_or(|reserved| reserved.try_add_to_started(size));
        if is_kept {
            self.bytes.fetch_add(size, Ordering::AcqRel);
        } else {
            self.has_overflowed.store(true, Ordering::Release);
        }
        is_kept
    }

    fn remove(&self, piece: &Delta) {
        let size = size(piece);
        self.bytes.fetch_sub(size, Ordering::AcqRel);
        if let Some(reserved) = &self.reserved {
            reserved.remove(size);
        }
    }
}

/// The pieces of a streamed answer, read by its client.
#[derive(Debug)]
pub struct Deltas {
    receiver: UnboundedReceiver<Delta>,
    unread: Arc<Unread>,
    visibility: Visibility,
    /// How much was read.
    read: Progress,
    /// The part of it that is sent to the caller.
    visible: Progress,
}

impl Deltas {
    pub(super) fn new(
        receiver: UnboundedReceiver<Delta>,
        unread: Arc<Unread>,
        visibility: Visibility,
    ) -> Self {
        Self {
            receiver,
            unread,
            visibility,
            read: Progress::default(),
            visible: Progress::default(),
        }
    }

    /// Creates pieces for an answer that is known only at its end.
    pub fn at_end() -> Self {
        let (_, receiver) = unbounded_channel();
        let unread = Unread {
            has_overflowed: AtomicBool::new(true),
            ..Unread::default()
        };
        Self::new(receiver, Arc::new(unread), Visibility::TEXT)
    }

    /// Returns the provider's counts before the first piece.
    pub fn counts(&self) -> Option<TokenCounts> {
        *lock(&self.unread.counts)
    }

    /// Returns the next piece; `None` after the last one that was kept.
    pub async fn recv(&mut self) -> Option<Delta> {
        let piece = self.receiver.recv().await?;
        self.note(&piece);
        Some(piece)
    }

    pub fn try_recv(&mut self) -> Option<Delta> {
        let piece = self.receiver.try_recv().ok()?;
        self.note(&piece);
        Some(piece)
    }

    fn note(&mut self, piece: &Delta) {
        self.unread.remove(piece);
        self.read.add(piece);
        if piece.choice().is_some() || self.visibility.shows(piece) {
            self.visible.add(piece);
        }
    }

    /// Returns the pieces of the answer that were dropped.
    pub fn rest(&self, answer: &[Part]) -> Vec<Delta> {
        if !self.unread.has_overflowed.load(Ordering::Acquire) {
            return Vec::new();
        }
        let is_hidden = |piece: &Delta| piece.bytes() > 0 && !self.visibility.shows(piece);
        let mut pieces = answer.iter().cloned().flat_map(Delta::of);
        // An answer that was cut short has only the pieces that are sent to the caller.
        if pieces.any(|piece| is_hidden(&piece)) {
            self.read.rest(answer)
        } else {
            self.visible.rest(answer)
        }
    }

    /// As [`Self::rest`], for a client that gets only texts.
    pub fn rest_of_text<'a>(&self, text: &'a str) -> Option<&'a str> {
        let is_complete = !self.unread.has_overflowed.load(Ordering::Acquire);
        let rest = text.get(self.read.all_text()..).filter(|_| !is_complete);
        rest.filter(|rest| !rest.is_empty())
    }

    /// Reserves memory for the end of the stream until this is dropped. Small ends need none.
    pub fn reserve(&self, bytes: usize) -> bool {
        let reserved = self.unread.reserved.as_ref();
        bytes <= MAX_UNREAD || reserved.is_none_or(|reserved| reserved.try_add_to_started(bytes))
    }
}

/// Position in each choice.
#[derive(Debug, Default)]
struct Progress {
    choices: BTreeMap<u32, Read>,
    /// The choice of the last piece.
    current: u32,
}

impl Progress {
    fn add(&mut self, piece: &Delta) {
        match piece.choice() {
            Some(choice) => self.current = choice.index,
            None => self.choices.entry(self.current).or_default().add(piece),
        }
    }

    /// Returns the bytes of all texts of an answer with one choice.
    fn all_text(&self) -> usize {
        self.choices.get(&0).map_or(0, |read| read.all_text)
    }

    fn rest(&self, answer: &[Part]) -> Vec<Delta> {
        let is_marked = answer.iter().any(|part| part.choice().is_some());
        let unread = Read::default();
        let rest = choices(answer).into_iter().flat_map(|(choice, parts)| {
            let rest = self.choices.get(&choice.index).unwrap_or(&unread);
            let rest = rest.rest(parts);
            let marker = (is_marked && !rest.is_empty()).then(|| Delta::from(choice));
            marker.into_iter().chain(rest)
        });
        rest.collect()
    }
}

/// Position in a choice, counted in the parts that [`Delta::add_to`] makes of the pieces.
#[derive(Debug, Default)]
struct Read {
    /// Bytes of all texts.
    all_text: usize,
    parts: usize,
    /// Kind of the last part.
    kind: Kind,
    text: usize,
    signature: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Reasoning(ReasoningField),
    Call,
    #[default]
    Other,
}

impl Read {
    fn add(&mut self, piece: &Delta) {
        match piece {
            Delta::Text(text) => {
                self.enter(Kind::Text, self.kind == Kind::Text);
                self.text += stored_length(text);
                self.all_text += stored_length(text);
            }
            Delta::Thinking(text) => {
                let is_open = self.kind == Kind::Thinking && self.signature == 0;
                self.enter(Kind::Thinking, is_open);
                self.text += stored_length(text);
            }
            Delta::Reasoning(field, text) => {
                let is_open = self.kind == Kind::Reasoning(*field);
                self.enter(Kind::Reasoning(*field), is_open);
                self.text += stored_length(text);
            }
            Delta::Signature(signature) => {
                self.enter(Kind::Thinking, self.kind == Kind::Thinking);
                self.signature += stored_length(signature);
            }
            Delta::ToolCall(call) => {
                self.enter(Kind::Call, false);
                self.text += stored_length(&call.arguments);
            }
            Delta::Arguments(text) => self.text += stored_length(text),
            Delta::Redacted(_) | Delta::Opaque(_) => self.enter(Kind::Other, false),
        }
    }

    fn enter(&mut self, kind: Kind, continues: bool) {
        if !continues {
            *self = Self {
                parts: self.parts + 1,
                kind,
                all_text: self.all_text,
                ..Self::default()
            };
        }
    }

    fn rest(&self, answer: &[Part]) -> Vec<Delta> {
        let after = |text: &str, read: usize| text.get(read..).unwrap_or_default().to_owned();
        let last = self.parts.checked_sub(1).and_then(|at| answer.get(at));
        let open = last.cloned().into_iter().flat_map(Delta::of);
        let open = open.filter_map(|piece| match piece {
            Delta::Text(text) => Some(Delta::Text(after(&text, self.text))),
            Delta::Thinking(text) => Some(Delta::Thinking(after(&text, self.text))),
            Delta::Reasoning(field, text) => Some(Delta::Reasoning(field, after(&text, self.text))),
            Delta::Signature(text) => Some(Delta::Signature(after(&text, self.signature))),
            Delta::ToolCall(call) => Some(Delta::Arguments(after(&call.arguments, self.text))),
            Delta::Arguments(_) | Delta::Redacted(_) | Delta::Opaque(_) => None,
        });
        let closed = answer.get(self.parts..).unwrap_or_default();
        let closed = closed.iter().cloned().flat_map(Delta::of);
        let open = open.filter(|piece| piece.bytes() > 0);
        open.chain(closed).collect()
    }
}

/// Bytes of a text in the record, which has U+FFFD for U+0000.
fn stored_length(text: &str) -> usize {
    text.len() + 2 * text.bytes().filter(|byte| *byte == 0).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{domain::conversation::ToolCall, providers::DeltaSink};

    /// No server sends both a reasoning field and signatures.
    fn pieces() -> impl Strategy<Value = Vec<Delta>> {
        let of = |has_signatures| prop::collection::vec(piece(has_signatures), 0..20);
        any::<bool>().prop_flat_map(of)
    }

    fn piece(has_signatures: bool) -> impl Strategy<Value = Delta> {
        let text = "[a-cé]{1,4}";
        let thinking = move |text| {
            if has_signatures {
                Delta::Thinking(text)
            } else {
                Delta::Reasoning(ReasoningField::Reasoning, text)
            }
        };
        prop_oneof![
            4 => text.prop_map(Delta::Text),
            2 => text.prop_map(thinking),
            u32::from(has_signatures) => text.prop_map(Delta::Signature),
            1 => text.prop_map(Delta::Redacted),
            1 => text.prop_map(|id| Delta::ToolCall(ToolCall { id, ..ToolCall::default() })),
        ]
    }

    proptest! {
        #[test]
        fn the_rest_follows_what_was_read(
            pieces in pieces(),
            read in 0..20_usize,
        ) {
            let add = |parts: &mut Vec<Part>, pieces: &[Delta]| {
                for piece in pieces {
                    piece.clone().add_to(parts);
                }
            };
            let mut answer = Vec::new();
            add(&mut answer, &pieces);
            let known = &pieces[..read.min(pieces.len())];
            let mut progress = Progress::default();
            for piece in known {
                progress.add(piece);
            }
            let mut again = Vec::new();
            add(&mut again, known);
            add(&mut again, &progress.rest(&answer));
            prop_assert_eq!(again, answer);
        }
    }

    #[tokio::test]
    async fn a_cut_answer_has_its_rest_without_hidden_pieces() {
        let (sink, mut deltas) = DeltaSink::channel(Visibility::TEXT);
        sink.push(Delta::Text("a".to_owned()));
        sink.push(Delta::Thinking("hm".to_owned()));
        sink.push(Delta::Text("b".to_owned()));
        sink.push(Delta::Text("c".repeat(MAX_UNREAD)));
        assert!(sink.close());
        for _ in 0..3 {
            assert!(deltas.recv().await.is_some());
        }
        let delivered = sink.delivered().unwrap();
        let rest = [Delta::Text("c".repeat(MAX_UNREAD))];
        assert_eq!(deltas.rest(&delivered.parts), rest);
        assert_eq!(
            deltas.rest_of_text(&delivered.text()).unwrap().len(),
            MAX_UNREAD
        );
    }

    #[tokio::test]
    async fn a_slow_client_gets_the_rest_at_the_end() {
        let (sink, mut deltas) = DeltaSink::channel(Visibility::TEXT);
        let text = "é".repeat(1_000);
        let mut answer = Vec::new();
        for _ in 0..1_000 {
            let piece = Delta::Text(text.clone());
            piece.clone().add_to(&mut answer);
            sink.push(piece);
        }
        assert_eq!(sink.delivered().unwrap().parts, answer);
        drop(sink);
        let mut read = Vec::new();
        while let Some(piece) = deltas.recv().await {
            piece.add_to(&mut read);
        }
        let rest = deltas.rest(&answer);
        assert!(!rest.is_empty());
        for piece in rest {
            piece.add_to(&mut read);
        }
        assert_eq!(read, answer);
        assert_eq!(Deltas::at_end().rest(&answer).len(), 1);
    }
}

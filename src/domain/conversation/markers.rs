//! Markers: opaque parts that say something of the parts around them, so that answers with and without
//! them are stored and passed on in the same way.
//!
//! The marker of a choice is before its parts, in an answer to a chat that asked for several (`n`).
//! That of a phase (`commentary` or `final_answer`) is before the text of a message of the Responses
//! API, to whose callers alone it is sent; the next turn sends it back. That of members is after the
//! parts of a message of Chat Completions, and has members that only this API has.

use serde_json::{Map, Value, json};

use super::{Delta, Part, Stop};

const CHOICE: &str = "gensvc.choice";
const PHASE: &str = "gensvc.phase";
const MEMBERS: &str = "gensvc.members";

/// The marker before the parts of a choice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    pub index: u32,
    /// `finish_reason` of Chat Completions; `None` until the choice has ended.
    pub finish_reason: Option<String>,
}

impl Stop {
    /// Returns the `finish_reason` of Chat Completions. An answer that its provider broke off gets
    /// the reason of the limit: no SDK has a reason for it, and it must not look complete.
    pub const fn chat_reason(&self) -> &'static str {
        match self {
            Self::Limit | Self::MalformedFunctionCall | Self::Other => "length",
            Self::Tools => "tool_calls",
            Self::ContentFilter => "content_filter",
            _ => "stop",
        }
    }

    /// Corrects the stop of an answer or choice with calls, which always ends for tools.
    #[must_use]
    pub fn corrected(self, has_calls: bool) -> Self {
        match (self, has_calls) {
            (Self::Done, true) => Self::Tools,
            (Self::Tools, false) => Self::Done,
            (stop, _) => stop,
        }
    }
}

impl Choice {
    pub(super) fn from_block(block: &Value) -> Option<Self> {
        (block["type"] == CHOICE).then(|| Self {
            index: block["index"]
                .as_u64()
                .and_then(|index| index.try_into().ok())
                .unwrap_or_default(),
            finish_reason: block["finish_reason"].as_str().map(str::to_owned),
        })
    }

    fn block(&self) -> Value {
        json!({"type": CHOICE, "index": self.index, "finish_reason": self.finish_reason})
    }
}

impl From<Choice> for Delta {
    fn from(choice: Choice) -> Self {
        Self::Opaque(choice.block())
    }
}

fn phase_of(block: &Value) -> Option<&str> {
    block["phase"].as_str().filter(|_| block["type"] == PHASE)
}

fn members_of(block: &Value) -> Option<&Map<String, Value>> {
    let members = block["members"].as_object();
    members.filter(|_| block["type"] == MEMBERS)
}

fn is_marker(block: &Value) -> bool {
    block["type"] == CHOICE || phase_of(block).is_some() || members_of(block).is_some()
}

/// Adds the methods for markers to a type, whose opaque blocks match a pattern.
macro_rules! markers {
    ($type:ty, $opaque:pat => $block:ident) => {
        impl $type {
            /// Returns a block that only the vendor's dialect has.
            pub(super) fn block(&self) -> Option<&Value> {
                match self {
                    $opaque => Some($block),
                    _ => None,
                }
            }

            /// Returns the choice of what follows, if this is its marker.
            pub fn choice(&self) -> Option<Choice> {
                self.block().and_then(Choice::from_block)
            }

            /// Returns the phase of the text after this, if this is its marker.
            pub fn phase(&self) -> Option<&str> {
                self.block().and_then(phase_of)
            }

            /// The members of the message before this, if this is a marker.
            pub fn members(&self) -> Option<&Map<String, Value>> {
                self.block().and_then(members_of)
            }

            /// Whether this only marks a choice, a phase or members, and is no content.
            pub fn is_marker(&self) -> bool {
                self.block().is_some_and(is_marker)
            }
        }
    };
}

markers!(Delta, Self::Opaque(block) => block);
markers!(Part, Self::Opaque { block } => block);

impl Delta {
    pub fn from_phase(phase: &str) -> Self {
        Self::Opaque(json!({"type": PHASE, "phase": phase}))
    }

    /// Creates the marker of members of a message.
    pub fn from_members(members: &Map<String, Value>) -> Self {
        Self::Opaque(json!({"type": MEMBERS, "members": members}))
    }
}

/// Adds a marker. The parts of its choice move to the end, where the next pieces are added.
pub(super) fn enter(parts: &mut Vec<Part>, block: Value) {
    let index = block["index"].clone();
    let is_same = |part: &Part| {
        part.choice()
            .is_some_and(|choice| json!(choice.index) == index)
    };
    let Some(start) = parts.iter().position(is_same) else {
        parts.push(Part::Opaque { block });
        return;
    };
    let end = parts.iter().skip(start + 1);
    let end = end.take_while(|part| part.choice().is_none()).count() + 1;
    if let Some(rest) = parts.get_mut(start..) {
        rest.rotate_left(end);
    }
}

/// Returns the choices by index, without their markers. An answer without markers is one choice.
pub fn choices(parts: &[Part]) -> Vec<(Choice, &[Part])> {
    let mut found: Vec<(Choice, &[Part])> = Vec::new();
    let mut rest = parts;
    while let Some((first, others)) = rest.split_first() {
        let (choice, from) = match first.choice() {
            Some(choice) => (choice, others),
            None => (Choice::default(), rest),
        };
        let length = from.iter().take_while(|part| part.choice().is_none());
        let (own, after) = from.split_at(length.count());
        found.push((choice, own));
        rest = after;
    }
    if found.is_empty() {
        found.push((Choice::default(), parts));
    }
    found.sort_by_key(|(choice, _)| choice.index);
    found
}

/// Returns the parts of these choices, each choice after a marker with its finish reason.
pub fn ended(parts: &[Part], stops: Vec<(u32, Stop)>) -> Vec<Part> {
    let known = choices(parts);
    let choices = stops.into_iter().flat_map(|(index, stop)| {
        let own = known.iter().find(|(choice, _)| choice.index == index);
        let own = own.map_or(&[][..], |(_, parts)| parts);
        let has_calls = own.iter().any(|part| matches!(part, Part::ToolCall(_)));
        let choice = Choice {
            index,
            finish_reason: Some(stop.corrected(has_calls).chat_reason().to_owned()),
        };
        let block = choice.block();
        std::iter::once(Part::Opaque { block }).chain(own.iter().cloned())
    });
    choices.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_pieces_become_whole_choices() {
        let mut parts = Vec::new();
        for (index, text) in [(1, "a"), (0, "b"), (1, "c"), (2, "d"), (0, "e")] {
            let choice = Choice {
                index,
                finish_reason: None,
            };
            Delta::from(choice).add_to(&mut parts);
            Delta::Text(text.to_owned()).add_to(&mut parts);
        }
        let texts = |parts: &[Part]| -> Vec<Part> {
            let found = choices(parts).into_iter();
            found.flat_map(|(_, parts)| parts.to_vec()).collect()
        };
        let expected = ["be", "ac", "d"].map(Part::text);
        assert_eq!(texts(&parts), expected);
        let stops = [Stop::Done, Stop::Limit, Stop::Done, Stop::ContentFilter];
        let parts = ended(&parts, (0..).zip(stops).collect());
        assert_eq!(texts(&parts), expected);
        let reasons = choices(&parts);
        assert_eq!(reasons[1].0.finish_reason.as_deref(), Some("length"));
        assert_eq!((reasons.len(), reasons[3].1), (4, &[][..]));
        let again: Vec<Delta> = parts.iter().cloned().flat_map(Delta::of).collect();
        let mut copied = Vec::new();
        for piece in again {
            piece.add_to(&mut copied);
        }
        assert_eq!(copied, parts);
        let plain = [Part::text("x")];
        assert_eq!(choices(&plain), [(Choice::default(), &plain[..])]);
        assert_eq!(choices(&[]).len(), 1);
    }
}

//! Answers of a model and their pieces.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    Part, Stop, ToolCall,
    markers::{Choice, enter},
};
use crate::domain::{generation::Surface, named::named_enum};

/// A piece of an answer, in order. It belongs to the part that the previous piece began, or begins
/// the next part.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    Text(String),
    Thinking(String),
    /// Thinking of a chat server, which every dialect shows.
    Reasoning(ReasoningField, String),
    /// The signature of the preceding thinking, or of hidden thinking.
    Signature(String),
    Redacted(String),
    /// The beginning of a call, with the arguments known so far.
    ToolCall(ToolCall),
    /// More of the last call's arguments.
    Arguments(String),
    Opaque(Value),
}

/// Which pieces a surface's writer sends to its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visibility {
    pub surface: Surface,
    /// Whether signatures and encrypted thinking are sent.
    pub encrypted: bool,
}

impl Visibility {
    pub const TEXT: Self = Self::of(Surface::Generate);

    /// Returns the visibility of a surface. Responses sends encrypted thinking only on request.
    pub const fn of(surface: Surface) -> Self {
        let encrypted = matches!(surface, Surface::AnthropicMessages);
        Self { surface, encrypted }
    }

    pub fn shows(self, piece: &Delta) -> bool {
        use Surface::{AnthropicMessages, OpenAiChat, OpenAiResponses};

        match piece {
            Delta::Text(_) => true,
            Delta::Opaque(_) if piece.members().is_some() => self.surface == OpenAiChat,
            Delta::ToolCall(_) | Delta::Arguments(_) | Delta::Reasoning(..) => {
                matches!(
                    self.surface,
                    OpenAiChat | OpenAiResponses | AnthropicMessages
                )
            }
            Delta::Thinking(_) | Delta::Opaque(_) => {
                matches!(self.surface, OpenAiResponses | AnthropicMessages)
            }
            Delta::Signature(_) | Delta::Redacted(_) => self.encrypted,
        }
    }
}

named_enum!(
    /// The field in which a chat server reports its thinking. Chat callers get the same field, so
    /// that the next turn sends it back unchanged. Source: vendors' SDKs (`reasoning_content`:
    /// `DeepSeek`, Kimi, Qwen, GLM, `SGLang`; `reasoning`: `OpenRouter`, Groq, Together, Cerebras,
    /// Ollama, `vLLM`).
    ReasoningField {
        ReasoningContent = "reasoning_content",
        Reasoning = "reasoning",
    }
);

impl ReasoningField {
    /// Returns the signature of such thinking. It stores the field and marks the thinking as a chat
    /// server's, which no other vendor accepts.
    pub const fn signature(self) -> &'static str {
        match self {
            Self::ReasoningContent => "chat:reasoning_content",
            Self::Reasoning => "chat:reasoning",
        }
    }

    pub fn from_signature(signature: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|field| field.signature() == signature)
    }
}

/// The parts of an answer that its text lacks, needed to return the answer again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// Absent if the text is the whole answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Vec<Part>>,
    pub stop: Stop,
    /// Members of the vendor's answer that only its dialect has. Servers of the previous release
    /// ignore them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub own: Map<String, Value>,
}

impl Delta {
    /// Returns the UTF-8 bytes of its strings.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text)
            | Self::Thinking(text)
            | Self::Reasoning(_, text)
            | Self::Signature(text)
            | Self::Redacted(text)
            | Self::Arguments(text) => text.len(),
            Self::ToolCall(call) => call.bytes(),
            Self::Opaque(_) if self.is_marker() => 0,
            Self::Opaque(block) => block.to_string().len(),
        }
    }

    /// Splits a complete part into pieces.
    pub fn of(part: Part) -> Vec<Self> {
        match part {
            Part::Text { text } => vec![Self::Text(text)],
            Part::Thinking { text, signature } => {
                match ReasoningField::from_signature(&signature) {
                    Some(field) => vec![Self::Reasoning(field, text)],
                    None => vec![Self::Thinking(text), Self::Signature(signature)],
                }
            }
            Part::Redacted { data } => vec![Self::Redacted(data)],
            Part::ToolCall(call) => vec![Self::ToolCall(call)],
            // Answers have no such parts.
            Part::ToolResult(_) | Part::Image(_) | Part::Document(_) => Vec::new(),
            Part::Opaque { block } => vec![Self::Opaque(block)],
        }
    }

    /// Appends the piece to the parts.
    pub fn add_to(self, parts: &mut Vec<Part>) {
        match (self, parts.last_mut()) {
            (Self::Text(piece), Some(Part::Text { text }))
            | (
                Self::Arguments(piece),
                Some(Part::ToolCall(ToolCall {
                    arguments: text, ..
                })),
            ) => {
                text.push_str(&piece);
            }
            (Self::Reasoning(field, piece), Some(Part::Thinking { text, signature }))
                if signature == field.signature() =>
            {
                text.push_str(&piece);
            }
            // Signed thinking is complete.
            (Self::Thinking(piece), Some(Part::Thinking { text, signature }))
                if signature.is_empty() =>
            {
                text.push_str(&piece);
            }
            (Self::Signature(piece), Some(Part::Thinking { signature, .. })) => {
                signature.push_str(&piece);
            }
            (Self::Text(text), _) => parts.push(Part::Text { text }),
            (Self::Thinking(text), _) => parts.push(Part::thinking(text, "")),
            (Self::Reasoning(field, text), _) => {
                parts.push(Part::thinking(text, field.signature()));
            }
            (Self::Signature(signature), _) => parts.push(Part::thinking("", signature)),
            (Self::Redacted(data), _) => parts.push(Part::Redacted { data }),
            (Self::ToolCall(call), _) => parts.push(Part::ToolCall(call)),
            // Arguments without a call are dropped.
            (Self::Arguments(_), _) => {}
            (Self::Opaque(block), _) if Choice::from_block(&block).is_some() => {
                enter(parts, block);
            }
            (Self::Opaque(block), _) => parts.push(Part::Opaque { block }),
        }
    }
}

impl Answered {
    /// Returns the part of an answer that must be stored in addition to its text and its finish
    /// reason; `None` if these and the usage suffice to repeat it.
    pub fn beyond_text(
        parts: &[Part],
        stop: &Stop,
        own: Map<String, Value>,
        at_limit: bool,
    ) -> Option<Self> {
        let stop = match stop {
            Stop::ContentFilter | Stop::MalformedFunctionCall | Stop::Other => {
                &Self::default_stop(at_limit)
            }
            stop => stop,
        };
        let plain = parts.iter().all(|part| matches!(part, Part::Text { .. }));
        let is_default = *stop == Self::default_stop(at_limit);
        (!plain || !is_default || !own.is_empty()).then(|| Self {
            parts: (!plain).then(|| parts.to_vec()),
            stop: stop.clone(),
            own,
        })
    }

    /// Returns the stop of an answer without a stored one. `at_limit`: it has the maximum tokens.
    pub const fn default_stop(at_limit: bool) -> Stop {
        if at_limit { Stop::Limit } else { Stop::Done }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(deltas: &[Delta]) -> Vec<Part> {
        let mut parts = Vec::new();
        for delta in deltas {
            delta.clone().add_to(&mut parts);
        }
        parts
    }

    fn call(id: &str, arguments: &str) -> ToolCall {
        ToolCall {
            id: id.to_owned(),
            name: "f".to_owned(),
            arguments: arguments.to_owned(),
            thought_signature: None,
        }
    }

    #[test]
    fn pieces_become_parts_and_parts_pieces() {
        let text = |text: &str| text.to_owned();
        let deltas = [
            Delta::Thinking(text("a")),
            Delta::Thinking(text("b")),
            Delta::Signature(text("s")),
            Delta::Thinking(text("c")),
            Delta::Reasoning(ReasoningField::Reasoning, text("d")),
            Delta::Reasoning(ReasoningField::Reasoning, text("e")),
            Delta::Reasoning(ReasoningField::ReasoningContent, text("f")),
            Delta::Redacted(text("r")),
            Delta::Text(text("Hi")),
            Delta::Text(text(" you")),
            Delta::ToolCall(call("1", "")),
            Delta::Arguments(text("{\"a\":")),
            Delta::Arguments(text("1}")),
            Delta::ToolCall(call("2", "{}")),
            Delta::Text(text("!")),
        ];
        let thinking = |text: &str, signature: &str| Part::Thinking {
            text: text.to_owned(),
            signature: signature.to_owned(),
        };
        let parts = vec![
            thinking("ab", "s"),
            thinking("c", ""),
            thinking("de", "chat:reasoning"),
            thinking("f", "chat:reasoning_content"),
            Part::Redacted { data: text("r") },
            Part::text("Hi you"),
            Part::ToolCall(call("1", "{\"a\":1}")),
            Part::ToolCall(call("2", "{}")),
            Part::text("!"),
        ];
        assert_eq!(whole(&deltas), parts);
        let again: Vec<Delta> = parts.iter().cloned().flat_map(Delta::of).collect();
        assert_eq!(whole(&again), parts);
        let own = Map::from_iter([("stop_details".to_owned(), Value::from("x"))]);
        let kept = Answered::beyond_text(&parts, &Stop::Tools, own, false).unwrap();
        let json = serde_json::to_value(&kept).unwrap();
        assert_eq!(serde_json::from_value::<Answered>(json).unwrap(), kept);
    }

    #[test]
    fn plain_texts_keep_nothing() {
        let text = [Part::text("Hi")];
        for (stop, at_limit, kept) in [
            (Stop::Done, false, false),
            (Stop::Limit, true, false),
            (Stop::Done, true, true),
            (Stop::Limit, false, true),
            (Stop::Sequence("x".to_owned()), false, true),
        ] {
            let found = Answered::beyond_text(&text, &stop, Map::new(), at_limit);
            assert_eq!(found.is_some(), kept, "{stop:?}");
            assert!(found.is_none_or(|found| found.parts.is_none()));
        }
    }
}

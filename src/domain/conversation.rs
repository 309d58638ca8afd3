//! Requests to text models and their answers, independent of the vendor.
//!
//! Here: messages and their parts. Submodules: images ([`picture`]), documents ([`document`]), tools
//! and the form of the answer ([`tools`]), schemas of arguments ([`schema`]), schemas for
//! vendors that enforce few keywords ([`enforceable`]) or accept only some as strict ([`strict`]),
//! names and ids that a vendor accepts ([`spelling`]), answers, whole and piece by piece
//! ([`answer`]), and searches at the vendor ([`searches`]). Not here: the model and its output limit,
//! which belong to the call.

pub mod answer;
mod base64;
mod document;
mod encrypted;
mod enforceable;
mod json;
mod markers;
mod picture;
mod schema;
mod searches;
mod spelling;
mod strict;
mod tools;

use std::collections::HashMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::named::named_enum;

pub use super::image_header::ImageType;
pub use answer::{Answered, Delta, ReasoningField, Visibility};
pub use document::{Document, DocumentData, DocumentSource, DocumentType};
pub use encrypted::EncryptedReasoning;
pub use enforceable::make_enforceable;
pub use json::{Json, WireObject, WireUrl, WireValue};
pub use markers::{Choice, choices, ended};
pub use picture::{Detail, Image, ImageSource, MAX_IMAGES};
pub use schema::{Parameters, complete_schema, make_references_bare};
pub use searches::searches;
pub use spelling::{ReplacedNames, Spelling};
pub use strict::is_strict;
pub use tools::{Effort, Format, Function, Reasoning, Schema, Thinking, ToolChoice, Tools};

/// Bytes of the longest token of any public tokenizer: 128 spaces.
const LONGEST_TOKEN: usize = 128;
/// Maximum words in one token. Most tokenizers never join two words; this leaves room for those
/// that do.
const WORDS_PER_TOKEN: u64 = 4;
/// Minimum bytes for each token of [`Conversation::least_tokens`]: words of one letter, each with a
/// space.
pub const LEAST_BYTES_PER_TOKEN: u64 = 2 * WORDS_PER_TOKEN;
/// Maximum tokens of a message beyond its text.
const MESSAGE_TOKENS: usize = 8;
/// Maximum tokens of a tool beyond its strings.
const TOOL_TOKENS: usize = 16;
/// Maximum tokens of the hidden instructions that a vendor adds if there are tools (Anthropic's are
/// 290 to 804 by model and `tool_choice`, those of other templates some 200) or a format of the
/// answer. One bound for all suffices: it only counts in a dialogue's first turn, after which the
/// vendor's own count includes them.
pub const TOOLS_TOKENS: usize = 1_000;
const FORMAT_TOKENS: usize = 256;
/// Bytes of the marker of a failed tool's result, for vendors without a field for it.
const ERROR_BYTES: usize = "Error: ".len();
/// Maximum tokens that a vendor's template adds to a document.
const DOCUMENT_TOKENS: usize = 128;

/// Instructions and the messages so far, oldest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// Instructions before the messages.
    pub system: Option<String>,
    pub messages: Vec<Message>,
    pub tools: Tools,
    pub format: Format,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub role: Role,
    /// The content, in order; empty for an empty message.
    pub parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Instructions between the messages; those before the messages are [`Conversation::system`].
    System,
    /// The user, and the results of tools.
    User,
    Assistant,
}

/// A part of a message, or of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    Text {
        text: String,
    },
    /// Thinking. The next turn must send it back unchanged, to the same vendor.
    Thinking {
        text: String,
        /// The vendor's proof that the thinking is its own.
        signature: String,
    },
    /// Thinking that only its vendor can read.
    Redacted {
        data: String,
    },
    Image(Image),
    Document(Document),
    ToolCall(ToolCall),
    ToolResult(ToolResult),
    /// A part that only its vendor's dialect can represent.
    Opaque {
        block: Value,
    },
}

/// A call of a function, requested by the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// JSON text; empty if the model gave none.
    pub arguments: String,
    /// Gemini's signature of the thinking before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thought_signature: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    pub call_id: String,
    /// Texts, images and documents.
    pub parts: Vec<Part>,
    /// Whether the function failed.
    pub is_error: bool,
}

/// Sampling parameters, reasoning and stop sequences. Absent values are the vendor's choice.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sampling {
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    /// The text ends before the first of these sequences.
    pub stop: Vec<String>,
    pub reasoning: Reasoning,
}

named_enum!(
    /// Why a completed text may be incomplete.
    FinishReason {
        /// The caller cancelled it and keeps what was delivered.
        Cancelled = "cancelled",
        /// It reached its output limit, or one of the server's own limits.
        Length = "length",
        /// The provider stopped for its content policy.
        ContentFilter = "content_filter",
        /// The model wrote a tool call that its provider could not read.
        MalformedFunctionCall = "malformed_function_call",
        /// The provider ended it for another reason of its own.
        Other = "other",
    }
);

/// Why a text ended. Stored in [`Answered`], which servers of the previous release read: reasons
/// that they do not know are stored as [`FinishReason`] only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The model was done, or at a stop sequence that the vendor does not report.
    #[default]
    Done,
    /// At the output limit.
    Limit,
    /// At this stop sequence.
    Sequence(String),
    /// To call tools.
    Tools,
    /// The provider paused a long turn (`pause_turn` of Anthropic); sending it back continues it.
    Paused,
    /// The provider ended it early for its content policy.
    #[serde(skip)]
    ContentFilter,
    /// The provider could not read a tool call that the model wrote.
    #[serde(skip)]
    MalformedFunctionCall,
    /// The provider ended it early for another reason.
    #[serde(skip)]
    Other,
}

impl Stop {
    /// Returns the reason in the record; `None` if the answer ended normally.
    pub const fn finish_reason(&self) -> Option<FinishReason> {
        match self {
            Self::Done | Self::Sequence(_) | Self::Tools | Self::Paused => None,
            Self::Limit => Some(FinishReason::Length),
            Self::ContentFilter => Some(FinishReason::ContentFilter),
            Self::MalformedFunctionCall => Some(FinishReason::MalformedFunctionCall),
            Self::Other => Some(FinishReason::Other),
        }
    }

    /// Returns the stop for a record's reason; `None` if that does not say why the answer ended.
    pub const fn from_finish_reason(reason: FinishReason) -> Option<Self> {
        match reason {
            FinishReason::Cancelled => None,
            FinishReason::Length => Some(Self::Limit),
            FinishReason::ContentFilter => Some(Self::ContentFilter),
            FinishReason::MalformedFunctionCall => Some(Self::MalformedFunctionCall),
            FinishReason::Other => Some(Self::Other),
        }
    }
}

impl Conversation {
    /// Creates a conversation of one user message.
    pub fn from_prompt(prompt: String, system: Option<String>) -> Self {
        Self {
            system,
            messages: vec![Message::text(Role::User, prompt)],
            ..Self::default()
        }
    }

    /// Returns the UTF-8 bytes of every string that the model sees. They bound the input tokens,
    /// and estimate them if no provider counts them.
    pub fn bytes(&self) -> usize {
        let parts = self.parts().map(Part::bytes).sum::<usize>();
        let system = self.system.as_deref().map_or(0, str::len);
        system + parts + self.tools.bytes() + self.format.bytes()
    }

    /// Returns the maximum input tokens, without images, which each model counts differently, and
    /// without the vendor's template.
    pub fn most_tokens(&self) -> usize {
        // Some servers make a message of each part.
        let parts: usize = self.parts().map(Part::count).sum();
        let instructions = usize::from(self.system.is_some());
        self.bytes()
            + MESSAGE_TOKENS * (parts + instructions)
            + TOOL_TOKENS * self.tools.functions.len()
            + DOCUMENT_TOKENS * self.documents().count()
            + TOOLS_TOKENS * usize::from(!self.tools.functions.is_empty())
            + FORMAT_TOKENS * usize::from(self.format != Format::Text)
    }

    /// Returns the minimum input tokens with any tokenizer. Thinking is not counted, because
    /// vendors may drop that of earlier turns.
    pub fn least_tokens(&self) -> u64 {
        fn least(text: &str) -> u64 {
            let words = text.split_ascii_whitespace().count() as u64 / WORDS_PER_TOKEN;
            words.max((text.len() / LONGEST_TOKEN) as u64)
        }
        fn within(part: &Part) -> u64 {
            match part {
                Part::Text { text }
                | Part::Document(Document {
                    source: DocumentSource::Text(text),
                    ..
                }) => least(text),
                Part::ToolCall(call) => least(&call.arguments),
                Part::ToolResult(result) => result.parts.iter().map(within).sum(),
                _ => 0,
            }
        }
        let system = self.system.as_deref().map_or(0, least);
        system + self.parts().map(within).sum::<u64>()
    }

    /// Whether the instructions are blank, which some providers refuse.
    pub fn has_blank_system(&self) -> bool {
        let system = self.system.as_deref();
        system.is_some_and(|text| text.trim().is_empty())
    }

    /// Returns the parts of all messages.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.messages.iter().flat_map(|message| &message.parts)
    }

    fn parts_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        let messages = self.messages.iter_mut();
        messages.flat_map(|message| &mut message.parts)
    }

    /// Returns the text of the last user message that has one, its parts on separate lines.
    pub fn last_user_text(&self) -> String {
        let users = self.messages.iter().rev().filter(|m| m.role == Role::User);
        let mut texts = users.map(|message| texts(&message.parts, "\n"));
        texts.find(|text| !text.is_empty()).unwrap_or_default()
    }

    /// Returns all images, including those in tool results.
    pub fn images(&self) -> impl Iterator<Item = &Image> {
        self.shown().filter_map(|part| match part {
            Part::Image(image) => Some(image),
            _ => None,
        })
    }

    /// Returns the number of PDFs, whose tokens only the vendor can count.
    pub fn pdfs(&self) -> usize {
        let documents = self.documents();
        documents
            .filter(|document| matches!(document.source, DocumentSource::Pdf(_)))
            .count()
    }

    /// Returns all documents, including those in tool results.
    pub fn documents(&self) -> impl Iterator<Item = &Document> {
        self.shown().filter_map(|part| match part {
            Part::Document(document) => Some(document),
            _ => None,
        })
    }

    /// Returns the parts of all messages and all tool results.
    fn shown(&self) -> impl Iterator<Item = &Part> {
        self.parts().flat_map(|part| match part {
            Part::ToolResult(result) => &result.parts[..],
            part => std::slice::from_ref(part),
        })
    }

    /// Replaces copies of base64 data by slices of the body that they were read from.
    pub fn share(&mut self, body: &Bytes) {
        let mut rest = Some(0);
        let data = self.parts_mut().flat_map(|part| match part {
            Part::ToolResult(result) => result.parts.iter_mut(),
            part => std::slice::from_mut(part).iter_mut(),
        });
        for part in data {
            if let Part::Image(Image {
                source: ImageSource::Base64 { data, .. },
                ..
            })
            | Part::Document(Document {
                source: DocumentSource::Pdf(data),
                ..
            }) = part
                && let Some(from) = rest
            {
                // They are in the order of the body. If one is not found, the body escapes its
                // characters, and the search ends.
                rest = data.share(body, from);
            }
        }
    }

    /// Returns the buffers of base64 data.
    pub fn buffers(&self) -> Vec<&Bytes> {
        let buffers = self.shown().filter_map(|part| match part {
            Part::Image(Image {
                source: ImageSource::Base64 { data, .. },
                ..
            })
            | Part::Document(Document {
                source: DocumentSource::Pdf(data),
                ..
            }) => Some(data.buffer()),
            _ => None,
        });
        buffers.collect()
    }

    /// Returns the called functions by the ids of the calls.
    pub fn calls(&self) -> HashMap<&str, &str> {
        let calls = self.parts().filter_map(Part::call);
        calls.map(|call| (&call.id[..], &call.name[..])).collect()
    }
}

/// Joins the texts among parts.
pub fn texts(parts: &[Part], between: &str) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join(between)
}

/// Joins all thinking that a chat server reported in this field.
pub fn reasoning(parts: &[Part], field: ReasoningField) -> Option<String> {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Thinking { text, .. } if part.reasoning_field() == Some(field) => Some(text.as_str()),
        _ => None,
    });
    let text: String = texts.collect();
    (!text.is_empty()).then_some(text)
}

impl Message {
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self {
            role,
            parts: vec![Part::text(text)],
        }
    }
}

impl ToolCall {
    /// Returns the UTF-8 bytes of its strings.
    pub fn bytes(&self) -> usize {
        let signature = self.thought_signature.as_ref().map_or(0, String::len);
        self.id.len() + self.name.len() + self.arguments.len() + signature
    }

    /// Returns the arguments if they are an object; a model may have written anything.
    pub fn object(&self) -> Option<Json> {
        let arguments = self.arguments.trim();
        let json = Json::parse(if arguments.is_empty() {
            "{}"
        } else {
            arguments
        });
        json.filter(|json| json.as_str().starts_with('{'))
    }
}

impl Part {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    pub fn thinking(text: impl Into<String>, signature: impl Into<String>) -> Self {
        Self::Thinking {
            text: text.into(),
            signature: signature.into(),
        }
    }

    pub const fn call(&self) -> Option<&ToolCall> {
        match self {
            Self::ToolCall(call) => Some(call),
            _ => None,
        }
    }

    /// Whether it is a call with a signature of Gemini's thinking.
    pub const fn has_thought_signature(&self) -> bool {
        matches!(self, Self::ToolCall(call) if call.thought_signature.is_some())
    }

    /// Whether it is thinking without a vendor's signature, which no vendor accepts back.
    pub fn is_unsigned_thinking(&self) -> bool {
        matches!(self, Self::Thinking { signature, .. } if signature.is_empty())
    }

    /// Returns the field in which a chat server reported this thinking; `None` for other parts.
    pub fn reasoning_field(&self) -> Option<ReasoningField> {
        match self {
            Self::Thinking { signature, .. } => ReasoningField::from_signature(signature),
            _ => None,
        }
    }

    /// Counts the part and the parts in it.
    fn count(&self) -> usize {
        match self {
            Self::ToolResult(result) => 1 + result.parts.len(),
            _ => 1,
        }
    }

    /// Returns the UTF-8 bytes of its strings.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text { text } => text.len(),
            Self::Thinking { text, signature } => text.len() + signature.len(),
            Self::Redacted { data } => data.len(),
            // Counted by its size, see `catalogue::Vision`.
            Self::Image(_) => 0,
            Self::Document(document) => document.bytes(),
            Self::ToolCall(call) => call.bytes(),
            Self::ToolResult(result) => {
                let mark = ERROR_BYTES * usize::from(result.is_error);
                let parts = result.parts.iter().map(Self::bytes).sum::<usize>();
                result.call_id.len() + mark + parts
            }
            Self::Opaque { .. } if self.is_marker() => 0,
            Self::Opaque { block } => block.to_string().len(),
        }
    }
}

#[cfg(test)]
mod tests;

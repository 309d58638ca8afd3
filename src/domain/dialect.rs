//! The dialects that SDKs speak: bodies read into a dialogue, and its answer written back, whole or
//! as the events of a stream.
//!
//! One file for each dialect. Not here: HTTP, and the shape of errors that are no event.

pub mod chat;
pub mod messages;

use serde::Serialize;

use super::{
    conversation::{Part, Stop},
    generation::Generation,
    usage::TextUsage,
    validate::{Fields, List, text, words},
};

/// Output tokens that a request may ask for: more than any model writes.
const MAX_LIMIT: i64 = 2_147_483_647;

/// What is known of an answer before its text.
#[derive(Debug, Clone)]
pub struct Head {
    /// Of the generation, in hexadecimal digits only.
    pub id: String,
    /// Seconds since 1970.
    pub created: i64,
    /// As it was asked for.
    pub model: String,
    /// The input, as far as it is known.
    pub input_tokens: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub text: String,
    pub stop: Stop,
    pub usage: TextUsage,
}

impl Answer {
    /// The answer of a completed generation.
    pub fn of(generation: &Generation) -> Option<Self> {
        let usage: TextUsage = serde_json::from_value(generation.usage.clone()?).ok()?;
        // Of a stored one, which was answered before, it is told by the numbers.
        let stop = generation.stop.clone().unwrap_or_else(|| {
            let limit = generation.parameters["max_tokens"].as_u64();
            if limit.is_some_and(|limit| usage.output_tokens >= limit) {
                Stop::Limit
            } else {
                Stop::Done
            }
        });
        Some(Self {
            text: generation.result.clone().unwrap_or_default(),
            stop,
            usage,
        })
    }
}

/// Writes an answer. Of a stream: [`Self::begin`] once, then texts and signs of life, and
/// [`Self::end`] or [`Self::failed`] last.
pub trait Writer: Send + 'static {
    /// The body of an answer that is not streamed.
    fn whole(&self, answer: &Answer) -> String;
    fn begin(&mut self) -> String;
    fn text(&mut self, piece: &str) -> String;
    /// What a client counts as life, and takes for nothing else.
    fn keep_alive(&self) -> String;
    fn end(&mut self, answer: &Answer) -> String;
    /// `error`: the body that the failure would have had.
    fn failed(&self, error: &str) -> String;
}

/// Straight to text: a value in between would sort the members.
fn json(value: &impl Serialize) -> String {
    // Strings and numbers only: this cannot fail.
    serde_json::to_string(value).unwrap_or_default()
}

super::named::named_enum!(
    /// What a part of a message is.
    PartType {
        Text = "text",
    }
);

/// A list of texts, or one alone.
fn texts(
    fields: &Fields<'_>,
    name: &'static str,
    about: &'static str,
    required: bool,
) -> Option<Vec<Part>> {
    let list = List {
        about,
        schema: ("TextPart", "A part of a message."),
        required,
        short: Some(|text| Part::Text(text.to_owned())),
    };
    list.read(fields, name, |part| {
        part.required("type", "What it is.", words::<PartType>());
        let text = part.required("text", "The text.", text(usize::MAX));
        text.map(Part::Text)
    })
}

/// The instructions of several parts or messages, as one.
fn instructions(parts: Vec<Part>) -> Option<String> {
    let texts = parts.into_iter().map(|Part::Text(text)| text);
    let texts: Vec<String> = texts.filter(|text| !text.trim().is_empty()).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

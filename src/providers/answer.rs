//! Shared parts of response parsing: collected parts, plausible counts, the answering model, base64
//! files and task ids.

use std::{collections::BTreeMap, mem::take};

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bytes::Bytes;
use serde_json::{Map, Value};

use super::{DeltaSink, ProviderError, http::classify::clean_id, surrogates::Joiner};
use crate::{
    domain::{
        conversation::{Choice, Delta, Json, Part},
        usage::{MAX_COUNT, TokenCounts},
    },
    memory::{self, Reservation},
};

/// Maximum bytes of an answer: 128,000 tokens of 32 bytes; usual tokens have about 4.
pub const TEXT_CAP: usize = 4 << 20;
/// Maximum bytes of a model id in the log.
const MODEL_CAP: usize = 128;

/// Base64 with optional padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The parts of an answer, collected and forwarded as they arrive.
#[derive(Debug)]
pub struct PartBuffer<'a> {
    parts: Vec<Part>,
    bytes: usize,
    /// Joins split surrogates, by choice.
    surrogates: BTreeMap<Option<u32>, Joiner>,
    /// The choice of the next piece, if the answer has several, and that of the last piece.
    choice: Option<u32>,
    entered: Option<u32>,
    sink: Option<&'a DeltaSink>,
    reserved: Option<Reservation>,
}

impl<'a> PartBuffer<'a> {
    /// Creates an empty buffer. `sink` gets every piece.
    pub fn new(sink: Option<&'a DeltaSink>) -> Self {
        Self {
            parts: Vec::new(),
            bytes: 0,
            surrogates: BTreeMap::new(),
            choice: None,
            entered: None,
            sink,
            reserved: memory::reservation(),
        }
    }

    /// Whether any piece was sent to the caller.
    pub fn has_delivered(&self) -> bool {
        self.sink.is_some_and(DeltaSink::has_delivered)
    }

    /// Adds a piece. Fails above 4 MiB in all.
    pub fn push(&mut self, piece: Delta) -> Result<(), ProviderError> {
        let surrogates = self.surrogates.entry(self.choice).or_default();
        for piece in surrogates.join(piece) {
            self.push_joined(piece)?;
        }
        Ok(())
    }

    fn push_joined(&mut self, piece: Delta) -> Result<(), ProviderError> {
        let is_whole = matches!(
            piece,
            Delta::ToolCall(_) | Delta::Redacted(_) | Delta::Opaque(_)
        );
        let nothing = !is_whole && piece.bytes() == 0;
        // Hidden thinking begins with an empty text: after signed thinking it is a new part.
        let signed = matches!(self.parts.last(),
            Some(Part::Thinking { signature, .. }) if !signature.is_empty());
        if nothing && !(signed && matches!(piece, Delta::Thinking(_))) {
            return Ok(());
        }
        self.mark_choice()?;
        match (&piece, self.parts.last()) {
            (Delta::Arguments(_), Some(Part::ToolCall(_))) => {}
            (Delta::Arguments(_), _) => {
                return Err(ProviderError::failed("arguments outside of a tool call"));
            }
            _ => self.close(),
        }
        self.add(piece)
    }

    /// Sets the choice of the following pieces.
    pub const fn enter(&mut self, choice: u32) {
        self.choice = Some(choice);
    }

    /// Adds a marker before the first piece of another choice.
    fn mark_choice(&mut self) -> Result<(), ProviderError> {
        let Some(index) = self.choice.filter(|_| self.choice != self.entered) else {
            return Ok(());
        };
        self.entered = self.choice;
        let choice = Choice {
            index,
            finish_reason: None,
        };
        self.add(choice.into())
    }

    /// Ends the last part. A call without arguments gets an empty object, since clients cannot
    /// parse an empty text.
    fn close(&mut self) {
        if let Some(Part::ToolCall(call)) = self.parts.last()
            && call.arguments.trim().is_empty()
        {
            // These two bytes may exceed the cap.
            let _within = self.add(Delta::Arguments("{}".to_owned()));
        }
    }

    fn add(&mut self, piece: Delta) -> Result<(), ProviderError> {
        self.bytes += piece.bytes();
        if self.bytes > TEXT_CAP {
            return Err(ProviderError::over_limit("text over the cap"));
        }
        if let Some(reserved) = &self.reserved {
            // A streamed piece is kept here and in the sink, and both are copied for the record. A
            // stream of an account that has used up its half of the budget ends with the part that
            // was delivered.
            let bytes = piece.bytes() * if self.sink.is_some() { 4 } else { 1 };
            let can_end = self.sink.is_some_and(DeltaSink::has_delivered);
            if !can_end {
                reserved.add(bytes);
            } else if !reserved.add_within_share(bytes) {
                return Err(ProviderError::over_limit(
                    "stream over the account's memory",
                ));
            }
        }
        if let Some(sink) = self.sink {
            sink.push(piece.clone());
        }
        piece.add_to(&mut self.parts);
        Ok(())
    }

    /// Forwards the counts and the request id so far ([`DeltaSink::note`]).
    pub fn note(&self, usage: Option<TokenCounts>, request_id: Option<&String>) {
        if let Some(sink) = self.sink {
            sink.note(usage, request_id);
        }
    }

    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub fn end(mut self) -> Vec<Part> {
        for (choice, mut surrogates) in take(&mut self.surrogates) {
            self.choice = choice;
            if let Some(piece) = surrogates.end() {
                // A few bytes may exceed the cap.
                let _within = self.push_joined(piece);
            }
            let _within = self.mark_choice();
            self.close();
        }
        self.parts
    }
}

/// Parses a plausible count: an integer from 0 to [`MAX_COUNT`], which some servers write as
/// `12.0`. Returns `None` for anything else, because an invalid `usage` must neither fail an answer
/// nor make it free.
pub fn count(value: Option<&Value>) -> Option<u64> {
    let value = value?;
    let whole = || {
        let number = value.as_f64().filter(|number| number.fract() == 0.0)?;
        number.to_string().parse().ok()
    };
    value
        .as_u64()
        .or_else(whole)
        .filter(|&count| count <= MAX_COUNT)
}

/// Merges a later usage of the same response. Servers repeat parts of the usage or end with zeros,
/// so null, zero and invalid counts do not replace an earlier count.
pub fn merge_usage(before: &mut Map<String, Value>, later: &Map<String, Value>) {
    for (name, value) in later {
        match (before.get_mut(name), value) {
            (Some(Value::Object(before)), Value::Object(later)) => merge_usage(before, later),
            (Some(before), _) if is_reported(before) && !is_reported(value) => {}
            _ => {
                before.insert(name.clone(), value.clone());
            }
        }
    }
}

fn is_reported(value: &Value) -> bool {
    match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        value => count(Some(value)).is_some_and(|count| count > 0),
    }
}

/// Returns the JSON text of a call's arguments: a string unchanged, an object serialised, an empty
/// text for null. Returns `None` for other values, which are invalid.
pub fn arguments(value: Option<&Value>) -> Option<String> {
    match value {
        None | Some(Value::Null) => Some(String::new()),
        Some(Value::String(text)) => Some(text.clone()),
        Some(object @ Value::Object(_)) => Some(object.to_string()),
        Some(_) => None,
    }
}

/// As [`arguments`], for vendors that send an object. `None` for text that is not an object.
pub fn object_arguments(value: Option<&Value>) -> Option<String> {
    let is_object =
        |text: &str| Json::parse(text).is_some_and(|json| json.as_str().starts_with('{'));
    arguments(value).filter(|text| text.is_empty() || is_object(text))
}

/// As [`count`], but returns zero for absent and null values, as the vendor's format defines.
pub fn count_or_zero(value: Option<&Value>) -> Option<u64> {
    match value {
        None | Some(Value::Null) => Some(0),
        some => count(some),
    }
}

/// Warns if another model answered than the requested one: a retired id may silently be routed to a
/// more expensive model. Responses usually append a date to the id, so prefixes match.
pub fn note_model(provider: &str, asked: &str, answered: Option<&Value>) {
    let Some(answered) = answered.and_then(Value::as_str) else {
        return;
    };
    if !answered.is_empty() && !answered.starts_with(asked) {
        let readable =
            answered.len() <= MODEL_CAP && answered.chars().all(|c| c.is_ascii_graphic());
        let answered = if readable { answered } else { "(unreadable)" };
        tracing::warn!(
            provider,
            asked,
            answered,
            "another model answered than the requested one"
        );
    }
}

/// Decodes a base64 file of 1 to `cap` bytes.
pub fn file(base64: &str, cap: usize) -> Result<Bytes, ProviderError> {
    // Four characters are three bytes. Padding is optional.
    if base64.len() / 4 > cap / 3 + 1 {
        return Err(ProviderError::failed("file over the cap"));
    }
    let bytes = BASE64
        .decode(base64)
        .map_err(|_| ProviderError::failed("file is not base64"))?;
    match bytes.len() {
        0 => Err(ProviderError::failed("empty file")),
        n if n > cap => Err(ProviderError::failed("file over the cap")),
        _ => Ok(bytes.into()),
    }
}

/// Returns a task id that can be one segment of a path (not "." or "..").
pub fn task_id(value: Option<&Value>) -> Option<String> {
    let id = value.and_then(Value::as_str).and_then(clean_id)?;
    (!id.bytes().all(|b| b == b'.')).then_some(id)
}

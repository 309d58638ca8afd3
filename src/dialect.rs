//! The dialects of SDKs: reads their bodies as a dialogue, and writes its answer, complete or as
//! events of a stream.
//!
//! One module per dialect. HTTP and the format of errors outside of streams are elsewhere.

pub mod chat;
mod functions;
pub mod images;
pub mod messages;
mod original;
pub mod responses;
pub mod speech;

pub use functions::{ALLOWED_TOOLS, allowed_tools, custom_arguments};
use original::has_empty_members;
pub use original::{DIAGNOSTICS, SEED, SHARED, TOOL_CHOICE, TOP_K, VERBOSITY};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    domain::{
        conversation::{
            Answered, Delta, DocumentSource, ImageSource, Message, Part, Role, Stop, texts,
        },
        generation::{FinishReason, Generation, Surface},
        json::Members,
        pricing::CacheWrites,
        usage::{TextUsage, TokenCounts},
        validate::{FieldCode, Fields, List, Parsed, Text, parsed, text},
    },
    request::Original,
};

/// Maximum requested output tokens: more than any model writes.
const MAX_LIMIT: i64 = 2_147_483_647;
/// Fields of any dialect, or of servers that imitate one, whose cost cannot be bounded, that name
/// another model or payer, or that keep state at the vendor. The dialects accept some others with
/// harmless values: `service_tier`, `speed`, `store`.
const REFUSED: &[&str] = &[
    "agent_id",
    "audio",
    "background",
    "best_of",
    "billing_policy",
    "compaction",
    "compound_custom",
    "container",
    "conversation",
    "deferred",
    "enable_search",
    "fallback_credit_token",
    "fallbacks",
    "inference_geo",
    "mcp_servers",
    "media_io_kwargs",
    "mm_processor_kwargs",
    "models",
    "moderation",
    "multi_agent",
    "plugins",
    "prediction",
    "previous_response_id",
    "provider",
    "route",
    "search_parameters",
    "search_settings",
    "thread",
    "use_beam_search",
    "web_search_options",
];
/// A string of any length: the whole body is limited.
const STRING: Text = text(usize::MAX);
const NOT_EMPTY: Text = STRING.min(1);
/// Maximum tools of one request.
const MAX_TOOLS: usize = 1_000;

/// The members of an answer that are known before its text.
#[derive(Debug, Clone)]
pub struct Head {
    /// The generation's id in hexadecimal digits, without hyphens.
    pub id: String,
    /// Unix time in seconds.
    pub created: i64,
    /// The name that the request used.
    pub model: String,
    /// The input tokens, as far as they are known.
    pub input_tokens: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub parts: Vec<Part>,
    pub stop: Stop,
    pub usage: TextUsage,
    /// Members that only the vendor's dialect has.
    pub own: Map<String, Value>,
}

impl Answer {
    pub fn of(generation: &Generation) -> Option<Self> {
        Self::from_parts(
            generation.usage.clone()?,
            generation.parameters["max_tokens"].as_u64(),
            generation.finish_reason,
            generation.answer.clone(),
            generation.result.clone(),
        )
    }

    /// Builds the answer from a record's members.
    pub fn from_parts(
        usage: Value,
        max_tokens: Option<u64>,
        finish_reason: Option<FinishReason>,
        answered: Option<Answered>,
        result: Option<String>,
    ) -> Option<Self> {
        let usage: TextUsage = serde_json::from_value(usage).ok()?;
        let at_limit = max_tokens.is_some_and(|limit| usage.output_tokens >= limit);
        let reason = finish_reason.and_then(Stop::from_finish_reason);
        let stop = reason.or_else(|| answered.as_ref().map(|answered| answered.stop.clone()));
        let (parts, own) = answered.map_or_else(Default::default, |a| (a.parts, a.own));
        let text = || {
            let text = result.filter(|text| !text.is_empty());
            text.map(Part::text).into_iter().collect()
        };
        Some(Self {
            parts: parts.unwrap_or_else(text),
            stop: stop.unwrap_or_else(|| Answered::default_stop(at_limit)),
            usage,
            own,
        })
    }

    /// Returns the UTF-8 bytes of its strings.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(Part::bytes).sum()
    }

    pub fn text(&self) -> String {
        texts(&self.parts, "")
    }
}

/// Writes an answer. For a stream, call [`Self::begin`] once, then the methods for pieces and
/// keep-alives, and [`Self::end`] or [`Self::failed`] last.
pub trait Writer: Send + 'static {
    /// Returns the body of an answer that is not streamed.
    fn whole(&self, answer: &Answer) -> String;
    /// Sets the vendor's counts before the first piece. Called before [`Self::begin`].
    fn set_counts(&mut self, _counts: TokenCounts) {}
    fn begin(&mut self) -> String;
    fn piece(&mut self, delta: &Delta) -> String;
    /// Returns a keep-alive event that clients ignore.
    fn keep_alive(&mut self) -> String;
    fn end(&mut self, answer: &Answer) -> String;
    /// `error`: the body that the failure would have had. `usage`: that of a generation that was
    /// cancelled and charged.
    fn failed(&mut self, error: &str, usage: Option<&TextUsage>) -> String;
}

fn json(value: &impl Serialize) -> String {
    // Strings and numbers always serialize.
    serde_json::to_string(value).unwrap_or_default()
}

/// Removes and returns the instructions before all messages.
fn leading(messages: &mut Vec<Message>) -> Vec<Part> {
    let others = messages.iter().position(|m| m.role != Role::System);
    let leading = messages.drain(..others.unwrap_or(messages.len()));
    leading.flat_map(|message| message.parts).collect()
}

/// Removes the leading instructions, and merges consecutive tool results and consecutive messages
/// for which `joins` returns true.
fn sorted(
    mut messages: Vec<Message>,
    joins: fn(&Message, &Message) -> bool,
) -> (Vec<Part>, Vec<Message>) {
    let system = leading(&mut messages);
    let mut sorted: Vec<Message> = Vec::new();
    let is_result = |message: &Message| matches!(message.parts[..], [Part::ToolResult(_), ..]);
    for message in messages {
        match sorted.last_mut() {
            Some(last) if joins(last, &message) || is_result(last) && is_result(&message) => {
                last.parts.extend(message.parts);
            }
            _ => sorted.push(message),
        }
    }
    (system, sorted)
}

/// Joins instructions of several parts or messages.
fn instructions(parts: Vec<Part>) -> Option<String> {
    let texts = parts.into_iter().filter_map(|part| match part {
        Part::Text { text } => Some(text),
        _ => None,
    });
    let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

/// Reports a field that an object of its type requires and lacks.
fn needed<T>(fields: &Fields<'_>, name: &str, value: Option<T>) -> Option<T> {
    if value.is_none() && !fields.failed(name) {
        fields.error(name, FieldCode::Required, "is required");
    }
    value
}

/// Reads a text or a list of parts. Unlike other lists it may be empty, for an empty message.
fn text_or_parts(
    list: List<Part>,
    fields: &Fields<'_>,
    name: &'static str,
    read: impl Fn(&Fields<'_>) -> Option<Part>,
) -> Option<Vec<Part>> {
    let items = fields.value(name).and_then(Value::as_array);
    if items.is_some_and(Vec::is_empty) {
        return Some(Vec::new());
    }
    list.or_text(|text| Part::text(text))
        .read(fields, name, read)
}

/// Returns the parser of an image URL or a data URL.
fn image_url() -> Parsed<ImageSource> {
    let schema = || NOT_EMPTY.with_pattern(r"^(https?://|data:)[^\x00]*$");
    parsed(schema, ImageSource::parse)
}

/// Returns the parser of a base64 file in `OpenAI`'s dialects.
fn file_data() -> Parsed<DocumentSource> {
    let schema = || NOT_EMPTY.json_schema();
    parsed(schema, DocumentSource::parse)
}

/// Refuses a file by id or URL. `instead`: the field for its bytes.
fn refuse_reference(fields: &Fields<'_>, names: &[&'static str], instead: &str) {
    for name in names {
        if fields.has(name) {
            let message = format!("is not supported; send the bytes in base64, as {instead}");
            fields.error(name, FieldCode::NotSupported, message);
        }
    }
    fields.hints(names);
}

/// Refuses images and documents in instructions and in messages of an assistant.
fn without_images(fields: &Fields<'_>, parts: &[Part]) {
    let is_shown = |part: &Part| matches!(part, Part::Image(_) | Part::Document(_));
    if parts.iter().any(is_shown) {
        let message = "has an image or a document; move it to a user message or a tool result";
        fields.error("content", FieldCode::NotAllowed, message);
    }
}

/// Builds the original body with its headers.
pub fn original(
    surface: Surface,
    members: Members,
    values: &Map<String, Value>,
    headers: Vec<(&'static str, String)>,
) -> Original {
    Original {
        members,
        headers,
        cache_writes: match surface {
            // Only marked parts are cached.
            Surface::AnthropicMessages => marked_writes(values),
            _ => openai_cache_writes(values),
        },
        has_empty_members: has_empty_members(values),
    }
}

/// Returns the cache writes that a body for `OpenAI` requests, beyond its automatic caching.
fn openai_cache_writes(members: &Map<String, Value>) -> CacheWrites {
    let retention = match members.get("prompt_cache_retention") {
        // The price of any other retention is not documented.
        Some(value) if !value.is_null() && value != "in_memory" => CacheWrites::Long,
        _ => CacheWrites::None,
    };
    let options = members.get("prompt_cache_options").map(writes_of);
    let breakpoints = members.values().map(writes_at_breakpoints);
    let others = [retention, marked_writes(members)];
    let writes = breakpoints.chain(options).chain(others).max();
    writes.unwrap_or_default()
}

/// Returns the cache writes that cache options or a breakpoint request. Those with a lifetime other
/// than the default are long.
/// Source: openai 3.57.0 (`PyPI`) `openai/types/responses/response_create_params.py`.
fn writes_of(options: &Value) -> CacheWrites {
    match &options["ttl"] {
        _ if options.is_null() => CacheWrites::None,
        ttl if ttl.is_null() || ttl == "30m" => CacheWrites::Short,
        _ => CacheWrites::Long,
    }
}

/// Returns the cache writes that the breakpoints in a value request, at any depth.
fn writes_at_breakpoints(value: &Value) -> CacheWrites {
    let writes = match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| match name.as_str() {
                "prompt_cache_breakpoint" => writes_of(value),
                _ => writes_at_breakpoints(value),
            })
            .max(),
        Value::Array(items) => items.iter().map(writes_at_breakpoints).max(),
        _ => None,
    };
    writes.unwrap_or_default()
}

/// Returns the cache writes that the markers of a body allow, at any depth.
fn marked_writes(members: &Map<String, Value>) -> CacheWrites {
    let marker = members
        .get("cache_control")
        .filter(|marker| !marker.is_null());
    let own = marker.map(|marker| match marker.get("ttl").and_then(Value::as_str) {
        None | Some("5m") => CacheWrites::Short,
        Some(_) => CacheWrites::Long,
    });
    let within = members.values().map(marked_within);
    within.chain(own).max().unwrap_or(CacheWrites::None)
}

fn marked_within(value: &Value) -> CacheWrites {
    match value {
        Value::Object(members) => marked_writes(members),
        Value::Array(items) => items
            .iter()
            .map(marked_within)
            .max()
            .unwrap_or(CacheWrites::None),
        _ => CacheWrites::None,
    }
}

/// Marks a signature of Gemini's thinking in another vendor's dialect, so that it returns to
/// Gemini.
const GEMINI: &str = "gemini:";

/// Moves each signature of a part without other content to the call after it. `carried`: returns
/// the signature of such a part.
fn give_signatures(parts: Vec<Part>, carried: impl Fn(&Part) -> Option<&str>) -> Vec<Part> {
    let mut signature = None;
    let mut found = Vec::new();
    for mut part in parts {
        if let Some(own) = carried(&part) {
            signature = Some(own.to_owned());
            continue;
        }
        if let Part::ToolCall(call) = &mut part {
            call.thought_signature = signature.take();
        }
        found.push(part);
    }
    found
}

#[cfg(test)]
mod tests;

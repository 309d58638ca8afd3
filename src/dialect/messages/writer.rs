//! Writes the answers of a dialogue.

use std::mem::take;

use serde::Serialize;
use serde_json::{Value, json};

use super::text_of;
use crate::{
    dialect::{Answer, GEMINI, Head, Writer},
    domain::{
        conversation::{Delta, Json, Part, Stop, ToolCall, WireObject, WireValue},
        json::{without_escaped_nul, without_nul},
        usage::{TextUsage, TokenCounts},
    },
};

/// A member of Anthropic's answers that is passed to callers of its dialect.
const STOP_DETAILS: &str = "stop_details";
const CONTEXT_MANAGEMENT: &str = "context_management";

#[derive(Debug)]
pub struct MessagesWriter {
    head: Head,
    /// The vendor's counts at the start.
    counts: TokenCounts,
    open: Option<Open>,
    /// The signature at the end of the open thinking block.
    signature: Option<&'static str>,
    /// Number of blocks so far.
    blocks: u32,
    /// The end of the open tool's input, if an escape may begin there.
    rest: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Text,
    Thinking,
    /// Thinking that is complete except for more of its signature.
    Signed,
    Tool,
}

impl MessagesWriter {
    pub fn new(head: Head) -> Self {
        Self {
            head,
            counts: TokenCounts::default(),
            open: None,
            signature: None,
            blocks: 0,
            rest: String::new(),
        }
    }

    fn message<'a>(
        &'a self,
        parts: &'a [Part],
        answer: Option<&'a Answer>,
        usage: Value,
    ) -> WireObject<'a> {
        let (stop_reason, stop_sequence) = answer.map(stop_of).unzip();
        let own = |name: &str| answer.and_then(|answer| answer.own.get(name));
        let content = WireValue::list(move || parts.iter().flat_map(blocks));
        WireObject::default()
            .with("id", json!(format!("msg_{}", self.head.id)))
            .with("type", "message")
            .with("role", "assistant")
            .with("model", &self.head.model)
            .with("content", content)
            .with("stop_reason", json!(stop_reason))
            .with("stop_sequence", json!(stop_sequence.flatten()))
            .with_some(STOP_DETAILS, own(STOP_DETAILS).map(WireValue::Borrowed))
            .with("usage", usage)
            .with_some(
                CONTEXT_MANAGEMENT,
                own(CONTEXT_MANAGEMENT).map(WireValue::Borrowed),
            )
    }

    fn close(&mut self) -> String {
        let index = self.blocks.saturating_sub(1);
        let signature = self.signature.take();
        let signed = signature.map(|signature| self.add("signature_delta", "signature", signature));
        let rest = take(&mut self.rest);
        let rest = (!rest.is_empty()).then(|| self.add_input(&rest));
        let closed = self.open.take();
        let closed = closed.map(|_| event(&json!({"type": "content_block_stop", "index": index})));
        [signed, rest, closed].into_iter().flatten().collect()
    }

    /// Closes the open block and begins another.
    fn start(&mut self, open: Open, block: &impl Serialize) -> String {
        let closed = self.close();
        self.open = Some(open);
        let index = self.blocks;
        self.blocks += 1;
        let start = json!({"type": "content_block_start", "index": index, "content_block": block});
        closed + &event(&start)
    }

    fn add(&self, kind: &'static str, member: &'static str, text: &str) -> String {
        let added = WireObject::with_type("content_block_delta")
            .with("index", json!(self.blocks.saturating_sub(1)))
            .with("delta", WireObject::with_type(kind).with(member, text));
        format!("event: content_block_delta\ndata: {}\n\n", text_of(&added))
    }

    fn add_input(&self, json: &str) -> String {
        self.add("input_json_delta", "partial_json", json)
    }

    /// Writes a piece of a tool's input without U+0000, which clients could not send back.
    fn input(&mut self, partial_json: &str) -> String {
        let json = take(&mut self.rest) + partial_json;
        let (partial_json, rest) = without_escaped_nul(&json);
        rest.clone_into(&mut self.rest);
        self.add_input(&partial_json)
    }

    /// Writes a block of another type. Clients read the input of a `server_tool_use` only from its
    /// deltas, so the first event has an empty input.
    fn opaque(&mut self, block: &Value) -> String {
        let block = &without_nul(block.clone());
        let input = block
            .get("input")
            .filter(|_| block["type"] == "server_tool_use");
        let Some(input) = input else {
            return self.complete(block);
        };
        let mut start = block.clone();
        start["input"] = json!({});
        self.start(Open::Tool, &start) + &self.add_input(&input.to_string()) + &self.close()
    }

    /// Writes a complete block.
    fn complete(&mut self, block: &impl Serialize) -> String {
        self.start(Open::Tool, block) + &self.close()
    }

    fn thinking(&mut self, continued: bool) -> String {
        if continued {
            return String::new();
        }
        self.start(Open::Thinking, &thinking("", ""))
    }
}

fn event(data: &Value) -> String {
    let name = data["type"].as_str().unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n")
}

/// Converts the counts: in this dialect, input excludes cached and written tokens.
fn tokens(counts: &TokenCounts) -> Value {
    let cached = counts.cached_input.unwrap_or(0);
    let written = counts.cache_write.unwrap_or(0);
    let input = counts.input.unwrap_or(0);
    let mut tokens = json!({
        "input_tokens": input.saturating_sub(cached.saturating_add(written)),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": counts.output.unwrap_or(0),
    });
    if counts.cache_write.is_some() {
        let long = counts.cache_write_long.unwrap_or(0).min(written);
        tokens["cache_creation"] = json!({
            "ephemeral_5m_input_tokens": written - long,
            "ephemeral_1h_input_tokens": long,
        });
    }
    tokens
}

fn usage_of(usage: &TextUsage) -> Value {
    let mut value = tokens(&TokenCounts {
        input: Some(usage.input_tokens),
        cached_input: usage.cached_input_tokens,
        cache_write: usage.cache_write_tokens,
        cache_write_long: usage.cache_write_long_tokens,
        output: Some(usage.output_tokens),
        ..TokenCounts::default()
    });
    if let Some(tokens) = usage.reasoning_tokens {
        value["output_tokens_details"] = json!({"thinking_tokens": tokens});
    }
    if let Some(searches) = usage.searches {
        value["server_tool_use"] = json!({"web_search_requests": searches});
    }
    value
}

/// Returns the stop reason and the stop sequence.
fn stop_of(answer: &Answer) -> (&str, Option<&str>) {
    let reason = answer.own.get("stop_reason").and_then(Value::as_str);
    match &answer.stop {
        Stop::Done => ("end_turn", None),
        Stop::Paused => ("pause_turn", None),
        Stop::ContentFilter => ("refusal", None),
        Stop::Limit => (reason.unwrap_or("max_tokens"), None),
        Stop::MalformedFunctionCall | Stop::Other => ("max_tokens", None),
        Stop::Tools => ("tool_use", None),
        Stop::Sequence(sequence) => ("stop_sequence", Some(sequence)),
    }
}

/// Returns the blocks of a part. A call of Gemini's has its signature before it.
fn blocks(part: &Part) -> impl Iterator<Item = WireValue<'_>> {
    let block = match part {
        Part::Text { text } => Some(text_block(text).into()),
        Part::Thinking { text, signature } => Some(thinking(text, signature).into()),
        Part::Redacted { data } => Some(redacted(data).into()),
        Part::ToolCall(call) => {
            // A model may write invalid arguments. An agent must see them instead of no arguments.
            let unread = || Json::from(&json!({"INVALID_JSON": call.arguments}));
            let input = call.object().map(Json::without_nul);
            Some(tool_use(call, input.unwrap_or_else(unread)).into())
        }
        // Answers have no such parts.
        Part::ToolResult(_) | Part::Image(_) | Part::Document(_) => None,
        Part::Opaque { block } => Some(WireValue::Borrowed(block)),
    };
    let signature = part.call().and_then(gemini_signature);
    let signature = signature.map(|signature| WireValue::from(thinking("", json!(signature))));
    signature.into_iter().chain(block)
}

fn text_block(text: &str) -> WireObject<'_> {
    WireObject::with_type("text").with("text", text)
}

fn thinking<'a>(text: &'a str, signature: impl Into<WireValue<'a>>) -> WireObject<'a> {
    WireObject::with_type("thinking")
        .with("thinking", text)
        .with("signature", signature)
}

fn redacted(data: &str) -> WireObject<'_> {
    WireObject::with_type("redacted_thinking").with("data", data)
}

fn tool_use(call: &ToolCall, input: Json) -> WireObject<'_> {
    WireObject::with_type("tool_use")
        .with("id", &call.id)
        .with("name", &call.name)
        .with("input", input)
}

fn gemini_signature(call: &ToolCall) -> Option<String> {
    let signature = call.thought_signature.as_ref()?;
    Some(format!("{GEMINI}{signature}"))
}

impl Writer for MessagesWriter {
    fn whole(&self, answer: &Answer) -> String {
        text_of(&self.message(&answer.parts, Some(answer), usage_of(&answer.usage)))
    }

    fn set_counts(&mut self, counts: TokenCounts) {
        self.counts = counts;
    }

    fn begin(&mut self) -> String {
        let counts = &self.counts;
        let input = counts.believed_input().filter(|&input| input > 0);
        let usage = tokens(&TokenCounts {
            input: input.or(Some(self.head.input_tokens)),
            output: Some(1),
            ..*counts
        });
        let message = self.message(&[], None, usage);
        event(&json!({"type": "message_start", "message": message}))
    }

    fn piece(&mut self, delta: &Delta) -> String {
        match delta {
            Delta::Text(text) => {
                let begun = if self.open == Some(Open::Text) {
                    String::new()
                } else {
                    self.start(Open::Text, &text_block(""))
                };
                begun + &self.add("text_delta", "text", text)
            }
            Delta::Thinking(thinking) => {
                let continued = self.open == Some(Open::Thinking) && self.signature.is_none();
                let begun = self.thinking(continued);
                begun + &self.add("thinking_delta", "thinking", thinking)
            }
            Delta::Reasoning(field, thinking) => {
                let continued = self.signature == Some(field.signature());
                let begun = self.thinking(continued);
                self.signature = Some(field.signature());
                begun + &self.add("thinking_delta", "thinking", thinking)
            }
            Delta::Signature(signature) => {
                let open = matches!(self.open, Some(Open::Thinking | Open::Signed))
                    && self.signature.is_none();
                let begun = self.thinking(open);
                self.open = Some(Open::Signed);
                begun + &self.add("signature_delta", "signature", signature)
            }
            Delta::Redacted(data) => self.complete(&redacted(data)),
            Delta::ToolCall(call) => {
                let mut events = String::new();
                if let Some(signature) = &gemini_signature(call) {
                    events += &self.thinking(false);
                    events += &self.add("signature_delta", "signature", signature);
                }
                let no_arguments = Json::from(&json!({}));
                events += &self.start(Open::Tool, &tool_use(call, no_arguments));
                if !call.arguments.is_empty() {
                    events += &self.input(&call.arguments);
                }
                events
            }
            Delta::Arguments(partial_json) => self.input(partial_json),
            Delta::Opaque(block) => self.opaque(block),
        }
    }

    fn keep_alive(&mut self) -> String {
        event(&json!({"type": "ping"}))
    }

    fn end(&mut self, answer: &Answer) -> String {
        let closed = self.close();
        let (stop_reason, stop_sequence) = stop_of(answer);
        let mut end = json!({
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason, "stop_sequence": stop_sequence},
            "usage": usage_of(&answer.usage),
        });
        if let Some(details) = answer.own.get(STOP_DETAILS) {
            end["delta"][STOP_DETAILS] = details.clone();
        }
        if let Some(applied) = answer.own.get(CONTEXT_MANAGEMENT) {
            end[CONTEXT_MANAGEMENT] = applied.clone();
        }
        closed + &event(&end) + &event(&json!({"type": "message_stop"}))
    }

    fn failed(&mut self, error: &str, _: Option<&TextUsage>) -> String {
        format!("event: error\ndata: {error}\n\n")
    }
}

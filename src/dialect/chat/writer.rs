//! Writes the answers of a chat.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::text_of;
use crate::{
    dialect::{Answer, Head, Writer, functions::custom_input},
    domain::{
        conversation::{
            self, Delta, Part, ReasoningField, ToolCall, WireObject, WireValue, choices, reasoning,
            texts,
        },
        usage::TextUsage,
    },
};

#[derive(Debug)]
pub struct ChatWriter {
    head: Head,
    include_usage: bool,
    /// The choice of the last piece.
    choice: u32,
    /// The calls of each choice that has begun.
    calls: BTreeMap<u32, Calls>,
    custom: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Calls {
    /// Number of calls that were sent.
    count: usize,
    /// Whether the last call is of a custom tool. Its input is known only when it is complete, so
    /// it is sent at the end.
    is_custom: bool,
}

impl ChatWriter {
    pub const fn new(head: Head, include_usage: bool, custom: BTreeSet<String>) -> Self {
        Self {
            head,
            include_usage,
            choice: 0,
            calls: BTreeMap::new(),
            custom,
        }
    }

    fn id(&self) -> String {
        format!("chatcmpl-{}", self.head.id)
    }

    /// Writes an event. With `include_usage`, its usage is null except in the last one.
    fn chunk<'a>(&'a self, choices: Vec<WireValue<'a>>, usage: Value) -> String {
        let chunk = WireObject::default()
            .with("id", json!(self.id()))
            .with("object", "chat.completion.chunk")
            .with("created", json!(self.head.created))
            .with("model", &self.head.model)
            .with("choices", WireValue::Array(choices))
            .with_some("usage", self.include_usage.then_some(usage));
        format!("data: {}\n\n", text_of(&chunk))
    }

    /// Writes the beginning of a call, or a whole call.
    fn call(&self, index: usize, call: &ToolCall, is_custom: bool) -> String {
        let mut call = tool_call(call, is_custom);
        call["index"] = index.into();
        self.delta(json!({"tool_calls": [call]}), None)
    }

    fn delta<'a>(&'a self, delta: impl Into<WireValue<'a>>, finish_reason: Option<&str>) -> String {
        let choice = WireObject::default()
            .with("index", json!(self.choice))
            .with("delta", delta)
            .with("logprobs", Value::Null)
            .with("finish_reason", json!(finish_reason));
        self.chunk(vec![choice.into()], Value::Null)
    }
}

/// Writes a complete call.
fn tool_call(call: &ToolCall, is_custom: bool) -> Value {
    let mut value = if is_custom {
        json!({"id": call.id, "type": "custom",
            "custom": {"name": call.name, "input": custom_input(&call.arguments)}})
    } else {
        json!({"id": call.id, "type": "function",
            "function": {"name": call.name, "arguments": call.arguments}})
    };
    if let Some(signature) = &call.thought_signature {
        value["extra_content"] = json!({"google": {"thought_signature": signature}});
    }
    value
}

fn usage_of(usage: &TextUsage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_input_tokens.unwrap_or(0),
            "cache_write_tokens": usage.cache_write_tokens.unwrap_or(0),
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens.unwrap_or(0)},
    })
}

/// Returns the finish reason of a choice, or that of the answer if it has only one.
fn reason<'a>(choice: &'a conversation::Choice, answer: &'a Answer) -> &'a str {
    let own = choice.finish_reason.as_deref();
    own.unwrap_or_else(|| answer.stop.chat_reason())
}

fn message(parts: &[Part], custom: &BTreeSet<String>) -> Value {
    let text = texts(parts, "");
    let calls = parts.iter().filter_map(Part::call);
    let calls = calls.map(|call| tool_call(call, custom.contains(&call.name)));
    let calls: Vec<Value> = calls.collect();
    let mut message = json!({"role": "assistant", "content": null, "refusal": null});
    if !text.is_empty() || calls.is_empty() {
        message["content"] = text.into();
    }
    for &field in ReasoningField::ALL {
        if let Some(text) = reasoning(parts, field) {
            message[field.as_str()] = text.into();
        }
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    for (name, value) in parts.iter().filter_map(Part::members).flatten() {
        message[name.as_str()] = value.clone();
    }
    message
}

impl Writer for ChatWriter {
    fn whole(&self, answer: &Answer) -> String {
        let choices = choices(&answer.parts).into_iter().map(|(choice, parts)| {
            json!({
                "index": choice.index,
                "message": message(parts, &self.custom),
                "logprobs": null,
                "finish_reason": reason(&choice, answer),
            })
        });
        let body = json!({
            "id": self.id(),
            "object": "chat.completion",
            "created": self.head.created,
            "model": self.head.model,
            "choices": choices.collect::<Vec<_>>(),
            "usage": usage_of(&answer.usage),
        });
        body.to_string()
    }

    fn begin(&mut self) -> String {
        self.calls.entry(self.choice).or_default();
        self.delta(json!({"role": "assistant", "content": ""}), None)
    }

    fn piece(&mut self, delta: &Delta) -> String {
        if let Some(choice) = delta.choice() {
            self.choice = choice.index;
            return if self.calls.contains_key(&self.choice) {
                String::new()
            } else {
                self.begin()
            };
        }
        if let Some(members) = delta.members() {
            return self.delta(json!(members), None);
        }
        let calls = self.calls.entry(self.choice).or_default();
        let piece = match delta {
            Delta::Text(text) => WireObject::default().with("content", text),
            Delta::Reasoning(field, text) => WireObject::default().with(field.as_str(), text),
            Delta::ToolCall(call) => {
                calls.is_custom = self.custom.contains(&call.name);
                if calls.is_custom {
                    return self.keep_alive();
                }
                let index = calls.count;
                calls.count += 1;
                return self.call(index, call, false);
            }
            Delta::Arguments(_) if calls.is_custom => return self.keep_alive(),
            Delta::Arguments(arguments) => {
                let call = WireObject::default()
                    .with("index", json!(calls.count.saturating_sub(1)))
                    .with(
                        "function",
                        WireObject::default().with("arguments", arguments),
                    );
                WireObject::default().with("tool_calls", WireValue::Array(vec![call.into()]))
            }
            // This dialect has no fields for these.
            Delta::Thinking(_) | Delta::Signature(_) | Delta::Redacted(_) | Delta::Opaque(_) => {
                return self.keep_alive();
            }
        };
        self.delta(piece, None)
    }

    fn keep_alive(&mut self) -> String {
        self.delta(json!({}), None)
    }

    fn end(&mut self, answer: &Answer) -> String {
        let mut events = String::new();
        let choices = choices(&answer.parts).into_iter();
        let choices = choices.map(|(choice, parts)| (choice.index, (choice, parts)));
        let answered: BTreeMap<_, _> = choices.collect();
        // A cancel can end a choice that was announced and has no parts.
        let begun: BTreeSet<_> = self.calls.keys().chain(answered.keys()).copied().collect();
        for index in begun {
            let choice = answered.get(&index).cloned();
            let (choice, parts) = choice.unwrap_or((
                conversation::Choice {
                    index,
                    finish_reason: None,
                },
                &[],
            ));
            events += &self.piece(&Delta::from(choice.clone()));
            // SDKs expect the calls in the order of their indexes.
            let sent = self.calls.get(&index).map_or(0, |calls| calls.count);
            let custom = parts.iter().filter_map(Part::call);
            let custom = custom.filter(|call| self.custom.contains(&call.name));
            for (at, call) in custom.enumerate() {
                events += &self.call(sent + at, call, true);
            }
            events += &self.delta(json!({}), Some(reason(&choice, answer)));
        }
        if self.include_usage {
            events += &self.chunk(Vec::new(), usage_of(&answer.usage));
        }
        events + "data: [DONE]\n\n"
    }

    fn failed(&mut self, error: &str, _: Option<&TextUsage>) -> String {
        format!("data: {error}\n\n")
    }
}

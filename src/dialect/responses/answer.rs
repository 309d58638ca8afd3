//! The body of an answer and its items.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Value, json};

use super::{
    Echo, id, is_item,
    mapping::{OwnTool, Shown, encrypted_content, signature_before},
};
use crate::{
    dialect::{Answer, Head, functions::custom_input},
    domain::{
        conversation::{Part, Stop, ToolCall, WireObject, WireValue},
        usage::TextUsage,
    },
};

/// The state of a response.
#[derive(Clone, Copy)]
pub(super) enum Progress<'a> {
    Begun,
    Ended(&'a Answer),
    Failed {
        code: &'a str,
        message: &'a str,
        /// The items so far.
        output: &'a [Value],
        usage: TextUsage,
    },
}

/// Builds the body of a response.
pub(super) fn body<'a>(head: &'a Head, echo: &'a Echo, progress: Progress<'_>) -> WireObject<'a> {
    let (answer, usage) = match progress {
        Progress::Begun => (None, None),
        Progress::Ended(answer) => (Some(answer), Some(answer.usage)),
        Progress::Failed { usage, .. } => (None, Some(usage)),
    };
    let reason = answer.and_then(|answer| incomplete(&answer.stop));
    let details = json!(reason.map(|reason| json!({"reason": reason})));
    let (status, error) = match progress {
        Progress::Begun => ("in_progress", Value::Null),
        Progress::Ended(_) if reason.is_some() => ("incomplete", Value::Null),
        Progress::Ended(_) => ("completed", Value::Null),
        Progress::Failed { code, message, .. } => {
            ("failed", json!({"code": code, "message": message}))
        }
    };
    let output = match progress {
        Progress::Begun => json!([]),
        Progress::Ended(answer) => {
            let items = items(&head.id, &answer.parts, &echo.shown);
            items.map(|(_, item)| item).collect()
        }
        Progress::Failed { output, .. } => json!(output),
    };
    let searches = usage.and_then(|usage| usage.searches);
    let tool_usage = searches.map(|made| json!({"web_search": {"num_requests": made}}));
    let body = WireObject::default()
        .with("id", json!(format!("resp_{}", head.id)))
        .with("object", "response")
        .with("created_at", json!(head.created))
        .with("status", status)
        .with("background", json!(false))
        .with("error", error)
        .with("incomplete_details", details)
        .with("model", &head.model)
        .with("output", output)
        .with("usage", json!(usage.as_ref().map(usage_of)))
        .with_some("tool_usage", tool_usage)
        .with("previous_response_id", Value::Null)
        .with("store", json!(false));
    let echoed = echo.members.iter();
    echoed.fold(body, |body, &(name, ref value)| {
        body.with(name, WireValue::Borrowed(value))
    })
}

pub(super) const fn incomplete(stop: &Stop) -> Option<&'static str> {
    match stop {
        Stop::Limit | Stop::MalformedFunctionCall | Stop::Other => Some("max_output_tokens"),
        Stop::ContentFilter => Some("content_filter"),
        Stop::Done | Stop::Sequence(_) | Stop::Tools | Stop::Paused => None,
    }
}

fn usage_of(usage: &TextUsage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_input_tokens.unwrap_or(0),
            "cache_write_tokens": usage.cache_write_tokens.unwrap_or(0),
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens.unwrap_or(0)},
        "total_tokens": usage.total_tokens,
    })
}

/// Returns the items of an answer, with their places in the output.
fn items(generation: &str, parts: &[Part], shown: &Shown) -> impl Iterator<Item = (usize, Value)> {
    let parts = parts.iter().flat_map(|part| {
        let before = match part {
            Part::ToolCall(call) => signature_before(call).map(|data| Part::Redacted { data }),
            _ => None,
        };
        before.into_iter().chain([part.clone()])
    });
    let mut phase = None;
    let parts = parts.filter_map(move |part| {
        if let Some(next) = part.phase() {
            phase = Some(next.to_owned());
        }
        is_item(&part).then(|| (part, phase.take()))
    });
    parts.enumerate().filter_map(move |(at, (part, phase))| {
        let mut item = item(generation, at, &part, shown)?;
        set_phase(&mut item, phase.as_deref());
        Some((at, item))
    })
}

/// Sets the phase of an item that is a message.
pub(super) fn set_phase(item: &mut Value, phase: Option<&str>) {
    if let Some(phase) = phase.filter(|_| item["type"] == "message") {
        item["phase"] = phase.into();
    }
}

impl Answer {
    /// Returns the items at these places of the output, in the form to which a request refers.
    pub fn response_items(
        &self,
        generation: &str,
        places: &BTreeSet<usize>,
    ) -> HashMap<usize, Value> {
        let shown = Shown {
            encrypted: true,
            ..Shown::default()
        };
        let items = items(generation, &self.parts, &shown);
        items.filter(|(at, _)| places.contains(at)).collect()
    }
}

pub(super) fn output_text(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

pub(super) fn summary_text(text: &str) -> Value {
    json!({"type": "summary_text", "text": text})
}

/// Builds the item of a complete part.
pub(super) fn item(generation: &str, at: usize, part: &Part, shown: &Shown) -> Option<Value> {
    let id = id(generation, at, part);
    let status = "completed";
    Some(match part {
        Part::Text { text } => json!({"type": "message", "id": id, "status": status,
            "role": "assistant", "content": [output_text(text)]}),
        Part::ToolCall(call) => {
            let own = shown.tools.get(&call.name);
            let name = own.map_or(&call.name, |own| &own.name);
            let is_custom = own.is_some_and(|own| own.is_custom);
            let kind = if is_custom {
                "custom_tool_call"
            } else {
                "function_call"
            };
            let mut item = json!({"type": kind, "id": id, "status": status, "call_id": call.id,
                "name": name});
            if let Some(OwnTool {
                namespace: Some(namespace),
                ..
            }) = own
            {
                item["namespace"] = json!(namespace);
            }
            if is_custom {
                item["input"] = custom_input(&call.arguments).into();
            } else {
                item["arguments"] = json!(call.arguments);
            }
            item
        }
        Part::Thinking { .. } | Part::Redacted { .. } => {
            let mut item = json!({"type": "reasoning", "id": id, "status": status, "summary": []});
            if let Part::Thinking { text, .. } = part
                && !text.is_empty()
            {
                item["summary"] = json!([summary_text(text)]);
            }
            if let Some(content) = encrypted_content(part).filter(|_| shown.encrypted) {
                item["encrypted_content"] = content.into();
            }
            item
        }
        Part::Opaque { block } => {
            let mut item = block.clone();
            // The provider stores no items: references are to ours.
            if item.get("id").is_some() {
                item["id"] = id.into();
            }
            item
        }
        Part::Image(_) | Part::Document(_) | Part::ToolResult(_) => return None,
    })
}

/// Builds the item of a part that begins. Its content follows in events.
pub(super) fn begun(generation: &str, at: usize, part: &Part, shown: &Shown) -> Option<Value> {
    let empty = match part {
        Part::ToolCall(call) => Part::ToolCall(ToolCall {
            arguments: String::new(),
            ..call.clone()
        }),
        Part::Thinking { .. } | Part::Redacted { .. } => Part::thinking("", ""),
        part => part.clone(),
    };
    let mut item = item(generation, at, &empty, shown)?;
    if item.get("status").is_some() {
        item["status"] = json!("in_progress");
    }
    if item["type"] == "reasoning" {
        item["summary"] = json!([]);
    }
    if matches!(part, Part::Text { .. }) {
        item["content"] = json!([]);
    }
    Some(item)
}

//! Writes answers, complete or as events of a stream. Each part of an answer is an item of the
//! output.

use std::mem;

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    answer::{Progress, begun, body, incomplete, item, output_text, set_phase, summary_text},
    id, is_item,
    mapping::{Shown, signature_before},
    text_of,
};
use crate::{
    dialect::{Answer, Head, Writer, functions::custom_input},
    domain::{
        conversation::{Delta, Part, WireObject},
        usage::{TextUsage, TokenCounts},
        validate::Fields,
    },
};

/// The error code of input that is too long. Codex does not retry it.
const CONTEXT_LENGTH: &str = "context_length_exceeded";

/// Members of the request that its answer repeats.
#[derive(Debug, Clone, PartialEq)]
pub struct Echo {
    pub(super) members: Vec<(&'static str, Value)>,
    pub shown: Shown,
}

impl Echo {
    pub(super) fn of(fields: &Fields<'_>, instructions: Option<&str>) -> Self {
        let given = |name, default| (name, fields.value(name).cloned().unwrap_or(default));
        let is_parallel = fields.value("parallel_tool_calls") != Some(&json!(false));
        let members = vec![
            ("instructions", json!(instructions)),
            given("max_output_tokens", Value::Null),
            ("parallel_tool_calls", json!(is_parallel)),
            given("reasoning", json!({"effort": null, "summary": null})),
            given("temperature", Value::Null),
            given("text", json!({"format": {"type": "text"}})),
            given("tool_choice", json!("auto")),
            given("tools", json!([])),
            given("top_p", Value::Null),
            given("truncation", json!("disabled")),
            given("metadata", json!({})),
        ];
        let shown = Shown::default();
        Self { members, shown }
    }
}

#[derive(Debug)]
pub struct ResponsesWriter {
    head: Head,
    echo: Echo,
    sequence: u64,
    /// The last part, if it is open.
    parts: Vec<Part>,
    /// The items that have ended.
    output: Vec<Value>,
    /// The phase of the open or the next message.
    phase: Option<String>,
}

#[derive(Serialize)]
struct Event<T> {
    r#type: &'static str,
    sequence_number: u64,
    #[serde(flatten)]
    more: T,
}

fn event(kind: &'static str, sequence_number: u64, more: impl Serialize) -> String {
    let event = Event {
        r#type: kind,
        sequence_number,
        more,
    };
    format!("event: {kind}\ndata: {}\n\n", text_of(&event))
}

impl ResponsesWriter {
    pub const fn new(head: Head, echo: Echo) -> Self {
        Self {
            head,
            echo,
            sequence: 0,
            parts: Vec::new(),
            output: Vec::new(),
            phase: None,
        }
    }

    fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence - 1
    }

    fn event(&mut self, kind: &'static str, more: impl Serialize) -> String {
        event(kind, self.next(), more)
    }

    fn response(&mut self, kind: &'static str, progress: Progress<'_>) -> String {
        let sequence = self.next();
        let response = body(&self.head, &self.echo, progress);
        event(
            kind,
            sequence,
            WireObject::default().with("response", response),
        )
    }

    /// Begins an item for the last part.
    fn open(&mut self) -> String {
        let Some(part) = self.parts.last().cloned() else {
            return String::new();
        };
        let at = self.output.len();
        let Some(mut item) = begun(&self.head.id, at, &part, &self.echo.shown) else {
            return String::new();
        };
        set_phase(&mut item, self.phase.as_deref());
        let item_id = id(&self.head.id, at, &part);
        let added = json!({"output_index": at, "item": item});
        let mut events = self.event("response.output_item.added", added);
        match &part {
            Part::Text { text } => {
                let added = json!({"item_id": item_id, "output_index": at, "content_index": 0,
                    "part": output_text("")});
                events += &self.event("response.content_part.added", added);
                events += &self.more(text);
            }
            Part::Thinking { text, .. } if !text.is_empty() => {
                events += &self.summary("response.reasoning_summary_part.added", &item_id, 0, "");
                events += &self.more(text);
            }
            Part::ToolCall(call) => events += &self.more(&call.arguments),
            Part::Opaque { block } => {
                let parts = block["summary"].as_array().into_iter().flatten();
                let texts = parts.filter_map(|part| part["text"].as_str());
                for (index, text) in texts.enumerate() {
                    events +=
                        &self.summary("response.reasoning_summary_part.added", &item_id, index, "");
                    events += &self.summary_delta(&item_id, index, text);
                    events += &self.summary_done(&item_id, index, text);
                }
            }
            _ => {}
        }
        events
    }

    fn summary(&mut self, kind: &'static str, item_id: &str, index: usize, text: &str) -> String {
        let part = json!({"item_id": item_id, "output_index": self.output.len(), "summary_index": index,
            "part": summary_text(text)});
        self.event(kind, part)
    }

    fn summary_delta(&mut self, item_id: &str, index: usize, delta: &str) -> String {
        let added = WireObject::default()
            .with("item_id", item_id)
            .with("output_index", json!(self.output.len()))
            .with("summary_index", json!(index))
            .with("delta", delta);
        self.event("response.reasoning_summary_text.delta", added)
    }

    fn summary_done(&mut self, item_id: &str, index: usize, text: &str) -> String {
        let done = json!({"item_id": item_id, "output_index": self.output.len(), "summary_index": index,
            "text": text});
        let done = self.event("response.reasoning_summary_text.done", done);
        done + &self.summary("response.reasoning_summary_part.done", item_id, index, text)
    }

    /// Adds to the last part.
    fn more(&mut self, delta: &str) -> String {
        let Some(part) = self.parts.last().filter(|_| !delta.is_empty()) else {
            return String::new();
        };
        let at = self.output.len();
        let item_id = id(&self.head.id, at, part);
        let (kind, is_text) = match part {
            Part::Text { .. } => ("response.output_text.delta", true),
            Part::Thinking { .. } => return self.summary_delta(&item_id, 0, delta),
            // The input is inside the arguments, which are parsed when they are complete.
            Part::ToolCall(call) if self.echo.shown.is_custom(call) => return String::new(),
            Part::ToolCall(_) => ("response.function_call_arguments.delta", false),
            _ => return String::new(),
        };
        let added = WireObject::default()
            .with("item_id", &item_id)
            .with("output_index", json!(at))
            .with_some("content_index", is_text.then(|| json!(0)))
            .with("delta", delta)
            .with_some("logprobs", is_text.then(|| json!([])));
        self.event(kind, added)
    }

    /// The item of the last part, which a failure cut off.
    fn cut(&self, at: usize) -> Option<Value> {
        let part = self.parts.last()?;
        let mut item = item(&self.head.id, at, part, &self.echo.shown)?;
        if !matches!(part, Part::Opaque { .. }) {
            item["status"] = json!("incomplete");
        }
        set_phase(&mut item, self.phase.as_deref());
        Some(item)
    }

    /// The last part has ended.
    fn close(&mut self) -> String {
        let Some(part) = self.parts.pop() else {
            return String::new();
        };
        let at = self.output.len();
        let Some(mut item) = item(&self.head.id, at, &part, &self.echo.shown) else {
            return String::new();
        };
        set_phase(&mut item, self.phase.take().as_deref());
        let item_id = id(&self.head.id, at, &part);
        let mut events = String::new();
        match &part {
            Part::Text { text } => {
                let done = json!({"item_id": item_id, "output_index": at, "content_index": 0,
                    "text": text, "logprobs": []});
                events += &self.event("response.output_text.done", done);
                let done = json!({"item_id": item_id, "output_index": at, "content_index": 0,
                    "part": output_text(text)});
                events += &self.event("response.content_part.done", done);
            }
            Part::Thinking { text, .. } if !text.is_empty() => {
                events += &self.summary_done(&item_id, 0, text);
            }
            Part::ToolCall(call) if self.echo.shown.is_custom(call) => {
                let input = custom_input(&call.arguments);
                let delta = json!({"item_id": item_id, "output_index": at, "delta": input});
                events += &self.event("response.custom_tool_call_input.delta", delta);
                let done = json!({"item_id": item_id, "output_index": at, "input": input});
                events += &self.event("response.custom_tool_call_input.done", done);
            }
            Part::ToolCall(call) => {
                let done = json!({"item_id": item_id, "output_index": at, "name": item["name"],
                    "arguments": call.arguments});
                events += &self.event("response.function_call_arguments.done", done);
            }
            _ => {}
        }
        let done = json!({"output_index": at, "item": item});
        self.output.push(item);
        events + &self.event("response.output_item.done", done)
    }
}

impl Writer for ResponsesWriter {
    fn whole(&self, answer: &Answer) -> String {
        text_of(&body(&self.head, &self.echo, Progress::Ended(answer)))
    }

    fn begin(&mut self) -> String {
        self.response("response.created", Progress::Begun) + &self.keep_alive()
    }

    fn piece(&mut self, delta: &Delta) -> String {
        if let Some(phase) = delta.phase() {
            let closed = self.close();
            self.phase = Some(phase.to_owned());
            return closed;
        }
        let mut events = String::new();
        if let Delta::ToolCall(call) = delta
            && let Some(data) = signature_before(call)
        {
            events += &self.piece(&Delta::Redacted(data));
        }
        let last = self.parts.last();
        let is_first = matches!(last, Some(Part::Thinking { text, .. }) if text.is_empty());
        let before = self.parts.len();
        delta.clone().add_to(&mut self.parts);
        if self.parts.len() > before {
            let begun = self.parts.pop();
            events += &self.close();
            self.parts.extend(begun);
            events += &self.open();
            // Parts that are not items have no place in the output.
            self.parts.retain(is_item);
            return events;
        }
        match delta {
            Delta::Thinking(piece) | Delta::Reasoning(_, piece) => {
                if let Some(part) = self.parts.last().filter(|_| is_first) {
                    let item_id = id(&self.head.id, self.output.len(), part);
                    let kind = "response.reasoning_summary_part.added";
                    events += &self.summary(kind, &item_id, 0, "");
                }
                events += &self.more(piece);
            }
            Delta::Text(piece) | Delta::Arguments(piece) => events += &self.more(piece),
            _ => {}
        }
        events
    }

    fn keep_alive(&mut self) -> String {
        self.response("response.in_progress", Progress::Begun)
    }

    fn end(&mut self, answer: &Answer) -> String {
        let last = self.close();
        let kind = match incomplete(&answer.stop) {
            Some(_) => "response.incomplete",
            None => "response.completed",
        };
        last + &self.response(kind, Progress::Ended(answer))
    }

    fn failed(&mut self, error: &str, usage: Option<&TextUsage>) -> String {
        let error: Value = serde_json::from_str(error).unwrap_or_default();
        let text = |name| error["error"][name].as_str().unwrap_or_default();
        // Codex retries every unknown code.
        let code = match (text("type"), text("code")) {
            ("invalid_request_error", code) if code != CONTEXT_LENGTH => "invalid_prompt",
            (_, code) => code,
        };
        let message = text("message");
        let mut output = mem::take(&mut self.output);
        output.extend(self.cut(output.len()));
        let none = || TextUsage::from_counts(TokenCounts::default(), 0, 0);
        let progress = Progress::Failed {
            code,
            message,
            output: &output,
            usage: usage.copied().unwrap_or_else(none),
        };
        self.response("response.failed", progress)
    }
}

//! Writes answers, whole or as the events of a stream: each part of an answer is an item of the
//! output.

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    answer::{
        EventBody, Progress, ResponseBody, ResponseEvent, ResponseItem, ResponseText, id,
        incomplete,
    },
    is_item,
    own::{self, OwnTools},
    secret, text_of,
};
use crate::domain::{
    conversation::{Delta, Part},
    dialect::{Answer, Head, Writer},
    validate::Fields,
};

/// What an answer says of its request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Echo {
    instructions: Option<String>,
    max_output_tokens: Option<Value>,
    parallel_tool_calls: bool,
    reasoning: Value,
    temperature: Option<Value>,
    text: Value,
    tool_choice: Value,
    tools: Value,
    top_p: Option<Value>,
    metadata: Value,
    #[serde(skip)]
    pub shown: Shown,
}

/// How items are told.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shown {
    /// Whether reasoning is answered as only its vendor can read it.
    pub encrypted: bool,
    /// Tools whose calls are no plain functions'.
    pub tools: OwnTools,
}

impl Echo {
    pub(super) fn of(fields: &Fields<'_>, instructions: Option<String>) -> Self {
        let given = |name| fields.value(name).cloned();
        let or = |name, default| given(name).unwrap_or(default);
        Self {
            instructions,
            max_output_tokens: given("max_output_tokens"),
            parallel_tool_calls: given("parallel_tool_calls") != Some(json!(false)),
            reasoning: or("reasoning", json!({"effort": null, "summary": null})),
            temperature: given("temperature"),
            text: or("text", json!({"format": {"type": "text"}})),
            tool_choice: or("tool_choice", json!("auto")),
            tools: or("tools", json!([])),
            top_p: given("top_p"),
            metadata: or("metadata", json!({})),
            shown: Shown::default(),
        }
    }
}

/// Writes an answer.
#[derive(Debug)]
pub struct ResponsesWriter {
    head: Head,
    echo: Echo,
    /// Events so far.
    sequence: u64,
    /// The part that may still grow, or none.
    parts: Vec<Part>,
    /// Items that have ended.
    ended: usize,
}

impl ResponsesWriter {
    pub const fn new(head: Head, echo: Echo) -> Self {
        Self {
            head,
            echo,
            sequence: 0,
            parts: Vec::new(),
            ended: 0,
        }
    }

    fn event(&mut self, kind: &'static str, more: EventBody) -> String {
        let event = ResponseEvent {
            r#type: kind,
            sequence_number: self.sequence,
            more,
        };
        self.sequence += 1;
        format!("event: {kind}\ndata: {}\n\n", text_of(&event))
    }

    fn response(&mut self, kind: &'static str, progress: Progress<'_>) -> String {
        let response = ResponseBody::new(&self.head, &self.echo, progress);
        let response = Box::new(response);
        self.event(kind, EventBody::Response { response })
    }

    /// The last part begins an item.
    fn open(&mut self) -> String {
        let Some(part) = self.parts.last().cloned() else {
            return String::new();
        };
        let Some(item) = ResponseItem::begun(&self.head.id, self.ended, &part, &self.echo.shown)
        else {
            return String::new();
        };
        let (output_index, item_id) = (self.ended, id(&self.head.id, self.ended, &part));
        let item = EventBody::Item { output_index, item };
        let mut events = self.event("response.output_item.added", item);
        match &part {
            Part::Text { text } => {
                let part = EventBody::Content {
                    item_id,
                    output_index,
                    content_index: 0,
                    part: ResponseText::output(""),
                };
                events += &self.event("response.content_part.added", part);
                events += &self.more(text);
            }
            Part::Thinking { text, .. } if !text.is_empty() => {
                events += &self.summarize();
                events += &self.more(text);
            }
            Part::ToolCall(call) => events += &self.more(&call.arguments),
            Part::Opaque { block } => events += &self.summary_of(&item_id, block),
            _ => {}
        }
        events
    }

    /// The summary of a reasoning item that is known whole.
    fn summary_of(&mut self, item_id: &str, item: &Value) -> String {
        let output_index = self.ended;
        let parts = item["summary"].as_array().into_iter().flatten();
        let texts = parts.filter_map(|part| part["text"].as_str());
        let mut events = String::new();
        for (summary_index, text) in (0_u32..).zip(texts) {
            let item_id = || item_id.to_owned();
            let part = |text| EventBody::Summary {
                item_id: item_id(),
                output_index,
                summary_index,
                part: ResponseText::summary(text),
            };
            events += &self.event("response.reasoning_summary_part.added", part(""));
            let delta = EventBody::SummaryDelta {
                item_id: item_id(),
                output_index,
                summary_index,
                delta: text.to_owned(),
            };
            events += &self.event("response.reasoning_summary_text.delta", delta);
            let done = EventBody::SummaryDone {
                item_id: item_id(),
                output_index,
                summary_index,
                text: text.to_owned(),
            };
            events += &self.event("response.reasoning_summary_text.done", done);
            events += &self.event("response.reasoning_summary_part.done", part(text));
        }
        events
    }

    /// Thoughts are about to be told.
    fn summarize(&mut self) -> String {
        let Some(part) = self.parts.last() else {
            return String::new();
        };
        let more = EventBody::Summary {
            item_id: id(&self.head.id, self.ended, part),
            output_index: self.ended,
            summary_index: 0,
            part: ResponseText::summary(""),
        };
        self.event("response.reasoning_summary_part.added", more)
    }

    /// More of the last part.
    fn more(&mut self, piece: &str) -> String {
        let Some(part) = self.parts.last().filter(|_| !piece.is_empty()) else {
            return String::new();
        };
        let (output_index, item_id) = (self.ended, id(&self.head.id, self.ended, part));
        let delta = piece.to_owned();
        let (kind, more) = match part {
            Part::Text { .. } => (
                "response.output_text.delta",
                EventBody::TextDelta {
                    item_id,
                    output_index,
                    content_index: 0,
                    delta,
                    logprobs: [],
                },
            ),
            Part::Thinking { .. } => (
                "response.reasoning_summary_text.delta",
                EventBody::SummaryDelta {
                    item_id,
                    output_index,
                    summary_index: 0,
                    delta,
                },
            ),
            // The input is within the arguments, which are read when they are all there.
            Part::ToolCall(call) if self.echo.shown.tools.is_custom(call) => return String::new(),
            Part::ToolCall(_) => (
                "response.function_call_arguments.delta",
                EventBody::ArgumentsDelta {
                    item_id,
                    output_index,
                    delta,
                },
            ),
            _ => return String::new(),
        };
        self.event(kind, more)
    }

    /// The last part has ended.
    fn close(&mut self) -> String {
        let Some(part) = self.parts.pop() else {
            return String::new();
        };
        let (generation, at) = (self.head.id.clone(), self.ended);
        let Some(item) = ResponseItem::of(&generation, at, &part, &self.echo.shown) else {
            return String::new();
        };
        let (output_index, item_id) = (at, id(&generation, at, &part));
        let mut events = String::new();
        match part {
            Part::Text { text } => {
                let part = ResponseText::output(&text);
                let done = EventBody::TextDone {
                    item_id: item_id.clone(),
                    output_index,
                    content_index: 0,
                    text,
                    logprobs: [],
                };
                events += &self.event("response.output_text.done", done);
                let done = EventBody::Content {
                    item_id,
                    output_index,
                    content_index: 0,
                    part,
                };
                events += &self.event("response.content_part.done", done);
            }
            Part::Thinking { text, .. } if !text.is_empty() => {
                let part = ResponseText::summary(&text);
                let done = EventBody::SummaryDone {
                    item_id: item_id.clone(),
                    output_index,
                    summary_index: 0,
                    text,
                };
                events += &self.event("response.reasoning_summary_text.done", done);
                let done = EventBody::Summary {
                    item_id,
                    output_index,
                    summary_index: 0,
                    part,
                };
                events += &self.event("response.reasoning_summary_part.done", done);
            }
            Part::ToolCall(call) if self.echo.shown.tools.is_custom(&call) => {
                let input = own::input(&call.arguments);
                let delta = EventBody::ArgumentsDelta {
                    item_id: item_id.clone(),
                    output_index,
                    delta: input.clone(),
                };
                events += &self.event("response.custom_tool_call_input.delta", delta);
                let done = EventBody::InputDone {
                    item_id,
                    output_index,
                    input,
                };
                events += &self.event("response.custom_tool_call_input.done", done);
            }
            Part::ToolCall(call) => {
                let own = self.echo.shown.tools.get(&call);
                let done = EventBody::ArgumentsDone {
                    item_id,
                    output_index,
                    name: own.map_or(&call.name, |own| &own.name).clone(),
                    arguments: call.arguments,
                };
                events += &self.event("response.function_call_arguments.done", done);
            }
            _ => {}
        }
        self.ended += 1;
        events
            + &self.event(
                "response.output_item.done",
                EventBody::Item { output_index, item },
            )
    }
}

impl Writer for ResponsesWriter {
    fn whole(&self, answer: &Answer) -> String {
        text_of(&ResponseBody::new(
            &self.head,
            &self.echo,
            Progress::Ended(answer),
        ))
    }

    fn begin(&mut self) -> String {
        self.response("response.created", Progress::Begun) + &self.keep_alive()
    }

    fn piece(&mut self, delta: &Delta) -> String {
        let mut events = String::new();
        for delta in secret::pieces(delta.clone()) {
            let last = self.parts.last();
            let untold = matches!(last, Some(Part::Thinking { text, .. }) if text.is_empty());
            let before = self.parts.len();
            delta.clone().add_to(&mut self.parts);
            if self.parts.len() > before {
                let begun = self.parts.pop();
                events += &self.close();
                self.parts.extend(begun);
                events += &self.open();
                // What is no item leaves no gap.
                self.parts.retain(is_item);
                continue;
            }
            match delta {
                Delta::Thinking(piece) | Delta::Reasoning(_, piece) => {
                    if untold {
                        events += &self.summarize();
                    }
                    events += &self.more(&piece);
                }
                Delta::Text(piece) | Delta::Arguments(piece) => events += &self.more(&piece),
                _ => {}
            }
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

    fn failed(&mut self, error: &str) -> String {
        let error: Value = serde_json::from_str(error).unwrap_or_default();
        let text = |name| error["error"][name].as_str().unwrap_or_default().to_owned();
        let (code, message) = (text("code"), text("message"));
        self.response("response.failed", Progress::Failed { code, message })
    }
}

//! The bodies of answers and of events.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{
    Echo, is_item,
    own::{self, OwnTool},
    secret,
    writer::Shown,
};
use crate::domain::{
    conversation::{Part, Stop, ToolCall},
    dialect::{Answer, Head},
    usage::TextUsage,
};

/// The answer of POST /openai/v1/responses.
#[derive(Debug, Serialize, ToSchema)]
pub struct ResponseBody {
    /// The generation's uuid, after `resp_`.
    id: String,
    /// `response`
    object: &'static str,
    /// Seconds since 1970.
    created_at: i64,
    /// `in_progress` of events before the end, `completed`, `incomplete` or `failed`.
    status: &'static str,
    /// `false`
    background: bool,
    /// Why it failed.
    #[schema(required, nullable)]
    error: Option<ResponseFailure>,
    /// Why it is incomplete.
    #[schema(required, nullable)]
    incomplete_details: Option<ResponseIncomplete>,
    /// As it was asked for.
    model: String,
    /// The items of the answer.
    output: Vec<ResponseItem>,
    /// What it used; null before the end.
    #[schema(required, nullable)]
    usage: Option<ResponseUsage>,
    /// Always null.
    #[schema(value_type = Option<String>)]
    previous_response_id: (),
    /// `false`
    store: bool,
    /// `disabled`
    truncation: &'static str,
    /// What was asked for.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    echo: Echo,
}

/// Why it failed.
#[derive(Debug, Serialize, ToSchema)]
pub struct ResponseFailure {
    /// For programs.
    code: String,
    /// For people.
    message: String,
}

/// Why it is incomplete.
#[derive(Debug, Serialize, ToSchema)]
pub struct ResponseIncomplete {
    /// `max_output_tokens` or `content_filter`
    reason: &'static str,
}

/// An item of an answer: a message, a call of a tool, or reasoning.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResponseItem {
    /// A message.
    Message {
        /// Its id.
        id: String,
        /// `in_progress` or `completed`.
        status: &'static str,
        /// `assistant`
        role: &'static str,
        /// The text.
        content: Vec<ResponseText>,
    },
    /// A call of a function.
    FunctionCall {
        /// Its id.
        id: String,
        /// `in_progress` or `completed`.
        status: &'static str,
        /// What its output is to name.
        call_id: String,
        /// The function.
        name: String,
        /// Its namespace.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        /// JSON.
        arguments: String,
    },
    /// A call of a custom tool.
    CustomToolCall {
        /// Its id.
        id: String,
        /// `in_progress` or `completed`.
        status: &'static str,
        /// What its output is to name.
        call_id: String,
        /// The tool.
        name: String,
        /// Its namespace.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        /// Any text.
        input: String,
    },
    /// What was thought.
    Reasoning {
        /// Its id.
        id: String,
        /// `in_progress` or `completed`.
        status: &'static str,
        /// As far as the model tells it.
        summary: Vec<ResponseText>,
        /// To be brought back; with `include` only.
        #[serde(skip_serializing_if = "Option::is_none")]
        encrypted_content: Option<String>,
    },
    /// An item of `OpenAI`'s, as it came.
    #[serde(untagged)]
    #[schema(value_type = Object)]
    Opaque(Value),
}

/// A text of an item.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResponseText {
    /// Of a message.
    OutputText {
        /// The text.
        text: String,
        /// None.
        #[schema(value_type = Vec<Object>)]
        annotations: [(); 0],
        /// None.
        #[schema(value_type = Vec<Object>)]
        logprobs: [(); 0],
    },
    /// Of reasoning.
    SummaryText {
        /// The text.
        text: String,
    },
}

/// What an answer used.
#[derive(Debug, Serialize, ToSchema)]
pub struct ResponseUsage {
    /// All input tokens, cached ones included.
    input_tokens: u64,
    /// Parts of the input.
    input_tokens_details: ResponseInputDetails,
    /// All output tokens, reasoning included.
    output_tokens: u64,
    /// Parts of the output.
    output_tokens_details: ResponseOutputDetails,
    /// Their sum.
    total_tokens: u64,
}

/// Parts of the input.
#[derive(Debug, Serialize, ToSchema)]
pub struct ResponseInputDetails {
    /// Tokens from the provider's cache.
    cached_tokens: u64,
    /// Tokens written to it.
    cache_write_tokens: u64,
}

/// Parts of the output.
#[derive(Debug, Serialize, ToSchema)]
pub struct ResponseOutputDetails {
    /// Tokens of hidden reasoning.
    reasoning_tokens: u64,
}

/// One event of a stream, the first `response.created`, the last `response.completed`,
/// `response.incomplete` or `response.failed`.
#[derive(Debug, Serialize, ToSchema)]
pub struct ResponseEvent {
    /// What happened.
    pub(super) r#type: &'static str,
    /// From 0.
    pub(super) sequence_number: u64,
    /// What belongs to the type.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub(super) more: EventBody,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum EventBody {
    Response {
        response: Box<ResponseBody>,
    },
    Item {
        output_index: usize,
        item: ResponseItem,
    },
    Content {
        item_id: String,
        output_index: usize,
        content_index: u32,
        part: ResponseText,
    },
    TextDelta {
        item_id: String,
        output_index: usize,
        content_index: u32,
        delta: String,
        logprobs: [(); 0],
    },
    TextDone {
        item_id: String,
        output_index: usize,
        content_index: u32,
        text: String,
        logprobs: [(); 0],
    },
    Summary {
        item_id: String,
        output_index: usize,
        summary_index: u32,
        part: ResponseText,
    },
    SummaryDelta {
        item_id: String,
        output_index: usize,
        summary_index: u32,
        delta: String,
    },
    SummaryDone {
        item_id: String,
        output_index: usize,
        summary_index: u32,
        text: String,
    },
    ArgumentsDelta {
        item_id: String,
        output_index: usize,
        delta: String,
    },
    ArgumentsDone {
        item_id: String,
        output_index: usize,
        name: String,
        arguments: String,
    },
    InputDone {
        item_id: String,
        output_index: usize,
        input: String,
    },
}

/// How far a response has come.
pub(super) enum Progress<'a> {
    Begun,
    Ended(&'a Answer),
    Failed { code: String, message: String },
}

impl ResponseBody {
    pub(super) fn new(head: &Head, echo: &Echo, progress: Progress<'_>) -> Self {
        let mut body = Self {
            id: format!("resp_{}", head.id),
            object: "response",
            created_at: head.created,
            status: "in_progress",
            background: false,
            error: None,
            incomplete_details: None,
            model: head.model.clone(),
            output: Vec::new(),
            usage: None,
            previous_response_id: (),
            store: false,
            truncation: "disabled",
            echo: echo.clone(),
        };
        match progress {
            Progress::Begun => {}
            Progress::Ended(answer) => {
                let reason = incomplete(&answer.stop);
                body.status = reason.map_or("completed", |_| "incomplete");
                body.incomplete_details = reason.map(|reason| ResponseIncomplete { reason });
                body.output = items(&head.id, &answer.parts, &echo.shown);
                body.usage = Some(ResponseUsage::from(&answer.usage));
            }
            Progress::Failed { code, message } => {
                body.status = "failed";
                body.error = Some(ResponseFailure { code, message });
            }
        }
        body
    }
}

/// The reason of an answer that is incomplete.
pub(super) const fn incomplete(stop: &Stop) -> Option<&'static str> {
    match stop {
        Stop::Limit => Some("max_output_tokens"),
        Stop::ContentFilter => Some("content_filter"),
        Stop::Done
        | Stop::Sequence(_)
        | Stop::Tools
        | Stop::Paused
        | Stop::MalformedFunctionCall
        | Stop::Other => None,
    }
}

/// The items of an answer.
fn items(generation: &str, parts: &[Part], shown: &Shown) -> Vec<ResponseItem> {
    let mut items = Vec::new();
    for part in parts
        .iter()
        .cloned()
        .flat_map(secret::parts)
        .filter(is_item)
    {
        let at = items.len();
        items.extend(ResponseItem::of(generation, at, &part, shown));
    }
    items
}

/// The item of an answer that an id refers to, as a request has it: the generation, and which of
/// its items.
pub fn referenced(id: &str) -> Option<(&str, usize)> {
    let (rest, at) = id.rsplit_once('_')?;
    let (_kind, generation) = rest.rsplit_once('_')?;
    Some((generation, at.parse().ok()?))
}

impl Answer {
    /// The items at these places of the output in the Responses API, as a request refers to them.
    pub fn response_items(
        &self,
        generation: &str,
        places: &BTreeSet<usize>,
    ) -> HashMap<usize, Value> {
        let shown = Shown {
            encrypted: true,
            ..Shown::default()
        };
        let mut found = HashMap::new();
        let mut at = 0;
        let parts = self.parts.iter().cloned().flat_map(secret::parts);
        for part in parts.filter(is_item) {
            let Some(item) = ResponseItem::of(generation, at, &part, &shown) else {
                continue;
            };
            if places.contains(&at) {
                found.insert(at, json!(item));
            }
            at += 1;
        }
        found
    }
}

impl ResponseText {
    pub(super) fn output(text: &str) -> Self {
        Self::OutputText {
            text: text.to_owned(),
            annotations: [],
            logprobs: [],
        }
    }

    pub(super) fn summary(text: &str) -> Self {
        Self::SummaryText {
            text: text.to_owned(),
        }
    }
}

impl ResponseItem {
    /// A part that has ended.
    pub(super) fn of(generation: &str, at: usize, part: &Part, shown: &Shown) -> Option<Self> {
        let status = "completed";
        let id = id(generation, at, part);
        Some(match part {
            Part::Text { text } => Self::Message {
                id,
                status,
                role: "assistant",
                content: vec![ResponseText::output(text)],
            },
            Part::ToolCall(call) => match shown.tools.get(call) {
                Some(OwnTool {
                    namespace,
                    name,
                    is_custom: true,
                }) => Self::CustomToolCall {
                    id,
                    status,
                    call_id: call.id.clone(),
                    name: name.clone(),
                    namespace: namespace.clone(),
                    input: own::input(&call.arguments),
                },
                own => Self::FunctionCall {
                    id,
                    status,
                    call_id: call.id.clone(),
                    name: own.map_or(&call.name, |own| &own.name).clone(),
                    namespace: own.and_then(|own| own.namespace.clone()),
                    arguments: call.arguments.clone(),
                },
            },
            Part::Thinking { text, .. } => Self::Reasoning {
                id,
                status,
                summary: match text.as_str() {
                    "" => Vec::new(),
                    text => vec![ResponseText::summary(text)],
                },
                encrypted_content: secret::write(part).filter(|_| shown.encrypted),
            },
            Part::Redacted { .. } => Self::Reasoning {
                id,
                status,
                summary: Vec::new(),
                encrypted_content: secret::write(part).filter(|_| shown.encrypted),
            },
            Part::Opaque { block } => {
                let mut item = block.clone();
                // The provider keeps no item: references are to ours.
                if item.get("id").is_some() {
                    item["id"] = json!(id);
                }
                Self::Opaque(item)
            }
            Part::Image(_) | Part::ToolResult(_) => return None,
        })
    }

    /// A part that begins.
    pub(super) fn begun(generation: &str, at: usize, part: &Part, shown: &Shown) -> Option<Self> {
        let empty = match part {
            Part::ToolCall(call) => Part::ToolCall(ToolCall {
                arguments: String::new(),
                ..call.clone()
            }),
            Part::Thinking { .. } => Part::Thinking {
                text: String::new(),
                signature: String::new(),
            },
            part => part.clone(),
        };
        let mut item = Self::of(generation, at, &empty, shown)?;
        match &mut item {
            Self::Message {
                status, content, ..
            } => {
                *status = "in_progress";
                content.clear();
            }
            Self::FunctionCall { status, .. } | Self::CustomToolCall { status, .. } => {
                *status = "in_progress";
            }
            Self::Reasoning {
                status,
                encrypted_content,
                ..
            } => {
                *status = "in_progress";
                *encrypted_content = None;
            }
            Self::Opaque(item) => {
                if item.get("status").is_some() {
                    item["status"] = json!("in_progress");
                }
                // It follows in events of its own.
                if item["type"] == "reasoning" {
                    item["summary"] = json!([]);
                }
            }
        }
        Some(item)
    }
}

/// The id of an item of an answer.
pub(super) fn id(generation: &str, at: usize, part: &Part) -> String {
    let kind = match part {
        Part::Opaque { block } => {
            let id = block["id"].as_str().unwrap_or_default();
            id.split_once('_').map_or("item", |(kind, _)| kind)
        }
        Part::ToolCall(_) => "fc",
        Part::Thinking { .. } | Part::Redacted { .. } => "rs",
        _ => "msg",
    };
    format!("{kind}_{generation}_{at}")
}

impl From<&TextUsage> for ResponseUsage {
    fn from(usage: &TextUsage) -> Self {
        Self {
            input_tokens: usage.input_tokens,
            input_tokens_details: ResponseInputDetails {
                cached_tokens: usage.cached_input_tokens.unwrap_or(0),
                cache_write_tokens: usage.cache_write_tokens.unwrap_or(0),
            },
            output_tokens: usage.output_tokens,
            output_tokens_details: ResponseOutputDetails {
                reasoning_tokens: usage.reasoning_tokens.unwrap_or(0),
            },
            total_tokens: usage.total_tokens,
        }
    }
}

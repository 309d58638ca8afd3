//! Messages, as the `anthropic` packages speak it (anthropic 2.10.0,
//! `anthropic/types/message_create_params.py`, `message.py`, `raw_message_stream_event.py`).

use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{Answer, Head, MAX_LIMIT, Writer, instructions, json as text_of, texts};
use crate::domain::{
    conversation::{Conversation, Message as Turn, Role, Sampling, Stop},
    generation::Surface,
    named::named_enum,
    request::{DialogueRequest, MODEL_NAME},
    usage::TextUsage,
    validate::{Fields, Input, List, Object, boolean, integer, number, only, sequences, words},
};

/// Fields that ask for what is not served here.
const UNSUPPORTED: &[&str] = &[
    "cache_control",
    "container",
    "context_management",
    "diagnostics",
    "fallbacks",
    "inference_geo",
    "mcp_servers",
    "metadata",
    "output_config",
    "output_format",
    "speed",
    "thread",
    "tool_choice",
    "tools",
    "top_k",
    "user_profile_id",
];
const MAX_STOPS: usize = 100;

#[derive(Debug, Clone, PartialEq)]
pub struct MessagesRequest(pub DialogueRequest);

/// The body of a request to count tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct CountRequest(pub DialogueRequest);

named_enum!(
    /// Who says a message.
    MessageRole {
        System = "system",
        User = "user",
        Assistant = "assistant",
    }
);

/// What both bodies have.
fn dialogue(fields: &Fields<'_>) -> Option<DialogueRequest> {
    let about = "`provider/model` of GET /anthropic/v1/models, or just `model`.";
    let model = fields.required("model", about, MODEL_NAME);
    let messages = List {
        about: "The dialogue so far, the oldest message first.",
        schema: ("MessageParam", "A message."),
        required: true,
        short: None,
    };
    let messages = messages.read(fields, "messages", |message| {
        let role = message.required("role", "Who says it.", words::<MessageRole>());
        let parts = texts(message, "content", "What is said.", true);
        let role = match role? {
            MessageRole::System => Role::System,
            MessageRole::User => Role::User,
            MessageRole::Assistant => Role::Assistant,
        };
        let parts = parts?;
        Some(Turn { role, parts })
    });
    let system = texts(fields, "system", "Instructions above the messages.", false);
    let thinking = only([json!({"type": "disabled"})]);
    fields.optional("thinking", "As it is anyway.", thinking);
    fields.unsupported(UNSUPPORTED);
    let conversation = Conversation {
        system: instructions(system.unwrap_or_default()),
        messages: messages?,
    };
    let surface = Surface::AnthropicMessages;
    Some(DialogueRequest::new(surface, model?, conversation))
}

impl Input for MessagesRequest {
    fn read(fields: &Fields<'_>) -> Option<Self> {
        let dialogue = dialogue(fields);
        let about = "Upper bound of output tokens, reasoning included. At or above the model's own \
                     limit it counts as none: then it is what the account can pay for.";
        let max_tokens = fields.required("max_tokens", about, integer(1..=MAX_LIMIT));
        let about = "Default: the provider's. Not every model takes one.";
        let sampling = Sampling {
            temperature: fields.optional("temperature", about, number(0.0..=1.0)),
            top_p: fields.optional("top_p", about, number(0.0..=1.0)),
            stop: fields
                .optional(
                    "stop_sequences",
                    "The text ends before one.",
                    sequences(MAX_STOPS, false),
                )
                .unwrap_or_default(),
        };
        let tiers = only([json!("auto"), json!("standard_only")]);
        fields.optional("service_tier", "As it is anyway.", tiers);
        let about = "Whether the answer is an event stream.";
        let stream = fields.optional("stream", about, boolean());
        Some(Self(DialogueRequest {
            max_tokens,
            sampling,
            stream: stream.unwrap_or(false),
            ..dialogue?
        }))
    }
}

impl Object for MessagesRequest {
    const SCHEMA: (&'static str, &'static str) = (
        "MessagesRequest",
        "A dialogue of texts. Other fields of Messages are refused by name.",
    );

    fn example() -> Value {
        json!({"model": "sandbox/sandbox-text-1", "max_tokens": 64,
            "messages": [{"role": "user", "content": "A haiku about exactness"}]})
    }
}

impl Input for CountRequest {
    fn read(fields: &Fields<'_>) -> Option<Self> {
        dialogue(fields).map(Self)
    }
}

impl Object for CountRequest {
    const SCHEMA: (&'static str, &'static str) = (
        "CountTokensRequest",
        "A dialogue of texts, of which the input tokens are to be counted.",
    );

    fn example() -> Value {
        json!({"model": "sandbox/sandbox-text-1",
            "messages": [{"role": "user", "content": "A haiku about exactness"}]})
    }
}

/// The tokens of a dialogue.
#[derive(Debug, Serialize, ToSchema)]
pub struct TokenCount {
    /// Input tokens that the dialogue cannot exceed.
    pub input_tokens: u64,
}

/// The answer of POST /anthropic/v1/messages.
#[derive(Debug, Serialize, ToSchema)]
pub struct Message {
    /// The generation's uuid, after `msg_`.
    id: String,
    /// `message`
    r#type: &'static str,
    /// `assistant`
    role: &'static str,
    /// As it was asked for.
    model: String,
    /// The text; nothing where reasoning used up the limit.
    content: Vec<TextBlock>,
    /// `end_turn`, `max_tokens` or `stop_sequence`.
    #[schema(required, nullable)]
    stop_reason: Option<&'static str>,
    /// The stop sequence that ended it.
    #[schema(required, nullable)]
    stop_sequence: Option<String>,
    /// What it used.
    usage: MessageUsage,
}

/// Text.
#[derive(Debug, Serialize, ToSchema)]
pub struct TextBlock {
    /// `text`
    r#type: &'static str,
    /// The text.
    text: String,
}

/// What an answer used.
#[derive(Debug, Serialize, ToSchema)]
#[expect(clippy::struct_field_names, reason = "these are the dialect's names")]
pub struct MessageUsage {
    /// Input tokens that came from no cache.
    input_tokens: u64,
    /// Input tokens written to the provider's cache.
    cache_creation_input_tokens: u64,
    /// Input tokens from the provider's cache.
    cache_read_input_tokens: u64,
    /// All output tokens, reasoning included.
    output_tokens: u64,
}

/// One event of a stream, by its `type`: `message_start`, `ping`, `content_block_start`,
/// `content_block_delta`, `content_block_stop`, `message_delta`, `message_stop`, or `error`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MessageEvent {
    /// The first: the message without its content.
    MessageStart {
        /// The message.
        message: Message,
    },
    /// A sign of life.
    Ping,
    /// The text begins.
    ContentBlockStart {
        /// 0
        index: u32,
        /// Empty text.
        content_block: TextBlock,
    },
    /// More text.
    ContentBlockDelta {
        /// 0
        index: u32,
        /// The piece, of type `text_delta`.
        delta: TextBlock,
    },
    /// The text has ended.
    ContentBlockStop {
        /// 0
        index: u32,
    },
    /// Why it ended, and what it used.
    MessageDelta {
        /// Why it ended.
        delta: MessageEnd,
        /// What it used in all.
        usage: MessageUsage,
    },
    /// The last.
    MessageStop,
}

/// Why an answer ended.
#[derive(Debug, Serialize, ToSchema)]
pub struct MessageEnd {
    /// `end_turn`, `max_tokens` or `stop_sequence`.
    stop_reason: &'static str,
    /// The stop sequence that ended it.
    #[schema(required, nullable)]
    stop_sequence: Option<String>,
}

impl From<&TextUsage> for MessageUsage {
    fn from(usage: &TextUsage) -> Self {
        let cached = usage.cached_input_tokens.unwrap_or(0);
        let written = usage.cache_write_tokens.unwrap_or(0);
        Self {
            input_tokens: usage.input_tokens.saturating_sub(cached + written),
            cache_creation_input_tokens: written,
            cache_read_input_tokens: cached,
            output_tokens: usage.output_tokens,
        }
    }
}

impl From<&Stop> for MessageEnd {
    fn from(stop: &Stop) -> Self {
        let (stop_reason, sequence) = match stop {
            Stop::Done => ("end_turn", None),
            Stop::Limit => ("max_tokens", None),
            Stop::Sequence(sequence) => ("stop_sequence", Some(sequence.clone())),
        };
        Self {
            stop_reason,
            stop_sequence: sequence,
        }
    }
}

/// Writes an answer.
#[derive(Debug)]
pub struct MessagesWriter {
    head: Head,
    /// Whether the block of the text is open.
    open: bool,
}

impl MessagesWriter {
    pub const fn new(head: Head) -> Self {
        Self { head, open: false }
    }

    fn message(&self, text: &str, stop: Option<&Stop>, usage: MessageUsage) -> Message {
        let end = stop.map(MessageEnd::from);
        Message {
            id: format!("msg_{}", self.head.id),
            r#type: "message",
            role: "assistant",
            model: self.head.model.clone(),
            content: (!text.is_empty())
                .then(|| block("text", text))
                .into_iter()
                .collect(),
            stop_reason: end.as_ref().map(|end| end.stop_reason),
            stop_sequence: end.and_then(|end| end.stop_sequence),
            usage,
        }
    }
}

fn block(kind: &'static str, text: &str) -> TextBlock {
    TextBlock {
        r#type: kind,
        text: text.to_owned(),
    }
}

fn event(event: &MessageEvent) -> String {
    let name = match event {
        MessageEvent::MessageStart { .. } => "message_start",
        MessageEvent::Ping => "ping",
        MessageEvent::ContentBlockStart { .. } => "content_block_start",
        MessageEvent::ContentBlockDelta { .. } => "content_block_delta",
        MessageEvent::ContentBlockStop { .. } => "content_block_stop",
        MessageEvent::MessageDelta { .. } => "message_delta",
        MessageEvent::MessageStop => "message_stop",
    };
    format!("event: {name}\ndata: {}\n\n", text_of(event))
}

impl Writer for MessagesWriter {
    fn whole(&self, answer: &Answer) -> String {
        let usage = MessageUsage::from(&answer.usage);
        text_of(&self.message(&answer.text, Some(&answer.stop), usage))
    }

    fn begin(&mut self) -> String {
        let usage = MessageUsage {
            input_tokens: self.head.input_tokens,
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: 0,
            output_tokens: 1,
        };
        let message = self.message("", None, usage);
        event(&MessageEvent::MessageStart { message })
    }

    fn text(&mut self, piece: &str) -> String {
        let delta = event(&MessageEvent::ContentBlockDelta {
            index: 0,
            delta: block("text_delta", piece),
        });
        if self.open {
            return delta;
        }
        self.open = true;
        let content_block = block("text", "");
        let index = 0;
        event(&MessageEvent::ContentBlockStart {
            index,
            content_block,
        }) + &delta
    }

    fn keep_alive(&self) -> String {
        event(&MessageEvent::Ping)
    }

    fn end(&mut self, answer: &Answer) -> String {
        let mut events = String::new();
        if self.open {
            events += &event(&MessageEvent::ContentBlockStop { index: 0 });
        }
        events += &event(&MessageEvent::MessageDelta {
            delta: MessageEnd::from(&answer.stop),
            usage: MessageUsage::from(&answer.usage),
        });
        events + &event(&MessageEvent::MessageStop)
    }

    fn failed(&self, error: &str) -> String {
        format!("event: error\ndata: {error}\n\n")
    }
}

#[cfg(test)]
mod tests;

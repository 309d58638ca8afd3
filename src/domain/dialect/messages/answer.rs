//! The bodies of answers and of events.

use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::GEMINI;
use crate::domain::{
    conversation::{Json, Part, Stop, ToolCall},
    usage::TextUsage,
};

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
    pub(super) id: String,
    /// `message`
    pub(super) r#type: &'static str,
    /// `assistant`
    pub(super) role: &'static str,
    /// As it was asked for.
    pub(super) model: String,
    /// What was answered; nothing where reasoning used up the limit.
    pub(super) content: Vec<Block>,
    /// `end_turn`, `max_tokens`, `stop_sequence`, `tool_use`, `pause_turn` or `refusal`.
    #[schema(required, nullable)]
    pub(super) stop_reason: Option<&'static str>,
    /// The stop sequence that ended it.
    #[schema(required, nullable)]
    pub(super) stop_sequence: Option<String>,
    /// What it used.
    pub(super) usage: MessageUsage,
}

/// A block of an answer, by its `type`: `text`, `thinking`, `redacted_thinking`, `tool_use`, or one
/// that only the provider knows.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// What the model thought.
    Thinking {
        /// As far as the provider shows it.
        thinking: String,
        /// To be brought back with it.
        signature: String,
    },
    /// What the model thought, which only the provider can read.
    RedactedThinking {
        /// To be brought back.
        data: String,
    },
    /// A tool that the model wants to be used.
    ToolUse {
        /// Its id.
        id: String,
        /// The tool's name.
        name: String,
        /// The arguments.
        #[schema(value_type = Object)]
        input: Json,
    },
    /// As the provider has it.
    #[serde(untagged)]
    #[schema(value_type = Object)]
    Opaque(Value),
}

/// What is added to a block, by its `type`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(clippy::enum_variant_names, reason = "these are the dialect's names")]
pub enum BlockDelta {
    /// More text.
    TextDelta {
        /// The piece.
        text: String,
    },
    /// More thinking.
    ThinkingDelta {
        /// The piece.
        thinking: String,
    },
    /// The signature of the thinking.
    SignatureDelta {
        /// The signature.
        signature: String,
    },
    /// More of a tool's arguments.
    InputJsonDelta {
        /// A piece of the JSON.
        partial_json: String,
    },
}

/// What an answer used.
#[derive(Debug, Serialize, ToSchema)]
pub struct MessageUsage {
    /// Input tokens that came from no cache.
    pub(super) input_tokens: u64,
    /// Input tokens written to the provider's cache.
    pub(super) cache_creation_input_tokens: u64,
    /// Input tokens from the provider's cache.
    pub(super) cache_read_input_tokens: u64,
    /// All output tokens, reasoning included.
    pub(super) output_tokens: u64,
    /// Parts of the output, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output_tokens_details: Option<MessageOutputDetails>,
}

/// Parts of the output.
#[derive(Debug, Serialize, ToSchema)]
pub struct MessageOutputDetails {
    /// Tokens of thinking.
    pub(super) thinking_tokens: u64,
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
    /// A block begins; one at a time.
    ContentBlockStart {
        /// From 0.
        index: u32,
        /// The block, without what is still to come.
        content_block: Block,
    },
    /// More of the block.
    ContentBlockDelta {
        /// The block's.
        index: u32,
        /// What is added.
        delta: BlockDelta,
    },
    /// The block has ended.
    ContentBlockStop {
        /// The block's.
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
    /// As of a message.
    pub(super) stop_reason: &'static str,
    /// The stop sequence that ended it.
    #[schema(required, nullable)]
    pub(super) stop_sequence: Option<String>,
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
            output_tokens_details: usage
                .reasoning_tokens
                .map(|thinking_tokens| MessageOutputDetails { thinking_tokens }),
        }
    }
}

impl From<&Stop> for MessageEnd {
    fn from(stop: &Stop) -> Self {
        let (stop_reason, sequence) = match stop {
            Stop::Done | Stop::MalformedFunctionCall | Stop::Other => ("end_turn", None),
            Stop::Paused => ("pause_turn", None),
            Stop::ContentFilter => ("refusal", None),
            Stop::Limit => ("max_tokens", None),
            Stop::Tools => ("tool_use", None),
            Stop::Sequence(sequence) => ("stop_sequence", Some(sequence.clone())),
        };
        Self {
            stop_reason,
            stop_sequence: sequence,
        }
    }
}

impl Block {
    /// The blocks of a part: a call of Gemini's has its signature before it.
    pub(super) fn of(part: &Part) -> Vec<Self> {
        match part {
            Part::Text { text } => vec![Self::Text { text: text.clone() }],
            Part::Thinking { text, signature } => vec![Self::Thinking {
                thinking: text.clone(),
                signature: signature.clone(),
            }],
            Part::Redacted { data } => vec![Self::RedactedThinking { data: data.clone() }],
            Part::ToolCall(call) => {
                // A model may write anything: an agent must see that, instead of no arguments.
                let unread = || Json::from(&json!({"INVALID_JSON": call.arguments}));
                let call_block = Self::call(call, call.object().unwrap_or_else(unread));
                Self::signature_of(call)
                    .into_iter()
                    .chain([call_block])
                    .collect()
            }
            // No answer has one.
            Part::ToolResult(_) | Part::Image(_) => Vec::new(),
            Part::Opaque { block } => vec![Self::Opaque(block.clone())],
        }
    }

    pub(super) fn call(call: &ToolCall, input: Json) -> Self {
        Self::ToolUse {
            id: call.id.clone(),
            name: call.name.clone(),
            input,
        }
    }

    /// The signature of Gemini's thoughts before a call.
    pub(super) fn signature_of(call: &ToolCall) -> Option<Self> {
        let signature = call.thought_signature.as_ref()?;
        Some(Self::Thinking {
            thinking: String::new(),
            signature: format!("{GEMINI}{signature}"),
        })
    }
}

pub(super) fn no_arguments() -> Json {
    Json::from(&json!({}))
}

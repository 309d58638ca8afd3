//! The bodies of answers and of events.

use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::{
    conversation::{Stop, ToolCall},
    usage::TextUsage,
};

/// The answer of POST /openai/v1/chat/completions.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatCompletion {
    /// The generation's uuid, after `chatcmpl-`.
    pub(super) id: String,
    /// `chat.completion`
    pub(super) object: &'static str,
    /// Seconds since 1970.
    pub(super) created: i64,
    /// As it was asked for.
    pub(super) model: String,
    /// As many as `n` asked for.
    pub(super) choices: Vec<ChatChoice>,
    /// What it used.
    pub(super) usage: ChatUsage,
}

/// The answer itself.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatChoice {
    /// From 0.
    pub(super) index: u32,
    /// The message.
    pub(super) message: ChatAnswer,
    /// Always null.
    #[schema(value_type = Option<String>)]
    pub(super) logprobs: (),
    /// `stop`, `length` at the limit, `tool_calls`, or `content_filter`.
    pub(super) finish_reason: &'static str,
}

/// A message of the model.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatAnswer {
    /// `assistant`
    pub(super) role: &'static str,
    /// The text; empty where reasoning used up the limit, null where there are only calls.
    #[schema(required, nullable)]
    pub(super) content: Option<String>,
    /// The thinking of a compatible server that reports it in this field. Send it back unchanged in
    /// the next turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_content: Option<String>,
    /// The same, of a server that reports it in this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning: Option<String>,
    /// Always null: a refusal is an error.
    #[schema(value_type = Option<String>)]
    pub(super) refusal: (),
    /// The calls that the model wants.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<ChatCall>,
}

/// A call of a function; in a stream, a piece of it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatCall {
    /// In a stream: which call it is of, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) index: Option<usize>,
    /// Its id; in a stream, only where it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    /// `function`; in a stream, only where it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) r#type: Option<&'static str>,
    /// The function.
    pub(super) function: ChatCallFunction,
    /// Where it has a signature of Gemini's thoughts, which is to be brought back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extra_content: Option<ChatExtra>,
}

/// A function and its arguments.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatCallFunction {
    /// Its name; in a stream, only where the call begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    /// JSON; in a stream, a piece of it.
    pub(super) arguments: String,
}

/// What other vendors know of a call.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatExtra {
    /// What Gemini knows.
    pub(super) google: ChatGoogleExtra,
}

/// What Gemini knows of a call.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatGoogleExtra {
    /// The signature of the thoughts before it.
    pub(super) thought_signature: String,
}

/// What an answer used.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatUsage {
    /// All input tokens, cached ones included.
    pub(super) prompt_tokens: u64,
    /// All output tokens, reasoning included.
    pub(super) completion_tokens: u64,
    /// Their sum.
    pub(super) total_tokens: u64,
    /// Parts of the input.
    pub(super) prompt_tokens_details: ChatInputDetails,
    /// Parts of the output.
    pub(super) completion_tokens_details: ChatOutputDetails,
}

/// Parts of the input.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatInputDetails {
    /// Tokens from the provider's cache.
    pub(super) cached_tokens: u64,
    /// Tokens written to it.
    pub(super) cache_write_tokens: u64,
}

/// Parts of the output.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatOutputDetails {
    /// Tokens of hidden reasoning.
    pub(super) reasoning_tokens: u64,
}

/// One event of a stream; the last is `[DONE]`. A failure is an event with `error` alone.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatCompletionChunk {
    /// The same in all of them.
    pub(super) id: String,
    /// `chat.completion.chunk`
    pub(super) object: &'static str,
    /// Seconds since 1970.
    pub(super) created: i64,
    /// As it was asked for.
    pub(super) model: String,
    /// One; none in the chunk of the usage.
    pub(super) choices: Vec<ChatDelta>,
    /// With `include_usage`: null but in the last chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ChatUsage>)]
    pub(super) usage: Option<ChunkUsage>,
}

/// The usage in a chunk of a stream that ends with it.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum ChunkUsage {
    /// Null.
    NotYet,
    Whole(ChatUsage),
}

/// What a chunk adds.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatDelta {
    /// Of the choice, from 0.
    pub(super) index: u32,
    /// The role in the first, then text and calls.
    pub(super) delta: ChatPiece,
    /// Always null.
    #[schema(value_type = Option<String>)]
    pub(super) logprobs: (),
    /// Of the last that has a choice.
    #[schema(required, nullable)]
    pub(super) finish_reason: Option<&'static str>,
}

/// A piece of the message; nothing in it is a sign of life.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct ChatPiece {
    /// `assistant`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<&'static str>,
    /// Text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<String>,
    /// Thinking of a compatible server, in the field in which it reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_content: Option<String>,
    /// The same, of a server that reports it in this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning: Option<String>,
    /// A piece of a call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<ChatCall>,
}

impl ChatCall {
    /// A whole call; in a stream, the beginning of one.
    pub(super) fn of(call: &ToolCall, index: Option<usize>) -> Self {
        let signature = call.thought_signature.clone();
        Self {
            index,
            id: Some(call.id.clone()),
            r#type: Some("function"),
            function: ChatCallFunction {
                name: Some(call.name.clone()),
                arguments: call.arguments.clone(),
            },
            extra_content: signature.map(|thought_signature| ChatExtra {
                google: ChatGoogleExtra { thought_signature },
            }),
        }
    }

    /// More of its arguments.
    pub(super) fn more(index: usize, arguments: &str) -> Self {
        Self {
            index: Some(index),
            id: None,
            r#type: None,
            function: ChatCallFunction {
                name: None,
                arguments: arguments.to_owned(),
            },
            extra_content: None,
        }
    }
}

impl From<&TextUsage> for ChatUsage {
    fn from(usage: &TextUsage) -> Self {
        Self {
            prompt_tokens: usage.input_tokens,
            completion_tokens: usage.output_tokens,
            total_tokens: usage.total_tokens,
            prompt_tokens_details: ChatInputDetails {
                cached_tokens: usage.cached_input_tokens.unwrap_or(0),
                cache_write_tokens: usage.cache_write_tokens.unwrap_or(0),
            },
            completion_tokens_details: ChatOutputDetails {
                reasoning_tokens: usage.reasoning_tokens.unwrap_or(0),
            },
        }
    }
}

/// All values of `finish_reason`.
pub(super) const FINISH_REASONS: [&str; 4] = ["stop", "length", "tool_calls", "content_filter"];

pub(super) const fn finish_reason(stop: &Stop) -> &'static str {
    match stop {
        Stop::Done
        | Stop::Sequence(_)
        | Stop::Paused
        | Stop::MalformedFunctionCall
        | Stop::Other => "stop",
        Stop::Limit => "length",
        Stop::Tools => "tool_calls",
        Stop::ContentFilter => "content_filter",
    }
}

//! Chat Completions, as the `openai` packages speak it (openai 3.51.0,
//! `openai/types/chat/completion_create_params.py`, `chat_completion.py`,
//! `chat_completion_chunk.py`).

use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{Answer, Head, MAX_LIMIT, Writer, instructions, json as text_of, texts};
use crate::domain::{
    conversation::{Conversation, Message, Role, Sampling, Stop},
    generation::Surface,
    named::named_enum,
    request::{DialogueRequest, MODEL_NAME},
    usage::TextUsage,
    validate::{
        FieldCode, Fields, Input, List, Object, boolean, integer, number, only, sequences, words,
    },
};

/// Fields that ask for what is not served here.
const UNSUPPORTED: &[&str] = &[
    "audio",
    "function_call",
    "functions",
    "logit_bias",
    "metadata",
    "moderation",
    "parallel_tool_calls",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning_effort",
    "safety_identifier",
    "seed",
    "thread",
    "tool_choice",
    "tools",
    "top_logprobs",
    "user",
    "verbosity",
    "web_search_options",
    "input",
];
/// As many as the API takes.
const MAX_STOPS: usize = 4;

#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    pub dialogue: DialogueRequest,
    /// Whether a stream ends with its usage.
    pub include_usage: bool,
}

named_enum!(
    /// Who says a message.
    ChatRole {
        System = "system",
        Developer = "developer",
        User = "user",
        Assistant = "assistant",
    }
);

impl Input for ChatRequest {
    fn read(fields: &Fields<'_>) -> Option<Self> {
        let about = "`provider/model` of GET /openai/v1/models, or just `model`.";
        let model = fields.required("model", about, MODEL_NAME);
        let messages = List {
            about: "The dialogue so far, the oldest message first.",
            schema: ("ChatMessage", "A message."),
            required: true,
            short: None,
        };
        let messages = messages.read(fields, "messages", message);
        let about = "Upper bound of output tokens, reasoning included. Default: what the account \
                     can pay for. At or above the model's own limit it counts as none.";
        let limit = fields.optional("max_completion_tokens", about, integer(1..=MAX_LIMIT));
        let about = "The older name of `max_completion_tokens`.";
        let older = fields.optional("max_tokens", about, integer(1..=MAX_LIMIT));
        if limit.is_some_and(|limit| older.is_some_and(|older| older != limit)) {
            let message = "differs from max_completion_tokens; leave it out";
            fields.error("max_tokens", FieldCode::NotAllowed, message);
        }
        let sampling = Sampling {
            temperature: fields.optional("temperature", TEMPERATURE, number(0.0..=2.0)),
            top_p: fields.optional("top_p", TEMPERATURE, number(0.0..=1.0)),
            stop: fields
                .optional(
                    "stop",
                    "The text ends before one.",
                    sequences(MAX_STOPS, true),
                )
                .unwrap_or_default(),
        };
        let about = "Whether the answer is an event stream.";
        let stream = fields.optional("stream", about, boolean());
        let include_usage = fields.object("stream_options", "Of a stream.", OPTIONS, |options| {
            options.optional("include_obfuscation", "None is made.", only([json!(false)]));
            options.optional(
                "include_usage",
                "Whether it ends with its usage.",
                boolean(),
            )
        });
        for (name, values) in fixed() {
            fields.optional(name, "As it is anyway.", only(values));
        }
        fields.unsupported(UNSUPPORTED);
        Some(Self {
            dialogue: DialogueRequest {
                max_tokens: limit.or(older),
                sampling,
                stream: stream.unwrap_or(false),
                ..DialogueRequest::new(Surface::OpenAiChat, model?, conversation(messages?))
            },
            include_usage: include_usage.unwrap_or(false),
        })
    }
}

impl Object for ChatRequest {
    const SCHEMA: (&'static str, &'static str) = (
        "ChatCompletionRequest",
        "A dialogue of texts. Other fields of Chat Completions are refused by name.",
    );

    fn example() -> Value {
        json!({"model": "sandbox/sandbox-text-1", "max_completion_tokens": 64,
            "messages": [{"role": "user", "content": "A haiku about exactness"}]})
    }
}

const TEMPERATURE: &str = "Default: the provider's. Not every model takes one.";
const OPTIONS: (&str, &str) = ("ChatStreamOptions", "Options of a stream.");

/// Fields that are taken with these values only, which change nothing.
fn fixed() -> [(&'static str, Vec<Value>); 8] {
    let zero = || vec![json!(0)];
    [
        ("frequency_penalty", zero()),
        ("logprobs", vec![json!(false)]),
        ("modalities", vec![json!(["text"])]),
        ("n", vec![json!(1)]),
        ("presence_penalty", zero()),
        ("response_format", vec![json!({"type": "text"})]),
        ("service_tier", vec![json!("auto"), json!("default")]),
        ("store", vec![json!(false)]),
    ]
}

fn message(fields: &Fields<'_>) -> Option<Message> {
    let role = fields.required("role", "Who says it.", words::<ChatRole>());
    let parts = texts(fields, "content", "What is said.", true);
    // What an answer of ours brings back.
    fields.optional("annotations", "None.", only([json!([])]));
    fields.unsupported(&[
        "audio",
        "function_call",
        "name",
        "refusal",
        "tool_call_id",
        "tool_calls",
    ]);
    let role = match role? {
        ChatRole::System | ChatRole::Developer => Role::System,
        ChatRole::User => Role::User,
        ChatRole::Assistant => Role::Assistant,
    };
    let parts = parts?;
    Some(Message { role, parts })
}

/// Instructions that come first stand above the messages.
fn conversation(messages: Vec<Message>) -> Conversation {
    let first = messages
        .iter()
        .position(|message| message.role != Role::System);
    let mut system = messages;
    let messages = system.split_off(first.unwrap_or(system.len()));
    Conversation {
        system: instructions(
            system
                .into_iter()
                .flat_map(|message| message.parts)
                .collect(),
        ),
        messages,
    }
}

/// The answer of POST /openai/v1/chat/completions.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatCompletion {
    /// The generation's uuid, after `chatcmpl-`.
    id: String,
    /// `chat.completion`
    object: &'static str,
    /// Seconds since 1970.
    created: i64,
    /// As it was asked for.
    model: String,
    /// One.
    choices: Vec<ChatChoice>,
    /// What it used.
    usage: ChatUsage,
}

/// The answer itself.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatChoice {
    /// 0
    index: u32,
    /// The message.
    message: ChatAnswer,
    /// Always null.
    #[schema(value_type = Option<String>)]
    logprobs: (),
    /// `stop`, or `length` at the limit.
    finish_reason: &'static str,
}

/// A message of the model.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatAnswer {
    /// `assistant`
    role: &'static str,
    /// The text; empty where reasoning used up the limit.
    content: String,
    /// Always null: a refusal is an error.
    #[schema(value_type = Option<String>)]
    refusal: (),
}

/// What an answer used.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatUsage {
    /// All input tokens, cached ones included.
    prompt_tokens: u64,
    /// All output tokens, reasoning included.
    completion_tokens: u64,
    /// Their sum.
    total_tokens: u64,
    /// Parts of the input.
    prompt_tokens_details: ChatInputDetails,
    /// Parts of the output.
    completion_tokens_details: ChatOutputDetails,
}

/// Parts of the input.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatInputDetails {
    /// Tokens from the provider's cache.
    cached_tokens: u64,
    /// Tokens written to it.
    cache_write_tokens: u64,
}

/// Parts of the output.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatOutputDetails {
    /// Tokens of hidden reasoning.
    reasoning_tokens: u64,
}

/// One event of a stream; the last is `[DONE]`. A failure is an event with `error` alone.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatCompletionChunk {
    /// The same in all of them.
    id: String,
    /// `chat.completion.chunk`
    object: &'static str,
    /// Seconds since 1970.
    created: i64,
    /// As it was asked for.
    model: String,
    /// One; none in the chunk of the usage.
    choices: Vec<ChatDelta>,
    /// With `include_usage`: null but in the last chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ChatUsage>)]
    usage: Option<ChunkUsage>,
}

/// The usage in a chunk of a stream that ends with it.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ChunkUsage {
    /// Null.
    NotYet,
    Whole(ChatUsage),
}

/// What a chunk adds.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatDelta {
    /// 0
    index: u32,
    /// The role in the first, then text.
    delta: ChatPiece,
    /// Always null.
    #[schema(value_type = Option<String>)]
    logprobs: (),
    /// Of the last that has a choice.
    #[schema(required, nullable)]
    finish_reason: Option<&'static str>,
}

/// A piece of the message; nothing in it is a sign of life.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct ChatPiece {
    /// `assistant`
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    /// Text.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
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

const fn finish_reason(stop: &Stop) -> &'static str {
    match stop {
        Stop::Done | Stop::Sequence(_) => "stop",
        Stop::Limit => "length",
    }
}

/// Writes an answer.
#[derive(Debug)]
pub struct ChatWriter {
    pub head: Head,
    pub include_usage: bool,
}

impl ChatWriter {
    fn id(&self) -> String {
        format!("chatcmpl-{}", self.head.id)
    }

    fn chunk(&self, choices: Vec<ChatDelta>, usage: Option<ChatUsage>) -> String {
        let chunk = ChatCompletionChunk {
            id: self.id(),
            object: "chat.completion.chunk",
            created: self.head.created,
            model: self.head.model.clone(),
            choices,
            usage: self
                .include_usage
                .then(|| usage.map_or(ChunkUsage::NotYet, ChunkUsage::Whole)),
        };
        format!("data: {}\n\n", text_of(&chunk))
    }

    fn delta(&self, delta: ChatPiece, finish_reason: Option<&'static str>) -> String {
        let choice = ChatDelta {
            index: 0,
            delta,
            logprobs: (),
            finish_reason,
        };
        self.chunk(vec![choice], None)
    }
}

impl Writer for ChatWriter {
    fn whole(&self, answer: &Answer) -> String {
        text_of(&ChatCompletion {
            id: self.id(),
            object: "chat.completion",
            created: self.head.created,
            model: self.head.model.clone(),
            choices: vec![ChatChoice {
                index: 0,
                message: ChatAnswer {
                    role: "assistant",
                    content: answer.text.clone(),
                    refusal: (),
                },
                logprobs: (),
                finish_reason: finish_reason(&answer.stop),
            }],
            usage: ChatUsage::from(&answer.usage),
        })
    }

    fn begin(&mut self) -> String {
        let role = ChatPiece {
            role: Some("assistant"),
            content: Some(String::new()),
        };
        self.delta(role, None)
    }

    fn text(&mut self, piece: &str) -> String {
        let text = ChatPiece {
            role: None,
            content: Some(piece.to_owned()),
        };
        self.delta(text, None)
    }

    fn keep_alive(&self) -> String {
        self.delta(ChatPiece::default(), None)
    }

    fn end(&mut self, answer: &Answer) -> String {
        let reason = finish_reason(&answer.stop);
        let mut events = self.delta(ChatPiece::default(), Some(reason));
        if self.include_usage {
            events += &self.chunk(Vec::new(), Some(ChatUsage::from(&answer.usage)));
        }
        events + "data: [DONE]\n\n"
    }

    fn failed(&self, error: &str) -> String {
        format!("data: {error}\n\n")
    }
}

#[cfg(test)]
mod tests;

//! The body of a Chat Completions call, and the settings that shape it.
//!
//! Source: openai 3.51.0 (`PyPI`) `openai/types/chat/completion_create_params.py`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::TextCall;
use crate::domain::{
    conversation::{Message, Part, Role},
    pricing::CacheWrites,
    settings::blank_is_none,
    vendor::ModelSettings,
};

/// Which field carries the token limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenField {
    /// `max_tokens`: the only one that every compatible server supports.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`: `OpenAI` and Groq; the only one for reasoning models.
    MaxCompletionTokens,
}

/// Which role carries the system prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SystemRole {
    /// `system`: known everywhere.
    #[default]
    System,
    /// `developer`: for `OpenAI`'s reasoning models.
    Developer,
}

/// Settings of one model. The default suits compatible servers and adds nothing that one of
/// them might refuse, except `stream_options`, without which most of them count no tokens.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OpenAiModel {
    pub token_field: TokenField,
    pub system_role: SystemRole,
    /// `reasoning_effort`, as the model takes it (`none`, `low`, ...). `None` sends nothing.
    #[serde(deserialize_with = "blank_is_none")]
    pub reasoning_effort: Option<String>,
    /// Sends `prompt_cache_options: {"mode": "explicit"}`, which switches off cache writes
    /// at 1.25 times the input price (`OpenAI`, gpt-5.6 and later).
    pub explicit_cache: bool,
    /// `service_tier`; `default` fixes the price. `None` sends nothing.
    #[serde(deserialize_with = "blank_is_none")]
    pub service_tier: Option<String>,
    /// Sends `stream_options.include_usage` when streaming. Off for Mistral, whose schema
    /// lacks it and which always reports usage.
    pub stream_usage: bool,
    /// Sends `stream_options.include_obfuscation: false`: `OpenAI` only.
    pub no_obfuscation: bool,
}

impl Default for OpenAiModel {
    fn default() -> Self {
        Self {
            token_field: TokenField::MaxTokens,
            system_role: SystemRole::System,
            reasoning_effort: None,
            explicit_cache: false,
            service_tier: None,
            stream_usage: true,
            no_obfuscation: false,
        }
    }
}

impl ModelSettings for OpenAiModel {
    /// Only gpt-5.6 and later write, but no other model has a price for it.
    fn cache_writes(&self) -> CacheWrites {
        if self.explicit_cache {
            CacheWrites::None
        } else {
            CacheWrites::Short
        }
    }
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<WireMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    stop: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_tier: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_options: Option<CacheOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: Content<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    /// The only form that every compatible server supports.
    Text(&'a str),
    Parts(Vec<WirePart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WirePart<'a> {
    Text { text: &'a str },
}

impl<'a> WireMessage<'a> {
    fn of(message: &'a Message, system_role: &'static str) -> Self {
        let role = match message.role {
            Role::System => system_role,
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        let content = match &message.parts[..] {
            [Part::Text(text)] => Content::Text(text),
            parts => Content::Parts(parts.iter().map(WirePart::from).collect()),
        };
        Self { role, content }
    }
}

impl<'a> From<&'a Part> for WirePart<'a> {
    fn from(part: &'a Part) -> Self {
        match part {
            Part::Text(text) => Self::Text { text },
        }
    }
}

#[derive(Serialize)]
struct CacheOptions {
    mode: &'static str,
}

#[derive(Serialize)]
struct StreamOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    include_usage: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    include_obfuscation: Option<bool>,
}

pub fn body(call: &TextCall, settings: &OpenAiModel, streaming: bool) -> Value {
    let system_role = match settings.system_role {
        SystemRole::System => "system",
        SystemRole::Developer => "developer",
    };
    let system = call.conversation.system.as_deref().map(|text| WireMessage {
        role: system_role,
        content: Content::Text(text),
    });
    let messages = call.conversation.messages.iter();
    let messages = messages.map(|message| WireMessage::of(message, system_role));
    let messages = system.into_iter().chain(messages).collect();
    let (max_tokens, max_completion_tokens) = match settings.token_field {
        TokenField::MaxTokens => (Some(call.max_tokens), None),
        TokenField::MaxCompletionTokens => (None, Some(call.max_tokens)),
    };
    let options = StreamOptions {
        include_usage: settings.stream_usage.then_some(true),
        include_obfuscation: settings.no_obfuscation.then_some(false),
    };
    let wanted = options.include_usage.is_some() || options.include_obfuscation.is_some();
    let body = Body {
        model: &call.model,
        messages,
        max_tokens,
        max_completion_tokens,
        temperature: call.sampling.temperature,
        top_p: call.sampling.top_p,
        stop: &call.sampling.stop,
        reasoning_effort: settings.reasoning_effort.as_deref(),
        service_tier: settings.service_tier.as_deref(),
        prompt_cache_options: settings
            .explicit_cache
            .then_some(CacheOptions { mode: "explicit" }),
        stream: streaming.then_some(true),
        stream_options: (streaming && wanted).then_some(options),
    };
    // Strings and numbers only: this cannot fail.
    serde_json::to_value(body).unwrap_or_default()
}

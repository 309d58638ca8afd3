//! The body of a Chat Completions call, and the settings that shape it.
//!
//! Source: openai 3.51.0 (`PyPI`) `openai/types/chat/completion_create_params.py`.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::{ProviderError, TextCall, http::RequestJson},
    message, responses,
};
use crate::{
    catalogue::{Dialogue, vendor::ModelSettings},
    domain::{
        conversation::{
            Conversation, Effort, Reasoning, Spelling, Thinking, Tools, WireObject, WireValue,
        },
        generation::Surface,
        json::Members,
        named::named_enum,
        pricing::CacheWrites,
        settings::blank_is_none,
    },
};

/// Minimum `max_output_tokens` and maximum length of `call_id` of Responses, by its error messages.
const MIN_OUTPUT_TOKENS: u32 = 16;
const CALL_IDS: Spelling = Spelling {
    max_chars: 64,
    ..Spelling::ANY
};

named_enum!(
    /// Which field carries the token limit.
    TokenField {
        /// Supported by every compatible server.
        MaxTokens = "max_tokens",
        /// `OpenAI` and Groq; required by reasoning models.
        MaxCompletionTokens = "max_completion_tokens",
    }
);

named_enum!(
    /// Which role carries the system prompt.
    SystemRole {
        /// Supported everywhere.
        System = "system",
        /// For `OpenAI`'s reasoning models.
        Developer = "developer",
    }
);

/// The API by which a model is called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// Chat Completions, supported by every compatible server.
    #[default]
    Chat,
    /// Responses: the only API in which `OpenAI`'s current models accept functions with reasoning.
    Responses,
}

/// Settings of one model. The default suits compatible servers: it adds no field that a server
/// might refuse, except `stream_options`, without which most servers count no tokens.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting of its own"
)]
pub struct OpenAiModel {
    pub api: Api,
    /// For Chat Completions; Responses has only one field.
    pub token_field: TokenField,
    pub system_role: SystemRole,
    /// `reasoning_effort` that the model supports (`none`, `low`, ...). `None` sends nothing.
    #[serde(deserialize_with = "blank_is_none")]
    pub reasoning_effort: Option<String>,
    /// Sends `prompt_cache_options: {"mode": "explicit"}`, which switches off cache writes
    /// at 1.25 times the input price (`OpenAI`, gpt-5.6 and later).
    pub explicit_cache: bool,
    /// Whether the model may reason, which this API does not show. On a cancel, a stream of a model
    /// that never reasons is ended; others are read to their end for the counts.
    pub reasoning: bool,
    /// `service_tier`; `default` guarantees the standard price. `None` sends nothing.
    #[serde(deserialize_with = "blank_is_none")]
    pub service_tier: Option<String>,
    /// Sends `stream_options.include_usage` for streams. Off for Mistral, whose schema lacks it and
    /// which always reports usage.
    pub stream_usage: bool,
    /// Sends `stream_options.include_obfuscation: false`: `OpenAI` only.
    pub no_obfuscation: bool,
    /// Sends Gemini's thought signatures back, in `extra_content` of calls: Google only.
    pub thought_signatures: bool,
}

impl Default for OpenAiModel {
    fn default() -> Self {
        Self {
            api: Api::Chat,
            token_field: TokenField::MaxTokens,
            system_role: SystemRole::System,
            reasoning_effort: None,
            explicit_cache: false,
            reasoning: true,
            service_tier: None,
            stream_usage: true,
            no_obfuscation: false,
            thought_signatures: false,
        }
    }
}

impl ModelSettings for OpenAiModel {
    /// Returns the kind of cache writes. Only gpt-5.6 and later write; other models have no price
    /// for it.
    fn cache_writes(&self) -> CacheWrites {
        if self.explicit_cache {
            CacheWrites::None
        } else {
            CacheWrites::Short
        }
    }

    fn dialogue(&self, vendor: Dialogue) -> Dialogue {
        let is_developer = self.system_role == SystemRole::Developer;
        let vendor = Dialogue {
            developer_role: vendor.developer_role || is_developer,
            thought_signatures: self.thought_signatures,
            ..vendor
        };
        if self.api == Api::Chat {
            return vendor;
        }
        // The limits of compatible servers are unknown.
        let (min_output_tokens, ids) = if self.no_obfuscation {
            (MIN_OUTPUT_TOKENS, CALL_IDS)
        } else {
            (vendor.min_output_tokens, vendor.ids)
        };
        Dialogue {
            reasoning_fields: false,
            thought_signatures: false,
            encrypted_reasoning: true,
            result_images: true,
            documents: self.no_obfuscation,
            counts_tokens: self.no_obfuscation,
            searches: self.no_obfuscation,
            // The adapter ends the text at them.
            max_stops: usize::MAX,
            own: Some(Surface::OpenAiResponses),
            min_output_tokens,
            ids,
            ..vendor
        }
    }
}

/// Disables cache writes, except in a dialogue, whose next turn reads them.
pub(super) fn cache_options(call: &TextCall, settings: &OpenAiModel) -> Option<Value> {
    let is_explicit = settings.explicit_cache && !call.is_dialogue;
    is_explicit.then(|| json!({"mode": "explicit"}))
}

/// Builds the body: the caller's own, or one from the conversation.
pub fn json(
    call: &TextCall,
    settings: &OpenAiModel,
    streaming: bool,
) -> Result<RequestJson, ProviderError> {
    if let Some(original) = &call.original {
        let members = original.get().members.clone();
        return RequestJson::of_members(&passed(members, call, settings, streaming));
    }
    let conversation = call.conversation.get();
    let body = match settings.api {
        Api::Chat => body(call, &conversation, settings, streaming),
        Api::Responses => responses::request::body(call, &conversation, settings, streaming),
    };
    RequestJson::sharing(&body, &conversation.buffers())
}

/// Returns the caller's body with our model, limit and service tier, with usage, and not stored.
fn passed(
    mut members: Members,
    call: &TextCall,
    settings: &OpenAiModel,
    streaming: bool,
) -> Members {
    members.set("model", &call.model);
    let is_chat = settings.api == Api::Chat;
    let field = if is_chat {
        let field = settings.token_field.as_str();
        members.retain(|name, _| name == field || TokenField::parse(name).is_none());
        field
    } else {
        "max_output_tokens"
    };
    members.set(field, &call.max_tokens);
    if let Some(tier) = &settings.service_tier {
        members.set("service_tier", tier);
    }
    // Of the servers with Chat Completions, only OpenAI knows these fields.
    if !is_chat || settings.no_obfuscation {
        members.set("store", &false);
    }
    if !streaming {
        members.remove("stream");
        members.remove("stream_options");
        return members;
    }
    members.set("stream", &true);
    if !is_chat && !settings.no_obfuscation {
        return members;
    }
    let given = members
        .get("stream_options")
        .and_then(|options| Members::parse(options).ok());
    let mut options = given.unwrap_or_default();
    if is_chat && settings.stream_usage {
        options.set("include_usage", &true);
    } else if is_chat {
        options.remove("include_usage");
    }
    if settings.no_obfuscation {
        options.set("include_obfuscation", &false);
    }
    members.set("stream_options", &options);
    members
}

pub(super) fn body<'a>(
    call: &'a TextCall,
    conversation: &'a Conversation,
    settings: &'a OpenAiModel,
    streaming: bool,
) -> WireObject<'a> {
    let (tools, sampling) = (&conversation.tools, &call.sampling);
    let serial = tools.one_at_a_time && !tools.functions.is_empty();
    let usage = settings.stream_usage.then_some(json!(true));
    let obfuscation = settings.no_obfuscation.then_some(json!(false));
    let options = WireObject::default()
        .with_some("include_usage", usage)
        .with_some("include_obfuscation", obfuscation);
    let messages = message::messages(conversation, settings.system_role.as_str());
    WireObject::default()
        .with("model", &call.model)
        .with("messages", messages)
        .with_list("tools", &tools.functions, message::tool)
        .with_some("tool_choice", message::tool_choice(&tools.choice))
        .with_some("parallel_tool_calls", serial.then_some(json!(false)))
        .with_some("response_format", message::format(&conversation.format))
        .with(settings.token_field.as_str(), json!(call.max_tokens))
        .with_some("temperature", sampling.temperature.map(Value::from))
        .with_some("top_p", sampling.top_p.map(Value::from))
        .with_list("stop", &sampling.stop, WireValue::from)
        .with_some("reasoning_effort", effort(call, tools, settings))
        .with_some("service_tier", settings.service_tier.as_ref())
        .with_some("prompt_cache_options", cache_options(call, settings))
        .with_some("stream", streaming.then_some(json!(true)))
        .with_some("stream_options", options.non_empty().filter(|_| streaming))
}

/// Returns the effort to send; `None`: the vendor's default, which is unknown here.
pub fn sent_effort<'a>(call: &TextCall, settings: &'a OpenAiModel) -> Option<&'a str> {
    match &call.original {
        Some(_) => call.sampling.reasoning.effort.map(Effort::as_str),
        None => effort(call, &call.conversation.get().tools, settings),
    }
}

/// Returns the effort of a call; the model's own if the request has none. Thinking requested in
/// another dialect becomes an effort. In Chat Completions, a model whose own effort is `none`
/// accepts tools only at that effort.
pub(super) fn effort<'a>(
    call: &TextCall,
    tools: &Tools,
    settings: &'a OpenAiModel,
) -> Option<&'a str> {
    let Reasoning { thinking, effort } = call.sampling.reasoning;
    let own = settings.reasoning_effort.as_deref();
    let takes_none_only =
        own == Some("none") && settings.api == Api::Chat && !tools.functions.is_empty();
    match (effort, thinking) {
        (Some(effort), _) => Some(effort.as_str()),
        (None, None | Some(Thinking::Off | Thinking::BetweenTools)) => own,
        (None, Some(_)) if takes_none_only => own,
        (None, Some(_)) => call.sampling.reasoning.as_effort().map(Effort::as_str),
    }
}

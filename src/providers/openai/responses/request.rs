//! The body of a call.
//!
//! Source: openai 3.57.0 (`PyPI`) `openai/types/responses/response_create_params.py`.

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    super::{
        super::{ProviderError, TextCall, http::RequestJson},
        message::WireSchema,
        request::{CacheOptions, OpenAiModel, StreamOptions, effort},
    },
    item::{self, Item},
};
use crate::domain::{
    conversation::{Conversation, Format, Json, ToolChoice, Tools},
    json::Members,
    request::VERBOSITY,
};

const ENCRYPTED: &str = "reasoning.encrypted_content";

/// The members that the model reads, which are all that count as input.
#[derive(Serialize)]
struct Prompt<'a> {
    model: &'a str,
    input: Vec<Item<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<TextConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<ReasoningConfig<'a>>,
}

/// The members that the counting endpoint accepts.
/// Source: openai 3.57.0 (`PyPI`) `openai/types/responses/input_token_count_params.py`.
const COUNTED: &[&str] = &[
    "input",
    "instructions",
    "model",
    "parallel_tool_calls",
    "personality",
    "reasoning",
    "text",
    "tool_choice",
    "tools",
    "truncation",
];

#[derive(Serialize)]
pub struct Body<'a> {
    #[serde(flatten)]
    prompt: Prompt<'a>,
    max_output_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    include: Option<[&'static str; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_tier: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_options: Option<CacheOptions>,
    store: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(flatten)]
    shared: Members,
}

#[derive(Serialize)]
struct WireTool<'a> {
    r#type: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    /// Required; null for a function without arguments.
    parameters: Option<&'a Json>,
    /// Always sent: the default is true here, and false in the other dialects.
    strict: bool,
}

#[derive(Serialize)]
struct TextConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<WireFormat<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verbosity: Option<Value>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WireFormat<'a> {
    JsonObject,
    JsonSchema(WireSchema<'a>),
}

#[derive(Serialize)]
struct ReasoningConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'a str>,
    /// Requested if the caller asks for thinking, because its answer then contains summaries.
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'static str>,
}

/// Builds the body of a request to count the input.
pub fn count_json(call: &TextCall, settings: &OpenAiModel) -> Result<RequestJson, ProviderError> {
    if let Some(original) = &call.original {
        let mut members = original.get().members.clone();
        members.set("model", &call.model);
        members.retain(|name, _| COUNTED.contains(&name));
        return RequestJson::of_members(&members);
    }
    let conversation = call.conversation.get();
    let body = body(call, &conversation, settings, false);
    RequestJson::sharing(&body.prompt, &conversation.buffers())
}

pub fn body<'a>(
    call: &'a TextCall,
    conversation: &'a Conversation,
    settings: &'a OpenAiModel,
    streaming: bool,
) -> Body<'a> {
    let tools = &conversation.tools;
    let serial = tools.one_at_a_time && !tools.functions.is_empty();
    // Only OpenAI knows these two.
    let is_openai = settings.no_obfuscation;
    let is_encrypted = is_openai && settings.reasoning && call.is_dialogue;
    let effort = effort(call, tools, settings);
    let thinking = call.sampling.reasoning.thinking;
    let is_thinking = thinking.is_some_and(|thinking| !thinking.is_off());
    let summary = (is_openai && is_thinking).then_some("auto");
    let mut shared = call.shared.clone();
    let verbosity = shared.get(VERBOSITY);
    let text = TextConfig {
        verbosity: verbosity.and_then(|json| serde_json::from_slice(json).ok()),
        format: format(&conversation.format),
    };
    shared.remove(VERBOSITY);
    let prompt = Prompt {
        model: &call.model,
        input: item::items(conversation, settings.system_role.as_str()),
        tools: wire_tools(tools),
        tool_choice: tool_choice(&tools.choice),
        parallel_tool_calls: serial.then_some(false),
        text: (text.format.is_some() || text.verbosity.is_some()).then_some(text),
        reasoning: (effort.is_some() || summary.is_some())
            .then_some(ReasoningConfig { effort, summary }),
    };
    Body {
        prompt,
        max_output_tokens: call.max_tokens,
        temperature: call.sampling.temperature,
        top_p: call.sampling.top_p,
        include: is_encrypted.then_some([ENCRYPTED]),
        service_tier: settings.service_tier.as_deref(),
        prompt_cache_options: CacheOptions::explicit(call, settings),
        store: false,
        stream: streaming.then_some(true),
        stream_options: (streaming && is_openai).then_some(StreamOptions::UNPADDED),
        shared,
    }
}

fn wire_tools(tools: &Tools) -> Vec<WireTool<'_>> {
    let functions = tools.functions.iter().map(|function| WireTool {
        r#type: "function",
        name: &function.name,
        description: function.description.as_deref(),
        parameters: function.parameters.as_ref(),
        strict: function.strict.unwrap_or(false),
    });
    functions.collect()
}

/// `None`: the default.
fn tool_choice(choice: &ToolChoice) -> Option<Value> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some(json!("none")),
        ToolChoice::Required => Some(json!("required")),
        ToolChoice::Named(name) => Some(json!({"type": "function", "name": name})),
    }
}

/// `None`: the default.
fn format(format: &Format) -> Option<WireFormat<'_>> {
    match format {
        Format::Text => None,
        Format::JsonObject => Some(WireFormat::JsonObject),
        Format::Schema(schema) => Some(WireFormat::JsonSchema(schema.into())),
    }
}

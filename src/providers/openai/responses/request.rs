//! The body of a call.
//!
//! Source: openai 3.57.0 (`PyPI`) `openai/types/responses/response_create_params.py`.

use serde_json::{Value, json};

use super::{
    super::{
        super::{ProviderError, TextCall, http::RequestJson},
        message::with_schema,
        request::{OpenAiModel, cache_options, effort},
    },
    item,
};
use crate::{
    dialect::{ALLOWED_TOOLS, SHARED, TOOL_CHOICE, VERBOSITY, allowed_tools},
    domain::conversation::{Conversation, Format, Function, ToolChoice, WireObject},
};

const ENCRYPTED: &str = "reasoning.encrypted_content";

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

/// Builds the body of a request to count the input.
pub fn count_json(call: &TextCall, settings: &OpenAiModel) -> Result<RequestJson, ProviderError> {
    if let Some(original) = &call.original {
        let mut members = original.get().members.clone();
        members.set("model", &call.model);
        members.retain(|name, _| COUNTED.contains(&name));
        return RequestJson::of_members(&members);
    }
    let conversation = call.conversation.get();
    let prompt = prompt(call, &conversation, settings);
    RequestJson::sharing(&prompt, &conversation.buffers())
}

/// Returns the members that the model reads. Only these count as input.
fn prompt<'a>(
    call: &'a TextCall,
    conversation: &'a Conversation,
    settings: &'a OpenAiModel,
) -> WireObject<'a> {
    let tools = &conversation.tools;
    let serial = tools.one_at_a_time && !tools.functions.is_empty();
    let text = WireObject::default()
        .with_some("format", format(&conversation.format))
        .with_some("verbosity", call.shared(VERBOSITY));
    // Requested if the caller asks for thinking, because the answer then contains summaries. Only
    // OpenAI knows it.
    let thinking = call.sampling.reasoning.thinking;
    let is_thinking = thinking.is_some_and(|thinking| !thinking.is_off());
    let summary = (settings.no_obfuscation && is_thinking).then_some("auto");
    let reasoning = WireObject::default()
        .with_some("effort", effort(call, tools, settings))
        .with_some("summary", summary);
    let items = item::items(conversation, settings.system_role.as_str());
    WireObject::default()
        .with("model", &call.model)
        .with("input", items)
        .with_list("tools", &tools.functions, tool)
        .with_some(
            "tool_choice",
            tool_choice(&tools.choice).or_else(|| allowed(call)),
        )
        .with_some("parallel_tool_calls", serial.then_some(json!(false)))
        .with_some("text", text.non_empty())
        .with_some("reasoning", reasoning.non_empty())
}

pub fn body<'a>(
    call: &'a TextCall,
    conversation: &'a Conversation,
    settings: &'a OpenAiModel,
    streaming: bool,
) -> WireObject<'a> {
    let sampling = &call.sampling;
    // Only OpenAI knows these two fields.
    let is_openai = settings.no_obfuscation;
    let is_encrypted = is_openai && settings.reasoning && call.is_dialogue;
    let options = (is_openai && streaming).then(|| json!({"include_obfuscation": false}));
    let mut body = prompt(call, conversation, settings)
        .with("max_output_tokens", json!(call.max_tokens))
        .with_some("temperature", sampling.temperature.map(Value::from))
        .with_some("top_p", sampling.top_p.map(Value::from))
        .with_some("include", is_encrypted.then(|| json!([ENCRYPTED])))
        .with_some("service_tier", settings.service_tier.as_ref())
        .with_some("prompt_cache_options", cache_options(call, settings))
        .with("store", json!(false))
        .with_some("stream", streaming.then_some(json!(true)))
        .with_some("stream_options", options);
    for name in SHARED {
        body = body.with_some(name, call.shared(name));
    }
    body
}

fn tool(function: &Function) -> WireObject<'_> {
    let object = WireObject::with_type("function")
        .with("name", &function.name)
        .with_some("description", function.description.as_ref());
    // Required; null for a function without arguments.
    let object = match &function.parameters {
        Some(schema) => object.with("parameters", schema),
        None => object.with("parameters", Value::Null),
    };
    // Always sent: the default is true in this API and false in the other dialects.
    object.with("strict", json!(function.strict.unwrap_or(false)))
}

/// Returns `None` for the default.
fn tool_choice(choice: &ToolChoice) -> Option<Value> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some(json!("none")),
        ToolChoice::Required => Some(json!("required")),
        ToolChoice::Named(name) => Some(json!({"type": "function", "name": name})),
    }
}

/// The choice of a chat that limits the tools, of which custom ones are functions here.
fn allowed(call: &TextCall) -> Option<Value> {
    let choice = call.shared(TOOL_CHOICE)?.value();
    let (mode, names) = allowed_tools(&choice)?;
    let tools = names.into_iter().map(|name| {
        let replacement = call.replaced_names.replacement(name);
        json!({"type": "function", "name": replacement.unwrap_or(name)})
    });
    let tools: Vec<Value> = tools.collect();
    Some(json!({"type": ALLOWED_TOOLS, "mode": mode, "tools": tools}))
}

/// `None`: the default.
fn format(format: &Format) -> Option<WireObject<'_>> {
    match format {
        Format::Text => None,
        Format::JsonObject => Some(WireObject::with_type("json_object")),
        Format::Schema(schema) => Some(with_schema(WireObject::with_type("json_schema"), schema)),
    }
}

//! The body of a Messages call.
//!
//! Source: anthropic 2.10.0 (`PyPI`) `anthropic/types/message_create_params.py` and the types of
//! its blocks.

use serde_json::{Value, json};

use super::{
    super::{ProviderError, TextCall, http::RequestJson},
    ALWAYS, AnthropicModel, BETWEEN_TOOLS, CURRENT_VERSION, VERSION,
};
use crate::{
    domain::{
        conversation::{
            Conversation, DocumentSource, Effort, Format, Function, ImageSource, Message, Part,
            Reasoning, Role, Schema, Thinking, ToolChoice, Tools, WireObject, WireValue,
        },
        json::Members,
    },
    request::Original,
};

/// The members that the counting endpoint accepts.
/// Source: anthropic 2.13.0 (`PyPI`) `anthropic/types/message_count_tokens_params.py` and its beta.
const COUNTED: &[&str] = &[
    "cache_control",
    "context_management",
    "messages",
    "model",
    "output_config",
    "output_format",
    "speed",
    "system",
    "thinking",
    "tool_choice",
    "tools",
];

fn message(message: &Message) -> WireObject<'_> {
    let role = match message.role {
        // Instructions between messages were converted to texts of the user.
        Role::System | Role::User => "user",
        Role::Assistant => "assistant",
    };
    let content = match &message.parts[..] {
        [Part::Text { text }] => WireValue::from(text),
        parts => WireValue::list(move || parts.iter().map(block)),
    };
    WireObject::default()
        .with("role", role)
        .with("content", content)
}

fn block(part: &Part) -> WireValue<'_> {
    let block = match part {
        Part::Text { text } => WireObject::with_type("text").with("text", text),
        Part::Image(image) => {
            let source = match &image.source {
                ImageSource::Base64 {
                    media_type, data, ..
                } => source("base64", media_type.as_str(), data.as_str()),
                ImageSource::Url(url) => WireObject::with_type("url").with("url", url),
            };
            WireObject::with_type("image").with("source", source)
        }
        Part::Document(document) => {
            let media_type = document.source.media_type().as_str();
            let source = match &document.source {
                DocumentSource::Pdf(data) => source("base64", media_type, data.as_str()),
                DocumentSource::Text(text) => source("text", media_type, text),
            };
            WireObject::with_type("document")
                .with("source", source)
                .with_some("title", document.name.as_ref())
        }
        Part::Thinking { text, signature } => WireObject::with_type("thinking")
            .with("thinking", text)
            .with("signature", signature),
        Part::Redacted { data } => WireObject::with_type("redacted_thinking").with("data", data),
        Part::ToolCall(call) => WireObject::with_type("tool_use")
            .with("id", &call.id)
            .with("name", &call.name)
            // The arguments were checked to be an object.
            .with_some("input", call.object()),
        Part::ToolResult(result) => WireObject::with_type("tool_result")
            .with("tool_use_id", &result.call_id)
            .with_list("content", &result.parts, block)
            .with_some("is_error", result.is_error.then_some(json!(true))),
        Part::Opaque { block } => return WireValue::Borrowed(block),
    };
    block.into()
}

fn source<'a>(kind: &'static str, media_type: &'static str, data: &'a str) -> WireObject<'a> {
    WireObject::with_type(kind)
        .with("media_type", media_type)
        .with("data", data)
}

fn tool(function: &Function) -> WireObject<'_> {
    let object = WireObject::default()
        .with("name", &function.name)
        .with_some("description", function.description.as_ref());
    let object = match &function.parameters {
        Some(schema) => object.with("input_schema", schema),
        None => object.with("input_schema", json!({"type": "object", "properties": {}})),
    };
    // False is the default, and older models do not know the field.
    let strict = function.strict.filter(|strict| *strict);
    object.with_some("strict", strict.map(Value::from))
}

/// Returns `None` for the default.
fn tool_choice(tools: &Tools) -> Option<Value> {
    let kind = match &tools.choice {
        ToolChoice::Auto if !tools.one_at_a_time || tools.functions.is_empty() => return None,
        ToolChoice::Auto => "auto",
        ToolChoice::None => return Some(json!({"type": "none"})),
        ToolChoice::Required => "any",
        ToolChoice::Named(_) => "tool",
    };
    let mut choice = json!({ "type": kind });
    if let ToolChoice::Named(name) = &tools.choice {
        choice["name"] = json!(name);
    }
    if tools.one_at_a_time {
        choice["disable_parallel_tool_use"] = json!(true);
    }
    Some(choice)
}

/// Returns `thinking.type` and the effort; the model's own settings if the request has none.
fn thinking(reasoning: Reasoning, settings: &AnthropicModel) -> (Option<Value>, Option<&str>) {
    let own = settings.thinking.as_deref().filter(|own| *own != ALWAYS);
    let kind = |kind: &str| Some(json!({ "type": kind }));
    if reasoning == Reasoning::default() {
        return (own.and_then(kind), settings.effort.as_deref());
    }
    let effort = match reasoning.effort {
        // The vendor has no effort below low.
        Some(Effort::Minimal) => Some("low"),
        Some(Effort::None) => settings.effort.as_deref(),
        None if reasoning.thinking.is_some_and(Thinking::is_off) => settings.effort.as_deref(),
        effort => effort.map(Effort::as_str),
    };
    let thinking = match reasoning.thinking {
        // The minimum that the model takes. A model without thinking settings thinks only if asked
        // to, or always.
        Some(Thinking::Off | Thinking::BetweenTools) => own.and_then(kind),
        None if reasoning.effort == Some(Effort::None) => own.and_then(kind),
        None => None,
        Some(Thinking::Adaptive) => kind("adaptive"),
        Some(Thinking::Budget(budget)) => Some(json!({"type": "enabled", "budget_tokens": budget})),
    };
    (thinking, effort)
}

/// Whether the model may think. All thinking is billed, but at most a summary is shown, and nothing
/// with `display: omitted`. Models with a thinking setting think unless it is disabled.
pub fn may_think(call: &TextCall, settings: &AnthropicModel) -> bool {
    let sent: Option<Value> = match &call.original {
        Some(original) => original
            .get()
            .members
            .get("thinking")
            .and_then(|json| serde_json::from_slice(json).ok()),
        None => thinking(call.sampling.reasoning, settings).0,
    };
    match sent.as_ref().and_then(|thinking| thinking["type"].as_str()) {
        None => settings.thinking.is_some(),
        Some("disabled") => false,
        Some(BETWEEN_TOOLS) => !call.conversation.get().tools.functions.is_empty(),
        Some(_) => true,
    }
}

/// Builds the body: the caller's own, or one from the conversation.
pub fn json(
    call: &TextCall,
    settings: &AnthropicModel,
    streaming: bool,
) -> Result<RequestJson, ProviderError> {
    if let Some(original) = &call.original {
        let members = passed(call, settings, &original.get(), streaming);
        return RequestJson::of_members(&members);
    }
    let conversation = call.conversation.get();
    let body = body(call, &conversation, settings, streaming);
    RequestJson::sharing(&body, &conversation.buffers())
}

/// Builds the body of a request to count the input.
pub fn count_json(
    call: &TextCall,
    settings: &AnthropicModel,
) -> Result<RequestJson, ProviderError> {
    if let Some(original) = &call.original {
        let mut members = passed(call, settings, &original.get(), false);
        members.retain(|name, _| COUNTED.contains(&name));
        return RequestJson::of_members(&members);
    }
    let conversation = call.conversation.get();
    let prompt = prompt(call, &conversation, settings);
    RequestJson::sharing(&prompt, &conversation.buffers())
}

/// Returns the caller's body with our model and limit.
fn passed(
    call: &TextCall,
    settings: &AnthropicModel,
    original: &Original,
    streaming: bool,
) -> Members {
    let mut members = original.members.clone();
    members.set("model", &call.model);
    members.set("max_tokens", &call.max_tokens);
    if streaming {
        members.set("stream", &true);
    } else {
        members.remove("stream");
    }
    let named = |(name, value): &(&str, String)| *name == VERSION && value != CURRENT_VERSION;
    if settings.version == CURRENT_VERSION && !original.headers.iter().any(named) {
        // Only 1, the default, gets here; other values were refused.
        members.remove("temperature");
        members.remove("top_p");
    }
    members
}

/// Returns the members that the model reads. Only these count as input.
fn prompt<'a>(
    call: &'a TextCall,
    conversation: &'a Conversation,
    settings: &'a AnthropicModel,
) -> WireObject<'a> {
    let (thinking, effort) = thinking(call.sampling.reasoning, settings);
    let format = match &conversation.format {
        Format::Schema(Schema { schema, .. }) => {
            Some(WireObject::with_type("json_schema").with("schema", schema))
        }
        // `JsonObject` was refused earlier.
        Format::Text | Format::JsonObject => None,
    };
    let output = WireObject::default()
        .with_some("effort", effort)
        .with_some("format", format);
    let messages = WireValue::list(move || conversation.messages.iter().map(message));
    WireObject::default()
        .with("model", &call.model)
        .with("messages", messages)
        .with_some("system", conversation.system.as_ref())
        .with_list("tools", &conversation.tools.functions, tool)
        .with_some("tool_choice", tool_choice(&conversation.tools))
        .with_some("output_config", output.non_empty())
        .with_some("thinking", thinking)
}

/// Whether the vendor accepts a stop sequence. This server ends the text at others.
pub fn is_taken_stop(sequence: &str) -> bool {
    !sequence.trim().is_empty()
}

fn stops(sequences: &[String]) -> Option<WireValue<'_>> {
    let taken = || sequences.iter().filter(|stop| is_taken_stop(stop));
    taken().next()?;
    Some(WireValue::list(taken))
}

fn body<'a>(
    call: &'a TextCall,
    conversation: &'a Conversation,
    settings: &'a AnthropicModel,
    streaming: bool,
) -> WireObject<'a> {
    let sampling = &call.sampling;
    prompt(call, conversation, settings)
        .with("max_tokens", json!(call.max_tokens))
        // Sent even if the version refuses it: a parameter is never silently dropped.
        .with_some("temperature", sampling.temperature.map(Value::from))
        .with_some("top_p", sampling.top_p.map(Value::from))
        .with_some("stop_sequences", stops(&sampling.stop))
        .with_some("stream", streaming.then_some(json!(true)))
}

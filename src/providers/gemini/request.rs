//! The body of a `generateContent` call.
//!
//! Source: google-genai 3.3.0 (`PyPI`) `google/genai/types.py` (`Content`, `Part`, `Tool`,
//! `ToolConfig`, `GenerationConfig`).

use std::{collections::HashMap, iter::once};

use serde_json::{Value, json};

use super::{
    super::{ProviderError, TextCall, http::RequestJson},
    GeminiModel, bare_name,
};
use crate::{
    dialect::{SEED, TOP_K},
    domain::conversation::{
        Conversation, Document, DocumentData, Effort, Format, Function, Image, ImageSource,
        Message, Part, Reasoning, Role, Schema, Thinking, ToolChoice, Tools, WireObject, WireValue,
        texts,
    },
};

/// The signature for a call that Gemini did not make, which it refuses without one (ai.google.dev,
/// "Thought signatures").
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Function names by the ids of their calls.
type Calls<'a> = HashMap<&'a str, &'a str>;

fn content<'a>(message: &'a Message, calls: &'a Calls<'a>) -> WireObject<'a> {
    let role = match message.role {
        // Instructions between messages were converted to texts of the user.
        Role::System | Role::User => "user",
        Role::Assistant => "model",
    };
    WireObject::default()
        .with("role", role)
        .with("parts", WireValue::list(move || parts(message, calls)))
}

fn parts<'a>(
    message: &'a Message,
    calls: &'a Calls<'a>,
) -> impl Iterator<Item = WireObject<'a>> + 'a {
    let mut parts = message.parts.iter();
    let first_call = parts.position(|part| matches!(part, Part::ToolCall(_)));
    let parts = message.parts.iter().enumerate();
    parts.flat_map(move |(at, part)| {
        // Gemini's parts have no field for a file name.
        let name = match part {
            Part::Document(document) => document.name.as_deref(),
            _ => None,
        };
        let name = name.filter(|name| !name.is_empty()).map(text_part);
        let is_first_call = Some(at) == first_call;
        name.into_iter()
            .chain(wire_part(part, is_first_call, calls))
    })
}

fn text_part(text: &str) -> WireObject<'_> {
    WireObject::default().with("text", text)
}

/// Returns `None` for other vendors' thinking, which is left out.
fn wire_part<'a>(part: &'a Part, is_first_call: bool, calls: &Calls<'a>) -> Option<WireObject<'a>> {
    Some(match part {
        Part::Text { text } => text_part(text),
        Part::Image(Image {
            source: ImageSource::Base64 {
                media_type, data, ..
            },
            ..
        }) => inline_data(media_type.as_str(), data.as_str().into()),
        Part::Document(Document { source, .. }) => {
            let is_url = false;
            let data = WireValue::Document(DocumentData { source, is_url });
            inline_data(source.media_type().as_str(), data)
        }
        Part::ToolResult(result) => {
            let outcome = if result.is_error { "error" } else { "output" };
            let function = calls.get(&*result.call_id).copied().unwrap_or_default();
            let response = WireObject::default()
                .with("id", &result.call_id)
                .with("name", function)
                .with("response", json!({ outcome: texts(&result.parts, "\n") }));
            WireObject::default().with("functionResponse", response)
        }
        Part::ToolCall(call) => {
            let function = WireObject::default()
                .with("id", &call.id)
                .with("name", &call.name)
                // The arguments were checked to be an object.
                .with_some("args", call.object());
            // Of parallel calls only the first is signed.
            let stand_in = is_first_call.then_some(NO_SIGNATURE);
            let signature = call.thought_signature.as_deref().or(stand_in);
            WireObject::default()
                .with("functionCall", function)
                .with_some("thoughtSignature", signature)
        }
        // Images by URL were refused earlier.
        Part::Image(_) | Part::Thinking { .. } | Part::Redacted { .. } | Part::Opaque { .. } => {
            return None;
        }
    })
}

fn inline_data<'a>(mime_type: &'static str, data: WireValue<'a>) -> WireObject<'a> {
    let blob = WireObject::default()
        .with("mimeType", mime_type)
        .with("data", data);
    WireObject::default().with("inlineData", blob)
}

fn tool_set(tools: &Tools) -> WireObject<'_> {
    WireObject::default().with_list("functionDeclarations", &tools.functions, declaration)
}

fn declaration(function: &Function) -> WireObject<'_> {
    WireObject::default()
        .with("name", &function.name)
        .with_some("description", function.description.as_ref())
        .with_some("parametersJsonSchema", function.parameters.as_ref())
}

/// Returns `None` for the default.
fn tool_config(choice: &ToolChoice) -> Option<Value> {
    let config = match choice {
        ToolChoice::Auto => return None,
        ToolChoice::None => json!({"mode": "NONE"}),
        ToolChoice::Required => json!({"mode": "ANY"}),
        ToolChoice::Named(name) => json!({"mode": "ANY", "allowedFunctionNames": [name]}),
    };
    Some(json!({ "functionCallingConfig": config }))
}

/// Returns the level and the budget of thinking; the model's own settings if the request has none.
fn thinking(reasoning: Reasoning, settings: &GeminiModel) -> (Option<&str>, Option<i64>) {
    let own = settings.thinking_level.as_deref();
    if reasoning == Reasoning::default() {
        return (own, settings.thinking_budget);
    }
    if settings.thinking_budget.is_some() {
        return (None, Some(budget(reasoning)));
    }
    let level = match reasoning.as_effort() {
        // Thinking cannot be switched off; use the model's minimum.
        Some(Effort::None) => own,
        Some(Effort::Minimal) => Some("MINIMAL"),
        Some(Effort::Low) => Some("LOW"),
        Some(Effort::Medium) => Some("MEDIUM"),
        Some(Effort::High | Effort::XHigh | Effort::Max) => Some("HIGH"),
        None => None,
    };
    (level, None)
}

/// Whether the model may think, which its answers never show. Only a budget of 0 prevents it.
pub fn may_think(reasoning: Reasoning, settings: &GeminiModel) -> bool {
    thinking(reasoning, settings).1 != Some(0)
}

/// Converts an effort to tokens; -1 lets the model choose.
fn budget(reasoning: Reasoning) -> i64 {
    match (reasoning.thinking, reasoning.as_effort()) {
        (Some(Thinking::Budget(budget)), _) => budget.into(),
        (_, Some(Effort::None)) => 0,
        (_, Some(Effort::Minimal)) => 512,
        (_, Some(Effort::Low)) => 4_096,
        (_, Some(Effort::Medium)) => 16_384,
        (_, Some(Effort::High | Effort::XHigh | Effort::Max)) => 24_576,
        (_, None) => -1,
    }
}

pub fn json(call: &TextCall, settings: &GeminiModel) -> Result<RequestJson, ProviderError> {
    let conversation = call.conversation.get();
    let calls = conversation.calls();
    let body = body(call, &conversation, &calls, settings, Some(call.max_tokens));
    RequestJson::sharing(&body, &conversation.buffers())
}

/// Builds the body of a request to count the input. It is sent before the limit is known.
pub fn count_json(call: &TextCall, settings: &GeminiModel) -> Result<RequestJson, ProviderError> {
    let conversation = call.conversation.get();
    let calls = conversation.calls();
    let model = json!(format!("models/{}", bare_name(&call.model)));
    let request = body(call, &conversation, &calls, settings, None).with("model", model);
    let count = WireObject::default().with("generateContentRequest", request);
    RequestJson::sharing(&count, &conversation.buffers())
}

fn body<'a>(
    call: &'a TextCall,
    conversation: &'a Conversation,
    calls: &'a Calls<'a>,
    settings: &'a GeminiModel,
    max_output_tokens: Option<u32>,
) -> WireObject<'a> {
    let sampling = &call.sampling;
    let schema = match &conversation.format {
        Format::Schema(Schema { schema, .. }) => Some(schema),
        Format::Text | Format::JsonObject => None,
    };
    let is_json = conversation.format != Format::Text;
    let (level, budget) = thinking(sampling.reasoning, settings);
    let thinking = WireObject::default()
        .with_some("thinkingLevel", level)
        .with_some("thinkingBudget", budget.map(Value::from));
    let config = WireObject::default()
        .with_some("maxOutputTokens", max_output_tokens.map(Value::from))
        .with_some("temperature", sampling.temperature.map(Value::from))
        .with_some("topP", sampling.top_p.map(Value::from))
        .with_some("topK", call.shared(TOP_K))
        .with_some("seed", call.shared(SEED))
        .with_list("stopSequences", &sampling.stop, WireValue::from)
        .with_some("responseMimeType", is_json.then_some("application/json"))
        .with_some("responseJsonSchema", schema)
        .with_some("thinkingConfig", thinking.non_empty());
    let messages = &conversation.messages;
    let contents =
        WireValue::list(move || messages.iter().map(move |message| content(message, calls)));
    // The role is ignored upstream, but the SDK sends it.
    let system = conversation.system.as_ref().map(|text| {
        WireObject::default()
            .with("role", "user")
            .with("parts", WireValue::list(move || once(text_part(text))))
    });
    let tools = Some(&conversation.tools).filter(|tools| !tools.functions.is_empty());
    let tools = tools.map(|tools| WireValue::list(move || once(tool_set(tools))));
    WireObject::default()
        .with("contents", contents)
        .with_some("systemInstruction", system)
        .with_some("tools", tools)
        .with_some("toolConfig", tool_config(&conversation.tools.choice))
        .with("generationConfig", config)
}

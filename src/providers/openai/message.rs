//! The messages of a Chat Completions call, and its tools.
//!
//! Source: openai 3.51.0 (`PyPI`) `openai/types/chat/chat_completion_*_param.py`.

use serde_json::{Value, json};

use crate::domain::conversation::{
    Conversation, Detail, Format, Function, Message, Part, ReasoningField, Role, Schema,
    ToolChoice, WireObject, WireUrl, WireValue, reasoning, texts,
};

/// Name sent for a schema without one.
const SCHEMA_NAME: &str = "answer";

/// Returns all messages, with the instructions first, in `system_role`.
pub fn messages<'a>(conversation: &'a Conversation, system_role: &'static str) -> WireValue<'a> {
    WireValue::list(move || {
        let system = conversation.system.as_ref().map(|text| {
            let message = WireObject::default().with("role", system_role);
            message.with("content", text)
        });
        let messages = conversation.messages.iter();
        let messages = messages.flat_map(move |message| wire_messages(message, system_role));
        system.into_iter().chain(messages)
    })
}

/// Converts a message. The result of each tool becomes a separate message.
fn wire_messages<'a>(
    Message { role, parts }: &'a Message,
    system_role: &'static str,
) -> impl Iterator<Item = WireObject<'a>> + 'a {
    let role = match role {
        Role::System => system_role,
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    let content = content(parts);
    let has_calls = parts.iter().any(|part| call(part).is_some());
    let calls = has_calls.then(|| WireValue::list(move || parts.iter().filter_map(call)));
    let message = (content.is_some() || has_calls).then(|| {
        let fields = ReasoningField::ALL.iter();
        let fields = fields.filter_map(|&field| Some((field, reasoning(parts, field)?)));
        let fields: Vec<_> = fields.collect();
        // Some servers require the key. The package also sends null, but DeepSeek refuses null with
        // reasoning.
        let no_text = if fields.is_empty() {
            WireValue::Value(Value::Null)
        } else {
            WireValue::Text("")
        };
        let mut message = WireObject::default()
            .with("role", role)
            .with("content", content.unwrap_or(no_text));
        for (field, text) in fields {
            message = message.with(field.as_str(), Value::from(text));
        }
        message.with_some("tool_calls", calls)
    });
    parts.iter().filter_map(result).chain(message)
}

/// Converts a tool's result. Only its text can report a failure.
fn result(part: &Part) -> Option<WireObject<'_>> {
    let Part::ToolResult(result) = part else {
        return None;
    };
    let content = if result.is_error {
        WireValue::Value(format!("Error: {}", texts(&result.parts, "\n")).into())
    } else {
        content(&result.parts).unwrap_or(WireValue::Text(""))
    };
    let message = WireObject::default()
        .with("role", "tool")
        .with("content", content)
        .with("tool_call_id", &result.call_id);
    Some(message)
}

/// Returns texts and images, without other vendors' thinking. Only text becomes one string, the
/// only form that every compatible server supports.
fn content(parts: &[Part]) -> Option<WireValue<'_>> {
    let mut shown = parts.iter().filter(|part| content_part(part).is_some());
    match (shown.next()?, shown.next()) {
        (Part::Text { text }, None) => Some(text.into()),
        _ if parts.iter().any(|part| matches!(part, Part::Image(_))) => {
            Some(WireValue::list(move || {
                parts.iter().filter_map(content_part)
            }))
        }
        _ => Some(WireValue::Value(texts(parts, "\n\n").into())),
    }
}

fn content_part(part: &Part) -> Option<WireObject<'_>> {
    match part {
        Part::Text { text } => Some(WireObject::with_type("text").with("text", text)),
        Part::Image(image) => {
            let url = WireObject::default()
                .with("url", WireValue::Image(WireUrl(&image.source)))
                .with_some("detail", image.detail.map(Detail::as_str));
            Some(WireObject::with_type("image_url").with("image_url", url))
        }
        _ => None,
    }
}

fn call(part: &Part) -> Option<WireObject<'_>> {
    let call = part.call()?;
    let function = WireObject::default()
        .with("name", &call.name)
        .with("arguments", &call.arguments);
    let signature = call.thought_signature.as_ref();
    let extra = signature.map(|signature| json!({"google": {"thought_signature": signature}}));
    let call = WireObject::default()
        .with("id", &call.id)
        .with("type", "function")
        .with("function", function)
        .with_some("extra_content", extra);
    Some(call)
}

pub fn tool(function: &Function) -> WireObject<'_> {
    let members = WireObject::default()
        .with("name", &function.name)
        .with_some("description", function.description.as_ref())
        .with_some("parameters", function.parameters.as_ref())
        .with_some("strict", function.strict.map(Value::from));
    WireObject::with_type("function").with("function", members)
}

/// Returns `None` for the default.
pub fn tool_choice(choice: &ToolChoice) -> Option<Value> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some(json!("none")),
        ToolChoice::Required => Some(json!("required")),
        ToolChoice::Named(name) => Some(json!({"type": "function", "function": {"name": name}})),
    }
}

/// Returns `None` for the default.
pub fn format(format: &Format) -> Option<WireObject<'_>> {
    match format {
        Format::Text => None,
        Format::JsonObject => Some(WireObject::with_type("json_object")),
        Format::Schema(schema) => {
            let members = with_schema(WireObject::default(), schema);
            Some(WireObject::with_type("json_schema").with("json_schema", members))
        }
    }
}

pub fn with_schema<'a>(object: WireObject<'a>, schema: &'a Schema) -> WireObject<'a> {
    object
        .with("name", schema.name.as_deref().unwrap_or(SCHEMA_NAME))
        .with_some("description", schema.description.as_ref())
        .with("schema", &schema.schema)
        .with_some("strict", schema.strict.map(Value::from))
}

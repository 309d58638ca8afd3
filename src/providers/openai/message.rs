//! The messages of a Chat Completions call, and its tools.
//!
//! Source: openai 3.51.0 (`PyPI`) `openai/types/chat/chat_completion_*_param.py`.

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::domain::conversation::{
    Conversation, Detail, Format, Image, ImageSource, Json, Message, Part, ReasoningField, Role,
    Schema, ToolCall, ToolChoice, ToolResult, Tools, reasoning, texts,
};

/// The name of a schema that has none.
const SCHEMA_NAME: &str = "answer";

#[derive(Serialize)]
pub struct WireMessage<'a> {
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Content<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    /// The only form that every compatible server supports.
    Text(&'a str),
    Owned(String),
    Parts(Vec<WirePart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WirePart<'a> {
    Text { text: &'a str },
    ImageUrl { image_url: WireImage<'a> },
}

#[derive(Serialize)]
struct WireImage<'a> {
    url: WireUrl<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
}

/// A URL, or the data as one.
pub(super) struct WireUrl<'a>(pub(super) &'a ImageSource);

#[derive(Serialize)]
struct WireCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: WireArguments<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<Value>,
}

#[derive(Serialize)]
struct WireArguments<'a> {
    name: &'a str,
    arguments: &'a str,
}

/// All messages, the instructions first, with `system_role`.
pub fn messages<'a>(
    conversation: &'a Conversation,
    system_role: &'static str,
) -> Vec<WireMessage<'a>> {
    let plain = |role, content| WireMessage {
        role,
        content,
        reasoning_content: None,
        reasoning: None,
        tool_calls: Vec::new(),
        tool_call_id: None,
    };
    let system = conversation.system.as_deref();
    let system = system.map(|text| plain(system_role, Some(Content::Text(text))));
    let mut all: Vec<_> = system.into_iter().collect();
    for Message { role, parts } in &conversation.messages {
        all.extend(parts.iter().filter_map(result));
        let calls = parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(WireCall::from(call)),
            _ => None,
        });
        let tool_calls: Vec<_> = calls.collect();
        let content = Content::of(parts);
        if content.is_some() || !tool_calls.is_empty() {
            let role = match role {
                Role::System => system_role,
                Role::User => "user",
                Role::Assistant => "assistant",
            };
            all.push(WireMessage {
                reasoning_content: reasoning(parts, ReasoningField::ReasoningContent),
                reasoning: reasoning(parts, ReasoningField::Reasoning),
                tool_calls,
                ..plain(role, content)
            });
        }
    }
    all
}

/// The result of a tool is a message of its own. Only its text can report a failure.
fn result(part: &Part) -> Option<WireMessage<'_>> {
    let Part::ToolResult(ToolResult {
        call_id,
        parts,
        is_error,
    }) = part
    else {
        return None;
    };
    let content = if *is_error {
        Content::Owned(format!("Error: {}", texts(parts, "\n")))
    } else {
        Content::of(parts).unwrap_or(Content::Text(""))
    };
    Some(WireMessage {
        role: "tool",
        content: Some(content),
        reasoning_content: None,
        reasoning: None,
        tool_calls: Vec::new(),
        tool_call_id: Some(call_id),
    })
}

impl<'a> Content<'a> {
    /// The texts and images; thoughts of other vendors are left out.
    fn of(parts: &'a [Part]) -> Option<Self> {
        let parts = parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(WirePart::Text { text }),
            Part::Image(image) => Some(WirePart::ImageUrl {
                image_url: WireImage::from(image),
            }),
            _ => None,
        });
        let parts: Vec<_> = parts.collect();
        match &parts[..] {
            [] => None,
            [WirePart::Text { text }] => Some(Content::Text(text)),
            _ => Some(Content::Parts(parts)),
        }
    }
}

impl<'a> From<&'a Image> for WireImage<'a> {
    fn from(image: &'a Image) -> Self {
        let detail = image.detail.map(Detail::as_str);
        let url = WireUrl(&image.source);
        Self { url, detail }
    }
}

impl Serialize for WireUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            ImageSource::Url(url) => serializer.serialize_str(url),
            // `collect_str` writes the data without copying it.
            ImageSource::Base64 {
                media_type, data, ..
            } => {
                let data = data.as_str();
                serializer.collect_str(&format_args!("data:{media_type};base64,{data}"))
            }
        }
    }
}

impl<'a> From<&'a ToolCall> for WireCall<'a> {
    fn from(call: &'a ToolCall) -> Self {
        let signature = call.thought_signature.as_deref();
        Self {
            id: &call.id,
            r#type: "function",
            function: WireArguments {
                name: &call.name,
                arguments: &call.arguments,
            },
            extra_content: signature
                .map(|signature| json!({"google": {"thought_signature": signature}})),
        }
    }
}

#[derive(Serialize)]
pub struct WireTool<'a> {
    r#type: &'static str,
    function: WireFunction<'a>,
}

#[derive(Serialize)]
struct WireFunction<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

pub fn tools(tools: &Tools) -> Vec<WireTool<'_>> {
    let functions = tools.functions.iter().map(|function| WireTool {
        r#type: "function",
        function: WireFunction {
            name: &function.name,
            description: function.description.as_deref(),
            parameters: function.parameters.as_ref(),
            strict: function.strict,
        },
    });
    functions.collect()
}

/// `None`: the default.
pub fn tool_choice(choice: &ToolChoice) -> Option<Value> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some(json!("none")),
        ToolChoice::Required => Some(json!("required")),
        ToolChoice::Named(name) => Some(json!({"type": "function", "function": {"name": name}})),
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum WireFormat<'a> {
    JsonObject,
    JsonSchema { json_schema: WireSchema<'a> },
}

#[derive(Serialize)]
pub struct WireSchema<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    schema: &'a Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

impl<'a> From<&'a Schema> for WireSchema<'a> {
    fn from(schema: &'a Schema) -> Self {
        Self {
            name: schema.name.as_deref().unwrap_or(SCHEMA_NAME),
            description: schema.description.as_deref(),
            schema: &schema.schema,
            strict: schema.strict,
        }
    }
}

/// `None`: the default.
pub fn format(format: &Format) -> Option<WireFormat<'_>> {
    match format {
        Format::Text => None,
        Format::JsonObject => Some(WireFormat::JsonObject),
        Format::Schema(schema) => Some(WireFormat::JsonSchema {
            json_schema: schema.into(),
        }),
    }
}

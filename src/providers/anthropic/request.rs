//! The body of a Messages call.
//!
//! Source: anthropic 2.10.0 (`PyPI`) `anthropic/types/message_create_params.py` and the types of
//! its blocks.

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    super::{ProviderError, TextCall, http::RequestJson},
    ALWAYS, AnthropicModel, BETWEEN_TOOLS, CURRENT_VERSION, VERSION,
};
use crate::domain::{
    conversation::{
        Conversation, Document, DocumentSource, Effort, Format, Image, ImageSource, Json, Message,
        Part, Reasoning, Role, Schema, Thinking, ToolCall, ToolChoice, Tools,
    },
    json::Members,
    request::Original,
};

/// The members that the model reads, which are all that count as input.
#[derive(Serialize)]
struct Prompt<'a> {
    model: &'a str,
    messages: Vec<WireMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Value>,
}

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

#[derive(Serialize)]
pub struct Body<'a> {
    #[serde(flatten)]
    prompt: Prompt<'a>,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    stop_sequences: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<bool>,
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: Content<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(&'a str),
    Blocks(Vec<Block<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: &'a str,
    },
    Image {
        source: Source<'a>,
    },
    Document {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: Option<Json>,
    },
    ToolResult {
        tool_use_id: &'a str,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        content: Vec<Self>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    #[serde(untagged)]
    Opaque(&'a Value),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Source<'a> {
    Base64 { media_type: &'a str, data: &'a str },
    Url { url: &'a str },
    Text { media_type: &'a str, data: &'a str },
}

impl<'a> From<&'a Message> for WireMessage<'a> {
    fn from(message: &'a Message) -> Self {
        let role = match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        let content = match &message.parts[..] {
            [Part::Text { text }] => Content::Text(text),
            parts => Content::Blocks(blocks(parts)),
        };
        Self { role, content }
    }
}

fn blocks(parts: &[Part]) -> Vec<Block<'_>> {
    parts.iter().map(Block::from).collect()
}

impl<'a> From<&'a Part> for Block<'a> {
    fn from(part: &'a Part) -> Self {
        match part {
            Part::Text { text } => Self::Text { text },
            Part::Image(image) => Self::Image {
                source: Source::from(image),
            },
            Part::Document(Document { source, name, .. }) => Self::Document {
                source: Source::from(source),
                title: name.as_deref(),
            },
            Part::Thinking { text, signature } => Self::Thinking {
                thinking: text,
                signature,
            },
            Part::Redacted { data } => Self::RedactedThinking { data },
            Part::ToolCall(call) => Self::ToolUse {
                id: &call.id,
                name: &call.name,
                // It was made an object before.
                input: ToolCall::object(call),
            },
            Part::ToolResult(result) => Self::ToolResult {
                tool_use_id: &result.call_id,
                content: blocks(&result.parts),
                is_error: result.is_error,
            },
            Part::Opaque { block } => Self::Opaque(block),
        }
    }
}

impl<'a> From<&'a Image> for Source<'a> {
    fn from(image: &'a Image) -> Self {
        match &image.source {
            ImageSource::Base64 {
                media_type, data, ..
            } => Self::Base64 {
                media_type: media_type.as_str(),
                data: data.as_str(),
            },
            ImageSource::Url(url) => Self::Url { url },
        }
    }
}

impl<'a> From<&'a DocumentSource> for Source<'a> {
    fn from(source: &'a DocumentSource) -> Self {
        let media_type = source.media_type().as_str();
        match source {
            DocumentSource::Pdf(data) => Self::Base64 {
                media_type,
                data: data.as_str(),
            },
            DocumentSource::Text(data) => Self::Text { media_type, data },
        }
    }
}

#[derive(Serialize)]
struct WireTool<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    input_schema: Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

fn wire_tools(tools: &Tools) -> Vec<WireTool<'_>> {
    let any = || Json::from(&json!({"type": "object", "properties": {}}));
    let functions = tools.functions.iter().map(|function| WireTool {
        name: &function.name,
        description: function.description.as_deref(),
        input_schema: function.parameters.clone().unwrap_or_else(any),
        // False is the default, which older models know no other name for.
        strict: function.strict.filter(|strict| *strict),
    });
    functions.collect()
}

/// `None`: the default.
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

#[derive(Serialize)]
struct OutputConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<OutputFormat<'a>>,
}

#[derive(Serialize)]
struct OutputFormat<'a> {
    r#type: &'static str,
    schema: &'a Json,
}

/// The model's own settings where nothing is asked for.
fn thinking(reasoning: Reasoning, settings: &AnthropicModel) -> (Option<Value>, Option<&str>) {
    let own = settings.thinking.as_deref().filter(|own| *own != ALWAYS);
    let kind = |kind: &str| Some(json!({ "type": kind }));
    if reasoning == Reasoning::default() {
        return (own.and_then(kind), settings.effort.as_deref());
    }
    let effort = match reasoning.effort {
        // Nothing is less than low here.
        Some(Effort::Minimal) => Some("low"),
        Some(Effort::None) => settings.effort.as_deref(),
        None if reasoning.thinking.is_some_and(Thinking::is_off) => settings.effort.as_deref(),
        effort => effort.map(Effort::as_str),
    };
    let thinking = match reasoning.thinking {
        // The least that the model takes: without settings of its own it does not think unless it
        // is asked to, or always.
        Some(Thinking::Off | Thinking::BetweenTools) => own.and_then(kind),
        None if reasoning.effort == Some(Effort::None) => own.and_then(kind),
        None => None,
        Some(Thinking::Adaptive) => kind("adaptive"),
        Some(Thinking::Budget(budget)) => Some(json!({"type": "enabled", "budget_tokens": budget})),
    };
    (thinking, effort)
}

/// Whether the model may think. It shows a summary of that at most, and nothing with `display:
/// omitted`, while all of it is billed. Models that have the setting think unless it is disabled.
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

/// The body to send: the caller's, or one written from the conversation.
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
    let body = body(call, &conversation, settings, false);
    RequestJson::sharing(&body.prompt, &conversation.buffers())
}

/// The caller's body with our model and limit.
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
        // Other values than one, which is the default, are refused before.
        members.remove("temperature");
        members.remove("top_p");
    }
    members
}

fn body<'a>(
    call: &'a TextCall,
    conversation: &'a Conversation,
    settings: &'a AnthropicModel,
    streaming: bool,
) -> Body<'a> {
    let (thinking, effort) = thinking(call.sampling.reasoning, settings);
    let format = match &conversation.format {
        Format::Schema(Schema { schema, .. }) => Some(OutputFormat {
            r#type: "json_schema",
            schema,
        }),
        // The second is refused before.
        Format::Text | Format::JsonObject => None,
    };
    let prompt = Prompt {
        model: &call.model,
        messages: conversation
            .messages
            .iter()
            .map(WireMessage::from)
            .collect(),
        system: conversation.system.as_deref(),
        tools: wire_tools(&conversation.tools),
        tool_choice: tool_choice(&conversation.tools),
        output_config: (effort.is_some() || format.is_some())
            .then_some(OutputConfig { effort, format }),
        thinking,
    };
    Body {
        prompt,
        max_tokens: call.max_tokens,
        // Sent even where the version refuses it: never silently dropped.
        temperature: call.sampling.temperature,
        top_p: call.sampling.top_p,
        stop_sequences: &call.sampling.stop,
        stream: streaming.then_some(true),
    }
}

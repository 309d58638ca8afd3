//! The body of a `generateContent` call.
//!
//! Source: google-genai 3.3.0 (`PyPI`) `google/genai/types.py` (`Content`, `Part`, `Tool`,
//! `ToolConfig`, `GenerationConfig`).

use std::collections::HashMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    super::{ProviderError, TextCall, http::RequestJson},
    GeminiModel,
};
use crate::domain::conversation::{
    Conversation, Document, DocumentData, Effort, Format, Image, ImageSource, Json, Message, Part,
    Reasoning, Role, Schema, Thinking, ToolCall, ToolChoice, Tools, texts,
};

/// What stands for the signature of a call that Gemini did not make: without any it refuses the
/// call (ai.google.dev, "Thought signatures").
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Body<'a> {
    contents: Vec<Content<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Content<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<[WireTools<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_config: Option<Value>,
    generation_config: GenerationConfig<'a>,
}

#[derive(Serialize)]
struct Content<'a> {
    role: &'static str,
    parts: Vec<WirePart<'a>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct WirePart<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inline_data: Option<Blob<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<FunctionCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_response: Option<FunctionResponse<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Blob<'a> {
    mime_type: &'a str,
    data: Data<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Data<'a> {
    Image(&'a str),
    Document(DocumentData<'a>),
}

#[derive(Serialize)]
struct FunctionCall<'a> {
    id: &'a str,
    name: &'a str,
    args: Option<Json>,
}

#[derive(Serialize)]
struct FunctionResponse<'a> {
    id: &'a str,
    name: &'a str,
    response: Value,
}

impl<'a> Content<'a> {
    fn of(message: &'a Message, calls: &HashMap<&str, &'a str>) -> Self {
        let role = match message.role {
            // Refused before: there are no instructions between messages.
            Role::System | Role::User => "user",
            Role::Assistant => "model",
        };
        let mut first = true;
        let parts = message.parts.iter().flat_map(|part| {
            let (found, signed) = match part {
                Part::ToolCall(call) => (Some(WirePart::of_call(call, first)), true),
                part => (WirePart::of(part, calls), false),
            };
            first &= !signed;
            // Gemini's parts have no field for a file name.
            let name = match part {
                Part::Document(document) => document.name.as_deref(),
                _ => None,
            };
            let name = name.filter(|name| !name.is_empty()).map(WirePart::of_text);
            name.into_iter().chain(found)
        });
        let parts = parts.collect();
        Self { role, parts }
    }
}

impl<'a> WirePart<'a> {
    fn of_text(text: &'a str) -> Self {
        Self {
            text: Some(text),
            ..Self::default()
        }
    }

    /// `None` for thoughts of other vendors, which are left out.
    fn of(part: &'a Part, calls: &HashMap<&str, &'a str>) -> Option<Self> {
        Some(match part {
            Part::Text { text } => Self::of_text(text),
            Part::Image(Image {
                source:
                    ImageSource::Base64 {
                        media_type, data, ..
                    },
                ..
            }) => Self {
                inline_data: Some(Blob {
                    mime_type: media_type.as_str(),
                    data: Data::Image(data.as_str()),
                }),
                ..Self::default()
            },
            Part::Document(Document { source, .. }) => Self {
                inline_data: Some(Blob {
                    mime_type: source.media_type().as_str(),
                    data: Data::Document(DocumentData {
                        source,
                        is_url: false,
                    }),
                }),
                ..Self::default()
            },
            Part::ToolResult(result) => {
                let name = if result.is_error { "error" } else { "output" };
                Self {
                    function_response: Some(FunctionResponse {
                        id: &result.call_id,
                        name: calls.get(&*result.call_id).copied().unwrap_or_default(),
                        response: json!({ name: texts(&result.parts, "\n") }),
                    }),
                    ..Self::default()
                }
            }
            // Images by URL are refused before.
            Part::Image(_)
            | Part::ToolCall(_)
            | Part::Thinking { .. }
            | Part::Redacted { .. }
            | Part::Opaque { .. } => return None,
        })
    }

    /// Of calls side by side only the first is signed.
    fn of_call(call: &'a ToolCall, first: bool) -> Self {
        let stand_in = first.then_some(NO_SIGNATURE);
        Self {
            function_call: Some(FunctionCall {
                id: &call.id,
                name: &call.name,
                // It was made an object before.
                args: call.object(),
            }),
            thought_signature: call.thought_signature.as_deref().or(stand_in),
            ..Self::default()
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireTools<'a> {
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters_json_schema: Option<&'a Json>,
}

fn wire_tools(tools: &Tools) -> Option<[WireTools<'_>; 1]> {
    let functions = tools.functions.iter().map(|function| Declaration {
        name: &function.name,
        description: function.description.as_deref(),
        parameters_json_schema: function.parameters.as_ref(),
    });
    let function_declarations: Vec<_> = functions.collect();
    (!function_declarations.is_empty()).then_some([WireTools {
        function_declarations,
    }])
}

/// `None`: the default.
fn tool_config(choice: &ToolChoice) -> Option<Value> {
    let config = match choice {
        ToolChoice::Auto => return None,
        ToolChoice::None => json!({"mode": "NONE"}),
        ToolChoice::Required => json!({"mode": "ANY"}),
        ToolChoice::Named(name) => json!({"mode": "ANY", "allowedFunctionNames": [name]}),
    };
    Some(json!({ "functionCallingConfig": config }))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig<'a> {
    /// `None` in a count request, which is sent before the limit is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    stop_sequences: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    response_mime_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_json_schema: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<ThinkingConfig<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ThinkingConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<i64>,
}

/// The model's own settings where nothing is asked for.
fn thinking(reasoning: Reasoning, settings: &GeminiModel) -> Option<ThinkingConfig<'_>> {
    let own = ThinkingConfig {
        thinking_level: settings.thinking_level.as_deref(),
        thinking_budget: settings.thinking_budget,
    };
    let asked = if reasoning == Reasoning::default() {
        own
    } else if settings.thinking_budget.is_some() {
        ThinkingConfig {
            thinking_level: None,
            thinking_budget: Some(budget(reasoning)),
        }
    } else {
        let level = match reasoning.as_effort() {
            // Thinking cannot be switched off: the least that the model takes.
            Some(Effort::None) => settings.thinking_level.as_deref(),
            Some(Effort::Minimal) => Some("MINIMAL"),
            Some(Effort::Low) => Some("LOW"),
            Some(Effort::Medium) => Some("MEDIUM"),
            Some(Effort::High | Effort::XHigh | Effort::Max) => Some("HIGH"),
            None => None,
        };
        ThinkingConfig {
            thinking_level: level,
            thinking_budget: None,
        }
    };
    let wanted = asked.thinking_level.is_some() || asked.thinking_budget.is_some();
    wanted.then_some(asked)
}

/// Whether the model may think, which its answers never show. Only a budget of 0 keeps it from that.
pub fn may_think(reasoning: Reasoning, settings: &GeminiModel) -> bool {
    thinking(reasoning, settings).and_then(|config| config.thinking_budget) != Some(0)
}

/// As tokens; -1 is the model's own choice.
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
    let body = body(call, &conversation, settings, Some(call.max_tokens));
    RequestJson::sharing(&body, &conversation.buffers())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Count<'a> {
    generate_content_request: CountedRequest<'a>,
}

#[derive(Serialize)]
struct CountedRequest<'a> {
    model: String,
    #[serde(flatten)]
    body: Body<'a>,
}

/// Builds the body of a request to count the input.
pub fn count_json(call: &TextCall, settings: &GeminiModel) -> Result<RequestJson, ProviderError> {
    let conversation = call.conversation.get();
    let model = call.model.strip_prefix("models/").unwrap_or(&call.model);
    let count = Count {
        generate_content_request: CountedRequest {
            model: format!("models/{model}"),
            body: body(call, &conversation, settings, None),
        },
    };
    RequestJson::sharing(&count, &conversation.buffers())
}

fn body<'a>(
    call: &'a TextCall,
    conversation: &'a Conversation,
    settings: &'a GeminiModel,
    max_output_tokens: Option<u32>,
) -> Body<'a> {
    let calls = conversation.calls();
    let messages = conversation.messages.iter();
    let schema = match &conversation.format {
        Format::Schema(Schema { schema, .. }) => Some(schema),
        Format::Text | Format::JsonObject => None,
    };
    Body {
        contents: messages
            .map(|message| Content::of(message, &calls))
            .collect(),
        system_instruction: conversation.system.as_deref().map(|text| Content {
            // Ignored upstream; it is what the SDK sends.
            role: "user",
            parts: vec![WirePart::of_text(text)],
        }),
        tools: wire_tools(&conversation.tools),
        tool_config: tool_config(&conversation.tools.choice),
        generation_config: GenerationConfig {
            max_output_tokens,
            temperature: call.sampling.temperature,
            top_p: call.sampling.top_p,
            stop_sequences: &call.sampling.stop,
            response_mime_type: (conversation.format != Format::Text).then_some("application/json"),
            response_json_schema: schema,
            thinking_config: thinking(call.sampling.reasoning, settings),
        },
    }
}

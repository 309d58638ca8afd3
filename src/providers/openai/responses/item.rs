//! The items of an input.
//!
//! Source: openai 3.57.0 (`PyPI`) `openai/types/responses/response_input_item_param.py`.

use std::mem::take;

use serde_json::Value;

use crate::domain::conversation::{
    Conversation, Detail, Document, DocumentData, DocumentSource, Image, Message, Part, Role,
    ToolResult, WireObject, WireUrl, WireValue, texts,
};

/// Returns the conversation in order, with the instructions first, in `system_role`.
pub fn items<'a>(conversation: &'a Conversation, system_role: &'static str) -> WireValue<'a> {
    WireValue::list(move || {
        let system = conversation.system.as_ref();
        let system = system.map(|text| wire_message(system_role, text.into()));
        let messages = conversation.messages.iter();
        let messages = messages.flat_map(move |message| message_items(message, system_role));
        system.into_iter().chain(messages)
    })
}

fn wire_message<'a>(role: &'static str, content: WireValue<'a>) -> WireObject<'a> {
    WireObject::default()
        .with("role", role)
        .with("content", content)
}

/// Converts a message. Texts, images and documents before the next item become one message.
fn message_items<'a>(
    Message { role, parts }: &'a Message,
    system_role: &'static str,
) -> impl Iterator<Item = WireObject<'a>> + 'a {
    let wire_role = match role {
        Role::System => system_role,
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    let mut said = Vec::new();
    let with_end = parts.iter().map(Some).chain([None]).enumerate();
    let items = with_end.flat_map(move |(at, part)| {
        let item = match part {
            Some(part) if is_content(part) => {
                said.push(part);
                return [None, None];
            }
            Some(part) => {
                // OpenAI refuses reasoning without a following item.
                let is_followed = || parts.iter().skip(at + 1).any(is_said);
                let is_sent = !matches!(part, Part::Thinking { .. }) || is_followed();
                let Some(item) = item(part).filter(|_| is_sent) else {
                    return [None, None];
                };
                Some(item)
            }
            None => None,
        };
        let message = content(take(&mut said), *role);
        [
            message.map(|content| wire_message(wire_role, content)),
            item,
        ]
    });
    items.flatten()
}

const fn is_content(part: &Part) -> bool {
    matches!(part, Part::Text { .. } | Part::Image(_) | Part::Document(_))
}

const fn is_said(part: &Part) -> bool {
    matches!(part, Part::Text { .. } | Part::ToolCall(_))
}

/// Returns `None` for content and for other vendors' thinking.
fn item(part: &Part) -> Option<WireObject<'_>> {
    match part {
        Part::ToolCall(call) => Some(
            WireObject::with_type("function_call")
                .with("call_id", &call.id)
                .with("name", &call.name)
                .with("arguments", &call.arguments),
        ),
        Part::ToolResult(result) => Some(
            WireObject::with_type("function_call_output")
                .with("call_id", &result.call_id)
                .with("output", output(result)),
        ),
        Part::Thinking { text, .. } => {
            let encrypted = part.encrypted_reasoning()?;
            let summary = Some(text).filter(|text| !text.is_empty());
            let summary = WireValue::list(move || {
                let texts = summary.into_iter();
                texts.map(|text| WireObject::with_type("summary_text").with("text", text))
            });
            Some(
                WireObject::with_type("reasoning")
                    .with_some("id", Some(encrypted.id).filter(|id| !id.is_empty()))
                    .with("summary", summary)
                    .with("encrypted_content", encrypted.content),
            )
        }
        _ => None,
    }
}

/// Converts a tool's result. The API has no field for a failure.
fn output(result: &ToolResult) -> WireValue<'_> {
    if result.is_error {
        let text = format!("Error: {}", texts(&result.parts, "\n"));
        let is_shown = |part: &&Part| matches!(part, Part::Image(_) | Part::Document(_));
        if !result.parts.iter().any(|part| is_shown(&part)) {
            return WireValue::Value(text.into());
        }
        return WireValue::list(move || {
            let text = Value::from(text.clone());
            let text = WireObject::with_type("input_text").with("text", text);
            let shown = result.parts.iter().filter(is_shown);
            let shown = shown.filter_map(|part| content_part(part, Role::User));
            [text].into_iter().chain(shown)
        });
    }
    let parts = result.parts.iter().filter(|part| is_content(part));
    content(parts.collect(), Role::User).unwrap_or(WireValue::Text(""))
}

/// Returns `None` if there are no parts.
fn content(parts: Vec<&Part>, role: Role) -> Option<WireValue<'_>> {
    match parts[..] {
        [] => None,
        [Part::Text { text }] => Some(text.into()),
        _ => Some(WireValue::list(move || {
            let parts = parts.clone().into_iter();
            parts.filter_map(move |part| content_part(part, role))
        })),
    }
}

fn content_part(part: &Part, role: Role) -> Option<WireObject<'_>> {
    match part {
        Part::Text { text } => {
            let is_answer = role == Role::Assistant;
            let kind = if is_answer {
                "output_text"
            } else {
                "input_text"
            };
            Some(WireObject::with_type(kind).with("text", text))
        }
        Part::Image(Image { source, detail }) => Some(
            WireObject::with_type("input_image")
                .with("image_url", WireValue::Image(WireUrl(source)))
                .with("detail", detail.unwrap_or(Detail::Auto).as_str()),
        ),
        Part::Document(document) => {
            let data = DocumentData {
                source: &document.source,
                is_url: true,
            };
            let file = WireObject::with_type("input_file")
                .with("filename", file_name(document))
                .with("file_data", WireValue::Document(data));
            Some(file)
        }
        _ => None,
    }
}

/// Returns the file name, which the API requires.
fn file_name(document: &Document) -> &str {
    let name = document.name.as_deref().filter(|name| !name.is_empty());
    name.unwrap_or(match document.source {
        DocumentSource::Pdf(_) => "document.pdf",
        DocumentSource::Text(_) => "document.txt",
    })
}

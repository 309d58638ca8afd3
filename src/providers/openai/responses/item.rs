//! The items of an input.
//!
//! Source: openai 3.57.0 (`PyPI`) `openai/types/responses/response_input_item_param.py`.

use serde::Serialize;

use super::super::message::WireUrl;
use crate::domain::conversation::{
    Conversation, Detail, Document, DocumentData, DocumentSource, Image, Part, Role, ToolResult,
    texts,
};

#[derive(Serialize)]
#[serde(untagged)]
pub enum Item<'a> {
    Message {
        role: &'static str,
        content: Content<'a>,
    },
    Typed(TypedItem<'a>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TypedItem<'a> {
    FunctionCall {
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: Content<'a>,
    },
    Reasoning {
        #[serde(skip_serializing_if = "str::is_empty")]
        id: &'a str,
        summary: Vec<Summary<'a>>,
        encrypted_content: &'a str,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "summary_text")]
pub struct Summary<'a> {
    text: &'a str,
}

#[derive(Serialize)]
#[serde(untagged)]
pub enum Content<'a> {
    Text(&'a str),
    Owned(String),
    Parts(Vec<ContentPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentPart<'a> {
    InputText {
        text: &'a str,
    },
    OutputText {
        text: &'a str,
    },
    InputImage {
        image_url: WireUrl<'a>,
        detail: &'static str,
    },
    InputFile {
        filename: &'a str,
        file_data: DocumentData<'a>,
    },
}

/// The conversation in order, the instructions first, with `system_role`.
pub fn items<'a>(conversation: &'a Conversation, system_role: &'static str) -> Vec<Item<'a>> {
    let system = conversation.system.as_deref().map(|text| Item::Message {
        role: system_role,
        content: Content::Text(text),
    });
    let mut items: Vec<_> = system.into_iter().collect();
    for message in &conversation.messages {
        let role = match message.role {
            Role::System => system_role,
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        let mut said = Vec::new();
        for (at, part) in message.parts.iter().enumerate() {
            let item = match part {
                Part::Text { .. } | Part::Image(_) | Part::Document(_) => {
                    said.extend(ContentPart::new(part, message.role));
                    continue;
                }
                Part::ToolCall(call) => TypedItem::FunctionCall {
                    call_id: &call.id,
                    name: &call.name,
                    arguments: &call.arguments,
                },
                Part::ToolResult(result) => TypedItem::FunctionCallOutput {
                    call_id: &result.call_id,
                    output: output(result),
                },
                // OpenAI refuses reasoning that nothing follows.
                _ if !message.parts.iter().skip(at + 1).any(is_said) => continue,
                _ => match reasoning(part) {
                    Some(item) => item,
                    None => continue,
                },
            };
            push(&mut items, role, &mut said);
            items.push(Item::Typed(item));
        }
        push(&mut items, role, &mut said);
    }
    items
}

/// Adds the collected texts, images and documents as a message.
fn push<'a>(items: &mut Vec<Item<'a>>, role: &'static str, said: &mut Vec<ContentPart<'a>>) {
    if let Some(content) = Content::new(std::mem::take(said)) {
        items.push(Item::Message { role, content });
    }
}

const fn is_said(part: &Part) -> bool {
    matches!(part, Part::Text { .. } | Part::ToolCall(_))
}

/// The reasoning that thinking stands for; `None` for thinking of other vendors.
fn reasoning(part: &Part) -> Option<TypedItem<'_>> {
    let Part::Thinking { text, .. } = part else {
        return None;
    };
    let encrypted = part.encrypted_reasoning()?;
    let summary = (!text.is_empty()).then_some(Summary { text });
    Some(TypedItem::Reasoning {
        id: encrypted.id,
        summary: summary.into_iter().collect(),
        encrypted_content: encrypted.content,
    })
}

/// The API has no field for a failure of the function.
fn output(result: &ToolResult) -> Content<'_> {
    if result.is_error {
        return Content::Owned(format!("Error: {}", texts(&result.parts, "\n")));
    }
    let parts = result.parts.iter();
    let parts = parts.filter_map(|part| ContentPart::new(part, Role::User));
    Content::new(parts.collect()).unwrap_or(Content::Text(""))
}

impl<'a> Content<'a> {
    /// `None` where there are no parts.
    fn new(parts: Vec<ContentPart<'a>>) -> Option<Self> {
        match parts[..] {
            [] => None,
            [ContentPart::InputText { text } | ContentPart::OutputText { text }] => {
                Some(Self::Text(text))
            }
            _ => Some(Self::Parts(parts)),
        }
    }
}

impl<'a> ContentPart<'a> {
    fn new(part: &'a Part, role: Role) -> Option<Self> {
        Some(match part {
            Part::Text { text } if role == Role::Assistant => Self::OutputText { text },
            Part::Text { text } => Self::InputText { text },
            Part::Image(Image { source, detail }) => Self::InputImage {
                image_url: WireUrl(source),
                detail: detail.unwrap_or(Detail::Auto).as_str(),
            },
            Part::Document(document) => Self::InputFile {
                filename: file_name(document),
                file_data: DocumentData {
                    source: &document.source,
                    is_url: true,
                },
            },
            _ => return None,
        })
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

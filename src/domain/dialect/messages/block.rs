//! The messages of a dialogue, and their blocks.

use serde_json::{Value, json};

use super::Noted;
use crate::domain::{
    conversation::{Image, ImageSource, ImageType, Message, Part, Role, ToolCall, ToolResult},
    dialect::{
        GEMINI, give_signatures, image_url, is_empty_list, needed, schema_of, without_images,
    },
    named::named_enum,
    validate::{FieldCode, Fields, List, any_object, boolean, parsed, text, words},
};

named_enum!(
    /// The author of a message.
    MessageRole {
        System = "system",
        User = "user",
        Assistant = "assistant",
    }
);

named_enum!(
    /// The type of a block of a message.
    BlockType {
        Text = "text",
        Image = "image",
        ToolUse = "tool_use",
        ToolResult = "tool_result",
        Thinking = "thinking",
        RedactedThinking = "redacted_thinking",
        ToolAddition = "tool_addition",
        ToolRemoval = "tool_removal",
    }
);

named_enum!(
    /// The type of a block of instructions.
    SystemBlockType {
        Text = "text",
    }
);

named_enum!(
    /// The type of a block of a tool's result.
    ResultBlockType {
        Text = "text",
        Image = "image",
        ToolReference = "tool_reference",
    }
);

named_enum!(
    /// The kind of source of an image.
    ImageSourceType {
        Base64 = "base64",
        Url = "url",
    }
);

pub(super) fn message(fields: &Fields<'_>, noted: &Noted) -> Option<Message> {
    let role = fields.required("role", "Who says it.", words::<MessageRole>());
    let list = List {
        about: "What is said.",
        schema: ("MessageBlock", "A block of a message."),
        required: true,
        short: Some(|text| Part::text(text)),
    };
    let parts = if is_empty_list(fields, "content") {
        Some(Vec::new())
    } else {
        list.read(fields, "content", |fields| block(fields, noted))
    };
    let role = match role? {
        MessageRole::System => Role::System,
        MessageRole::User => Role::User,
        MessageRole::Assistant => Role::Assistant,
    };
    let parts = signed(parts?);
    if role != Role::User {
        without_images(fields, &parts);
    }
    Some(Message { role, parts })
}

pub(super) fn texts(fields: &Fields<'_>, name: &'static str) -> Option<Vec<Part>> {
    let list = List {
        about: "Instructions above the messages.",
        schema: ("SystemBlock", "A block of instructions."),
        required: false,
        short: Some(|text| Part::text(text)),
    };
    list.read_any(fields, name, |block| {
        block.required("type", "What it is.", words::<SystemBlockType>());
        let text = block.required("text", "The text.", text(usize::MAX));
        block.neutral("citations", vec![json!([])]);
        text.map(Part::text)
    })
}

fn block(fields: &Fields<'_>, noted: &Noted) -> Option<Part> {
    let kind = fields.required("type", "What it is.", words::<BlockType>());
    let string = || text(usize::MAX);
    let said = fields.optional("text", "Of a text.", string());
    let source = image(fields);
    let id = fields.optional("id", "Of a tool use.", string().min(1));
    let name = fields.optional("name", "Of a tool use: the tool's.", string().min(1));
    let about = "Of a tool use: the arguments.";
    let input = fields.optional("input", about, any_object());
    let about = "Of a tool's result: the tool use that it is of.";
    let call_id = fields.optional("tool_use_id", about, string().min(1));
    let content = result(fields, noted);
    let about = "Of a tool's result: whether the tool failed.";
    let is_error = fields.optional("is_error", about, boolean());
    let thinking = fields.optional("thinking", "Of thinking.", string());
    let about = "Of thinking: brought back as it was answered.";
    let signature = fields.optional("signature", about, string());
    let data = fields.optional("data", "Of redacted thinking.", string());
    fields.neutral("citations", vec![json!([])]);
    fields.neutral("caller", vec![json!({"type": "direct"})]);
    fields.neutral("tool", Vec::new());
    let kind = kind?;
    Some(match kind {
        BlockType::Text => Part::text(needed(fields, "text", said)?),
        BlockType::Image => Part::Image(needed(fields, "source", source)?),
        BlockType::ToolUse => {
            let (id, name) = (needed(fields, "id", id), needed(fields, "name", name));
            Part::ToolCall(ToolCall {
                arguments: schema_of(needed(fields, "input", input)?)
                    .as_str()
                    .to_owned(),
                id: id?,
                name: name?,
                thought_signature: None,
            })
        }
        BlockType::ToolResult => Part::ToolResult(ToolResult {
            call_id: needed(fields, "tool_use_id", call_id)?,
            parts: content.unwrap_or_default(),
            is_error: is_error.unwrap_or(false),
        }),
        BlockType::Thinking => {
            let signature = needed(fields, "signature", signature);
            Part::Thinking {
                text: needed(fields, "thinking", thinking)?,
                signature: signature?,
            }
        }
        BlockType::RedactedThinking => Part::Redacted {
            data: needed(fields, "data", data)?,
        },
        // Only who is sent the body as it came can read it.
        BlockType::ToolAddition | BlockType::ToolRemoval => {
            change(fields, noted);
            Part::text("")
        }
    })
}

/// A tool that is added to those that the model may use, or taken from them: by its name. A
/// definition could be one of a tool that runs at the provider.
fn change(fields: &Fields<'_>, noted: &Noted) {
    let tool = fields.value("tool");
    let name = tool.filter(|tool| tool["type"] == "tool_reference");
    match name.and_then(|tool| tool["name"].as_str()) {
        Some(name) => noted.loaded.borrow_mut().push(name.to_owned()),
        None => {
            let message = "is supported as a tool_reference with a name only";
            fields.error("tool", FieldCode::NotSupported, message);
        }
    }
}

fn image(fields: &Fields<'_>) -> Option<Image> {
    let schema = ("ImageSource", "Where an image is.");
    fields.object("source", "Of an image.", schema, |source| {
        let kind = source.required("type", "What it is.", words::<ImageSourceType>());
        let media_type = source.optional("media_type", "Of base64.", words::<ImageType>());
        let schema = || text(usize::MAX).min(1).json_schema();
        let base64 = parsed(schema, |data| ImageSource::base64(data.to_owned()));
        let data = source.optional("data", "Of base64.", base64);
        let url = source.optional("url", "Of a URL.", image_url());
        let found = match kind? {
            ImageSourceType::Base64 => {
                needed(source, "media_type", media_type);
                needed(source, "data", data)
            }
            ImageSourceType::Url => needed(source, "url", url),
        };
        found.map(|source| Image {
            source,
            detail: None,
        })
    })
}

/// The content of a tool's result.
fn result(fields: &Fields<'_>, noted: &Noted) -> Option<Vec<Part>> {
    let list = List {
        about: "Of a tool's result.",
        schema: ("ToolResultBlock", "A block of a tool's result."),
        required: false,
        short: Some(|text| Part::text(text)),
    };
    list.read_any(fields, "content", |block| {
        let kind = block.required("type", "What it is.", words::<ResultBlockType>());
        let said = block.optional("text", "The text.", text(usize::MAX));
        let source = image(block);
        block.neutral("tool_name", Vec::new());
        match kind? {
            // Only who is sent the body as it came can read it.
            ResultBlockType::ToolReference => {
                let name = block.value("tool_name").and_then(Value::as_str);
                let name = needed(block, "tool_name", name)?;
                noted.loaded.borrow_mut().push(name.to_owned());
                Some(Part::text(""))
            }
            ResultBlockType::Text => needed(block, "text", said).map(Part::text),
            ResultBlockType::Image => needed(block, "source", source).map(Part::Image),
        }
    })
}

/// Thinking of Gemini's is a signature of the call after it.
fn signed(parts: Vec<Part>) -> Vec<Part> {
    give_signatures(parts, |part| match part {
        Part::Thinking { signature, .. } => signature.strip_prefix(GEMINI),
        _ => None,
    })
}

//! The messages of a dialogue, and their blocks.

use serde_json::{Map, Value, json};

use super::Noted;
use crate::{
    dialect::{
        GEMINI, NOT_EMPTY, STRING, give_signatures, image_url, instructions, needed, text_or_parts,
        without_images,
    },
    domain::{
        conversation::{
            Document, DocumentSource, DocumentType, Image, ImageSource, Message, Part, Role,
            ToolCall, ToolResult,
        },
        named::named_enum,
        validate::{
            Field, FieldCode, Fields, Kind, List, Refusal, Schemas, boolean, parsed, words,
        },
    },
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
        Document = "document",
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
        Document = "document",
        ToolReference = "tool_reference",
    }
);

named_enum!(
    /// Type of the source of an image or a document.
    SourceType {
        Base64 = "base64",
        Url = "url",
        Text = "text",
    }
);

named_enum!(
    /// Media type of an image or a document.
    MediaType {
        Png = "image/png",
        Jpeg = "image/jpeg",
        Gif = "image/gif",
        Webp = "image/webp",
        Pdf = "application/pdf",
        Text = "text/plain",
    }
);

pub(super) fn message(fields: &Fields<'_>, noted: &Noted) -> Option<Message> {
    let role = fields.required("role", "Who says it.", words::<MessageRole>());
    // Only Anthropic changes settings within a dialogue. A message that does needs no content.
    fields.neutral("output_config", vec![json!({})]);
    fields.neutral("clear_at", vec![json!("never")]);
    let settings = fields.value("output_config").and_then(Value::as_object);
    let configures = role == Some(MessageRole::System) && settings.is_some_and(|s| !s.is_empty());
    let list = List::new("What is said.", ("MessageBlock", "A block of a message."));
    let list = if configures { list } else { list.required() };
    let parts = text_or_parts(list, fields, "content", |fields| block(fields, noted));
    let role = match role? {
        MessageRole::System => Role::System,
        MessageRole::User => Role::User,
        MessageRole::Assistant => Role::Assistant,
    };
    let parts = signed(parts.or_else(|| configures.then(Vec::new))?);
    if role != Role::User {
        without_images(fields, &parts);
    }
    Some(Message { role, parts })
}

pub(super) fn texts(fields: &Fields<'_>, name: &'static str) -> Option<Vec<Part>> {
    let list = List::new(
        "Instructions above the messages.",
        ("SystemBlock", "A block of instructions."),
    )
    .or_text(|text| Part::text(text));
    list.read_any(fields, name, |block| {
        block.required("type", "What it is.", words::<SystemBlockType>());
        let text = block.required("text", "The text.", STRING);
        block.neutral("citations", vec![json!([])]);
        text.map(Part::text)
    })
}

/// The type of a search result that the caller supplies.
const SEARCH_RESULT: &str = "search_result";
/// Maximum tokens that Anthropic adds to a search result, and to each of its texts.
const SEARCH_RESULT_TOKENS: usize = 128;
const SEARCH_RESULT_TEXT_TOKENS: usize = 8;

/// Reads a search result as the text for other vendors.
fn search_result(fields: &Fields<'_>, noted: &Noted) -> Option<Part> {
    fields.value("type");
    let title = fields.required("title", "Its title.", STRING);
    let source = fields.required("source", "Its address.", STRING);
    let texts = texts(fields, "content").unwrap_or_default();
    citations(fields);
    let added = SEARCH_RESULT_TOKENS + SEARCH_RESULT_TEXT_TOKENS * texts.len();
    noted.add_tokens(added);
    let head = format!("{}\n{}", title?, source?);
    let text = instructions(texts).unwrap_or_default();
    Some(Part::text(format!("{head}\n\n{text}")))
}

/// Blocks of Anthropic's searches, which the next turn sends back.
const SEARCHES: [&str; 2] = ["server_tool_use", "web_search_tool_result"];

/// Reads the arguments of a tool use as text. Agents also send back truncated arguments.
#[derive(Debug)]
struct Input;

impl Kind for Input {
    type Value = String;

    fn read(&self, value: &Value, _: Field<'_>) -> Option<String> {
        Some(match value {
            // An encoded object is decoded like the arguments of the other dialects.
            Value::String(text) if serde_json::from_str::<Map<String, Value>>(text).is_err() => {
                text.clone()
            }
            value => value.to_string(),
        })
    }

    fn schema(&self, _: &mut Schemas) -> Value {
        json!({"type": "object"})
    }
}

fn block(fields: &Fields<'_>, noted: &Noted) -> Option<Part> {
    let given = fields.value("type").and_then(Value::as_str);
    if given.is_some_and(|kind| SEARCHES.contains(&kind)) {
        // Anthropic gets it with the unchanged body; others refuse it.
        fields.neutral("type", Vec::new());
        return Some(Part::text(""));
    }
    if given == Some(SEARCH_RESULT) {
        return search_result(fields, noted);
    }
    let kind = fields.required("type", "What it is.", words::<BlockType>());
    let said = fields.optional("text", "Of a text.", STRING);
    let source = source(fields, kind == Some(BlockType::Document));
    let title = fields.optional("title", "Of a document.", STRING);
    let id = fields.optional("id", "Of a tool use.", NOT_EMPTY);
    let name = fields.optional("name", "Of a tool use: the tool's.", NOT_EMPTY);
    let input = fields.optional("input", "Of a tool use: the arguments.", Input);
    let about = "Of a tool's result: the tool use that it is of.";
    let call_id = fields.optional("tool_use_id", about, NOT_EMPTY);
    let content = result(fields, noted);
    let about = "Of a tool's result: whether the tool failed.";
    let is_error = fields.optional("is_error", about, boolean());
    let thinking = fields.optional("thinking", "Of thinking.", STRING);
    let about = "Of thinking: brought back as it was answered.";
    let signature = fields.optional("signature", about, STRING);
    let data = fields.optional("data", "Of redacted thinking.", STRING);
    citations(fields);
    fields.neutral("caller", vec![json!({"type": "direct"})]);
    fields.neutral("tool", Vec::new());
    let kind = kind?;
    Some(match kind {
        BlockType::Text => Part::text(needed(fields, "text", said)?),
        BlockType::Image | BlockType::Document => shown(needed(fields, "source", source)?, title),
        BlockType::ToolUse => {
            let (id, name) = (needed(fields, "id", id), needed(fields, "name", name));
            Part::ToolCall(ToolCall {
                arguments: input.unwrap_or_default(),
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
        // Anthropic gets it with the unchanged body; others refuse it.
        BlockType::ToolAddition | BlockType::ToolRemoval => {
            change(fields, noted);
            Part::text("")
        }
    })
}

/// Refuses citations of a document, because our answers cannot contain them.
fn citations(fields: &Fields<'_>) {
    let given = fields.value("citations");
    if given.is_some_and(|citations| citations["enabled"] == true) {
        let message = "cannot be enabled; remove it, and ask for quotes in the text";
        fields.error("citations", FieldCode::NotSupported, message);
    }
    fields.neutral("citations", vec![json!([]), json!({"enabled": false})]);
}

/// Reads the addition or removal of a tool, by its name. A definition could be of a tool that the
/// provider runs.
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

/// Source of an image or a document.
enum Source {
    Image(ImageSource),
    Document(DocumentSource),
}

fn shown(source: Source, name: Option<String>) -> Part {
    let detail = None;
    match source {
        Source::Image(source) => Part::Image(Image { source, detail }),
        Source::Document(source) => Part::Document(Document {
            source,
            name,
            detail,
        }),
    }
}

fn source(fields: &Fields<'_>, is_document: bool) -> Option<Source> {
    let schema = ("ImageSource", "The source of an image or a document.");
    let about = "For images and documents.";
    fields.object("source", about, schema, |source| {
        let given = source.value("type").and_then(Value::as_str);
        if is_document && given.is_some_and(|kind| !["base64", "text"].contains(&kind)) {
            let message = "is not supported for documents; send base64 or text";
            source.error("type", FieldCode::NotSupported, message);
            return None;
        }
        let kind = source.required("type", "What it is.", words::<SourceType>());
        let about = "For base64 and text; `text/plain` for text.";
        let media_type = source.optional("media_type", about, words::<MediaType>());
        let schema = || NOT_EMPTY.json_schema();
        let parse: fn(&str) -> Result<Source, Refusal> = match (is_document, media_type) {
            (false, _) => |data| ImageSource::base64(data.to_owned()).map(Source::Image),
            (true, Some(MediaType::Pdf)) if kind == Some(SourceType::Base64) => |data| {
                DocumentSource::base64(DocumentType::Pdf, data.to_owned()).map(Source::Document)
            },
            (true, _) => |data| Ok(Source::Document(DocumentSource::Text(data.to_owned()))),
        };
        let data = source.optional("data", "For base64 and text.", parsed(schema, parse));
        let url = source.optional("url", "For an image by URL.", image_url());
        let wrong = |name: &str, message: &str| {
            source.error(name, FieldCode::NotSupported, message);
            None
        };
        match (kind?, is_document, media_type) {
            (SourceType::Url, ..) => needed(source, "url", url).map(Source::Image),
            (SourceType::Text, false, _) => wrong("type", "is only for documents"),
            (_, _, None) => needed(source, "media_type", None),
            (SourceType::Text, true, Some(MediaType::Text))
            | (SourceType::Base64, true, Some(MediaType::Pdf)) => needed(source, "data", data),
            (SourceType::Text, true, _) => wrong("media_type", "must be text/plain"),
            (SourceType::Base64, true, _) => wrong("media_type", "must be application/pdf"),
            (SourceType::Base64, false, Some(MediaType::Pdf | MediaType::Text)) => {
                wrong("media_type", "must be an image type")
            }
            (SourceType::Base64, false, _) => needed(source, "data", data),
        }
    })
}

/// Reads the content of a tool's result.
fn result(fields: &Fields<'_>, noted: &Noted) -> Option<Vec<Part>> {
    let list = List::new(
        "Of a tool's result.",
        ("ToolResultBlock", "A block of a tool's result."),
    )
    .or_text(|text| Part::text(text));
    list.read_any(fields, "content", |block| {
        if block
            .value("type")
            .is_some_and(|kind| kind == SEARCH_RESULT)
        {
            return search_result(block, noted);
        }
        let kind = block.required("type", "What it is.", words::<ResultBlockType>());
        let said = block.optional("text", "The text.", STRING);
        let source = source(block, kind == Some(ResultBlockType::Document));
        let title = block.optional("title", "Of a document.", STRING);
        block.neutral("tool_name", Vec::new());
        citations(block);
        match kind? {
            // Anthropic gets it with the unchanged body; others refuse it.
            ResultBlockType::ToolReference => {
                let name = block.value("tool_name").and_then(Value::as_str);
                let name = needed(block, "tool_name", name)?;
                noted.loaded.borrow_mut().push(name.to_owned());
                Some(Part::text(""))
            }
            ResultBlockType::Text => needed(block, "text", said).map(Part::text),
            ResultBlockType::Image | ResultBlockType::Document => {
                needed(block, "source", source).map(|source| shown(source, title))
            }
        }
    })
}

/// Converts Gemini's thinking to a signature of the call after it.
fn signed(parts: Vec<Part>) -> Vec<Part> {
    give_signatures(parts, |part| match part {
        Part::Thinking { signature, .. } => signature.strip_prefix(GEMINI),
        _ => None,
    })
}

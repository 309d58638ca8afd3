//! The messages of a chat.

use serde_json::{Value, json};

use crate::{
    dialect::{
        NOT_EMPTY, STRING, file_data,
        functions::{ToolType, custom_arguments, refuse},
        image_url, needed, refuse_reference, text_or_parts, without_images,
    },
    domain::{
        conversation::{Detail, Document, Image, Message, Part, Role, ToolCall, ToolResult},
        named::named_enum,
        validate::{FieldCode, Fields, List, words},
    },
};

named_enum!(
    /// The author of a message.
    ChatRole {
        System = "system",
        Developer = "developer",
        User = "user",
        Assistant = "assistant",
        Tool = "tool",
    }
);

named_enum!(
    /// The type of a part of a message.
    ChatPartType {
        Text = "text",
        ImageUrl = "image_url",
        Refusal = "refusal",
        File = "file",
        /// Of Mistral's answers.
        Thinking = "thinking",
    }
);

pub(super) fn read(fields: &Fields<'_>) -> Option<Message> {
    let role = fields.required("role", "Who says it.", words::<ChatRole>());
    let parts = content(fields);
    let about = "Of an assistant: that it declined, and why.";
    let refusal = fields.optional("refusal", about, STRING);
    let calls = List::new(
        "Of an assistant: the calls that it wants.",
        ("ChatToolCall", "A call of a tool."),
    );
    let calls = calls.read_any(fields, "tool_calls", call);
    let about = "Of a tool: the call that it answers.";
    let call_id = fields.optional("tool_call_id", about, STRING);
    // A member of answers, which the next turn sends back.
    fields.hints(&["annotations"]);
    let annotations = annotations(fields.value("annotations"));
    fields.count_others(annotations.map_or(0, |given| given.to_string().len()));
    // The package's helpers add this to an answer and send it back.
    fields.hints(&["parsed"]);
    if fields.value("role") == Some(&json!("tool")) {
        // The name of the called function. Chat templates of servers may read it, so it counts.
        fields.hints(&["name"]);
        let name = fields.value("name").and_then(Value::as_str);
        fields.count_others(name.map_or(0, str::len));
    }
    let mut thinking = thinking(fields);
    fields.unsupported(&["audio", "function_call"]);
    let role = role?;
    for (name, of) in [
        ("tool_calls", ChatRole::Assistant),
        ("refusal", ChatRole::Assistant),
        ("tool_call_id", ChatRole::Tool),
    ] {
        if role != of && fields.has(name) && fields.value(name) != Some(&json!([])) {
            let message = format!("is only for messages of role {}", of.as_str());
            fields.error(name, FieldCode::NotAllowed, message);
        }
    }
    let is_thinking = |part: &Part| matches!(part, Part::Thinking { .. });
    if role != ChatRole::Assistant && parts.iter().flatten().any(is_thinking) {
        let message = "has a part of type thinking, which is only for messages of role assistant";
        fields.error("content", FieldCode::NotAllowed, message);
    }
    if matches!(
        role,
        ChatRole::System | ChatRole::Developer | ChatRole::Assistant
    ) {
        without_images(fields, parts.as_deref().unwrap_or_default());
    }
    let role = match role {
        ChatRole::System | ChatRole::Developer => Role::System,
        ChatRole::User => Role::User,
        ChatRole::Assistant => {
            thinking.extend(parts.into_iter().flatten());
            let mut parts = thinking;
            parts.extend(refusal.map(Part::text));
            parts.extend(calls.into_iter().flatten().map(Part::ToolCall));
            // An empty answer is sent back in this form.
            if parts.is_empty() && !fields.is_null("content") && !fields.has("content") {
                needed::<()>(fields, "content", None);
                return None;
            }
            let role = Role::Assistant;
            return Some(Message { role, parts });
        }
        ChatRole::Tool => {
            let call_id = needed(fields, "tool_call_id", call_id);
            let result = ToolResult {
                parts: needed(fields, "content", parts)?,
                call_id: call_id?,
                is_error: false,
            };
            return Some(Message {
                role: Role::User,
                parts: vec![Part::ToolResult(result)],
            });
        }
    };
    let parts = needed(fields, "content", parts)?;
    Some(Message { role, parts })
}

/// Reads thinking that compatible servers report: `reasoning_content` of `DeepSeek`, Kimi, Qwen and
/// vLLM, `reasoning` of Groq and newer vLLM, `reasoning_details` of `OpenRouter`, `thinking_blocks`
/// of `LiteLLM`. No other vendor accepts it back.
fn thinking(fields: &Fields<'_>) -> Vec<Part> {
    let about = "Of an assistant: what it thought, as it was answered.";
    let content = fields.optional("reasoning_content", about, STRING);
    let others = ["reasoning", "reasoning_details", "thinking_blocks"].into_iter();
    let others = others.filter_map(|name| match fields.value(name)? {
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    });
    let texts = content.into_iter().chain(others);
    let texts = texts.filter(|text| !text.is_empty());
    texts.map(|text| Part::thinking(text, "")).collect()
}

fn content(fields: &Fields<'_>) -> Option<Vec<Part>> {
    let list = List::new("What is said.", ("ChatPart", "A part of a message."));
    text_or_parts(list, fields, "content", |part| {
        let kind = part.required("type", "What it is.", words::<ChatPartType>());
        let said = part.optional("text", "The text.", STRING);
        let refusal = part.optional("refusal", "Of an assistant.", STRING);
        let schema = ("ChatImage", "An image.");
        let image = part.object("image_url", "The image.", schema, image);
        let schema = ("ChatFile", "A PDF or a plain text file.");
        let document = part.object("file", "The file.", schema, file);
        match kind? {
            ChatPartType::Thinking => {
                part.hints(&["thinking"]);
                part.neutral("closed", vec![json!(true), json!(false)]);
                // No other vendor accepts it back.
                let thinking = part.value("thinking");
                let thinking = thinking.map(|json| Part::thinking(json.to_string(), ""));
                needed(part, "thinking", thinking)
            }
            ChatPartType::File if part.has("file") => document.map(Part::Document),
            ChatPartType::File => needed(part, "file", None),
            ChatPartType::Text => needed(part, "text", said).map(Part::text),
            ChatPartType::Refusal => needed(part, "refusal", refusal).map(Part::text),
            ChatPartType::ImageUrl if part.has("image_url") => image.map(Part::Image),
            ChatPartType::ImageUrl => needed(part, "image_url", None),
        }
    })
}

fn image(fields: &Fields<'_>) -> Option<Image> {
    let source = fields.required("url", "An https URL, or a data URL in base64.", image_url());
    let about = "How closely the model looks at it. Default: the provider's.";
    let detail = fields.optional("detail", about, words::<Detail>());
    source.map(|source| Image { source, detail })
}

fn file(fields: &Fields<'_>) -> Option<Document> {
    let about = "A data URL in base64 of application/pdf or text/plain.";
    let source = if fields.has("file_id") {
        fields.optional("file_data", about, file_data())
    } else {
        fields.required("file_data", about, file_data())
    };
    let name = fields.optional("filename", "Its name.", STRING);
    refuse_reference(fields, &["file_id"], "file_data");
    source.map(|source| Document {
        source,
        name,
        detail: None,
    })
}

fn messages<'a>(fields: &Fields<'a>) -> impl Iterator<Item = &'a Value> {
    let messages = fields.value("messages").and_then(Value::as_array);
    messages.into_iter().flatten()
}

/// Whether the result of a call names its tool.
pub(super) fn has_tool_names(fields: &Fields<'_>) -> bool {
    messages(fields).any(|message| message["role"] == "tool" && !message["name"].is_null())
}

fn annotations(given: Option<&Value>) -> Option<&Value> {
    given.filter(|given| !given.is_null() && **given != json!([]))
}

/// Whether an earlier message has annotations.
pub(super) fn has_annotations(fields: &Fields<'_>) -> bool {
    messages(fields).any(|message| annotations(message.get("annotations")).is_some())
}

/// Whether an earlier call is one of a custom tool.
pub(super) fn has_custom_calls(fields: &Fields<'_>) -> bool {
    let mut calls = messages(fields).filter_map(|message| message["tool_calls"].as_array());
    calls.any(|calls| calls.iter().any(|call| call["type"] == "custom"))
}

fn call(fields: &Fields<'_>) -> Option<ToolCall> {
    let id = fields.required("id", "Its id.", NOT_EMPTY);
    let kind = fields.required("type", "What is called.", words::<ToolType>());
    fields.hints(&["index"]);
    let function = ("ChatFunctionCall", "What is called, and with what.");
    let function = fields.object("function", "The function.", function, |function| {
        let name = function.required("name", "Its name.", NOT_EMPTY);
        let about = "Its arguments, in JSON.";
        function.hints(&["parsed_arguments"]);
        (name, function.required("arguments", about, STRING))
    });
    let custom = ("ChatCustomCall", "What is called, and with what.");
    let custom = fields.object("custom", "The custom tool.", custom, |custom| {
        let name = custom.required("name", "Its name.", NOT_EMPTY);
        let input = custom.required("input", "Its input.", STRING);
        (name, input.map(|input| custom_arguments(&input)))
    });
    let kind = kind.unwrap_or(ToolType::Function);
    let ((name, arguments), other) = match kind {
        ToolType::Function => (function, ToolType::Custom),
        ToolType::Custom => (custom, ToolType::Function),
    };
    refuse(fields, &[other.as_str()]);
    if !fields.has(kind.as_str()) {
        needed::<()>(fields, kind.as_str(), None);
    }
    let extra = ("ChatExtraContent", "What other vendors know.");
    let thought_signature = fields.object("extra_content", "As it was answered.", extra, |extra| {
        let google = ("ChatGoogleContent", "What Gemini knows.");
        extra.object("google", "Gemini's.", google, |google| {
            let about = "Brought back as it was answered.";
            google.optional("thought_signature", about, STRING)
        })
    });
    Some(ToolCall {
        id: id?,
        name: name?,
        arguments: arguments?,
        thought_signature,
    })
}

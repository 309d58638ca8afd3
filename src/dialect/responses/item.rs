//! The items of an input.

use std::mem::take;

use serde_json::{Value, json};

use super::{
    mapping::{Tool, decrypted, function_name, give_to_calls},
    tools::{self, PASSED as PASSED_TOOLS, passes},
};
use crate::{
    dialect::{
        NOT_EMPTY, STRING, file_data, functions::custom_arguments, image_url, instructions, needed,
        refuse_reference, sorted, text_or_parts, without_images,
    },
    domain::{
        conversation::{Detail, Document, Image, Message, Part, Role, ToolCall, ToolResult},
        named::named_enum,
        validate::{Field, FieldCode, Fields, Kind, List, Schemas, only, words},
    },
};

named_enum!(
    /// The type of an item.
    ItemType {
        Message = "message",
        FunctionCall = "function_call",
        FunctionCallOutput = "function_call_output",
        CustomToolCall = "custom_tool_call",
        CustomToolCallOutput = "custom_tool_call_output",
        AdditionalTools = "additional_tools",
        Reasoning = "reasoning",
    }
);

named_enum!(
    /// The author of a message.
    ItemRole {
        System = "system",
        Developer = "developer",
        User = "user",
        Assistant = "assistant",
    }
);

named_enum!(
    /// The type of a part of a message.
    ContentType {
        InputText = "input_text",
        OutputText = "output_text",
        Refusal = "refusal",
        InputImage = "input_image",
        InputFile = "input_file",
    }
);

named_enum!(
    /// The state of an item.
    ItemStatus {
        InProgress = "in_progress",
        Completed = "completed",
        Incomplete = "incomplete",
    }
);

named_enum!(
    /// The part of the answer that a message belongs to.
    Phase {
        Commentary = "commentary",
        FinalAnswer = "final_answer",
    }
);

/// Items that only `OpenAI` reads: of tools that the caller runs, of the search for tools, and of
/// compaction. Their bytes bound their cost.
const PASSED: &[&str] = &[
    "apply_patch_call",
    "apply_patch_call_output",
    "compaction",
    "local_shell_call",
    "local_shell_call_output",
    "shell_call",
    "shell_call_output",
    "tool_search_call",
    "tool_search_output",
    "web_search_call",
];

/// An item that was read.
#[derive(Debug)]
pub(super) enum Item {
    Message(Message),
    Tools(Vec<Tool>),
    Passed,
}

/// Returns the messages among the items.
fn messages(items: Vec<Item>) -> Vec<Message> {
    let messages = items.into_iter().filter_map(|item| match item {
        Item::Message(message) => Some(message),
        Item::Tools(_) | Item::Passed => None,
    });
    messages.collect()
}

pub(super) fn read(fields: &Fields<'_>) -> Option<Item> {
    if passes(fields, PASSED) {
        let found = fields.value("tools").and_then(Value::as_array);
        if !found.into_iter().flatten().all(tools::is_known) {
            let message = "has a tool that may run at the provider, which is not supported here";
            fields.error("tools", FieldCode::NotSupported, message);
        }
        fields.neutral("tools", Vec::new());
        return Some(Item::Passed);
    }
    let about = "What it is. Default: `message`.";
    let kind = fields.optional("type", about, words::<ItemType>());
    let role = fields.optional("role", "Of a message: who says it.", words::<ItemRole>());
    let said = content(fields, "content", "Of a message: what is said.");
    let call_id = fields.optional("call_id", "Of a call, and of its output.", NOT_EMPTY);
    let name = fields.optional("name", "Of a call: the tool.", NOT_EMPTY);
    let namespace = fields.optional("namespace", "Of a call: the namespace of the tool.", STRING);
    let input = fields.optional("input", "Of a call of a custom tool.", STRING);
    let arguments = fields.optional("arguments", "Of a call: JSON.", STRING);
    let output = content(fields, "output", "Of a call's output.");
    let thoughts = summary(fields);
    let about = "Of reasoning: brought back as it was answered.";
    let given = fields.optional("encrypted_content", about, STRING);
    // Members of our answers' items, which the next turn sends back.
    let own_id = fields.optional("id", "Of an item of an answer.", STRING);
    fields.optional("status", "Of an item of an answer.", words::<ItemStatus>());
    fields.optional("phase", "Of an item of an answer.", words::<Phase>());
    fields.neutral("caller", vec![json!({"type": "direct"})]);
    let about = "Of `additional_tools`.";
    let additional = tools::list(fields, "tools", about, PASSED_TOOLS);
    let one = |role, part| Message {
        role,
        parts: vec![part],
    };
    Some(Item::Message(match kind.unwrap_or(ItemType::Message) {
        _ if fields.failed("type") => return None,
        ItemType::Message => {
            let role = needed(fields, "role", role);
            let parts = needed(fields, "content", said)?;
            let role = match role? {
                ItemRole::System | ItemRole::Developer => Role::System,
                ItemRole::User => Role::User,
                ItemRole::Assistant => Role::Assistant,
            };
            if role != Role::User {
                without_images(fields, &parts);
            }
            Message { role, parts }
        }
        kind @ (ItemType::FunctionCall | ItemType::CustomToolCall) => {
            let (id, name) = (
                needed(fields, "call_id", call_id),
                needed(fields, "name", name),
            );
            let arguments = match kind {
                ItemType::FunctionCall => needed(fields, "arguments", arguments),
                _ => needed(fields, "input", input).map(|input| custom_arguments(&input)),
            };
            let call = ToolCall {
                arguments: arguments?,
                id: id?,
                name: function_name(namespace.as_deref(), &name?),
                thought_signature: None,
            };
            one(Role::Assistant, Part::ToolCall(call))
        }
        ItemType::AdditionalTools => {
            return Some(Item::Tools(needed(fields, "tools", additional)?));
        }
        ItemType::FunctionCallOutput | ItemType::CustomToolCallOutput => {
            let call_id = needed(fields, "call_id", call_id);
            let result = ToolResult {
                parts: needed(fields, "output", output)?,
                call_id: call_id?,
                is_error: false,
            };
            one(Role::User, Part::ToolResult(result))
        }
        ItemType::Reasoning => {
            let id = own_id.unwrap_or_default();
            let part = decrypted(&given.unwrap_or_default(), &id, thoughts);
            one(Role::Assistant, part)
        }
    }))
}

/// Reads a text, or parts.
fn content(fields: &Fields<'_>, name: &'static str, about: &'static str) -> Option<Vec<Part>> {
    let list = List::new(about, ("ResponseContentPart", "A part of a message."));
    // A reasoning item has another kind of content, which no provider accepts.
    text_or_parts(list, fields, name, |part| {
        let kind = part.required("type", "What it is.", words::<ContentType>());
        let said = part.optional("text", "The text.", STRING);
        let refusal = part.optional("refusal", "Of an assistant.", STRING);
        let about = "An https URL, or a data URL in base64.";
        let source = part.optional("image_url", about, image_url());
        let about = "How closely the model looks at it. Default: the provider's.";
        let detail = part.optional("detail", about, words::<Detail>());
        part.neutral("annotations", vec![json!([])]);
        part.neutral("logprobs", vec![json!([])]);
        let about = "Of a file: a base64 data URL of application/pdf or text/plain.";
        let document = part.optional("file_data", about, file_data());
        let name = part.optional("filename", "Of a file.", STRING);
        let references = ["file_id", "file_url"];
        let instead = match kind {
            Some(ContentType::InputImage) => "image_url",
            _ => "file_data",
        };
        refuse_reference(part, &references, instead);
        let is_referenced = references.iter().any(|name| part.has(name));
        match kind? {
            ContentType::InputText | ContentType::OutputText => {
                needed(part, "text", said).map(Part::text)
            }
            ContentType::Refusal => needed(part, "refusal", refusal).map(Part::text),
            ContentType::InputFile => {
                let source = if is_referenced {
                    document
                } else {
                    needed(part, "file_data", document)
                };
                source.map(|source| {
                    Part::Document(Document {
                        source,
                        name,
                        detail,
                    })
                })
            }
            ContentType::InputImage if is_referenced => None,
            ContentType::InputImage => {
                let source = needed(part, "image_url", source);
                source.map(|source| Part::Image(Image { source, detail }))
            }
        }
    })
}

/// Reads the thinking of a reasoning item.
fn summary(fields: &Fields<'_>) -> String {
    let list = List::new(
        "Of reasoning.",
        ("ResponseSummaryPart", "A part of what was thought."),
    );
    let parts = list.read_any(fields, "summary", |part| {
        part.required("type", "`summary_text`", only([json!("summary_text")]));
        part.required("text", "The text.", STRING)
    });
    parts.unwrap_or_default().join("\n\n")
}

/// Returns the instructions and the messages. Merges an assistant's texts and calls.
pub(super) fn dialogue(first: Option<String>, items: Vec<Item>) -> (Option<String>, Vec<Message>) {
    let (leading, mut messages) = sorted(messages(items), |last, next| {
        last.role == Role::Assistant && next.role == Role::Assistant
    });
    for message in &mut messages {
        message.parts = give_to_calls(take(&mut message.parts));
    }
    let system = first.map(Part::text).into_iter().chain(leading);
    (instructions(system.collect()), messages)
}

/// The member `include`.
pub(super) struct Include;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Included {
    /// Whether the answer has encrypted reasoning.
    pub encrypted: bool,
    /// Whether it has parts that exist only in `OpenAI`'s items.
    pub others: bool,
}

const ENCRYPTED: &str = "reasoning.encrypted_content";
/// Values that cost nothing, and whose parts are in the items of an answer; log probabilities are
/// not. Source: openai 3.57.0 (`PyPI`) `openai/types/responses/response_includable.py`.
const INCLUDABLE: [&str; 7] = [
    ENCRYPTED,
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
];

impl Kind for Include {
    type Value = Included;

    fn read(&self, value: &Value, at: Field<'_>) -> Option<Included> {
        let is_known = |item: &Value| INCLUDABLE.iter().any(|known| item == known);
        if let Some(items) = value.as_array().filter(|items| items.iter().all(is_known)) {
            return Some(Included {
                encrypted: items.iter().any(|item| item == ENCRYPTED),
                others: items.iter().any(|item| item != ENCRYPTED),
            });
        }
        let message = format!("supports only these values: {}", INCLUDABLE.join(", "));
        at.error(FieldCode::NotSupported, message);
        None
    }

    fn schema(&self, _: &mut Schemas) -> Value {
        json!({"type": "array", "items": {"type": "string", "enum": INCLUDABLE}})
    }
}

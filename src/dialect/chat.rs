//! Chat Completions of the `openai` packages (openai 3.51.0,
//! `openai/types/chat/completion_create_params.py`, `chat_completion.py`,
//! `chat_completion_chunk.py`).
//!
//! This file reads the request and its tools. Submodules: messages ([`message`]), and writing of
//! answers ([`writer`]).

mod message;
mod writer;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    MAX_LIMIT, NOT_EMPTY, REFUSED, STRING,
    functions::{self, Choice, CustomFormatType, GrammarSyntax, ToolType, refuse, refuse_repeated},
    instructions, json as text_of, needed, sorted,
};
use crate::{
    domain::{
        conversation::{
            Conversation, Effort, Format, Function, Json, Reasoning, Sampling, Schema, Tools,
        },
        generation::Surface,
        named::named_enum,
        validate::{
            FieldCode, Fields, List, Object, SchemaName, any_object, boolean, integer, number,
            only, sequences, words,
        },
    },
    request::{DialogueRequest, MODEL_NAME},
};
pub use writer::ChatWriter;

/// Fields whose answers are not supported.
const UNSUPPORTED: &[&str] = &["function_call", "functions", "input", "top_logprobs"];
/// Fields that change no answer. They are left out for providers that do not know them, and the
/// response says so.
const HINTS: &[&str] = &[
    "metadata",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "user",
];
/// Maximum stop sequences, as in OpenAI's API.
const MAX_STOPS: usize = 4;
/// Maximum of `n`.
const MAX_CHOICES: i64 = 8;

#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    pub dialogue: DialogueRequest,
    /// Whether a stream ends with its usage.
    pub include_usage: bool,
    /// Names of the custom tools. Functions represent them in the dialogue.
    pub custom: BTreeSet<String>,
}

impl Object for ChatRequest {
    const SCHEMA: SchemaName = (
        "ChatCompletionRequest",
        "A dialogue. Other fields pass to providers that speak Chat Completions, and are refused \
         by name for others.",
    );
    const EXAMPLE: &'static str = r#"{"model": "sandbox/sandbox-text-1", "max_completion_tokens": 64,
        "messages": [{"role": "user", "content": "A haiku about exactness"}]}"#;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        fields.keep_others();
        let about = "`provider/model` of GET /openai/v1/models, or just `model`.";
        let model = fields.required("model", about, MODEL_NAME);
        let messages = List::new(
            "The dialogue so far, the oldest message first.",
            ("ChatMessage", "A message."),
        )
        .required();
        let messages = messages.read(fields, "messages", message::read);
        let max_tokens = limit(fields);
        let effort = "How much is thought before the answer. Default: the provider's.";
        let effort = fields.optional("reasoning_effort", effort, words::<Effort>());
        let sampling = Sampling {
            temperature: fields.optional("temperature", TEMPERATURE, number(0.0..=2.0)),
            top_p: fields.optional("top_p", TEMPERATURE, number(0.0..=1.0)),
            stop: fields
                .optional(
                    "stop",
                    "The text ends before one.",
                    sequences(MAX_STOPS, true),
                )
                .unwrap_or_default(),
            reasoning: Reasoning {
                thinking: None,
                effort,
            },
        };
        let (tools, custom) = read_tools(fields);
        let has_custom_tools = !custom.is_empty() || message::has_custom_calls(fields);
        let format = read_format(fields);
        let about = "Whether the answer is an event stream.";
        let stream = fields.optional("stream", about, boolean());
        let include_usage = fields.object("stream_options", "Of a stream.", OPTIONS, |options| {
            let about = "Accepted and ignored: none is made.";
            options.optional("include_obfuscation", about, boolean());
            options.optional(
                "include_usage",
                "Whether it ends with its usage.",
                boolean(),
            )
        });
        let about = "Number of choices; the output limit applies to each. Above 1 only with models \
                     that are called by Chat Completions. Default 1.";
        let choices = fields.optional("n", about, integer(1..=MAX_CHOICES));
        for (name, values) in fixed() {
            fields.optional(name, "Only the default is supported.", only(values));
        }
        for name in ["frequency_penalty", "presence_penalty"] {
            fields.neutral(name, vec![json!(0)]);
        }
        fields.neutral("logit_bias", vec![json!({})]);
        let mut left_out = fields.hints(HINTS);
        left_out.extend(message::has_tool_names(fields).then_some("name"));
        fields.unsupported(REFUSED);
        fields.unsupported(UNSUPPORTED);
        let others = fields.others();
        left_out.extend(others.marker());
        left_out.extend(message::has_annotations(fields).then_some("annotations"));
        let (system, messages) = sorted(messages?, |_, _| false);
        let conversation = Conversation {
            system: instructions(system),
            messages,
            tools,
            format,
        };
        Some(Self {
            dialogue: DialogueRequest {
                max_tokens,
                choices: choices.unwrap_or(1),
                sampling,
                stream: stream.unwrap_or(false),
                has_custom_tools,
                left_out,
                others,
                ..DialogueRequest::new(Surface::OpenAiChat, model?, conversation)
            },
            include_usage: include_usage.unwrap_or(false),
            custom,
        })
    }
}

fn limit(fields: &Fields<'_>) -> Option<u32> {
    let about = "Upper bound of output tokens, reasoning included. Default: what the account \
                 can pay for. At or above the model's own limit it counts as none.";
    let limit = fields.optional("max_completion_tokens", about, integer(1..=MAX_LIMIT));
    let about = "The older name of `max_completion_tokens`.";
    let older = fields.optional("max_tokens", about, integer(1..=MAX_LIMIT));
    if limit.is_some_and(|limit| older.is_some_and(|older| older != limit)) {
        let message = "differs from max_completion_tokens; leave it out";
        fields.error("max_tokens", FieldCode::NotAllowed, message);
    }
    limit.or(older)
}

/// Reads the tools, and the names of the custom ones.
fn read_tools(fields: &Fields<'_>) -> (Tools, BTreeSet<String>) {
    let tools = List::new(
        "Tools that the model may call.",
        ("ChatTool", "A function or a custom tool."),
    );
    let read = tools.read_any(fields, "tools", |tool| {
        let kind = tool.required("type", "What it is.", words::<ToolType>());
        let schema = ("ChatFunction", "A function.");
        let function = tool.object("function", "The function.", schema, functions::function);
        let schema = ("ChatCustomTool", "A tool whose input is any text.");
        let custom = tool.object("custom", "The custom tool.", schema, custom_tool);
        let kind = kind?;
        let (read, other) = match kind {
            ToolType::Function => (function, ToolType::Custom),
            ToolType::Custom => (custom, ToolType::Function),
        };
        refuse(tool, &[other.as_str()]);
        if !tool.has(kind.as_str()) {
            needed::<()>(tool, kind.as_str(), None);
        }
        Some((kind, read?))
    });
    let read = read.unwrap_or_default();
    let custom = read.iter().filter(|(kind, _)| *kind == ToolType::Custom);
    let custom: BTreeSet<String> = custom.map(|(_, tool)| tool.name.clone()).collect();
    if !custom.is_empty() {
        refuse_repeated(fields, read.iter().map(|(_, tool)| &tool.name[..]));
    }
    let functions = read.into_iter().map(|(_, tool)| tool).collect();
    let tools = functions::tools(fields, Some(functions), Choice::Within);
    (tools, custom)
}

fn custom_tool(fields: &Fields<'_>) -> Option<Function> {
    let name = fields.required("name", "Its name.", NOT_EMPTY);
    let description = fields.optional("description", "What it does, for the model.", STRING);
    let schema = ("ChatCustomFormat", "What the input of a custom tool is.");
    let grammar = fields.object(
        "format",
        "Its input. Default: any text.",
        schema,
        |format| {
            let kind = format.required("type", "What it is.", words::<CustomFormatType>());
            let about = "Of type `grammar`. Only models that are called by Chat Completions must \
                     follow it; others see it.";
            let schema = ("ChatGrammar", "A grammar.");
            let grammar = format.object("grammar", about, schema, |grammar| {
                let syntax = grammar.required("syntax", "Its kind.", words::<GrammarSyntax>());
                let definition = grammar.required("definition", "The grammar.", STRING);
                Some((syntax?, definition?))
            });
            match kind? {
                CustomFormatType::Text => None,
                CustomFormatType::Grammar if format.has("grammar") => grammar,
                CustomFormatType::Grammar => needed(format, "grammar", None),
            }
        },
    );
    let tool = Function {
        name: name?,
        description,
        parameters: None,
        strict: None,
    };
    Some(functions::custom(tool, grammar))
}

named_enum!(
    /// The form of an answer.
    ChatFormatType {
        Text = "text",
        JsonObject = "json_object",
        JsonSchema = "json_schema",
    }
);

fn read_format(fields: &Fields<'_>) -> Format {
    let about = "The form of the answer. Default: text.";
    let schema = ("ChatResponseFormat", "The form of an answer.");
    let format = fields.object("response_format", about, schema, |format| {
        let kind = format.required("type", "What it is.", words::<ChatFormatType>());
        let about = "Of type `json_schema`.";
        let schema = ("ChatJsonSchema", "The schema of an answer.");
        let schema = format.object("json_schema", about, schema, json_schema);
        match kind? {
            ChatFormatType::Text => Some(Format::Text),
            ChatFormatType::JsonObject => Some(Format::JsonObject),
            ChatFormatType::JsonSchema if format.has("json_schema") => schema.map(Format::Schema),
            ChatFormatType::JsonSchema => needed(format, "json_schema", None),
        }
    });
    format.unwrap_or_default()
}

fn json_schema(fields: &Fields<'_>) -> Option<Schema> {
    let name = fields.required("name", "Its name, for the model.", NOT_EMPTY);
    let description = fields.optional("description", "What it is for, for the model.", STRING);
    let schema = fields.required("schema", "A JSON schema.", any_object(Json::object));
    let about = "Whether the answer must follow it. Default: the provider's.";
    Some(Schema {
        strict: fields.optional("strict", about, boolean()),
        name: Some(name?),
        description,
        schema: schema?,
    })
}

const TEMPERATURE: &str = "Default: the provider's. Not every model takes one.";
const OPTIONS: (&str, &str) = ("ChatStreamOptions", "Options of a stream.");

/// Fields that are accepted only with these values, which change nothing.
fn fixed() -> [(&'static str, Vec<Value>); 4] {
    [
        ("logprobs", vec![json!(false)]),
        ("modalities", vec![json!(["text"])]),
        ("service_tier", vec![json!("auto"), json!("default")]),
        ("store", vec![json!(false)]),
    ]
}

#[cfg(test)]
mod tests;

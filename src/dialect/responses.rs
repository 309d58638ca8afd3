//! The Responses API of the `openai` packages (openai 3.54.0,
//! `openai/types/responses/response_create_params.py`, `response.py`, `response_stream_event.py`),
//! without state: the next request can refer only to items of an answer (`item_reference`), not to
//! the response.
//!
//! This file reads the request. Submodules: its items ([`item`]), its tools ([`tools`]), features
//! that only this dialect has ([`mapping`]), the bodies of answers ([`answer`]) and their events
//! ([`writer`]).

mod answer;
mod item;
mod mapping;
mod tools;
mod writer;

use serde_json::json;

use super::{MAX_LIMIT, REFUSED, STRING, json as text_of};
use crate::{
    domain::{
        conversation::{Conversation, Effort, Message, Part, Reasoning, Role, Sampling},
        generation::Surface,
        named::named_enum,
        validate::{
            FieldCode, Fields, List, Object, SchemaName, boolean, integer, number, only, words,
        },
    },
    request::{DialogueRequest, MODEL_NAME},
};

use item::Item;
pub use mapping::is_encrypted_by_openai;
pub use writer::{Echo, ResponsesWriter};

/// Fields whose features are not supported, or that keep state at a vendor.
const UNSUPPORTED: &[&str] = &[
    "access_programs",
    "background_options",
    "context_management",
    "generate",
    "image",
    "prompt",
];
/// Fields that change no answer. They are left out for providers that do not know them, and the
/// response says so.
const HINTS: &[&str] = &[
    "client_metadata",
    "metadata",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "user",
];

#[derive(Debug, Clone, PartialEq)]
pub struct ResponsesRequest {
    pub dialogue: DialogueRequest,
    pub echo: Echo,
}

/// A dialogue whose tokens are to be counted: it takes and refuses what [`ResponsesRequest`] does.
#[derive(Debug, Clone, PartialEq)]
pub struct InputTokensRequest(pub DialogueRequest);

named_enum!(
    /// How detailed a summary of the reasoning is.
    Summary {
        Auto = "auto",
        Concise = "concise",
        Detailed = "detailed",
    }
);

/// Reads what decides the input.
fn dialogue(fields: &Fields<'_>) -> Option<(DialogueRequest, Echo)> {
    fields.keep_others();
    let about = "`provider/model` of GET /openai/v1/models, or just `model`.";
    let model = fields.required("model", about, MODEL_NAME);
    let instructions = fields.optional("instructions", "Instructions above the input.", STRING);
    let input = List::new(
        "A text, or the items so far, the oldest first.",
        ("ResponseInputItem", "An item of the input."),
    )
    .required()
    .or_text(|said: &str| Item::Message(Message::text(Role::User, said)));
    let input = input.read(fields, "input", item::read);
    let options = fields.value("prompt_cache_options");
    if options.is_some_and(|options| options["prewarm"] == true) {
        let message = "is not supported here as true; a request must have an answer";
        fields.error(
            "prompt_cache_options.prewarm",
            FieldCode::NotSupported,
            message,
        );
    }
    // `background` may be false.
    let refused = REFUSED.iter().filter(|name| **name != "background");
    fields.unsupported(&refused.copied().collect::<Vec<_>>());
    fields.unsupported(UNSUPPORTED);
    let (tools, own) = tools::read(fields, input.as_deref().unwrap_or_default());
    let about = "Maximum number of searches at the provider. Does not limit other tools.";
    let most = fields.optional("max_tool_calls", about, integer(1..=MAX_LIMIT));
    let search = tools::search(fields, most);
    let format = tools::format(fields);
    let schema = (
        "ResponseReasoning",
        "How much is thought before the answer.",
    );
    let (effort, has_context, has_summary) =
        fields.object("reasoning", "Thinking.", schema, |reasoning| {
            let about = "How much. Default: the provider's.";
            let effort = reasoning.optional("effort", about, words::<Effort>());
            let names = ["summary", "generate_summary"];
            for name in names {
                let about = "Passed to OpenAI's models that are called by Responses, and left out \
                             for others.";
                reasoning.optional(name, about, words::<Summary>());
            }
            reasoning.unsupported(&["mode"]);
            let has_context = !reasoning.hints(&["context"]).is_empty();
            let has_summary = names.iter().any(|name| reasoning.has(name));
            (effort, has_context, has_summary)
        });
    fields.neutral("truncation", vec![json!("disabled")]);
    // The provider decides which turns' reasoning it keeps.
    let has_bound = most.is_some() && search.is_none();
    let left_out = [
        has_context.then_some("reasoning.context"),
        has_summary.then_some("reasoning.summary"),
        has_bound.then_some("max_tool_calls"),
    ];
    let (system, messages) = item::dialogue(instructions.clone(), input?);
    let conversation = Conversation {
        system,
        messages,
        tools,
        format,
    };
    let mut echo = Echo::of(fields, instructions.as_deref());
    echo.shown.tools = own;
    let dialogue = DialogueRequest {
        sampling: Sampling {
            reasoning: Reasoning {
                thinking: None,
                effort,
            },
            ..Sampling::default()
        },
        left_out: left_out.into_iter().flatten().collect(),
        search,
        ..DialogueRequest::new(Surface::OpenAiResponses, model?, conversation)
    };
    Some((dialogue, echo))
}

impl Object for ResponsesRequest {
    const SCHEMA: SchemaName = (
        "ResponsesRequest",
        "A dialogue. Other fields pass to providers that are called by the Responses API, and are \
         refused by name for others.",
    );
    const EXAMPLE: &'static str = r#"{"model": "sandbox/sandbox-text-1",
        "input": "A haiku about exactness", "max_output_tokens": 64}"#;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        let read = dialogue(fields);
        let about = "Upper bound of output tokens, reasoning included. Default: what the account \
                     can pay for. At or above the model's own limit it counts as none.";
        let max_tokens = fields.optional("max_output_tokens", about, integer(1..=MAX_LIMIT));
        let about = "Default: the provider's. Not every model takes one.";
        let temperature = fields.optional("temperature", about, number(0.0..=2.0));
        let top_p = fields.optional("top_p", about, number(0.0..=1.0));
        let about = "What the answer is to have beyond its text.";
        let included = fields.optional("include", about, item::Include);
        let included = included.unwrap_or_default();
        let about = "Whether the answer is an event stream.";
        let stream = fields.optional("stream", about, boolean());
        let schema = ("ResponseStreamOptions", "Options of a stream.");
        fields.object("stream_options", "Of a stream.", schema, |options| {
            let about = "Accepted and ignored: none is made.";
            options.optional("include_obfuscation", about, boolean());
        });
        for (name, values) in [
            ("background", vec![json!(false)]),
            ("service_tier", vec![json!("auto"), json!("default")]),
            ("store", vec![json!(false)]),
            ("top_logprobs", vec![json!(0)]),
        ] {
            fields.optional(name, "Only the default is supported.", only(values));
        }
        let mut left_out = fields.hints(HINTS);
        let others = fields.others();
        left_out.extend(others.marker());
        left_out.extend(included.others.then_some("include"));
        let (dialogue, mut echo) = read?;
        echo.shown.encrypted = included.encrypted;
        left_out.extend(&dialogue.left_out);
        Some(Self {
            dialogue: DialogueRequest {
                max_tokens,
                sampling: Sampling {
                    temperature,
                    top_p,
                    ..dialogue.sampling
                },
                stream: stream.unwrap_or(false),
                includes_encrypted: included.encrypted,
                left_out,
                others,
                ..dialogue
            },
            echo,
        })
    }
}

impl Object for InputTokensRequest {
    const SCHEMA: SchemaName = (
        "ResponseInputTokensRequest",
        "A dialogue whose input tokens are to be counted.",
    );
    const EXAMPLE: &'static str =
        r#"{"model": "sandbox/sandbox-text-1", "input": "A haiku about exactness"}"#;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        Some(Self(ResponsesRequest::read(fields)?.dialogue))
    }
}

/// Whether a part of an answer becomes an item of the output.
fn is_item(part: &Part) -> bool {
    let is_input = matches!(
        part,
        Part::Image(_) | Part::Document(_) | Part::ToolResult(_)
    );
    !is_input && part.phase().is_none()
}

/// Returns the id of an item of an answer. [`referenced`] parses it.
fn id(generation: &str, at: usize, part: &Part) -> String {
    let kind = match part {
        Part::Opaque { block } => {
            let id = block["id"].as_str().unwrap_or_default();
            id.split_once('_').map_or("item", |(kind, _)| kind)
        }
        Part::ToolCall(_) => "fc",
        Part::Thinking { .. } | Part::Redacted { .. } => "rs",
        _ => "msg",
    };
    format!("{kind}_{generation}_{at}")
}

/// Returns the generation and the place in its output, if an id is of an item of our answers.
pub fn referenced(id: &str) -> Option<(&str, usize)> {
    let (rest, at) = id.rsplit_once('_')?;
    let (_kind, generation) = rest.rsplit_once('_')?;
    let is_uuid = generation.len() == 32 && generation.bytes().all(|b| b.is_ascii_hexdigit());
    let is_number = at.bytes().all(|b| b.is_ascii_digit());
    (is_uuid && is_number).then_some((generation, at.parse().ok()?))
}

#[cfg(test)]
mod tests;

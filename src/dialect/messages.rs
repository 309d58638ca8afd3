//! Messages of the `anthropic` packages (anthropic 2.10.0,
//! `anthropic/types/message_create_params.py`, `message.py`, `raw_message_stream_event.py`).
//!
//! This file reads the requests. Submodules: the blocks of messages ([`block`]), tools and the
//! format of the answer ([`tools`]), and writing of answers ([`writer`]).

mod block;
mod tools;
mod writer;

use std::cell::{Cell, RefCell};

use serde_json::{Value, json};

use super::{DIAGNOSTICS, MAX_LIMIT, REFUSED, instructions, json as text_of, leading};
use crate::{
    domain::{
        conversation::{Conversation, Part, Sampling},
        generation::Surface,
        receipt::{BILLING_HEADER, without_billing_header},
        validate::{
            FieldCode, Fields, List, Object, Others, SchemaName, boolean, integer, number, only,
            sequences,
        },
    },
    request::{DialogueRequest, MODEL_NAME, Search},
};
pub use tools::SEARCH;
pub use writer::MessagesWriter;

/// Fields that change no answer, or make the input smaller. They are left out for providers that do
/// not know them, and the response says so.
const HINTS: &[&str] = &["context_management", DIAGNOSTICS, "metadata"];
const MAX_STOPS: usize = 100;

#[derive(Debug, Clone, PartialEq)]
pub struct MessagesRequest(pub DialogueRequest);

/// A dialogue whose tokens are to be counted: it takes and refuses what [`MessagesRequest`] does, but
/// needs no limit.
#[derive(Debug, Clone, PartialEq)]
pub struct CountRequest(pub DialogueRequest);

/// Hints and tool names found in messages and tools.
#[derive(Default)]
struct Noted {
    /// The hints, each once.
    hints: RefCell<Vec<&'static str>>,
    /// Tools that the model sees only in a message, once per occurrence.
    loaded: RefCell<Vec<String>>,
    /// The limits of the searches (`max_uses`).
    searches: RefCell<Vec<Option<u32>>>,
    /// Maximum tokens that Anthropic adds to search results and for tools that it describes.
    added_tokens: Cell<usize>,
}

impl Noted {
    fn add_tokens(&self, tokens: usize) {
        self.added_tokens.set(self.added_tokens.get() + tokens);
    }
}

fn note(noted: &Noted, found: Vec<&'static str>) {
    let mut hints = noted.hints.borrow_mut();
    for name in found {
        if !hints.contains(&name) {
            hints.push(name);
        }
    }
}

/// Reads what decides the input.
fn dialogue(fields: &Fields<'_>) -> Option<DialogueRequest> {
    let noted = Noted::default();
    fields.keep_others();
    let about = "`provider/model` of GET /anthropic/v1/models, or just `model`.";
    let model = fields.required("model", about, MODEL_NAME);
    let messages = List::new(
        "The dialogue so far, the oldest message first.",
        ("MessageParam", "A message."),
    )
    .required();
    let messages = messages.read(fields, "messages", |message| {
        block::message(message, &noted)
    });
    let system = block::texts(fields, "system");
    let tools = tools::read(fields, &noted);
    let reasoning = tools::reasoning(fields, &noted);
    note(&noted, fields.hints(HINTS));
    // Any other edit may call the model once more, which the usage does not report.
    let management = fields.value("context_management");
    let edits = management.and_then(|management| management.get("edits")?.as_array());
    let clears = |edit: &Value| {
        let kind = edit.get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| kind.starts_with("clear_"))
    };
    if !edits.into_iter().flatten().all(clears) {
        let message = "is supported with edits that clear tool uses or thinking only";
        fields.error("context_management", FieldCode::NotSupported, message);
    }
    fields.optional(
        "speed",
        "Only the default is supported.",
        only([json!("standard")]),
    );
    fields.unsupported(REFUSED);
    let (reasoning, format) = reasoning;
    let (mut messages, mut system) = (messages?, system.unwrap_or_default());
    let billing_bytes = leave_out_billing_headers(&mut system);
    if billing_bytes > 0 {
        note(&noted, vec![BILLING_HEADER]);
    }
    system.extend(leading(&mut messages));
    let conversation = Conversation {
        system: instructions(system),
        messages,
        tools,
        format,
    };
    let others = Others {
        bytes: conversation.tools.loaded_bytes(&noted.loaded.take())
            + noted.added_tokens.get()
            + billing_bytes,
        ..Others::default()
    };
    let searches = noted.searches.take();
    if searches.len() > 1 {
        fields.error("tools", FieldCode::NotAllowed, "has two search tools");
    }
    let tools = fields.value("tools").and_then(Value::as_array);
    let search = searches.first().map(|&most| Search {
        most,
        tool: tools.and_then(|tools| tools.iter().position(|tool| tool["type"] == SEARCH)),
    });
    let surface = Surface::AnthropicMessages;
    Some(DialogueRequest {
        sampling: Sampling {
            reasoning,
            ..Sampling::default()
        },
        left_out: noted.hints.into_inner(),
        search,
        others,
        ..DialogueRequest::new(surface, model?, conversation)
    })
}

/// Removes billing lines from the dialogue, which other vendors get. Returns their bytes.
fn leave_out_billing_headers(system: &mut [Part]) -> usize {
    let mut bytes = 0;
    for part in system {
        if let Part::Text { text } = part
            && let Some(rest) = without_billing_header(text)
        {
            bytes += text.len() - rest.len();
            *text = rest.to_owned();
        }
    }
    bytes
}

/// Adds all unknown members, after all known ones were read.
fn with_others(fields: &Fields<'_>, dialogue: DialogueRequest) -> DialogueRequest {
    let mut others = fields.others();
    others.bytes += dialogue.others.bytes;
    let mut left_out = dialogue.left_out;
    left_out.extend(others.marker());
    DialogueRequest {
        left_out,
        others,
        ..dialogue
    }
}

/// Reads both bodies. `needs_limit`: whether `max_tokens` is required.
fn request(fields: &Fields<'_>, needs_limit: bool) -> Option<DialogueRequest> {
    let dialogue = dialogue(fields);
    let about = "Upper bound of output tokens, reasoning included. At or above the model's own \
                 limit it counts as none: then it is what the account can pay for. 0 only fills \
                 Anthropic's cache.";
    let limit = integer(0..=MAX_LIMIT);
    let max_tokens = if needs_limit {
        fields.required("max_tokens", about, limit)
    } else {
        fields.optional("max_tokens", about, limit)
    };
    let about = "Default: the provider's. Not every model takes one.";
    let temperature = fields.optional("temperature", about, number(0.0..=1.0));
    let top_p = fields.optional("top_p", about, number(0.0..=1.0));
    let about = "The text ends before one.";
    let stop = fields.optional("stop_sequences", about, sequences(MAX_STOPS, false));
    let tiers = only([json!("auto"), json!("standard_only")]);
    fields.optional("service_tier", "Only the default is supported.", tiers);
    let about = "Whether the answer is an event stream.";
    let stream = fields.optional("stream", about, boolean());
    let dialogue = with_others(fields, dialogue?);
    Some(DialogueRequest {
        max_tokens,
        sampling: Sampling {
            temperature,
            top_p,
            stop: stop.unwrap_or_default(),
            reasoning: dialogue.sampling.reasoning,
        },
        stream: stream.unwrap_or(false),
        ..dialogue
    })
}

impl Object for MessagesRequest {
    const SCHEMA: SchemaName = (
        "MessagesRequest",
        "A dialogue. Other fields pass to Anthropic, and are refused by name for other providers.",
    );
    const EXAMPLE: &'static str = r#"{"model": "sandbox/sandbox-text-1", "max_tokens": 64,
        "messages": [{"role": "user", "content": "A haiku about exactness"}]}"#;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        request(fields, true).map(Self)
    }
}

impl Object for CountRequest {
    const SCHEMA: SchemaName = (
        "CountTokensRequest",
        "A dialogue, of which the input tokens are to be counted.",
    );
    const EXAMPLE: &'static str = r#"{"model": "sandbox/sandbox-text-1",
        "messages": [{"role": "user", "content": "A haiku about exactness"}]}"#;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        request(fields, false).map(Self)
    }
}

#[cfg(test)]
mod tests;

//! Receipts of randomly edited bodies: bodies with the same key have the same bounds.

use std::sync::Arc;

use proptest::{collection, prelude::*, sample::Index};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    dialect::{chat::ChatRequest, messages::MessagesRequest, responses::ResponsesRequest},
    domain::{
        conversation::{Conversation, Reasoning},
        generation::Surface,
        receipt::{MARKER, Prefixes, RULES},
        validate::Body,
    },
    request::DialogueRequest,
};

/// A change of a body, at one of the places where it is possible.
#[derive(Debug, Clone)]
enum Edit {
    /// Changes a string.
    Say(Index, &'static str),
    /// Adds a member, or changes the value of one.
    Put(Index, &'static str, &'static str),
    /// Removes a member or item.
    Drop(Index, Index),
    Repeat(Index, Index),
    /// Swaps two items.
    Swap(Index, Index, Index),
    /// Reverses the members.
    Turn(Index),
    /// Converts a string to a block of text.
    Block(Index),
    /// Adds a cache marker.
    Mark(Index),
}

const WORDS: &[&str] = &["", "x", "xy", "low", "auto", "user", "assistant", "text"];
const NAMES: &[&str] = &[
    "cache_control",
    "content",
    "detail",
    "name",
    "stop",
    "strict",
    "text",
    "user",
    "x",
];

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<Index>;
    let (word, name) = (|| prop::sample::select(WORDS), prop::sample::select(NAMES));
    prop_oneof![
        (at(), word()).prop_map(|(at, word)| Edit::Say(at, word)),
        (at(), name, word()).prop_map(|(at, name, word)| Edit::Put(at, name, word)),
        (at(), at()).prop_map(|(at, which)| Edit::Drop(at, which)),
        (at(), at()).prop_map(|(at, which)| Edit::Repeat(at, which)),
        (at(), at(), at()).prop_map(|(at, one, other)| Edit::Swap(at, one, other)),
        at().prop_map(Edit::Turn),
        at().prop_map(Edit::Block),
        at().prop_map(Edit::Mark),
    ]
}

/// Returns the paths of the values that a predicate accepts, and of those within them.
fn places(value: &Value, at: &str, fits: fn(&str, &Value) -> bool, found: &mut Vec<String>) {
    if fits(at, value) {
        found.push(at.to_owned());
    }
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                places(member, &format!("{at}/{name}"), fits, found);
            }
        }
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                places(item, &format!("{at}/{n}"), fits, found);
            }
        }
        _ => {}
    }
}

fn place(body: &mut Value, at: Index, fits: fn(&str, &Value) -> bool) -> Option<&mut Value> {
    let mut found = Vec::new();
    places(body, "", fits, &mut found);
    let at = (!found.is_empty()).then(|| &found[at.index(found.len())])?;
    body.pointer_mut(at)
}

impl Edit {
    fn of(self, body: &mut Value) -> Option<()> {
        let object = |_: &str, value: &Value| value.as_object().is_some_and(|m| !m.is_empty());
        let array =
            |_: &str, value: &Value| value.as_array().is_some_and(|items| !items.is_empty());
        match self {
            Self::Say(at, word) => {
                *place(body, at, |_, value| value.is_string())? = json!(word);
            }
            Self::Put(at, name, word) => place(body, at, object)?[name] = json!(word),
            Self::Drop(at, which) => match place(body, at, |_, value| {
                matches!(value, Value::Object(m) if !m.is_empty())
                    || matches!(value, Value::Array(items) if !items.is_empty())
            })? {
                Value::Object(members) => {
                    let name = members.keys().nth(which.index(members.len()))?.clone();
                    members.shift_remove(&name);
                }
                Value::Array(items) => drop(items.remove(which.index(items.len()))),
                _ => {}
            },
            Self::Repeat(at, which) => {
                let items = place(body, at, array)?.as_array_mut()?;
                items.push(which.get(items).clone());
            }
            Self::Swap(at, one, other) => {
                let items = place(body, at, array)?.as_array_mut()?;
                let (one, other) = (one.index(items.len()), other.index(items.len()));
                items.swap(one, other);
            }
            Self::Turn(at) => {
                let members = place(body, at, object)?.as_object_mut()?;
                *members = std::mem::take(members).into_iter().rev().collect();
            }
            Self::Block(at) => {
                let text = place(body, at, |at, value| {
                    value.is_string() && (at.ends_with("/content") || at == "/system")
                })?;
                *text = json!([{"type": "text", "text": text}]);
            }
            Self::Mark(at) => place(body, at, object)?[MARKER] = json!({"type": "ephemeral"}),
        }
        Some(())
    }
}

/// Returns a body of each surface with every feature of a dialogue.
fn body(surface: Surface) -> Value {
    let schema = json!({"type": "object", "properties": {"b": {"type": "string"}, "a": {}}});
    let url = "https://example.com/x";
    match surface {
        Surface::OpenAiChat => json!({"model": "m", "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "x"},
                    {"type": "image_url", "image_url": {"url": url, "detail": "low"}}]},
                {"role": "assistant", "content": "y", "tool_calls": [{"id": "1", "type": "function",
                    "function": {"name": "f", "arguments": "{\"a\":1}"}}]},
                {"role": "tool", "tool_call_id": "1", "content": "z"},
                {"role": "user", "content": "xy"}],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
            "reasoning_effort": "low", "temperature": 1, "stop": ["x"], "verbosity": "low"}),
        Surface::OpenAiResponses => json!({"model": "m", "instructions": "s", "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "x"},
                    {"type": "input_image", "image_url": url, "detail": "low"}]},
                {"role": "assistant", "content": "y"},
                {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{\"a\":1}"},
                {"type": "function_call_output", "call_id": "1", "output": "z"},
                {"role": "user", "content": "xy"}],
            "tools": [{"type": "function", "name": "f", "parameters": schema}],
            "text": {"format": {"type": "json_schema", "name": "n", "schema": schema}},
            "reasoning": {"effort": "low"}, "temperature": 1}),
        _ => json!({"model": "m", "max_tokens": 9, "system": "s", "messages": [
                {"role": "user", "content": [{"type": "text", "text": "x"},
                    {"type": "image", "source": {"type": "url", "url": url}}]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "y", "signature": "xy"},
                    {"type": "text", "text": "y"},
                    {"type": "tool_use", "id": "1", "name": "f", "input": {"b": "x", "a": "y"}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1",
                    "content": [{"type": "text", "text": "z"}]}]},
                {"role": "user", "content": "xy"}],
            "tools": [{"name": "f", "description": "x", "input_schema": schema}],
            "tool_choice": {"type": "auto"}, "thinking": {"type": "adaptive"},
            "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": schema}},
            "stop_sequences": ["x"], "tomorrow": {"text": "x"}}),
    }
}

/// Everything that bounds a dialogue's tokens and decides how its vendor counts them.
type Read = (Arc<Conversation>, Reasoning, usize);

fn read<T: Body>(body: &Value, dialogue: fn(T) -> DialogueRequest) -> Option<Read> {
    let (request, errors) = T::parse(body.as_object()?);
    let DialogueRequest {
        conversation,
        sampling,
        others,
        ..
    } = dialogue(request.filter(|_| errors.is_empty())?);
    Some((conversation, sampling.reasoning, others.bytes))
}

fn key_and_read(surface: Surface, body: &Value) -> Option<(Uuid, Read)> {
    let read = match surface {
        Surface::OpenAiChat => read(body, |request: ChatRequest| request.dialogue),
        Surface::OpenAiResponses => read(body, |request: ResponsesRequest| request.dialogue),
        _ => read(body, |request: MessagesRequest| request.0),
    }?;
    let prefixes = Prefixes::of(surface, body.as_object()?, &[])?;
    Some((*prefixes.keys(&"scope").first()?, read))
}

const SURFACES: [Surface; 3] = [
    Surface::OpenAiChat,
    Surface::OpenAiResponses,
    Surface::AnthropicMessages,
];

proptest! {
    #[test]
    fn a_key_is_of_one_bound(
        surface in prop::sample::select(&SURFACES[..]),
        edits in [collection::vec(edit(), 0..3), collection::vec(edit(), 1..3)],
    ) {
        let mut body = body(surface);
        let edited = edits.map(|edits| {
            for edit in edits {
                let _nowhere = edit.of(&mut body);
            }
            (key_and_read(surface, &body), body.clone())
        });
        let [(Some((key, read)), body), (Some((other_key, other_read)), other)] = edited else {
            return Ok(());
        };
        prop_assert!(key != other_key || read == other_read, "{body}\n{other}");
    }

    /// Ensures that the test above does not only compare bodies with themselves.
    #[test]
    fn what_no_model_reads_changes_no_key(
        surface in prop::sample::select(&SURFACES[..]),
        temperature in 0.0..1.0,
    ) {
        let plain = body(surface);
        let mut other = plain.clone();
        other["temperature"] = json!(temperature);
        let members = other.as_object_mut().unwrap();
        *members = std::mem::take(members).into_iter().rev().collect();
        let [plain, other] = [plain, other].map(|body| key_and_read(surface, &body).unwrap());
        prop_assert_eq!(plain, other);
    }
}

/// A change of the rules must change [`RULES`], and then this test.
#[test]
fn the_rules_are_those_of_their_number() {
    let bounds = SURFACES.map(|surface| {
        let (_, (conversation, _, others)) = key_and_read(surface, &body(surface)).unwrap();
        (conversation.most_tokens(), others)
    });
    let expected = [(1_476, 14), (1_476, 0), (1_497, 20)];
    assert_eq!((RULES, bounds), (3, expected));
}

//! Members of a message of Chat Completions that callers of the same API get, because they show them
//! or must send them back. They are collected, and delivered once, after the rest of the message.

use serde_json::{Map, Value};

const ANNOTATIONS: &str = "annotations";
/// The reasoning that `OpenRouter` and `MiniMax` want back in the next turn.
const REASONING: &str = "reasoning_details";
/// Texts that a stream sends in pieces.
const TEXTS: [&str; 2] = ["text", "summary"];
/// Maximum bytes of one list. A longer one is not delivered: no vendor accepts back a part of its
/// reasoning.
const CAP: usize = 256 * 1024;

#[derive(Debug, Default)]
pub struct OwnMembers {
    annotations: Items,
    reasoning: Items,
}

#[derive(Debug, Default)]
struct Items {
    items: Vec<Value>,
    bytes: usize,
}

impl Items {
    fn push(&mut self, item: &Value) {
        self.bytes += item.to_string().len();
        self.items.push(item.clone());
    }

    fn is_full(&self) -> bool {
        self.bytes > CAP
    }
}

impl OwnMembers {
    /// Reads a message, or a delta if `is_piece`.
    pub fn read(&mut self, body: &Map<String, Value>, is_piece: bool) {
        let Self {
            annotations,
            reasoning,
        } = self;
        for item in list(body, ANNOTATIONS) {
            // Some servers repeat the list in each chunk.
            if !annotations.is_full() && !annotations.items.contains(item) {
                annotations.push(item);
            }
        }
        for item in list(body, REASONING) {
            let last = reasoning.items.last_mut();
            match last.filter(|last| is_piece && continues(last, item)) {
                _ if reasoning.bytes > CAP => break,
                Some(last) => reasoning.bytes += join(last, item),
                None => reasoning.push(item),
            }
        }
    }

    /// Returns the members, or `None` if there are none.
    pub fn end(self) -> Option<Map<String, Value>> {
        let lists = [(ANNOTATIONS, self.annotations), (REASONING, self.reasoning)];
        let members: Map<_, _> = lists
            .into_iter()
            .filter(|(_, list)| !list.items.is_empty() && !list.is_full())
            .map(|(name, list)| (name.to_owned(), list.items.into()))
            .collect();
        (!members.is_empty()).then_some(members)
    }
}

fn list<'a>(body: &'a Map<String, Value>, name: &str) -> impl Iterator<Item = &'a Value> {
    let items = body.get(name).and_then(Value::as_array);
    items.into_iter().flatten()
}

/// Whether an item is a piece of the last one's text, or its signature.
fn continues(last: &Value, item: &Value) -> bool {
    let is_same = ["type", "index"]
        .iter()
        .all(|name| last[name] == item[name]);
    let is_text = TEXTS.iter().any(|name| last[name].is_string());
    is_same && is_text && last["signature"].is_null()
}

/// Adds a piece to the last item. Returns the bytes that it added.
fn join(last: &mut Value, item: &Value) -> usize {
    let mut bytes = 0;
    for (name, value) in item.as_object().into_iter().flatten() {
        match (&mut last[name.as_str()], value) {
            (Value::String(text), Value::String(piece)) if TEXTS.contains(&name.as_str()) => {
                text.push_str(piece);
                bytes += piece.len();
            }
            (before @ Value::Null, value) => {
                *before = value.clone();
                bytes += name.len() + value.to_string().len();
            }
            _ => {}
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(bodies: &[Value], is_piece: bool) -> Option<Value> {
        let mut members = OwnMembers::default();
        for body in bodies {
            members.read(body.as_object().unwrap(), is_piece);
        }
        members.end().map(Value::Object)
    }

    fn text(index: u64, text: &str) -> Value {
        json!({"type": "reasoning.text", "text": text, "index": index, "format": null})
    }

    fn details(items: &[Value]) -> Value {
        json!({ "reasoning_details": items })
    }

    #[test]
    fn pieces_of_a_stream_are_joined() {
        let signature =
            json!({"type": "reasoning.text", "signature": "s", "index": 0, "format": "f"});
        let encrypted = json!({"type": "reasoning.encrypted", "data": "a", "index": 1});
        let pieces = [
            details(&[text(0, "Let ")]),
            details(&[text(0, "me")]),
            details(std::slice::from_ref(&signature)),
            details(&[encrypted.clone(), encrypted.clone()]),
            details(&[text(0, "b"), text(2, "c")]),
        ];
        let mut signed = signature;
        signed["text"] = json!("Let me");
        let expected = [
            signed,
            encrypted.clone(),
            encrypted,
            text(0, "b"),
            text(2, "c"),
        ];
        assert_eq!(read(&pieces, true), Some(details(&expected)));
    }

    #[test]
    fn a_whole_message_is_kept_as_it_is() {
        let message = json!({"annotations": [{"type": "url_citation"}],
            "reasoning_details": [text(0, "a"), text(0, "b")]});
        assert_eq!(read(std::slice::from_ref(&message), false), Some(message));
        let empty = json!({"annotations": [], "reasoning_details": null});
        assert_eq!(read(&[empty], false), None);
    }

    #[test]
    fn repeated_annotations_come_once_and_a_too_long_list_never() {
        let cited = json!({"annotations": [{"type": "url_citation"}]});
        let repeated = [cited.clone(), cited.clone()];
        assert_eq!(read(&repeated, true), Some(cited.clone()));
        let piece = details(&[text(0, &"x".repeat(CAP / 2))]);
        let long = [cited.clone(), piece.clone(), piece.clone(), piece];
        assert_eq!(read(&long, true), Some(cited));
    }
}

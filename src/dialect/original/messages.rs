//! Edits messages of a Messages body that its vendor would refuse. The others keep their bytes,
//! which the vendor's cache compares.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::{
    Map, Value, json,
    value::{RawValue, to_raw_value},
};

use super::with_replaced;
use crate::{domain::json::Members, request::Original};

/// The parsed members of a message, or of a block of its content.
#[derive(Default, Deserialize)]
struct Block<'a> {
    #[serde(borrow)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    output_config: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_control: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

/// A message, possibly with a changed content.
struct Edited<'a> {
    raw: &'a RawValue,
    role: Option<Cow<'a, str>>,
    before: Option<&'a RawValue>,
    /// The blocks that replace the content.
    content: Option<Vec<Cow<'a, RawValue>>>,
    /// Whether it changes the settings of later answers. Such a message needs no content.
    /// Source: anthropic 2.14.0 (`PyPI`) `anthropic/types/beta/beta_system_message_param.py`.
    configures: bool,
}

impl<'a> Edited<'a> {
    fn is_empty(&self) -> bool {
        if self.configures {
            return false;
        }
        if let Some(blocks) = &self.content {
            return blocks.is_empty();
        }
        self.before.is_some_and(|content| {
            let blocks = serde_json::from_str::<Vec<IgnoredAny>>(content.get());
            is_blank_text(content) || blocks.is_ok_and(|blocks| blocks.is_empty())
        })
    }

    fn take_blocks(&mut self) -> Vec<Cow<'a, RawValue>> {
        if let Some(blocks) = self.content.take() {
            return blocks;
        }
        let Some(content) = self.before else {
            return Vec::new();
        };
        if let Ok(blocks) = serde_json::from_str::<Vec<&RawValue>>(content.get()) {
            return blocks.into_iter().map(Cow::Borrowed).collect();
        }
        let text = Bytes::copy_from_slice(content.get().as_bytes());
        let block = to_raw_value(&Members::from(vec![
            ("type".to_owned(), Bytes::from_static(b"\"text\"")),
            ("text".to_owned(), text),
        ]));
        block.into_iter().map(Cow::Owned).collect()
    }
}

fn is_blank_text(content: &RawValue) -> bool {
    let text = serde_json::from_str::<Cow<'_, str>>(content.get());
    text.is_ok_and(|text| text.trim().is_empty())
}

/// The blocks of a content without blank texts; `None` if it has none of these. A block before one
/// gets its cache marker.
fn without_blanks(content: &RawValue) -> Option<Vec<Cow<'_, RawValue>>> {
    let blocks: Vec<&RawValue> = serde_json::from_str(content.get()).ok()?;
    let mut is_changed = false;
    let mut kept: Vec<(Cow<'_, RawValue>, bool)> = Vec::with_capacity(blocks.len());
    for raw in blocks {
        let block: Block<'_> = serde_json::from_str(raw.get()).unwrap_or_default();
        let kind = block.kind.as_deref().unwrap_or_default();
        let text = block.text.as_deref().filter(|_| kind == "text");
        if text.is_some_and(|text| text.trim().is_empty()) {
            is_changed = true;
            if let Some(marker) = block.cache_control
                && let Some((last, can_be_marked)) = kept.last_mut()
                && *can_be_marked
            {
                *last = Cow::Owned(with_member(last, "cache_control", &marker));
                *can_be_marked = false;
            }
            continue;
        }
        let parts = block.content.filter(|_| kind == "tool_result");
        let raw = match parts.and_then(without_blanks) {
            Some(parts) => {
                is_changed = true;
                Cow::Owned(with_member(raw, "content", &parts))
            }
            None => Cow::Borrowed(raw),
        };
        let is_thinking = ["thinking", "redacted_thinking"].contains(&kind);
        kept.push((raw, block.cache_control.is_none() && !is_thinking));
    }
    is_changed.then(|| kept.into_iter().map(|(block, _)| block).collect())
}

/// Returns the blocks of a content with objects as tool inputs; `None` if all are objects already.
fn with_objects<'a>(
    content: &'a RawValue,
    object: &impl Fn(String) -> Value,
) -> Option<Vec<Cow<'a, RawValue>>> {
    with_replaced(content.get().as_bytes(), |raw| {
        let block: Block<'_> = serde_json::from_str(raw.get()).unwrap_or_default();
        let input = block.input.map_or("null", RawValue::get);
        if block.kind.as_deref() != Some("tool_use") || input.starts_with('{') {
            return None;
        }
        let input = match serde_json::from_str(input) {
            Ok(Value::String(text)) => object(text),
            Ok(Value::Null) => json!({}),
            _ => object(input.to_owned()),
        };
        Some(with_member(raw, "input", &input))
    })
}

/// Returns an object with another value of this member.
fn with_member(raw: &RawValue, name: &str, value: &impl Serialize) -> Box<RawValue> {
    let object = Members::parse(&Bytes::copy_from_slice(raw.get().as_bytes()));
    let edited = object.and_then(|mut members| {
        members.set(name, value);
        to_raw_value(&members)
    });
    edited.unwrap_or_else(|_| raw.to_owned())
}

impl Original {
    /// Removes blank texts from the instructions of a Messages body.
    pub fn leave_out_blank_instructions(&mut self) {
        let system = self.members.get("system").cloned().unwrap_or_default();
        if let Ok(content) = serde_json::from_slice::<&RawValue>(&system) {
            match without_blanks(content) {
                Some(blocks) if blocks.is_empty() => self.members.remove("system"),
                Some(blocks) => self.members.set("system", &blocks),
                None if is_blank_text(content) => self.members.remove("system"),
                None => {}
            }
        }
    }

    /// Removes blank texts from the messages of a Messages body, and messages that have nothing
    /// else. Merges consecutive messages of one role.
    pub fn leave_out_blank_texts(&mut self) {
        let messages = self.members.get("messages").cloned().unwrap_or_default();
        let Ok(messages) = serde_json::from_slice::<Vec<&RawValue>>(&messages) else {
            return;
        };
        let count = messages.len();
        let mut kept: Vec<Edited<'_>> = Vec::with_capacity(count);
        let mut is_joined = false;
        for raw in messages {
            let read: Block<'_> = serde_json::from_str(raw.get()).unwrap_or_default();
            let settings = read.output_config.map_or("null", RawValue::get);
            let settings = serde_json::from_str::<Map<String, Value>>(settings);
            let mut message = Edited {
                raw,
                content: read.content.and_then(without_blanks),
                before: read.content,
                configures: read.role.as_deref() == Some("system")
                    && settings.is_ok_and(|settings| !settings.is_empty()),
                role: read.role,
            };
            if message.configures && read.content.is_some_and(is_blank_text) {
                message.content = Some(Vec::new());
            }
            if message.is_empty() {
                is_joined = true;
                continue;
            }
            match kept.last_mut() {
                Some(last) if is_joined && last.role == message.role && !message.configures => {
                    let mut blocks = last.take_blocks();
                    blocks.append(&mut message.take_blocks());
                    last.content = Some(blocks);
                }
                _ => kept.push(message),
            }
            is_joined = false;
        }
        if kept.len() == count && kept.iter().all(|message| message.content.is_none()) {
            return;
        }
        let messages = kept.into_iter().map(|message| match message.content {
            Some(content) => Cow::Owned(with_member(message.raw, "content", &content)),
            None => Cow::Borrowed(message.raw),
        });
        let messages: Vec<Cow<'_, RawValue>> = messages.collect();
        self.members.set("messages", &messages);
    }

    /// Converts the inputs of earlier tool uses to objects: `object` converts a text.
    pub fn complete_inputs(&mut self, object: impl Fn(String) -> Value) {
        let messages = self.members.get("messages").cloned().unwrap_or_default();
        let messages = with_replaced(&messages, |raw| {
            let read: Block<'_> = serde_json::from_str(raw.get()).unwrap_or_default();
            let blocks = with_objects(read.content?, &object)?;
            Some(with_member(raw, "content", &blocks))
        });
        if let Some(messages) = messages {
            self.members.set("messages", &messages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_become_objects_and_others_keep_their_numbers() {
        const NUMBER: &str = "123456789012345678901234567890";
        let content = format!(
            r#"[{{"type":"tool_use","input":{{"n":{NUMBER}}}}},{{"type":"tool_use","input":"x"}}]"#
        );
        let body = format!(r#"{{"messages":[{{"role":"assistant","content":{content}}}]}}"#);
        let mut given = Original {
            members: Members::parse(&Bytes::from(body.clone())).unwrap(),
            ..Original::default()
        };
        given.complete_inputs(|text| json!({ "text": text }));
        let expected = body.replace("\"x\"", "{\"text\":\"x\"}");
        assert_eq!(serde_json::to_string(&given.members).unwrap(), expected);
    }

    #[test]
    fn all_but_blank_texts_keeps_its_bytes() {
        let big = r#"{"type":"tool_use","id":"t","name":"f","input":{"n":123456789012345678901234567890, "x":1.0e2}}"#;
        let cached = r#""cache_control":{"type":"ephemeral"}"#;
        let blank = format!(r#"{{"type":"text","text":" ",{cached}}}"#);
        let text = |text: &str| format!(r#"{{"type":"text","text":"{text}"}}"#);
        let marked = |text: &str| format!(r#"{{"type":"text","text":"{text}",{cached}}}"#);
        let result = |parts: &str| {
            format!(r#"{{"type":"tool_result","tool_use_id":"t","content":[{parts}]}}"#)
        };
        let of = |role: &str, blocks: &[&str]| {
            format!(r#"{{"role":"{role}", "content":[{}]}}"#, blocks.join(","))
        };
        let without =
            |role: &str, blocks: &[&str]| of(role, blocks).replace(", \"content", ",\"content");
        let (a, b, a_marked) = (text("a"), text("b"), marked("a"));
        let thinking = r#"{"type":"thinking","thinking":"x","signature":"s"}"#;
        let effort = |content: &str| {
            format!(r#"{{"role":"system"{content},"output_config":{{"effort":"max"}}}}"#)
        };
        for (given, expected) in [
            // Nothing is rewritten.
            (vec![of("user", &[&a]), of("assistant", &[big])], None),
            // Only the message with a blank text is rewritten.
            (
                vec![
                    of("assistant", &[big]),
                    of("user", &[&a, &blank]),
                    of("assistant", &[big, &text(" ")]),
                ],
                Some(vec![
                    of("assistant", &[big]),
                    without("user", &[&a_marked]),
                    without("assistant", &[big]),
                ]),
            ),
            // A marker stays in place, and never moves to thinking.
            (
                vec![
                    of("user", &[&a_marked, &blank]),
                    of("assistant", &[thinking, &blank, &b]),
                ],
                Some(vec![
                    without("user", &[&a_marked]),
                    without("assistant", &[thinking, &b]),
                ]),
            ),
            (
                vec![of("user", &[&result(&format!("{a},{blank}"))])],
                Some(vec![without("user", &[&result(&a_marked)])]),
            ),
            // Settings of later answers, which need no content.
            (
                vec![
                    of("user", &[&a]),
                    of("assistant", &[&b]),
                    effort(r#","content":[]"#),
                    effort(""),
                    of("user", &[&a, &blank]),
                    effort(r#","content":" ""#),
                    r#"{"role":"system","content":[],"output_config":{}}"#.to_owned(),
                ],
                Some(vec![
                    of("user", &[&a]),
                    of("assistant", &[&b]),
                    effort(r#","content":[]"#),
                    effort(""),
                    without("user", &[&a_marked]),
                    effort(r#","content":[]"#),
                ]),
            ),
            // Settings are not joined with what they follow.
            (
                vec![
                    of("user", &[&a]),
                    of("system", &[&b]),
                    of("assistant", &[&blank]),
                    effort(""),
                    of("user", &[&a]),
                ],
                Some(vec![
                    of("user", &[&a]),
                    of("system", &[&b]),
                    effort(""),
                    of("user", &[&a]),
                ]),
            ),
            // Joined.
            (
                vec![
                    of("user", &[&a]),
                    of("assistant", &[&blank]),
                    r#"{"role":"user","content":"b"}"#.to_owned(),
                ],
                Some(vec![without("user", &[&a, &b])]),
            ),
        ] {
            let body = Bytes::from(format!(r#"{{"messages":[{}]}}"#, given.join(",")));
            let mut original = Original {
                members: Members::parse(&body).unwrap(),
                ..Original::default()
            };
            original.leave_out_blank_texts();
            let found = original.members.get("messages").unwrap();
            let expected = format!("[{}]", expected.unwrap_or(given).join(","));
            assert_eq!(String::from_utf8_lossy(found), expected);
        }
    }
}

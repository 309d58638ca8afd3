//! A body as it came, for a vendor that speaks its dialect.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

use crate::domain::{
    conversation::{ReplacedNames, Spelling, complete_schema},
    dialect::{
        messages::SEARCH,
        responses::{is_encrypted_by_openai as is_openai, referenced},
    },
    generation::Surface,
    json::Members,
    pricing::CacheWrites,
};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Original {
    pub members: Members,
    /// Headers that belong to it, by their names.
    pub headers: Vec<(&'static str, String)>,
    /// Cache writes that its cache markers allow.
    pub cache_writes: CacheWrites,
}

/// The items of an array; none of anything else.
fn items(value: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    value.and_then(Value::as_array_mut).into_iter().flatten()
}

/// What is read of a message, or of a block of its content.
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
    cache_control: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

/// A message whose content may have changed.
struct Edited<'a> {
    raw: &'a RawValue,
    role: Option<Cow<'a, str>>,
    before: Option<&'a RawValue>,
    /// The blocks that it has instead.
    content: Option<Vec<Cow<'a, RawValue>>>,
}

impl<'a> Edited<'a> {
    fn is_empty(&self) -> bool {
        if let Some(blocks) = &self.content {
            return blocks.is_empty();
        }
        self.before.is_some_and(|content| {
            let text = serde_json::from_str::<String>(content.get());
            let blocks = serde_json::from_str::<Vec<IgnoredAny>>(content.get());
            text.is_ok_and(|text| text.trim().is_empty())
                || blocks.is_ok_and(|blocks| blocks.is_empty())
        })
    }

    /// Takes its blocks.
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
        let block = to_raw_value(&Members::from(vec![
            ("type".to_owned(), Bytes::from_static(b"\"text\"")),
            (
                "text".to_owned(),
                Bytes::copy_from_slice(content.get().as_bytes()),
            ),
        ]));
        block.into_iter().map(Cow::Owned).collect()
    }
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

/// The blocks of a content with objects as the inputs of tool uses; `None` if all are objects.
fn with_objects<'a>(
    content: &'a RawValue,
    object: &impl Fn(String) -> Value,
) -> Option<Vec<Cow<'a, RawValue>>> {
    let blocks: Vec<&RawValue> = serde_json::from_str(content.get()).ok()?;
    let mut is_changed = false;
    let blocks = blocks.into_iter().map(|raw| {
        let block: Block<'_> = serde_json::from_str(raw.get()).unwrap_or_default();
        let input = block.input.map_or("null", RawValue::get);
        if block.kind.as_deref() != Some("tool_use") || input.starts_with('{') {
            return Cow::Borrowed(raw);
        }
        is_changed = true;
        let input = match serde_json::from_str(input) {
            Ok(Value::String(text)) => object(text),
            Ok(Value::Null) => json!({}),
            _ => object(input.to_owned()),
        };
        Cow::Owned(with_member(raw, "input", &input))
    });
    let blocks = blocks.collect();
    is_changed.then_some(blocks)
}

/// An object with another value of this member.
fn with_member(raw: &RawValue, name: &str, value: &impl Serialize) -> Box<RawValue> {
    let object = Members::parse(&Bytes::copy_from_slice(raw.get().as_bytes()));
    let edited = object.and_then(|mut members| {
        members.set(name, value);
        to_raw_value(&members)
    });
    edited.unwrap_or_else(|_| raw.to_owned())
}

/// Members of a chat that Responses has by the same name. They cost nothing.
pub const SHARED: [&str; 4] = ["metadata", "prompt_cache_key", "safety_identifier", "user"];
/// A member of a chat that Responses has in its `text`.
pub const VERBOSITY: &str = "verbosity";

impl Original {
    /// The members of a chat that a vendor is sent by Responses, too.
    pub fn shared(&self) -> Members {
        let mut shared = self.members.clone();
        shared.retain(|name, json| {
            (SHARED.contains(&name) || name == VERBOSITY) && &json[..] != b"null"
        });
        shared
    }

    fn edit(&mut self, name: &str, edit: impl FnOnce(&mut Value)) {
        let member = self.members.get(name);
        if let Some(mut value) = member.and_then(|json| serde_json::from_slice(json).ok()) {
            edit(&mut value);
            self.members.set(name, &value);
        }
    }

    /// Removes the members of a chat's calls that are for other vendors.
    pub fn leave_out_extra_content(&mut self) {
        self.edit("messages", |messages| {
            let messages = items(Some(messages));
            for call in messages.flat_map(|message| items(message.get_mut("tool_calls"))) {
                if let Value::Object(call) = call {
                    call.shift_remove("extra_content");
                }
            }
        });
    }

    /// Limits the web searches of a body without its own limit.
    pub fn bound_searches(&mut self, surface: Surface, most: u32) {
        if surface == Surface::OpenAiResponses {
            self.members.set("max_tool_calls", &most);
            return;
        }
        self.edit("tools", |tools| {
            for tool in items(Some(tools)) {
                if tool["type"] == SEARCH {
                    tool["max_uses"] = most.into();
                }
            }
        });
    }

    /// Removes the ids of items of earlier answers from a Responses body: `OpenAI` refuses encrypted
    /// reasoning under another id than its own.
    pub fn leave_out_own_ids(&mut self) {
        /// Reads the id only, and skips the other members, such as large images.
        #[derive(Deserialize)]
        struct Identified<'a> {
            #[serde(borrow)]
            id: Option<Cow<'a, str>>,
        }
        let input = self.members.get("input").cloned().unwrap_or_default();
        let Ok(items) = serde_json::from_slice::<Vec<&RawValue>>(&input) else {
            return;
        };
        let mut is_changed = false;
        let items = items.into_iter().map(|item| {
            let found = serde_json::from_str::<Identified<'_>>(item.get());
            let id = found.ok().and_then(|found| found.id);
            if id.as_deref().and_then(referenced).is_some()
                && let Ok(Value::Object(mut members)) = serde_json::from_str(item.get())
                && members.shift_remove("id").is_some()
                && let Ok(without) = to_raw_value(&members)
            {
                is_changed = true;
                Cow::Owned(without)
            } else {
                Cow::Borrowed(item)
            }
        });
        let items: Vec<Cow<'_, RawValue>> = items.collect();
        if is_changed {
            self.members.set("input", &items);
        }
    }

    /// Removes reasoning of a Responses body that `OpenAI` did not encrypt, and refuses.
    pub fn leave_out_foreign_reasoning(&mut self) {
        self.edit("input", |input| {
            if let Value::Array(items) = input {
                items.retain(|item| {
                    let content = item["encrypted_content"].as_str();
                    item["type"] != "reasoning" || content.is_some_and(is_openai)
                });
            }
        });
    }

    /// Removes members that are null, which vendors may refuse.
    pub fn leave_out_nulls(&mut self) {
        self.members.retain(|_, json| &json[..] != b"null");
    }

    /// Removes blank texts from the instructions and the messages of a Messages body, and messages
    /// without anything else. Messages of one role that follow each other then become one.
    pub fn leave_out_blank_texts(&mut self) {
        let system = self.members.get("system").cloned().unwrap_or_default();
        if let Ok(content) = serde_json::from_slice::<&RawValue>(&system) {
            let text = serde_json::from_str::<Cow<'_, str>>(content.get());
            match without_blanks(content) {
                Some(blocks) if blocks.is_empty() => self.members.remove("system"),
                Some(blocks) => self.members.set("system", &blocks),
                None if text.is_ok_and(|text| text.trim().is_empty()) => {
                    self.members.remove("system");
                }
                None => {}
            }
        }
        let messages = self.members.get("messages").cloned().unwrap_or_default();
        let Ok(messages) = serde_json::from_slice::<Vec<&RawValue>>(&messages) else {
            return;
        };
        let count = messages.len();
        let mut kept: Vec<Edited<'_>> = Vec::with_capacity(count);
        let mut is_joined = false;
        for raw in messages {
            let read: Block<'_> = serde_json::from_str(raw.get()).unwrap_or_default();
            let mut message = Edited {
                raw,
                role: read.role,
                content: read.content.and_then(without_blanks),
                before: read.content,
            };
            if message.is_empty() {
                is_joined = true;
                continue;
            }
            match kept.last_mut() {
                Some(last) if is_joined && last.role == message.role => {
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

    /// Makes objects of the inputs of earlier tool uses, as `object` makes them of a text.
    pub fn complete_inputs(&mut self, object: impl Fn(String) -> Value) {
        let messages = self.members.get("messages").cloned().unwrap_or_default();
        let Ok(messages) = serde_json::from_slice::<Vec<&RawValue>>(&messages) else {
            return;
        };
        let messages = messages.into_iter().map(|raw| {
            let read: Block<'_> = serde_json::from_str(raw.get()).unwrap_or_default();
            let blocks = read.content.and_then(|c| with_objects(c, &object));
            match blocks {
                Some(blocks) => Cow::Owned(with_member(raw, "content", &blocks)),
                None => Cow::Borrowed(raw),
            }
        });
        let messages: Vec<Cow<'_, RawValue>> = messages.collect();
        self.members.set("messages", &messages);
    }

    /// Removes an empty list of tools and the choice of one, which vendors refuse.
    pub fn leave_out_empty_tools(&mut self) {
        let tools = self.members.get("tools");
        let tools = tools.and_then(|json| serde_json::from_slice::<Vec<IgnoredAny>>(json).ok());
        if tools.is_some_and(|tools| !tools.is_empty()) {
            return;
        }
        for name in ["tools", "tool_choice", "parallel_tool_calls"] {
            self.members.remove(name);
        }
    }

    /// Adds the members that vendors require to the schemas of its tools.
    pub fn complete_schemas(&mut self, surface: Surface, combined: bool) {
        let schema = match surface {
            Surface::AnthropicMessages => "/input_schema",
            Surface::OpenAiResponses => "/parameters",
            _ => "/function/parameters",
        };
        self.edit("tools", |tools| {
            for tool in items(Some(tools)) {
                match tool.pointer_mut(schema) {
                    Some(Value::Object(schema)) => {
                        complete_schema(schema, combined);
                    }
                    Some(absent @ Value::Null) => {
                        *absent = json!({"type": "object", "properties": {}});
                    }
                    _ => {}
                }
            }
        });
    }

    /// Replaces these names, and the ids of calls that `ids` does not accept.
    pub fn respell(&mut self, surface: Surface, names: &ReplacedNames, ids: Spelling) {
        let name = |value: Option<&mut Value>| {
            if let Some(Value::String(name)) = value
                && let Some(replacement) = names.replacement(name)
            {
                replacement.clone_into(name);
            }
        };
        let id = |value: Option<&mut Value>| {
            if let Some(Value::String(id)) = value {
                *id = ids.spelled(id).into_owned();
            }
        };
        let function = match surface {
            Surface::AnthropicMessages | Surface::OpenAiResponses => "/name",
            _ => "/function/name",
        };
        self.edit("input", |input| {
            for item in items(Some(input)) {
                id(item.get_mut("call_id"));
                if item["type"] == "function_call" {
                    name(item.get_mut("name"));
                }
            }
        });
        self.edit("tools", |tools| {
            for tool in items(Some(tools)) {
                name(tool.pointer_mut(function));
            }
        });
        self.edit("tool_choice", |choice| name(choice.pointer_mut(function)));
        self.edit("messages", |messages| {
            for message in items(Some(messages)) {
                id(message.get_mut("tool_call_id"));
                for call in items(message.get_mut("tool_calls")) {
                    id(call.get_mut("id"));
                    name(call.pointer_mut(function));
                }
                for block in items(message.get_mut("content")) {
                    match block["type"].as_str() {
                        Some("tool_use") => {
                            id(block.get_mut("id"));
                            name(block.get_mut("name"));
                        }
                        Some("tool_result") => id(block.get_mut("tool_use_id")),
                        _ => {}
                    }
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::conversation::{Conversation, Function};

    const IDS: Spelling = Spelling {
        symbols: Some("_-"),
        max_chars: 64,
        starts_with_letter: false,
    };

    fn original(body: &Value) -> Original {
        let body = Bytes::from(body.to_string());
        Original {
            members: Members::parse(&body).unwrap(),
            ..Original::default()
        }
    }

    fn json(original: &Original) -> Value {
        serde_json::to_value(&original.members).unwrap()
    }

    fn replaced(name: &str) -> (ReplacedNames, String) {
        let mut conversation = Conversation::default();
        conversation.tools.functions = vec![Function {
            name: name.to_owned(),
            description: None,
            parameters: None,
            strict: None,
        }];
        let names = conversation.respell_names(IDS);
        (names, conversation.tools.functions[0].name.clone())
    }

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
    fn names_and_ids_are_replaced_where_they_stand() {
        let (names, spelled) = replaced("a.b");
        let call = IDS.spelled("f:0").into_owned();
        let chat = |name: &str, id: &str| {
            json!({
                "tools": [{"type": "function", "function": {"name": name}, "x": 1}],
                "tool_choice": {"type": "function", "function": {"name": name}},
                "messages": [
                    {"role": "user", "content": "a.b", "name": "a.b"},
                    {"role": "assistant", "content": null, "tool_calls": [
                        {"id": id, "function": {"name": name, "arguments": "{\"name\": \"a.b\"}"}}]},
                    {"role": "tool", "tool_call_id": id, "content": "f:0"},
                ]
            })
        };
        let mut given = original(&chat("a.b", "f:0"));
        given.respell(Surface::OpenAiChat, &names, IDS);
        assert_eq!(json(&given), chat(&spelled, &call));
        let messages = |name: &str, id: &str| {
            json!({
                "tools": [{"name": name, "input_schema": {"x": 1}}],
                "tool_choice": {"type": "tool", "name": name},
                "messages": [
                    {"role": "assistant", "content": [
                        {"type": "text", "text": "a.b", "cache_control": {"type": "ephemeral"}},
                        {"type": "tool_use", "id": id, "name": name,
                            "input": {"type": "tool_use", "name": "a.b", "id": "f:0"}}]},
                    {"role": "user", "content": [
                        {"type": "tool_result", "tool_use_id": id, "content": "f:0"}]},
                ]
            })
        };
        let mut given = original(&messages("a.b", "f:0"));
        given.respell(Surface::AnthropicMessages, &names, IDS);
        assert_eq!(json(&given), messages(&spelled, &call));
    }

    #[test]
    fn only_empty_lists_of_tools_are_left_out() {
        for tools in [json!([]), json!(null)] {
            let mut given = original(&json!({"tools": tools, "tool_choice": "none", "n": 1}));
            given.leave_out_empty_tools();
            assert_eq!(json(&given), json!({"n": 1}));
        }
        let body = json!({"tools": [{"type": "tool_search"}], "tool_choice": "auto"});
        let mut given = original(&body);
        given.leave_out_empty_tools();
        assert_eq!(json(&given), body);
    }

    #[test]
    fn schemas_are_completed_where_they_stand() {
        let empty = json!({"type": "object", "properties": {}});
        let chat =
            |schema: &Value| json!({"tools": [{"function": {"parameters": schema}}, {"x": 1}]});
        let mut given = original(&chat(&json!({})));
        given.complete_schemas(Surface::OpenAiChat, false);
        assert_eq!(json(&given), chat(&empty));
        let messages = |schema: &Value| json!({"tools": [{"input_schema": schema, "x": [1]}]});
        let mut given = original(&messages(&json!({"type": "object"})));
        given.complete_schemas(Surface::AnthropicMessages, false);
        assert_eq!(json(&given), messages(&empty));
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
        for (given, expected) in [
            // Nothing is written again.
            (vec![of("user", &[&a]), of("assistant", &[big])], None),
            // Only the message with a blank text.
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
            // A marker stays where it is, and there is none on thinking.
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

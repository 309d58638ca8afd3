//! A body as it came, for a vendor that speaks its dialect.

mod messages;

use std::borrow::Cow;

use bytes::Bytes;
use serde::de::IgnoredAny;
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

use crate::domain::{
    conversation::{ReasoningField, ReplacedNames, Spelling, complete_schema},
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

/// The items of a JSON array with some of them replaced. `None` if none is replaced, or `array` is
/// no array.
fn with_replaced<'a>(
    array: &'a [u8],
    replacement: impl Fn(&'a RawValue) -> Option<Box<RawValue>>,
) -> Option<Vec<Cow<'a, RawValue>>> {
    let items: Vec<&RawValue> = serde_json::from_slice(array).ok()?;
    let items = items
        .into_iter()
        .map(|item| replacement(item).map_or(Cow::Borrowed(item), Cow::Owned));
    let items: Vec<_> = items.collect();
    let is_changed = items.iter().any(|item| matches!(item, Cow::Owned(_)));
    is_changed.then_some(items)
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

    /// Edits the objects of a list. `edit` returns whether it changed one; the others keep their bytes.
    fn edit_items(&mut self, name: &str, edit: impl Fn(&mut Members) -> bool) {
        let list = self.members.get(name).cloned().unwrap_or_default();
        let items = with_replaced(&list, |item| {
            let mut members = Members::parse(&list.slice_ref(item.get().as_bytes())).ok()?;
            edit(&mut members).then(|| to_raw_value(&members).ok())?
        });
        if let Some(items) = items {
            self.members.set(name, &items);
        }
    }

    /// Removes members of a chat's messages that have no value, which some servers refuse by name,
    /// such as `refusal` of an earlier answer. A null content of calls with reasoning becomes empty,
    /// because `DeepSeek` refuses null there.
    pub fn leave_out_nulls_of_messages(&mut self) {
        let has_no_value = |name: &str, json: &Bytes| match &json[..] {
            b"null" => name != "content",
            b"[]" => name == "annotations",
            _ => false,
        };
        self.edit_items("messages", |message| {
            let is_shorter = message.iter().any(|(name, json)| has_no_value(name, json));
            message.retain(|name, json| !has_no_value(name, json));
            let content = message.get("content");
            let mut fields = ReasoningField::ALL.iter();
            let is_completed = content.is_some_and(|content| &content[..] == b"null")
                && message.get("tool_calls").is_some()
                && fields.any(|field| message.get(field.as_str()).is_some());
            if is_completed {
                message.set("content", &"");
            }
            is_shorter || is_completed
        });
    }

    /// Gives messages of the role `developer` the role `system`.
    pub fn rename_developer(&mut self) {
        for list in ["messages", "input"] {
            self.edit_items(list, |message| {
                let kind = message.get("type");
                let is_message = kind.is_none_or(|kind| &kind[..] == br#""message""#);
                let role = message.get("role").filter(|_| is_message);
                let is_developer = role.is_some_and(|role| &role[..] == br#""developer""#);
                if is_developer {
                    message.set("role", &"system");
                }
                is_developer
            });
        }
    }

    /// Removes the ids of items of earlier answers from a Responses body: `OpenAI` refuses encrypted
    /// reasoning under another id than its own.
    pub fn leave_out_own_ids(&mut self) {
        self.edit_items("input", |item| {
            let id = item.get("id");
            let id = id.and_then(|json| serde_json::from_slice::<String>(json).ok());
            let is_own = id.as_deref().and_then(referenced).is_some();
            if is_own {
                item.remove("id");
            }
            is_own
        });
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
    fn members_of_messages_without_a_value_are_left_out() {
        let message = |more: &str| {
            format!(r#"{{"role":"assistant","content":null{more},"tool_calls":[{{"x":null}}]}}"#)
        };
        let body = |message: &str| {
            format!(r#"{{"messages":[{{"role":"user", "content":"x","name":"y"}},{message}]}}"#)
        };
        let nulls = r#","refusal":null,"audio":null,"annotations":[]"#;
        let reasoning = message(r#","reasoning_content":"x""#);
        let completed = reasoning.replace("\"content\":null", "\"content\":\"\"");
        for (given, expected) in [
            (message(nulls), message("")),
            (message(""), message("")),
            (reasoning, completed),
        ] {
            let given = Bytes::from(body(&given));
            let mut given = Original {
                members: Members::parse(&given).unwrap(),
                ..Original::default()
            };
            given.leave_out_nulls_of_messages();
            let found = serde_json::to_string(&given.members).unwrap();
            assert_eq!(found, body(&expected));
        }
    }

    #[test]
    fn only_messages_of_the_role_developer_are_renamed() {
        let renamed = |body: &str| {
            let mut given = Original {
                members: Members::parse(&Bytes::copy_from_slice(body.as_bytes())).unwrap(),
                ..Original::default()
            };
            given.rename_developer();
            serde_json::to_string(&given.members).unwrap()
        };
        let other = r#"{"content":"developer", "role":"user"},{"type":"additional_tools","role":"developer"}"#;
        let list = |role: &str| {
            format!(r#"{{"messages":[{{"content":[1.0],"role":"{role}"}},{other}],"input":"x"}}"#)
        };
        assert_eq!(renamed(&list("developer")), list("system"));
        assert_eq!(renamed(&list("user")), list("user"));
        let body = r#"{"input":[ {"role":"developer","type":"message"} ]}"#;
        assert_eq!(
            renamed(body),
            r#"{"input":[{"role":"system","type":"message"}]}"#
        );
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
}

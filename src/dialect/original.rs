//! Edits of an original body, for a vendor that speaks its dialect.

mod items;
mod messages;

use std::{borrow::Cow, sync::Arc};

use serde::de::IgnoredAny;
use serde_json::{Value, json, value::RawValue};

pub(super) use items::has_empty_members;

use super::{messages::SEARCH, responses::is_encrypted_by_openai as is_openai};
use crate::{
    domain::{
        conversation::{Part, ReplacedNames, Spelling, complete_schema},
        generation::Surface,
        json::Members,
    },
    request::{DialogueRequest, Original},
};

/// Returns the items of an array; none for other values.
fn items(value: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    value.and_then(Value::as_array_mut).into_iter().flatten()
}

/// Replaces some items of a JSON array. Returns `None` if it replaced none, or for other JSON.
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

/// Members of a chat that Responses has under the same name. They cost nothing.
pub const SHARED: [&str; 4] = ["metadata", "prompt_cache_key", "safety_identifier", "user"];
/// A member of a chat that is inside `text` in Responses.
pub const VERBOSITY: &str = "verbosity";
/// A member of a chat that Responses has in another form, if it limits the tools.
pub const TOOL_CHOICE: &str = "tool_choice";
/// Members of a chat and of a Messages body that Gemini has, too.
pub const SEED: &str = "seed";
pub const TOP_K: &str = "top_k";
/// A member of a Messages body with this server's id of an earlier message. No vendor gets it.
pub const DIAGNOSTICS: &str = "diagnostics";

impl Original {
    /// Returns the members with these names, for a vendor of another dialect.
    pub fn shared(&self, names: &[&str]) -> Members {
        let mut shared = self.members.clone();
        shared.retain(|name, json| names.contains(&name) && &json[..] != b"null");
        shared
    }

    fn edit(&mut self, name: &str, edit: impl FnOnce(&mut Value)) {
        let member = self.members.get(name);
        if let Some(mut value) = member.and_then(|json| serde_json::from_slice(json).ok()) {
            edit(&mut value);
            self.members.set(name, &value);
        }
    }

    /// Removes members of a chat's calls that are for other vendors.
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

    /// Limits the web searches of a body that has no limit.
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

    /// Removes reasoning that `OpenAI` did not encrypt, which it refuses, from a Responses body.
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

    /// Removes an empty list of tools and the tool choice, which vendors refuse.
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

    /// Adds the members that vendors require to its tools' schemas.
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

    /// Replaces these names, and ids of calls that `ids` does not accept.
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
        let places: &[_] = match surface {
            Surface::AnthropicMessages | Surface::OpenAiResponses => &["/name"],
            _ => &["/function/name", "/custom/name"],
        };
        let of_tool = |tool: &mut Value| {
            for place in places {
                name(tool.pointer_mut(place));
            }
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
            items(Some(tools)).for_each(of_tool);
        });
        self.edit("tool_choice", of_tool);
        self.edit("messages", |messages| {
            for message in items(Some(messages)) {
                id(message.get_mut("tool_call_id"));
                for call in items(message.get_mut("tool_calls")) {
                    id(call.get_mut("id"));
                    of_tool(call);
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

impl DialogueRequest {
    /// Leaves out the signatures of Gemini's thoughts, which other vendors refuse.
    pub fn leave_out_thought_signatures(&mut self) {
        if !self.conversation.parts().any(Part::has_thought_signature) {
            return;
        }
        let messages = &mut Arc::make_mut(&mut self.conversation).messages;
        for part in messages.iter_mut().flat_map(|message| &mut message.parts) {
            if let Part::ToolCall(call) = part {
                call.thought_signature = None;
            }
        }
        if let Some(original) = &mut self.original {
            original.leave_out_extra_content();
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
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

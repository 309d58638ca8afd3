//! What a dialogue becomes for a vendor of another dialect, which refuses what the caller's accepts.

use serde_json::{Map, Value, json};

use super::TextModel;
use crate::domain::{
    conversation::{Conversation, Json, Message, Part, ReplacedNames, Role, ToolCall, ToolChoice},
    request::DialogueRequest,
};

/// The member that arguments of earlier calls are sent in if they are no JSON object.
const TRUNCATED: &str = "_truncated";
/// Members of a schema whose values are data, not schemas.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

impl TextModel {
    /// Changes a dialogue that is not passed through, in ways that lose nothing: names and ids are
    /// respelled, schemas completed, empty texts left out. Returns the replaced names.
    pub fn translate(&self, request: &mut DialogueRequest) -> ReplacedNames {
        if self.passes(request) {
            return ReplacedNames::default();
        }
        let conversation = &mut request.conversation;
        self.leave_out_parts(&mut conversation.messages);
        if self.dialogue.alternating_roles {
            merge(&mut conversation.messages);
        }
        for part in conversation.messages.iter_mut().flat_map(|m| &mut m.parts) {
            if let Part::ToolCall(call) = part {
                self.complete_arguments(call);
            }
        }
        complete_tools(conversation);
        conversation.respell_ids(self.dialogue.ids);
        conversation.respell_names(self.dialogue.names)
    }

    /// Leaves out texts that the vendor refuses as empty, thinking that it does not take back, and
    /// messages without anything else.
    fn leave_out_parts(&self, messages: &mut Vec<Message>) {
        let can = self.dialogue;
        let is_said = |part: &Part| match part {
            Part::Text { text } if can.blank_texts => !text.is_empty(),
            Part::Text { text } => !text.trim().is_empty(),
            part if part.reasoning_field().is_some() => can.reasoning_fields,
            Part::Thinking { .. } => can.thinking && !part.is_unsigned_thinking(),
            Part::Redacted { .. } => can.thinking,
            _ => true,
        };
        for message in &mut *messages {
            for part in &mut message.parts {
                if let Part::ToolResult(result) = part {
                    result.parts.retain(is_said);
                }
            }
            message.parts.retain(is_said);
        }
        messages.retain(|message| !message.parts.is_empty());
    }

    /// A model may have been cut off while it wrote them.
    fn complete_arguments(&self, call: &mut ToolCall) {
        if call.arguments.trim().is_empty() {
            "{}".clone_into(&mut call.arguments);
        } else if !self.dialogue.free_arguments && call.object().is_none() {
            call.arguments = json!({ TRUNCATED: call.arguments }).to_string();
        }
    }
}

/// Makes one message of those of one role that follow each other, with results of tools first.
fn merge(messages: &mut Vec<Message>) {
    let mut merged: Vec<Message> = Vec::new();
    for message in messages.drain(..) {
        match merged.last_mut() {
            Some(last) if last.role == message.role && message.role != Role::System => {
                last.parts.extend(message.parts);
            }
            _ => merged.push(message),
        }
    }
    for message in &mut merged {
        let parts = &mut message.parts;
        parts
            .sort_by_key(|part| message.role == Role::User && !matches!(part, Part::ToolResult(_)));
    }
    *messages = merged;
}

fn complete_tools(conversation: &mut Conversation) {
    let tools = &mut conversation.tools;
    if tools.functions.is_empty() {
        tools.choice = ToolChoice::Auto;
        tools.one_at_a_time = false;
    }
    for function in &mut tools.functions {
        if let Some(schema) = &mut function.parameters
            && let Some(completed) = completed(schema)
        {
            *schema = completed;
        }
    }
}

/// A schema of arguments with the members that vendors require; `None` if it has them.
fn completed(schema: &Json) -> Option<Json> {
    let Value::Object(mut members) = schema.value() else {
        return None;
    };
    let mut changed = false;
    // Arguments are an object in any case.
    let is_object = |kind: &Value| {
        let mut kinds = kind.as_array().into_iter().flatten();
        kind.is_null() || kinds.any(|kind| kind == "object")
    };
    if members.get("type").is_none_or(is_object) {
        members.insert("type".to_owned(), json!("object"));
        changed = true;
    }
    if members["type"] == "object" && members.get("properties").is_none_or(Value::is_null) {
        members.insert("properties".to_owned(), json!({}));
        changed = true;
    }
    changed |= complete_arrays(&mut members);
    changed.then(|| Json::from(&Value::Object(members)))
}

/// Adds `items` to the arrays without any; returns whether there were some.
fn complete_arrays(members: &mut Map<String, Value>) -> bool {
    let is_array = match members.get("type") {
        Some(Value::String(kind)) => kind == "array",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "array"),
        _ => false,
    };
    let mut changed = false;
    if is_array
        && !["items", "prefixItems"]
            .iter()
            .any(|name| members.contains_key(*name))
    {
        members.insert("items".to_owned(), json!({}));
        changed = true;
    }
    for (name, value) in members.iter_mut() {
        if DATA.contains(&name.as_str()) {
            continue;
        }
        match value {
            Value::Object(members) => changed |= complete_arrays(members),
            Value::Array(items) => {
                for item in items.iter_mut().filter_map(Value::as_object_mut) {
                    changed |= complete_arrays(item);
                }
            }
            _ => {}
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_get_what_vendors_require() {
        for (given, expected) in [
            (json!({}), Some(json!({"type": "object", "properties": {}}))),
            (
                json!({"type": "object"}),
                Some(json!({"type": "object", "properties": {}})),
            ),
            (
                json!({"properties": {"a": {"type": "array"}}}),
                Some(
                    json!({"properties": {"a": {"type": "array", "items": {}}}, "type": "object"}),
                ),
            ),
            (
                json!({"type": null, "properties": null}),
                Some(json!({"type": "object", "properties": {}})),
            ),
            (
                json!({"type": ["object", "null"], "properties": {"b": {}}}),
                Some(json!({"type": "object", "properties": {"b": {}}})),
            ),
            (
                json!({"type": "object", "properties": {"type": {"type": "string"},
                    "a": {"enum": [{"type": "array"}]}}, "default": {"type": "array"}}),
                None,
            ),
            (
                json!({"type": "object", "properties": {"a": {"anyOf": [
                    {"type": ["array", "null"]}, {"type": "array", "items": {"type": "string"}}]}}}),
                Some(json!({"type": "object", "properties": {"a": {"anyOf": [
                    {"type": ["array", "null"], "items": {}},
                    {"type": "array", "items": {"type": "string"}}]}}})),
            ),
        ] {
            let found = completed(&Json::from(&given)).map(|json| json.value());
            assert_eq!(found, expected, "{given}");
        }
    }

    #[test]
    fn results_come_first_in_a_merged_message() {
        let call = ToolCall::default();
        let result = Part::ToolResult(crate::domain::conversation::ToolResult {
            call_id: "c".to_owned(),
            parts: Vec::new(),
            is_error: false,
        });
        let mut messages = vec![
            Message::text(Role::User, "a"),
            Message::text(Role::User, "b"),
            Message {
                role: Role::Assistant,
                parts: vec![Part::text("calling"), Part::ToolCall(call)],
            },
            Message::text(Role::User, "c"),
            Message {
                role: Role::User,
                parts: vec![result.clone()],
            },
        ];
        merge(&mut messages);
        let texts = |at: usize| crate::domain::conversation::texts(&messages[at].parts, "|");
        assert_eq!(
            (messages.len(), texts(0), texts(1)),
            (3, "a|b".to_owned(), "calling".to_owned())
        );
        assert_eq!(messages[2].parts, [result, Part::text("c")]);
    }
}

//! Edits messages and items of a body that its vendor would refuse. The others keep their bytes.

use bytes::Bytes;
use memchr::memmem::find;
use serde_json::{Map, Value, value::to_raw_value};

use super::with_replaced;
use crate::{
    dialect::responses::referenced,
    domain::{conversation::ReasoningField, json::Members},
    request::Original,
};

impl Original {
    /// Edits the objects of a list. `edit` returns whether it changed one; others keep their bytes.
    fn edit_items(&mut self, name: &str, edit: impl Fn(&mut Members) -> bool) {
        let list = self.members.get(name).cloned().unwrap_or_default();
        let items = with_replaced(&list, |item| {
            let mut members = Members::parse(&list.slice_ref(item.get().as_bytes())).ok()?;
            edit(&mut members).then(|| to_raw_value(&members).ok())?
        });
        if let Some(items) = items {
            self.members.copy_all_but(name);
            self.members.set(name, &items);
        }
    }

    /// Removes members without a value from a chat's messages, such as `refusal` of an earlier
    /// answer: some servers refuse them by name. A null content of calls with reasoning becomes
    /// empty, because `DeepSeek` refuses null there.
    pub fn leave_out_empty_members(&mut self) {
        if !self.has_empty_members {
            return;
        }
        let has_no_value =
            |name: &str, json: &Bytes| has_no_value(name, &json[..] == b"null", &json[..] == b"[]");
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

    /// Changes the role `developer` of messages to `system`.
    pub fn rename_developer(&mut self) {
        for list in ["messages", "input"] {
            // Most bodies do not have this role and need not be parsed again.
            let json = self.members.get(list);
            if json.is_none_or(|json| find(json, b"\"developer\"").is_none()) {
                continue;
            }
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

    /// Removes the ids of earlier answers' items from a Responses body: `OpenAI` refuses encrypted
    /// reasoning under any id but its own.
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
}

/// Whether [`Original::leave_out_empty_members`] may change the body.
pub fn has_empty_members(body: &Map<String, Value>) -> bool {
    let messages = body.get("messages").and_then(Value::as_array);
    let messages = messages.into_iter().flatten().filter_map(Value::as_object);
    messages.flatten().any(|(name, value)| {
        let is_empty = value.as_array().is_some_and(Vec::is_empty);
        has_no_value(name, value.is_null(), is_empty) || ReasoningField::parse(name).is_some()
    })
}

/// Whether a member of a message has no value. `is_empty`: it is an empty list.
fn has_no_value(name: &str, is_null: bool, is_empty: bool) -> bool {
    is_null && name != "content" || is_empty && name == "annotations"
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let values = serde_json::from_slice(&given).unwrap();
            let mut given = Original {
                members: Members::parse(&given).unwrap(),
                has_empty_members: has_empty_members(&values),
                ..Original::default()
            };
            given.leave_out_empty_members();
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
}

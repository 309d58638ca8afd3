//! Counts of tokens and bytes, and the last user text.

use serde_json::json;

use super::*;

#[test]
fn every_string_that_the_model_sees_is_counted() {
    let mut conversation = Conversation::from_prompt("é".to_owned(), None);
    assert_eq!(conversation.bytes(), 2);
    conversation.system = Some("be brief".to_owned());
    conversation
        .messages
        .push(Message::text(Role::Assistant, "Hello"));
    let parts = ["you", "!"].map(Part::text);
    conversation.messages.push(Message {
        role: Role::User,
        parts: parts.into(),
    });
    assert_eq!(conversation.bytes(), 2 + 8 + 5 + 3 + 1);
    assert_eq!(conversation.most_tokens(), 19 + 5 * 8);
    conversation.tools.functions.push(Function {
        name: "get".to_owned(),
        description: Some("Gets it.".to_owned()),
        parameters: json!({"type": "object"}).as_object().map(Parameters::of),
        strict: Some(true),
    });
    assert_eq!(conversation.bytes(), 19 + 3 + 8 + 17);
    assert_eq!(conversation.most_tokens(), 47 + 5 * 8 + 16 + 1_000);
}

#[test]
fn the_last_user_message_need_not_be_the_last() {
    let mut conversation = Conversation::from_prompt("first".to_owned(), None);
    assert_eq!(conversation.last_user_text(), "first");
    let parts = ["second", "third"].map(Part::text);
    let result = ToolResult {
        call_id: "c".to_owned(),
        parts: vec![Part::text("result")],
        is_error: false,
    };
    conversation.messages.extend([
        Message::text(Role::Assistant, "answer"),
        Message {
            role: Role::User,
            parts: parts.into(),
        },
        Message::text(Role::Assistant, "prefix of the answer"),
        Message {
            role: Role::User,
            parts: vec![Part::ToolResult(result)],
        },
    ]);
    assert_eq!(conversation.last_user_text(), "second\nthird");
}

#[test]
fn json_keeps_the_order_of_its_members() {
    let text = r#"{"b": 1, "a": {"z": [1.0, 2e3]}}"#;
    let json = Json::parse(text).unwrap();
    assert_eq!(serde_json::to_string(&json).unwrap(), text);
    assert!(Json::parse("{").is_none());
}

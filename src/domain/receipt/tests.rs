//! Which dialogues share a prefix, and how a count bounds the next turn.

use serde_json::json;

use super::*;

fn keys(body: &Value) -> Vec<Uuid> {
    let members = body.as_object().unwrap();
    let prefixes = Prefixes::of(Surface::AnthropicMessages, members, &[]);
    prefixes.map_or_else(Vec::new, |prefixes| prefixes.keys(&"scope"))
}

/// A dialogue of a user, who begins it, and a model.
fn said(texts: &[&str]) -> Value {
    let roles = ["user", "assistant"].into_iter().cycle();
    let messages = texts
        .iter()
        .zip(roles)
        .map(|(text, role)| json!({"role": role, "content": text}));
    json!({"model": "m", "messages": messages.collect::<Vec<_>>()})
}

#[test]
fn a_dialogue_has_the_keys_of_its_beginnings() {
    let (one, three) = (keys(&said(&["a"])), keys(&said(&["a", "b", "c"])));
    assert_eq!((one.len(), three.len()), (1, 2));
    assert_eq!(three[1..], one);
    let five = keys(&said(&["a", "b", "c", "d", "e"]));
    assert_eq!(five[1..], three);
    // The place of a message matters.
    assert_ne!(three[0], keys(&said(&["a", "bc", ""]))[0]);
    let whole = Prefixes::of(
        Surface::AnthropicMessages,
        said(&["a"]).as_object().unwrap(),
        &[],
    );
    assert_ne!(whole.unwrap().keys(&"another"), one);
    assert!(keys(&json!({"model": "m"})).is_empty());
    let mut truncated = said(&["a"]);
    truncated["truncation"] = json!("auto");
    assert!(keys(&truncated).is_empty());
}

#[test]
fn a_turn_ends_before_what_the_model_wrote() {
    let beginnings = |surface, list: &str, messages: Value| {
        let body = json!({ list: messages });
        let prefixes = Prefixes::of(surface, body.as_object().unwrap(), &[]);
        prefixes.unwrap().digests.len()
    };
    let role = |role: &str| json!({"role": role, "content": "x"});
    let chat = ["system", "user", "user", "assistant", "tool", "tool"].map(role);
    assert_eq!(beginnings(Surface::OpenAiChat, "messages", json!(chat)), 2);
    let item = |kind: &str| json!({"type": kind});
    let items = [
        role("user"),
        item("function_call"),
        item("function_call_output"),
        item("custom_tool_call_output"),
        item("reasoning"),
    ];
    assert_eq!(
        beginnings(Surface::OpenAiResponses, "input", json!(items)),
        3
    );
    assert_eq!(beginnings(Surface::OpenAiResponses, "input", json!("x")), 1);
}

#[test]
fn only_lines_for_billing_are_not_digested() {
    let of = |system: Value| {
        let mut body = said(&["a"]);
        body["system"] = system;
        body
    };
    let text = |text: &str| json!({"type": "text", "text": text});
    let line = "x-anthropic-billing-header: cch=1;";
    let plain = keys(&of(json!([text("b")])));
    for system in [
        json!([text(line), text("b")]),
        json!([text("x-anthropic-billing-header: cch=22;"), text("b")]),
        json!([text(&format!("{line}\n\nb"))]),
        json!(format!("{line}\nb")),
        json!("b"),
    ] {
        assert_eq!(keys(&of(system.clone())), plain, "{system}");
    }
    for system in [
        json!([text("x-anthropic-billing: cch=1;"), text("b")]),
        json!([text(&format!("a {line}")), text("b")]),
        json!([{"type": "text", "text": line, "x": 1}, text("b")]),
        json!([text(line), text("c")]),
    ] {
        assert_ne!(keys(&of(system.clone())), plain, "{system}");
    }
    let body = of(json!([text(line), text("b")]));
    let members = body.as_object().unwrap();
    let prefixes = Prefixes::of(Surface::AnthropicMessages, members, &[]);
    assert_eq!(prefixes.unwrap().undigested, line.len());
}

#[test]
fn the_last_beginnings_are_looked_for() {
    let texts: Vec<String> = (0..=2 * LOOKED_FOR).map(|n| n.to_string()).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let all = keys(&said(&texts));
    assert_eq!(all.len(), LOOKED_FOR);
    let earlier = keys(&said(&texts[..2 * LOOKED_FOR - 1]));
    assert_eq!(all[1..], earlier[..LOOKED_FOR - 1]);
}

#[test]
fn a_mark_of_the_cache_is_none_within_arguments() {
    let body = |input: Value, marked: bool| {
        let mut call = json!({"type": "tool_use", "id": "1", "name": "f", "input": input});
        if marked {
            call[MARKER] = json!({"type": "ephemeral"});
        }
        json!({"messages": [{"role": "assistant", "content": [call]}]})
    };
    let plain = keys(&body(json!({}), false));
    assert_eq!(keys(&body(json!({}), true)), plain);
    assert_ne!(keys(&body(json!({MARKER: 1}), false)), plain);
    let nested = |kind: &str, block: Value| json!({"messages": [{"role": "user", "content": [{"type": kind, "content": [block]}]}]});
    let marked = json!({"type": "text", "text": "x", MARKER: {}});
    let text = json!({"type": "text", "text": "x"});
    for (kind, alike) in [("tool_result", true), ("other", false)] {
        let one = keys(&nested(kind, marked.clone()));
        assert_eq!(one == keys(&nested(kind, text.clone())), alike, "{kind}");
    }
}

#[test]
fn a_mark_of_the_cache_says_nothing() {
    for (value, alike) in [
        (json!(null), true),
        (json!({"type": "ephemeral", "ttl": "1h"}), true),
        (json!({"type": "ephemeral", "scope": "global"}), true),
        (json!({"type": "a text that a template may print"}), false),
        (json!({"text": "x"}), false),
        (json!("x"), false),
    ] {
        assert_eq!(is_unread("tools[0].", MARKER, &value), alike, "{value}");
        let tool = json!({"messages": ["x"], "tools": [{"name": "f", MARKER: value}]});
        let plain = json!({"messages": ["x"], "tools": [{"name": "f"}]});
        assert_eq!(keys(&tool) == keys(&plain), alike, "{value}");
    }
}

#[test]
fn what_is_not_digested_is_not_counted() {
    let text = json!("x");
    assert!(is_unread("", "stream_options", &text));
    assert!(is_unread("stream_options.", "x", &text));
    assert!(!is_unread("tools[0].", "stop", &text));
    assert!(!is_unread("", "stop.x", &text));
}

#[test]
fn a_count_bounds_what_begins_so() {
    let receipt = Receipt {
        bound: 20_000,
        tokens: 6_400,
    };
    assert_eq!(receipt.most(20_000), 6_400 + 100 + 256);
    assert_eq!(receipt.most(21_000), 7_400 + 100 + 256);
    // Never above the bytes, and no receipt for a dialogue with fewer.
    let dense = Receipt {
        tokens: 19_999,
        ..receipt
    };
    assert_eq!(dense.most(20_000), 20_000);
    assert_eq!(receipt.most(19_999), 19_999);
    let absurd = Receipt {
        tokens: u64::MAX,
        ..receipt
    };
    assert_eq!(absurd.most(30_000), 30_000);
}

//! Valid texts in the formats of Chat Completions and Messages. Streams are lists of events.

use serde_json::{Value, json};

/// A text in two pieces.
pub fn halves(text: &str) -> (&str, &str) {
    let middle = text.chars().count() / 2;
    let at = text.char_indices().nth(middle);
    text.split_at(at.map_or(text.len(), |(at, _)| at))
}

/// A response of Chat Completions.
pub fn chat(model: &str, text: &str, usage: &Value) -> Value {
    json!({"id": "c-1", "object": "chat.completion", "model": model,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text},
            "finish_reason": "stop"}],
        "usage": usage})
}

/// The same as a stream.
pub fn chat_events(text: &str, usage: &Value) -> Vec<String> {
    let chunk = |delta: Value, finish: Value| {
        let chunk = json!({"id": "c-1", "object": "chat.completion.chunk", "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": null});
        format!("data: {chunk}\n\n")
    };
    let (first, second) = halves(text);
    let last = json!({"id": "c-1", "choices": [], "usage": usage});
    vec![
        chunk(json!({"role": "assistant", "content": first}), Value::Null),
        chunk(json!({"content": second}), Value::Null),
        chunk(json!({}), json!("stop")),
        format!("data: {last}\n\n"),
        "data: [DONE]\n\n".to_owned(),
    ]
}

/// A response of Messages.
pub fn message(model: &str, content: &[Value], usage: &Value) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": model,
        "content": content, "stop_reason": "end_turn", "usage": usage})
}

/// The same as a stream. `begun`: the token counts of its first event.
pub fn message_events(content: &[Value], begun: &Value, usage: &Value) -> Vec<String> {
    let event = |value: Value| {
        let name = value["type"].as_str().unwrap();
        format!("event: {name}\ndata: {value}\n\n")
    };
    let mut events = vec![event(
        json!({"type": "message_start", "message": {"id": "msg_1", "type": "message",
            "role": "assistant", "model": "m", "content": [], "usage": begun}}),
    )];
    for (index, block) in content.iter().enumerate() {
        let (mut start, mut pieces) = (block.clone(), Vec::new());
        if let Some(text) = block["text"].as_str() {
            start["text"] = json!("");
            let (first, second) = halves(text);
            pieces.extend([first, second]);
        }
        events.push(event(
            json!({"type": "content_block_start", "index": index, "content_block": start}),
        ));
        events.extend(pieces.iter().map(|text| {
            event(json!({"type": "content_block_delta", "index": index,
                "delta": {"type": "text_delta", "text": text}}))
        }));
        events.push(event(json!({"type": "content_block_stop", "index": index})));
    }
    let delta = json!({"stop_reason": "end_turn"});
    events.extend([
        event(json!({"type": "message_delta", "delta": delta, "usage": usage})),
        event(json!({"type": "message_stop"})),
    ]);
    events
}

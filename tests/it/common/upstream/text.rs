//! Valid text responses in the vendors' formats.

use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use crate::texts::{chat, chat_events, halves, message, message_events};

/// The body of a valid text response in the format of the path.
pub fn body(path: &str, streamed: bool, text: &str, input: i64, output: i64) -> String {
    if path.starts_with("/anthropic") {
        anthropic(streamed, text, input, output)
    } else if path.starts_with("/gemini") {
        gemini(streamed, text, input, output)
    } else if path.ends_with("/responses") {
        responses(streamed, text, input, output)
    } else {
        openai(streamed, text, input, output)
    }
}

/// A valid text response in the format of the path.
pub fn good(path: &str, streamed: bool, text: &str, input: i64, output: i64) -> Response {
    let body = body(path, streamed, text, input, output);
    let content_type = if streamed {
        "text/event-stream"
    } else {
        "application/json"
    };
    (
        [("content-type", content_type), ("x-request-id", "req_up")],
        body,
    )
        .into_response()
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn openai(streamed: bool, text: &str, input: i64, output: i64) -> String {
    let total = input + output;
    let usage = json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": total});
    if streamed {
        chat_events(text, &usage).concat()
    } else {
        chat("m", text, &usage).to_string()
    }
}

fn anthropic(streamed: bool, text: &str, input: i64, output: i64) -> String {
    let content = [json!({"type": "text", "text": text})];
    let usage = json!({"input_tokens": input, "output_tokens": output});
    if streamed {
        let begun = json!({"input_tokens": input, "output_tokens": 1});
        message_events(&content, &begun, &usage).concat()
    } else {
        message("m", &content, &usage).to_string()
    }
}

fn gemini(streamed: bool, text: &str, input: i64, output: i64) -> String {
    let answer = |text: &str, finish: Value| {
        json!({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]},
                "finishReason": finish, "index": 0}],
            "usageMetadata": {"promptTokenCount": input, "candidatesTokenCount": output,
                "totalTokenCount": input + output},
            "modelVersion": "m", "responseId": "r-1"})
    };
    if !streamed {
        return answer(text, json!("STOP")).to_string();
    }
    let (first, second) = halves(text);
    data(&answer(first, Value::Null)) + &data(&answer(second, json!("STOP")))
}

fn responses(streamed: bool, text: &str, input: i64, output: i64) -> String {
    let content = json!([{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]);
    let usage = json!({"input_tokens": input, "output_tokens": output, "total_tokens": input + output,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0}});
    let item = |status: &str, content: &Value| {
        json!({"id": "msg_1", "type": "message", "role": "assistant", "status": status,
            "content": content})
    };
    let all = [item("completed", &content)];
    if !streamed {
        return response("completed", &all, &usage).to_string();
    }
    let (first, second) = halves(text);
    let none = json!([]);
    let begun = response("in_progress", &[], &Value::Null);
    let part = json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []});
    let within = |more: Value| {
        let mut event = json!({"item_id": "msg_1", "output_index": 0, "content_index": 0});
        event
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        event
    };
    let delta = |delta: &str| within(json!({"delta": delta, "logprobs": []}));
    response_events(&[
        ("created", json!({ "response": begun })),
        ("in_progress", json!({ "response": begun })),
        (
            "output_item.added",
            json!({"output_index": 0, "item": item("in_progress", &none)}),
        ),
        ("content_part.added", within(json!({ "part": part }))),
        ("output_text.delta", delta(first)),
        ("output_text.delta", delta(second)),
        (
            "output_text.done",
            within(json!({"text": text, "logprobs": []})),
        ),
        ("content_part.done", within(json!({"part": content[0]}))),
        (
            "output_item.done",
            json!({"output_index": 0, "item": all[0]}),
        ),
        (
            "completed",
            json!({"response": response("completed", &all, &usage)}),
        ),
    ])
}

/// A response of OpenAI's Responses API.
pub fn response(status: &str, output: &[Value], usage: &Value) -> Value {
    json!({"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": status,
        "error": null, "incomplete_details": null, "instructions": null, "metadata": {},
        "parallel_tool_calls": true, "tool_choice": "auto", "tools": [], "output": output,
        "usage": usage})
}

/// The stream of these events, whose names lack `response.`.
pub fn response_events(events: &[(&str, Value)]) -> String {
    let events = events.iter().enumerate().map(|(at, (name, body))| {
        let mut event = json!({"type": format!("response.{name}"), "sequence_number": at});
        event
            .as_object_mut()
            .unwrap()
            .extend(body.as_object().unwrap().clone());
        format!("event: response.{name}\n{}", data(&event))
    });
    events.collect()
}

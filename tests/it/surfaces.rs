//! /openai and /anthropic: what the unchanged SDKs send and read.

mod bodies;
mod breakers;
mod choices;
mod delivered;
mod documents;
mod edits;
mod failures;
mod matrix;
pub mod media;
mod memory;
mod nulls;
mod openai_responses;
mod passed;
mod pictures;
mod receipts;
mod searches;
mod streams;
mod texts;
mod translated;
mod upstreams;
mod vendors;

use http::Method;
use serde_json::{Value, json};

use crate::common::{Account, Answer, TestApp};

pub const CHAT: &str = "/openai/v1/chat/completions";
pub const RESPONSES: &str = "/openai/v1/responses";
pub const MESSAGES: &str = "/anthropic/v1/messages";
pub const ROUTES: [&str; 2] = [CHAT, MESSAGES];

/// A text model of each vendor.
pub const MODELS: [&str; 4] = [
    "sandbox/sandbox-text-1",
    "openai/gpt-6-luna",
    "anthropic/claude-haiku-5-5",
    "gemini/gemini-3.5-flash-lite",
];

/// The smallest body that both routes take.
pub fn ask(model: &str, text: &str) -> Value {
    json!({"model": model, "max_tokens": 64, "messages": [{"role": "user", "content": text}]})
}

/// The same with more members.
pub fn with(mut body: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// The text, the reason of its end, and the tokens of input and output.
pub fn parts(path: &str, body: &Value) -> (String, String, i64, i64) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let usage = |name: &str| body["usage"][name].as_i64().unwrap();
    if path == CHAT {
        let choice = &body["choices"][0];
        (
            text(&choice["message"]["content"]),
            text(&choice["finish_reason"]),
            usage("prompt_tokens"),
            usage("completion_tokens"),
        )
    } else {
        (
            text(&body["content"][0]["text"]),
            text(&body["stop_reason"]),
            usage("input_tokens"),
            usage("output_tokens"),
        )
    }
}

/// The data of the events of a stream, in order, which are named as the dialect wants it.
#[track_caller]
pub fn events(path: &str, text: &str) -> Vec<Value> {
    let events = text.strip_suffix("\n\n").unwrap().split("\n\n");
    let events = events.map(|event| {
        let (name, data) = event.split_once("data: ").unwrap();
        if path == CHAT {
            assert_eq!(name, "", "{event}");
            if data == "[DONE]" {
                return json!(data);
            }
        }
        let data: Value = serde_json::from_str(data).unwrap();
        if path != CHAT {
            assert_eq!(name, format!("event: {}\n", data["type"].as_str().unwrap()));
        }
        data
    });
    events.collect()
}

/// The pieces of text in a stream.
pub fn text_of(path: &str, events: &[Value]) -> String {
    let pieces = events.iter().filter_map(|event| match path {
        CHAT => event["choices"][0]["delta"]["content"].as_str(),
        RESPONSES if event["type"] != "response.output_text.delta" => None,
        RESPONSES => event["delta"].as_str(),
        _ => event["delta"]["text"].as_str(),
    });
    pieces.collect()
}

/// Whether errors on a path have the shape of an SDK's.
pub fn are_for_sdks(path: &str) -> bool {
    let first = path.split('/').nth(1);
    matches!(first, Some("openai" | "anthropic"))
}

/// Asserts the status and the shape of an error, and returns `error`.
#[track_caller]
pub fn error(path: &str, answer: &Answer, status: u16, code: &str) -> Value {
    let body = answer.expect(status);
    let error = body["error"].clone();
    let found = if path.starts_with("/openai") {
        assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
        assert!(
            error["type"].is_string() && error.get("param").is_some(),
            "{body}"
        );
        error["code"].clone()
    } else {
        assert_eq!(body["type"], "error", "{body}");
        assert_eq!(body["request_id"], answer.header("request-id"), "{body}");
        error["details"]["error_code"].clone()
    };
    assert_eq!(found, code, "{body}");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|text| !text.is_empty()),
        "{body}"
    );
    assert_eq!(answer.header("content-type"), "application/json");
    assert_ne!(answer.header("x-request-id"), "");
    assert_eq!(answer.header("request-id"), answer.header("x-request-id"));
    match answer.header("x-should-retry") {
        "true" => {
            let seconds: u64 = answer.header("retry-after").parse().unwrap();
            let millis = (seconds * 1_000).to_string();
            assert!(seconds > 0, "{body}");
            assert_eq!(answer.header("retry-after-ms"), millis, "{body}");
        }
        other => assert_eq!(other, "false", "{body}"),
    }
    error
}

/// The record behind an answer.
pub async fn record(app: &TestApp, account: &Account, answer: &Answer) -> Value {
    let uuid = answer.header("x-gensvc-generation");
    app.record(account, uuid).await
}

/// A request without a body.
pub async fn get(app: &TestApp, headers: &[(&str, &str)], path: &str) -> Answer {
    app.call(Method::GET, "", path, headers, None).await
}

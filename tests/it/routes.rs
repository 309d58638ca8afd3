//! Routes and fallbacks: which candidate serves, one hold and one charge whatever fails.

mod circuits;
mod credits;
mod ends;
mod fleet;
mod jobs;
mod moves;
mod planned;

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use uuid::Uuid;

use crate::common::{Account, CONFIG_FILE, Recorded, Reply, TestApp, Upstream};

const FILE: &str = r#"
[routes.fast]
models = ["openai/gpt-4.1-mini", "anthropic/claude-haiku-4-5", "gemini/gemini-3.5-flash-lite"]

[routes.cheap]
models = ["anthropic/claude-haiku-4-5", "openai/gpt-4.1-mini"]
order = "cheapest"

[routes.even]
models = ["gemini/gemini-3.5-flash-lite", "openai/gpt-4.1-mini"]
order = "cheapest"

[routes.soon]
models = ["openai/gpt-4.1-mini", "anthropic/claude-haiku-4-5"]
order = "fastest"
"#;

/// OpenAI, Anthropic and Gemini at one upstream, and the routes of [`FILE`].
async fn routed(options: PgConnectOptions, upstream: &Upstream, env: &[(&str, &str)]) -> TestApp {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(Uuid::now_v7().to_string());
    fs::write(&path, FILE).unwrap();
    let mut all = vec![(CONFIG_FILE, path.to_str().unwrap())];
    all.extend_from_slice(env);
    // It stays: replicas read it again.
    TestApp::upstream_with(options, upstream, &all).await
}

fn fast() -> Value {
    json!({"prompt": "Say hello.", "model": "route/fast"})
}

/// The same with fallbacks of its own.
fn with_fallbacks() -> Value {
    json!({"prompt": "Say hello.", "provider": "openai", "model": "gpt-4.1-mini", "fallbacks": [
        {"provider": "anthropic", "model": "claude-haiku-4-5"},
        {"provider": "gemini", "model": "gemini-3.5-flash-lite"},
    ]})
}

fn hello() -> Reply {
    Reply::Text("Hello there.".to_owned(), 10, 3)
}

/// Replies with `failure` where the path has one of `parts`, else with a text.
fn fail_at(upstream: &Upstream, parts: &'static [&'static str], failure: Reply) {
    upstream.play(move |request: &Recorded| {
        if parts.iter().any(|part| request.path.contains(part)) {
            failure.clone()
        } else {
            hello()
        }
    });
}

/// Begins a text and does not wait for it. Returns its uuid.
async fn begin(app: &TestApp, account: &Account, body: &Value) -> String {
    let headers = [("prefer", "respond-async")];
    let sent = app.post_with(&account.key, "/v1/generate/text", &headers, body);
    sent.await.expect(202)["uuid"].as_str().unwrap().to_owned()
}

/// Opens the circuit of OpenAI's model.
async fn break_openai(app: &TestApp, upstream: &Upstream, account: &Account) {
    fail_at(upstream, &["/openai/"], failed(429));
    for _ in 0..5 {
        app.text(&account.key, fast()).await.expect(200);
    }
}

fn failed(status: u16) -> Reply {
    Reply::Status(status, json!({"error": {"message": "no", "type": "error"}}))
}

/// Provider and outcome of each attempt.
fn attempts(record: &Value) -> Vec<(String, String)> {
    let all = record["attempts"].as_array().unwrap();
    let text = |attempt: &Value, name: &str| attempt[name].as_str().unwrap().to_owned();
    all.iter()
        .map(|attempt| (text(attempt, "provider"), text(attempt, "outcome")))
        .collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter()
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect()
}

//! Cached tokens: counted once, at their price, on every path.

use gensvc::domain::credits::Credits;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{CHAT, MESSAGES, MODELS, PATHS, prompt, record, usage, with};
use crate::common::{Recorded, Reply, TestApp, Upstream, upstream::text};

/// 1,000 tokens of input, of which 600 were cached and, but for Gemini, 200 are now.
fn cached(request: &Recorded) -> Reply {
    let path = &request.path;
    let streamed = request.body["stream"] == true || path.contains("streamGenerateContent");
    let (input, counted, more) = if path.starts_with("/openai") {
        let details = r#""prompt_tokens_details":{"cached_tokens":600,"cache_write_tokens":200},"#;
        (1_000, r#""prompt_tokens":"#, details)
    } else if path.starts_with("/anthropic") {
        let more = r#""cache_read_input_tokens":600,"cache_creation_input_tokens":200,"#;
        (200, r#""input_tokens":"#, more)
    } else {
        (
            1_000,
            r#""promptTokenCount":"#,
            r#""cachedContentTokenCount":600,"#,
        )
    };
    let body = text::body(path, streamed, "Hello there.", input, 50);
    let body = body.replace(counted, &format!("{more}{counted}"));
    let kind = if streamed {
        "text/event-stream"
    } else {
        "application/json"
    };
    Reply::Raw(200, kind, body)
}

/// All input, cached, written and output.
fn counts(path: &str, usage: &Value) -> [i64; 4] {
    let count = |path: &str| usage.pointer(path).and_then(Value::as_i64).unwrap();
    let (input, output) = match path {
        CHAT => ("/prompt_tokens", "/completion_tokens"),
        _ => ("/input_tokens", "/output_tokens"),
    };
    if path == MESSAGES {
        let (read, written) = (
            count("/cache_read_input_tokens"),
            count("/cache_creation_input_tokens"),
        );
        return [count(input) + read + written, read, written, count(output)];
    }
    let part = |name: &str| count(&format!("{input}_details/{name}"));
    [
        count(input),
        part("cached_tokens"),
        part("cache_write_tokens"),
        count(output),
    ]
}

#[sqlx::test]
async fn they_are_counted_once_at_their_price_on_every_path(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.play(cached);
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("100").await;
    for path in PATHS {
        for model in &MODELS[1..] {
            let written = if model.starts_with("gemini/") { 0 } else { 200 };
            for stream in [false, true] {
                let mut body = with(prompt(path, model, "x"), &json!({"stream": stream}));
                if stream && path == CHAT {
                    body["stream_options"] = json!({"include_usage": true});
                }
                let answer = app.post(&account.key, path, &body).await;
                assert_eq!(answer.status, 200, "{}", answer.text);
                let found = counts(path, &usage(path, &answer.text));
                assert_eq!(found, [1_000, 600, written, 50], "{path} {model} {stream}");
                let record = record(&app, &account, &answer).await;
                let price = |name: &str| {
                    let price = record["metadata"]["pricing"][name].as_str();
                    price.unwrap_or("0").parse::<Credits>().unwrap().micros()
                };
                let micros = (400 - written) * price("input_per_million")
                    + 600 * price("cached_input_per_million")
                    + written * price("cache_write_per_million")
                    + 50 * price("output_per_million");
                let charged = record["credits"]["charged"].as_str().unwrap();
                let charged = charged.parse::<Credits>().unwrap().micros();
                // Rounded up once.
                assert_eq!(charged, (micros + 999_999) / 1_000_000, "{path} {model}");
            }
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn markers_pass_to_who_knows_them_and_are_told_of_elsewhere(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let marker = json!({"type": "ephemeral", "ttl": "1h"});
    let block = json!([{"type": "text", "text": "x", "cache_control": marker}]);
    for model in &MODELS[1..] {
        let body = prompt(MESSAGES, model, "x");
        let marked = json!({"system": block, "messages": [{"role": "user", "content": block}],
            "tools": [{"name": "f", "input_schema": {"type": "object", "properties": {}}, "cache_control": marker}]});
        let answer = app.post(&account.key, MESSAGES, &with(body, &marked)).await;
        answer.expect(200);
        let sent = upstream.requests().pop().unwrap();
        if model.starts_with("anthropic/") {
            assert_eq!(answer.header("x-gensvc-left-out"), "");
            for (name, value) in marked.as_object().unwrap() {
                assert_eq!(sent.body[name], *value);
            }
        } else {
            assert_eq!(answer.header("x-gensvc-left-out"), "cache_control");
            assert!(!sent.text.contains("ephemeral"), "{}", sent.text);
        }
    }
    app.assert_settled().await;
}

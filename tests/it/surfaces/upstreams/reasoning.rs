//! Thinking that chat servers report in fields of their own.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    ACME, CHAT, MESSAGES, MODELS, PATHS, RESPONSES, acme, answered, both, chat, counted, events,
    request, with,
};
use crate::common::{Account, Answer, Reply, TestApp, Upstream};

/// Answers thinking in a field, a text and a call.
fn thinks(upstream: &Upstream, field: &'static str) {
    let call = json!({"index": 0, "id": "call_1", "type": "function",
        "function": {"name": "f", "arguments": "{}"}});
    let deltas = vec![
        json!({"role": "assistant", "content": null, field: "Let me "}),
        json!({"content": "", field: "see.\n"}),
        json!({"content": "Hi.", field: null}),
        json!({"tool_calls": [call]}),
    ];
    let message = json!({"role": "assistant", "content": "Hi.", field: "Let me see.\n", "tool_calls": [call]});
    upstream.play(chat(deltas, message, "tool_calls", counted()));
}

fn tools(path: &str) -> Value {
    json!({"tools": [match path {
        CHAT => json!({"type": "function", "function": {"name": "f"}}),
        RESPONSES => json!({"type": "function", "name": "f"}),
        _ => json!({"name": "f", "input_schema": {"type": "object"}}),
    }]})
}

/// The message of a chat answer, as a client puts it together.
fn message(answer: &Answer) -> Value {
    if let Ok(body) = serde_json::from_str::<Value>(&answer.text) {
        return body["choices"][0]["message"].clone();
    }
    let mut message = json!({"role": "assistant"});
    for event in events(CHAT, &answer.text) {
        let delta = &event["choices"][0]["delta"];
        for name in ["content", "reasoning", "reasoning_content"] {
            if let Some(piece) = delta[name].as_str() {
                let before = message[name].as_str().unwrap_or_default().to_owned();
                message[name] = json!(before + piece);
            }
        }
        if let Some(call) = delta["tool_calls"].get(0) {
            let mut call = call.clone();
            call.as_object_mut().unwrap().remove("index");
            message["tool_calls"] = json!([call]);
        }
    }
    message
}

/// The messages that were sent upstream last.
fn sent(upstream: &Upstream) -> Value {
    upstream.requests().pop().unwrap().body["messages"].clone()
}

#[sqlx::test]
async fn thinking_passes_from_chat_to_chat_and_back(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    for (field, other) in [
        ("reasoning_content", "reasoning"),
        ("reasoning", "reasoning_content"),
    ] {
        for body in both(&with(request(CHAT, ACME, "x"), &tools(CHAT))) {
            thinks(&upstream, field);
            let (answer, record) = answered(&app, &account, CHAT, &body).await;
            let mut message = message(&answer);
            assert_eq!(message[field], "Let me see.\n", "{message}");
            assert_eq!(message.get(other), None, "{message}");
            assert_eq!(message["content"], "Hi.");
            assert_eq!(record["result"], "Hi.");
            let mut next = body.clone();
            let messages = next["messages"].as_array_mut().unwrap();
            messages.push(message.clone());
            messages.push(json!({"role": "tool", "tool_call_id": "call_1", "content": "ok"}));
            answered(&app, &account, CHAT, &next).await;
            let members = message.as_object_mut().unwrap();
            members.retain(|_, value| !value.is_null());
            assert_eq!(sent(&upstream)[1], message);
        }
    }
    app.assert_settled().await;
}

/// The next turn of a dialogue in Responses or Messages, from the answer.
async fn next(
    app: &TestApp,
    account: &Account,
    path: &str,
    body: &Value,
    answer: &Answer,
) -> Value {
    let body = body.clone();
    let whole = if path == RESPONSES {
        "output"
    } else {
        "content"
    };
    let stored = with(body.clone(), &json!({"stream": false}));
    let parts = match serde_json::from_str::<Value>(&answer.text) {
        Ok(answer) => answer[whole].clone(),
        Err(_) if path == RESPONSES => {
            let last = events(path, &answer.text).pop().unwrap();
            last["response"]["output"].clone()
        }
        Err(_) => {
            // The blocks of a stream, put together as the package does.
            let mut blocks: Vec<Value> = Vec::new();
            for event in events(path, &answer.text) {
                if event["type"] == "content_block_start" {
                    blocks.push(event["content_block"].clone());
                }
                for name in ["text", "thinking", "signature"] {
                    if let Some(piece) = event["delta"][name].as_str() {
                        let before = blocks.last().unwrap()[name].as_str().unwrap().to_owned();
                        blocks.last_mut().unwrap()[name] = json!(before + piece);
                    }
                }
            }
            json!(blocks)
        }
    };
    assert!(parts.to_string().contains("Let me see."), "{parts}");
    let mut next = stored;
    if path == RESPONSES {
        let mut input = vec![json!({"role": "user", "content": "x"})];
        input.extend(parts.as_array().unwrap().iter().cloned());
        input.push(json!({"type": "function_call_output", "call_id": "call_1", "output": "ok"}));
        next["input"] = json!(input);
    } else {
        let messages = next["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "assistant", "content": parts}));
        messages.push(json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "ok"}]}));
    }
    let answer = app.post(&account.key, path, &next).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("x-gensvc-left-out"), "");
    next
}

#[sqlx::test]
async fn other_dialects_show_it_and_bring_it_back_to_chat_servers_alone(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    for path in [RESPONSES, MESSAGES] {
        for field in ["reasoning_content", "reasoning"] {
            let mut body = with(request(path, ACME, "x"), &tools(path));
            if path == RESPONSES {
                body["include"] = json!(["reasoning.encrypted_content"]);
            }
            for body in both(&body) {
                thinks(&upstream, field);
                let (answer, _) = answered(&app, &account, path, &body).await;
                let next = next(&app, &account, path, &body, &answer).await;
                let message = &sent(&upstream)[1];
                assert_eq!(message[field], "Let me see.\n", "{path} {message}");
                assert_eq!(message["content"], "Hi.");
                for model in &MODELS[1..] {
                    upstream.reply(Reply::Text("Hello there.".to_owned(), 9, 3));
                    let body = with(next.clone(), &json!({"model": model}));
                    let answer = app.post(&account.key, path, &body).await;
                    answer.expect(200);
                    assert_eq!(
                        answer.header("x-gensvc-left-out"),
                        "thinking",
                        "{path} {model}"
                    );
                    let sent = upstream.requests().pop().unwrap().text;
                    assert!(!sent.contains("Let me see"), "{path} {model} {sent}");
                    assert!(!sent.contains("chat:"), "{path} {model} {sent}");
                }
            }
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_plain_text_never_shows_it(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let message =
        json!({"role": "assistant", "content": "Hi.", "reasoning_content": "Let me see."});
    upstream.play(chat(vec![message.clone()], message, "stop", counted()));
    let body = json!({"prompt": "x", "provider": "acme", "model": "acme-1"});
    for body in both(&body) {
        let answer = app.post(&account.key, "/v1/generate/text", &body).await;
        assert_eq!(answer.status, 200);
        assert!(answer.text.contains("Hi."), "{}", answer.text);
        assert!(!answer.text.contains("Let me see"), "{}", answer.text);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn thinking_alone_is_an_answer_where_output_was_counted(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let message = json!({"role": "assistant", "content": "", "reasoning_content": "Let me see."});
    upstream.play(chat(vec![message.clone()], message, "stop", counted()));
    for path in PATHS {
        for body in both(&request(path, ACME, "x")) {
            let (answer, record) = answered(&app, &account, path, &body).await;
            assert!(
                answer.text.contains("Let me see."),
                "{path} {}",
                answer.text
            );
            assert_eq!(record["status"], "completed");
            assert_eq!(record["credits"]["charged"], "0.0059");
        }
    }
    app.assert_settled().await;
}

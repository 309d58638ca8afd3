//! Forms of answers: content types, split characters, empty answers, paused turns, errors after text.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    ACME, CHAT, MESSAGES, MODELS, PATHS, RESPONSES, acme, answered, both, chat, chunk, counted,
    error, events, request, said, sse, text_of, with,
};
use crate::common::{Recorded, Reply, Upstream};

/// The text of an answer in any form.
fn text(path: &str, answer: &str) -> String {
    let Ok(body) = serde_json::from_str::<Value>(answer) else {
        return text_of(path, &events(path, answer));
    };
    let text = match path {
        CHAT => &body["choices"][0]["message"]["content"],
        RESPONSES => &body["output"][0]["content"][0]["text"],
        _ => &body["content"][0]["text"],
    };
    text.as_str().unwrap_or_default().to_owned()
}

/// An answer of each vendor in the form that was not requested.
fn other_form(request: &Recorded, content_type: fn(bool) -> &'static str) -> Reply {
    let streamed = !super::is_streamed(request);
    let mut asked = request.clone();
    asked.body["stream"] = json!(streamed);
    if request.path.starts_with("/gemini") {
        asked.path = request
            .path
            .replace(":streamGenerateContent", ":x")
            .replace(":generateContent", ":streamGenerateContent");
    }
    let body = crate::common::upstream::text::body(&asked.path, streamed, "Hello there.", 10, 3);
    Reply::Raw(200, content_type(streamed), body)
}

#[sqlx::test]
async fn an_answer_is_read_by_its_content_type(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let types: [fn(bool) -> &'static str; 5] = [
        // Others, or the wrong one.
        |_| "text/plain",
        |_| "application/json",
        |streamed| {
            if streamed {
                "text/event-stream"
            } else {
                "application/json"
            }
        },
        |streamed| {
            if streamed {
                "Text/Event-Stream; charset=utf-8"
            } else {
                "application/json;charset=utf-8"
            }
        },
        |streamed| {
            if streamed {
                "text/event-stream ;x=y"
            } else {
                "application/vnd.acme+json"
            }
        },
    ];
    for content_type in types {
        upstream.play(move |request| other_form(request, content_type));
        for model in [ACME, MODELS[1], MODELS[2], MODELS[3]] {
            for path in PATHS {
                for body in both(&request(path, model, "x")) {
                    let (answer, record) = answered(&app, &account, path, &body).await;
                    assert_eq!(
                        text(path, &answer.text),
                        "Hello there.",
                        "{path} {model} {}",
                        answer.text
                    );
                    assert_eq!(record["usage"]["input_tokens"], 10, "{model}");
                    assert_eq!(record["usage"]["output_tokens"], 3, "{model}");
                }
            }
        }
    }
    // A stream without its end counts as cut, even if the caller did not ask for a stream.
    upstream.reply(sse(&[chunk(&json!({"content": "Hello"}), None)]));
    let answer = app
        .post(&account.key, CHAT, &request(CHAT, ACME, "x"))
        .await;
    error(CHAT, &answer, 502, "provider_error");
    app.assert_settled().await;
}

/// Events with these JSON texts in place of `"@0"`, `"@1"`, ...
fn raw(events: &[Value], texts: &[&str]) -> Reply {
    let mut body = crate::surfaces::breakers::stream_of(events);
    for (at, text) in texts.iter().enumerate() {
        body = body.replace(&format!("\"@{at}\""), &format!("\"{text}\""));
    }
    Reply::Raw(200, "text/event-stream", body)
}

#[sqlx::test]
async fn split_characters_are_joined(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let usage = json!({"choices": [], "usage": counted()});
    let anthropic = |kind: &str, delta: &str, name: &str| {
        let mut all = vec![
            json!({"type": "message_start", "message": {"id": "m", "model": "m", "usage": {"input_tokens": 9, "output_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": kind, kind: "", "id": "1", "name": "f", "input": {}}}),
        ];
        for at in ["@0", "@1"] {
            all.push(json!({"type": "content_block_delta", "index": 0, "delta": {"type": delta, name: at}}));
        }
        all.extend([
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}),
            json!({"type": "message_stop"}),
        ]);
        all
    };
    let gemini = |at: &str, finish: Value| {
        json!({"candidates": [{"content": {"parts": [{"text": at}]}, "finishReason": finish}],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 5}})
    };
    let call = |at: &str, id: Value, name: Value| json!({"tool_calls": [{"index": 0, "id": id, "function": {"name": name, "arguments": at}}]});
    let end = || [chunk(&json!({}), Some("stop")), usage.clone()];
    let openai = |name: &str| {
        let all = ["@0", "@1"].map(|at| chunk(&json!({name: at}), None));
        [&all[..], &end()].concat()
    };
    let calls = [
        &[
            chunk(&call("@0", json!("1"), json!("f")), None),
            chunk(&call("@1", Value::Null, Value::Null), None),
        ][..],
        &end(),
    ]
    .concat();
    let plain = ["a\\ud83d", "\\uDE00b"];
    let json = ["{\\\"a\\\":\\\"a\\ud83d", "\\ude00b\\\"}"];
    for (path, model, all, texts, expected) in [
        (CHAT, ACME, openai("content"), plain, "a\u{1f600}b"),
        (
            CHAT,
            ACME,
            openai("reasoning_content"),
            plain,
            "a\u{1f600}b",
        ),
        (MESSAGES, ACME, openai("reasoning"), plain, "a\u{1f600}b"),
        (CHAT, ACME, calls, json, "{\"a\":\"a\u{1f600}b\"}"),
        (
            MESSAGES,
            MODELS[2],
            anthropic("text", "text_delta", "text"),
            plain,
            "a\u{1f600}b",
        ),
        (
            MESSAGES,
            MODELS[2],
            anthropic("thinking", "thinking_delta", "thinking"),
            plain,
            "a\u{1f600}b",
        ),
        (
            MESSAGES,
            MODELS[2],
            anthropic("tool_use", "input_json_delta", "partial_json"),
            json,
            "{\"a\":\"a\u{1f600}b\"}",
        ),
        (
            RESPONSES,
            MODELS[3],
            vec![gemini("@0", Value::Null), gemini("@1", json!("STOP"))],
            plain,
            "a\u{1f600}b",
        ),
        // What stays alone is replaced.
        (
            CHAT,
            ACME,
            openai("content"),
            ["a\\ud83d", "b"],
            "a\u{fffd}b",
        ),
        (
            CHAT,
            ACME,
            openai("content"),
            ["a", "\\ude00b"],
            "a\u{fffd}b",
        ),
        (
            CHAT,
            ACME,
            openai("content"),
            ["a", "b\\ud83d"],
            "ab\u{fffd}",
        ),
        (
            MESSAGES,
            MODELS[2],
            anthropic("text", "text_delta", "text"),
            ["\\udead", "b"],
            "\u{fffd}b",
        ),
    ] {
        upstream.reply(raw(&all, &texts));
        let body = &both(&request(path, model, "x"))[1];
        let (answer, _) = answered(&app, &account, path, body).await;
        let mut found = String::new();
        for event in events(path, &answer.text) {
            let delta = match path {
                CHAT => &event["choices"][0]["delta"],
                RESPONSES if event["type"] != "response.output_text.delta" => &Value::Null,
                RESPONSES => &event,
                _ => &event["delta"],
            };
            let arguments = &delta["tool_calls"][0]["function"];
            for piece in [
                "content",
                "reasoning_content",
                "text",
                "thinking",
                "partial_json",
                "delta",
            ]
            .map(|name| &delta[name])
            .into_iter()
            .chain([&arguments["arguments"]])
            {
                found += piece.as_str().unwrap_or_default();
            }
        }
        assert_eq!(found, expected, "{path} {model} {}", answer.text);
    }
    // A whole body.
    let body = r#"{"choices":[{"message":{"content":"a\ud83d b\ud83d\ude00"},"finish_reason":"stop"}],
        "usage":{"prompt_tokens":9,"completion_tokens":5}}"#;
    upstream.reply(Reply::Raw(200, "application/json", body.to_owned()));
    let (answer, _) = answered(&app, &account, CHAT, &request(CHAT, ACME, "x")).await;
    assert_eq!(text(CHAT, &answer.text), "a\u{fffd} b\u{1f600}");
    app.assert_settled().await;
}

/// An empty answer of each vendor, with these output tokens.
fn empty(content: Value, output: Value) -> impl Fn(&Recorded) -> Reply {
    move |request| {
        if request.path.starts_with("/anthropic") {
            let usage = json!({"input_tokens": 9, "output_tokens": output});
            if !super::is_streamed(request) {
                return Reply::Status(
                    200,
                    json!({"id": "m", "type": "message", "model": "m", "content": [],
                    "stop_reason": "end_turn", "usage": usage}),
                );
            }
            return sse(&[
                json!({"type": "message_start", "message": {"id": "m", "model": "m", "usage": {"input_tokens": 9, "output_tokens": 1}}}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}),
                json!({"type": "message_stop"}),
            ]);
        }
        if request.path.starts_with("/gemini") {
            let usage = json!({"promptTokenCount": 9, "candidatesTokenCount": output});
            let answer = json!({"candidates": [{"content": {"role": "model"}, "finishReason": "STOP"}], "usageMetadata": usage});
            return if super::is_streamed(request) {
                sse(&[answer])
            } else {
                Reply::Status(200, answer)
            };
        }
        let usage = json!({"prompt_tokens": 9, "completion_tokens": output});
        let message = json!({"role": "assistant", "content": content});
        chat(vec![message.clone()], message, "stop", usage)(request)
    }
}

#[sqlx::test]
async fn an_empty_answer_with_counted_output_is_charged(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    for content in [json!(""), Value::Null] {
        upstream.play(empty(content, json!(3)));
        for model in [ACME, MODELS[2], MODELS[3]] {
            for path in PATHS {
                for body in both(&request(path, model, "x")) {
                    let (answer, record) = answered(&app, &account, path, &body).await;
                    assert_eq!(text(path, &answer.text), "", "{path} {model}");
                    assert_eq!(record["status"], "completed");
                    assert_eq!(record["result"], "");
                    assert_eq!(record["usage"]["output_tokens"], 3);
                    assert_ne!(record["credits"]["charged"], "0");
                }
            }
        }
    }
    for output in [json!(0), Value::Null, json!(-3)] {
        upstream.play(empty(json!(""), output.clone()));
        for model in [ACME, MODELS[2], MODELS[3]] {
            let answer = app
                .post(&account.key, CHAT, &request(CHAT, model, "x"))
                .await;
            error(CHAT, &answer, 502, "provider_error");
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_response_without_an_output_fails(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let response = json!({"id": "r", "status": "completed", "output": null, "output_text": "Hi",
        "usage": {"input_tokens": 9, "output_tokens": 5}});
    let completed = json!({"type": "response.completed", "response": response});
    for reply in [Reply::Status(200, response), sse(&[completed])] {
        upstream.reply(reply);
        for body in both(&request(CHAT, "acme/acme-2", "x")) {
            let answer = app.post(&account.key, CHAT, &body).await;
            error(CHAT, &answer, 502, "provider_error");
        }
    }
    assert_eq!(app.balance(&account).await.0, "100");
    app.assert_settled().await;
}

#[sqlx::test]
async fn reasons_of_the_end_have_any_case(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    for (reason, expected) in [
        ("STOP", "stop"),
        ("COMPLETE", "stop"),
        ("MAX_TOKENS", "length"),
        ("Length", "length"),
        ("SAFETY", "content_filter"),
        ("refusal", "content_filter"),
    ] {
        upstream.reply(sse(&[
            chunk(&json!({"content": "Hello"}), None),
            chunk(&json!({}), Some(reason)),
            json!({"choices": [], "usage": counted()}),
        ]));
        let body = &both(&request(CHAT, ACME, "x"))[1];
        let (answer, record) = answered(&app, &account, CHAT, body).await;
        assert_eq!(record["status"], "completed", "{reason}");
        let expected = format!("\"finish_reason\":\"{expected}\"");
        assert!(answer.text.contains(&expected), "{reason} {}", answer.text);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_paused_turn_stays_paused_in_its_dialect(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    upstream.play(|request| {
        let usage = json!({"input_tokens": 9, "output_tokens": 5});
        let block = json!({"type": "text", "text": "Hello there."});
        if !super::is_streamed(request) {
            return Reply::Status(200, json!({"id": "m", "type": "message", "model": "m", "content": [block],
                "stop_reason": "pause_turn", "usage": usage}));
        }
        sse(&[
            json!({"type": "message_start", "message": {"id": "m", "model": "m", "usage": usage}}),
            json!({"type": "content_block_start", "index": 0, "content_block": block}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": "pause_turn"}, "usage": usage}),
            json!({"type": "message_stop"}),
        ])
    });
    for (path, reason) in [
        (MESSAGES, "\"stop_reason\":\"pause_turn\""),
        (CHAT, "\"finish_reason\":\"stop\""),
        (RESPONSES, "\"status\":\"completed\""),
    ] {
        for body in both(&request(path, MODELS[2], "x")) {
            let (answer, _) = answered(&app, &account, path, &body).await;
            assert!(answer.text.contains(reason), "{}", answer.text);
            assert!(!answer.text.contains("end_turn"), "{}", answer.text);
        }
    }
    // A replay says the same.
    let body = request(MESSAGES, MODELS[2], "x");
    for _ in 0..2 {
        let key = [("idempotency-key", "k")];
        let answer = app
            .post_with(&account.key, MESSAGES, &key, &body)
            .await
            .expect(200);
        assert_eq!(answer["stop_reason"], "pause_turn");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn an_error_in_a_choice_fails_beside_text(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    for wrong in [
        json!({"error": {"code": 502, "message": "upstream broke"}, "finish_reason": "error"}),
        json!({"error": {"code": 429, "message": "slow down"}, "finish_reason": "stop"}),
        json!({"error": "it broke", "finish_reason": null}),
    ] {
        let choice = with(
            json!({"index": 0, "message": {"role": "assistant", "content": "Hi."}}),
            &wrong,
        );
        upstream.reply(Reply::Status(
            200,
            json!({"choices": [choice], "usage": counted()}),
        ));
        let answer = app
            .post(&account.key, CHAT, &request(CHAT, ACME, "x"))
            .await;
        assert!(
            [502, 503].contains(&answer.status.as_u16()),
            "{}",
            answer.text
        );
        let choice = with(json!({"index": 0, "delta": {"content": "."}}), &wrong);
        upstream.reply(sse(&[
            chunk(&json!({"content": "Hi"}), None),
            json!({"choices": [choice]}),
        ]));
        let (answer, record) =
            answered(&app, &account, CHAT, &both(&request(CHAT, ACME, "x"))[1]).await;
        assert!(answer.text.contains("\"error\":{"), "{}", answer.text);
        assert_eq!(record["status"], "failed");
        assert_eq!(record["credits"]["charged"], "0");
    }
    // None is no error.
    upstream.play(said("Hi.", &counted()));
    answered(&app, &account, CHAT, &request(CHAT, ACME, "x")).await;
    let choice =
        json!({"index": 0, "message": {"content": "Hi."}, "finish_reason": "stop", "error": null});
    upstream.reply(Reply::Status(
        200,
        json!({"choices": [choice], "usage": counted()}),
    ));
    answered(&app, &account, CHAT, &request(CHAT, ACME, "x")).await;
    app.assert_settled().await;
}

//! Dialogues with each vendor, not streamed.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{CHAT, MESSAGES, MODELS, ROUTES, ask, error, parts, record, with};
use crate::common::{Reply, TestApp, Upstream};

/// Three turns, in the dialect of the path.
fn turns(path: &str, model: &str) -> Value {
    let user = json!([{"type": "text", "text": "And"}, {"type": "text", "text": "goodbye?"}]);
    let turns = [
        json!({"role": "user", "content": "Say hi."}),
        json!({"role": "assistant", "content": "Hi."}),
        json!({"role": "user", "content": user}),
    ];
    if path == CHAT {
        let system = json!({"role": "system", "content": "Be brief."});
        let messages: Vec<Value> = [system].into_iter().chain(turns).collect();
        json!({"model": model, "max_completion_tokens": 64, "stop": ["END"], "messages": messages})
    } else {
        json!({"model": model, "max_tokens": 64, "stop_sequences": ["END"], "messages": turns,
            "system": "Be brief."})
    }
}

/// What each vendor is sent.
fn sent(path: &str, model: &str) -> Value {
    let parts = json!([{"type": "text", "text": "And"}, {"type": "text", "text": "goodbye?"}]);
    let turns = |system: &[Value]| {
        let turns = [
            json!({"role": "user", "content": "Say hi."}),
            json!({"role": "assistant", "content": "Hi."}),
            json!({"role": "user", "content": parts}),
        ];
        system.iter().cloned().chain(turns).collect::<Value>()
    };
    if model.starts_with("openai/") {
        // What is of its own dialect goes as it came.
        let role = if path == CHAT { "system" } else { "developer" };
        let system = json!({"role": role, "content": "Be brief."});
        let mut messages = turns(&[system]);
        if path == MESSAGES {
            messages[3]["content"] = json!("And\n\ngoodbye?");
        }
        json!({"messages": messages, "max_completion_tokens": 64, "stop": ["END"]})
    } else if model.starts_with("anthropic/") {
        json!({"messages": turns(&[]), "max_tokens": 64, "stop_sequences": ["END"],
            "system": "Be brief."})
    } else {
        let turn = |role: &str, texts: &[&str]| {
            let texts = texts.iter().map(|text| json!({ "text": text }));
            json!({"role": role, "parts": texts.collect::<Value>()})
        };
        json!({"contents": [turn("user", &["Say hi."]), turn("model", &["Hi."]),
                turn("user", &["And", "goodbye?"])],
            "systemInstruction": turn("user", &["Be brief."])})
    }
}

#[sqlx::test]
async fn several_turns_with_every_vendor(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.reply(Reply::Text("Goodbye.".to_owned(), 40, 7));
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for path in ROUTES {
        for model in MODELS {
            let before = upstream.count();
            let answer = app.post(&account.key, path, &turns(path, model)).await;
            let body = answer.expect(200);
            assert_eq!(body["model"], model);
            assert_eq!(answer.header("x-gensvc-max-tokens"), "64");
            let record = record(&app, &account, &answer).await;
            let (text, reason, input, output) = parts(path, &body);
            let (surface, done) = match path {
                CHAT => ("openai.chat", "stop"),
                _ => ("anthropic.messages", "end_turn"),
            };
            assert_eq!(reason, done);
            let usage = (
                &record["usage"]["input_tokens"],
                &record["usage"]["output_tokens"],
            );
            assert_eq!(usage, (&json!(input), &json!(output)));
            assert_eq!(record["surface"], surface);
            assert_eq!(record["prompt"], "And\ngoodbye?");
            assert_eq!(record["result"], text);
            assert_eq!(
                format!(
                    "{}/{}",
                    record["provider"].as_str().unwrap(),
                    record["model"].as_str().unwrap()
                ),
                model
            );
            assert_eq!(
                record["parameters"],
                json!({"max_tokens": 64, "stop": ["END"]})
            );
            // Bytes, 8 for each part of four messages and 64; then the limit.
            let price = |name: &str| {
                let price = record["metadata"]["pricing"][name].as_str().unwrap();
                price.parse::<i64>().unwrap()
            };
            let (a, b) = (price("input_per_million"), price("output_per_million"));
            let micros = |credits: &Value| {
                credits
                    .as_str()
                    .unwrap()
                    .parse::<gensvc::domain::credits::Credits>()
                    .unwrap()
                    .micros()
            };
            // What OpenAI may write to its cache unasked is dearer by a quarter.
            let quarters = if model.starts_with("openai/") { 5 } else { 4 };
            assert_eq!(
                micros(&record["credits"]["estimated"]),
                (30 + 5 * 8 + 64) * a * quarters / 4 + 64 * b
            );
            assert_eq!(
                micros(&record["credits"]["charged"]),
                input * a + output * b
            );
            if model.starts_with("sandbox/") {
                continue;
            }
            assert_eq!((text.as_str(), input, output), ("Goodbye.", 40, 7));
            let requests = upstream.requests();
            assert_eq!(requests.len(), before + 1);
            let body = &requests.last().unwrap().body;
            for (name, value) in sent(path, model).as_object().unwrap() {
                assert_eq!(&body[name], value, "{model} {name}");
            }
            if model.starts_with("gemini/") {
                let config = &body["generationConfig"];
                assert_eq!(config["maxOutputTokens"], 64);
                assert_eq!(config["stopSequences"], json!(["END"]));
            }
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn the_reason_of_the_end_is_told(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    for (path, limit, stop, sequence) in [
        (CHAT, "length", "stop", "stop"),
        (MESSAGES, "max_tokens", "stop_sequence", "stop_sequences"),
    ] {
        let body = with(ask(MODELS[0], "x"), &json!({"max_tokens": 3}));
        let answer = app.post(&account.key, path, &body).await.expect(200);
        assert_eq!(parts(path, &answer).1, limit);
        let more = json!({sequence: ["no such words", "."], "max_tokens": 500});
        let answer = app
            .post(&account.key, path, &with(ask(MODELS[0], "x"), &more))
            .await;
        let answer = answer.expect(200);
        let (text, reason, ..) = parts(path, &answer);
        assert_eq!(reason, stop);
        assert!(!text.contains('.'), "{text}");
        if path == MESSAGES {
            assert_eq!(answer["stop_sequence"], ".");
        }
    }
}

#[sqlx::test]
async fn the_limit_of_every_vendor_is_seen(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    upstream.play(|request| {
        let usage = json!({"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3});
        Reply::Status(200, match &request.path {
            path if path.starts_with("/openai") => json!({"id": "c", "model": "m", "usage": usage,
                "choices": [{"index": 0, "message": {"content": "cut"}, "finish_reason": "length"}]}),
            path if path.starts_with("/anthropic") => json!({"id": "m", "type": "message", "model": "m",
                "content": [{"type": "text", "text": "cut"}], "stop_reason": "max_tokens",
                "usage": {"input_tokens": 1, "output_tokens": 2}}),
            _ => json!({"candidates": [{"content": {"parts": [{"text": "cut"}]},
                "finishReason": "MAX_TOKENS"}], "usageMetadata": {"promptTokenCount": 1,
                "candidatesTokenCount": 2}}),
        })
    });
    for model in &MODELS[1..] {
        for (path, reason) in [(CHAT, "length"), (MESSAGES, "max_tokens")] {
            let answer = app.post(&account.key, path, &ask(model, "x")).await;
            let found = parts(path, &answer.expect(200));
            assert_eq!(
                (found.0.as_str(), found.1.as_str()),
                ("cut", reason),
                "{model}"
            );
        }
    }
}

#[sqlx::test]
async fn a_model_needs_no_provider_where_it_is_clear(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for path in ROUTES {
        let answer = app
            .post(&account.key, path, &ask("claude-haiku-5-5", "x"))
            .await;
        assert_eq!(answer.expect(200)["model"], "claude-haiku-5-5");
        let record = record(&app, &account, &answer).await;
        assert_eq!(record["provider"], "anthropic");
        for unknown in [
            "nope",
            "openai/claude-haiku-5-5",
            "nope/gpt-6-luna",
            "sandbox/sandbox-image-1",
        ] {
            let answer = app.post(&account.key, path, &ask(unknown, "x")).await;
            error(path, &answer, 404, "model_not_found");
            assert_eq!(answer.header("x-should-retry"), "false");
        }
    }
}

#[sqlx::test]
async fn one_key_makes_one_answer_whole_and_streamed(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for (n, path) in ROUTES.into_iter().enumerate() {
        let key = [("idempotency-key", path)];
        let body = ask(MODELS[1], "x");
        let first = app.post_with(&account.key, path, &key, &body).await;
        assert_eq!(first.header("idempotent-replayed"), "");
        let again = app.post_with(&account.key, path, &key, &body).await;
        assert_eq!(again.header("idempotent-replayed"), "true");
        assert_eq!(again.expect(200), first.expect(200));
        let streamed = with(body.clone(), &json!({"stream": true}));
        let streamed = app.post_with(&account.key, path, &key, &streamed).await;
        assert_eq!(streamed.status, 200);
        let events = super::events(path, &streamed.text);
        assert_eq!(super::text_of(path, &events), parts(path, &first.json()).0);
        assert_eq!(
            streamed.header("x-gensvc-generation"),
            first.header("x-gensvc-generation")
        );
        assert_eq!(upstream.count(), n + 1);
        let other = app
            .post_with(&account.key, path, &key, &ask(MODELS[1], "y"))
            .await;
        error(path, &other, 400, "idempotency_key_reused");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn an_anthropic_key_comes_by_either_header(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let key = [
        ("x-api-key", account.key.as_str()),
        ("anthropic-version", "2023-06-01"),
    ];
    let path = "/anthropic/v1/messages?beta=true";
    let answer = app.post_with("", path, &key, &ask(MODELS[0], "x")).await;
    answer.expect(200);
    assert_eq!(
        answer.header("anthropic-ratelimit-requests-limit"),
        "1000000"
    );
    assert_eq!(
        answer.header("anthropic-ratelimit-requests-remaining"),
        "999999"
    );
    assert_eq!(
        answer.header("anthropic-ratelimit-requests-reset"),
        "2027-01-15T08:00:01Z"
    );
    // Elsewhere it is no token.
    let answer = app.post_with("", CHAT, &key, &ask(MODELS[0], "x")).await;
    error(CHAT, &answer, 401, "missing_token");
    let answer = app.post(&account.key, CHAT, &ask(MODELS[0], "x")).await;
    answer.expect(200);
    assert_eq!(answer.header("x-ratelimit-limit-requests"), "1000000");
    assert_eq!(answer.header("x-ratelimit-remaining-requests"), "999998");
    assert_eq!(answer.header("x-ratelimit-reset-requests"), "1s");
}

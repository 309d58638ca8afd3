//! What a vendor refuses, and when it wants to be asked again.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use std::path::PathBuf;

use uuid::Uuid;

use super::{CHAT, MESSAGES, MODELS, RESPONSES, ask, error, events, with};
use crate::common::{CONFIG_FILE, Reply, TestApp, Upstream};

const PATHS: [&str; 3] = [CHAT, RESPONSES, MESSAGES];
const TEXT: &str = "/v1/generate/text";
const LOCAL: &str = "local/m";
const CODE: &str = "context_length_exceeded";

fn prompt(path: &str, model: &str) -> Value {
    match path {
        RESPONSES => json!({"model": model, "input": "x", "max_output_tokens": 64}),
        TEXT => {
            let (provider, model) = model.split_once('/').unwrap();
            json!({"provider": provider, "model": model, "prompt": "x"})
        }
        _ => ask(model, "x"),
    }
}

/// With a compatible server whose model takes 8,192 tokens.
pub async fn start(options: PgConnectOptions, upstream: &Upstream) -> TestApp {
    let url = upstream.url();
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(Uuid::now_v7().to_string());
    let text = format!(
        "[providers.local]\nkind = \"openai_compatible\"\nbase_url = \"{url}/local/v1\"\n\
         [[providers.local.models]]\nid = \"m\"\ntype = \"text\"\n\
         prices = {{ input_per_million = \"10\", output_per_million = \"50\" }}\n\
         limits = {{ max_input_tokens = 8192, max_output_tokens = 4096 }}\n"
    );
    std::fs::write(&file, text).unwrap();
    let config = [(CONFIG_FILE, file.to_str().unwrap())];
    let app = TestApp::upstream_with(options, upstream, &config).await;
    std::fs::remove_file(file).unwrap();
    app
}

fn enveloped(message: &str, code: &Value) -> Value {
    json!({"error": {"message": message, "type": "invalid_request_error", "code": code}})
}

#[sqlx::test]
async fn a_context_that_is_too_long_is_said_as_agents_know_it(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = start(options, &upstream).await;
    let account = app.account("10").await;
    let anthropic = |message: &str| json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
    let gemini = |message: &str| json!({"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": message}});
    for (model, status, body, sentence) in [
        (
            MODELS[1],
            400,
            enveloped(
                "This model's maximum context length is 922000 tokens. However, your messages \
                 resulted in 1000001 tokens.",
                &json!(CODE),
            ),
            "prompt is too long: 1000001 tokens > 922000 maximum",
        ),
        (
            MODELS[2],
            400,
            anthropic("prompt is too long: 210000 tokens > 200000 maximum"),
            "prompt is too long: 210000 tokens > 200000 maximum",
        ),
        (
            MODELS[2],
            400,
            anthropic(
                "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, \
                 decrease input length or `max_tokens` and try again",
            ),
            "prompt is too long: 210000 tokens > 200000 maximum",
        ),
        (
            MODELS[3],
            400,
            gemini(
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            ),
            "prompt is too long: 1200000 tokens > 1048576 maximum",
        ),
        // llama.cpp, Groq without numbers, vLLM's flat form, Ollama.
        (
            LOCAL,
            400,
            json!({"error": {"code": 400, "type": "exceed_context_size_error",
                "message": "the request exceeds the available context size, try increasing it",
                "n_prompt_tokens": 9_000, "n_ctx": 8_192}}),
            "prompt is too long: 9000 tokens > 8192 maximum",
        ),
        (
            LOCAL,
            413,
            enveloped(
                "Please reduce the length of the messages or completion.",
                &json!(CODE),
            ),
            "prompt is too long: 8193 tokens > 8192 maximum",
        ),
        (
            LOCAL,
            400,
            json!({"object": "error", "type": "BadRequestError", "code": 400, "param": null,
                "message": "This model's maximum context length is 4096 tokens. However, you \
                requested 4100 tokens (100 in the messages, 4000 in the completion)."}),
            "prompt is too long: 4100 tokens > 4096 maximum",
        ),
        (
            LOCAL,
            500,
            json!({"error": "prompt too long; exceeded max context length by 120 tokens"}),
            "prompt is too long: 8193 tokens > 8192 maximum",
        ),
    ] {
        upstream.reply(Reply::Status(status, body.clone()));
        for path in PATHS {
            for stream in [false, true] {
                let prompt = with(prompt(path, model), &json!({ "stream": stream }));
                let answer = app.post(&account.key, path, &prompt).await;
                let error = error(path, &answer, 400, CODE);
                let message = error["message"].as_str().unwrap();
                assert!(message.contains(sentence), "{model} {body}: {message}");
                assert_eq!(error["type"], "invalid_request_error");
                assert_eq!(answer.header("x-should-retry"), "false");
            }
        }
        let answer = app.post(&account.key, TEXT, &prompt(TEXT, model)).await;
        let failed = answer.expect(400);
        assert_eq!(failed["error"]["code"], CODE);
        assert_eq!(failed["error"]["type"], "invalid_request");
        assert_eq!(failed["generation"]["error"]["code"], CODE);
        assert_eq!(failed["generation"]["error"]["retryable"], false);
        assert_eq!(failed["generation"]["credits"]["held"], "0");
    }
    assert_eq!(app.balance(&account).await.0, "10");
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_stream_says_it_too(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = start(options, &upstream).await;
    let account = app.account("10").await;
    let chunk = json!({"choices": [{"delta": {"content": "Hi"}}]});
    let late = enveloped(
        "Your input exceeds the context window of this model.",
        &json!(CODE),
    );
    let stream = format!("data: {chunk}\n\ndata: {late}\n\n");
    upstream.reply(Reply::Raw(200, "text/event-stream", stream));
    for path in PATHS {
        let prompt = with(prompt(path, LOCAL), &json!({"stream": true}));
        let answer = app.post(&account.key, path, &prompt).await;
        let last = events(path, &answer.text).pop().unwrap();
        let error = match path {
            RESPONSES => &last["response"]["error"],
            _ => &last["error"],
        };
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains("prompt is too long: 8193 tokens > 8192 maximum"),
            "{last}"
        );
        if path != MESSAGES {
            assert_eq!(error["code"], CODE);
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn what_cannot_fit_is_refused_before_the_hold(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = start(options, &upstream).await;
    let account = app.account("10").await;
    for (text, fits) in [
        ("word ".repeat(40_000), false),
        ("x".repeat(2 << 20), false),
        // At most so many words, but perhaps fewer tokens.
        ("word ".repeat(30_000), true),
        ("x".repeat(1 << 20), true),
    ] {
        for path in PATHS {
            let member = if path == RESPONSES {
                "input"
            } else {
                "messages"
            };
            let said = match path {
                RESPONSES => json!(text),
                _ => json!([{"role": "user", "content": text}]),
            };
            let mut body = prompt(path, LOCAL);
            body[member] = said;
            let before = upstream.count();
            let answer = app.post(&account.key, path, &body).await;
            if fits {
                answer.expect(200);
                continue;
            }
            let error = error(path, &answer, 400, CODE);
            let message = error["message"].as_str().unwrap();
            assert!(message.starts_with("prompt is too long: "), "{message}");
            assert!(message.ends_with(" tokens > 8192 maximum"), "{message}");
            assert_eq!(answer.header("x-gensvc-generation"), "");
            assert_eq!(upstream.count(), before);
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_vendor_says_itself_what_is_wrong_with_the_input(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = start(options, &upstream).await;
    let account = app.account("10").await;
    let long = "x".repeat(600);
    for (model, status, body, said) in [
        (
            MODELS[1],
            400,
            enveloped(
                "Invalid 'messages[0].name': string does not match pattern.",
                &json!("invalid_value"),
            ),
            Some("Invalid 'messages[0].name': string does not match pattern."),
        ),
        (
            MODELS[2],
            413,
            json!({"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}),
            Some("Request exceeds the maximum size"),
        ),
        (
            MODELS[3],
            400,
            json!([{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "Unable to process input image for projects/1234567: see https://ai.google.dev/x"}}]),
            Some("Unable to process input image for [removed]: see [removed]"),
        ),
        (
            LOCAL,
            422,
            json!({"detail": [{"loc": ["body", "top_p"], "msg": "Input should be less than 1"}]}),
            Some("body.top_p: Input should be less than 1"),
        ),
        (
            LOCAL,
            400,
            json!({"error": "key sk-abcdef123456 of org-abcdef at 10.1.2.3:8000 is odd"}),
            Some("key [removed] of [removed] at [removed] is odd"),
        ),
        (
            LOCAL,
            400,
            enveloped(&long, &Value::Null),
            Some(&long[..500]),
        ),
        (
            MODELS[2],
            400,
            json!({"type": "error", "error": {"type": "invalid_request_error", "message":
                "Your credit balance is too low to access the Anthropic API."}}),
            None,
        ),
        (
            MODELS[2],
            400,
            json!({"type": "error", "error": {"type": "invalid_request_error", "message":
                "messages.0: 'Your credit balance is too low' is odd"}}),
            Some("messages.0: 'Your credit balance is too low' is odd"),
        ),
        // About the operator.
        (
            LOCAL,
            401,
            enveloped(
                "Incorrect API key provided: sk-a***b",
                &json!("invalid_api_key"),
            ),
            None,
        ),
        (
            LOCAL,
            404,
            enveloped("The model m does not exist", &json!("model_not_found")),
            None,
        ),
        (
            LOCAL,
            500,
            enveloped("assertion failed in worker 3", &Value::Null),
            None,
        ),
    ] {
        upstream.reply(Reply::Status(status, body.clone()));
        for path in PATHS {
            let answer = app.post(&account.key, path, &prompt(path, model)).await;
            let body: Value = serde_json::from_str(&answer.text).unwrap();
            let message = body["error"]["message"].as_str().unwrap();
            match said {
                Some(said) => {
                    error(path, &answer, 400, "provider_rejected");
                    let own = "the provider rejected the request";
                    assert_eq!(message, format!("{own}: {said}"));
                }
                None => assert!(!message.contains(':'), "{message}"),
            }
        }
        let answer = app.post(&account.key, TEXT, &prompt(TEXT, model)).await;
        if let Some(said) = said {
            let record = &answer.expect(502)["generation"];
            let message = record["error"]["message"].as_str().unwrap();
            assert!(message.ends_with(said), "{message}");
        }
    }
    assert_eq!(app.balance(&account).await.0, "10");
    app.assert_settled().await;
}

/// Anthropic says it in words.
#[sqlx::test]
async fn a_vendor_blocks_an_answer_by_its_policy(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = start(options, &upstream).await;
    let account = app.account("10").await;
    let blocked = json!({"type": "error", "error": {"type": "invalid_request_error",
        "message": "Output blocked by content filtering policy"}});
    upstream.reply(Reply::Status(400, blocked));
    for path in PATHS {
        let answer = app.post(&account.key, path, &prompt(path, MODELS[2])).await;
        error(path, &answer, 400, "content_policy");
    }
    assert_eq!(app.balance(&account).await.0, "10");
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_vendor_says_when_to_come_again(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = start(options, &upstream).await;
    let account = app.account("10").await;
    let limited =
        |message: &str| json!({"error": {"message": message, "code": "rate_limit_exceeded"}});
    let retry_info =
        json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.4s"});
    let exhausted =
        json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [retry_info]}});
    let date = ("date", "Fri, 20 Nov 2026 12:00:20 GMT");
    let none: &[(&str, &str)] = &[];
    for (model, status, headers, body, seconds) in [
        (
            LOCAL,
            429,
            &[("retry-after", "300")][..],
            limited("no"),
            "300",
        ),
        (
            LOCAL,
            429,
            &[("retry-after", "86400")],
            limited("no"),
            "600",
        ),
        (
            LOCAL,
            429,
            &[("retry-after-ms", "30500")],
            limited("no"),
            "31",
        ),
        (
            LOCAL,
            503,
            &[("retry-after", "Fri, 20 Nov 2026 12:01:20 GMT"), date],
            limited("no"),
            "60",
        ),
        (
            LOCAL,
            429,
            none,
            limited("Rate limit reached. Please try again in 1m20s."),
            "80",
        ),
        (MODELS[2], 529, &[("retry-after", "45")], json!({}), "45"),
        // The limit that is used up.
        (
            LOCAL,
            429,
            &[
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-requests", "1m12s"),
                ("x-ratelimit-remaining-tokens", "100"),
                ("x-ratelimit-reset-tokens", "5m0s"),
            ],
            limited("no"),
            "72",
        ),
        (
            LOCAL,
            429,
            &[
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "1795176060000"),
                date,
            ],
            limited("no"),
            "40",
        ),
        (
            MODELS[2],
            429,
            &[
                ("anthropic-ratelimit-requests-remaining", "0"),
                ("anthropic-ratelimit-requests-reset", "2026-11-20T12:01:00Z"),
                date,
            ],
            json!({}),
            "40",
        ),
        (MODELS[3], 429, none, exhausted, "35"),
        (LOCAL, 500, &[("retry-after", "25")], limited("no"), "25"),
        (LOCAL, 429, none, limited("no"), "1"),
    ] {
        upstream.reply(Reply::With(status, headers.to_vec(), body));
        for path in PATHS {
            let answer = app.post(&account.key, path, &prompt(path, model)).await;
            assert!(answer.status.is_server_error(), "{}", answer.text);
            assert_eq!(
                answer.header("retry-after"),
                seconds,
                "{status} {headers:?}"
            );
            assert_eq!(answer.header("retry-after-ms"), format!("{seconds}000"));
            assert_eq!(answer.header("x-should-retry"), "true");
        }
        let answer = app.post(&account.key, TEXT, &prompt(TEXT, model)).await;
        assert_eq!(answer.header("retry-after"), seconds);
    }
    app.assert_settled().await;
}

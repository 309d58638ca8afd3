//! Delivered work is charged: cancels of models that reason unseen, answers of thinking only, and
//! every end of the provider's own after part of a text was delivered.

use axum::body::{Body, BodyDataStream};
use futures_util::StreamExt as _;
use gensvc::domain::{credits::Credits, ids::GenerationId};
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tower::ServiceExt as _;

use super::{CHAT, MESSAGES, RESPONSES, ask, error, events, record, text_of, with};
use crate::{
    common::{Account, Reply, TestApp, Upstream},
    envelope::raw,
};

const GENERATE: &str = "/v1/generate/text";
const PATHS: [&str; 4] = [GENERATE, CHAT, MESSAGES, RESPONSES];
const LUNA: &str = "openai/gpt-6-luna";
const HAIKU: &str = "anthropic/claude-haiku-5-5";
const GEMINI: &str = "gemini/gemini-3.5-flash-lite";

/// A request for a stream.
fn streamed(path: &str, model: &str, more: &Value) -> Value {
    let body = match path {
        GENERATE => {
            let (provider, model) = model.split_once('/').unwrap();
            json!({"prompt": "x", "provider": provider, "model": model,
                "parameters": {"max_tokens": 4000}})
        }
        RESPONSES => json!({"model": model, "input": "x", "max_output_tokens": 120_000}),
        _ => with(ask(model, "x"), &json!({"max_tokens": 120_000})),
    };
    with(with(body, &json!({"stream": true})), more)
}

fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// A text, and an end with counts, as the vendor of a model sends them.
fn text(model: &str, text: &str) -> String {
    if model.starts_with("openai/") {
        event(&json!({"choices": [{"delta": {"content": text}}]}))
    } else if model.starts_with("gemini/") {
        event(&json!({"candidates": [{"content": {"parts": [{"text": text}]}}]}))
    } else {
        event(
            &json!({"type": "content_block_start", "content_block": {"type": "text", "text": ""}}),
        ) + &event(&json!({"type": "content_block_delta",
                "delta": {"type": "text_delta", "text": text}}))
    }
}

fn end(model: &str, reason: &str, output: u64) -> String {
    if model.starts_with("openai/") {
        event(&json!({"choices": [{"delta": {}, "finish_reason": reason}]}))
            + &event(&json!({"choices": [], "usage": {"prompt_tokens": 100,
                "completion_tokens": output}}))
            + "data: [DONE]\n\n"
    } else if model.starts_with("gemini/") {
        event(
            &json!({"candidates": [{"finishReason": reason}], "usageMetadata":
            {"promptTokenCount": 100, "candidatesTokenCount": 1, "thoughtsTokenCount": output - 1}}),
        )
    } else {
        event(
            &json!({"type": "message_delta", "delta": {"stop_reason": reason},
            "usage": {"output_tokens": output}}),
        ) + &event(&json!({"type": "message_stop"}))
    }
}

/// What comes before the text.
fn start(model: &str) -> String {
    if model.starts_with("anthropic/") {
        event(&json!({"type": "message_start", "message": {"usage":
            {"input_tokens": 100, "output_tokens": 1}}}))
    } else {
        ": start\n\n".to_owned()
    }
}

/// A stream of thinking, as Anthropic sends it.
fn thinking(text: &str) -> String {
    event(&json!({"type": "content_block_start",
        "content_block": {"type": "thinking", "thinking": "", "signature": ""}}))
        + &event(&json!({"type": "content_block_delta",
            "delta": {"type": "thinking_delta", "thinking": text}}))
}

fn signature(text: &str) -> String {
    event(&json!({"type": "content_block_start",
        "content_block": {"type": "thinking", "thinking": "", "signature": ""}}))
        + &event(&json!({"type": "content_block_delta",
            "delta": {"type": "signature_delta", "signature": text}}))
}

/// A stream that is being read.
pub struct Open {
    body: BodyDataStream,
    text: String,
    path: &'static str,
    pub id: String,
}

impl Open {
    /// Posts, releases `n` events, and reads until `marker`.
    pub async fn new(
        (app, account, upstream): (&TestApp, &Account, &Upstream),
        path: &'static str,
        body: &Value,
        n: usize,
        marker: &str,
    ) -> Self {
        let json = [("content-type", "application/json")];
        let request = raw(
            Method::POST,
            path,
            &account.key,
            &json,
            Body::from(body.to_string()),
        );
        let answering = tokio::spawn(app.app.router.clone().oneshot(request));
        upstream.send_events(n);
        let answer = answering.await.unwrap().unwrap();
        assert_eq!(answer.status(), 200);
        let id = answer.headers().get("x-gensvc-generation");
        let mut open = Self {
            id: id.map_or("", |id| id.to_str().unwrap()).to_owned(),
            body: answer.into_body().into_data_stream(),
            text: String::new(),
            path,
        };
        while !open.text.contains(marker) {
            open.next().await.unwrap();
        }
        if path == GENERATE {
            let first = open.text.split("data: ").nth(1).unwrap();
            let first = first.split("\n\n").next().unwrap();
            let first: Value = serde_json::from_str(first).unwrap();
            first["uuid"].as_str().unwrap().clone_into(&mut open.id);
        }
        open
    }

    async fn next(&mut self) -> Option<()> {
        let piece = self.body.next().await?.unwrap();
        self.text += std::str::from_utf8(&piece).unwrap();
        Some(())
    }

    /// Cancels as another server does, so that nothing need be waited for.
    pub async fn cancel(&self, app: &TestApp, account: &Account) {
        let id = GenerationId(self.id.parse().unwrap());
        assert!(app.store.request_cancel(account.id, id).await.unwrap());
        app.app.runner.sweep_step().await.unwrap();
    }

    /// Reads to the end: the text and the last event.
    pub async fn end(mut self) -> (String, Value) {
        while self.next().await.is_some() {}
        if self.path == GENERATE {
            let blocks = self.text.split("\n\n").filter_map(|block| {
                let data = block.lines().find_map(|line| line.strip_prefix("data: "))?;
                serde_json::from_str::<Value>(data).ok()
            });
            let events: Vec<Value> = blocks.collect();
            let pieces = events.iter().filter_map(|event| event["text"].as_str());
            return (pieces.collect(), events.last().unwrap().clone());
        }
        let events = events(self.path, &self.text);
        (text_of(self.path, &events), events.last().unwrap().clone())
    }
}

/// The cost of so many tokens at the prices of the record, at most its hold.
fn cost(record: &Value, input: i64, output: i64) -> String {
    let price = |name: &str| -> i64 {
        let price = record["metadata"]["pricing"][name].as_str().unwrap();
        price.parse::<Credits>().unwrap().micros()
    };
    let exact = input * price("input_per_million") + output * price("output_per_million");
    let exact = Credits::from_micros((exact + 999_999) / 1_000_000);
    let hold: Credits = record["credits"]["estimated"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    exact.min(hold).to_string()
}

#[track_caller]
fn assert_charged(record: &Value, reason: Option<&str>, (input, output): (i64, i64)) {
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(
        record["metadata"]["finish_reason"].as_str(),
        reason,
        "{record}"
    );
    let usage = &record["usage"];
    assert_eq!(
        (&usage["input_tokens"], &usage["output_tokens"]),
        (&json!(input), &json!(output))
    );
    assert_eq!(record["credits"]["charged"], cost(record, input, output));
    assert_eq!(record["credits"]["held"], "0");
}

/// Requests of models that may reason unseen.
fn reasoning() -> [(&'static str, &'static str, Value); 8] {
    let adaptive = json!({"thinking": {"type": "adaptive", "display": "omitted"}});
    [
        (CHAT, LUNA, json!({})),
        (CHAT, LUNA, json!({"reasoning_effort": "high"})),
        (RESPONSES, LUNA, json!({"reasoning": {"effort": "low"}})),
        (MESSAGES, LUNA, json!({"thinking": {"type": "adaptive"}})),
        (MESSAGES, HAIKU, adaptive),
        (MESSAGES, HAIKU, json!({})),
        (GENERATE, "anthropic/claude-opus-5-5", json!({})),
        (CHAT, GEMINI, json!({})),
    ]
}

#[sqlx::test]
async fn a_cancelled_model_that_reasons_is_read_for_its_counts(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1000").await;
    let stage = (&app, &account, &upstream);
    for (n, (path, model, more)) in reasoning().into_iter().enumerate() {
        upstream.reply(Reply::Steps(vec![
            start(model),
            text(model, "Hello"),
            text(model, " you"),
            end(
                model,
                if model == GEMINI {
                    "STOP"
                } else if model == LUNA {
                    "stop"
                } else {
                    "end_turn"
                },
                3_000,
            ),
        ]));
        let body = streamed(path, model, &more);
        let open = Open::new(stage, path, &body, 2, "Hello").await;
        open.cancel(&app, &account).await;
        let id = open.id.clone();
        let record = app.record(&account, &id).await;
        assert_eq!(record["status"], "processing", "{path} {model} {more}");
        // A second cancel changes nothing.
        open.cancel(&app, &account).await;
        upstream.send_events(2);
        let (delivered, last) = open.end().await;
        assert_eq!(delivered, "Hello", "{path} {model} {more}");
        upstream.ended(n + 1).await;
        app.idle().await;
        let record = app.record(&account, &id).await;
        assert_charged(&record, Some("cancelled"), (100, 3_000));
        assert_eq!(record["result"], "Hello");
        assert_eq!(record["usage"].get("estimated"), None, "{record}");
        if path == GENERATE {
            assert_eq!(last, record);
        } else {
            assert!(last.to_string().contains("error"), "{last}");
        }
        if path == RESPONSES {
            let response = &last["response"];
            assert_eq!(response["output"][0]["content"][0]["text"], "Hello");
            assert_eq!(response["usage"]["output_tokens"], 3_000, "{last}");
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_cancelled_model_that_does_not_reason_is_ended(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1000").await;
    let off = json!({"thinking": {"type": "disabled"}});
    for (n, (path, model, more)) in [
        (CHAT, LUNA, json!({"reasoning_effort": "none"})),
        (CHAT, "openai/gpt-4.1", json!({})),
        (GENERATE, LUNA, json!({})),
        (MESSAGES, HAIKU, off),
        (MESSAGES, "anthropic/claude-haiku-4-5", json!({})),
        (RESPONSES, "anthropic/claude-haiku-4-5", json!({})),
        (CHAT, "gemini/gemini-2.5-flash-lite", json!({})),
    ]
    .into_iter()
    .enumerate()
    {
        // The last event is never sent.
        upstream.reply(Reply::Steps(vec![
            start(model),
            text(model, "Hello, Sir"),
            end(model, "stop", 3_000),
        ]));
        let body = streamed(path, model, &more);
        let stage = (&app, &account, &upstream);
        let open = Open::new(stage, path, &body, 2, "Hello").await;
        let path = format!("/v1/generate/{}/cancel", open.id);
        let record = app.post(&account.key, &path, &json!({})).await.expect(200);
        upstream.ended(n + 1).await;
        let input = if model.starts_with("anthropic/") {
            100
        } else {
            1
        };
        // The 10 bytes that were delivered.
        assert_charged(&record, Some("cancelled"), (input, 3));
        assert_eq!(record["usage"]["estimated"], true);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_cancel_is_answered_before_the_counts_are_known(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    // The wait is no longer than that.
    let env = [("GENSVC__JOBS__LEASE_SECONDS", "1")];
    let app = TestApp::upstream_with(options, &upstream, &env).await;
    let other = app.replica().await;
    let account = app.account("1000").await;
    for (server, n) in [(&app, 1), (&other, 2)] {
        upstream.reply(Reply::Steps(vec![
            text(LUNA, "Hello"),
            end(LUNA, "stop", 3_000),
        ]));
        let body = streamed(CHAT, LUNA, &json!({}));
        let open = Open::new((&app, &account, &upstream), CHAT, &body, 1, "Hello").await;
        let path = format!("/v1/generate/{}/cancel", open.id);
        let answer = server.post(&account.key, &path, &json!({})).await;
        assert_eq!(answer.expect(200)["status"], "processing");
        assert_eq!(answer.header("retry-after"), "5");
        app.app.runner.sweep_step().await.unwrap();
        upstream.send_events(1);
        let id = open.id.clone();
        assert_eq!(open.end().await.0, "Hello");
        upstream.ended(n).await;
        app.idle().await;
        let record = app.record(&account, &id).await;
        assert_charged(&record, Some("cancelled"), (100, 3_000));
        let again = server.post(&account.key, &path, &json!({})).await;
        again.error(409, "already_finished");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn an_upstream_that_breaks_down_after_a_cancel_is_estimated(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    use crate::common::upstream::steps::CUT;
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1000").await;
    let counted = event(&json!({"choices": [], "usage": {"prompt_tokens": 100,
        "completion_tokens": 70}}));
    let broken = event(&json!({"error": {"message": "no", "code": 500}}));
    for (rest, counts) in [
        (vec![CUT.to_owned()], (1, 2)),
        (vec![broken.clone()], (1, 2)),
        (vec![counted, broken], (100, 70)),
        (vec![end(LUNA, "network_error", 9)], (1, 2)),
    ] {
        let n = rest.len();
        let mut sent = vec![text(LUNA, "Hello")];
        sent.extend(rest);
        upstream.reply(Reply::Steps(sent));
        let body = streamed(CHAT, LUNA, &json!({}));
        let open = Open::new((&app, &account, &upstream), CHAT, &body, 1, "Hello").await;
        open.cancel(&app, &account).await;
        upstream.send_events(n);
        let id = open.id.clone();
        open.end().await;
        app.idle().await;
        assert_charged(&app.record(&account, &id).await, Some("cancelled"), counts);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn thinking_that_is_shown_counts_as_delivered(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1000").await;
    let model = "anthropic/claude-haiku-4-5";
    let thought = "hm, ".repeat(100);
    let encrypted = json!({"include": ["reasoning.encrypted_content"]});
    // A body of Responses, also where it is answered as a chat.
    let mixed = json!({"input": "x"});
    for (path, more, piece, shown) in [
        (MESSAGES, json!({}), thinking(&thought), Some(400)),
        (RESPONSES, json!({}), thinking(&thought), Some(400)),
        (CHAT, json!({}), thinking(&thought), None),
        (GENERATE, json!({}), thinking(&thought), None),
        (MESSAGES, json!({}), signature("c2lnbmVk"), Some(8)),
        (RESPONSES, encrypted.clone(), signature("c2lnbmVk"), Some(8)),
        (RESPONSES, json!({}), signature("c2lnbmVk"), None),
        (CHAT, mixed.clone(), thinking(&thought), None),
        (CHAT, with(mixed, &encrypted), signature("c2lnbmVk"), None),
    ] {
        upstream.reply(Reply::Steps(vec![
            start(model) + &piece,
            end(model, "end_turn", 500),
        ]));
        let format = if more.get("input").is_some() {
            RESPONSES
        } else {
            path
        };
        let body = streamed(format, model, &more);
        // What is not shown is life, at least; but a plain text is silent.
        let marker = match path {
            _ if shown.is_none() => "data",
            RESPONSES => "response.reasoning",
            _ => "_delta",
        };
        let marker = if path == RESPONSES && more != json!({}) {
            "reasoning"
        } else {
            marker
        };
        let stage = (&app, &account, &upstream);
        let open = Open::new(stage, path, &body, 1, marker).await;
        upstream.all_sent().await;
        let path = format!("/v1/generate/{}/cancel", open.id);
        let record = app.post(&account.key, &path, &json!({})).await.expect(200);
        match shown {
            Some(bytes) => {
                assert_charged(&record, Some("cancelled"), (100, (bytes + 3) / 4));
                assert_eq!(record["result"], "");
            }
            None => {
                assert_eq!(record["error"]["code"], "cancelled", "{path} {record}");
                assert_eq!(record["credits"]["charged"], "0");
            }
        }
        upstream.take_events_back();
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn an_answer_of_thinking_only_is_completed_and_charged(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1000").await;
    let whole = |model: &str, counted: bool| {
        let tokens = if counted { json!(700) } else { Value::Null };
        match model {
            LUNA => json!({"choices": [{"message": {"content": ""}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 100, "completion_tokens": tokens}}),
            GEMINI => {
                json!({"candidates": [{"content": {"parts": [{"text": "hm", "thought": true}]},
                "finishReason": "STOP"}], "usageMetadata": if counted {
                    json!({"promptTokenCount": 100, "thoughtsTokenCount": tokens})
                } else { json!({}) }})
            }
            _ => json!({"content": [{"type": "redacted_thinking", "data": "x"}],
                "stop_reason": "end_turn", "usage": {"input_tokens": 100, "output_tokens": tokens}}),
        }
    };
    for model in [LUNA, HAIKU, GEMINI] {
        for path in PATHS {
            let mut body = streamed(path, model, &json!({}));
            let reason = if model == GEMINI {
                "STOP"
            } else if model == LUNA {
                "stop"
            } else {
                "end_turn"
            };
            upstream.reply(Reply::Raw(
                200,
                "text/event-stream",
                start(model) + &end(model, reason, 700),
            ));
            let answer = app.post(&account.key, path, &body).await;
            assert_eq!(answer.status, 200, "{path} {model} {}", answer.text);
            let newest = async || {
                let history = app.history(&account).await;
                app.record(&account, history[0]["uuid"].as_str().unwrap())
                    .await
            };
            assert_charged(&newest().await, None, (100, 700));
            body["stream"] = json!(false);
            upstream.reply(Reply::Status(200, whole(model, true)));
            app.post(&account.key, path, &body).await.expect(200);
            let record = newest().await;
            assert_charged(&record, None, (100, 700));
            assert_eq!(record["result"], "");
            upstream.reply(Reply::Status(200, whole(model, false)));
            app.post(&account.key, path, &body).await.expect(502);
            assert_eq!(newest().await["error"]["code"], "provider_error");
        }
    }
    app.assert_settled().await;
}

/// Ends of a provider's own: the reason, how it is recorded, and how it fails before any text.
const ENDS: [(&str, &str, &str, &str); 11] = [
    (LUNA, "content_filter", "content_filter", "content_policy"),
    (LUNA, "sensitive", "content_filter", "content_policy"),
    (HAIKU, "refusal", "content_filter", "content_policy"),
    (GEMINI, "SAFETY", "content_filter", "content_policy"),
    (GEMINI, "RECITATION", "content_filter", "content_policy"),
    (GEMINI, "SPII", "content_filter", "content_policy"),
    (
        GEMINI,
        "MALFORMED_FUNCTION_CALL",
        "malformed_function_call",
        "provider_error",
    ),
    (GEMINI, "LANGUAGE", "other", "provider_error"),
    (GEMINI, "OTHER", "other", "provider_error"),
    (GEMINI, "UNEXPECTED_TOOL_CALL", "other", "provider_error"),
    (GEMINI, "MALFORMED_RESPONSE", "other", "provider_error"),
];

/// The value that the last events of a dialect contain for a finish reason.
fn dialect_reason(path: &str, reason: &str) -> Value {
    match (path, reason) {
        (CHAT, "content_filter") => json!("content_filter"),
        (CHAT, _) => json!("length"),
        (MESSAGES, "content_filter") => json!("refusal"),
        (MESSAGES, _) => json!("max_tokens"),
        (_, "content_filter") => json!("content_filter"),
        _ => json!("max_output_tokens"),
    }
}

#[track_caller]
fn assert_reason(path: &str, text: &str, reason: &str) {
    let events = events(path, text);
    let (last, before) = (&events[events.len() - 1], &events[events.len() - 2]);
    let found = match path {
        CHAT => before["choices"][0]["finish_reason"].clone(),
        MESSAGES => before["delta"]["stop_reason"].clone(),
        _ => last["response"]["incomplete_details"]["reason"].clone(),
    };
    assert_eq!(found, dialect_reason(path, reason), "{text}");
    assert!(!last.to_string().contains("\"error\":{"), "{last}");
}

#[sqlx::test]
async fn an_end_of_the_providers_own_keeps_what_was_delivered(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let stream = |body: String| Reply::Raw(200, "text/event-stream", body);
    for (model, reason, recorded, failed) in ENDS {
        // A retry joins requests of its own account.
        let account = app.account("1000").await;
        for path in [CHAT, MESSAGES, RESPONSES] {
            let body = streamed(path, model, &json!({}));
            let sent = start(model) + &text(model, "Hello") + &end(model, reason, 3_000);
            upstream.reply(stream(sent));
            let tried = |count| [("x-stainless-retry-count", count)];
            let answer = app.post_with(&account.key, path, &tried("0"), &body).await;
            assert_reason(path, &answer.text, recorded);
            let found = record(&app, &account, &answer).await;
            assert_charged(&found, Some(recorded), (100, 3_000));
            assert_eq!(found["result"], "Hello");
            // An SDK's retry is answered with it, in any form.
            let calls = upstream.count();
            let again = app.post_with(&account.key, path, &tried("1"), &body).await;
            assert_reason(path, &again.text, recorded);
            assert_eq!(record(&app, &account, &again).await["uuid"], found["uuid"]);
            assert_eq!(upstream.count(), calls);
            // Before any text it fails, and costs nothing.
            upstream.reply(stream(start(model) + &end(model, reason, 3_000)));
            let fresh = with(body, &json!({"temperature": null}));
            let answer = app.post(&account.key, path, &fresh).await;
            let status = if failed == "content_policy" { 400 } else { 502 };
            error(path, &answer, status, failed);
            assert_eq!(
                record(&app, &account, &answer).await["credits"]["charged"],
                "0"
            );
        }
        // The service's own route.
        let body = streamed(GENERATE, model, &json!({}));
        upstream.reply(stream(
            start(model) + &text(model, "Hello") + &end(model, reason, 300),
        ));
        let (name, last) = app
            .post(&account.key, GENERATE, &body)
            .await
            .events()
            .pop()
            .unwrap();
        assert_eq!(name, "completed");
        assert_charged(&last, Some(recorded), (100, 300));
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn an_unknown_end_is_a_breakdown_and_free(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for (model, reason) in [
        (LUNA, "network_error"),
        (LUNA, "abort"),
        (LUNA, "error"),
        (LUNA, "timeout"),
        (HAIKU, "aborted"),
        (GEMINI, "INTERNAL"),
    ] {
        for path in PATHS {
            let body = streamed(path, model, &json!({}));
            let sent = start(model) + &text(model, "Hello") + &end(model, reason, 300);
            upstream.reply(Reply::Raw(200, "text/event-stream", sent));
            let answer = app.post(&account.key, path, &body).await;
            assert!(
                answer.text.contains("provider_error"),
                "{path} {}",
                answer.text
            );
        }
    }
    let plain = json!({"choices": [{"message": {"content": "Hello"}, "finish_reason": "abort"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 3}});
    upstream.reply(Reply::Status(200, plain));
    let answer = app.post(&account.key, CHAT, &ask(LUNA, "x")).await;
    error(CHAT, &answer, 502, "provider_error");
    assert_eq!(
        app.balance(&account).await,
        ("10".to_owned(), "0".to_owned())
    );
    app.assert_settled().await;
}

#[sqlx::test]
async fn our_own_limits_end_a_text_with_length(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10000").await;
    for model in [LUNA, HAIKU, GEMINI] {
        for path in [GENERATE, CHAT, MESSAGES, RESPONSES] {
            // 5 MiB of text, and 65 MiB of comments after a text, in events of less than 1 MiB; and
            // an event of more.
            let long = text(model, &"x".repeat(1 << 19)).repeat(10);
            let large = if path == CHAT {
                let comment = format!(": {}\n\n", "x".repeat(1 << 19));
                Some(text(model, "Hello") + &comment.repeat(130))
            } else {
                None
            };
            let event = text(model, "Hello") + &text(model, &"x".repeat(1 << 20));
            for (body, bytes) in [(Some(long), 4 << 20), (large, 5), (Some(event), 5)] {
                let Some(body) = body else { continue };
                upstream.reply(Reply::Raw(200, "text/event-stream", start(model) + &body));
                let answer = app
                    .post(&account.key, path, &streamed(path, model, &json!({})))
                    .await;
                assert_eq!(answer.status, 200, "{path} {model}");
                let history = app.history(&account).await;
                let uuid = history[0]["uuid"].as_str().unwrap();
                let record = app.record(&account, uuid).await;
                let input = if model == HAIKU { 100 } else { 1 };
                assert_charged(&record, Some("length"), (input, (bytes + 3) / 4));
                assert_eq!(
                    record["result"].as_str().unwrap().len(),
                    usize::try_from(bytes).unwrap()
                );
                if path != GENERATE {
                    assert_reason(path, &answer.text, "length");
                }
            }
        }
    }
    app.assert_settled().await;
}

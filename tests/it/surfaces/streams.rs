//! Streams: their grammar, when they begin, how long they last, and how they fail.

use std::time::{Duration, Instant};

use axum::body::Body;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tower::ServiceExt as _;

use super::{
    CHAT, MESSAGES, MODELS, ROUTES, ask, breakers::stream_of, error, events, record, text_of, with,
};
use crate::{
    common::{Reply, TestApp, Upstream},
    envelope::raw,
};

fn streamed(model: &str) -> Value {
    with(ask(model, "x"), &json!({"stream": true, "max_tokens": 500}))
}

/// The types of the events of messages, and whether those of a chat have what they need.
fn check(path: &str, events: &[Value], usage: bool) {
    if path == MESSAGES {
        let types = events.iter().map(|event| event["type"].as_str().unwrap());
        let types: Vec<_> = types
            .filter(|kind| *kind != "content_block_delta")
            .collect();
        let expected = [
            "message_start",
            "content_block_start",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ];
        assert_eq!(types, expected);
        let start = &events[0]["message"];
        assert!(
            start["usage"]["input_tokens"].as_i64().unwrap() > 0,
            "{start}"
        );
        let [.., end, _] = events else {
            panic!("{events:?}")
        };
        assert_eq!(end["delta"]["stop_reason"], "end_turn");
        assert!(end["usage"]["output_tokens"].as_i64().unwrap() > 0, "{end}");
        return;
    }
    let (last, chunks) = events.split_last().unwrap();
    assert_eq!(last, "[DONE]");
    assert_eq!(
        chunks[0]["choices"][0]["delta"],
        json!({"role": "assistant", "content": ""})
    );
    let ids: Vec<_> = chunks.iter().map(|chunk| &chunk["id"]).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let (with_usage, without): (Vec<_>, Vec<_>) =
        chunks.iter().partition(|chunk| chunk["usage"].is_object());
    assert_eq!(with_usage.len(), usize::from(usage));
    if usage {
        assert_eq!(with_usage[0], &chunks[chunks.len() - 1]);
        assert_eq!(with_usage[0]["choices"], json!([]));
    }
    let reasons: Vec<_> = without
        .iter()
        .map(|chunk| &chunk["choices"][0]["finish_reason"])
        .collect();
    let (last, others) = reasons.split_last().unwrap();
    assert_eq!(*last, "stop");
    assert!(others.iter().all(|reason| reason.is_null()), "{reasons:?}");
}

#[sqlx::test]
async fn every_vendor_is_streamed_in_the_callers_dialect(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for path in ROUTES {
        for model in MODELS {
            let answer = app.post(&account.key, path, &streamed(model)).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            assert_eq!(answer.header("content-type"), "text/event-stream");
            let events = events(path, &answer.text);
            check(path, &events, false);
            let record = record(&app, &account, &answer).await;
            assert_eq!(record["result"], text_of(path, &events), "{model}");
            assert_eq!(record["status"], "completed");
        }
    }
    let more = json!({"stream_options": {"include_usage": true}});
    let answer = app
        .post(&account.key, CHAT, &with(streamed(MODELS[1]), &more))
        .await;
    let events = events(CHAT, &answer.text);
    check(CHAT, &events, true);
    let usage = &events[events.len() - 2]["usage"];
    assert_eq!(
        (&usage["prompt_tokens"], &usage["completion_tokens"]),
        (&json!(10), &json!(3))
    );
    app.assert_settled().await;
}

/// A stream begins with the counts that the vendor had by then.
#[sqlx::test]
async fn a_stream_begins_with_the_vendors_counts(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let usage = json!({"input_tokens": 3, "cache_read_input_tokens": 40,
        "cache_creation_input_tokens": 5, "output_tokens": 1, "cache_creation":
            {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 3}});
    let delta = json!({"type": "text_delta", "text": "a"});
    upstream.reply(Reply::Raw(
        200,
        "text/event-stream",
        stream_of(&[
            json!({"type": "message_start", "message": {"usage": usage}}),
            json!({"type": "content_block_start", "index": 0,
                "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": delta}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": 2}}),
            json!({"type": "message_stop"}),
        ]),
    ));
    let answer = app.post(&account.key, MESSAGES, &streamed(MODELS[2])).await;
    let events = events(MESSAGES, &answer.text);
    assert_eq!(events[0]["message"]["usage"], usage);
    app.assert_settled().await;
}

#[sqlx::test]
async fn pieces_are_passed_on_as_they_come(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.reply(Reply::Stepwise("abcd".to_owned(), 10, 3));
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for path in ROUTES {
        let json = [("content-type", "application/json")];
        let body = Body::from(streamed(MODELS[1]).to_string());
        let request = raw(http::Method::POST, path, &account.key, &json, body);
        let response = tokio::spawn(app.app.router.clone().oneshot(request));
        upstream.send_events(1);
        // The answer begins with the first piece, and the rest is not there yet.
        let mut body = response
            .await
            .unwrap()
            .unwrap()
            .into_body()
            .into_data_stream();
        let first = body.next().await.unwrap().unwrap();
        let first = String::from_utf8(first.to_vec()).unwrap();
        assert_eq!(text_of(path, &events(path, &first)), "ab");
        upstream.send_events(4);
        let mut rest = String::new();
        while let Some(piece) = body.next().await {
            rest += std::str::from_utf8(&piece.unwrap()).unwrap();
        }
        let all = first + &rest;
        check(path, &events(path, &all), false);
        assert_eq!(text_of(path, &events(path, &all)), "abcd");
    }
}

#[sqlx::test]
async fn what_fails_before_the_first_piece_keeps_its_status(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for (status, expected, code, retry) in [
        (429, 503, "provider_overloaded", "true"),
        (503, 503, "provider_overloaded", "true"),
        (500, 502, "provider_error", "true"),
        (400, 400, "provider_rejected", "false"),
        (504, 504, "provider_timeout", "true"),
    ] {
        upstream.reply(Reply::Status(status, json!({"error": {"message": "no"}})));
        for path in ROUTES {
            for body in [streamed(MODELS[1]), ask(MODELS[2], "x")] {
                let answer = app.post(&account.key, path, &body).await;
                error(path, &answer, expected, code);
                assert_eq!(answer.header("x-should-retry"), retry, "{code}");
                let record = record(&app, &account, &answer).await;
                assert_eq!(record["error"]["code"], code);
                if expected == 503 {
                    assert_eq!(answer.header("retry-after"), "1");
                    assert_eq!(answer.header("retry-after-ms"), "1000");
                }
            }
        }
    }
    assert_eq!(
        app.balance(&account).await,
        ("10".to_owned(), "0".to_owned())
    );
}

/// The caller's own cancel cuts the text: that is no success either, but it was delivered.
#[sqlx::test]
async fn a_cancelled_stream_ends_in_an_error(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.reply(Reply::Stepwise("abcd".to_owned(), 10, 3));
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    // A model that reasons unseen would be read to its end.
    let off = json!({"reasoning_effort": "none"});
    for (path, more) in [(CHAT, off), (MESSAGES, json!({}))] {
        let json = [("content-type", "application/json")];
        let body = Body::from(with(streamed(MODELS[1]), &more).to_string());
        let request = raw(http::Method::POST, path, &account.key, &json, body);
        let response = tokio::spawn(app.app.router.clone().oneshot(request));
        upstream.send_events(1);
        let response = response.await.unwrap().unwrap();
        let uuid = response.headers()["x-gensvc-generation"]
            .to_str()
            .unwrap()
            .to_owned();
        let cancel = format!("/v1/generate/{uuid}/cancel");
        let cancelled = app
            .call(http::Method::POST, &account.key, &cancel, &[], None)
            .await;
        assert_eq!(cancelled.expect(200)["result"], "ab");
        let body = axum::body::to_bytes(response.into_body(), usize::MAX)
            .await
            .unwrap();
        let events = events(path, std::str::from_utf8(&body).unwrap());
        let last = events.last().unwrap();
        assert_eq!(text_of(path, &events), "ab");
        assert!(last["error"]["message"].is_string(), "{last}");
        upstream.take_events_back();
    }
}

/// The time-out of a provider is that of a silence.
#[sqlx::test]
async fn a_stream_that_flows_outlasts_the_timeout(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let env = [("GENSVC__PROVIDERS__OPENAI__TIMEOUT_SECONDS", "1")];
    let app = TestApp::upstream_with(options, &upstream, &env).await;
    let account = app.account("10").await;
    let chunk = |delta: Value, reason: Value| {
        let chunk = json!({"choices": [{"delta": delta, "finish_reason": reason}]});
        format!("data: {chunk}\n\n")
    };
    let mut pieces = vec![chunk(json!({"content": "x"}), Value::Null); 1_000];
    pieces.push(chunk(json!({}), json!("stop")));
    upstream.reply(Reply::Steps(pieces));
    let body = streamed(MODELS[1]);
    let answering = app.post(&account.key, CHAT, &body);
    let sending = async {
        let began = Instant::now();
        for _ in 0..=1_000 {
            upstream.send_events(1);
            if began.elapsed() < Duration::from_millis(1_500) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    };
    let (answer, ()) = tokio::join!(answering, sending);
    let events = events(CHAT, &answer.text);
    check(CHAT, &events, false);
    assert_eq!(text_of(CHAT, &events).len(), 1_000);
    app.assert_settled().await;
}

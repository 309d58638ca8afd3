//! When a generation moves on, and when it must not.

use std::time::Duration;

use chrono::TimeDelta;
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{attempts, begin, fail_at, failed, fast, pairs, routed, with_fallbacks};
use crate::common::{End, Recorded, Reply, Upstream};

#[sqlx::test]
async fn each_known_failure_moves_on(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let alone =
        json!({"prompt": "Say hello.", "provider": "anthropic", "model": "claude-haiku-4-5"});
    let alone = app.text(&account.key, alone).await.expect(200);
    let quota = json!({"error": {"code": "insufficient_quota", "message": "m", "type": "t"}});
    let unknown = json!({"error": {"code": "model_not_found", "message": "m", "type": "t"}});
    let mut calls = 0;
    for body in [fast(), with_fallbacks()] {
        for (reply, outcome) in [
            (failed(429), "overloaded"),
            (failed(503), "overloaded"),
            (failed(529), "overloaded"),
            (failed(401), "account_refused"),
            (failed(403), "account_refused"),
            (Reply::Status(429, quota.clone()), "account_refused"),
            (Reply::Status(404, unknown.clone()), "model_not_found"),
        ] {
            let status = match &reply {
                Reply::Status(status, _) => *status,
                _ => 0,
            };
            // Its circuit must not open.
            app.advance(TimeDelta::minutes(1));
            fail_at(&upstream, &["/openai/"], reply);
            let before = app.balance(&account).await.0;
            let answer = app.text(&account.key, body.clone()).await;
            let record = answer.expect(200);
            calls += 1;
            assert_eq!(record["provider"], "anthropic", "{record}");
            assert_eq!(record["model"], "claude-haiku-4-5");
            assert_eq!(
                attempts(&record),
                pairs(&[("openai", outcome), ("anthropic", "completed")])
            );
            assert_eq!(record["attempts"][0]["status"], status);
            assert_eq!(record["attempts"][0]["called"], true);
            assert_eq!(record["metadata"]["attempts"], 2);
            assert_eq!(
                answer.header("x-gensvc-served-by"),
                "anthropic/claude-haiku-4-5"
            );
            // At the price of the one that served.
            assert_eq!(record["credits"]["charged"], alone["credits"]["charged"]);
            assert_eq!(record["bill"]["total"], alone["credits"]["charged"]);
            assert_eq!(record["metadata"]["pricing"], alone["metadata"]["pricing"]);
            assert_eq!(record["parameters"], alone["parameters"]);
            assert_ne!(app.balance(&account).await.0, before);
            assert_eq!(upstream.calls(&Method::POST, "/openai/"), calls);
            assert_eq!(upstream.calls(&Method::POST, "/anthropic/"), calls + 1);
        }
    }
    assert_eq!(upstream.calls(&Method::POST, "/gemini/"), 0);
    let metrics = app.metrics(&[("host", "localhost")]).await.text;
    let line = "gensvc_generation_moves_total{provider=\"openai\",model=\"gpt-4.1-mini\",\
                reason=\"model_not_found\"} 2";
    assert!(metrics.contains(line), "{metrics}");
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_move_keeps_the_ids_by_which_it_is_found(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    app.text(&account.key, fast()).await.expect(200);
    let error = json!({"error": {"message": "no", "type": "error"}});
    let full = Reply::With(429, vec![("x-request-id", "req-left")], error);
    fail_at(&upstream, &["/openai/"], full);
    let (headers, body) = ([("x-request-id", "mine")], fast());
    let sent = app.post_with(&account.key, "/v1/generate/text", &headers, &body);
    let record = sent.await.expect(200);
    let stored = app.record(&account, record["uuid"].as_str().unwrap()).await;
    for record in [&record, &stored] {
        assert_eq!(record["provider"], "anthropic");
        assert_eq!(record["metadata"]["request_id"], "mine");
    }
    assert_eq!(stored["attempts"][0]["provider_request_id"], "req-left");
    for filter in ["request_id=mine", "provider_request_id=req-left"] {
        let path = format!("/v1/generate/history?{filter}");
        let found = app.get(&account.key, &path).await.expect(200);
        let found = found["data"].as_array().unwrap();
        assert_eq!(found.len(), 1, "{filter}");
        assert_eq!(found[0]["uuid"], record["uuid"]);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_refused_connection_moves_on(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let env = [("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")];
    let app = routed(options, &upstream, &env).await;
    let account = app.account("1000").await;
    let record = app.text(&account.key, fast()).await.expect(200);
    assert_eq!(
        attempts(&record),
        pairs(&[("openai", "unreachable"), ("anthropic", "completed")])
    );
    assert_eq!(record["attempts"][0]["status"], Value::Null);
    app.assert_settled().await;
}

#[sqlx::test]
async fn an_unknown_outcome_or_the_callers_error_never_moves_on(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let overloaded = json!({"error": {"code": "server_overloaded", "message": "m", "type": "t"}});
    let policy = json!({"error": {"code": "content_policy_violation", "message": "m"}});
    let no_repeat = vec![("x-should-retry", "false")];
    for (at, reply) in [
        failed(500),
        failed(502),
        failed(504),
        failed(408),
        failed(400),
        failed(422),
        Reply::Status(400, policy),
        // It lies: an error, or nothing, with the status of a success.
        Reply::Status(200, overloaded),
        Reply::Raw(200, "application/json", "{".to_owned()),
        Reply::Raw(200, "text/html", "<p>429</p>".to_owned()),
        Reply::With(429, no_repeat, json!({"error": {"message": "m"}})),
        Reply::Cut,
    ]
    .into_iter()
    .enumerate()
    {
        fail_at(&upstream, &["/openai/"], reply.clone());
        let answer = app.text(&account.key, fast()).await;
        assert!(answer.status.as_u16() >= 400, "{reply:?}: {}", answer.text);
        assert_eq!(answer.header("x-gensvc-served-by"), "openai/gpt-4.1-mini");
        assert_eq!(upstream.count(), at + 1, "{reply:?}");
    }
    assert_eq!(upstream.calls(&Method::POST, "/openai/"), upstream.count());
    assert_eq!(app.balance(&account).await, ("1000".into(), "0".into()));
    app.assert_settled().await;
}

#[sqlx::test]
async fn the_last_candidate_is_retried_and_its_failure_is_the_answer(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    upstream.play(|request: &Recorded| {
        failed(if request.path.contains("/gemini/") {
            503
        } else {
            429
        })
    });
    let answer = app.text(&account.key, fast()).await;
    answer.error(503, "provider_overloaded");
    let record = answer.json()["generation"].clone();
    assert_eq!(
        attempts(&record),
        pairs(&[
            ("openai", "overloaded"),
            ("anthropic", "overloaded"),
            ("gemini", "provider_overloaded"),
        ])
    );
    assert_eq!(record["credits"]["charged"], "0");
    for (path, calls) in [("/openai/", 1), ("/anthropic/", 1), ("/gemini/", 3)] {
        assert_eq!(upstream.calls(&Method::POST, path), calls, "{path}");
    }
    assert_eq!(record["metadata"]["attempts"], 5);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_stream_moves_on_only_before_its_first_piece(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    fail_at(&upstream, &["/openai/"], failed(429));
    let body = json!({"model": "route/fast", "stream": true, "max_tokens": 300,
        "messages": [{"role": "user", "content": "Say hello."}]});
    for path in ["/openai/v1/chat/completions", "/anthropic/v1/messages"] {
        let answer = app.post(&account.key, path, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(answer.text.contains("there."), "{}", answer.text);
        assert!(answer.text.contains("route/fast"), "{}", answer.text);
        assert_eq!(
            answer.header("x-gensvc-served-by"),
            "anthropic/claude-haiku-4-5"
        );
    }
    let mut own = fast();
    own["stream"] = true.into();
    let events = app.text(&account.key, own).await.events();
    let (name, last) = events.last().unwrap();
    assert_eq!(
        (name.as_str(), &last["provider"]),
        ("completed", &json!("anthropic"))
    );
    assert_eq!(
        attempts(last),
        pairs(&[("openai", "overloaded"), ("anthropic", "completed")])
    );
    // The stream of the first one breaks: what it has delivered cannot be taken back.
    let begun = "data: {\"id\": \"c\", \"model\": \"m\", \"choices\": [{\"index\": 0, \"delta\": \
                 {\"role\": \"assistant\", \"content\": \"Hel\"}, \"finish_reason\": null}]}\n\n";
    let before = upstream.calls(&Method::POST, "/anthropic/");
    for cut in [begun, ": nothing yet\n\n"] {
        fail_at(
            &upstream,
            &["/openai/"],
            Reply::Stream(cut.into(), End::Cut),
        );
        let answer = app
            .post(&account.key, "/openai/v1/chat/completions", &body)
            .await;
        assert!(!answer.text.contains("there."), "{}", answer.text);
    }
    assert_eq!(upstream.calls(&Method::POST, "/anthropic/"), before);
    app.idle().await;
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_server_that_lost_its_row_does_not_move_it_on(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    fail_at(&upstream, &["/openai/"], failed(429));
    upstream.hold();
    let uuid = begin(&app, &account, &fast()).await;
    upstream.arrived(1).await;
    // It is taken for dead during the call, whose answer then says that it was not started.
    let other = app.replica().await;
    assert_eq!(other.bury().await, 1);
    upstream.release(usize::MAX >> 4);
    app.idle().await;
    let record = other.record(&account, &uuid).await;
    assert_eq!(record["error"]["code"], "interrupted", "{record}");
    assert_eq!(attempts(&record), pairs(&[("openai", "interrupted")]));
    assert_eq!(upstream.count(), 1);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_cancelled_generation_does_not_move_on(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    fail_at(&upstream, &["/openai/"], failed(429));
    upstream.hold();
    let uuid = begin(&app, &account, &fast()).await;
    upstream.arrived(1).await;
    let path = format!("/v1/generate/{uuid}/cancel");
    let cancelled = app.call(Method::POST, &account.key, &path, &[], None).await;
    assert_eq!(cancelled.expect(200)["status"], "failed");
    upstream.release(usize::MAX >> 4);
    app.idle().await;
    assert_eq!(upstream.count(), 1);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_provider_at_its_limit_is_passed_over(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let env = [("GENSVC__PROVIDERS__OPENAI__MAX_CONCURRENT", "1")];
    let app = routed(options, &upstream, &env).await;
    let account = app.account("1000").await;
    upstream.hold_only("/openai/");
    begin(&app, &account, &fast()).await;
    upstream.arrived(1).await;
    let record = app.text(&account.key, fast()).await.expect(200);
    assert_eq!(attempts(&record), pairs(&[("anthropic", "completed")]));
    let dropped = &record["metadata"]["dropped"][0];
    assert_eq!(
        (&dropped["provider"], &dropped["code"]),
        (&json!("openai"), &json!("provider_busy"))
    );
    upstream.release(usize::MAX >> 4);
    app.idle().await;
    app.assert_settled().await;
}

#[sqlx::test]
async fn retry_after_does_not_delay_a_move(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let slow = Reply::With(
        429,
        vec![("retry-after", "15")],
        json!({"error": {"message": "m"}}),
    );
    fail_at(&upstream, &["/openai/"], slow);
    let sending = app.text(&account.key, fast());
    let answer = tokio::time::timeout(Duration::from_secs(10), sending).await;
    assert_eq!(answer.unwrap().expect(200)["provider"], "anthropic");
}

/// With `fallback_on` a lost answer moves on too, at the operator's cost, until text was delivered.
#[sqlx::test]
async fn a_lost_answer_moves_on_if_that_is_asked_for(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let mut body = fast();
    body["fallback_on"] = "unknown".into();
    let alone =
        json!({"prompt": "Say hello.", "provider": "anthropic", "model": "claude-haiku-4-5"});
    let alone = app.text(&account.key, alone).await.expect(200);
    let broken = Reply::Stream(": nothing yet\n\n".into(), End::Cut);
    let mut moved = 0;
    for (reply, stream) in [
        (failed(500), false),
        (failed(504), true),
        (Reply::Raw(200, "application/json", "{".to_owned()), false),
        (Reply::Cut, false),
        (broken, true),
    ] {
        moved += 1;
        fail_at(&upstream, &["/openai/"], reply);
        body["stream"] = stream.into();
        let answer = app.text(&account.key, body.clone()).await;
        let record = if stream {
            answer.events().pop().unwrap().1
        } else {
            answer.expect(200)
        };
        assert_eq!(
            attempts(&record),
            pairs(&[("openai", "unknown"), ("anthropic", "completed")])
        );
        assert_eq!(record["credits"]["charged"], alone["credits"]["charged"]);
    }
    let metrics = app.metrics(&[("host", "localhost")]).await.text;
    let line = format!("model=\"gpt-4.1-mini\",reason=\"unknown\"}} {moved}");
    assert!(metrics.contains(&line), "{metrics}");
    // Text was delivered, or the request is at fault.
    let begun = "data: {\"id\": \"c\", \"model\": \"m\", \"choices\": [{\"index\": 0, \"delta\": \
                 {\"role\": \"assistant\", \"content\": \"Hel\"}, \"finish_reason\": null}]}\n\n";
    let begun = Reply::Stream(begun.into(), End::Cut);
    for (reply, stream) in [(begun, true), (failed(400), false)] {
        fail_at(&upstream, &["/openai/"], reply);
        body["stream"] = stream.into();
        let answer = app.text(&account.key, body.clone()).await;
        assert!(!answer.text.contains("there."), "{}", answer.text);
    }
    assert_eq!(upstream.calls(&Method::POST, "/anthropic/"), moved + 1);
    // No other type takes it.
    let image = json!({"prompt": "x", "fallback_on": "unknown"});
    let refused = app
        .post(&account.key, "/v1/generate/image", &image)
        .await
        .fields();
    assert_eq!(refused["fallback_on"], "unknown_field");
    app.idle().await;
    app.assert_settled().await;
}

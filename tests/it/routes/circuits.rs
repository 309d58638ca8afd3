//! Circuits: what opens, probes and closes them, and what a request gets while they are open.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chrono::TimeDelta;
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{attempts, begin, break_openai, fail_at, failed, fast, hello, pairs, routed};
use crate::{
    common::{Reply, TestApp, Upstream},
    v1::admin::operator,
};

/// The models whose circuits are open, by the operators' API.
async fn open(app: &TestApp, admin: &str) -> Vec<String> {
    let health = app.get(admin, "/v1/admin/providers").await.expect(200);
    let providers = health["data"].as_array().unwrap();
    let all = providers
        .iter()
        .flat_map(|provider| provider["open_circuits"].as_array().unwrap());
    all.map(|circuit| circuit["model"].as_str().unwrap().to_owned())
        .collect()
}

#[sqlx::test]
async fn an_open_circuit_is_passed_over_and_probed(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let admin = operator(&app).await;
    break_openai(&app, &upstream, &account).await;
    assert_eq!(upstream.calls(&Method::POST, "/openai/"), 5);
    assert_eq!(open(&app, &admin).await, ["gpt-4.1-mini"]);
    let providers = app.get("", "/v1/providers").await.expect(200);
    let mut all = providers["data"].as_array().unwrap().iter();
    let openai = all.find(|one| one["id"] == "openai").unwrap();
    assert_eq!(openai["open_circuits"][0]["model"], "gpt-4.1-mini");
    assert_eq!(openai["open_circuits"][0]["retry_seconds"], 30.0);
    let metrics = app.metrics(&[("host", "localhost")]).await.text;
    let line = "gensvc_open_circuits{provider=\"openai\",model=\"gpt-4.1-mini\"} 1";
    assert!(metrics.contains(line), "{metrics}");
    let record = app.text(&account.key, fast()).await.expect(200);
    assert_eq!(record["metadata"]["dropped"][0]["code"], "circuit_open");
    assert_eq!(upstream.calls(&Method::POST, "/openai/"), 5);
    // A request for the model alone is sent.
    let alone = json!({"prompt": "x", "provider": "openai", "model": "gpt-4.1-mini"});
    let alone = app.text(&account.key, alone).await;
    alone.error(503, "provider_overloaded");
    assert_eq!(upstream.calls(&Method::POST, "/openai/"), 8);
    // One probe, which succeeds.
    app.advance(TimeDelta::seconds(31));
    fail_at(&upstream, &[], failed(429));
    let record = app.text(&account.key, fast()).await.expect(200);
    assert_eq!(record["provider"], "openai", "{record}");
    assert_eq!(open(&app, &admin).await, Vec::<String>::new());
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_request_and_its_retries_fail_once(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let admin = operator(&app).await;
    fail_at(&upstream, &["/openai/"], failed(429));
    let alone = json!({"prompt": "x", "provider": "openai", "model": "gpt-4.1-mini"});
    for failed in 1..=5 {
        let answer = app.text(&account.key, alone.clone()).await;
        answer.error(503, "provider_overloaded");
        assert_eq!(open(&app, &admin).await.len(), usize::from(failed == 5));
    }
    assert_eq!(upstream.calls(&Method::POST, "/openai/"), 15);
    app.assert_settled().await;
}

/// A document that only vendors can count is not sent to the one that is skipped.
#[sqlx::test]
async fn an_open_circuit_is_not_asked_for_a_count(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let file = BASE64_STANDARD.encode("%PDF-1.7\nx");
    let source = json!({"type": "base64", "media_type": "application/pdf", "data": file});
    let content = json!([{"type": "document", "source": source}, {"type": "text", "text": "x"}]);
    let body = json!({"model": "route/fast", "max_tokens": 100,
        "messages": [{"role": "user", "content": content}]});
    let served_by = async || {
        upstream.play(|request| {
            if request.path.to_lowercase().contains("tokens") {
                return Reply::Status(200, json!({"input_tokens": 100, "totalTokens": 100}));
            }
            hello()
        });
        let answer = app.post(&account.key, "/anthropic/v1/messages", &body);
        let answer = answer.await;
        answer.expect(200);
        answer.header("x-gensvc-served-by").to_owned()
    };
    // OpenAI's model takes no documents.
    assert_eq!(served_by().await, "anthropic/claude-haiku-4-5");
    assert_eq!(upstream.calls(&Method::POST, "/anthropic/"), 2);
    fail_at(&upstream, &["/openai/", "/anthropic/"], failed(429));
    for _ in 0..5 {
        app.text(&account.key, fast()).await.expect(200);
    }
    assert_eq!(served_by().await, "gemini/gemini-3.5-flash-lite");
    assert_eq!(upstream.calls(&Method::POST, "/anthropic/"), 7);
    app.assert_settled().await;
}

/// What is refused or replayed does not depend on circuits.
#[sqlx::test]
async fn without_a_candidate_requests_are_answered_at_once(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let headers = [("idempotency-key", "one")];
    let send = async || (app.post_with(&account.key, "/v1/generate/text", &headers, &fast())).await;
    let first = send().await.expect(200);
    fail_at(&upstream, &["/"], failed(429));
    for _ in 0..5 {
        app.text(&account.key, fast())
            .await
            .error(503, "provider_overloaded");
    }
    let calls = upstream.count();
    app.advance(TimeDelta::seconds(10));
    let refused = app.text(&account.key, fast()).await;
    refused.error(503, "provider_overloaded");
    assert_eq!(refused.header("retry-after"), "21");
    let poor = app.account("0.000001").await;
    let refused = app.text(&poor.key, fast()).await;
    refused.error(402, "insufficient_credits");
    let again = send().await;
    assert_eq!(again.expect(200)["uuid"], first["uuid"]);
    assert_eq!(again.header("idempotent-replayed"), "true");
    assert_eq!(upstream.count(), calls);
    app.assert_settled().await;
}

#[sqlx::test]
async fn the_last_candidate_is_skipped_while_its_circuit_is_open(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    break_openai(&app, &upstream, &account).await;
    let calls = upstream.calls(&Method::POST, "/openai/");
    let body = json!({"prompt": "x", "provider": "anthropic", "model": "claude-haiku-4-5",
        "fallbacks": [{"provider": "openai", "model": "gpt-4.1-mini"}]});
    fail_at(&upstream, &["/anthropic/"], failed(503));
    let refused = app.text(&account.key, body.clone()).await;
    refused.error(503, "provider_overloaded");
    assert_eq!(refused.header("retry-after"), "30");
    let record = refused.json()["generation"].clone();
    assert_eq!(
        attempts(&record),
        pairs(&[
            ("anthropic", "overloaded"),
            ("openai", "provider_overloaded")
        ])
    );
    assert_eq!(record["attempts"][0]["called"], true);
    assert_eq!(record["attempts"][1]["called"], false);
    assert_eq!(upstream.calls(&Method::POST, "/openai/"), calls);
    // Its probe fails once, and is not repeated.
    app.advance(TimeDelta::seconds(31));
    fail_at(&upstream, &["/"], failed(503));
    app.text(&account.key, body)
        .await
        .error(503, "provider_overloaded");
    assert_eq!(upstream.calls(&Method::POST, "/openai/"), calls + 1);
    app.assert_settled().await;
}

/// An estimate, a refusal and a cancel leave the probe, or the circuit, as it is.
#[sqlx::test]
async fn only_an_answer_of_the_provider_closes_a_circuit(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let (account, poor) = (app.account("1000").await, app.account("0.000001").await);
    let admin = operator(&app).await;
    break_openai(&app, &upstream, &account).await;
    let calls = upstream.calls(&Method::POST, "/openai/");
    app.advance(TimeDelta::seconds(31));
    let mut asked = fast();
    asked["type"] = "text".into();
    app.post(&account.key, "/v1/credits/estimate", &asked)
        .await
        .expect(200);
    app.text(&poor.key, fast())
        .await
        .error(402, "insufficient_credits");
    // The probe is still there. It is cancelled before an answer.
    upstream.hold_only("/openai/");
    let uuid = begin(&app, &account, &fast()).await;
    upstream.arrived(upstream.count()).await;
    let path = format!("/v1/generate/{uuid}/cancel");
    let cancelled = app.call(Method::POST, &account.key, &path, &[], None).await;
    assert_eq!(cancelled.expect(200)["provider"], "openai");
    upstream.release(usize::MAX >> 4);
    app.idle().await;
    assert_eq!(upstream.calls(&Method::POST, "/openai/"), calls + 1);
    assert_eq!(open(&app, &admin).await, ["gpt-4.1-mini"]);
    // The caller's own error is an answer.
    app.advance(TimeDelta::seconds(31));
    fail_at(&upstream, &["/openai/"], failed(400));
    app.text(&account.key, fast())
        .await
        .error(502, "provider_rejected");
    assert_eq!(upstream.calls(&Method::POST, "/openai/"), calls + 2);
    assert_eq!(open(&app, &admin).await, Vec::<String>::new());
    app.assert_settled().await;
}

/// Several requests find that a probe is due: one makes it.
#[sqlx::test]
async fn concurrent_requests_make_one_probe(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    break_openai(&app, &upstream, &account).await;
    let calls = upstream.calls(&Method::POST, "/openai/");
    app.advance(TimeDelta::seconds(31));
    let all = (0..20).map(|_| app.text(&account.key, fast()));
    for answer in futures_util::future::join_all(all).await {
        assert_eq!(answer.expect(200)["provider"], "anthropic");
    }
    assert_eq!(upstream.calls(&Method::POST, "/openai/"), calls + 1);
    app.assert_settled().await;
}

#[sqlx::test]
async fn the_fastest_is_found_by_trying_each(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let soon = async |streamed: bool| -> Value {
        let body = json!({"prompt": "x", "model": "route/soon", "stream": streamed});
        let answer = app.text(&account.key, body).await;
        app.idle().await;
        if streamed {
            answer.events().pop().unwrap().1["provider"].clone()
        } else {
            answer.expect(200)["provider"].clone()
        }
    };
    // A plain request measures nothing.
    assert_eq!(soon(false).await, "openai");
    assert_eq!(soon(true).await, "openai");
    assert_eq!(soon(false).await, "openai");
    // The one that has no time yet is tried next.
    assert_eq!(soon(true).await, "anthropic");
    // Both are measured.
    assert_eq!(soon(false).await, soon(false).await);
    // A time is forgotten, and measured again.
    app.advance(TimeDelta::minutes(11));
    assert_eq!(soon(true).await, "openai");
    assert_eq!(soon(true).await, "anthropic");
    app.assert_settled().await;
}

//! POST /v1/generate/text under concurrency: holds, idempotency, revocation, recovery.

use std::sync::Arc;

use chrono::TimeDelta;
use futures_util::future::join_all;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio_util::sync::CancellationToken;

use crate::common::{Reply, TestApp, Upstream};

/// With `max_tokens` 64 and a one-byte prompt on gpt-6-luna (10 and 50 credits per million):
/// 65 × 10 + 64 × 50 micro-credits.
const HOLD: &str = "0.00385";

fn body() -> serde_json::Value {
    json!({"prompt": "x", "provider": "openai", "parameters": {"max_tokens": 64}})
}

#[sqlx::test]
async fn of_200_parallel_requests_a_balance_for_10_lets_10_through(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.reply(Reply::Text("ok".to_owned(), 65, 64));
    upstream.hold();
    // All of them are to come as far as their hold.
    let env = [("GENSVC__SERVER__ACCOUNT_SHARE_PERCENT", "100")];
    let app = Arc::new(TestApp::vendors(options, &upstream, &env).await);
    let account = app.account("0.0385").await;
    let all: Vec<_> = (0..200)
        .map(|_| app.spawn_text(&account.key, body()))
        .collect();
    upstream.arrived(10).await;
    upstream.release(10);
    let mut completed = 0;
    for answer in join_all(all).await {
        let answer = answer.unwrap();
        if answer.status == 200 {
            completed += 1;
            assert_eq!(answer.json()["credits"]["estimated"], HOLD);
            assert_eq!(answer.json()["credits"]["charged"], HOLD);
        } else if answer.status == 429 {
            let error = answer.error(429, "credits_on_hold");
            assert_eq!(error["required"], HOLD);
            assert_eq!(answer.header("retry-after"), "1");
        } else {
            answer.error(402, "insufficient_credits");
        }
    }
    assert_eq!((completed, upstream.count()), (10, 10));
    assert_eq!(
        app.balance(&account).await,
        ("0".to_owned(), "0".to_owned())
    );
    app.assert_settled().await;
}

#[sqlx::test]
async fn of_50_parallel_posts_with_one_key_one_is_made(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let account = app.account("1").await;
    let keyed = [("idempotency-key", "one")];
    let all: Vec<_> = (0..50)
        .map(|_| app.spawn_post(&account.key, "/v1/generate/text", &keyed, body()))
        .collect();
    upstream.arrived(1).await;
    upstream.release(50);
    let answers: Vec<_> = join_all(all)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let first = answers[0].expect(200);
    assert!(answers.iter().all(|a| a.expect(200) == first));
    let replayed = answers
        .iter()
        .filter(|a| a.header("idempotent-replayed") == "true")
        .count();
    assert_eq!((replayed, upstream.count()), (49, 1));
    let ledger = app
        .get(&account.key, "/v1/credits/ledger?kind=charge")
        .await
        .expect(200);
    assert_eq!(ledger["data"].as_array().unwrap().len(), 1);
    app.assert_settled().await;
}

#[sqlx::test]
async fn an_idempotency_key_is_bound_to_its_request_and_for_a_day(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("0.06").await;
    let post = |body: serde_json::Value| {
        let (app, key) = (&app, account.key.clone());
        async move {
            app.post_with(
                &key,
                "/v1/generate/text",
                &[("idempotency-key", "k")],
                &body,
            )
            .await
        }
    };
    // Refused requests do not bind the key.
    post(json!({"prompt": ""})).await.fields();
    post(json!({"prompt": "x".repeat(9000), "max_cost": "0.01"}))
        .await
        .error(402, "max_cost_exceeded");
    let first = post(json!({"prompt": "x", "parameters": {"max_tokens": 9}})).await;
    assert_eq!(first.header("idempotent-replayed"), "");
    // The same value in another notation, and `stream`, are the same request.
    let again =
        post(json!({"parameters": {"max_tokens": 9}, "prompt": "x", "stream": false})).await;
    assert_eq!(again.expect(200), first.expect(200));
    assert_eq!(again.header("idempotent-replayed"), "true");
    let streamed =
        post(json!({"prompt": "x", "parameters": {"max_tokens": 9}, "stream": true})).await;
    let events = streamed.events();
    let names: Vec<_> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["generation", "completed"]);
    assert_eq!(events[1].1, first.json());
    post(json!({"prompt": "y"}))
        .await
        .error(422, "idempotency_key_reused");
    let uuid = first.json()["uuid"].as_str().unwrap().to_owned();
    app.advance(TimeDelta::hours(25));
    let later = post(json!({"prompt": "y", "parameters": {"max_tokens": 9}})).await;
    assert_ne!(later.expect(200)["uuid"], uuid);
    for bad in ["", " ", "a b", "ä", &"x".repeat(256)] {
        app.post_with(
            &account.key,
            "/v1/generate/text",
            &[("idempotency-key", bad)],
            &json!({"prompt": "x"}),
        )
        .await
        .error(400, "invalid_header");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_failed_generation_is_replayed_as_it_failed(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let headers = [("idempotency-key", "k")];
    let body = json!({"prompt": "[[reject]]"});
    let first = app
        .post_with(&account.key, "/v1/generate/text", &headers, &body)
        .await;
    first.error(502, "provider_rejected");
    let again = app
        .post_with(&account.key, "/v1/generate/text", &headers, &body)
        .await;
    again.error(502, "provider_rejected");
    assert_eq!(again.json()["generation"], first.json()["generation"]);
}

#[sqlx::test]
async fn a_refusal_for_want_of_credits_says_what_would_fit(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("0.01").await;
    let error = app
        .text(&account.key, json!({"prompt": "x"}))
        .await
        .error(402, "insufficient_credits");
    let member = |name: &str| error[name].as_str().unwrap().to_owned();
    assert_eq!(
        ["required", "balance", "held", "available", "shortfall"].map(member),
        ["0.05185", "0.01", "0", "0.01", "0.04185"]
    );
    let fits = error["affordable"]["max_tokens"].as_u64().unwrap();
    // 10000 - 650 micro-credits for the input leave 187 tokens of 50.
    assert_eq!(fits, 187);
    let body = |n: u64| json!({"prompt": "x", "parameters": {"max_tokens": n}});
    app.text(&account.key, body(fits + 1))
        .await
        .error(402, "insufficient_credits");
    app.text(&account.key, body(fits)).await.expect(200);
    let poor = app.account("0.0001").await;
    let error = app
        .text(&poor.key, body(1))
        .await
        .error(402, "insufficient_credits");
    assert_eq!(error["affordable"], serde_json::Value::Null);
}

#[sqlx::test]
async fn holds_of_running_work_are_told_apart_from_an_empty_account(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let account = app.account("0.005").await;
    let running = app.spawn_text(&account.key, body());
    upstream.arrived(1).await;
    let refused = app.text(&account.key, body()).await;
    let error = refused.error(429, "credits_on_hold");
    assert_eq!(
        (error["held"].as_str(), error["retryable"].as_bool()),
        (Some(HOLD), Some(true))
    );
    upstream.release(1);
    running.await.unwrap().expect(200);
    app.assert_settled().await;
}

#[sqlx::test]
async fn too_many_jobs_are_refused_before_the_credits_are_looked_at(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let url = format!("{}/openai", upstream.url());
    let env = [
        ("OPENAI_API_KEY", "k"),
        ("OPENAI_BASE_URL", url.as_str()),
        ("GENSVC__JOBS__MAX_PER_ACCOUNT", "2"),
    ];
    let app = Arc::new(TestApp::with(options, &env).await);
    let account = app.account("0.01").await;
    let queue = async |body: serde_json::Value| {
        let prefer = [("prefer", "respond-async")];
        app.post_with(&account.key, "/v1/generate/text", &prefer, &body)
            .await
    };
    let mut queued = Vec::new();
    for _ in 0..2 {
        let record = queue(body()).await.expect(202);
        queued.push(record["uuid"].as_str().unwrap().to_owned());
    }
    upstream.arrived(2).await;
    let refused = queue(body()).await;
    refused.error(429, "too_many_jobs");
    assert_ne!(refused.header("retry-after"), "");
    let mut dear = body();
    dear["max_cost"] = json!("0.000001");
    queue(dear).await.error(429, "too_many_jobs");
    // What is waited for is no job.
    let waited_for = app.text(&account.key, body()).await;
    waited_for.error(429, "credits_on_hold");
    upstream.release(2);
    for uuid in queued {
        app.until_finished(&account, &uuid).await;
    }
    app.text(
        &account.key,
        json!({"prompt": "x", "provider": "sandbox", "parameters": {"max_tokens": 1}}),
    )
    .await
    .expect(200);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_revoked_key_is_refused_at_once_while_its_running_request_finishes(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let account = app.account("1").await;
    let session = app.login(&account).await;
    let made = app
        .post(&session, "/v1/api-keys", &json!({"name": "short-lived"}))
        .await
        .expect(201);
    let key = made["key"].as_str().unwrap().to_owned();
    let running = app.spawn_text(&key, body());
    upstream.arrived(1).await;
    app.delete(&session, &format!("/v1/api-keys/{}", made["id"]))
        .await
        .expect(200);
    app.text(&key, body()).await.error(401, "revoked_key");
    upstream.release(1);
    running.await.unwrap().expect(200);
    assert_eq!(upstream.count(), 1);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_caller_that_hangs_up_does_not_stop_its_generation(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let account = app.account("1").await;
    let running = app.spawn_text(&account.key, body());
    upstream.arrived(1).await;
    // What hyper does with a handler whose connection is closed.
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    let listed = app
        .get(&account.key, "/v1/generate/history?status=processing")
        .await
        .expect(200);
    let uuid = listed["data"][0]["uuid"].as_str().unwrap().to_owned();
    upstream.release(1);
    let path = format!("/v1/generate/{uuid}");
    let found = app
        .call(
            http::Method::GET,
            &account.key,
            &path,
            &[("prefer", "wait=60")],
            None,
        )
        .await;
    assert_eq!(found.header("preference-applied"), "wait=60");
    assert_eq!(found.expect(200)["status"], "completed");
    app.assert_settled().await;
}

#[sqlx::test]
async fn what_a_dead_server_left_is_ended_and_released(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let account = app.account("1").await;
    let prefer = [("prefer", "respond-async")];
    let running: Vec<_> = (0..5)
        .map(|_| app.spawn_post(&account.key, "/v1/generate/text", &prefer, body()))
        .collect();
    upstream.arrived(5).await;
    let uuids: Vec<String> = join_all(running)
        .await
        .into_iter()
        .map(|a| a.unwrap().expect(202)["uuid"].as_str().unwrap().to_owned())
        .collect();
    let other = app.replica().await;
    // The first is alive, so it owns its work.
    assert_eq!(other.app.runner.sweep_step().await.unwrap(), 0);
    app.advance(TimeDelta::seconds(29));
    assert_eq!(other.app.runner.sweep_step().await.unwrap(), 0);
    // It is silent for longer than a lease: considered dead.
    app.advance(TimeDelta::seconds(2));
    assert_eq!(other.app.runner.sweep_step().await.unwrap(), 5);
    app.assert_settled().await;
    // It was only paused: its results arrive too late, and change nothing.
    upstream.release(5);
    for uuid in uuids {
        let record = other
            .get(&account.key, &format!("/v1/generate/{uuid}"))
            .await
            .expect(200);
        assert_eq!(record["error"]["code"], "interrupted");
        assert_eq!(record["credits"]["charged"], "0");
    }
    app.app
        .runner
        .drain(
            std::time::Duration::from_mins(1),
            &CancellationToken::default(),
        )
        .await;
    assert_eq!(
        app.balance(&account).await,
        ("1".to_owned(), "0".to_owned())
    );
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_stop_interrupts_what_outlives_the_grace_period(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let account = app.account("1").await;
    let running = app.spawn_text(&account.key, body());
    upstream.arrived(1).await;
    app.app
        .runner
        .drain(std::time::Duration::ZERO, &CancellationToken::default())
        .await;
    let answer = running.await.unwrap();
    answer.error(503, "shutting_down");
    assert_eq!(answer.json()["generation"]["error"]["code"], "interrupted");
    app.text(&account.key, body())
        .await
        .error(503, "shutting_down");
    assert_eq!(
        app.get("", "/health").await.expect(503)["status"],
        "unavailable"
    );
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_cancel_releases_the_hold_and_tells_the_waiting_caller(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let account = app.account("1").await;
    let running = app.spawn_text(&account.key, body());
    upstream.arrived(1).await;
    let listed = app.history(&account).await;
    let path = format!("/v1/generate/{}", listed[0]["uuid"].as_str().unwrap());
    app.delete(&account.key, &path)
        .await
        .error(409, "not_finished");
    let cancel = format!("{path}/cancel");
    let reader = app
        .key(
            account.id,
            json!({"name": "r", "abilities": ["read:history"]}),
        )
        .await;
    app.post(&reader, &cancel, &json!({}))
        .await
        .error(403, "missing_ability");
    let record = app
        .post(&account.key, &cancel, &json!({}))
        .await
        .expect(200);
    assert_eq!(record["error"]["code"], "cancelled");
    assert_eq!(record["metadata"]["attempts"], 1);
    let answer = running.await.unwrap();
    answer.error(409, "cancelled");
    assert_eq!(answer.json()["generation"], record);
    app.post(&account.key, &cancel, &json!({}))
        .await
        .error(409, "already_finished");
    app.delete(&account.key, &path).await.expect(204);
    app.get(&account.key, &path).await.error(404, "not_found");
    app.delete(&account.key, &path)
        .await
        .error(404, "not_found");
    app.assert_settled().await;
}

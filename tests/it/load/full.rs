//! A process at its limits: requests, provider calls, logins.

use std::sync::Arc;

use futures_util::future::join_all;
use http::Method;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{Answer, TestApp, Upstream};

fn text() -> serde_json::Value {
    json!({"prompt": "x", "parameters": {"max_tokens": 8}})
}

/// 503 with `code` and a short Retry-After.
#[track_caller]
fn refused(answer: &Answer, code: &str) {
    let error = answer.error(503, code);
    assert_eq!(error["type"], "unavailable");
    assert_eq!(error["retryable"], true);
    assert_eq!(answer.header("retry-after"), "1");
}

#[sqlx::test]
async fn one_request_too_many_is_refused_and_health_is_not(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let env = [("GENSVC__SERVER__MAX_REQUESTS", "1")];
    let app = Arc::new(TestApp::vendors(options, &upstream, &env).await);
    let account = app.account("10").await;
    // It waits for the account's row.
    let mut busy = app.pool.begin().await.unwrap();
    sqlx::query("select from accounts for update")
        .execute(&mut *busy)
        .await
        .unwrap();
    let first = app.spawn_text(&account.key, text());
    let waits = "select count(*) from pg_stat_activity
                 where datname = current_database() and wait_event_type = 'Lock'";
    let waiting = async || -> i64 {
        let waits = sqlx::query_scalar(waits).fetch_one(&app.pool).await;
        waits.unwrap()
    };
    while waiting().await == 0 {
        assert!(!first.is_finished(), "it did not wait");
    }
    refused(&app.text(&account.key, text()).await, "overloaded");
    refused(&app.get("", "/v1/models").await, "overloaded");
    for path in ["/health", "/health/live"] {
        app.get("", path).await.expect(200);
    }
    assert_eq!(upstream.count(), 0);
    busy.rollback().await.unwrap();
    first.await.unwrap().expect(200);
    app.text(&account.key, text()).await.expect(200);
    app.assert_settled().await;
}

#[sqlx::test]
async fn who_waits_for_a_generation_takes_nobodys_place(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let env = [("GENSVC__SERVER__MAX_REQUESTS", "4")];
    let app = Arc::new(TestApp::vendors(options, &upstream, &env).await);
    let account = app.account("10").await;
    let keyed = [("idempotency-key", "a")];
    let first = app.spawn_post(&account.key, "/v1/generate/text", &keyed, text());
    upstream.arrived(1).await;
    app.get("", "/v1/models").await.expect(200);
    let uuid = app.history(&account).await[0]["uuid"].clone();
    let path = format!("/v1/generate/{}", uuid.as_str().unwrap());
    let waits: Vec<_> = (0..501)
        .map(|_| {
            let (app, key, path) = (Arc::clone(&app), account.key.clone(), path.clone());
            tokio::spawn(async move {
                let wait = [("prefer", "wait=60")];
                loop {
                    let answer = app.call(Method::GET, &key, &path, &wait, None).await;
                    // Two concurrent reads compete for the limit.
                    if answer.status != 503 {
                        break answer;
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    // An excess request is not queued, but gets the current state.
    let (one, _, others) = futures_util::future::select_all(waits).await;
    let one = one.unwrap();
    assert_eq!(one.expect(200)["status"], "processing");
    assert_eq!(one.header("preference-applied"), "");
    // A replay gets Retry-After, and a stream continues to the end without a wait.
    app.post_with(&account.key, "/v1/generate/text", &keyed, &text())
        .await
        .error(409, "idempotency_in_progress");
    let mut body = text();
    body["stream"] = json!(true);
    let stream = app.spawn_post(&account.key, "/v1/generate/text", &keyed, body);
    upstream.release(usize::MAX >> 4);
    assert_eq!(stream.await.unwrap().events()[1].0, "completed");
    first.await.unwrap().expect(200);
    for answer in join_all(others).await {
        let answer = answer.unwrap();
        assert_eq!(answer.expect(200)["status"], "completed");
        assert_eq!(answer.header("preference-applied"), "wait=60");
    }
}

#[sqlx::test]
async fn a_body_on_its_way_takes_nobodys_place(_: PgPoolOptions, options: PgConnectOptions) {
    let env = [("GENSVC__SERVER__MAX_REQUESTS", "1")];
    let app = Arc::new(TestApp::with(options, &env).await);
    let account = app.account("10").await;
    let (rest, slow) = app.spawn_slow_text(&account.key).await;
    app.get("", "/v1/models").await.expect(200);
    app.text(&account.key, text()).await.expect(200);
    rest.send(text().to_string().into()).unwrap();
    slow.await.unwrap().expect(200);
}

#[sqlx::test]
async fn a_provider_with_enough_calls_is_refused_before_anything_is_held(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let env = [("GENSVC__PROVIDERS__OPENAI__MAX_CONCURRENT", "1")];
    let app = Arc::new(TestApp::vendors(options, &upstream, &env).await);
    let account = app.account("1000").await;
    let first = app.spawn_text(&account.key, text());
    upstream.arrived(1).await;
    let before = app.balance(&account).await;
    let keyed = [("idempotency-key", "a")];
    let path = "/v1/generate/text";
    let answer = app.post_with(&account.key, path, &keyed, &text()).await;
    refused(&answer, "provider_overloaded");
    assert!(answer.json().get("generation").is_none());
    let image = json!({"prompt": "x", "provider": "openai"});
    let answer = app.post(&account.key, "/v1/generate/image", &image).await;
    refused(&answer, "provider_overloaded");
    assert_eq!(app.balance(&account).await, before);
    assert_eq!(app.history(&account).await.len(), 1);
    // Callers who cannot pay get 402: retrying later would not help.
    let poor = app.account("0.0001").await;
    app.text(&poor.key, text())
        .await
        .error(402, "insufficient_credits");
    // Other providers are not affected.
    let other = json!({"prompt": "x", "provider": "sandbox", "parameters": {"max_tokens": 8}});
    app.text(&account.key, other).await.expect(200);
    upstream.release(usize::MAX >> 4);
    first.await.unwrap().expect(200);
    // The key was not bound, and the permit is free again.
    let answer = app.post_with(&account.key, path, &keyed, &text()).await;
    answer.expect(200);
    assert_eq!(answer.header("idempotent-replayed"), "");
    app.assert_settled().await;
}

#[sqlx::test]
async fn logins_that_would_queue_too_long_are_refused_alike(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let env = [("GENSVC__SERVER__MAX_WAITING_LOGINS", "1")];
    let app = TestApp::with(options, &env).await;
    let account = app.account("1").await;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let emails = ["nobody@example.com", account.email.as_str()];
    for email in emails {
        let crowd = join_all((0..cores * 4 + 8).map(|n| {
            let body = json!({"email": format!("{n}{email}"), "password": "wrong password"});
            let app = &app;
            async move { app.post("", "/v1/auth/login", &body).await }
        }))
        .await;
        let busy: Vec<_> = crowd.iter().filter(|a| a.status == 503).collect();
        assert!(busy.len() > cores, "{} of {}", busy.len(), crowd.len());
        for answer in &crowd {
            match answer.status.as_u16() {
                503 => refused(answer, "overloaded"),
                _ => drop(answer.error(401, "invalid_credentials")),
            }
        }
    }
    // Afterwards everything is as before, and a refusal was not counted as a failure.
    app.login(&account).await;
}

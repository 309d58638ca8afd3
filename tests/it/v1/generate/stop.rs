//! Waits that a shutdown ends.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::common::{Answer, TestApp, Upstream};

const TEXT: &str = "/v1/generate/text";
const KEYED: [(&str, &str); 1] = [("idempotency-key", "k")];

/// A shutdown whose grace period lasts until the token is cancelled.
async fn stopping(app: &Arc<TestApp>) -> (JoinHandle<()>, CancellationToken) {
    let hurry = CancellationToken::new();
    let stop = {
        let (app, hurry) = (Arc::clone(app), hurry.clone());
        tokio::spawn(async move { app.app.runner.drain(Duration::MAX, &hurry).await })
    };
    app.app.runner.stopping().cancelled().await;
    (stop, hurry)
}

#[track_caller]
fn assert_accepted(answer: &Answer) -> Value {
    let record = answer.expect(202);
    let path = format!("/v1/generate/{}", record["uuid"].as_str().unwrap());
    assert_eq!(answer.header("location"), path);
    assert_eq!(answer.header("retry-after"), "5");
    assert_eq!(answer.header("preference-applied"), "");
    assert_eq!(record["status"], "processing");
    record
}

#[sqlx::test]
async fn a_stop_ends_waits_for_jobs_with_their_records(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    const WAIT: &[(&str, &str)] = &[("prefer", "wait=60")];
    const WAIT_KEYED: &[(&str, &str)] = &[("prefer", "wait=60"), ("idempotency-key", "k")];
    let app = Arc::new(TestApp::new(options).await);
    let account = app.account("100").await;
    // No worker claims them.
    let video = json!({"prompt": "x", "parameters": {"duration": 1}});
    let speech = json!({"prompt": "x"});
    let path = "/v1/generate/video";
    let mut posts = vec![
        app.spawn_post(&account.key, path, WAIT_KEYED, video.clone()),
        app.spawn_post(&account.key, "/v1/generate/audio", WAIT, speech.clone()),
    ];
    while app.history(&account).await.len() < 2 {}
    posts.push(app.spawn_post(&account.key, path, WAIT_KEYED, video));
    let uuid = app.queue(&account, "audio", &speech).await;
    let lookup = app.spawn_get(&account.key, &format!("/v1/generate/{uuid}"), "wait=60");
    let (stop, _) = stopping(&app).await;
    for post in posts {
        assert_accepted(&post.await.unwrap());
    }
    let found = lookup.await.unwrap();
    assert_eq!(found.expect(200)["uuid"], *uuid);
    assert_eq!(found.header("retry-after"), "5");
    assert_eq!(found.header("preference-applied"), "");
    stop.await.unwrap();
    // They are left to other servers.
    let other = app.replica().await;
    let record = other.until_finished(&account, &uuid).await;
    assert_eq!(record["status"], "completed");
}

#[sqlx::test]
async fn a_stop_ends_waits_of_replays_but_not_of_the_request_that_runs(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let other = Arc::new(app.replica().await);
    let account = app.account("1").await;
    let body = json!({"prompt": "x", "provider": "openai"});
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let first = app.spawn_post(&account.key, TEXT, &KEYED, body.clone());
    upstream.arrived(1).await;
    let replay = app.spawn_post(&account.key, TEXT, &KEYED, body.clone());
    let stream = app.spawn_post(&account.key, TEXT, &KEYED, streamed.clone());
    let elsewhere = other.spawn_post(&account.key, TEXT, &KEYED, body);
    let stream_elsewhere = other.spawn_post(&account.key, TEXT, &KEYED, streamed);

    // On a server that runs none of it, all waits end.
    let (stop, _) = stopping(&other).await;
    let answer = elsewhere.await.unwrap();
    assert_accepted(&answer);
    assert_eq!(answer.header("idempotent-replayed"), "true");
    let answer = stream_elsewhere.await.unwrap();
    let events = answer.events();
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["generation"]);
    stop.await.unwrap();

    // On the one that runs it, what ends within the grace period is waited for in a stream.
    let (stop, _) = stopping(&app).await;
    let answer = replay.await.unwrap();
    let record = assert_accepted(&answer);
    assert_eq!(answer.header("idempotent-replayed"), "true");
    assert!(!first.is_finished() && !stop.is_finished());
    upstream.release(1);
    let done = first.await.unwrap().expect(200);
    assert_eq!(done["uuid"], record["uuid"]);
    let events = stream.await.unwrap().events();
    let (name, last) = events.last().unwrap();
    assert_eq!((name.as_str(), &last["uuid"]), ("completed", &done["uuid"]));
    stop.await.unwrap();
    app.assert_settled().await;
}

#[sqlx::test]
async fn work_is_taken_while_a_stop_is_only_announced(_: PgPoolOptions, options: PgConnectOptions) {
    let app = Arc::new(TestApp::new(options).await);
    let account = app.account("100").await;
    app.get("", "/health").await.expect(200);
    app.app.runner.leave();
    let health = app.get("", "/health").await.expect(503);
    assert_eq!(health["status"], "unavailable");
    assert_eq!(health["checks"]["database"], "ok");
    app.get("", "/health/live").await.expect(200);
    app.text(&account.key, json!({"prompt": "x"}))
        .await
        .expect(200);
    // Waits continue to their end.
    let body = json!({"prompt": "x"});
    let headers = &[("prefer", "wait=1")];
    let answer = app.spawn_post(&account.key, "/v1/generate/audio", headers, body);
    let answer = answer.await.unwrap();
    answer.expect(202);
    assert_eq!(answer.header("preference-applied"), "wait=1");
}

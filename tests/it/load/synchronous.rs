//! Synchronous generations of one account: at most its share of a provider and of the server.

use std::sync::Arc;

use futures_util::future::{join_all, select_all};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{
    Answer, Reply, TestApp, Upstream,
    vendors::{openai_images, png},
};

const TEXT: &str = "/v1/generate/text";

fn text(provider: &str) -> Value {
    json!({"prompt": "x", "provider": provider, "parameters": {"max_tokens": 8}})
}

fn streamed() -> Value {
    let mut body = text("openai");
    body["stream"] = json!(true);
    body
}

fn image() -> Value {
    json!({"prompt": "x", "provider": "openai"})
}

/// Where `OpenAI` takes so many calls, half of them of one account.
async fn bounded(options: PgConnectOptions, upstream: &Upstream, calls: &str) -> Arc<TestApp> {
    let env = [("GENSVC__PROVIDERS__OPENAI__MAX_CONCURRENT", calls)];
    Arc::new(TestApp::vendors(options, upstream, &env).await)
}

#[track_caller]
fn refused(answer: &Answer) -> Value {
    let error = answer.error(429, "too_many_requests");
    assert_eq!(error["type"], "rate_limited");
    assert_eq!(error["retryable"], true);
    assert_eq!(answer.header("retry-after"), "1");
    assert_eq!(answer.json().get("generation"), None);
    error
}

#[sqlx::test]
async fn an_account_at_its_share_is_refused_and_others_are_served(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = bounded(options, &upstream, "4").await;
    let (busy, quiet) = (app.account("100").await, app.account("100").await);
    let plain = app.spawn_text(&busy.key, text("openai"));
    let stream = app.spawn_text(&busy.key, streamed());
    upstream.arrived(2).await;
    let before = app.balance(&busy).await;
    let keyed = [("idempotency-key", "a")];
    let answer = app
        .post_with(&busy.key, TEXT, &keyed, &text("openai"))
        .await;
    let error = refused(&answer);
    assert_eq!(
        error["message"],
        "the account has 2 generations running with openai, its limit"
    );
    refused(&app.text(&busy.key, streamed()).await);
    refused(&app.post(&busy.key, "/v1/generate/image", &image()).await);
    // After validation, before credits.
    let mut dear = text("openai");
    dear["max_cost"] = json!("0.000001");
    refused(&app.text(&busy.key, dear.clone()).await);
    dear["parameters"]["max_tokens"] = json!(0);
    app.text(&busy.key, dear)
        .await
        .error(422, "validation_failed");
    assert_eq!(
        (app.balance(&busy).await, app.history(&busy).await.len()),
        (before, 2)
    );
    // Its share of another provider is untouched.
    app.text(&busy.key, text("sandbox")).await.expect(200);
    // The other half is there for others, and the provider is full after that.
    let others: Vec<_> = (0..2)
        .map(|_| app.spawn_text(&quiet.key, text("openai")))
        .collect();
    upstream.arrived(4).await;
    let late = app.account("100").await;
    let answer = app.text(&late.key, text("openai")).await;
    answer.error(503, "provider_overloaded");
    upstream.release(usize::MAX >> 4);
    plain.await.unwrap().expect(200);
    assert_eq!(
        stream.await.unwrap().events().last().unwrap().0,
        "completed"
    );
    for other in join_all(others).await {
        other.unwrap().expect(200);
    }
    // The refused key was not bound.
    let answer = app
        .post_with(&busy.key, TEXT, &keyed, &text("openai"))
        .await;
    answer.expect(200);
    assert_eq!(answer.header("idempotent-replayed"), "");
    app.assert_settled().await;
}

#[sqlx::test]
async fn another_account_is_served_in_the_meantime_and_an_end_makes_room(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.play(|request| {
        if request.path.contains("images") {
            openai_images(&[png(1024, 1024)])
        } else {
            Reply::Text("ok".to_owned(), 1, 1)
        }
    });
    upstream.hold_only("completions");
    let app = bounded(options, &upstream, "2").await;
    let (busy, quiet) = (app.account("100").await, app.account("100").await);
    for body in [text("openai"), streamed()] {
        let arrived = upstream.count() + 1;
        let first = app.spawn_text(&busy.key, body);
        upstream.arrived(arrived).await;
        refused(&app.text(&busy.key, text("openai")).await);
        let answer = app.post(&quiet.key, "/v1/generate/image", &image()).await;
        answer.expect(200);
        refused(&app.text(&busy.key, text("openai")).await);
        upstream.release(1);
        assert_eq!(first.await.unwrap().status, 200);
    }
    let answer = app.post(&busy.key, "/v1/generate/image", &image()).await;
    answer.expect(200);
    app.assert_settled().await;
}

#[sqlx::test]
async fn of_a_burst_exactly_the_share_is_taken(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = bounded(options, &upstream, "9").await;
    let account = app.account("100").await;
    let mut burst: Vec<_> = (0..40)
        .map(|_| app.spawn_text(&account.key, text("openai")))
        .collect();
    while burst.len() > 4 {
        let (answer, _, others) = select_all(burst).await;
        refused(&answer.unwrap());
        burst = others;
    }
    upstream.arrived(4).await;
    assert_eq!(app.history(&account).await.len(), 4);
    upstream.release(usize::MAX >> 4);
    for answer in join_all(burst).await {
        answer.unwrap().expect(200);
    }
    assert_eq!(upstream.count(), 4);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_caller_who_hangs_up_keeps_its_place_until_the_work_ends(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = bounded(options, &upstream, "2").await;
    let account = app.account("100").await;
    for (n, body) in [(1, text("openai")), (2, streamed())] {
        let gone = app.spawn_text(&account.key, body);
        upstream.arrived(n).await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        refused(&app.text(&account.key, text("openai")).await);
        upstream.release(1);
        app.idle().await;
    }
    upstream.release(1);
    app.text(&account.key, text("openai")).await.expect(200);
    app.assert_settled().await;
}

#[sqlx::test]
async fn jobs_count_toward_the_share_of_a_provider(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = bounded(options, &upstream, "8").await;
    let (busy, quiet) = (app.account("100").await, app.account("100").await);
    let headers = [("prefer", "respond-async")];
    let background =
        async |path, body: Value| app.post_with(&busy.key, path, &headers, &body).await;
    for _ in 0..2 {
        background(TEXT, text("openai")).await.expect(202);
        background("/v1/generate/image", image()).await.expect(202);
    }
    upstream.arrived(4).await;
    let before = app.balance(&busy).await;
    refused(&background(TEXT, text("openai")).await);
    refused(&background("/v1/generate/image", image()).await);
    refused(&app.text(&busy.key, text("openai")).await);
    // A stream is synchronous whatever is preferred.
    refused(&background(TEXT, streamed()).await);
    assert_eq!(app.balance(&busy).await, before);
    background(TEXT, text("sandbox")).await.expect(202);
    let others: Vec<_> = (0..4)
        .map(|_| app.spawn_text(&quiet.key, text("openai")))
        .collect();
    upstream.arrived(8).await;
    upstream.release(usize::MAX >> 4);
    for answer in join_all(others).await {
        answer.unwrap().expect(200);
    }
    app.idle().await;
    background(TEXT, text("openai")).await.expect(202);
    app.idle().await;
}

#[sqlx::test]
async fn the_share_of_the_server_counts_all_providers(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let env = [
        ("GENSVC__SERVER__MAX_REQUESTS", "8"),
        ("GENSVC__SERVER__ACCOUNT_SHARE_PERCENT", "25"),
    ];
    let app = Arc::new(TestApp::vendors(options, &upstream, &env).await);
    let (busy, quiet) = (app.account("100").await, app.account("100").await);
    let running = [
        app.spawn_text(&busy.key, text("openai")),
        app.spawn_text(&busy.key, text("gemini")),
    ];
    upstream.arrived(2).await;
    let error = refused(&app.text(&busy.key, text("sandbox")).await);
    assert_eq!(
        error["message"],
        "the account has 2 synchronous generations running, its limit"
    );
    app.text(&quiet.key, text("sandbox")).await.expect(200);
    upstream.release(usize::MAX >> 4);
    for answer in running {
        answer.await.unwrap().expect(200);
    }
    app.text(&busy.key, text("sandbox")).await.expect(200);
    app.assert_settled().await;
}

//! Work whose end the caller cannot wait for is refused before its hold, or named.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use http::Method;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;

use super::super::{CHAT, MESSAGES, MODELS, ask, error, row_01_retries::made};
use crate::{
    common::{Answer, TestApp, Upstream},
    surfaces::media::{IMAGES, SPEECH, image, speech},
};

/// Places to wait of one account.
const PLACES: usize = 500;
const RETRY: [(&str, &str); 1] = [("x-stainless-retry-count", "1")];
const FIRST: [(&str, &str); 1] = [("x-stainless-retry-count", "0")];

async fn waiting(app: &TestApp, n: usize) {
    while app.app.service.waiting() != n {
        yield_now().await;
    }
}

fn is_named(path: &str, answer: &Answer, code: &str, uuid: &str) {
    let named = error(path, answer, 503, code);
    assert_eq!(named["generation"], uuid);
    assert_eq!(answer.header("x-gensvc-generation"), uuid);
    assert_eq!(answer.header("x-should-retry"), "false");
    assert_eq!(answer.header("retry-after"), "");
}

#[sqlx::test]
async fn speech_needs_a_place_to_wait_before_its_hold(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let env = [
        ("GENSVC__SERVER__ACCOUNT_SHARE_PERCENT", "100"),
        ("GENSVC__SERVER__MAX_REQUESTS", "1200"),
    ];
    let app = Arc::new(TestApp::vendors(options, &upstream, &env).await);
    let account = app.account("100").await;
    let body = ask(MODELS[1], "x");
    let first = app.spawn_post(&account.key, CHAT, &FIRST, body.clone());
    upstream.arrived(1).await;
    let uuid = made(&app, &account).await[0].clone();
    let waits = (0..PLACES)
        .map(|_| app.spawn_get(&account.key, &format!("/v1/generate/{uuid}"), "wait=60"));
    let waits: Vec<_> = waits.collect();
    waiting(&app, PLACES).await;
    for more in [json!({}), json!({"response_format": "wav"})] {
        let answer = app.post(&account.key, SPEECH, &speech(&more)).await;
        error(SPEECH, &answer, 503, "overloaded");
        assert_eq!(answer.header("x-should-retry"), "true");
    }
    assert_eq!(made(&app, &account).await, std::slice::from_ref(&uuid));
    // A retry joins what runs, and cannot wait for it.
    let retry = app.post_with(&account.key, CHAT, &RETRY, &body).await;
    is_named(CHAT, &retry, "overloaded", &uuid);
    // Images need no place.
    let images = image(&json!({"size": "256x256"}));
    app.post(&account.key, IMAGES, &images).await.expect(200);
    for wait in &waits {
        wait.abort();
    }
    join_all(waits).await;
    waiting(&app, 0).await;
    upstream.release(1);
    first.await.unwrap().expect(200);
    let body = speech(&json!({}));
    let spoken = app.working(app.post(&account.key, SPEECH, &body));
    assert_eq!(spoken.await.status, 200);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_stop_names_what_goes_on(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = Arc::new(TestApp::vendors(options, &upstream, &[]).await);
    let other = Arc::new(app.replica().await);
    let account = app.account("100").await;
    let mut requests = vec![(
        SPEECH,
        app.spawn_post(&account.key, SPEECH, &FIRST, speech(&json!({}))),
    )];
    waiting(&app, 1).await;
    // The place to wait is taken before the hold.
    while made(&app, &account).await.is_empty() {
        yield_now().await;
    }
    let spoken = made(&app, &account).await[0].clone();
    let mut named = vec![spoken.clone()];
    // Its retry on this server, and a retry of a text that another one runs.
    let retry = app.spawn_post(&account.key, SPEECH, &RETRY, speech(&json!({})));
    waiting(&app, 2).await;
    requests.push((SPEECH, retry));
    named.push(spoken.clone());
    let mut running = Vec::new();
    for (n, path) in [CHAT, MESSAGES].into_iter().enumerate() {
        app.advance(chrono::TimeDelta::seconds(1));
        let body = ask(MODELS[1], "x");
        running.push(other.spawn_post(&account.key, path, &FIRST, body.clone()));
        upstream.arrived(n + 1).await;
        named.push(made(&app, &account).await[0].clone());
        let retry = app.spawn_post(&account.key, path, &RETRY, body);
        requests.push((path, retry));
        waiting(&app, n + 3).await;
    }
    let (runner, now) = (app.app.runner.clone(), CancellationToken::new());
    runner.drain(Duration::from_secs(1), &now).await;
    for ((path, request), uuid) in requests.into_iter().zip(named) {
        is_named(path, &request.await.unwrap(), "shutting_down", &uuid);
    }
    upstream.release(2);
    for one in running {
        one.await.unwrap().expect(200);
    }
    let record = other.until_finished(&account, &spoken).await;
    assert_eq!(record["status"], "completed");
    assert_eq!(made(&other, &account).await.len(), 3);
    other.assert_settled().await;
}

/// Another server has cancelled and deleted what this one runs.
#[sqlx::test]
async fn a_caller_whose_generation_was_deleted_gets_cancelled(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = Arc::new(TestApp::vendors(options, &upstream, &[]).await);
    let other = app.replica().await;
    let account = app.account("100").await;
    let text = json!({"prompt": "x", "provider": "openai"});
    let picture = json!({"prompt": "x", "provider": "openai"});
    for (n, (path, body)) in [
        (CHAT, ask(MODELS[1], "x")),
        (MESSAGES, ask(MODELS[1], "x")),
        (
            IMAGES,
            image(&json!({"model": "openai/gpt-image-2.5-flare"})),
        ),
        ("/v1/generate/text", text),
        ("/v1/generate/image", picture),
    ]
    .into_iter()
    .enumerate()
    {
        app.advance(chrono::TimeDelta::seconds(1));
        let request = app.spawn_post(&account.key, path, &FIRST, body);
        upstream.arrived(n + 1).await;
        let uuid = made(&app, &account).await[0].clone();
        let generation = format!("/v1/generate/{uuid}");
        let cancel = format!("{generation}/cancel");
        let cancel = other.call(Method::POST, &account.key, &cancel, &[], None);
        cancel.await.expect(200);
        other.delete(&account.key, &generation).await.expect(204);
        upstream.release(1);
        let answer = request.await.unwrap();
        if path.starts_with("/v1") {
            let error = answer.error(409, "cancelled");
            assert_eq!(error["retryable"], false);
            assert_eq!(answer.json()["generation"]["uuid"], uuid);
        } else {
            error(path, &answer, 400, "cancelled");
            assert_eq!(answer.header("x-should-retry"), "false");
        }
        assert_eq!(answer.header("x-gensvc-generation"), uuid);
    }
    // A job whose creation is waited for.
    let body = json!({"prompt": "x", "provider": "sandbox"});
    let wait = [("prefer", "wait=60")];
    let video = app.spawn_post(&account.key, "/v1/generate/video", &wait, body);
    waiting(&app, 1).await;
    while made(&app, &account).await.is_empty() {
        yield_now().await;
    }
    let generation = format!("/v1/generate/{}", made(&app, &account).await[0]);
    let cancel = format!("{generation}/cancel");
    let cancel = other.call(Method::POST, &account.key, &cancel, &[], None);
    cancel.await.expect(200);
    other.delete(&account.key, &generation).await.expect(204);
    let video = video.await.unwrap();
    // The server looks every few seconds, perhaps just between the two.
    if video.status == 200 {
        assert_eq!(video.json()["error"]["code"], "cancelled");
    } else {
        video.error(409, "cancelled");
    }
    app.assert_settled().await;
}

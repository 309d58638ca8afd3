//! Memory for the inputs of running calls.

use std::{sync::Arc, time::Duration};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;

/// Starts an edit that uses up an account's share of the memory, and never ends.
async fn fill_memory(app: &Arc<TestApp>, account: &Account) -> JoinHandle<Answer> {
    // About 13 MB.
    let picture = noise(7, (2_100, 2_100));
    let picture = post(app, &account.key, "image/png", picture).await;
    let picture = picture.expect(201)["id"].clone();
    let body = json!({"prompt": "[[timeout]] x", "provider": "sandbox", "inputs": [
        {"role": "source", "upload": picture}, {"role": "reference", "upload": picture}]});
    let running = app.spawn_post(&account.key, IMAGE, &[], body);
    while app.balance(account).await.1 == "0" {
        tokio::task::yield_now().await;
    }
    running
}

/// Starts an edit with an idempotency key, and returns once it waits for memory, as `waiting` requests
/// do then.
async fn begin(app: &Arc<TestApp>, account: &Account, waiting: u32) -> JoinHandle<Answer> {
    let body = json!({"prompt": "At night", "provider": "sandbox",
        "inputs": [data("source", 9, 9)], "parameters": {"size": "256x256"}});
    let keyed = [("idempotency-key", "one")];
    let begun = app.spawn_post(&account.key, IMAGE, &keyed, body);
    let metric = format!("\ngensvc_waiting {waiting}\n");
    while !app
        .metrics(&[("host", "localhost")])
        .await
        .text
        .contains(&metric)
    {
        tokio::task::yield_now().await;
    }
    begun
}

#[sqlx::test]
async fn nothing_is_held_while_an_edit_waits_for_memory(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = Arc::new(TestApp::new(options).await);
    let account = app.account("100").await;
    let running = fill_memory(&app, &account).await;
    let waiting = begin(&app, &account, 1).await;
    let stopped = CancellationToken::new();
    app.app.runner.drain(Duration::ZERO, &stopped).await;
    waiting.await.unwrap().error(503, "shutting_down");
    running.await.unwrap().error(503, "shutting_down");
    let listed = app.history(&account).await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    app.assert_settled().await;
}

#[sqlx::test]
async fn an_edit_that_waits_for_memory_holds_no_permit(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let env = [
        ("GENSVC__PROVIDERS__SANDBOX__MAX_CONCURRENT", "3"),
        ("GENSVC__SERVER__ACCOUNT_SHARE_PERCENT", "100"),
    ];
    let app = Arc::new(TestApp::with(options, &env).await);
    let account = app.account("100").await;
    let running = fill_memory(&app, &account).await;
    let uuid = app.history(&account).await[0]["uuid"].clone();
    let first = begin(&app, &account, 1).await;
    let text = json!({"prompt": "x", "provider": "sandbox"});
    let second = begin(&app, &account, 2).await;
    app.text(&account.key, text).await.expect(200);
    let cancel = format!("/v1/generate/{}/cancel", uuid.as_str().unwrap());
    app.post(&account.key, &cancel, &json!({})).await;
    running.await.unwrap();
    // Both are one generation, as without the wait.
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!(first.expect(200)["uuid"], second.expect(200)["uuid"]);
    app.assert_settled().await;
}

#[sqlx::test]
async fn an_edit_that_cannot_be_paid_is_refused_before_it_waits_for_memory(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = Arc::new(TestApp::new(options).await);
    let account = app.account("4").await;
    let running = fill_memory(&app, &account).await;
    let (balance, held) = app.balance(&account).await;
    let mut body = json!({"prompt": "At night", "provider": "sandbox",
        "inputs": [data("source", 9, 9)], "parameters": {"size": "256x256", "n": 4}});
    let refused = app.post(&account.key, IMAGE, &body).await;
    refused.error(402, "insufficient_credits");
    body["max_cost"] = json!("1");
    let refused = app.post(&account.key, IMAGE, &body).await;
    refused.error(402, "max_cost_exceeded");
    assert_eq!(app.balance(&account).await, (balance, held));
    running.abort();
}

//! Memory for the inputs of running calls.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::*;

#[sqlx::test]
async fn nothing_is_held_while_an_edit_waits_for_memory(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = Arc::new(TestApp::new(options).await);
    let account = app.account("100").await;
    // About 13 MB: two of them use up an account's share of the memory.
    let picture = noise(7, (2_100, 2_100));
    let picture = post(&app, &account.key, "image/png", picture).await;
    let picture = picture.expect(201)["id"].clone();
    let body = json!({"prompt": "[[timeout]] x", "provider": "sandbox", "inputs": [
        {"role": "source", "upload": picture}, {"role": "reference", "upload": picture}]});
    let running = {
        let (app, key) = (Arc::clone(&app), account.key.clone());
        tokio::spawn(async move { app.post(&key, IMAGE, &body).await })
    };
    while app.balance(&account).await.1 == "0" {
        tokio::task::yield_now().await;
    }
    let waiting = {
        let (app, account) = (Arc::clone(&app), account.clone());
        tokio::spawn(async move { edit(&app, &account, json!([data("source", 9, 9)])).await })
    };
    // Its input is stored just before it waits.
    while app.files().len() < 2 {
        tokio::task::yield_now().await;
    }
    let stopped = CancellationToken::new();
    app.app.runner.drain(Duration::ZERO, &stopped).await;
    waiting.await.unwrap().error(503, "shutting_down");
    running.await.unwrap().error(503, "shutting_down");
    let listed = app
        .get(&account.key, "/v1/generate/history")
        .await
        .expect(200);
    assert_eq!(listed["data"].as_array().unwrap().len(), 1, "{listed}");
    app.assert_settled().await;
}

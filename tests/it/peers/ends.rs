//! Mistakes at the end: what is billed when somebody disconnects first.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use futures_util::StreamExt as _;
use http::Request;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{HOLD, answers, movements, pair, posted, text};
use crate::common::{Account, TestApp, Upstream};

/// `LiteLLM`: spend is buffered in memory and written periodically; a shutdown loses the buffer.
#[sqlx::test]
async fn spend_dropped_at_shutdown(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let account = app.account("1").await;
    let running = posted(&[&app], &account.key, 5);
    upstream.arrived(5).await;
    // Shutdown begins; responses arrive while it waits for them.
    let stop = {
        let app = Arc::clone(&app);
        tokio::spawn(async move {
            let grace = Duration::from_mins(1);
            app.app.runner.drain(grace, &CancellationToken::new()).await;
        })
    };
    while !app.app.runner.is_draining() {
        tokio::task::yield_now().await;
    }
    upstream.release(5);
    stop.await.unwrap();
    for answer in answers(running).await {
        assert_eq!(answer.expect(200)["credits"]["charged"], "0.00025");
    }
    // All of it is in the database by the end of the shutdown: another server reads it.
    let next = app.replica().await;
    assert_eq!(next.balance(&account).await, pair("0.99875", "0"));
    let charges = movements(&next, &account).await;
    let charges = charges.iter().filter(|m| **m == pair("charge", "0.00025"));
    assert_eq!(charges.count(), 5);
    next.assert_settled().await;
}

/// Posts a stream, reads until an event arrives, and disconnects. Returns what was read.
async fn hung_up_after(app: &TestApp, account: &Account, mut body: Value, event: &str) -> String {
    body["stream"] = json!(true);
    let request = Request::post("/v1/generate/text")
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {}", account.key))
        .body(Body::from(body.to_string()))
        .unwrap();
    let response = app.app.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut pieces = response.into_body().into_data_stream();
    let mut read = String::new();
    while !read.contains(&format!("event: {event}\n")) {
        let piece = pieces.next().await.unwrap().unwrap();
        read.push_str(std::str::from_utf8(&piece).unwrap());
    }
    read
}

/// The newest record, once it is finished.
async fn newest(app: &TestApp, account: &Account) -> Value {
    app.idle().await;
    let path = "/v1/generate/history?per_page=1";
    let listed = app.get(&account.key, path).await.expect(200);
    let uuid = listed["data"][0]["uuid"].as_str().unwrap().to_owned();
    app.record(account, &uuid).await
}

/// `LiteLLM` then bills nothing, and new-api the estimate. Here: the usage, as always.
#[sqlx::test]
async fn a_client_that_hangs_up_and_pays_nothing_or_the_estimate(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1").await;
    // Before the provider has sent anything.
    hung_up_after(&app, &account, text(), "generation").await;
    upstream.arrived(1).await;
    assert_eq!(app.balance(&account).await, pair("1", HOLD));
    upstream.release(2);
    let record = newest(&app, &account).await;
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["usage"]["total_tokens"], 13);
    assert_eq!(record["credits"]["charged"], "0.00025");
    assert_eq!(app.balance(&account).await, pair("0.99975", "0"));

    // In the middle: the same as reading the same text to the end.
    let ask = json!({"prompt": "tell me of the sea", "provider": "sandbox"});
    let stayed = app.text(&account.key, ask.clone()).await.expect(200);
    let read = hung_up_after(&app, &account, ask, "delta").await;
    assert!(!read.contains("event: completed"), "{read}");
    let record = newest(&app, &account).await;
    assert_ne!(record["uuid"], stayed["uuid"]);
    for member in ["status", "result", "usage", "credits"] {
        assert_eq!(record[member], stayed[member], "{member}");
    }
    assert_ne!(record["credits"]["charged"], "0");
    assert_ne!(record["credits"]["charged"], record["credits"]["estimated"]);
    app.assert_settled().await;
}

//! Mistakes with keys: what survives a revocation.

use std::sync::Arc;

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::text;
use crate::common::{Account, TestApp, Upstream};

async fn made(app: &TestApp, account: &Account) -> Value {
    let body = json!({"name": "short-lived"});
    app.post(&account.key, "/v1/api-keys", &body)
        .await
        .expect(201)
}

/// All of them: keys are cached, and stay valid elsewhere until the cache expires.
#[sqlx::test]
async fn a_key_that_lives_on_after_its_revocation(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let replica = app.replica().await;
    let account = app.account("1").await;
    let record = made(&app, &account).await;
    let key = record["key"].as_str().unwrap();
    for server in [&app, &replica] {
        server.text(key, text()).await.expect(200);
    }
    let path = format!("/v1/api-keys/{}", record["id"]);
    app.delete(&account.key, &path).await.expect(200);
    for server in [&replica, &app] {
        server.text(key, text()).await.error(401, "revoked_key");
        let stream = json!({"prompt": "x", "stream": true});
        server.text(key, stream).await.error(401, "revoked_key");
        server
            .get(key, "/v1/auth/me")
            .await
            .error(401, "revoked_key");
    }
    assert_eq!(upstream.count(), 2);
    app.assert_settled().await;
}

/// All of them: what has passed the check continues, however long ago that was.
#[sqlx::test]
async fn a_key_revoked_between_the_check_and_the_hold(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let replica = app.replica().await;
    let account = app.account("1").await;
    let record = made(&app, &account).await;
    let (body, answer) = app.spawn_slow_text(record["key"].as_str().unwrap()).await;
    let path = format!("/v1/api-keys/{}", record["id"]);
    replica.delete(&account.key, &path).await.expect(200);
    body.send(text().to_string().into()).unwrap();
    answer.await.unwrap().error(401, "revoked_key");

    let session = app.login(&account).await;
    let (body, answer) = app.spawn_slow_text(&session).await;
    let out = replica.post(&session, "/v1/auth/logout", &json!({})).await;
    out.expect(204);
    body.send(text().to_string().into()).unwrap();
    answer.await.unwrap().error(401, "invalid_token");

    let (body, answer) = app.spawn_slow_text(&account.key).await;
    let service = &replica.app.service;
    service.set_suspended(account.id, true, None).await.unwrap();
    body.send(text().to_string().into()).unwrap();
    answer.await.unwrap().error(403, "account_suspended");
    service
        .set_suspended(account.id, false, None)
        .await
        .unwrap();

    assert_eq!(upstream.count(), 0);
    assert!(app.history(&account).await.is_empty());
    assert_eq!(app.balance(&account).await, super::pair("1", "0"));
    app.assert_settled().await;
}

//! /health

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::TestApp;

#[sqlx::test]
async fn it_needs_no_token_and_ignores_a_wrong_one(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    for token in ["", "wrong"] {
        let body = app.get(token, "/health").await.expect(200);
        assert_eq!(body["status"], "ok");
        assert_eq!(
            body["checks"],
            serde_json::json!({"database": "ok", "storage": "ok"})
        );
        app.get(token, "/health/live").await.expect(200);
    }
}

#[sqlx::test]
async fn it_fails_when_the_database_is_gone(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    app.store.close(std::time::Duration::from_secs(9)).await;
    let body = app.get("", "/health").await.expect(503);
    assert_eq!(body["checks"]["database"], "unavailable");
    app.get("", "/health/live").await.expect(200);
    let key = gensvc::domain::token::new_api_key().unwrap();
    let key = secrecy::ExposeSecret::expose_secret(&key.secret).to_owned();
    let answer = app.get(&key, "/v1/credits/balance").await;
    answer.error(503, "database_unavailable");
    assert_ne!(answer.header("retry-after"), "");
}

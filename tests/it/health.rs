//! /health

use chrono::TimeDelta;
use gensvc::domain::clock::machine_time;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::TestApp;

#[sqlx::test]
async fn it_needs_no_token_and_ignores_a_wrong_one(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    for token in ["", "wrong"] {
        let body = app.get(token, "/health").await.expect(200);
        assert_eq!(body["status"], "ok");
        assert_eq!(body["checks"], json!({"database": "ok", "storage": "ok"}));
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

#[sqlx::test]
async fn it_says_so_when_the_machines_clock_is_wrong(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let machines: [(fn() -> _, _); 4] = [
        (machine_time, None),
        (|| machine_time() - TimeDelta::seconds(20), None),
        (|| machine_time() + TimeDelta::minutes(40), Some("skewed")),
        (|| machine_time() - TimeDelta::hours(25), Some("skewed")),
    ];
    for (machine, clock) in machines {
        let app = app.replica().await.on_machine(machine).await;
        // It works all the same.
        let body = app.get("", "/health").await.expect(200);
        let status = if clock.is_some() { "degraded" } else { "ok" };
        assert_eq!(
            (&body["status"], &body["checks"]["clock"]),
            (&json!(status), &json!(clock))
        );
    }
}

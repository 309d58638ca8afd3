//! POST /v1/admin/accounts/{id}/suspend and /resume

use chrono::{SecondsFormat, TimeDelta};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::operator;
use crate::common::TestApp;

#[sqlx::test]
async fn a_suspended_accounts_tokens_are_refused_and_its_work_finishes(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let replica = app.replica().await;
    let (account, other) = (app.account("20").await, app.account("20").await);
    let (token, session) = (operator(&app).await, app.login(&account).await);
    let video = json!({"prompt": "[[slow:3]] waves", "parameters": {"duration": 1}});
    let uuid = app.queue(&account, "video", &video).await;
    assert_eq!(app.work_once().await, 1);
    assert_eq!(app.record(&account, &uuid).await["status"], "processing");

    let path = format!("/v1/admin/accounts/{}", account.id);
    let suspended = app
        .post(&token, &format!("{path}/suspend"), &json!({}))
        .await;
    let suspended = suspended.expect(200);
    let now = app.now().to_rfc3339_opts(SecondsFormat::Micros, true);
    assert_eq!(suspended["suspended_at"], now);
    assert_eq!(
        (&suspended["balance"], &suspended["held"]),
        (&json!("20"), &json!("5"))
    );
    for server in [&app, &replica] {
        for token in [&account.key, &session] {
            for path in ["/v1/credits/balance", &format!("/v1/generate/{uuid}")] {
                server
                    .get(token, path)
                    .await
                    .error(403, "account_suspended");
            }
            let text = server.text(token, json!({"prompt": "x"})).await;
            text.error(403, "account_suspended");
            let cancel = format!("/v1/generate/{uuid}/cancel");
            let cancelled = server.post(token, &cancel, &json!({})).await;
            cancelled.error(403, "account_suspended");
            let admin = server.get(token, &path).await;
            admin.error(403, "account_suspended");
        }
        server
            .get(&other.key, "/v1/credits/balance")
            .await
            .expect(200);
    }
    // Repeating it has no effect, and the first time is kept.
    app.advance(TimeDelta::seconds(1));
    let again = app
        .post(&token, &format!("{path}/suspend"), &json!({}))
        .await;
    assert_eq!(again.expect(200), suspended);

    let mut balance_and_unfinished = suspended;
    for _ in 0..100 {
        if balance_and_unfinished["held"] == "0" {
            break;
        }
        app.advance(TimeDelta::milliseconds(500));
        app.work().await;
        balance_and_unfinished = app.get(&token, &path).await.expect(200);
    }
    assert_eq!(
        (
            &balance_and_unfinished["balance"],
            &balance_and_unfinished["held"]
        ),
        (&json!("15"), &json!("0"))
    );
    // Its credits can still be adjusted.
    let body = json!({"amount": 1, "kind": "grant", "reference": "r"});
    app.post(&token, &format!("{path}/credits"), &body)
        .await
        .expect(201);

    let resume = format!("{path}/resume");
    for _ in 0..2 {
        let resumed = app.post(&token, &resume, &json!({})).await.expect(200);
        assert_eq!(resumed["suspended_at"], Value::Null);
    }
    let record = app.record(&account, &uuid).await;
    assert_eq!(
        (&record["status"], &record["credits"]["charged"]),
        (&json!("completed"), &json!("5"))
    );
    app.get(&session, "/v1/auth/me").await.expect(200);
    app.assert_settled().await;
}

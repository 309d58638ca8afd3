//! A paused server next to a running one: it moves no credits and starts, ends and sends nothing.

use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::admin::operator;
use crate::common::{PASSWORD, Reply, TestApp, Upstream};

#[sqlx::test]
async fn what_moves_credits_or_work_is_refused(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let paused = app.replica_with(&[("GENSVC__JOBS__PAUSED", "true")]).await;
    let account = app.account("10").await;
    let admin = operator(&app).await;
    let receiver = Upstream::start().await;
    receiver.reply(Reply::Status(200, json!({})));
    let hook = json!({"url": format!("{}/hook", receiver.url())});
    let hook = app.post(&account.key, "/v1/webhooks", &hook).await;
    let hook = hook.expect(201)["id"].clone();
    let text = json!({"prompt": "x", "parameters": {"max_tokens": 8}});
    let made = app.text(&account.key, text.clone()).await.expect(200);
    app.deliver().await;
    let deliveries = format!("/v1/webhooks/{hook}/deliveries");
    let sent = app.get(&account.key, &deliveries).await.expect(200);
    let redeliver = format!("{deliveries}/{}/redeliver", sent["data"][0]["id"]);
    let credits = format!("/v1/admin/accounts/{}/credits", account.id);
    let moved =
        |kind: &str, amount: &str| json!({"kind": kind, "amount": amount, "reference": kind});
    let mut refund = moved("refund", "0.000001");
    refund["generation"] = made["uuid"].clone();
    let before = app
        .get(&account.key, "/v1/credits/ledger")
        .await
        .expect(200);

    let chat = json!({"model": "sandbox/sandbox-text-1", "messages": [{"role": "user", "content": "x"}],
        "max_tokens": 8});
    let json = [("content-type", "application/json")];
    let record = format!("/v1/generate/{}", made["uuid"].as_str().unwrap());
    let new = |credits: &str| json!({"email": "new@example.com", "password": PASSWORD, "credits": credits});
    for (method, token, path, body) in [
        (Method::POST, &admin, "/v1/admin/accounts", new("1")),
        (Method::POST, &admin, credits.as_str(), moved("grant", "1")),
        (Method::POST, &admin, &credits, moved("adjustment", "-1")),
        (Method::POST, &admin, &credits, refund),
        (Method::POST, &account.key, &redeliver, json!({})),
        (
            Method::POST,
            &account.key,
            "/v1/generate/text",
            text.clone(),
        ),
        (
            Method::POST,
            &account.key,
            "/v1/generate/image",
            json!({"prompt": "x"}),
        ),
        (
            Method::POST,
            &account.key,
            "/v1/generate/video",
            json!({"prompt": "x"}),
        ),
        (
            Method::POST,
            &account.key,
            "/v1/generate/audio",
            json!({"prompt": "x"}),
        ),
        (
            Method::POST,
            &account.key,
            "/openai/v1/chat/completions",
            chat.clone(),
        ),
        (Method::POST, &account.key, "/anthropic/v1/messages", chat),
        (Method::DELETE, &account.key, &record, Value::Null),
    ] {
        let body = (!body.is_null()).then(|| body.to_string());
        let answer = paused.call(method, token, path, &json, body).await;
        assert_eq!(answer.status, 503, "{path}: {}", answer.text);
        assert!(answer.text.contains("paused"), "{path}: {}", answer.text);
    }
    let after = paused.get(&account.key, "/v1/credits/ledger").await;
    assert_eq!(after.expect(200), before);
    app.deliver().await;
    assert_eq!(receiver.count(), 1);

    let made = paused.post(&admin, "/v1/admin/accounts", &new("0")).await;
    made.expect(201);
    // A reference that was refused is free.
    let granted = app.post(&admin, &credits, &moved("grant", "1")).await;
    granted.expect(201);
    app.assert_settled().await;
}

//! `metadata.request_id`: the request that created a generation.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{Account, Answer, TestApp};

const TEXT: &str = "/v1/generate/text";
const CHAT: &str = "/openai/v1/chat/completions";

/// Sends a request with an id of its own.
async fn post(app: &TestApp, account: &Account, path: &str, id: &str, body: &Value) -> Answer {
    let headers = [("x-request-id", id)];
    app.post_with(&account.key, path, &headers, body).await
}

/// The record of the only generation of an account.
async fn only(app: &TestApp, account: &Account) -> Value {
    let listed = app.history(account).await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    app.record(account, listed[0]["uuid"].as_str().unwrap())
        .await
}

#[sqlx::test]
async fn it_is_the_id_of_the_response(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    let body = json!({"prompt": "x", "parameters": {"max_tokens": 8}});
    let longest = "x".repeat(128);
    // An id that is not kept is replaced by ours.
    for (id, is_kept) in [
        ("order-17.a_B", true),
        (longest.as_str(), true),
        ("order 17", false),
    ] {
        let answer = post(&app, &account, TEXT, id, &body).await;
        let record = answer.expect(200);
        let answered = answer.header("x-request-id");
        assert_eq!(answered == id, is_kept, "{id}");
        assert_eq!(record["metadata"]["request_id"], answered);
        assert_eq!(record["parameters"], json!({"max_tokens": 8}));
        let found = app.record(&account, record["uuid"].as_str().unwrap()).await;
        assert_eq!(found, record);
    }
    let body = json!({"prompt": "[[fail]] x"});
    let failed = post(&app, &account, TEXT, "to-fail", &body).await;
    failed.error(502, "provider_error");
    let record = failed.json()["generation"].clone();
    assert_eq!(record["metadata"]["request_id"], "to-fail");
    let body = json!({"prompt": "x", "stream": true});
    let streamed = post(&app, &account, TEXT, "streamed", &body).await;
    for (name, record) in streamed.events() {
        if name != "delta" {
            assert_eq!(record["metadata"]["request_id"], "streamed", "{name}");
        }
    }
    let body = json!({"prompt": "x", "parameters": {"duration": 1}});
    let job = post(&app, &account, "/v1/generate/video", "a-job", &body).await;
    let job = job.expect(202);
    assert_eq!(job["metadata"]["request_id"], "a-job");
    let uuid = job["uuid"].as_str().unwrap();
    let done = app.until_finished(&account, uuid).await;
    assert_eq!(done["metadata"]["request_id"], "a-job");
    assert_eq!(done["parameters"], job["parameters"]);
    assert!(done["parameters"].get("X-Request-Id").is_none(), "{done}");
    app.assert_settled().await;
}

#[sqlx::test]
async fn replays_and_retries_keep_the_first_one(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (keyed, retried) = (app.account("10").await, app.account("10").await);
    let text = json!({"prompt": "x"});
    let chat = json!({"model": "sandbox/sandbox-text-1",
        "messages": [{"role": "user", "content": "Hello"}]});
    for (id, count) in [("first", "0"), ("second", "1")] {
        let headers = [("x-request-id", id), ("idempotency-key", "k")];
        let answer = app.post_with(&keyed.key, TEXT, &headers, &text).await;
        assert_eq!(answer.header("x-request-id"), id);
        assert_eq!(answer.expect(200)["metadata"]["request_id"], "first");
        let headers = [("x-request-id", id), ("x-stainless-retry-count", count)];
        let answer = app.post_with(&retried.key, CHAT, &headers, &chat).await;
        answer.expect(200);
        assert_eq!(answer.header("x-request-id"), id);
    }
    for account in [&keyed, &retried] {
        let record = only(&app, account).await;
        assert_eq!(record["metadata"]["request_id"], "first");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_deletion_removes_it(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let answer = post(&app, &account, TEXT, "private", &json!({"prompt": "x"})).await;
    let path = format!("/v1/generate/{}", answer.json()["uuid"].as_str().unwrap());
    let stored = async || {
        let reading = sqlx::query_scalar("select f::text from finished_generations f");
        let row: String = reading.fetch_one(&app.pool).await.unwrap();
        row
    };
    assert!(stored().await.contains("private"));
    app.delete(&account.key, &path).await.expect(204);
    assert!(!stored().await.contains("private"));
    app.assert_verified().await;
}

/// A generation of an earlier release.
#[sqlx::test]
async fn it_is_null_where_none_is_stored(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    app.text(&account.key, json!({"prompt": "x"})).await;
    sqlx::query("update finished_generations set parameters = parameters - 'X-Request-Id'")
        .execute(&app.pool)
        .await
        .unwrap();
    let record = only(&app, &account).await;
    assert_eq!(record["metadata"]["request_id"], Value::Null);
    assert!(record["metadata"].get("request_id").is_some(), "{record}");
}

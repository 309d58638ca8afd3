//! GET /v1/generate/{uuid}, and the preference to respond immediately or to wait.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{Account, Answer, TestApp, Upstream};

/// A generation that waits for the upstream to be released: 202.
async fn begin(app: &TestApp, account: &Account) -> Answer {
    let body = json!({"prompt": "x", "provider": "openai", "parameters": {"max_tokens": 8}});
    let headers = [("prefer", "respond-async")];
    app.post_with(&account.key, "/v1/generate/text", &headers, &body)
        .await
}

async fn look(app: &TestApp, account: &Account, path: &str, prefer: &str) -> Answer {
    let headers = [("prefer", prefer)];
    app.call(Method::GET, &account.key, path, &headers, None)
        .await
}

#[sqlx::test]
async fn respond_async_answers_at_once_and_tells_where_to_poll(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1").await;
    let begun = begin(&app, &account).await;
    let record = begun.expect(202);
    let path = format!("/v1/generate/{}", record["uuid"].as_str().unwrap());
    assert_eq!(begun.header("location"), path);
    assert_eq!(begun.header("retry-after"), "5");
    assert_eq!(begun.header("preference-applied"), "respond-async");
    assert_eq!(record["status"], "processing");
    assert_eq!(record["credits"]["charged"], Value::Null);
    assert_eq!(record["credits"]["held"], record["credits"]["estimated"]);
    for name in ["result", "usage", "error", "completed_at", "progress"] {
        assert_eq!(record[name], Value::Null, "{name}");
    }
    let found = app.get(&account.key, &path).await;
    assert_eq!(found.expect(200), record);
    assert_eq!(found.header("retry-after"), "5");
    assert_eq!(found.header("preference-applied"), "");
    app.delete(&account.key, &path)
        .await
        .error(409, "not_finished");
    upstream.release(1);
    let done = look(&app, &account, &path, "wait=60").await;
    let record = done.expect(200);
    assert_eq!(record["status"], "completed");
    assert_eq!(record["credits"]["held"], "0");
    assert_eq!(done.header("retry-after"), "");
    // Repeated lookups change nothing.
    assert_eq!(app.get(&account.key, &path).await.expect(200), record);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_wait_ends_with_the_generation(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let replica = Arc::new(app.replica().await);
    let account = app.account("1").await;
    let begun = begin(&app, &account).await;
    let path = begun.header("location").to_owned();
    upstream.arrived(1).await;
    let waiting: Vec<_> = [&app, &app, &replica]
        .into_iter()
        .map(|server| server.spawn_get(&account.key, &path, "wait=61"))
        .collect();
    upstream.release(1);
    let mut seen = Vec::new();
    for task in waiting {
        let answer = task.await.unwrap();
        assert_eq!(answer.header("preference-applied"), "wait=60");
        assert_eq!(answer.header("retry-after"), "");
        seen.push(answer.expect(200));
    }
    assert_eq!(seen[0]["status"], "completed");
    seen.dedup();
    assert_eq!(seen.len(), 1);
    // A cancel ends a wait too.
    upstream.hold();
    let begun = begin(&app, &account).await;
    let path = begun.header("location").to_owned();
    let waiting = app.spawn_get(&account.key, &path, "wait=60");
    app.post(&account.key, &format!("{path}/cancel"), &json!({}))
        .await
        .expect(200);
    let record = waiting.await.unwrap().expect(200);
    assert_eq!(record["error"]["code"], "cancelled");
    upstream.release(1);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_wait_in_vain_answers_the_record_as_it_is(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1").await;
    let begun = begin(&app, &account).await;
    let path = begun.header("location").to_owned();
    let answer = look(&app, &account, &path, "wait=1").await;
    assert_eq!(answer.expect(200)["status"], "processing");
    assert_eq!(answer.header("preference-applied"), "wait=1");
    assert_eq!(answer.header("retry-after"), "5");
    // A malformed value is ignored: no wait at all.
    for prefer in [
        "wait=0",
        "wait=-1",
        "wait=x",
        "wait=1.5",
        "wait",
        "respond-async",
        "",
    ] {
        let answer = look(&app, &account, &path, prefer).await;
        assert_eq!(answer.expect(200)["status"], "processing");
        assert_eq!(answer.header("preference-applied"), "", "{prefer}");
    }
    upstream.release(1);
    look(&app, &account, &path, "wait=60").await.expect(200);
    for (prefer, applied) in [
        ("wait=10", "wait=10"),
        ("WAIT = \"7\"; x=y, foo", "wait=7"),
        ("respond-async, wait=5", "wait=5"),
        ("wait=99999999999999999999", "wait=60"),
    ] {
        let answer = look(&app, &account, &path, prefer).await;
        assert_eq!(answer.expect(200)["status"], "completed");
        assert_eq!(answer.header("preference-applied"), applied, "{prefer}");
    }
}

#[sqlx::test]
async fn wait_is_ignored_on_text(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    for prefer in [
        "wait=5",
        "wait=0",
        "respond-async=1",
        "respond_async",
        "return=minimal",
    ] {
        let headers = [("prefer", prefer)];
        let body = json!({"prompt": "x"});
        let answer = app
            .post_with(&account.key, "/v1/generate/text", &headers, &body)
            .await;
        assert_eq!(answer.expect(200)["status"], "completed");
        assert_eq!(answer.header("preference-applied"), "", "{prefer}");
        assert_eq!(answer.header("location"), "");
    }
}

#[sqlx::test]
async fn a_lookup_needs_its_ability_also_for_what_the_key_made(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let key = |ability: &str| app.key(account.id, json!({"name": "k", "abilities": [ability]}));
    let (writer, reader) = (key("generate:text").await, key("read:history").await);
    let drawer = key("generate:image").await;
    let made = app.text(&writer, json!({"prompt": "x"})).await.expect(200);
    assert!(made["metadata"]["api_key_id"].is_i64());
    let uuid = made["uuid"].as_str().unwrap();
    let path = format!("/v1/generate/{uuid}");
    for url in [&path, "/v1/generate/history", "/v1/generate/nope"] {
        let error = app.get(&writer, url).await.error(403, "missing_ability");
        assert_eq!(error["required_ability"], "read:history", "{url}");
    }
    assert_eq!(app.get(&reader, &path).await.expect(200), made);
    let session = app.login(&account).await;
    assert_eq!(app.get(&session, &path).await.expect(200), made);
    let own = app.text(&session, json!({"prompt": "x"})).await.expect(200);
    assert_eq!(own["metadata"]["api_key_id"], Value::Null);
    // Cancel and delete look it up first: 404, then 403 by its type, then the input, then 409.
    let none = "/v1/generate/0197c0de-0000-7000-8000-000000000000";
    for token in [&reader, &drawer] {
        let cancel = |path: &str| format!("{path}/cancel");
        let nothing = json!({});
        let wrong = json!({"x": 1});
        let query = |path: &str| format!("{path}?x=1");
        for answer in [
            app.post(token, &cancel(none), &nothing).await,
            app.post(token, &cancel(none), &wrong).await,
            app.post(token, &query(&cancel(none)), &nothing).await,
            app.delete(token, none).await,
            app.delete(token, &query(none)).await,
        ] {
            answer.error(404, "not_found");
        }
        for answer in [
            app.post(token, &cancel(&path), &nothing).await,
            app.post(token, &cancel(&path), &wrong).await,
            app.post(token, &query(&cancel(&path)), &nothing).await,
            app.delete(token, &path).await,
            app.delete(token, &query(&path)).await,
        ] {
            let error = answer.error(403, "missing_ability");
            assert_eq!(error["required_ability"], "generate:text");
        }
    }
    let cancel = format!("{path}/cancel");
    for answer in [
        app.post(&writer, &cancel, &json!({"x": 1})).await,
        app.post(&writer, &format!("{cancel}?x=1"), &json!({}))
            .await,
        app.delete(&writer, &format!("{path}?x=1")).await,
    ] {
        assert_eq!(answer.fields()["x"], "unknown_field");
    }
    let answer = app.post(&writer, &cancel, &json!({})).await;
    answer.error(409, "already_finished");
    app.delete(&writer, &path).await.expect(204);
    for token in [&reader, &session] {
        app.get(token, &path).await.error(404, "not_found");
    }
    app.delete(&writer, &path).await.error(404, "not_found");
    app.assert_settled().await;
}

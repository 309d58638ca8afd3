//! Requests by a key that the server has read a moment ago: the hold looks at the key and counts the
//! request, as reading it would.

use chrono::TimeDelta;
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{Account, Answer, TestApp, Upstream};

fn text() -> Value {
    json!({"prompt": "x", "provider": "sandbox", "parameters": {"max_tokens": 8}})
}

async fn key(app: &TestApp, account: &Account, limit: u32) -> String {
    let body = json!({"name": "k", "rate_limit_per_minute": limit});
    app.key(account.id, body).await
}

fn remaining(answer: &Answer) -> &str {
    answer.header("x-ratelimit-remaining")
}

async fn generations(app: &TestApp) -> i64 {
    let counting = sqlx::query_scalar("select count(*) from finished_generations");
    counting.fetch_one(&app.pool).await.unwrap()
}

#[sqlx::test]
async fn every_request_counts_once_however_it_ends(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("0.1").await;
    let token = key(&app, &account, 7).await;
    let dear = json!({"prompt": "x", "provider": "sandbox", "parameters": {"max_tokens": 4096}});
    let model = json!({"prompt": "x", "provider": "sandbox", "model": "none"});
    let dialogue = json!({"model": "sandbox-text-1", "messages": [{"role": "user", "content": "x"}],
                          "max_tokens": 8});
    let chat = "/openai/v1/chat/completions";
    let answers = [
        (app.text(&token, text()).await, 200),
        (app.text(&token, text()).await, 200),
        (app.text(&token, json!({"prompt": 1})).await, 422),
        (app.text(&token, model).await, 422),
        (app.text(&token, dear).await, 402),
        (app.post(&token, chat, &dialogue).await, 200),
        (app.text(&token, text()).await, 200),
    ];
    for (n, (answer, status)) in answers.iter().enumerate() {
        assert_eq!(answer.status, *status, "{n}");
        assert_eq!(remaining(answer), (6 - n).to_string(), "{n}");
    }
    for refused in [text(), json!({"prompt": 1})] {
        app.text(&token, refused).await.error(429, "rate_limited");
    }
    app.advance(TimeDelta::seconds(61));
    assert_eq!(remaining(&app.text(&token, text()).await), "6");
    app.assert_settled().await;
}

#[sqlx::test]
async fn parallel_requests_get_no_more_than_the_limit(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let replica = app.replica().await;
    let account = app.account("1").await;
    let token = key(&app, &account, 10).await;
    for server in [&app, &replica] {
        server.text(&token, text()).await.expect(200);
    }
    let servers = [&app, &replica].into_iter().cycle();
    let all = join_all(servers.take(20).map(|server| server.text(&token, text()))).await;
    let mut left: Vec<_> = all
        .iter()
        .filter(|answer| answer.status == 200)
        .map(remaining)
        .collect();
    left.sort_unstable();
    assert_eq!(left, ["0", "1", "2", "3", "4", "5", "6", "7"]);
    for refused in all.iter().filter(|answer| answer.status != 200) {
        refused.error(429, "rate_limited");
    }
    assert_eq!(generations(&app).await, 10);
    app.assert_settled().await;
}

#[sqlx::test]
async fn what_another_server_changes_is_heeded_at_once(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let replica = app.replica().await;
    let account = app.account("1").await;
    let token = key(&app, &account, 100).await;
    let session = app.login(&account).await;
    let bare = json!({"prompt": "x"});
    let made = app.text(&token, bare.clone()).await.expect(200);
    assert_eq!(made["provider"], "openai");
    let defaults = json!({"defaults": {"text": {"provider": "sandbox"}}});
    let changing = replica.call(
        http::Method::PATCH,
        &session,
        "/v1/account",
        &[("content-type", "application/json")],
        Some(defaults.to_string()),
    );
    changing.await.expect(200);
    let answer = app.text(&token, bare.clone()).await;
    assert_eq!(answer.expect(200)["provider"], "sandbox");
    assert_eq!(remaining(&answer), "98");

    sqlx::query("update accounts set suspended_at = now() where id = $1")
        .bind(account.id.0)
        .execute(&app.pool)
        .await
        .unwrap();
    for body in [bare, json!({"prompt": 1})] {
        app.text(&token, body).await.error(403, "account_suspended");
    }
    assert_eq!(generations(&app).await, 2);
    app.assert_settled().await;
}

#[sqlx::test]
async fn other_defaults_are_heeded_where_nothing_is_held(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let replica = app.replica().await;
    let account = app.account("1").await;
    let session = app.login(&account).await;
    let named = json!({"prompt": "x", "model": "sandbox-text-1"});
    app.text(&account.key, named.clone())
        .await
        .error(422, "validation_failed");
    app.text(&account.key, json!({"prompt": "x"}))
        .await
        .expect(200);
    let defaults = json!({"defaults": {"text": {"provider": "sandbox"}}});
    let json = [("content-type", "application/json")];
    let body = Some(defaults.to_string());
    let changing = replica.call(http::Method::PATCH, &session, "/v1/account", &json, body);
    changing.await.expect(200);
    app.text(&account.key, named).await.expect(200);
    app.assert_settled().await;
}

/// Another key of the account, and its path.
async fn second_key(app: &TestApp, account: &Account) -> (String, String) {
    let body = json!({"name": "k"});
    let made = app.post(&account.key, "/v1/api-keys", &body);
    let record = made.await.expect(201);
    let token = record["key"].as_str().unwrap().to_owned();
    (token, format!("/v1/api-keys/{}", record["id"]))
}

#[sqlx::test]
async fn a_key_revoked_elsewhere_is_told_nothing(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let replica = app.replica().await;
    let account = app.account("1").await;
    let (token, path) = second_key(&app, &account).await;
    app.text(&token, text()).await.expect(200);
    replica.delete(&account.key, &path).await.expect(200);
    app.text(&token, json!({"prompt": 1}))
        .await
        .error(401, "revoked_key");
    // From the first refusal on, the key is read from the database.
    assert_eq!(generations(&app).await, 1);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_large_body_by_a_revoked_key_holds_nothing(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let replica = app.replica().await;
    let account = app.account("10").await;
    let (token, path) = second_key(&app, &account).await;
    let chat = "/openai/v1/chat/completions";
    let message = json!({"role": "user", "content": "x".repeat(3 << 20)});
    let body = json!({"model": "openai/gpt-6-luna", "max_tokens": 8, "messages": [message]});
    app.text(&token, text()).await.expect(200);
    replica.delete(&account.key, &path).await.expect(200);
    app.post(&token, chat, &body).await.expect(401);
    assert_eq!((generations(&app).await, upstream.count()), (1, 0));
    app.assert_settled().await;
}

#[sqlx::test]
async fn an_expired_key_makes_nothing(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let ends = app.now() + TimeDelta::seconds(10);
    let token = app
        .key(account.id, json!({"name": "k", "expires_at": ends}))
        .await;
    app.text(&token, text()).await.expect(200);
    app.advance(TimeDelta::seconds(10));
    app.text(&token, text()).await.error(401, "expired_key");
    assert_eq!(generations(&app).await, 1);
}

#[sqlx::test]
async fn a_key_in_steady_use_shows_it(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let token = key(&app, &account, 1_000).await;
    for _ in 0..20 {
        app.text(&token, text()).await.expect(200);
        let used: chrono::DateTime<chrono::Utc> =
            sqlx::query_scalar("select max(last_used_at) from api_keys where name = 'k'")
                .fetch_one(&app.pool)
                .await
                .unwrap();
        assert!(app.now() - used <= TimeDelta::seconds(60));
        app.advance(TimeDelta::seconds(7));
    }
}

/// Waits until a statement waits for a lock, then drops the request.
async fn hang_up(app: &TestApp, request: tokio::task::JoinHandle<Answer>) {
    let waits = "select count(*) from pg_stat_activity
                 where datname = current_database() and wait_event_type = 'Lock'";
    let waiting = async || -> i64 {
        let counting = sqlx::query_scalar(waits).fetch_one(&app.pool).await;
        counting.unwrap()
    };
    while waiting().await == 0 {
        assert!(!request.is_finished(), "it did not wait");
    }
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
}

#[sqlx::test]
async fn a_template_is_rendered_after_its_request_is_counted(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = std::sync::Arc::new(TestApp::new(options).await);
    let account = app.account("1").await;
    let id = app.template(&account, "{{ prompt }}", None).await;
    let token = key(&app, &account, 5).await;
    app.text(&token, text()).await.expect(200);
    let mut named = text();
    named["template_id"] = json!(id);
    for _ in 0..2 {
        let mut locked = app.pool.begin().await.unwrap();
        sqlx::query("lock table templates in access exclusive mode")
            .execute(&mut *locked)
            .await
            .unwrap();
        let request = app.spawn_text(&token, named.clone());
        hang_up(&app, request).await;
        locked.rollback().await.unwrap();
    }
    assert_eq!(remaining(&app.text(&token, named.clone()).await), "1");
    app.text(&token, named.clone()).await.expect(200);
    app.text(&token, named).await.error(429, "rate_limited");
}

#[sqlx::test]
async fn stored_items_are_read_after_their_request_is_counted(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = std::sync::Arc::new(TestApp::new(options).await);
    let account = app.account("1").await;
    let token = key(&app, &account, 4).await;
    app.text(&token, text()).await.expect(200);
    let id = format!("msg_{}_0", uuid::Uuid::now_v7().simple());
    let body = json!({"model": "sandbox-text-1", "max_output_tokens": 8,
                      "input": [{"type": "item_reference", "id": id}]});
    let mut locked = app.pool.begin().await.unwrap();
    sqlx::query("lock table finished_generations, running_generations in access exclusive mode")
        .execute(&mut *locked)
        .await
        .unwrap();
    let request = app.spawn_post(&token, "/openai/v1/responses", &[], body);
    hang_up(&app, request).await;
    locked.rollback().await.unwrap();
    assert_eq!(remaining(&app.text(&token, text()).await), "1");
}

#[sqlx::test]
async fn a_request_whose_sender_hangs_up_is_counted_once(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = std::sync::Arc::new(TestApp::new(options).await);
    let account = app.account("1").await;
    let token = key(&app, &account, 6).await;
    app.text(&token, text()).await.expect(200);
    // While its body arrives.
    let (reads, mut read) = tokio::sync::mpsc::unbounded_channel();
    let body = futures_util::stream::once(async move {
        reads.send(()).unwrap();
        std::future::pending::<Result<axum::body::Bytes, std::io::Error>>().await
    });
    let request = http::Request::post("/v1/generate/text")
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json")
        .header("content-length", 100)
        .body(axum::body::Body::from_stream(body))
        .unwrap();
    let request = {
        let app = app.clone();
        tokio::spawn(async move { app.send(request).await })
    };
    read.recv().await.unwrap();
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    app.idle().await;
    assert_eq!(remaining(&app.text(&token, text()).await), "3");
    // While its hold waits for the account's row.
    let mut locked = app.pool.begin().await.unwrap();
    sqlx::query("select from accounts for update")
        .execute(&mut *locked)
        .await
        .unwrap();
    let request = app.spawn_text(&token, text());
    hang_up(&app, request).await;
    locked.rollback().await.unwrap();
    app.idle().await;
    assert_eq!(remaining(&app.text(&token, text()).await), "1");
    app.assert_settled().await;
}

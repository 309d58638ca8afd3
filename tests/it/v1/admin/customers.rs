//! Operators: views of accounts, changes of keys, deletion of accounts.

use chrono::TimeDelta;
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::{
    common::{Account, Answer, PASSWORD, TestApp},
    console::operator::operator,
    ledger::count_usage,
    v1::uploads::upload,
};

async fn send(app: &TestApp, token: &str, method: Method, path: &str, body: &Value) -> Answer {
    let json = [("content-type", "application/json")];
    app.call(method, token, path, &json, Some(body.to_string()))
        .await
}

/// The session of an operator.
async fn session(app: &TestApp) -> String {
    let account = operator(app).await;
    app.login(&account).await
}

async fn view(app: &TestApp, token: &str, account: &Account, path: &str) -> Answer {
    let id = account.id.to_string();
    let headers = [("x-gensvc-account", id.as_str())];
    app.call(Method::GET, token, path, &headers, None).await
}

/// The id of the account's first key.
async fn key_id(app: &TestApp, account: &Account) -> Value {
    let keys = app.get(&account.key, "/v1/api-keys").await.expect(200);
    keys["data"][0]["id"].clone()
}

#[sqlx::test]
async fn operators_read_every_account_and_change_none(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (token, other) = (session(&app).await, app.account("10").await);
    let record = app.text(&other.key, json!({"prompt": "theirs"})).await;
    let uuid = record.expect(200)["uuid"].as_str().unwrap().to_owned();
    for path in [
        "/v1/credits/balance",
        "/v1/credits/ledger",
        "/v1/credits/usage",
        "/v1/generate/history",
        "/v1/api-keys",
        "/v1/templates",
        "/v1/webhooks",
    ] {
        let viewed = view(&app, &token, &other, path).await.expect(200);
        let own = app.get(&other.key, path).await.expect(200);
        assert_eq!(viewed, own, "{path}");
    }
    let path = format!("/v1/generate/{uuid}");
    let viewed = view(&app, &token, &other, &path).await.expect(200);
    assert_eq!(viewed["prompt"], "theirs");
    let me = view(&app, &token, &other, "/v1/auth/me").await.expect(200);
    assert_eq!(
        (&me["account"]["id"], &me["operator"]),
        (&json!(other.id), &json!(true))
    );
    // Also of a suspended account.
    let suspend = format!("/v1/admin/accounts/{}/suspend", other.id);
    send(&app, &token, Method::POST, &suspend, &json!({}))
        .await
        .expect(200);
    view(&app, &token, &other, &path).await.expect(200);

    let id = other.id.to_string();
    let header = [("x-gensvc-account", id.as_str())];
    for (method, path) in [
        (Method::POST, "/v1/generate/text"),
        (Method::POST, "/v1/api-keys"),
        (Method::DELETE, path.as_str()),
    ] {
        let body = Some(json!({"prompt": "x", "name": "x"}).to_string());
        let answer = app.call(method, &token, path, &header, body).await;
        answer.error(400, "invalid_header");
    }
    let header_only = app.call(
        Method::GET,
        "",
        "/v1/credits/balance",
        &[("x-gensvc-account", "x")],
        None,
    );
    header_only.await.error(401, "missing_token");
    for (name, status, code) in [
        ("x", 400, "invalid_header"),
        ("-1", 400, "invalid_header"),
        ("999999", 404, "not_found"),
    ] {
        let header = [("x-gensvc-account", name)];
        let answer = app.call(Method::GET, &token, "/v1/credits/balance", &header, None);
        answer.await.error(status, code);
    }
    let customer = app.account("1").await;
    let customers = app.login(&customer).await;
    for token in [&customers, &customer.key] {
        let answer = view(&app, token, &other, "/v1/credits/balance").await;
        answer.error(403, "missing_ability");
    }
}

#[sqlx::test]
async fn limits_of_a_key_change_with_what_it_has_spent(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let (token, account) = (session(&app).await, app.account("100").await);
    let path = format!(
        "/v1/admin/accounts/{}/api-keys/{}",
        account.id,
        key_id(&app, &account).await
    );
    let replace = async |body: Value| send(&app, &token, Method::PUT, &path, &body).await;
    let image = json!({"prompt": "x", "parameters": {"n": 1, "size": "256x256"}});
    let generate = async || app.post(&account.key, "/v1/generate/image", &image).await;
    generate().await.expect(200);
    count_usage(&app).await;
    generate().await.expect(200);
    // It holds 20 credits while its limit changes.
    let uuid = app
        .queue(&account, "video", &json!({"prompt": "waves"}))
        .await;
    let key = replace(
        json!({"name": "new", "spend_limit": "22", "spend_period": "day",
        "rate_limit_per_minute": 7}),
    )
    .await
    .expect(200);
    let names = ["name", "spent", "spend_limit", "rate_limit_per_minute"];
    assert_eq!(
        names.map(|name| key[name].clone()),
        [json!("new"), json!("22"), json!("22"), json!(7)]
    );
    app.assert_verified().await;
    generate().await.error(402, "spend_limit_exceeded");
    // The new limit is below the spent amount: requests are refused, and running work is settled.
    replace(json!({"name": "new", "spend_limit": "1"}))
        .await
        .expect(200);
    app.assert_verified().await;
    app.until_finished(&account, &uuid).await;
    generate().await.error(402, "spend_limit_exceeded");
    replace(json!({"name": "new", "spend_limit": "23"}))
        .await
        .expect(200);
    generate().await.expect(200);
    generate().await.error(402, "spend_limit_exceeded");
    app.assert_verified().await;
    // Without a limit, spending is not counted.
    let key = replace(json!({"name": "free", "abilities": ["generate:image"]}))
        .await
        .expect(200);
    assert_eq!(
        (&key["spend_limit"], &key["spent"]),
        (&Value::Null, &json!("23"))
    );
    generate().await.expect(200);
    app.assert_verified().await;

    // At once, although servers cache keys.
    app.text(&account.key, json!({"prompt": "x"}))
        .await
        .error(403, "missing_ability");
    for (body, field) in [
        (
            json!({"name": "x", "expires_at": "2020-01-01T00:00:00Z"}),
            "expires_at",
        ),
        (json!({"spend_limit": "1"}), "name"),
        (json!({"name": "x", "spend_period": "day"}), "spend_period"),
    ] {
        assert!(replace(body).await.fields().contains_key(field), "{field}");
    }
    let other = app.account("1").await;
    let foreign = path.replace(
        &format!("accounts/{}", account.id),
        &format!("accounts/{}", other.id),
    );
    let answer = send(&app, &token, Method::PUT, &foreign, &json!({"name": "x"})).await;
    answer.error(404, "not_found");
    let revoked = app.delete(&token, &path).await.expect(200);
    assert!(revoked["revoked_at"].is_string());
    generate().await.error(401, "revoked_key");
}

#[sqlx::test]
async fn replaced_key_is_noticed_while_it_is_cached(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let replica = app.replica().await;
    let (token, account) = (session(&app).await, app.account("100").await);
    let key = key_id(&app, &account).await;
    let path = format!("/v1/admin/accounts/{}/api-keys/{key}", account.id);
    let text = json!({"prompt": "x"});
    app.text(&account.key, text.clone()).await.expect(200);
    let new = json!({"name": "n", "abilities": ["generate:image"], "rate_limit_per_minute": 7});
    let replacing = send(&replica, &token, Method::PUT, &path, &new);
    replacing.await.expect(200);
    let refused = app.text(&account.key, text.clone()).await;
    refused.error(403, "missing_ability");
    assert_eq!(refused.header("x-ratelimit-limit"), "7");
    let image = json!({"prompt": "x", "parameters": {"size": "256x256"}});
    let image = app.post(&account.key, "/v1/generate/image", &image);
    image.await.expect(200);
    // What the key was given is noticed, too.
    let new = json!({"name": "n", "abilities": ["generate:text"]});
    let replacing = send(&replica, &token, Method::PUT, &path, &new);
    replacing.await.expect(200);
    app.text(&account.key, text).await.expect(200);
    app.assert_settled().await;
}

/// Holds of other accounts would wait for that lock.
#[sqlx::test]
async fn a_key_is_renamed_without_a_lock_of_all_spending(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let (token, account) = (session(&app).await, app.account("1").await);
    let key = key_id(&app, &account).await;
    let path = format!("/v1/admin/accounts/{}/api-keys/{key}", account.id);
    let mut tx = app.pool.begin().await.unwrap();
    let lock = sqlx::query("lock table key_spend in row exclusive mode");
    lock.execute(&mut *tx).await.unwrap();
    let new = json!({"name": "new"});
    let renamed = send(&app, &token, Method::PUT, &path, &new)
        .await
        .expect(200);
    assert_eq!(renamed["name"], "new");
}

#[sqlx::test]
async fn email_and_name_of_an_account_change(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (token, account) = (session(&app).await, app.account("1").await);
    let other = app.account("1").await;
    let path = format!("/v1/admin/accounts/{}", account.id);
    let change = async |body: Value| send(&app, &token, Method::PATCH, &path, &body).await;
    let changed = change(json!({"email": "New@example.com", "name": "Shop"}))
        .await
        .expect(200);
    assert_eq!(
        (&changed["email"], &changed["name"]),
        (&json!("New@example.com"), &json!("Shop"))
    );
    let login = json!({"email": "new@example.com", "password": PASSWORD});
    app.post("", "/v1/auth/login", &login).await.expect(200);
    let taken = change(json!({"email": other.email, "name": "Taken"})).await;
    assert_eq!(taken.fields()["email"], "not_allowed");
    // Both or neither.
    assert_eq!(app.get(&token, &path).await.expect(200)["name"], "Shop");
}

#[sqlx::test]
async fn deleted_account_leaves_its_ledger_only(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (token, account) = (session(&app).await, app.account("100").await);
    let login = app.login(&account).await;
    let hook = json!({"url": "http://127.0.0.1:9/hook"});
    app.post(&account.key, "/v1/webhooks", &hook)
        .await
        .expect(201);
    app.template(&account, "private {{ prompt }}", None).await;
    app.text(&account.key, json!({"prompt": "private prompt"}))
        .await
        .expect(200);
    let image = json!({"prompt": "private image", "parameters": {"size": "256x256"}});
    app.post(&account.key, "/v1/generate/image", &image)
        .await
        .expect(200);
    upload(&app, &account, 8, 8).await;
    let frame = upload(&app, &account, 16, 9).await;
    let inputs = json!([{"role": "first_frame", "upload": frame["id"]}]);
    let video = json!({"prompt": "private video", "inputs": inputs});
    let running = app.queue(&account, "video", &video).await;
    assert_eq!(app.files().len(), 3);

    let path = format!("/v1/admin/accounts/{}", account.id);
    let deleted = app.delete(&token, &path).await.expect(200);
    assert!(deleted["deleted_at"].is_string() && deleted["email"] == "");
    assert_eq!(deleted["erased_at"], Value::Null);
    for token in [&account.key, &login] {
        let answer = app.get(token, "/v1/credits/balance").await;
        assert_eq!(answer.status, 401, "{}", answer.text);
    }
    let again = json!({"email": account.email, "password": PASSWORD});
    app.post("", "/v1/auth/login", &again)
        .await
        .error(401, "invalid_credentials");
    app.post(&token, "/v1/admin/accounts", &again)
        .await
        .expect(201);
    let resumed = app
        .post(&token, &format!("{path}/resume"), &json!({}))
        .await;
    assert!(resumed.expect(200)["suspended_at"].is_string());

    // The name of a deleted account cannot be set again.
    let rename = json!({"name": "Ann", "email": "ann@example.com"});
    for change in [json!({"name": "Ann"}), rename] {
        send(&app, &token, Method::PATCH, &path, &change)
            .await
            .error(404, "not_found");
    }
    assert_eq!(
        app.get(&token, &path).await.expect(200)["name"],
        "deleted account"
    );

    // A server erases finished work, and the rest when it ends.
    while app.app.runner.erase_deleted(1).await.unwrap() {}
    assert_eq!(
        app.get(&token, &path).await.expect(200)["erased_at"],
        Value::Null
    );
    assert_eq!(app.files().len(), 1, "only the frame of the running video");
    for _ in 0..400 {
        app.work().await;
        if app.get(&token, &path).await.expect(200)["held"] == "0" {
            break;
        }
        app.advance(TimeDelta::seconds(1));
    }
    while app.app.runner.erase_deleted(1).await.unwrap() {}
    // Not before the time for late writes has passed.
    assert_eq!(
        app.get(&token, &path).await.expect(200)["erased_at"],
        Value::Null
    );
    app.advance(TimeDelta::minutes(20));
    app.app.runner.empty_trash(10).await.unwrap();
    app.app.runner.erase_deleted(1).await.unwrap();
    let erased = app.get(&token, &path).await.expect(200);
    assert!(erased["erased_at"].is_string(), "{erased}");
    assert_eq!(app.delete(&token, &path).await.expect(200), erased);

    let tables = [
        "users",
        "sessions",
        "templates",
        "idempotency_keys",
        "running_generations",
        "uploads",
    ];
    for table in tables {
        let sql = format!("select count(*) from {table} where account_id = $1");
        let count: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(account.id.0)
            .fetch_one(&app.pool)
            .await
            .unwrap();
        assert_eq!(count, 0, "{table}");
    }
    let left: String = sqlx::query_scalar(
        "select string_agg(g::text, '') from finished_generations g where account_id = $1",
    )
    .bind(account.id.0)
    .fetch_one(&app.pool)
    .await
    .unwrap();
    assert!(!left.contains("private"), "{left}");
    assert_eq!(app.files().len(), 0);
    // The video ended after the deletion, and was charged.
    let charged = view(&app, &token, &account, "/v1/credits/ledger?kind=charge")
        .await
        .expect(200);
    let entries = charged["data"].as_array().unwrap();
    assert!(
        entries
            .iter()
            .any(|entry| entry["generation"] == running.as_str())
    );
    assert_eq!(entries.len(), 3);
    app.assert_verified().await;
}

/// The deletion is one transaction: an operator's account is unchanged.
#[sqlx::test]
async fn operators_account_is_not_deleted(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let own = operator(&app).await;
    let token = app.login(&own).await;
    let path = format!("/v1/admin/accounts/{}", own.id);
    assert_eq!(
        app.delete(&token, &path).await.fields()["id"],
        "not_allowed"
    );
    app.get(&own.key, "/v1/credits/balance").await.expect(200);
}

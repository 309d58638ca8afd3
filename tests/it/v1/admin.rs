//! /v1/admin: tokens and accounts.

mod credits;
mod customers;
mod find;
mod margin;
mod refunds;
mod suspension;

use chrono::TimeDelta;
use gensvc::domain::ids::AdminTokenId;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{Answer, PASSWORD, TestApp};

const ACCOUNTS: &str = "/v1/admin/accounts";

/// A new admin token.
pub async fn operator(app: &TestApp) -> String {
    let (_, secret) = app.app.service.create_admin_token("test").await.unwrap();
    secret.expose_secret().to_owned()
}

/// An admin token that was valid until now.
pub async fn revoked_operator(app: &TestApp) -> String {
    let (record, secret) = app.app.service.create_admin_token("test").await.unwrap();
    let token = secret.expose_secret();
    app.get(token, ACCOUNTS).await.expect(200);
    revoke(app, record.id).await;
    token.to_owned()
}

async fn revoke(app: &TestApp, id: AdminTokenId) {
    app.app.service.revoke_admin_token(id).await.unwrap();
}

fn new_account(email: &str) -> Value {
    json!({"email": email, "password": PASSWORD, "name": "Ann's shop", "credits": "12.5"})
}

fn ids(answer: &Answer) -> Vec<i64> {
    let body = answer.expect(200);
    let rows = body["data"].as_array().unwrap().clone();
    rows.iter().map(|row| row["id"].as_i64().unwrap()).collect()
}

#[sqlx::test]
async fn a_token_is_kept_as_a_digest_and_dies_at_once(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let replica = app.replica().await;
    let service = &app.app.service;
    let (record, secret) = service.create_admin_token("billing").await.unwrap();
    let token = secret.expose_secret();
    assert!(token.starts_with("adm_") && token.len() == 44, "{token}");
    let stored: String = sqlx::query_scalar("select string_agg(t::text, '') from admin_tokens t")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert!(stored.contains("billing") && !stored.contains(&token[4..]));
    assert!(!format!("{secret:?}").contains(&token[4..]));
    assert_eq!(record.last_used_at, None);
    for server in [&app, &replica] {
        server.get(token, ACCOUNTS).await.expect(200);
    }
    let used = app.now();
    app.advance(TimeDelta::seconds(59));
    app.get(token, ACCOUNTS).await.expect(200);
    assert_eq!(
        service.admin_tokens().await.unwrap()[0].last_used_at,
        Some(used)
    );
    app.advance(TimeDelta::seconds(1));
    app.get(token, ACCOUNTS).await.expect(200);
    let listed = service.admin_tokens().await.unwrap();
    assert_eq!(listed[0].last_used_at, Some(app.now()));
    let revoked = service.revoke_admin_token(record.id).await.unwrap();
    for server in [&app, &replica] {
        server.get(token, ACCOUNTS).await.error(401, "revoked_key");
    }
    app.advance(TimeDelta::seconds(1));
    let again = service.revoke_admin_token(record.id).await.unwrap();
    assert_eq!(again.revoked_at, revoked.revoked_at);
    assert!(service.revoke_admin_token(AdminTokenId(999)).await.is_err());
}

#[sqlx::test]
async fn each_token_has_the_default_limit(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (token, other) = (operator(&app).await, operator(&app).await);
    for left in (0..600).rev() {
        let answer = app.get(&token, "/v1/admin/accounts/0").await;
        answer.error(404, "not_found");
        assert_eq!(answer.header("x-ratelimit-remaining"), left.to_string());
    }
    let answer = app.get(&token, ACCOUNTS).await;
    answer.error(429, "rate_limited");
    assert_eq!(answer.header("retry-after"), "1");
    assert_eq!(answer.header("x-ratelimit-reset"), "60");
    app.get(&other, ACCOUNTS).await.expect(200);
    app.advance(TimeDelta::milliseconds(100));
    app.get(&token, ACCOUNTS).await.expect(200);
    app.get(&token, ACCOUNTS).await.error(429, "rate_limited");
    // A customer's token is rate limited as everywhere.
    let account = app.account("0").await;
    let body = json!({"name": "k", "rate_limit_per_minute": 1});
    let key = app.key(account.id, body).await;
    app.get(&key, ACCOUNTS).await.error(403, "missing_ability");
    app.get(&key, ACCOUNTS).await.error(429, "rate_limited");
}

#[sqlx::test]
async fn an_account_is_made_and_found(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let token = operator(&app).await;
    let made = app
        .post(&token, ACCOUNTS, &new_account("Ann@example.com"))
        .await;
    let made = made.expect(201);
    let now = app
        .now()
        .to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
    assert_eq!(
        made,
        json!({"id": made["id"], "name": "Ann's shop", "email": "Ann@example.com",
            "balance": "12.5", "held": "0", "available": "12.5", "spent": "0", "suspended_at": null, "suspended_reason": null,
            "deleted_at": null, "erased_at": null,
            "created_at": now})
    );
    let path = format!("{ACCOUNTS}/{}", made["id"]);
    assert_eq!(app.get(&token, &path).await.expect(200), made);
    for email in ["Ann@example.com", "ann@EXAMPLE.com"] {
        let found = app.get(&token, &format!("{ACCOUNTS}?email={email}")).await;
        assert_eq!(found.expect(200)["data"], json!([made]));
    }
    // The whole email, not a pattern.
    for email in ["ann", "ann@example.co", "%25", "ann_example.com", ""] {
        let found = app.get(&token, &format!("{ACCOUNTS}?email={email}")).await;
        assert_eq!(ids(&found), Vec::<i64>::new(), "{email}");
    }
    // The user can log in, and everything else has its default.
    let body = json!({"email": "ann@example.com", "password": PASSWORD});
    app.post("", "/v1/auth/login", &body).await.expect(200);
    let body = json!({"email": "bob@example.com", "password": PASSWORD, "credits": 0.25});
    let bob = app.post(&token, ACCOUNTS, &body).await.expect(201);
    assert_eq!(
        (&bob["name"], &bob["balance"]),
        (&json!("bob"), &json!("0.25"))
    );
    let body = json!({"email": "eve@example.com", "password": PASSWORD, "credits": null});
    let eve = app.post(&token, ACCOUNTS, &body).await.expect(201);
    assert_eq!(eve["balance"], "0");
    app.assert_verified().await;
}

/// Postgres knows only the case of ASCII letters if its locale is C.
#[sqlx::test]
async fn an_email_with_other_letters_is_compared_without_case(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let token = operator(&app).await;
    let made = app
        .post(&token, ACCOUNTS, &new_account("JÖRG@Example.com"))
        .await
        .expect(201);
    assert_eq!(made["email"], "jörg@example.com");
    for email in ["JÖRG@Example.com", "Jörg@example.com"] {
        let again = app.post(&token, ACCOUNTS, &new_account(email)).await;
        assert_eq!(again.fields()["email"], "not_allowed", "{email}");
        let body = json!({"email": email, "password": PASSWORD});
        app.post("", "/v1/auth/login", &body).await.expect(200);
        app.app.service.user(email).await.unwrap();
    }
    let found = app
        .get(&token, &format!("{ACCOUNTS}?email=J%C3%96RG@EXAMPLE.com"))
        .await;
    assert_eq!(found.expect(200)["data"], json!([made]));
    let other = app.account("0").await;
    let path = format!("{ACCOUNTS}/{}", other.id);
    let body = Some(json!({"email": "jÖrg@example.com"}).to_string());
    let json = [("content-type", "application/json")];
    let changed = app
        .call(http::Method::PATCH, &token, &path, &json, body)
        .await;
    assert_eq!(changed.fields()["email"], "not_allowed");
}

#[sqlx::test]
async fn every_field_of_a_new_account_is_checked_at_once(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let token = operator(&app).await;
    app.post(&token, ACCOUNTS, &new_account("ann@example.com"))
        .await
        .expect(201);
    let answer = app
        .post(
            &token,
            ACCOUNTS,
            &json!({"email": "ann", "password": "short", "name": " ", "credits": "-1", "plan": 1}),
        )
        .await;
    let found: Vec<_> = answer.fields().into_iter().collect();
    let expected = [
        ("credits", "out_of_range"),
        ("email", "invalid_format"),
        ("name", "out_of_range"),
        ("password", "out_of_range"),
        ("plan", "unknown_field"),
    ];
    assert_eq!(found, expected.map(|(f, c)| (f.to_owned(), c.to_owned())));
    for (field, value, code) in [
        ("email", json!("ANN@example.com"), "not_allowed"),
        ("email", json!("a@b@c"), "invalid_format"),
        ("email", json!("a b@c"), "invalid_format"),
        ("email", json!("a\0@c"), "invalid_format"),
        ("email", json!("@c"), "invalid_format"),
        ("email", json!(""), "required"),
        ("password", json!("12345678\0"), "invalid_format"),
        ("password", json!(" ".repeat(8)), "not_allowed"),
        ("password", json!(12_345_678), "invalid_type"),
        ("credits", json!("1e3"), "invalid_format"),
        ("credits", json!("0.0000001"), "invalid_format"),
        ("credits", json!("9223372036855"), "invalid_format"),
        ("credits", json!(true), "invalid_type"),
    ] {
        let mut body = new_account("new@example.com");
        body[field] = value;
        let answer = app.post(&token, ACCOUNTS, &body).await;
        assert_eq!(answer.fields()[field], code, "{body}");
        assert!(!answer.text.contains(PASSWORD));
    }
    assert_eq!(ids(&app.get(&token, ACCOUNTS).await).len(), 1);
}

#[sqlx::test]
async fn the_list_goes_on_while_accounts_come(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let token = operator(&app).await;
    let mut all = Vec::new();
    for _ in 0..7 {
        all.insert(0, app.account("1").await.id.0);
    }
    let mut seen = Vec::new();
    let mut path = format!("{ACCOUNTS}?per_page=3");
    while !path.is_empty() {
        let page = app.get(&token, &path).await;
        seen.extend(ids(&page));
        // A new one shifts nothing.
        app.account("1").await;
        path = page.next_page();
    }
    assert_eq!(seen, all);
    for (query, param, code) in [
        ("per_page=0", "per_page", "out_of_range"),
        ("cursor=x", "cursor", "invalid_format"),
        ("email=a&email=b", "email", "invalid_format"),
    ] {
        let answer = app.get(&token, &format!("{ACCOUNTS}?{query}")).await;
        assert_eq!(answer.fields()[param], code, "{query}");
    }
    let long = format!("{ACCOUNTS}?email={}", "x".repeat(255));
    assert_eq!(app.get(&token, &long).await.fields()["email"], "too_long");
    // A cursor of another list is invalid here.
    let account = app.account("1").await;
    app.key(account.id, json!({"name": "second"})).await;
    let keys = app
        .get(&account.key, "/v1/api-keys?per_page=1")
        .await
        .expect(200);
    let cursor = keys["next_cursor"].as_str().unwrap();
    let answer = app
        .get(&token, &format!("{ACCOUNTS}?cursor={cursor}"))
        .await;
    assert_eq!(answer.fields()["cursor"], "invalid_format");
}

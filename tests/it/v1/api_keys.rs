//! /v1/api-keys: create, list, look up, revoke.

mod list;

use chrono::{SecondsFormat, TimeDelta};
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::admin::operator;
use crate::common::TestApp;

const KEYS: &str = "/v1/api-keys";
const ME: &str = "/v1/auth/me";

#[sqlx::test]
async fn a_key_has_its_defaults_and_is_shown_once(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let session = app.login(&account).await;
    for creator in [&session, &account.key] {
        let answer = app.post(creator, KEYS, &json!({"name": "backend"})).await;
        let mut made = answer.expect(201);
        let key = made["key"].as_str().unwrap().to_owned();
        assert!(key.starts_with("svc_") && key.len() == 44, "{key}");
        assert!(key[4..].bytes().all(|b| b.is_ascii_alphanumeric()));
        let hint = made["key_hint"].as_str().unwrap();
        let (first, last) = hint.split_once("...").unwrap();
        assert!(key.starts_with(first) && key.ends_with(last));
        assert!(first.len() + last.len() < 16, "{hint} tells too much");
        let now = app.now().to_rfc3339_opts(SecondsFormat::Micros, true);
        assert_eq!(
            made,
            json!({"id": made["id"], "key": key, "key_hint": hint, "name": "backend",
                "abilities": ["*"], "rate_limit_per_minute": 600, "expires_at": null,
                "last_used_at": null, "revoked_at": null, "spend_limit": null, "spend_period": null, "spent": "0", "created_at": now})
        );
        assert!(made["id"].is_i64());
        made.as_object_mut().unwrap().remove("key");
        let path = format!("{KEYS}/{}", made["id"]);
        let found = app.get(&account.key, &path).await;
        assert_eq!(found.expect(200), made);
        let listed = app.get(creator, KEYS).await;
        assert_eq!(listed.expect(200)["data"][0]["id"], made["id"]);
        assert!(!listed.text.contains(&key) && !found.text.contains(&key));
        let stored: String = sqlx::query_scalar("select string_agg(k::text, '') from api_keys k")
            .fetch_one(&app.pool)
            .await
            .unwrap();
        assert!(!stored.contains(&key[8..]));
        app.get(&key, ME).await.expect(200);
    }
}

#[sqlx::test]
async fn what_is_asked_for_is_kept(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let name = "é".repeat(100);
    for (field, value, kept) in [
        ("name", json!(name), json!(name)),
        ("abilities", json!(["*"]), json!(["*"])),
        (
            "abilities",
            json!(["read:credits", "generate:video"]),
            json!(["read:credits", "generate:video"]),
        ),
        ("rate_limit_per_minute", json!(1), json!(1)),
        ("rate_limit_per_minute", json!(1_000_000), json!(1_000_000)),
        ("rate_limit_per_minute", Value::Null, json!(600)),
        ("abilities", Value::Null, json!(["*"])),
        ("expires_at", Value::Null, Value::Null),
        (
            "expires_at",
            json!("2100-01-31T12:00:00+02:00"),
            json!("2100-01-31T10:00:00.000000Z"),
        ),
    ] {
        let mut body = json!({"name": "x"});
        body[field] = value;
        let made = app.post(&account.key, KEYS, &body).await.expect(201);
        assert_eq!(made[field], kept, "{body}");
    }
}

#[sqlx::test]
async fn every_mistake_is_named(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let now = app.now().to_rfc3339();
    for (field, value, param, code) in [
        ("name", json!(""), "name", "required"),
        ("name", json!(" \n"), "name", "required"),
        ("name", json!("é".repeat(101)), "name", "too_long"),
        ("name", json!(1), "name", "invalid_type"),
        ("abilities", json!([]), "abilities", "not_allowed"),
        ("abilities", json!("*"), "abilities", "invalid_type"),
        ("abilities", json!([1]), "abilities", "invalid_type"),
        (
            "abilities",
            json!(["read:history", "Generate:Text"]),
            "abilities[1]",
            "not_allowed",
        ),
        (
            "abilities",
            json!(["read:history", "read:history"]),
            "abilities[1]",
            "not_allowed",
        ),
        (
            "abilities",
            json!(["*", "read:history"]),
            "abilities",
            "not_allowed",
        ),
        (
            "rate_limit_per_minute",
            json!(0),
            "rate_limit_per_minute",
            "out_of_range",
        ),
        (
            "rate_limit_per_minute",
            json!(1_000_001),
            "rate_limit_per_minute",
            "out_of_range",
        ),
        (
            "rate_limit_per_minute",
            json!("60"),
            "rate_limit_per_minute",
            "invalid_type",
        ),
        ("expires_at", json!(now), "expires_at", "out_of_range"),
        (
            "expires_at",
            json!("1999-01-01T00:00:00Z"),
            "expires_at",
            "out_of_range",
        ),
        (
            "expires_at",
            json!("2100-02-30T00:00:00Z"),
            "expires_at",
            "invalid_format",
        ),
        (
            "expires_at",
            json!("tomorrow"),
            "expires_at",
            "invalid_format",
        ),
        (
            "expires_at",
            json!("2100-01-01T00:00:00"),
            "expires_at",
            "invalid_format",
        ),
        (
            "expires_at",
            json!(4_102_444_800_i64),
            "expires_at",
            "invalid_type",
        ),
        ("scopes", json!([]), "scopes", "unknown_field"),
    ] {
        let mut body = json!({"name": "x"});
        body[field] = value;
        let answer = app.post(&account.key, KEYS, &body).await;
        let fields: Vec<_> = answer.fields().into_iter().collect();
        assert_eq!(fields, [(param.to_owned(), code.to_owned())], "{body}");
    }
    let body = json!({"abilities": ["x", "read:history", "y"], "rate_limit_per_minute": 0,
        "expires_at": "", "zzz": 1});
    let fields = app.post(&account.key, KEYS, &body).await.fields();
    let names: Vec<_> = fields.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "abilities[0]",
            "abilities[2]",
            "expires_at",
            "name",
            "rate_limit_per_minute",
            "zzz"
        ]
    );
    let keys = app.get(&account.key, KEYS).await.expect(200);
    assert_eq!(keys["data"].as_array().unwrap().len(), 1, "one was made");
}

#[sqlx::test]
async fn a_key_ends_when_it_expires_and_when_it_is_revoked(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let replica = app.replica().await;
    let account = app.account("1").await;
    let at = (app.now() + TimeDelta::hours(1)).to_rfc3339();
    let body = json!({"name": "hour", "expires_at": at});
    let hour = app.post(&account.key, KEYS, &body).await.expect(201);
    let hour_key = hour["key"].as_str().unwrap().to_owned();
    app.advance(TimeDelta::hours(1) - TimeDelta::microseconds(1));
    app.get(&hour_key, ME).await.expect(200);
    app.advance(TimeDelta::microseconds(1));
    for server in [&app, &replica] {
        let answer = server.get(&hour_key, ME).await;
        answer.error(401, "expired_key");
        assert_eq!(answer.header("www-authenticate"), "Bearer");
        assert_eq!(answer.header("x-ratelimit-limit"), "");
    }
    let made = app
        .post(&account.key, KEYS, &json!({"name": "short"}))
        .await
        .expect(201);
    let (path, key) = (
        format!("{KEYS}/{}", made["id"]),
        made["key"].as_str().unwrap(),
    );
    app.get(key, ME).await.expect(200);
    let first = app.delete(key, &path).await.expect(200);
    let now = app.now().to_rfc3339_opts(SecondsFormat::Micros, true);
    assert_eq!(first["revoked_at"], now);
    assert_eq!(first.get("key"), None);
    for server in [&app, &replica] {
        server.get(key, ME).await.error(401, "revoked_key");
        server
            .text(key, json!({"prompt": "x"}))
            .await
            .error(401, "revoked_key");
    }
    app.advance(TimeDelta::days(1));
    let again = app.delete(&account.key, &path).await.expect(200);
    assert_eq!(again, first, "a repeated DELETE answers the same");
    assert_eq!(app.get(&account.key, &path).await.expect(200), first);
    // An expired key can be revoked too, and is then reported as revoked.
    let path = format!("{KEYS}/{}", hour["id"]);
    app.delete(&account.key, &path).await.expect(200);
    app.get(&hour_key, ME).await.error(401, "revoked_key");
}

/// A key that was limited while the body arrives could otherwise create one without the limits.
#[sqlx::test]
async fn a_creator_is_checked_again_after_the_body(_: PgPoolOptions, options: PgConnectOptions) {
    let app = std::sync::Arc::new(TestApp::new(options).await);
    let admin = operator(&app).await;
    let put = |limits: Value| (Method::PUT, "", limits);
    for ((method, action, body), status, code) in [
        (
            put(json!({"name": "x", "spend_limit": "1"})),
            403,
            "session_required",
        ),
        (
            put(json!({"name": "x", "abilities": ["read:history"]})),
            403,
            "missing_ability",
        ),
        ((Method::DELETE, "", Value::Null), 401, "revoked_key"),
        (
            (Method::POST, "suspend", json!({})),
            403,
            "account_suspended",
        ),
    ] {
        let account = app.account("1").await;
        let session = app.login(&account).await;
        let id = app.get(&account.key, KEYS).await.expect(200)["data"][0]["id"].clone();
        let (rest, creation) = app.spawn_slow_post(&account.key, KEYS).await;
        let path = match action {
            "" => format!("/v1/admin/accounts/{}/api-keys/{id}", account.id),
            action => format!("/v1/admin/accounts/{}/{action}", account.id),
        };
        let body = (!body.is_null()).then(|| body.to_string());
        let headers = body.as_ref().map(|_| ("content-type", "application/json"));
        let changed = app.call(method, &admin, &path, headers.as_slice(), body);
        changed.await.expect(200);
        rest.send(r#"{"name": "new"}"#.into()).unwrap();
        creation.await.unwrap().error(status, code);
        if action == "suspend" {
            let path = format!("/v1/admin/accounts/{}/resume", account.id);
            app.call(Method::POST, &admin, &path, &[], None)
                .await
                .expect(200);
        }
        let keys = app.get(&session, KEYS).await.expect(200);
        assert_eq!(keys["data"].as_array().unwrap().len(), 1, "{code}");
    }
}

#[sqlx::test]
async fn a_session_of_a_suspended_account_creates_no_key(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = std::sync::Arc::new(TestApp::new(options).await);
    let account = app.account("1").await;
    let session = app.login(&account).await;
    let (rest, creation) = app.spawn_slow_post(&session, KEYS).await;
    let service = &app.app.service;
    service.set_suspended(account.id, true, None).await.unwrap();
    rest.send(r#"{"name": "new"}"#.into()).unwrap();
    creation.await.unwrap().error(403, "account_suspended");
}

//! /v1/auth: login, its throttle, logout, the password, the current caller.

mod password;
mod throttle;

use chrono::{SecondsFormat, TimeDelta};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{PASSWORD, TestApp};

const LOGIN: &str = "/v1/auth/login";
const LOGOUT: &str = "/v1/auth/logout";
const ME: &str = "/v1/auth/me";

#[sqlx::test]
async fn a_login_answers_a_token_that_tells_who_it_is(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    // The case of the email is ignored, and so is an invalid token.
    let body = json!({"email": account.email.to_uppercase(), "password": PASSWORD});
    let answer = app.post("wrong", LOGIN, &body).await;
    let login = answer.expect(200);
    assert_eq!(answer.header("x-ratelimit-limit"), "");
    let token = login["token"].as_str().unwrap();
    assert!(!token.starts_with("svc_"));
    // 256 bits, in base64.
    assert_eq!(token.len(), 43);
    assert_eq!(login["token_type"], "Bearer");
    let ends = (app.now() + TimeDelta::days(30)).to_rfc3339_opts(SecondsFormat::Micros, true);
    assert_eq!(login["expires_at"], ends);
    assert_eq!(login["user"]["email"], account.email);
    assert!(login["user"]["id"].is_i64() && login["user"]["name"].is_string());
    assert_eq!(login["account"]["id"], account.id.0);
    assert_eq!(login["account"]["name"], "Test");
    let names: Vec<_> = login.as_object().unwrap().keys().cloned().collect();
    assert_eq!(
        names,
        ["token", "token_type", "expires_at", "user", "account"]
    );

    let me = app.get(token, ME).await;
    assert_eq!(me.header("x-ratelimit-limit"), "600");
    let me = me.expect(200);
    assert_eq!(me["user"], login["user"]);
    assert_eq!(me["account"], login["account"]);
    assert_eq!(
        me["token"],
        json!({"type": "session", "abilities": ["*"], "expires_at": ends})
    );
    let key = app
        .key(
            account.id,
            json!({"name": "k", "abilities": ["generate:text", "read:credits"],
                "expires_at": "2100-01-01T02:00:00.5+02:00"}),
        )
        .await;
    let me = app.get(&key, ME).await.expect(200);
    assert_eq!(me["user"], Value::Null);
    assert_eq!(me["account"], login["account"]);
    assert_eq!(
        me["token"],
        json!({"type": "api_key", "abilities": ["generate:text", "read:credits"],
            "expires_at": "2100-01-01T00:00:00.500000Z"})
    );
    // The database has only the token's digest.
    let stored: String = sqlx::query_scalar("select string_agg(s::text, '') from sessions s")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert!(!stored.contains(token));
}

#[sqlx::test]
async fn wrong_email_and_wrong_password_answer_alike(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let other = app.account("1").await;
    let email = account.email.as_str();
    let mut seen = Vec::new();
    for (email, password) in [
        (email, "wrong password"),
        (email, "short"),
        (email, &PASSWORD.to_uppercase()),
        (email, &format!("{PASSWORD} ")),
        ("nobody@example.com", PASSWORD),
        ("no address", PASSWORD),
        (&format!(" {email}"), PASSWORD),
        (&other.email, "wrong password"),
        ("%", PASSWORD),
    ] {
        let body = json!({"email": email, "password": password});
        let answer = app.post("", LOGIN, &body).await;
        let mut error = answer.error(401, "invalid_credentials");
        assert_eq!(error["type"], "authentication_error");
        error["request_id"] = Value::Null;
        let mut names: Vec<_> = answer.headers.keys().map(ToString::to_string).collect();
        names.sort();
        seen.push((error, names));
    }
    seen.dedup();
    assert_eq!(seen.len(), 1, "{seen:?}");
}

#[sqlx::test]
async fn a_login_is_validated(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let long_email = format!("{}@b", "é".repeat(253));
    let long = "é".repeat(1025);
    for (body, expected) in [
        (
            json!({}),
            vec![("email", "required"), ("password", "required")],
        ),
        (
            json!({"email": null, "password": ""}),
            vec![("email", "required"), ("password", "required")],
        ),
        (
            json!({"email": 1, "password": ["x"], "remember": true}),
            vec![
                ("email", "invalid_type"),
                ("password", "invalid_type"),
                ("remember", "unknown_field"),
            ],
        ),
        (
            json!({"email": long_email, "password": long}),
            vec![("email", "too_long"), ("password", "too_long")],
        ),
    ] {
        let fields = app.post("", LOGIN, &body).await.fields();
        let found: Vec<_> = fields
            .iter()
            .map(|(name, code)| (name.as_str(), code.as_str()))
            .collect();
        assert_eq!(found, expected, "{body}");
    }
    // At the maximum length: only wrong.
    let body = json!({"email": long_email[2..], "password": long[2..]});
    app.post("", LOGIN, &body)
        .await
        .error(401, "invalid_credentials");
}

#[sqlx::test]
async fn a_logout_ends_its_own_session_only(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let (one, two) = (app.login(&account).await, app.login(&account).await);
    assert_ne!(one, two);
    let nothing = json!({});
    app.post(&account.key, LOGOUT, &nothing)
        .await
        .error(403, "session_required");
    app.get(&one, ME).await.expect(200);
    let out = app.post(&one, LOGOUT, &nothing).await;
    assert_eq!(out.expect(204), Value::Null);
    // Immediately on every replica.
    for server in [&app, &app.replica().await] {
        server.get(&one, ME).await.error(401, "invalid_token");
        server.get(&two, ME).await.expect(200);
        server.get(&account.key, ME).await.expect(200);
    }
    app.post(&one, LOGOUT, &nothing)
        .await
        .error(401, "invalid_token");
}

#[sqlx::test]
async fn a_logout_during_the_deletion_of_the_account_succeeds(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = std::sync::Arc::new(TestApp::new(options).await);
    let account = app.account("1").await;
    let session = app.login(&account).await;
    let (rest, logout) = app.spawn_slow_post(&session, LOGOUT).await;
    app.app.service.delete_account(account.id).await.unwrap();
    rest.send("{}".into()).unwrap();
    logout.await.unwrap().expect(204);
}

#[sqlx::test]
async fn the_server_ends_a_session_after_30_days(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let token = app.login(&account).await;
    app.advance(TimeDelta::days(30) - TimeDelta::microseconds(1));
    app.get(&token, ME).await.expect(200);
    app.advance(TimeDelta::microseconds(1));
    app.get(&token, ME).await.error(401, "invalid_token");
    // A key without an expiry stays.
    app.get(&account.key, ME).await.expect(200);
}

#[sqlx::test]
async fn a_suspended_account_can_do_nothing_until_it_goes_on(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("1").await, app.account("1").await);
    let session = app.login(&account).await;
    let service = &app.app.service;
    service.set_suspended(account.id, true, None).await.unwrap();
    for token in [&account.key, &session] {
        for path in [
            ME,
            "/v1/credits/balance",
            "/v1/generate/history",
            "/v1/api-keys",
            "/v1/generate/0197c0de-0000-7000-8000-000000000000",
        ] {
            let answer = app.get(token, path).await;
            let error = answer.error(403, "account_suspended");
            assert_eq!(error["type"], "permission_error");
        }
        app.text(token, json!({"prompt": "x"}))
            .await
            .error(403, "account_suspended");
        app.text(token, json!({}))
            .await
            .error(403, "account_suspended");
    }
    app.get(&account.key, "/v1/models").await.expect(200);
    app.get(&other.key, ME).await.expect(200);
    service
        .set_suspended(account.id, false, None)
        .await
        .unwrap();
    app.get(&session, ME).await.expect(200);
    app.text(&account.key, json!({"prompt": "x"}))
        .await
        .expect(200);
}

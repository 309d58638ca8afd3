//! PATCH /v1/auth/password, and the operator's own way to set one.

use std::time::Duration;

use chrono::TimeDelta;
use gensvc::domain::token;
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{LOGIN, ME};
use crate::common::{Account, Answer, PASSWORD, TestApp};

const NEW: &str = "battery staple horse";

async fn change(app: &TestApp, token: &str, body: &Value) -> Answer {
    let json = [("content-type", "application/json")];
    let body = Some(body.to_string());
    app.call(Method::PATCH, token, "/v1/auth/password", &json, body)
        .await
}

fn passwords(current: &str, new: &str) -> Value {
    json!({"current_password": current, "new_password": new})
}

async fn login(app: &TestApp, account: &Account, password: &str) -> Answer {
    let body = json!({"email": account.email, "password": password});
    app.post("", LOGIN, &body).await
}

#[sqlx::test]
async fn a_change_ends_the_other_sessions_only(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("1").await, app.account("1").await);
    let (mine, lost) = (app.login(&account).await, app.login(&account).await);
    let theirs = app.login(&other).await;
    let changed = change(&app, &mine, &passwords(PASSWORD, NEW)).await;
    assert_eq!(changed.expect(204), Value::Null);
    for server in [&app, &app.replica().await] {
        server.get(&lost, ME).await.error(401, "invalid_token");
        for token in [&mine, &theirs, &account.key] {
            server.get(token, ME).await.expect(200);
        }
    }
    login(&app, &account, PASSWORD)
        .await
        .error(401, "invalid_credentials");
    login(&app, &account, NEW).await.expect(200);
    login(&app, &other, PASSWORD).await.expect(200);
}

#[sqlx::test]
async fn it_needs_a_session_the_current_password_and_a_good_new_one(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let (session, other) = (app.login(&account).await, app.login(&account).await);
    change(&app, &account.key, &passwords(PASSWORD, NEW))
        .await
        .error(403, "session_required");
    for (body, expected) in [
        (
            json!({}),
            vec![
                ("current_password", "required"),
                ("new_password", "required"),
            ],
        ),
        (
            passwords("", "1234567"),
            vec![
                ("current_password", "required"),
                ("new_password", "out_of_range"),
            ],
        ),
        (
            passwords(PASSWORD, "        "),
            vec![("new_password", "not_allowed")],
        ),
        (
            passwords("wrong password", NEW),
            vec![("current_password", "not_allowed")],
        ),
    ] {
        let fields = change(&app, &session, &body).await.fields();
        let found: Vec<_> = fields
            .iter()
            .map(|(name, code)| (name.as_str(), code.as_str()))
            .collect();
        assert_eq!(found, expected, "{body}");
    }
    // Nothing was changed.
    app.get(&other, ME).await.expect(200);
    login(&app, &account, PASSWORD).await.expect(200);
}

#[sqlx::test]
async fn guesses_count_as_failed_logins(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let session = app.login(&account).await;
    for _ in 0..10 {
        change(&app, &session, &passwords("wrong password", NEW))
            .await
            .fields();
    }
    change(&app, &session, &passwords(PASSWORD, NEW))
        .await
        .error(429, "too_many_logins");
    login(&app, &account, PASSWORD)
        .await
        .error(429, "too_many_logins");
    app.advance(TimeDelta::minutes(15));
    change(&app, &session, &passwords(PASSWORD, NEW))
        .await
        .expect(204);
}

#[sqlx::test]
async fn the_operators_reset_ends_all_sessions(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let sessions = [app.login(&account).await, app.login(&account).await];
    let user = app.app.service.user(&account.email).await.unwrap();
    let ended = app.app.service.reset_password(user.id, NEW.into()).await;
    assert_eq!(ended.unwrap(), 2);
    for session in &sessions {
        app.get(session, ME).await.error(401, "invalid_token");
    }
    app.get(&account.key, ME).await.expect(200);
    login(&app, &account, PASSWORD)
        .await
        .error(401, "invalid_credentials");
    login(&app, &account, NEW).await.expect(200);
}

/// A login whose password was checked before the change, and that comes to its session after it,
/// or while it is under way.
#[sqlx::test]
async fn no_session_is_made_with_a_password_that_was_changed_meanwhile(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let checked = app.app.service.user(&account.email).await.unwrap();
    let (ends, now) = (app.now() + TimeDelta::days(1), app.now());
    let make = async || {
        let digest = token::new_session_token().unwrap().digest;
        app.store
            .create_session(checked.id, &checked.password_hash, digest, ends, now)
            .await
            .unwrap()
    };
    assert!(make().await);
    let mut changing = app.pool.begin().await.unwrap();
    sqlx::query("update users set password_hash = 'another' where id = $1")
        .bind(checked.id.0)
        .execute(&mut *changing)
        .await
        .unwrap();
    let (made, ()) = tokio::join!(make(), async {
        waits(&app).await;
        changing.commit().await.unwrap();
    });
    assert!(!made);
    assert!(!make().await);
}

/// The other way round: a change that waits for a login ends its session.
#[sqlx::test]
async fn a_session_that_is_made_meanwhile_ends_with_the_password(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let service = &app.app.service;
    let user = service.user(&account.email).await.unwrap();
    let mut login = app.pool.begin().await.unwrap();
    sqlx::query("select from users where id = $1 for share")
        .bind(user.id.0)
        .execute(&mut *login)
        .await
        .unwrap();
    let (ended, ()) = tokio::join!(service.reset_password(user.id, NEW.into()), async {
        waits(&app).await;
        sqlx::query(
            "insert into sessions (user_id, account_id, digest, expires_at, created_at)
             values ($1, $2, sha256('x'), $3, $4)",
        )
        .bind(user.id.0)
        .bind(user.account_id.0)
        .bind(app.now() + TimeDelta::days(1))
        .bind(app.now())
        .execute(&mut *login)
        .await
        .unwrap();
        login.commit().await.unwrap();
    });
    assert_eq!(ended.unwrap(), 1);
}

/// Until a statement waits for a lock.
async fn waits(app: &TestApp) {
    let waiting = "select exists (select from pg_stat_activity
         where datname = current_database() and wait_event_type = 'Lock')";
    let waits = async {
        while !sqlx::query_scalar::<_, bool>(waiting)
            .fetch_one(&app.pool)
            .await
            .unwrap()
        {}
    };
    let waits = tokio::time::timeout(Duration::from_secs(30), waits).await;
    assert!(waits.is_ok(), "nothing waits for a lock");
}

/// Of two changes at once, the second is checked against the password that the first has set.
#[sqlx::test]
async fn parallel_changes_from_one_password_are_one(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let session = app.login(&account).await;
    let bodies = [NEW, "another password"].map(|new| passwords(PASSWORD, new));
    let (one, two) = tokio::join!(
        change(&app, &session, &bodies[0]),
        change(&app, &session, &bodies[1])
    );
    let done = [&one, &two].map(|answer| answer.status == 204);
    assert_eq!(
        done.iter().filter(|done| **done).count(),
        1,
        "{one:?} {two:?}"
    );
    let kept = if done[0] { NEW } else { "another password" };
    login(&app, &account, kept).await.expect(200);
}

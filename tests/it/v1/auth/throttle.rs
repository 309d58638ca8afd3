//! POST /v1/auth/login: 10 failures per email and address within 15 minutes.

use chrono::TimeDelta;
use futures_util::future::join_all;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::LOGIN;
use crate::common::{Answer, PASSWORD, TestApp};

/// A login, with `X-Forwarded-For` lines.
async fn login(app: &TestApp, email: &str, password: &str, forwarded: &[&str]) -> Answer {
    let headers: Vec<_> = forwarded.iter().map(|v| ("x-forwarded-for", *v)).collect();
    let body = json!({"email": email, "password": password});
    app.post_with("", LOGIN, &headers, &body).await
}

async fn fail(app: &TestApp, email: &str, times: usize, forwarded: &[&str]) {
    for _ in 0..times {
        login(app, email, "wrong password", forwarded)
            .await
            .error(401, "invalid_credentials");
    }
}

fn retry_after(answer: &Answer) -> i64 {
    answer.error(429, "too_many_logins");
    assert_eq!(answer.json()["error"]["type"], "rate_limited");
    assert_eq!(answer.json()["error"]["retryable"], true);
    answer.header("retry-after").parse().unwrap()
}

#[sqlx::test]
async fn the_eleventh_is_refused_though_it_be_right(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("1").await, app.account("1").await);
    for email in [account.email.as_str(), "nobody@example.com"] {
        fail(&app, email, 5, &[]).await;
        fail(&app, &email.to_uppercase(), 5, &[]).await;
        for password in [PASSWORD, "wrong password"] {
            let wait = retry_after(&login(&app, email, password, &[]).await);
            assert!((899..=901).contains(&wait), "{wait}");
        }
        // Without a trusted proxy an address cannot be forged.
        retry_after(&login(&app, email, PASSWORD, &["1.2.3.4"]).await);
    }
    // Neither another email nor existing sessions and keys are affected.
    login(&app, &other.email, PASSWORD, &[]).await.expect(200);
    app.get(&account.key, "/v1/auth/me").await.expect(200);
    // On every replica.
    let replica = app.replica().await;
    let wait = retry_after(&login(&replica, &account.email, PASSWORD, &[]).await);
    app.advance(TimeDelta::seconds(wait));
    login(&app, &account.email, PASSWORD, &[]).await.expect(200);
}

#[sqlx::test]
async fn the_window_slides(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let email = app.account("1").await.email;
    fail(&app, &email, 4, &[]).await;
    app.advance(TimeDelta::minutes(10));
    fail(&app, &email, 6, &[]).await;
    let wait = retry_after(&login(&app, &email, PASSWORD, &[]).await);
    assert!((299..=301).contains(&wait), "{wait}");
    app.advance(TimeDelta::seconds(298));
    let wait = retry_after(&login(&app, &email, PASSWORD, &[]).await);
    app.advance(TimeDelta::seconds(wait));
    // Four have left the window; six are still in it.
    fail(&app, &email, 4, &[]).await;
    let wait = retry_after(&login(&app, &email, PASSWORD, &[]).await);
    app.advance(TimeDelta::seconds(wait));
    login(&app, &email, PASSWORD, &[]).await.expect(200);
}

#[sqlx::test]
async fn a_right_password_is_no_failure(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let email = app.account("1").await.email;
    fail(&app, &email, 9, &[]).await;
    for _ in 0..3 {
        login(&app, &email, PASSWORD, &[]).await.expect(200);
    }
    fail(&app, &email, 1, &[]).await;
    retry_after(&login(&app, &email, PASSWORD, &[]).await);
    // An invalid login request is not a failure either.
    let other = app.account("1").await.email;
    for _ in 0..12 {
        let body = json!({"email": other, "password": 1});
        app.post("", LOGIN, &body).await.fields();
    }
    login(&app, &other, PASSWORD, &[]).await.expect(200);
}

#[sqlx::test]
async fn parallel_guesses_do_not_overrun_it(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let email = app.account("1").await.email;
    let replica = app.replica().await;
    let all = (0..30).map(|n| {
        let server = if n % 2 == 0 { &app } else { &replica };
        login(server, &email, "wrong password", &[])
    });
    let answers = join_all(all).await;
    let guessed = answers.iter().filter(|a| a.status == 401).count();
    assert_eq!(guessed, 10);
    for answer in answers.iter().filter(|a| a.status != 401) {
        retry_after(answer);
    }
}

#[sqlx::test]
async fn behind_a_trusted_proxy_the_callers_address_counts(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let env = [(
        "GENSVC__SERVER__TRUSTED_PROXIES",
        "127.0.0.1,10.0.0.0/8,fd00::/8",
    )];
    let app = TestApp::with(options, &env).await;
    let email = app.account("1").await.email;
    fail(&app, &email, 10, &["1.1.1.1"]).await;
    let same: [&[&str]; 7] = [
        &["1.1.1.1"],
        // What the client itself sent is on the left and is not trusted.
        &["9.9.9.9, 1.1.1.1"],
        &["9.9.9.9,1.1.1.1,10.0.0.3"],
        &["1.1.1.1, fd12::1, 10.0.0.3"],
        &["9.9.9.9", "1.1.1.1", "10.0.0.3"],
        &["::ffff:1.1.1.1"],
        &["nonsense, 1.1.1.1"],
    ];
    for forwarded in same {
        retry_after(&login(&app, &email, PASSWORD, forwarded).await);
    }
    let another: [&[&str]; 6] = [
        &[],
        &["2.2.2.2"],
        &["1.1.1.1, 2.2.2.2"],
        &["1.1.1.1", "2.2.2.2"],
        &["1.1.1.1, 2.2.2.2, 10.0.0.3"],
        &["2001:db8::1"],
    ];
    for forwarded in another {
        login(&app, &email, PASSWORD, forwarded).await.expect(200);
    }
    fail(&app, &email, 10, &["2001:db8::1"]).await;
    retry_after(&login(&app, &email, PASSWORD, &["2001:DB8:0::1"]).await);
}

#[sqlx::test]
async fn a_network_of_64_bits_counts_as_one_address(_: PgPoolOptions, options: PgConnectOptions) {
    let env = [("GENSVC__SERVER__TRUSTED_PROXIES", "127.0.0.1")];
    let app = TestApp::with(options, &env).await;
    let email = app.account("1").await.email;
    for n in 0..10 {
        let address = format!("2001:db8:0:7:{n:x}::{n:x}");
        fail(&app, &email, 1, &[&address]).await;
    }
    for same in ["2001:db8:0:7::1", "[2001:db8:0:7:ffff::]:443"] {
        retry_after(&login(&app, &email, PASSWORD, &[same]).await);
    }
    for other in ["2001:db8:0:8::1", "::ffff:7.7.7.7", "7.7.7.7"] {
        login(&app, &email, PASSWORD, &[other]).await.expect(200);
    }
}

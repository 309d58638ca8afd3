//! The self-audit: 0 when healthy, and what it finds when the ledger is tampered with.

use std::sync::Arc;

use chrono::TimeDelta;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use uuid::Uuid;

use super::{Numbers, scrape};
use crate::common::{Account, TestApp, Upstream};

const CHECKS: [&str; 5] = ["balance", "holds", "jobs", "overdue", "ownerless"];

/// An audit and its findings.
async fn look(app: &TestApp) -> Numbers {
    app.app.auditor.step().await.unwrap();
    scrape(app).await
}

/// Asserts what each check finds; unnamed ones find nothing.
#[track_caller]
fn expect(numbers: &Numbers, found: &[(&str, u32)]) {
    for check in CHECKS {
        let found = found.iter().find(|(name, _)| *name == check);
        let series = format!(r#"audit_differences{{check="{check}"}}"#);
        numbers.expect(&series, found.map_or(0, |(_, count)| *count));
    }
}

async fn execute(app: &TestApp, sql: &'static str) -> u64 {
    let done = sqlx::query(sql).execute(&app.pool).await.unwrap();
    done.rows_affected()
}

async fn video(app: &TestApp, account: &Account) {
    let body = json!({"prompt": "x", "parameters": {"duration": 1}});
    let answer = app.post(&account.key, "/v1/generate/video", &body).await;
    answer.expect(202);
}

#[sqlx::test]
async fn in_health_it_reads_zero_and_says_when(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    assert_eq!(
        scrape(&app).await.get("audit_last_run_timestamp_seconds"),
        None
    );
    let (one, _untouched) = (app.account("10").await, app.account("2").await);
    app.text(&one.key, json!({"prompt": "x"})).await.expect(200);
    app.text(&one.key, json!({"prompt": "[[fail]]"})).await;
    video(&app, &one).await;
    let numbers = look(&app).await;
    expect(&numbers, &[]);
    assert_eq!(
        numbers.get("audit_last_run_timestamp_seconds"),
        Some(1_800_000_000.0)
    );
    let sum: i64 = sqlx::query_scalar("select sum(balance)::bigint from accounts")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    numbers.expect("accounts_balance_microcredits", u32::try_from(sum).unwrap());
    numbers.expect("audit_failures_total", 0);
}

#[sqlx::test]
async fn a_balance_or_hold_that_the_ledger_does_not_tell_is_found(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let (_one, other) = (app.account("10").await, app.account("10").await);
    video(&app, &other).await;
    assert_eq!(
        execute(&app, "update accounts set balance = balance + 1").await,
        2
    );
    expect(&look(&app).await, &[("balance", 2)]);
    execute(&app, "update accounts set balance = balance - 1").await;
    expect(&look(&app).await, &[]);
    // Of the one whose video runs: less is on hold than must be.
    let less = "update accounts set held = held - 1, jobs = jobs + 1 where held > 0";
    assert_eq!(execute(&app, less).await, 1);
    expect(
        &look(&app).await,
        &[("balance", 1), ("holds", 1), ("jobs", 1)],
    );
    execute(
        &app,
        "update accounts set held = held + 1, jobs = jobs - 1 where held > 0",
    )
    .await;
    expect(&look(&app).await, &[]);
}

#[sqlx::test]
async fn what_is_past_its_deadline_is_found(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    video(&app, &account).await;
    // The deadline is 30 minutes; the grace, 2.
    app.advance(TimeDelta::minutes(32));
    expect(&look(&app).await, &[]);
    app.advance(TimeDelta::seconds(1));
    expect(&look(&app).await, &[("overdue", 1)]);
    app.work().await;
    expect(&look(&app).await, &[]);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_text_is_overdue_after_the_longest_call(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let account = app.account("1").await;
    let text = app.spawn_text(&account.key, json!({"prompt": "x"}));
    upstream.arrived(1).await;
    app.advance(TimeDelta::minutes(62));
    expect(&look(&app).await, &[]);
    app.advance(TimeDelta::seconds(1));
    expect(&look(&app).await, &[("overdue", 1)]);
    upstream.release(1);
    text.await.unwrap().expect(200);
    expect(&look(&app).await, &[]);
}

#[sqlx::test]
async fn what_nobody_works_on_is_found_after_a_while(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    video(&app, &account).await;
    let gone = Uuid::now_v7();
    sqlx::query("update running_generations set lease_token = $1")
        .bind(gone)
        .execute(&app.pool)
        .await
        .unwrap();
    expect(&look(&app).await, &[]);
    app.advance(TimeDelta::seconds(59));
    expect(&look(&app).await, &[]);
    app.advance(TimeDelta::seconds(1));
    expect(&look(&app).await, &[("ownerless", 1)]);
    // The sweep releases it to a worker.
    app.app.runner.sweep_step().await.unwrap();
    expect(&look(&app).await, &[]);
}

#[sqlx::test]
async fn a_look_that_fails_is_counted_and_keeps_the_last_numbers(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    look(&app).await;
    app.store.close(std::time::Duration::from_secs(9)).await;
    app.app.auditor.step().await.unwrap_err();
    let numbers = scrape(&app).await;
    numbers.expect("audit_failures_total", 1);
    expect(&numbers, &[]);
}

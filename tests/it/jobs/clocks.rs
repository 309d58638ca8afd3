//! Wrong clocks: a machine's, which has no effect, and the database's, which jumps.

use gensvc::domain::clock::machine_time;
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::*;
use crate::common::{MovableClock, TestApp, Upstream};

fn minutes_ahead() -> DateTime<Utc> {
    machine_time() + TimeDelta::minutes(40)
}

fn a_day_ahead() -> DateTime<Utc> {
    machine_time() + TimeDelta::hours(25)
}

/// Works until a job was claimed.
async fn work_on_one(app: &TestApp) {
    while app.work_once().await == 0 {
        tokio::task::yield_now().await;
    }
}

#[sqlx::test]
async fn a_server_40_minutes_ahead_goes_on_with_anothers_video(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    runway(&upstream, 3, None, Reply::File("video/mp4", mp4(2).await));
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let app = app.on_machine(machine_time).await;
    let ahead = app.replica().await.on_machine(minutes_ahead).await;
    let account = app.account("100").await;
    let uuid = app.queue(&account, "video", &body()).await;
    work_on_one(&app).await;
    work_on_one(&ahead).await;
    let record = app.record(&account, &uuid).await;
    assert_eq!(record["status"], "processing", "{record}");
    // What one reschedules, the other claims.
    work_on_one(&app).await;
    work_on_one(&ahead).await;
    let record = app.record(&account, &uuid).await;
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(upstream.calls(&Method::DELETE, "/tasks/"), 0);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_job_whose_next_step_is_too_far_ahead_is_due(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = playing().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let uuid = app.queue(&account, "video", &body()).await;
    app.work_once().await;
    // Written by a server while its clock, or the database's, was ahead.
    sqlx::query("update running_generations set next_step_at = next_step_at + interval '1 hour'")
        .execute(&app.pool)
        .await
        .unwrap();
    app.advance(TimeDelta::seconds(1));
    assert_eq!(app.work_once().await, 0);
    // It does not wait for a locked row.
    let mut lock = app.pool.begin().await.unwrap();
    sqlx::query("select from running_generations for update")
        .execute(&mut *lock)
        .await
        .unwrap();
    app.app.runner.sweep_step().await.unwrap();
    lock.rollback().await.unwrap();
    app.app.runner.sweep_step().await.unwrap();
    assert_eq!(app.work_once().await, 1);
    let record = app.until_finished(&account, &uuid).await;
    assert_eq!(record["status"], "completed", "{record}");
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_server_25_hours_ahead_knows_an_idempotency_key(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let app = app.on_machine(machine_time).await;
    let ahead = app.replica().await.on_machine(a_day_ahead).await;
    let account = app.account("1").await;
    let ask = json!({"prompt": "x", "provider": "openai"});
    let post = async |server: &TestApp| -> Value {
        let headers = [("idempotency-key", "k")];
        let path = "/v1/generate/text";
        let answer = server.post_with(&account.key, path, &headers, &ask).await;
        answer.expect(200)["uuid"].clone()
    };
    let first = post(&app).await;
    let runner = &ahead.app.runner;
    runner.purge(TimeDelta::days(1), 100).await.unwrap();
    assert_eq!(post(&ahead).await, first);
    assert_eq!(upstream.count(), 1);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_server_follows_the_clock_of_the_database(_: PgPoolOptions, options: PgConnectOptions) {
    let mut clock = MovableClock::take_over(&options).await;
    let app = TestApp::new(options).await.on_machine(minutes_ahead).await;
    let account = app.account("100").await;
    let made = async || -> DateTime<Utc> {
        let text = app.text(&account.key, json!({"prompt": "x"})).await;
        let record = text.expect(200);
        record["created_at"].as_str().unwrap().parse().unwrap()
    };
    let before = made().await;
    assert!(before < machine_time() + TimeDelta::minutes(1));
    clock.jump(TimeDelta::hours(3)).await;
    app.app.runner.heartbeat().await.unwrap();
    let after = made().await;
    assert!(
        after >= before + TimeDelta::hours(3),
        "{before} and then {after}"
    );
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_jump_of_the_databases_clock_makes_nobody_dead(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let mut clock = MovableClock::take_over(&options).await;
    let upstream = playing().await;
    upstream.hold();
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let uuid = app.queue(&account, "video", &body()).await;
    assert_eq!(app.app.runner.work_step().await.unwrap(), 1);
    upstream.arrived(1).await;
    let other = app.replica().await;
    // The first is alive; its last heartbeat was before the jump.
    other.app.runner.sweep_step().await.unwrap();
    app.advance(TimeDelta::seconds(25));
    app.app.runner.heartbeat().await.unwrap();
    other.app.runner.sweep_step().await.unwrap();
    app.advance(TimeDelta::seconds(6));
    clock.jump(TimeDelta::hours(1)).await;
    assert_eq!(other.app.runner.sweep_step().await.unwrap(), 0);
    upstream.release(usize::MAX >> 4);
    let record = other.until_finished(&account, &uuid).await;
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(upstream.calls(&Method::POST, "text_to_video"), 1);
    app.assert_settled().await;
}

#[sqlx::test]
async fn who_died_before_the_databases_clock_was_set_back_is_dead(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let mut clock = MovableClock::take_over(&options).await;
    let upstream = playing().await;
    upstream.hold();
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let uuid = app.queue(&account, "video", &body()).await;
    assert_eq!(app.app.runner.work_step().await.unwrap(), 1);
    upstream.arrived(1).await;
    let other = app.replica().await;
    clock.jump(-TimeDelta::hours(1)).await;
    assert_eq!(other.bury().await, 1);
    let record = other.record(&account, &uuid).await;
    assert_eq!(record["error"]["code"], "interrupted", "{record}");
    upstream.release(usize::MAX >> 4);
    app.idle().await;
    app.assert_settled().await;
}

//! Jobs that end early: cancelled, expired, lost, stopped.

use std::time::Duration;

use chrono::TimeDelta;
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::common::Account;

async fn cancel(app: &TestApp, account: &Account, uuid: &str) -> Value {
    let path = format!("/v1/generate/{uuid}/cancel");
    let record = app
        .call(Method::POST, &account.key, &path, &[], None)
        .await
        .expect(200);
    assert_eq!(record["error"]["code"], "cancelled");
    assert_eq!(record["credits"]["held"], "0");
    record
}

#[sqlx::test]
async fn a_cancel_stops_the_task_and_releases(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = playing().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let uuid = app.queue(&account, "video", &body()).await;
    app.work_once().await;
    let other = app.replica().await;
    cancel(&other, &account, &uuid).await;
    upstream.arrived(2).await;
    assert_eq!(upstream.calls(&Method::DELETE, "/tasks/task-0"), 1);
    let path = format!("/v1/generate/{uuid}/cancel");
    app.call(Method::POST, &account.key, &path, &[], None)
        .await
        .error(409, "already_finished");
    app.advance(TimeDelta::minutes(1));
    assert_eq!(app.work_once().await, 0);
    app.assert_nothing_kept().await;
    assert_eq!(app.balance(&account).await.0, "100");
}

#[sqlx::test]
async fn a_cancel_before_any_work_never_submits(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = playing().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let uuid = app.queue(&account, "video", &body()).await;
    cancel(&app, &account, &uuid).await;
    assert_eq!(app.work_once().await, 0);
    assert_eq!(upstream.count(), 0);
    app.assert_nothing_kept().await;
}

#[sqlx::test]
async fn a_cancel_during_the_submission_stops_the_task_too(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = playing().await;
    upstream.hold_only("text_to_video");
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let uuid = app.queue(&account, "video", &body()).await;
    app.app.runner.work_step().await.unwrap();
    upstream.arrived(1).await;
    cancel(&app, &account, &uuid).await;
    upstream.release(1);
    app.idle().await;
    // The vendor has a task that is no longer needed: it must be cancelled.
    assert_eq!(upstream.calls(&Method::DELETE, "/tasks/task-0"), 1);
    app.assert_nothing_kept().await;
}

#[sqlx::test]
async fn a_cancel_during_the_download_keeps_nothing(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    runway(&upstream, 1, None, Reply::File("video/mp4", mp4(2).await));
    upstream.hold_only("/files/");
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let uuid = app.queue(&account, "video", &body()).await;
    app.work_once().await;
    app.advance(TimeDelta::seconds(1));
    app.app.runner.work_step().await.unwrap();
    upstream.arrived(3).await;
    let record = cancel(&app, &account, &uuid).await;
    assert_eq!(record["metadata"]["attempts"], 1);
    upstream.release(1);
    app.idle().await;
    app.assert_nothing_kept().await;
    assert_eq!(app.balance(&account).await.0, "100");
}

#[sqlx::test]
async fn an_endless_file_is_refused(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    runway(&upstream, 1, None, Reply::Endless("video/mp4"));
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let uuid = app.queue(&account, "video", &body()).await;
    let record = app.until_finished(&account, &uuid).await;
    assert_eq!(record["error"]["code"], "provider_error");
    app.assert_nothing_kept().await;
}

#[sqlx::test]
async fn a_task_that_its_provider_forgot_expires(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.play(|request| {
        if request.method == Method::POST {
            Reply::Status(200, json!({"id": "task-0"}))
        } else {
            Reply::Status(404, json!({"error": "not found"}))
        }
    });
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let uuid = app.queue(&account, "video", &body()).await;
    app.work_once().await;
    app.advance(TimeDelta::seconds(29));
    app.work_once().await;
    // Until then it may be replication lag.
    assert_eq!(app.record(&account, &uuid).await["status"], "processing");
    app.advance(TimeDelta::seconds(2));
    app.work_once().await;
    let record = app.record(&account, &uuid).await;
    assert_eq!(record["error"]["code"], "expired");
    app.assert_nothing_kept().await;
}

#[sqlx::test]
async fn a_deadline_ends_the_job_and_its_task(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    runway(&upstream, usize::MAX, None, Reply::Cut);
    let deadline = [("GENSVC__JOBS__DEADLINE_SECONDS", "600")];
    let app = TestApp::vendors(options, &upstream, &deadline).await;
    let account = app.account("100").await;
    let uuid = app.queue(&account, "video", &body()).await;
    app.work_once().await;
    app.advance(TimeDelta::seconds(599));
    app.work_once().await;
    assert_eq!(app.record(&account, &uuid).await["status"], "processing");
    app.advance(TimeDelta::seconds(1));
    app.work_once().await;
    let record = app.record(&account, &uuid).await;
    assert_eq!(record["error"]["code"], "expired");
    assert_eq!(upstream.calls(&Method::DELETE, "/tasks/task-0"), 1);
    app.assert_nothing_kept().await;
    // A job that no worker ever claimed expires too, and is never submitted.
    let late = app.queue(&account, "video", &body()).await;
    app.advance(TimeDelta::seconds(600));
    app.work_once().await;
    assert_eq!(
        app.record(&account, &late).await["error"]["code"],
        "expired"
    );
    assert_eq!(upstream.calls(&Method::POST, "text_to_video"), 1);
}

#[sqlx::test]
async fn a_stop_leaves_tasks_to_be_taken_up_again(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = playing().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let uuid = app.queue(&account, "video", &body()).await;
    app.work_once().await;
    upstream.hold();
    app.advance(TimeDelta::seconds(1));
    app.app.runner.work_step().await.unwrap();
    upstream.arrived(2).await;
    let hurry = CancellationToken::default();
    app.app.runner.drain(Duration::ZERO, &hurry).await;
    assert_eq!(app.app.runner.work_step().await.unwrap(), 0);
    app.app.runner.deregister().await;
    upstream.release(usize::MAX >> 4);
    let other = app.replica().await;
    let record = other.until_finished(&account, &uuid).await;
    assert_eq!(record["status"], "completed");
    assert_eq!(upstream.calls(&Method::POST, "text_to_video"), 1);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_stop_during_a_submission_interrupts(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = playing().await;
    upstream.hold();
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let uuid = app.queue(&account, "video", &body()).await;
    app.app.runner.work_step().await.unwrap();
    upstream.arrived(1).await;
    let hurry = CancellationToken::default();
    app.app.runner.drain(Duration::ZERO, &hurry).await;
    let record = app.record(&account, &uuid).await;
    assert_eq!(record["error"]["code"], "interrupted");
    app.assert_nothing_kept().await;
}

#[sqlx::test]
async fn a_cancel_at_another_server_stops_the_task_of_a_running_submission(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = playing().await;
    upstream.hold_only("text_to_video");
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let uuid = app.queue(&account, "video", &body()).await;
    app.app.runner.work_step().await.unwrap();
    upstream.arrived(1).await;
    let other = app.replica().await;
    cancel(&other, &account, &uuid).await;
    // The first learns of it in its sweep.
    app.app.runner.sweep_step().await.unwrap();
    app.app.runner.sweep_step().await.unwrap();
    upstream.release(1);
    app.idle().await;
    assert_eq!(upstream.calls(&Method::DELETE, "/tasks/task-0"), 1);
    assert_eq!(upstream.calls(&Method::POST, "text_to_video"), 1);
    app.assert_nothing_kept().await;
}

#[sqlx::test]
async fn a_task_that_was_done_before_its_deadline_is_not_thrown_away(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = playing().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let uuid = app.queue(&account, "video", &body()).await;
    app.work_once().await;
    app.advance(TimeDelta::seconds(1));
    app.work_once().await;
    // No server polled for an hour; the deadline is half of that.
    app.advance(TimeDelta::hours(1));
    app.work_once().await;
    let record = app.record(&account, &uuid).await;
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(upstream.calls(&Method::DELETE, "/tasks/"), 0);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_cancelled_speech_keeps_nothing(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = playing().await;
    upstream.hold();
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let ask = json!({"prompt": "x", "provider": "elevenlabs"});
    let uuid = app.queue(&account, "audio", &ask).await;
    app.app.runner.work_step().await.unwrap();
    upstream.arrived(1).await;
    cancel(&app, &account, &uuid).await;
    app.idle().await;
    upstream.release(1);
    assert_eq!(app.work_once().await, 0);
    assert_eq!(upstream.count(), 1);
    app.assert_nothing_kept().await;
    assert_eq!(app.balance(&account).await.0, "100");
}

#[sqlx::test]
async fn a_job_whose_provider_is_switched_off_expires(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = playing().await;
    let app = TestApp::vendors(options.clone(), &upstream, &[]).await;
    let account = app.account("100").await;
    let uuid = app.queue(&account, "video", &body()).await;
    app.app.runner.deregister().await;
    let other = TestApp::new(options).await;
    other.work_once().await;
    other.advance(TimeDelta::hours(1));
    other.app.runner.sweep_step().await.unwrap();
    other.work_once().await;
    let record = other.record(&account, &uuid).await;
    assert_eq!(record["status"], "failed", "held for ever: {record}");
    other.assert_settled().await;
}

#[sqlx::test]
async fn a_late_task_is_left_to_servers_with_its_provider(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    runway(&upstream, 1, None, Reply::File("video/mp4", mp4(2).await));
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let off = [("GENSVC__PROVIDERS__RUNWAY__ENABLED", "false")];
    let other = app.replica_with(&off).await;
    let account = app.account("100").await;
    let done = app.queue(&account, "video", &body()).await;
    assert_eq!(app.work_once().await, 1);
    app.advance(TimeDelta::minutes(30));
    assert_eq!(other.work_once().await, 0);
    assert_eq!(app.work_once().await, 1);
    let record = app.record(&account, &done).await;
    assert_eq!(record["status"], "completed", "{record}");
    // No server with the provider is left.
    let lost = app.queue(&account, "video", &body()).await;
    assert_eq!(app.work_once().await, 1);
    app.advance(TimeDelta::seconds(30 * 60 + 59));
    assert_eq!(other.work_once().await, 0);
    app.advance(TimeDelta::seconds(1));
    assert_eq!(other.work_once().await, 1);
    let record = app.record(&account, &lost).await;
    assert_eq!(record["error"]["code"], "expired", "{record}");
    app.assert_settled().await;
}

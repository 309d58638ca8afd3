//! Jobs over several servers: takeover, cancels, deadlines.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::{
    common::{Reply, TestApp, Upstream, vendors::mp4, vendors::runway},
    v1::generate::video::{body, playing},
};

mod clocks;
mod ends;
mod locked;
mod notices;

#[sqlx::test]
async fn another_server_takes_over_a_task_of_a_dead_one(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = playing().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let uuid = app.queue(&account, "video", &body()).await;
    app.work_once().await;
    // It dies while it polls: it still owns the row.
    upstream.hold();
    app.advance(TimeDelta::seconds(1));
    assert_eq!(app.app.runner.work_step().await.unwrap(), 1);
    upstream.arrived(2).await;
    let other = app.replica().await;
    assert_eq!(
        other.work_once().await,
        0,
        "a living server's job was taken"
    );
    assert_eq!(other.bury().await, 0);
    upstream.release(usize::MAX >> 4);
    let record = other.until_finished(&account, &uuid).await;
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["metadata"]["attempts"], 1);
    assert_eq!(upstream.calls(&Method::POST, "text_to_video"), 1);
    app.idle().await;
    assert_eq!(app.files().len(), 1);
    assert_eq!(other.file(&record["result"], &[]).await.status, 200);
    assert_eq!(app.balance(&account).await.0, "76");
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_server_is_heard_while_its_sweep_takes_long(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = playing().await;
    upstream.hold();
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    app.queue(&account, "video", &body()).await;
    assert_eq!(app.app.runner.work_step().await.unwrap(), 1);
    upstream.arrived(1).await;
    let other = app.replica().await;
    let seen = async || -> DateTime<Utc> {
        sqlx::query_scalar("select seen_at from instances where id = $1")
            .bind(other.app.runner.instance().0)
            .fetch_one(&other.pool)
            .await
            .unwrap()
    };
    // The abandoned row's account is locked.
    let mut lock = other.pool.begin().await.unwrap();
    sqlx::query("select from accounts where id = $1 for update")
        .bind(account.id.0)
        .execute(&mut *lock)
        .await
        .unwrap();
    let (ended, ()) = tokio::join!(other.bury(), async {
        let waiting = "select exists (select from pg_stat_activity
             where datname = current_database() and wait_event_type = 'Lock')";
        let waits = async {
            while !sqlx::query_scalar::<_, bool>(waiting)
                .fetch_one(&other.pool)
                .await
                .unwrap()
            {}
        };
        let waits = tokio::time::timeout(Duration::from_secs(30), waits).await;
        assert!(waits.is_ok(), "the sweep does not wait");
        let before = seen().await;
        other.app.runner.heartbeat().await.unwrap();
        assert!(seen().await > before);
        lock.rollback().await.unwrap();
    });
    assert_eq!(ended, 1);
    upstream.release(usize::MAX >> 4);
    app.idle().await;
    app.assert_settled().await;
}

#[sqlx::test]
async fn an_intent_without_a_task_is_interrupted(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = playing().await;
    upstream.hold();
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let uuid = app.queue(&account, "video", &body()).await;
    let speech = json!({"prompt": "x", "provider": "elevenlabs"});
    let spoken = app.queue(&account, "audio", &speech).await;
    assert_eq!(app.app.runner.work_step().await.unwrap(), 2);
    upstream.arrived(2).await;
    let other = app.replica().await;
    assert_eq!(other.bury().await, 2);
    for uuid in [&uuid, &spoken] {
        let record = other.record(&account, uuid).await;
        assert_eq!(record["error"]["code"], "interrupted", "{record}");
        assert_eq!(record["metadata"]["attempts"], 1);
        assert_eq!(record["credits"]["charged"], "0");
    }
    app.assert_settled().await;
    assert_eq!(other.work_once().await, 0);
    // The first server was only slow: its task is cancelled, since no request waits for it.
    upstream.release(usize::MAX >> 4);
    app.idle().await;
    assert_eq!(upstream.calls(&Method::POST, "text_to_video"), 1);
    assert_eq!(upstream.calls(&Method::DELETE, "/tasks/task-0"), 1);
    assert_eq!(upstream.calls(&Method::POST, "text-to-speech"), 1);
    assert_eq!(
        app.record(&account, &uuid).await["error"]["code"],
        "interrupted"
    );
    app.assert_nothing_kept().await;
}

#[sqlx::test]
async fn two_servers_never_submit_twice(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    runway(&upstream, 1, None, Reply::File("video/mp4", mp4(2).await));
    let app = Arc::new(TestApp::vendors(options, &upstream, &[]).await);
    let other = Arc::new(app.replica().await);
    let account = app.account("10000").await;
    let mut uuids = Vec::new();
    for _ in 0..50 {
        uuids.push(app.queue(&account, "video", &body()).await);
    }
    for _ in 0..200 {
        let rounds = [&app, &other, &app, &other].map(|app| {
            let app = Arc::clone(app);
            tokio::spawn(async move { app.app.runner.work_step().await.unwrap() })
        });
        let claimed: usize = join_all(rounds).await.into_iter().map(Result::unwrap).sum();
        app.idle().await;
        other.idle().await;
        app.advance(TimeDelta::milliseconds(100));
        let open: i64 = sqlx::query_scalar(
            "select count(*) from generations where status in ('pending', 'processing')",
        )
        .fetch_one(&app.pool)
        .await
        .unwrap();
        if open == 0 && claimed == 0 {
            break;
        }
    }
    for uuid in &uuids {
        let record = other.record(&account, uuid).await;
        assert_eq!(record["status"], "completed", "{record}");
        assert_eq!(record["metadata"]["attempts"], 1);
    }
    assert_eq!(upstream.calls(&Method::POST, "text_to_video"), 50);
    assert_eq!(app.balance(&account).await.0, "8800");
    assert_eq!(app.files().len(), 50);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_job_waits_as_pending_for_a_free_worker(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = playing().await;
    upstream.hold();
    let workers = [("GENSVC__JOBS__WORKERS", "1")];
    let app = TestApp::vendors(options, &upstream, &workers).await;
    let account = app.account("100").await;
    let first = app.queue(&account, "video", &body()).await;
    assert_eq!(app.app.runner.work_step().await.unwrap(), 1);
    upstream.arrived(1).await;
    // The response itself says processing, a lookup shows the actual status.
    let second = app.queue(&account, "video", &body()).await;
    assert_eq!(app.app.runner.work_step().await.unwrap(), 0);
    let waiting = app.record(&account, &second).await;
    assert_eq!(
        (&waiting["status"], &waiting["started_at"]),
        (&json!("pending"), &Value::Null)
    );
    let pending = app
        .get(&account.key, "/v1/generate/history?status=pending")
        .await
        .expect(200);
    assert_eq!(pending["data"].as_array().unwrap().len(), 1);
    upstream.release(usize::MAX >> 4);
    for uuid in [&first, &second] {
        let record = app.until_finished(&account, uuid).await;
        assert_eq!(record["status"], "completed");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn wait_answers_as_soon_as_it_is_finished(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = playing().await;
    let app = Arc::new(TestApp::vendors(options, &upstream, &[]).await);
    let account = app.account("100").await;
    let short = app
        .post_with(
            &account.key,
            "/v1/generate/video",
            &[("prefer", "wait=1")],
            &body(),
        )
        .await;
    assert_eq!(short.expect(202)["status"], "processing");
    assert_eq!(short.header("preference-applied"), "wait=1");
    let uuid = short.json()["uuid"].as_str().unwrap().to_owned();
    let lookup = app.spawn_get(&account.key, &format!("/v1/generate/{uuid}"), "wait=99");
    let wait = [("prefer", "wait=99")];
    let post = app.spawn_post(&account.key, "/v1/generate/video", &wait, body());
    for _ in 0..10_000 {
        if lookup.is_finished() && post.is_finished() {
            break;
        }
        app.work().await;
        app.advance(TimeDelta::milliseconds(500));
        tokio::task::yield_now().await;
    }
    for answer in [lookup.await.unwrap(), post.await.unwrap()] {
        assert_eq!(answer.expect(200)["status"], "completed");
        assert_eq!(answer.header("preference-applied"), "wait=60");
        assert_eq!(answer.header("retry-after"), "");
    }
    // Ignored on these routes.
    let ignored = app
        .post_with(
            &account.key,
            "/v1/generate/video",
            &[("prefer", "respond-async, wait=0")],
            &body(),
        )
        .await;
    ignored.expect(202);
    assert_eq!(ignored.header("preference-applied"), "");
}

//! What one server does wakes another, which looks for nothing by itself here: neither sweeps nor
//! advances its clock.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use http::Method;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::task::JoinSet;

use crate::{
    common::{Reply, TestApp, Upstream, listening},
    v1::generate::video::{body, playing},
};

/// Workers as a running server has them, until the set is dropped.
fn working(server: &TestApp) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let runner = server.app.runner.clone();
    tasks.spawn(async move { runner.work().await });
    tasks
}

#[sqlx::test]
async fn a_queued_job_wakes_the_idle_workers_of_another_server(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = playing().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let other = app.replica().await;
    let (_listening, _working) = (listening(&[&other]).await, working(&other));
    let account = app.account("100").await;
    for n in 1..=3 {
        app.queue(&account, "video", &body()).await;
        upstream.arrived(n).await;
        other.idle().await;
    }
    assert_eq!(upstream.calls(&Method::POST, "text_to_video"), 3);
}

#[sqlx::test]
async fn a_lost_connection_loses_no_job(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = playing().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let other = app.replica().await;
    let listened = listening(&[&other]).await;
    let _working = working(&other);
    let account = app.account("100").await;
    for n in 1..=3 {
        let ending = "select pg_terminate_backend(pid) from pg_stat_activity
            where datname = current_database() and query like 'LISTEN%'";
        let ended = async || -> Vec<bool> {
            let ended = sqlx::query_scalar(ending).fetch_all(&app.pool);
            ended.await.unwrap()
        };
        while ended().await.is_empty() {}
        app.queue(&account, "video", &body()).await;
        upstream.arrived(n).await;
        other.idle().await;
    }
    // What was queued while it did not listen is found when it listens again.
    drop(listened);
    app.queue(&account, "video", &body()).await;
    let _listening = listening(&[&other]).await;
    upstream.arrived(4).await;
}

#[sqlx::test]
async fn the_sweep_finds_what_no_notice_told(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = playing().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let other = app.replica().await;
    let _working = working(&other);
    let account = app.account("100").await;
    for n in 1..=2 {
        app.queue(&account, "video", &body()).await;
        other.app.runner.sweep_step().await.unwrap();
        upstream.arrived(n).await;
        other.idle().await;
    }
}

#[sqlx::test]
async fn a_wait_ends_with_a_job_of_another_server(_: PgPoolOptions, options: PgConnectOptions) {
    let app = Arc::new(TestApp::new(options).await);
    let other = app.replica().await;
    let _listening = listening(&[&app]).await;
    let account = app.account("100").await;
    let begun = Instant::now();
    for round in 0..5 {
        let uuid = app.queue(&account, "audio", &json!({"prompt": "x"})).await;
        let path = format!("/v1/generate/{uuid}");
        let cancel = format!("{path}/cancel");
        let answer = app.spawn_get(&account.key, &path, "wait=60");
        let ended = if round % 2 == 0 {
            other.until_finished(&account, &uuid).await
        } else {
            let cancelled = other.post(&account.key, &cancel, &json!({})).await;
            cancelled.expect(200)
        };
        let answer = answer.await.unwrap().expect(200);
        assert_eq!(answer["status"], ended["status"]);
    }
    // Without notices each would have taken 5 s.
    assert!(begun.elapsed() < Duration::from_secs(20));
    app.assert_settled().await;
}

#[sqlx::test]
async fn an_event_wakes_the_dispatcher_of_another_server(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let other = app.replica().await;
    let listening = listening(&[&other]).await;
    let mut dispatching = JoinSet::new();
    let dispatcher = other.app.dispatcher.clone();
    dispatching.spawn(async move { dispatcher.run().await });
    let account = app.account("100").await;
    let receiver = Upstream::start().await;
    receiver.reply(Reply::Status(200, json!({"ok": true})));
    let hook = json!({"url": format!("{}/hook", receiver.url())});
    let hook = app
        .post(&account.key, "/v1/webhooks", &hook)
        .await
        .expect(201);
    let ask = json!({"prompt": "x", "parameters": {"max_tokens": 8}});
    for n in 1..=2 {
        app.text(&account.key, ask.clone()).await.expect(200);
        receiver.arrived(n).await;
    }
    let path = format!("/v1/webhooks/{}/deliveries", hook["id"]);
    let delivered = async || {
        let list = app.get(&account.key, &path).await.expect(200);
        let all = list["data"].as_array().unwrap().clone();
        all.iter()
            .all(|one| one["status"] == "delivered")
            .then_some(all)
    };
    let all = loop {
        if let Some(all) = delivered().await {
            break all;
        }
        tokio::task::yield_now().await;
    };
    let again = format!("{path}/{}/redeliver", all[0]["id"]);
    app.post(&account.key, &again, &json!({})).await.expect(202);
    receiver.arrived(3).await;
    // The sweep finds deliveries that no notice announced.
    drop(listening);
    app.text(&account.key, ask).await.expect(200);
    other.app.runner.sweep_step().await.unwrap();
    receiver.arrived(4).await;
    dispatching.shutdown().await;
}

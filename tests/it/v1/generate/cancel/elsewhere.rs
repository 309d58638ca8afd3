//! Cancels that arrive at a server other than the streaming one.

use std::sync::Arc;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::*;
use crate::common::listening;

#[sqlx::test]
async fn the_server_that_streams_ends_it(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = stepwise().await;
    let app = TestApp::upstream(options, &upstream).await;
    let other = app.replica().await;
    let _listening = listening(&[&app, &other]).await;
    let account = app.account("1").await;
    let mut stream = Stream::post(&app, &account.key, &[], &ask("openai")).await;
    upstream.send_events(1);
    stream.until("delta", 1).await;
    let uuid = stream.uuid();
    let record = cancel(&other, &account, &uuid).await.expect(200);
    assert_first_half(&record);
    let (text, last) = stream.end().await;
    assert_eq!(last, ("completed".to_owned(), record.clone()));
    assert_eq!(record["result"], text);
    upstream.ended(1).await;
    cancel(&other, &account, &uuid)
        .await
        .error(409, "already_finished");

    // Nothing delivered yet.
    let stream = Stream::post(&app, &account.key, &[], &ask("openai")).await;
    upstream.arrived(2).await;
    let record = cancel(&other, &account, &stream.uuid()).await.expect(200);
    assert_eq!(record["error"]["code"], "cancelled");
    assert_eq!(record["credits"]["charged"], "0");
    assert_eq!(stream.end().await.1, ("failed".to_owned(), record));
    app.assert_settled().await;
}

#[sqlx::test]
async fn it_is_not_free_because_the_server_that_streams_is_slow(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = stepwise().await;
    let app = TestApp::upstream(options, &upstream).await;
    let lease = [("GENSVC__JOBS__LEASE_SECONDS", "1")];
    let other = app.replica_with(&lease).await;
    let account = app.account("1").await;
    let mut stream = Stream::post(&app, &account.key, &[], &ask("openai")).await;
    upstream.send_events(1);
    stream.until("delta", 1).await;
    let uuid = stream.uuid();
    let answer = cancel(&other, &account, &uuid).await;
    assert_eq!(answer.expect(200)["status"], "processing");
    assert_eq!(answer.header("retry-after"), "5");
    assert_eq!(app.record(&account, &uuid).await["status"], "processing");
    // It gets to it eventually, though it heard no notice.
    app.app.runner.sweep_step().await.unwrap();
    let (_, (name, record)) = stream.end().await;
    assert_eq!(name, "completed");
    assert_first_half(&record);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_server_that_is_taken_for_dead_is_not_asked(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = stepwise().await;
    let app = TestApp::upstream(options, &upstream).await;
    let other = app.replica().await;
    let account = app.account("1").await;
    let mut stream = Stream::post(&app, &account.key, &[], &ask("openai")).await;
    upstream.send_events(1);
    stream.until("delta", 1).await;
    app.app.runner.deregister().await;
    let record = cancel(&other, &account, &stream.uuid()).await.expect(200);
    assert_eq!(record["error"]["code"], "cancelled");
    assert_eq!(record["credits"]["charged"], "0");
    // It learns of that in its sweeps, and bills nothing.
    app.app.runner.sweep_step().await.unwrap();
    app.app.runner.sweep_step().await.unwrap();
    assert_eq!(stream.end().await.1, ("failed".to_owned(), record));
    upstream.ended(1).await;
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_cancel_and_the_end_race_and_one_of_them_settles(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = stepwise().await;
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let other = Arc::new(app.replica().await);
    let account = app.account("1").await;
    let _listening = listening(&[&app, &other]).await;
    for round in 0..40 {
        let mut stream = Stream::post(&app, &account.key, &[], &ask("openai")).await;
        upstream.send_events(1);
        stream.until("delta", 1).await;
        let uuid = stream.uuid();
        // From either server, from both, and twice from one.
        let servers: &[&Arc<TestApp>] = match round % 4 {
            0 => &[&app],
            1 => &[&other],
            2 => &[&app, &other],
            _ => &[&app, &app],
        };
        let path = format!("/v1/generate/{uuid}/cancel");
        let cancels: Vec<_> = servers
            .iter()
            .map(|server| server.spawn_post(&account.key, &path, &[], json!({})))
            .collect();
        for _ in 0..round % 3 {
            tokio::task::yield_now().await;
        }
        // Some rounds have no end to race with.
        let ends = round % 5 != 0;
        upstream.send_events(if ends { 4 } else { 0 });
        let mut cancelled = 0;
        for answer in cancels {
            let answer = answer.await.unwrap();
            if answer.status == 200 {
                cancelled += 1;
                assert_eq!(answer.json(), app.record(&account, &uuid).await);
            } else {
                answer.error(409, "already_finished");
            }
        }
        // The second of two may arrive after the first has ended it.
        assert!(ends || cancelled > 0);
        let (text, (name, record)) = stream.end().await;
        upstream.take_events_back();
        assert_eq!(name, "completed");
        assert_eq!(record, app.record(&account, &uuid).await);
        assert_eq!(record["result"], text);
        assert_eq!(record["credits"]["charged"], bill(&record));
        if cancelled > 0 {
            assert_eq!(record["metadata"]["finish_reason"], "cancelled");
        } else {
            assert_eq!(record["metadata"]["finish_reason"], Value::Null);
            assert_eq!(text.len(), 2 * HALF);
        }
        let ledger = format!("/v1/credits/ledger?generation={uuid}");
        let entries = app.get(&account.key, &ledger).await.expect(200);
        let entries = entries["data"].as_array().unwrap();
        let kinds: Vec<_> = entries.iter().map(|e| e["kind"].clone()).collect();
        assert_eq!(kinds, ["charge", "hold"], "{record}");
    }
    app.assert_settled().await;
}

//! Jobs of many accounts and providers: each gets its quota of workers.

use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{Account, Reply, TestApp, Upstream, vendors::speech};
use gensvc::request::SpeechFormat;

async fn speaking(env: &[(&str, &str)], options: PgConnectOptions) -> (TestApp, Upstream) {
    let upstream = Upstream::start().await;
    let sound = speech(SpeechFormat::Mp3, "x").await;
    upstream.play(move |_| Reply::File("audio/mpeg", sound.clone()));
    let app = TestApp::vendors(options, &upstream, env).await;
    (app, upstream)
}

async fn queue(app: &TestApp, account: &Account, n: usize) -> Vec<String> {
    let mut uuids = Vec::new();
    let body = json!({"prompt": "x", "provider": "elevenlabs"});
    for _ in 0..n {
        uuids.push(app.queue(account, "audio", &body).await);
        app.advance(chrono::TimeDelta::milliseconds(1));
    }
    uuids
}

#[sqlx::test]
async fn an_account_with_many_jobs_leaves_workers_to_others(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let env = [
        ("GENSVC__JOBS__WORKERS", "8"),
        ("GENSVC__JOBS__MAX_WORKERS_PER_ACCOUNT", "2"),
    ];
    let (app, upstream) = speaking(&env, options).await;
    let (hot, warm, quiet) = (
        app.account("100").await,
        app.account("100").await,
        app.account("100").await,
    );
    let mut hot_jobs = queue(&app, &hot, 60).await;
    hot_jobs.extend(queue(&app, &warm, 20).await);
    let job = queue(&app, &quiet, 1).await.remove(0);
    upstream.hold();
    // Behind 80 jobs of others, and found in the first round.
    assert_eq!(app.app.runner.work_step().await.unwrap(), 2 + 2 + 1);
    upstream.arrived(5).await;
    assert_eq!(app.app.runner.work_step().await.unwrap(), 0);
    upstream.release(usize::MAX >> 4);
    let record = app.until_finished(&quiet, &job).await;
    assert_eq!(record["status"], "completed", "{record}");
    for uuid in &hot_jobs[..60] {
        let record = app.until_finished(&hot, uuid).await;
        assert_eq!(record["status"], "completed", "{record}");
    }
    for uuid in &hot_jobs[60..] {
        app.until_finished(&warm, uuid).await;
    }
    assert_eq!(upstream.count(), 81);
    app.assert_settled().await;
}

#[sqlx::test]
async fn jobs_of_a_provider_with_enough_calls_wait_in_the_database(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let env = [
        ("GENSVC__PROVIDERS__ELEVENLABS__MAX_CONCURRENT", "2"),
        ("GENSVC__SERVER__ACCOUNT_SHARE_PERCENT", "100"),
    ];
    let (app, upstream) = speaking(&env, options).await;
    let account = app.account("100").await;
    let uuids = queue(&app, &account, 6).await;
    upstream.hold();
    assert_eq!(app.app.runner.work_step().await.unwrap(), 6);
    upstream.arrived(2).await;
    // The others are rescheduled, unsubmitted.
    while app.app.runner.running() > 2 {
        tokio::task::yield_now().await;
    }
    let waiting: i64 = sqlx::query_scalar(
        "select count(*) from running_generations where lease_token is null and attempts = 0",
    )
    .fetch_one(&app.pool)
    .await
    .unwrap();
    assert_eq!((waiting, upstream.count()), (4, 2));
    upstream.release(usize::MAX >> 4);
    for uuid in &uuids {
        let record = app.until_finished(&account, uuid).await;
        assert_eq!(record["status"], "completed", "{record}");
        assert_eq!(record["metadata"]["attempts"], 1);
    }
    app.assert_settled().await;
}

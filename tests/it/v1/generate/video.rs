//! POST /v1/generate/video: submitted once, polled, downloaded, stored.

use std::sync::Arc;

use chrono::TimeDelta;
use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{
    Reply, TestApp, Upstream,
    vendors::{mp4, runway},
};

mod outputs;

/// Two seconds of gen4.5 at 12 credits.
pub fn body() -> Value {
    json!({"prompt": "x", "provider": "runway", "parameters": {"duration": 2}})
}

/// A Runway whose task is done at the second poll.
pub async fn playing() -> Upstream {
    let upstream = Upstream::start().await;
    runway(&upstream, 2, None, Reply::File("video/mp4", mp4(2).await));
    upstream
}

#[sqlx::test]
async fn a_video_is_submitted_once_polled_fetched_and_stored(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = playing().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let answer = app.post(&account.key, "/v1/generate/video", &body()).await;
    let first = answer.expect(202);
    let uuid = first["uuid"].as_str().unwrap().to_owned();
    assert_eq!(
        (answer.header("location"), answer.header("retry-after")),
        (format!("/v1/generate/{uuid}").as_str(), "5")
    );
    assert_eq!(
        (&first["status"], &first["credits"]),
        (
            &json!("processing"),
            &json!({"estimated": "24", "held": "24", "charged": null})
        )
    );
    // Submit, then the first poll.
    app.work_once().await;
    app.advance(TimeDelta::seconds(1));
    app.work_once().await;
    let looked = app.record(&account, &uuid).await;
    assert_eq!(
        (&looked["status"], &looked["progress"]),
        (&json!("processing"), &json!(50))
    );
    let record = app.until_finished(&account, &uuid).await;
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["usage"], json!({"seconds": 2}));
    assert_eq!(
        record["credits"],
        json!({"estimated": "24", "held": "0", "charged": "24"})
    );
    assert_eq!(
        (
            &record["progress"],
            &record["error"],
            &record["metadata"]["attempts"]
        ),
        (&Value::Null, &Value::Null, &json!(1))
    );
    assert_eq!(
        record["parameters"],
        json!({"duration": 2, "ratio": "16:9"})
    );
    let output = &record["outputs"][0];
    assert_eq!(
        (&output["type"], &output["content_type"]),
        (&json!("video"), &json!("video/mp4"))
    );
    assert_eq!(record["result"], output["url"]);
    let file = app.file(&record["result"], &[]).await;
    assert_eq!(file.status, 200);
    assert_eq!(file.bytes, mp4(2).await);
    assert_eq!(output["bytes"], file.bytes.len());
    assert_eq!(upstream.calls(&Method::POST, "/v1/text_to_video"), 1);
    assert_eq!(upstream.calls(&Method::GET, "/v1/tasks/task-0"), 2);
    let fetch = upstream.requests().pop().unwrap();
    assert!(!fetch.headers.contains_key("authorization"), "the key left");
    app.assert_settled().await;
}

/// Though other providers are not to be polled that often.
#[sqlx::test]
async fn the_sandbox_has_one_after_a_second(_: PgPoolOptions, options: PgConnectOptions) {
    let env = [("GENSVC__JOBS__POLL_INTERVAL_MS", "600000")];
    let app = TestApp::with(options, &env).await;
    let account = app.account("100").await;
    let ask = json!({"prompt": "x", "parameters": {"duration": 1, "ratio": "1:1"}});
    let uuid = app.queue(&account, "video", &ask).await;
    app.work().await;
    app.advance(TimeDelta::seconds(1));
    app.work().await;
    assert_eq!(app.record(&account, &uuid).await["status"], "completed");
}

/// Only what runs is polled that often.
#[sqlx::test]
async fn a_task_that_the_sandbox_does_not_know_yet_is_polled_as_set(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let env = [("GENSVC__JOBS__POLL_INTERVAL_MS", "10000")];
    let app = TestApp::with(options, &env).await;
    let account = app.account("100").await;
    let ask = json!({"prompt": "x", "parameters": {"duration": 1}});
    app.queue(&account, "video", &ask).await;
    app.work_once().await;
    sqlx::query("update running_generations set remote_id = 'unknown'")
        .execute(&app.pool)
        .await
        .unwrap();
    app.advance(TimeDelta::seconds(1));
    assert_eq!(app.work_once().await, 1);
    app.advance(TimeDelta::seconds(5));
    assert_eq!(app.work_once().await, 0);
    app.advance(TimeDelta::seconds(8));
    assert_eq!(app.work_once().await, 1);
}

#[sqlx::test]
async fn the_sandbox_makes_one_by_the_clock(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    for (duration, ratio, width, height) in [
        (1, "1:1", 180, 180),
        (5, "9:16", 180, 320),
        (60, "21:9", 420, 180),
        (4, "50:1", 640, 16),
    ] {
        let ask = json!({"prompt": "x", "parameters": {"duration": duration, "ratio": ratio}});
        let uuid = app.queue(&account, "video", &ask).await;
        let record = app.until_finished(&account, &uuid).await;
        let output = &record["outputs"][0];
        assert_eq!(
            (
                &output["width"],
                &output["height"],
                output["seconds"].as_f64()
            ),
            (&json!(width), &json!(height), Some(f64::from(duration)))
        );
    }
    for (fault, code) in [
        ("[[fail]]", "provider_error"),
        ("[[reject]]", "provider_rejected"),
        ("[[timeout]]", "provider_timeout"),
        ("[[rate_limit]]", "provider_overloaded"),
    ] {
        let ask = json!({"prompt": fault, "parameters": {"duration": 1}});
        let uuid = app.queue(&account, "video", &ask).await;
        let record = app.until_finished(&account, &uuid).await;
        assert_eq!(record["error"]["code"], code);
        assert_eq!(record["credits"]["charged"], "0");
        assert_eq!(record["outputs"], json!([]));
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn failure_signs_of_a_task(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let failed = |code: &str| json!({"id": "t", "status": "FAILED", "failureCode": code});
    for (submit, task, code) in [
        (200, failed("SAFETY.INPUT.TEXT"), "content_policy"),
        (200, failed("THIRD_PARTY.SAFETY"), "content_policy"),
        (200, failed("ASSET.INVALID"), "provider_rejected"),
        (200, failed("INTERNAL.BAD_OUTPUT"), "provider_error"),
        (
            200,
            json!({"id": "t", "status": "CANCELLED"}),
            "provider_error",
        ),
        (
            200,
            json!({"id": "t", "status": "SUCCEEDED", "output": []}),
            "provider_error",
        ),
        (400, Value::Null, "provider_rejected"),
        (401, Value::Null, "provider_error"),
        (429, Value::Null, "provider_overloaded"),
        (500, Value::Null, "provider_error"),
        (504, Value::Null, "provider_timeout"),
    ] {
        let reply = task.clone();
        upstream.play(move |request| {
            if request.method == Method::POST {
                Reply::Status(submit, json!({"id": "task-x"}))
            } else {
                Reply::Status(200, reply.clone())
            }
        });
        let uuid = app.queue(&account, "video", &body()).await;
        let record = app.until_finished(&account, &uuid).await;
        assert_eq!(record["error"]["code"], code, "{submit} {task}");
        let attempts = if submit == 429 { 3 } else { 1 };
        assert_eq!(record["metadata"]["attempts"], attempts, "{submit}");
    }
    app.assert_nothing_kept().await;
    assert_eq!(app.balance(&account).await.0, "100");
}

#[sqlx::test]
async fn of_20_parallel_posts_with_one_key_one_is_submitted(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = playing().await;
    let app = Arc::new(TestApp::vendors(options, &upstream, &[]).await);
    let account = app.account("1000").await;
    let keyed = [("idempotency-key", "one")];
    let all: Vec<_> = (0..20)
        .map(|_| app.spawn_post(&account.key, "/v1/generate/video", &keyed, body()))
        .collect();
    let mut uuids = Vec::new();
    let mut replayed = 0;
    for answer in join_all(all).await {
        let answer = answer.unwrap();
        uuids.push(answer.expect(202)["uuid"].as_str().unwrap().to_owned());
        replayed += usize::from(answer.header("idempotent-replayed") == "true");
    }
    uuids.dedup();
    assert_eq!((uuids.len(), replayed), (1, 19));
    app.until_finished(&account, &uuids[0]).await;
    assert_eq!(upstream.calls(&Method::POST, "text_to_video"), 1);
    assert_eq!(app.balance(&account).await.0, "976");
    // Finished: the replay returns the current record.
    let headers = [("idempotency-key", "one")];
    let again = app
        .post_with(&account.key, "/v1/generate/video", &headers, &body())
        .await;
    assert_eq!(again.expect(200)["status"], "completed");
    app.assert_settled().await;
}

#[sqlx::test]
async fn what_a_model_does_not_make_is_refused_before_the_hold(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = playing().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("1").await;
    for (parameters, param) in [
        (json!({"duration": 1}), "parameters.duration"),
        (json!({"duration": 11}), "parameters.duration"),
        (json!({"ratio": "1:1"}), "parameters.ratio"),
    ] {
        let ask = json!({"prompt": "x", "provider": "runway", "parameters": parameters});
        let answer = app.post(&account.key, "/v1/generate/video", &ask).await;
        assert_eq!(answer.fields()[param], "not_supported");
    }
    // 32:18 is 16:9.
    let ask = json!({"prompt": "x", "provider": "runway", "parameters": {"duration": 2, "ratio": "32:18"}});
    let error = app
        .post(&account.key, "/v1/generate/video", &ask)
        .await
        .error(402, "insufficient_credits");
    assert_eq!(error["required"], "24");
    assert_eq!(error["affordable"], Value::Null);
    assert_eq!(upstream.count(), 0);
    app.assert_settled().await;
}

//! Jobs in the database: any server continues with the next candidate, and none submits twice.

use axum::body::Bytes;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use chrono::TimeDelta;
use gensvc::request::SpeechFormat;
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{attempts, failed, pairs};
use crate::common::{
    Recorded, Reply, TestApp, Upstream,
    vendors::{mp4, png, speech, stability_image},
};

/// Four seconds: 48 of `gen4.5`, 60 of `veo3.1_fast`, 160 of `veo3.1`.
fn video() -> Value {
    json!({"prompt": "x", "provider": "runway", "model": "gen4.5",
        "parameters": {"duration": 4},
        "fallbacks": [{"provider": "runway", "model": "veo3.1_fast"},
                      {"provider": "runway", "model": "veo3.1"}]})
}

/// Runway, which does not start these models.
async fn runway(down: &'static [&'static str], failure: Reply) -> Upstream {
    let upstream = Upstream::start().await;
    play(&upstream, down, failure).await;
    upstream
}

async fn play(upstream: &Upstream, down: &'static [&'static str], failure: Reply) {
    let file = Reply::File("video/mp4", mp4(4).await);
    let output = format!("{}/files/out.mp4", upstream.url());
    upstream.play(move |request: &Recorded| {
        if request.path.ends_with("_video") {
            let model = request.body["model"].as_str().unwrap();
            if down.contains(&model) {
                return failure.clone();
            }
            return Reply::Status(200, json!({"id": format!("task-of-{model}")}));
        }
        if request.path.contains("/tasks/") {
            let done = json!({"id": "t", "status": "SUCCEEDED", "output": [output]});
            return Reply::Status(200, done);
        }
        file.clone()
    });
}

#[sqlx::test]
async fn a_video_moves_on_and_costs_what_its_own_model_costs(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = runway(&["gen4.5"], failed(429)).await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let uuid = app.queue(&account, "video", &video()).await;
    assert_eq!(app.balance(&account).await, ("1000".into(), "160".into()));
    let request_id = app.record(&account, &uuid).await["metadata"]["request_id"].clone();
    assert!(request_id.is_string());
    let record = app.until_finished(&account, &uuid).await;
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["model"], "veo3.1_fast");
    assert_eq!(record["metadata"]["request_id"], request_id);
    assert_eq!(
        record["credits"],
        json!({"estimated": "160", "held": "0", "charged": "60"})
    );
    assert_eq!(record["bill"]["total"], "60");
    assert_eq!(
        attempts(&record),
        pairs(&[("runway", "overloaded"), ("runway", "completed")])
    );
    let answer = app.get(&account.key, &format!("/v1/generate/{uuid}")).await;
    assert_eq!(answer.header("x-gensvc-served-by"), "runway/veo3.1_fast");
    assert_eq!(upstream.calls(&Method::POST, "_video"), 2);
    app.assert_settled().await;
}

#[sqlx::test]
async fn an_unknown_outcome_of_a_job_never_moves_on(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    for (at, failure) in [
        failed(500),
        failed(400),
        Reply::Status(200, json!({})),
        Reply::Cut,
    ]
    .into_iter()
    .enumerate()
    {
        play(&upstream, &["gen4.5"], failure).await;
        let uuid = app.queue(&account, "video", &video()).await;
        let record = app.until_finished(&account, &uuid).await;
        assert_eq!(record["status"], "failed", "{record}");
        assert_eq!(record["model"], "gen4.5");
        assert_eq!(upstream.calls(&Method::POST, "_video"), at + 1);
    }
    assert_eq!(app.balance(&account).await, ("1000".into(), "0".into()));
    app.assert_nothing_kept().await;
}

#[sqlx::test]
async fn another_server_continues_after_a_move(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = runway(&["gen4.5"], failed(503)).await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let uuid = app.queue(&account, "video", &video()).await;
    // One step: the submission that is refused, and the move. Then the server is gone.
    assert_eq!(app.work_once().await, 1);
    assert_eq!(upstream.calls(&Method::POST, "_video"), 1);
    let left: Option<bool> = sqlx::query_scalar(
        "select lease_token is null and submitted_at is null and remote_id is null
         from running_generations",
    )
    .fetch_one(&app.pool)
    .await
    .unwrap();
    assert_eq!(left, Some(true));
    let other = app.replica().await;
    assert_eq!(other.bury().await, 0);
    let record = other.until_finished(&account, &uuid).await;
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["credits"]["charged"], "60");
    assert_eq!(upstream.calls(&Method::POST, "_video"), 2);
    assert_eq!(record["metadata"]["attempts"], 2);
    other.assert_settled().await;
}

#[sqlx::test]
async fn a_server_that_dies_before_the_move_leaves_an_interrupted_job(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = runway(&["gen4.5"], failed(503)).await;
    upstream.hold_only("_video");
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let uuid = app.queue(&account, "video", &video()).await;
    assert_eq!(app.app.runner.work_step().await.unwrap(), 1);
    upstream.arrived(1).await;
    let other = app.replica().await;
    assert_eq!(other.bury().await, 1);
    upstream.release(usize::MAX >> 4);
    app.idle().await;
    let record = other.record(&account, &uuid).await;
    assert_eq!(record["error"]["code"], "interrupted", "{record}");
    assert_eq!(record["credits"]["charged"], "0");
    assert_eq!(app.work_once().await + other.work_once().await, 0);
    assert_eq!(upstream.calls(&Method::POST, "_video"), 1);
    app.assert_nothing_kept().await;
}

/// A server of the release before would charge the hold: it does not get such a job, also where it
/// releases it as that of a dead server.
#[sqlx::test]
async fn a_server_that_knows_no_routes_claims_no_job_with_candidates(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = runway(&["gen4.5"], failed(429)).await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let old = "update instances set knows_routes = false";
    sqlx::query(old).execute(&app.pool).await.unwrap();
    let new = app.replica().await;
    let uuid = app.queue(&account, "video", &video()).await;
    let alone = json!({"prompt": "x", "provider": "runway", "model": "veo3.1",
        "parameters": {"duration": 4}});
    let alone = app.queue(&account, "video", &alone).await;
    let owner = "select lease_token from running_generations where id = $1::uuid";
    let is_claimed = async |uuid: &str| -> bool {
        let owner: Option<uuid::Uuid> = sqlx::query_scalar(owner)
            .bind(uuid)
            .fetch_one(&app.pool)
            .await
            .unwrap();
        owner.is_some()
    };
    assert_eq!(app.work_once().await, 1);
    assert_eq!(app.record(&account, &alone).await["attempts"], Value::Null);
    assert_eq!(upstream.calls(&Method::POST, "_video"), 1);
    // The new server dies with the job, and the old one finds it. Past the deadline any server
    // claims a job.
    upstream.hold_only("_video");
    assert_eq!(new.app.runner.work_step().await.unwrap(), 1);
    assert!(is_claimed(&uuid).await);
    upstream.arrived(upstream.count()).await;
    upstream.release(usize::MAX >> 4);
    new.idle().await;
    assert!(!is_claimed(&uuid).await);
    let silent = "delete from instances where knows_routes";
    sqlx::query(silent).execute(&app.pool).await.unwrap();
    let mut all = new.app.runner.work_step().await.unwrap();
    all += app.app.runner.work_step().await.unwrap();
    app.idle().await;
    assert!(!is_claimed(&uuid).await, "{all}");
    let newer = app.replica().await;
    let record = newer.until_finished(&account, &uuid).await;
    assert_eq!(
        record["credits"],
        json!({"estimated": "160", "held": "0", "charged": "60"})
    );
    newer.until_finished(&account, &alone).await;
    newer.assert_settled().await;
}

#[sqlx::test]
async fn an_image_moves_on_with_its_inputs(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    upstream.play(|request: &Recorded| {
        if request.path.contains("/openai/") {
            return failed(429);
        }
        stability_image(&png(64, 64), "SUCCESS")
    });
    let source = json!({"role": "source", "data": BASE64_STANDARD.encode(png(64, 64))});
    let body = json!({"prompt": "At night", "provider": "openai", "model": "gpt-image-2.5-flare",
        "inputs": [source], "fallbacks": [{"provider": "stability", "model": "sd3.5-large"}]});
    let record = app.post(&account.key, "/v1/generate/image", &body).await;
    let record = record.expect(200);
    assert_eq!(
        attempts(&record),
        pairs(&[("openai", "overloaded"), ("stability", "completed")])
    );
    let credits = &record["credits"];
    assert_eq!(credits["charged"], "6.5", "{record}");
    assert_eq!(record["bill"]["total"], "6.5");
    assert_ne!(credits["estimated"], "6.5");
    for request in upstream.requests() {
        assert!(request.text.contains("source.png"), "{}", request.path);
    }
    assert_eq!(upstream.count(), 2);
    app.assert_settled().await;
}

#[sqlx::test]
async fn speech_moves_on_to_another_vendor(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let spoken: Bytes = speech(SpeechFormat::Mp3, "Good morning.").await;
    let detail = json!({"detail": {"status": "quota_exceeded", "message": "m"}});
    upstream.play(move |request: &Recorded| {
        if request.path.contains("/elevenlabs/") {
            return Reply::Status(401, detail.clone());
        }
        Reply::File("audio/mpeg", spoken.clone())
    });
    let body = json!({"prompt": "Good morning.", "provider": "elevenlabs", "model": "eleven_v4",
        "fallbacks": [{"provider": "openai", "model": "tts-1-hd"}]});
    let uuid = app.queue(&account, "audio", &body).await;
    let record = app.until_finished(&account, &uuid).await;
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(
        attempts(&record),
        pairs(&[("elevenlabs", "account_refused"), ("openai", "completed")])
    );
    // 13 characters at 3 a thousand; the hold is that of 8 a thousand.
    assert_eq!(
        record["credits"],
        json!({"estimated": "0.104", "held": "0", "charged": "0.039"})
    );
    assert_eq!(record["parameters"]["voice"], "alloy");
    app.advance(TimeDelta::seconds(1));
    app.assert_settled().await;
}

//! Replays, deletions and abilities for images, speech and video.

use chrono::TimeDelta;
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{
    Reply, TestApp, Upstream,
    vendors::{openai_images, png, stability_image},
};

const IMAGE: &str = "/v1/generate/image";
const KEYED: [(&str, &str); 1] = [("idempotency-key", "k")];

#[sqlx::test]
async fn a_replayed_image_is_signed_anew_and_not_made_anew(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.reply(openai_images(&[png(1024, 1024)]));
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("10").await;
    let body = json!({"prompt": "x", "provider": "openai"});
    let first = app.post_with(&account.key, IMAGE, &KEYED, &body).await;
    let first = first.expect(200);
    app.advance(TimeDelta::hours(23));
    let again = app.post_with(&account.key, IMAGE, &KEYED, &body).await;
    assert_eq!(again.header("idempotent-replayed"), "true");
    let again = again.expect(200);
    assert_eq!(again["uuid"], first["uuid"]);
    assert_ne!(again["result"], first["result"]);
    app.advance(TimeDelta::minutes(30));
    assert_eq!(app.file(&again["result"], &[]).await.status, 200);
    assert_eq!(upstream.count(), 1);
    // The route is part of the request.
    let other = app
        .post_with(&account.key, "/v1/generate/video", &KEYED, &body)
        .await;
    other.error(422, "idempotency_key_reused");
    let path = format!("/v1/generate/{}", first["uuid"].as_str().unwrap());
    app.delete(&account.key, &path).await.expect(204);
    let gone = app.post_with(&account.key, IMAGE, &KEYED, &body).await;
    gone.error(404, "not_found");
    app.assert_nothing_kept().await;
}

#[sqlx::test]
async fn a_wait_is_ignored_where_the_answer_waits_anyway(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let body = json!({"prompt": "x", "parameters": {"size": "256x256"}});
    let answer = app
        .post_with(&account.key, IMAGE, &[("prefer", "wait=5")], &body)
        .await;
    answer.expect(200);
    assert_eq!(answer.header("preference-applied"), "");
    let listed = app.history(&account).await[0].clone();
    for absent in ["outputs", "parameters", "metadata"] {
        assert!(listed.get(absent).is_none(), "{listed}");
    }
}

#[sqlx::test]
async fn some_of_several_requests_may_fail(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let body = json!({"prompt": "x", "provider": "stability", "parameters": {"n": 3}});
    for bad in [
        stability_image(&png(1024, 1024), "CONTENT_FILTERED"),
        Reply::Status(429, Value::Null),
        Reply::Status(500, Value::Null),
    ] {
        let count = std::sync::atomic::AtomicUsize::new(0);
        let before = upstream.count();
        upstream.play(move |_| {
            if count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 {
                bad.clone()
            } else {
                stability_image(&png(1024, 1024), "SUCCESS")
            }
        });
        let record = app.post(&account.key, IMAGE, &body).await.expect(200);
        assert_eq!(record["usage"], json!({"images": 2}));
        assert_eq!(record["credits"]["charged"], "6");
        assert_eq!(record["metadata"]["attempts"], 1);
        assert_eq!(upstream.count() - before, 3, "what came was paid for twice");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn cancel_and_delete_need_the_ability_of_the_type(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    let limited = json!({"name": "v", "abilities": ["generate:video", "read:history"]});
    let video = app.key(account.id, limited).await;
    let limited = json!({"name": "a", "abilities": ["generate:audio", "read:history"]});
    let audio = app.key(account.id, limited).await;
    let ask = json!({"prompt": "x", "parameters": {"duration": 1}});
    let uuid = app.queue(&account, "video", &ask).await;
    let path = format!("/v1/generate/{uuid}");
    let cancel = format!("{path}/cancel");
    let refused = app.call(Method::POST, &audio, &cancel, &[], None).await;
    let error = refused.error(403, "missing_ability");
    assert_eq!(error["required_ability"], "generate:video");
    app.delete(&video, &path).await.error(409, "not_finished");
    app.delete(&audio, &path)
        .await
        .error(403, "missing_ability");
    let done = app.call(Method::POST, &video, &cancel, &[], None).await;
    assert_eq!(done.expect(200)["error"]["code"], "cancelled");
    app.delete(&video, &path).await.expect(204);
    app.delete(&video, &path).await.error(404, "not_found");
    app.assert_nothing_kept().await;
}

#[sqlx::test]
async fn queued_jobs_count_as_unfinished(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::with(options, &[("GENSVC__JOBS__MAX_PER_ACCOUNT", "2")]).await;
    let account = app.account("100").await;
    let ask = json!({"prompt": "x", "parameters": {"duration": 1}});
    let first = app.queue(&account, "video", &ask).await;
    app.queue(&account, "audio", &json!({"prompt": "x"})).await;
    let refused = app.post(&account.key, "/v1/generate/video", &ask).await;
    refused.error(429, "too_many_jobs");
    app.until_finished(&account, &first).await;
    app.queue(&account, "video", &ask).await;
}

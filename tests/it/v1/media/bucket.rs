//! Files in a bucket: links to it, and its outages.

use chrono::TimeDelta;
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::picture;
use crate::common::{
    Reply, TestApp, Upstream,
    bucket::Bucket,
    link,
    vendors::{mp4, runway},
};

#[sqlx::test]
async fn a_get_is_sent_to_the_bucket_and_a_head_is_answered_here(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let bucket = Bucket::start().await;
    let app = TestApp::with(options, &bucket.env()).await;
    let account = app.account("10").await;
    let record = picture(&app, &account).await;
    let output = &record["outputs"][0];
    let url = link(&record["result"]);
    bucket.served();

    let sent = app.call(Method::GET, "", &url, &[], None).await;
    assert_eq!(sent.status, 307);
    assert_eq!(sent.header("cache-control"), "no-store");
    assert_eq!(bucket.served(), [] as [Method; 0]);
    let client = reqwest::Client::new();
    let there = sent.header("location").to_owned();
    let file = client.get(&there).send().await.unwrap();
    assert_eq!(file.status().as_u16(), 200);
    let bytes = file.bytes().await.unwrap();
    assert_eq!(output["bytes"], bytes.len());
    // The bucket's link is valid for GET only.
    let refused = client.head(&there).send().await.unwrap();
    assert_eq!(refused.status().as_u16(), 403);
    bucket.served();

    let head = app.call(Method::HEAD, "", &url, &[], None).await;
    assert_eq!(head.status, 200, "{:?}", head.headers);
    assert_eq!(head.bytes.len(), 0);
    assert_eq!(head.header("content-length"), bytes.len().to_string());
    assert_eq!(head.header("content-type"), "image/png");
    let etag = head.header("etag").to_owned();
    assert_eq!(etag, "\"an-etag\"");
    let known = [("if-none-match", etag.as_str())];
    let same = app.call(Method::HEAD, "", &url, &known, None).await;
    assert_eq!(same.status, 304);
    assert_eq!(bucket.served(), [Method::HEAD, Method::HEAD]);
    let wrong = url.replace("signature=", "signature=0");
    let wrong = app.call(Method::HEAD, "", &wrong, &[], None).await;
    assert_eq!(wrong.status, 403);
    bucket.set_away(true);
    let away = app.call(Method::HEAD, "", &url, &[], None).await;
    assert_eq!(away.status, 503);
    assert_ne!(away.header("retry-after"), "");
}

#[sqlx::test]
async fn while_the_bucket_is_away_nothing_is_charged_and_text_goes_on(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let (bucket, upstream) = (Bucket::start().await, Upstream::start().await);
    runway(&upstream, 1, None, Reply::File("video/mp4", mp4(2).await));
    let app = TestApp::vendors(options, &upstream, &bucket.env()).await;
    let account = app.account("100").await;
    let health = app.get("", "/health").await.expect(200);
    assert_eq!(health["status"], "ok");
    bucket.set_away(true);

    let image = json!({"prompt": "x", "provider": "sandbox"});
    let path = "/v1/generate/image";
    let answer = app.post(&account.key, path, &image).await;
    let error = answer.error(503, "storage_unavailable");
    assert_eq!(error["type"], "unavailable");
    assert_eq!(error["retryable"], true);
    assert_ne!(answer.header("retry-after"), "");
    assert_not_kept(&answer.json()["generation"]);
    let sound = json!({"prompt": "x", "provider": "sandbox"});
    let uuid = app.queue(&account, "audio", &sound).await;
    assert_not_kept(&app.until_finished(&account, &uuid).await);

    // A provider keeps its video: the download is retried until the deadline.
    let video = json!({"prompt": "x", "provider": "runway", "parameters": {"duration": 2}});
    let (lost, late) = (
        app.queue(&account, "video", &video).await,
        app.queue(&account, "video", &video).await,
    );
    let tries = async |more: usize| {
        let seen = upstream.calls(&Method::GET, "/files/");
        while upstream.calls(&Method::GET, "/files/") < seen + more {
            app.work().await;
            app.advance(TimeDelta::seconds(1));
        }
    };
    tries(2).await;
    for uuid in [&lost, &late] {
        assert_eq!(app.record(&account, uuid).await["status"], "processing");
    }
    bucket.set_away(false);
    assert_eq!(
        app.until_finished(&account, &late).await["status"],
        "completed"
    );
    assert_eq!(
        app.until_finished(&account, &lost).await["status"],
        "completed"
    );
    bucket.set_away(true);
    let lost = app.queue(&account, "video", &video).await;
    tries(1).await;
    app.advance(TimeDelta::hours(1));
    assert_not_kept(&app.until_finished(&account, &lost).await);

    let text = json!({"prompt": "x", "provider": "sandbox"});
    app.text(&account.key, text).await.expect(200);
    app.assert_settled().await;
}

#[track_caller]
fn assert_not_kept(record: &Value) {
    assert_eq!(record["status"], "failed", "{record}");
    assert_eq!(record["error"]["code"], "storage_unavailable");
    assert_eq!(record["error"]["message"], "the file could not be stored");
    assert_eq!(record["error"]["retryable"], true);
    assert_eq!(record["credits"]["charged"], "0");
}

/// Health results are cached for a moment, so each state has its own server.
#[sqlx::test]
async fn without_its_storage_a_server_is_degraded(_: PgPoolOptions, options: PgConnectOptions) {
    let bucket = Bucket::start().await;
    bucket.set_away(true);
    let app = TestApp::with(options, &bucket.env()).await;
    let body = app.get("", "/health").await.expect(200);
    assert_eq!(body["status"], "degraded");
    assert_eq!(
        body["checks"],
        json!({"database": "ok", "storage": "unavailable"})
    );
    let replica = app.replica().await;
    replica.store.close(std::time::Duration::from_secs(9)).await;
    let body = replica.get("", "/health").await.expect(503);
    assert_eq!(body["status"], "unavailable");
    assert_eq!(
        body["checks"],
        json!({"database": "unavailable", "storage": "unavailable"})
    );
}

#[sqlx::test]
async fn a_deleted_text_has_no_files_to_remove(_: PgPoolOptions, options: PgConnectOptions) {
    let bucket = Bucket::start().await;
    let app = TestApp::with(options, &bucket.env()).await;
    let account = app.account("10").await;
    let text = app
        .text(&account.key, json!({"prompt": "x"}))
        .await
        .expect(200);
    let image = picture(&app, &account).await;
    bucket.served();
    for (record, has_files) in [(text, false), (image, true)] {
        let path = format!("/v1/generate/{}", record["uuid"].as_str().unwrap());
        app.delete(&account.key, &path).await.expect(204);
        assert_eq!(!bucket.served().is_empty(), has_files);
    }
}

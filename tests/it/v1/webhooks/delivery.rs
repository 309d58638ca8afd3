//! What a receiver gets.

use chrono::{SecondsFormat, TimeDelta};
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use standardwebhooks::Webhook;

use super::{HOOKS, deliveries, hook, only, receiver, text};
use crate::common::{Recorded, TestApp};

/// Asserts that a request is signed according to Standard Webhooks.
#[track_caller]
pub fn assert_signed(request: &Recorded, hook: &Value) {
    let header = |name: &str| request.headers[name].to_str().unwrap();
    let signer = Webhook::new(hook["secret"].as_str().unwrap()).unwrap();
    let timestamp = header("webhook-timestamp").parse().unwrap();
    let expected = signer
        .sign(header("webhook-id"), timestamp, request.text.as_bytes())
        .unwrap();
    assert_eq!(header("webhook-signature"), expected);
}

#[sqlx::test]
async fn an_event_is_told_and_signed(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let receiver = receiver().await;
    let hook = hook(&app, &account, &receiver).await;
    let record = text(&app, &account).await;
    let happened = app.now();
    assert_eq!(receiver.count(), 0, "delivered while the caller waits");
    app.advance(TimeDelta::seconds(5));
    app.deliver().await;
    let requests = receiver.requests();
    assert_eq!(requests.len(), 1);
    let request = &requests[0];
    assert_eq!(
        (&request.method, request.path.as_str()),
        (&Method::POST, "/hook")
    );
    let rfc3339 = |time: chrono::DateTime<_>| time.to_rfc3339_opts(SecondsFormat::Micros, true);
    let expected = json!({"type": "generation.completed", "timestamp": rfc3339(happened),
        "data": record});
    assert_eq!(request.body, expected);
    let id = format!("msg_{}", record["uuid"].as_str().unwrap());
    for (name, value) in [
        ("webhook-id", id.as_str()),
        ("webhook-timestamp", &app.now().timestamp().to_string()),
        ("content-type", "application/json"),
        ("user-agent", concat!("gensvc/", env!("CARGO_PKG_VERSION"))),
    ] {
        assert_eq!(request.headers[name], value, "{name}");
    }
    for name in ["authorization", "cookie", "referer"] {
        assert!(!request.headers.contains_key(name), "{name}");
    }
    assert_signed(request, &hook);
    let delivery = only(&app, &account, &hook).await;
    let now = rfc3339(app.now());
    assert_eq!(
        delivery,
        json!({"id": delivery["id"], "event": "generation.completed", "generation": record["uuid"],
            "status": "delivered", "attempts": 1, "response_status": 200, "error": null,
            "next_attempt_at": null, "last_attempt_at": now, "created_at": rfc3339(happened),
            "delivered_at": now})
    );
}

#[sqlx::test]
async fn only_what_is_listened_to_is_told(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("100").await, app.account("100").await);
    let receiver = receiver().await;
    for (who, path, events) in [
        (&account, "done", json!(["generation.completed"])),
        (&account, "failed", json!(["generation.failed"])),
        (&account, "all", json!(null)),
        (&other, "other", json!(null)),
    ] {
        let body = json!({"url": format!("{}/{path}", receiver.url()), "events": events});
        app.post(&who.key, HOOKS, &body).await.expect(201);
    }
    let done = text(&app, &account).await["uuid"].clone();
    let failing = json!({"prompt": "[[reject]]"});
    let failed = app.text(&account.key, failing).await.expect(502);
    let failed = failed["generation"]["uuid"].clone();
    let video = json!({"prompt": "x", "parameters": {"duration": 1}});
    let video = app.queue(&account, "video", &video).await;
    let cancel = format!("/v1/generate/{video}/cancel");
    app.post(&account.key, &cancel, &json!({}))
        .await
        .expect(200);
    app.deliver().await;
    let mut received: Vec<_> = receiver
        .requests()
        .iter()
        .map(|r| {
            (
                r.path.clone(),
                r.body["type"].clone(),
                r.body["data"]["uuid"].clone(),
            )
        })
        .map(|(path, event, uuid)| format!("{path} {event} {uuid}"))
        .collect();
    received.sort();
    let line = |path: &str, event: &str, uuid: &Value| format!("{path} {event:?} {uuid}");
    let cancelled = json!(video);
    let mut expected = vec![
        line("/done", "generation.completed", &done),
        line("/failed", "generation.failed", &failed),
        line("/failed", "generation.failed", &cancelled),
        line("/all", "generation.completed", &done),
        line("/all", "generation.failed", &failed),
        line("/all", "generation.failed", &cancelled),
    ];
    expected.sort();
    assert_eq!(received, expected);
    let one = |r: &&Recorded| r.body["data"]["uuid"] == cancelled;
    let event = receiver.requests().iter().find(one).unwrap().body.clone();
    assert_eq!(event["data"]["error"]["code"], "cancelled");
    assert_eq!(event["data"]["credits"]["charged"], "0");
}

#[sqlx::test]
async fn files_can_be_fetched_by_what_is_told(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    let receiver = receiver().await;
    let hook = hook(&app, &account, &receiver).await;
    let body = json!({"prompt": "x", "parameters": {"duration": 1}});
    let uuid = app.queue(&account, "video", &body).await;
    app.until_finished(&account, &uuid).await;
    // The links of the first attempt would have expired by now.
    app.advance(TimeDelta::days(3));
    app.deliver().await;
    let data = receiver.requests()[0].body["data"].clone();
    assert_eq!(data, app.record(&account, &uuid).await);
    assert_eq!(app.file(&data["outputs"][0]["url"], &[]).await.status, 200);
    assert_eq!(only(&app, &account, &hook).await["status"], "delivered");
}

#[sqlx::test]
async fn of_a_deleted_generation_what_stays_is_told(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    let receiver = receiver().await;
    hook(&app, &account, &receiver).await;
    let record = text(&app, &account).await;
    let path = format!("/v1/generate/{}", record["uuid"].as_str().unwrap());
    app.delete(&account.key, &path).await.expect(204);
    app.deliver().await;
    let data = receiver.requests()[0].body["data"].clone();
    assert_eq!(data["uuid"], record["uuid"]);
    assert_eq!(data["credits"], record["credits"]);
    assert_eq!(
        (&data["prompt"], &data["result"]),
        (&json!(""), &json!(null))
    );
}

#[sqlx::test]
async fn a_generation_does_not_wait_for_receivers(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    let receiver = receiver().await;
    let hook = hook(&app, &account, &receiver).await;
    text(&app, &account).await;
    receiver.hold();
    assert_eq!(app.app.dispatcher.step().await.unwrap(), 1);
    receiver.arrived(1).await;
    // The receiver hangs, and everything else continues.
    text(&app, &account).await;
    app.assert_settled().await;
    receiver.release(2);
    app.deliver().await;
    app.deliver().await;
    assert_eq!(receiver.count(), 2);
    for delivery in deliveries(&app, &account, &hook).await {
        assert_eq!(
            (&delivery["status"], &delivery["attempts"]),
            (&json!("delivered"), &json!(1))
        );
    }
}

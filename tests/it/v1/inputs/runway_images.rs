//! Images of Runway: a task for each, with references.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::common::Recorded;

async fn make(app: &TestApp, account: &Account, model: &str, more: Value) -> Answer {
    let mut body = json!({"prompt": "A red fox", "provider": "runway", "model": model});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    app.post(&account.key, IMAGE, &body).await
}

#[sqlx::test]
async fn an_image_is_a_task_with_references(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    runway(
        &upstream,
        2,
        None,
        Reply::File("image/png", png(1024, 1024)),
    );
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let inputs = json!([data("reference", 8, 8), data("reference", 9, 9)]);
    let uri = |n: usize| {
        let base64 = inputs[n]["data"].as_str().unwrap();
        json!({"uri": format!("data:image/png;base64,{base64}")})
    };
    for (model, more, price, ratio) in [
        ("gen4_image", json!({}), "8", "1024:1024"),
        ("gen4_image", json!({"inputs": inputs}), "8", "1024:1024"),
        (
            "gen4_image",
            json!({"parameters": {"size": "256x256"}}),
            "5",
            "720:720",
        ),
        (
            "gen4_image_turbo",
            json!({"inputs": inputs}),
            "2",
            "1024:1024",
        ),
    ] {
        let record = make(&app, &account, model, more.clone()).await.expect(200);
        assert_eq!(record["credits"]["charged"], price, "{model} {more}");
        let size = more["parameters"]["size"].as_str().unwrap_or("1024x1024");
        let output = &record["outputs"][0];
        assert_eq!(format!("{}x{}", output["width"], output["height"]), size);
        let mut requests = upstream.requests().into_iter().rev();
        let sent = requests.find(|request| request.path.ends_with("_to_image"));
        let sent = sent.unwrap();
        assert_eq!(sent.path, "/runway/v1/text_to_image");
        let mut expected = json!({"model": model, "promptText": "A red fox", "ratio": ratio});
        if more["inputs"].is_array() {
            expected["referenceImages"] = json!([uri(0), uri(1)]);
        }
        assert_eq!(sent.body, expected);
    }
    assert_eq!(upstream.calls(&http::Method::POST, "text_to_image"), 4);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_failed_download_is_retried(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let output = format!("{}/files/out.png", upstream.url());
    let downloads = AtomicUsize::new(0);
    upstream.play(move |request: &Recorded| {
        if request.path.ends_with("_to_image") {
            return Reply::Status(200, json!({"id": "task-1"}));
        }
        if request.path.contains("/tasks/") {
            let task = json!({"id": "task-1", "status": "SUCCEEDED", "output": [output]});
            return Reply::Status(200, task);
        }
        if downloads.fetch_add(1, Ordering::Relaxed) < 2 {
            return Reply::Status(503, json!({}));
        }
        Reply::File("image/png", png(1024, 1024))
    });
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let record = make(&app, &account, "gen4_image", json!({})).await;
    assert_eq!(record.expect(200)["credits"]["charged"], "8");
    let cost = "select list_cost from finished_generations";
    let cost: Option<i64> = sqlx::query_scalar(cost).fetch_one(&app.pool).await.unwrap();
    assert_eq!(cost, Some(8_000_000));
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_task_that_fails_is_free(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let task = json!({"id": "t", "createdAt": "2026-11-26T00:00:00Z", "status": "FAILED",
        "failure": "no", "failureCode": "SAFETY.INPUT.TEXT", "cost": {"credits": 0}});
    upstream.reply(Reply::Status(200, task));
    let failed = make(&app, &account, "gen4_image", json!({})).await;
    failed.error(502, "content_policy");
    // The file is no picture.
    runway(&upstream, 1, None, Reply::File("image/png", mp4(1).await));
    let failed = make(&app, &account, "gen4_image", json!({})).await;
    failed.error(502, "provider_error");
    assert_eq!(
        app.balance(&account).await,
        ("100".to_owned(), "0".to_owned())
    );
    app.assert_settled().await;
}

#[sqlx::test]
async fn what_a_task_does_not_take_is_refused(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    for (model, more, field, code) in [
        ("gen4_image_turbo", json!({}), "inputs", "required"),
        (
            "gen4_image",
            json!({"inputs": [data("source", 8, 8)]}),
            "inputs[0].role",
            "not_supported",
        ),
        (
            "gen4_image",
            json!({"parameters": {"n": 2}}),
            "parameters.n",
            "not_supported",
        ),
        (
            "gen4_image",
            json!({"parameters": {"size": "1792x1024"}}),
            "parameters.size",
            "not_supported",
        ),
        (
            "gen4_image",
            json!({"prompt": "🦊".repeat(501)}),
            "prompt",
            "too_long",
        ),
        (
            "gen4_image",
            json!({"negative_prompt": "x"}),
            "negative_prompt",
            "not_supported",
        ),
    ] {
        let answer = make(&app, &account, model, more.clone()).await;
        assert_eq!(answer.fields()[field], code, "{model} {more}");
    }
    assert_eq!(upstream.count(), 0);
}

//! Videos as inputs: extending one that was generated.

use super::*;

async fn film(app: &TestApp, account: &Account, ratio: &str) -> Value {
    let body = json!({"prompt": "Waves", "provider": "sandbox",
        "parameters": {"duration": 2, "ratio": ratio}});
    let uuid = app.queue(account, "video", &body).await;
    let record = app.until_finished(account, &uuid).await;
    assert_eq!(record["status"], "completed", "{record}");
    record
}

fn source(record: &Value) -> Value {
    json!([{"role": "source", "generation": record["uuid"]}])
}

#[sqlx::test]
async fn a_video_is_extended_and_only_the_added_seconds_are_charged(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    let mut record = film(&app, &account, "9:16").await;
    for (added, seconds) in [(3, 5.0), (1, 6.0)] {
        let mut body = json!({"type": "video", "prompt": "And on", "provider": "sandbox",
            "inputs": source(&record), "parameters": {"duration": added}});
        let estimate = app.post(&account.key, "/v1/credits/estimate", &body).await;
        let price = format!("{}.5", 5 * added);
        assert_eq!(estimate.expect(200)["hold"], price);
        body.as_object_mut().unwrap().remove("type");
        let uuid = app.queue(&account, "video", &body).await;
        let extended = app.until_finished(&account, &uuid).await;
        assert_eq!(extended["status"], "completed", "{extended}");
        assert_eq!(extended["credits"]["charged"], price);
        assert_eq!(
            extended["usage"],
            json!({"seconds": added, "input_images": 1})
        );
        assert_eq!(extended["parameters"]["ratio"], "9:16");
        let (output, before) = (&extended["outputs"][0], &record["outputs"][0]);
        assert_eq!(output["seconds"], seconds);
        assert_eq!(
            (&output["width"], &output["height"]),
            (&before["width"], &before["height"])
        );
        let input = &extended["inputs"][0];
        assert_eq!(input["sha256"], before["sha256"]);
        assert_eq!(input["generation"], record["uuid"]);
        record = extended;
    }
    // The kept copies are removed, the results stay.
    app.advance(TimeDelta::hours(25));
    app.app.runner.purge(TimeDelta::days(30), 10).await.unwrap();
    let audit = app.app.runner.verify_files().await.unwrap();
    assert_eq!((audit.files, audit.unknown.len()), (3, 0));
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_video_that_cannot_be_extended_is_refused(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let record = film(&app, &account, "16:9").await;
    let image = json!({"prompt": "x", "provider": "sandbox", "parameters": {"size": "256x256"}});
    let image = app.post(&account.key, IMAGE, &image).await.expect(200);
    let picture = upload(&app, &account, 16, 9).await;
    let before = app.balance(&account).await;
    let film = source(&record);
    for (provider, inputs, seconds, field, code) in [
        ("runway", film.clone(), 5, "inputs[0].role", "not_supported"),
        (
            "sandbox",
            source(&image),
            5,
            "inputs[0].generation",
            "not_allowed",
        ),
        (
            "sandbox",
            json!([data("source", 16, 9)]),
            5,
            "inputs[0].data",
            "not_allowed",
        ),
        (
            "sandbox",
            json!([{"role": "source", "upload": picture["id"]}]),
            5,
            "inputs[0].upload",
            "not_allowed",
        ),
        (
            "sandbox",
            json!([{"role": "first_frame", "generation": record["uuid"]}]),
            5,
            "inputs[0].generation",
            "not_allowed",
        ),
        (
            "sandbox",
            json!([film[0], data("first_frame", 16, 9)]),
            5,
            "inputs[1].role",
            "not_supported",
        ),
        (
            "sandbox",
            json!([film[0], data("last_frame", 16, 9)]),
            5,
            "inputs[1].role",
            "not_supported",
        ),
        (
            "sandbox",
            json!([film[0], data("reference", 16, 9)]),
            5,
            "inputs[1].role",
            "not_supported",
        ),
        ("gemini", film.clone(), 5, "inputs[0].role", "not_supported"),
    ] {
        let body = json!({"prompt": "And on", "provider": provider, "inputs": inputs,
            "parameters": {"duration": seconds}});
        let answer = app.post(&account.key, "/v1/generate/video", &body).await;
        assert_eq!(answer.status, 422, "{body} {}", answer.text);
        assert_eq!(answer.fields()[field], code, "{body}");
        if field == "inputs[1].role" {
            let reason = "cannot be combined with source";
            assert!(answer.text.contains(reason), "{}", answer.text);
        }
        if provider != "sandbox" {
            let other = "use sandbox/sandbox-video-1";
            assert!(answer.text.contains(other), "{}", answer.text);
        }
    }
    let body = json!({"prompt": "And on", "provider": "sandbox", "inputs": film,
        "parameters": {"duration": 5, "ratio": "1:1"}});
    let answer = app.post(&account.key, "/v1/generate/video", &body).await;
    assert_eq!(answer.fields()["parameters.ratio"], "not_supported");
    // An image model takes no video as its source.
    let body = json!({"prompt": "x", "provider": "sandbox", "inputs": film});
    let answer = app.post(&account.key, IMAGE, &body).await;
    assert_eq!(answer.fields()["inputs[0].generation"], "not_allowed");
    assert_eq!(app.balance(&account).await, before);
    assert_eq!(upstream.count(), 0);
}

/// A server of the previous release ignores inputs, and would charge the hold.
#[sqlx::test]
async fn a_server_that_knows_no_inputs_claims_no_job_with_inputs(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    let old = "update instances set knows_routes = false";
    sqlx::query(old).execute(&app.pool).await.unwrap();
    let new = app.replica().await;
    let mut body = json!({"prompt": "Waves", "provider": "sandbox",
        "inputs": [data("first_frame", 16, 9)], "parameters": {"duration": 2}});
    let uuid = app.queue(&account, "video", &body).await;
    assert_eq!(app.work_once().await, 0);
    let record = new.until_finished(&account, &uuid).await;
    assert_eq!(record["status"], "completed", "{record}");
    body["inputs"] = json!([]);
    app.queue(&account, "video", &body).await;
    assert_eq!(app.work_once().await, 1);
}

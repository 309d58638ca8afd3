//! Requests to vendors, as their SDKs send them, and the resulting charges.

use gensvc::domain::credits::Credits;

use super::*;
use crate::common::{
    CONFIG_FILE, Recorded,
    vendors::{openai_images, stability_image},
};

/// The names of a form's fields, with the file name and the type of files.
fn fields(request: &Recorded) -> Vec<String> {
    let parts = request
        .text
        .split("Content-Disposition: form-data; ")
        .skip(1);
    parts
        .map(|part| {
            part.lines()
                .take(2)
                .collect::<Vec<_>>()
                .join(" ")
                .trim()
                .to_owned()
        })
        .collect()
}

async fn made(app: &TestApp, account: &Account, model: &str, more: Value) -> Answer {
    let (provider, model) = model.split_once('/').unwrap();
    let mut body = json!({"prompt": "At night", "provider": provider, "model": model});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    app.post(&account.key, IMAGE, &body).await
}

#[sqlx::test]
async fn openai_edits_are_charged_by_tokens_within_the_hold(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let inputs = json!([
        data("source", 64, 64),
        data("reference", 8, 8),
        mask(64, 64)
    ]);
    for (tokens, charged, usage) in [
        (
            json!(1_000),
            "2.25",
            json!({"images": 1, "input_images": 3, "input_image_tokens": 1_000}),
        ),
        // If the count exceeds the hold or is missing, the ceiling is charged.
        (
            json!(90_000),
            "19.45",
            json!({"images": 1, "input_images": 3}),
        ),
        (
            json!(null),
            "19.45",
            json!({"images": 1, "input_images": 3}),
        ),
    ] {
        let Reply::Status(status, mut body) = openai_images(&[png(1024, 1024)]) else {
            unreachable!()
        };
        body["usage"] = json!({"input_tokens_details": {"image_tokens": tokens}});
        upstream.reply(Reply::Status(status, body));
        let more = json!({"inputs": inputs});
        let record = made(&app, &account, "openai/gpt-image-2.5-flare", more)
            .await
            .expect(200);
        assert_eq!(record["credits"]["estimated"], "19.45");
        assert_eq!(record["credits"]["charged"], charged);
        assert_eq!(record["usage"], usage);
    }
    let request = &upstream.requests()[0];
    assert_eq!(request.path, "/openai/v1/images/edits");
    let expected = [
        "name=\"model\"",
        "name=\"prompt\"",
        "name=\"n\"",
        "name=\"size\"",
        "name=\"quality\"",
        "name=\"output_format\"",
        "name=\"image[]\"; filename=\"source.png\" Content-Type: image/png",
        "name=\"image[]\"; filename=\"reference.png\" Content-Type: image/png",
        "name=\"mask\"; filename=\"mask.png\" Content-Type: image/png",
    ];
    assert_eq!(fields(request), expected);
    app.assert_settled().await;
}

#[sqlx::test]
async fn stability_gets_a_source_and_a_white_mask(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    upstream.reply(stability_image(&png(64, 64), "SUCCESS"));
    for (model, path, inputs, extra, price) in [
        (
            "ultra",
            "generate/ultra",
            json!([data("source", 64, 64)]),
            &["strength"][..],
            "8",
        ),
        (
            "sd3.5-large",
            "generate/sd3",
            json!([data("source", 64, 64)]),
            &["model", "mode", "strength"][..],
            "6.5",
        ),
        (
            "inpaint",
            "edit/inpaint",
            json!([data("source", 64, 64), mask(64, 64)]),
            &[][..],
            "5",
        ),
    ] {
        let more = json!({"inputs": inputs});
        let record = made(&app, &account, &format!("stability/{model}"), more)
            .await
            .expect(200);
        let charged: Credits = record["credits"]["charged"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(charged, price.parse().unwrap());
        let request = upstream.requests().pop().unwrap();
        assert_eq!(
            request.path,
            format!("/stability/v2beta/stable-image/{path}")
        );
        let mut expected = vec![
            "name=\"prompt\"".to_owned(),
            "name=\"output_format\"".to_owned(),
        ];
        expected.extend(extra.iter().map(|name| format!("name=\"{name}\"")));
        expected.push("name=\"image\"; filename=\"source.png\" Content-Type: image/png".to_owned());
        if model == "inpaint" {
            let mask = "name=\"mask\"; filename=\"mask.png\" Content-Type: image/png";
            expected.push(mask.to_owned());
        }
        assert_eq!(fields(&request), expected);
    }
}

#[sqlx::test]
async fn gemini_gets_frames_or_references_before_the_prompt(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    upstream.reply(Reply::Status(
        400,
        json!({"error": {"code": "invalid_request", "message": "no"}}),
    ));
    for (roles, task) in [
        (&["last_frame", "first_frame"][..], "image_to_video"),
        (&["reference", "reference"][..], "reference_to_video"),
    ] {
        // The first frame is sent first, whatever the order in the request.
        let size = |role: &str| if role == "last_frame" { 18 } else { 16 };
        let inputs: Vec<_> = roles.iter().map(|role| data(role, size(role), 9)).collect();
        let body = json!({"prompt": "Waves", "provider": "gemini", "inputs": inputs});
        let uuid = app.queue(&account, "video", &body).await;
        let record = app.until_finished(&account, &uuid).await;
        assert_eq!(record["error"]["code"], "provider_rejected");
        let sent = upstream.requests().pop().unwrap().body;
        assert_eq!(
            sent["generation_config"],
            json!({"video_config": {"task": task}})
        );
        let input = sent["input"].as_array().unwrap();
        assert_eq!(input.len(), 3);
        assert_eq!(
            (&input[0]["type"], &input[0]["mime_type"]),
            (&json!("image"), &json!("image/png"))
        );
        assert_eq!(input[0]["data"], data("x", 16, 9)["data"]);
        assert_eq!(input[2], json!({"type": "text", "text": "Waves"}));
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn runway_gets_positions(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    upstream.reply(Reply::Status(400, json!({"error": "no"})));
    let inputs = json!([data("first_frame", 16, 9), data("last_frame", 16, 9)]);
    let body = json!({"prompt": "Waves", "provider": "runway", "model": "veo3.1_fast",
        "inputs": inputs, "parameters": {"duration": 4}});
    let uuid = app.queue(&account, "video", &body).await;
    app.until_finished(&account, &uuid).await;
    let sent = upstream.requests().pop().unwrap();
    assert!(sent.path.ends_with("/image_to_video"), "{}", sent.path);
    let uri = format!(
        "data:image/png;base64,{}",
        data("x", 16, 9)["data"].as_str().unwrap()
    );
    let expected = json!({"model": "veo3.1_fast", "promptText": "Waves", "ratio": "1280:720",
        "duration": 4, "audio": true, "promptImage": [
            {"uri": uri, "position": "first"}, {"uri": uri, "position": "last"}]});
    assert_eq!(sent.body, expected);
    app.assert_settled().await;
}

/// A server of the operator's own, without a key.
#[sqlx::test]
async fn a_compatible_server_gets_edits(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let config = format!(
        r#"[providers.local]
kind = "openai_compatible"
base_url = "{}/openai/v1"
[[providers.local.models]]
id = "painter"
type = "image"
prices.per_image.512x512 = {{ standard = "1" }}
prices.per_input_image = "0.25"
limits.native_sizes = ["512x512"]
limits.inputs = {{ source = 1 }}
"#,
        upstream.url()
    );
    let file = std::env::temp_dir().join(format!("{}.toml", uuid::Uuid::now_v7()));
    std::fs::write(&file, config).unwrap();
    let env = [(CONFIG_FILE, file.to_str().unwrap())];
    let app = TestApp::with(options, &env).await;
    let account = app.account("10").await;
    upstream.reply(openai_images(&[png(512, 512)]));
    let more = json!({"inputs": [data("source", 64, 64)]});
    let record = made(&app, &account, "local/painter", more)
        .await
        .expect(200);
    assert_eq!(record["credits"]["charged"], "1.25");
    let request = &upstream.requests()[0];
    assert_eq!(request.path, "/openai/v1/images/edits");
    let expected = [
        "name=\"model\"",
        "name=\"prompt\"",
        "name=\"n\"",
        "name=\"size\"",
        "name=\"quality\"",
        "name=\"image\"; filename=\"source.png\" Content-Type: image/png",
    ];
    assert_eq!(fields(request), expected);
    std::fs::remove_file(file).unwrap();
}

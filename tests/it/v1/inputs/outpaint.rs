//! `parameters.outpaint`: a source that is extended beyond its sides.

use super::*;
use crate::common::vendors::stability_image;

async fn extend(app: &TestApp, account: &Account, model: &str, more: Value) -> Answer {
    let (provider, model) = model.split_once('/').unwrap();
    let mut body = json!({"prompt": "A garden", "provider": provider, "model": model,
        "inputs": [data("source", 64, 48)]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    app.post(&account.key, IMAGE, &body).await
}

fn sides(outpaint: &Value) -> Value {
    json!({"parameters": {"outpaint": outpaint}})
}

#[sqlx::test]
async fn a_source_is_extended_to_its_size_and_the_sides(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let model = "sandbox/sandbox-outpaint-1";
    let outpaint = json!({"left": 16, "up": 10});
    let estimate = json!({"type": "image", "prompt": "A garden", "provider": "sandbox",
        "model": "sandbox-outpaint-1", "inputs": [data("source", 64, 48)],
        "parameters": {"outpaint": outpaint}});
    let estimate = app
        .post(&account.key, "/v1/credits/estimate", &estimate)
        .await;
    assert_eq!(estimate.expect(200)["hold"], "1.5");
    let record = extend(&app, &account, model, sides(&outpaint)).await;
    let record = record.expect(200);
    assert_eq!(record["credits"]["charged"], "1.5");
    assert_eq!(record["bill"]["lines"][0]["amount"], "1");
    assert_eq!(
        record["parameters"],
        json!({"n": 1, "quality": "standard", "size": "80x58",
            "outpaint": {"left": 16, "right": 0, "up": 10, "down": 0}})
    );
    let output = &record["outputs"][0];
    assert_eq!(
        (&output["width"], &output["height"]),
        (&json!(80), &json!(58))
    );
    // The source itself is unchanged in its corner.
    let mut files = app.files().into_iter();
    let result = files.find_map(|file| {
        let picture = image::load_from_memory(&std::fs::read(file).unwrap()).unwrap();
        Some(picture.into_rgb8()).filter(|picture| picture.dimensions() == (80, 58))
    });
    let result = result.unwrap();
    let source = image::load_from_memory(&png(64, 48)).unwrap().into_rgb8();
    for (x, y) in [(0, 0), (63, 47), (30, 20)] {
        assert_eq!(result.get_pixel(x + 16, y + 10), source.get_pixel(x, y));
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn stability_gets_the_sides(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("10").await;
    upstream.reply(stability_image(&png(164, 48), "SUCCESS"));
    let more = sides(&json!({"right": 100}));
    let record = extend(&app, &account, "stability/outpaint", more).await;
    let record = record.expect(200);
    assert_eq!(record["credits"]["charged"], "4");
    assert_eq!(record["parameters"]["size"], "164x48");
    let sent = upstream.requests().pop().unwrap();
    assert_eq!(sent.path, "/stability/v2beta/stable-image/edit/outpaint");
    for (name, value) in [
        ("prompt", "A garden"),
        ("output_format", "png"),
        ("left", "0"),
        ("right", "100"),
        ("up", "0"),
        ("down", "0"),
    ] {
        let field = format!("name=\"{name}\"\r\n\r\n{value}\r\n");
        assert!(sent.text.contains(&field), "{name}: {}", sent.text);
    }
    for absent in ["strength", "mode", "aspect_ratio", "negative_prompt"] {
        assert!(!sent.text.contains(&format!("name=\"{absent}\"")));
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_rotated_source_is_not_extended(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let more = json!({"parameters": {"outpaint": {"left": 8}},
        "inputs": [encoded("source", &rotated_jpeg())]});
    let refused = extend(&app, &account, "sandbox/sandbox-outpaint-1", more).await;
    let error = refused.error(422, "validation_failed");
    assert_eq!(error["param"], "inputs[0].data", "{error}");
    app.assert_nothing_kept().await;
}

#[sqlx::test]
async fn an_outpaint_that_cannot_be_made_is_refused(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("10").await;
    let some = json!({"left": 8});
    for (model, more, field, code) in [
        (
            "stability/core",
            sides(&some),
            "parameters.outpaint",
            "not_supported",
        ),
        (
            "sandbox/sandbox-image-1",
            sides(&some),
            "parameters.outpaint",
            "not_supported",
        ),
        (
            "stability/outpaint",
            json!({}),
            "parameters.outpaint",
            "required",
        ),
        (
            "stability/outpaint",
            sides(&json!({"left": 0})),
            "parameters.outpaint",
            "required",
        ),
        (
            "stability/outpaint",
            sides(&json!({"left": 2_001})),
            "parameters.outpaint.left",
            "out_of_range",
        ),
        (
            "stability/outpaint",
            json!({"inputs": [data("source", 3_000, 2_000)],
                "parameters": {"outpaint": {"left": 2_000}}}),
            "parameters.outpaint",
            "out_of_range",
        ),
        // Few pixels, but a long side.
        (
            "sandbox/sandbox-outpaint-1",
            json!({"inputs": [data("source", 7_000, 350)],
                "parameters": {"outpaint": {"left": 2_000}}}),
            "parameters.outpaint",
            "out_of_range",
        ),
        (
            "stability/outpaint",
            json!({"parameters": {"outpaint": some, "size": "1024x1024"}}),
            "parameters.size",
            "not_allowed",
        ),
        (
            "stability/outpaint",
            json!({"inputs": [], "parameters": {"outpaint": some}}),
            "inputs",
            "required",
        ),
    ] {
        let answer = extend(&app, &account, model, more.clone()).await;
        assert_eq!(answer.status, 422, "{more}");
        assert_eq!(answer.fields()[field], code, "{model} {more}");
        if code == "not_supported" {
            let text = answer.json().to_string();
            let others = "use sandbox/sandbox-outpaint-1, stability/outpaint";
            assert!(text.contains(others), "{text}");
        }
    }
    assert_eq!(upstream.count(), 0);
    assert!(app.files().is_empty());
    assert_eq!(
        app.balance(&account).await,
        ("10".to_owned(), "0".to_owned())
    );
}

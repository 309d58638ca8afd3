//! `inputs` of images and videos.

mod memory;
mod outpaint;
mod runway_images;
mod vendors;
mod videos;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use chrono::TimeDelta;
use image::{ImageFormat, Rgb, RgbImage, RgbaImage};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::uploads::{post, upload};
use crate::{
    common::{
        Account, Answer, Reply, TestApp, Upstream,
        vendors::{mp4, png, runway},
    },
    picture,
};

const IMAGE: &str = "/v1/generate/image";

pub async fn edit(app: &TestApp, account: &Account, inputs: Value) -> Answer {
    let body = json!({"prompt": "At night", "provider": "sandbox", "inputs": inputs,
        "parameters": {"size": "256x256"}});
    app.post(&account.key, IMAGE, &body).await
}

/// Three bytes a pixel, which cannot be compressed.
fn noise(seed: u64, (width, height): (u32, u32)) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let pixels = RgbImage::from_fn(width, height, |_, _| {
        Rgb([random.u8(..), random.u8(..), random.u8(..)])
    });
    picture::encoded(pixels, ImageFormat::Png)
}

fn encoded(role: &str, bytes: &[u8]) -> Value {
    json!({"role": role, "data": BASE64_STANDARD.encode(bytes)})
}

fn data(role: &str, width: u32, height: u32) -> Value {
    encoded(role, &png(width, height))
}

/// A mask, transparent everywhere.
fn mask(width: u32, height: u32) -> Value {
    let clear = picture::encoded(RgbaImage::new(width, height), ImageFormat::Png);
    encoded("mask", &clear)
}

#[sqlx::test]
async fn a_picture_is_edited_and_the_result_edited_again(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let cat = upload(&app, &account, 300, 300).await;
    let estimate = json!({"type": "image", "prompt": "At night", "provider": "sandbox",
        "inputs": [{"role": "source", "upload": cat["id"]}, data("reference", 9, 9)]});
    let estimate = app
        .post(&account.key, "/v1/credits/estimate", &estimate)
        .await;
    let estimate = estimate.expect(200);
    assert_eq!(estimate["hold"], "2");
    assert_eq!(estimate["inputs"][0]["sha256"], cat["sha256"]);
    assert_eq!(
        estimate["inputs"][1],
        json!({"role": "reference", "width": 9, "height": 9,
        "sha256": estimate["inputs"][1]["sha256"], "price": "0.5"})
    );
    assert_eq!(app.files().len(), 1);

    let source = json!({"role": "source", "upload": cat["id"]});
    let first = edit(&app, &account, json!([source, data("reference", 9, 9)])).await;
    let first = first.expect(200);
    assert_eq!(first["credits"]["charged"], "2");
    assert_eq!(first["usage"], json!({"images": 1, "input_images": 2}));
    let input = &first["inputs"][0];
    assert_eq!(
        (&input["from"], &input["upload"]),
        (&json!("upload"), &cat["id"])
    );
    assert_eq!(
        (&input["width"], &input["sha256"]),
        (&json!(300), &cat["sha256"])
    );
    assert_eq!(first["inputs"][1]["from"], "data");
    assert_eq!(
        first["parameters"],
        json!({"n": 1, "quality": "standard", "size": "256x256"})
    );

    let source = json!({"role": "source", "generation": first["uuid"]});
    let second = edit(&app, &account, json!([source])).await.expect(200);
    let input = &second["inputs"][0];
    assert_eq!(
        (&input["generation"], &input["output"]),
        (&first["uuid"], &json!(0))
    );
    assert_eq!(input["sha256"], first["outputs"][0]["sha256"]);
    let uuid = second["uuid"].as_str().unwrap();
    assert_eq!(app.record(&account, uuid).await["inputs"], second["inputs"]);
    // Only uploads are listed, and a use extends them.
    let listed = app.get(&account.key, "/v1/uploads").await.expect(200);
    assert_eq!(listed["data"].as_array().unwrap().len(), 1);
    let audit = app.app.runner.verify_files().await.unwrap();
    assert_eq!((audit.files, audit.unknown.len()), (5, 0));

    // Pictures sent within requests are removed soon, uploads when they expire.
    app.advance(TimeDelta::hours(2));
    app.app.runner.purge(TimeDelta::days(1), 10).await.unwrap();
    let audit = app.app.runner.verify_files().await.unwrap();
    assert_eq!((audit.files, audit.missing.len()), (3, 0));
    app.assert_settled().await;
}

#[sqlx::test]
async fn what_a_model_does_not_take_is_refused_with_those_that_do(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let post = async |kind: &str, model: &str, inputs: Value| {
        let (provider, model) = model.split_once('/').unwrap();
        let body = json!({"prompt": "x", "provider": provider, "model": model, "inputs": inputs});
        app.post(&account.key, &format!("/v1/generate/{kind}"), &body)
            .await
    };
    for (kind, model, inputs, param, message) in [
        (
            "image",
            "stability/core",
            json!([data("source", 4, 4)]),
            "inputs[0].role",
            "use openai/",
        ),
        (
            "image",
            "sandbox/sandbox-image-1",
            json!([data("source", 4, 4), data("source", 4, 4)]),
            "inputs[1].role",
            "accepts: 1",
        ),
        (
            "image",
            "openai/gpt-image-2",
            json!([mask(4, 4)]),
            "inputs[0].role",
            "needs an input",
        ),
        (
            "video",
            "runway/gen4.5",
            json!([data("last_frame", 4, 4)]),
            "inputs[0].role",
            "runway/veo3.1",
        ),
        (
            "video",
            "runway/gen4_turbo",
            json!([]),
            "inputs",
            "is required by this model",
        ),
        (
            "image",
            "stability/inpaint",
            json!([data("source", 40, 20)]),
            "parameters.size",
            "40x20",
        ),
        (
            "image",
            "openai/gpt-image-2",
            json!([data("source", 8, 8), mask(4, 4)]),
            "inputs[1].data",
            "must be 8x8",
        ),
        (
            "image",
            "openai/gpt-image-2",
            json!([data("source", 8, 8), data("mask", 4, 4)]),
            "inputs[1].data",
            "must be 8x8",
        ),
    ] {
        let error = post(kind, model, inputs)
            .await
            .error(422, "validation_failed");
        assert_eq!(error["param"], param, "{error}");
        let found = error["message"].as_str().unwrap();
        assert!(found.contains(message), "{found}");
    }
    assert_eq!(upstream.count(), 0);
    app.assert_nothing_kept().await;
}

#[sqlx::test]
async fn an_input_that_cannot_be_used_is_refused_and_leaves_nothing(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("10").await, app.account("10").await);
    let theirs = upload(&app, &other, 8, 8).await;
    app.delete(
        &other.key,
        &format!("/v1/uploads/{}", theirs["id"].as_str().unwrap()),
    )
    .await
    .expect(204);
    let body = json!({"prompt": "x"});
    let text = app.text(&account.key, body.clone()).await.expect(200);
    let failed = json!({"prompt": "[[reject]]"});
    let failed = app.post(&account.key, IMAGE, &failed).await.json();
    let foreign = app.post(&other.key, IMAGE, &body).await.expect(200);
    let mut cut = png(64, 64).to_vec();
    cut.truncate(90);
    for (input, field) in [
        (json!({"upload": theirs["id"]}), "upload"),
        (json!({"generation": foreign["uuid"]}), "generation"),
        (json!({"generation": text["uuid"]}), "generation"),
        (
            json!({"generation": failed["generation"]["uuid"]}),
            "generation",
        ),
        (json!({"data": BASE64_STANDARD.encode(cut)}), "data"),
        (json!({"data": BASE64_STANDARD.encode("<svg/>")}), "data"),
        (json!({"data": ""}), "data"),
    ] {
        let mut input = input;
        input["role"] = json!("source");
        let answer = edit(&app, &account, json!([input])).await;
        let error = answer.error(422, "validation_failed");
        assert_eq!(error["param"], format!("inputs[0].{field}"), "{error}");
    }
    let both = json!([{"role": "source", "upload": theirs["id"]},
        {"role": "mask", "generation": foreign["uuid"]}]);
    let errors = edit(&app, &account, both).await.fields();
    assert_eq!(errors["inputs[0].upload"], "not_allowed");
    assert_eq!(errors["inputs[1].generation"], "not_allowed");
    let files = app.files().len();
    assert_eq!(files, 1, "only the other account's image");
    app.assert_settled().await;
    // Using a result needs the ability to look it up or to generate images.
    let image = app.post(&account.key, IMAGE, &body).await.expect(200);
    let narrow = json!({"name": "n", "abilities": ["generate:video"]});
    let narrow = app.key(account.id, narrow).await;
    let body = json!({"prompt": "x",
        "inputs": [{"role": "first_frame", "generation": image["uuid"]}]});
    let answer = app.post(&narrow, "/v1/generate/video", &body).await;
    assert!(
        answer.text.contains("needs the ability read:history"),
        "{}",
        answer.text
    );
}

/// Pictures of a request that its account cannot pay for are removed.
#[sqlx::test]
async fn no_input_is_kept_without_a_hold(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1.4").await;
    let answer = edit(&app, &account, json!([data("source", 64, 64)])).await;
    answer.error(402, "insufficient_credits");
    let body = json!({"prompt": "x", "max_cost": "1", "inputs": [data("source", 64, 64)]});
    let answer = app.post(&account.key, IMAGE, &body).await;
    answer.error(402, "max_cost_exceeded");
    let body = json!({"prompt": "x", "inputs": [data("first_frame", 16, 9)]});
    let answer = app.post(&account.key, "/v1/generate/video", &body).await;
    answer.error(402, "insufficient_credits");
    app.assert_nothing_kept().await;
}

#[sqlx::test]
async fn the_same_key_with_other_pictures_is_another_request(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let post = async |input: Value| {
        let body = json!({"prompt": "x", "inputs": [input], "parameters": {"size": "256x256"}});
        let key = [("idempotency-key", "k")];
        app.post_with(&account.key, IMAGE, &key, &body).await
    };
    let first = post(data("source", 8, 8)).await.expect(200);
    let again = post(data("source", 8, 8)).await;
    assert_eq!(again.header("idempotent-replayed"), "true");
    assert_eq!(again.expect(200)["uuid"], first["uuid"]);
    let other = post(data("source", 9, 8)).await;
    other.error(422, "idempotency_key_reused");
    let balance = app.balance(&account).await;
    assert_eq!(balance, ("8.5".to_owned(), "0".to_owned()));
    // A replay does not need the inputs.
    let mine = upload(&app, &account, 7, 7).await;
    let body = json!({"prompt": "x", "parameters": {"size": "256x256"},
        "inputs": [{"role": "source", "upload": mine["id"]}]});
    let edit = async || {
        let key = [("idempotency-key", "u")];
        app.post_with(&account.key, IMAGE, &key, &body).await
    };
    let first = edit().await.expect(200);
    let path = format!("/v1/uploads/{}", mine["id"].as_str().unwrap());
    app.delete(&account.key, &path).await.expect(204);
    assert_eq!(edit().await.expect(200)["uuid"], first["uuid"]);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_result_becomes_the_first_frame_of_a_video(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    let image = edit(&app, &account, json!([data("source", 64, 64)]))
        .await
        .expect(200);
    let body = json!({"prompt": "Waves", "parameters": {"duration": 1, "ratio": "1:1"}, "inputs": [
        {"role": "first_frame", "generation": image["uuid"]}, data("last_frame", 16, 16)]});
    let uuid = app.queue(&account, "video", &body).await;
    let record = app.until_finished(&account, &uuid).await;
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["credits"]["charged"], "6");
    assert_eq!(record["usage"], json!({"seconds": 1, "input_images": 2}));
    let plain = json!({"prompt": "Waves", "parameters": {"duration": 1, "ratio": "1:1"}});
    let plain = app.queue(&account, "video", &plain).await;
    let plain = app.until_finished(&account, &plain).await;
    assert_ne!(
        plain["outputs"][0]["sha256"],
        record["outputs"][0]["sha256"]
    );
    app.assert_settled().await;
}

/// An accepted job keeps its inputs.
#[sqlx::test]
async fn a_deleted_or_expired_input_does_not_break_an_accepted_job(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    runway(&upstream, 1, None, Reply::File("video/mp4", mp4(2).await));
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let frame = upload(&app, &account, 64, 36).await;
    let image = json!({"prompt": "x", "provider": "sandbox", "parameters": {"size": "256x256"}});
    let image = app.post(&account.key, IMAGE, &image).await.expect(200);
    let mut jobs = Vec::new();
    for input in [
        json!({"role": "first_frame", "upload": frame["id"]}),
        json!({"role": "first_frame", "generation": image["uuid"]}),
        data("first_frame", 32, 18),
    ] {
        let body = json!({"prompt": "Waves", "provider": "runway", "model": "gen4.5",
            "inputs": [input], "parameters": {"duration": 2}});
        jobs.push(app.queue(&account, "video", &body).await);
    }
    let path = format!("/v1/uploads/{}", frame["id"].as_str().unwrap());
    app.delete(&account.key, &path).await.expect(204);
    let path = format!("/v1/generate/{}", image["uuid"].as_str().unwrap());
    app.delete(&account.key, &path).await.expect(204);
    app.advance(TimeDelta::minutes(20));
    app.app.runner.purge(TimeDelta::days(1), 10).await.unwrap();
    while app.app.runner.empty_trash(10).await.unwrap() {}
    for uuid in &jobs {
        let record = app.until_finished(&account, uuid).await;
        assert_eq!(record["status"], "completed", "{record}");
        assert_eq!(record["usage"], json!({"seconds": 2, "input_images": 1}));
        assert_eq!(record["credits"]["charged"], "24");
    }
    let sent = upstream.requests().into_iter();
    let sent: Vec<_> = sent
        .filter(|r| r.path.ends_with("/image_to_video"))
        .collect();
    assert_eq!(sent.len(), 3);
    for request in &sent {
        let picture = &request.body["promptImage"][0];
        assert_eq!(picture["position"], "first");
        let uri = picture["uri"].as_str().unwrap();
        assert!(uri.starts_with("data:image/png;base64,iVBORw"), "{uri}");
    }
    app.advance(TimeDelta::hours(25));
    app.app.runner.purge(TimeDelta::days(1), 10).await.unwrap();
    let audit = app.app.runner.verify_files().await.unwrap();
    assert_eq!((audit.files, audit.unknown.len()), (3, 0));
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_strip_is_refused_wherever_it_comes_from(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    for (width, height) in [(3_000, 100), (100, 3_000), (16_400, 1_000)] {
        let bytes = png(width, height);
        let answer = post(&app, &account.key, "image/png", bytes).await;
        assert_eq!(answer.fields()["body"], "out_of_range");
        for (kind, role) in [
            ("image", "source"),
            ("image", "reference"),
            ("video", "first_frame"),
        ] {
            let body = json!({"prompt": "x", "provider": "sandbox",
                "inputs": [data(role, width, height)]});
            let answer = app
                .post(&account.key, &format!("/v1/generate/{kind}"), &body)
                .await;
            assert_eq!(answer.fields()["inputs[0].data"], "out_of_range");
        }
    }
    app.assert_nothing_kept().await;
}

/// A picture that EXIF data turns by 90 degrees.
fn rotated_jpeg() -> Vec<u8> {
    let mut jpeg = Vec::new();
    let mut encoder = image::codecs::jpeg::JpegEncoder::new(&mut jpeg);
    let tag = [1, 18, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0];
    let exif = [b"MM\0\x2a\0\0\0\x08\0\x01", &tag[..], &[0; 4]].concat();
    image::ImageEncoder::set_exif_metadata(&mut encoder, exif).unwrap();
    encoder.encode_image(&RgbImage::new(64, 64)).unwrap();
    jpeg
}

#[sqlx::test]
async fn a_mask_needs_an_alpha_channel_and_no_rotation(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    let opaque = upload(&app, &account, 64, 64).await;
    let jpeg = rotated_jpeg();
    let refused = [
        (
            json!([data("source", 64, 64), data("mask", 64, 64)]),
            "inputs[1].data",
            "transparent",
        ),
        (
            json!([data("source", 64, 64), {"role": "mask", "upload": opaque["id"]}]),
            "inputs[1].upload",
            "transparent",
        ),
        (
            json!([encoded("source", &jpeg), mask(64, 64)]),
            "inputs[0].data",
            "rotate its pixels",
        ),
    ];
    for (inputs, param, message) in refused {
        let answer = edit(&app, &account, inputs).await;
        let error = answer.error(422, "validation_failed");
        assert_eq!(error["param"], param, "{error}");
        assert!(error["message"].as_str().unwrap().contains(message));
    }
    let inputs = json!([encoded("source", &jpeg)]);
    edit(&app, &account, inputs).await.expect(200);
}

#[sqlx::test]
async fn a_vendor_limit_is_checked_before_the_hold(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let frames = json!([data("first_frame", 16, 9), data("last_frame", 16, 9)]);
    for (kind, model, inputs, parameters, param, message) in [
        (
            "video",
            "gemini/gemini-omni-1.2-flash",
            frames,
            json!({"duration": 12}),
            "parameters.duration",
            "at most 10 with a last_frame",
        ),
        (
            "image",
            "stability/ultra",
            json!([data("source", 3_100, 3_100)]),
            json!({"size": "1024x1024"}),
            "inputs[0].data",
            "at most 9437184 pixels",
        ),
    ] {
        let (provider, model) = model.split_once('/').unwrap();
        let body = json!({"prompt": "x", "provider": provider, "model": model, "inputs": inputs,
            "parameters": parameters});
        let answer = app
            .post(&account.key, &format!("/v1/generate/{kind}"), &body)
            .await;
        let error = answer.error(422, "validation_failed");
        assert_eq!(error["param"], param, "{error}");
        assert!(
            error["message"].as_str().unwrap().contains(message),
            "{error}"
        );
    }
    assert_eq!(upstream.count(), 0);
    app.assert_nothing_kept().await;
}

/// They are not listed, so their owner could not delete them.
#[sqlx::test]
async fn inputs_of_requests_use_the_quota_for_minutes_only(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let env = [("GENSVC__MEDIA__UPLOAD_BYTES_PER_ACCOUNT", "1048576")];
    let app = TestApp::with(options, &env).await;
    let account = app.account("100").await;
    let send = async |seeds: &[u64]| {
        let inputs: Vec<_> = seeds
            .iter()
            .zip(["source", "reference", "reference"])
            .map(|(&seed, role)| encoded(role, &noise(seed, (400, 300))))
            .collect();
        edit(&app, &account, json!(inputs)).await
    };
    send(&[1]).await.expect(200);
    let before = app.files().len();
    // The first of the two fits, but must not be kept.
    let refused = send(&[2, 3]).await;
    assert!(refused.header("retry-after").parse::<u32>().unwrap() >= 60);
    refused.error(429, "too_many_requests");
    assert_eq!(app.files().len(), before);
    app.advance(TimeDelta::minutes(11));
    send(&[2, 3]).await.expect(200);
    // An input larger than the quota never fits, so waiting does not help.
    app.advance(TimeDelta::minutes(11));
    let answer = send(&[1, 2, 3]).await;
    assert_eq!(answer.fields()["inputs"], "too_long");
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_deleted_upload_that_was_used_is_gone_at_once(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let cat = upload(&app, &account, 64, 64).await;
    let inputs = json!([{"role": "source", "upload": cat["id"]}]);
    edit(&app, &account, inputs).await.expect(200);
    let path = format!("/v1/uploads/{}", cat["id"].as_str().unwrap());
    app.delete(&account.key, &path).await.expect(204);
    app.file(&cat["url"], &[]).await.error(404, "not_found");
}

//! POST /openai/v1/images/edits, as the `openai` packages send it (openai 3.52.0,
//! `resources/images.py`: `extract_files` names the files `image`, `image[]` and `mask`).

use axum::body::Body;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::Request;
use image::{ImageFormat, RgbaImage};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::record;
use crate::{
    common::{
        Account, Answer, TestApp, Upstream,
        vendors::{openai_images, png},
    },
    picture::encoded,
};

const EDITS: &str = "/openai/v1/images/edits";

/// A form in the format of httpx: each text is a part without a type, each file has a type.
fn form(boundary: &str, texts: &[(&str, &str)], files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in texts {
        let head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n");
        body.extend_from_slice(format!("{head}\r\n{value}\r\n").as_bytes());
    }
    for (name, bytes) in files {
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"; \
             filename=\"a.png\"\r\nContent-Type: image/png\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(bytes);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    body
}

async fn send(
    app: &TestApp,
    account: &Account,
    (boundary, retries): (&str, &str),
    texts: &[(&str, &str)],
    files: &[(&str, &[u8])],
) -> Answer {
    let body = form(boundary, texts, files);
    let request = Request::post(EDITS)
        .header("authorization", format!("Bearer {}", account.key))
        .header(
            "content-type",
            format!("multipart/form-data; boundary={boundary}"),
        )
        .header("content-length", body.len())
        .header("x-stainless-retry-count", retries);
    app.send(request.body(Body::from(body)).unwrap()).await
}

const TEXTS: [(&str, &str); 4] = [
    ("model", "sandbox/sandbox-image-1"),
    ("prompt", "At night"),
    ("n", "2"),
    ("size", "256x256"),
];

#[sqlx::test]
async fn a_form_and_its_retry_are_one_edit(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    let (source, reference) = (png(64, 64), png(9, 9));
    let files: [(&str, &[u8]); 2] = [("image[]", &source), ("image[]", &reference)];
    let first = send(&app, &account, ("one", "0"), &TEXTS, &files).await;
    let body = first.expect(200);
    assert_eq!(body["data"].as_array().unwrap().len(), 2);
    let made = record(&app, &account, &first).await;
    assert_eq!(made["surface"], "openai.images");
    assert_eq!(made["inputs"][0]["role"], "source");
    assert_eq!(made["inputs"][1]["role"], "reference");
    assert_eq!(
        (&made["inputs"][0]["width"], &made["inputs"][0]["from"]),
        (&json!(64), &json!("data"))
    );
    // 2 images, 2 inputs.
    assert_eq!(made["credits"]["charged"], "3");
    // A retry has another boundary.
    let again = send(&app, &account, ("two", "1"), &TEXTS, &files).await;
    again.expect(200);
    assert_eq!(again.header("idempotent-replayed"), "true");
    let other: [(&str, &[u8]); 1] = [("image", &reference)];
    let other = send(&app, &account, ("two", "1"), &TEXTS, &other).await;
    other.expect(200);
    assert_eq!(other.header("idempotent-replayed"), "");
    app.assert_settled().await;
}

#[sqlx::test]
async fn json_takes_data_urls(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    let url = |bytes: &[u8]| {
        json!({"image_url": format!("data:image/png;base64,{}",
        BASE64_STANDARD.encode(bytes))})
    };
    let mask = encoded(RgbaImage::new(64, 64), ImageFormat::Png);
    let body = json!({"model": "sandbox/sandbox-image-1", "prompt": "At night",
        "images": [url(&png(64, 64))], "mask": url(&mask), "size": "256x256"});
    let answer = app.post(&account.key, EDITS, &body).await;
    answer.expect(200);
    let made = record(&app, &account, &answer).await;
    assert_eq!(made["inputs"][1]["role"], "mask");
    for (member, value, param) in [
        ("images", json!([url(b"<svg/>")]), "images[0].image_url"),
        ("mask", url(&png(64, 64)), "mask.image_url"),
        ("mask", json!({}), "mask.image_url"),
    ] {
        let mut body = body.clone();
        body[member] = value;
        let refused = app.post(&account.key, EDITS, &body).await.json();
        assert_eq!(refused["error"]["param"], param, "{refused}");
    }
    for (images, message) in [
        (
            json!([{"image_url": "https://a.example/x.png"}]),
            "does not fetch URLs",
        ),
        (json!([{"file_id": "file-1"}]), "file_id"),
        (json!([]), "must not be empty"),
        (Value::Null, "is required"),
    ] {
        let mut body = body.clone();
        body["images"] = images;
        let refused = app.post(&account.key, EDITS, &body).await;
        assert!(refused.status.is_client_error(), "{}", refused.text);
        assert!(
            refused.text.contains(message),
            "{message}: {}",
            refused.text
        );
    }
}

#[sqlx::test]
async fn sixteen_images_fit_with_and_without_a_mask(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.reply(openai_images(&[png(1024, 1024)]));
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let (image, mask) = (png(8, 8), encoded(RgbaImage::new(8, 8), ImageFormat::Png));
    let texts = [("model", "openai/gpt-image-2"), ("prompt", "At night")];
    for (images, has_mask, status) in [(16, false, 200), (16, true, 200), (17, false, 400)] {
        let mut files: Vec<(&str, &[u8])> = vec![("image[]", &image); images];
        if has_mask {
            files.push(("mask", &mask));
        }
        let answer = send(&app, &account, ("b", "0"), &texts, &files).await;
        let body = answer.expect(status);
        if status == 400 {
            assert_eq!(body["error"]["param"], "image", "{body}");
        }
    }
    assert_eq!(upstream.count(), 2);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_broken_form_is_refused(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    let source = png(64, 64);
    let files: [(&str, &[u8]); 1] = [("image", &source)];
    let cut: [(&str, &[u8]); 1] = [("image", &source[..60])];
    let second: [(&str, &[u8]); 2] = [("image[]", &source), ("image[]", &source[..60])];
    let opaque: [(&str, &[u8]); 2] = [("image", &source), ("mask", &source)];
    let json_name: [(&str, &[u8]); 1] = [("images", &source)];
    for (texts, files, param, message) in [
        (
            vec![("prompt", "x"), ("n", "many")],
            &files[..],
            json!("n"),
            "n must be",
        ),
        (
            vec![("prompt", "x"), ("prompt", "y")],
            &files[..],
            Value::Null,
            "twice",
        ),
        (
            vec![("prompt", "x"), ("stream", "true")],
            &files[..],
            json!("stream"),
            "stream",
        ),
        (
            vec![("prompt", "x")],
            &[][..],
            json!("image"),
            "image is required",
        ),
        (vec![("prompt", "x")], &cut[..], json!("image"), "cut off"),
        (
            vec![("prompt", "x")],
            &json_name[..],
            json!("images"),
            "is called image",
        ),
        (
            vec![("prompt", "x")],
            &second[..],
            json!("image"),
            "cut off",
        ),
        (
            vec![("prompt", "x")],
            &opaque[..],
            json!("mask"),
            "transparent",
        ),
    ] {
        let answer = send(&app, &account, ("b", "0"), &texts, files).await;
        assert!(
            (400..=422).contains(&answer.status.as_u16()),
            "{}",
            answer.text
        );
        assert!(answer.text.contains(message), "{message}: {}", answer.text);
        assert_eq!(answer.json()["error"]["param"], param, "{}", answer.text);
    }
    app.assert_nothing_kept().await;
}

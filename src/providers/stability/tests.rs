//! Stability against a fake upstream.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::json;

use super::*;
use crate::providers::tests::fake::{Reply, TIMEOUT, Upstream, ends, setup};

fn call() -> ImageCall {
    ImageCall {
        model: "sd3.5-large".to_owned(),
        prompt: "A red fox.".to_owned(),
        negative_prompt: Some("snow".to_owned()),
        size: (1024, 1024),
        outpaint: None,
        quality: Quality::Standard,
        style: Some(Style::Vivid),
        background: None,
        n: 1,
        inputs: Vec::new(),
    }
}

fn target(endpoint: StabilityEndpoint, model: Option<&str>) -> StabilityTarget {
    StabilityTarget {
        endpoint,
        model: model.map(str::to_owned),
    }
}

fn adapter(base: &str, timeout: Duration) -> Stability {
    let settings = StabilityModel {
        standard: target(StabilityEndpoint::Sd3, Some("sd3.5-large")),
        hd: Some(target(StabilityEndpoint::Ultra, None)),
        vivid: Some("cinematic".to_owned()),
        natural: None,
        strength: 0.7,
    };
    Stability::new(&setup(base, timeout).with("sd3.5-large", settings), client).unwrap()
}

fn made(bytes: &[u8]) -> Reply {
    let image = BASE64_STANDARD.encode(bytes);
    Reply::json(&json!({"image": image, "finish_reason": "SUCCESS", "seed": 1}))
}

fn filtered() -> Reply {
    Reply::json(&json!({"image": "AAAA", "finish_reason": "CONTENT_FILTERED", "seed": 1}))
}

/// The fields of a recorded form.
fn fields(body: &Value) -> Vec<(String, String)> {
    let body = body.as_str().unwrap();
    let (boundary, _) = body.split_once("\r\n").unwrap();
    body.split(boundary)
        .filter_map(|part| part.split_once("name=\""))
        .map(|(_, part)| part.split_once("\"\r\n\r\n").unwrap())
        .map(|(name, value)| (name.to_owned(), value.trim_end().to_owned()))
        .collect()
}

#[tokio::test]
async fn the_request() {
    let natural = ImageCall {
        style: Some(Style::Natural),
        quality: Quality::Hd,
        negative_prompt: None,
        size: (1344, 768),
        ..call()
    };
    for (call, path, want) in [
        (
            call(),
            "sd3",
            vec![
                ("prompt", "A red fox."),
                ("negative_prompt", "snow"),
                ("aspect_ratio", "1:1"),
                ("output_format", "png"),
                ("style_preset", "cinematic"),
                ("model", "sd3.5-large"),
            ],
        ),
        (
            natural,
            "ultra",
            vec![
                ("prompt", "A red fox."),
                ("aspect_ratio", "16:9"),
                ("output_format", "png"),
            ],
        ),
    ] {
        for suffix in ["", "/", "/v2beta"] {
            let upstream = Upstream::start(made(b"PNG")).await;
            let base = format!("{}{suffix}", upstream.base);
            adapter(&base, TIMEOUT).generate(&call).await.unwrap();
            let seen = &upstream.seen()[0];
            assert_eq!(seen.method, "POST");
            assert_eq!(seen.path, format!("/v2beta/stable-image/generate/{path}"));
            assert_eq!(seen.header("authorization"), Some("Bearer test-key"));
            assert_eq!(seen.header("accept"), Some("application/json"));
            let kind = seen.header("content-type").unwrap();
            assert!(kind.starts_with("multipart/form-data; boundary="), "{kind}");
            let got = fields(&seen.body);
            let got: Vec<_> = got.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            assert_eq!(got, want);
        }
    }
}

#[test]
fn shapes() {
    for (size, want) in [
        ((1024, 1024), Some("1:1")),
        ((512, 512), Some("1:1")),
        ((1792, 1024), Some("16:9")),
        ((1024, 1792), Some("9:16")),
        ((1920, 1080), Some("16:9")),
        ((1536, 1024), Some("3:2")),
        ((1024, 1536), Some("2:3")),
        ((1280, 1024), Some("5:4")),
        ((1024, 1280), Some("4:5")),
        ((2100, 900), Some("21:9")),
        ((900, 2100), Some("9:21")),
        ((1024, 768), None),
        ((4000, 1000), None),
        ((1024, 0), None),
    ] {
        assert_eq!(aspect_ratio(size), want, "{size:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_asked_is_rejected() {
    let upstream = Upstream::start(made(b"PNG")).await;
    let wide = ImageCall {
        size: (1024, 768),
        ..call()
    };
    let unknown = ImageCall {
        model: "sd9".to_owned(),
        ..call()
    };
    for call in [wide, unknown] {
        let adapter = adapter(&upstream.base, TIMEOUT);
        let error = adapter.generate(&call).await.unwrap_err();
        assert_eq!(error.kind, ProviderErrorKind::Rejected);
    }
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn those_that_came_are_the_answer() {
    let broken = Reply::status(500, &[], "");
    let silent = Reply::Stalled(String::new());
    for (replies, came, requests) in [
        (vec![made(b"1"), made(b"2"), made(b"3"), made(b"4")], 4, 4),
        (
            vec![filtered(), broken.clone(), made(b"3"), made(b"4")],
            2,
            4,
        ),
        // All run concurrently: silent ones do not delay the others.
        (vec![silent.clone(), silent, made(b"3"), made(b"4")], 2, 4),
        (vec![broken.clone(), broken, filtered(), made(b"4")], 1, 4),
    ] {
        let upstream = Upstream::each(replies).await;
        let four = ImageCall { n: 4, ..call() };
        let got = adapter(&upstream.base, Duration::from_secs(2))
            .generate(&four)
            .await
            .unwrap();
        assert_eq!(got.images.len(), came);
        assert_eq!(got.request_id.as_deref(), Some("req-1"));
        assert_eq!(upstream.seen().len(), requests);
    }
}

#[tokio::test]
async fn none_is_the_first_failure() {
    use ProviderErrorKind::{ContentPolicy, Overloaded};
    let busy = Reply::status(429, &[("retry-after", "60")], "{\"name\": \"rate_limit\"}");
    for (replies, kind, not_started) in [
        (vec![filtered()], ContentPolicy, false),
        (vec![busy.clone()], Overloaded, true),
        (
            vec![busy.clone(), busy.clone(), busy.clone()],
            Overloaded,
            true,
        ),
    ] {
        let n = u32::try_from(replies.len()).unwrap();
        let upstream = Upstream::each(replies).await;
        let error = adapter(&upstream.base, TIMEOUT)
            .generate(&ImageCall { n, ..call() })
            .await
            .unwrap_err();
        assert_eq!((error.kind, error.not_started), (kind, not_started));
    }
    // One image was made and filtered, so the others must not be requested again.
    let upstream = Upstream::each(vec![filtered(), busy]).await;
    let three = ImageCall { n: 3, ..call() };
    let error = adapter(&upstream.base, TIMEOUT)
        .generate(&three)
        .await
        .unwrap_err();
    assert!(!error.not_started, "{error}");
}

#[tokio::test]
async fn error_answers() {
    use ProviderErrorKind::{Account, ContentPolicy, Failed, Overloaded, Rejected};
    for (status, name, kind, not_started) in [
        (400, "bad_request", Rejected, false),
        (401, "unauthorized", Account, false),
        (402, "payment_required", Account, false),
        (403, "content_moderation", ContentPolicy, false),
        (400, "content_moderation", ContentPolicy, false),
        (403, "permission_denied", Account, false),
        (413, "payload_too_large", Rejected, false),
        (422, "invalid_language", Rejected, false),
        (429, "rate_limit_exceeded", Overloaded, true),
        (500, "internal_error", Failed, false),
    ] {
        let body = json!({"id": "a", "name": name, "errors": ["prompt: your prompt"]}).to_string();
        let upstream = Upstream::start(Reply::status(status, &[], &body)).await;
        let error = adapter(&upstream.base, TIMEOUT)
            .generate(&call())
            .await
            .unwrap_err();
        assert_eq!(
            (error.kind, error.not_started),
            (kind, not_started),
            "{name}"
        );
        assert_eq!(error.detail, format!("status {status}, code {name}"));
    }
}

#[tokio::test]
async fn answers_that_are_none() {
    use ProviderErrorKind::{ContentPolicy, Failed};
    for (body, kind, detail) in [
        (
            json!({"image": "AAAA", "finish_reason": "CONTENT_FILTERED"}),
            ContentPolicy,
            "status 200, code CONTENT_FILTERED",
        ),
        (
            json!({"image": "AAAA", "finish_reason": "ERROR"}),
            Failed,
            "generation ended in an error",
        ),
        (
            json!({"finish_reason": "SUCCESS"}),
            Failed,
            "answer without an image",
        ),
        (json!({"image": ""}), Failed, "empty file"),
        (json!({"image": "<html>"}), Failed, "file is not base64"),
        (
            json!({"id": "generation-1"}),
            Failed,
            "answer without an image",
        ),
    ] {
        let upstream = Upstream::start(Reply::json(&body)).await;
        let error = adapter(&upstream.base, TIMEOUT)
            .generate(&call())
            .await
            .unwrap_err();
        assert_eq!(
            (error.kind, error.not_started, error.detail.as_str()),
            (kind, false, detail)
        );
    }
}

#[tokio::test]
async fn bad_ends() {
    let ask =
        |base: String, timeout| async move { adapter(&base, timeout).generate(&call()).await };
    ends::check(ask).await;
    ends::check_cap("{\"image\": \"", "A", ask).await;
}

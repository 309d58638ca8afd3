//! Images against a fake upstream.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::json;

use super::*;
use crate::providers::{
    ProviderErrorKind,
    openai::client,
    tests::fake::{Reply, TIMEOUT, Upstream, ends, recorded, setup},
};

fn call() -> ImageCall {
    ImageCall {
        model: "gpt-image-2.5-flare".to_owned(),
        prompt: "A red fox.".to_owned(),
        negative_prompt: None,
        size: (1792, 1024),
        outpaint: None,
        quality: Quality::Hd,
        style: None,
        background: None,
        n: 2,
        inputs: Vec::new(),
    }
}

fn adapter(base: &str, timeout: Duration) -> OpenAiImages {
    OpenAiImages::new(&setup(base, timeout), client).unwrap()
}

async fn ask(reply: Reply) -> Result<ImageAnswer, ProviderError> {
    let upstream = Upstream::start(reply).await;
    adapter(&upstream.base, TIMEOUT).generate(&call()).await
}

#[tokio::test]
async fn sends_what_the_sdk_sends() {
    let want = recorded(include_str!(
        "../../../../tests/fixtures/sdk/openai_image.json"
    ));
    for suffix in ["", "/", "/v1", "/v1/"] {
        let upstream = Upstream::start(Reply::status(400, &[], "{}")).await;
        let base = format!("{}{suffix}", upstream.base);
        let _refused = adapter(&base, TIMEOUT).generate(&call()).await;
        let seen = &upstream.seen()[0];
        assert_eq!(
            (&seen.method, &seen.path, &seen.body),
            (&want.method, &want.path, &want.body)
        );
        for (name, value) in &want.headers {
            assert_eq!(seen.header(name), Some(value.as_str()), "{name}");
        }
    }
}

#[tokio::test]
async fn settings_shape_the_request() {
    let upstream = Upstream::start(Reply::status(400, &[], "{}")).await;
    let settings = OpenAiImageModel {
        standard: "low".to_owned(),
        output_format: None,
        moderation: None,
        ..OpenAiImageModel::default()
    };
    let setup = setup(&upstream.base, TIMEOUT).keyless();
    let bare = OpenAiImages::new(&setup.with(&call().model, settings), client).unwrap();
    let standard = ImageCall {
        quality: Quality::Standard,
        ..call()
    };
    let _refused = bare.generate(&standard).await;
    let seen = &upstream.seen()[0];
    assert_eq!(
        seen.body,
        json!({"model": "gpt-image-2.5-flare", "prompt": "A red fox.", "n": 2,
            "size": "1792x1024", "quality": "low"})
    );
    assert_eq!(seen.header("authorization"), None);
}

#[tokio::test]
async fn answers() {
    let item = |bytes: &[u8]| json!({"b64_json": BASE64_STANDARD.encode(bytes)});
    let (a, b) = (
        Bytes::from_static(b"\x89PNG-a"),
        Bytes::from_static(b"\x89PNG-bb"),
    );
    for (data, want) in [
        (json!([item(&a), item(&b)]), vec![a.clone(), b.clone()]),
        // Fewer or more images than requested, and invalid ones.
        (json!([item(&b)]), vec![b.clone()]),
        (
            json!([item(&a), item(&b), item(&a)]),
            vec![a.clone(), b.clone()],
        ),
        (
            json!([{"url": "https://a.test/x"}, item(&b)]),
            vec![b.clone()],
        ),
        (
            json!([{"b64_json": "iVBORw"}, null]),
            vec![Bytes::from_static(b"\x89PNG")],
        ),
    ] {
        let body = json!({"created": 1, "data": data, "error": null, "usage": {"total_tokens": 1}});
        let got = ask(Reply::json(&body)).await.unwrap();
        assert_eq!(got.images, want, "{data}");
        assert_eq!(got.request_id.as_deref(), Some("req-1"));
    }
}

#[tokio::test]
async fn answers_that_are_none() {
    use ProviderErrorKind::{ContentPolicy, Failed};
    for (body, kind, detail) in [
        (json!({"created": 1}), Failed, "data is no array"),
        (json!({"data": {}}), Failed, "data is no array"),
        (json!({"data": []}), Failed, "no image"),
        (json!({"data": [null]}), Failed, "item without an image"),
        (
            json!({"data": [{"url": "https://a.test/x.png"}]}),
            Failed,
            "item without an image",
        ),
        (json!({"data": [{"b64_json": ""}]}), Failed, "empty file"),
        (
            json!({"data": [{"b64_json": "<html>"}]}),
            Failed,
            "file is not base64",
        ),
        (
            json!({"data": [{"b64_json": "A".repeat(28 << 20)}]}),
            Failed,
            "file over the cap",
        ),
        (json!(7), Failed, "data is no array"),
        (
            json!({"error": {"code": "moderation_blocked"}}),
            ContentPolicy,
            "status 200, code moderation_blocked",
        ),
    ] {
        let error = ask(Reply::json(&body)).await.unwrap_err();
        assert_eq!(
            (error.kind, error.not_started, error.detail.as_str()),
            (kind, false, detail)
        );
        assert_eq!(error.status, Some(200));
    }
}

#[tokio::test]
async fn error_answers() {
    use ProviderErrorKind::{Account, ContentPolicy, Overloaded, Rejected};
    for (status, code, typed, kind, not_started) in [
        (
            400,
            "moderation_blocked",
            "image_generation_user_error",
            ContentPolicy,
            false,
        ),
        (
            400,
            "content_policy_violation",
            "invalid_request_error",
            ContentPolicy,
            false,
        ),
        (
            400,
            "unknown_parameter",
            "invalid_request_error",
            Rejected,
            false,
        ),
        (
            401,
            "invalid_api_key",
            "invalid_request_error",
            Account,
            false,
        ),
        (
            403,
            "organization_not_verified",
            "invalid_request_error",
            Account,
            false,
        ),
        (
            404,
            "model_not_found",
            "invalid_request_error",
            Rejected,
            false,
        ),
        (
            429,
            "insufficient_quota",
            "insufficient_quota",
            Account,
            false,
        ),
        (429, "billing_hard_limit_reached", "x", Account, false),
        (400, "billing_hard_limit_reached", "x", Account, false),
        (429, "rate_limit_exceeded", "requests", Overloaded, true),
        (503, "server_overloaded", "server_error", Overloaded, true),
    ] {
        let body = json!({"error": {"code": code, "type": typed, "message": "your prompt", "param": null}});
        let error = ask(Reply::status(status, &[], &body.to_string()))
            .await
            .unwrap_err();
        assert_eq!(
            (error.kind, error.not_started),
            (kind, not_started),
            "{code}"
        );
        assert_eq!(error.detail, format!("status {status}, code {code}"));
    }
}

#[tokio::test]
async fn bad_ends() {
    ends::check(|base, timeout| async move { adapter(&base, timeout).generate(&call()).await })
        .await;
    ends::check_cap(
        "{\"data\": [{\"b64_json\": \"",
        "A",
        |base, timeout| async move { adapter(&base, timeout).generate(&call()).await },
    )
    .await;
}

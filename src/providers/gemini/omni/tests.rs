//! Omni against a fake upstream.

mod states;

use std::time::Duration;

use super::*;
use crate::providers::{
    ProviderErrorKind,
    tests::fake::{Reply, TIMEOUT, Upstream, ends, recorded, setup},
};

fn call() -> VideoCall {
    VideoCall {
        model: "gemini-omni-1.1-flash".to_owned(),
        prompt: "A red fox.".to_owned(),
        duration: 8,
        ratio: (16, 9),
        inputs: Vec::new(),
    }
}

fn adapter(base: &str, timeout: Duration) -> GeminiOmni {
    GeminiOmni::new(&setup(base, timeout), client).unwrap()
}

async fn poll(reply: Reply) -> Result<VideoStatus, ProviderError> {
    let upstream = Upstream::start(reply).await;
    adapter(&upstream.base, TIMEOUT)
        .poll("v1_abc", &call())
        .await
}

fn said(contents: &Value) -> Value {
    json!({"id": "v1_abc", "status": "completed", "model": "gemini-omni-1.1-flash", "steps": [
        {"type": "user_input", "content": [{"type": "text", "text": "A red fox."}]},
        {"type": "model_output", "content": contents},
    ]})
}

#[tokio::test]
async fn sends_what_the_sdk_sends() {
    // The SDK uses /v1/ and sends the default `stream=false`. We default to /v1beta/ and omit it.
    for (suffix, version) in [("", "v1beta"), ("/", "v1beta"), ("/v1", "v1")] {
        let upstream = Upstream::start(Reply::json(&json!({"id": "v1_abc"}))).await;
        let adapter = adapter(&format!("{}{suffix}", upstream.base), TIMEOUT);
        assert_eq!(adapter.submit(&call()).await.unwrap(), "v1_abc");
        let _no_status = adapter.poll("v1_abc", &call()).await;
        adapter.cancel("v1_abc").await.unwrap();
        for (seen, want) in upstream.seen().iter().zip([
            include_str!("../../../../tests/fixtures/sdk/omni_submit.json"),
            include_str!("../../../../tests/fixtures/sdk/omni_poll.json"),
            include_str!("../../../../tests/fixtures/sdk/omni_cancel.json"),
        ]) {
            let want = recorded(want);
            let path = want.path.replacen("/v1/", &format!("/{version}/"), 1);
            assert_eq!(
                (&seen.method, seen.path.as_str(), &seen.body),
                (
                    &want.method,
                    path.trim_end_matches("?stream=false"),
                    &want.body
                )
            );
            for name in ["accept", "x-goog-api-key"] {
                assert_eq!(seen.header(name), want.header(name), "{name}");
            }
        }
        let seen = upstream.seen();
        assert_eq!(seen[0].header("content-type"), Some("application/json"));
        assert_eq!(seen[2].header("content-length"), Some("0"));
    }
}

#[tokio::test]
async fn the_key_goes_to_the_own_origin_only() {
    let upstream = Upstream::each(vec![Reply::json(&json!({}))]).await;
    let own = &upstream.base;
    let port = own.replace("http:", "https:");
    for (uri, want, keyed) in [
        (
            format!("{own}/v1beta/files/a:download"),
            format!("{own}/v1beta/files/a:download?alt=media"),
            true,
        ),
        (
            format!("{own}/f?alt=media"),
            format!("{own}/f?alt=media"),
            true,
        ),
        (
            format!("{own}/f?a=b"),
            format!("{own}/f?a=b&alt=media"),
            true,
        ),
        (format!("{port}/f"), format!("{port}/f"), false),
        (
            "http://127.0.0.1/f".to_owned(),
            "http://127.0.0.1/f".to_owned(),
            false,
        ),
        (
            "https://a.test/f?sig=x".to_owned(),
            "https://a.test/f?sig=x".to_owned(),
            false,
        ),
        (
            "file:///etc/passwd".to_owned(),
            "file:///etc/passwd".to_owned(),
            false,
        ),
    ] {
        let url = Url::parse(&uri).unwrap();
        match adapter(own, TIMEOUT).output(url) {
            VideoOutput::Url { url, header } => {
                assert_eq!((url.as_str(), header.is_some()), (want.as_str(), keyed));
                if let Some((name, value)) = header {
                    assert_eq!(
                        (name.as_str(), value.to_str().unwrap()),
                        ("x-goog-api-key", "test-key")
                    );
                    assert!(value.is_sensitive());
                }
            }
            VideoOutput::Bytes(_) => panic!("bytes"),
        }
    }
}

#[tokio::test]
async fn error_answers() {
    use ProviderErrorKind::{Account, ContentPolicy, Overloaded, Rejected};
    let word = |code: &str, message: &str| json!({"error": {"code": code, "message": message}});
    let numeric = |code: u16, status: &str| json!({"error": {"code": code, "status": status, "message": "m"}});
    let key = json!([{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "m",
        "details": [{"reason": "API_KEY_INVALID"}]}}]);
    for (status, body, kind, not_started, code) in [
        (
            400,
            word("invalid_request", "duration"),
            Rejected,
            false,
            "invalid_request",
        ),
        (400, word("safety", "m"), ContentPolicy, false, "safety"),
        (
            400,
            word("PROHIBITED_CONTENT", "m"),
            ContentPolicy,
            false,
            "PROHIBITED_CONTENT",
        ),
        (
            400,
            word("invalid_request", "Blocked by our safety filters."),
            ContentPolicy,
            false,
            "invalid_request",
        ),
        (
            400,
            numeric(400, "FAILED_PRECONDITION"),
            Account,
            false,
            "FAILED_PRECONDITION",
        ),
        (400, key, Account, false, "API_KEY_INVALID"),
        (
            403,
            numeric(403, "PERMISSION_DENIED"),
            Account,
            false,
            "PERMISSION_DENIED",
        ),
        (
            404,
            word("model_not_found", "m"),
            Rejected,
            false,
            "model_not_found",
        ),
        (
            429,
            word("rate_limit_exceeded", "m"),
            Overloaded,
            true,
            "rate_limit_exceeded",
        ),
        (
            429,
            numeric(429, "RESOURCE_EXHAUSTED"),
            Overloaded,
            true,
            "RESOURCE_EXHAUSTED",
        ),
        (
            503,
            numeric(503, "UNAVAILABLE"),
            Overloaded,
            true,
            "UNAVAILABLE",
        ),
    ] {
        let upstream = Upstream::start(Reply::status(status, &[], &body.to_string())).await;
        let error = adapter(&upstream.base, TIMEOUT)
            .submit(&call())
            .await
            .unwrap_err();
        assert_eq!(
            (error.kind, error.not_started),
            (kind, not_started),
            "{body}"
        );
        assert_eq!(error.detail, format!("status {status}, code {code}"));
    }
}

#[tokio::test]
async fn cancelling() {
    let unknown = "{\"error\": {\"message\": \"Invalid interaction name\"}}";
    for (status, body, ok) in [
        (200, "{}", true),
        (404, "", true),
        (400, unknown, true),
        (400, "{}", false),
        (502, "", false),
    ] {
        let upstream = Upstream::start(Reply::status(status, &[], body)).await;
        let result = adapter(&upstream.base, TIMEOUT).cancel("v1_abc").await;
        assert_eq!(result.is_ok(), ok, "{status}");
    }
}

#[tokio::test]
async fn bad_ends() {
    let ask = |base: String, timeout| async move { adapter(&base, timeout).submit(&call()).await };
    ends::check(ask).await;
    ends::check_cap("{\"x\": \"", "A", ask).await;
}

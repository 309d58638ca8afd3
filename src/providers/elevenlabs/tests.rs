//! ElevenLabs against a fake upstream.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::providers::{
    ProviderErrorKind,
    tests::fake::{Reply, TIMEOUT, Upstream, ends, recorded, setup},
};

fn call() -> SpeechCall {
    SpeechCall {
        model: "eleven_v4".to_owned(),
        text: "Say hi.".to_owned(),
        voice: "21m00Tcm4TlvDq8ikWAM".to_owned(),
        speed: 1.1,
        instructions: None,
        format: SpeechFormat::Mp3,
    }
}

fn adapter(base: &str, timeout: Duration) -> ElevenLabs {
    ElevenLabs::new(&setup(base, timeout), client).unwrap()
}

fn sound(bytes: &str) -> Reply {
    let headers = [
        ("content-type", "audio/mpeg"),
        ("request-id", "el-1"),
        ("character-cost", "7"),
    ];
    Reply::status(200, &headers, bytes)
}

#[tokio::test]
async fn sends_what_the_sdk_sends() {
    let want = recorded(include_str!(
        "../../../tests/fixtures/sdk/elevenlabs_speech.json"
    ));
    for suffix in ["", "/", "/v1", "/v1/"] {
        let upstream = Upstream::start(sound("ID3x")).await;
        let base = format!("{}{suffix}", upstream.base);
        let got = adapter(&base, TIMEOUT).generate(&call()).await.unwrap();
        assert_eq!(got.parts, ["ID3x"]);
        assert_eq!(got.request_id.as_deref(), Some("el-1"));
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
async fn wav_at_the_usual_speed() {
    let upstream = Upstream::start(sound("RIFFx")).await;
    let plain = SpeechCall {
        speed: 1.0,
        format: SpeechFormat::Wav,
        ..call()
    };
    adapter(&upstream.base, TIMEOUT)
        .generate(&plain)
        .await
        .unwrap();
    let seen = &upstream.seen()[0];
    assert!(seen.path.ends_with("?output_format=wav_24000"));
    assert_eq!(
        seen.body,
        json!({"text": "Say hi.", "model_id": "eleven_v4"})
    );
}

async fn refused(status: u16, body: &Value) -> ProviderError {
    let upstream = Upstream::start(Reply::status(status, &[], &body.to_string())).await;
    adapter(&upstream.base, TIMEOUT)
        .generate(&call())
        .await
        .unwrap_err()
}

#[tokio::test]
async fn error_codes() {
    use ProviderErrorKind::{Account, ContentPolicy, Failed, Overloaded, Rejected};
    for (status, word, kind) in [
        (400, "max_character_limit_exceeded", Rejected),
        (400, "voice_not_found", Rejected),
        (404, "voice_not_found", Rejected),
        (401, "invalid_api_key", Account),
        (401, "quota_exceeded", Account),
        (429, "quota_exceeded", Account),
        (402, "payment_required", Account),
        (403, "only_for_creator+", Account),
        (403, "content_against_policy", ContentPolicy),
        (429, "too_many_concurrent_requests", Overloaded),
        (429, "system_busy", Overloaded),
        (500, "internal_error", Failed),
    ] {
        let code = word.trim_end_matches('+');
        for body in [
            json!({"detail": {"status": word, "message": "your prompt"}}),
            json!({"detail": {"code": word, "type": "t", "message": "your prompt"}}),
            json!({"detail": word}),
        ] {
            let error = refused(status, &body).await;
            assert_eq!(
                (error.kind, error.not_started),
                (kind, kind == Overloaded),
                "{body}"
            );
            assert_eq!(error.detail, format!("status {status}, code {code}"));
        }
    }
}

#[tokio::test]
async fn errors_without_a_code() {
    for detail in [
        json!([{"loc": ["body", "text"], "msg": "your prompt", "type": "missing"}]),
        json!("your prompt is bad"),
        json!(null),
        json!({}),
    ] {
        let error = refused(422, &json!({ "detail": detail })).await;
        assert_eq!(
            (error.kind, error.detail.as_str()),
            (ProviderErrorKind::Rejected, "status 422")
        );
    }
}

#[tokio::test]
async fn bad_ends() {
    let ask =
        |base: String, timeout| async move { adapter(&base, timeout).generate(&call()).await };
    ends::check(ask).await;
    ends::check_cap("ID3", "A", ask).await;
}

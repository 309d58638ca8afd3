//! Speech against a fake upstream.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::{
    providers::{
        ProviderErrorKind,
        tests::fake::{Reply, TIMEOUT, Upstream, ends, recorded, setup},
    },
    request::SpeechFormat,
};

fn call() -> SpeechCall {
    SpeechCall {
        model: "tts-1".to_owned(),
        text: "Say hi.".to_owned(),
        voice: "alloy".to_owned(),
        speed: 1.5,
        instructions: None,
        format: SpeechFormat::Wav,
    }
}

fn adapter(base: &str, timeout: Duration, settings: OpenAiSpeechModel) -> OpenAiSpeech {
    OpenAiSpeech::new(&setup(base, timeout).with("tts-1", settings), client).unwrap()
}

fn sound(bytes: &str, id: &str) -> Reply {
    let headers = [("content-type", "audio/wav"), ("x-request-id", id)];
    Reply::status(200, &headers, bytes)
}

#[tokio::test]
async fn sends_what_the_sdk_sends() {
    let want = recorded(include_str!(
        "../../../../tests/fixtures/sdk/openai_speech.json"
    ));
    for suffix in ["", "/", "/v1", "/v1/"] {
        let upstream = Upstream::start(sound("RIFFx", "r")).await;
        let base = format!("{}{suffix}", upstream.base);
        let adapter = adapter(&base, TIMEOUT, OpenAiSpeechModel::default());
        let got = adapter.generate(&call()).await.unwrap();
        assert_eq!(got.parts, ["RIFFx"]);
        let [seen] = &upstream.seen()[..] else {
            panic!("not one request")
        };
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
async fn the_default_adds_nothing() {
    let upstream = Upstream::start(sound("ID3x", "r")).await;
    let bare = OpenAiSpeech::new(&setup(&upstream.base, TIMEOUT).keyless(), client).unwrap();
    let plain = SpeechCall {
        speed: 1.0,
        format: SpeechFormat::Mp3,
        ..call()
    };
    bare.generate(&plain).await.unwrap();
    let spoken = OpenAiSpeechModel {
        instructions: Some("calmly".to_owned()),
        ..OpenAiSpeechModel::default()
    };
    let calm = adapter(&upstream.base, TIMEOUT, spoken);
    calm.generate(&plain).await.unwrap();
    let seen = upstream.seen();
    let mut want = json!({"model": "tts-1", "input": "Say hi.", "voice": "alloy",
        "response_format": "mp3"});
    assert_eq!(
        (&seen[0].body, seen[0].header("authorization")),
        (&want, None)
    );
    want["instructions"] = json!("calmly");
    assert_eq!(seen[1].body, want);
}

#[tokio::test]
async fn a_long_text_is_split_in_order() {
    let text = "Word and word. ".repeat(600);
    let replies = vec![
        sound("RIFF1", "a"),
        sound("RIFF2", "b"),
        sound("RIFF3", "c"),
    ];
    let upstream = Upstream::each(replies).await;
    let long = SpeechCall {
        text: text.clone(),
        ..call()
    };
    let adapter = adapter(&upstream.base, TIMEOUT, OpenAiSpeechModel::default());
    let got = adapter.generate(&long).await.unwrap();
    assert_eq!(got.parts, ["RIFF1", "RIFF2", "RIFF3"]);
    assert_eq!(got.request_id.as_deref(), Some("c"));
    let inputs: Vec<String> = upstream
        .seen()
        .iter()
        .map(|seen| seen.body["input"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(inputs.concat(), text);
    for input in inputs {
        assert!(
            input.chars().count() <= 4096 && input.ends_with(". "),
            "{input}"
        );
    }
}

#[tokio::test]
async fn a_later_part_that_fails_fails_the_whole() {
    let busy = Reply::status(429, &[("retry-after", "1")], "{}");
    let small = OpenAiSpeechModel {
        max_chars: 4,
        ..OpenAiSpeechModel::default()
    };
    for (replies, not_started, calls) in [
        (vec![busy.clone()], true, 1),
        (vec![sound("RIFF", "a"), busy], false, 2),
    ] {
        let upstream = Upstream::each(replies).await;
        let error = adapter(&upstream.base, TIMEOUT, small.clone())
            .generate(&call())
            .await
            .unwrap_err();
        assert_eq!(
            (error.kind, error.not_started, error.retry_after),
            (
                ProviderErrorKind::Overloaded,
                not_started,
                Some(Duration::from_secs(1))
            )
        );
        assert_eq!(upstream.seen().len(), calls);
    }
    let blank = SpeechCall {
        text: " \n".to_owned(),
        ..call()
    };
    let error = adapter("http://nowhere.invalid", TIMEOUT, small)
        .generate(&blank)
        .await
        .unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::Rejected);
}

#[tokio::test]
async fn error_answers() {
    use ProviderErrorKind::{Account, ContentPolicy, Rejected};
    for (status, code, kind) in [
        (400, "invalid_value", Rejected),
        (400, "string_above_max_length", Rejected),
        (400, "content_policy_violation", ContentPolicy),
        (404, "model_not_found", Rejected),
        (429, "insufficient_quota", Account),
    ] {
        let body = json!({"error": {"code": code, "message": "m", "type": "t"}}).to_string();
        let upstream = Upstream::start(Reply::status(status, &[], &body)).await;
        let error = adapter(&upstream.base, TIMEOUT, OpenAiSpeechModel::default())
            .generate(&call())
            .await
            .unwrap_err();
        assert_eq!((error.kind, error.not_started), (kind, false), "{code}");
        assert_eq!(error.detail, format!("status {status}, code {code}"));
    }
}

#[tokio::test]
async fn bad_ends() {
    let ask = |base: String, timeout| async move {
        adapter(&base, timeout, OpenAiSpeechModel::default())
            .generate(&call())
            .await
    };
    ends::check(ask).await;
    ends::check_cap("RIFF", "A", ask).await;
}

//! Gemini's speech against a fake upstream.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};

use super::*;
use crate::providers::{
    gemini::client,
    tests::fake::{Reply, TIMEOUT, Upstream, ends, recorded, setup},
};

fn call() -> SpeechCall {
    SpeechCall {
        model: "gemini-3.8-flash-lite-tts".to_owned(),
        text: "Say hi.".to_owned(),
        voice: "Kore".to_owned(),
        speed: 1.0,
        instructions: None,
        format: SpeechFormat::Wav,
    }
}

fn adapter(base: &str, timeout: Duration) -> GeminiSpeech {
    GeminiSpeech::new(&setup(base, timeout), client).unwrap()
}

async fn ask(reply: Reply) -> Result<SpeechAnswer, ProviderError> {
    let upstream = Upstream::start(reply).await;
    adapter(&upstream.base, TIMEOUT).generate(&call()).await
}

fn sound(kind: &str, bytes: &[u8]) -> Value {
    json!({"inlineData": {"mimeType": kind, "data": BASE64_STANDARD.encode(bytes)}})
}

fn answer(parts: &Value, finish: &str) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": finish}],
        "usageMetadata": {"candidatesTokenCount": 25}, "responseId": "resp-1",
        "modelVersion": "gemini-3.8-flash-lite-tts"})
}

#[tokio::test]
async fn sends_what_the_sdk_sends() {
    let want = recorded(include_str!(
        "../../../../tests/fixtures/sdk/gemini_speech.json"
    ));
    // The SDK uses /v1/; we default to /v1beta/.
    for (suffix, version) in [("", "v1beta"), ("/", "v1beta"), ("/v1", "v1")] {
        let upstream = Upstream::start(Reply::status(400, &[], "{}")).await;
        let base = format!("{}{suffix}", upstream.base);
        let _refused = adapter(&base, TIMEOUT).generate(&call()).await;
        let seen = &upstream.seen()[0];
        assert_eq!(seen.method, want.method);
        assert_eq!(
            seen.path,
            want.path.replace("/v1/", &format!("/{version}/"))
        );
        // protobuf's JSON accepts both spellings; we use that of the REST reference.
        let text = want
            .body
            .to_string()
            .replace("voice_config", "voiceConfig")
            .replace("prebuilt_voiceConfig", "prebuiltVoiceConfig")
            .replace("voice_name", "voiceName");
        let body: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(seen.body, body);
        for name in ["content-type", "x-goog-api-key"] {
            assert_eq!(seen.header(name), want.header(name), "{name}");
        }
    }
}

#[tokio::test]
async fn what_it_cannot_do_is_rejected() {
    let upstream = Upstream::start(Reply::status(400, &[], "{}")).await;
    let mp3 = SpeechCall {
        format: SpeechFormat::Mp3,
        ..call()
    };
    let fast = SpeechCall {
        speed: 1.5,
        ..call()
    };
    for call in [mp3, fast] {
        let adapter = adapter(&upstream.base, TIMEOUT);
        let error = adapter.generate(&call).await.unwrap_err();
        assert_eq!(error.kind, ProviderErrorKind::Rejected);
    }
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn a_wav_passes_and_raw_sound_gets_a_header() {
    let wav = b"RIFF\x24\x00\x00\x00WAVE";
    let got = ask(Reply::json(&answer(
        &json!([sound("audio/wav", wav)]),
        "STOP",
    )))
    .await
    .unwrap();
    assert_eq!(got.parts, [&wav[..]]);
    assert_eq!(got.request_id.as_deref(), Some("req-1"));
    for (kind, rate, channels) in [
        ("audio/L16;codec=pcm;rate=24000", 24_000_u32, 1_u16),
        ("audio/l16; rate=16000; channels=2", 16_000, 2),
        ("audio/pcm", 24_000, 1),
    ] {
        let body = answer(&json!([{"text": "hm"}, sound(kind, &[1, 2, 3, 4])]), "STOP");
        let got = ask(Reply::status(200, &[], &body.to_string()))
            .await
            .unwrap();
        assert_eq!(got.request_id.as_deref(), Some("resp-1"));
        let [part] = &got.parts[..] else {
            panic!("not one part")
        };
        let number = |at: usize| u32::from_le_bytes(part[at..at + 4].try_into().unwrap());
        assert_eq!((&part[..4], &part[8..16]), (&b"RIFF"[..], &b"WAVEfmt "[..]));
        assert_eq!(
            (number(4), number(16), number(24), number(40)),
            (40, 16, rate, 4)
        );
        assert_eq!(number(28), rate * u32::from(channels) * 2);
        assert_eq!(part[22..24], channels.to_le_bytes());
        assert_eq!(
            part[32..36],
            [u8::try_from(channels).unwrap() * 2, 0, 16, 0]
        );
        assert_eq!(part[44..], [1, 2, 3, 4]);
    }
}

#[tokio::test]
async fn a_long_text_is_spoken_in_pieces() {
    let sound = |byte| answer(&json!([sound("audio/pcm", &[byte; 2])]), "STOP");
    let replies = [1, 2, 3].map(|byte| Reply::json(&sound(byte)));
    let upstream = Upstream::each(replies.to_vec()).await;
    let long = SpeechCall {
        text: "今天天气很好。".repeat(714),
        ..call()
    };
    let got = adapter(&upstream.base, TIMEOUT).generate(&long).await;
    let parts = got.unwrap().parts;
    assert_eq!(
        parts.iter().map(|part| part[44]).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    let mut said = String::new();
    for seen in upstream.seen() {
        let text = seen.body["contents"][0]["parts"][0]["text"]
            .as_str()
            .unwrap();
        assert!(text.chars().count() <= SLOW_CHARS && text.ends_with('。'));
        said += text;
    }
    assert_eq!(said, long.text);
}

#[test]
fn only_what_takes_long_is_split() {
    let chinese = "今".repeat(2_400);
    for (text, expected) in [
        ("x".repeat(5_000), 5_000),
        ("ж".repeat(5_000), 5_000),
        (chinese.clone(), 2_400),
        (chinese + &"x".repeat(100), SLOW_CHARS),
    ] {
        assert_eq!(max_chars(&text), expected);
    }
}

#[tokio::test]
async fn a_later_piece_that_fails_has_started() {
    let busy = Reply::status(429, &[], "{}");
    let first = Reply::json(&answer(&json!([sound("audio/pcm", &[0; 2])]), "STOP"));
    for (replies, not_started) in [(vec![busy.clone()], true), (vec![first, busy], false)] {
        let upstream = Upstream::each(replies).await;
        let long = SpeechCall {
            text: "今。".repeat(1_500),
            ..call()
        };
        let error = adapter(&upstream.base, TIMEOUT).generate(&long).await;
        let error = error.unwrap_err();
        assert_eq!(
            (error.kind, error.not_started),
            (ProviderErrorKind::Overloaded, not_started)
        );
    }
}

#[tokio::test]
async fn answers_that_are_none() {
    use ProviderErrorKind::{Account, ContentPolicy, Failed, Overloaded, Rejected};
    let wav = json!([sound("audio/wav", b"RIFFx")]);
    for (body, kind) in [
        (answer(&wav, "SAFETY"), ContentPolicy),
        (answer(&json!([]), "PROHIBITED_CONTENT"), ContentPolicy),
        (answer(&json!([]), "RECITATION"), ContentPolicy),
        (
            json!({"promptFeedback": {"blockReason": "SAFETY"}}),
            ContentPolicy,
        ),
        (
            json!({"promptFeedback": {"blockReason": "OTHER"}}),
            ContentPolicy,
        ),
        // A truncated recording.
        (answer(&wav, "MAX_TOKENS"), Rejected),
        (answer(&wav, "OTHER"), Failed),
        (answer(&wav, "PUP_LIMITED_DISABLED"), Account),
        (answer(&json!([]), "STOP"), Failed),
        (answer(&json!([{"text": "I cannot"}]), "STOP"), Failed),
        (answer(&json!({}), "STOP"), Failed),
        (answer(&json!([sound("audio/wav", b"")]), "STOP"), Failed),
        (
            answer(&json!([sound("audio/mpeg", b"ID3")]), "STOP"),
            Failed,
        ),
        (
            answer(&json!([sound("audio/wav", b"<html>")]), "STOP"),
            Failed,
        ),
        (
            answer(&json!([sound("audio/L16;rate=fast", b"12")]), "STOP"),
            Failed,
        ),
        (
            answer(&json!([sound("audio/L16;channels=0", b"12")]), "STOP"),
            Failed,
        ),
        (
            answer(&json!([sound("audio/L16;channels=65535", b"12")]), "STOP"),
            Failed,
        ),
        (
            answer(
                &json!([{"inlineData": {"mimeType": "audio/wav", "data": "?"}}]),
                "STOP",
            ),
            Failed,
        ),
        (json!({"candidates": []}), Failed),
        (
            json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}),
            Overloaded,
        ),
        (
            json!([{"error": {"code": 500, "status": "INTERNAL"}}]),
            Failed,
        ),
    ] {
        let error = ask(Reply::json(&body)).await.unwrap_err();
        assert_eq!((error.kind, error.not_started), (kind, false), "{body}");
        assert_eq!(error.status, Some(200), "{body}");
    }
}

#[tokio::test]
async fn error_answers() {
    use ProviderErrorKind::{Account, Overloaded, Rejected, Timeout};
    for (status, name, kind, not_started) in [
        (400, "INVALID_ARGUMENT", Rejected, false),
        (400, "FAILED_PRECONDITION", Account, false),
        (403, "PERMISSION_DENIED", Account, false),
        (404, "NOT_FOUND", Rejected, false),
        (429, "RESOURCE_EXHAUSTED", Overloaded, true),
        (503, "UNAVAILABLE", Overloaded, true),
        (504, "DEADLINE_EXCEEDED", Timeout, false),
    ] {
        let body = json!({"error": {"code": status, "status": name, "message": "your prompt"}});
        let error = ask(Reply::status(status, &[], &body.to_string()))
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
async fn bad_ends() {
    let ask =
        |base: String, timeout| async move { adapter(&base, timeout).generate(&call()).await };
    ends::check(ask).await;
    ends::check_cap("{\"x\": \"", "A", ask).await;
}

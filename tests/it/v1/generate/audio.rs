//! POST /v1/generate/audio: speech, submitted once, joined and stored.

use axum::body::Bytes;
use gensvc::request::SpeechFormat;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{
    Reply, TestApp, Upstream,
    vendors::{gemini_speech, speech},
};

#[sqlx::test]
async fn speech_is_queued_made_stored_and_billed_by_its_characters(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let prompt = "Grüße aus dem Süden, 😀.";
    for (format, content_type) in [("mp3", "audio/mpeg"), ("wav", "audio/wav")] {
        let body = json!({"prompt": prompt, "parameters": {"format": format}});
        let answer = app.post(&account.key, "/v1/generate/audio", &body).await;
        let first = answer.expect(202);
        let uuid = first["uuid"].as_str().unwrap();
        assert_eq!(
            (answer.header("location"), answer.header("retry-after")),
            (format!("/v1/generate/{uuid}").as_str(), "5")
        );
        assert_eq!(
            (&first["status"], &first["outputs"], &first["result"]),
            (&json!("processing"), &json!([]), &Value::Null)
        );
        let record = app.until_finished(&account, uuid).await;
        let characters = prompt.chars().count();
        assert_eq!(record["usage"], json!({"characters": characters}));
        // 1 credit per 1,000: 23 characters are 0.023.
        let price = format!("0.0{characters}");
        assert_eq!(
            record["credits"],
            json!({"estimated": price, "held": "0", "charged": price})
        );
        assert_eq!(
            record["parameters"],
            json!({"voice": "aria", "speed": 1.0, "format": format})
        );
        let output = &record["outputs"][0];
        assert_eq!(
            (&output["type"], &output["content_type"]),
            (&json!("audio"), &json!(content_type))
        );
        assert!(output["seconds"].as_f64().unwrap() > 0.5, "{output}");
        assert!(output.get("width").is_none(), "{output}");
        let file = app.file(&record["result"], &[]).await;
        assert_eq!(file.header("content-type"), content_type);
        assert_eq!(output["bytes"], file.bytes.len());
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_long_text_is_split_and_joined(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let sentence = "This is a sentence of forty characters. ";
    let prompt = sentence.repeat(248);
    for (format, name) in [(SpeechFormat::Mp3, "mp3"), (SpeechFormat::Wav, "wav")] {
        let part = speech(format, "A part of it.").await;
        let before = upstream.count();
        upstream.reply(Reply::File("audio/any", part.clone()));
        let body = json!({"prompt": prompt, "provider": "openai", "parameters": {"format": name}});
        let uuid = app.queue(&account, "audio", &body).await;
        let record = app.until_finished(&account, &uuid).await;
        assert_eq!(record["status"], "completed", "{record}");
        assert_eq!(record["metadata"]["attempts"], 1);
        assert_eq!(record["usage"], json!({"characters": 9920}));
        assert_eq!(record["credits"]["charged"], "14.88");
        let sent = upstream.requests()[before..].to_vec();
        assert_eq!(sent.len(), 3);
        let inputs: Vec<&str> = sent
            .iter()
            .map(|r| r.body["input"].as_str().unwrap())
            .collect();
        assert_eq!(inputs.concat(), prompt);
        for (input, request) in inputs.iter().zip(&sent) {
            assert!(input.chars().count() <= 4096);
            assert!(input.starts_with("This") && input.trim_end().ends_with('.'));
            assert_eq!(request.body["response_format"], name);
        }
        let one = json!({"prompt": "x", "provider": "openai", "parameters": {"format": name}});
        let uuid = app.queue(&account, "audio", &one).await;
        let single = app.until_finished(&account, &uuid).await;
        let seconds = |record: &Value| record["outputs"][0]["seconds"].as_f64().unwrap();
        let ratio = seconds(&record) / seconds(&single);
        assert!((ratio - 3.0).abs() < 0.1, "{name}: {ratio}");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn failure_signs_of_speech(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let wav = speech(SpeechFormat::Wav, "x").await;
    let mp3 = speech(SpeechFormat::Mp3, "x").await;
    let file = |bytes: &Bytes| Reply::File("audio/mpeg", bytes.clone());
    let detail = |status: &str| json!({"detail": {"status": status, "message": "m"}});
    let finish = |reason: &str| json!({"candidates": [{"finishReason": reason}]});
    let blocked = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}});
    for (provider, reply, code) in [
        (
            "elevenlabs",
            Reply::Status(401, detail("quota_exceeded")),
            "provider_error",
        ),
        (
            "elevenlabs",
            Reply::Status(400, detail("content_against_policy")),
            "content_policy",
        ),
        (
            "elevenlabs",
            Reply::Status(422, json!({"detail": [{"loc": ["body"], "msg": "m"}]})),
            "provider_rejected",
        ),
        (
            "elevenlabs",
            Reply::Status(404, detail("voice_not_found")),
            "provider_rejected",
        ),
        (
            "elevenlabs",
            Reply::Status(500, Value::Null),
            "provider_error",
        ),
        ("elevenlabs", file(&Bytes::new()), "provider_error"),
        ("elevenlabs", file(&wav), "provider_error"),
        (
            "elevenlabs",
            file(&Bytes::from_static(b"<html>sorry</html>")),
            "provider_error",
        ),
        (
            "elevenlabs",
            Reply::Short("audio/mpeg", mp3.clone()),
            "provider_error",
        ),
        (
            "openai",
            Reply::Status(503, Value::Null),
            "provider_overloaded",
        ),
        (
            "openai",
            Reply::Status(408, Value::Null),
            "provider_timeout",
        ),
        (
            "openai",
            Reply::Status(400, json!({"error": {"code": "content_policy_violation"}})),
            "content_policy",
        ),
        (
            "gemini",
            Reply::Status(200, finish("SAFETY")),
            "content_policy",
        ),
        (
            "gemini",
            Reply::Status(200, finish("MAX_TOKENS")),
            "provider_rejected",
        ),
        ("gemini", Reply::Status(200, blocked), "content_policy"),
        (
            "gemini",
            Reply::Status(200, finish("STOP")),
            "provider_error",
        ),
        ("gemini", gemini_speech("audio/ogg", &mp3), "provider_error"),
    ] {
        let context = format!("{provider} {reply:.80?}");
        upstream.reply(reply);
        let body = json!({"prompt": "Hello.", "provider": provider});
        let uuid = app.queue(&account, "audio", &body).await;
        let record = app.until_finished(&account, &uuid).await;
        assert_eq!(record["error"]["code"], code, "{context}");
        assert_eq!(record["credits"]["charged"], "0", "{context}");
        let attempts = if code == "provider_overloaded" { 3 } else { 1 };
        assert_eq!(record["metadata"]["attempts"], attempts, "{context}");
    }
    app.assert_nothing_kept().await;
    assert_eq!(app.balance(&account).await.0, "100");
}

#[sqlx::test]
async fn gemini_speaks_wav_from_raw_sound(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    // A second at 24 kHz.
    upstream.reply(gemini_speech(
        "audio/L16;codec=pcm;rate=24000",
        &vec![1; 48_000].into(),
    ));
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("10").await;
    let body = json!({"prompt": "Hello.", "provider": "gemini"});
    let uuid = app.queue(&account, "audio", &body).await;
    let record = app.until_finished(&account, &uuid).await;
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["parameters"]["format"], "wav");
    assert_eq!(record["outputs"][0]["seconds"], 1.0);
    assert_eq!(record["outputs"][0]["bytes"], 48_044);
    for parameters in [
        json!({"format": "mp3"}),
        json!({"speed": 1.5}),
        json!({"voice": "alloy"}),
    ] {
        let name = parameters
            .as_object()
            .unwrap()
            .keys()
            .next()
            .unwrap()
            .clone();
        let body = json!({"prompt": "Hello.", "provider": "gemini", "parameters": parameters});
        let answer = app.post(&account.key, "/v1/generate/audio", &body).await;
        assert_eq!(
            answer.fields()[&format!("parameters.{name}")],
            "not_supported"
        );
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn elevenlabs_is_asked_for_the_voice_and_the_format(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let mp3 = speech(SpeechFormat::Mp3, "x").await;
    upstream.reply(Reply::File("audio/mpeg", mp3));
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("10").await;
    let body = json!({"prompt": "Hello.", "provider": "elevenlabs",
        "parameters": {"voice": "abcDEF123", "speed": 1.1}});
    let uuid = app.queue(&account, "audio", &body).await;
    let record = app.until_finished(&account, &uuid).await;
    assert_eq!(record["status"], "completed", "{record}");
    let request = upstream.requests().pop().unwrap();
    assert!(
        request
            .path
            .contains("/v1/text-to-speech/abcDEF123?output_format=mp3_44100_128")
    );
    assert_eq!(request.headers["xi-api-key"], "test-elevenlabs");
    assert_eq!(request.body["voice_settings"], json!({"speed": 1.1}));
    let long = "a".repeat(65);
    for (voice, code) in [
        ("../../v1/user", "invalid_format"),
        ("a/b", "invalid_format"),
        ("a%2fb", "invalid_format"),
        ("ä", "invalid_format"),
        ("a-b", "not_supported"),
        ("a_b", "not_supported"),
        (&long, "not_supported"),
    ] {
        let mut body = json!({"prompt": "Hello.", "provider": "elevenlabs",
            "parameters": {"voice": voice}});
        let answer = app.post(&account.key, "/v1/generate/audio", &body).await;
        assert_eq!(answer.fields()["parameters.voice"], code, "{voice}");
        body["type"] = json!("audio");
        let answer = app.post(&account.key, "/v1/credits/estimate", &body).await;
        assert_eq!(answer.fields()["parameters.voice"], code, "{voice}");
    }
    assert_eq!(upstream.count(), 1);
    assert_eq!(app.history(&account).await.len(), 1);
    app.assert_settled().await;
}

//! Images and speech for the packages of `OpenAI`.

use axum::body::Bytes;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use gensvc::request::SpeechFormat;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{error, record, with};
use crate::{
    common::{
        Account, Answer, CONFIG_FILE, Reply, TestApp, Upstream,
        vendors::{gemini_speech, openai_images, png},
    },
    sandbox,
};

pub const IMAGES: &str = "/openai/v1/images/generations";
pub const SPEECH: &str = "/openai/v1/audio/speech";

pub fn image(more: &Value) -> Value {
    let body = json!({"model": "sandbox/sandbox-image-1", "prompt": "A lighthouse"});
    with(body, more)
}

pub fn speech(more: &Value) -> Value {
    let body = json!({"model": "sandbox-speech-1", "input": "Good morning.", "voice": "aria"});
    with(body, more)
}

async fn sandbox_wav() -> Bytes {
    sandbox::speech(SpeechFormat::Wav, "Good morning.").await
}

/// Speech is a job: the answer waits for the worker.
async fn spoken(app: &TestApp, account: &Account, more: &Value) -> Answer {
    let body = speech(more);
    app.working(app.post(&account.key, SPEECH, &body)).await
}

#[sqlx::test]
async fn images_are_links_and_base64_as_asked_for(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    for (more, has_url, has_base64) in [
        (json!({"size": "256x256"}), true, true),
        (
            json!({"size": "256x256", "n": 2, "response_format": "url"}),
            true,
            false,
        ),
        (
            json!({"size": "256x256", "n": 2, "quality": "hd", "response_format": "b64_json"}),
            false,
            true,
        ),
    ] {
        let answer = app.post(&account.key, IMAGES, &image(&more)).await;
        let body = answer.expect(200);
        let data = body["data"].as_array().unwrap();
        assert_eq!(data.len() as u64, more["n"].as_u64().unwrap_or(1));
        for one in data {
            assert_eq!(one.get("url").is_some(), has_url, "{more}");
            assert_eq!(one.get("b64_json").is_some(), has_base64, "{more}");
        }
        let file = match data[0].get("b64_json") {
            Some(text) => BASE64_STANDARD.decode(text.as_str().unwrap()).unwrap(),
            None => app.file(&data[0]["url"], &[]).await.bytes.to_vec(),
        };
        assert!(file.starts_with(b"\x89PNG"));
        let quality = if more["quality"] == "hd" {
            "high"
        } else {
            "medium"
        };
        assert_eq!(
            (&body["size"], &body["output_format"], &body["quality"]),
            (&json!("256x256"), &json!("png"), &json!(quality))
        );
        let record = record(&app, &account, &answer).await;
        assert_eq!(record["surface"], "openai.images");
        assert_eq!(record["usage"]["images"], data.len());
        assert_eq!(
            body["created"],
            chrono::DateTime::parse_from_rfc3339(record["created_at"].as_str().unwrap())
                .unwrap()
                .timestamp()
        );
    }
    // Four standard ones would be 4, the two of hd are 4.
    assert_eq!(app.balance(&account).await.0, "93");
    // What is default anyway, and no model.
    let neutral = json!({"model": null, "n": null, "size": "auto", "quality": "auto", "background": "auto",
        "moderation": "auto", "output_format": "png", "output_compression": 100, "stream": false,
        "partial_images": 0, "style": "vivid", "user": null});
    let answer = app.post(&account.key, IMAGES, &image(&neutral)).await;
    assert_eq!(answer.header("x-gensvc-left-out"), "");
    let record = record(&app, &account, &answer).await;
    assert_eq!(record["model"], "sandbox-image-1");
    assert_eq!(
        record["parameters"],
        json!({"size": "1024x1024", "quality": "standard", "n": 1, "style": "vivid"})
    );
    let hints = json!({"user": "x", "safety_identifier": "y", "size": "256x256"});
    let answer = app.post(&account.key, IMAGES, &image(&hints)).await;
    answer.expect(200);
    let left_out = answer.header("x-gensvc-left-out");
    assert_eq!(left_out, "safety_identifier, user");
    app.assert_settled().await;
}

#[sqlx::test]
async fn speech_is_the_file(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    for (more, kind, begin) in [
        (json!({}), "audio/mpeg", &b"\xff"[..]),
        (
            json!({"response_format": "wav", "speed": 2, "stream_format": "audio", "instructions": ""}),
            "audio/wav",
            b"RIFF",
        ),
        (json!({"response_format": "pcm"}), "audio/pcm", b""),
    ] {
        let answer = spoken(&app, &account, &more).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.header("content-type"), kind);
        assert_eq!(
            answer.header("content-length"),
            answer.bytes.len().to_string()
        );
        assert!(answer.bytes.starts_with(begin) || answer.bytes.starts_with(b"ID3"));
        let record = record(&app, &account, &answer).await;
        assert_eq!(record["surface"], "openai.speech");
        let file = app.file(&record["outputs"][0]["url"], &[]).await.bytes;
        let header = if kind == "audio/pcm" { 44 } else { 0 };
        assert_eq!(answer.bytes, file[header..]);
        assert_eq!(record["usage"], json!({"characters": 13}));
        assert_eq!(record["parameters"]["voice"], "aria");
    }
    let fault = json!({"input": "[[fail]]"});
    let failed = spoken(&app, &account, &fault).await;
    error(SPEECH, &failed, 502, "provider_error");
    assert_eq!(failed.header("x-should-retry"), "true");
    app.assert_settled().await;
}

#[sqlx::test]
async fn pcm_of_another_rate_is_refused(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let more = json!({"model": "gemini/gemini-3.8-flash-tts", "voice": "Kore",
        "response_format": "pcm"});
    for (mime, length) in [
        ("audio/pcm;rate=24000", Some(8)),
        ("audio/pcm;rate=16000", None),
        ("audio/pcm;rate=24000;channels=2", None),
    ] {
        upstream.reply(gemini_speech(mime, &Bytes::from_static(&[1; 8])));
        let answer = spoken(&app, &account, &more).await;
        if let Some(length) = length {
            assert_eq!(answer.status, 200, "{}", answer.text);
            assert_eq!(answer.bytes.len(), length);
        } else {
            let error = error(SPEECH, &answer, 400, "unsupported_parameter");
            assert_eq!(error["param"], "response_format", "{mime}");
            // It was charged, so the error names it.
            let record = record(&app, &account, &answer).await;
            assert_eq!(record["status"], "completed", "{mime}");
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn pcm_is_refused_before_the_hold(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let model = |id: &str, wire: &str| {
        format!(
            "[[providers.elevenlabs.models]]\nid = \"{id}\"\ntype = \"audio\"\n{wire}\n\
             prices = {{ per_1000_characters = \"8\" }}\n\
             limits = {{ default_voice = \"aria\" }}\n"
        )
    };
    let wavs = ["wav_24000", "wav_44100", "wav_22050"];
    let text = wavs.map(|wav| model(wav, &format!("wire.wav = \"{wav}\"")));
    let file = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = file.join(uuid::Uuid::now_v7().to_string());
    std::fs::write(&file, text.concat()).unwrap();
    let config = [(CONFIG_FILE, file.to_str().unwrap())];
    let app = TestApp::vendors(options, &upstream, &config).await;
    std::fs::remove_file(&file).unwrap();
    let account = app.account("100").await;
    for wav in &wavs[1..] {
        let more = json!({"model": format!("elevenlabs/{wav}"), "response_format": "pcm"});
        let answer = app.post(&account.key, SPEECH, &speech(&more)).await;
        let error = error(SPEECH, &answer, 400, "unsupported_parameter");
        assert_eq!(error["param"], "response_format");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("one of mp3, wav for"), "{message}");
    }
    let more = json!({"model": "gemini/gemini-3.8-flash-tts", "voice": "Kore",
        "response_format": "mp3"});
    let answer = app.post(&account.key, SPEECH, &speech(&more)).await;
    let error = error(SPEECH, &answer, 400, "unsupported_parameter");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("one of wav, pcm for"), "{message}");
    assert_eq!(upstream.count(), 0);
    assert!(app.history(&account).await.is_empty());
    let wav = sandbox_wav().await;
    upstream.reply(Reply::File("audio/wav", wav.clone()));
    let more = json!({"model": "elevenlabs/wav_24000", "response_format": "pcm"});
    let answer = spoken(&app, &account, &more).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.bytes[..]),
        (200, &wav[44..])
    );
    app.assert_settled().await;
}

#[sqlx::test]
async fn instructions_are_sent_and_charged(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    for (model, voice) in [
        ("openai/tts-1", "alloy"),
        ("openai/tts-1-hd", "alloy"),
        ("gemini/gemini-3.8-flash-tts", "Kore"),
        ("elevenlabs/eleven_v4", "aria"),
    ] {
        let more = json!({"model": model, "voice": voice, "response_format": "wav",
            "instructions": "Whisper."});
        let answer = app.post(&account.key, SPEECH, &speech(&more)).await;
        let error = error(SPEECH, &answer, 400, "unsupported_parameter");
        assert_eq!(error["param"], "instructions", "{model}");
    }
    assert_eq!(upstream.count(), 0);
    for (instructions, characters, charged) in [("Whisper.", 21, "0.0357"), (" ", 13, "0.0221")] {
        upstream.reply(Reply::File("audio/wav", sandbox_wav().await));
        let more = json!({"model": "openai/gpt-4o-mini-tts", "voice": "alloy",
            "response_format": "wav", "instructions": instructions});
        let answer = spoken(&app, &account, &more).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let sent = upstream.requests().last().unwrap().body.clone();
        let wanted = Some(instructions).filter(|text| *text != " ");
        assert_eq!(sent["instructions"].as_str(), wanted);
        let record = record(&app, &account, &answer).await;
        assert_eq!(record["usage"], json!({ "characters": characters }));
        assert_eq!(record["parameters"]["instructions"].as_str(), wanted);
        assert_eq!(record["credits"]["charged"], charged);
    }
    // What is affordable is of the text: the instructions are held for too.
    for (credits, affordable) in [
        ("0.0221", json!({"characters": 5})),
        ("0.0153", json!({"characters": 1})),
        ("0.0152", Value::Null),
        ("0.0001", Value::Null),
    ] {
        let poor = app.account(credits).await;
        let more = json!({"model": "openai/gpt-4o-mini-tts", "voice": "alloy",
            "instructions": "Whisper."});
        let answer = app.post(&poor.key, SPEECH, &speech(&more)).await;
        let short = error(SPEECH, &answer, 402, "insufficient_credits");
        assert_eq!(short["affordable"], affordable, "{credits}");
    }
    let long = json!({"model": "openai/gpt-4o-mini-tts", "voice": "alloy",
        "instructions": "x".repeat(4_097)});
    let answer = app.post(&account.key, SPEECH, &speech(&long)).await;
    let error = error(SPEECH, &answer, 400, "too_long");
    assert_eq!(error["param"], "instructions");
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_background_is_sent_to_openai(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    for background in ["transparent", "opaque", "auto"] {
        upstream.reply(openai_images(&[png(1024, 1024)]));
        let body = image(&json!({"model": "openai/gpt-image-2.5-flare", "background": background}));
        let answer = app.post(&account.key, IMAGES, &body).await;
        let wanted = Some(background).filter(|name| *name != "auto");
        assert_eq!(answer.expect(200)["background"].as_str(), wanted);
        let sent = upstream.requests().last().unwrap().body.clone();
        assert_eq!(sent["background"].as_str(), wanted);
        let record = record(&app, &account, &answer).await;
        assert_eq!(record["parameters"]["background"].as_str(), wanted);
    }
    upstream.reply(openai_images(&[png(1024, 1024)]));
    let picture = BASE64_STANDARD.encode(png(64, 64));
    let edit = json!({"model": "openai/gpt-image-2.5-flare", "prompt": "At night",
        "background": "opaque", "size": "1024x1024",
        "images": [{"image_url": format!("data:image/png;base64,{picture}")}]});
    let answer = app
        .post(&account.key, "/openai/v1/images/edits", &edit)
        .await;
    assert_eq!(answer.expect(200)["background"], "opaque");
    let sent = upstream.requests().last().unwrap().text.clone();
    assert!(sent.contains("name=\"background\"\r\n\r\nopaque\r\n"));
    let sent = upstream.count();
    let refused = [
        ("stability/core", "opaque"),
        ("sandbox/sandbox-image-1", "transparent"),
        ("openai/gpt-image-2", "blue"),
    ];
    for (model, background) in refused {
        let body = image(&json!({"model": model, "background": background}));
        let answer = app.post(&account.key, IMAGES, &body).await;
        let error = error(IMAGES, &answer, 400, "unsupported_parameter");
        assert_eq!(error["param"], "background", "{model}");
    }
    assert_eq!(upstream.count(), sent);
    app.assert_settled().await;
}

#[sqlx::test]
async fn what_they_cannot_do_is_named_as_the_sdk_names_it(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::vendors(options, &Upstream::start().await, &[]).await;
    let account = app.account("100").await;
    for (param, code, more) in [
        ("size", "not_allowed", json!({"size": "1024x1536"})),
        ("quality", "not_allowed", json!({"quality": "best"})),
        ("quality", "not_allowed", json!({"quality": "low"})),
        ("style", "not_allowed", json!({"style": "plain"})),
        ("n", "out_of_range", json!({"n": 5})),
        (
            "response_format",
            "not_allowed",
            json!({"response_format": "webp"}),
        ),
        (
            "output_format",
            "unsupported_parameter",
            json!({"output_format": "webp"}),
        ),
        (
            "output_compression",
            "unsupported_parameter",
            json!({"output_compression": 50}),
        ),
        (
            "background",
            "unsupported_parameter",
            json!({"background": "transparent"}),
        ),
        (
            "moderation",
            "unsupported_parameter",
            json!({"moderation": "low"}),
        ),
        ("stream", "unsupported_parameter", json!({"stream": true})),
        (
            "partial_images",
            "unsupported_parameter",
            json!({"partial_images": 2}),
        ),
        (
            "input_fidelity",
            "unsupported_parameter",
            json!({"input_fidelity": "high"}),
        ),
        (
            "something_new",
            "unsupported_parameter",
            json!({"something_new": 1}),
        ),
        ("prompt", "required", json!({"prompt": " "})),
        ("prompt", "too_long", json!({"prompt": "x".repeat(5_001)})),
    ] {
        let answer = app.post(&account.key, IMAGES, &image(&more)).await;
        let code = if code == "not_allowed" {
            "unsupported_parameter"
        } else {
            code
        };
        assert_eq!(error(IMAGES, &answer, 400, code)["param"], param, "{more}");
    }
    for (param, code, more) in [
        ("voice", "unsupported_parameter", json!({"voice": "robot"})),
        (
            "voice",
            "unsupported_parameter",
            json!({"model": "elevenlabs/eleven_v4", "voice": "my-voice"}),
        ),
        (
            "voice",
            "unsupported_parameter",
            json!({"model": "openai/tts-1", "voice": "Kore"}),
        ),
        ("voice", "invalid_type", json!({"voice": {"id": "x"}})),
        (
            "response_format",
            "unsupported_parameter",
            json!({"response_format": "opus"}),
        ),
        ("speed", "out_of_range", json!({"speed": 5})),
        (
            "instructions",
            "unsupported_parameter",
            json!({"instructions": "Whisper."}),
        ),
        (
            "stream_format",
            "unsupported_parameter",
            json!({"stream_format": "sse"}),
        ),
        ("input", "required", json!({"input": ""})),
        ("input", "too_long", json!({"input": "x".repeat(10_001)})),
    ] {
        let answer = app.post(&account.key, SPEECH, &speech(&more)).await;
        assert_eq!(error(SPEECH, &answer, 400, code)["param"], param, "{more}");
    }
    for (path, body) in [(IMAGES, image(&json!({}))), (SPEECH, speech(&json!({})))] {
        for model in ["nope", "sandbox/sandbox-text-1", "nobody/sandbox-image-1"] {
            let body = with(body.clone(), &json!({"model": model}));
            let answer = app.post(&account.key, path, &body).await;
            assert_eq!(
                error(path, &answer, 404, "model_not_found")["param"],
                "model"
            );
        }
        let narrow = json!({"name": "n", "abilities": ["generate:text"]});
        let narrow = app.key(account.id, narrow).await;
        let answer = app.post(&narrow, path, &body).await;
        error(path, &answer, 403, "missing_ability");
    }
    let poor = app.account("0.001").await;
    let answer = app.post(&poor.key, IMAGES, &image(&json!({}))).await;
    error(IMAGES, &answer, 402, "insufficient_credits");
    let answer = app.post(&poor.key, SPEECH, &speech(&json!({}))).await;
    error(SPEECH, &answer, 402, "insufficient_credits");
    assert!(app.history(&account).await.is_empty());
}

#[sqlx::test]
async fn sizes_of_openai_have_their_own_price(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    for (size, (width, height)) in [("1536x1024", (1536, 1024)), ("1024x1536", (1024, 1536))] {
        upstream.reply(openai_images(&[png(width, height)]));
        let body = image(&json!({"model": "openai/gpt-image-2", "size": size}));
        let answer = app.post(&account.key, IMAGES, &body).await;
        assert_eq!(answer.expect(200)["size"], size);
        assert_eq!(upstream.requests().last().unwrap().body["size"], size);
        let record = record(&app, &account, &answer).await;
        assert_eq!(record["credits"]["charged"], "4.33");
        let body = json!({"prompt": "x", "model": "gpt-image-2", "provider": "openai",
            "parameters": {"size": size}});
        let refused = app.post(&account.key, "/v1/generate/image", &body).await;
        refused.expect(422);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn retries_and_keys_make_files_once(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.reply(openai_images(&[png(1024, 1024)]));
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let body = image(&json!({"model": "openai/gpt-image-2"}));
    for (first, again) in [
        (
            [("x-stainless-retry-count", "0")],
            [("x-stainless-retry-count", "1")],
        ),
        ([("idempotency-key", "k")], [("idempotency-key", "k")]),
    ] {
        let before = upstream.count();
        let first = app.post_with(&account.key, IMAGES, &first, &body).await;
        first.expect(200);
        let again = app.post_with(&account.key, IMAGES, &again, &body).await;
        assert_eq!(again.header("idempotent-replayed"), "true");
        assert_eq!(
            again.expect(200)["data"][0]["b64_json"],
            first.json()["data"][0]["b64_json"]
        );
        assert_eq!(upstream.count(), before + 1);
    }
    app.assert_settled().await;
}

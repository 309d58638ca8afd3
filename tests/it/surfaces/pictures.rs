//! Images as input: from every dialect to every vendor, held for and charged.

mod refused;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use gensvc::domain::credits::Credits;
use image::{ImageFormat, RgbImage};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{CHAT, MESSAGES, MODELS, RESPONSES, events, parts, record, with};
use crate::{
    common::{Account, DEFAULT_APIS, Reply, TestApp, Upstream},
    picture,
};

const DIALECTS: [&str; 3] = [CHAT, RESPONSES, MESSAGES];
const URL: &str = "https://example.com/a.png";

/// An image of 1,000 by 600 pixels.
fn png() -> String {
    encoded(ImageFormat::Png)
}

fn encoded(format: ImageFormat) -> String {
    BASE64_STANDARD.encode(picture::encoded(RgbImage::new(1_000, 600), format))
}

fn data_url(data: &str) -> String {
    format!("data:image/png;base64,{data}")
}

/// The part of a message that shows an image, which has no detail in the dialect of Messages.
fn shown(path: &str, source: &str, detail: Option<&str>) -> Value {
    match path {
        CHAT => {
            let mut image = json!({ "url": source });
            if let Some(detail) = detail {
                image["detail"] = json!(detail);
            }
            json!({"type": "image_url", "image_url": image})
        }
        RESPONSES => {
            let mut part = json!({"type": "input_image", "image_url": source});
            if let Some(detail) = detail {
                part["detail"] = json!(detail);
            }
            part
        }
        _ => {
            let source = match source.strip_prefix("data:image/png;base64,") {
                Some(data) => json!({"type": "base64", "media_type": "image/png", "data": data}),
                None => json!({"type": "url", "url": source}),
            };
            json!({"type": "image", "source": source})
        }
    }
}

/// A body with one user message of these parts.
fn saying(path: &str, model: &str, parts: &[Value]) -> Value {
    let messages = json!([{"role": "user", "content": parts}]);
    match path {
        RESPONSES => json!({"model": model, "max_output_tokens": 64, "input": messages}),
        _ => json!({"model": model, "max_tokens": 64, "messages": messages}),
    }
}

fn said(path: &str, text: &str) -> Value {
    let kind = if path == RESPONSES {
        "input_text"
    } else {
        "text"
    };
    json!({"type": kind, "text": text})
}

fn text(path: &str, body: &Value) -> String {
    match path {
        RESPONSES => body["output"][0]["content"][0]["text"]
            .as_str()
            .unwrap()
            .to_owned(),
        _ => parts(path, body).0,
    }
}

fn micros(value: &Value) -> i64 {
    value.as_str().unwrap().parse::<Credits>().unwrap().micros()
}

/// What is held for a body, and what is charged.
async fn cost(app: &TestApp, account: &Account, path: &str, body: &Value) -> (i64, i64) {
    let answer = app.post(&account.key, path, body).await;
    answer.expect(200);
    let credits = record(app, account, &answer).await["credits"].clone();
    (micros(&credits["estimated"]), micros(&credits["charged"]))
}

/// The image as each vendor has it.
fn sent(model: &str, body: &Value) -> Value {
    match model.split_once('/').unwrap().0 {
        "gemini" => body["contents"][0]["parts"][1].clone(),
        _ => body["messages"][0]["content"][1].clone(),
    }
}

#[sqlx::test]
async fn every_dialect_shows_them_to_every_vendor(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    // More than is ever held.
    upstream.reply(Reply::Text("A cat.".to_owned(), 9_000_000, 3));
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10000").await;
    let data = png();
    for path in DIALECTS {
        let question = said(path, "What is it?");
        let image = shown(path, &data_url(&data), None);
        for (model, tokens, half_micros) in [
            (MODELS[0], 36 * 22, 20),
            (MODELS[1], (32 * 19 * 12_usize).div_ceil(10), 25),
            (MODELS[2], 36 * 22, 20),
            (MODELS[3], 1_120, 60),
        ] {
            let body = saying(path, model, &[question.clone(), image.clone()]);
            let (held, charged) = cost(&app, &account, path, &body).await;
            if model != MODELS[0] {
                // What the vendor counts beyond is not the caller's.
                assert_eq!(charged, held, "{path} {model}");
                let request = upstream.requests().pop().unwrap();
                let sent = sent(model, &request.body);
                let expected = match model.split_once('/').unwrap().0 {
                    "openai" => shown(CHAT, &data_url(&data), None),
                    "anthropic" => shown(MESSAGES, &data_url(&data), None),
                    _ => json!({"inlineData": {"mimeType": "image/png", "data": data}}),
                };
                assert_eq!(sent, expected, "{path} {model}");
                // As it came.
                let own = [(CHAT, MODELS[1]), (MESSAGES, MODELS[2])].contains(&(path, model));
                assert!(!own || request.text.contains(&image.to_string()));
            }
            let bare = saying(path, model, std::slice::from_ref(&question));
            let (without, _) = cost(&app, &account, path, &bare).await;
            let expected = i64::try_from((tokens + 8) * half_micros).unwrap();
            // A sum may be rounded up.
            let found = 2 * (held - without);
            assert!(
                (expected - 1..=expected + 1).contains(&found),
                "{path} {model} {found}"
            );
        }
    }
    app.assert_settled().await;
}

/// The route that counts the tokens of a body, and what it takes, where the dialect has one.
fn counting(path: &str, body: &Value) -> Option<(String, Value)> {
    let mut body = body.clone();
    let members = body.as_object_mut().unwrap();
    members.remove("max_tokens");
    members.remove("max_output_tokens");
    match path {
        RESPONSES => Some((format!("{RESPONSES}/input_tokens"), body)),
        MESSAGES => Some((format!("{MESSAGES}/count_tokens"), body)),
        _ => None,
    }
}

#[sqlx::test]
async fn one_by_its_url_is_held_for_as_the_largest(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10000").await;
    for path in DIALECTS {
        for (model, detail, tokens, half_micros) in [
            (MODELS[1], None, 36_000, 25),
            (MODELS[1], Some("high"), 3_000, 25),
            (MODELS[1], Some("low"), 4_916, 25),
            (MODELS[2], None, 4_784, 20),
        ] {
            if path == MESSAGES && detail.is_some() {
                continue;
            }
            let image = shown(path, URL, detail);
            let body = saying(path, model, &[said(path, "What is it?"), image]);
            let (held, _) = cost(&app, &account, path, &body).await;
            let sent = sent(model, &upstream.requests().pop().unwrap().body);
            let expected = match model.split_once('/').unwrap().0 {
                "openai" => shown(CHAT, URL, detail),
                _ => shown(MESSAGES, URL, None),
            };
            assert_eq!(sent, expected, "{path} {model}");
            let bare = saying(path, model, &[said(path, "What is it?")]);
            let (without, _) = cost(&app, &account, path, &bare).await;
            let expected = (tokens + 8) * half_micros;
            let found = 2 * (held - without);
            assert!(
                (expected - 1..=expected + 1).contains(&found),
                "{path} {model} {found}"
            );
        }
    }
    // Where the vendor has no such word, the answer says so.
    let image = shown(CHAT, &data_url(&png()), Some("low"));
    let answer = app
        .post(&account.key, CHAT, &saying(CHAT, MODELS[2], &[image]))
        .await;
    answer.expect(200);
    assert_eq!(answer.header("x-gensvc-left-out"), "detail");
    app.assert_settled().await;
}

/// A dialogue whose tool shows an image.
fn tool_shows(path: &str, model: &str) -> Value {
    let image = shown(path, &data_url(&png()), None);
    let content = json!([said(path, "a map"), image]);
    let user = json!({"role": "user", "content": "Where?"});
    match path {
        RESPONSES => json!({"model": model, "max_output_tokens": 64, "input": [user,
            {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": content}]}),
        MESSAGES => json!({"model": model, "max_tokens": 64, "messages": [user,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "look", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": content}]}]}),
        _ => json!({"model": model, "max_tokens": 64, "messages": [user,
            {"role": "assistant", "tool_calls": [{"id": "c", "type": "function",
                "function": {"name": "look", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": content}]}),
    }
}

#[sqlx::test]
async fn tools_show_them_too(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for path in DIALECTS {
        let body = app
            .post(&account.key, path, &tool_shows(path, MODELS[0]))
            .await
            .expect(200);
        let text = text(path, &body);
        let seen = "I was shown 1 image: image/png of 1000x600 pixels.";
        assert!(text.starts_with(seen), "{text}");
        let body = tool_shows(path, MODELS[2]);
        let (held, _) = cost(&app, &account, path, &body).await;
        let sent = upstream.requests().pop().unwrap().body;
        let result = &sent["messages"][2]["content"][0];
        let image = shown(MESSAGES, &data_url(&png()), None);
        assert_eq!(result["content"][1], image, "{path}");
        assert!(held > 36 * 22 * 10, "{path} {held}");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn failed_tools_show_them_too(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream_with(options, &upstream, &[(DEFAULT_APIS, "1")]).await;
    let account = app.account("10").await;
    let mut body = tool_shows(MESSAGES, MODELS[1]);
    let mut result = body["messages"][2]["content"][0].take();
    result["is_error"] = json!(true);
    let text_only = with(result.clone(), &json!({"content": "no map"}));
    for (result, expected) in [
        (
            result,
            json!([
                said(RESPONSES, "Error: a map"),
                shown(RESPONSES, &data_url(&png()), Some("auto"))
            ]),
        ),
        (text_only, json!("Error: no map")),
    ] {
        body["messages"][2]["content"][0] = result;
        app.post(&account.key, MESSAGES, &body).await.expect(200);
        let sent = upstream.requests().pop().unwrap().body;
        assert_eq!(sent["input"][2]["output"], expected);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn the_sandbox_says_what_it_was_shown(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let gif = BASE64_STANDARD.encode(b"GIF89a\x01\0\x01\0\0\0\0");
    for path in DIALECTS {
        let mut images = vec![shown(path, URL, None), shown(path, &data_url(&png()), None)];
        // What it is, whatever it is called.
        images.push(shown(path, &data_url(&encoded(ImageFormat::Jpeg)), None));
        images.push(shown(path, &data_url(&gif), None));
        let body = saying(path, MODELS[0], &images);
        let answer = app.post(&account.key, path, &body).await;
        let whole = text(path, &answer.expect(200));
        let seen = "I was shown 4 images: one by its URL, image/png of 1000x600 pixels, \
                    image/jpeg of 1000x600 pixels, image/gif.";
        assert!(whole.starts_with(seen), "{whole}");
        let record = record(&app, &account, &answer).await;
        assert_eq!(record["prompt"], "");
        assert_eq!(record["usage"]["input_tokens"], 1_568 + 792 + 792 + 1_568);
        let streamed = with(body, &json!({"stream": true}));
        let streamed = app.post(&account.key, path, &streamed).await;
        let events = events(path, &streamed.text);
        assert_eq!(super::text_of(path, &events), whole);
        if path == MESSAGES {
            let (png, jpeg) = (png(), encoded(ImageFormat::Jpeg));
            let images = [(URL, 1_568), (&png, 792), (&jpeg, 792), (&gif, 1_568)];
            let bytes = images.map(|(source, most)| source.len().min(4 * most));
            let usage = &events[0]["message"]["usage"];
            let expected = bytes.iter().sum::<usize>().div_ceil(4);
            assert_eq!(usage["input_tokens"], expected);
        }
    }
    app.assert_settled().await;
}

/// As text is: by a quarter of the bytes, but never as more than they can be.
#[sqlx::test]
async fn they_are_charged_where_the_provider_counts_nothing(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    upstream.reply(Reply::Status(
        200,
        json!({"id": "c", "model": "m", "choices": [{"index": 0,
            "message": {"role": "assistant", "content": "A cat."}, "finish_reason": "stop"}]}),
    ));
    let (png, jpeg) = (png(), encoded(ImageFormat::Jpeg));
    assert!(jpeg.len() > 4 * 730);
    for (source, bytes, most) in [
        (data_url(&png), png.len(), 730),
        (data_url(&jpeg), jpeg.len(), 730),
        (URL.to_owned(), URL.len(), 36_000),
    ] {
        let parts = [said(CHAT, "What?"), shown(CHAT, &source, None)];
        let body = saying(CHAT, MODELS[1], &parts);
        let answer = app.post(&account.key, CHAT, &body).await;
        answer.expect(200);
        let usage = record(&app, &account, &answer).await["usage"].clone();
        let expected = (5 + bytes.min(4 * most)).div_ceil(4);
        assert_eq!(
            (&usage["input_tokens"], &usage["estimated"]),
            (&json!(expected), &json!(true))
        );
    }
    app.assert_settled().await;
}

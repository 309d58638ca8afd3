//! Documents, which the vendor counts before credits are held.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use gensvc::domain::credits::Credits;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{CHAT, MESSAGES, MODELS, RESPONSES, error, record, with};
use crate::common::{Account, DEFAULT_APIS, Recorded, Reply, TestApp, Upstream, upstream::text};

const PATHS: [&str; 3] = [CHAT, RESPONSES, MESSAGES];
/// A model of each vendor that accepts documents, with its prices in credits per million tokens:
/// input, input in the hold (twice as much; OpenAI may write its cache unasked), output.
const TAKING: [(&str, i64, i64, i64); 3] = [
    (MODELS[1], 10, 25, 50),
    (MODELS[2], 10, 20, 50),
    (MODELS[3], 30, 60, 250),
];
const COUNTED: i64 = 3_200;
/// The input tokens of the hold: the count, a sixteenth of it and 1,024 more.
const MOST: i64 = COUNTED + COUNTED / 16 + 1_024;
const LIMIT: i64 = 64;

fn pdf() -> String {
    BASE64_STANDARD.encode(format!("%PDF-1.7\n{}", "x".repeat(60_000)))
}

async fn start(options: PgConnectOptions, upstream: &Upstream) -> (TestApp, Account) {
    let env = [
        (DEFAULT_APIS, "1"),
        ("GENSVC__PROVIDERS__ANTHROPIC__TIMEOUT_SECONDS", "1"),
    ];
    let app = TestApp::upstream_with(options, upstream, &env).await;
    let account = app.account("10").await;
    (app, account)
}

fn is_count(request: &Recorded) -> bool {
    ["/count_tokens", "/input_tokens", ":countTokens"]
        .iter()
        .any(|end| request.path.ends_with(end))
}

fn count(tokens: &Value) -> Reply {
    Reply::Status(200, json!({"input_tokens": tokens, "totalTokens": tokens}))
}

/// A vendor that returns this count, and then answers with this usage.
fn counting(upstream: &Upstream, tokens: Value, usage: (i64, i64)) {
    upstream.play(move |request| {
        if is_count(request) {
            return count(&tokens);
        }
        Reply::Text("Read.".to_owned(), usage.0, usage.1)
    });
}

/// A document in the dialect of the path.
fn part(path: &str, is_pdf: bool) -> Value {
    let text = BASE64_STANDARD.encode("A plain text.");
    let (url, name) = if is_pdf {
        (format!("data:application/pdf;base64,{}", pdf()), "a.pdf")
    } else {
        (format!("data:text/plain;base64,{text}"), "a.txt")
    };
    match path {
        CHAT => json!({"type": "file", "file": {"filename": name, "file_data": url}}),
        RESPONSES => json!({"type": "input_file", "filename": name, "file_data": url}),
        _ if is_pdf => json!({"type": "document", "title": name, "source":
            {"type": "base64", "media_type": "application/pdf", "data": pdf()}}),
        _ => json!({"type": "document", "title": name, "source":
            {"type": "text", "media_type": "text/plain", "data": "A plain text."}}),
    }
}

fn asked(path: &str, model: &str, part: &Value) -> Value {
    let kind = if path == RESPONSES {
        "input_text"
    } else {
        "text"
    };
    let content = json!([{"type": kind, "text": "Read it."}, part]);
    let messages = json!([{"role": "user", "content": content}]);
    if path == RESPONSES {
        return json!({"model": model, "max_output_tokens": LIMIT, "input": messages});
    }
    json!({"model": model, "max_tokens": LIMIT, "messages": messages})
}

/// The document that a vendor received: its kind, and its content in base64 or as text.
fn sent(request: &Recorded) -> (String, String) {
    let body = &request.body;
    let body = body.get("generateContentRequest").unwrap_or(body);
    let list = ["messages", "input", "contents"].map(|name| &body[name]);
    let list = list.into_iter().find(|list| list.is_array()).unwrap();
    let message = list.as_array().unwrap().last().unwrap();
    let parts = message.get("content").unwrap_or(&message["parts"]);
    let part = parts.as_array().unwrap().last().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(data) = part.get("inlineData") {
        return (text(&data["mimeType"]), text(&data["data"]));
    }
    if let Some(source) = part.get("source") {
        return (text(&source["media_type"]), text(&source["data"]));
    }
    assert_eq!(part["type"], "input_file", "{part}");
    let data = text(&part["file_data"]);
    let (kind, data) = data
        .strip_prefix("data:")
        .unwrap()
        .split_once(";base64,")
        .unwrap();
    (kind.to_owned(), data.to_owned())
}

#[sqlx::test]
async fn every_vendor_that_takes_documents_counts_them(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    counting(&upstream, json!(COUNTED), (3_000, 20));
    for path in PATHS {
        for (model, input, twice_held, output) in TAKING {
            for (is_pdf, stream) in [(true, false), (true, true), (false, false)] {
                let before = upstream.count();
                let more = json!({ "stream": stream });
                let body = with(asked(path, model, &part(path, is_pdf)), &more);
                let answer = app.post(&account.key, path, &body).await;
                assert_eq!(answer.status, 200, "{path} {model}: {}", answer.text);
                let requests = upstream.requests().split_off(before);
                let generating = requests.last().unwrap();
                assert!(!is_count(generating));
                assert!(
                    generating
                        .text
                        .contains(if is_pdf { "a.pdf" } else { "a.txt" })
                );
                let (kind, data) = sent(generating);
                if !is_pdf {
                    let text = BASE64_STANDARD.decode(&data).unwrap_or_default();
                    assert_eq!(kind, "text/plain");
                    assert!(
                        data == "A plain text." || text == b"A plain text.",
                        "{data}"
                    );
                    // Its bytes bound its tokens.
                    assert_eq!(requests.len(), 1);
                    continue;
                }
                assert_eq!((kind.as_str(), data), ("application/pdf", pdf()));
                // Both read the same.
                assert_eq!(requests.len(), 2);
                assert!(is_count(&requests[0]));
                assert_eq!(sent(&requests[0]), sent(generating));
                if model == MODELS[3] {
                    let mut counted = requests[0].body["generateContentRequest"].clone();
                    counted.as_object_mut().unwrap().remove("model");
                    let mut generated = generating.body.clone();
                    let config = generated["generationConfig"].as_object_mut().unwrap();
                    assert_eq!(config.remove("maxOutputTokens"), Some(json!(LIMIT)));
                    assert_eq!(counted, generated);
                }
                for name in [
                    "max_tokens",
                    "max_output_tokens",
                    "store",
                    "stream",
                    "service_tier",
                ] {
                    assert_eq!(requests[0].body.get(name), None, "{name}");
                }
                let record = record(&app, &account, &answer).await;
                let held = Credits::from_micros((MOST * twice_held + 1) / 2 + LIMIT * output);
                assert_eq!(record["credits"]["estimated"], held.to_string(), "{model}");
                let charged = Credits::from_micros(3_000 * input + 20 * output);
                assert_eq!(record["credits"]["charged"], charged.to_string(), "{model}");
            }
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn counts_are_those_of_the_vendor(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    let poor = app.account("0.00001").await;
    let text_part = |path| {
        let kind = if path == RESPONSES {
            "input_text"
        } else {
            "text"
        };
        json!({"type": kind, "text": "x".repeat(392)})
    };
    let refused = json!({"type": "error", "error": {"type": "api_error", "message": "no"}});
    for (path, end) in [(RESPONSES, "input_tokens"), (MESSAGES, "count_tokens")] {
        let count_path = format!("{path}/{end}");
        for (model, ..) in TAKING {
            for part in [part(path, true), text_part(path)] {
                counting(&upstream, json!(COUNTED), (3_000, 20));
                let mut body = asked(path, model, &part);
                for name in ["max_tokens", "max_output_tokens"] {
                    body.as_object_mut().unwrap().remove(name);
                }
                let before = upstream.count();
                let answer = app.post(&account.key, &count_path, &body).await;
                assert_eq!(answer.expect(200)["input_tokens"], COUNTED);
                assert_eq!(upstream.count(), before + 1);
                if part["text"].is_null() {
                    continue;
                }
                // "Read it." and the text have 400 bytes. This account cannot pay for a call.
                let answer = app.post(&poor.key, &count_path, &body).await;
                assert_eq!(answer.expect(200)["input_tokens"], 100);
                assert_eq!(upstream.count(), before + 1);
                upstream.reply(Reply::Status(500, refused.clone()));
                let answer = app.post(&account.key, &count_path, &body).await;
                assert_eq!(answer.expect(200)["input_tokens"], 100);
            }
        }
    }
    // This vendor cannot count.
    let before = upstream.count();
    let body =
        json!({"model": MODELS[0], "messages": [{"role": "user", "content": "x".repeat(400)}]});
    let count_path = format!("{MESSAGES}/count_tokens");
    let answer = app.post(&account.key, &count_path, &body).await;
    assert_eq!(answer.expect(200)["input_tokens"], 100);
    assert_eq!(upstream.count(), before);
}

#[sqlx::test]
async fn without_a_count_nothing_is_held(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    let before = app.balance(&account).await;
    let error_of = |status: u16, kind: &str, message: &str| {
        let error = json!({"type": kind, "message": message});
        Reply::Status(status, json!({"type": "error", "error": error}))
    };
    let body = asked(MESSAGES, MODELS[2], &part(MESSAGES, true));
    for (reply, status, code) in [
        (count(&json!(0)), 503, "provider_overloaded"),
        (count(&json!(-5)), 503, "provider_overloaded"),
        (count(&json!("7")), 503, "provider_overloaded"),
        (count(&Value::Null), 503, "provider_overloaded"),
        (Reply::Cut, 503, "provider_overloaded"),
        (error_of(500, "api_error", "no"), 503, "provider_overloaded"),
        (
            error_of(529, "overloaded_error", "no"),
            503,
            "provider_overloaded",
        ),
        (
            error_of(401, "authentication_error", "no"),
            502,
            "provider_error",
        ),
        // A gateway without this endpoint.
        (
            error_of(404, "not_found_error", "no"),
            502,
            "provider_error",
        ),
        // The vendor's own limit of pages.
        (
            error_of(
                400,
                "invalid_request_error",
                "A maximum of 600 PDF pages may be provided.",
            ),
            400,
            "provider_rejected",
        ),
        // More than the context.
        (count(&json!(1_000_001)), 400, "context_length_exceeded"),
    ] {
        upstream.reply(reply);
        let answer = app.post(&account.key, MESSAGES, &body).await;
        let refused = error(MESSAGES, &answer, status, code);
        if code == "provider_rejected" {
            assert!(
                refused["message"]
                    .as_str()
                    .unwrap()
                    .contains("600 PDF pages")
            );
        }
        assert_eq!(answer.header("x-gensvc-generation"), "");
        assert_eq!(answer.header("x-should-retry") == "true", status == 503);
    }
    // No answer in time.
    upstream.hold();
    let answer = app.post(&account.key, MESSAGES, &body).await;
    error(MESSAGES, &answer, 503, "provider_overloaded");
    upstream.release(1);
    assert_eq!(app.balance(&account).await, before);
    assert!(app.history(&account).await.is_empty());
}

#[sqlx::test]
async fn a_revoked_key_sends_no_document_to_a_vendor(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    counting(&upstream, json!(COUNTED), (3_000, 20));
    let body = asked(MESSAGES, MODELS[2], &part(MESSAGES, true));
    // The server caches the key for some seconds.
    app.post(&account.key, MESSAGES, &body).await.expect(200);
    let sent = upstream.count();
    let revoking = sqlx::query("update api_keys set revoked_at = now()");
    revoking.execute(&app.pool).await.unwrap();
    let mut counted = body.clone();
    counted.as_object_mut().unwrap().remove("max_tokens");
    let count_path = format!("{MESSAGES}/count_tokens");
    for (path, body) in [(MESSAGES, body), (&count_path, counted)] {
        let answer = app.post(&account.key, path, &body).await;
        assert_eq!(answer.status, 401, "{path}: {}", answer.text);
    }
    assert_eq!(upstream.count(), sent);
    app.assert_settled().await;
}

#[sqlx::test]
async fn an_account_that_cannot_pay_sends_no_document(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, _) = start(options, &upstream).await;
    let poor = app.account("0.00001").await;
    let body = asked(MESSAGES, MODELS[2], &part(MESSAGES, true));
    let mut counted = body.clone();
    counted.as_object_mut().unwrap().remove("max_tokens");
    let count_path = format!("{MESSAGES}/count_tokens");
    for (path, body) in [(MESSAGES, &body), (&count_path, &counted)] {
        let answer = app.post(&poor.key, path, body).await;
        error(MESSAGES, &answer, 402, "insufficient_credits");
    }
    assert_eq!(upstream.count(), 0);
}

#[sqlx::test]
async fn a_document_is_counted_once(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    counting(&upstream, json!(COUNTED), (3_000, 20));
    let mut body = asked(MESSAGES, MODELS[2], &part(MESSAGES, true));
    for (more, requests) in [
        (json!("And then?"), 2),
        (json!([part(MESSAGES, true)]), 1),
        // The new document has no count.
        (json!("Thanks."), 2),
    ] {
        let before = upstream.count();
        let answer = app.post(&account.key, MESSAGES, &body).await;
        answer.expect(200);
        assert_eq!(upstream.count() - before, requests, "{more}");
        let record = record(&app, &account, &answer).await;
        if requests == 1 {
            let held: Credits = record["credits"]["estimated"]
                .as_str()
                .unwrap()
                .parse()
                .unwrap();
            let (least, most) = (3_000 * 10 + LIMIT * 50, 3_600 * 10 + LIMIT * 50);
            assert!((least..most).contains(&held.micros()), "{held}");
        }
        let messages = body["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "assistant", "content": "Read."}));
        messages.push(json!({"role": "user", "content": more}));
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_vendor_that_miscounts_is_charged_at_most_the_hold(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    let body = asked(MESSAGES, MODELS[2], &part(MESSAGES, true));
    // More than it counted before, far more, and less.
    for (input, is_capped) in [(MOST, false), (50_000, true), (1, false)] {
        counting(&upstream, json!(COUNTED), (input, LIMIT));
        let answer = app.post(&account.key, MESSAGES, &body).await;
        answer.expect(200);
        let record = record(&app, &account, &answer).await;
        let credits = &record["credits"];
        if is_capped {
            assert_eq!(credits["charged"], credits["estimated"]);
        } else {
            let charged = Credits::from_micros(input * 10 + LIMIT * 50);
            assert_eq!(credits["charged"], charged.to_string());
        }
    }
    // It dies after its count.
    let before = app.balance(&account).await;
    upstream.play(|request| {
        if is_count(request) {
            count(&json!(COUNTED))
        } else {
            Reply::Cut
        }
    });
    let answer = app.post(&account.key, MESSAGES, &body).await;
    error(MESSAGES, &answer, 502, "provider_error");
    assert_eq!(app.balance(&account).await, before);
    // Without a count in the answer, the count before it plus the margin is charged.
    upstream.play(|request| {
        if is_count(request) {
            return count(&json!(COUNTED));
        }
        let mut body: Value =
            serde_json::from_str(&text::body("/anthropic", false, "Read.", 1, 1)).unwrap();
        body["usage"] = json!({});
        Reply::Status(200, body)
    });
    let answer = app.post(&account.key, MESSAGES, &body).await;
    answer.expect(200);
    let record = record(&app, &account, &answer).await;
    assert_eq!(record["usage"]["input_tokens"], MOST);
    assert_eq!(record["usage"]["estimated"], true);
    app.assert_settled().await;
}

#[sqlx::test]
async fn documents_are_refused_by_name(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    for path in PATHS {
        for model in [MODELS[0], "openai/gpt-4.1"] {
            let body = asked(path, model, &part(path, true));
            let answer = app.post(&account.key, path, &body).await;
            let refused = error(path, &answer, 400, "unsupported_parameter");
            let message = refused["message"].as_str().unwrap();
            assert!(message.contains("has a document"), "{message}");
        }
    }
    let source = |source: Value| json!({"type": "document", "source": source});
    let file = |file: Value| json!({"type": "file", "file": file});
    let input = |more: Value| with(json!({"type": "input_file"}), &more);
    let pdf = "application/pdf";
    for (path, part, name) in [
        (
            MESSAGES,
            source(json!({"type": "url", "url": "https://example.com/a.pdf"})),
            "messages[0].content[1].source.type",
        ),
        (
            MESSAGES,
            source(json!({"type": "file", "file_id": "f"})),
            "messages[0].content[1].source.type is not supported for documents",
        ),
        (
            MESSAGES,
            source(json!({"type": "base64", "media_type": pdf, "data": "SGk="})),
            "messages[0].content[1].source.data",
        ),
        (
            MESSAGES,
            source(json!({"type": "base64", "media_type": "image/png", "data": "SGk="})),
            "messages[0].content[1].source.media_type",
        ),
        (
            MESSAGES,
            source(json!({"type": "text", "media_type": pdf, "data": "x"})),
            "messages[0].content[1].source.media_type must be text/plain",
        ),
        (
            MESSAGES,
            with(
                part(MESSAGES, true),
                &json!({"citations": {"enabled": true}}),
            ),
            "messages[0].content[1].citations",
        ),
        (
            MESSAGES,
            json!({"type": "tool_result", "tool_use_id": "t", "content": [
                with(part(MESSAGES, true), &json!({"citations": {"enabled": true}}))]}),
            "messages[0].content[1].content[0].citations",
        ),
        (
            CHAT,
            file(json!({"file_id": "f"})),
            "messages[0].content[1].file.file_id",
        ),
        (
            CHAT,
            file(json!({})),
            "messages[0].content[1].file.file_data",
        ),
        (
            CHAT,
            file(json!({"file_data": "data:application/msword;base64,SGk="})),
            "messages[0].content[1].file.file_data",
        ),
        (
            RESPONSES,
            input(json!({"file_id": "f"})),
            "input[0].content[1].file_id",
        ),
        (
            RESPONSES,
            input(json!({"file_url": "https://example.com/a.pdf"})),
            "input[0].content[1].file_url",
        ),
        (RESPONSES, input(json!({})), "input[0].content[1].file_data"),
        (
            RESPONSES,
            json!({"type": "input_image", "file_id": "f"}),
            "input[0].content[1].file_id is not supported; send the bytes in base64, as image_url",
        ),
    ] {
        let answer = app
            .post(&account.key, path, &asked(path, MODELS[2], &part))
            .await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        let message = answer.json()["error"]["message"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(message.contains(name), "{name}: {message}");
    }
    assert_eq!(upstream.count(), 0);
}

//! Content of other kinds than text: images, code, thinking in parts, members that only some servers
//! have.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    ACME, CHAT, MESSAGES, MODELS, PATHS, RESPONSES, acme, answered, both, chat, chunk, counted,
    error, events, is_streamed, request, sse, with,
};
use crate::common::{Answer, Recorded, Reply, Upstream};

/// A message of a chat server, whole or as one delta.
fn message(message: &Value) -> impl Fn(&Recorded) -> Reply + use<> {
    let message = with(json!({"role": "assistant"}), message);
    chat(vec![message.clone()], message, "stop", counted())
}

/// Parts of an answer of Gemini.
fn gemini(parts: &Value) -> impl Fn(&Recorded) -> Reply + use<> {
    let content = json!({"role": "model", "parts": parts});
    let usage = json!({"promptTokenCount": 9, "candidatesTokenCount": 5});
    let answer = json!({"candidates": [{"content": content, "finishReason": "STOP"}],
        "usageMetadata": usage});
    move |request| {
        if is_streamed(request) {
            sse(std::slice::from_ref(&answer))
        } else {
            Reply::Status(200, answer.clone())
        }
    }
}

/// The message of a chat answer, its deltas joined.
fn answer_of(answer: &Answer) -> Value {
    if let Ok(body) = serde_json::from_str::<Value>(&answer.text) {
        return body["choices"][0]["message"].clone();
    }
    let mut message = json!({});
    for event in events(CHAT, &answer.text) {
        let delta = event["choices"][0]["delta"].as_object().cloned();
        for (name, value) in delta.into_iter().flatten() {
            let before = message[&name].as_str().unwrap_or_default();
            message[&name] = match value.as_str() {
                Some(piece) => json!(format!("{before}{piece}")),
                None => value,
            };
        }
    }
    message
}

/// Answers without a text or a call, and the models that give them.
fn unreadable() -> Vec<(&'static str, Value)> {
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    let audio = json!({"id": "a", "data": "AAAA", "transcript": "Hi"});
    let inline = json!({"inlineData": {"mimeType": "image/png", "data": "AAAA"}});
    let code = json!({"executableCode": {"language": "PYTHON", "code": "1"}});
    let output = json!({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}});
    vec![
        (ACME, json!({"content": null, "images": [image]})),
        (ACME, json!({"content": "", "images": [image]})),
        (ACME, json!({"content": null, "audio": audio})),
        (ACME, json!({"content": [image]})),
        (ACME, json!({"content": [{"type": "chart", "data": 1}]})),
        (MODELS[3], json!([inline])),
        (MODELS[3], json!([code, output])),
    ]
}

#[sqlx::test]
async fn an_answer_without_readable_content_fails_and_is_free(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    for (model, content) in unreadable() {
        if model == ACME {
            upstream.play(message(&content));
        } else {
            upstream.play(gemini(&content));
        }
        for path in PATHS {
            let answer = app
                .post(&account.key, path, &request(path, model, "x"))
                .await;
            error(path, &answer, 502, "provider_error");
            let streamed = with(request(path, model, "x"), &json!({"stream": true}));
            let answer = app.post(&account.key, path, &streamed).await;
            assert!(answer.text.contains("provider_error"), "{}", answer.text);
        }
        let (provider, model) = model.split_once('/').unwrap();
        let body = json!({"prompt": "x", "provider": provider, "model": model});
        let answer = app.post(&account.key, "/v1/generate/text", &body).await;
        assert!(answer.text.contains("provider_error"), "{}", answer.text);
        assert_eq!(app.balance(&account).await.0, "100");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn streamed_thinking_is_charged_without_readable_content(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    upstream.play(message(
        &json!({"content": null, "reasoning": "hm", "images": [{"type": "image_url"}]}),
    ));
    for path in PATHS {
        let before = app.balance(&account).await.0;
        let body = request(path, ACME, "x");
        let answer = app.post(&account.key, path, &body).await;
        error(path, &answer, 502, "provider_error");
        assert_eq!(app.balance(&account).await.0, before);
        let streamed = with(body, &json!({"stream": true}));
        let answer = app.post(&account.key, path, &streamed).await;
        assert!(answer.text.contains("hm"), "{}", answer.text);
        assert!(!answer.text.contains("provider_error"), "{}", answer.text);
        assert_ne!(app.balance(&account).await.0, before);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn text_is_read_beside_other_content(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let text = json!({"type": "output_text", "text": "Hi"});
    for content in [
        json!({"content": [text]}),
        json!({"content": [{"type": "chart"}, text]}),
        json!({"content": "Hi", "images": [{"type": "image_url"}]}),
        json!({"content": "Hi", "images": [], "audio": null}),
    ] {
        upstream.play(message(&content));
        for body in both(&request(CHAT, ACME, "x")) {
            let (answer, _) = answered(&app, &account, CHAT, &body).await;
            assert_eq!(answer_of(&answer)["content"], "Hi", "{}", answer.text);
        }
    }
    // Metadata of a part is no content.
    let parts = json!([{"executableCode": {"code": "1"}}, {"text": "Hi"},
        {"text": "", "thoughtSignature": "s"}, {"thoughtSignature": "s"}]);
    upstream.play(gemini(&parts));
    for body in both(&request(CHAT, MODELS[3], "x")) {
        let (answer, _) = answered(&app, &account, CHAT, &body).await;
        assert_eq!(answer_of(&answer)["content"], "Hi", "{}", answer.text);
    }
    upstream.play(gemini(&json!([{"text": "", "thoughtSignature": "s"}])));
    for body in both(&request(CHAT, MODELS[3], "x")) {
        answered(&app, &account, CHAT, &body).await;
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn thinking_in_parts_is_shown_where_it_is_not_sent_back(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let thinking = |text: &str| json!({"type": "thinking", "thinking": [{"type": "text", "text": text}], "closed": true});
    let text = json!({"type": "text", "text": "Hi"});
    let deltas = vec![
        json!({"content": [thinking("Let ")]}),
        json!({"content": [thinking("me")]}),
        json!({"content": "Hi"}),
    ];
    let whole = json!({"role": "assistant", "content": [thinking("Let me"), text]});
    upstream.play(chat(deltas, whole.clone(), "stop", counted()));
    for path in [MESSAGES, RESPONSES] {
        for body in both(&request(path, ACME, "x")) {
            let (answer, _) = answered(&app, &account, path, &body).await;
            let is_whole = body["stream"] == false;
            let expected = if is_whole { "Let me" } else { "\"me\"" };
            assert!(answer.text.contains(expected), "{path} {}", answer.text);
        }
    }
    for body in both(&request(CHAT, ACME, "x")) {
        let (answer, _) = answered(&app, &account, CHAT, &body).await;
        let message = answer_of(&answer);
        assert_eq!(message["content"], "Hi", "{message}");
        assert_eq!(message.get("reasoning_content"), None, "{message}");
    }
    // An application that keeps Mistral's own form sends it back.
    let mut body = request(CHAT, ACME, "x");
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(whole.clone());
    messages.push(json!({"role": "user", "content": "y"}));
    answered(&app, &account, CHAT, &body).await;
    let sent = upstream.requests().pop().unwrap();
    assert_eq!(sent.body["messages"][1], whole);
    for model in &MODELS[2..] {
        upstream.reply(Reply::Text("Hello there.".to_owned(), 9, 3));
        let body = with(body.clone(), &json!({"model": model}));
        let (answer, _) = answered(&app, &account, CHAT, &body).await;
        assert_eq!(answer.header("x-gensvc-left-out"), "thinking", "{model}");
        let sent = upstream.requests().pop().unwrap().text;
        assert!(!sent.contains("Let me"), "{model} {sent}");
    }
    body["messages"][0]["content"] = json!([thinking("x")]);
    let answer = app.post(&account.key, CHAT, &body).await;
    error(CHAT, &answer, 400, "unsupported_parameter");
    app.assert_settled().await;
}

#[sqlx::test]
async fn members_of_chat_servers_pass_to_chat_and_back(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let detail = |text: &str| json!({"type": "reasoning.text", "text": text, "index": 0});
    let signed = json!({"type": "reasoning.text", "signature": "sig", "index": 0});
    let encrypted = json!({"type": "reasoning.encrypted", "data": "zz", "index": 1});
    let cited = json!([{"type": "url_citation", "url_citation": {"url": "https://a.example"}}]);
    let call = json!({"index": 0, "id": "call_1", "type": "function",
        "function": {"name": "f", "arguments": "{\"a\""}});
    let rest = json!({"index": 0, "function": {"arguments": ":1}"}});
    let deltas = vec![
        json!({"role": "assistant", "reasoning": "Let ", "reasoning_details": [detail("Let ")]}),
        json!({"reasoning": "me", "reasoning_details": [detail("me")]}),
        json!({"content": "Hi", "reasoning_details": [signed]}),
        json!({"tool_calls": [call]}),
        json!({"reasoning_details": [encrypted]}),
        json!({"tool_calls": [rest]}),
        json!({"annotations": cited}),
    ];
    let details = json!([
        with(detail("Let me"), &json!({"signature": "sig"})),
        encrypted
    ]);
    let mut whole_call = call;
    whole_call["function"]["arguments"] = json!("{\"a\":1}");
    let own = json!({"reasoning": "Let me", "reasoning_details": details, "annotations": cited});
    let whole = json!({"role": "assistant", "content": "Hi", "tool_calls": [whole_call]});
    let whole = with(whole, &own);
    upstream.play(chat(deltas, whole.clone(), "tool_calls", counted()));
    let tools = json!({"tools": [{"type": "function", "function": {"name": "f"}}]});
    for body in both(&with(request(CHAT, ACME, "x"), &tools)) {
        let key = [(
            "idempotency-key",
            if body["stream"] == true { "a" } else { "b" },
        )];
        // The second answer is the stored one.
        for _ in 0..2 {
            let answer = app.post_with(&account.key, CHAT, &key, &body).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            let message = answer_of(&answer);
            for (name, value) in own.as_object().unwrap() {
                assert_eq!(&message[name], value, "{name} {message}");
            }
            assert_eq!(message["content"], "Hi");
        }
    }
    let mut body = with(request(CHAT, ACME, "x"), &tools);
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(whole.clone());
    messages.push(json!({"role": "tool", "tool_call_id": "call_1", "content": "ok"}));
    answered(&app, &account, CHAT, &body).await;
    let sent = upstream.requests().pop().unwrap();
    assert_eq!(sent.body["messages"][1], whole);
    for model in &MODELS[2..] {
        upstream.reply(Reply::Text("Hello there.".to_owned(), 9, 3));
        let body = with(body.clone(), &json!({"model": model}));
        let (answer, _) = answered(&app, &account, CHAT, &body).await;
        let left_out = answer.header("x-gensvc-left-out");
        assert_eq!(left_out, "annotations, thinking", "{model}");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn only_chat_shows_members_of_chat_servers(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    upstream.play(message(&json!({"content": "Hi",
        "reasoning_details": [{"type": "reasoning.encrypted", "data": "zz"}],
        "annotations": [{"type": "url_citation"}]})));
    for path in [RESPONSES, MESSAGES] {
        for body in both(&request(path, ACME, "x")) {
            let (answer, _) = answered(&app, &account, path, &body).await;
            for hidden in ["gensvc.", "zz", "url_citation"] {
                assert!(!answer.text.contains(hidden), "{}", answer.text);
            }
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn chunks_that_say_nothing_are_skipped(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let call = |index: u64, id: &str, name: &str, arguments: &str| {
        json!({"tool_calls": [{"index": index, "id": id, "type": "function",
            "function": {"name": name, "arguments": arguments}}]})
    };
    let blank = call(1, "", "", "");
    let last = json!({"id": "c", "choices": {}, "usage": counted()});
    let stream = [
        chunk(&call(0, "call_1", "f", "{}"), None),
        Value::Null,
        chunk(&blank, Some("tool_calls")),
        last,
    ];
    let message = json!({"role": "assistant", "content": null, "tool_calls": [
        call(0, "call_1", "f", "{}")["tool_calls"][0], blank["tool_calls"][0]]});
    let whole = json!({"id": "c", "choices": [{"index": 0, "message": message,
        "finish_reason": "tool_calls"}], "usage": counted()});
    // With a byte order mark.
    let whole = Reply::Raw(200, "application/json", format!("\u{feff}{whole}"));
    let tools = json!({"tools": [{"type": "function", "function": {"name": "f"}}]});
    for (reply, body) in [whole, sse(&stream)]
        .into_iter()
        .zip(both(&with(request(CHAT, ACME, "x"), &tools)))
    {
        upstream.reply(reply);
        let (answer, record) = answered(&app, &account, CHAT, &body).await;
        let calls = &answer_of(&answer)["tool_calls"];
        assert_eq!(calls.as_array().map(Vec::len), Some(1), "{}", answer.text);
        assert_eq!(calls[0]["function"]["name"], "f", "{}", answer.text);
        assert_eq!(record["usage"]["output_tokens"], 5);
    }
    upstream.reply(sse(&[
        chunk(&json!({"content": "Hi"}), Some("stop")),
        json!({"choices": {"0": 1}}),
    ]));
    let body = with(request(CHAT, ACME, "x"), &json!({"stream": true}));
    let answer = app.post(&account.key, CHAT, &body).await;
    assert!(answer.text.contains("provider_error"), "{}", answer.text);
    app.assert_settled().await;
}

#[sqlx::test]
async fn reasoning_without_a_summary_is_shown(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let reasoning = json!({"type": "reasoning", "id": "r", "summary": [],
        "content": [{"type": "reasoning_text", "text": "Let me see."}]});
    let text = json!({"type": "message", "role": "assistant",
        "content": [{"type": "output_text", "text": "Hi"}]});
    upstream.reply(Reply::Status(
        200,
        json!({"id": "x", "status": "completed", "output": [reasoning, text],
            "usage": {"input_tokens": 9, "output_tokens": 5}}),
    ));
    let (answer, _) = answered(
        &app,
        &account,
        MESSAGES,
        &request(MESSAGES, "acme/acme-2", "x"),
    )
    .await;
    let answer: Value = serde_json::from_str(&answer.text).unwrap();
    assert_eq!(answer["content"][0]["thinking"], "Let me see.", "{answer}");
    assert_eq!(answer["content"][1]["text"], "Hi", "{answer}");
    app.assert_settled().await;
}

//! What a model thought, and its signatures: byte for byte in later turns.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    CHAT, MESSAGES, MODELS, PATHS, RESPONSES, ask, events, function, prompt,
    row_08_responses::{asked, respond},
    stream_of, with,
};
use crate::common::{CONFIG_FILE, Reply, TestApp, Upstream};

/// The next turn: a call brought back as it was answered, with its result.
fn next(path: &str, mut asked: Value, answer: &Value) -> Value {
    if path == RESPONSES {
        let mut input = vec![json!({"role": "user", "content": "x"})];
        let output = answer["output"].as_array().unwrap();
        input.extend(output.iter().cloned());
        let call = output.iter().find(|item| item["type"] == "function_call");
        let id = &call.unwrap()["call_id"];
        input.push(json!({"type": "function_call_output", "call_id": id, "output": "ok"}));
        asked["input"] = json!(input);
        return asked;
    }
    let messages = asked["messages"].as_array_mut().unwrap();
    if path == CHAT {
        let message = &answer["choices"][0]["message"];
        let id = &message["tool_calls"][0]["id"];
        messages.push(message.clone());
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": "ok"}));
    } else {
        let content = answer["content"].as_array().unwrap();
        let call = content.iter().find(|block| block["type"] == "tool_use");
        let result = json!({"type": "tool_result", "tool_use_id": call.unwrap()["id"]});
        messages.push(json!({"role": "assistant", "content": content}));
        messages.push(json!({"role": "user", "content": [result]}));
    }
    asked
}

#[sqlx::test]
async fn signatures_of_gemini_come_back_in_every_dialect_and_to_no_other(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    const SIGNATURE: &str = "c2ln/+==";
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for path in PATHS {
        let mut body = prompt(path, MODELS[3], "x");
        body["tools"] = json!([function(path, "f")]);
        if path == RESPONSES {
            body["include"] = json!(["reasoning.encrypted_content"]);
        }
        let part = json!({"functionCall": {"name": "f"}, "thoughtSignature": SIGNATURE});
        upstream.reply(Reply::Status(
            200,
            json!({"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}],
                "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 3}}),
        ));
        let answer = app.post(&account.key, path, &body).await.expect(200);
        upstream.reply(Reply::Text("Hello there.".to_owned(), 10, 3));
        let mut body = next(path, body, &answer);
        for model in &MODELS[1..] {
            body["model"] = json!(model);
            let answer = app.post(&account.key, path, &body).await;
            answer.expect(200);
            let sent = upstream.requests().pop().unwrap();
            let left_out = answer.header("x-gensvc-left-out");
            if model.starts_with("gemini/") {
                let parts = &sent.body["contents"][1]["parts"];
                assert_eq!(parts[0]["thoughtSignature"], SIGNATURE, "{path} {parts}");
                assert_eq!(left_out, "");
            } else {
                assert!(!sent.text.contains("c2ln"), "{path} {}", sent.text);
                assert!(!sent.text.contains("extra_content"), "{}", sent.text);
                let name = if path == CHAT {
                    "extra_content"
                } else {
                    "thinking"
                };
                assert_eq!(left_out, name, "{path} {model}");
            }
        }
    }
    app.assert_settled().await;
}

/// Strict servers refuse unknown members; Google's own takes its signatures back.
#[sqlx::test]
async fn signatures_go_to_googles_compatible_server_only(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let model = |id: &str, wire: &str| {
        format!(
            "[[providers.local.models]]\nid = \"{id}\"\ntype = \"text\"\n{wire}\n\
             prices = {{ input_per_million = \"1\", output_per_million = \"5\" }}\n"
        )
    };
    let text = [
        format!(
            "[providers.local]\nkind = \"openai_compatible\"\nbase_url = \"{}/local/v1\"\n",
            upstream.url()
        ),
        model("llama", "default = true"),
        model("google/gemini-3.8-flash", ""),
        model("my-gemini", "wire.thought_signatures = true"),
        model("gemini-strict", "wire.thought_signatures = false"),
    ];
    let file = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = file.join(uuid::Uuid::now_v7().to_string());
    std::fs::write(&file, text.concat()).unwrap();
    let app = TestApp::with(options, &[(CONFIG_FILE, file.to_str().unwrap())]).await;
    std::fs::remove_file(&file).unwrap();
    let account = app.account("10").await;
    let extra = json!({"google": {"thought_signature": "c2ln"}});
    let call = json!({"id": "c1", "type": "function", "extra_content": extra,
        "function": {"name": "f", "arguments": "{}"}});
    let messages = json!([
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
    ]);
    for (model, is_sent) in [
        ("llama", false),
        ("google/gemini-3.8-flash", true),
        ("my-gemini", true),
        ("gemini-strict", false),
    ] {
        let body = json!({"model": format!("local/{model}"), "messages": messages,
            "max_tokens": 64});
        let answer = app.post(&account.key, CHAT, &body).await;
        answer.expect(200);
        let sent = upstream.requests().pop().unwrap().body;
        let given = &sent["messages"][1]["tool_calls"][0]["extra_content"];
        assert_eq!(*given == extra, is_sent, "{model} {given}");
        assert_eq!(given.is_null(), !is_sent, "{model} {given}");
        let left_out = if is_sent { "" } else { "extra_content" };
        assert_eq!(answer.header("x-gensvc-left-out"), left_out, "{model}");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn thoughts_are_streamed_with_all_of_their_signature(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let start = |index: usize, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta = |index: usize, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: usize| json!({"type": "content_block_stop", "index": index});
    upstream.reply(Reply::Raw(
        200,
        "text/event-stream",
        stream_of(&[
            json!({"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}),
            start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
            delta(0, json!({"type": "thinking_delta", "thinking": "h"})),
            delta(0, json!({"type": "thinking_delta", "thinking": "m \u{e9}"})),
            delta(0, json!({"type": "signature_delta", "signature": "c2"})),
            delta(0, json!({"type": "signature_delta", "signature": "ln/+=="})),
            stop(0),
            start(1, json!({"type": "redacted_thinking", "data": "cmVk"})),
            stop(1),
            start(2, json!({"type": "text", "text": ""})),
            delta(2, json!({"type": "text_delta", "text": "Hi."})),
            stop(2),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": 9}}),
            json!({"type": "message_stop"}),
        ]),
    ));
    let body = with(prompt(MESSAGES, MODELS[2], "x"), &json!({"stream": true}));
    let answer = app.post(&account.key, MESSAGES, &body).await;
    let mut blocks: Vec<Value> = Vec::new();
    for event in events(MESSAGES, &answer.text) {
        if event["type"] == "content_block_start" {
            assert_eq!(event["index"], blocks.len());
            blocks.push(event["content_block"].clone());
        }
        for name in ["thinking", "signature", "text"] {
            if let Some(piece) = event["delta"][name].as_str() {
                let member = &mut blocks.last_mut().unwrap()[name];
                *member = json!(member.as_str().unwrap_or_default().to_owned() + piece);
            }
        }
    }
    let expected = json!([{"type": "thinking", "thinking": "hm \u{e9}", "signature": "c2ln/+=="},
        {"type": "redacted_thinking", "data": "cmVk"}, {"type": "text", "text": "Hi."}]);
    assert_eq!(json!(blocks), expected);
}

#[sqlx::test]
async fn thoughts_are_brought_back_to_their_vendor_alone(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "c2ln"});
    let redacted = json!({"type": "redacted_thinking", "data": "cmVk"});
    let thoughts = json!([thinking, redacted, {"type": "text", "text": "Hi."}]);
    upstream.reply(Reply::Status(
        200,
        json!({"id": "m", "type": "message", "model": "m", "content": thoughts,
        "stop_reason": "end_turn", "usage": {"input_tokens": 9, "output_tokens": 50,
            "output_tokens_details": {"thinking_tokens": 40}}}),
    ));
    let model = MODELS[2];
    let body = with(
        ask(model, "x"),
        &json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
    );
    let answer = app.post(&account.key, MESSAGES, &body).await;
    assert_eq!(answer.header("x-gensvc-left-out"), "");
    let answer = answer.expect(200);
    assert_eq!(answer["content"], thoughts);
    assert_eq!(
        answer["usage"]["output_tokens_details"]["thinking_tokens"],
        40
    );
    let sent = upstream.requests().last().unwrap().body.clone();
    assert_eq!(sent["thinking"], json!({"type": "adaptive"}));
    assert_eq!(sent["output_config"], json!({"effort": "high"}));
    upstream.reply(Reply::Text("Hello there.".to_owned(), 10, 3));
    for model in &MODELS[1..] {
        let mut next = ask(model, "x");
        next["messages"] = json!([{"role": "user", "content": "x"},
            {"role": "assistant", "content": thoughts}, {"role": "user", "content": "y"}]);
        let answer = app.post(&account.key, MESSAGES, &next).await;
        answer.expect(200);
        let sent = upstream.requests().last().unwrap().body.clone();
        if model.starts_with("anthropic/") {
            assert_eq!(answer.header("x-gensvc-left-out"), "");
            assert_eq!(sent["messages"][1]["content"], thoughts);
        } else {
            assert_eq!(answer.header("x-gensvc-left-out"), "thinking");
            assert!(!sent.to_string().contains("c2ln"), "{sent}");
        }
    }
}

#[sqlx::test]
async fn thoughts_come_back_signed_or_not_at_all(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    upstream.reply(Reply::Status(
        200,
        json!({"id": "msg_1", "type": "message", "role": "assistant",
        "model": "claude-haiku-5-5", "stop_reason": "end_turn",
        "content": [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "text", "text": "Yes."}],
        "usage": {"input_tokens": 10, "output_tokens": 9}}),
    ));
    let first = respond(&app, &account, &asked(MODELS[2], json!("Hi")))
        .await
        .expect(200);
    let output = first["output"].as_array().unwrap();
    assert_eq!(output[0].get("encrypted_content"), None, "{first}");
    upstream.reply(Reply::Text("Hello there.".to_owned(), 10, 3));
    for (id, signed) in [(output[0]["id"].clone(), true), (json!("rs_1"), false)] {
        let mut thought = output[0].clone();
        thought["id"] = id;
        let input = json!([{"role": "user", "content": "Hi"}, thought, output[1],
            {"role": "user", "content": "So?"}]);
        let next = respond(&app, &account, &asked(MODELS[2], input)).await;
        next.expect(200);
        let sent = upstream.requests().last().unwrap().body["messages"][1].to_string();
        assert_eq!(sent.contains("\"signature\":\"c2ln\""), signed, "{sent}");
        assert_eq!(sent.contains("thinking"), signed, "{sent}");
        let left_out = if signed { "" } else { "thinking" };
        assert_eq!(next.header("x-gensvc-left-out"), left_out);
    }
    app.assert_settled().await;
}

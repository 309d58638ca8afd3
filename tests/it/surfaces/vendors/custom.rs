//! Custom tools of a chat, whose input is any text.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    super::{CHAT, MODELS, RESPONSES, ask, error, events, failures, record, with},
    LOCAL, all, calling, sent,
};
use crate::common::{Recorded, Reply, Upstream};

const PATCH: &str = "{}*** Begin\n\"x\"\n";

fn tools() -> Value {
    let format =
        json!({"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /.+/"}});
    json!([
        {"type": "custom", "custom": {"name": "apply.patch", "description": "Patches.", "format": format}},
        {"type": "custom", "custom": {"name": "exec", "format": {"type": "text"}}},
        {"type": "custom", "custom": {"name": "plain"}},
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}},
    ])
}

fn call(id: &str, name: &str, input: &str) -> Value {
    json!({"id": id, "type": "custom", "custom": {"name": name, "input": input}})
}

fn body(model: &str) -> Value {
    let messages = json!([
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": null, "tool_calls": [call("c1", "apply.patch", PATCH)]},
        {"role": "tool", "tool_call_id": "c1", "content": "Patched."},
    ]);
    let choice = json!({"type": "custom", "custom": {"name": "apply.patch"}});
    with(
        ask(model, "x"),
        &json!({"messages": messages, "tools": tools(), "tool_choice": choice}),
    )
}

/// The calls of an answer or of a stream, put together by their indexes.
fn calls(text: &str) -> Vec<Value> {
    if let Ok(body) = serde_json::from_str::<Value>(text) {
        let calls = body["choices"][0]["message"]["tool_calls"].as_array();
        return calls.cloned().unwrap_or_default();
    }
    let mut calls: Vec<Value> = Vec::new();
    for event in events(CHAT, text) {
        let pieces = event["choices"][0]["delta"]["tool_calls"].as_array();
        for piece in pieces.into_iter().flatten() {
            let index = usize::try_from(piece["index"].as_u64().unwrap()).unwrap();
            calls.resize(calls.len().max(index + 1), Value::Null);
            if piece["id"].is_string() {
                assert!(calls[index].is_null(), "{piece}");
                calls[index] = piece.clone();
                calls[index].as_object_mut().unwrap().remove("index");
                continue;
            }
            for (kind, member) in [("function", "arguments"), ("custom", "input")] {
                if let Some(more) = piece[kind][member].as_str() {
                    let all = calls[index][kind][member].as_str().unwrap().to_owned() + more;
                    calls[index][kind][member] = all.into();
                }
            }
        }
    }
    calls
}

/// OpenAI's answer: a function and two custom tools are called.
fn answer(request: &Recorded) -> Reply {
    let name = &request.body["tools"][0]["custom"]["name"];
    let usage = json!({"prompt_tokens": 9, "completion_tokens": 3});
    let function =
        json!({"id": "c2", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let calls = json!([
        function,
        call("c3", name.as_str().unwrap(), PATCH),
        call("c4", "exec", "")
    ]);
    if request.body["stream"] != true {
        let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
        let choice = json!({"index": 0, "message": message, "finish_reason": "tool_calls"});
        return Reply::Status(200, json!({"id": "c", "choices": [choice], "usage": usage}));
    }
    let mut deltas = Vec::new();
    for (index, call) in (0..).zip(calls.as_array().unwrap()) {
        let mut begun = with(call.clone(), &json!({"index": index}));
        let (kind, member) = if call["type"] == "custom" {
            ("custom", "input")
        } else {
            ("function", "arguments")
        };
        begun[kind][member] = json!("");
        deltas.push(begun);
        for piece in call[kind][member]
            .as_str()
            .unwrap()
            .split_inclusive(['}', ' ', '"'])
        {
            deltas.push(json!({"index": index, kind: {member: piece}}));
        }
    }
    let chunk = |delta: Value, reason: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
        format!("data: {}\n\n", json!({"id": "c", "choices": [choice]}))
    };
    let mut text: String = deltas
        .into_iter()
        .map(|call| chunk(json!({"tool_calls": [call]}), Value::Null))
        .collect();
    text += &chunk(json!({}), json!("tool_calls"));
    let end = json!({"id": "c", "choices": [], "usage": usage}).to_string();
    text.extend(["data: ", &end, "\n\ndata: [DONE]\n\n"]);
    Reply::Raw(200, "text/event-stream", text)
}

#[sqlx::test]
async fn they_pass_to_openai(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    upstream.play(answer);
    let expected = [
        json!({"id": "c2", "type": "function", "function": {"name": "f", "arguments": "{}"}}),
        call("c3", "apply.patch", PATCH),
        call("c4", "exec", ""),
    ];
    for stream in [false, true] {
        let body = with(body(MODELS[1]), &json!({ "stream": stream }));
        let key = [("idempotency-key", if stream { "s" } else { "w" })];
        for replayed in [false, true] {
            let answer = app.post_with(&account.key, CHAT, &key, &body).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            assert_eq!(answer.header("idempotent-replayed") == "true", replayed);
            assert_eq!(calls(&answer.text), expected, "{}", answer.text);
            assert!(answer.text.contains(r#""finish_reason":"tool_calls""#));
            let record = record(&app, &account, &answer).await;
            let of =
                |name: &str| -> f64 { record["credits"][name].as_str().unwrap().parse().unwrap() };
            assert!(of("charged") <= of("estimated"));
        }
        // Only the name that OpenAI does not accept is replaced.
        let sent = upstream.requests().pop().unwrap().body;
        let name = sent["tools"][0]["custom"]["name"].as_str().unwrap();
        assert!(name.starts_with("apply_patch_"), "{name}");
        let text = |value: &Value| value.to_string().replace(name, "apply.patch");
        for member in ["tools", "tool_choice", "messages"] {
            assert_eq!(text(&sent[member]), body[member].to_string());
        }
    }
    assert_eq!(upstream.count(), 2);
    app.assert_settled().await;
}

#[sqlx::test]
async fn they_are_functions_for_other_vendors(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    upstream.play(|request| calling(&request.path, &request.body, 1));
    for model in all().into_iter().filter(|model| *model != MODELS[1]) {
        for stream in [false, true] {
            let body = with(body(model), &json!({ "stream": stream }));
            let answer = app.post(&account.key, CHAT, &body).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            let found = calls(&answer.text);
            assert_eq!(found.len(), 1, "{}", answer.text);
            // The model wrote other arguments than that of the tool.
            assert_eq!(found[0]["type"], "custom");
            let custom = json!({"name": "apply.patch", "input": "{\"a\":1}"});
            assert_eq!(found[0]["custom"], custom);
            let sent = upstream.requests().pop().unwrap().body.to_string();
            assert!(!sent.contains("\"custom\""), "{sent}");
            assert!(sent.contains("start: /.+/") && sent.contains("Patched."));
        }
    }
    // A call of an earlier turn without the tools.
    upstream.play(|_| Reply::Text("Hi".to_owned(), 9, 3));
    let mut alone = body("local/m");
    for name in ["tools", "tool_choice"] {
        alone.as_object_mut().unwrap().remove(name);
    }
    let sent = sent(&app, &upstream, &account, CHAT, &alone).await;
    let call = &sent["messages"][1]["tool_calls"][0];
    assert_eq!(call["type"], "function");
    let arguments = call["function"]["arguments"].as_str().unwrap();
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    assert_eq!(arguments, json!({ "input": PATCH }));
    app.assert_settled().await;
}

/// A call of the first tool that the output limit cuts within an escape.
fn cut(request: &Recorded) -> Reply {
    const ARGUMENTS: [&str; 2] = ["{\"input\": \"a\\n\\", "\"b\\\" \\u00"];
    let streamed = request.body["stream"] == true;
    let event = |event: Value| {
        let kind = event["type"].as_str().unwrap_or("message");
        format!("event: {kind}\ndata: {event}\n\n")
    };
    if request.path.contains("/messages") {
        let name = &request.body["tools"][0]["name"];
        let call = json!({"type": "tool_use", "id": "t1", "name": name, "input": {}});
        let usage = json!({"input_tokens": 9, "output_tokens": 3});
        let piece = |piece: &str| {
            json!({"type": "content_block_delta", "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": piece}})
        };
        let events = [
            json!({"type": "message_start", "message": {"usage": usage}}),
            json!({"type": "content_block_start", "index": 0, "content_block": call}),
            piece(ARGUMENTS[0]),
            piece(ARGUMENTS[1]),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": usage}),
            json!({"type": "message_stop"}),
        ];
        return Reply::Raw(200, "text/event-stream", events.map(event).concat());
    }
    let name = &request.body["tools"][0]["function"]["name"];
    let usage = json!({"prompt_tokens": 9, "completion_tokens": 3});
    let choice = |member: &str, arguments: &str, reason: Value| {
        let call = json!({"index": 0, "id": "c1", "type": "function",
            "function": {"name": name, "arguments": arguments}});
        json!({"choices": [{member: {"role": "assistant", "tool_calls": [call]},
            "finish_reason": reason}], "usage": usage})
    };
    if !streamed {
        let whole = choice("message", &ARGUMENTS.concat(), json!("length"));
        return Reply::Status(200, whole);
    }
    let more = json!({"index": 0, "function": {"arguments": ARGUMENTS[1]}});
    let more = json!({"choices": [{"delta": {"tool_calls": [more]}, "finish_reason": "length"}],
        "usage": usage});
    let events = [choice("delta", ARGUMENTS[0], Value::Null), more];
    Reply::Raw(200, "text/event-stream", events.map(event).concat())
}

#[sqlx::test]
async fn a_cut_input_is_unescaped_up_to_its_cut(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    upstream.play(cut);
    for (model, stream) in [(LOCAL, false), (LOCAL, true), (MODELS[2], true)] {
        let more = json!({"tools": tools(), "stream": stream});
        let answer = app
            .post(&account.key, CHAT, &with(ask(model, "x"), &more))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let custom = json!({"name": "apply.patch", "input": "a\n\"b\" "});
        assert_eq!(calls(&answer.text)[0]["custom"], custom, "{}", answer.text);
        let body = json!({"model": model, "input": "x", "stream": stream,
            "tools": [{"type": "custom", "name": "patch"}]});
        let answer = app.post(&account.key, RESPONSES, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let response = if stream {
            events(RESPONSES, &answer.text).pop().unwrap()["response"].take()
        } else {
            answer.json()
        };
        assert_eq!(response["output"][0]["input"], "a\n\"b\" ", "{response}");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn an_editors_responses_body_has_them_too(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    let body = json!({"model": MODELS[0], "input": [{"role": "user", "content": "[[tool:patch]]"}],
        "tools": [{"type": "custom", "name": "patch"}]});
    for stream in [false, true] {
        let body = with(body.clone(), &json!({ "stream": stream }));
        let answer = app.post(&account.key, CHAT, &body).await;
        let found = calls(&answer.text);
        assert_eq!(
            found[0]["custom"],
            json!({"name": "patch", "input": "sandbox"})
        );
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn wrong_ones_are_refused_by_name(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    let custom = json!({"type": "custom", "custom": {"name": "f"}});
    let function = json!({"type": "function", "function": {"name": "f"}});
    let grammar =
        |format: Value| json!({"type": "custom", "custom": {"name": "f", "format": format}});
    for (tools, param) in [
        (json!([{"type": "custom"}]), "tools[0].custom"),
        (json!([with(custom.clone(), &function)]), "tools[0].custom"),
        (json!([custom, function]), "tools"),
        (
            json!([grammar(json!({"type": "grammar"}))]),
            "tools[0].custom.format.grammar",
        ),
        (
            json!([grammar(
                json!({"type": "grammar", "grammar": {"syntax": "peg", "definition": "x"}})
            )]),
            "tools[0].custom.format.grammar.syntax",
        ),
    ] {
        let body = with(ask(MODELS[0], "x"), &json!({ "tools": tools }));
        let refused = app.post(&account.key, CHAT, &body).await;
        let found = refused.expect(400)["error"].clone();
        assert_eq!(found["param"], param, "{found}");
    }
    let choice = json!({"type": "custom", "custom": {"name": "g"}});
    let body = with(
        ask(MODELS[0], "x"),
        &json!({"tools": [custom], "tool_choice": choice}),
    );
    let refused = app.post(&account.key, CHAT, &body).await;
    let refused = error(CHAT, &refused, 400, "unsupported_parameter");
    assert_eq!(refused["param"], "tool_choice");
    assert_eq!(upstream.count(), 0);
}

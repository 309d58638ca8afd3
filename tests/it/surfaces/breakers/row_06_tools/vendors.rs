//! Calls by every vendor, and the results that it gets.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    super::{CHAT, MODELS, ROUTES, ask, events, parts, record, with},
    answered, calls, gathered, reason, schema, tools,
};
use crate::common::{Recorded, Reply, TestApp, Upstream};

/// An answer of two calls, in the format of the path, the second without arguments.
fn two_calls(request: &Recorded) -> Reply {
    let path = &request.path;
    let streamed = request.body["stream"] == true || path.contains("streamGenerateContent");
    let arguments = r#"{"city":"Bonn","days":3}"#;
    let data = |value: &Value| format!("data: {value}\n\n");
    let reply = |events: &[Value], named: bool| {
        let event = |value: &Value| {
            let name = value["type"].as_str().filter(|_| named);
            name.map_or_else(String::new, |name| format!("event: {name}\n")) + &data(value)
        };
        Reply::Raw(200, "text/event-stream", events.iter().map(event).collect())
    };
    if path.starts_with("/openai") {
        let usage = json!({"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29});
        let call = |index: usize, arguments: &str| {
            let name = ["weather", "time"][index];
            json!({"index": index, "id": format!("call_{name}"), "type": "function",
                "function": {"name": name, "arguments": arguments}})
        };
        if !streamed {
            return Reply::Status(
                200,
                json!({"id": "c", "model": "m", "usage": usage,
                "choices": [{"index": 0, "message": {"role": "assistant", "content": null,
                    "tool_calls": [call(0, arguments), call(1, "")]}, "finish_reason": "tool_calls"}]}),
            );
        }
        let chunk = |delta: Value, finish: Value| json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
        let more = |piece: &str| {
            let call = json!({"index": 0, "function": {"arguments": piece}});
            chunk(json!({"tool_calls": [call]}), Value::Null)
        };
        let events = [
            chunk(json!({"role": "assistant", "content": null}), Value::Null),
            chunk(json!({"tool_calls": [call(0, "")]}), Value::Null),
            more(&arguments[..9]),
            more(&arguments[9..]),
            chunk(json!({"tool_calls": [call(1, "")]}), Value::Null),
            chunk(json!({}), json!("tool_calls")),
            json!({"id": "c", "choices": [], "usage": usage}),
        ];
        return reply(&events, false);
    }
    if path.starts_with("/anthropic") {
        let usage = json!({"input_tokens": 20, "output_tokens": 9});
        let input: Value = serde_json::from_str(arguments).unwrap();
        let block = |name: &str, input: Value| json!({"type": "tool_use", "id": format!("call_{name}"), "name": name, "input": input});
        if !streamed {
            let content = [block("weather", input), block("time", json!({}))];
            return Reply::Status(
                200,
                json!({"id": "m", "type": "message", "model": "m",
                "content": content, "stop_reason": "tool_use", "usage": usage}),
            );
        }
        let start = |index: usize, name: &str| {
            let block = block(name, json!({}));
            json!({"type": "content_block_start", "index": index, "content_block": block})
        };
        let more = |piece: &str| {
            let delta = json!({"type": "input_json_delta", "partial_json": piece});
            json!({"type": "content_block_delta", "index": 0, "delta": delta})
        };
        let stop = |index: usize| json!({"type": "content_block_stop", "index": index});
        let events = [
            json!({"type": "message_start", "message": {"id": "m", "type": "message", "model": "m",
                "content": [], "usage": {"input_tokens": 20, "output_tokens": 1}}}),
            start(0, "weather"),
            more(""),
            more(&arguments[..9]),
            more(&arguments[9..]),
            stop(0),
            start(1, "time"),
            stop(1),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage}),
            json!({"type": "message_stop"}),
        ];
        return reply(&events, true);
    }
    let input: Value = serde_json::from_str(arguments).unwrap();
    let parts = json!([{"functionCall": {"name": "weather", "args": input}, "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "time"}}]);
    let body = json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 9}});
    if streamed {
        return reply(&[body], false);
    }
    Reply::Status(200, body)
}

#[sqlx::test]
async fn every_vendor_calls_and_gets_the_results(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for path in ROUTES {
        for model in &MODELS[1..] {
            let body = with(ask(model, "x"), &tools(path));
            let mut found = Vec::new();
            for stream in [false, true] {
                upstream.play(two_calls);
                let body = with(body.clone(), &json!({ "stream": stream }));
                let key = format!("{path}-{model}-{stream}");
                let headers = [("idempotency-key", key.as_str())];
                let answer = app.post_with(&account.key, path, &headers, &body).await;
                let whole = if stream {
                    gathered(path, &events(path, &answer.text))
                } else {
                    answer.expect(200)
                };
                let named: Vec<_> = calls(path, &whole)
                    .into_iter()
                    .map(|(_, name, arguments)| (name, arguments))
                    .collect();
                let expected = [
                    ("weather".to_owned(), json!({"city": "Bonn", "days": 3})),
                    ("time".to_owned(), json!({})),
                ];
                assert_eq!(named, expected, "{key}");
                let why = if path == CHAT {
                    "tool_calls"
                } else {
                    "tool_use"
                };
                assert_eq!(reason(path, &whole), why);
                let record = record(&app, &account, &answer).await;
                assert_eq!(record["usage"]["output_tokens"], 9);
                // The same calls with the same ids, once more.
                let before = upstream.count();
                let again = app.post_with(&account.key, path, &headers, &body).await;
                let again = if stream {
                    gathered(path, &events(path, &again.text))
                } else {
                    again.expect(200)
                };
                assert_eq!(calls(path, &again), calls(path, &whole));
                assert_eq!(reason(path, &again), why);
                assert_eq!(upstream.count(), before);
                found.push(whole);
            }
            let sent = upstream.requests().last().unwrap().body.clone();
            sent_tools(model, &sent);
            upstream.reply(Reply::Text("Warm, and noon.".to_owned(), 40, 4));
            let next = answered(path, body, &found[0], &["20 degrees", "noon"]);
            let answer = app.post(&account.key, path, &next).await.expect(200);
            assert_eq!(parts(path, &answer).0, "Warm, and noon.");
            sent_results(path, model, &upstream.requests().last().unwrap().body);
        }
    }
    app.assert_settled().await;
}

/// The functions as each vendor knows them.
fn sent_tools(model: &str, sent: &Value) {
    let names = ["weather", "time"];
    let tools: Vec<Value> = if model.starts_with("openai/") {
        let tool = |name| {
            json!({"type": "function", "function": {"name": name, "description": "Of a city.",
                "parameters": schema()}})
        };
        names.map(tool).into()
    } else if model.starts_with("anthropic/") {
        let tool =
            |name| json!({"name": name, "description": "Of a city.", "input_schema": schema()});
        names.map(tool).into()
    } else {
        let tool = |name| json!({"name": name, "description": "Of a city.", "parametersJsonSchema": schema()});
        vec![json!({ "functionDeclarations": names.map(tool) })]
    };
    assert_eq!(sent["tools"], json!(tools));
}

/// Both calls and both results as each vendor knows them.
fn sent_results(path: &str, model: &str, sent: &Value) {
    if model.starts_with("openai/") {
        let messages = sent["messages"].as_array().unwrap();
        let [_, calls, first, second] = &messages[..] else {
            panic!("{messages:?}")
        };
        assert!(calls["content"].is_null(), "{calls}");
        assert_eq!(
            calls["tool_calls"][1]["function"],
            json!({"name": "time", "arguments": "{}"})
        );
        for (result, name, text) in [(first, "weather", "20 degrees"), (second, "time", "noon")] {
            let id = format!("call_{name}");
            assert_eq!(
                *result,
                json!({"role": "tool", "tool_call_id": id, "content": text})
            );
        }
    } else if model.starts_with("anthropic/") {
        let calls = &sent["messages"][1]["content"];
        assert_eq!(calls[0]["input"], json!({"city": "Bonn", "days": 3}));
        assert_eq!(
            calls[1],
            json!({"type": "tool_use", "id": "call_time", "name": "time", "input": {}})
        );
        // What is of its own dialect goes as it came.
        let text = |text: &str| match path {
            CHAT => json!([{"type": "text", "text": text}]),
            _ => json!(text),
        };
        let result = |name: &str, said: &str| json!({"type": "tool_result", "tool_use_id": format!("call_{name}"), "content": text(said)});
        let results = json!([result("weather", "20 degrees"), result("time", "noon")]);
        assert_eq!(
            sent["messages"][2],
            json!({"role": "user", "content": results})
        );
    } else {
        let calls = &sent["contents"][1]["parts"];
        // Unchanged, in either dialect.
        assert_eq!(calls[0]["thoughtSignature"], "c2ln");
        assert_eq!(
            calls[0]["functionCall"]["args"],
            json!({"city": "Bonn", "days": 3})
        );
        assert_eq!(calls[1].get("thoughtSignature"), None);
        let results = &sent["contents"][2]["parts"];
        let response = &results[0]["functionResponse"];
        assert_eq!(response["name"], "weather");
        assert_eq!(response["id"], calls[0]["functionCall"]["id"]);
        assert_eq!(response["response"], json!({"output": "20 degrees"}));
    }
}

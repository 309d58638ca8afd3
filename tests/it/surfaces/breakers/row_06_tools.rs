//! Calls of tools and their results, in both dialects.

mod shaped;
mod vendors;

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{CHAT, MODELS, ROUTES, ask, events, with};
use crate::common::TestApp;

fn schema() -> Value {
    json!({"type": "object", "required": ["city", "days"],
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 2}}})
}

/// Two functions, in the dialect of the path.
fn tools(path: &str) -> Value {
    let names = ["weather", "time"].into_iter();
    let tools = names.map(|name| {
        if path == CHAT {
            json!({"type": "function", "function": {"name": name, "description": "Of a city.",
                "parameters": schema()}})
        } else {
            json!({"name": name, "description": "Of a city.", "input_schema": schema()})
        }
    });
    json!({ "tools": tools.collect::<Value>() })
}

/// The calls of an answer: id, name and arguments.
fn calls(path: &str, body: &Value) -> Vec<(String, String, Value)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    if path == CHAT {
        let calls = body["choices"][0]["message"]["tool_calls"].as_array();
        let calls = calls.into_iter().flatten().map(|call| {
            assert_eq!(call["type"], "function");
            let function = &call["function"];
            let arguments = serde_json::from_str(function["arguments"].as_str().unwrap());
            (
                text(&call["id"]),
                text(&function["name"]),
                arguments.unwrap(),
            )
        });
        return calls.collect();
    }
    let blocks = body["content"].as_array().unwrap().iter();
    let uses = blocks.filter(|block| block["type"] == "tool_use");
    let calls = uses.map(|block| {
        (
            text(&block["id"]),
            text(&block["name"]),
            block["input"].clone(),
        )
    });
    calls.collect()
}

/// What a client puts together of a stream, as a body that was not streamed.
fn gathered(path: &str, events: &[Value]) -> Value {
    if path == CHAT {
        let mut calls: Vec<Value> = Vec::new();
        let mut reason = Value::Null;
        for event in &events[..events.len() - 1] {
            let Some(choice) = event["choices"].get(0) else {
                continue;
            };
            for piece in choice["delta"]["tool_calls"]
                .as_array()
                .into_iter()
                .flatten()
            {
                let index = usize::try_from(piece["index"].as_u64().unwrap()).unwrap();
                if index == calls.len() {
                    let mut begun = piece.clone();
                    begun.as_object_mut().unwrap().remove("index");
                    calls.push(begun);
                    continue;
                }
                // Each index is one call, with its id, name and type once.
                assert_eq!(index + 1, calls.len());
                assert!(piece.get("id").is_none() && piece["function"].get("name").is_none());
                let arguments = &mut calls[index]["function"]["arguments"];
                let more = piece["function"]["arguments"].as_str().unwrap();
                *arguments = json!(arguments.as_str().unwrap().to_owned() + more);
            }
            if choice["finish_reason"].is_string() {
                reason = choice["finish_reason"].clone();
            }
        }
        return json!({"choices": [{"message": {"tool_calls": calls}, "finish_reason": reason}]});
    }
    let mut content: Vec<Value> = Vec::new();
    let mut pieces = String::new();
    let mut reason = Value::Null;
    for event in events {
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert_eq!(event["index"], content.len());
                content.push(event["content_block"].clone());
                pieces.clear();
            }
            "content_block_delta" => {
                pieces += event["delta"]["partial_json"].as_str().unwrap_or_default();
            }
            "content_block_stop" if !pieces.is_empty() => {
                content.last_mut().unwrap()["input"] = serde_json::from_str(&pieces).unwrap();
            }
            "message_delta" => reason = event["delta"]["stop_reason"].clone(),
            _ => {}
        }
    }
    json!({"content": content, "stop_reason": reason})
}

fn reason(path: &str, body: &Value) -> Value {
    if path == CHAT {
        body["choices"][0]["finish_reason"].clone()
    } else {
        body["stop_reason"].clone()
    }
}

/// The next turn: the answer brought back, with a result for each of its calls.
fn answered(path: &str, mut asked: Value, answer: &Value, results: &[&str]) -> Value {
    let ids = calls(path, answer).into_iter().map(|(id, ..)| id);
    let messages = asked["messages"].as_array_mut().unwrap();
    let results = ids.zip(results);
    if path == CHAT {
        messages.push(answer["choices"][0]["message"].clone());
        messages.extend(
            results.map(|(id, text)| json!({"role": "tool", "tool_call_id": id, "content": text})),
        );
    } else {
        messages.push(json!({"role": "assistant", "content": answer["content"]}));
        let blocks = results
            .map(|(id, text)| json!({"type": "tool_result", "tool_use_id": id, "content": text}));
        messages.push(json!({"role": "user", "content": blocks.collect::<Value>()}));
    }
    asked
}

#[sqlx::test]
async fn the_sandbox_calls_what_it_is_told_to(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let expected = json!({"city": "sandbox", "days": 2});
    for path in ROUTES {
        let forced = if path == CHAT {
            json!({"tool_choice": {"type": "function", "function": {"name": "time"}}})
        } else {
            json!({"tool_choice": {"type": "tool", "name": "time"}})
        };
        let (none, any) = if path == CHAT {
            (
                json!({"tool_choice": "none"}),
                json!({"tool_choice": "required"}),
            )
        } else {
            (
                json!({"tool_choice": {"type": "none"}}),
                json!({"tool_choice": {"type": "any"}}),
            )
        };
        let serial = if path == CHAT {
            json!({"parallel_tool_calls": false})
        } else {
            json!({"tool_choice": {"type": "auto", "disable_parallel_tool_use": true}})
        };
        let nothing = json!({});
        let both = "[[tool:weather]] [[tool:time]]";
        for (prompt, more, names) in [
            ("x", &nothing, &[][..]),
            ("[[tool]] x", &nothing, &["weather"]),
            ("[[tool:time]] x", &nothing, &["time"]),
            (both, &nothing, &["weather", "time"]),
            (both, &serial, &["weather"]),
            ("[[tool:other]] x", &nothing, &[]),
            ("x", &forced, &["time"]),
            ("x", &any, &["weather"]),
            ("[[tool]] x", &none, &[]),
        ] {
            let body = with(with(ask(MODELS[0], prompt), &tools(path)), more);
            let answer = app.post(&account.key, path, &body).await;
            let whole = answer.expect(200);
            let found = calls(path, &whole);
            let found_names: Vec<&str> = found.iter().map(|(_, name, _)| name.as_str()).collect();
            assert_eq!(found_names, names, "{prompt} {more}");
            assert!(found.iter().all(|(.., arguments)| *arguments == expected));
            let mut ids: Vec<&String> = found.iter().map(|(id, ..)| id).collect();
            ids.dedup();
            assert_eq!(ids.len(), names.len());
            let stream = with(body.clone(), &json!({"stream": true}));
            let streamed = app.post(&account.key, path, &stream).await;
            let streamed = gathered(path, &events(path, &streamed.text));
            assert_eq!(calls(path, &streamed), found);
            assert_eq!(reason(path, &streamed), reason(path, &whole));
            if names.is_empty() {
                continue;
            }
            let why = if path == CHAT {
                "tool_calls"
            } else {
                "tool_use"
            };
            assert_eq!(reason(path, &whole), why);
            let next = answered(path, body, &whole, &["twenty degrees", "noon"]);
            let next = app.post(&account.key, path, &next).await.expect(200);
            let text = super::parts(path, &next).0;
            assert!(
                text.contains("twenty degrees") && text.contains(names[0]),
                "{text}"
            );
            assert!(calls(path, &next).is_empty());
        }
    }
    app.assert_settled().await;
}

/// The helpers for streams of OpenAI's package read arguments, and bring back what they read.
#[sqlx::test]
async fn what_a_package_adds_to_a_call_may_come_back(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let function = json!({"name": "time", "arguments": "{}", "parsed_arguments": {}});
    let call = json!({"index": 0, "id": "c", "type": "function", "function": function});
    let body = with(
        ask(MODELS[0], "x"),
        &json!({"messages": [{"role": "user", "content": "x"},
            {"role": "assistant", "content": null, "parsed": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "noon"}]}),
    );
    let answer = app.post(&account.key, CHAT, &body).await;
    assert!(super::parts(CHAT, &answer.expect(200)).0.contains("noon"));
}

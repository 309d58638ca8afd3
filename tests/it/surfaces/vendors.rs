//! Requests that a vendor would refuse as they came: its strict fake accepts what is made of them.

mod custom;
mod messages;
mod roles;
mod tools;

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{CHAT, MESSAGES, MODELS, RESPONSES, ask, error, events, failures, with};
use crate::common::{Account, Reply, TestApp, Upstream};

const LOCAL: &str = "local/m";

/// Text models of the vendors that do not get a body of `path` as it came.
fn others(path: &str) -> Vec<&'static str> {
    match path {
        CHAT => vec![MODELS[2], MODELS[3]],
        MESSAGES => vec![MODELS[1], MODELS[3], LOCAL],
        _ => vec![MODELS[1], MODELS[2], MODELS[3], LOCAL],
    }
}

/// Text models of all vendors.
fn all() -> [&'static str; 4] {
    [MODELS[1], MODELS[2], MODELS[3], LOCAL]
}

fn tool(path: &str, name: &str, schema: &Value) -> Value {
    match path {
        CHAT => json!({"type": "function", "function": {"name": name, "parameters": schema}}),
        RESPONSES => json!({"type": "function", "name": name, "parameters": schema}),
        _ => json!({"name": name, "input_schema": schema}),
    }
}

/// A dialogue with a call of each name and id, and its result.
fn called(path: &str, model: &str, calls: &[(&str, &str, &str)]) -> Value {
    if path == RESPONSES {
        let mut input = vec![json!({"role": "user", "content": "x"})];
        for (id, name, arguments) in calls {
            input.push(json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments}));
            input.push(json!({"type": "function_call_output", "call_id": id, "output": "1"}));
        }
        return json!({"model": model, "input": input, "max_output_tokens": 64});
    }
    let mut messages = vec![json!({"role": "user", "content": "x"})];
    for (id, name, arguments) in calls {
        if path == CHAT {
            let call = json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
            messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
            messages.push(json!({"role": "tool", "tool_call_id": id, "content": "1"}));
        } else {
            let input: Value = serde_json::from_str(arguments).unwrap();
            let call = json!({"type": "tool_use", "id": id, "name": name, "input": input});
            let result = json!({"type": "tool_result", "tool_use_id": id, "content": "1"});
            messages.push(json!({"role": "assistant", "content": [call]}));
            messages.push(json!({"role": "user", "content": [result]}));
        }
    }
    with(ask(model, "x"), &json!({ "messages": messages }))
}

/// An answer with a call of the first function that it was sent, in the format of the path.
fn calling(path: &str, body: &Value, times: usize) -> Reply {
    let streamed = body["stream"] == true || path.contains("streamGenerateContent");
    let stream = |events: &[Value]| {
        let event = |event: &Value| {
            let name = event["type"].as_str();
            let name = name.map_or_else(String::new, |name| format!("event: {name}\n"));
            format!("{name}data: {event}\n\n")
        };
        Reply::Raw(200, "text/event-stream", events.iter().map(event).collect())
    };
    if path.contains("/messages") {
        let name = &body["tools"][0]["name"];
        let call = json!({"type": "tool_use", "id": "t1", "name": name, "input": {"a": 1}});
        let usage = json!({"input_tokens": 9, "output_tokens": 3});
        if !streamed {
            let message = json!({"content": [call], "stop_reason": "tool_use", "usage": usage});
            return Reply::Status(200, message);
        }
        let delta =
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage});
        return stream(&[
            json!({"type": "message_start", "message": {"usage": usage}}),
            json!({"type": "content_block_start", "index": 0, "content_block": call}),
            json!({"type": "content_block_stop", "index": 0}),
            delta,
            json!({"type": "message_stop"}),
        ]);
    }
    if path.contains("enerateContent") {
        let name = &body["tools"][0]["functionDeclarations"][0]["name"];
        let call = json!({"functionCall": {"name": name, "args": {"a": 1}}});
        let answer = json!({"candidates": [{"content": {"parts": vec![call; times]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 3}});
        return if streamed {
            stream(&[answer])
        } else {
            Reply::Status(200, answer)
        };
    }
    let name = &body["tools"][0]["function"]["name"];
    let function = json!({"name": name, "arguments": "{\"a\":1}"});
    let call = json!({"index": 0, "id": "c1", "type": "function", "function": function});
    let usage = json!({"prompt_tokens": 9, "completion_tokens": 3});
    let choice = |member: &str| {
        json!({"choices": [{member: {"role": "assistant", "tool_calls": [call]},
            "finish_reason": "tool_calls"}], "usage": usage})
    };
    if streamed {
        stream(&[choice("delta")])
    } else {
        Reply::Status(200, choice("message"))
    }
}

/// The names of the functions that an answer calls.
fn names(path: &str, text: &str) -> Vec<String> {
    let bodies = match serde_json::from_str::<Value>(text) {
        Ok(body) => vec![body],
        Err(_) => events(path, text),
    };
    let mut names = Vec::new();
    for body in bodies {
        let found: Vec<&Value> = match path {
            CHAT => ["message", "delta"]
                .iter()
                .filter_map(|member| body["choices"][0][member]["tool_calls"].as_array())
                .flatten()
                .map(|call| &call["function"]["name"])
                .collect(),
            RESPONSES if body["type"] == "response.output_item.done" => vec![&body["item"]["name"]],
            RESPONSES => body["output"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|item| &item["name"])
                .collect(),
            _ if body["type"] == "content_block_start" => vec![&body["content_block"]["name"]],
            _ => body["content"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|block| &block["name"])
                .collect(),
        };
        names.extend(
            found
                .into_iter()
                .filter_map(Value::as_str)
                .map(str::to_owned),
        );
    }
    names
}

async fn sent(
    app: &TestApp,
    upstream: &Upstream,
    account: &Account,
    path: &str,
    body: &Value,
) -> Value {
    app.post(&account.key, path, body).await.expect(200);
    upstream.requests().pop().unwrap().body
}

#[sqlx::test]
async fn names_and_ids_are_mapped_and_mapped_back(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    upstream.play(|request| calling(&request.path, &request.body, 1));
    let long = format!("mcp.server.{}", "tool_".repeat(14));
    let longest = "y".repeat(130);
    let long_id = "i".repeat(50);
    let schema = json!({"type": "object", "properties": {}});
    for name in [
        &long,
        &longest,
        "a/b c",
        "naïve",
        "1st:step",
        "plain-name_2",
    ] {
        for path in [CHAT, RESPONSES, MESSAGES] {
            for model in all() {
                for stream in [false, true] {
                    let history = [("functions.f:0", name, "{}"), (&*long_id, "gone.now", "{}")];
                    let choice = match path {
                        CHAT => json!({"type": "function", "function": {"name": name}}),
                        RESPONSES => json!({"type": "function", "name": name}),
                        _ => json!({"type": "tool", "name": name}),
                    };
                    let body = with(
                        called(path, model, &history),
                        &json!({"stream": stream, "tool_choice": choice,
                            "tools": [tool(path, name, &schema), tool(path, "a_b_c", &schema)]}),
                    );
                    let answer = app.post(&account.key, path, &body).await;
                    assert_eq!(answer.status, 200, "{}", answer.text);
                    let called = names(path, &answer.text);
                    assert!(
                        !called.is_empty() && called.iter().all(|called| called == name),
                        "{called:?}"
                    );
                    // The same in the next turn.
                    let first = upstream.requests().pop().unwrap().body;
                    app.post(&account.key, path, &body).await;
                    assert_eq!(first, upstream.requests().pop().unwrap().body);
                    let is_sent = first.to_string().contains(&format!("\"{name}\""));
                    assert_eq!(is_sent, name == "plain-name_2", "{model} {name} {first}");
                }
            }
        }
    }
    // Nothing else of a body that is passed through changes.
    upstream.be_lenient();
    let more = json!({"strict": false, "x_new": [1]});
    let tools = json!({"tools": [with(tool(CHAT, "a.b", &schema), &more)], "x_new": {"a.b": 1}});
    let body = with(called(CHAT, MODELS[1], &[("f:0", "a.b", "{}")]), &tools);
    let passed = sent(&app, &upstream, &account, CHAT, &body).await;
    let name = passed["tools"][0]["function"]["name"].as_str().unwrap();
    assert_ne!(name, "a.b");
    for member in ["messages", "tools", "x_new"] {
        let mapped = body[member]
            .to_string()
            .replace("\"name\":\"a.b\"", &format!("\"name\":\"{name}\""));
        assert_eq!(passed[member].to_string(), mapped);
    }
    upstream.reply(Reply::Text("x".to_owned(), 1, 1));
    app.assert_settled().await;
}

#[sqlx::test]
async fn calls_with_one_id_are_told_apart(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    for path in [CHAT, RESPONSES] {
        for model in others(path) {
            let history = [
                ("call_0", "f", "{}"),
                ("call_0", "g", "{}"),
                ("f:1", "f", "{}"),
            ];
            let tools: Vec<Value> = ["f", "g"]
                .iter()
                .map(|name| tool(path, name, &json!({})))
                .collect();
            let body = with(called(path, model, &history), &json!({ "tools": tools }));
            let sent = sent(&app, &upstream, &account, path, &body).await;
            if model == MODELS[3] {
                let names: Vec<_> = sent["contents"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter_map(|content| content["parts"][0]["functionResponse"]["name"].as_str())
                    .collect();
                assert_eq!(names, ["f", "g", "f"]);
            }
        }
    }
}

#[sqlx::test]
async fn results_are_with_their_calls(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let calls = json!({"role": "assistant", "content": null, "tool_calls": [call("c"), call("d")]});
    // Some agents name the function, too.
    let result =
        |id: &str| json!({"role": "tool", "tool_call_id": id, "name": "f", "content": "1"});
    let said = |role: &str| json!({"role": role, "content": "x"});
    let (user, system, assistant) = (said("user"), said("system"), said("assistant"));
    let twice = vec![calls.clone(), result("c"), result("c"), result("d")];
    for (messages, message) in [
        (
            vec![calls.clone(), result("d"), result("c"), user.clone()],
            None,
        ),
        (
            vec![calls.clone(), result("c"), user.clone(), result("d")],
            None,
        ),
        (vec![calls.clone(), system, result("c"), result("d")], None),
        (
            vec![calls.clone(), assistant.clone(), result("c"), result("d")],
            None,
        ),
        // An answer before the result.
        (
            vec![
                calls.clone(),
                user.clone(),
                assistant.clone(),
                result("c"),
                result("d"),
            ],
            Some("has a call of a tool without its result"),
        ),
        (
            vec![calls.clone(), result("c"), assistant, result("d")],
            Some("has a call of a tool without its result"),
        ),
        (
            vec![calls.clone(), result("d"), user.clone()],
            Some("has a call of a tool without its result"),
        ),
        (
            vec![calls.clone()],
            Some("has a call of a tool without its result"),
        ),
        (
            twice.clone(),
            Some("has the result of a call that is not there"),
        ),
        (
            vec![result("c")],
            Some("has the result of a call that is not there"),
        ),
    ] {
        let messages = [vec![user.clone()], messages].concat();
        for model in [MODELS[2], MODELS[3]] {
            let more = json!({"messages": messages, "tools": [tool(CHAT, "f", &json!({}))]});
            let body = with(ask(model, "x"), &more);
            let answer = app.post(&account.key, CHAT, &body).await;
            match message {
                None => {
                    answer.expect(200);
                }
                Some(expected) => {
                    let refused = error(CHAT, &answer, 400, "unsupported_parameter");
                    let message = refused["message"].as_str().unwrap();
                    assert!(message.contains(expected), "{message}");
                }
            }
        }
    }
    // Chat servers judge a second result themselves; that of the test refuses it.
    upstream.be_lenient();
    let messages = [vec![user], twice].concat();
    let more = json!({"messages": messages, "tools": [tool(CHAT, "f", &json!({}))]});
    let body = with(ask(LOCAL, "x"), &more);
    app.post(&account.key, CHAT, &body).await.expect(200);
    let messages = json!([
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "1"},
            {"type": "tool_result", "tool_use_id": "c", "content": "2"}]}]);
    let more = json!({"messages": messages, "tools": [tool(MESSAGES, "f", &json!({}))]});
    let body = with(ask(LOCAL, "x"), &more);
    app.post(&account.key, MESSAGES, &body).await.expect(200);
    app.assert_settled().await;
}

#[sqlx::test]
async fn more_stop_sequences_than_a_vendor_takes_are_refused(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    for (model, most) in [(MODELS[1], 4), (LOCAL, 4), (MODELS[3], 5), (MODELS[2], 9)] {
        for count in [most, most + 1] {
            let stops: Vec<String> = (0..count).map(|n| format!("<{n}>")).collect();
            let body = with(ask(model, "x"), &json!({ "stop_sequences": stops }));
            let answer = app.post(&account.key, MESSAGES, &body).await;
            if count == most || model == MODELS[2] {
                answer.expect(200);
                continue;
            }
            let refused = error(MESSAGES, &answer, 400, "unsupported_parameter");
            assert_eq!(refused["details"]["unsupported"], json!(["stop_sequences"]));
            let message = refused["message"].as_str().unwrap();
            assert!(message.contains(&format!("at most {most}")), "{message}");
        }
    }
}

//! Tool calls of servers that set indexes, ids, names and arguments in ways of their own.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    ACME, CHAT, MESSAGES, MODELS, acme, answered, both, chat, chunk, counted, error, events,
    request, sse, with,
};
use crate::common::{Account, Answer, Reply, TestApp, Upstream};

fn tools(path: &str) -> Value {
    let names = ["f", "g"].into_iter();
    let tools: Vec<Value> = match path {
        CHAT => names
            .map(|name| json!({"type": "function", "function": {"name": name}}))
            .collect(),
        _ => names
            .map(|name| json!({"name": name, "input_schema": {"type": "object"}}))
            .collect(),
    };
    json!({ "tools": tools })
}

/// A piece of a call. Members that are null are left out.
fn piece([index, id, name, arguments]: [Value; 4]) -> Value {
    let mut function = json!({"name": name, "arguments": arguments});
    let mut call = json!({"index": index, "id": id, "type": "function"});
    for object in [&mut function, &mut call] {
        object
            .as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
    }
    call["function"] = function;
    call
}

/// The calls of a chat answer: names and arguments. Checks the grammar of a stream.
fn calls(answer: &Answer) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut ids = Vec::new();
    let mut calls: Vec<(String, String)> = Vec::new();
    if let Ok(body) = serde_json::from_str::<Value>(&answer.text) {
        for call in body["choices"][0]["message"]["tool_calls"]
            .as_array()
            .unwrap()
        {
            ids.push(text(&call["id"]));
            let function = &call["function"];
            calls.push((text(&function["name"]), text(&function["arguments"])));
        }
    } else {
        for event in events(CHAT, &answer.text) {
            let pieces = event["choices"][0]["delta"]["tool_calls"]
                .as_array()
                .cloned();
            for call in pieces.unwrap_or_default() {
                let function = &call["function"];
                if call["id"].is_string() {
                    assert_eq!(call["index"], calls.len(), "{}", answer.text);
                    ids.push(text(&call["id"]));
                    calls.push((text(&function["name"]), String::new()));
                }
                assert_eq!(call["index"], calls.len() - 1, "{}", answer.text);
                calls.last_mut().unwrap().1 += function["arguments"].as_str().unwrap();
            }
        }
    }
    let mut unique = ids.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), ids.len(), "{ids:?}");
    assert!(ids.iter().all(|id| !id.is_empty()));
    calls
}

/// Streams these pieces as a chat server and returns the calls, or `None` if the answer failed.
async fn streamed(
    app: &TestApp,
    account: &Account,
    upstream: &Upstream,
    pieces: &[Value],
) -> Option<Vec<(String, String)>> {
    let mut all: Vec<Value> = pieces
        .iter()
        .map(|piece| match piece {
            Value::String(text) => chunk(&json!({"content": text}), None),
            piece => chunk(&json!({"tool_calls": [piece]}), None),
        })
        .collect();
    all.push(chunk(&json!({}), Some("tool_calls")));
    all.push(json!({"choices": [], "usage": counted()}));
    upstream.reply(sse(&all));
    let body = with(request(CHAT, ACME, "x"), &tools(CHAT));
    let answer = app.post(&account.key, CHAT, &both(&body)[1]).await;
    if answer.status != 200 {
        error(CHAT, &answer, 502, "provider_error");
        return None;
    }
    let record = super::record(app, account, &answer).await;
    if record["status"] == "failed" {
        assert!(answer.text.contains("\"error\":"), "{}", answer.text);
        assert_eq!(record["credits"]["charged"], "0");
        return None;
    }
    Some(calls(&answer))
}

#[sqlx::test]
async fn pieces_are_given_to_their_calls(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let (zero, one, none) = (json!(0), json!(1), Value::Null);
    let p = |index: &Value, id: &str, name: &str, arguments: &str| {
        let text = |text: &str| {
            if text.is_empty() {
                Value::Null
            } else {
                json!(text)
            }
        };
        piece([index.clone(), text(id), text(name), json!(arguments)])
    };
    let (a, b) = (r#"{"a":1}"#, r#"{"a":2}"#);
    for (pieces, expected) in [
        // One index, no ids.
        (
            vec![p(&zero, "", "f", a), p(&zero, "", "f", b)],
            vec![("f", a), ("f", b)],
        ),
        (
            vec![
                p(&zero, "", "f", ""),
                p(&zero, "", "", a),
                p(&zero, "", "g", ""),
                p(&zero, "", "", b),
            ],
            vec![("f", a), ("g", b)],
        ),
        (
            vec![
                p(&zero, "", "f", ""),
                p(&zero, "", "", a),
                p(&zero, "", "f", ""),
                p(&zero, "", "", b),
            ],
            vec![("f", a), ("f", b)],
        ),
        (
            vec![p(&zero, "", "f", ""), p(&zero, "", "g", b)],
            vec![("f", "{}"), ("g", b)],
        ),
        // An empty object within the arguments.
        (
            vec![
                p(&zero, "1", "f", "{\"a\":"),
                p(&zero, "", "", "{}"),
                p(&zero, "", "", ",\"b\":1}"),
            ],
            vec![("f", "{\"a\":{},\"b\":1}")],
        ),
        // An empty object before the arguments.
        (
            vec![
                p(&zero, "1", "f", ""),
                p(&zero, "", "", "{}"),
                p(&zero, "", "", a),
            ],
            vec![("f", a)],
        ),
        // No index.
        (
            vec![
                p(&none, "", "f", "{\"a\""),
                p(&none, "", "", ":1}"),
                p(&none, "", "g", b),
            ],
            vec![("f", a), ("g", b)],
        ),
        (
            vec![p(&none, "1", "f", a), p(&none, "2", "g", b)],
            vec![("f", a), ("g", b)],
        ),
        // One index, an id each.
        (
            vec![p(&zero, "1", "f", a), p(&zero, "2", "f", b)],
            vec![("f", a), ("f", b)],
        ),
        (
            vec![
                p(&zero, "1", "f", "{\"a\""),
                p(&zero, "2", "g", "{\"a\""),
                p(&zero, "1", "", ":1}"),
                p(&zero, "2", "", ":2}"),
            ],
            vec![("f", a), ("g", b)],
        ),
        // One id for two calls.
        (
            vec![p(&zero, "1", "f", a), p(&one, "1", "g", b)],
            vec![("f", a), ("g", b)],
        ),
        // A new id with each piece.
        (
            vec![
                p(&zero, "1", "f", ""),
                p(&zero, "2", "", "{\"a\""),
                p(&zero, "3", "", ":1}"),
            ],
            vec![("f", a)],
        ),
        // The name with each piece.
        (
            vec![
                p(&zero, "1", "f", "{\"a\""),
                p(&zero, "1", "f", ":1}"),
                p(&zero, "1", "f", ""),
            ],
            vec![("f", a)],
        ),
        (
            vec![
                p(&zero, "", "f", "{\"a\""),
                p(&zero, "", "f", ":1}"),
                p(&zero, "", "f", ""),
            ],
            vec![("f", a)],
        ),
        // Interleaved calls.
        (
            vec![
                p(&zero, "1", "f", ""),
                p(&one, "2", "g", ""),
                p(&zero, "", "", "{\"a\""),
                p(&one, "", "", "{\"a\""),
                p(&zero, "", "", ":1}"),
                p(&one, "", "", ":2}"),
            ],
            vec![("f", a), ("g", b)],
        ),
        (
            vec![
                p(&zero, "1", "f", "{"),
                json!("Hi "),
                p(&one, "2", "g", b),
                json!("there."),
                p(&zero, "", "", "\"a\":1}"),
            ],
            vec![("f", a), ("g", b)],
        ),
        (
            vec![
                p(&one, "2", "g", "{\"a\":\"}\\\"{\""),
                p(&zero, "1", "f", a),
                p(&one, "", "", "}"),
            ],
            vec![("g", "{\"a\":\"}\\\"{\"}"), ("f", a)],
        ),
        // An empty object first.
        (
            vec![p(&zero, "1", "f", "{}"), p(&zero, "", "", a)],
            vec![("f", a)],
        ),
        (
            vec![
                p(&zero, "1", "f", "{}"),
                p(&zero, "1", "f", "{\"a\""),
                p(&zero, "1", "f", ":1}"),
                p(&one, "2", "g", "{}"),
                p(&one, "", "", ""),
                p(&one, "", "", b),
            ],
            vec![("f", a), ("g", b)],
        ),
        (
            vec![p(&zero, "1", "f", "{}"), p(&one, "2", "g", "{}")],
            vec![("f", "{}"), ("g", "{}")],
        ),
        // The whole call again at the end.
        (
            vec![
                p(&zero, "1", "f", "{\"a\""),
                p(&zero, "", "", ":1}"),
                p(&zero, "1", "f", a),
            ],
            vec![("f", a)],
        ),
        // Another function with the same index, id and arguments.
        (
            vec![p(&zero, "1", "f", a), p(&zero, "1", "g", a)],
            vec![("f", a), ("g", a)],
        ),
        // No arguments but white space.
        (vec![p(&zero, "1", "f", " ")], vec![("f", " {}")]),
        // The name comes late.
        (
            vec![
                p(&zero, "1", "", ""),
                p(&zero, "", "f", ""),
                p(&zero, "", "", a),
            ],
            vec![("f", a)],
        ),
    ] {
        let found = streamed(&app, &account, &upstream, &pieces).await;
        let expected: Vec<(String, String)> = expected
            .into_iter()
            .map(|(name, arguments)| (name.to_owned(), arguments.to_owned()))
            .collect();
        assert_eq!(found, Some(expected), "{}", json!(pieces));
    }
    for pieces in [
        vec![p(&zero, "", "f", a), p(&zero, "", "", b)],
        vec![p(&zero, "", "f", "{\"a\":1}{\"a\":2}")],
        vec![p(&zero, "", "f", "{\"a\""), p(&zero, "", "g", "{\"a\"")],
        vec![
            p(&zero, "1", "f", a),
            p(&one, "2", "g", b),
            p(&zero, "", "", "x"),
        ],
        vec![p(&zero, "1", "", a)],
    ] {
        let found = streamed(&app, &account, &upstream, &pieces).await;
        assert_eq!(found, None, "{}", json!(pieces));
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn arguments_are_an_object_or_an_error(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    for (arguments, expected) in [
        (json!({"a": 1}), Some(r#"{"a":1}"#)),
        (
            json!({"b": {"c": [null, 1.5]}, "a": "\u{e9}"}),
            Some("{\"b\":{\"c\":[null,1.5]},\"a\":\"\u{e9}\"}"),
        ),
        (json!({}), Some("{}")),
        (Value::Null, Some("{}")),
        (json!(""), Some("{}")),
        (json!(r#"{"a": 1}"#), Some(r#"{"a": 1}"#)),
        (json!([1]), None),
        (json!(7), None),
        (json!(true), None),
    ] {
        let call = piece([json!(0), json!("call_1"), json!("f"), arguments.clone()]);
        let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
        upstream.play(chat(
            vec![message.clone()],
            message,
            "tool_calls",
            counted(),
        ));
        for body in both(&with(request(CHAT, ACME, "x"), &tools(CHAT))) {
            let answer = app.post(&account.key, CHAT, &body).await;
            match expected {
                Some(expected) => {
                    assert_eq!(answer.status, 200, "{}", answer.text);
                    assert_eq!(
                        calls(&answer),
                        [("f".to_owned(), expected.to_owned())],
                        "{arguments}"
                    );
                }
                None => {
                    error(CHAT, &answer, 502, "provider_error");
                }
            }
        }
        // As the input of a block, and as the args of a function call.
        let block = json!({"type": "tool_use", "id": "toolu_1", "name": "f", "input": arguments});
        let message = json!({"id": "m", "type": "message", "model": "m", "content": [block],
            "stop_reason": "tool_use", "usage": {"input_tokens": 9, "output_tokens": 5}});
        let part = json!({"functionCall": {"name": "f", "args": arguments}});
        let candidates = json!({"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 5}});
        for (model, reply) in [(MODELS[2], message), (MODELS[3], candidates)] {
            upstream.reply(Reply::Status(200, reply));
            let body = with(request(CHAT, model, "x"), &tools(CHAT));
            let answer = app.post(&account.key, CHAT, &body).await;
            match expected {
                Some(expected) => {
                    assert_eq!(answer.status, 200, "{}", answer.text);
                    assert_eq!(
                        calls(&answer),
                        [("f".to_owned(), expected.to_owned())],
                        "{arguments}"
                    );
                }
                None => {
                    error(CHAT, &answer, 502, "provider_error");
                }
            }
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn the_older_form_of_a_call_is_a_call(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let function = json!({"name": "f", "arguments": "{\"a\":1}"});
    let message = json!({"role": "assistant", "content": null, "function_call": function});
    let pieces = vec![
        json!({"function_call": {"name": "f", "arguments": ""}}),
        json!({"function_call": {"arguments": "{\"a\""}}),
        json!({"function_call": {"arguments": ":1}"}}),
    ];
    upstream.play(chat(pieces, message, "function_call", counted()));
    for body in both(&with(request(CHAT, ACME, "x"), &tools(CHAT))) {
        let (answer, _) = answered(&app, &account, CHAT, &body).await;
        assert_eq!(calls(&answer), [("f".to_owned(), "{\"a\":1}".to_owned())]);
        assert!(
            answer.text.contains("\"finish_reason\":\"tool_calls\""),
            "{}",
            answer.text
        );
    }
}

#[sqlx::test]
async fn a_call_in_two_forms_is_one_call(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let function = json!({"name": "f", "arguments": "{\"a\":1}"});
    let call = json!({"id": "1", "type": "function", "function": function});
    let older = json!({"role": "assistant", "content": null, "tool_calls": [call],
        "function_call": function});
    let body = with(request(CHAT, ACME, "x"), &tools(CHAT));
    upstream.play(chat(vec![older.clone()], older, "tool_calls", counted()));
    for body in both(&body) {
        let (answer, _) = answered(&app, &account, CHAT, &body).await;
        assert_eq!(calls(&answer), [("f".to_owned(), "{\"a\":1}".to_owned())]);
    }
    // A stream of a whole message, and one that repeats it.
    let message = json!({"role": "assistant", "content": "Hi.", "tool_calls": [call]});
    let whole = json!({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": counted()});
    for events in [
        vec![whole.clone()],
        vec![
            chunk(&json!({"content": "Hi.", "tool_calls": [call]}), None),
            whole,
        ],
    ] {
        upstream.reply(sse(&events));
        for body in both(&body) {
            let (answer, _) = answered(&app, &account, CHAT, &body).await;
            assert_eq!(calls(&answer), [("f".to_owned(), "{\"a\":1}".to_owned())]);
            assert_eq!(answer.text.matches("Hi.").count(), 1, "{}", answer.text);
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn blocks_that_alternate_are_put_in_order(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let block = |at: usize, name: &str| {
        json!({"type": "content_block_start", "index": at,
            "content_block": {"type": "tool_use", "id": "same", "name": name, "input": {}}})
    };
    let piece = |at: usize, json: &str| {
        json!({"type": "content_block_delta", "index": at,
            "delta": {"type": "input_json_delta", "partial_json": json}})
    };
    let end = |at: usize| json!({"type": "content_block_stop", "index": at});
    let anthropic = [
        json!({"type": "message_start", "message": {"id": "m", "model": "m",
            "usage": {"input_tokens": 9, "output_tokens": 1}}}),
        block(0, "f"),
        block(1, "g"),
        piece(0, "{\"a\""),
        piece(1, "{\"a\""),
        json!({"type": "ping"}),
        piece(0, ":1}"),
        piece(1, ":2}"),
        end(1),
        end(0),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 5}}),
        json!({"type": "message_stop"}),
    ];
    let item = |kind: &str, at: usize, name: &str, arguments: &str| {
        json!({"type": format!("response.output_item.{kind}"), "output_index": at,
            "item": {"type": "function_call", "id": format!("fc_{at}"), "call_id": "same",
                "name": name, "arguments": arguments}})
    };
    let piece = |at: usize, json: &str| {
        json!({"type": "response.function_call_arguments.delta", "output_index": at,
            "item_id": format!("fc_{at}"), "delta": json})
    };
    let responses = [
        json!({"type": "response.created", "response": {"id": "r"}}),
        item("added", 0, "f", ""),
        item("added", 1, "g", ""),
        piece(1, "{\"a\""),
        piece(0, "{\"a\""),
        json!({"type": "response.in_progress", "response": {"id": "r"}}),
        piece(1, ":2}"),
        piece(0, ":1}"),
        item("done", 1, "g", "{\"a\":2}"),
        item("done", 0, "f", "{\"a\":1}"),
        // Without the output, which the events had.
        json!({"type": "response.completed", "response": {"id": "r", "status": "completed",
            "usage": {"input_tokens": 9, "output_tokens": 5}}}),
    ];
    let mut by_ids = responses.clone();
    for event in &mut by_ids {
        event.as_object_mut().unwrap().remove("output_index");
    }
    // The type in the name of the event only.
    let by_name = |events: &[Value]| {
        let texts = events.iter().map(|event| {
            let mut event = event.clone();
            let name = event.as_object_mut().unwrap().remove("type").unwrap();
            format!("event: {}\ndata: {event}\n\n", name.as_str().unwrap())
        });
        Reply::Raw(200, "text/event-stream", texts.collect())
    };
    let acme_2 = "acme/acme-2";
    for (model, reply) in [
        (MODELS[2], sse(&anthropic)),
        (MODELS[2], by_name(&anthropic)),
        (acme_2, sse(&responses)),
        (acme_2, by_name(&responses)),
        (acme_2, sse(&by_ids)),
    ] {
        upstream.reply(reply);
        for path in [CHAT, MESSAGES] {
            let body = with(request(path, model, "x"), &tools(path));
            let answer = app.post(&account.key, path, &both(&body)[1]).await;
            let record = super::record(&app, &account, &answer).await;
            assert_eq!(record["status"], "completed", "{}", answer.text);
            if path == CHAT {
                let expected = [("f", "{\"a\":1}"), ("g", "{\"a\":2}")];
                let expected = expected.map(|(name, json)| (name.to_owned(), json.to_owned()));
                assert_eq!(calls(&answer), expected, "{model}");
            }
        }
    }
    // Items that cannot be distinguished.
    for event in &mut by_ids {
        event.as_object_mut().unwrap().remove("item_id");
        if let Some(item) = event.get_mut("item") {
            item.as_object_mut().unwrap().remove("id");
        }
    }
    upstream.reply(sse(&by_ids));
    let body = with(request(CHAT, acme_2, "x"), &tools(CHAT));
    let answer = app.post(&account.key, CHAT, &both(&body)[1]).await;
    let record = super::record(&app, &account, &answer).await;
    assert_eq!(record["status"], "failed", "{}", answer.text);
    assert_eq!(record["credits"]["charged"], "0");
    app.assert_settled().await;
}

#[sqlx::test]
async fn ends_of_blocks_may_be_missing_or_repeated(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let begin = |at: usize, block: Value| json!({"type": "content_block_start", "index": at, "content_block": block});
    let piece = |at: usize, delta: Value| json!({"type": "content_block_delta", "index": at, "delta": delta});
    let end = |at: usize| json!({"type": "content_block_stop", "index": at});
    let head = json!({"type": "message_start", "message": {"id": "m", "model": "m",
        "usage": {"input_tokens": 9, "output_tokens": 1}}});
    let text = [
        begin(0, json!({"type": "text", "text": ""})),
        piece(0, json!({"type": "text_delta", "text": "Hi."})),
    ];
    let call = begin(
        1,
        json!({"type": "tool_use", "id": "1", "name": "f", "input": {}}),
    );
    let arguments = piece(
        1,
        json!({"type": "input_json_delta", "partial_json": "{\"a\":1}"}),
    );
    let last = [
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 5}}),
        json!({"type": "message_stop"}),
    ];
    for middle in [
        vec![call.clone(), arguments.clone(), end(1)],
        vec![call.clone(), arguments.clone()],
        vec![
            end(0),
            call.clone(),
            end(0),
            arguments.clone(),
            end(1),
            end(1),
        ],
        vec![call, end(0), arguments, end(1)],
    ] {
        let events = [
            std::slice::from_ref(&head),
            &text[..],
            &middle[..],
            &last[..],
        ]
        .concat();
        upstream.reply(sse(&events));
        let body = with(request(CHAT, MODELS[2], "x"), &tools(CHAT));
        let (answer, _) = answered(&app, &account, CHAT, &both(&body)[1]).await;
        assert_eq!(calls(&answer), [("f".to_owned(), "{\"a\":1}".to_owned())]);
        assert_eq!(answer.text.matches("Hi.").count(), 1, "{}", answer.text);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn input_of_a_block_and_its_pieces_are_one(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let whole = json!({"a": 1, "b": 2});
    for (input, pieces, expected) in [
        (
            whole.clone(),
            vec!["{\"a\":1", ",\"b\":2}"],
            r#"{"a":1,"b":2}"#,
        ),
        (
            json!({"a": 1}),
            vec!["", "{\"a\":1,\"b\":2}"],
            r#"{"a":1,"b":2}"#,
        ),
        (whole.clone(), vec![], r#"{"a":1,"b":2}"#),
        (whole, vec![""], r#"{"a":1,"b":2}"#),
        (json!({}), vec![], "{}"),
        (json!(""), vec!["{\"a\":1}"], r#"{"a":1}"#),
    ] {
        let mut all = vec![
            json!({"type": "message_start", "message": {"id": "m", "model": "m", "usage": {"input_tokens": 9, "output_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "toolu_1", "name": "f", "input": input}}),
        ];
        all.extend(pieces.iter().map(|piece| {
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": piece}})
        }));
        all.extend([
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}}),
            json!({"type": "message_stop"}),
        ]);
        upstream.reply(sse(&all));
        let body = with(request(CHAT, MODELS[2], "x"), &tools(CHAT));
        let answer = app.post(&account.key, CHAT, &both(&body)[1]).await;
        assert_eq!(
            calls(&answer),
            [("f".to_owned(), expected.to_owned())],
            "{input} {pieces:?}"
        );
        let body = with(request(MESSAGES, MODELS[2], "x"), &tools(MESSAGES));
        let answer = app.post(&account.key, MESSAGES, &both(&body)[1]).await;
        let events = events(MESSAGES, &answer.text);
        let json = events
            .iter()
            .filter_map(|event| event["delta"]["partial_json"].as_str());
        assert_eq!(json.collect::<String>(), expected);
    }
    app.assert_settled().await;
}

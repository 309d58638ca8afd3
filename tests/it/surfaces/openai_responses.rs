//! OpenAI's models by the Responses API, which is the default of the current ones.

use axum::body::Bytes;
use futures_util::{StreamExt as _, stream};
use gensvc::domain::credits::Credits;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{CHAT, MESSAGES, MODELS, RESPONSES, ask, error, events, record, text_of, with};
use crate::common::{
    Account, Answer, CONFIG_FILE, DEFAULT_APIS, End, Recorded, Reply, TestApp, Upstream,
    upstream::text::{self, response, response_events},
};

const TEXT: &str = "/v1/generate/text";
const LUNA: &str = MODELS[1];
const PATHS: [&str; 3] = [CHAT, RESPONSES, MESSAGES];

async fn start(options: PgConnectOptions, upstream: &Upstream) -> (TestApp, Account) {
    let app = TestApp::upstream_with(options, upstream, &[(DEFAULT_APIS, "1")]).await;
    let account = app.account("10").await;
    (app, account)
}

fn prompt(path: &str, text: &str) -> Value {
    match path {
        RESPONSES => json!({"model": LUNA, "input": text, "max_output_tokens": 64}),
        TEXT => json!({"provider": "openai", "model": "gpt-6-luna", "prompt": text}),
        _ => ask(LUNA, text),
    }
}

fn usage() -> Value {
    json!({"input_tokens": 1_000, "output_tokens": 50, "total_tokens": 1_050,
        "input_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 200,
            "cache_write_tokens_details": {"ttl_30m_tokens": 150, "ttl_12h_tokens": 50}},
        "output_tokens_details": {"reasoning_tokens": 0}})
}

/// An answer of these items, each of which comes whole.
fn answer(request: &Recorded, status: &str, items: &[Value], more: &Value) -> Reply {
    let body = with(response(status, items, &usage()), more);
    if request.body["stream"] != true {
        return Reply::Status(200, body);
    }
    let begun = response("in_progress", &[], &Value::Null);
    let mut events = vec![("created", json!({ "response": begun }))];
    for (at, item) in items.iter().enumerate() {
        events.push((
            "output_item.added",
            json!({"output_index": at, "item": item}),
        ));
        events.push((
            "output_item.done",
            json!({"output_index": at, "item": item}),
        ));
    }
    events.push((
        match status {
            "completed" | "incomplete" => status,
            _ => "failed",
        },
        json!({ "response": body }),
    ));
    // The names are literals above.
    Reply::Raw(200, "text/event-stream", response_events(&events))
}

fn message(text: &str) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn reasoning() -> Value {
    json!({"id": "rs_1", "type": "reasoning", "encrypted_content": "gAAAA.rs_1",
        "summary": [{"type": "summary_text", "text": "hm"}]})
}

fn function_call(id: &str) -> Value {
    json!({"id": format!("fc_{id}"), "type": "function_call", "call_id": id, "name": "f",
        "arguments": "{\"a\":1}", "status": "completed"})
}

fn tool(path: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    match path {
        CHAT => json!({"type": "function", "function": {"name": "f", "parameters": schema}}),
        RESPONSES => {
            json!({"type": "function", "name": "f", "parameters": schema, "strict": false})
        }
        _ => json!({"name": "f", "input_schema": schema}),
    }
}

fn charge(record: &Value) -> Credits {
    record["credits"]["charged"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

#[sqlx::test]
async fn every_surface_reaches_responses(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    for path in [CHAT, RESPONSES, MESSAGES, TEXT] {
        for stream in [false, true] {
            let body = with(prompt(path, "Hi"), &json!({ "stream": stream }));
            let answer = app.post(&account.key, path, &body).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            assert!(answer.text.contains("Hello") && answer.text.contains("there."));
            let sent = upstream.requests().pop().unwrap();
            assert_eq!(sent.path, "/openai/v1/responses");
            assert_eq!(sent.body["store"], false);
            assert_eq!(sent.body["service_tier"], "default");
            assert_eq!(sent.body.get("stream").is_some(), stream);
        }
    }
    // Older models are still called by Chat Completions.
    let body = ask("openai/gpt-4.1", "Hi");
    app.post(&account.key, CHAT, &body).await.expect(200);
    let sent = upstream.requests().pop().unwrap();
    assert_eq!(sent.path, "/openai/v1/chat/completions");
    app.assert_settled().await;
}

#[sqlx::test]
async fn each_count_has_its_price(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    upstream.play(|request| answer(request, "completed", &[message("Hi")], &json!({})));
    // Credits for a million tokens: 10, cached 1, written 12.5 and 25, output 50.
    let micros = 200 * 10 + 600 + (150 * 25 / 2) + 50 * 25 + 50 * 50;
    for path in PATHS {
        for stream in [false, true] {
            let long = "word ".repeat(1_000);
            let more = json!({"stream": stream});
            let body = with(prompt(path, &long), &more);
            let answer = app.post(&account.key, path, &body).await;
            let record = record(&app, &account, &answer).await;
            assert_eq!(charge(&record), Credits::from_micros(micros), "{record}");
            let counts = &record["usage"];
            assert_eq!(
                (
                    &counts["cached_input_tokens"],
                    &counts["cache_write_long_tokens"]
                ),
                (&json!(600), &json!(50))
            );
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_responses_body_passes_as_it_came(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    upstream.be_lenient();
    let input = r#"[ {"role":"user","content":[{"text":"\u00e9","type":"input_text","new":1.0}]},
        {"summary":[],"id":"rs_1","type":"reasoning","encrypted_content":"gAAAA.rs_1"},
        {"type":"custom_tool_call","call_id":"c1","name":"x","namespace":"n","input":"i"},
        {"type":"custom_tool_call_output","call_id":"c1","output":"o"},
        {"type":"tool_search_call","id":"tsc_1","arguments":{"q":1},"execution":"server"},
        {"type":"tool_search_output","tools":[{"type":"function","name":"g","parameters":{}}]},
        {"type":"compaction","encrypted_content":"gAAAA.c"} ]"#;
    let tools = r#"[{"type":"namespace","name":"n","description":"d","tools":[{"type":"custom","name":"x"}]},
        {"type":"tool_search"},{"type":"function","name":"f","parameters":{"type":"object","properties":{}},"defer_loading":true}]"#;
    let body = format!(
        r#"{{"input": {input},"model":"{LUNA}","tools":{tools},"text":{{"verbosity":"low"}},
        "prompt_cache_key":"k","prompt_cache_options":{{"mode":"explicit"}},"tomorrow":1.0,"truncation":"auto",
        "reasoning":{{"effort":"high","summary":"auto"}},"include":["reasoning.encrypted_content"],"max_output_tokens":64}}"#
    );
    let headers = [("content-type", "application/json")];
    let post = http::Method::POST;
    let sending = app.call(post, &account.key, RESPONSES, &headers, Some(body.clone()));
    let answer = sending.await;
    assert_eq!(answer.expect(200)["truncation"], "auto");
    assert_eq!(answer.header("x-gensvc-left-out"), "");
    let sent = upstream.requests().pop().unwrap();
    let expected = format!(
        r#"{{"input":{input},"model":"gpt-6-luna","tools":{tools},"text":{{"verbosity":"low"}},"prompt_cache_key":"k","prompt_cache_options":{{"mode":"explicit"}},"tomorrow":1.0,"truncation":"auto","reasoning":{{"effort":"high","summary":"auto"}},"include":["reasoning.encrypted_content"],"max_output_tokens":64,"service_tier":"default","store":false}}"#
    );
    assert_eq!(sent.text, expected);
    // Other vendors accept none of these, and the error names each.
    let body = body.replace(LUNA, MODELS[2]);
    let post = http::Method::POST;
    let refused = app
        .call(post, &account.key, RESPONSES, &headers, Some(body))
        .await;
    let refused = error(RESPONSES, &refused, 400, "unsupported_parameter");
    let message = refused["message"].as_str().unwrap();
    for name in [
        "tomorrow",
        "truncation",
        "text.verbosity",
        "input[4].type",
        "tools[1].type",
        "input[0].content[0].new",
    ] {
        assert!(message.contains(name), "{name}: {message}");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn tools_of_the_caller_pass_and_are_held(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    let shell = json!({"type": "shell", "environment": {"type": "local"}});
    let patch = json!({"type": "apply_patch"});
    let input = json!([{"role": "user", "content": "x"},
        {"type": "shell_call", "call_id": "c1", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "c1",
            "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]}]);
    let found = json!([{"role": "user", "content": "x"},
        {"type": "tool_search_output", "tools": [shell]}]);
    let plain = prompt(RESPONSES, "x");
    let plain = app.post(&account.key, RESPONSES, &plain).await;
    let plain = record(&app, &account, &plain).await;
    let estimated = |record: &Value| -> Credits {
        let held = record["credits"]["estimated"].as_str().unwrap();
        held.parse().unwrap()
    };
    for more in [
        json!({"tools": [shell], "tool_choice": {"type": "shell"}}),
        json!({"tools": [patch], "tool_choice": {"type": "apply_patch"}}),
        json!({"tools": [shell], "input": input}),
        json!({"tools": [], "input": found}),
    ] {
        let body = with(prompt(RESPONSES, "x"), &more);
        let answer = app.post(&account.key, RESPONSES, &body).await;
        answer.expect(200);
        let sent = &upstream.requests().pop().unwrap().body;
        for (name, value) in more.as_object().unwrap() {
            assert!(*value == json!([]) || sent[name] == *value, "{sent}");
        }
        // OpenAI's definition of the tool is part of the input: 1,000 tokens at 0.1 per million.
        let record = record(&app, &account, &answer).await;
        let least = estimated(&plain).micros() + 1_000 * 10;
        assert!(estimated(&record).micros() >= least, "{more} {record}");
    }
    let cloud = json!({"type": "shell", "environment": {"type": "container_auto"}});
    let found = json!([{"type": "tool_search_output", "tools": [cloud]}]);
    let call = json!([{"type": "shell_call", "call_id": "c1", "action": {"commands": ["ls"]},
        "environment": {"type": "container_reference", "container_id": "c"}}]);
    for (param, more) in [
        ("tools[0].environment", json!({"tools": [cloud]})),
        (
            "tools[0].environment",
            json!({"tools": [{"type": "shell"}]}),
        ),
        ("input[0].tools", json!({"input": found})),
        ("input[0].environment", json!({"input": call})),
    ] {
        let before = upstream.count();
        let body = with(prompt(RESPONSES, "x"), &more);
        let answer = app.post(&account.key, RESPONSES, &body).await;
        let refused = error(RESPONSES, &answer, 400, "unsupported_parameter");
        assert_eq!(refused["param"], param);
        assert_eq!(upstream.count(), before);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_chat_keeps_what_responses_has_too(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    let shared = json!({"prompt_cache_key": "k", "metadata": {"a": "b"}, "user": "u"});
    let format = json!({"type": "json_object"});
    for (more, text) in [
        (json!({}), Value::Null),
        (json!({"verbosity": null}), Value::Null),
        (json!({"verbosity": "low"}), json!({"verbosity": "low"})),
        (
            json!({"verbosity": "high", "response_format": format}),
            json!({"format": format, "verbosity": "high"}),
        ),
    ] {
        let more = with(with(more, &shared), &json!({"reasoning_effort": "none"}));
        let body = with(ask(LUNA, "Answer in JSON"), &more);
        let answer = app.post(&account.key, CHAT, &body).await;
        answer.expect(200);
        assert_eq!(answer.header("x-gensvc-left-out"), "", "{more}");
        let sent = upstream.requests().pop().unwrap().body;
        assert_eq!(sent["text"], text);
        assert!(sent.get("verbosity").is_none());
        for (name, value) in shared.as_object().unwrap() {
            assert_eq!(sent[name], *value);
        }
    }
    for name in ["seed", "logit_bias", "tomorrow"] {
        let body = with(ask(LUNA, "x"), &json!({name: 1}));
        let answer = app.post(&account.key, CHAT, &body).await;
        error(CHAT, &answer, 400, "unsupported_parameter");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_choice_of_allowed_tools_is_translated(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    let function = |name: &str| json!({"type": "function", "function": {"name": name}});
    let custom = json!({"type": "custom", "custom": {"name": "c"}});
    let tools = json!([function("a"), function("b.b"), custom]);
    let choice = |mode: &str, tools: Value| json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}});
    let body = |choice: &Value| {
        with(
            ask(LUNA, "x"),
            &json!({"tools": tools, "tool_choice": choice}),
        )
    };
    let answer = app.post(&account.key, CHAT, &body(&json!("auto"))).await;
    answer.expect(200);
    let plain = hold(&record(&app, &account, &answer).await);
    let allowed = choice("required", json!([function("b.b"), custom]));
    let answer = app.post(&account.key, CHAT, &body(&allowed)).await;
    answer.expect(200);
    assert_eq!(
        answer.header("x-gensvc-left-out"),
        "reasoning.encrypted_content"
    );
    let sent = upstream.requests().pop().unwrap().body;
    let name = &sent["tools"][1]["name"];
    assert_eq!(
        sent["tool_choice"],
        json!({"type": "allowed_tools", "mode": "required", "tools": [
            {"type": "function", "name": name}, {"type": "function", "name": "c"}]})
    );
    assert!(hold(&record(&app, &account, &answer).await) > plain);
    for choice in [
        choice("auto", json!([function("d")])),
        choice("none", json!([function("a")])),
        json!({"type": "allowed_tools"}),
        json!({"type": "shell"}),
    ] {
        let answer = app.post(&account.key, CHAT, &body(&choice)).await;
        let refused = error(CHAT, &answer, 400, "unsupported_parameter");
        assert_eq!(refused["param"], "tool_choice", "{choice}");
    }
    app.assert_settled().await;
}

fn hold(record: &Value) -> Credits {
    record["credits"]["estimated"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

#[sqlx::test]
async fn what_costs_or_keeps_more_is_refused_by_name(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    let tools = |kind: &str| json!({"tools": [{"type": kind}]});
    let found = json!({"input": [{"role": "user", "content": "x"},
        {"type": "tool_search_output", "tools": [{"type": "web_search"}]}]});
    for (param, more) in [
        ("background", json!({"background": true})),
        (
            "background_options",
            json!({"background_options": {"completion_window": "2h"}}),
        ),
        (
            "previous_response_id",
            json!({"previous_response_id": "resp_1"}),
        ),
        ("conversation", json!({"conversation": "conv_1"})),
        ("store", json!({"store": true})),
        ("prompt", json!({"prompt": {"id": "p"}})),
        ("multi_agent", json!({"multi_agent": {"enabled": true}})),
        (
            "context_management",
            json!({"context_management": [{"type": "compaction"}]}),
        ),
        ("service_tier", json!({"service_tier": "priority"})),
        ("reasoning.mode", json!({"reasoning": {"mode": "pro"}})),
        (
            "prompt_cache_options.prewarm",
            json!({"prompt_cache_options": {"prewarm": true}}),
        ),
        ("tools has a web search", tools("web_search")),
        ("tools[0].type", tools("code_interpreter")),
        ("tools[0].type", tools("mcp")),
        ("tools[0].type", tools("image_generation")),
        ("tools[0].type", tools("programmatic_tool_calling")),
        ("input[1].tools", found),
    ] {
        let body = with(prompt(RESPONSES, "x"), &more);
        let answer = app.post(&account.key, RESPONSES, &body).await;
        let body = answer.expect(400);
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.contains(param), "{param}: {message}");
    }
    assert_eq!(upstream.count(), 0);
    app.assert_settled().await;
}

/// The second turn of a dialogue whose first answer reasoned and called a function.
fn second_turn(path: &str, stream: bool, answer: &Answer) -> Value {
    let more = json!({"tools": [tool(path)], "stream": stream});
    if path == RESPONSES {
        let body = if stream {
            events(path, &answer.text).pop().unwrap()["response"].clone()
        } else {
            answer.expect(200)
        };
        let mut input = vec![json!({"role": "user", "content": "x"})];
        input.extend(body["output"].as_array().unwrap().clone());
        input.push(json!({"type": "function_call_output", "call_id": "c1", "output": "1"}));
        let more = with(more, &json!({"input": input}));
        return with(prompt(path, "x"), &more);
    }
    let (said, result) = if path == CHAT {
        let call = json!({"id": "c1", "type": "function",
            "function": {"name": "f", "arguments": "{\"a\":1}"}});
        (
            json!({"role": "assistant", "content": null, "tool_calls": [call]}),
            json!({"role": "tool", "tool_call_id": "c1", "content": "1"}),
        )
    } else {
        let thinking = thinking(stream, answer);
        let call = json!({"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}});
        let result = json!({"type": "tool_result", "tool_use_id": "c1", "content": "1"});
        (
            json!({"role": "assistant", "content": [thinking, call]}),
            json!({"role": "user", "content": [result]}),
        )
    };
    let messages = json!([{"role": "user", "content": "x"}, said, result]);
    with(
        with(prompt(path, "x"), &more),
        &json!({ "messages": messages }),
    )
}

/// The block of thinking of an answer of Messages.
fn thinking(stream: bool, answer: &Answer) -> Value {
    if !stream {
        return answer.expect(200)["content"][0].clone();
    }
    let mut block = json!({"type": "thinking", "thinking": "", "signature": ""});
    for event in events(MESSAGES, &answer.text) {
        for name in ["thinking", "signature"] {
            if let Some(piece) = event["delta"][name].as_str() {
                block[name] = json!(block[name].as_str().unwrap().to_owned() + piece);
            }
        }
    }
    block
}

#[sqlx::test]
async fn encrypted_reasoning_makes_the_round_trip(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    upstream.play(|request| {
        let items = [reasoning(), function_call("c1")];
        answer(request, "completed", &items, &json!({}))
    });
    for path in PATHS {
        for stream in [false, true] {
            let more = json!({"tools": [tool(path)], "stream": stream});
            let mut body = with(prompt(path, "x"), &more);
            if path == RESPONSES {
                body["include"] = json!(["reasoning.encrypted_content"]);
            }
            let first = app.post(&account.key, path, &body).await;
            assert_eq!(first.status, 200, "{}", first.text);
            let left_out = first.header("x-gensvc-left-out");
            assert_eq!(left_out == "reasoning.encrypted_content", path == CHAT);
            let body = second_turn(path, stream, &first);
            let second = app.post(&account.key, path, &body).await;
            assert_eq!(second.status, 200, "{}", second.text);
            if path == RESPONSES {
                // By its id, as the AI SDK brings it back.
                let sent = upstream.requests().pop().unwrap().body;
                let mut body = body;
                for item in body["input"].as_array_mut().unwrap() {
                    if item["type"] == "reasoning" {
                        *item = json!({"type": "item_reference", "id": item["id"]});
                    }
                }
                let again = app.post(&account.key, path, &body).await;
                assert_eq!(again.status, 200, "{}", again.text);
                assert_eq!(upstream.requests().pop().unwrap().body, sent);
            }
            let input = upstream.requests().pop().unwrap().body["input"].clone();
            let found = input.as_array().unwrap().iter();
            let found: Vec<&Value> = found.filter(|item| item["type"] == "reasoning").collect();
            if path == CHAT {
                assert_eq!(found, Vec::<&Value>::new());
                continue;
            }
            assert_eq!(found.len(), 1, "{input}");
            for name in ["encrypted_content", "summary"] {
                assert_eq!(found[0][name], reasoning()[name], "{path}");
            }
            // The id of an item of our answer is not OpenAI's.
            let id = (path == MESSAGES).then(|| reasoning()["id"].clone());
            assert_eq!(found[0].get("id"), id.as_ref(), "{path}");
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn reasoning_of_another_vendor_is_left_out(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    let input = |reasoning: Value| {
        json!({"input": [{"role": "user", "content": "x"}, reasoning,
            {"role": "assistant", "content": "y"}, {"role": "user", "content": "z"}]})
    };
    let item = |content: Value| json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": content});
    for (content, is_sent) in [
        (json!("gAAAA.rs_1"), true),
        (json!("signature:abc"), false),
        (json!("redacted:abc"), false),
        (json!("gemini:abc"), false),
        (Value::Null, false),
    ] {
        let body = with(prompt(RESPONSES, "x"), &input(item(content.clone())));
        let answer = app.post(&account.key, RESPONSES, &body).await;
        answer.expect(200);
        let left_out = answer.header("x-gensvc-left-out");
        assert_eq!(left_out, if is_sent { "" } else { "thinking" }, "{content}");
        let sent = upstream.requests().pop().unwrap().body;
        let reasons = sent["input"].as_array().unwrap().iter();
        assert_eq!(
            reasons.filter(|item| item["type"] == "reasoning").count() == 1,
            is_sent
        );
    }
    // And OpenAI's is left out for others.
    let thinking =
        json!({"type": "thinking", "thinking": "hm", "signature": "openai:rs_1:gAAAA.rs_1"});
    let messages = json!([{"role": "user", "content": "x"},
        {"role": "assistant", "content": [thinking, {"type": "text", "text": "y"}]},
        {"role": "user", "content": "z"}]);
    for model in &MODELS[2..] {
        let body = with(ask(model, "x"), &json!({ "messages": messages }));
        let answer = app.post(&account.key, MESSAGES, &body).await;
        answer.expect(200);
        assert_eq!(answer.header("x-gensvc-left-out"), "thinking", "{model}");
        let sent = upstream.requests().pop().unwrap().text;
        assert!(!sent.contains("rs_1"), "{sent}");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn only_answers_are_charged(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    let at_limit = json!({"incomplete_details": {"reason": "max_output_tokens"}});
    let filtered = json!({"incomplete_details": {"reason": "content_filter"}});
    let failure = json!({"error": {"code": "server_error", "message": "m"}});
    for (status, more, is_charged) in [
        ("incomplete", at_limit, true),
        ("incomplete", filtered, false),
        ("failed", failure, false),
        ("cancelled", json!({}), false),
    ] {
        for path in PATHS {
            let (status, more) = (status.to_owned(), more.clone());
            let items = if is_charged {
                vec![message("He")]
            } else {
                Vec::new()
            };
            upstream.play(move |request| answer(request, &status, &items, &more));
            for stream in [false, true] {
                let body = with(prompt(path, "x"), &json!({ "stream": stream }));
                let before = app.balance(&account).await;
                let answer = app.post(&account.key, path, &body).await;
                let after = app.balance(&account).await;
                assert_eq!(after != before, is_charged, "{path}: {}", answer.text);
                assert_eq!(answer.status == 200, is_charged, "{path}: {}", answer.text);
                if !is_charged {
                    continue;
                }
                let reason = match path {
                    CHAT => "\"length\"",
                    RESPONSES => "\"max_output_tokens\"",
                    _ => "\"max_tokens\"",
                };
                assert!(answer.text.contains(reason), "{}", answer.text);
            }
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn phases_of_messages_pass_both_ways(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    let said = |text: &str, phase: &str| with(message(text), &json!({"phase": phase}));
    let phases = |items: &Value| -> Vec<Value> {
        let items = items.as_array().unwrap().iter();
        items.map(|item| item["phase"].clone()).collect()
    };
    let expected = vec![json!("commentary"), Value::Null, json!("final_answer")];
    upstream.play(move |request| {
        let items = [
            said("I look.", "commentary"),
            function_call("c1"),
            said("Done.", "final_answer"),
        ];
        answer(request, "completed", &items, &json!({}))
    });
    let tools = json!({"tools": [{"type": "function", "name": "f", "strict": false,
        "parameters": {"type": "object", "properties": {}}}]});
    let body = with(prompt(RESPONSES, "x"), &tools);
    let whole = app.post(&account.key, RESPONSES, &body).await.expect(200);
    assert_eq!(phases(&whole["output"]), expected);
    let streamed = with(body.clone(), &json!({"stream": true}));
    let streamed = app.post(&account.key, RESPONSES, &streamed).await;
    let events = events(RESPONSES, &streamed.text);
    for kind in ["added", "done"] {
        let kind = format!("response.output_item.{kind}");
        let items = events.iter().filter(|event| event["type"] == kind.as_str());
        let items: Vec<Value> = items.map(|event| event["item"].clone()).collect();
        assert_eq!(phases(&json!(items)), expected, "{kind}");
    }
    let last = events.last().unwrap();
    assert_eq!(phases(&last["response"]["output"]), expected);
    // Whole, and by its id.
    let output = whole["output"].as_array().unwrap();
    let by_id = json!({"type": "item_reference", "id": output[0]["id"]});
    for first in [output[0].clone(), by_id] {
        let result = json!({"type": "function_call_output", "call_id": "c1", "output": "1"});
        let input = json!([{"role": "user", "content": "x"}, first, output[1], result,
            output[2], {"role": "user", "content": "y"}]);
        let next = with(body.clone(), &json!({ "input": input }));
        app.post(&account.key, RESPONSES, &next).await.expect(200);
        let sent = upstream.requests().pop().unwrap().body;
        assert_eq!(sent["input"][1]["phase"], "commentary", "{sent}");
    }
    // Other dialects have no phases.
    for path in [CHAT, MESSAGES] {
        let answer = app.post(&account.key, path, &prompt(path, "x")).await;
        assert_eq!(answer.status, 200);
        assert!(!answer.text.contains("phase"), "{}", answer.text);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_cut_stream_is_never_a_short_success(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    let whole = text::body("/openai/v1/responses", true, "Hello.", 9, 3);
    let length = whole.len();
    upstream.play(move |request| {
        let (_, after) = request.text.split_once("after ").unwrap();
        let after: usize = after.split_once('.').unwrap().0.parse().unwrap();
        let bytes = Bytes::copy_from_slice(&whole.as_bytes()[..after]);
        Reply::Stream(bytes, [End::Clean, End::Cut][after % 2])
    });
    let before = app.balance(&account).await;
    // The last event may lack the blank line after it.
    let cuts = stream::iter(0..length - 3);
    cuts.for_each_concurrent(8, async |after| {
        let path = PATHS[after % 3];
        let body = prompt(path, &format!("after {after}."));
        let body = with(body, &json!({"stream": true}));
        let answer = app.post(&account.key, path, &body).await;
        let is_error = answer.status != 200
            || events(path, &answer.text).iter().any(|event| {
                event.get("error").is_some_and(Value::is_object)
                    || event["type"] == "response.failed"
            });
        assert!(is_error, "{after} {path}: {}", answer.text);
    })
    .await;
    assert_eq!(app.balance(&account).await, before);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_low_limit_is_raised_and_said(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    for path in PATHS {
        let limit = if path == RESPONSES {
            "max_output_tokens"
        } else {
            "max_tokens"
        };
        let body = with(prompt(path, "x"), &json!({ limit: 1 }));
        let answer = app.post(&account.key, path, &body).await;
        answer.expect(200);
        assert_eq!(answer.header("x-gensvc-max-tokens"), "16");
        let sent = upstream.requests().pop().unwrap().body;
        assert_eq!(sent["max_output_tokens"], 16);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn no_limit_below_the_minimum_is_affordable(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    let limited = |path: &str, limit: u32| {
        let limits = match path {
            RESPONSES => json!({"max_output_tokens": limit}),
            TEXT => json!({"parameters": {"max_tokens": limit}}),
            _ => json!({"max_tokens": limit}),
        };
        with(prompt(path, "x"), &limits)
    };
    for path in [CHAT, RESPONSES, MESSAGES, TEXT] {
        let answer = app.post(&account.key, path, &limited(path, 16)).await;
        let record = match path {
            TEXT => answer.expect(200),
            _ => record(&app, &account, &answer).await,
        };
        let least: Credits = record["credits"]["estimated"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        for (missing, affordable) in [(0, json!({"max_tokens": 16})), (1, Value::Null)] {
            let credits = Credits::from_micros(least.micros() - missing).to_string();
            let poor = app.account(&credits).await;
            let answer = app.post(&poor.key, path, &limited(path, 1_000)).await;
            let short = match path {
                TEXT => answer.error(402, "insufficient_credits"),
                _ => error(path, &answer, 402, "insufficient_credits"),
            };
            assert_eq!(short["affordable"], affordable, "{path}");
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn own_tools_and_stops_are_answered(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    let custom = json!({"id": "ctc_1", "type": "custom_tool_call", "call_id": "c1", "name": "x",
        "namespace": "n", "input": "i", "status": "completed"});
    let item = custom.clone();
    upstream.play(move |request| {
        answer(
            request,
            "completed",
            std::slice::from_ref(&item),
            &json!({}),
        )
    });
    let tools = json!([{"type": "namespace", "name": "n", "description": "d",
        "tools": [{"type": "custom", "name": "x"}]}]);
    let body = with(prompt(RESPONSES, "x"), &json!({ "tools": tools }));
    let answer = app.post(&account.key, RESPONSES, &body).await;
    let with_id = |item: &Value| {
        let id = item["id"].as_str().unwrap();
        assert!(
            id.starts_with("ctc_") && id.ends_with("_0") && id.len() > 32,
            "{id}"
        );
        with(custom.clone(), &json!({ "id": id }))
    };
    let output = &answer.expect(200)["output"];
    assert_eq!(*output, json!([with_id(&output[0])]));
    let body = with(body, &json!({"stream": true}));
    let answer = app.post(&account.key, RESPONSES, &body).await;
    let all = events(RESPONSES, &answer.text);
    let done = all
        .iter()
        .find(|event| event["type"] == "response.output_item.done");
    let item = &done.unwrap()["item"];
    assert_eq!(*item, with_id(item));
    assert_eq!(all.last().unwrap()["response"]["output"], json!([item]));
    // The API has no stop sequences.
    upstream.reply(Reply::Text("Hello there.".to_owned(), 10, 3));
    for (path, name) in [(CHAT, "stop"), (MESSAGES, "stop_sequences")] {
        for stream in [false, true] {
            let body = with(
                prompt(path, "x"),
                &json!({name: ["o th"], "stream": stream}),
            );
            let answer = app.post(&account.key, path, &body).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            let text = if stream {
                text_of(path, &events(path, &answer.text))
            } else {
                super::parts(path, &answer.expect(200)).0
            };
            assert_eq!(text, "Hell");
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn an_editors_mixed_body_is_answered_as_a_chat(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    let body = prompt(RESPONSES, "Hi");
    let answer = app.post(&account.key, CHAT, &body).await;
    assert_eq!(answer.expect(200)["object"], "chat.completion");
    app.assert_settled().await;
}

#[sqlx::test]
async fn the_api_is_chosen_by_model(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let url = upstream.url();
    let model = |id: &str, wire: &str| {
        format!(
            "[[providers.local.models]]\nid = \"{id}\"\ntype = \"text\"\ndefault = {}\n\
             prices = {{ input_per_million = \"10\", output_per_million = \"50\" }}\n{wire}\n",
            id == "m"
        )
    };
    let text = format!(
        "[providers.local]\nkind = \"openai_compatible\"\nbase_url = \"{url}/local/v1\"\n{}{}",
        model("m", ""),
        model("r", "wire = { api = \"responses\" }")
    );
    let file = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = file.join(uuid::Uuid::now_v7().to_string());
    std::fs::write(&file, text).unwrap();
    let config = [(CONFIG_FILE, file.to_str().unwrap()), (DEFAULT_APIS, "1")];
    let app = TestApp::upstream_with(options, &upstream, &config).await;
    std::fs::remove_file(&file).unwrap();
    let account = app.account("10").await;
    for (model, path) in [("local/m", "chat/completions"), ("local/r", "responses")] {
        app.post(&account.key, CHAT, &ask(model, "Hi"))
            .await
            .expect(200);
        let sent = upstream.requests().pop().unwrap();
        assert_eq!(sent.path, format!("/local/v1/{path}"));
    }
    app.assert_settled().await;
}

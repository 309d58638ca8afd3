//! Messages to chat and back: the order of blocks, the reasons of the end, the choice of tools.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{CHAT, MESSAGES, MODELS, ask, function, parts, with};
use crate::common::{Reply, TestApp, Upstream};

#[sqlx::test]
async fn blocks_keep_their_order(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let used =
        |id: &str| json!({"type": "tool_use", "id": id, "name": "f", "input": {"a": 1, "z": id}});
    let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": id}]});
    let said = |text: &str| json!({"type": "text", "text": text});
    let called = |id: &str| {
        json!({"id": id, "type": "function",
            "function": {"name": "f", "arguments": format!(r#"{{"a":1,"z":"{id}"}}"#)}})
    };
    let answered = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": id});
    let messages = json!([
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [said("Let me look."), used("1"), used("2")]},
        {"role": "user", "content": [result("1"), result("2"), said("And now?")]}]);
    let chat = json!([
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "Let me look.", "tool_calls": [called("1"), called("2")]},
        answered("1"), answered("2"), {"role": "user", "content": "And now?"}]);
    for (path, model, asked, expected) in [
        (MESSAGES, MODELS[1], &messages, &chat),
        (CHAT, MODELS[2], &chat, &messages),
    ] {
        let tools = json!({"messages": asked, "tools": [function(path, "f")]});
        let body = with(ask(model, "x"), &tools);
        app.post(&account.key, path, &body).await.expect(200);
        let sent = upstream.requests().pop().unwrap();
        let mut found = sent.body["messages"].clone();
        if path == CHAT {
            // What follows results may be a message of its own.
            let list = found.as_array_mut().unwrap();
            if list.len() == 4 {
                let last = list.pop().unwrap();
                let text = said(last["content"].as_str().unwrap());
                list[2]["content"].as_array_mut().unwrap().push(text);
            }
        }
        assert_eq!(found, *expected, "{path}");
        let arguments = if path == CHAT {
            r#"{"a":1,"z":"1"}"#
        } else {
            r#"{\"a\":1,\"z\":\"1\"}"#
        };
        assert!(sent.text.contains(arguments), "{}", sent.text);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn reasons_of_the_end_have_their_names(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for (chat, messages) in [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("tool_calls", "tool_use"),
    ] {
        let calls = if chat == "tool_calls" {
            json!([{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}])
        } else {
            Value::Null
        };
        upstream.reply(Reply::Status(
            200,
            json!({"choices": [{"finish_reason": chat,
                    "message": {"content": "Hi.", "tool_calls": calls}}],
                "usage": {"prompt_tokens": 9, "completion_tokens": 3}}),
        ));
        let answer = app.post(&account.key, MESSAGES, &ask(MODELS[1], "x")).await;
        assert_eq!(parts(MESSAGES, &answer.expect(200)).1, messages);
        let mut content = vec![json!({"type": "text", "text": "Hi."})];
        if messages == "tool_use" {
            content.push(json!({"type": "tool_use", "id": "1", "name": "f", "input": {}}));
        }
        upstream.reply(Reply::Status(
            200,
            json!({"content": content, "stop_reason": messages,
                "usage": {"input_tokens": 9, "output_tokens": 3}}),
        ));
        let answer = app.post(&account.key, CHAT, &ask(MODELS[2], "x")).await;
        assert_eq!(parts(CHAT, &answer.expect(200)).1, chat);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn the_choice_of_tools_has_its_names(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let named = json!({"type": "function", "function": {"name": "f"}});
    for (chat, messages) in [
        (json!("required"), json!({"type": "any"})),
        (json!("none"), json!({"type": "none"})),
        (named, json!({"type": "tool", "name": "f"})),
    ] {
        for one in [false, true] {
            let tools = |path| json!({"tools": [function(path, "f")]});
            let mut body = with(ask(MODELS[1], "x"), &tools(MESSAGES));
            body["tool_choice"] = messages.clone();
            if one && chat != "none" {
                body["tool_choice"]["disable_parallel_tool_use"] = json!(true);
            }
            app.post(&account.key, MESSAGES, &body).await.expect(200);
            let sent = upstream.requests().pop().unwrap().body;
            assert_eq!(sent["tool_choice"], chat);
            let parallel = sent.get("parallel_tool_calls");
            assert_eq!(parallel, (one && chat != "none").then_some(&json!(false)));
            let expected = body["tool_choice"].clone();
            let mut body = with(ask(MODELS[2], "x"), &tools(CHAT));
            body["tool_choice"] = chat.clone();
            if one {
                body["parallel_tool_calls"] = json!(false);
            }
            app.post(&account.key, CHAT, &body).await.expect(200);
            let sent = upstream.requests().pop().unwrap().body;
            assert_eq!(sent["tool_choice"], expected);
        }
    }
    app.assert_settled().await;
}

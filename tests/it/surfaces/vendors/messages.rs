//! Messages that a vendor would refuse: empty, in another order, or without their results.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    super::{CHAT, MESSAGES, MODELS, RESPONSES, ask, error, failures, with},
    LOCAL, all, called, others, sent, tool,
};
use crate::common::Upstream;

#[sqlx::test]
async fn thinking_that_nobody_signed_is_left_out(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    for thought in [
        json!({"reasoning_content": "secretly"}),
        json!({"reasoning": "secretly"}),
        json!({"reasoning_details": [{"type": "reasoning.text", "text": "secretly"}]}),
        json!({"thinking_blocks": [{"type": "thinking", "thinking": "secretly", "signature": "s"}]}),
        json!({"reasoning_content": "secretly", "content": ""}),
        json!({"reasoning_content": "secretly", "content": null}),
    ] {
        let said = with(json!({"role": "assistant", "content": "b"}), &thought);
        let messages =
            json!([{"role": "user", "content": "a"}, said, {"role": "user", "content": "c"}]);
        let is_said = said["content"] == "b";
        for model in [MODELS[0], MODELS[2], MODELS[3]] {
            let body = with(ask(model, "x"), &json!({ "messages": messages }));
            let answer = app.post(&account.key, CHAT, &body).await;
            answer.expect(200);
            assert_eq!(answer.header("x-gensvc-left-out"), "thinking", "{thought}");
            if model != MODELS[0] {
                let sent = &upstream.requests().pop().unwrap();
                assert!(!sent.text.contains("secretly"), "{}", sent.text);
                let member = if model == MODELS[2] {
                    "messages"
                } else {
                    "contents"
                };
                let count = sent.body[member].as_array().unwrap().len();
                assert_eq!(count, if is_said { 3 } else { 1 }, "{}", sent.text);
            }
        }
        // It passes to who may know it.
        upstream.be_lenient();
        for model in [MODELS[1], LOCAL] {
            let body = with(ask(model, "x"), &json!({ "messages": messages }));
            let sent = sent(&app, &upstream, &account, CHAT, &body).await;
            assert_eq!(sent["messages"], messages);
        }
    }
    // Unsigned thinking of another vendor, by Messages.
    let thinking = json!([{"type": "thinking", "thinking": "secretly", "signature": ""}, {"type": "text", "text": "b"}]);
    let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": thinking},
        {"role": "user", "content": "c"}]);
    let body = with(ask(MODELS[2], "x"), &json!({ "messages": messages }));
    let answer = app.post(&account.key, MESSAGES, &body).await;
    answer.expect(200);
    assert_eq!(answer.header("x-gensvc-left-out"), "thinking");
    app.assert_settled().await;
}

#[sqlx::test]
async fn nothing_empty_is_sent(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    let text = |text: &str| json!({"type": "text", "text": text});
    let (user, assistant) = ("user", "assistant");
    for messages in [
        vec![
            (user, json!("a")),
            (assistant, json!("")),
            (user, json!("b")),
        ],
        vec![
            (user, json!("a")),
            (assistant, json!([])),
            (user, json!("b")),
        ],
        vec![(user, json!("")), (user, json!("a"))],
        vec![
            (user, json!("a")),
            (assistant, json!([text("")])),
            (user, json!([text(""), text("b")])),
        ],
        vec![
            (user, json!([text(" \n"), text("a")])),
            (assistant, json!("b")),
            (user, json!(" ")),
            (user, json!("c")),
        ],
        vec![
            (user, json!("a")),
            (assistant, json!("b")),
            (assistant, json!("c")),
            (user, json!("d")),
        ],
    ] {
        let messages: Vec<Value> = messages
            .iter()
            .map(|(role, content)| json!({"role": role, "content": content}))
            .collect();
        // Anthropic joins messages of one role itself.
        let passed = messages.len() < 4 || messages[1]["role"] != messages[2]["role"];
        let passed = [MODELS[2]].into_iter().take(usize::from(passed));
        for path in [CHAT, MESSAGES] {
            for model in (others(path).into_iter())
                .chain([MODELS[0]])
                .chain(passed.clone())
            {
                let body = with(ask(model, "x"), &json!({ "messages": messages }));
                app.post(&account.key, path, &body).await.expect(200);
            }
        }
        let input: Vec<Value> = messages
            .iter()
            .map(|message| {
                let mut message = message.clone();
                for part in message["content"].as_array_mut().into_iter().flatten() {
                    part["type"] = json!("input_text");
                }
                message
            })
            .collect();
        for model in others(RESPONSES) {
            let body = json!({"model": model, "input": input, "max_output_tokens": 64});
            app.post(&account.key, RESPONSES, &body).await.expect(200);
        }
    }
    // All else of a body that is passed through stays.
    let marked = json!({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}});
    let messages = json!([{"role": "user", "content": [text(" "), marked]},
        {"role": "assistant", "content": ""}, {"role": "user", "content": "b"}]);
    let body = with(ask(MODELS[2], "x"), &json!({ "messages": messages }));
    let sent = sent(&app, &upstream, &account, MESSAGES, &body).await;
    let joined = json!([{"role": "user", "content": [marked, text("b")]}]);
    assert_eq!(sent["messages"], joined);
    for (system, expected) in [
        (json!([text(" "), text("s")]), json!([text("s")])),
        (json!([text("")]), Value::Null),
        (json!(" "), Value::Null),
    ] {
        let body = with(ask(MODELS[2], "x"), &json!({ "system": system }));
        let sent = self::sent(&app, &upstream, &account, MESSAGES, &body).await;
        assert_eq!(sent["system"], expected, "{system}");
    }
    // An empty tool result, and an empty text next to a call.
    for path in [CHAT, MESSAGES] {
        for model in others(path).into_iter().chain([MODELS[2]]) {
            let mut body = called(path, model, &[("c", "f", "{}")]);
            body["tools"] = json!([tool(path, "f", &json!({}))]);
            if path == CHAT {
                body["messages"][1]["content"] = json!("");
                body["messages"][2]["content"] = json!("");
            } else {
                body["messages"][1]["content"]
                    .as_array_mut()
                    .unwrap()
                    .insert(0, text(""));
                body["messages"][2]["content"][0]["content"] = json!([text("")]);
            }
            app.post(&account.key, path, &body).await.expect(200);
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn arguments_that_were_cut_off_go_on(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    for (arguments, expected) in [
        (r#"{"city": "Bo"#, json!({"_truncated": r#"{"city": "Bo"#})),
        ("not json", json!({"_truncated": "not json"})),
        ("[1, 2]", json!({"_truncated": "[1, 2]"})),
        (r#""text""#, json!({"_truncated": r#""text""#})),
        (r#""{\"a\":1}""#, json!({"a": 1})),
        ("", json!({})),
        (r#"{"a":{"b":[1"#, json!({"_truncated": r#"{"a":{"b":[1"#})),
        (r#"{"whole":1}"#, json!({"whole": 1})),
    ] {
        for path in [CHAT, RESPONSES] {
            for model in others(path).into_iter().chain([MODELS[0]]) {
                let body = with(
                    called(path, model, &[("c", "f", arguments)]),
                    &json!({"tools": [tool(path, "f", &json!({}))]}),
                );
                app.post(&account.key, path, &body).await.expect(200);
                let sent = || upstream.requests().pop().unwrap().body;
                if model == MODELS[2] {
                    assert_eq!(sent()["messages"][1]["content"][0]["input"], expected);
                } else if model == MODELS[3] {
                    let call = &sent()["contents"][1]["parts"][0]["functionCall"];
                    assert_eq!(call["args"], expected);
                }
            }
        }
    }
    // Messages has objects, but agents send back what they received.
    for (input, expected) in [
        (json!("{\"a\": \"b"), json!({"_truncated": "{\"a\": \"b"})),
        (json!("{\"a\":1}"), json!({"a": 1})),
        (json!([1]), json!({"_truncated": "[1]"})),
        (json!(""), json!({})),
        (Value::Null, json!({})),
    ] {
        for model in all() {
            let mut body = called(MESSAGES, model, &[("c", "f", "{}")]);
            body["tools"] = json!([tool(MESSAGES, "f", &json!({}))]);
            body["messages"][1]["content"][0]["input"] = input.clone();
            let sent = sent(&app, &upstream, &account, MESSAGES, &body).await;
            if model == MODELS[2] {
                assert_eq!(sent["messages"][1]["content"][0]["input"], expected);
            } else if model == MODELS[3] {
                let call = &sent["contents"][1]["parts"][0]["functionCall"];
                assert_eq!(call["args"], expected);
            }
        }
    }
    app.assert_settled().await;
}

/// Each call has one result, and the results follow their calls.

#[sqlx::test]
async fn instructions_alone_are_refused_by_name(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    let system = json!({"role": "system", "content": "Be brief."});
    for messages in [
        json!([system]),
        json!([system, {"role": "developer", "content": "b"}]),
        json!([system, {"role": "user", "content": ""}]),
        json!([system, {"role": "user", "content": " "}, {"role": "assistant", "content": ""}]),
    ] {
        for model in [MODELS[2], MODELS[3]] {
            let body = with(ask(model, "x"), &json!({ "messages": messages }));
            let answer = app.post(&account.key, CHAT, &body).await;
            let refused = error(CHAT, &answer, 400, "required");
            assert_eq!(refused["param"], "messages");
        }
        let body = json!({"model": MODELS[2], "max_output_tokens": 64, "input": messages});
        let answer = app.post(&account.key, RESPONSES, &body).await;
        assert_eq!(error(RESPONSES, &answer, 400, "required")["param"], "input");
    }
    // Nothing at all.
    for content in ["", " "] {
        let nothing = json!([{"role": "user", "content": content}]);
        for model in [MODELS[1], LOCAL, MODELS[3]] {
            let body = with(ask(model, "x"), &json!({ "messages": nothing }));
            let answer = app.post(&account.key, MESSAGES, &body).await;
            error(MESSAGES, &answer, 400, "required");
            let body = json!({"model": model, "max_output_tokens": 64, "input": nothing});
            let answer = app.post(&account.key, RESPONSES, &body).await;
            error(RESPONSES, &answer, 400, "required");
        }
    }
    let body = with(ask(MODELS[2], "x"), &json!({ "messages": [system] }));
    error(
        MESSAGES,
        &app.post(&account.key, MESSAGES, &body).await,
        400,
        "required",
    );
    // OpenAI takes them.
    let body = with(ask(MODELS[1], "x"), &json!({ "messages": [system] }));
    app.post(&account.key, CHAT, &body).await.expect(200);
    let body = json!({"model": MODELS[1], "max_output_tokens": 64, "input": [system]});
    app.post(&account.key, RESPONSES, &body).await.expect(200);
    app.assert_settled().await;
}

/// anthropics/claude-code#94294
#[sqlx::test]
async fn settings_between_messages_pass_to_anthropic(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    let effort = json!({"role": "system", "content": [], "output_config": {"effort": "max"}});
    let without_content = json!({"role": "system", "output_config": {"effort": "low"}});
    let said = |role: &str, text: &str| json!({"role": role, "content": text});
    let messages = json!([
        said("user", "a"),
        said("assistant", "b"),
        effort,
        said("user", "c"),
        without_content
    ]);
    let body = with(ask(MODELS[2], "x"), &json!({ "messages": messages }));
    let passed = sent(&app, &upstream, &account, MESSAGES, &body).await;
    assert_eq!(passed["messages"], messages);
    // Other providers have one effort for the whole request.
    for model in [MODELS[0], MODELS[1], MODELS[3], LOCAL] {
        let body = with(body.clone(), &json!({ "model": model }));
        let answer = app.post(&account.key, MESSAGES, &body).await;
        let refused = error(MESSAGES, &answer, 400, "unsupported_parameter");
        let names = json!(["messages[2].output_config", "messages[4].output_config"]);
        assert_eq!(refused["details"]["unsupported"], names, "{model}");
    }
    app.assert_settled().await;
}

//! Tools that a vendor would refuse: incomplete schemas, and choices among none.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    super::{CHAT, MESSAGES, MODELS, RESPONSES, ask, error, failures, with},
    LOCAL, all, called, calling, names, sent, tool,
};
use crate::common::Upstream;

#[sqlx::test]
async fn schemas_are_completed(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    let property = json!({"a": {"type": "string"}});
    for (schema, expected) in [
        (json!({}), json!({"type": "object", "properties": {}})),
        (
            json!({"type": "object"}),
            json!({"type": "object", "properties": {}}),
        ),
        (
            json!({"properties": property}),
            json!({"type": "object", "properties": property}),
        ),
        (
            json!({"type": "object", "additionalProperties": false}),
            json!({"type": "object", "additionalProperties": false, "properties": {}}),
        ),
        (
            json!({"type": "object", "properties": {"l": {"type": "array"}}}),
            json!({"type": "object", "properties": {"l": {"type": "array", "items": {}}}}),
        ),
    ] {
        for path in [CHAT, RESPONSES, MESSAGES] {
            for model in all() {
                let tools = json!({"tools": [tool(path, "f", &schema)]});
                let body = with(called(path, model, &[]), &tools);
                let sent = sent(&app, &upstream, &account, path, &body).await;
                let found = match model {
                    _ if model == MODELS[2] => &sent["tools"][0]["input_schema"],
                    _ if model == MODELS[3] => {
                        &sent["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"]
                    }
                    _ => &sent["tools"][0]["function"]["parameters"],
                };
                assert_eq!(*found, expected, "{path} {model}");
            }
        }
    }
    // OpenAI and Anthropic take no alternatives at the root.
    let of = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]});
    let alternatives = json!({"anyOf": [of("a"), of("b")]});
    for path in [CHAT, RESPONSES, MESSAGES] {
        for model in all() {
            let tools = json!({"tools": [tool(path, "f", &alternatives)]});
            let sent = sent(
                &app,
                &upstream,
                &account,
                path,
                &with(called(path, model, &[]), &tools),
            )
            .await;
            let is_kept = sent["tools"].to_string().contains("anyOf");
            assert_eq!(
                is_kept,
                [MODELS[3], LOCAL].contains(&model),
                "{path} {model}"
            );
        }
    }
    // A function without any.
    for model in all() {
        let tools = json!({"tools": [{"type": "function", "function": {"name": "f"}},
            {"type": "function", "function": {"name": "g", "parameters": null, "description": null}}]});
        sent(
            &app,
            &upstream,
            &account,
            CHAT,
            &with(ask(model, "x"), &tools),
        )
        .await;
    }
}

#[sqlx::test]
async fn a_choice_without_tools_is_left_out(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    let one = json!({"type": "auto", "disable_parallel_tool_use": true});
    for (path, more, left_out) in [
        (
            CHAT,
            json!({"tools": [], "tool_choice": "none"}),
            "tool_choice",
        ),
        (CHAT, json!({"tool_choice": "none"}), "tool_choice"),
        (CHAT, json!({"tools": null, "tool_choice": "auto"}), ""),
        (
            CHAT,
            json!({"tools": [], "parallel_tool_calls": false}),
            "tool_choice",
        ),
        (
            RESPONSES,
            json!({"tools": [], "tool_choice": "none"}),
            "tool_choice",
        ),
        (
            RESPONSES,
            json!({"tool_choice": "auto", "parallel_tool_calls": true}),
            "",
        ),
        (
            MESSAGES,
            json!({"tools": [], "tool_choice": {"type": "none"}}),
            "tool_choice",
        ),
        (MESSAGES, json!({"tool_choice": one}), "tool_choice"),
    ] {
        for model in all() {
            let body = with(called(path, model, &[]), &more);
            let answer = app.post(&account.key, path, &body).await;
            answer.expect(200);
            assert_eq!(answer.header("x-gensvc-left-out"), left_out, "{more}");
            let sent = upstream.requests().pop().unwrap().body;
            for name in ["tools", "tool_choice", "toolConfig", "parallel_tool_calls"] {
                assert_eq!(sent.get(name), None, "{sent}");
            }
        }
    }
    for (path, more) in [
        (CHAT, json!({"tools": [], "tool_choice": "required"})),
        (
            CHAT,
            json!({"tool_choice": {"type": "function", "function": {"name": "f"}}}),
        ),
        (RESPONSES, json!({"tool_choice": "required"})),
        (
            MESSAGES,
            json!({"tools": [], "tool_choice": {"type": "any"}}),
        ),
    ] {
        let body = with(called(path, MODELS[2], &[]), &more);
        let answer = app.post(&account.key, path, &body).await;
        let refused = error(path, &answer, 400, "unsupported_parameter");
        assert!(refused["message"].as_str().unwrap().contains("tool_choice"));
    }
}

#[sqlx::test]
async fn one_call_of_a_forced_function_is_delivered(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    upstream.play(|request| calling(&request.path, &request.body, 3));
    let named = json!({"type": "function", "function": {"name": "f"}});
    let tools = |path: &str, names: &[&str]| {
        let tools = names
            .iter()
            .map(|name| tool(path, name, &json!({"type": "object"})));
        tools.collect::<Vec<Value>>()
    };
    for (path, names_of, choice, is_taken) in [
        (
            MESSAGES,
            &["f"][..],
            json!({"type": "tool", "name": "f", "disable_parallel_tool_use": true}),
            true,
        ),
        (
            MESSAGES,
            &["f", "g"],
            json!({"type": "tool", "name": "f", "disable_parallel_tool_use": true}),
            true,
        ),
        (
            MESSAGES,
            &["f"],
            json!({"type": "any", "disable_parallel_tool_use": true}),
            true,
        ),
        (
            MESSAGES,
            &["f", "g"],
            json!({"type": "any", "disable_parallel_tool_use": true}),
            false,
        ),
        (
            MESSAGES,
            &["f"],
            json!({"type": "auto", "disable_parallel_tool_use": true}),
            false,
        ),
        (CHAT, &["f"], named, true),
        (RESPONSES, &["f"], json!("required"), true),
    ] {
        for stream in [false, true] {
            let mut body = with(called(path, MODELS[3], &[]), &json!({"stream": stream}));
            body["tools"] = json!(tools(path, names_of));
            body["tool_choice"] = choice.clone();
            if path != MESSAGES {
                body["parallel_tool_calls"] = json!(false);
            }
            let answer = app.post(&account.key, path, &body).await;
            if is_taken {
                assert_eq!(answer.status, 200, "{}", answer.text);
                assert_eq!(names(path, &answer.text), ["f"], "{}", answer.text);
            } else {
                error(path, &answer, 400, "unsupported_parameter");
            }
        }
    }
    app.assert_settled().await;
}

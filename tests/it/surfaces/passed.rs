//! Bodies to a vendor of their own dialect: they go as they came.

use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{CHAT, MESSAGES, MODELS, ask, error, record, with};
use crate::{
    common::{Account, Answer, Reply, TestApp, Upstream},
    texts::{message, message_events},
};

async fn send(
    app: &TestApp,
    account: &Account,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut all = vec![("content-type", "application/json")];
    all.extend_from_slice(headers);
    let body = Some(body.to_owned());
    app.call(Method::POST, &account.key, path, &all, body).await
}

/// Messages as no writer of ours would have them, with cache markers, thoughts and fields of
/// tomorrow.
const TURNS: &str = r#"[ {"role":"user", "content":[{"type":"text","cache_control":{"type":"ephemeral"},"text":"\u00e9 <x>","new":1.0}]},
 {"content":[{"signature":"c2ln/+=","type":"thinking","thinking":""},{"data":"cmVk","type":"redacted_thinking"},
 {"type":"tool_use","input":{"z":1,"a":{"b":1e2}},"name":"f","id":"t1"}],"role":"assistant"},
 {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"ok"}]} ]"#;
const SYSTEM: &str =
    r#"[{"text":"s","type":"text","cache_control":{"ttl":"1h","type":"ephemeral"}}]"#;
const TOOLS: &str =
    r#"[{"input_schema":{"type":"object","properties":{"z":{},"a":{}}},"name":"f"}]"#;

#[sqlx::test]
async fn messages_pass_to_anthropic(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let body = format!(
        r#"{{"messages": {TURNS},"top_k" : 5,"model":"anthropic/claude-haiku-5-5", "max_tokens":64,
        "temperature":1,"system":{SYSTEM},"tools":{TOOLS},"metadata":{{"user_id":"u"}}}}"#
    );
    let sent = |temperature: &str| {
        format!(
            r#"{{"messages":{TURNS},"top_k":5,"model":"claude-haiku-5-5","max_tokens":64,{temperature}"system":{SYSTEM},"tools":{TOOLS},"metadata":{{"user_id":"u"}}}}"#
        )
    };
    let older = [
        ("anthropic-version", "2023-06-01"),
        ("anthropic-beta", "one,two"),
        ("anthropic-beta", "three"),
    ];
    for (headers, version, beta, sent) in [
        (
            &older[..],
            "2023-06-01",
            "one,two,three",
            sent(r#""temperature":1,"#),
        ),
        // The current version takes none, and one is the default.
        (&[][..], "2026-10-21", "", sent("")),
    ] {
        let answer = send(&app, &account, MESSAGES, headers, &body).await;
        assert_eq!(answer.expect(200)["model"], "anthropic/claude-haiku-5-5");
        assert_eq!(answer.header("x-gensvc-left-out"), "");
        let request = upstream.requests().pop().unwrap();
        assert_eq!(request.text, sent);
        let header = |name| {
            request
                .headers
                .get(name)
                .map_or("", |v| v.to_str().unwrap())
        };
        assert_eq!(
            (header("anthropic-version"), header("anthropic-beta")),
            (version, beta)
        );
        // All that the model may see, at the price of what the marker may write.
        let record = record(&app, &account, &answer).await;
        let visible = "s".len()
            + "é <x>".len()
            + "c2ln/+=".len()
            + "cmVk".len()
            + "t1f".len()
            + r#"{"a":{"b":100.0},"z":1}"#.len()
            + "t1".len()
            + "ok".len()
            + "f".len()
            + r#"{"properties":{"a":{},"z":{}},"type":"object"}"#.len();
        let others = "new".len() + "1.0".len();
        let tokens = visible + others + 8 * 7 + 16 + 1_000 + 64;
        let micros = i64::try_from(tokens * 20 + 64 * 50).unwrap();
        let held = record["credits"]["estimated"].as_str().unwrap();
        let held: gensvc::domain::credits::Credits = held.parse().unwrap();
        assert_eq!(held.micros(), micros);
    }
    // It names a message by this server's id.
    let diagnosed = body.replacen('{', r#"{"diagnostics":{"previous_message_id":"msg_1"},"#, 1);
    let answer = send(&app, &account, MESSAGES, &[], &diagnosed).await;
    assert_eq!(answer.header("x-gensvc-left-out"), "diagnostics");
    assert_eq!(upstream.requests().pop().unwrap().text, sent(""));
    let streamed = body.replacen('{', r#"{"stream":true,"#, 1);
    let answer = send(&app, &account, MESSAGES, &[], &streamed).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let text = upstream.requests().pop().unwrap().text;
    assert!(
        text.starts_with(&format!(r#"{{"stream":true,"messages":{TURNS}"#)),
        "{text}"
    );
    app.assert_settled().await;
}

/// What only Anthropic says of the end of an answer.
#[sqlx::test]
async fn the_ends_of_anthropics_answers_pass(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let usage = json!({"input_tokens": 9, "output_tokens": 3});
    let applied = json!({"applied_edits": [{"type": "clear_tool_uses_20250919",
        "cleared_input_tokens": 7, "cleared_tool_uses": 1}]});
    let details = json!({"type": "refusal", "category": "cyber", "explanation": "No."});
    let exceeded = "model_context_window_exceeded";
    for (at, (reason, details, applied)) in [
        (exceeded, Value::Null, Value::Null),
        (exceeded, Value::Null, applied.clone()),
        ("refusal", details, Value::Null),
        ("end_turn", Value::Null, applied),
        ("end_turn", Value::Null, Value::Null),
    ]
    .into_iter()
    .enumerate()
    {
        let content = [json!({"type": "text", "text": "Hello"})];
        let mut whole = message("m", &content, &usage);
        whole["stop_reason"] = json!(reason);
        let mut events = message_events(&content, &usage, &usage);
        let delta = json!({"type": "message_delta", "usage": usage, "context_management": applied,
            "delta": {"stop_reason": reason, "stop_details": details}});
        let end = events.len() - 2;
        events[end] = format!("event: message_delta\ndata: {delta}\n\n");
        whole["stop_details"] = details.clone();
        whole["context_management"] = applied.clone();
        upstream.play(move |request| {
            if request.body["stream"] == true {
                Reply::Raw(200, "text/event-stream", events.concat())
            } else {
                Reply::Status(200, whole.clone())
            }
        });
        for stream in [false, true] {
            // A refusal without a delivered text is an error.
            if reason == "refusal" && !stream {
                continue;
            }
            let key = format!("{at}-{stream}");
            let body = with(ask(MODELS[2], "x"), &json!({ "stream": stream }));
            for replayed in [false, true] {
                let key = [("idempotency-key", &key[..])];
                let answer = app.post_with(&account.key, MESSAGES, &key, &body).await;
                assert_eq!(answer.status, 200, "{}", answer.text);
                assert_eq!(answer.header("idempotent-replayed") == "true", replayed);
                let (root, delta) = if stream {
                    let mut events = super::events(MESSAGES, &answer.text);
                    let end = events.remove(events.len() - 2);
                    (end.clone(), end["delta"].clone())
                } else {
                    (answer.json(), answer.json())
                };
                assert_eq!(delta["stop_reason"], reason);
                assert_eq!(delta["stop_details"], details);
                assert_eq!(root["context_management"], applied);
                let text = &answer.text;
                assert_eq!(text.contains("stop_details"), details.is_object(), "{text}");
            }
            // Other dialects have no such members.
            let chat = app.post(&account.key, CHAT, &body).await;
            assert_eq!(chat.status, 200);
            assert!(!chat.text.contains(exceeded) && !chat.text.contains("applied_edits"));
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn tools_of_anthropic_that_the_caller_runs_pass(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for (kind, name) in [
        ("bash_20250124", "bash"),
        ("memory_20250818", "memory"),
        ("text_editor_20250728", "str_replace_based_edit_tool"),
    ] {
        let body = |model: &str| {
            format!(
                r#"{{"model":"{model}","max_tokens":64,"tools":[{{"type" :"{kind}","name":"{name}"}}],
                "tool_choice":{{"type":"tool","name":"{name}"}},
                "messages":[{{"role":"user","content":"x"}}]}}"#
            )
        };
        let answer = send(&app, &account, MESSAGES, &[], &body(MODELS[2])).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let sent = upstream.requests().pop().unwrap().text;
        assert!(sent.contains(&format!(r#"[{{"type" :"{kind}","name":"{name}"}}]"#)));
        let record = record(&app, &account, &answer).await;
        let held = record["credits"]["estimated"].as_str().unwrap();
        let held: gensvc::domain::credits::Credits = held.parse().unwrap();
        // Anthropic describes the tool to the model.
        assert!(held.micros() > 2_000 * 10 + 64 * 50, "{held}");
        let count = upstream.count();
        for model in [MODELS[0], MODELS[1], MODELS[3]] {
            let answer = send(&app, &account, MESSAGES, &[], &body(model)).await;
            let refused = error(MESSAGES, &answer, 400, "unsupported_parameter");
            assert_eq!(refused["details"]["unsupported"][0], "tools[0].type");
        }
        assert_eq!(upstream.count(), count);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn search_results_pass_or_become_texts(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let result = json!({"type": "search_result", "source": "https://a.example", "title": "The A",
        "content": [{"type": "text", "text": "alpha"}, {"type": "text", "text": "beta"}],
        "citations": {"enabled": false}});
    let cited = with(result.clone(), &json!({"citations": {"enabled": true}}));
    let body = |model: &str, result: &Value| {
        json!({"model": model, "max_tokens": 64,
            "tools": [{"name": "f", "input_schema": {"type": "object", "properties": {}}}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "x"}, result]},
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": [result]}]}]})
    };
    for model in MODELS {
        let before = upstream.count();
        let body = body(model, &result);
        let answer = app.post(&account.key, MESSAGES, &body).await;
        assert_eq!(answer.status, 200, "{model}: {}", answer.text);
        let sent = upstream.requests().split_off(before);
        let Some(sent) = sent.last() else {
            assert_eq!(model, MODELS[0]);
            continue;
        };
        if model == MODELS[2] {
            assert_eq!(sent.body["messages"], body["messages"]);
        } else {
            let text = r"The A\nhttps://a.example\n\nalpha\n\nbeta";
            assert_eq!(sent.text.matches(text).count(), 2, "{}", sent.text);
        }
    }
    let answer = app
        .post(&account.key, MESSAGES, &body(MODELS[2], &cited))
        .await;
    let refused = error(MESSAGES, &answer, 400, "unsupported_parameter");
    assert_eq!(
        refused["details"]["unsupported"],
        json!([
            "messages[0].content[1].citations",
            "messages[2].content[0].content[0].citations"
        ])
    );
    app.assert_settled().await;
}

#[sqlx::test]
async fn chats_pass_to_openai(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let turns = r#"[{"role":"system","content":"s"} ,{"name":"me","role":"user","content":[{"text":"\u00e9","type":"text"}]}]"#;
    let body = format!(
        r#"{{"seed": 7,"messages": {turns},"model":"gpt-6-luna","verbosity":"low","max_tokens":64,
        "prompt_cache_key":"k","logit_bias":{{"1":2}},"frequency_penalty":0.5}}"#
    );
    let answer = send(&app, &account, CHAT, &[], &body).await;
    answer.expect(200);
    assert_eq!(answer.header("x-gensvc-left-out"), "");
    let sent = format!(
        r#"{{"seed":7,"messages":{turns},"model":"gpt-6-luna","verbosity":"low","prompt_cache_key":"k","logit_bias":{{"1":2}},"frequency_penalty":0.5,"max_completion_tokens":64,"service_tier":"default","store":false}}"#
    );
    assert_eq!(upstream.requests().pop().unwrap().text, sent);
    let streamed = r#""stream":true,"stream_options":{"tomorrow":1},"service_tier":"auto","#;
    let streamed = body.replacen('{', &format!("{{{streamed}"), 1);
    let answer = send(&app, &account, CHAT, &[], &streamed).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let sent = upstream.requests().pop().unwrap().body;
    let expected = json!({"tomorrow": 1, "include_usage": true, "include_obfuscation": false});
    assert_eq!(sent["stream_options"], expected);
    assert_eq!(
        (&sent["stream"], &sent["service_tier"]),
        (&json!(true), &json!("default"))
    );
    // Its usage was asked for by us alone.
    assert!(!answer.text.contains("\"usage\""), "{}", answer.text);
    app.assert_settled().await;
}

#[sqlx::test]
async fn what_another_dialect_has_no_name_for_is_refused(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let named = json!([{"role": "user", "content": "x", "name": "me"}]);
    let used = json!([{"type": "tool_use", "id": "1", "name": "search", "input": {}}]);
    let found = json!([{"type": "tool_result", "tool_use_id": "1",
        "content": [{"type": "tool_reference", "tool_name": "f"}]}]);
    let found = json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": used},
        {"role": "user", "content": found}]);
    let added = json!([{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}]);
    let added = json!([{"role": "user", "content": "x"}, {"role": "system", "content": added}]);
    for (path, own, param, more) in [
        (CHAT, 1, "logit_bias", json!({"logit_bias": {"1": 1}})),
        (
            CHAT,
            1,
            "frequency_penalty",
            json!({"frequency_penalty": 0.5}),
        ),
        (CHAT, 1, "messages[0].name", json!({"messages": named})),
        (CHAT, 1, "tomorrow", json!({"tomorrow": {}})),
        (MESSAGES, 2, "top_k", json!({"top_k": 5})),
        (
            MESSAGES,
            2,
            "messages[2].content[0].content[0].tool_name",
            json!({ "messages": found }),
        ),
        (
            MESSAGES,
            2,
            "messages[1].content[0].tool",
            json!({ "messages": added }),
        ),
        (MESSAGES, 2, "tomorrow", json!({"tomorrow": {}})),
    ] {
        for (at, model) in MODELS.into_iter().enumerate() {
            let before = upstream.count();
            let answer = app
                .post(&account.key, path, &with(ask(model, "x"), &more))
                .await;
            if at == own {
                answer.expect(200);
                let sent = &upstream.requests()[before].body;
                for (name, value) in more.as_object().unwrap() {
                    assert_eq!(sent[name], *value);
                }
                continue;
            }
            let refused = error(path, &answer, 400, "unsupported_parameter");
            let found = match path {
                CHAT => &refused["param"],
                _ => &refused["details"]["unsupported"][0],
            };
            assert_eq!(*found, Value::from(param), "{model}");
            assert_eq!(upstream.count(), before);
        }
    }
}

#[sqlx::test]
async fn seed_and_top_k_are_translated_for_gemini(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let (ignoring, taking) = (MODELS[3], "gemini/gemini-3.5-flash");
    for path in [CHAT, MESSAGES] {
        for (model, more, sent) in [
            (
                taking,
                json!({"seed": 7, "top_k": 40}),
                Some([json!(7), json!(40)]),
            ),
            (
                taking,
                json!({"seed": null, "top_k": 1}),
                Some([Value::Null, json!(1)]),
            ),
            (
                ignoring,
                json!({"seed": -7}),
                Some([json!(-7), Value::Null]),
            ),
            (ignoring, json!({"top_k": 40}), None),
            (taking, json!({"top_k": 0}), None),
            (taking, json!({"top_k": 1.5}), None),
            (taking, json!({"seed": 2_147_483_648_u32}), None),
            (taking, json!({"seed": "7"}), None),
        ] {
            let before = upstream.count();
            let body = with(ask(model, "x"), &more);
            let answer = app.post(&account.key, path, &body).await;
            let Some(sent) = sent else {
                error(path, &answer, 400, "unsupported_parameter");
                assert_eq!(upstream.count(), before, "{more}");
                continue;
            };
            answer.expect(200);
            assert_eq!(answer.header("x-gensvc-left-out"), "");
            let config = &upstream.requests()[before].body["generationConfig"];
            assert_eq!(["seed", "topK"].map(|name| config[name].clone()), sent);
        }
    }
    app.assert_settled().await;
}

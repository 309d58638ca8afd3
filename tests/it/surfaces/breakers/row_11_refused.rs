//! What is not served yet is refused by its name, and nothing is held for it.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{CHAT, MESSAGES, MODELS, RESPONSES, ROUTES, ask, error, prompt, with};
use crate::common::{TestApp, Upstream};

fn message(content: &Value) -> Value {
    json!({"messages": [{"role": "user", "content": content}]})
}

#[sqlx::test]
async fn what_a_chat_asks_beyond_text_is_named(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let odd = json!([{"type": "text", "text": "x", "cache_control": "ephemeral"}]);
    let called = json!({"messages": [{"role": "user", "content": "x"},
        {"role": "assistant", "content": "x", "tool_calls": null},
        {"role": "tool", "content": "1", "tool_call_id": "c"}]});
    for (param, more) in [
        ("tool_choice", json!({"tool_choice": "required"})),
        ("functions", json!({"functions": []})),
        ("function_call", json!({"function_call": "none"})),
        ("n", json!({"n": 2})),
        ("logprobs", json!({"logprobs": true})),
        ("top_logprobs", json!({"top_logprobs": 2})),
        ("logit_bias", json!({"logit_bias": {"1": 1}})),
        ("audio", json!({"audio": {"voice": "x", "format": "mp3"}})),
        ("modalities", json!({"modalities": ["text", "audio"]})),
        ("verbosity", json!({"verbosity": "low"})),
        ("seed", json!({"seed": 1})),
        ("presence_penalty", json!({"presence_penalty": 0.5})),
        ("frequency_penalty", json!({"frequency_penalty": -1})),
        (
            "prediction",
            json!({"prediction": {"type": "content", "content": "x"}}),
        ),
        ("store", json!({"store": true})),
        ("moderation", json!({"moderation": {}})),
        ("web_search_options", json!({"web_search_options": {}})),
        ("service_tier", json!({"service_tier": "priority"})),
        ("previous_response_id", json!({"previous_response_id": "x"})),
        ("plugins", json!({"plugins": [{"id": "web"}]})),
        ("conversation", json!({"conversation": "x"})),
        ("background", json!({"background": true})),
        ("something_new", json!({"something_new": 1})),
        ("messages[0].content[0].cache_control", message(&odd)),
        ("messages", called),
        (
            "messages[0].name",
            json!({"messages": [{"role": "user", "content": "x", "name": "a"}]}),
        ),
    ] {
        let answer = app
            .post(&account.key, CHAT, &with(ask(MODELS[0], "x"), &more))
            .await;
        let refused = error(CHAT, &answer, 400, "unsupported_parameter");
        assert_eq!(refused["param"], param, "{more}");
        assert_eq!(refused["type"], "invalid_request_error");
        assert!(
            refused["message"].as_str().unwrap().contains(param),
            "{refused}"
        );
        assert_eq!(answer.header("x-should-retry"), "false");
    }
    let body = with(
        ask(MODELS[0], "x"),
        &json!({"functions": [], "top_logprobs": 1}),
    );
    let refused = app.post(&account.key, CHAT, &body).await;
    let refused = error(CHAT, &refused, 400, "unsupported_parameter");
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains("functions") && message.contains("top_logprobs"),
        "{message}"
    );
    nothing_was_made(&app, &account.key).await;
}

#[sqlx::test]
async fn what_messages_ask_beyond_text_is_named(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let source = json!({"type": "url", "url": "https://example.com/a.png"});
    let result = json!([{"type": "tool_result", "tool_use_id": "t", "content": "1"}]);
    let cited = json!([{"type": "text", "text": "x", "citations": [{"type": "page_location"}]}]);
    let document = json!([{"type": "document", "source": source}]);
    let said = json!({"role": "user", "content": "x"});
    for (param, more) in [
        ("tool_choice", json!({"tool_choice": {"type": "any"}})),
        ("top_k", json!({"top_k": 5})),
        ("service_tier", json!({"service_tier": "priority"})),
        ("speed", json!({"speed": "fast"})),
        ("container", json!({"container": "x"})),
        (
            "context_management",
            json!({"context_management": {"edits": [{"type": "compact_20260112"}]}}),
        ),
        ("mcp_servers", json!({"mcp_servers": []})),
        ("fallbacks", json!({"fallbacks": []})),
        ("inference_geo", json!({"inference_geo": "eu"})),
        ("user_profile_id", json!({"user_profile_id": "x"})),
        ("something_new", json!({"something_new": 1})),
        (
            "messages[1].output_config",
            json!({"messages": [said, {"role": "system", "output_config": {"effort": "low"}}]}),
        ),
        (
            "messages[1].clear_at",
            json!({"messages": [said, {"role": "system", "content": "x", "clear_at": "next_user_message"}]}),
        ),
        ("system[0].citations", json!({ "system": cited })),
        ("messages[0].content[0].citations", message(&cited)),
        ("messages[0].content[0].source.type", message(&document)),
        ("messages", message(&result)),
    ] {
        let answer = app
            .post(&account.key, MESSAGES, &with(ask(MODELS[0], "x"), &more))
            .await;
        let refused = error(MESSAGES, &answer, 400, "unsupported_parameter");
        assert_eq!(refused["details"]["unsupported"][0], param, "{more}");
        assert_eq!(refused["type"], "invalid_request_error");
        assert!(
            refused["message"].as_str().unwrap().contains(param),
            "{refused}"
        );
        assert_eq!(answer.header("x-should-retry"), "false");
    }
    // With this code, the SDK's tool runner continues without a thread.
    let body = with(ask(MODELS[0], "x"), &json!({"thread": {"type": "create"}}));
    let refused = app.post(&account.key, MESSAGES, &body).await;
    let refused = error(MESSAGES, &refused, 400, "thread_unsupported_request");
    assert_eq!(refused["details"]["unsupported"], json!(["thread"]));
    nothing_was_made(&app, &account.key).await;
}

/// Hints: they cost nothing, and the answer says that they were left out.
#[sqlx::test]
async fn what_changes_no_answer_is_left_out_and_told(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let ephemeral = json!({"type": "ephemeral"});
    let block = |marker: &Value| json!([{"type": "text", "text": "x", "cache_control": marker}]);
    let marked = block(&ephemeral);
    // Claude Code sends it.
    let scoped = block(&json!({"type": "ephemeral", "scope": "global"}));
    let unknown = block(&json!({"type": "ephemeral", "new": {"a": [1]}}));
    let call = json!({"id": "c", "type": "function",
        "function": {"name": "f", "arguments": "{}"}});
    let named = json!([{"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "name": "f", "content": "1"}]);
    for (path, left_out, more) in [
        (CHAT, "user", json!({"user": "x"})),
        (
            CHAT,
            "metadata, safety_identifier",
            json!({"metadata": {}, "safety_identifier": "x"}),
        ),
        (
            CHAT,
            "prompt_cache_key",
            json!({"prompt_cache_key": "x", "user": null}),
        ),
        (
            CHAT,
            "prompt_cache_options",
            json!({"prompt_cache_options": {}}),
        ),
        (
            CHAT,
            "prompt_cache_retention",
            json!({"prompt_cache_retention": "24h"}),
        ),
        (CHAT, "name", json!({ "messages": named })),
        (CHAT, "cache_control", message(&marked)),
        (
            CHAT,
            "cache_control",
            json!({"messages": [{"role": "user", "content": "x", "cache_control": ephemeral}]}),
        ),
        (CHAT, "", json!({"logit_bias": {}})),
        (MESSAGES, "metadata", json!({"metadata": {"user_id": "x"}})),
        (
            MESSAGES,
            "thinking.display",
            json!({"thinking": {"type": "adaptive", "display": "omitted"}}),
        ),
        (
            RESPONSES,
            "reasoning.summary",
            json!({"reasoning": {"summary": "auto"}}),
        ),
        (
            RESPONSES,
            "reasoning.summary",
            json!({"reasoning": {"generate_summary": "concise"}}),
        ),
        (RESPONSES, "", json!({"reasoning": {"summary": null}})),
        (
            MESSAGES,
            "cache_control",
            json!({"cache_control": ephemeral}),
        ),
        (MESSAGES, "cache_control", message(&marked)),
        (MESSAGES, "cache_control", json!({ "system": marked })),
        (MESSAGES, "cache_control", json!({ "system": scoped })),
        (MESSAGES, "cache_control", message(&unknown)),
        (CHAT, "cache_control", message(&unknown)),
        (
            MESSAGES,
            "context_management",
            json!({"context_management": {}}),
        ),
        (MESSAGES, "diagnostics", json!({"diagnostics": {}})),
        (
            MESSAGES,
            "",
            json!({"thinking": {"type": "adaptive", "budget_tokens": 0}}),
        ),
        (
            MESSAGES,
            "",
            json!({"thinking": {"type": "disabled", "budget_tokens": null}}),
        ),
        (
            MESSAGES,
            "",
            json!({"messages": [{"role": "user", "content": "x"},
                {"role": "system", "content": "x", "clear_at": "never", "output_config": {}}]}),
        ),
    ] {
        for stream in [false, true] {
            let body = with(
                with(prompt(path, MODELS[0], "x"), &more),
                &json!({ "stream": stream }),
            );
            let answer = app.post(&account.key, path, &body).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            assert_eq!(answer.header("x-gensvc-left-out"), left_out);
        }
    }
}

#[sqlx::test]
async fn a_count_takes_and_refuses_what_a_generation_does(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    for (path, count) in [(RESPONSES, "input_tokens"), (MESSAGES, "count_tokens")] {
        for (more, status) in [
            (json!({"service_tier": "auto", "temperature": 0.5}), 200),
            (json!({"stream": true, "metadata": {}}), 200),
            (json!({"service_tier": "priority"}), 400),
            (json!({"temperature": 7}), 400),
            (json!({"stream": 1}), 400),
            (json!({"background": true}), 400),
            (json!({"tomorrow": 1}), 400),
        ] {
            let body = with(prompt(path, MODELS[0], "x"), &more);
            let made = app.post(&account.key, path, &body).await;
            assert_eq!(made.status, status, "{path} {more} {}", made.text);
            let counted = format!("{path}/{count}");
            let counted = app.post(&account.key, &counted, &body).await.expect(status);
            if status == 400 {
                assert_eq!(counted["error"], made.json()["error"], "{path} {more}");
            }
        }
    }
}

async fn nothing_was_made(app: &TestApp, key: &str) {
    let history = app.get(key, "/v1/generate/history").await.expect(200);
    assert_eq!(history["data"], json!([]));
    let balance = app.get(key, "/v1/credits/balance").await.expect(200);
    assert_eq!(balance["held"], "0");
}

#[sqlx::test]
async fn what_a_model_cannot_do_is_refused_before_the_hold(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for path in ROUTES {
        for (model, more, param) in [
            (
                "anthropic/claude-haiku-5-5",
                json!({"temperature": 0.5}),
                Some("temperature"),
            ),
            (
                "anthropic/claude-haiku-5-5",
                json!({"top_p": 0.5}),
                Some("top_p"),
            ),
            ("anthropic/claude-haiku-4-5", json!({"top_p": 0.5}), None),
            (
                "anthropic/claude-haiku-4-5",
                json!({"top_p": 0.5, "temperature": 0.5}),
                Some("top_p"),
            ),
            (
                "openai/gpt-6-luna",
                json!({"top_p": 0.5, "temperature": 1}),
                None,
            ),
            ("openai/gpt-6-astra", json!({"top_p": 0.5}), Some("top_p")),
            (
                "gemini/gemini-3.5-flash",
                json!({"top_p": 0.5, "temperature": 1}),
                None,
            ),
            (
                "gemini/gemini-3.5-flash-lite",
                json!({"temperature": 0.9}),
                Some("temperature"),
            ),
        ] {
            let before = upstream.count();
            let answer = app
                .post(&account.key, path, &with(ask(model, "x"), &more))
                .await;
            let Some(param) = param else {
                answer.expect(200);
                let sent = &upstream.requests()[before].body;
                let named = ["top_p", "topP"].map(|name| {
                    sent[name]
                        .as_f64()
                        .or(sent["generationConfig"][name].as_f64())
                });
                assert_eq!(
                    named.iter().flatten().next().copied(),
                    more["top_p"].as_f64(),
                    "{model}"
                );
                continue;
            };
            let refused = error(path, &answer, 400, "unsupported_parameter");
            assert!(
                refused["message"].as_str().unwrap().starts_with(param),
                "{refused}"
            );
            assert_eq!(upstream.count(), before);
        }
    }
}

/// Some SDKs always send both, as 1.
#[sqlx::test]
async fn sampling_default_next_to_another_value_is_left_out(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for path in ROUTES {
        for (given, sent) in [
            (json!({"temperature": 0, "top_p": 1}), [Some(0.0), None]),
            (json!({"temperature": 0.5, "top_p": 1.0}), [Some(0.5), None]),
            (json!({"temperature": 1, "top_p": 0.5}), [None, Some(0.5)]),
            (json!({"temperature": 1, "top_p": 1}), [Some(1.0), None]),
            (json!({"top_p": 1}), [None, Some(1.0)]),
        ] {
            let before = upstream.count();
            let body = with(ask("anthropic/claude-haiku-4-5", "x"), &given);
            app.post(&account.key, path, &body).await.expect(200);
            let body = &upstream.requests()[before].body;
            let found = ["temperature", "top_p"].map(|name| body[name].as_f64());
            assert_eq!(found, sent, "{path} {given}");
        }
    }
}

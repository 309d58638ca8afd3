//! Which dialogues begin alike.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    BYTES, CHAT, COUNT, COUNTED, HAIKU, LUNA, MESSAGES, NEXT, counted, first, held, held_with,
    question, receipts, second, with,
};
use crate::common::{Reply, TestApp, Upstream};

#[sqlx::test]
async fn cache_markers_may_move(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.be_lenient();
    let app = TestApp::upstream(options, &upstream).await;
    upstream.reply(counted(COUNT));
    let block = |text: &Value| json!([{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]);
    for (path, model) in [(MESSAGES, HAIKU), (CHAT, LUNA)] {
        let account = app.account("10").await;
        let (mut first, mut second) = (first(model), second(model));
        first["messages"][0]["content"] = block(&first["messages"][0]["content"]);
        second["messages"][2]["content"] = block(&second["messages"][2]["content"]);
        if path == MESSAGES {
            for (body, result) in [(&mut first, true), (&mut second, false)] {
                body["system"] = block(&json!("Be brief."));
                body["tools"] = json!([{"name": "f", "input_schema": {}}]);
                let result = if result {
                    block(&json!("ok"))
                } else {
                    json!("ok")
                };
                let messages = body["messages"].as_array_mut().unwrap();
                messages.splice(
                    0..0,
                    [
                        json!({"role": "user", "content": "x"}),
                        json!({"role": "assistant", "content": [
                        {"type": "tool_use", "id": "1", "name": "f", "input": {}}]}),
                        json!({"role": "user", "content": [
                        {"type": "tool_result", "tool_use_id": "1", "content": result}]}),
                    ],
                );
            }
            first["tools"][0]["cache_control"] = json!({"type": "ephemeral"});
        }
        assert!(held(&app, &account, path, &first).await >= BYTES);
        assert_eq!(
            held(&app, &account, path, &second).await,
            COUNTED + NEXT,
            "{path}"
        );
        // Only what is none.
        if path == MESSAGES {
            second["messages"][1]["content"][0]["input"] = json!({"cache_control": "x"});
            assert!(held(&app, &account, path, &second).await > BYTES);
        }
    }
    app.assert_settled().await;
}

/// The line that Claude Code puts before its instructions, which differs in each request.
#[sqlx::test]
async fn lines_for_billing_may_change(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let long = "f".repeat(600);
    let lines = ["0a1b2", &long].map(|cch| {
        format!("x-anthropic-billing-header: cc_version=2.1.330.a; cc_entrypoint=cli; cch={cch};")
    });
    let block = |text: &str| json!({"type": "text", "text": text});
    for model in [HAIKU, LUNA, "gemini/gemini-3.5-flash-lite"] {
        let account = app.account("10").await;
        let system = |line: &str| json!({"system": [block(line), block("Be brief.")]});
        let first = with(first(model), &system(&lines[0]));
        upstream.reply(counted(COUNT));
        held(&app, &account, MESSAGES, &first).await;
        let second = with(second(model), &system(&lines[1]));
        // Anthropic reads the second line, too.
        let line = if model == HAIKU { lines[1].len() } else { 0 };
        let bound = COUNTED + NEXT + line as u64;
        let found = held(&app, &account, MESSAGES, &second).await;
        assert_eq!(found, bound, "{model}");
        let answer = app.post(&account.key, MESSAGES, &second).await;
        let sent = upstream.requests().pop().unwrap().text;
        let is_sent = sent.contains("x-anthropic-billing-header");
        assert_eq!(is_sent, model == HAIKU);
        assert!(sent.contains("Be brief."));
        let left_out = answer.header("x-gensvc-left-out");
        let expected = if is_sent {
            ""
        } else {
            "x-anthropic-billing-header"
        };
        assert_eq!(left_out, expected, "{model}");
        // As a text, as some clients send them.
        let text = format!("{}\nBe brief.", lines[0]);
        let text = with(second, &json!({ "system": text }));
        app.post(&account.key, MESSAGES, &text).await.expect(200);
        let again = upstream.requests().pop().unwrap();
        assert_eq!(again.text == sent, !is_sent);
        assert_eq!(again.text.contains("x-anthropic-billing-header"), is_sent);
    }
    app.assert_settled().await;
}

/// It may be of another vendor, which counts otherwise.
#[sqlx::test]
async fn another_server_has_counted_nothing(_: PgPoolOptions, options: PgConnectOptions) {
    let (upstream, moved) = (Upstream::start().await, Upstream::start().await);
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for upstream in [&upstream, &moved] {
        upstream.reply(counted(COUNT));
    }
    held(&app, &account, CHAT, &first(LUNA)).await;
    let url = format!("{}/openai/v1", moved.url());
    let other = app.replica_with(&[("OPENAI_BASE_URL", &url)]).await;
    assert_eq!(
        held(&other, &account, CHAT, &second(LUNA)).await,
        BYTES + NEXT
    );
    assert_eq!(
        held(&app, &account, CHAT, &second(LUNA)).await,
        COUNTED + NEXT
    );
    app.assert_settled().await;
}

#[sqlx::test]
async fn what_differs_is_bound_by_its_bytes(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let (account, stranger) = (app.account("100").await, app.account("100").await);
    let beta = [("anthropic-beta", "context-1m")];
    let tools = json!([{"name": "f", "input_schema": {"type": "object"}}]);
    let given = json!({"system": "Be brief.", "tools": tools});
    let functions = json!([{"type": "function", "function": {"name": "f"}}]);
    let differing = [
        (MESSAGES, HAIKU, json!({"system": "Be brisk."})),
        (MESSAGES, HAIKU, json!({"tool_choice": {"type": "none"}})),
        (MESSAGES, HAIKU, json!({"thinking": {"type": "disabled"}})),
        (MESSAGES, HAIKU, json!({"output_config": {"effort": "low"}})),
        (MESSAGES, HAIKU, json!({"tomorrow": 1})),
        (
            MESSAGES,
            HAIKU,
            json!({"context_management": {"edits": []}}),
        ),
        (
            MESSAGES,
            HAIKU,
            json!({"tools": [{"name": "g", "input_schema": {"type": "object"}}]}),
        ),
        (MESSAGES, "anthropic/claude-haiku-4-5", json!({})),
        (CHAT, HAIKU, json!({})),
        (CHAT, LUNA, json!({"reasoning_effort": "low"})),
        (CHAT, LUNA, json!({"tools": functions})),
        (
            CHAT,
            LUNA,
            json!({"response_format": {"type": "json_object"}}),
        ),
        (CHAT, LUNA, json!({"verbosity": "low"})),
    ];
    let alike = [
        (
            MESSAGES,
            HAIKU,
            json!({"stop_sequences": ["x"], "metadata": {"user_id": "u"},
                "diagnostics": {"previous_message_id": "msg_1"}}),
        ),
        (MESSAGES, HAIKU, json!({"max_tokens": 100})),
        (MESSAGES, "claude-haiku-5-5", json!({})),
        (
            CHAT,
            LUNA,
            json!({"temperature": 0.5, "user": "u", "seed": 5, "stop": "x"}),
        ),
        (CHAT, LUNA, json!({"prompt_cache_key": "k", "metadata": {}})),
    ];
    let of = |path, body: Value| {
        if path == MESSAGES {
            with(body, &given)
        } else {
            body
        }
    };
    upstream.reply(counted(COUNT));
    for (path, model) in [(MESSAGES, HAIKU), (CHAT, LUNA)] {
        held(&app, &account, path, &of(path, first(model))).await;
    }
    // Uncounted from here on.
    upstream.play(|request| {
        let body = if request.path.contains("anthropic") {
            json!({"id": "m", "type": "message", "role": "assistant", "model": "m",
                "content": [{"type": "text", "text": "Sure."}], "stop_reason": "end_turn"})
        } else {
            json!({"id": "c", "object": "chat.completion", "model": "m", "choices": [
                {"index": 0, "message": {"role": "assistant", "content": "Sure."},
                 "finish_reason": "stop"}]})
        };
        Reply::Status(200, body)
    });
    let kept = receipts(&app).await;
    for (path, model, more) in &differing {
        let body = with(of(path, second(model)), more);
        let mine = held(&app, &account, path, &body).await;
        assert_eq!(mine, held(&app, &stranger, path, &body).await, "{body}");
        assert!(mine > BYTES, "{more}");
    }
    let mut body = of(MESSAGES, second(HAIKU));
    let beyond = held_with(&app, &account, MESSAGES, &beta, &body).await;
    assert!(beyond > BYTES);
    for (path, model, more) in &alike {
        let body = with(of(path, second(model)), more);
        assert_eq!(
            held(&app, &account, path, &body).await,
            COUNTED + NEXT,
            "{more}"
        );
    }
    // One letter of many.
    let said = question()["content"]
        .as_str()
        .unwrap()
        .replacen('l', "L", 1);
    body["messages"][0]["content"] = json!(said);
    assert!(held(&app, &account, MESSAGES, &body).await > BYTES);
    assert_eq!(receipts(&app).await, kept);
    app.assert_settled().await;
}

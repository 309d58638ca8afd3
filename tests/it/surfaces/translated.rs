//! Translation to another dialect: what must survive it, and how the rest is reported.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    CHAT, MESSAGES, MODELS, RESPONSES, ROUTES, ask, error, events, parts, record, text_of, with,
};
use crate::common::{Reply, TestApp, Upstream};

const ALWAYS_THINKS: &str = "anthropic/claude-opus-5-5";

fn schema() -> Value {
    json!({"type": "object", "required": ["a"], "additionalProperties": false,
        "properties": {"a": {"type": "string"}}})
}

#[sqlx::test]
async fn a_schema_is_strict_where_it_was(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let open = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let described = json!({"a": {"$ref": "#/$defs/a", "description": "d"}});
    let described = with(
        schema(),
        &json!({"properties": described, "$defs": {"a": {"type": "string"}}}),
    );
    let default = json!({"properties": {"a": {"type": "string", "default": "x"}}});
    for (schema, strict, left_out) in [
        (schema(), json!(true), ""),
        (open, Value::Null, "strict"),
        (described, Value::Null, "strict"),
        (with(schema(), &default), Value::Null, "strict"),
        (
            with(schema(), &json!({"allOf": [{"type": "object"}]})),
            Value::Null,
            "strict",
        ),
    ] {
        let format = json!({"format": {"type": "json_schema", "schema": schema}});
        let tools = json!([{"name": "f", "input_schema": schema, "strict": true}]);
        for more in [json!({"output_config": format}), json!({ "tools": tools })] {
            let body = with(ask(MODELS[1], "x"), &more);
            let answer = app.post(&account.key, MESSAGES, &body).await;
            answer.expect(200);
            let sent = upstream.requests().pop().unwrap().body;
            let places = ["/response_format/json_schema", "/tools/0/function"];
            let found = places.iter().find_map(|place| sent.pointer(place)).unwrap();
            assert_eq!(
                found.get("strict").unwrap_or(&Value::Null),
                &strict,
                "{sent}"
            );
            assert_eq!(answer.header("x-gensvc-left-out"), left_out);
        }
    }
}

/// Pydantic writes a described field of a model in this way.
#[sqlx::test]
async fn references_are_bare_for_gemini(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let draft = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let schema = |reference: Value| {
        json!({"type": "object", "properties": {"draft": reference, "more": {"type": "array",
            "items": reference}}, "$defs": {"Draft": draft}})
    };
    let given = schema(json!({"$ref": "#/$defs/Draft", "description": "The draft."}));
    let bare = schema(json!({"$ref": "#/$defs/Draft"}));
    let root = json!({"$ref": "#/$defs/Draft", "$defs": {"Draft": draft}});
    for (path, given, expected) in [
        (CHAT, &given, &bare),
        (RESPONSES, &given, &bare),
        (MESSAGES, &given, &bare),
        (
            MESSAGES,
            &root,
            &with(draft.clone(), &json!({"$defs": {"Draft": draft}})),
        ),
    ] {
        let body = match path {
            CHAT => with(
                ask(MODELS[3], "x"),
                &json!({"tools": [{"type": "function", "function": {"name": "f", "parameters": given}}],
                    "response_format": {"type": "json_schema",
                        "json_schema": {"name": "n", "schema": given}}}),
            ),
            RESPONSES => json!({"model": MODELS[3], "input": "x", "max_output_tokens": 64,
                "tools": [{"type": "function", "name": "f", "parameters": given}],
                "text": {"format": {"type": "json_schema", "name": "n", "schema": given}}}),
            _ => with(
                ask(MODELS[3], "x"),
                &json!({"tools": [{"name": "f", "input_schema": given}],
                    "output_config": {"format": {"type": "json_schema", "schema": given}}}),
            ),
        };
        app.post(&account.key, path, &body).await.expect(200);
        let sent = upstream.requests().pop().unwrap().body;
        let function = &sent["tools"][0]["functionDeclarations"][0];
        assert_eq!(function["parametersJsonSchema"], *expected, "{path}");
        if given != &root {
            assert_eq!(
                sent["generationConfig"]["responseJsonSchema"], bare,
                "{path}"
            );
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn schemas_have_only_what_anthropic_enforces(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let given = json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "properties": {"age": {"type": "integer", "minimum": 0, "description": "In years."},
            "kind": {"oneOf": [{"const": "a"}, {"type": "object", "properties": {}}]}},
        "required": ["age", "kind"]});
    let enforced = json!({"type": "object",
        "properties": {"age": {"type": "integer", "description": "In years.\n\n{\"minimum\":0}"},
            "kind": {"anyOf": [{"const": "a"},
                {"type": "object", "properties": {}, "additionalProperties": false}]}},
        "required": ["age", "kind"], "additionalProperties": false});
    for (path, strict, expected) in [
        (CHAT, true, &enforced),
        (RESPONSES, true, &enforced),
        // Nothing is enforced here.
        (CHAT, false, &given),
    ] {
        let body = match path {
            CHAT => with(
                ask(MODELS[2], "x"),
                &json!({"tools": [{"type": "function",
                    "function": {"name": "f", "parameters": given, "strict": strict}}],
                    "response_format": {"type": "json_schema",
                        "json_schema": {"name": "n", "schema": given}}}),
            ),
            _ => json!({"model": MODELS[2], "input": "x", "max_output_tokens": 64,
                "tools": [{"type": "function", "name": "f", "parameters": given, "strict": strict}],
                "text": {"format": {"type": "json_schema", "name": "n", "schema": given}}}),
        };
        app.post(&account.key, path, &body).await.expect(200);
        let sent = upstream.requests().pop().unwrap().body;
        assert_eq!(sent["output_config"]["format"]["schema"], enforced);
        assert_eq!(sent["tools"][0]["input_schema"], *expected, "{path}");
    }
    app.assert_settled().await;
}

/// Models write what they answer in the order of its schema.
#[sqlx::test]
async fn members_keep_their_order(_: PgPoolOptions, options: PgConnectOptions) {
    const PROPERTIES: &str =
        r#""properties":{"z":{"type":"string"},"a":{"type":"string"},"m":{"type":"string"}}"#;
    const ARGUMENTS: &str = r#"{"z":"1","a":"2","m":"3"}"#;
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let schema = format!(
        r#"{{"type":"object","required":["z","a","m"],"additionalProperties":false,{PROPERTIES}}}"#
    );
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let arguments: Value = serde_json::from_str(ARGUMENTS).unwrap();
    let body = |path: &str, model: &str| match path {
        CHAT => with(
            ask(model, "x"),
            &json!({"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
                "response_format": {"type": "json_schema",
                    "json_schema": {"name": "n", "schema": schema}}}),
        ),
        RESPONSES => json!({"model": model, "input": "x", "max_output_tokens": 64,
            "tools": [{"type": "function", "name": "f", "parameters": schema}],
            "text": {"format": {"type": "json_schema", "name": "n", "schema": schema}}}),
        _ => with(
            ask(model, "x"),
            &json!({"tools": [{"name": "f", "input_schema": schema}],
                "output_config": {"format": {"type": "json_schema", "schema": schema}}}),
        ),
    };
    for path in [CHAT, RESPONSES, MESSAGES] {
        for model in &MODELS[1..] {
            upstream.play(|request| {
                let arguments: Value = serde_json::from_str(ARGUMENTS).unwrap();
                Reply::Status(200, called(&request.path, &arguments))
            });
            let answer = app.post(&account.key, path, &body(path, model)).await;
            answer.expect(200);
            let sent = upstream.requests().pop().unwrap().text;
            assert_eq!(sent.matches(PROPERTIES).count(), 2, "{path} {model} {sent}");
            let call = match path {
                MESSAGES => format!(r#""input":{ARGUMENTS}"#),
                _ => format!(r#""arguments":{}"#, json!(ARGUMENTS)),
            };
            assert!(answer.text.contains(&call), "{model} {}", answer.text);
        }
    }
    // And of calls that are brought back.
    let called = json!({"role": "assistant", "content": [
        {"type": "tool_use", "id": "c", "name": "f", "input": arguments}]});
    let result = json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]});
    let body = body(MESSAGES, MODELS[1]);
    let messages = json!({"messages": [body["messages"][0], called, result]});
    let body = with(body, &messages);
    app.post(&account.key, MESSAGES, &body).await.expect(200);
    let sent = upstream.requests().pop().unwrap().body;
    let call = &sent["messages"][1]["tool_calls"][0];
    assert_eq!(call["function"]["arguments"], ARGUMENTS);
    app.assert_settled().await;
}

/// The answer of a vendor that calls a function.
fn called(path: &str, arguments: &Value) -> Value {
    if path.contains("openai") {
        let function = json!({"name": "f", "arguments": arguments.to_string()});
        let call = json!({"id": "c", "type": "function", "function": function});
        json!({"choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 3}})
    } else if path.contains("anthropic") {
        let call = json!({"type": "tool_use", "id": "c", "name": "f", "input": arguments});
        json!({"content": [call], "stop_reason": "tool_use",
            "usage": {"input_tokens": 9, "output_tokens": 3}})
    } else {
        let call = json!({"functionCall": {"name": "f", "args": arguments}});
        json!({"candidates": [{"content": {"parts": [call]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 3}})
    }
}

#[sqlx::test]
async fn thinking_that_cannot_be_switched_off_is_refused_or_the_least(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let disabled = json!({"thinking": {"type": "disabled"}});
    for model in [ALWAYS_THINKS, "anthropic/claude-sonnet-5-5"] {
        let body = with(ask(model, "x"), &disabled);
        let refused = app.post(&account.key, MESSAGES, &body).await;
        let refused = error(MESSAGES, &refused, 400, "unsupported_parameter");
        assert_eq!(refused["details"]["unsupported"], json!(["thinking"]));
    }
    let body = with(ask(MODELS[2], "x"), &disabled);
    app.post(&account.key, MESSAGES, &body).await.expect(200);
    let none = json!({"reasoning_effort": "none"});
    for (model, thinking) in [
        (ALWAYS_THINKS, None),
        ("anthropic/claude-sonnet-5-5", Some("between_tools")),
        (MODELS[2], Some("disabled")),
    ] {
        let body = with(ask(model, "x"), &none);
        app.post(&account.key, CHAT, &body).await.expect(200);
        let sent = upstream.requests().pop().unwrap().body;
        assert_eq!(sent["thinking"]["type"].as_str(), thinking, "{model}");
        assert_eq!(sent["output_config"]["effort"], "low");
    }
}

/// Anthropic refuses a limit that is not above the budget of thinking, and Gemini uses it up.
#[sqlx::test]
async fn a_limit_of_ours_has_room_for_the_thinking(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let thinking = json!({"max_tokens": 128_000,
        "thinking": {"type": "enabled", "budget_tokens": 2_000}});
    let body = with(ask(MODELS[2], "x"), &thinking);
    // 73 tokens of input at 10, then output at 50 and at 40 micro-credits.
    let gemini = "gemini/gemini-2.5-flash-lite";
    for (model, credits, limit) in [
        (MODELS[2], "0.11353", Ok(2_256)),
        (MODELS[2], "0.113529", Err("0.11353")),
        (MODELS[2], "1", Ok(19_985)),
        (gemini, "0.09097", Ok(2_256)),
        (gemini, "0.090969", Err("0.09097")),
        (gemini, "1", Ok(24_981)),
    ] {
        let account = app.account(credits).await;
        let body = with(body.clone(), &json!({"model": model}));
        let answer = app.post(&account.key, MESSAGES, &body).await;
        match limit {
            Ok(limit) => {
                answer.expect(200);
                let sent = upstream.requests().pop().unwrap().body;
                if model == gemini {
                    let config = &sent["generationConfig"];
                    assert_eq!(config["maxOutputTokens"], limit);
                    assert_eq!(config["thinkingConfig"]["thinkingBudget"], 2_000);
                } else {
                    assert_eq!(sent["max_tokens"], limit);
                }
            }
            Err(required) => {
                let short = error(MESSAGES, &answer, 402, "insufficient_credits");
                assert_eq!(short["required"], required);
            }
        }
    }
    // What is affordable has room for it too.
    let limited = with(body.clone(), &json!({"max_tokens": 10_000}));
    for (credits, affordable) in [
        ("0.10078", json!({"max_tokens": 2_001})),
        ("0.100779", Value::Null),
    ] {
        let account = app.account(credits).await;
        let answer = app.post(&account.key, MESSAGES, &limited).await;
        let short = error(MESSAGES, &answer, 402, "insufficient_credits");
        assert_eq!(short["affordable"], affordable);
    }
    // Elsewhere it is an effort.
    let account = app.account("0.02").await;
    let body = with(body, &json!({"model": MODELS[1]}));
    app.post(&account.key, MESSAGES, &body).await.expect(200);
    app.assert_settled().await;
}

#[sqlx::test]
async fn no_effort_is_added_to_a_body_of_the_vendors_own(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let tool = json!({"type": "function", "function": {"name": "f"}});
    let body = with(ask(MODELS[1], "x"), &json!({"tools": [tool]}));
    app.post(&account.key, CHAT, &body).await.expect(200);
    let sent = upstream.requests().pop().unwrap().body;
    assert_eq!(sent.get("reasoning_effort"), None, "{sent}");
    let tool = json!({"name": "f", "input_schema": {"type": "object"}});
    let body = with(ask(MODELS[2], "x"), &json!({"tools": [tool]}));
    app.post(&account.key, MESSAGES, &body).await.expect(200);
    let sent = upstream.requests().pop().unwrap().body;
    assert_eq!(
        (sent.get("thinking"), sent.get("output_config")),
        (None, None)
    );
}

#[sqlx::test]
async fn what_only_the_vendors_dialect_knows_is_passed_or_an_error(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let block = json!({"type": "tomorrow", "z": 1, "a": [2]});
    let text = json!({"type": "text", "text": "Hi."});
    let usage = json!({"input_tokens": 9, "output_tokens": 3});
    let answer = json!({"content": [block, text], "stop_reason": "end_turn", "usage": usage});
    upstream.reply(Reply::Status(200, answer.clone()));
    let whole = app.post(&account.key, MESSAGES, &ask(MODELS[2], "x")).await;
    assert_eq!(whole.expect(200)["content"], answer["content"]);
    let spent = app.balance(&account).await;
    let failed = app.post(&account.key, CHAT, &ask(MODELS[2], "x")).await;
    error(CHAT, &failed, 502, "provider_error");
    assert_eq!(app.balance(&account).await, spent);
    let stream = |piece: Option<Value>| {
        let start = |block: &Value| json!({"type": "content_block_start", "index": 0, "content_block": block});
        let mut events = vec![
            json!({"type": "message_start", "message": {"usage": usage}}),
            start(&block),
        ];
        events.extend(piece.map(|delta| json!({"type": "content_block_delta", "delta": delta})));
        events.extend([
            start(&text),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}),
            json!({"type": "message_stop"}),
        ]);
        let event = |event: &Value| format!("data: {event}\n\n");
        let events: String = events.iter().map(event).collect();
        Reply::Raw(200, "text/event-stream", events)
    };
    let streamed = with(ask(MODELS[2], "x"), &json!({"stream": true}));
    upstream.reply(stream(None));
    let reply = app.post(&account.key, MESSAGES, &streamed).await;
    let received = events(MESSAGES, &reply.text);
    assert!(
        received.iter().any(|event| event["content_block"] == block),
        "{received:?}"
    );
    // Half of the block would be useless.
    upstream.reply(stream(Some(json!({"type": "tomorrow_delta", "more": 1}))));
    let reply = app.post(&account.key, MESSAGES, &streamed).await;
    let received = events(MESSAGES, &reply.text);
    assert_eq!(received.last().unwrap()["type"], "error");
    // A text generation returns the text without the unknown block.
    upstream.reply(Reply::Status(200, answer));
    let asked = json!({"prompt": "x", "provider": "anthropic"});
    let plain = app.text(&account.key, asked).await.expect(200);
    assert_eq!(plain["result"], "Hi.");
    app.assert_settled().await;
}

#[sqlx::test]
async fn nothing_before_a_stop_sequence_is_an_answer(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    upstream.play(|request| {
        let usage = json!({"prompt_tokens": 9, "completion_tokens": 1});
        let openai = json!({"usage": usage, "choices": [{"finish_reason": "stop", "message": {"content": ""}}]});
        let usage = json!({"promptTokenCount": 9, "candidatesTokenCount": 1});
        let gemini = json!({"candidates": [{"content": {"parts": []}, "finishReason": "STOP"}],
            "usageMetadata": usage});
        let is_openai = request.path.starts_with("/openai");
        Reply::Status(200, if is_openai { openai } else { gemini })
    });
    for model in [MODELS[1], MODELS[3]] {
        for (path, name) in [(CHAT, "stop"), (MESSAGES, "stop_sequences")] {
            let stopped = with(ask(model, "x"), &json!({ name: ["END"] }));
            let answer = app.post(&account.key, path, &stopped).await;
            let body = answer.expect(200);
            if path == CHAT {
                assert_eq!(parts(path, &body).0, "");
            } else {
                assert_eq!(body["content"], json!([]));
            }
            assert_eq!(record(&app, &account, &answer).await["result"], "");
            // Without one, too: the output was counted.
            let answer = app.post(&account.key, path, &ask(model, "x")).await;
            answer.expect(200);
        }
    }
    app.assert_settled().await;
}

/// Anthropic refuses these stop sequences.
#[sqlx::test]
async fn blank_stop_sequences_end_the_text(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for (stop, sent) in [
        (json!([" "]), Value::Null),
        (json!(" "), Value::Null),
        (json!(["\n\n", "X", " "]), json!(["X"])),
    ] {
        for stream in [false, true] {
            let more = json!({ "stop": stop, "stream": stream });
            let body = with(ask(MODELS[2], "x"), &more);
            let answer = app.post(&account.key, CHAT, &body).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            let text = if stream {
                text_of(CHAT, &events(CHAT, &answer.text))
            } else {
                let (text, reason, ..) = parts(CHAT, &answer.expect(200));
                assert_eq!(reason, "stop");
                text
            };
            assert_eq!(text, "Hello", "{stop}");
            assert_eq!(record(&app, &account, &answer).await["result"], "Hello");
            let body = upstream.requests().pop().unwrap().body;
            assert_eq!(body["stop_sequences"], sent);
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn instructions_before_the_first_message_are_in_order(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let said = |text: &str| json!({"role": "system", "content": text});
    let user = json!({"role": "user", "content": "x"});
    for (path, more) in [
        (
            CHAT,
            json!({"messages": [said("a"), said("b"), said("c"), user]}),
        ),
        (
            MESSAGES,
            json!({"system": "a", "messages": [said("b"), said("c"), user]}),
        ),
    ] {
        let body = with(ask(MODELS[3], "x"), &more);
        app.post(&account.key, path, &body).await.expect(200);
        let sent = upstream.requests().pop().unwrap().body;
        let expected = json!([{"text": "a\n\nb\n\nc"}]);
        assert_eq!(sent["systemInstruction"]["parts"], expected, "{path}");
        assert_eq!(sent["contents"].as_array().unwrap().len(), 1);
    }
}

#[sqlx::test]
async fn the_sandbox_takes_no_more_than_its_context(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    for path in ROUTES {
        let body = ask(MODELS[0], &"x".repeat(4_000_001));
        let refused = app.post(&account.key, path, &body).await;
        error(path, &refused, 400, "provider_rejected");
        let body = ask(MODELS[0], &"x".repeat(4_000_000));
        app.post(&account.key, path, &body).await.expect(200);
    }
    app.assert_settled().await;
}

/// Its result is the text: thoughts and a second text would only lie in the row.
#[sqlx::test]
async fn the_answer_of_a_prompt_is_stored_once(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    upstream.reply(Reply::Status(
        200,
        json!({"content": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "text", "text": "Hi."}],
            "stop_reason": "end_turn", "usage": {"input_tokens": 9, "output_tokens": 9}}),
    ));
    let asked = json!({"prompt": "x", "provider": "anthropic"});
    let answer = app.text(&account.key, asked).await.expect(200);
    assert_eq!(answer["result"], "Hi.");
    let dialogue = app.post(&account.key, MESSAGES, &ask(MODELS[2], "x")).await;
    dialogue.expect(200);
    let kept = "select answer is not null from finished_generations order by id";
    let kept: Vec<bool> = sqlx::query_scalar(kept).fetch_all(&app.pool).await.unwrap();
    assert_eq!(kept, [false, true]);
}

/// An agent's tools of kinds that only this dialect has, whichever vendor calls them.
#[sqlx::test]
async fn tools_of_responses_are_called_as_they_were_given(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let body = json!({"model": "sandbox/sandbox-text-1",
        "input": [{"role": "user", "content": "[[tool:crm__list]] [[tool:patch]]"}],
        "tools": [{"type": "custom", "name": "patch"},
            {"type": "namespace", "name": "crm", "description": "Customers.",
                "tools": [{"type": "function", "name": "list", "parameters": {"type": "object"}}]}]});
    let answer = app.post(&account.key, RESPONSES, &body).await.expect(200);
    let calls = &answer["output"];
    assert_eq!(calls[0]["type"], "function_call");
    assert_eq!(
        (&calls[0]["namespace"], &calls[0]["name"]),
        (&json!("crm"), &json!("list"))
    );
    assert_eq!(calls[1]["type"], "custom_tool_call");
    assert_eq!(
        (&calls[1]["name"], &calls[1]["input"]),
        (&json!("patch"), &json!("sandbox"))
    );
    // What they said is brought back, with each of the calls or with its id.
    for first in [
        calls[0].clone(),
        json!({"type": "item_reference", "id": calls[0]["id"]}),
    ] {
        let mut again = body.clone();
        let results = [
            json!({"type": "function_call_output", "call_id": calls[0]["call_id"], "output": "A."}),
            json!({"type": "custom_tool_call_output", "call_id": calls[1]["call_id"], "output": "Patched"}),
        ];
        let input = again["input"].as_array_mut().unwrap();
        input.extend([first, calls[1].clone()]);
        input.extend(results);
        let answer = app.post(&account.key, RESPONSES, &again).await.expect(200);
        let text = answer["output"][0]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("patch: Patched"), "{text}");
    }
    // A chat has no namespaces.
    let refused = app.post(&account.key, CHAT, &body).await;
    let refused = error(CHAT, &refused, 400, "unsupported_parameter");
    assert_eq!(refused["param"], "tools");
    app.assert_settled().await;
}

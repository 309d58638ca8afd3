//! Messages that a vendor would refuse: empty, in another order, or without their results.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    super::{CHAT, MESSAGES, MODELS, RESPONSES, ask, error, failures, record, with},
    LOCAL, all, called, others, sent, tool,
};
use crate::common::Upstream;

/// A dialogue of these turns: `a`ssistant, `c`all, `r`esult, `s`ystem, `u`ser, and `t`agged
/// instructions of the user.
fn turns(path: &str, model: &str, turns: &str) -> Value {
    let turn = |turn: char| match (turn, path) {
        ('a', _) => json!({"role": "assistant", "content": "a"}),
        ('s', _) => json!({"role": "system", "content": "s"}),
        ('t', _) => json!({"role": "user", "content": "<system>\ns\n</system>"}),
        ('u', _) => json!({"role": "user", "content": "u"}),
        ('c' | 'r', _) => {
            let (list, at) = match path {
                RESPONSES => ("input", 1),
                _ => ("messages", 1),
            };
            let at = at + usize::from(turn == 'r');
            called(path, model, &[("c", "f", "{}")])[list][at].clone()
        }
        _ => panic!("{turn}"),
    };
    let messages: Vec<Value> = turns.chars().map(turn).collect();
    let tools = json!({"tools": [tool(path, "f", &json!({}))]});
    match path {
        RESPONSES => with(
            json!({"model": model, "max_output_tokens": 64, "input": messages}),
            &tools,
        ),
        _ => with(
            with(ask(model, "x"), &json!({ "messages": messages })),
            &tools,
        ),
    }
}

#[sqlx::test]
async fn later_instructions_become_texts_of_the_user(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    for (given, tagged) in [
        ("us", "ut"),
        ("usu", "utu"),
        ("susasu", "sutatu"),
        ("suassa", "suatta"),
        ("ucsr", "uctr"),
        ("ucssrsu", "ucttrtu"),
        ("ucrsas", "ucrtat"),
    ] {
        for path in [CHAT, RESPONSES, MESSAGES] {
            let others = others(path).into_iter().filter(|model| *model != MODELS[1]);
            let older = ["anthropic/claude-haiku-4-5"].into_iter();
            for model in others.chain(older.filter(|_| path != MESSAGES)) {
                let mut seen = Vec::new();
                for shape in [given, tagged] {
                    let body = turns(path, model, shape);
                    let answer = app.post(&account.key, path, &body).await;
                    assert_eq!(answer.status, 200, "{model} {body} {}", answer.text);
                    let record = record(&app, &account, &answer).await;
                    let sent = upstream.requests().pop().unwrap().body;
                    seen.push((sent, record["credits"]["estimated"].clone()));
                }
                assert_eq!(seen[0], seen[1], "{path} {model} {given}");
            }
        }
        // OpenAI accepts them in any place, but not before the result of a call.
        if !given.contains("sr") {
            let body = turns(RESPONSES, MODELS[1], given);
            let sent = sent(&app, &upstream, &account, RESPONSES, &body).await;
            let roles = sent["messages"].as_array().unwrap().iter();
            let kept = roles.filter(|message| message["role"] == "developer");
            assert_eq!(kept.count(), given.matches('s').count(), "{sent}");
        }
    }
    let texts = ["u", "<system>\ns\n</system>", "u"];
    let blocks = texts.map(|text| json!({"type": "text", "text": text}));
    let body = turns(RESPONSES, MODELS[2], "usu");
    let found = sent(&app, &upstream, &account, RESPONSES, &body).await;
    assert_eq!(
        found["messages"],
        json!([{"role": "user", "content": blocks}])
    );
    let parts = texts.map(|text| json!({"text": text}));
    let body = turns(RESPONSES, MODELS[3], "usu");
    let found = sent(&app, &upstream, &account, RESPONSES, &body).await;
    assert_eq!(found["contents"], json!([{"role": "user", "parts": parts}]));
    // A body of the vendor's own dialect is the vendor's to judge.
    upstream.be_lenient();
    for (path, model) in [(MESSAGES, MODELS[2]), (CHAT, LOCAL)] {
        let body = turns(path, model, "usu");
        let found = sent(&app, &upstream, &account, path, &body).await;
        assert_eq!(found["messages"], body["messages"]);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn texts_of_a_message_are_one_string_in_a_chat(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    for path in [RESPONSES, MESSAGES] {
        let (list, kind) = match path {
            RESPONSES => ("input", "input_text"),
            _ => ("messages", "text"),
        };
        let texts = ["b", "c"].map(|text| json!({"type": kind, "text": text}));
        for model in [MODELS[1], LOCAL] {
            let mut body = called(path, model, &[("c", "f", "{}")]);
            body["tools"] = json!([tool(path, "f", &json!({}))]);
            body[list][0]["content"] = json!(texts);
            match path {
                RESPONSES => body[list][2]["output"] = json!(texts),
                _ => body[list][2]["content"][0]["content"] = json!(texts),
            }
            let answer = sent(&app, &upstream, &account, path, &body).await;
            let contents = [0, 2].map(|at| answer["messages"][at]["content"].clone());
            assert_eq!(contents, ["b\n\nc", "b\n\nc"], "{path} {model}");
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn calls_without_text_have_a_content(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    let thinking =
        json!({"type": "thinking", "thinking": "hm", "signature": "chat:reasoning_content"});
    for (blocks, content) in [(vec![], Value::Null), (vec![thinking], json!(""))] {
        let mut body = called(MESSAGES, LOCAL, &[("c", "f", "{}")]);
        body["tools"] = json!([tool(MESSAGES, "f", &json!({}))]);
        let list = body["messages"][1]["content"].as_array_mut().unwrap();
        list.splice(..0, blocks);
        let found = sent(&app, &upstream, &account, MESSAGES, &body).await;
        let members = found["messages"][1].as_object().unwrap();
        assert_eq!(members.get("content"), Some(&content), "{found}");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn developer_role_becomes_system_for_compatible_servers(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    let messages =
        |role: &str| json!([{"role": role, "content": "s"}, {"role": "user", "content": "u"}]);
    for (model, role) in [(LOCAL, "system"), (MODELS[1], "developer")] {
        let body = with(
            ask(model, "x"),
            &json!({ "messages": messages("developer") }),
        );
        let found = sent(&app, &upstream, &account, CHAT, &body).await;
        assert_eq!(found["messages"], messages(role), "{model}");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn dialogue_of_an_assistant_begins_with_the_user(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    for given in ["au", "aus", "saus", "cru"] {
        for path in [CHAT, RESPONSES] {
            for model in [MODELS[2], MODELS[3]] {
                let mut seen = Vec::new();
                let mut body = turns(path, model, given);
                for _ in 0..2 {
                    let answer = app.post(&account.key, path, &body).await;
                    assert_eq!(answer.status, 200, "{model} {body} {}", answer.text);
                    let record = record(&app, &account, &answer).await;
                    let sent = upstream.requests().pop().unwrap().body;
                    seen.push((sent, record["credits"]["estimated"].clone()));
                    // The same as of the user.
                    let list = if path == CHAT { "messages" } else { "input" };
                    let first = json!({"role": "user", "content": "(no message)"});
                    let at = usize::from(given.starts_with('s'));
                    body[list].as_array_mut().unwrap().insert(at, first);
                }
                assert_eq!(seen[0], seen[1], "{path} {model} {given}");
            }
        }
    }
    // Others accept it.
    let body = turns(MESSAGES, LOCAL, "au");
    let found = sent(&app, &upstream, &account, MESSAGES, &body).await;
    assert_eq!(found["messages"].as_array().unwrap().len(), 2);
    app.assert_settled().await;
}

/// The packages send an answer back with all its members.
#[sqlx::test]
async fn answers_are_sent_back_without_null_members(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = failures::start(options, &upstream).await;
    let account = app.account("10").await;
    for model in [LOCAL, MODELS[1], MODELS[2]] {
        let body = ask(model, "x");
        let answer = app.post(&account.key, CHAT, &body).await.expect(200);
        let said = &answer["choices"][0]["message"];
        assert_eq!(said["refusal"], Value::Null);
        let more =
            json!({"annotations": [], "audio": null, "function_call": null, "tool_calls": null});
        let said = with(said.clone(), &more);
        let user = &body["messages"][0];
        let messages = json!([user, said, user]);
        let body = with(body.clone(), &json!({ "messages": messages }));
        let found = sent(&app, &upstream, &account, CHAT, &body).await;
        let plain = json!({"role": "assistant", "content": said["content"]});
        let expected = if model == MODELS[1] { &said } else { &plain };
        assert_eq!(found["messages"][1], *expected, "{model}");
    }
    app.assert_settled().await;
}

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
    // An empty result of a tool, and an empty text beside a call.
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

//! Roles and contents of messages that a vendor would refuse.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    super::{CHAT, MESSAGES, MODELS, RESPONSES, ask, failures, record, with},
    LOCAL, called, others, sent, tool,
};
use crate::common::Upstream;

/// A dialogue of these turns: `a`ssistant, `c`all, `r`esult, `s`ystem, `u`ser, and `t`agged
/// instructions of the user.
fn turns(path: &str, model: &str, turns: &str) -> Value {
    let mut body = called(path, model, &[("c", "f", "{}")]);
    body["tools"] = json!([tool(path, "f", &json!({}))]);
    let list = match path {
        RESPONSES => "input",
        _ => "messages",
    };
    let turn = |turn: char| match turn {
        'a' => json!({"role": "assistant", "content": "a"}),
        'c' => body[list][1].clone(),
        'r' => body[list][2].clone(),
        's' => json!({"role": "system", "content": "s"}),
        't' => json!({"role": "user", "content": "<system>\ns\n</system>"}),
        _ => json!({"role": "user", "content": "u"}),
    };
    let messages: Vec<Value> = turns.chars().map(turn).collect();
    body[list] = json!(messages);
    body
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
        for path in [RESPONSES, MESSAGES] {
            let body = turns(path, MODELS[1], given);
            let found = sent(&app, &upstream, &account, path, &body).await;
            let messages = found["messages"].as_array().unwrap().iter();
            let kept = messages.filter(|message| message["role"] == "developer");
            assert_eq!(kept.count(), given.matches('s').count(), "{found}");
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

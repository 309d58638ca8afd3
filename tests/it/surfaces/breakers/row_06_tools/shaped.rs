//! Answers in JSON.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    super::{CHAT, MODELS, ROUTES, ask, error, parts, with},
    schema,
};
use crate::common::{Reply, TestApp, Upstream};

#[sqlx::test]
async fn an_answer_follows_its_schema(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.reply(Reply::Text(r#"{"city":"Bonn","days":3}"#.to_owned(), 20, 9));
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    // Anthropic enforces no minimum, and no open objects.
    let enforced = json!({"type": "object", "required": ["city", "days"], "properties": {
        "city": {"type": "string"}, "days": {"type": "integer", "description": "{\"minimum\":2}"}},
        "additionalProperties": false});
    for path in ROUTES {
        for model in MODELS {
            let is_claude = model.starts_with("anthropic/");
            // OpenAI refuses open objects as strict.
            let is_strict = !model.starts_with("openai/");
            let more = if path == CHAT {
                let format = json!({"name": "trip", "schema": schema(), "strict": is_strict});
                json!({"response_format": {"type": "json_schema", "json_schema": format}})
            } else {
                let schema = if is_claude {
                    enforced.clone()
                } else {
                    schema()
                };
                json!({"output_config": {"format": {"type": "json_schema", "schema": schema}}})
            };
            let answer = app
                .post(&account.key, path, &with(ask(model, "x"), &more))
                .await;
            let text = parts(path, &answer.expect(200)).0;
            let value: Value = serde_json::from_str(&text).unwrap();
            assert!(
                value["city"].is_string() && value["days"].as_i64() >= Some(2),
                "{text}"
            );
            if model == MODELS[0] {
                continue;
            }
            let sent = upstream.requests().last().unwrap().body.clone();
            let found = if model.starts_with("openai/") {
                let format = &sent["response_format"]["json_schema"];
                let (name, strict) = match path {
                    CHAT => ("trip", json!(false)),
                    _ => ("answer", Value::Null),
                };
                assert_eq!(
                    (&format["name"], &format["strict"]),
                    (&json!(name), &strict)
                );
                &format["schema"]
            } else if is_claude {
                &sent["output_config"]["format"]["schema"]
            } else {
                assert_eq!(
                    sent["generationConfig"]["responseMimeType"],
                    "application/json"
                );
                &sent["generationConfig"]["responseJsonSchema"]
            };
            let expected = if is_claude {
                enforced.clone()
            } else {
                schema()
            };
            assert_eq!(*found, expected, "{model}");
        }
    }
    let any = json!({"response_format": {"type": "json_object"}});
    for model in MODELS {
        let answer = app
            .post(&account.key, CHAT, &with(ask(model, "x"), &any))
            .await;
        if model.starts_with("anthropic/") {
            let refused = error(CHAT, &answer, 400, "unsupported_parameter");
            assert_eq!(refused["param"], "response_format");
            continue;
        }
        answer.expect(200);
    }
}

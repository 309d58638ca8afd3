//! Models in the dialects of the SDKs.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    CHAT, MODELS, ask, error, events, get, record,
    row_08_responses::{asked, functions},
    with,
};
use crate::common::{TestApp, Upstream};

#[sqlx::test]
async fn every_text_model_is_listed_and_found(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("0").await;
    // Any token will do.
    let key = app
        .key(
            account.id,
            json!({"name": "n", "abilities": ["read:credits"]}),
        )
        .await;
    let openai = app.get(&key, "/openai/v1/models").await.expect(200);
    assert_eq!(openai["object"], "list");
    assert_eq!(openai["data"], openai["models"]);
    let queried = app
        .get(&key, "/openai/v1/models?client_version=0.169.0")
        .await;
    assert_eq!(queried.expect(200)["data"], openai["data"]);
    let anthropic = app.get(&key, "/anthropic/v1/models").await.expect(200);
    assert_eq!(anthropic["has_more"], false);
    let ids = |list: &Value| {
        let all = list["data"].as_array().unwrap().iter();
        all.map(|model| model["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let texts = ids(&anthropic);
    assert_eq!(ids(&openai)[..texts.len()], texts);
    assert_eq!(anthropic["first_id"], texts[0]);
    assert_eq!(anthropic["last_id"], *texts.last().unwrap());
    for (n, id) in texts.iter().enumerate() {
        let name = id.replace('/', "%2F");
        for (root, list) in [
            ("/openai/v1/models", &openai),
            ("/anthropic/v1/models", &anthropic),
        ] {
            let one = app.get(&key, &format!("{root}/{name}")).await;
            assert_eq!(one.expect(200), list["data"][n]);
        }
    }
    for id in MODELS {
        assert!(ids(&openai).contains(&id.to_owned()), "{id}");
    }
    for (id, kind) in [
        ("sandbox/sandbox-image-1", "image"),
        ("sandbox/sandbox-speech-1", "audio"),
    ] {
        let listed = openai["data"].as_array().unwrap();
        let listed = listed.iter().find(|model| model["id"] == id).unwrap();
        assert_eq!(listed["type"], kind);
        let name = id.replace('/', "%2F");
        let one = app.get(&key, &format!("/openai/v1/models/{name}")).await;
        assert_eq!(one.expect(200), *listed);
        let path = format!("/anthropic/v1/models/{name}");
        error(&path, &app.get(&key, &path).await, 404, "model_not_found");
    }
    assert!(!ids(&openai).contains(&"sandbox/sandbox-video-1".to_owned()));
    let one = app
        .get(&key, "/openai/v1/models/gpt-6-luna?x=1")
        .await
        .expect(200);
    let expected = json!({"id": "openai/gpt-6-luna", "object": "model", "created": 0, "owned_by": "openai",
        "type": "text"});
    assert_eq!(one, expected);
    let one = app
        .get(&key, "/anthropic/v1/models/claude-haiku-5-5?beta=true")
        .await
        .expect(200);
    let expected = json!({"type": "model", "id": "anthropic/claude-haiku-5-5",
        "display_name": "claude-haiku-5-5", "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active", "max_input_tokens": 1_000_000, "max_tokens": 128_000});
    assert_eq!(one, expected);
    let headers = [("x-api-key", key.as_str())];
    assert_eq!(
        get(&app, &headers, "/anthropic/v1/models").await.status,
        200
    );
    for path in [
        "/openai/v1/models/nope",
        "/anthropic/v1/models/openai%2Fnope",
        "/openai/v1/models/%ff",
    ] {
        let missing = app.get(&key, path).await;
        let missing = error(path, &missing, 404, "model_not_found");
        if path.starts_with("/openai") {
            assert_eq!(missing["param"], "model");
        } else {
            assert_eq!(missing["type"], "not_found_error");
        }
        error(path, &app.get("", path).await, 401, "missing_token");
    }
}

#[sqlx::test]
async fn models_come_in_pages_where_asked(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("0").await;
    let list = async |query: &str| {
        let path = format!("/anthropic/v1/models{query}");
        app.get(&account.key, &path).await.expect(200)
    };
    let all = list("").await;
    let all = all["data"].as_array().unwrap();
    let (mut forward, mut query) = (Vec::new(), "?limit=7".to_owned());
    loop {
        let page = list(&query).await;
        forward.extend(page["data"].as_array().unwrap().iter().cloned());
        if page["has_more"] == false {
            break;
        }
        query = format!("?limit=7&after_id={}", page["last_id"].as_str().unwrap());
    }
    assert_eq!(&forward, all);
    let last = all.last().unwrap()["id"].as_str().unwrap();
    let before = list(&format!("?limit=2&before_id={last}")).await;
    assert_eq!(before["data"], json!(all[all.len() - 3..all.len() - 1]));
    assert_eq!(before["has_more"], true);
    let wrong = app
        .get(&account.key, "/anthropic/v1/models?limit=0&x=1")
        .await;
    let wrong = error("/anthropic/v1/models", &wrong, 400, "out_of_range");
    assert_eq!(wrong["details"]["unsupported"], json!(["x"]));
}

/// BerriAI/litellm#34029: an editor sends a body of Responses to chat.
#[sqlx::test]
async fn a_mixed_body_is_answered_as_a_chat(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let mixed = with(
        asked(
            MODELS[0],
            json!([{"role": "user", "content": "[[tool:time]]"}]),
        ),
        &json!({"tools": functions(), "stream_options": {"include_usage": true}}),
    );
    let answer = app.post(&account.key, CHAT, &mixed).await;
    let body = answer.expect(200);
    assert_eq!(body["object"], "chat.completion");
    let call = &body["choices"][0]["message"]["tool_calls"][0];
    assert_eq!(call["function"]["name"], "time");
    assert_eq!(
        record(&app, &account, &answer).await["surface"],
        "openai.chat"
    );
    let streamed = app
        .post(&account.key, CHAT, &with(mixed, &json!({"stream": true})))
        .await;
    let all = events(CHAT, &streamed.text);
    assert!(all[all.len() - 2]["usage"].is_object(), "{all:?}");
    let both = with(ask(MODELS[0], "x"), &json!({"input": "x"}));
    let refused = app.post(&account.key, CHAT, &both).await;
    let refused = error(CHAT, &refused, 400, "unsupported_parameter");
    assert_eq!(refused["param"], "input");
}

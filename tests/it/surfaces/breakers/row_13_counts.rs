//! Counts of the input: never 0, where a stream begins and where tokens are counted.

use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{MESSAGES, MODELS, RESPONSES, events, prompt, with};
use crate::common::{TestApp, Upstream};

#[sqlx::test]
async fn the_input_is_never_counted_as_none(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for model in MODELS {
        let body = with(prompt(MESSAGES, model, "x"), &json!({"stream": true}));
        let answer = app.post(&account.key, MESSAGES, &body).await;
        let events = events(MESSAGES, &answer.text);
        let begun = events[0]["message"]["usage"]["input_tokens"]
            .as_u64()
            .unwrap();
        let ended = &events[events.len() - 2]["usage"];
        assert!(
            begun > 0 && ended["input_tokens"].as_u64().unwrap() > 0,
            "{ended}"
        );
        let asked = json!({"model": model, "messages": [{"role": "user", "content": "x"}]});
        let path = format!("{MESSAGES}/count_tokens");
        let counted = app.post(&account.key, &path, &asked).await.expect(200);
        assert!(counted["input_tokens"].as_u64().unwrap() > 0, "{counted}");
        let asked = json!({"model": model, "input": "x"});
        let path = format!("{RESPONSES}/input_tokens");
        let counted = app.post(&account.key, &path, &asked).await.expect(200);
        assert!(counted["input_tokens"].as_u64().unwrap() > 0, "{counted}");
    }
    app.assert_settled().await;
}

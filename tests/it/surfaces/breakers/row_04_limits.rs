//! How much a dialogue may write, and what is held for it.

use gensvc::domain::credits::Credits;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{CHAT, MESSAGES, MODELS, ROUTES, ask, error, record, with};
use crate::common::{Reply, TestApp, Upstream};

/// The limit that gpt-6-luna was sent last.
fn sent(upstream: &Upstream) -> Value {
    upstream.requests().last().unwrap().body["max_completion_tokens"].clone()
}

fn unlimited(path: &str, text: &str) -> Value {
    let mut body = ask(MODELS[1], text);
    if path == CHAT {
        body.as_object_mut().unwrap().remove("max_tokens");
    } else {
        // An SDK sends this if its user sets no limit.
        body["max_tokens"] = json!(128_000);
    }
    body
}

#[sqlx::test]
async fn without_a_limit_it_is_what_the_account_can_pay_for(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    for path in ROUTES {
        // 73 input tokens at 12.5, since the vendor may write them to its cache, then output at 50
        // micro-credits.
        for (credits, tokens) in [
            ("0.050913", 1000),
            ("0.050962", 1000),
            ("0.013713", 256),
            ("100", 128_000),
        ] {
            let account = app.account(credits).await;
            let answer = app.post(&account.key, path, &unlimited(path, "x")).await;
            answer.expect(200);
            assert_eq!(sent(&upstream), tokens, "{credits}");
            assert_eq!(answer.header("x-gensvc-max-tokens"), tokens.to_string());
            let record = record(&app, &account, &answer).await;
            assert_eq!(record["parameters"]["max_tokens"], tokens);
        }
        let account = app.account("0.013712").await;
        let before = upstream.count();
        let answer = app.post(&account.key, path, &unlimited(path, "x")).await;
        let short = error(path, &answer, 402, "insufficient_credits");
        assert_eq!(short["affordable"], json!({"max_tokens": 255}));
        assert_eq!(short["required"], "0.013713");
        assert_eq!(upstream.count(), before);
        // The cap of a key counts as well.
        let account = app.account("100").await;
        let capped = json!({"name": "capped", "spend_limit": "0.050913"});
        let key = app.key(account.id, capped).await;
        app.post(&key, path, &unlimited(path, "x"))
            .await
            .expect(200);
        assert_eq!(sent(&upstream), 1000);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_limit_is_taken_exactly_and_beyond_those_of_generate(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("50").await;
    for path in ROUTES {
        let body = with(
            ask(MODELS[1], &"x".repeat(300_000)),
            &json!({"max_tokens": 127_999}),
        );
        let answer = app.post(&account.key, path, &body).await;
        answer.expect(200);
        assert_eq!(sent(&upstream), 127_999);
        let record = record(&app, &account, &answer).await;
        // (300,000 + 8 + 64) x 25 + 127,999 x 75 micro-credits: the tier above 272,000.
        assert_eq!(record["credits"]["estimated"], "17.101725");
        assert_eq!(record["prompt"].as_str().unwrap().len(), 10_000);
        let body = with(ask(MODELS[1], "x"), &json!({"max_tokens": 127_999}));
        let poor = app.account("1").await;
        let answer = app.post(&poor.key, path, &body).await;
        let short = error(path, &answer, 402, "insufficient_credits");
        assert_eq!(short["affordable"], json!({"max_tokens": 19_981}));
    }
}

#[sqlx::test]
async fn the_input_is_bounded_by_the_model(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("100").await;
    let body = with(
        ask("anthropic/claude-haiku-4-5", &"é".repeat(200_000)),
        &json!({"max_tokens": 1}),
    );
    for path in ROUTES {
        let answer = app.post(&account.key, path, &body).await;
        answer.expect(200);
        let record = record(&app, &account, &answer).await;
        // 200,000 x 100 + 1 x 500 micro-credits, though it has 400,000 bytes.
        assert_eq!(record["credits"]["estimated"], "20.0005");
    }
}

#[sqlx::test]
async fn a_limit_of_0_fills_the_cache(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    upstream.reply(Reply::Status(
        200,
        json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "c", "content": [],
            "stop_reason": "max_tokens", "stop_sequence": null, "usage": {"input_tokens": 20,
            "cache_creation_input_tokens": 300, "cache_read_input_tokens": 0, "output_tokens": 0}}),
    ));
    let marked = json!([{"type": "text", "text": "x".repeat(400),
        "cache_control": {"type": "ephemeral"}}]);
    let empty = json!({"max_tokens": 0, "system": marked});
    let body = with(ask(MODELS[2], "x"), &empty);
    let answer = app.post(&account.key, MESSAGES, &body).await;
    let answered = answer.expect(200);
    assert_eq!(answered["content"], json!([]));
    assert_eq!(answered["stop_reason"], "max_tokens");
    assert_eq!(answered["usage"]["output_tokens"], 0);
    assert_eq!(upstream.requests().pop().unwrap().body["max_tokens"], 0);
    let record = record(&app, &account, &answer).await;
    let micros = |name: &str| {
        let credits = record["credits"][name].as_str().unwrap();
        credits.parse::<Credits>().unwrap().micros()
    };
    // 20 tokens at 10, 300 cache writes at 12.5 micro-credits, and no output.
    assert_eq!(micros("charged"), 20 * 10 + 300 * 25 / 2);
    // The hold takes all input as cache writes: 401 bytes, 8 tokens for each of two texts, and 64.
    let held = (401 + 2 * 8 + 64) * 25;
    assert_eq!(micros("estimated"), (held + 1) / 2);
    // Other vendors cannot do this.
    let sent = upstream.count();
    for model in [MODELS[0], MODELS[1], MODELS[3]] {
        let body = with(ask(model, "x"), &json!({"max_tokens": 0}));
        let answer = app.post(&account.key, MESSAGES, &body).await;
        let refused = error(MESSAGES, &answer, 400, "unsupported_parameter");
        assert_eq!(refused["details"]["unsupported"][0], "max_tokens");
    }
    assert_eq!(upstream.count(), sent);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_count_without_a_vendor_needs_no_credits(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("0").await;
    let path = format!("{MESSAGES}/count_tokens?beta=true");
    let body = json!({"model": MODELS[0], "system": "Be brief.",
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]});
    let answer = app.post(&account.key, &path, &body).await;
    // One token per four of the 16 bytes.
    assert_eq!(answer.expect(200), json!({"input_tokens": 4}));
    let answer = app
        .post(&account.key, &path, &with(body, &json!({"model": "nope"})))
        .await;
    error(MESSAGES, &answer, 404, "model_not_found");
}

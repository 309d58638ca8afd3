//! What text costs: each kind of token at its price, with the operator's margin.

use gensvc::domain::credits::Credits;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{Recorded, Reply, TestApp, Upstream, upstream::text};

/// Answers with 100 input and 20 output tokens. Of the input, 60 tokens were read from the cache,
/// and 30 written to it, 10 of them for long, where the vendor can say so.
fn cached(request: &Recorded) -> Reply {
    let streamed = request.body["stream"] == true || request.path.contains("streamGenerate");
    let body = text::body(&request.path, streamed, "Hi there.", 100, 20);
    let body = [
        (
            r#""prompt_tokens":100"#,
            r#""prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":60,
                "cache_write_tokens":30}"#,
        ),
        (
            r#""input_tokens":100"#,
            r#""input_tokens":10,"cache_read_input_tokens":60,"cache_creation_input_tokens":30,
                "cache_creation":{"ephemeral_5m_input_tokens":20,"ephemeral_1h_input_tokens":10}"#,
        ),
        (
            r#""promptTokenCount":100"#,
            r#""promptTokenCount":100,"cachedContentTokenCount":60"#,
        ),
    ]
    .into_iter()
    .fold(body, |body, (from, to)| {
        body.replace(from, &to.replace('\n', " "))
    });
    let content_type = if streamed {
        "text/event-stream"
    } else {
        "application/json"
    };
    Reply::Raw(200, content_type, body)
}

#[sqlx::test]
async fn cached_tokens_are_charged_at_their_price(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.play(cached);
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1").await;
    let usage = |more: Value| {
        let mut usage = json!({"input_tokens": 100, "cached_input_tokens": 60,
            "output_tokens": 20, "total_tokens": 120});
        for (name, value) in more.as_object().unwrap() {
            usage[name] = value.clone();
        }
        usage
    };
    for (provider, model, more, cost) in [
        // 10 × 10 + 60 × 1 + 30 × 12.5 + 20 × 50 micro-credits.
        (
            "openai",
            "gpt-6-luna",
            json!({"cache_write_tokens": 30}),
            "0.001535",
        ),
        // 10 × 10 + 60 × 1 + 20 × 12.5 + 10 × 20 + 20 × 50.
        (
            "anthropic",
            "claude-haiku-5-5",
            json!({"cache_write_tokens": 30, "cache_write_long_tokens": 10}),
            "0.00161",
        ),
        // 40 × 30 + 60 × 3 + 20 × 250.
        ("gemini", "gemini-3.5-flash-lite", json!({}), "0.00638"),
    ] {
        for stream in [false, true] {
            let body = json!({"prompt": "x".repeat(100), "provider": provider, "model": model,
                "stream": stream});
            let answer = app.text(&account.key, body).await;
            let record = if stream {
                let (name, record) = answer.events().pop().unwrap();
                assert_eq!(name, "completed", "{}", answer.text);
                record
            } else {
                answer.expect(200)
            };
            assert_eq!(record["credits"]["charged"], cost, "{provider} {stream}");
            assert_eq!(record["usage"], usage(more.clone()), "{provider} {stream}");
            let uuid = record["uuid"].as_str().unwrap();
            let found = app.get(&account.key, &format!("/v1/generate/{uuid}")).await;
            let pricing = &found.expect(200)["metadata"]["pricing"];
            let listed = app.get("", &format!("/v1/models/{provider}/{model}")).await;
            assert_eq!(*pricing, listed.expect(200)["prices"]);
        }
    }
    app.assert_settled().await;
}

/// An agent's turn, whose new part is written to the cache or not. Cached input charged as input
/// would cost 30.8.
#[sqlx::test]
async fn a_long_cached_dialogue_costs_what_the_vendor_takes(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for (plain, written, cost) in [(0, 1_000, "2.54"), (1_000, 0, "2.49")] {
        upstream.reply(Reply::Status(
            200,
            json!({"id": "msg_1", "type": "message", "role": "assistant",
                "model": "claude-sonnet-5-5", "stop_reason": "end_turn",
                "content": [{"type": "text", "text": "Done."}],
                "usage": {"input_tokens": plain, "cache_read_input_tokens": 149_000,
                    "cache_creation_input_tokens": written, "output_tokens": 800}}),
        ));
        let body = json!({"prompt": "x", "provider": "anthropic", "model": "claude-sonnet-5-5",
            "parameters": {"max_tokens": 4096}});
        let record = app.text(&account.key, body).await.expect(200);
        assert_eq!(record["credits"]["charged"], cost);
        assert_eq!(record["usage"]["input_tokens"], 150_000);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn counts_that_overlap_keep_the_discount(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    upstream.reply(Reply::Status(
        200,
        json!({"id": "c1", "object": "chat.completion", "model": "gpt-6.1-sol", "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "Done."},
                "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10_000, "completion_tokens": 1, "total_tokens": 10_001,
                "prompt_tokens_details": {"cached_tokens": 9_984, "cache_write_tokens": 128}}}),
    ));
    let body = json!({"prompt": "x", "provider": "openai", "model": "gpt-6.1-sol",
        "parameters": {"max_tokens": 4096}});
    let record = app.text(&account.key, body).await.expect(200);
    // 9,984 × 10 + 128 × 250 + 1 × 1,000 micro-credits; nothing is left for plain input.
    assert_eq!(record["credits"]["charged"], "0.13284");
    assert_eq!(
        record["usage"],
        json!({"input_tokens": 10_000, "cached_input_tokens": 9_984, "cache_write_tokens": 128,
            "output_tokens": 1, "total_tokens": 10_001})
    );
    app.assert_settled().await;
}

#[sqlx::test]
async fn the_sandbox_has_a_cache_to_try(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let prompt = "[[cached:20]]".to_owned() + &"x".repeat(87);
    let body = json!({"prompt": prompt, "parameters": {"max_tokens": 1}});
    let record = app.text(&account.key, body).await.expect(200);
    // A quarter of 100 bytes, of which 20 at 1 and 5 at 10, and a word at 50.
    assert_eq!(
        record["usage"],
        json!({"input_tokens": 25, "cached_input_tokens": 20, "output_tokens": 1,
            "total_tokens": 26})
    );
    assert_eq!(record["credits"]["charged"], "0.00012");
    app.assert_settled().await;
}

/// A row that was stored before there were prices of the cache.
#[sqlx::test]
async fn an_old_price_row_is_still_read(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let made = app.text(&account.key, json!({"prompt": "x"})).await;
    let made = made.expect(200);
    let old = json!({"input_per_million": "10", "output_per_million": "50"});
    sqlx::query("update prices set pricing = $1")
        .bind(&old)
        .execute(&app.pool)
        .await
        .unwrap();
    let later = app.replica().await;
    let found = async |record: &Value| {
        let path = format!("/v1/generate/{}", record["uuid"].as_str().unwrap());
        later.get(&account.key, &path).await.expect(200)
    };
    let before = found(&made).await;
    assert_eq!(before["metadata"]["pricing"], old);
    assert_eq!(before["usage"], made["usage"]);
    let new = later.text(&account.key, json!({"prompt": "x"})).await;
    let after = found(&new.expect(200)).await;
    assert_eq!(
        after["metadata"]["pricing"]["cached_input_per_million"],
        "1"
    );
    assert_eq!(after["credits"], before["credits"]);
    app.assert_settled().await;
}

/// Every price below a value, times a factor of which no product needs rounding.
fn times(prices: &Value, factor: i64) -> Value {
    match prices {
        Value::String(price) => {
            let price: Credits = price.parse().unwrap();
            json!(Credits::from_micros(price.micros() * factor / 10))
        }
        Value::Object(members) => {
            let members = members.iter().map(|(k, v)| (k.clone(), times(v, factor)));
            Value::Object(members.collect())
        }
        other => panic!("{other}"),
    }
}

#[sqlx::test]
async fn the_margin_is_on_every_price(_: PgPoolOptions, options: PgConnectOptions) {
    let list = TestApp::new(options).await;
    let account = list.account("1000").await;
    let requests = [
        ("text", json!({"prompt": "Tell me of the sea."})),
        (
            "image",
            json!({"prompt": "x", "parameters": {"n": 2, "quality": "hd"}}),
        ),
        (
            "video",
            json!({"prompt": "x", "parameters": {"duration": 1}}),
        ),
        ("audio", json!({"prompt": "Good day."})),
    ];
    let general = ("GENSVC__PRICING__MARKUP", "1.5");
    let own = ("GENSVC__PROVIDERS__SANDBOX__MARKUP", "0.5");
    for (env, factor) in [(&[general][..], 15), (&[general, own][..], 5)] {
        let app = list.replica_with(env).await;
        for (modality, body) in &requests {
            let query = format!("/v1/models?type={modality}");
            let prices = async |app: &TestApp| {
                app.get("", &query).await.expect(200)["data"][0]["prices"].clone()
            };
            let marked = times(&prices(&list).await, factor);
            assert_eq!(prices(&app).await, marked);
            let mut ask = body.clone();
            ask["type"] = json!(modality);
            let estimate = async |app: &TestApp| {
                let path = "/v1/credits/estimate";
                app.post(&account.key, path, &ask).await.expect(200)
            };
            let (plain, dear) = (estimate(&list).await, estimate(&app).await);
            assert_eq!(dear["prices"], marked);
            assert_eq!(dear["hold"], times(&plain["hold"], factor), "{modality}");
            let charged = async |app: &TestApp| {
                let path = format!("/v1/generate/{modality}");
                let made = app.post(&account.key, &path, body).await.json();
                let record = app.until_finished(&account, made["uuid"].as_str().unwrap());
                record.await
            };
            let (plain, dear) = (charged(&list).await, charged(&app).await);
            assert_eq!(dear["metadata"]["pricing"], marked);
            assert_eq!(
                dear["credits"]["charged"],
                times(&plain["credits"]["charged"], factor),
                "{modality}"
            );
        }
    }
    list.assert_settled().await;
}

//! What a vendor has counted of a dialogue bounds the dialogues that go on from there.

mod agent;
mod alike;
mod kept;

use gensvc::domain::credits::Credits;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{CHAT, MESSAGES, RESPONSES, record, with};
use crate::common::{Account, Reply, TestApp, Upstream};

const LUNA: &str = "openai/gpt-6-luna";
const HAIKU: &str = "anthropic/claude-haiku-5-5";
const LIMIT: u64 = 64;

/// What the bytes of [`question`] bound it by, and what a count of it does.
const BYTES: u64 = 20_000 + 8 + 64;
const COUNT: i64 = 5_000;
const COUNTED: u64 = 5_000 + 5_000 / 64 + 256;
/// The same of [`next`].
const NEXT: u64 = 5 + 6 + 2 * 8;

fn question() -> Value {
    json!({"role": "user", "content": "lorem ipsum dolor ok".repeat(1_000)})
}

/// An answer, and the question after it.
fn next() -> [Value; 2] {
    [
        json!({"role": "assistant", "content": "Sure."}),
        json!({"role": "user", "content": "Go on."}),
    ]
}

fn body(model: &str, messages: &[Value]) -> Value {
    json!({"model": model, "max_tokens": LIMIT, "messages": messages})
}

fn first(model: &str) -> Value {
    body(model, &[question()])
}

fn second(model: &str) -> Value {
    body(model, &[vec![question()], next().to_vec()].concat())
}

fn counted(tokens: i64) -> Reply {
    Reply::Text("Sure.".to_owned(), tokens, 3)
}

fn micros(value: &Value) -> u64 {
    let credits: Credits = value.as_str().unwrap().parse().unwrap();
    u64::try_from(credits.micros()).unwrap()
}

/// Sends it, and returns the input tokens that were held for.
async fn held(app: &TestApp, account: &Account, path: &str, body: &Value) -> u64 {
    held_with(app, account, path, &[], body).await
}

async fn held_with(
    app: &TestApp,
    account: &Account,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> u64 {
    let answer = app.post_with(&account.key, path, headers, body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let record = record(app, account, &answer).await;
    let prices = &record["metadata"]["pricing"];
    let price = |name: &str| micros(&prices[name]);
    // Anthropic writes to its cache what is marked only.
    let written = record["provider"] == "openai" || body.to_string().contains("ephemeral");
    let input = price(if written {
        "cache_write_per_million"
    } else {
        "input_per_million"
    });
    let limit = record["parameters"]["max_tokens"].as_u64().unwrap();
    let output = limit * price("output_per_million");
    // Rounded up by less than the price of a token.
    (micros(&record["credits"]["estimated"]) * 1_000_000 - output) / input
}

async fn receipts(app: &TestApp) -> i64 {
    let count = sqlx::query_scalar("select count(*) from prefix_receipts");
    count.fetch_one(&app.pool).await.unwrap()
}

#[sqlx::test]
async fn a_count_bounds_what_goes_on_from_there(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let other = app.replica().await;
    let stream = json!({"stream": true});
    for (path, model) in [
        (CHAT, LUNA),
        (MESSAGES, HAIKU),
        (CHAT, HAIKU),
        (MESSAGES, LUNA),
    ] {
        for stream in [&json!({}), &stream] {
            let account = app.account("10").await;
            upstream.reply(counted(COUNT));
            let first = with(first(model), stream);
            assert_eq!(
                held(&app, &account, path, &first).await,
                BYTES,
                "{path} {model}"
            );
            // The next turn may reach another server.
            upstream.reply(counted(COUNT + 20));
            let second = with(second(model), stream);
            assert_eq!(held(&other, &account, path, &second).await, COUNTED + NEXT);
            // The longest beginning that is known.
            let mut third = second.clone();
            let messages = third["messages"].as_array_mut().unwrap();
            messages.extend(next());
            let (again, more) = (5_020 + 5_020 / 64 + 256, NEXT);
            assert_eq!(held(&app, &account, path, &third).await, again + more);
            // And the same once more.
            assert_eq!(held(&app, &account, path, &second).await, again);
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn responses_know_them_too(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    upstream.reply(counted(COUNT));
    let of = |messages: &Value| json!({"model": HAIKU, "input": messages});
    let (first, second) = (first(HAIKU), second(HAIKU));
    let asked = with(of(&first["messages"]), &json!({"max_output_tokens": LIMIT}));
    assert_eq!(held(&app, &account, RESPONSES, &asked).await, BYTES);
    let asked = with(
        of(&second["messages"]),
        &json!({"max_output_tokens": LIMIT}),
    );
    assert_eq!(
        held(&app, &account, RESPONSES, &asked).await,
        COUNTED + NEXT
    );
}

#[sqlx::test]
async fn a_limit_that_nobody_set_is_what_a_close_hold_leaves(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("0.5").await;
    upstream.reply(counted(COUNT));
    held(&app, &account, CHAT, &first(LUNA)).await;
    let mut open = second(LUNA);
    open.as_object_mut().unwrap().remove("max_tokens");
    let answer = app.post(&account.key, CHAT, &open).await;
    answer.expect(200);
    // Of 0.5 the first has cost 5,000 x 10 + 3 x 50 micro-credits; input is at 12.5, output at 50.
    let left = 500_000 - 50_150 - (COUNTED + NEXT) * 25 / 2;
    assert_eq!(
        answer.header("x-gensvc-max-tokens"),
        (left / 50).to_string()
    );
    app.assert_settled().await;
}

#[sqlx::test]
async fn the_tier_is_that_of_the_closer_bound(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("100").await;
    upstream.reply(counted(40_000));
    // Above 100,000 tokens all costs five times as much.
    let long = json!({"role": "user", "content": "lorem ipsum dolor ok".repeat(6_000)});
    let mut body = body(HAIKU, &[long]);
    let bytes = 120_000 + 8 + 64;
    assert_eq!(
        held(&app, &account, MESSAGES, &body).await,
        bytes * 5 + LIMIT * 5 * 4
    );
    body["messages"].as_array_mut().unwrap().extend(next());
    let counted = 40_000 + 40_000 / 64 + 256;
    assert_eq!(held(&app, &account, MESSAGES, &body).await, counted + NEXT);
    app.assert_settled().await;
}

//! How the credits decide between candidates, and what a wait for credits changes.

use std::sync::Arc;

use chrono::TimeDelta;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::task::JoinHandle;

use super::{begin, break_openai, fail_at, failed, routed, with_fallbacks};
use crate::common::{Account, Answer, TestApp, Upstream};

const CHAT: &str = "/openai/v1/chat/completions";

async fn estimate(app: &TestApp, account: &Account, mut body: Value) -> Value {
    body["type"] = "text".into();
    let answer = app.post(&account.key, "/v1/credits/estimate", &body).await;
    answer.expect(200)
}

fn micros(amount: &Value) -> i64 {
    let credits: gensvc::domain::credits::Credits = amount.as_str().unwrap().parse().unwrap();
    credits.micros()
}

fn names(list: &Value) -> Vec<&str> {
    let all = list.as_array().into_iter().flatten();
    all.map(|one| one["provider"].as_str().unwrap()).collect()
}

/// Holds part of the credits by a job whose provider does not answer.
async fn hold_by_a_job(app: &TestApp, account: &Account, max_tokens: u32) {
    let body = json!({"prompt": "x", "provider": "gemini", "model": "gemini-3.5-flash-lite",
        "parameters": {"max_tokens": max_tokens}});
    begin(app, account, &body).await;
}

/// Sends a chat that must wait for credits on hold, and returns when it waits.
async fn waiting(app: &Arc<TestApp>, account: &Account, body: &Value) -> JoinHandle<Answer> {
    let asking = app.spawn_post(&account.key, CHAT, &[], body.clone());
    loop {
        let metrics = app.metrics(&[("host", "localhost")]).await.text;
        if metrics.contains("\ngensvc_waiting 1\n") {
            return asking;
        }
        tokio::task::yield_now().await;
    }
}

/// The order comes first, and what is dropped has a name, also where nothing is left.
#[sqlx::test]
async fn the_cheapest_is_kept_where_none_fits(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let body = json!({"prompt": "x", "model": "route/cheap", "max_cost": "0.000001"});
    let found = estimate(&app, &account, body.clone()).await;
    assert_eq!(names(&found["candidates"]), ["openai"], "{found}");
    assert_eq!(names(&found["dropped"]), ["anthropic"], "{found}");
    assert_eq!(found["dropped"][0]["code"], "max_cost");
    assert_eq!(found["sufficient"], false);
    let refused = app.text(&account.key, body).await;
    refused.error(402, "max_cost_exceeded");
    assert_eq!(refused.json()["error"]["required"], found["hold"]);
    assert_eq!(upstream.count(), 0);
}

/// Without a limit of its own, a dialogue may cost as much as the account has, with every model.
#[sqlx::test]
async fn the_cheapest_is_compared_at_one_limit(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("3").await;
    let body = json!({"model": "route/cheap", "messages": [{"role": "user", "content": "x"}]});
    let answer = app.post(&account.key, CHAT, &body).await;
    assert_eq!(answer.expect(200)["model"], "route/cheap");
    assert_eq!(answer.header("x-gensvc-served-by"), "openai/gpt-4.1-mini");
    app.assert_settled().await;
}

/// With few tokens Gemini's model is the cheaper one, because of its price of the input.
#[sqlx::test]
async fn few_credits_do_not_choose_the_cheapest(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.be_lenient();
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("0.6").await;
    let text = "x".repeat(12_000);
    let body = json!({"model": "route/even", "messages": [{"role": "user", "content": text}]});
    let answer = app.post(&account.key, CHAT, &body).await;
    answer.expect(200);
    assert_eq!(answer.header("x-gensvc-served-by"), "openai/gpt-4.1-mini");
    app.assert_settled().await;
}

/// Credits on hold delay or refuse a request; they do not choose its model.
#[sqlx::test]
async fn holds_do_not_change_the_candidates(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let rich = app.account("1000").await;
    let all = estimate(&app, &rich, with_fallbacks()).await;
    assert_eq!(all["candidates"].as_array().unwrap().len(), 3);
    // Enough for the most expensive candidate, but not while other credits are on hold.
    let account = app.account(all["hold"].as_str().unwrap()).await;
    upstream.hold_only("/gemini/");
    hold_by_a_job(&app, &account, 16).await;
    upstream.arrived(1).await;
    let with_hold = estimate(&app, &account, with_fallbacks()).await;
    assert_eq!(with_hold["candidates"], all["candidates"], "{with_hold}");
    assert_eq!(with_hold["sufficient"], false);
    let refused = app.text(&account.key, with_fallbacks()).await;
    refused.error(429, "credits_on_hold");
    upstream.release(usize::MAX >> 4);
    app.idle().await;
    // The same with a spend limit of the key.
    let limited = json!({"name": "limited", "spend_limit": all["hold"]});
    let key = app.key(rich.id, limited).await;
    let limited = Account {
        key,
        ..rich.clone()
    };
    let found = estimate(&app, &limited, with_fallbacks()).await;
    assert_eq!(found["candidates"], all["candidates"], "{found}");
    upstream.hold_only("/gemini/");
    hold_by_a_job(&app, &limited, 16).await;
    let with_hold = estimate(&app, &limited, with_fallbacks()).await;
    assert_eq!(with_hold["candidates"], all["candidates"], "{with_hold}");
    assert_eq!(with_hold["sufficient"], false);
    upstream.release(usize::MAX >> 4);
    app.idle().await;
    app.assert_settled().await;
}

/// The first candidate has no limit of its own and is skipped: the next one keeps the caller's, also
/// after a wait.
#[sqlx::test]
async fn a_skipped_candidate_takes_its_limit_along(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.be_lenient();
    let app = Arc::new(routed(options, &upstream, &[]).await);
    let rich = app.account("1000").await;
    break_openai(&app, &upstream, &rich).await;
    // More than OpenAI's model writes, less than Anthropic's.
    let asked = 40_000;
    let body = json!({"model": "route/fast", "max_tokens": asked,
        "messages": [{"role": "user", "content": "x"}]});
    // 40,000 tokens of Anthropic's model cost 20 credits.
    let account = app.account("22").await;
    upstream.hold_only("/gemini/");
    let before = upstream.count();
    for _ in 0..3 {
        hold_by_a_job(&app, &account, 4096).await;
    }
    upstream.arrived(before + 3).await;
    let waiting = waiting(&app, &account, &body).await;
    upstream.release(usize::MAX >> 4);
    let answer = waiting.await.unwrap();
    answer.expect(200);
    assert_eq!(
        answer.header("x-gensvc-served-by"),
        "anthropic/claude-haiku-4-5"
    );
    let sent = upstream.requests();
    let sent = sent.iter().rev().find(|one| one.path.contains("anthropic"));
    assert_eq!(sent.unwrap().body["max_tokens"], asked);
    let uuid = answer.header("x-gensvc-generation");
    let record = app.record(&account, uuid).await;
    assert_eq!(record["parameters"]["max_tokens"], asked);
    app.idle().await;
    app.assert_settled().await;
}

/// A candidate that is skipped at one try is asked at a later one.
#[sqlx::test]
async fn a_skipped_candidate_is_back_after_a_wait(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = Arc::new(routed(options, &upstream, &[]).await);
    let rich = app.account("1000").await;
    break_openai(&app, &upstream, &rich).await;
    // 4,000 tokens of Anthropic's model cost 2 credits.
    let account = app.account("2.2").await;
    upstream.hold_only("/gemini/");
    let before = upstream.count();
    hold_by_a_job(&app, &account, 4_000).await;
    upstream.arrived(before + 1).await;
    let body = json!({"model": "route/fast", "max_tokens": 4_000,
        "messages": [{"role": "user", "content": "x"}]});
    let waiting = waiting(&app, &account, &body).await;
    app.advance(TimeDelta::seconds(31));
    fail_at(&upstream, &[], failed(429));
    upstream.release(usize::MAX >> 4);
    let answer = waiting.await.unwrap();
    answer.expect(200);
    assert_eq!(answer.header("x-gensvc-served-by"), "openai/gpt-4.1-mini");
    let uuid = answer.header("x-gensvc-generation");
    let record = app.record(&account, uuid).await;
    assert_eq!(record["metadata"].get("dropped"), None, "{record}");
    assert_eq!(record["credits"]["charged"], record["bill"]["total"]);
    app.idle().await;
    app.assert_settled().await;
}

/// After a wait every candidate is sized to the credits of then; none is dropped.
#[sqlx::test]
async fn a_wait_sizes_every_candidate_again(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = Arc::new(routed(options, &upstream, &[]).await);
    let account = app.account("2").await;
    upstream.hold_only("/gemini/");
    for _ in 0..2 {
        hold_by_a_job(&app, &account, 3_900).await;
    }
    upstream.arrived(2).await;
    fail_at(&upstream, &["/openai/"], failed(429));
    let body = json!({"model": "route/fast", "messages": [{"role": "user", "content": "x"}]});
    let waiting = waiting(&app, &account, &body).await;
    upstream.release(usize::MAX >> 4);
    let answer = waiting.await.unwrap();
    answer.expect(200);
    assert_eq!(
        answer.header("x-gensvc-served-by"),
        "anthropic/claude-haiku-4-5"
    );
    let record = app
        .record(&account, answer.header("x-gensvc-generation"))
        .await;
    assert_eq!(record["metadata"].get("dropped"), None, "{record}");
    let sent = upstream.requests();
    let sent = sent.iter().rev().find(|one| one.path.contains("anthropic"));
    assert_eq!(
        sent.unwrap().body["max_tokens"],
        record["parameters"]["max_tokens"]
    );
    assert!(micros(&record["credits"]["estimated"]) <= 2_000_000);
    app.idle().await;
    app.assert_settled().await;
}

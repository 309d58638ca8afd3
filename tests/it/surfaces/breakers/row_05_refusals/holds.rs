//! Holds that are only in the way for now are waited for.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;

use super::super::{CHAT, MESSAGES, MODELS, ROUTES, ask, error, record, with};
use crate::common::{TestApp, Upstream};

/// More than one of [`ask`] holds, (1 + 8 + 64) x 12.5 + 64 x 50 micro-credits, and what those
/// before it cost: (10 x 10 + 3 x 50) each.
const ONE_AT_A_TIME: &str = "0.0055";
/// The longest wait, in looks.
const PATIENCE: usize = 10_000_000;

pub(super) async fn server(
    options: PgConnectOptions,
    upstream: &Upstream,
    more: &[(&str, &str)],
) -> Arc<TestApp> {
    let mut env = vec![
        ("GENSVC__SERVER__ACCOUNT_SHARE_PERCENT", "100"),
        ("GENSVC__CREDITS__HOLD_WAIT_SECONDS", "60"),
    ];
    env.extend_from_slice(more);
    Arc::new(TestApp::vendors(options, upstream, &env).await)
}

/// Until so many wait.
pub(super) async fn waiting(app: &TestApp, n: usize) {
    for _ in 0..PATIENCE {
        if app.app.service.waiting() == n {
            return;
        }
        yield_now().await;
    }
    panic!("{} wait, not {n}", app.app.service.waiting());
}

/// What the upstream was asked, in its order.
pub(super) fn asked(upstream: &Upstream) -> Vec<String> {
    let text = |body: &Value| body["messages"][0]["content"].as_str().unwrap().to_owned();
    let requests = upstream.requests();
    requests.iter().map(|one| text(&one.body)).collect()
}

#[sqlx::test]
async fn they_are_waited_for_in_the_order_of_arrival(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    // Who waits has no seat that others need.
    let env = [("GENSVC__SERVER__MAX_REQUESTS", "3")];
    let app = server(options, &upstream, &env).await;
    let account = app.account(ONE_AT_A_TIME).await;
    let mut all = vec![app.spawn_post(&account.key, CHAT, &[], ask(MODELS[1], "0"))];
    upstream.arrived(1).await;
    for (n, path) in [(1, CHAT), (2, MESSAGES), (3, MESSAGES), (4, CHAT)] {
        let body = ask(MODELS[1], &n.to_string());
        all.push(app.spawn_post(&account.key, path, &[], body));
        waiting(&app, n).await;
    }
    let metrics = app.metrics(&[("host", "localhost")]).await.text;
    assert!(metrics.contains("gensvc_waiting 4\n"), "{metrics}");
    // Not by these, nor behind others' requests.
    let body = json!({"prompt": "x", "provider": "openai", "parameters": {"max_tokens": 64}});
    let answer = app.text(&account.key, body).await;
    answer.error(429, "credits_on_hold");
    let poor = app.account("0.00392").await;
    let answer = app.post(&poor.key, CHAT, &ask(MODELS[1], "x")).await;
    error(CHAT, &answer, 402, "insufficient_credits");
    let rich = app.account("1").await;
    let answer = app.post(&rich.key, CHAT, &ask(MODELS[0], "x")).await;
    answer.expect(200);
    for n in 2..=5 {
        upstream.release(1);
        upstream.arrived(n).await;
    }
    upstream.release(1);
    for answer in join_all(all).await {
        answer.unwrap().expect(200);
    }
    assert_eq!(asked(&upstream), ["0", "1", "2", "3", "4"]);
    waiting(&app, 0).await;
    app.assert_settled().await;
}

#[sqlx::test]
async fn who_goes_away_lets_the_next_one_go_first(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = server(options, &upstream, &[]).await;
    let account = app.account(ONE_AT_A_TIME).await;
    let first = app.spawn_post(&account.key, CHAT, &[], ask(MODELS[1], "0"));
    upstream.arrived(1).await;
    let mut others = Vec::new();
    for n in 1..=3 {
        let body = ask(MODELS[1], &n.to_string());
        others.push(app.spawn_post(&account.key, MESSAGES, &[], body));
        waiting(&app, n).await;
    }
    others[0].abort();
    waiting(&app, 2).await;
    upstream.release(3);
    first.await.unwrap().expect(200);
    for other in others.split_off(1) {
        other.await.unwrap().expect(200);
    }
    assert_eq!(asked(&upstream), ["0", "2", "3"]);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_wait_ends_with_its_time_and_with_the_server(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = server(options, &upstream, &[]).await;
    let account = app.account(ONE_AT_A_TIME).await;
    let first = app.spawn_post(&account.key, CHAT, &[], ask(MODELS[1], "0"));
    upstream.arrived(1).await;
    let hasty = [("GENSVC__CREDITS__HOLD_WAIT_SECONDS", "1")];
    let hasty = Arc::new(app.replica_with(&hasty).await);
    let waits = ROUTES.map(|path| hasty.spawn_post(&account.key, path, &[], ask(MODELS[1], "x")));
    for (path, answer) in ROUTES.into_iter().zip(waits) {
        let answer = answer.await.unwrap();
        let short = error(path, &answer, 429, "credits_on_hold");
        assert_eq!(short["required"], "0.004113");
        assert_eq!(answer.header("x-should-retry"), "true");
        assert_eq!(answer.header("retry-after-ms"), "1000");
    }
    waiting(&hasty, 0).await;
    let waits = ROUTES.map(|path| app.spawn_post(&account.key, path, &[], ask(MODELS[1], "x")));
    waiting(&app, 2).await;
    let (runner, now) = (app.app.runner.clone(), CancellationToken::new());
    let stopping = tokio::spawn(async move { runner.drain(Duration::from_mins(1), &now).await });
    for (path, answer) in ROUTES.into_iter().zip(waits) {
        error(path, &answer.await.unwrap(), 503, "shutting_down");
    }
    upstream.release(1);
    first.await.unwrap().expect(200);
    stopping.await.unwrap();
    assert_eq!(upstream.count(), 1);
    app.assert_settled().await;
}

#[sqlx::test]
async fn what_another_server_settles_is_seen(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = server(options, &upstream, &[]).await;
    let other = Arc::new(app.replica().await);
    let account = app.account(ONE_AT_A_TIME).await;
    let first = app.spawn_post(&account.key, CHAT, &[], ask(MODELS[1], "0"));
    upstream.arrived(1).await;
    let later = other.spawn_post(&account.key, CHAT, &[], ask(MODELS[1], "1"));
    waiting(&other, 1).await;
    upstream.release(2);
    first.await.unwrap().expect(200);
    later.await.unwrap().expect(200);
    app.assert_settled().await;
}

#[sqlx::test]
async fn holds_below_the_cap_of_a_key_are_waited_for_too(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = server(options, &upstream, &[]).await;
    let account = app.account("1").await;
    let capped = |limit: &str| json!({"name": "capped", "spend_limit": limit});
    let key = app.key(account.id, capped(ONE_AT_A_TIME)).await;
    let first = app.spawn_post(&key, CHAT, &[], ask(MODELS[1], "0"));
    upstream.arrived(1).await;
    let second = app.spawn_post(&key, MESSAGES, &[], ask(MODELS[1], "1"));
    waiting(&app, 1).await;
    // Neither do other keys wait behind it, nor /v1/generate.
    let answer = app.post(&account.key, CHAT, &ask(MODELS[0], "x")).await;
    answer.expect(200);
    let body = json!({"prompt": "x", "provider": "openai", "parameters": {"max_tokens": 64}});
    let answer = app.text(&key, body).await;
    answer.error(402, "spend_limit_exceeded");
    upstream.release(2);
    first.await.unwrap().expect(200);
    second.await.unwrap().expect(200);
    // 0.0005 are spent for good.
    let (body, before) = (
        with(ask(MODELS[1], "x"), &json!({"max_tokens": 90})),
        upstream.count(),
    );
    for path in ROUTES {
        let answer = app.post(&key, path, &body).await;
        error(path, &answer, 402, "spend_limit_exceeded");
    }
    assert_eq!(upstream.count(), before);
    let hasty = [("GENSVC__CREDITS__HOLD_WAIT_SECONDS", "0")];
    let hasty = app.replica_with(&hasty).await;
    upstream.hold();
    let last = app.spawn_post(&key, CHAT, &[], ask(MODELS[1], "2"));
    upstream.arrived(before + 1).await;
    for path in ROUTES {
        let answer = hasty.post(&key, path, &ask(MODELS[1], "x")).await;
        let short = error(path, &answer, 429, "credits_on_hold");
        assert_eq!(
            (&short["limit"], &short["spent"]),
            (&json!(ONE_AT_A_TIME), &json!("0.004613"))
        );
        assert_eq!(answer.header("x-should-retry"), "true");
        assert_eq!(answer.header("retry-after"), "1");
    }
    upstream.release(1);
    last.await.unwrap().expect(200);
    app.assert_settled().await;
}

#[sqlx::test]
async fn who_waits_for_a_key_lets_other_keys_go_first(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = server(options, &upstream, &[]).await;
    // Four at a time, of which one of the key.
    let account = app.account("0.018").await;
    let capped = json!({"name": "capped", "spend_limit": ONE_AT_A_TIME});
    let (key, other) = (app.key(account.id, capped).await, &account.key);
    let ask = |key: &str, text: &str| app.spawn_post(key, CHAT, &[], ask(MODELS[1], text));
    let mut all = Vec::new();
    for (n, (key, text)) in [(other, "0"), (other, "1"), (&key, "k")]
        .into_iter()
        .enumerate()
    {
        all.push(ask(key, text));
        upstream.arrived(n + 1).await;
    }
    all.push(ask(&key, "first for the key"));
    waiting(&app, 1).await;
    all.push(ask(other, "2"));
    upstream.arrived(4).await;
    for (n, (key, text)) in [(other, "3"), (&key, "short of both"), (other, "4")]
        .into_iter()
        .enumerate()
    {
        all.push(ask(key, text));
        waiting(&app, 2 + n).await;
    }
    for n in [5, 6] {
        upstream.release(1);
        upstream.arrived(n).await;
    }
    assert_eq!(asked(&upstream), ["0", "1", "k", "2", "3", "4"]);
    upstream.release(6);
    for answer in join_all(all).await {
        answer.unwrap().expect(200);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn without_a_limit_it_may_write_what_is_free_after_the_wait(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = server(options, &upstream, &[]).await;
    // Input of 73 tokens, then 1,000 of output.
    let account = app.account("0.050913").await;
    let body = json!({"model": MODELS[1], "messages": [{"role": "user", "content": "x"}]});
    let first = app.spawn_post(&account.key, CHAT, &[], body.clone());
    upstream.arrived(1).await;
    let second = app.spawn_post(&account.key, CHAT, &[], body);
    waiting(&app, 1).await;
    upstream.release(2);
    first.await.unwrap().expect(200);
    let second = second.await.unwrap();
    second.expect(200);
    // Less the 0.00025 that the first has cost.
    let limits = upstream.requests();
    let limits = limits.iter().map(|one| &one.body["max_completion_tokens"]);
    assert_eq!(limits.collect::<Vec<_>>(), [&json!(1000), &json!(995)]);
    assert_eq!(second.header("x-gensvc-max-tokens"), "995");
    let record = record(&app, &account, &second).await;
    assert_eq!(record["parameters"]["max_tokens"], 995);
    app.assert_settled().await;
}

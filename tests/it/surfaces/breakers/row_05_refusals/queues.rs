//! Each key of an account waits for credits on hold in a queue of its own.

use futures_util::future::join_all;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    super::{CHAT, MESSAGES, MODELS, ask, with},
    holds::{asked, server, waiting},
};
use crate::common::Upstream;

/// A hold is 0.0009125 and 50 micro-credits for each token of output.
fn large(text: &str) -> serde_json::Value {
    with(ask(MODELS[1], text), &json!({"max_tokens": 120}))
}

#[sqlx::test]
async fn a_large_hold_does_not_delay_other_keys(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = server(options, &upstream, &[]).await;
    // After one hold 0.0054 are free: enough for small ones, and not for a large one.
    let account = app.account("0.0095").await;
    let limited = json!({"name": "limited", "spend_limit": "0.0095"});
    let key = app.key(account.id, limited).await;
    let session = app.login(&account).await;
    let mut all = vec![app.spawn_post(&key, CHAT, &[], ask(MODELS[1], "0"))];
    upstream.arrived(1).await;
    for n in 1..=3 {
        all.push(app.spawn_post(&key, CHAT, &[], large(&format!("large {n}"))));
        waiting(&app, n).await;
    }
    let small = with(ask(MODELS[1], "small"), &json!({"max_tokens": 10}));
    for (n, (token, path)) in [(&account.key, CHAT), (&session, MESSAGES)]
        .into_iter()
        .enumerate()
    {
        all.push(app.spawn_post(token, path, &[], small.clone()));
        // The first one still runs.
        upstream.arrived(n + 2).await;
    }
    waiting(&app, 3).await;
    upstream.release(8);
    for answer in join_all(all).await {
        answer.unwrap().expect(200);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn the_queues_of_keys_are_served_in_turn(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = server(options, &upstream, &[]).await;
    // One at a time.
    let account = app.account("0.007").await;
    let other = app.key(account.id, json!({"name": "other"})).await;
    let session = app.login(&account).await;
    let mut all = vec![app.spawn_post(&account.key, CHAT, &[], ask(MODELS[1], "0"))];
    upstream.arrived(1).await;
    for (n, (token, text)) in [
        (&account.key, "a1"),
        (&account.key, "a2"),
        (&other, "b1"),
        (&account.key, "a3"),
        (&other, "b2"),
        (&session, "c1"),
    ]
    .into_iter()
    .enumerate()
    {
        all.push(app.spawn_post(token, CHAT, &[], ask(MODELS[1], text)));
        waiting(&app, n + 1).await;
    }
    for n in 2..=7 {
        upstream.release(1);
        upstream.arrived(n).await;
    }
    upstream.release(1);
    for answer in join_all(all).await {
        answer.unwrap().expect(200);
    }
    let asked = asked(&upstream);
    // Round robin, each key in its own order.
    for round in [&asked[1..4], &asked[4..6]] {
        let mut keys: Vec<_> = round.iter().map(|text| &text[..1]).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), round.len(), "{asked:?}");
    }
    let of = |key: &str| {
        let own = asked.iter().filter(|text| text.starts_with(key));
        own.cloned().collect::<Vec<_>>()
    };
    assert_eq!(of("a"), ["a1", "a2", "a3"]);
    assert_eq!(of("b"), ["b1", "b2"]);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_large_hold_of_its_own_key_delays_a_small_one_briefly(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = server(options, &upstream, &[]).await;
    let account = app.account("0.0095").await;
    let first = app.spawn_post(&account.key, CHAT, &[], ask(MODELS[1], "0"));
    upstream.arrived(1).await;
    let large = app.spawn_post(&account.key, CHAT, &[], large("large"));
    waiting(&app, 1).await;
    let small = app.spawn_post(&account.key, MESSAGES, &[], ask(MODELS[1], "small"));
    waiting(&app, 2).await;
    // The first one still runs when it is sent.
    upstream.arrived(2).await;
    assert_eq!(asked(&upstream), ["0", "small"]);
    upstream.release(3);
    for answer in [first, small, large] {
        answer.await.unwrap().expect(200);
    }
    app.assert_settled().await;
}

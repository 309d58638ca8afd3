//! Shutdowns, streams and memory of generations that may move on.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use http::Method;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{attempts, fail_at, failed, pairs, routed};
use crate::{
    common::{Recorded, Reply, Upstream},
    envelope::raw,
};

const CHAT: &str = "/openai/v1/chat/completions";

#[sqlx::test]
async fn a_generation_moves_on_during_a_shutdown(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = Arc::new(routed(options, &upstream, &[]).await);
    let account = app.account("1000").await;
    fail_at(&upstream, &["/openai/"], failed(429));
    upstream.hold_only("/openai/");
    let body = json!({"prompt": "Say hello.", "provider": "openai", "model": "gpt-4.1-mini",
        "fallbacks": [{"provider": "anthropic", "model": "claude-haiku-4-5"}]});
    let sent = app.spawn_text(&account.key, body);
    upstream.arrived(1).await;
    let stop = {
        let app = Arc::clone(&app);
        tokio::spawn(async move {
            let grace = Duration::from_mins(1);
            app.app.runner.drain(grace, &CancellationToken::new()).await;
        })
    };
    app.app.runner.stopping().cancelled().await;
    upstream.release(usize::MAX >> 4);
    stop.await.unwrap();
    let record = sent.await.unwrap().expect(200);
    assert_eq!(
        attempts(&record),
        pairs(&[("openai", "overloaded"), ("anthropic", "completed")])
    );
    app.replica().await.assert_settled().await;
}

/// The headers of a stream are those of the model that serves.
#[sqlx::test]
async fn a_moved_stream_has_the_headers_of_its_server(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    fail_at(&upstream, &["/openai/"], failed(429));
    // OpenAI's model writes 32,768 tokens at most, Anthropic's 64,000, and is not sent this key.
    let messages = json!([{"role": "user", "content": "Say hello."}]);
    for stream in [false, true] {
        let body = json!({"model": "route/fast", "messages": messages, "prompt_cache_key": "k", "stream": stream});
        let moved = app.post(&account.key, CHAT, &body).await;
        assert_eq!(moved.status, 200, "{}", moved.text);
        let mut body = body;
        body["model"] = "anthropic/claude-haiku-4-5".into();
        let alone = app.post(&account.key, CHAT, &body).await;
        for name in ["x-gensvc-max-tokens", "x-gensvc-left-out"] {
            assert!(!alone.header(name).is_empty(), "{name}");
            assert_eq!(moved.header(name), alone.header(name), "{name}");
        }
        assert_eq!(
            moved.header("x-gensvc-served-by"),
            "anthropic/claude-haiku-4-5"
        );
    }
    app.idle().await;
    app.assert_settled().await;
}

/// Each candidate has a copy of the request. None is kept while an answer is streamed.
#[sqlx::test]
async fn copies_are_dropped_when_a_provider_accepts(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("10000").await;
    let used = async || -> u64 {
        let text = app.metrics(&[("host", "localhost")]).await.text;
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix("gensvc_memory_used_bytes "));
        line.unwrap().parse().unwrap()
    };
    for down in [&[][..], &["/openai/"][..]] {
        upstream.play(move |request: &Recorded| {
            if down.iter().any(|part| request.path.contains(part)) {
                return failed(429);
            }
            Reply::Stepwise("abcd".to_owned(), 10, 3)
        });
        let text = "a".repeat(300 << 10);
        let body = json!({"model": "route/fast", "max_tokens": 100, "stream": true,
            "messages": [{"role": "user", "content": text}]});
        let json = [("content-type", "application/json")];
        let body = body.to_string().into();
        let request = raw(Method::POST, CHAT, &account.key, &json, body);
        let response = tokio::spawn(app.app.router.clone().oneshot(request));
        upstream.send_events(4);
        let response = response.await.unwrap().unwrap();
        let mut body = response.into_body().into_data_stream();
        body.next().await.unwrap().unwrap();
        let during = used().await;
        assert!(during < 1 << 10, "{during}");
        upstream.send_events(12);
        while let Some(piece) = body.next().await {
            piece.unwrap();
        }
        app.idle().await;
        upstream.take_events_back();
    }
    assert_eq!(used().await, 0);
    app.assert_settled().await;
}

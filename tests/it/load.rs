//! Overload: connections, headers, slow peers, requests, logins, jobs. The excess is refused
//! immediately, and no other caller is affected.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{Router, body::Body, routing::get};
use bytes::Bytes;
use futures_util::{StreamExt as _, future::join_all, stream};
use gensvc::app::listener::Limits;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::{io::AsyncReadExt as _, sync::oneshot};

use crate::common::TestApp;
use served::{LIVE, PATIENCE, ROOMY, Served, envelope};

mod connections;
mod disk;
mod fairness;
mod full;
mod served;
mod shares;
mod synchronous;
mod unread;

#[sqlx::test]
async fn who_asks_nothing_or_drips_is_hung_up_on(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let limits = Limits {
        header_timeout: Duration::from_millis(100),
        ..ROOMY
    };
    let served = Served::new(app.app.router.clone(), limits).await;
    assert_eq!(served.connect().await.read_out().await, "");
    assert_eq!(served.ask("GET / HTTP/1.1\r\nhost: x\r\n").await, "");
    // An occasional byte does not help.
    let mut dripping = served.connect().await;
    dripping.send(b"GET / HTTP/1.1\r\n").await;
    let since = Instant::now();
    let mut byte = [0];
    loop {
        dripping.send(b"a: b\r\n").await;
        let read = dripping.0.read(&mut byte);
        match tokio::time::timeout(Duration::from_millis(10), read).await {
            Err(_still_open) => assert!(since.elapsed() < PATIENCE, "it drips on"),
            Ok(Ok(0) | Err(_)) => break,
            Ok(Ok(_)) => panic!("an answer to half a request"),
        }
    }
}

#[sqlx::test]
async fn who_asks_nothing_more_is_hung_up_on(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let limits = Limits {
        keep_alive: Duration::from_millis(100),
        ..ROOMY
    };
    let served = Served::new(app.app.router.clone(), limits).await;
    let mut peer = served.connect().await;
    peer.send(LIVE.as_bytes()).await;
    assert!(peer.read_out().await.starts_with("HTTP/1.1 200 "));
}

#[sqlx::test]
async fn heads_that_are_too_large_or_no_http_get_the_envelope(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let served = Served::new(app.app.router.clone(), ROOMY).await;
    let many: Vec<_> = (0..200).map(|n| format!("x-{n}: y\r\n")).collect();
    let many = many.concat();
    let long = "y".repeat(1 << 20);
    for (head, status) in [
        (format!("GET / HTTP/1.1\r\nhost: x\r\n{many}\r\n"), 431),
        (
            format!("GET / HTTP/1.1\r\nhost: x\r\na: {long}\r\n\r\n"),
            431,
        ),
        (format!("GET / HTTP/1.1\r\nhost: x\r\na: {long}"), 431),
        (format!("GET /{long} HTTP/1.1\r\nhost: x\r\n\r\n"), 431),
        ("no http at all\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nno colon\r\n\r\n".to_owned(), 400),
    ] {
        let code = match status {
            431 => "headers_too_large",
            _ => "invalid_header",
        };
        let error = envelope(&served.ask(&head).await, status, code);
        assert_eq!(error["type"], "invalid_request");
    }
}

#[tokio::test]
async fn a_full_server_refuses_at_once_until_a_connection_ends() {
    let (arrived, mut requests) = tokio::sync::mpsc::unbounded_channel();
    let pending = move || {
        arrived.send(()).unwrap();
        std::future::pending::<()>()
    };
    let limits = Limits {
        max_connections: 4,
        ..ROOMY
    };
    let router = Router::new()
        .route("/", get(pending))
        .route("/health/live", get(|| async { "ok" }));
    let served = Served::new(router, limits).await;
    let mut peers = [served.connect().await, served.connect().await];
    for peer in &mut peers {
        peer.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        requests.recv().await.unwrap();
    }
    // Without a byte from the client, and with one.
    for request in ["", LIVE] {
        let answer = served.ask(request).await;
        let error = envelope(&answer, 503, "overloaded");
        assert_eq!(
            (&error["type"], &error["retryable"]),
            (&json!("unavailable"), &json!(true))
        );
        assert!(answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
    }
    drop(peers);
    let since = Instant::now();
    loop {
        let mut peer = served.connect().await;
        peer.send(LIVE.as_bytes()).await;
        if peer.answer().await.starts_with("HTTP/1.1 200 ") {
            break;
        }
        assert!(since.elapsed() < PATIENCE, "it stays full");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn who_does_not_read_an_answer_loses_it() {
    // Dropped together with the response.
    let (held, dropped) = oneshot::channel::<()>();
    let held = Arc::new(std::sync::Mutex::new(Some(held)));
    let endless = move || {
        let held = held.lock().unwrap().take();
        async move {
            let piece = Bytes::from(vec![0; 64 << 10]);
            let pieces = stream::repeat_with(move || {
                let _held = &held;
                Ok::<_, std::io::Error>(piece.clone())
            });
            Body::from_stream(pieces)
        }
    };
    let limits = Limits {
        write_timeout: Duration::from_millis(100),
        ..ROOMY
    };
    let served = Served::new(Router::new().route("/", get(endless)), limits).await;
    let mut peer = served.connect().await;
    peer.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let dropped = tokio::time::timeout(PATIENCE, dropped).await;
    assert!(dropped.unwrap().is_err());
}

#[tokio::test]
async fn a_stop_closes_idle_connections_and_lets_answers_end() {
    let (begun, end) = (
        Arc::new(tokio::sync::Notify::new()),
        Arc::new(tokio::sync::Notify::new()),
    );
    let slow = {
        let (begun, end) = (Arc::clone(&begun), Arc::clone(&end));
        move || {
            let (begun, end) = (Arc::clone(&begun), Arc::clone(&end));
            async move {
                begun.notify_one();
                let first = stream::once(async { Ok::<_, std::io::Error>(Bytes::from("a")) });
                let last = stream::once(async move {
                    end.notified().await;
                    Ok(Bytes::from("z"))
                });
                Body::from_stream(first.chain(last))
            }
        }
    };
    let router = Router::new()
        .route("/", get(slow))
        .route("/health/live", get(|| async { "ok" }));
    let served = Served::new(router, ROOMY).await;
    let (mut silent, mut idle, mut busy) = (
        served.connect().await,
        served.connect().await,
        served.connect().await,
    );
    idle.send(LIVE.as_bytes()).await;
    idle.answer().await;
    busy.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    begun.notified().await;
    served.close.cancel();
    assert_eq!(silent.read_out().await, "");
    assert_eq!(idle.read_out().await, "");
    assert!(!served.ended.is_finished());
    end.notify_one();
    assert!(busy.read_out().await.ends_with("\r\n1\r\nz\r\n0\r\n\r\n"));
    tokio::time::timeout(PATIENCE, served.ended)
        .await
        .unwrap()
        .unwrap();
}

#[sqlx::test]
async fn a_crowd_of_idle_slow_and_greedy_peers_does_not_harm_a_caller(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let served = Served::new(app.app.router.clone(), ROOMY).await;
    let login = "POST /v1/auth/login HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    let slow_body = format!("{login}content-length: 200000\r\n\r\n{{");
    let starts = ["", "GET / HTTP/1.1\r\nhost: ", &slow_body];
    let crowd = join_all((0..300).map(|n| {
        let served = &served;
        async move {
            let mut peer = served.connect().await;
            peer.send(starts[n % starts.len()].as_bytes()).await;
            peer
        }
    }))
    .await;
    let key = &account.key;
    let body = json!({"prompt": "Hello.", "parameters": {"max_tokens": 8}}).to_string();
    let post = format!(
        "POST /v1/generate/text HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut caller = served.connect().await;
    for _ in 0..10 {
        caller.send(post.as_bytes()).await;
        let answer = caller.answer().await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    // Deep and large bodies.
    for (body, status, code) in [
        ("[".repeat(100_000), 400, "malformed_json"),
        (
            format!("{{\"prompt\":\"{}\"}}", "x".repeat(300_000)),
            413,
            "payload_too_large",
        ),
    ] {
        let post = format!(
            "POST /v1/generate/text HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut peer = served.connect().await;
        peer.send(post.as_bytes()).await;
        let answer = peer.answer().await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
        assert!(answer.contains(code), "{answer}");
    }
    drop(crowd);
    app.assert_settled().await;
}

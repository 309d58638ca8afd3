//! Answers that leave a body unread keep the connection, or say that they close it.

use std::time::Duration;

use axum::{Router, routing::post};
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::served::{LIVE, Peer, ROOMY, Served};
use crate::common::TestApp;

/// Sends the head of a request, reads the answer, then sends the body and another request. Returns
/// the first answer; the second one must come unless the first announced the end.
async fn refused(served: &Served, head: &str, length: &str, body: &[u8]) -> String {
    let mut peer = served.connect().await;
    peer.send(format!("{head}host: x\r\n{length}\r\n").as_bytes())
        .await;
    let answer = peer.answer().await;
    follow_up(&mut peer, &answer, body).await;
    answer
}

async fn follow_up(peer: &mut Peer, answer: &str, body: &[u8]) {
    let (head, _) = answer.split_once("\r\n\r\n").unwrap();
    peer.send(body).await;
    if head.to_ascii_lowercase().contains("\r\nconnection: close") {
        assert_eq!(peer.read_out().await, "", "{head}");
    } else {
        peer.send(LIVE.as_bytes()).await;
        assert!(peer.answer().await.starts_with("HTTP/1.1 200 "), "{head}");
    }
}

fn closes(answer: &str) -> bool {
    answer
        .to_ascii_lowercase()
        .contains("\r\nconnection: close")
}

#[sqlx::test]
async fn refusal_before_the_body_keeps_the_connection(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let limited = app
        .key(account.id, json!({"name": "k", "rate_limit_per_minute": 1}))
        .await;
    app.get(&limited, "/v1/auth/me").await.expect(200);
    let reader = app
        .key(
            account.id,
            json!({"name": "r", "abilities": ["read:history"]}),
        )
        .await;
    let served = Served::new(app.app.router.clone(), ROOMY).await;
    let auth = |key: &str| format!("authorization: Bearer {key}\r\n");
    let typed = "content-type: application/json\r\n";
    let text = "POST /v1/generate/text HTTP/1.1\r\n";
    for (status, head) in [
        (401, text.to_owned()),
        (401, format!("{text}{}", auth("svc_x"))),
        (
            401,
            "POST /openai/v1/chat/completions HTTP/1.1\r\n".to_owned(),
        ),
        (403, format!("{text}{}{typed}", auth(&reader))),
        (404, "POST /v1/nowhere HTTP/1.1\r\n".to_owned()),
        (404, "PUT /openai/v1/nothing HTTP/1.1\r\n".to_owned()),
        (
            405,
            format!("PUT /v1/generate/text HTTP/1.1\r\n{}", auth(&account.key)),
        ),
        (
            415,
            format!("{text}{}content-type: text/plain\r\n", auth(&account.key)),
        ),
        (429, format!("{text}{}{typed}", auth(&limited))),
        (
            303,
            "POST /keys HTTP/1.1\r\norigin: http://x\r\n".to_owned(),
        ),
        (
            403,
            "POST /keys HTTP/1.1\r\norigin: http://evil\r\n".to_owned(),
        ),
        (200, "GET /health/live HTTP/1.1\r\n".to_owned()),
    ] {
        for size in [1, 5_000, 256 << 10] {
            let length = format!("content-length: {size}\r\n");
            let answer = refused(&served, &head, &length, &vec![b' '; size]).await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{head}: {answer}"
            );
            assert!(!closes(&answer), "{head}: {answer}");
        }
    }
}

#[sqlx::test]
async fn body_that_is_not_drained_ends_the_connection(_: PgPoolOptions, options: PgConnectOptions) {
    let env = [("GENSVC__SERVER__BODY_TIMEOUT_SECONDS", "1")];
    let app = TestApp::with(options, &env).await;
    let account = app.account("10").await;
    let served = Served::new(app.app.router.clone(), ROOMY).await;
    let text = format!(
        "POST /v1/generate/text HTTP/1.1\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n",
        account.key
    );
    let nowhere = "POST /v1/nowhere HTTP/1.1\r\n".to_owned();
    for (status, head, length, body) in [
        (
            413,
            &text,
            "content-length: 262145\r\n",
            vec![b' '; 262_145],
        ),
        (
            404,
            &nowhere,
            "content-length: 300000\r\n",
            vec![b' '; 300_000],
        ),
        (
            404,
            &nowhere,
            "transfer-encoding: chunked\r\n",
            b"1\r\nx\r\n0\r\n\r\n".to_vec(),
        ),
        (
            404,
            &nowhere,
            "content-length: 2\r\nexpect: 100-continue\r\n",
            b"{}".to_vec(),
        ),
        // The body does not come in time.
        (408, &text, "content-length: 10\r\n", b"0123456789".to_vec()),
    ] {
        let answer = refused(&served, head, length, &body).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{length}: {answer}"
        );
        assert!(closes(&answer), "{length}: {answer}");
    }
}

/// A body that was read to its end changes nothing, however it was sent.
#[sqlx::test]
async fn body_that_is_read_keeps_the_connection(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let served = Served::new(app.app.router.clone(), ROOMY).await;
    let head = format!(
        "POST /v1/generate/text HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n",
        account.key
    );
    let mut peer = served.connect().await;
    for (length, body) in [
        ("content-length: 14", "{\"prompt\": \"x\"}"[..14].to_owned()),
        ("content-length: 15", "{\"prompt\": \"x\"}".to_owned()),
        (
            "transfer-encoding: chunked",
            "f\r\n{\"prompt\": \"x\"}\r\n0\r\n\r\n".to_owned(),
        ),
    ] {
        peer.send(format!("{head}{length}\r\n\r\n").as_bytes())
            .await;
        peer.send(body.as_bytes()).await;
        assert!(!closes(&peer.answer().await), "{length}");
    }
}

#[tokio::test]
async fn handler_that_drops_its_body_keeps_the_connection() {
    async fn slow_to_answer(body: axum::body::Body) -> &'static str {
        drop(body);
        tokio::task::yield_now().await;
        "done"
    }
    let router = Router::new().route("/drop", post(slow_to_answer));
    let router = router.route("/health/live", axum::routing::get(async || "live"));
    let served = Served::new(router, ROOMY).await;
    let head = "POST /drop HTTP/1.1\r\n";
    let answer = refused(&served, head, "content-length: 3\r\n", b"abc").await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && !closes(&answer),
        "{answer}"
    );
}

/// A client that never sends the rest is not waited for.
#[tokio::test]
async fn rest_that_does_not_come_ends_the_connection() {
    let router = Router::new().route("/drop", post(async || "done"));
    let served = Served::new(router, ROOMY).await;
    let mut peer = served.connect().await;
    peer.send(b"POST /drop HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc")
        .await;
    assert!(!closes(&peer.answer().await));
    let ended = tokio::time::timeout(Duration::from_secs(20), peer.read_out());
    assert_eq!(ended.await.unwrap(), "");
}

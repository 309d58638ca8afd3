//! GET /metrics: counters, access, and the self-audit.

mod audit;
mod format;

use std::{collections::BTreeMap, time::Duration};

use axum::body::Body;
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::common::{Reply, TestApp, Upstream};

/// A scrape: every series with its value.
pub struct Numbers {
    series: BTreeMap<String, f64>,
    pub text: String,
}

impl Numbers {
    /// The value of a series; `None` when it does not exist.
    pub fn get(&self, series: &str) -> Option<f64> {
        self.series.get(&format!("gensvc_{series}")).copied()
    }

    /// Asserts a value. They are small whole numbers.
    #[track_caller]
    pub fn expect(&self, series: &str, value: u32) {
        assert_eq!(
            self.get(series),
            Some(value.into()),
            "{series}\n{}",
            self.text
        );
    }
}

/// A scrape by a local program.
pub async fn scrape(app: &TestApp) -> Numbers {
    let answer = app.metrics(&[("host", "localhost:9321")]).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let series = answer
        .text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect();
    Numbers {
        series,
        text: answer.text,
    }
}

/// An amount in micro-credits.
fn micros(amount: &Value) -> u32 {
    let amount: gensvc::domain::credits::Credits = amount.as_str().unwrap().parse().unwrap();
    u32::try_from(amount.micros()).unwrap()
}

const CALLS: &str =
    r#"provider_calls_total{provider="openai",modality="text",operation="generate""#;
const OPENAI: &str = r#"type="text",provider="openai",model="gpt-6-luna""#;

#[sqlx::test]
async fn a_success_and_a_failure_are_counted(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let before = scrape(&app).await;
    assert_eq!(before.get("settle_retries_total"), Some(0.0));
    let version = env!("CARGO_PKG_VERSION");
    let build = format!("gensvc_build_info{{version=\"{version}\"}} 1");
    assert!(before.text.contains(&build));

    let body = json!({"prompt": "a-very-private-prompt", "provider": "openai"});
    let done = app.text(&account.key, body.clone()).await.expect(200);
    upstream.reply(Reply::Status(400, json!({"error": {"message": "no"}})));
    let failed = app.text(&account.key, body).await;
    failed.error(502, "provider_rejected");

    let after = scrape(&app).await;
    after.expect(&format!(r#"{CALLS},outcome="ok"}}"#), 1);
    after.expect(&format!(r#"{CALLS},outcome="rejected"}}"#), 1);
    let finished = |status: &str, code: &str| {
        format!(r#"generations_finished_total{{{OPENAI},status="{status}",code="{code}"}}"#)
    };
    after.expect(&finished("completed", ""), 1);
    after.expect(&finished("failed", "provider_rejected"), 1);
    let (held, charged) = (&done["credits"]["estimated"], &done["credits"]["charged"]);
    let (held, charged) = (micros(held), micros(charged));
    assert!(charged > 0 && held > charged);
    let total = |name: &str| format!("credits_{name}_microcredits_total{{{OPENAI}}}");
    after.expect(&total("charged"), charged);
    after.expect(&total("released"), held - charged + held);
    let post = r#"method="POST",route="/v1/generate/text""#;
    after.expect(&format!(r#"http_requests_total{{{post},status="200"}}"#), 1);
    after.expect(&format!(r#"http_requests_total{{{post},status="502"}}"#), 1);
    after.expect(&format!("http_request_duration_seconds_count{{{post}}}"), 2);
    // This request.
    after.expect("http_requests_in_flight", 1);
    for secret in ["a-very-private-prompt", &account.email, &account.key] {
        assert!(!after.text.contains(secret));
    }
}

#[sqlx::test]
async fn strangers_make_no_labels(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    app.get("", "/no/such/a-strange-path")
        .await
        .error(404, "not_found");
    let strange = Method::from_bytes(b"STRANGE").unwrap();
    app.call(strange, "", "/another-strange-path", &[], None)
        .await
        .error(404, "not_found");
    let path = "/v1/generate/0197c0de-0000-7000-8000-000000000000";
    app.get(&account.key, path).await.error(404, "not_found");
    let body = json!({"prompt": "x", "provider": "a-strange-provider", "model": "strange-model"});
    app.text(&account.key, body)
        .await
        .error(422, "validation_failed");
    let numbers = scrape(&app).await;
    let requests = |method: &str, route: &str, status: u16| {
        format!(r#"http_requests_total{{method="{method}",route="{route}",status="{status}"}}"#)
    };
    numbers.expect(&requests("GET", "unmatched", 404), 1);
    numbers.expect(&requests("_OTHER", "unmatched", 404), 1);
    numbers.expect(&requests("GET", "/v1/generate/{uuid}", 404), 1);
    assert!(!numbers.text.contains("strange") && !numbers.text.contains("STRANGE"));
    assert!(!numbers.text.contains("0197c0de"));
}

#[sqlx::test]
async fn the_operators_loss_and_the_first_token_are_counted(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.reply(Reply::Text("Hello there.".to_owned(), 1_000_000, 1_000_000));
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let body = json!({"prompt": "x", "provider": "openai", "stream": true});
    let answer = app.text(&account.key, body).await;
    assert_eq!(answer.events().last().unwrap().0, "completed");
    let deltas = answer
        .events()
        .iter()
        .filter(|(name, _)| name == "delta")
        .count();
    assert_eq!(deltas, 2);
    let numbers = scrape(&app).await;
    let model = r#"provider="openai",model="gpt-6-luna""#;
    numbers.expect(&format!("provider_overruns_total{{{model}}}"), 1);
    let bore = numbers.get(&format!("provider_overrun_microcredits_total{{{model}}}"));
    assert!(bore.unwrap() > 0.0);
    numbers.expect(
        r#"provider_first_token_seconds_count{provider="openai"}"#,
        1,
    );
    // Nothing was dropped, so no such metric appears.
    assert!(!numbers.text.contains("dropped"), "{}", numbers.text);
    app.assert_settled().await;
}

#[sqlx::test]
async fn unfinished_work_and_its_end_by_a_cancel_are_seen(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    let body = json!({"prompt": "[[slow:600]] x", "parameters": {"duration": 1}});
    let made = app
        .post(&account.key, "/v1/generate/video", &body)
        .await
        .expect(202);
    app.work_once().await;
    app.advance(chrono::TimeDelta::seconds(7));
    let numbers = scrape(&app).await;
    numbers.expect(r#"jobs{type="video",status="processing"}"#, 1);
    numbers.expect(r#"jobs{type="video",status="pending"}"#, 0);
    numbers.expect("generations_unfinished", 1);
    numbers.expect(
        "credits_held_microcredits",
        micros(&made["credits"]["held"]),
    );
    numbers.expect("oldest_unfinished_seconds", 7);
    numbers.expect("database_up", 1);
    for state in ["in_use", "idle"] {
        let series = format!(r#"database_connections{{pool="requests",state="{state}"}}"#);
        assert!(numbers.get(&series).is_some(), "{series}");
    }
    let submits = r#"provider_calls_total{provider="sandbox",modality="video",operation="submit",outcome="ok"}"#;
    numbers.expect(submits, 1);

    let path = format!("/v1/generate/{}/cancel", made["uuid"].as_str().unwrap());
    app.post(&account.key, &path, &json!({})).await.expect(200);
    app.idle().await;
    let numbers = scrape(&app).await;
    let end = r#"generations_finished_total{type="video",provider="sandbox",model="sandbox-video-1",status="failed",code="cancelled"}"#;
    numbers.expect(end, 1);
    let released = r#"credits_released_microcredits_total{type="video",provider="sandbox",model="sandbox-video-1"}"#;
    numbers.expect(released, micros(&made["credits"]["held"]));
}

#[sqlx::test]
async fn what_a_dead_process_left_is_counted_where_it_is_ended(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let body = json!({"prompt": "[[slow:600]] x", "stream": true});
    let request = Request::post("/v1/generate/text")
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {}", account.key))
        .body(Body::from(body.to_string()))
        .unwrap();
    let stream = app.app.router.clone().oneshot(request).await.unwrap();
    assert_eq!(stream.status(), 200);
    sqlx::query("delete from instances")
        .execute(&app.pool)
        .await
        .unwrap();
    let other = app.replica().await;
    // The first audit ran at startup.
    let numbers = scrape(&other).await;
    let end = r#"generations_finished_total{type="text",provider="sandbox",model="sandbox-text-1",status="failed",code="interrupted"}"#;
    numbers.expect(end, 1);
    assert_eq!(scrape(&app).await.get(end), None, "the recorders are apart");
    app.assert_settled().await;
}

#[sqlx::test]
async fn it_answers_without_a_database_and_while_it_stops(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    app.app
        .runner
        .drain(Duration::ZERO, &CancellationToken::new())
        .await;
    app.store.close(Duration::from_secs(9)).await;
    let numbers = scrape(&app).await;
    numbers.expect("database_up", 0);
    assert_eq!(numbers.get("generations_unfinished"), None);
    assert_eq!(numbers.get("credits_held_microcredits"), None);
    assert!(!numbers.text.contains("gensvc_jobs"));
}

#[sqlx::test]
async fn with_a_token_only_that_token_reads(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::with(options, &[("GENSVC__METRICS__TOKEN", "scrape-me-7")]).await;
    let account = app.account("1").await;
    let missing = app.get("", "/metrics").await;
    missing.error(401, "missing_token");
    assert_eq!(missing.header("www-authenticate"), "Bearer");
    for wrong in ["scrape-me-", "scrape-me-77", "SCRAPE-ME-7", &account.key] {
        app.get(wrong, "/metrics").await.error(401, "invalid_token");
    }
    let answer = app.get("scrape-me-7", "/metrics").await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.header("content-type"),
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let head = app
        .call(Method::HEAD, "scrape-me-7", "/metrics", &[], None)
        .await;
    assert_eq!((head.status, head.text.as_str()), (StatusCode::OK, ""));
    app.get("scrape-me-7", "/metrics?x=1")
        .await
        .error(422, "validation_failed");
    // Neither an API key nor an ability grants access here.
    app.get("scrape-me-7", "/v1/credits/balance")
        .await
        .error(401, "invalid_token");
}

#[sqlx::test]
async fn without_a_token_the_address_of_the_api_refuses_whoever_asks(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    // A proxy on this machine that adds no headers looks like a local program.
    let as_a_proxy = [("host", "127.0.0.1:8080")];
    for headers in [&as_a_proxy[..], &[], &[("host", "localhost")]] {
        for token in ["", &account.key] {
            let refused = app.call(Method::GET, token, "/metrics", headers, None);
            let error = refused.await.error(403, "loopback_only");
            assert_eq!(error["type"], "permission_error");
        }
    }
}

#[sqlx::test]
async fn without_a_token_only_this_machine_reads(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    for host in [
        "localhost",
        "LocalHost:9321",
        "127.0.0.1:9321",
        "127.8.8.8",
        "[::1]:9321",
    ] {
        assert_eq!(app.metrics(&[("host", host)]).await.status, 200, "{host}");
    }
    // What a page finds that had its own name lead here.
    for host in [
        "example.com",
        "localhost.example.com:9321",
        "127.0.0.1.example.com",
        "10.0.0.1",
        "[2001:db8::1]:9321",
        "localhost/",
        "",
    ] {
        let refused = app.metrics(&[("host", host)]).await;
        refused.error(403, "loopback_only");
    }
    app.metrics(&[]).await.error(403, "loopback_only");
    for header in [
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-for", ""),
        ("forwarded", "for=203.0.113.9"),
        ("x-real-ip", "127.0.0.1"),
        ("via", "1.1 proxy"),
        ("origin", "https://example.com"),
    ] {
        let refused = app.metrics(&[("host", "localhost"), header]).await;
        refused.error(403, "loopback_only");
    }
}

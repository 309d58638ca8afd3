//! Mistakes when the provider or its adapter fails: what happens to the hold.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use chrono::TimeDelta;
use gensvc::domain::conversation::Delta;
use gensvc::providers::{
    DeltaSink, ImageAnswer, ImageCall, ImageProvider, ProviderError, Registry, SpeechAnswer,
    SpeechCall, SpeechProvider, TextAnswer, TextCall, TextProvider, VideoCall, VideoProvider,
    VideoStatus,
};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{answers, pair, posted, text};
use crate::common::{Account, Reply, TestApp, Upstream};

/// `TensorZero`: a failure upstream keeps the estimate in the ledger, and the budget shrinks.
#[sqlx::test]
async fn the_estimate_kept_after_an_upstream_error(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let image = json!({"prompt": "x", "provider": "openai"});
    let error = json!({"error": {"message": "no", "code": "no"}});
    let statuses = [
        400, 401, 402, 403, 404, 408, 418, 422, 429, 500, 502, 503, 504, 529,
    ];
    let replies = statuses.map(|status| Reply::Status(status, error.clone()));
    let broken = [
        Reply::Cut,
        Reply::Raw(200, "application/json", "{".to_owned()),
    ];
    for reply in replies.into_iter().chain(broken) {
        upstream.reply(reply.clone());
        let mut streamed = text();
        streamed["stream"] = json!(true);
        for (kind, ask) in [
            ("text", text()),
            ("text", streamed),
            ("image", image.clone()),
        ] {
            let path = format!("/v1/generate/{kind}");
            let answer = app.post(&account.key, &path, &ask).await;
            let record = match answer.status.as_u16() {
                200 => answer.events().pop().unwrap().1,
                _ => answer.json()["generation"].clone(),
            };
            assert_eq!(record["status"], "failed", "{reply:?}");
            assert_eq!(record["credits"]["charged"], "0", "{reply:?}");
            assert_eq!(app.balance(&account).await, pair("1000", "0"), "{reply:?}");
        }
    }
    app.assert_nothing_kept().await;
}

/// one-api, new-api: the deduction is refunded where the response is read; a broken connection
/// never gets there.
#[sqlx::test]
async fn a_refund_lost_on_a_transport_error(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.reply(Reply::Cut);
    // A port without a listener.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed_url = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let more = [
        ("ANTHROPIC_API_KEY", "k"),
        ("ANTHROPIC_BASE_URL", closed_url.as_str()),
    ];
    let app = TestApp::vendors(options, &upstream, &more).await;
    let account = app.account("1000").await;
    for provider in ["openai", "gemini", "anthropic"] {
        for stream in [false, true] {
            let ask = json!({"prompt": "x", "provider": provider, "stream": stream});
            let answer = app.text(&account.key, ask).await;
            let failed = if stream {
                let (name, record) = answer.events().pop().unwrap();
                assert_eq!(name, "failed");
                record
            } else {
                answer.error(502, "provider_error");
                answer.json()["generation"].clone()
            };
            assert_eq!(failed["credits"]["charged"], "0", "{provider} {stream}");
        }
    }
    for (kind, provider) in [("image", "stability"), ("image", "openai")] {
        let ask = json!({"prompt": "x", "provider": provider});
        let answer = app
            .post(&account.key, &format!("/v1/generate/{kind}"), &ask)
            .await;
        answer.error(502, "provider_error");
    }
    for (kind, provider) in [
        ("video", "runway"),
        ("audio", "openai"),
        ("audio", "elevenlabs"),
    ] {
        let ask = json!({"prompt": "x", "provider": provider});
        let uuid = app.queue(&account, kind, &ask).await;
        let record = app.until_finished(&account, &uuid).await;
        assert_eq!(record["error"]["code"], "provider_error", "{record}");
    }
    assert_eq!(app.balance(&account).await, pair("1000", "0"));
    app.assert_nothing_kept().await;
}

/// Buggy adapters.
struct Panics {
    /// Whether a video is at least submitted.
    submits: AtomicBool,
}

#[async_trait]
impl TextProvider for Panics {
    async fn generate(
        &self,
        _: &TextCall,
        deltas: Option<&DeltaSink>,
    ) -> Result<TextAnswer, ProviderError> {
        if let Some(deltas) = deltas {
            deltas.push(Delta::Text("half an ans".to_owned()));
        }
        tokio::task::yield_now().await;
        panic!("a defect");
    }
}

#[async_trait]
impl ImageProvider for Panics {
    async fn generate(&self, _: &ImageCall) -> Result<ImageAnswer, ProviderError> {
        panic!("a defect");
    }
}

#[async_trait]
impl SpeechProvider for Panics {
    async fn generate(&self, _: &SpeechCall) -> Result<SpeechAnswer, ProviderError> {
        panic!("a defect");
    }
}

#[async_trait]
impl VideoProvider for Panics {
    async fn submit(&self, _: &VideoCall) -> Result<String, ProviderError> {
        assert!(self.submits.load(Ordering::Relaxed), "a defect");
        Ok("task".to_owned())
    }

    async fn poll(&self, _: &str, _: &VideoCall) -> Result<VideoStatus, ProviderError> {
        panic!("a defect");
    }

    async fn cancel(&self, _: &str) -> Result<(), ProviderError> {
        panic!("a defect");
    }
}

/// The record of a job, after the worker has done what it can within a time.
async fn worked(app: &TestApp, account: &Account, uuid: &str, time: TimeDelta) -> Value {
    let until = app.now() + time;
    while app.now() < until {
        app.work().await;
        app.app.runner.sweep_step().await.unwrap();
        app.advance(TimeDelta::seconds(5));
    }
    app.record(account, uuid).await
}

/// one-api, new-api: a request that panics gets a response, but its reservation stays.
#[sqlx::test]
async fn a_refund_lost_on_a_panic(_: PgPoolOptions, options: PgConnectOptions) {
    let panics = Arc::new(Panics {
        submits: AtomicBool::new(false),
    });
    let mut adapters = Registry::default();
    let name = || "sandbox".to_owned();
    adapters.text.insert(name(), Arc::clone(&panics) as _);
    adapters.image.insert(name(), Arc::clone(&panics) as _);
    adapters.speech.insert(name(), Arc::clone(&panics) as _);
    adapters.video.insert(name(), Arc::clone(&panics) as _);
    let app = TestApp::with(options, &[("GENSVC__JOBS__DEADLINE_SECONDS", "60")]).await;
    let app = app.with_adapters(adapters).await;
    let account = app.account("1000").await;
    for (kind, ask) in [
        ("text", json!({"prompt": "x"})),
        ("image", json!({"prompt": "x"})),
    ] {
        let answer = app
            .post(&account.key, &format!("/v1/generate/{kind}"), &ask)
            .await;
        assert!(answer.status.is_server_error(), "{}", answer.text);
        let record = &answer.json()["generation"];
        assert_eq!(record["error"]["code"], "interrupted");
        assert_eq!(app.balance(&account).await, pair("1000", "0"));
    }
    let streamed = app
        .text(&account.key, json!({"prompt": "x", "stream": true}))
        .await;
    assert_eq!(streamed.events().pop().unwrap().0, "failed");
    assert_eq!(app.balance(&account).await, pair("1000", "0"));
    // A call whose outcome is unknown is not repeated.
    for (kind, ask) in [
        ("audio", json!({"prompt": "x"})),
        ("video", json!({"prompt": "x"})),
    ] {
        let uuid = app.queue(&account, kind, &ask).await;
        let record = worked(&app, &account, &uuid, TimeDelta::seconds(1)).await;
        assert_eq!(record["error"]["code"], "interrupted", "{record}");
        assert_eq!(record["metadata"]["attempts"], 1);
        assert_eq!(app.balance(&account).await, pair("1000", "0"));
    }
    // A task that can never be polled ends at its deadline.
    panics.submits.store(true, Ordering::Relaxed);
    let uuid = app.queue(&account, "video", &json!({"prompt": "x"})).await;
    let record = worked(&app, &account, &uuid, TimeDelta::seconds(30)).await;
    assert_eq!(record["status"], "processing", "{record}");
    let record = worked(&app, &account, &uuid, TimeDelta::seconds(60)).await;
    assert_eq!(record["error"]["code"], "expired", "{record}");
    assert_eq!(app.balance(&account).await, pair("1000", "0"));
    assert_eq!(app.app.runner.running(), 0);
    app.assert_settled().await;
}

/// A database that was restored from a backup, or a standby that lagged, does not know what is
/// running. Callers must not get an error that denies that their request existed.
#[sqlx::test]
async fn a_database_set_back_while_a_request_runs(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let account = app.account("1").await;
    let running = posted(&[&app], &account.key, 3);
    upstream.arrived(3).await;
    for statement in [
        "alter table ledger_entries disable trigger all",
        "delete from ledger_entries where generation_id is not null",
        "delete from running_generations",
        "update accounts set held = 0, jobs = 0",
        "delete from key_spend",
    ] {
        sqlx::query(statement).execute(&app.pool).await.unwrap();
    }
    upstream.release(3);
    for answer in answers(running).await {
        let error = answer.error(503, "database_unavailable");
        assert_eq!(error["retryable"], true);
        assert_ne!(answer.header("retry-after"), "");
    }
    assert_eq!(app.balance(&account).await, pair("1", "0"));
    app.assert_settled().await;
}

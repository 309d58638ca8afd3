//! Mistakes of repeating what may happen only once.

use std::sync::Arc;

use futures_util::future::join_all;
use gensvc::{
    domain::ids::GenerationId,
    store::{credits::Move, verify::Scope},
};
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{HOLD, answers, movements, pair, posted, text};
use crate::{
    common::{Account, Reply, TestApp, Upstream},
    v1::generate::video::{body, playing},
};

async fn looked_up(app: &Arc<TestApp>, other: &Arc<TestApp>, account: &Account, uuid: &str) {
    let all = (0..100).map(|n| {
        let app = Arc::clone(if n % 2 == 0 { app } else { other });
        let (key, path) = (account.key.clone(), format!("/v1/generate/{uuid}"));
        tokio::spawn(async move { app.get(&key, &path).await.expect(200) })
    });
    for looked in join_all(all).await {
        looked.unwrap();
    }
}

/// `LiteLLM`: each poll of a finished video bills it.
#[sqlx::test]
async fn a_poll_that_charges_again(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = playing().await;
    let app = Arc::new(TestApp::vendors(options, &upstream, &[]).await);
    let other = Arc::new(app.replica().await);
    let account = app.account("100").await;
    let uuid = app.queue(&account, "video", &body()).await;
    looked_up(&app, &other, &account, &uuid).await;
    assert_eq!(movements(&app, &account).await, [pair("hold", "24")]);
    // While it is finished.
    tokio::join!(
        looked_up(&app, &other, &account, &uuid),
        app.until_finished(&account, &uuid),
    );
    looked_up(&app, &other, &account, &uuid).await;
    let once = [pair("hold", "24"), pair("charge", "24")];
    assert_eq!(movements(&app, &account).await, once);
    assert_eq!(app.balance(&account).await, pair("76", "0"));
    assert_eq!(upstream.calls(&Method::POST, "text_to_video"), 1);
    app.assert_settled().await;
}

/// new-api: a submission with a failed response is retried, which makes another job.
#[sqlx::test]
async fn a_retried_submission_that_makes_a_second_job(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let replies = [
        Reply::Status(500, Value::Null),
        Reply::Status(502, Value::Null),
        Reply::Status(408, Value::Null),
        Reply::Status(504, Value::Null),
        Reply::Cut,
        Reply::Raw(200, "text/html", "<p>hello".to_owned()),
    ];
    let mut submitted = 0;
    for (n, reply) in replies.into_iter().enumerate() {
        upstream.reply(reply.clone());
        for (kind, ask, call) in [
            ("video", body(), "text_to_video"),
            (
                "audio",
                json!({"prompt": "x", "provider": "elevenlabs"}),
                "text-to-speech",
            ),
        ] {
            let (key, path) = (format!("{kind}-{n}"), format!("/v1/generate/{kind}"));
            let headers = [("idempotency-key", key.as_str())];
            let post = || app.post_with(&account.key, &path, &headers, &ask);
            let first = post().await.expect(202)["uuid"].clone();
            let record = app.until_finished(&account, first.as_str().unwrap()).await;
            assert_eq!(record["status"], "failed", "{reply:?}");
            assert_eq!(record["metadata"]["attempts"], 1, "{reply:?}");
            // A retry with the same key gets the same one.
            let again = post().await;
            assert_eq!(again.header("idempotent-replayed"), "true");
            assert_eq!(again.json()["uuid"], first);
            app.work().await;
            assert_eq!(upstream.calls(&Method::POST, call), n + 1, "{reply:?}");
            submitted += 1;
        }
    }
    assert_eq!(upstream.count(), submitted);
    assert_eq!(app.balance(&account).await, pair("1000", "0"));
    app.assert_nothing_kept().await;
}

/// Several: a job that ends twice is refunded twice.
#[sqlx::test]
async fn a_double_refund_that_mints_credits(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let other = Arc::new(app.replica().await);
    let account = app.account("1").await;
    // Ten generations, each cancelled ten times on two servers while its response arrives.
    let running = posted(&[&app, &other], &account.key, 10);
    upstream.arrived(10).await;
    let listed = app.history(&account).await;
    let cancels = (0..100).map(|n| {
        let server = if n % 3 == 0 { &app } else { &other };
        let uuid = listed[n % 10]["uuid"].as_str().unwrap();
        let path = format!("/v1/generate/{uuid}/cancel");
        server.spawn_post(&account.key, &path, &[], json!({}))
    });
    let cancels: Vec<_> = cancels.collect();
    upstream.release(10);
    let cancelled = answers(cancels).await;
    let cancelled = cancelled.iter().filter(|a| a.status == 200).count();
    let completed = answers(running).await;
    let completed = completed.iter().filter(|a| a.status == 200).count();
    assert_eq!(cancelled + completed, 10);
    let ends = movements(&app, &account).await;
    let count = |kind: &str| ends.iter().filter(|(found, _)| found == kind).count();
    assert_eq!((count("hold"), count("release")), (10, cancelled));
    assert_eq!((count("charge"), ends.len()), (completed, 20));
    app.assert_settled().await;

    // A charge is refunded once, however many try.
    upstream.release(1);
    let record = app.text(&account.key, text()).await.expect(200);
    let before = app.store.verify_ledger(Scope::Whole).await.unwrap();
    assert!(before.differences.is_empty());
    let generation = GenerationId::parse(record["uuid"].as_str().unwrap()).unwrap();
    let what = Move::Refund {
        generation,
        amount: None,
    };
    let refunds = (0..20).map(|n| {
        let (server, reference) = (Arc::clone(&app), format!("note {n}"));
        tokio::spawn(async move {
            let service = &server.app.service;
            service
                .move_credits(account.id, what, Some(&reference))
                .await
        })
    });
    let refunds = join_all(refunds).await;
    let moved = |r: &&Result<_, _>| matches!(r, Ok(Ok((_, true))));
    assert_eq!(refunds.iter().filter(moved).count(), 1);
    app.assert_settled().await;
}

/// Several: negative or non-numeric usage is accepted as reported.
#[sqlx::test]
async fn a_negative_usage_that_mints_credits(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1").await;
    let mut spent = 0;
    for count in [
        json!(-1),
        json!(i64::MIN),
        json!(-0.5),
        json!(1e300),
        json!("-5"),
        json!("NaN"),
        json!(u64::MAX),
        Value::Null,
        json!([]),
    ] {
        upstream.reply(Reply::Status(
            200,
            json!({"id": "c", "model": "m", "choices": [{"index": 0, "finish_reason": "stop",
                "message": {"role": "assistant", "content": "Hello."}}],
                "usage": {"prompt_tokens": count, "completion_tokens": count, "total_tokens": count}}),
        ));
        let record = app.text(&account.key, text()).await.expect(200);
        let charged: gensvc::domain::credits::Credits = record["credits"]["charged"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        let hold: gensvc::domain::credits::Credits = HOLD.parse().unwrap();
        assert!(charged.micros() > 0 && charged <= hold, "{count}: {record}");
        spent += charged.micros();
        let left = gensvc::domain::credits::Credits::from_micros(1_000_000 - spent);
        assert_eq!(app.balance(&account).await, pair(&left.to_string(), "0"));
    }
    // Nor can a caller request a negative amount.
    for (kind, ask) in [
        (
            "text",
            json!({"prompt": "x", "parameters": {"max_tokens": -1}}),
        ),
        ("text", json!({"prompt": "x", "max_cost": "-1"})),
        ("image", json!({"prompt": "x", "parameters": {"n": -1}})),
        (
            "video",
            json!({"prompt": "x", "parameters": {"duration": -1}}),
        ),
    ] {
        let path = format!("/v1/generate/{kind}");
        app.post(&account.key, &path, &ask).await.fields();
    }
    app.assert_settled().await;
}

//! What SDKs send again by themselves is billed once.

mod hanging;
mod unconfirmed;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::body::Body;
use chrono::TimeDelta;
use futures_util::{StreamExt as _, future::join_all};
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

use super::{CHAT, MESSAGES, MODELS, ROUTES, ask, error, events, parts, record, text_of, with};
use crate::{
    common::{Account, Answer, Reply, TestApp, Upstream},
    envelope::raw,
};

const TRIES: &str = "x-stainless-retry-count";
/// The longest wait, in looks at the record.
const PATIENCE: usize = 10_000;

async fn tried(app: &TestApp, key: &str, path: &str, count: &str, body: &Value) -> Answer {
    app.post_with(key, path, &[(TRIES, count)], body).await
}

fn trying(
    app: &Arc<TestApp>,
    account: &Account,
    path: &'static str,
    count: &'static str,
    body: &Value,
) -> JoinHandle<Answer> {
    let (app, key, body) = (Arc::clone(app), account.key.clone(), body.clone());
    tokio::spawn(async move { tried(&app, &key, path, count, &body).await })
}

/// The uuids of the account's generations, the newest first.
pub(super) async fn made(app: &TestApp, account: &Account) -> Vec<String> {
    let history = app.history(account).await;
    history
        .iter()
        .map(|one| one["uuid"].as_str().unwrap().to_owned())
        .collect()
}

async fn joined(app: &TestApp, account: &Account, uuid: &str, times: i64) -> Value {
    for _ in 0..PATIENCE {
        let record = app.record(account, uuid).await;
        if record["metadata"]["joined"] == times {
            return record;
        }
    }
    panic!("{uuid} is not joined {times} times");
}

/// `ComfyUI`: of 732 submissions that were repeated, 426 were billed again.
#[sqlx::test]
async fn an_sdks_own_retry_makes_and_bills_one_generation(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.reply(Reply::Text("Hello there.".to_owned(), 10, 3));
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let other = Arc::new(app.replica().await);
    for (n, path) in ROUTES.into_iter().enumerate() {
        for streamed in [false, true] {
            let account = app.account("1").await;
            let body = with(ask(MODELS[1], "x"), &json!({"stream": streamed}));
            let before = upstream.count();
            upstream.hold();
            let first = trying(&app, &account, path, "0", &body);
            upstream.arrived(before + 1).await;
            // Its caller has no more patience.
            first.abort();
            assert!(first.await.unwrap_err().is_cancelled());
            let uuid = made(&app, &account).await[0].clone();
            let retries = [
                trying(&app, &account, path, "1", &body),
                trying(&other, &account, path, "2", &body),
            ];
            joined(&app, &account, &uuid, 2).await;
            upstream.release(1);
            let late = trying(&other, &account, path, "3", &body);
            for retry in join_all(retries.into_iter().chain([late])).await {
                let answer = retry.unwrap();
                assert_eq!(answer.status, 200, "{}", answer.text);
                assert_eq!(answer.header("idempotent-replayed"), "true");
                assert_eq!(answer.header("x-gensvc-generation"), uuid);
                let text = if streamed {
                    text_of(path, &events(path, &answer.text))
                } else {
                    parts(path, &answer.json()).0
                };
                assert_eq!(text, "Hello there.");
            }
            assert_eq!(upstream.count(), before + 1, "{n}");
            assert_eq!(made(&app, &account).await, std::slice::from_ref(&uuid));
            let record = joined(&app, &account, &uuid, 3).await;
            assert_eq!(record["status"], "completed");
            let ledger = app
                .get(&account.key, "/v1/credits/ledger?kind=charge")
                .await;
            assert_eq!(ledger.expect(200)["data"].as_array().unwrap().len(), 1);
        }
    }
    app.assert_settled().await;
}

/// A package's own timeout may be as long as the period in which retries join what has ended.
#[sqlx::test]
async fn a_retry_joins_what_still_runs(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let other = Arc::new(app.replica().await);
    let account = app.account("1").await;
    for (n, path) in ROUTES.into_iter().enumerate() {
        let body = ask(MODELS[1], "x");
        upstream.hold();
        let first = trying(&app, &account, path, "0", &body);
        upstream.arrived(2 * n + 1).await;
        first.abort();
        let uuid = made(&app, &account).await[0].clone();
        app.advance(TimeDelta::minutes(11));
        app.app.runner.purge(TimeDelta::days(1), 100).await.unwrap();
        let retries = [(&app, "1"), (&other, "2")];
        let retries = retries.map(|(app, count)| trying(app, &account, path, count, &body));
        joined(&app, &account, &uuid, 2).await;
        upstream.release(2);
        for retry in retries {
            assert_eq!(retry.await.unwrap().header("x-gensvc-generation"), uuid);
        }
        app.idle().await;
        let late = tried(&app, &account.key, path, "3", &body).await;
        late.expect(200);
        assert_ne!(late.header("x-gensvc-generation"), uuid);
        assert_eq!(upstream.count(), 2 * n + 2);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn retries_at_once_without_a_first_try_make_one(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let other = Arc::new(app.replica().await);
    let account = app.account("1").await;
    let mut before = 0;
    for (path, text) in ROUTES.into_iter().zip(["a", "b"]) {
        upstream.hold();
        let body = ask(MODELS[1], text);
        let retries = (0..20).map(|n| {
            let server = if n % 2 == 0 { &app } else { &other };
            trying(server, &account, path, "1", &body)
        });
        let retries: Vec<_> = retries.collect();
        upstream.arrived(before + 1).await;
        let uuid = made(&app, &account).await[0].clone();
        joined(&app, &account, &uuid, 19).await;
        upstream.release(20);
        for retry in join_all(retries).await {
            assert_eq!(retry.unwrap().header("x-gensvc-generation"), uuid);
        }
        before += 1;
        assert_eq!(upstream.count(), before);
        // The next one is the newest, whichever server makes it.
        app.advance(TimeDelta::seconds(1));
    }
    assert_eq!(made(&app, &account).await.len(), 2);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_failed_one_is_not_joined(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let other = Arc::new(app.replica().await);
    let account = app.account("1").await;
    for path in ROUTES {
        let body = ask(MODELS[1], path);
        upstream.reply(Reply::Status(400, json!({})));
        let failed = tried(&app, &account.key, path, "0", &body).await;
        error(path, &failed, 400, "provider_rejected");
        upstream.reply(Reply::Text("Hello.".to_owned(), 10, 3));
        let before = upstream.count();
        let retries = (0..10).map(|n| {
            let server = if n % 2 == 0 { &app } else { &other };
            trying(server, &account, path, "1", &body)
        });
        let mut uuids: Vec<_> = join_all(retries)
            .await
            .into_iter()
            .map(|retry| {
                let retry = retry.unwrap();
                retry.expect(200);
                retry.header("x-gensvc-generation").to_owned()
            })
            .collect();
        uuids.dedup();
        assert_eq!(uuids.len(), 1, "{uuids:?}");
        assert_eq!(upstream.count(), before + 1);
        // Nor is one that its owner has deleted.
        let path_of = format!("/v1/generate/{}", uuids[0]);
        app.delete(&account.key, &path_of).await.expect(204);
        let retry = tried(&app, &account.key, path, "1", &body).await;
        retry.expect(200);
        assert_ne!(retry.header("x-gensvc-generation"), uuids[0]);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn only_a_retry_of_the_same_request_joins(_: PgPoolOptions, options: PgConnectOptions) {
    let app = Arc::new(TestApp::new(options).await);
    let account = app.account("10").await;
    let session = app.login(&account).await;
    let body = ask(MODELS[0], "x");
    let uuid = |answer: Answer| {
        answer.expect(200);
        answer.header("x-gensvc-generation").to_owned()
    };
    let first = uuid(tried(&app, &account.key, CHAT, "0", &body).await);
    let again = uuid(tried(&app, &account.key, CHAT, "1", &body).await);
    assert_eq!(again, first);
    let key = [(TRIES, "1"), ("idempotency-key", "k")];
    let mut others = Vec::new();
    for answer in [
        // The user sends it twice.
        tried(&app, &account.key, CHAT, "0", &body).await,
        app.post(&account.key, CHAT, &body).await,
        tried(&app, &account.key, CHAT, "many", &body).await,
        tried(&app, &account.key, CHAT, "1", &ask(MODELS[0], "y")).await,
        tried(&app, &account.key, MESSAGES, "1", &body).await,
        tried(&app, &session, CHAT, "1", &body).await,
        app.post_with(&account.key, CHAT, &key, &body).await,
    ] {
        let other = uuid(answer);
        assert!(other != first && !others.contains(&other));
        others.push(other);
    }
    // Of several that are the same the one that was retried as often before.
    let again = uuid(tried(&app, &account.key, CHAT, "2", &body).await);
    assert_eq!(again, first);
    let again = uuid(tried(&app, &account.key, CHAT, "1", &body).await);
    assert_eq!(again, others[0]);
    let keyed = app.post_with(&account.key, CHAT, &key, &body).await;
    assert_eq!(keyed.header("idempotent-replayed"), "true");
    assert_eq!(&uuid(keyed), others.last().unwrap());
    app.advance(TimeDelta::minutes(10));
    let late = uuid(tried(&app, &account.key, CHAT, "1", &body).await);
    assert!(late != first && !others.contains(&late));
    let never = app
        .replica_with(&[("GENSVC__IDEMPOTENCY__JOIN_MINUTES", "0")])
        .await;
    let new = uuid(tried(&never, &account.key, CHAT, "1", &body).await);
    assert_ne!(new, late);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_retry_is_told_how_the_one_that_it_joined_ends(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.reply(Reply::Status(400, json!({})));
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    for path in ROUTES {
        let account = app.account("1").await;
        let body = ask(MODELS[1], "x");
        let before = upstream.count();
        upstream.hold();
        let first = trying(&app, &account, path, "0", &body);
        upstream.arrived(before + 1).await;
        let uuid = made(&app, &account).await[0].clone();
        let retry = trying(&app, &account, path, "1", &body);
        joined(&app, &account, &uuid, 1).await;
        upstream.release(1);
        for answer in [first.await.unwrap(), retry.await.unwrap()] {
            error(path, &answer, 400, "provider_rejected");
            assert_eq!(answer.header("x-gensvc-generation"), uuid);
        }
        // What was cut short by its owner answers nothing.
        upstream.hold();
        let first = trying(&app, &account, path, "0", &body);
        upstream.arrived(before + 2).await;
        let uuid = made(&app, &account).await[0].clone();
        let retry = trying(&app, &account, path, "1", &body);
        joined(&app, &account, &uuid, 1).await;
        let cancel = format!("/v1/generate/{uuid}/cancel");
        let cancel = app.call(Method::POST, &account.key, &cancel, &[], None);
        cancel.await.expect(200);
        for answer in [first.await.unwrap(), retry.await.unwrap()] {
            error(path, &answer, 400, "cancelled");
            assert_eq!(answer.header("x-should-retry"), "false");
            assert_eq!(answer.header("x-gensvc-generation"), uuid);
        }
        upstream.release(1);
        assert_eq!(
            record(
                &app,
                &account,
                &tried(&app, &account.key, path, "0", &body).await
            )
            .await["metadata"]["joined"],
            0
        );
    }
    app.assert_settled().await;
}

/// Requests that are the same, sent side by side: no retry takes the answer of another one's.
#[sqlx::test]
async fn tries_side_by_side_are_retried_side_by_side(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let other = Arc::new(app.replica().await);
    let account = app.account("1").await;
    for (n, path) in ROUTES.into_iter().enumerate() {
        upstream.hold();
        let body = ask(MODELS[1], "x");
        let firsts = [(); 3].map(|()| trying(&app, &account, path, "0", &body));
        upstream.arrived(5 * n + 3).await;
        for first in firsts {
            first.abort();
            assert!(first.await.unwrap_err().is_cancelled());
        }
        let uuids = made(&app, &account).await;
        let mut uuids = uuids[..3].to_vec();
        uuids.sort();
        // The second retry of each client too.
        for count in ["1", "2"] {
            let retries = [&app, &other, &app].map(|app| trying(app, &account, path, count, &body));
            let times = count.parse().unwrap();
            for uuid in &uuids {
                joined(&app, &account, uuid, times).await;
            }
            if count == "1" {
                for retry in retries {
                    retry.abort();
                    assert!(retry.await.unwrap_err().is_cancelled());
                }
                continue;
            }
            upstream.release(3);
            let mut answered = Vec::new();
            for retry in join_all(retries).await {
                let answer = retry.unwrap();
                answer.expect(200);
                answered.push(answer.header("x-gensvc-generation").to_owned());
            }
            answered.sort();
            assert_eq!(answered, uuids);
        }
        assert_eq!(upstream.count(), 5 * n + 3);
        // A retry does not join a request that has failed.
        upstream.release(2);
        upstream.reply(Reply::Status(400, json!({})));
        let failed = tried(&app, &account.key, path, "0", &ask(MODELS[1], "y")).await;
        error(path, &failed, 400, "provider_rejected");
        upstream.reply(Reply::Text("Hello.".to_owned(), 10, 3));
        let again = tried(&app, &account.key, path, "1", &ask(MODELS[1], "y")).await;
        again.expect(200);
        assert_eq!(again.header("idempotent-replayed"), "");
        app.advance(TimeDelta::seconds(1));
    }
    app.assert_settled().await;
}

/// A replay that has sent its headers cannot end with a 409 any more.
#[sqlx::test]
async fn a_streamed_replay_waits_for_the_end(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.reply(Reply::Text("Hello there.".to_owned(), 10, 3));
    // The headers are sent with the first keep-alive, after 15 s.
    let wait = [("GENSVC__IDEMPOTENCY__WAIT_SECONDS", "22")];
    let app = Arc::new(TestApp::upstream_with(options, &upstream, &wait).await);
    let other = Arc::new(app.replica().await);
    let hasty = [("GENSVC__IDEMPOTENCY__WAIT_SECONDS", "1")];
    let hasty = Arc::new(app.replica_with(&hasty).await);
    let key = [("idempotency-key", "k")];
    upstream.hold();
    let mut replays = Vec::new();
    for (n, path) in ROUTES.into_iter().enumerate() {
        let account = app.account("1").await;
        let body = with(ask(MODELS[1], "x"), &json!({"stream": true}));
        let post = |app: &Arc<TestApp>| app.spawn_post(&account.key, path, &key, body.clone());
        let first = post(&app);
        upstream.arrived(n + 1).await;
        for app in [&app, &other] {
            let headers = [key[0], ("content-type", "application/json")];
            let body = Body::from(body.to_string());
            let request = raw(Method::POST, path, &account.key, &headers, body);
            let router = app.app.router.clone();
            let reading = tokio::spawn(async move {
                let began = Instant::now();
                let answer = router.oneshot(request).await.unwrap();
                assert_eq!(answer.headers()["idempotent-replayed"], "true");
                let mut body = answer.into_body().into_data_stream();
                let mut text = String::new();
                // The second keep-alive comes when the wait would have ended.
                while began.elapsed() < Duration::from_secs(23) {
                    text += str::from_utf8(&body.next().await.unwrap().unwrap()).unwrap();
                }
                (body, text)
            });
            replays.push((path, reading));
        }
        let early = post(&hasty).await.unwrap();
        error(path, &early, 409, "idempotency_in_progress");
        assert_eq!(early.header("x-should-retry"), "true");
        drop(first);
    }
    let mut open = Vec::new();
    for (path, reading) in replays {
        open.push((path, reading.await.unwrap()));
    }
    upstream.release(2);
    for (path, (mut body, mut text)) in open {
        while let Some(piece) = body.next().await {
            text += str::from_utf8(&piece.unwrap()).unwrap();
        }
        assert_eq!(
            text_of(path, &events(path, &text)),
            "Hello there.",
            "{text}"
        );
    }
    app.idle().await;
    app.assert_settled().await;
}

//! Errors that SDKs get when a request is refused, and whether they should retry it.

mod holds;
mod queues;
mod waits;

use axum::body::Body;
use http::Method;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{CHAT, MESSAGES, MODELS, PATHS, ROUTES, ask, error, prompt};
use crate::{
    common::{Answer, Reply, TestApp, Upstream},
    envelope::raw,
};

/// Whether an answer says that it is final, or when to try again.
#[track_caller]
fn is_final(path: &str, answer: &Answer, final_: bool) {
    let retry = answer.header("x-should-retry");
    assert_eq!(retry, if final_ { "false" } else { "true" });
    let (after, millis) = (
        answer.header("retry-after"),
        answer.header("retry-after-ms"),
    );
    if final_ {
        assert_eq!((after, millis), ("", ""));
    } else {
        assert_eq!(millis, format!("{after}000"));
    }
    let limit = match path {
        MESSAGES => "anthropic-ratelimit-requests-limit",
        _ => "x-ratelimit-limit-requests",
    };
    assert_ne!(answer.header(limit), "");
}

#[sqlx::test]
async fn every_refusal_says_whether_to_try_again(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let poor = app.account("0").await;
    let narrow = json!({"name": "n", "abilities": ["read:history"]});
    let narrow = app.key(account.id, narrow).await;
    for (n, path) in PATHS.into_iter().enumerate() {
        let body = prompt(path, MODELS[0], "x");
        let answer = app.post(&poor.key, path, &body).await;
        error(path, &answer, 402, "insufficient_credits");
        is_final(path, &answer, true);
        let answer = app.post(&narrow, path, &body).await;
        error(path, &answer, 403, "missing_ability");
        is_final(path, &answer, true);
        let once = json!({"name": format!("once {n}"), "rate_limit_per_minute": 1});
        let once = app.key(account.id, once).await;
        app.post(&once, path, &body).await.expect(200);
        let answer = app.post(&once, path, &body).await;
        error(path, &answer, 429, "rate_limited");
        is_final(path, &answer, false);
        // What its owner cancels is not to be made again.
        upstream.hold();
        let before = upstream.count();
        let json = [("content-type", "application/json")];
        let body = prompt(path, MODELS[1], "x").to_string().into();
        let request = raw(Method::POST, path, &account.key, &json, body);
        let answering = app.send(request);
        let cancelling = async {
            upstream.arrived(before + 1).await;
            let uuid = app.history(&account).await[0]["uuid"].clone();
            let cancel = format!("/v1/generate/{}/cancel", uuid.as_str().unwrap());
            let cancel = app.call(Method::POST, &account.key, &cancel, &[], None);
            cancel.await.expect(200);
        };
        let (answer, ()) = tokio::join!(answering, cancelling);
        error(path, &answer, 400, "cancelled");
        is_final(path, &answer, true);
        upstream.release(1);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn holds_and_full_places_are_worth_another_try(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.reply(Reply::Text("ok".to_owned(), 1, 1));
    upstream.hold();
    let env = [
        ("GENSVC__SERVER__ACCOUNT_SHARE_PERCENT", "100"),
        ("GENSVC__CREDITS__HOLD_WAIT_SECONDS", "0"),
    ];
    let app = TestApp::vendors(options, &upstream, &env).await;
    // One hold: (1 + 8 + 64) x 12.5 + 64 x 50 micro-credits.
    let account = app.account("0.004113").await;
    let (router, key) = (app.app.router.clone(), account.key.clone());
    let first = tokio::spawn(async move {
        let json = [("content-type", "application/json")];
        let body = Body::from(ask(MODELS[1], "x").to_string());
        tower::ServiceExt::oneshot(router, raw(Method::POST, CHAT, &key, &json, body)).await
    });
    upstream.arrived(1).await;
    for path in ROUTES {
        let answer = app.post(&account.key, path, &ask(MODELS[1], "x")).await;
        let held = error(path, &answer, 429, "credits_on_hold");
        assert_eq!(held["required"], "0.004113");
        assert_eq!(answer.header("x-should-retry"), "true");
        assert_eq!(answer.header("retry-after-ms"), "1000");
    }
    upstream.release(1);
    assert_eq!(first.await.unwrap().unwrap().status(), 200);
    app.assert_settled().await;
}

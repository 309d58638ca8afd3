//! Spend limits of keys: as strict as the balance.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::{
    common::{Account, Reply, TestApp, Upstream},
    ledger::count_usage,
};

const IMAGE: &str = "/v1/generate/image";
const KEYS: &str = "/v1/api-keys";

/// One credit an image.
fn images(n: u32) -> Value {
    json!({"prompt": "x", "parameters": {"n": n, "size": "256x256"}})
}

async fn capped(app: &TestApp, account: &Account, limit: &str, period: Value) -> (String, String) {
    let body = json!({"name": "capped", "spend_limit": limit, "spend_period": period,
        "rate_limit_per_minute": 1_000_000});
    let made = app.post(&account.key, KEYS, &body).await.expect(201);
    let key = made["key"].as_str().unwrap().to_owned();
    (key, format!("{KEYS}/{}", made["id"]))
}

async fn spent(app: &TestApp, account: &Account, path: &str) -> Value {
    app.get(&account.key, path).await.expect(200)["spent"].clone()
}

#[sqlx::test]
async fn a_limit_is_a_number_of_credits_and_perhaps_a_period(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let make = async |more: Value| {
        let mut body = json!({"name": "x"});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        app.post(&account.key, KEYS, &body).await
    };
    let none = make(json!({"spend_limit": null, "spend_period": null})).await;
    let none = none.expect(201);
    assert_eq!(
        (&none["spend_limit"], &none["spend_period"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(none["spent"], "0");
    let day = make(json!({"spend_limit": 2.5, "spend_period": "day"})).await;
    let day = day.expect(201);
    assert_eq!(
        (&day["spend_limit"], &day["spend_period"]),
        (&json!("2.5"), &json!("day"))
    );
    for (body, param, code) in [
        (json!({"spend_limit": "-1"}), "spend_limit", "out_of_range"),
        (json!({"spend_limit": true}), "spend_limit", "invalid_type"),
        (
            json!({"spend_limit": "0.0000001"}),
            "spend_limit",
            "invalid_format",
        ),
        (
            json!({"spend_period": "day"}),
            "spend_period",
            "not_allowed",
        ),
        (
            json!({"spend_limit": 1, "spend_period": "week"}),
            "spend_period",
            "not_allowed",
        ),
    ] {
        let fields = make(body.clone()).await.fields();
        assert_eq!(fields.get(param).map(String::as_str), Some(code), "{body}");
        assert_eq!(fields.len(), 1, "{body}");
    }
}

#[sqlx::test]
async fn what_is_above_the_limit_is_refused_and_told(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let (key, path) = capped(&app, &account, "3", Value::Null).await;
    app.post(&key, IMAGE, &images(2)).await.expect(200);
    let answer = app.post(&key, IMAGE, &images(4)).await;
    let error = answer.error(402, "spend_limit_exceeded");
    assert_eq!(error["type"], "insufficient_credits");
    for (name, value) in [
        ("limit", "3"),
        ("spent", "2"),
        ("required", "4"),
        ("shortfall", "3"),
        ("balance", "8"),
        ("held", "0"),
        ("available", "8"),
    ] {
        assert_eq!(error[name], value, "{name}");
    }
    assert_eq!(error["affordable"], json!({"n": 1}));
    assert_eq!(error["retryable"], false);
    assert_eq!(
        error["message"],
        "this request may cost 4 credits; the key's spend_limit is 3, of which 2 are spent or on hold"
    );
    // Failures release their hold; what fits is accepted.
    let fault = json!({"prompt": "[[fail]]", "parameters": {"size": "256x256"}});
    app.post(&key, IMAGE, &fault)
        .await
        .error(502, "provider_error");
    app.post(&key, IMAGE, &images(1)).await.expect(200);
    assert_eq!(spent(&app, &account, &path).await, "3");
    app.post(&key, IMAGE, &images(1))
        .await
        .error(402, "spend_limit_exceeded");
    // Other keys and sessions of the account are not limited by it, and count separately.
    app.post(&account.key, IMAGE, &images(1)).await.expect(200);
    let listed = async || {
        let keys = app.get(&account.key, KEYS).await.expect(200);
        let keys = keys["data"].as_array().unwrap().iter();
        keys.map(|key| key["spent"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(listed().await, ["3", "1"]);
    // Also when it is in the sums of days, and while another is on hold.
    count_usage(&app).await;
    assert_eq!(listed().await, ["3", "1"]);
    let video = json!({"prompt": "[[slow:60]]", "parameters": {"duration": 1}});
    let video = app.post(&account.key, "/v1/generate/video", &video).await;
    assert_eq!(video.expect(202)["credits"]["held"], "5");
    assert_eq!(listed().await, ["3", "6"]);
    app.assert_verified().await;
}

#[sqlx::test]
async fn of_several_refusals_the_contract_names_the_first(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("2").await;
    let (key, _) = capped(&app, &account, "1", Value::Null).await;
    let mut body = images(3);
    app.post(&key, IMAGE, &body)
        .await
        .error(402, "spend_limit_exceeded");
    // What is affordable must fit limit and balance alike.
    let (roomy, _) = capped(&app, &account, "3.5", Value::Null).await;
    let answer = app.post(&roomy, IMAGE, &images(4)).await;
    let error = answer.error(402, "spend_limit_exceeded");
    assert_eq!(error["affordable"], json!({"n": 2}));
    app.post(&account.key, IMAGE, &body)
        .await
        .error(402, "insufficient_credits");
    body["max_cost"] = json!("0.5");
    app.post(&key, IMAGE, &body)
        .await
        .error(402, "max_cost_exceeded");
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_period_begins_anew_and_keeps_what_began_in_it(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    // To just before the end of a month.
    let end: DateTime<Utc> = "2027-01-31T23:59:59.5Z".parse().unwrap();
    app.advance(end - app.now());
    let (day, day_path) = capped(&app, &account, "6", json!("day")).await;
    let (month, month_path) = capped(&app, &account, "6", json!("month")).await;
    let video = json!({"prompt": "x", "parameters": {"duration": 1}});
    let path = "/v1/generate/video";
    let mut uuids = Vec::new();
    for key in [&day, &month] {
        let record = app.post(key, path, &video).await.expect(202);
        uuids.push(record["uuid"].as_str().unwrap().to_owned());
        app.post(key, path, &video)
            .await
            .error(402, "spend_limit_exceeded");
    }
    assert_eq!(spent(&app, &account, &day_path).await, "5");
    // The next day and month: reset, though yesterday's work is still running.
    app.advance(TimeDelta::milliseconds(500));
    for (key, path_of) in [(&day, &day_path), (&month, &month_path)] {
        assert_eq!(spent(&app, &account, path_of).await, "0");
        app.post(key, path, &video).await.expect(202);
        assert_eq!(spent(&app, &account, path_of).await, "5");
    }
    // Settling yesterday's work changes yesterday's sum only.
    let cancel = format!("/v1/generate/{}/cancel", uuids[0]);
    app.post(&account.key, &cancel, &json!({}))
        .await
        .expect(200);
    app.until_finished(&account, &uuids[1]).await;
    assert_eq!(spent(&app, &account, &day_path).await, "5");
    assert_eq!(spent(&app, &account, &month_path).await, "5");
    app.post(&day, path, &video)
        .await
        .error(402, "spend_limit_exceeded");
    // A new day is not a new month.
    app.advance(TimeDelta::days(1));
    app.post(&day, path, &video).await.expect(202);
    app.post(&month, path, &video)
        .await
        .error(402, "spend_limit_exceeded");
    app.assert_verified().await;
}

#[sqlx::test]
async fn parallel_holds_on_two_servers_stay_within_the_limit(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    // Charged as held.
    upstream.reply(Reply::Text("ok".to_owned(), 65, 64));
    upstream.hold();
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let replica = Arc::new(app.replica().await);
    let account = app.account("100").await;
    // Seven holds of 0.00385 (see text_money.rs), and a bit.
    let (key, path) = capped(&app, &account, "0.0277", json!("day")).await;
    let body = json!({"prompt": "x", "provider": "openai", "parameters": {"max_tokens": 64}});
    let all: Vec<_> = (0..40)
        .map(|n| {
            let server = if n % 2 == 0 { &app } else { &replica };
            server.spawn_text(&key, body.clone())
        })
        .collect();
    upstream.arrived(7).await;
    assert_eq!(spent(&app, &account, &path).await, "0.02695");
    upstream.release(7);
    let mut completed = 0;
    for answer in join_all(all).await {
        let answer = answer.unwrap();
        if answer.status == 200 {
            completed += 1;
        } else {
            let error = answer.error(402, "spend_limit_exceeded");
            assert_eq!(error["limit"], "0.0277");
        }
    }
    assert_eq!((completed, upstream.count()), (7, 7));
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_capped_key_makes_no_keys(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let (key, _) = capped(&app, &account, "3", Value::Null).await;
    let refused = app.post(&key, KEYS, &json!({"name": "free"})).await;
    let error = refused.error(403, "session_required");
    // The hint in the error works: a session can create one, and so can a key without a limit.
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("a key without a spend_limit"), "{message}");
    app.post(&account.key, KEYS, &json!({"name": "free"}))
        .await
        .expect(201);
    let session = app.login(&account).await;
    app.post(&session, KEYS, &json!({"name": "free"}))
        .await
        .expect(201);
}

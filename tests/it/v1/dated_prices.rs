//! Prices that begin on a day: a generation is charged by those of its creation.

use std::{collections::BTreeMap, sync::Arc};

use chrono::TimeDelta;
use futures_util::future::join_all;
use gensvc::domain::credits::Credits;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    reload::held_per_price,
    retired::{advance_to, with_file},
};
use crate::common::{Account, Answer, CONFIG_FILE, Reply, TestApp, Upstream};

/// A credit per token, then 1.2, then 1.5. The clock starts on 2027-01-15.
const FILE: &str = r#"
[[providers.openai.models]]
id = "dated"
type = "text"
wire = { api = "chat" }
prices = [
    { input_per_million = "1000000", output_per_million = "1000000" },
    { valid_from = 2027-02-01, input_per_million = "1200000", output_per_million = "1200000" },
    { valid_from = 2027-03-01, input_per_million = "1500000", output_per_million = "1500000" },
]
"#;
const MIDNIGHT: &str = "2027-02-01T00:00:00Z";
const CHAT: &str = "/openai/v1/chat/completions";

/// With an upstream that counts 3 tokens of input and 2 of output.
async fn start(options: PgConnectOptions) -> (Arc<TestApp>, Upstream) {
    let upstream = Upstream::start().await;
    upstream.reply(Reply::Text("Hi.".to_owned(), 3, 2));
    let file = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = file.join(uuid::Uuid::now_v7().to_string());
    std::fs::write(&file, FILE).unwrap();
    let env = [
        (CONFIG_FILE, file.to_str().unwrap()),
        ("GENSVC__CREDITS__HOLD_WAIT_SECONDS", "60"),
        ("GENSVC__SERVER__ACCOUNT_SHARE_PERCENT", "100"),
    ];
    let app = TestApp::upstream_with(options, &upstream, &env).await;
    std::fs::remove_file(&file).unwrap();
    (Arc::new(app), upstream)
}

async fn chat(app: &TestApp, account: &Account) -> Answer {
    let body = json!({"model": "openai/dated", "max_completion_tokens": 64,
        "messages": [{"role": "user", "content": "Hi."}]});
    app.post(&account.key, CHAT, &body).await
}

async fn text(app: &TestApp, account: &Account) -> Answer {
    let body = json!({"prompt": "Hi.", "provider": "openai", "model": "dated"});
    app.text(&account.key, body).await
}

async fn record(app: &TestApp, account: &Account, answer: &Answer) -> Value {
    answer.expect(200);
    let body = answer.json();
    let id = match body.get("metadata") {
        Some(_) => body["uuid"].as_str().unwrap().to_owned(),
        None => answer.header("x-gensvc-generation").to_owned(),
    };
    app.get(&account.key, &format!("/v1/generate/{id}"))
        .await
        .expect(200)
}

/// Asserts that a record has the price of its creation. Returns whether it is the later one.
#[track_caller]
fn assert_price(record: &Value) -> bool {
    let is_later = record["created_at"].as_str().unwrap()[..19] >= MIDNIGHT[..19];
    let (price, charged) = if is_later {
        ("1200000", "6")
    } else {
        ("1000000", "5")
    };
    let pricing = &record["metadata"]["pricing"];
    assert_eq!(pricing["input_per_million"], price, "{record}");
    assert_eq!(record["credits"]["charged"], charged, "{record}");
    is_later
}

#[sqlx::test]
async fn models_show_the_prices_of_now_and_later(_: PgPoolOptions, options: PgConnectOptions) {
    let (app, _upstream) = start(options).await;
    let prices = |per_million: &str| json!({"input_per_million": per_million, "output_per_million": per_million});
    let later = |day: &str, per_million| json!({"valid_from": day, "prices": prices(per_million)});
    for (time, now, upcoming) in [
        (
            "2027-01-31T23:59:59.999Z",
            "1000000",
            vec![
                later("2027-02-01", "1200000"),
                later("2027-03-01", "1500000"),
            ],
        ),
        (MIDNIGHT, "1200000", vec![later("2027-03-01", "1500000")]),
        ("2027-03-01T00:00:00Z", "1500000", Vec::new()),
    ] {
        advance_to(&app, time);
        let model = app.get("", "/v1/models/openai/dated").await.expect(200);
        assert_eq!(model["prices"], prices(now));
        let shown = model["upcoming_prices"].as_array().cloned();
        assert_eq!(shown.unwrap_or_default(), upcoming);
    }
}

#[sqlx::test]
async fn charge_follows_the_price_at_creation(_: PgPoolOptions, options: PgConnectOptions) {
    let (app, upstream) = start(options).await;
    let account = app.account("100000").await;
    advance_to(&app, "2027-01-31T23:59:59.9Z");
    for answer in [chat(&app, &account).await, text(&app, &account).await] {
        assert!(!assert_price(&record(&app, &account, &answer).await));
    }
    // It is under way at midnight.
    upstream.hold();
    let before = upstream.count();
    let running = {
        let (app, account) = (Arc::clone(&app), account.clone());
        tokio::spawn(async move { chat(&app, &account).await })
    };
    upstream.arrived(before + 1).await;
    advance_to(&app, MIDNIGHT);
    upstream.release(3);
    let running = running.await.unwrap();
    assert!(!assert_price(&record(&app, &account, &running).await));
    for answer in [chat(&app, &account).await, text(&app, &account).await] {
        assert!(assert_price(&record(&app, &account, &answer).await));
    }
    app.assert_settled().await;
    app.assert_verified().await;
}

#[sqlx::test]
async fn request_that_waited_for_credits_has_the_price_of_its_creation(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let (app, upstream) = start(options).await;
    advance_to(&app, "2027-01-31T23:59:59Z");
    upstream.hold();
    let ask = |account: &Account| {
        let (app, account) = (Arc::clone(&app), account.clone());
        tokio::spawn(async move { chat(&app, &account).await })
    };
    let rich = app.account("100000").await;
    let first = ask(&rich);
    upstream.arrived(1).await;
    // Enough for one at a time, also by the later price.
    let held: Credits = app.balance(&rich).await.1.parse().unwrap();
    let credits = Credits::from_micros(held.micros() / 10 * 13);
    let account = app.account(&credits.to_string()).await;
    let second = ask(&account);
    upstream.arrived(2).await;
    let third = ask(&account);
    while app.app.service.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    advance_to(&app, "2027-02-01T00:00:01Z");
    upstream.release(3);
    for (account, asked, is_later) in [
        (&rich, first, false),
        (&account, second, false),
        (&account, third, true),
    ] {
        let record = record(&app, account, &asked.await.unwrap()).await;
        assert_eq!(assert_price(&record), is_later);
    }
    app.assert_settled().await;
    app.assert_verified().await;
}

#[sqlx::test]
async fn every_bill_across_midnight_has_one_price(_: PgPoolOptions, options: PgConnectOptions) {
    let (app, _upstream) = start(options).await;
    let account = app.account("1000000").await;
    advance_to(&app, "2027-01-31T23:59:59.9Z");
    // The first half is under way at midnight.
    let ask = async |n: usize| {
        if n == 40 {
            advance_to(&app, MIDNIGHT);
        }
        match n % 2 {
            0 => chat(&app, &account).await,
            _ => text(&app, &account).await,
        }
    };
    let answers = join_all((0..80).map(ask)).await;
    let mut later = 0;
    let mut holds = BTreeMap::new();
    for (n, answer) in answers.iter().enumerate() {
        let record = record(&app, &account, answer).await;
        later += usize::from(assert_price(&record));
        let held = held_per_price(&record);
        assert_eq!(*holds.entry(n % 2).or_insert(held), held, "{record}");
    }
    assert!(later >= 40, "only {later} were created after midnight");
    app.assert_settled().await;
    app.assert_verified().await;
}

/// The time of creation does not go back with the clock.
#[sqlx::test]
async fn clock_set_back_across_midnight_refuses_nothing(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let (app, _upstream) = start(options).await;
    let account = app.account("100000").await;
    advance_to(&app, "2027-02-01T00:00:00.1Z");
    assert!(assert_price(
        &record(&app, &account, &chat(&app, &account).await).await
    ));
    app.advance(TimeDelta::milliseconds(-200));
    for answer in [chat(&app, &account).await, text(&app, &account).await] {
        assert!(assert_price(&record(&app, &account, &answer).await));
    }
}

#[sqlx::test]
async fn job_keeps_the_price_of_its_creation(_: PgPoolOptions, options: PgConnectOptions) {
    // The built-in price applies until the first day.
    let file = "[[providers.sandbox.models]]\nid = \"sandbox-video-1\"\n\
                prices = [{ valid_from = 2027-02-01, per_second = \"90\", per_input_image = \"1\" }]\n";
    let app = with_file(options, file).await;
    let account = app.account("10000").await;
    let body = json!({"prompt": "Waves."});
    let model = app
        .get("", "/v1/models/sandbox/sandbox-video-1")
        .await
        .expect(200);
    let before: Credits = model["prices"]["per_second"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    advance_to(&app, "2027-01-31T23:59:59Z");
    let old = app
        .post(&account.key, "/v1/generate/video", &body)
        .await
        .expect(202);
    advance_to(&app, MIDNIGHT);
    let new = app
        .post(&account.key, "/v1/generate/video", &body)
        .await
        .expect(202);
    let seconds = |record: &Value| record["parameters"]["duration"].as_i64().unwrap();
    let held = |record: &Value| {
        let held: Credits = record["credits"]["estimated"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        held.micros()
    };
    assert_eq!(held(&old), before.micros() * seconds(&old));
    assert_eq!(held(&new), 90_000_000 * seconds(&new));
    for _ in 0..100 {
        app.advance(TimeDelta::seconds(10));
        if app.work_once().await == 0 {
            break;
        }
    }
    for record in [old, new] {
        let path = format!("/v1/generate/{}", record["uuid"].as_str().unwrap());
        let ended = app.get(&account.key, &path).await.expect(200);
        assert_eq!(ended["status"], "completed");
        assert_eq!(ended["credits"]["charged"], record["credits"]["estimated"]);
    }
    app.assert_settled().await;
    app.assert_verified().await;
}

#[sqlx::test]
async fn model_is_not_served_before_its_first_prices(_: PgPoolOptions, options: PgConnectOptions) {
    let file = FILE
        .replace("openai", "sandbox")
        .replace("wire = { api = \"chat\" }", "")
        .replace(
            "{ input_per_million = \"1000000\"",
            "{ valid_from = 2027-01-20, input_per_million = \"1000000\"",
        );
    let app = with_file(options, &file).await;
    let account = app.account("10000").await;
    let body = json!({"prompt": "Hi.", "provider": "sandbox", "model": "dated"});
    app.get("", "/v1/models/sandbox/dated").await.expect(404);
    assert_eq!(
        app.text(&account.key, body.clone()).await.fields()["model"],
        "unknown_model"
    );
    advance_to(&app, "2027-01-20T00:00:00Z");
    app.text(&account.key, body).await.expect(200);
}

//! Charges and the list cost, which is pinned at creation.

use axum::body::Bytes;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use chrono::TimeDelta;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::operator;
use crate::{
    common::{
        Reply, TestApp, Upstream, upstream,
        vendors::{openai_images, png},
    },
    ledger::count_usage,
    v1::{
        reload::{File, model, start, text},
        retired::advance_to,
    },
};

/// A model that costs `price` credits per token without markup.
fn marked_up(price: u32, markup: &str) -> String {
    model("a", price, &format!("markup = \"{markup}\""))
}

async fn report(app: &TestApp, token: &str, query: &str) -> Value {
    let path = format!("/v1/admin/usage?{query}");
    app.get(token, &path).await.expect(200)
}

/// The sums of a model or an account.
fn sums(row: &Value) -> [&str; 4] {
    ["charged", "list_cost", "margin", "unknown_cost_charged"]
        .map(|name| row[name].as_str().unwrap_or_default())
}

fn counts(row: &Value) -> [i64; 4] {
    [
        "completed",
        "unknown_cost",
        "estimated_counts",
        "lost_calls",
    ]
    .map(|name| row[name].as_i64().unwrap_or(-1))
}

/// Whatever the configuration is when it ends, or when the report is read.
#[sqlx::test]
async fn list_cost_follows_the_markup_at_creation(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let file = File::new(&marked_up(2, "1.5"));
    let app = start(options, &upstream, &file).await;
    let (account, token) = (app.account("100000").await, operator(&app).await);
    let reload = |text: String| {
        file.write(&text);
        assert_eq!(app.app.reload.run().unwrap(), Some(Vec::new()));
    };
    // 5 tokens: 10 at list, 15 charged. The markup changes during the call.
    upstream.hold();
    let running = text(&app, &account, "a");
    let reloading = async {
        upstream.arrived(1).await;
        reload(marked_up(2, "3"));
        upstream.release(1000);
    };
    let (running, ()) = tokio::join!(running, reloading);
    let record = running.expect(200);
    assert_eq!(record["credits"]["charged"], "15", "{record}");
    assert_eq!(record["metadata"]["pricing"].get("list"), None, "{record}");
    let total = |report: &Value| sums(&report["total"]).map(str::to_owned);
    assert_eq!(
        total(&report(&app, &token, "").await),
        ["15", "10", "5", "0"]
    );

    text(&app, &account, "a").await.expect(200);
    assert_eq!(
        total(&report(&app, &token, "").await),
        ["45", "20", "25", "0"]
    );
    // Charged like the first, at another list price, and below it.
    reload(marked_up(3, "1"));
    text(&app, &account, "a").await.expect(200);
    assert_eq!(
        total(&report(&app, &token, "").await),
        ["60", "35", "25", "0"]
    );
    reload(marked_up(20, "0.5"));
    let answer = text(&app, &account, "a").await.expect(200);
    let uuid = answer["uuid"].as_str().unwrap();
    let read = app.get(&account.key, &format!("/v1/generate/{uuid}")).await;
    assert_eq!(read.expect(200)["metadata"]["pricing"].get("list"), None);
    let whole = report(&app, &token, "").await;
    assert_eq!(total(&whole), ["110", "135", "-25", "0"]);
    assert_eq!(counts(&whole["total"]), [4, 0, 0, 0]);
    assert_eq!(whole["data"][0]["model"], "a");
    assert_eq!(sums(&whole["data"][0]), sums(&whole["total"]));

    // The same once the sums count it, and once they are counted again.
    count_usage(&app).await;
    assert_eq!(report(&app, &token, "").await, whole);
    app.store.recount().await.unwrap();
    assert_eq!(report(&app, &token, "").await, whole);
    let by_account = report(&app, &token, "group_by=account").await;
    assert_eq!(by_account["data"][0]["account"], json!(account.id));
    assert_eq!(by_account["total"], whole["total"]);
    assert_eq!(sums(&by_account["data"][0]), sums(&whole["total"]));
    let today = app.now().date_naive();
    let yesterday = today - TimeDelta::days(1);
    let none = report(&app, &token, &format!("to={yesterday}")).await;
    assert_eq!(
        (total(&none), none["data"].as_array().unwrap().len()),
        (["0"; 4].map(str::to_owned), 0)
    );
    assert_eq!(report(&app, &token, &format!("from={today}")).await, whole);
    app.assert_verified().await;
}

#[sqlx::test]
async fn media_cost_what_their_list_prices_say(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::with(options, &[("GENSVC__PRICING__MARKUP", "2")]).await;
    let (account, token) = (app.account("1000").await, operator(&app).await);
    for (kind, body) in [
        (
            "image",
            json!({"prompt": "x", "parameters": {"size": "256x256", "quality": "hd", "n": 2}}),
        ),
        (
            "video",
            json!({"prompt": "x", "parameters": {"duration": 2}}),
        ),
        ("audio", json!({"prompt": "Hello there."})),
    ] {
        let path = format!("/v1/generate/{kind}");
        let answer = app.post(&account.key, &path, &body).await;
        assert!(answer.status.is_success(), "{}", answer.text);
        let uuid = answer.json()["uuid"].as_str().unwrap().to_owned();
        app.until_finished(&account, &uuid).await;
    }
    let whole = report(&app, &token, "").await;
    for (model, charged, list_cost) in [
        ("sandbox-video-1", "20", "10"),
        ("sandbox-image-1", "8", "4"),
        ("sandbox-speech-1", "0.024", "0.012"),
    ] {
        let mut rows = whole["data"].as_array().unwrap().iter();
        let row = rows.find(|row| row["model"] == model).unwrap();
        assert_eq!(sums(row), [charged, list_cost, list_cost, "0"], "{row}");
    }
    app.assert_verified().await;
}

/// Sizes that the model does not make itself, images that are unusable, and input tokens above the
/// hold.
#[sqlx::test]
async fn list_cost_of_images_is_what_the_vendor_bills(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let markup = [("GENSVC__PRICING__MARKUP", "2")];
    let app = TestApp::vendors(options, &upstream, &markup).await;
    let (account, token) = (app.account("1000").await, operator(&app).await);
    let picture = png(1024, 1024);
    let garbage = Bytes::from_static(b"no image at all, not even near");
    let one = openai_images(std::slice::from_ref(&picture));
    let Reply::Status(status, mut counted) = one.clone() else {
        unreachable!()
    };
    counted["usage"] = json!({"input_tokens_details": {"image_tokens": 90_000}});
    let source = BASE64_STANDARD.encode(png(64, 64));
    for (reply, mut body, total) in [
        (
            one,
            json!({"parameters": {"size": "256x256"}}),
            ["2.9", "1.45", "1.45", "0"],
        ),
        // Two images are charged, three cost 5.4 each.
        (
            openai_images(&[picture.clone(), garbage, picture]),
            json!({"parameters": {"quality": "hd", "n": 3}}),
            ["24.5", "17.65", "6.85", "0"],
        ),
        // The input is charged by number, and costs 72.
        (
            Reply::Status(status, counted),
            json!({"inputs": [{"role": "source", "data": source}]}),
            ["39.4", "91.1", "-51.7", "0"],
        ),
    ] {
        upstream.reply(reply);
        body["prompt"] = json!("x");
        body["provider"] = json!("openai");
        let answer = app.post(&account.key, "/v1/generate/image", &body).await;
        answer.expect(200);
        let whole = report(&app, &token, "").await;
        assert_eq!(sums(&whole["total"]), total, "{body}");
    }
    app.assert_verified().await;
}

#[sqlx::test]
async fn list_cost_follows_tiers_caches_and_dates(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let file = File::new(
        r#"
[[providers.openai.models]]
id = "a"
type = "text"
wire.api = "chat"
markup = "2"
prices = [
    { input_per_million = "1000000", output_per_million = "1000000" },
    { valid_from = 2027-02-01, input_per_million = "1000000", cached_input_per_million = "500000", output_per_million = "1000000", tiers = [{ above_input_tokens = 50, input_per_million = "2000000", cached_input_per_million = "1000000", output_per_million = "3000000" }] },
]
"#,
    );
    let app = start(options, &upstream, &file).await;
    let (account, token) = (app.account("100000").await, operator(&app).await);
    upstream.play(|request| {
        let body = upstream::text::body(&request.path, false, "Hi.", 100, 2);
        let (from, to) = (
            r#""prompt_tokens":100"#,
            r#""prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":60}"#,
        );
        Reply::Raw(200, "application/json", body.replace(from, to))
    });
    text(&app, &account, "a").await.expect(200);
    let whole = report(&app, &token, "").await;
    assert_eq!(sums(&whole["total"]), ["204", "102", "102", "0"]);
    // 40 × 2 + 60 × 1 + 2 × 3.
    advance_to(&app, "2027-02-01T00:00:00Z");
    text(&app, &account, "a").await.expect(200);
    let whole = report(&app, &token, "").await;
    assert_eq!(sums(&whole["total"]), ["496", "248", "248", "0"]);
    app.assert_verified().await;
}

/// Usage above the hold is not charged, but costs.
#[sqlx::test]
async fn usage_above_the_hold_is_the_operators_cost(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let file = File::new(&marked_up(1, "1").replace("1000000", "600"));
    let app = start(options, &upstream, &file).await;
    let (account, token) = (app.account("100000").await, operator(&app).await);
    let lie = (1_i64 << 53) - 1;
    upstream.reply(Reply::Text("Hi.".to_owned(), lie, 1));
    // Together more than 64 bits hold.
    for _ in 0..2 {
        text(&app, &account, "a").await.expect(200);
    }
    upstream.reply(Reply::Text("Hi.".to_owned(), 0, 0));
    text(&app, &account, "a").await.expect(200);
    count_usage(&app).await;
    let total = &report(&app, &token, "").await["total"];
    assert_eq!(total["list_cost"], "9223372036854.775807", "{total}");
    assert!(
        total["margin"].as_str().unwrap().starts_with("-9223372"),
        "{total}"
    );
    assert_eq!(counts(total), [3, 0, 1, 0]);
    app.assert_verified().await;
}

#[sqlx::test]
async fn cost_that_was_not_stored_is_unknown(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::with(options, &[("GENSVC__PRICING__MARKUP", "2")]).await;
    let (account, token) = (app.account("1000").await, operator(&app).await);
    let video = json!({"prompt": "x", "parameters": {"duration": 2}});
    let uuid = app.queue(&account, "video", &video).await;
    // As a server of the release before stores prices.
    sqlx::query("update prices set pricing = pricing - 'list'")
        .execute(&app.pool)
        .await
        .unwrap();
    app.until_finished(&account, &uuid).await;
    let total = &report(&app, &token, "").await["total"];
    assert_eq!(sums(total), ["20", "0", "0", "20"]);
    assert_eq!(counts(total), [1, 1, 0, 0]);
    count_usage(&app).await;
    // A server that has not used the price yet stores it again.
    let replica = app.replica().await;
    let uuid = replica.queue(&account, "video", &video).await;
    app.until_finished(&account, &uuid).await;
    let total = &report(&app, &token, "").await["total"];
    assert_eq!(sums(total), ["40", "10", "10", "20"]);
    assert_eq!(counts(total), [2, 1, 0, 0]);
    app.assert_verified().await;
}

#[sqlx::test]
async fn lost_calls_are_counted_at_their_model(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let markup = [("GENSVC__PRICING__MARKUP", "2")];
    let app = TestApp::upstream_with(options, &upstream, &markup).await;
    let (account, token) = (app.account("1000").await, operator(&app).await);
    upstream.play(|request| {
        if request.path.contains("/openai/") {
            Reply::Cut
        } else {
            Reply::Text("Hello there.".to_owned(), 10, 3)
        }
    });
    let body = json!({"prompt": "x", "provider": "openai", "model": "gpt-4.1-mini",
        "fallbacks": [{"provider": "anthropic", "model": "claude-haiku-4-5"}],
        "fallback_on": "unknown"});
    let record = app.text(&account.key, body).await.expect(200);
    let whole = report(&app, &token, "").await;
    // The cost of the model that served.
    assert_eq!(
        sums(&whole["data"][0]),
        ["0.005", "0.0025", "0.0025", "0"],
        "{whole}"
    );
    let rows: Vec<_> = whole["data"].as_array().unwrap().iter().collect();
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row["model"].as_str().unwrap(), counts(row)))
        .collect();
    assert_eq!(
        found,
        [
            ("claude-haiku-4-5", [1, 0, 0, 0]),
            ("gpt-4.1-mini", [0, 0, 0, 1])
        ]
    );
    assert_eq!(counts(&whole["total"]), [1, 0, 0, 1]);
    let by_account = report(&app, &token, "group_by=account").await;
    assert_eq!(counts(&by_account["data"][0]), [1, 0, 0, 1]);
    let tomorrow = app.now().date_naive() + TimeDelta::days(1);
    let later = report(&app, &token, &format!("from={tomorrow}&to={tomorrow}")).await;
    assert_eq!(counts(&later["total"]), [0; 4]);

    sqlx::query("update generation_attempts set provider_request_id = 'r-1'")
        .execute(&app.pool)
        .await
        .unwrap();
    let path = format!("/v1/generate/{}", record["uuid"].as_str().unwrap());
    assert_eq!(app.delete(&account.key, &path).await.status, 204);
    assert_eq!(report(&app, &token, "").await, whole);
    let ids: Vec<Option<String>> =
        sqlx::query_scalar("select provider_request_id from generation_attempts")
            .fetch_all(&app.pool)
            .await
            .unwrap();
    assert_eq!(ids, [None]);
    app.assert_verified().await;
}

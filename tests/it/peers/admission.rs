//! Mistakes at admission: what is accepted, and what is held before the provider is called.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

use gensvc::app::config;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use uuid::Uuid;

use super::{HOLD, answers, movements, pair, posted, text};
use crate::common::{Reply, TestApp, Upstream};

/// `LiteLLM`: when less is left than the estimate, the reservation is reduced to what is left, and
/// the request is accepted.
#[sqlx::test]
async fn a_hold_shrunk_to_what_is_left_and_admitted(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    // One micro-credit too little.
    let account = app.account("0.003849").await;
    let error = app.text(&account.key, text()).await;
    let error = error.error(402, "insufficient_credits");
    assert_eq!(
        (&error["required"], &error["shortfall"]),
        (&json!(HOLD), &json!("0.000001"))
    );
    assert_eq!(upstream.count(), 0);
    assert!(app.history(&account).await.is_empty());
    assert_eq!(movements(&app, &account).await, []);
    assert_eq!(app.balance(&account).await, pair("0.003849", "0"));
}

/// `LiteLLM`: images, videos, speech and anything without a price hold nothing, so that any number
/// of them runs on an empty account.
#[sqlx::test]
async fn a_modality_that_holds_nothing(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = Arc::new(TestApp::vendors(options, &upstream, &[]).await);
    let poor = app.account("0.000001").await;
    let mut arrived = 0;
    for (kind, body) in [
        ("text", text()),
        ("image", json!({"prompt": "x", "provider": "openai"})),
        ("image", json!({"prompt": "x", "provider": "stability"})),
        (
            "video",
            json!({"prompt": "x", "provider": "runway", "parameters": {"duration": 2}}),
        ),
        ("video", json!({"prompt": "x", "provider": "gemini"})),
        (
            "audio",
            json!({"prompt": "Good day.", "provider": "openai"}),
        ),
        (
            "audio",
            json!({"prompt": "Good day.", "provider": "elevenlabs"}),
        ),
        (
            "audio",
            json!({"prompt": "Good day.", "provider": "sandbox"}),
        ),
    ] {
        let path = format!("/v1/generate/{kind}");
        let refused = app.post(&poor.key, &path, &body).await;
        refused.error(402, "insufficient_credits");
        assert_eq!(upstream.count(), arrived, "{body}");
        // The same by balance: the whole estimate is on hold when the provider is called.
        let rich = app.account("1000").await;
        let mut asked = body.clone();
        asked["type"] = json!(kind);
        let estimate = app.post(&rich.key, "/v1/credits/estimate", &asked).await;
        let estimate = estimate.expect(200)["estimated"].clone();
        let (server, key) = (Arc::clone(&app), rich.key.clone());
        let post = async move { server.post(&key, &path, &body).await };
        if ["text", "image"].contains(&kind) {
            tokio::spawn(post);
            arrived += 1;
            upstream.arrived(arrived).await;
        } else {
            post.await.expect(202);
            assert_eq!(upstream.count(), arrived);
        }
        let held = app.balance(&rich).await.1;
        assert_eq!(
            (held.as_str(), held != "0"),
            (estimate.as_str().unwrap(), true),
            "{asked}"
        );
    }
    app.assert_verified().await;
}

/// Why a server with one additional model does not start.
fn refusal(provider: &str, model: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(Uuid::now_v7().to_string());
    let compatible = "kind = \"openai_compatible\"\nbase_url = \"http://a.test\"\n";
    let kind = if provider == "local" { compatible } else { "" };
    let text = format!(
        "[providers.{provider}]\n{kind}[[providers.{provider}.models]]\nid = \"m\"\n{model}\n"
    );
    fs::write(&path, &text).unwrap();
    let error = config::load(Some(&path), &BTreeMap::new());
    fs::remove_file(path).unwrap();
    let error = error.err().map(|error| error.to_string());
    error.unwrap_or_else(|| panic!("this starts:\n{text}"))
}

/// `LiteLLM`: a model that is missing in the price list is free.
#[test]
fn an_unpriced_model_that_is_free() {
    for (provider, model) in [
        ("local", "type = \"text\""),
        (
            "local",
            "type = \"text\"\nprices = { input_per_million = \"1\" }",
        ),
        (
            "local",
            "type = \"text\"\nprices = { output_per_million = \"1\" }",
        ),
        ("openai", "type = \"text\""),
        (
            "openai",
            "type = \"image\"\nlimits.native_sizes = [\"1024x1024\"]",
        ),
        ("openai", "type = \"audio\""),
        ("runway", "type = \"video\""),
    ] {
        let error = refusal(provider, model);
        assert!(
            error.contains("price") && error.contains("missing"),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

/// Several: a negative or non-numeric price lets each request mint credits.
#[test]
fn a_negative_price_that_mints_credits() {
    for price in [
        "\"-1\"",
        "\"-0.000001\"",
        "-1",
        "nan",
        "-nan",
        "inf",
        "-inf",
        "\"nan\"",
        "\"NaN\"",
        "\"inf\"",
        "\"1e99\"",
        "\"99999999999999999999\"",
        "\"\"",
        "true",
    ] {
        for prices in [
            format!(
                "type = \"text\"\nprices = {{ input_per_million = {price}, output_per_million = \"1\" }}"
            ),
            format!(
                "type = \"text\"\nprices = {{ input_per_million = \"1\", output_per_million = {price} }}"
            ),
        ] {
            let error = refusal("local", &prices);
            assert!(error.contains("_per_million"), "{price}: {error}");
        }
    }
}

/// one-api, new-api: the balance is read, the request accepted, and the cost deducted later, so
/// that parallel requests all see the same balance.
#[sqlx::test]
async fn check_and_deduct_as_two_steps(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.reply(Reply::Text("ok".to_owned(), 65, 64));
    upstream.hold();
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let replica = Arc::new(app.replica().await);
    // Seven holds to the micro-credit, on two servers.
    let account = app.account("0.02695").await;
    let all = posted(&[&app, &replica], &account.key, 60);
    upstream.arrived(7).await;
    assert_eq!(app.balance(&account).await, pair("0.02695", "0.02695"));
    upstream.release(60);
    let mut completed = 0;
    for answer in answers(all).await {
        match answer.status.as_u16() {
            200 => completed += 1,
            429 => _ = answer.error(429, "credits_on_hold"),
            _ => _ = answer.error(402, "insufficient_credits"),
        }
    }
    assert_eq!((completed, upstream.count()), (7, 7));
    assert_eq!(app.balance(&account).await, pair("0", "0"));
    app.assert_settled().await;
}

/// one-api, new-api: an account with a high balance is trusted, and nothing is held for it; enough
/// parallel requests spend more than the balance.
#[sqlx::test]
async fn a_hold_skipped_for_a_rich_account(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let account = app.account("9000000").await;
    let all = posted(&[&app], &account.key, 20);
    upstream.arrived(20).await;
    assert_eq!(app.balance(&account).await, pair("9000000", "0.077"));
    assert_eq!(
        movements(&app, &account).await,
        vec![pair("hold", HOLD); 20]
    );
    upstream.release(20);
    for answer in answers(all).await {
        let credits = answer.expect(200)["credits"].clone();
        assert_eq!(credits["charged"], "0.00025", "{credits}");
    }
    assert_eq!(app.balance(&account).await, pair("8999999.995", "0"));
    app.assert_settled().await;
}

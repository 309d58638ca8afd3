//! /v1/models and /v1/providers: the models of this server.

use gensvc::domain::credits::Credits;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{TestApp, Upstream};

async fn models(app: &TestApp, query: &str) -> Vec<Value> {
    let answer = app.get("", &format!("/v1/models{query}")).await;
    answer.expect(200)["data"].as_array().unwrap().clone()
}

#[sqlx::test]
async fn only_what_is_enabled_is_offered(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options.clone()).await;
    let all = models(&app, "").await;
    assert_eq!(all.len(), 5);
    let sandbox = json!({"id": "sandbox-text-1", "provider": "sandbox", "type": "text",
        "prices": {"input_per_million": "10", "cached_input_per_million": "1",
            "output_per_million": "50"},
        "limits": {"max_prompt_chars": 10_000, "max_tokens": 4096, "temperature": [0.0, 2.0],
            "max_input_tokens": 1_000_000, "max_output_tokens": 128_000, "searches": 0, "search_tokens": 0,
            "images": {"kind": "patch28", "max_edge": 1_568, "max_tokens": 1_568}},
        "features": ["images", "tools"], "default": true, "retiring": null, "retired": false});
    assert!(all.contains(&sandbox));
    let one = app.get("wrong", "/v1/models/sandbox/sandbox-text-1").await;
    assert_eq!(one.expect(200), sandbox);
    let providers = app.get("wrong", "/v1/providers").await.expect(200);
    assert_eq!(
        providers["data"],
        json!([{"id": "sandbox", "types": ["text", "image", "video", "audio"],
            "default_models": {"text": "sandbox-text-1", "image": "sandbox-image-1",
                "video": "sandbox-video-1", "audio": "sandbox-speech-1"},
            "default_for": ["text", "image", "video", "audio"], "open_circuits": []}])
    );
    for path in [
        "/v1/models/openai/gpt-6-luna",
        "/v1/models/sandbox/nope",
        "/v1/models/nope/sandbox-text-1",
        "/v1/models/sandbox/SANDBOX-TEXT-1",
        "/v1/models/sandbox/%ff",
        "/v1/models/sandbox",
        "/v1/models/sandbox/",
    ] {
        app.get("", path).await.error(404, "not_found");
    }
    let env = [
        ("GENSVC__PROVIDERS__SANDBOX__ENABLED", "false"),
        ("OPENAI_API_KEY", "k"),
    ];
    let app = TestApp::with(options, &env).await;
    let all = models(&app, "").await;
    assert!(all.len() > 1 && all.iter().all(|m| m["provider"] == "openai"));
    assert_eq!(models(&app, "?provider=sandbox").await.len(), 0);
}

#[sqlx::test]
async fn every_model_has_a_price_and_limits_and_one_is_the_default(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let all = models(&app, "").await;
    for (path, features) in [
        (
            "anthropic/claude-opus-5-5",
            json!(["images", "documents", "tools"]),
        ),
        ("openai/gpt-image-2", json!(["images"])),
        ("openai/gpt-4o-mini-tts", json!([])),
    ] {
        let model = app.get("", &format!("/v1/models/{path}")).await.expect(200);
        assert_eq!(model["features"], features, "{path}");
    }
    for model in models(&app, "?type=text").await {
        for name in ["input_per_million", "output_per_million"] {
            let price: Credits = model["prices"][name].as_str().unwrap().parse().unwrap();
            assert!(price > Credits::ZERO, "{model}");
        }
        for name in ["max_prompt_chars", "max_tokens"] {
            assert!(model["limits"][name].as_u64().unwrap() > 0, "{model}");
        }
        let range = model["limits"].get("temperature").unwrap();
        assert!(range.is_null() || range.as_array().unwrap().len() == 2);
    }
    let price = |value: &Value| value.as_str().unwrap().parse::<Credits>().unwrap();
    for model in &all {
        let prices = &model["prices"];
        match model["type"].as_str().unwrap() {
            "image" => {
                for size in model["limits"]["sizes"].as_array().unwrap() {
                    let tiers = &prices["per_image"][size.as_str().unwrap()];
                    for quality in model["limits"]["qualities"].as_array().unwrap() {
                        assert!(price(&tiers[quality.as_str().unwrap()]) > Credits::ZERO);
                    }
                }
            }
            "video" => assert!(price(&prices["per_second"]) > Credits::ZERO),
            "audio" => assert!(price(&prices["per_1000_characters"]) > Credits::ZERO),
            _ => {}
        }
        let path = format!(
            "/v1/models/{}/{}",
            model["provider"].as_str().unwrap(),
            model["id"].as_str().unwrap().replace('/', "%2F")
        );
        assert_eq!(&app.get("", &path).await.expect(200), model);
    }
    let providers = app.get("", "/v1/providers").await.expect(200);
    let providers = providers["data"].as_array().unwrap().clone();
    let ids: Vec<_> = providers
        .iter()
        .map(|p| p["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["anthropic", "gemini", "openai", "sandbox"]);
    for provider in &providers {
        let id = provider["id"].as_str().unwrap();
        let own = models(&app, &format!("?provider={id}")).await;
        assert!(!own.is_empty() && own.iter().all(|m| m["provider"] == id));
        for modality in provider["types"].as_array().unwrap() {
            let of_it = |m: &&Value| m["default"] == true && &m["type"] == modality;
            let defaults: Vec<_> = own.iter().filter(of_it).collect();
            assert_eq!(defaults.len(), 1, "{id} {modality}");
            let named = &provider["default_models"][modality.as_str().unwrap()];
            assert_eq!(named, &defaults[0]["id"]);
        }
    }
    let for_text: Vec<_> = providers
        .iter()
        .filter(|p| {
            p["default_for"]
                .as_array()
                .unwrap()
                .contains(&json!("text"))
        })
        .collect();
    assert_eq!(for_text.len(), 1);
    // The model of a request without provider and model.
    let account = app.account("1").await;
    let record = app
        .text(&account.key, json!({"prompt": "x"}))
        .await
        .expect(200);
    assert_eq!(record["provider"], for_text[0]["id"]);
    assert_eq!(record["model"], for_text[0]["default_models"]["text"]);
}

#[sqlx::test]
async fn models_are_filtered(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let all = models(&app, "").await;
    let text = models(&app, "?type=text").await;
    assert!(!text.is_empty() && text.iter().all(|m| m["type"] == "text"));
    let videos = models(&app, "?type=video").await;
    assert!(!videos.is_empty() && videos.iter().all(|m| m["type"] == "video"));
    let openai = models(&app, "?provider=openai&type=text").await;
    assert!(!openai.is_empty() && openai.len() < all.len());
    for nothing in [
        "?type=video&provider=openai",
        "?provider=nope",
        "?provider=",
        "?provider=OpenAI",
    ] {
        assert_eq!(
            models(&app, nothing).await,
            Vec::<Value>::new(),
            "{nothing}"
        );
    }
    for (query, param, code) in [
        ("?type=speech", "type", "not_allowed"),
        ("?type=Text", "type", "not_allowed"),
        ("?model=x", "model", "unknown_field"),
    ] {
        let answer = app.get("", &format!("/v1/models{query}")).await;
        assert_eq!(answer.fields()[param], code, "{query}");
    }
    app.get("", "/v1/providers?type=text").await.fields();
}

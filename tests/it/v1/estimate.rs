//! POST /v1/credits/estimate

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::TestApp;

const ESTIMATE: &str = "/v1/credits/estimate";

/// A request with its type.
fn typed(modality: &str, body: &Value) -> Value {
    let mut body = body.clone();
    body["type"] = json!(modality);
    body
}

#[sqlx::test]
async fn an_estimate_is_what_is_held(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1000000").await;
    let template = app
        .template(
            &account,
            "{{ a|replace('é', 'éééééééééé') }} {{ prompt }}",
            Some("{{ b }}"),
        )
        .await;
    let mut requests: Vec<(&str, Value)> = Vec::new();
    for length in [1, 63, 1_000, 10_000] {
        for max_tokens in [1, 77, 4_096] {
            let body =
                json!({"prompt": "é".repeat(length), "parameters": {"max_tokens": max_tokens}});
            requests.push(("text", body));
        }
        requests.push((
            "text",
            json!({"prompt": "x".repeat(length), "system_prompt": "s".repeat(length / 2)}),
        ));
        requests.push((
            "text",
            json!({"prompt": "x".repeat(length / 2 + 1), "template_id": template,
            "template_variables": {"a": "é".repeat(length / 40), "b": "s"}, "stream": false}),
        ));
        requests.push(("audio", json!({"prompt": "é".repeat(length.min(4_000))})));
        requests.push(("audio", json!({"prompt": "x".repeat(length.min(4_000)), "parameters": {"format": "wav", "speed": 1.5}})));
    }
    for size in ["256x256", "512x512", "1024x1024", "1024x1792", "1792x1024"] {
        for quality in ["standard", "hd"] {
            let parameters = json!({"size": size, "quality": quality, "n": 3});
            requests.push((
                "image",
                json!({"prompt": "x", "negative_prompt": "y", "parameters": parameters}),
            ));
        }
    }
    requests.push(("image", json!({"prompt": "x"})));
    for duration in 1..=5 {
        let parameters = json!({"duration": duration, "ratio": "9:16"});
        requests.push(("video", json!({"prompt": "x", "parameters": parameters})));
    }
    requests.push(("video", json!({"prompt": "x"})));
    for (modality, body) in requests {
        let answer = app
            .post(&account.key, ESTIMATE, &typed(modality, &body))
            .await;
        let estimate = answer.expect(200);
        let path = format!("/v1/generate/{modality}");
        let record = app.post(&account.key, &path, &body).await;
        assert!(record.status.is_success(), "{}", record.text);
        let record = record.json();
        assert_eq!(
            estimate,
            json!({"type": modality, "provider": record["provider"], "model": record["model"],
                "estimated": record["credits"]["estimated"], "hold": record["credits"]["estimated"],
                "sufficient": true, "prices": record["metadata"]["pricing"], "inputs": []}),
            "{modality} {body}"
        );
    }
    app.assert_verified().await;
}

#[sqlx::test]
async fn it_makes_nothing_and_says_whether_it_would_fit(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    // 1 + 64 bytes at 10, 1,000 tokens at 50.
    let hold = "0.05065";
    let body = json!({"type": "text", "prompt": "x", "parameters": {"max_tokens": 1_000}});
    for (credits, more, sufficient) in [
        (hold, json!({}), true),
        ("0.050649", json!({}), false),
        ("0", json!({}), false),
        ("1", json!({"max_cost": hold}), true),
        ("1", json!({"max_cost": 0.050_649}), false),
        ("0", json!({"max_cost": "1"}), false),
    ] {
        let account = app.account(credits).await;
        let mut body = body.clone();
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        for token in [&account.key, &app.login(&account).await] {
            let found = app.post(token, ESTIMATE, &body).await.expect(200);
            assert_eq!(found["hold"], hold);
            assert_eq!(found["sufficient"], sufficient, "{credits} {more}");
        }
        let (balance, held) = app.balance(&account).await;
        assert_eq!((balance.as_str(), held.as_str()), (credits, "0"));
        assert!(app.history(&account).await.is_empty());
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn what_is_on_hold_and_the_keys_own_cap_count(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("0.1").await;
    let body = json!({"prompt": "x", "parameters": {"max_tokens": 1_000}});
    let sufficient = |token: String| {
        let (app, body) = (&app, typed("text", &body));
        async move { app.post(&token, ESTIMATE, &body).await.expect(200)["sufficient"].clone() }
    };
    assert_eq!(sufficient(account.key.clone()).await, true);
    sqlx::query("update accounts set held = 60000")
        .execute(&app.pool)
        .await
        .unwrap();
    assert_eq!(sufficient(account.key.clone()).await, false);
    sqlx::query("update accounts set held = 0")
        .execute(&app.pool)
        .await
        .unwrap();
    let capped = app.key(account.id, json!({"name": "capped"})).await;
    let session = app.login(&account).await;
    for (limit, fits) in [(50_650_i64, true), (50_649, false), (0, false)] {
        sqlx::query(
            "update api_keys set spend_limit = $1, spend_period = 'day' where name = 'capped'",
        )
        .bind(limit)
        .execute(&app.pool)
        .await
        .unwrap();
        assert_eq!(sufficient(capped.clone()).await, fits, "{limit}");
        assert_eq!(sufficient(session.clone()).await, true);
        assert_eq!(sufficient(account.key.clone()).await, true);
    }
    // What it has spent counts, in this period only.
    sqlx::query("update api_keys set spend_limit = 100000 where name = 'capped'")
        .execute(&app.pool)
        .await
        .unwrap();
    for (days, fits) in [(1_i32, true), (0, false)] {
        sqlx::query(
            "insert into key_spend (api_key_id, period, spend_limit, spent)
             select id, ($1::timestamptz at time zone 'UTC')::date - $2, 100000, 60000
             from api_keys where name = 'capped'",
        )
        .bind(app.now())
        .bind(days)
        .execute(&app.pool)
        .await
        .unwrap();
        assert_eq!(sufficient(capped.clone()).await, fits, "{days} days ago");
    }
}

#[sqlx::test]
async fn it_is_checked_as_the_generation_is(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let key = &account.key;
    for (kind, code) in [
        (json!(null), "required"),
        (json!("speech"), "not_allowed"),
        (json!("Text"), "not_allowed"),
        (json!(""), "not_allowed"),
        (json!(1), "invalid_type"),
    ] {
        let fields = app
            .post(key, ESTIMATE, &json!({"type": kind, "prompt": "x"}))
            .await
            .fields();
        assert_eq!(
            fields.into_iter().collect::<Vec<_>>(),
            [("type".to_owned(), code.to_owned())]
        );
    }
    let refused = app
        .post(key, ESTIMATE, &json!({"prompt": "x", "type": "speech"}))
        .await;
    assert!(
        refused.text.contains("text, image, video, audio"),
        "{}",
        refused.text
    );
    app.post(key, ESTIMATE, &json!({"prompt": "x"}))
        .await
        .error(422, "validation_failed");
    let wrong = json!([{}]);
    for body in [
        json!({}),
        json!({"prompt": " ", "provider": "nope", "zzz": 1}),
        json!({"prompt": wrong, "system_prompt": wrong, "negative_prompt": wrong, "provider": wrong, "model": wrong,
            "parameters": {"max_tokens": wrong, "size": wrong, "n": wrong, "duration": 0, "speed": wrong}, "max_cost": wrong,
            "stream": wrong, "template_id": wrong, "template_variables": wrong}),
        json!({"prompt": "x", "model": "nope"}),
        json!({"prompt": "x", "template_id": 99}),
        json!({"prompt": "x", "parameters": {"n": 9, "duration": 61, "max_tokens": 5000, "speed": 9}}),
    ] {
        for modality in ["text", "image", "video", "audio"] {
            let path = format!("/v1/generate/{modality}");
            let generation = app.post(key, &path, &body).await;
            let estimate = app.post(key, ESTIMATE, &typed(modality, &body)).await;
            assert_eq!(estimate.fields(), generation.fields(), "{modality} {body}");
            assert_eq!(
                estimate.json()["error"]["errors"],
                generation.json()["error"]["errors"]
            );
        }
    }
    app.post(
        key,
        ESTIMATE,
        &json!({"type": "text", "prompt": "x", "stream": true}),
    )
    .await
    .expect(200);
    let only = app
        .key(
            account.id,
            json!({"name": "k", "abilities": ["read:credits"]}),
        )
        .await;
    let body = json!({"type": "text", "prompt": "x"});
    app.post(&only, ESTIMATE, &body).await.expect(200);
    let lacking = app
        .key(
            account.id,
            json!({"name": "k", "abilities": ["generate:text"]}),
        )
        .await;
    app.post(&lacking, ESTIMATE, &body)
        .await
        .error(403, "missing_ability");
}

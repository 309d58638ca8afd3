//! Images that are refused, fail, or are cancelled: nothing is stored and nothing charged.

use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::ask;
use crate::common::{
    CONFIG_FILE, Reply, TestApp, Upstream,
    vendors::{openai_images, png, stability_image},
};

#[sqlx::test]
async fn failures_keep_nothing(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let openai = json!({"prompt": "x", "provider": "openai", "parameters": {"n": 2}});
    let stability = json!({"prompt": "x", "provider": "stability", "parameters": {"n": 2}});
    let error = |code: &str| json!({"error": {"code": code, "message": "m", "type": "image_generation_user_error"}});
    let garbage = axum::body::Bytes::from_static(b"<html>no image</html>");
    let huge = {
        let mut bytes = png(8, 8).to_vec();
        // A width that only the header claims.
        bytes[16..20].copy_from_slice(&60_000_u32.to_be_bytes());
        axum::body::Bytes::from(bytes)
    };
    for (body, reply, status, code) in [
        (
            &openai,
            Reply::Status(400, error("moderation_blocked")),
            502,
            "content_policy",
        ),
        (
            &openai,
            Reply::Status(400, error("content_policy_violation")),
            502,
            "content_policy",
        ),
        (
            &openai,
            Reply::Status(400, error("other")),
            502,
            "provider_rejected",
        ),
        (
            &openai,
            Reply::Status(401, error("invalid_api_key")),
            502,
            "provider_error",
        ),
        (
            &openai,
            Reply::Status(429, error("billing_hard_limit_reached")),
            502,
            "provider_error",
        ),
        (
            &openai,
            Reply::Status(429, error("rate_limit_exceeded")),
            503,
            "provider_overloaded",
        ),
        (
            &openai,
            Reply::Status(504, Value::Null),
            504,
            "provider_timeout",
        ),
        (&openai, openai_images(&[]), 502, "provider_error"),
        (
            &openai,
            openai_images(std::slice::from_ref(&garbage)),
            502,
            "provider_error",
        ),
        (&openai, openai_images(&[huge]), 502, "provider_error"),
        (
            &openai,
            openai_images(&[png(1024, 1024).slice(..3000)]),
            502,
            "provider_error",
        ),
        (
            &openai,
            openai_images(&[png(1792, 1024)]),
            502,
            "provider_error",
        ),
        (&openai, Reply::Cut, 502, "provider_error"),
        (
            &stability,
            stability_image(&png(1024, 1024), "CONTENT_FILTERED"),
            502,
            "content_policy",
        ),
        (
            &stability,
            stability_image(&garbage, "SUCCESS"),
            502,
            "provider_error",
        ),
        (
            &stability,
            Reply::Status(403, json!({"name": "content_moderation", "errors": ["x"]})),
            502,
            "content_policy",
        ),
        (
            &stability,
            Reply::Status(402, json!({"name": "payment_required"})),
            502,
            "provider_error",
        ),
    ] {
        let context = format!("{reply:.100?}");
        upstream.reply(reply);
        let answer = ask(&app, &account.key, body).await;
        assert_eq!(answer.status.as_u16(), status, "{context} {}", answer.text);
        answer.error(status, code);
        let record = &answer.json()["generation"];
        assert_eq!(record["status"], "failed", "{context}");
        assert_eq!(
            (
                &record["outputs"],
                &record["result"],
                &record["credits"]["charged"]
            ),
            (&json!([]), &Value::Null, &json!("0"))
        );
        assert_eq!(
            app.balance(&account).await,
            ("100".to_owned(), "0".to_owned())
        );
    }
    app.assert_nothing_kept().await;
}

#[sqlx::test]
async fn what_a_model_does_not_make_is_refused_before_the_hold(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("2").await;
    for (body, param) in [
        (
            json!({"prompt": "x", "provider": "stability", "parameters": {"size": "1792x1024"}}),
            "parameters.size",
        ),
        (
            json!({"prompt": "x", "provider": "stability", "parameters": {"quality": "hd"}}),
            "parameters.quality",
        ),
    ] {
        let answer = ask(&app, &account.key, &body).await;
        assert_eq!(answer.fields()[param], "not_supported");
    }
    let body = json!({"prompt": "x", "provider": "gemini"});
    let answer = ask(&app, &account.key, &body).await;
    assert_eq!(answer.fields()["provider"], "not_supported");
    let body = json!({"prompt": "x", "provider": "openai", "parameters": {"n": 2}});
    let error = ask(&app, &account.key, &body)
        .await
        .error(402, "insufficient_credits");
    assert_eq!(
        (&error["required"], &error["affordable"]),
        (&json!("2.9"), &json!({"n": 1}))
    );
    assert_eq!(upstream.count(), 0);
    app.assert_settled().await;
}

#[sqlx::test]
async fn what_is_appended_to_the_prompt_counts_towards_its_maximum(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.reply(openai_images(&[png(1024, 1024)]));
    let model = |id: &str, limits: &str| {
        format!(
            "[[providers.openai.models]]\nid = \"{id}\"\ntype = \"image\"\n{limits}\n\
             limits.native_sizes = [\"1024x1024\"]\n\
             prices.per_image.\"1024x1024\" = {{ standard = \"1\" }}\n"
        )
    };
    let text = [
        model("gpt-image-small", "limits.max_prompt_chars = 1000"),
        model("gpt-image-units", "limits.max_prompt_utf16 = 1000"),
        model("gpt-image-any", ""),
    ];
    let file = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = file.join(uuid::Uuid::now_v7().to_string());
    std::fs::write(&file, text.concat()).unwrap();
    let config = [(CONFIG_FILE, file.to_str().unwrap())];
    let app = TestApp::vendors(options, &upstream, &config).await;
    std::fs::remove_file(&file).unwrap();
    let account = app.account("100").await;
    let long = "y".repeat(900);
    let body = |model: &str, prompt: usize, negative: &str, style: bool| {
        let mut body = json!({"prompt": "x".repeat(prompt), "provider": "openai", "model": model});
        if !negative.is_empty() {
            body["negative_prompt"] = json!(negative);
        }
        if style {
            body["parameters"] = json!({"style": "vivid"});
        }
        body
    };
    for (prompt, negative, style, param) in [
        (1001, "", false, "prompt"),
        (1001, "y", true, "prompt"),
        (100, &*long, false, "negative_prompt"),
        (950, "y", true, "negative_prompt"),
        (980, "", true, "parameters.style"),
        (980, "y", true, "parameters.style"),
    ] {
        for model in ["gpt-image-small", "gpt-image-units"] {
            let answer = ask(&app, &account.key, &body(model, prompt, negative, style)).await;
            let fields = answer.fields();
            assert_eq!(
                fields.keys().collect::<Vec<_>>(),
                [param],
                "{}",
                answer.text
            );
            assert_eq!(fields[param], "too_long");
            let units = match model {
                "gpt-image-small" => "1,000 characters",
                _ => "1000 UTF-16 code units",
            };
            assert!(answer.text.contains(units), "{}", answer.text);
        }
    }
    assert_eq!(upstream.count(), 0);
    for (model, prompt, negative) in [
        ("gpt-image-small", 80, &*long),
        ("gpt-image-units", 80, &long),
        ("gpt-image-any", 5000, &long),
    ] {
        let answer = ask(&app, &account.key, &body(model, prompt, negative, false)).await;
        answer.expect(200);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn an_image_in_the_background_is_cancelled(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.reply(openai_images(&[png(1024, 1024)]));
    upstream.hold();
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let body = json!({"prompt": "x", "provider": "openai"});
    let headers = [("prefer", "respond-async")];
    let answer = app
        .post_with(&account.key, "/v1/generate/image", &headers, &body)
        .await;
    let uuid = answer.expect(202)["uuid"].as_str().unwrap().to_owned();
    assert_eq!(answer.header("preference-applied"), "respond-async");
    upstream.arrived(1).await;
    let path = format!("/v1/generate/{uuid}/cancel");
    app.call(Method::POST, &account.key, &path, &[], None)
        .await
        .expect(200);
    upstream.release(1);
    app.idle().await;
    app.assert_nothing_kept().await;
    assert_eq!(app.balance(&account).await.0, "100");
}

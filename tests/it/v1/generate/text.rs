//! POST /v1/generate/text: one generation, from request to record.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{Reply, TestApp, Upstream};

#[sqlx::test]
async fn the_record_tells_everything_and_the_bill_can_be_recomputed(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let answer = app
        .text(
            &account.key,
            json!({"prompt": "Say hello", "system_prompt": "Be brief"}),
        )
        .await;
    let record = answer.expect(200);
    assert_eq!(record["status"], "completed");
    assert_eq!(record["type"], "text");
    assert_eq!(record["provider"], "sandbox");
    assert_eq!(record["parameters"], json!({"max_tokens": 1024}));
    assert_eq!(record["outputs"], json!([]));
    assert_eq!(record["error"], Value::Null);
    assert!(!record["result"].as_str().unwrap().is_empty());
    let usage = |name: &str| record["usage"][name].as_u64().unwrap();
    assert_eq!(
        usage("total_tokens"),
        usage("input_tokens") + usage("output_tokens")
    );
    // Prices of the sandbox: 10 and 50 credits per million, so 10 and 50 micro-credits per token.
    let charged = usage("input_tokens") * 10 + usage("output_tokens") * 50;
    assert_eq!(
        record["metadata"]["pricing"],
        json!({"input_per_million": "10", "cached_input_per_million": "1",
            "output_per_million": "50"})
    );
    let text = gensvc::domain::credits::Credits::from_micros(charged.cast_signed()).to_string();
    assert_eq!(record["credits"]["charged"], text);
    assert_eq!(record["credits"]["held"], "0");
    // 17 bytes of prompts + 64 of overhead at 10, 1024 at 50.
    assert_eq!(record["credits"]["estimated"], "0.05201");
    assert_eq!(record["metadata"]["attempts"], 1);
    // The lookup returns the same.
    let found = app
        .get(
            &account.key,
            &format!("/v1/generate/{}", record["uuid"].as_str().unwrap()),
        )
        .await;
    assert_eq!(found.expect(200), record);
    app.assert_settled().await;
}

#[sqlx::test]
async fn every_failing_field_is_named_and_nothing_is_held(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let body = json!({"prompt": " ", "provider": "nope", "parameters": {"max_tokens": 5000, "temperature": "hot", "n": 1},
        "template_id": null, "template_variables": {}, "max_cost": -1, "stream": 1, "sytem_prompt": ""});
    let fields = app.text(&account.key, body).await.fields();
    let expected = [
        ("max_cost", "out_of_range"),
        ("parameters.max_tokens", "out_of_range"),
        ("parameters.n", "unknown_field"),
        ("parameters.temperature", "invalid_type"),
        ("prompt", "required"),
        ("provider", "unknown_provider"),
        ("stream", "invalid_type"),
        ("sytem_prompt", "unknown_field"),
        ("template_variables", "not_allowed"),
    ];
    let found: Vec<(&str, &str)> = fields
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(
        app.balance(&account).await,
        ("10".to_owned(), "0".to_owned())
    );
    assert!(app.history(&account).await.is_empty());
}

#[sqlx::test]
async fn a_model_refuses_before_the_hold_what_it_does_not_take(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let ask = |provider: &str, model: Option<&str>, temperature: f64| {
        let body = json!({"prompt": "x", "provider": provider, "model": model,
            "parameters": {"temperature": temperature}});
        app.text(&account.key, body)
    };
    // No temperature support; up to 1; an unknown model.
    for (provider, model, temperature, param, code) in [
        (
            "anthropic",
            Some("claude-sonnet-5-5"),
            0.5,
            "parameters.temperature",
            "not_supported",
        ),
        (
            "anthropic",
            Some("claude-haiku-4-5"),
            1.5,
            "parameters.temperature",
            "not_supported",
        ),
        (
            "openai",
            Some("gpt-6.1-sol"),
            0.5,
            "parameters.temperature",
            "not_supported",
        ),
        (
            "openai",
            Some("claude-haiku-4-5"),
            0.5,
            "model",
            "unknown_model",
        ),
        (
            "gemini",
            None,
            0.5,
            "parameters.temperature",
            "not_supported",
        ),
    ] {
        let fields = ask(provider, model, temperature).await.fields();
        assert_eq!(
            fields.get(param).map(String::as_str),
            Some(code),
            "{provider} {model:?}"
        );
    }
    assert_eq!(upstream.count(), 0);
    ask("anthropic", Some("claude-haiku-4-5"), 1.0)
        .await
        .expect(200);
    ask("openai", Some("gpt-6-luna"), 2.0).await.expect(200);
    app.assert_settled().await;
}

#[sqlx::test]
async fn each_provider_is_asked_in_its_own_words(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for provider in ["openai", "anthropic", "gemini"] {
        for stream in [false, true] {
            let body = json!({"prompt": "Hello?", "provider": provider, "stream": stream,
                "parameters": {"max_tokens": 100}});
            let answer = app.text(&account.key, body).await;
            let record = if stream {
                let events = answer.events();
                let text: String = events
                    .iter()
                    .filter(|(n, _)| n == "delta")
                    .map(|(_, d)| d["text"].as_str().unwrap())
                    .collect();
                assert_eq!(text, "Hello there.");
                assert_eq!(events[0].0, "generation");
                assert_eq!(events[0].1["status"], "processing");
                let (name, last) = events.last().unwrap().clone();
                assert_eq!(name, "completed");
                last
            } else {
                answer.expect(200)
            };
            assert_eq!(record["result"], "Hello there.", "{provider}");
            assert_eq!(
                record["usage"],
                json!({"input_tokens": 10, "output_tokens": 3, "total_tokens": 13})
            );
        }
    }
    let keys: Vec<_> = upstream
        .requests()
        .iter()
        .map(|r| {
            let header = |name: &str| r.headers.get(name).map(|v| v.to_str().unwrap().to_owned());
            header("authorization")
                .or_else(|| header("x-api-key"))
                .or_else(|| header("x-goog-api-key"))
                .unwrap()
        })
        .collect();
    assert_eq!(
        keys,
        [
            "Bearer sk-test-openai",
            "Bearer sk-test-openai",
            "sk-test-anthropic",
            "sk-test-anthropic",
            "test-gemini",
            "test-gemini"
        ]
    );
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_failure_upstream_costs_nothing_and_is_told_by_its_code(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let error =
        |code: &str| json!({"error": {"message": "upstream text", "type": code, "code": code}});
    let cases = [
        (
            Reply::Status(400, error("invalid_request_error")),
            502,
            "provider_rejected",
            1,
        ),
        (
            Reply::Status(400, error("content_policy_violation")),
            502,
            "content_policy",
            1,
        ),
        (
            Reply::Status(401, error("invalid_api_key")),
            502,
            "provider_error",
            1,
        ),
        (
            Reply::Status(402, error("billing_error")),
            502,
            "provider_error",
            1,
        ),
        (
            Reply::Status(404, error("model_not_found")),
            502,
            "provider_rejected",
            1,
        ),
        (
            Reply::Status(408, error("timeout")),
            504,
            "provider_timeout",
            1,
        ),
        (
            Reply::Status(429, error("rate_limit_exceeded")),
            503,
            "provider_overloaded",
            3,
        ),
        (
            Reply::Status(429, error("insufficient_quota")),
            502,
            "provider_error",
            1,
        ),
        (
            Reply::Status(500, error("server_error")),
            502,
            "provider_error",
            1,
        ),
        (
            Reply::Status(503, error("overloaded")),
            503,
            "provider_overloaded",
            3,
        ),
        (
            Reply::Raw(200, "text/html", "<html>".to_owned()),
            502,
            "provider_error",
            1,
        ),
        (
            Reply::Raw(200, "application/json", String::new()),
            502,
            "provider_error",
            1,
        ),
        (Reply::Cut, 502, "provider_error", 1),
    ];
    for (reply, status, code, attempts) in cases {
        upstream.reply(reply.clone());
        let before = upstream.count();
        let answer = app
            .text(&account.key, json!({"prompt": "x", "provider": "openai"}))
            .await;
        answer.error(status, code);
        let record = &answer.json()["generation"];
        assert_eq!(record["status"], "failed", "{reply:?}");
        assert_eq!(record["error"]["code"], code);
        assert_eq!(record["credits"]["charged"], "0");
        assert_eq!(record["metadata"]["attempts"], attempts);
        assert_eq!(upstream.count() - before, attempts, "{reply:?}");
        // Only what is about the caller's input is passed on.
        let is_passed_on = matches!(reply, Reply::Status(400, _)) && code == "provider_rejected";
        assert_eq!(
            answer.text.contains("upstream text"),
            is_passed_on,
            "{reply:?}"
        );
    }
    assert_eq!(
        app.balance(&account).await,
        ("10".to_owned(), "0".to_owned())
    );
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_provider_that_lies_about_usage_never_charges_above_the_hold(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for (input, output, estimated) in [
        (1_000_000_000, 5, false),
        (10, i64::MAX / 4, true),
        (-5, -5, true),
        (0, 3, true),
    ] {
        upstream.reply(Reply::Text("ok".to_owned(), input, output));
        let body = json!({"prompt": "x", "provider": "openai", "parameters": {"max_tokens": 1}});
        let record = app.text(&account.key, body).await.expect(200);
        let credits = |name: &str| {
            record["credits"][name]
                .as_str()
                .unwrap()
                .parse::<gensvc::domain::credits::Credits>()
                .unwrap()
        };
        assert!(credits("charged") <= credits("estimated"), "{record}");
        assert_eq!(
            record["usage"].get("estimated").is_some(),
            estimated,
            "{record}"
        );
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn no_output_tokens_beside_a_text_are_a_missing_count(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    upstream.reply(Reply::Text("Hello there.".to_owned(), 10, 0));
    for provider in ["openai", "anthropic", "gemini"] {
        for stream in [false, true] {
            let body = json!({"prompt": "x", "provider": provider, "stream": stream});
            let answer = app.text(&account.key, body).await;
            let record = if stream {
                answer.events().pop().unwrap().1
            } else {
                answer.expect(200)
            };
            // 12 bytes.
            assert_eq!(
                record["usage"],
                json!({"input_tokens": 10, "output_tokens": 3, "total_tokens": 13, "estimated": true}),
                "{provider} {stream}"
            );
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn faults_of_the_sandbox_can_be_asked_for(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    for (prompt, status, code) in [
        ("[[fail]]", 502, "provider_error"),
        ("please [[reject]] this", 502, "provider_rejected"),
        ("[[timeout]]", 504, "provider_timeout"),
        ("[[rate_limit]]", 503, "provider_overloaded"),
    ] {
        app.text(&account.key, json!({"prompt": prompt}))
            .await
            .error(status, code);
        let answer = app
            .text(&account.key, json!({"prompt": prompt, "stream": true}))
            .await;
        let (name, record) = answer.events().last().unwrap().clone();
        assert_eq!(
            (name.as_str(), &record["error"]["code"]),
            ("failed", &json!(code))
        );
    }
    app.text(&account.key, json!({"prompt": "[[slow:0.01]] x"}))
        .await
        .expect(200);
    app.assert_settled().await;
}

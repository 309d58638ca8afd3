//! Which candidates a request has, the hold, and the refusal of bad ones.

use gensvc::store::verify::Scope;
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{fail_at, failed, fast, routed, with_fallbacks};
use crate::{
    common::{Recorded, Reply, Upstream},
    v1::media::ended_for_all,
};

fn micros(amount: &Value) -> i64 {
    let text = amount.as_str().unwrap();
    let credits: gensvc::domain::credits::Credits = text.parse().unwrap();
    credits.micros()
}

/// The hold is the maximum of the ceilings, and a vendor that reports too much is paid the ceiling of
/// its own model at most.
#[sqlx::test]
async fn the_hold_is_the_maximum_and_the_charge_at_most_the_own_ceiling(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.be_lenient();
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("100000").await;
    let models = [
        ("openai", "gpt-4.1-mini"),
        ("anthropic", "claude-haiku-4-5"),
        ("gemini", "gemini-3.5-flash-lite"),
    ];
    let orders = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    for (case, order) in orders.iter().cycle().take(24).enumerate() {
        // How many candidates do not start, and what the one that serves reports.
        let left = case % 3;
        let reported = [(10, 3), (1_000_000_000, 1_000_000_000), (0, 0)][case / 6 % 3];
        let [first, rest @ ..] = order.map(|at| models[at]);
        let fallbacks = rest.map(|(provider, model)| json!({"provider": provider, "model": model}));
        let request = json!({
            "prompt": "x".repeat(1 + case * 97), "provider": first.0, "model": first.1,
            "parameters": {"max_tokens": 16 + case * 50}, "fallbacks": fallbacks,
        });
        let mut asked = request.clone();
        asked["type"] = "text".into();
        let estimate = app.post(&account.key, "/v1/credits/estimate", &asked).await;
        let estimate = estimate.expect(200);
        let ceilings = estimate["candidates"].as_array().unwrap();
        let most = ceilings.iter().map(|one| micros(&one["estimated"])).max();
        assert_eq!(most, Some(micros(&estimate["hold"])), "{estimate}");
        let down: Vec<&str> = order[..left].iter().map(|&at| models[at].0).collect();
        let down: Vec<String> = down.iter().map(|name| format!("/{name}/")).collect();
        upstream.play(move |request: &Recorded| {
            if down.iter().any(|part| request.path.contains(part)) {
                return failed(503);
            }
            Reply::Text("Hello there.".to_owned(), reported.0, reported.1)
        });
        app.advance(chrono::TimeDelta::minutes(1));
        let record = app.text(&account.key, request).await.expect(200);
        let credits = &record["credits"];
        assert_eq!(credits["estimated"], estimate["hold"], "{record}");
        let (provider, _) = models[order[left]];
        assert_eq!(record["provider"], provider);
        let own = ceilings.iter().find(|one| one["provider"] == provider);
        let own = micros(&own.unwrap()["estimated"]);
        let charged = micros(&credits["charged"]);
        assert!(charged <= own, "{record}");
        if reported.0 > 1_000_000 {
            assert_eq!(charged, own, "{record}");
        } else {
            assert_eq!(credits["charged"], record["bill"]["total"], "{record}");
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn candidates_that_cannot_serve_are_ruled_out_by_name(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let dropped = |record: &Value| -> Vec<(String, String)> {
        let all = record["metadata"]["dropped"].as_array();
        let text = |one: &Value, name: &str| one[name].as_str().unwrap().to_owned();
        let all = all.into_iter().flatten();
        all.map(|one| (text(one, "provider"), text(one, "code")))
            .collect()
    };
    // Gemini's model takes no temperature, Anthropic's none above 1.
    let mut body = fast();
    body["parameters"] = json!({"temperature": 1.5});
    let record = app.text(&account.key, body.clone()).await.expect(200);
    assert_eq!(record["provider"], "openai");
    assert_eq!(record["metadata"]["route"], "fast");
    let found = dropped(&record);
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["anthropic", "gemini"], "{record}");
    // By the cost of each.
    let mut asked = with_fallbacks();
    asked["type"] = "text".into();
    let estimate = app.post(&account.key, "/v1/credits/estimate", &asked).await;
    let estimate = estimate.expect(200);
    let own = estimate["candidates"][0]["estimated"].clone();
    assert!(micros(&own) < micros(&estimate["hold"]), "{estimate}");
    let mut body = with_fallbacks();
    body["max_cost"] = own.clone();
    let record = app.text(&account.key, body.clone()).await.expect(200);
    assert_eq!(record["credits"]["estimated"], own);
    let found = dropped(&record);
    assert!(found.iter().all(|(_, code)| code == "max_cost"), "{record}");
    assert_eq!(found.len(), 2, "{record}");
    // All of them cost too much: the answer is that of a request for the first one.
    body["max_cost"] = "0.000001".into();
    let mut alone = body.clone();
    alone.as_object_mut().unwrap().remove("fallbacks");
    let (all, alone) = tokio::join!(app.text(&account.key, body), app.text(&account.key, alone));
    assert_eq!(all.status, alone.status);
    assert_eq!(
        all.json()["error"]["required"],
        alone.json()["error"]["required"]
    );
    // By what the account has.
    let poor = app.account(own.as_str().unwrap()).await;
    let record = app.text(&poor.key, with_fallbacks()).await.expect(200);
    assert_eq!(record["credits"]["estimated"], own);
    let found = dropped(&record);
    assert!(
        found.iter().all(|(_, code)| code == "insufficient_credits"),
        "{record}"
    );
    app.assert_settled().await;
}

#[sqlx::test]
async fn bad_candidates_are_refused_by_name(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let fallback = |provider: &str, model: &str| json!([{"provider": provider, "model": model}]);
    let four: Vec<Value> = (0..4)
        .map(|_| json!({"provider": "gemini", "model": "gemini-3.5-flash-lite"}))
        .collect();
    for (change, param, code) in [
        (json!({"model": "route/none"}), "model", "unknown_model"),
        (
            json!({"provider": "route", "model": "none"}),
            "model",
            "unknown_model",
        ),
        (
            json!({"model": "route/fast", "fallbacks": fallback("gemini", "gemini-3.5-flash-lite")}),
            "fallbacks",
            "not_supported",
        ),
        (
            json!({"fallbacks": fallback("gemini", "none")}),
            "fallbacks[0].model",
            "unknown_model",
        ),
        (
            json!({"fallbacks": fallback("openai", "gpt-image-2")}),
            "fallbacks[0].model",
            "unknown_model",
        ),
        (
            json!({"fallbacks": fallback("none", "m")}),
            "fallbacks[0].provider",
            "unknown_provider",
        ),
        (
            json!({"fallbacks": [{"provider": "gemini"}]}),
            "fallbacks[0].model",
            "required",
        ),
        (json!({"fallbacks": four}), "fallbacks", "out_of_range"),
        (json!({"fallbacks": []}), "fallbacks", "required"),
        (
            json!({"fallbacks": "route/fast"}),
            "fallbacks",
            "invalid_type",
        ),
        (
            json!({"model": "none", "provider": "openai",
                   "fallbacks": fallback("gemini", "gemini-3.5-flash-lite")}),
            "model",
            "unknown_model",
        ),
        // No candidate takes it: the fields of the first one.
        (
            json!({"model": "route/fast", "parameters": {"max_tokens": 5000}}),
            "parameters.max_tokens",
            "out_of_range",
        ),
    ] {
        let mut body = json!({"prompt": "x"});
        for (name, value) in change.as_object().unwrap() {
            body[name] = value.clone();
        }
        let fields = app.text(&account.key, body).await.fields();
        assert_eq!(
            fields.get(param).map(String::as_str),
            Some(code),
            "{change}: {fields:?}"
        );
    }
    // Every other failing field is reported too.
    let unknown = json!([{"provider": "none", "model": "m"},
        {"provider": "gemini", "model": "gemini-3.5-flash-lite"}, {"provider": "gemini", "model": "none"}]);
    for (more, others) in [
        (json!({}), vec![]),
        (
            json!({"provider": "openai", "model": "gpt-4.1-mini", "template_id": 9,
                   "parameters": {"max_tokens": 1, "temperature": 1.9}}),
            vec!["template_id"],
        ),
        (
            json!({"provider": "openai", "model": "none", "template_id": 9}),
            vec!["model", "template_id"],
        ),
        (
            json!({"parameters": {"max_tokens": 5000}}),
            vec!["parameters.max_tokens"],
        ),
    ] {
        let mut body = json!({"prompt": "x", "fallbacks": unknown});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let fields = app.text(&account.key, body).await.fields();
        let found: Vec<&str> = fields.keys().map(String::as_str).collect();
        let unknown = vec!["fallbacks[0].provider", "fallbacks[2].model"];
        assert_eq!(found, [unknown, others].concat(), "{more}");
    }
    let alone = json!([{"provider": "none", "model": "m"}]);
    let body = json!({"prompt": "x", "fallbacks": alone, "provider": "anthropic",
        "model": "claude-haiku-4-5", "parameters": {"temperature": 1.9}});
    let fields = app.text(&account.key, body).await.fields();
    let found: Vec<&String> = fields.keys().collect();
    assert_eq!(found, ["fallbacks[0].provider", "parameters.temperature"]);
    let known = json!([{"provider": "gemini", "model": "gemini-3.5-flash-lite"}]);
    let body = json!({"prompt": "x", "fallbacks": known, "provider": "openai", "model": "none",
        "template_id": 9});
    let fields = app.text(&account.key, body).await.fields();
    assert_eq!(fields.keys().collect::<Vec<_>>(), ["model", "template_id"]);
    // A route of text is none for an image.
    let body = json!({"prompt": "x", "model": "route/fast"});
    let answer = app.post(&account.key, "/v1/generate/image", &body).await;
    assert_eq!(answer.fields()["model"], "unknown_model");
    assert_eq!(upstream.count(), 0);
}

#[sqlx::test]
async fn the_order_of_a_route_is_kept(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let by = async |route: &str| {
        let body = json!({"prompt": "x", "model": format!("route/{route}")});
        let record = app.text(&account.key, body).await.expect(200);
        record["provider"].as_str().unwrap().to_owned()
    };
    assert_eq!(by("fast").await, "openai");
    assert_eq!(by("cheap").await, "openai");
    assert_eq!(by("soon").await, "openai");
    // Only Anthropic's is measured.
    let body = json!({"prompt": "x", "provider": "anthropic", "model": "claude-haiku-4-5",
        "stream": true});
    app.text(&account.key, body).await.events();
    app.idle().await;
    assert_eq!(by("soon").await, "anthropic");
    app.assert_settled().await;
}

#[sqlx::test]
async fn routes_are_listed_and_used_like_models(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let models = app.get("", "/v1/models").await.expect(200);
    let models = models["data"].as_array().unwrap();
    let route = models
        .iter()
        .find(|model| model["provider"] == "route" && model["id"] == "fast")
        .unwrap();
    assert_eq!(
        (&route["type"], &route["order"], &route["candidates"][2]),
        (
            &json!("text"),
            &json!("given"),
            &json!("gemini/gemini-3.5-flash-lite")
        )
    );
    assert!(models.iter().any(|model| model.get("candidates").is_none()));
    let one = app.get("", "/v1/models/route/fast").await.expect(200);
    assert_eq!(one, *route);
    for surface in ["openai", "anthropic"] {
        let list = app
            .get(&account.key, &format!("/{surface}/v1/models"))
            .await;
        let list = list.expect(200);
        let list = list["data"].as_array().unwrap();
        assert!(
            list.iter().any(|model| model["id"] == "route/fast"),
            "{list:?}"
        );
        let path = format!("/{surface}/v1/models/route%2Ffast");
        let one = app.get(&account.key, &path).await.expect(200);
        assert_eq!(one["id"], "route/fast");
    }
    // Every surface of text.
    fail_at(&upstream, &["/openai/"], failed(429));
    let messages = json!([{"role": "user", "content": "Say hello."}]);
    for (path, body) in [
        (
            "/openai/v1/chat/completions",
            json!({"model": "route/fast", "messages": messages}),
        ),
        (
            "/openai/v1/responses",
            json!({"model": "route/fast", "input": "Say hello."}),
        ),
        (
            "/anthropic/v1/messages",
            json!({"model": "route/fast", "messages": messages, "max_tokens": 100}),
        ),
    ] {
        let answer = app.post(&account.key, path, &body).await;
        let body = answer.expect(200);
        assert_eq!(body["model"], "route/fast", "{body}");
        assert_eq!(
            answer.header("x-gensvc-served-by"),
            "anthropic/claude-haiku-4-5"
        );
    }
    let body = json!({"model": "route/fast", "messages": messages});
    let count = app
        .post(&account.key, "/anthropic/v1/messages/count_tokens", &body)
        .await;
    assert!(count.expect(200)["input_tokens"].as_i64().unwrap() > 0);
    app.assert_settled().await;
}

#[sqlx::test]
async fn deleted_generation_keeps_no_attempts_but_counted_ones(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    fail_at(&upstream, &["/openai/"], failed(429));
    let count = async || -> i64 {
        let counting = "select count(*) from generation_attempts";
        sqlx::query_scalar(counting)
            .fetch_one(&app.pool)
            .await
            .unwrap()
    };
    let record = app.text(&account.key, fast()).await.expect(200);
    assert_eq!(count().await, 1);
    let path = format!("/v1/generate/{}", record["uuid"].as_str().unwrap());
    assert_eq!(app.delete(&account.key, &path).await.status, 204);
    assert_eq!(count().await, 0);
    // By age.
    app.text(&account.key, fast()).await.expect(200);
    assert_eq!(count().await, 1);
    app.advance(chrono::TimeDelta::days(2));
    ended_for_all(&app).await;
    let age = chrono::TimeDelta::days(1);
    while app.app.runner.delete_old(age, 100).await.unwrap() {}
    assert_eq!(count().await, 0);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_charge_above_the_own_ceiling_is_impossible_and_found(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    app.text(&account.key, fast()).await.expect(200);
    app.assert_settled().await;
    let lowering = "update finished_generations set route = jsonb_set(route, '{ceiling}', '1')";
    let error = sqlx::query(lowering).execute(&app.pool).await.unwrap_err();
    let constraint = "finished_generations_charged_within_ceiling";
    assert!(error.to_string().contains(constraint), "{error}");
    let drop = format!("alter table finished_generations drop constraint {constraint}");
    sqlx::query(sqlx::AssertSqlSafe(drop))
        .execute(&app.pool)
        .await
        .unwrap();
    sqlx::query(lowering).execute(&app.pool).await.unwrap();
    let audit = app.store.verify_ledger(Scope::Whole).await.unwrap();
    assert_eq!(audit.differences.len(), 1, "{:?}", audit.differences);
    assert!(
        audit.differences[0].contains(" of at most 1)"),
        "{:?}",
        audit.differences
    );
}

#[sqlx::test]
async fn an_accounts_default_may_have_fallbacks(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = routed(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    let change = async |text: Value| {
        let body = json!({"defaults": {"text": text}}).to_string();
        let json = [("content-type", "application/json")];
        app.call(
            Method::PATCH,
            &account.key,
            "/v1/account",
            &json,
            Some(body),
        )
        .await
    };
    let default = json!({"provider": "openai", "model": "gpt-4.1-mini",
        "fallbacks": [{"provider": "anthropic", "model": "claude-haiku-4-5"}]});
    let changed = change(default.clone()).await.expect(200);
    assert_eq!(changed["defaults"]["text"], default);
    fail_at(&upstream, &["/openai/"], failed(429));
    let plain = json!({"prompt": "x"});
    let record = app.text(&account.key, plain.clone()).await.expect(200);
    assert_eq!(record["provider"], "anthropic");
    assert_eq!(record["attempts"][0]["outcome"], "overloaded");
    // A request that names a provider gets no fallbacks from the account's default.
    let named = json!({"prompt": "x", "provider": "openai"});
    let refused = app.text(&account.key, named).await;
    refused.error(503, "provider_overloaded");
    for (fallbacks, param, code) in [
        (
            json!([{"provider": "gemini", "model": "none"}]),
            "defaults.text.fallbacks[0].model",
            "unknown_model",
        ),
        (json!([]), "defaults.text.fallbacks", "required"),
    ] {
        let default = json!({"provider": "openai", "fallbacks": fallbacks});
        let fields = change(default).await.fields();
        assert_eq!(
            fields.get(param).map(String::as_str),
            Some(code),
            "{fields:?}"
        );
    }
    let changed = change(json!({"provider": "openai"})).await.expect(200);
    assert_eq!(changed["defaults"]["text"].get("fallbacks"), None);
    let refused = app.text(&account.key, plain).await;
    refused.error(503, "provider_overloaded");
    app.assert_settled().await;
}

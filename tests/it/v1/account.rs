//! /v1/account: default providers and models.

use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{Account, Answer, TestApp, Upstream};

const ACCOUNT: &str = "/v1/account";

impl TestApp {
    async fn patch(&self, token: &str, body: &Value) -> Answer {
        let json = [("content-type", "application/json")];
        self.call(Method::PATCH, token, ACCOUNT, &json, Some(body.to_string()))
            .await
    }

    /// Provider and model that a request is resolved to.
    async fn resolved(&self, account: &Account, body: Value) -> String {
        let answer = self.post(&account.key, "/v1/credits/estimate", &body).await;
        let found = answer.expect(200);
        let text = |name: &str| found[name].as_str().unwrap().to_owned();
        format!("{}/{}", text("provider"), text("model"))
    }
}

fn none() -> Value {
    json!({"text": null, "image": null, "video": null, "audio": null})
}

#[sqlx::test]
async fn defaults_are_merged_by_modality(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("1").await, app.account("1").await);
    let session = app.login(&account).await;
    let found = app.get(&account.key, ACCOUNT).await.expect(200);
    assert_eq!(
        found,
        json!({"id": account.id.0, "name": "Test", "defaults": none(), "created_at": found["created_at"]})
    );
    assert_eq!(app.get(&session, ACCOUNT).await.expect(200), found);
    let mut defaults = none();
    for (change, modality, value) in [
        (
            json!({"video": {"provider": "sandbox"}}),
            "video",
            json!({"provider": "sandbox", "model": null}),
        ),
        (
            json!({"text": {"provider": "sandbox", "model": "sandbox-text-1"}}),
            "text",
            json!({"provider": "sandbox", "model": "sandbox-text-1"}),
        ),
        // A modality is replaced as a whole.
        (
            json!({"text": {"provider": "sandbox", "model": null}}),
            "text",
            json!({"provider": "sandbox", "model": null}),
        ),
        (json!({"video": null}), "video", json!(null)),
        (json!({"image": null}), "image", json!(null)),
        (json!({}), "image", json!(null)),
    ] {
        defaults[modality] = value;
        let token = if modality == "text" {
            &session
        } else {
            &account.key
        };
        let body = json!({ "defaults": change });
        let changed = app.patch(token, &body).await.expect(200);
        assert_eq!(changed["defaults"], defaults, "{body}");
        assert_eq!(app.get(&session, ACCOUNT).await.expect(200), changed);
    }
    for body in [json!({}), json!({"defaults": null})] {
        let same = app.patch(&session, &body).await.expect(200);
        assert_eq!(same["defaults"], defaults);
    }
    let theirs = app.get(&other.key, ACCOUNT).await.expect(200);
    assert_eq!(theirs["defaults"], none());
    let key = app
        .key(
            account.id,
            json!({"name": "k", "abilities": ["read:credits", "generate:text"]}),
        )
        .await;
    app.get(&key, ACCOUNT).await.error(403, "missing_ability");
    let body = json!({"defaults": {"text": null}});
    app.patch(&key, &body).await.error(403, "missing_ability");
    app.post(&session, ACCOUNT, &body)
        .await
        .error(405, "method_not_allowed");
}

#[sqlx::test]
async fn every_mistake_is_named_and_nothing_is_changed(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1").await;
    for (defaults, param, code) in [
        (
            json!({"video": {"provider": "nope"}}),
            "video.provider",
            "unknown_provider",
        ),
        (
            json!({"video": {"provider": "anthropic"}}),
            "video.provider",
            "not_supported",
        ),
        (
            json!({"text": {"provider": "sandbox", "model": "nope"}}),
            "text.model",
            "unknown_model",
        ),
        (
            json!({"text": {"provider": "sandbox", "model": "sandbox-image-1"}}),
            "text.model",
            "unknown_model",
        ),
        (
            json!({"text": {"model": "sandbox-text-1"}}),
            "text.provider",
            "required",
        ),
        (json!({"text": {}}), "text.provider", "required"),
        (
            json!({"text": {"provider": null}}),
            "text.provider",
            "required",
        ),
        (
            json!({"text": {"provider": 1}}),
            "text.provider",
            "invalid_type",
        ),
        (
            json!({"text": {"provider": "sandbox", "model": "m".repeat(201)}}),
            "text.model",
            "too_long",
        ),
        (
            json!({"text": {"provider": ""}}),
            "text.provider",
            "unknown_provider",
        ),
        (
            json!({"text": {"provider": "sandbox", "zzz": 1}}),
            "text.zzz",
            "unknown_field",
        ),
        (json!({"text": "sandbox"}), "text", "invalid_type"),
        (
            json!({"speech": {"provider": "sandbox"}}),
            "speech",
            "unknown_field",
        ),
    ] {
        // The valid half is not changed either.
        let mut body = json!({"defaults": {"image": {"provider": "sandbox"}}});
        for (name, value) in defaults.as_object().unwrap() {
            body["defaults"][name] = value.clone();
        }
        let fields: Vec<_> = app
            .patch(&account.key, &body)
            .await
            .fields()
            .into_iter()
            .collect();
        assert_eq!(
            fields,
            [(format!("defaults.{param}"), code.to_owned())],
            "{body}"
        );
    }
    let body = json!({"defaults": {"text": {"provider": "x"}, "video": {"model": "y"}, "z": 1}, "name": "new"});
    let fields = app.patch(&account.key, &body).await.fields();
    let names: Vec<_> = fields.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "defaults.text.provider",
            "defaults.video.provider",
            "defaults.z",
            "name"
        ]
    );
    let fields = app
        .patch(&account.key, &json!({"defaults": []}))
        .await
        .fields();
    assert_eq!(fields["defaults"], "invalid_type");
    let found = app.get(&account.key, ACCOUNT).await.expect(200);
    assert_eq!(found["defaults"], none());
}

#[sqlx::test]
async fn parallel_changes_of_different_modalities_all_stay(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let replica = app.replica().await;
    let account = app.account("1").await;
    for _ in 0..5 {
        let modalities = ["text", "image", "video", "audio"];
        let set = modalities.iter().enumerate().map(|(n, name)| {
            let (app, key) = ([&app, &replica][n % 2], &account.key);
            async move {
                let body = json!({"defaults": {*name: {"provider": "sandbox"}}});
                app.patch(key, &body).await.expect(200)
            }
        });
        futures_util::future::join_all(set).await;
        let found = app.get(&account.key, ACCOUNT).await.expect(200);
        for name in modalities {
            assert_eq!(found["defaults"][name]["provider"], "sandbox", "{found}");
        }
        let clear = json!({"defaults": none()});
        let found = app.patch(&account.key, &clear).await.expect(200);
        assert_eq!(found["defaults"], none());
    }
}

#[sqlx::test]
async fn a_request_is_resolved_by_itself_the_account_and_the_server(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options.clone(), &upstream).await;
    let account = app.account("1").await;
    let request = |more: Value| {
        let mut body = json!({"type": "text", "prompt": "x"});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    };
    let server = app.resolved(&account, request(json!({}))).await;
    let catalogue = app
        .get("", "/v1/models?type=text&provider=anthropic")
        .await
        .expect(200);
    let models: Vec<_> = catalogue["data"].as_array().unwrap().iter().collect();
    let id = |model: &Value| model["id"].as_str().unwrap().to_owned();
    let default = id(models.iter().find(|m| m["default"] == true).unwrap());
    let second = id(models.iter().find(|m| m["default"] != true).unwrap());
    assert!(!server.starts_with("anthropic/"));
    let set = |value: Value| {
        let body = json!({"defaults": {"text": value}});
        let (app, key) = (&app, &account.key);
        async move { _ = app.patch(key, &body).await.expect(200) }
    };
    // The account's provider, with the provider's own default.
    set(json!({"provider": "anthropic"})).await;
    assert_eq!(
        app.resolved(&account, request(json!({}))).await,
        format!("anthropic/{default}")
    );
    // A model without a provider belongs to the resolved provider.
    let named = request(json!({"model": second}));
    assert_eq!(
        app.resolved(&account, named).await,
        format!("anthropic/{second}")
    );
    let foreign = request(json!({"model": "sandbox-text-1"}));
    let answer = app
        .post(&account.key, "/v1/credits/estimate", &foreign)
        .await;
    assert_eq!(answer.fields()["model"], "unknown_model");
    // The account's model, for requests that name neither.
    set(json!({"provider": "anthropic", "model": second})).await;
    assert_eq!(
        app.resolved(&account, request(json!({}))).await,
        format!("anthropic/{second}")
    );
    // An explicit provider: with its own default, even if it is the account's.
    let named = request(json!({"provider": "sandbox"}));
    assert_eq!(
        app.resolved(&account, named).await,
        "sandbox/sandbox-text-1"
    );
    let named = request(json!({"provider": "anthropic"}));
    assert_eq!(
        app.resolved(&account, named).await,
        format!("anthropic/{default}")
    );
    // Other modalities are unaffected, and generations resolve like estimates.
    let image = json!({"type": "image", "prompt": "x"});
    assert!(
        !app.resolved(&account, image)
            .await
            .starts_with("anthropic/")
    );
    // A default whose provider has since been disabled is ignored.
    let bare = TestApp::new(options).await;
    let found = bare.get(&account.key, ACCOUNT).await.expect(200);
    assert_eq!(
        found["defaults"]["text"],
        json!({"provider": "anthropic", "model": second})
    );
    assert_eq!(
        bare.resolved(&account, request(json!({}))).await,
        "sandbox/sandbox-text-1"
    );
    let record = bare
        .text(&account.key, json!({"prompt": "x"}))
        .await
        .expect(200);
    assert_eq!(record["provider"], "sandbox");
    // Cleared: the server's default again.
    set(json!(null)).await;
    assert_eq!(app.resolved(&account, request(json!({}))).await, server);
}

//! Every operation of GET /openapi.json, called as documented.

mod admin;
mod bodies;
mod examples;
mod schema;
mod whole;

use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::{
    common::{Account, Answer, TestApp, vendors::png},
    v1::uploads,
};

/// The abilities that a key can have individually.
const ABILITIES: [&str; 7] = [
    "generate:text",
    "generate:image",
    "generate:video",
    "generate:audio",
    "read:history",
    "read:credits",
    "*",
];

/// One operation of the document.
pub struct Operation {
    pub method: Method,
    /// With its parameters in braces.
    pub path: String,
    pub spec: Value,
}

/// Objects that paths can refer to.
pub struct Objects {
    pub uuid: String,
    pub key_id: i64,
    pub webhook_id: i64,
    pub delivery_id: i64,
    pub template_id: i64,
    pub upload_id: String,
}

/// The document that the server serves.
pub fn document() -> Value {
    gensvc::api::openapi().unwrap()
}

/// All operations except admin ones and those for SDKs, whose errors have other shapes.
pub fn operations() -> Vec<Operation> {
    let mut all = every_operation();
    all.retain(|o| !o.is_admin() && !o.is_for_sdks());
    all
}

pub fn every_operation() -> Vec<Operation> {
    let document = document();
    let paths = document["paths"].as_object().unwrap();
    let all: Vec<Operation> = paths
        .iter()
        .flat_map(|(path, operations)| {
            operations
                .as_object()
                .unwrap()
                .iter()
                .map(|(method, spec)| Operation {
                    method: method.to_uppercase().parse().unwrap(),
                    path: path.clone(),
                    spec: resolved(&document, spec),
                })
        })
        .collect();
    assert!(all.len() >= 44, "only {} operations", all.len());
    all
}

/// An operation with the components to which its responses and parameters refer.
fn resolved(document: &Value, spec: &Value) -> Value {
    let mut spec = spec.clone();
    let parameters = spec.get_mut("parameters").and_then(Value::as_array_mut);
    for item in parameters.into_iter().flatten() {
        *item = target(document, item).clone();
    }
    for item in spec["responses"].as_object_mut().unwrap().values_mut() {
        *item = target(document, item).clone();
    }
    spec
}

/// What a value refers to, or the value.
pub fn target<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    value["$ref"].as_str().map_or(value, |reference| {
        let found = document.pointer(reference.trim_start_matches('#'));
        found.unwrap_or_else(|| panic!("{reference} leads nowhere"))
    })
}

impl Operation {
    pub fn secured(&self) -> bool {
        self.spec["security"] == json!([{"bearer": []}])
    }

    /// Whether it is an admin operation.
    pub fn is_admin(&self) -> bool {
        self.spec["security"] == json!([{"admin": []}])
    }

    /// Whether it is in the dialect of an SDK.
    pub fn is_for_sdks(&self) -> bool {
        ["/openai/", "/anthropic/"]
            .iter()
            .any(|root| self.path.starts_with(root))
    }

    /// Whether it needs a signature, which this test cannot create.
    pub fn is_media(&self) -> bool {
        self.path.starts_with("/v1/media/")
    }

    pub fn ability(&self) -> &str {
        self.spec["x-required-ability"].as_str().unwrap_or_default()
    }

    /// Whether a path parameter refers to an object of an account.
    pub fn owned(&self) -> bool {
        self.secured() && ["{uuid}", "{id}"].iter().any(|id| self.path.contains(id))
    }

    pub fn url(&self, objects: &Objects) -> String {
        if self.is_for_sdks() {
            return self.path.replace("{id}", "sandbox%2Fsandbox-text-1");
        }
        let id = match self.path.as_str() {
            path if path.starts_with("/v1/webhooks/") => objects.webhook_id.to_string(),
            path if path.starts_with("/v1/templates/") => objects.template_id.to_string(),
            path if path.starts_with("/v1/uploads/") => objects.upload_id.clone(),
            _ => objects.key_id.to_string(),
        };
        let url = self
            .path
            .replace("{uuid}", &objects.uuid)
            .replace("{file}", "0.png")
            .replace("{id}", &id)
            .replace("{delivery}", &objects.delivery_id.to_string())
            .replace("{provider}", "sandbox")
            .replace("{model}", "sandbox-text-1");
        assert!(!url.contains('{'), "a parameter that is new here: {url}");
        url
    }

    /// The URL of an admin operation on an account, with ids of its objects where it needs them.
    pub fn admin_url(&self, account: &str, objects: Option<&Objects>) -> String {
        let (key, delivery) = objects.map_or((1, 1), |o| (o.key_id, o.delivery_id));
        self.path
            .replace("{id}", account)
            .replace("{key}", &key.to_string())
            .replace("{delivery}", &delivery.to_string())
    }

    /// The documented example of the body.
    pub fn body(&self) -> Option<Value> {
        let name = self.body_schema()?;
        let example = document()["components"]["schemas"][&name]["example"].clone();
        assert!(example.is_object(), "{name} has no example");
        Some(example)
    }

    /// The name of the body's schema.
    pub fn body_schema(&self) -> Option<String> {
        let content = self.spec.get("requestBody")?;
        let reference = content["content"]["application/json"]["schema"]["$ref"].as_str()?;
        reference.rsplit('/').next().map(str::to_owned)
    }

    pub async fn call(&self, app: &TestApp, token: &str, objects: &Objects) -> Answer {
        self.call_at(app, token, &self.url(objects)).await
    }

    pub async fn call_at(&self, app: &TestApp, token: &str, url: &str) -> Answer {
        if self.takes_pictures() && url.starts_with(&self.path) {
            return uploads::post_at(app, token, url, "image/png", png(4, 4)).await;
        }
        let body = self.body().map(|body| body.to_string());
        let json = [("content-type", "application/json")];
        let headers: &[(&str, &str)] = if body.is_some() { &json } else { &[] };
        let calling = app.call(self.method.clone(), token, url, headers, body);
        if self.waits_for_workers() {
            app.working(calling).await
        } else {
            calling.await
        }
    }

    /// Whether its body is a picture.
    pub fn takes_pictures(&self) -> bool {
        self.spec["requestBody"]["content"]["image/png"].is_object()
    }

    /// Whether its answer is the end of a job.
    pub fn waits_for_workers(&self) -> bool {
        self.path == "/openai/v1/audio/speech"
    }

    /// The response has a documented status and shape.
    pub fn check(&self, answer: &Answer, context: &str) {
        let at = format!("{} {} {context}", self.method, self.path);
        let status = answer.status.as_u16().to_string();
        let documented = &self.spec["responses"][&status];
        assert!(!documented.is_null(), "{at}: {status} is not documented");
        assert_ne!(answer.header("x-request-id"), "", "{at}");
        // All responses are private to the caller, except files, to which the test has no link.
        assert_eq!(answer.header("cache-control"), "no-store", "{at}");
        if let Some(text) = documented["content"].get("text/plain") {
            assert_eq!(text["schema"]["type"], "string", "{at}");
            assert!(
                answer
                    .header("content-type")
                    .starts_with("text/plain; version=0.0.4")
            );
            return;
        }
        if documented["content"].get("audio/mpeg").is_some() {
            assert!(answer.header("content-type").starts_with("audio/"), "{at}");
            return;
        }
        let schema = &documented["content"]["application/json"]["schema"];
        if schema.is_null() {
            assert_eq!(answer.text, "", "{at}: a body that is not documented");
            return;
        }
        assert_eq!(answer.header("content-type"), "application/json", "{at}");
        let errors = schema::errors(schema, &answer.json());
        assert!(errors.is_empty(), "{at}: {errors:?} in {}", answer.text);
        if !answer.status.is_success() && self.path != "/health" && !self.is_for_sdks() {
            let code = answer.json()["error"]["code"].clone();
            answer.error(answer.status.as_u16(), code.as_str().unwrap());
        }
    }
}

/// A finished generation, a key, a template and a webhook with a delivery of an account.
pub async fn objects(app: &TestApp, account: &Account) -> Objects {
    let webhook_id = webhook(app, account).await;
    let body = json!({"prompt": "x", "parameters": {"max_tokens": 8}});
    let record = app.text(&account.key, body).await.expect(200);
    let made = app
        .post(&account.key, "/v1/api-keys", &json!({"name": "walk"}))
        .await
        .expect(201);
    Objects {
        uuid: record["uuid"].as_str().unwrap().to_owned(),
        key_id: made["id"].as_i64().unwrap(),
        webhook_id,
        delivery_id: delivery(app, account, webhook_id).await,
        template_id: app.template(account, "{{ prompt }}", None).await,
        upload_id: uploads::upload(app, account, 4, 4).await["id"]
            .as_str()
            .unwrap()
            .to_owned(),
    }
}

/// The account's only webhook, created if it has none: their number is limited.
async fn webhook(app: &TestApp, account: &Account) -> i64 {
    let found = app.get(&account.key, "/v1/webhooks").await.expect(200);
    if let Some(id) = found["data"][0]["id"].as_i64() {
        return id;
    }
    let body = json!({"url": "http://127.0.0.1:9/"});
    let made = app.post(&account.key, "/v1/webhooks", &body).await;
    made.expect(201)["id"].as_i64().unwrap()
}

async fn delivery(app: &TestApp, account: &Account, webhook: i64) -> i64 {
    let path = format!("/v1/webhooks/{webhook}/deliveries");
    let found = app.get(&account.key, &path).await.expect(200);
    found["data"][0]["id"].as_i64().unwrap()
}

#[sqlx::test]
async fn it_is_served_as_it_is_committed(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let answer = app.get("wrong", "/openapi.json").await;
    assert_eq!(answer.expect(200), document());
    assert_eq!(answer.header("content-type"), "application/json");
    assert!(
        document()["openapi"]
            .as_str()
            .is_some_and(|v| v.starts_with("3.1"))
    );
}

#[sqlx::test]
async fn without_a_token_only_what_is_public_answers(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let objects = objects(&app, &account).await;
    for operation in operations() {
        for token in ["", "wrong"] {
            let answer = operation.call(&app, token, &objects).await;
            operation.check(&answer, token);
            let code = match token {
                "" => "missing_token",
                _ => "invalid_token",
            };
            if operation.secured() {
                answer.error(401, code);
                assert_eq!(answer.header("www-authenticate"), "Bearer");
                assert_eq!(answer.header("x-ratelimit-limit"), "");
                assert_ne!(operation.ability(), "", "{}", operation.path);
            } else if operation.path == "/v1/auth/login" {
                answer.error(401, "invalid_credentials");
            } else if operation.is_media() {
                answer.error(403, "invalid_signature");
            } else if operation.path == "/metrics" {
                answer.error(403, "loopback_only");
            } else {
                assert_eq!(answer.status, 200, "{}", answer.text);
            }
        }
    }
}

#[sqlx::test]
async fn what_sdks_get_is_as_documented(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let objects = objects(&app, &account).await;
    let narrow = json!({"name": "n", "abilities": ["read:credits"]});
    let narrow = app.key(account.id, narrow).await;
    let mut walked = 0;
    for operation in every_operation().iter().filter(|o| o.is_for_sdks()) {
        let any = operation.ability() == "any";
        for (token, status) in [
            (account.key.as_str(), 200),
            (&narrow, if any { 200 } else { 403 }),
            ("wrong", 401),
            ("", 401),
        ] {
            let answer = operation.call(&app, token, &objects).await;
            assert_eq!(answer.status, status, "{}: {}", operation.path, answer.text);
            operation.check(&answer, token);
        }
        walked += 1;
    }
    assert_eq!(walked, 12);
}

#[sqlx::test]
async fn a_key_of_one_ability_gets_what_needs_it(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    let mut shared = objects(&app, &account).await;
    for ability in ABILITIES {
        let request = json!({"name": ability, "abilities": [ability]});
        let token = app.key(account.id, request).await;
        for operation in operations().iter().filter(|o| o.secured()) {
            let answer = operation.call(&app, &token, &shared).await;
            operation.check(&answer, ability);
            let needed = match operation.ability() {
                "of the type" => "generate:text",
                "generate:*" if ability.starts_with("generate:") => ability,
                other => other,
            };
            let at = format!("{} {} with {ability}", operation.method, operation.path);
            if needed == "session" {
                answer.error(403, "session_required");
            } else if needed == "any" || [needed, "*"].contains(&ability) {
                assert_ne!(answer.status, 403, "{at}");
                assert_ne!(answer.status, 401, "{at}");
            } else {
                let error = answer.error(403, "missing_ability");
                assert_eq!(error["required_ability"], needed, "{at}");
            }
            assert_eq!(answer.header("x-ratelimit-limit"), "600", "{at}");
            if operation.method == Method::DELETE {
                shared = objects(&app, &account).await;
            }
        }
    }
    // Videos and speech wait for a worker.
    app.assert_verified().await;
}

#[sqlx::test]
async fn a_session_gets_everything(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    for operation in operations() {
        let objects = objects(&app, &account).await;
        let token = app.login(&account).await;
        let answer = operation.call(&app, &token, &objects).await;
        operation.check(&answer, "with a session");
        match operation.path.as_str() {
            "/v1/generate/{uuid}/cancel" => _ = answer.error(409, "already_finished"),
            "/v1/media/{uuid}/{file}" => _ = answer.error(403, "invalid_signature"),
            "/metrics" => _ = answer.error(403, "loopback_only"),
            "/v1/auth/login" => _ = answer.error(401, "invalid_credentials"),
            "/v1/auth/password" => _ = answer.fields(),
            _ => assert!(answer.status.is_success(), "{}", answer.text),
        }
    }
}

#[sqlx::test]
async fn what_another_account_owns_is_not_found(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (mine, other) = (app.account("10").await, app.account("10").await);
    let theirs = objects(&app, &other).await;
    let session = app.login(&mine).await;
    let none = Objects {
        uuid: "0197c0de-0000-7000-8000-000000000000".to_owned(),
        key_id: i64::MAX,
        webhook_id: i64::MAX,
        delivery_id: i64::MAX,
        template_id: i64::MAX,
        upload_id: format!("upl_{}", "0".repeat(32)),
    };
    for operation in operations().iter().filter(|o| o.owned()) {
        for token in [&mine.key, &session] {
            let found = operation.call(&app, token, &theirs).await;
            operation.check(&found, "of another account");
            let missing = operation.call(&app, token, &none).await;
            let (mut found, mut missing) = (
                found.error(404, "not_found"),
                missing.error(404, "not_found"),
            );
            found["request_id"] = json!("");
            missing["request_id"] = json!("");
            assert_eq!(found, missing, "existence leaks at {}", operation.path);
        }
    }
    // No object of the other account was changed.
    let key = format!("/v1/api-keys/{}", theirs.key_id);
    assert_eq!(
        app.get(&other.key, &key).await.expect(200)["revoked_at"],
        Value::Null
    );
    let generation = format!("/v1/generate/{}", theirs.uuid);
    app.get(&other.key, &generation).await.expect(200);
    let webhook = format!("/v1/webhooks/{}/deliveries", theirs.webhook_id);
    app.get(&other.key, &webhook).await.expect(200);
    let template = format!("/v1/templates/{}", theirs.template_id);
    let template = app.get(&other.key, &template).await.expect(200);
    assert_eq!(template["version"], 1);
}

//! Examples of answers: recorded here, one for each answer, and true.

use std::{fs, time::Duration};

use gensvc::{
    domain::{credits::Credits, validate::Object as _},
    request::{AccountRequest, Login},
};
use http::Method;
use serde_json::{Map, Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{Operation, document, every_operation, objects, schema, target};
use crate::{
    common::{Account, Answer, TestApp},
    v1::admin::operator,
};

const RECORDED: &str = "src/api/openapi/answers.json";

/// Members whose values are secrets, and what stands for them.
const SECRETS: [(&str, &str); 4] = [
    ("key_hint", "svc_7Hq2...tQ0w"),
    ("key", "svc_7Hq2mXv9LrT4bKzW1nYdP6sJf8cGa3eUo5iRtQ0w"),
    (
        "secret",
        "whsec_bm90IGEgc2VjcmV0LCBidXQgYXMgbG9uZyBhcyBvbmU=",
    ),
    ("token", "qJ5n0cW8yT2vK7xR4mZ1bL9dF6gH3sP0aE8uN5iO2kY"),
];
/// What addresses become.
const ADDRESSES: [(&str, &str); 2] = [
    ("http://test", "https://gensvc.example.com"),
    ("http://127.0.0.1:9/", "https://example.com/hooks/gensvc"),
];
/// Entries of a page, and of a list that has no pages.
const ENTRIES: usize = 2;

/// The answers to the documented requests have the same members as the recorded ones. `make openapi`
/// records them again if they differ.
#[sqlx::test]
async fn recorded_answers_are_as_the_server_answers(_: PgPoolOptions, options: PgConnectOptions) {
    let mut answers = recorded(&TestApp::new(options).await).await;
    let committed: Value = serde_json::from_str(&fs::read_to_string(RECORDED).unwrap()).unwrap();
    if shape(&answers) == shape(&committed) {
        return;
    }
    assert!(
        std::env::var_os("UPDATE_OPENAPI").is_some(),
        "{RECORDED} is out of date: run make openapi"
    );
    answers.sort_all_objects();
    fs::write(RECORDED, format!("{answers:#}\n")).unwrap();
}

/// A success of each operation, by status.
async fn recorded(app: &TestApp) -> Value {
    let login: Value = serde_json::from_str(Login::EXAMPLE).unwrap();
    let text = |name: &str| login[name].as_str().unwrap().to_owned();
    let account = made(app, &text("email"), &text("password")).await;
    let admin = operator(app).await;
    let mut answers = json!({});
    let mut note = |operation: &str, answer: &Answer| {
        if !answer.text.is_empty() {
            let status = answer.status.as_str();
            answers[operation][status] = tidied(&answer.json());
        }
    };
    for operation in every_operation() {
        // A change of the password answers with nothing, and would end the next login. Speech is
        // answered with a file.
        const NONE: [&str; 3] = ["/metrics", "/v1/auth/password", "/openai/v1/audio/speech"];
        if operation.is_media() || NONE.contains(&&*operation.path) {
            continue;
        }
        let mut objects = objects(app, &account).await;
        if operation.path.ends_with("/cancel") {
            let body = json!({"prompt": "[[slow:600]] Waves", "parameters": {"duration": 1}});
            objects.uuid = app.queue(&account, "video", &body).await;
        }
        let id = operation.spec["operationId"].as_str().unwrap().to_owned();
        if operation.is_admin() {
            let other = made(app, &format!("{id}@example.com"), "correct horse").await;
            let theirs = super::objects(app, &other).await;
            let url = operation.admin_url(&other.id.to_string(), Some(&theirs));
            // A movement that is sent again is the same movement.
            let times = if url.ends_with("/credits") { 2 } else { 1 };
            for _ in 0..times {
                let answer = operation
                    .call_at(app, &admin, &paged(&operation, url.clone()))
                    .await;
                assert!(answer.status.is_success(), "{id}: {}", answer.text);
                note(&id, &answer);
            }
            continue;
        }
        let session = app.post("", "/v1/auth/login", &login).await.expect(200);
        let session = session["token"].as_str().unwrap();
        let url = paged(&operation, operation.url(&objects));
        let answer = operation.call_at(app, session, &url).await;
        assert!(answer.status.is_success(), "{id}: {}", answer.text);
        note(&id, &answer);
        let generates =
            operation.method == Method::POST && operation.path.starts_with("/v1/generate/");
        if !generates || operation.path.ends_with("/cancel") {
            continue;
        }
        if answer.status == 202 {
            let uuid = answer.json()["uuid"].as_str().unwrap().to_owned();
            app.until_finished(&account, &uuid).await;
            note(
                &id,
                &app.get(&account.key, &format!("/v1/generate/{uuid}")).await,
            );
        } else {
            let headers = [
                ("content-type", "application/json"),
                ("prefer", "respond-async"),
            ];
            let body = operation.body().map(|body| body.to_string());
            let path = operation.path.as_str();
            note(
                &id,
                &app.call(Method::POST, session, path, &headers, body).await,
            );
        }
    }
    let body = json!({"prompt": "[[fail]] A haiku about exactness"});
    let failed = app.text(&account.key, body).await;
    failed.error(502, "provider_error");
    app.store.close(Duration::from_secs(9)).await;
    app.advance(chrono::TimeDelta::seconds(60));
    let unavailable = app.get("", "/health").await;
    assert_eq!(unavailable.status, 503);
    note("health_health", &unavailable);
    answers["failed"] = tidied(&failed.json());
    answers
}

/// Its URL, with a short page where it has pages.
fn paged(operation: &Operation, url: String) -> String {
    let mut parameters = operation.spec["parameters"]
        .as_array()
        .into_iter()
        .flatten();
    if parameters.any(|parameter| parameter["name"] == "per_page") {
        format!("{url}?per_page={ENTRIES}")
    } else {
        url
    }
}

async fn made(app: &TestApp, email: &str, password: &str) -> Account {
    let request = AccountRequest {
        email: email.to_owned(),
        password: password.into(),
        name: Some("Ada".to_owned()),
        credits: "1000".parse::<Credits>().unwrap(),
    };
    let (id, _) = app.app.service.create_account(&request).await.unwrap();
    let key = json!({"name": "backend", "rate_limit_per_minute": 1_000_000});
    Account {
        id,
        email: email.to_owned(),
        key: app.key(id, key).await,
    }
}

/// An answer as it is shown: short, and without secrets.
fn tidied(answer: &Value) -> Value {
    match answer {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| {
                let secret = SECRETS.iter().find(|(secret, _)| secret == name);
                let value = match (secret, value) {
                    (Some((_, instead)), Value::String(_)) => json!(instead),
                    (None, Value::Array(items)) if name == "data" => {
                        items.iter().take(ENTRIES).map(tidied).collect()
                    }
                    _ => tidied(value),
                };
                (name.clone(), value)
            })
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(tidied).collect(),
        Value::String(text) => {
            let text = ADDRESSES
                .iter()
                .fold(text.clone(), |text, (from, to)| text.replace(from, to));
            text.into()
        }
        other => other.clone(),
    }
}

/// The names of all members, at any depth, and the lengths of lists in them.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| match value {
                Value::Array(items) if name == "data" => (name.clone(), items.first().map(shape)),
                _ => (name.clone(), Some(shape(value))),
            })
            .map(|(name, shape)| (name, json!(shape)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(shape).collect(),
        _ => Value::Null,
    }
}

/// The examples of an answer, with their names.
fn examples_of(document: &Value, content: &Value) -> Vec<(String, Value)> {
    let only = content.get("example");
    let named = content["examples"].as_object().into_iter().flatten();
    let named =
        named.map(|(name, example)| (name.clone(), target(document, example)["value"].clone()));
    let only = only.map(|example| (String::new(), example.clone()));
    only.into_iter().chain(named).collect()
}

#[test]
fn every_json_answer_has_an_example_that_fits_its_schema() {
    let document = document();
    let mut seen = 0;
    for operation in every_operation() {
        for (status, response) in operation.spec["responses"].as_object().unwrap() {
            let Some(content) = response["content"].get("application/json") else {
                continue;
            };
            let at = format!("{} {} {status}", operation.method, operation.path);
            let examples = examples_of(&document, content);
            assert!(!examples.is_empty(), "{at}: no example; run make openapi");
            for (name, example) in examples {
                let errors = schema::errors(&content["schema"], &example);
                assert!(errors.is_empty(), "{at}: {errors:?} in {example}");
                if !name.is_empty() {
                    assert_eq!(example["error"]["code"], name, "{at}");
                }
                check_sense(&operation, &example, &at);
                seen += 1;
            }
        }
    }
    assert!(seen > 500, "only {seen}");
}

/// That an example does not contradict itself, nor its operation.
fn check_sense(operation: &Operation, example: &Value, at: &str) {
    if example["next_cursor"].is_string() {
        let entries = example["data"].as_array().unwrap().len();
        assert_eq!(example["per_page"], entries, "{at}");
    }
    let error = &example["error"];
    let ability = operation.ability();
    if error["code"] == "missing_ability" && (ability == "*" || ability.contains(':')) {
        assert_eq!(error["required_ability"], ability, "{at}");
    }
    if let Some(affordable) = error["affordable"].as_object() {
        let named = match ability {
            "generate:text" => "max_tokens",
            "generate:image" => "n",
            "generate:video" => "duration",
            "generate:audio" => "characters",
            other => panic!("{at}: {other} costs nothing"),
        };
        assert!(affordable.contains_key(named), "{at}: {affordable:?}");
    }
}

/// What the document says of a misspelt field is what the server says.
#[sqlx::test]
async fn a_misspelt_field_is_refused_as_the_example_shows(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let (session, admin) = (app.login(&account).await, operator(&app).await);
    let objects = objects(&app, &account).await;
    for operation in every_operation() {
        // It asks for its token first, which this server does not have.
        if operation.path == "/metrics" || operation.is_for_sdks() {
            continue;
        }
        let answer = misspelt(&app, &operation, &objects, &session, &admin, &account).await;
        let at = format!("{} {}", operation.method, operation.path);
        let mut error = answer.error(422, "validation_failed");
        let content = &operation.spec["responses"]["422"]["content"]["application/json"];
        let mut shown = content["examples"]["validation_failed"]["value"]["error"].clone();
        error["request_id"] = Value::Null;
        shown["request_id"] = Value::Null;
        assert_eq!(error, shown, "{at}");
    }
}

async fn misspelt(
    app: &TestApp,
    operation: &Operation,
    objects: &super::Objects,
    session: &str,
    admin: &str,
    account: &Account,
) -> Answer {
    let (token, url) = if operation.is_admin() {
        (admin, operation.admin_url(&account.id.to_string(), None))
    } else {
        (session, operation.url(objects))
    };
    let (query, body) = if operation.body_schema().is_some() {
        ("", Some(json!({"promt": "A haiku"}).to_string()))
    } else {
        ("?promt=A+haiku", None)
    };
    let json = [("content-type", "application/json")];
    let headers = if body.is_some() { &json[..] } else { &[] };
    let path = format!("{url}{query}");
    app.call(operation.method.clone(), token, &path, headers, body)
        .await
}

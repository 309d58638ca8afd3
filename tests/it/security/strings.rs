//! Hostile strings in every field: they are data, here and in the database, and never SQL, a
//! header, or a pattern.

use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::{
    common::{Answer, TestApp},
    openapi_walk::{objects, operations},
    v1::admin::operator,
};

const HOSTILE: [&str; 12] = [
    "'; drop table accounts; --",
    "' or '1'='1",
    "\" or \"\"=\"",
    "\\'; select pg_sleep(99); --",
    "1); update accounts set balance = 9 --",
    "$1 $2 $$; :name ?",
    "%",
    "_%_",
    "a\r\nX-Evil: yes\r\n\r\n<html>",
    "\u{1b}[2J\u{7}",
    "<script>alert(1)</script>",
    "../../../../etc/passwd",
];

fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Refused or accepted, but parsed; and no header of ours contains it.
#[track_caller]
fn check(answer: &Answer, at: &str) {
    assert!(
        answer.status.as_u16() < 500,
        "{at}: {} {}",
        answer.status,
        answer.text
    );
    assert!(!answer.headers.contains_key("x-evil"), "{at}");
    for (name, value) in &answer.headers {
        let visible = value
            .to_str()
            .is_ok_and(|v| !v.contains(|c: char| c.is_control()));
        assert!(visible, "{at}: {name}: {value:?}");
    }
}

/// Replaces every string of a value, one at a time.
fn injected(value: &Value, text: &str) -> Vec<Value> {
    match value {
        Value::String(_) => vec![json!(text)],
        Value::Object(members) => {
            let each = members.iter().flat_map(|(name, member)| {
                injected(member, text).into_iter().map(|changed| {
                    let mut whole = members.clone();
                    whole.insert(name.clone(), changed);
                    Value::Object(whole)
                })
            });
            let mut named = members.clone();
            named.insert(text.to_owned(), json!(1));
            each.chain([Value::Object(named)]).collect()
        }
        Value::Array(items) => (0..items.len())
            .flat_map(|n| {
                injected(&items[n], text).into_iter().map(move |changed| {
                    let mut whole = items.clone();
                    whole[n] = changed;
                    Value::Array(whole)
                })
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// Every body field, query parameter and path parameter of the document.
#[sqlx::test]
async fn hostile_strings_are_data_in_every_field(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("1000").await, app.account("7").await);
    let theirs = objects(&app, &other).await;
    let before = app.get(&other.key, "/v1/credits/balance").await.expect(200);
    let objects = objects(&app, &account).await;
    let json = [("content-type", "application/json")];
    let mut sent = 0;
    for operation in operations() {
        let (method, url) = (operation.method.clone(), operation.url(&objects));
        if method == Method::DELETE || operation.path.ends_with("/logout") {
            continue;
        }
        for text in HOSTILE {
            let at = format!("{method} {} {text:?}", operation.path);
            if let Some(body) = operation.body() {
                for body in injected(&body, text) {
                    let body = Some(body.to_string());
                    let (key, method) = (&account.key, method.clone());
                    check(&app.call(method, key, &url, &json, body).await, &at);
                    sent += 1;
                }
                continue;
            }
            let parameters = operation.spec["parameters"]
                .as_array()
                .into_iter()
                .flatten();
            for parameter in parameters.filter(|p| p["in"] == "query") {
                let name = parameter["name"].as_str().unwrap();
                let url = format!("{url}?{name}={}", encoded(text));
                let answer = app
                    .call(method.clone(), &account.key, &url, &[], None)
                    .await;
                check(&answer, &at);
                // A filter shows what contains its text, and nothing else.
                if answer.status == 200
                    && let Some(found) = answer.json()["data"].as_array()
                {
                    let contains = |record: &Value| {
                        let prompt = record["prompt"].as_str().unwrap_or_default();
                        name == "prompt" && prompt.contains(text)
                    };
                    assert!(found.iter().all(contains), "{at} {name}");
                }
                sent += 1;
            }
            let last = url.rsplit('/').next().unwrap();
            let path = url.replace(last, &encoded(text).replace('+', "%20"));
            check(
                &app.call(method.clone(), &account.key, &path, &[], None)
                    .await,
                &at,
            );
            sent += 1;
        }
    }
    assert!(sent > 500, "only {sent}");
    // All of it is there, and the other account is unchanged.
    let after = app.get(&other.key, "/v1/credits/balance").await.expect(200);
    assert_eq!(after, before);
    let record = format!("/v1/generate/{}", theirs.uuid);
    assert_eq!(
        app.get(&other.key, &record).await.expect(200)["status"],
        "completed"
    );
    app.assert_verified().await;
}

#[sqlx::test]
async fn hostile_strings_come_back_as_they_were(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    let admin = operator(&app).await;
    for text in HOSTILE {
        let key = app
            .post(&account.key, "/v1/api-keys", &json!({"name": text}))
            .await;
        let key = key.expect(201);
        let path = format!("/v1/api-keys/{}", key["id"]);
        assert_eq!(app.get(&account.key, &path).await.expect(200)["name"], text);
        let record = app
            .text(&account.key, json!({"prompt": text}))
            .await
            .expect(200);
        assert_eq!(record["prompt"], text);
        let path = format!("/v1/generate/{}", record["uuid"].as_str().unwrap());
        assert_eq!(
            app.get(&account.key, &path).await.expect(200)["prompt"],
            text
        );
        // An email that looks like a pattern matches no account and cannot log in.
        let path = format!("/v1/admin/accounts?email={}", encoded(text));
        assert_eq!(app.get(&admin, &path).await.expect(200)["data"], json!([]));
        let login = json!({"email": text, "password": text.repeat(2)});
        let answer = app.post("", "/v1/auth/login", &login).await;
        answer.error(401, "invalid_credentials");
        let path = format!("/v1/admin/accounts/{}/credits", account.id);
        let body = json!({"amount": "1", "kind": "grant", "reference": text});
        let entry = app.post(&admin, &path, &body).await;
        if entry.status.is_success() {
            assert_eq!(entry.json()["reference"], text);
        } else {
            entry.fields();
        }
    }
    app.assert_settled().await;
}

//! /v1/webhooks: create, list, look up, delete.

mod delivery;
mod failures;
mod many;
mod redeliver;

use chrono::SecondsFormat;
use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{Account, Reply, TestApp, Upstream};

const HOOKS: &str = "/v1/webhooks";
const URL: &str = "https://example.com/hook";

/// A receiver that accepts everything.
async fn receiver() -> Upstream {
    let receiver = Upstream::start().await;
    receiver.reply(Reply::Status(200, json!({"ok": true})));
    receiver
}

/// A webhook of an account for all events: the response of its creation.
async fn hook(app: &TestApp, account: &Account, receiver: &Upstream) -> Value {
    let body = json!({"url": format!("{}/hook", receiver.url())});
    app.post(&account.key, HOOKS, &body).await.expect(201)
}

/// The deliveries of a webhook, newest first.
async fn deliveries(app: &TestApp, account: &Account, hook: &Value) -> Vec<Value> {
    let path = format!("{HOOKS}/{}/deliveries?per_page=100", hook["id"]);
    let page = app.get(&account.key, &path).await.expect(200);
    page["data"].as_array().unwrap().clone()
}

/// The only delivery of a webhook.
async fn only(app: &TestApp, account: &Account, hook: &Value) -> Value {
    let found = deliveries(app, account, hook).await;
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

/// Generates a text; returns its record.
async fn text(app: &TestApp, account: &Account) -> Value {
    let body = json!({"prompt": "x", "parameters": {"max_tokens": 8}});
    app.text(&account.key, body).await.expect(200)
}

#[sqlx::test]
async fn its_secret_is_shown_once(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let session = app.login(&account).await;
    for creator in [&session, &account.key] {
        let body = json!({"url": URL, "events": ["generation.failed"]});
        let mut made = app.post(creator, HOOKS, &body).await.expect(201);
        let secret = made["secret"].as_str().unwrap().to_owned();
        let (_, random) = secret.split_once("whsec_").unwrap();
        assert_eq!(random.len(), 44);
        let now = app.now().to_rfc3339_opts(SecondsFormat::Micros, true);
        assert_eq!(
            made,
            json!({"id": made["id"], "url": URL, "events": ["generation.failed"],
                "secret": secret, "created_at": now})
        );
        made.as_object_mut().unwrap().remove("secret");
        let path = format!("{HOOKS}/{}", made["id"]);
        let found = app.get(&account.key, &path).await;
        assert_eq!(found.expect(200), made);
        let list = app.get(&account.key, HOOKS).await;
        assert_eq!(list.expect(200)["data"][0], made);
        assert!(!found.text.contains("whsec") && !list.text.contains("whsec"));
    }
    // Omitted or null: all events.
    for body in [json!({"url": URL}), json!({"url": URL, "events": null})] {
        let made = app.post(&session, HOOKS, &body).await.expect(201);
        let all = json!(["generation.completed", "generation.failed"]);
        assert_eq!(made["events"], all);
    }
}

#[sqlx::test]
async fn what_is_wrong_is_named(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let long = format!("https://example.com/{}", "é".repeat(2_029));
    for (body, field, code) in [
        (json!({}), "url", "required"),
        (json!({"url": " "}), "url", "required"),
        (json!({"url": 1}), "url", "invalid_type"),
        (json!({"url": long}), "url", "too_long"),
        (json!({"url": "example.com/hook"}), "url", "invalid_format"),
        (json!({"url": "https://"}), "url", "invalid_format"),
        (json!({"url": "https://a b/"}), "url", "invalid_format"),
        (
            json!({"url": "https://a.example/\n"}),
            "url",
            "invalid_format",
        ),
        (json!({"url": "ftp://a.example/"}), "url", "not_allowed"),
        (json!({"url": "file:///etc/passwd"}), "url", "not_allowed"),
        (
            json!({"url": "https://me@a.example/"}),
            "url",
            "not_allowed",
        ),
        (
            json!({"url": "https://:pw@a.example/"}),
            "url",
            "not_allowed",
        ),
        (json!({"url": "https://a.example/#x"}), "url", "not_allowed"),
        (
            json!({"url": URL, "events": "all"}),
            "events",
            "invalid_type",
        ),
        (json!({"url": URL, "events": []}), "events", "not_allowed"),
        (
            json!({"url": URL, "events": ["*"]}),
            "events[0]",
            "not_allowed",
        ),
        (
            json!({"url": URL, "events": ["generation.failed", "generation.failed"]}),
            "events[1]",
            "not_allowed",
        ),
        (
            json!({"url": URL, "secret": "x"}),
            "secret",
            "unknown_field",
        ),
    ] {
        let found = app.post(&account.key, HOOKS, &body).await.fields();
        let expected = [(field.to_owned(), code.to_owned())];
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected, "{body}");
    }
    let all_at_once = json!({"url": "x", "events": ["x"], "x": 1});
    let found = app.post(&account.key, HOOKS, &all_at_once).await.fields();
    assert_eq!(found.len(), 3);
    let good = format!("https://example.com/{}", "é".repeat(2_028));
    for url in [
        good.as_str(),
        "http://127.0.0.1:1/",
        "http://nowhere.invalid/",
    ] {
        let made = app.post(&account.key, HOOKS, &json!({"url": url})).await;
        assert_eq!(made.expect(201)["url"], url);
    }
}

#[sqlx::test]
async fn private_and_unresolvable_addresses_are_refused(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::with(options, &[("GENSVC__WEBHOOKS__ALLOW_PRIVATE", "false")]).await;
    let account = app.account("1").await;
    for url in [
        "http://127.0.0.1:8080/",
        "https://127.1/",
        "https://2130706433/",
        "https://10.0.0.7/",
        "http://169.254.169.254/latest/meta-data",
        "https://[::1]/",
        "https://[::ffff:192.168.0.1]/",
        "https://localhost/",
        "https://nowhere.invalid/",
    ] {
        let answer = app.post(&account.key, HOOKS, &json!({"url": url})).await;
        assert_eq!(answer.fields()["url"], "not_allowed", "{url}");
        let names_setting = answer.text.contains("GENSVC__WEBHOOKS__ALLOW_PRIVATE=true");
        assert_eq!(names_setting, !url.contains("invalid"), "{}", answer.text);
    }
    let list = app.get(&account.key, HOOKS).await.expect(200);
    assert_eq!(list["data"], json!([]));
    for url in ["https://8.8.8.8/", "http://[2606:4700::1]:8080/x?y=z"] {
        let made = app.post(&account.key, HOOKS, &json!({"url": url})).await;
        made.expect(201);
    }
}

#[sqlx::test]
async fn an_account_has_at_most_twenty(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("1").await, app.account("1").await);
    let body = json!({"url": URL});
    let tries = (0..30).map(|_| app.post(&account.key, HOOKS, &body));
    let answers = join_all(tries).await;
    let made: Vec<_> = answers.iter().filter(|a| a.status == 201).collect();
    assert_eq!(made.len(), 20);
    for refused in answers.iter().filter(|a| a.status != 201) {
        assert_eq!(refused.fields()["url"], "not_allowed");
        assert!(refused.text.contains("at most 20"), "{}", refused.text);
    }
    app.post(&other.key, HOOKS, &body).await.expect(201);
    let path = format!("{HOOKS}/{}", made[7].json()["id"]);
    app.delete(&account.key, &path).await.expect(204);
    app.post(&account.key, HOOKS, &body).await.expect(201);
    app.post(&account.key, HOOKS, &body).await.fields();
}

#[sqlx::test]
async fn pages_hold_each_once(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let mut ids = Vec::new();
    for _ in 0..7 {
        let made = app.post(&account.key, HOOKS, &json!({"url": URL})).await;
        ids.push(made.expect(201)["id"].as_i64().unwrap());
    }
    ids.reverse();
    let (mut found, mut path) = (Vec::new(), format!("{HOOKS}?per_page=3"));
    while !path.is_empty() {
        let page = app.get(&account.key, &path).await;
        let rows = page.expect(200)["data"].as_array().unwrap().clone();
        found.extend(rows.iter().map(|row| row["id"].as_i64().unwrap()));
        path = page.next_page();
    }
    assert_eq!(found, ids);
}

#[sqlx::test]
async fn it_is_the_accounts_own(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("10").await, app.account("10").await);
    let made = app.post(&account.key, HOOKS, &json!({"url": URL})).await;
    let made = made.expect(201);
    let theirs = app.post(&other.key, HOOKS, &json!({"url": URL})).await;
    let theirs = theirs.expect(201);
    text(&app, &account).await;
    let delivery = only(&app, &account, &made).await["id"].clone();
    let id = &made["id"];
    for (method, path) in [
        (Method::GET, format!("{HOOKS}/{id}")),
        (Method::DELETE, format!("{HOOKS}/{id}")),
        (Method::GET, format!("{HOOKS}/{id}/deliveries")),
        (
            Method::POST,
            format!("{HOOKS}/{id}/deliveries/{delivery}/redeliver"),
        ),
        (
            Method::POST,
            format!("{HOOKS}/{}/deliveries/{delivery}/redeliver", theirs["id"]),
        ),
    ] {
        let answer = app.call(method.clone(), &other.key, &path, &[], None).await;
        answer.error(404, "not_found");
        for abilities in [json!(["read:history"]), json!(["generate:text"])] {
            let body = json!({"name": "x", "abilities": abilities});
            let key = app.key(account.id, body).await;
            let answer = app.call(method.clone(), &key, &path, &[], None).await;
            let error = answer.error(403, "missing_ability");
            assert_eq!(error["required_ability"], "*");
        }
    }
    for path in [
        "x",
        "-1",
        "+1",
        "99999999999999999999",
        "1/deliveries/x/redeliver",
    ] {
        let method = if path.contains('/') {
            Method::POST
        } else {
            Method::GET
        };
        let path = format!("{HOOKS}/{path}");
        let answer = app.call(method, &account.key, &path, &[], None).await;
        answer.error(404, "not_found");
    }
    // The other's webhook got nothing, and this one is unchanged.
    assert_eq!(deliveries(&app, &other, &theirs).await, Vec::<Value>::new());
    assert_eq!(only(&app, &account, &made).await["attempts"], 0);
}

#[sqlx::test]
async fn a_revoked_key_makes_none(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let made = app
        .post(&account.key, "/v1/api-keys", &json!({"name": "x"}))
        .await
        .expect(201);
    let key = made["key"].as_str().unwrap();
    app.post(key, HOOKS, &json!({"url": URL})).await.expect(201);
    let path = format!("/v1/api-keys/{}", made["id"]);
    app.delete(&account.key, &path).await.expect(200);
    let refused = app.post(key, HOOKS, &json!({"url": URL})).await;
    refused.error(401, "revoked_key");
}

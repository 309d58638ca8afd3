//! What forms do: keys, templates, settings, webhooks.

use http::StatusCode;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{Browser, generate, uuid_after, words};
use crate::common::TestApp;

#[sqlx::test]
async fn a_key_is_made_shown_once_used_and_revoked(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let browser = Browser::logged_in(&app, &account).await;
    let fields = [
        ("name", "backend"),
        ("scope", "some"),
        ("ability", "generate:text"),
        ("ability", "read:credits"),
        ("rate_limit_per_minute", "30"),
        ("expires_at", "2030-01-31"),
        ("spend_limit", "2.5"),
        ("spend_period", "day"),
    ];
    let made = browser.post("/keys", &fields).await;
    let made = browser.follow(&made).await;
    let at = made.text.find("svc_").unwrap();
    let key = &made.text[at..at + 44];
    app.text(key, json!({"prompt": "x"})).await.expect(200);
    app.get(key, "/v1/generate/history")
        .await
        .error(403, "missing_ability");
    let listed = app.get(&account.key, "/v1/api-keys").await.json()["data"][0].clone();
    assert_eq!(
        listed["abilities"],
        json!(["generate:text", "read:credits"])
    );
    assert_eq!(listed["rate_limit_per_minute"], 30);
    assert_eq!(listed["expires_at"], "2030-02-01T00:00:00.000000Z");
    assert_eq!(
        (&listed["spend_limit"], &listed["spend_period"]),
        (&json!("2.5"), &json!("day"))
    );
    let path = format!("/keys/{}", listed["id"]);
    let page = browser.page(&path).await;
    assert!(!page.contains(key), "{page}");
    assert!(
        words(&page).contains(listed["spent"].as_str().unwrap()),
        "{page}"
    );
    let revoked = browser.post(&format!("{path}/revoke"), &[]).await;
    assert_eq!(revoked.header("location"), path);
    assert!(words(&browser.page(&path).await).contains("Revoked"));
    app.text(key, json!({"prompt": "x"}))
        .await
        .error(401, "revoked_key");
}

/// Fields keep what was typed, and each says what is wrong with it.
#[sqlx::test]
async fn a_refused_form_says_why_beside_the_field(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let browser = Browser::logged_in(&app, &account).await;
    let fields = [
        ("name", "a name"),
        ("rate_limit_per_minute", "0"),
        ("spend_limit", "much"),
    ];
    let answer = browser.post("/keys", &fields).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    let page = words(&answer.text);
    assert!(page.contains("Must be between 1 and 1000000."), "{page}");
    assert!(page.contains("Must be a decimal number"), "{page}");
    assert!(answer.text.contains("value=\"a name\"") && answer.text.contains("value=\"much\""));
    let long = "x".repeat(10_001);
    let fields = [
        ("prompt", long.as_str()),
        ("p.max_tokens", "5000"),
        ("model", "sandbox/sandbox-text-1"),
    ];
    let answer = browser.post("/playground/text", &fields).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    let page = words(&answer.text);
    assert!(page.contains("Must be between 1 and 4096"), "{page}");
    assert!(
        page.contains("Must be at most 10,000 characters") || page.contains("10000"),
        "{page}"
    );
    let fields = [
        ("current_password", "wrong password"),
        ("new_password", "battery staple"),
    ];
    let answer = browser.post("/settings/password", &fields).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        words(&answer.text).contains("Is not the current password."),
        "{}",
        answer.text
    );
}

/// A key that was to end must not live for ever.
#[sqlx::test]
async fn a_last_day_that_is_none_makes_no_key(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let browser = Browser::logged_in(&app, &account).await;
    for day in ["31.01.2030", "9999-12-31", "+262142-12-31"] {
        let fields = [("name", "short"), ("expires_at", day)];
        let answer = browser.post("/keys", &fields).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{day}");
        assert!(words(&answer.text).contains("Must be an ISO 8601 time"));
    }
    let keys = app.get(&account.key, "/v1/api-keys").await.json();
    assert_eq!(keys["data"].as_array().unwrap().len(), 1);
}

#[sqlx::test]
async fn a_template_is_previewed_kept_and_replaced(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let browser = Browser::logged_in(&app, &account).await;
    let fields = [
        ("name", "translate"),
        ("prompt", "Into {{ language }}: {{ prompt }}"),
        ("v.language", "French"),
        ("v.prompt", "Good morning"),
    ];
    let mut preview = fields.to_vec();
    preview.push(("action", "preview"));
    let page = browser.post("/templates", &preview).await;
    assert!(
        words(&page.text).contains("Into French: Good morning"),
        "{}",
        page.text
    );
    let missing = [("prompt", "Into {{ language }}"), ("action", "preview")];
    let page = browser.post("/templates", &missing).await;
    let marked = "Into <span class=\"variable\">{{ language }}</span>";
    assert!(page.text.contains(marked), "{}", page.text);
    assert!(!page.text.contains("notice bad"), "{}", page.text);
    assert!(page.text.contains("name=\"v.language\""), "{}", page.text);
    let made = browser.post("/templates", &fields).await;
    let path = made.header("location").to_owned();
    assert!(path.starts_with("/templates/"), "{}", made.text);
    let broken = [("name", "translate"), ("prompt", "{% set x = 1 %}")];
    let answer = browser.post(&path, &broken).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        words(&answer.text).contains("Is not a valid template"),
        "{}",
        answer.text
    );
    let new = [
        ("name", "translate"),
        ("prompt", "{{ prompt }}, in {{ language }}"),
    ];
    let answer = browser.post(&path, &new).await;
    let answer = browser.follow(&answer).await;
    assert!(words(&answer.text).contains("Saved, as a new version."));
    assert!(words(&answer.text).contains("version 2"), "{}", answer.text);
    let id = path.rsplit('/').next().unwrap();
    let use_it = [
        ("prompt", "Hello"),
        ("template_id", id),
        ("v.language", "Greek"),
    ];
    let page = browser.post("/playground/text", &use_it).await;
    let page = browser.follow(&page).await;
    let uuid = uuid_after(&page.text, "href=\"/generations/");
    let record = app
        .get(&account.key, &format!("/v1/generate/{uuid}"))
        .await
        .json();
    assert_eq!(record["prompt"], "Hello, in Greek");
    let gone = browser.post(&format!("{path}/delete"), &[]).await;
    assert_eq!(gone.header("location"), "/templates");
    assert_eq!(browser.get(&path).await.status, StatusCode::NOT_FOUND);
}

#[sqlx::test]
async fn settings_and_webhooks_are_changed(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let browser = Browser::logged_in(&app, &account).await;
    let fields = [
        ("text", "sandbox/sandbox-text-1"),
        ("image", "sandbox/"),
        ("video", ""),
        ("audio", ""),
    ];
    let page = browser.post("/settings", &fields).await;
    assert!(
        words(&page.text).contains("The defaults were saved."),
        "{}",
        page.text
    );
    let defaults = app.get(&account.key, "/v1/account").await.json()["defaults"].clone();
    assert_eq!(
        defaults["text"],
        json!({"provider": "sandbox", "model": "sandbox-text-1"})
    );
    assert_eq!(
        defaults["image"],
        json!({"provider": "sandbox", "model": null})
    );
    let hook = [
        ("url", "http://127.0.0.1:9/hook"),
        ("event", "generation.completed"),
    ];
    let page = browser.post("/webhooks", &hook).await;
    let page = browser.follow(&page).await;
    assert!(words(&page.text).contains("whsec_"), "{}", page.text);
    generate(&app, &account, "text", json!({"prompt": "x"})).await;
    let id = app.get(&account.key, "/v1/webhooks").await.json()["data"][0]["id"].to_string();
    let page = browser.page(&format!("/webhooks/{id}")).await;
    assert!(words(&page).contains("generation.completed"), "{page}");
    let action = page
        .split(&format!("action=\"/webhooks/{id}/deliveries/"))
        .nth(1)
        .unwrap();
    let delivery = action.split('"').next().unwrap();
    let again = browser
        .post(&format!("/webhooks/{id}/deliveries/{delivery}"), &[])
        .await;
    assert_eq!(again.header("location"), format!("/webhooks/{id}"));
    let refused = browser
        .post(
            "/webhooks",
            &[("url", "ftp://x"), ("event", "generation.failed")],
        )
        .await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        words(&refused.text).contains("Must begin with https://"),
        "{}",
        refused.text
    );
    browser.post(&format!("/webhooks/{id}/delete"), &[]).await;
    assert_eq!(
        browser.get(&format!("/webhooks/{id}")).await.status,
        StatusCode::NOT_FOUND
    );
}

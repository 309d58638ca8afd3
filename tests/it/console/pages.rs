//! What pages show: receipts, hostile content, the objects of others.

use http::StatusCode;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{Browser, generate, words};
use crate::common::TestApp;

const HOSTILE: &str = "\"><script>alert(1)</script><img src=x onerror=alert(2)>'&{{7*7}}";

#[sqlx::test]
async fn a_receipt_adds_up_to_what_was_charged(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    let browser = Browser::logged_in(&app, &account).await;
    for (kind, body) in [
        ("text", json!({"prompt": "Name three rivers"})),
        (
            "text",
            json!({"prompt": "[[cached:9]] Name three rivers, and say where they rise"}),
        ),
        (
            "image",
            json!({"prompt": "x", "parameters": {"size": "256x256", "n": 2, "quality": "hd"}}),
        ),
    ] {
        let record = generate(&app, &account, kind, body).await;
        let uuid = record["uuid"].as_str().unwrap();
        let page = words(&browser.page(&format!("/generations/{uuid}")).await);
        let charged = record["credits"]["charged"].as_str().unwrap();
        let sentence = format!("This is what was charged: {charged} credits.");
        assert!(page.contains(&sentence), "{sentence} {page}");
        for word in [
            "Hold",
            "Charge",
            "Completed",
            uuid,
            "Price row as it stood",
            "all",
        ] {
            assert!(page.contains(word), "{word} in {page}");
        }
    }
    let body = json!({"prompt": "[[fail]] x"});
    let refused = app
        .post(&account.key, "/v1/generate/text", &body)
        .await
        .expect(502);
    let uuid = refused["generation"]["uuid"].as_str().unwrap();
    let page = words(&browser.page(&format!("/generations/{uuid}")).await);
    for word in [
        "The provider failed",
        "It cost nothing",
        "Release",
        "Failed",
    ] {
        assert!(page.contains(word), "{word} in {page}");
    }
    app.assert_verified().await;
}

/// The playground asks again for what it can ask for.
#[sqlx::test]
async fn a_prompt_is_used_again_where_the_form_has_all_of_it(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    let browser = Browser::logged_in(&app, &account).await;
    let plain = generate(&app, &account, "text", json!({"prompt": "x"})).await;
    let chat = json!({"model": "sandbox/sandbox-text-1",
        "messages": [{"role": "user", "content": "Hello"}]});
    app.post(&account.key, "/openai/v1/chat/completions", &chat)
        .await
        .expect(200);
    let history = app.history(&account).await;
    for (record, offered) in [(&plain, true), (&history[0], false)] {
        let uuid = record["uuid"].as_str().unwrap();
        let page = browser.page(&format!("/generations/{uuid}")).await;
        assert_eq!(page.contains("Use this prompt"), offered, "{page}");
        assert_eq!(
            page.contains("Chat Completions (OpenAI)"),
            !offered,
            "{page}"
        );
    }
}

#[sqlx::test]
async fn a_receipt_has_the_request_id_and_a_new_form_does_not(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    let browser = Browser::logged_in(&app, &account).await;
    let body = json!({"prompt": "x", "parameters": {"max_tokens": 77}});
    let headers = [("x-request-id", "order-17")];
    let sent = app.post_with(&account.key, "/v1/generate/text", &headers, &body);
    let record = sent.await.expect(200);
    let uuid = record["uuid"].as_str().unwrap();
    let receipt = words(&browser.page(&format!("/generations/{uuid}")).await);
    assert!(receipt.contains("Request id order-17"), "{receipt}");
    assert!(!receipt.contains("X-Request-Id"), "{receipt}");
    let path = format!("/playground/text?generation={uuid}");
    let form = browser.page(&path).await;
    assert!(form.contains("value=\"77\""), "{form}");
    assert!(!form.contains("order-17"), "{form}");
    assert!(!form.to_lowercase().contains("x-request-id"), "{form}");
}

/// The figures of the last 30 days link to the rows of these 30 days.
#[sqlx::test]
async fn the_overview_leads_to_what_it_counts(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    generate(&app, &account, "text", json!({"prompt": "long ago"})).await;
    app.clock.advance(chrono::TimeDelta::days(30));
    generate(&app, &account, "text", json!({"prompt": "today"})).await;
    let browser = Browser::logged_in(&app, &account).await;
    let page = browser.page("/").await;
    let days = "from=2027-01-16&amp;to=2027-02-14";
    for path in ["/usage", "/generations"] {
        let link = format!("href=\"{path}?{days}\"");
        assert!(page.contains(&link), "{link} in {page}");
    }
    assert!(words(&page).contains("Generations in 30 days 1 "), "{page}");
    let link = format!("/generations?{}", days.replace("&amp;", "&"));
    let rows = browser.page(&link).await;
    assert!(
        rows.contains("today") && !rows.contains("long ago"),
        "{rows}"
    );
}

#[sqlx::test]
async fn search_finds_generations_and_keys(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("10").await, app.account("10").await);
    let browser = Browser::logged_in(&app, &account).await;
    let mine = generate(&app, &account, "text", json!({"prompt": "x"})).await;
    let theirs = generate(&app, &other, "text", json!({"prompt": "x"})).await;
    let keys = app.get(&account.key, "/v1/api-keys").await.json();
    let key = &keys["data"][0];
    let uuid = |record: &Value| record["uuid"].as_str().unwrap().to_owned();
    for (wanted, place) in [
        (uuid(&mine), format!("/generations/{}", uuid(&mine))),
        (
            key["key_hint"].as_str().unwrap().to_owned(),
            format!("/keys/{}", key["id"]),
        ),
    ] {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        let query = query.append_pair("q", &wanted).finish();
        let found = browser.get(&format!("/search?{query}")).await;
        assert_eq!(found.header("location"), place, "{wanted}");
    }
    for wanted in [
        uuid(&theirs),
        "%3Cb%3E".to_owned(),
        "a@example.com".to_owned(),
        String::new(),
    ] {
        let page = browser.page(&format!("/search?q={wanted}")).await;
        assert!(words(&page).contains("Nothing found"), "{page}");
        assert!(!page.contains("<b>"), "{page}");
    }
}

#[sqlx::test]
async fn hostile_content_is_text(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    let browser = Browser::logged_in(&app, &account).await;
    let body = json!({"prompt": format!("{HOSTILE}")});
    let record = generate(&app, &account, "text", body).await;
    let key = app
        .post(&account.key, "/v1/api-keys", &json!({"name": HOSTILE}))
        .await
        .expect(201);
    let template = json!({"name": HOSTILE, "prompt": "{{ x }}<b>", "system_prompt": "<i>"});
    let template = app
        .post(&account.key, "/v1/templates", &template)
        .await
        .expect(201);
    let hook = json!({"url": "http://127.0.0.1:9/?<script>alert(1)</script>"});
    let hook = app
        .post(&account.key, "/v1/webhooks", &hook)
        .await
        .expect(201);
    let pages = [
        "/".to_owned(),
        "/generations".to_owned(),
        format!("/generations/{}", record["uuid"].as_str().unwrap()),
        format!(
            "/playground/text?generation={}",
            record["uuid"].as_str().unwrap()
        ),
        "/playground/text".to_owned(),
        "/keys".to_owned(),
        format!("/keys/{}", key["id"]),
        "/usage?by=api_key".to_owned(),
        "/templates".to_owned(),
        format!("/templates/{}", template["id"]),
        "/webhooks".to_owned(),
        format!("/webhooks/{}", hook["id"]),
        "/generations?model=%22%3E%3Cscript%3Ealert(1)%3C/script%3E&from=%3Cscript%3E".to_owned(),
        "/login?next=/%22%3E%3Cscript%3E".to_owned(),
        "/ledger?kind=%3Cscript%3E".to_owned(),
    ];
    for path in pages {
        let answer = browser.get(&path).await;
        for wrong in ["<script>", "<img src=x", "<b>", "<i>"] {
            assert!(
                !answer.text.contains(wrong),
                "{wrong} in {path}: {}",
                answer.text
            );
        }
    }
}

#[sqlx::test]
async fn the_objects_of_others_are_not_found(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (mine, theirs) = (app.account("10").await, app.account("10").await);
    let browser = Browser::logged_in(&app, &mine).await;
    let record = generate(&app, &theirs, "text", json!({"prompt": "secret"})).await;
    let uuid = record["uuid"].as_str().unwrap();
    let key = app
        .post(&theirs.key, "/v1/api-keys", &json!({"name": "secret"}))
        .await
        .expect(201);
    let template = json!({"name": "secret", "prompt": "x"});
    let template = app
        .post(&theirs.key, "/v1/templates", &template)
        .await
        .expect(201);
    let hook = json!({"url": "http://127.0.0.1:9/secret"});
    let hook = app
        .post(&theirs.key, "/v1/webhooks", &hook)
        .await
        .expect(201);
    for path in [
        format!("/generations/{uuid}"),
        format!("/playground/text?generation={uuid}"),
        format!("/keys/{}", key["id"]),
        format!("/templates/{}", template["id"]),
        format!("/webhooks/{}", hook["id"]),
        "/generations/../keys".to_owned(),
        "/keys/x".to_owned(),
    ] {
        let answer = browser.get(&path).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        assert!(!answer.text.contains("secret"), "{path}");
    }
    for path in [
        format!("/generations/{uuid}/delete"),
        format!("/generations/{uuid}/cancel"),
        format!("/keys/{}/revoke", key["id"]),
        format!("/templates/{}/delete", template["id"]),
        format!("/webhooks/{}/delete", hook["id"]),
    ] {
        let answer = browser.post(&path, &[]).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
    }
    app.get(&theirs.key, &format!("/v1/generate/{uuid}"))
        .await
        .expect(200);
    let there = app
        .get(&theirs.key, &format!("/v1/api-keys/{}", key["id"]))
        .await
        .expect(200);
    assert_eq!(there["revoked_at"], Value::Null);
}

#[sqlx::test]
async fn a_job_is_watched_until_it_has_ended(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    let browser = Browser::logged_in(&app, &account).await;
    let record = generate(&app, &account, "video", json!({"prompt": "waves"})).await;
    let path = format!("/generations/{}", record["uuid"].as_str().unwrap());
    let page = browser.page(&path).await;
    assert!(page.contains(&format!("data-live=\"{path}\"")), "{page}");
    assert!(
        page.contains("<noscript><meta http-equiv=\"refresh\""),
        "{page}"
    );
    let record = app
        .until_finished(&account, record["uuid"].as_str().unwrap())
        .await;
    let page = browser.page(&path).await;
    assert!(
        !page.contains("data-live") && !page.contains("http-equiv"),
        "{page}"
    );
    let charged = record["credits"]["charged"].as_str().unwrap();
    let sentence = format!("This is what was charged: {charged} credits.");
    assert!(words(&page).contains(&sentence), "{page}");
    assert!(page.contains("<video "), "{page}");
}

//! Search by request ids and providers' ids, and what operators find of customers.

use http::StatusCode;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{Browser, operator::operator, words};
use crate::common::{Account, Answer, TestApp};

/// Generates a text with a request id, and returns its record.
async fn text(app: &TestApp, account: &Account, id: &str, prompt: &str) -> Value {
    let headers = [("x-request-id", id)];
    let body = json!({ "prompt": prompt });
    let sent = app.post_with(&account.key, "/v1/generate/text", &headers, &body);
    let answer = sent.await.json();
    answer.get("generation").unwrap_or(&answer).clone()
}

async fn search(browser: &Browser<'_>, wanted: &str) -> Answer {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    let query = query.append_pair("q", wanted).finish();
    browser.get(&format!("/search?{query}")).await
}

/// Searches for something that there is not.
async fn find_nothing(browser: &Browser<'_>, wanted: &str) -> String {
    let answer = search(browser, wanted).await;
    assert_eq!(answer.status, StatusCode::OK, "{wanted}: {}", answer.text);
    let page = words(&answer.text);
    assert!(page.contains("Nothing found"), "{wanted}: {page}");
    page
}

fn receipt(record: &Value) -> String {
    format!("/generations/{}", record["uuid"].as_str().unwrap())
}

#[sqlx::test]
async fn own_generations_are_found_by_every_id(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("100").await, app.account("100").await);
    let browser = Browser::logged_in(&app, &account).await;
    let longest = "x".repeat(128);
    let completed = text(&app, &account, "order-1", "an order").await;
    let failed = text(&app, &account, &longest, "[[fail]] x").await;
    let ours = app.text(&account.key, json!({"prompt": "ours"})).await;
    let given = ours.header("x-request-id").to_owned();
    let provider_id = completed["metadata"]["provider_request_id"].as_str();
    for (wanted, record) in [
        ("order-1", &completed),
        (" order-1 ", &completed),
        (provider_id.unwrap(), &completed),
        (&longest, &failed),
        // A uuid, as those of generations are.
        (&given, &ours.json()),
    ] {
        let found = search(&browser, wanted).await;
        assert_eq!(found.header("location"), receipt(record), "{wanted}");
    }
    text(&app, &account, "order-2", "the first try").await;
    text(&app, &account, "order-2", "the second try").await;
    let several = search(&browser, "order-2").await;
    assert_eq!(
        several.header("location"),
        "/generations?request_id=order-2"
    );
    let page = browser.page(several.header("location")).await;
    for shown in ["the first try", "the second try", "value=\"order-2\""] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    for _ in 0..2 {
        let body = json!({"name": "production"});
        app.post(&account.key, "/v1/api-keys", &body)
            .await
            .expect(201);
    }
    text(&app, &account, "production", "x").await;
    let keys = search(&browser, "production").await;
    assert_eq!(
        keys.text.matches("href=\"/keys/").count(),
        2,
        "{}",
        keys.text
    );
    text(&app, &other, "order-3", "x").await;
    for wanted in ["order-3", "order", "order 1", "\0", &"x".repeat(129)] {
        let page = find_nothing(&browser, wanted).await;
        assert!(page.contains("the newest 10,000"), "{page}");
        assert!(!page.contains("accounts"), "{page}");
    }
    let path = format!("/v1/generate/{}", completed["uuid"].as_str().unwrap());
    app.delete(&account.key, &path).await.expect(204);
    find_nothing(&browser, "order-1").await;
}

#[sqlx::test]
async fn operators_find_the_account_of_a_generation_or_key(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let (operator, customer) = (operator(&app).await, app.account("100").await);
    let browser = Browser::logged_in(&app, &operator).await;
    let record = text(&app, &customer, "order-1", "their text").await;
    let uuid = record["uuid"].as_str().unwrap();
    let keys = app.get(&customer.key, "/v1/api-keys").await.expect(200);
    let hint = keys["data"][0]["key_hint"].as_str().unwrap();
    let account = format!("/operator/accounts/{}", customer.id);
    let found = search(&browser, hint).await;
    assert_eq!(found.header("location"), account);

    let found = search(&browser, uuid).await;
    let place = format!("{account}?generation={uuid}");
    assert_eq!(found.header("location"), place);
    let page = browser.page(&place).await;
    let view = format!("{account}/view?generation={uuid}");
    assert!(page.contains(&format!("action=\"{view}\"")), "{page}");
    let viewed = browser.post(&view, &[]).await;
    assert_eq!(viewed.header("location"), receipt(&record));
    let shown = words(&browser.follow(&viewed).await.text);
    assert!(
        shown.contains("their text") && shown.contains("read-only"),
        "{shown}"
    );
    let page = browser.page(&format!("{account}?generation=%22x")).await;
    assert!(!page.contains("receipt as customer"), "{page}");

    app.delete(&customer.key, &format!("/v1/generate/{uuid}"))
        .await
        .expect(204);
    let found = search(&browser, uuid).await;
    assert_eq!(found.header("location"), place);
    // Request ids of a customer are found while the operator views the account.
    let second = text(&app, &customer, "order-2", "x").await;
    let viewing = Browser {
        app: &app,
        cookie: format!("{}; {}", browser.cookie, super::cookies(&viewed)),
    };
    let found = search(&viewing, "order-2").await;
    assert_eq!(found.header("location"), receipt(&second));
    let found = search(&viewing, uuid).await;
    assert_eq!(found.header("location"), place);
    find_nothing(&browser, "order-2").await;
    let page = find_nothing(&browser, "order-1").await;
    assert!(page.contains("by the hint of a key"), "{page}");
    let theirs = Browser::logged_in(&app, &customer).await;
    let keys = app.get(&operator.key, "/v1/api-keys").await.expect(200);
    find_nothing(&theirs, keys["data"][0]["key_hint"].as_str().unwrap()).await;
}

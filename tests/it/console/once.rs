//! Forms that create something: each is processed once, and its secret is shown once.

use chrono::TimeDelta;
use http::StatusCode;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{Browser, cookies, form_token, words};
use crate::common::{Account, Answer, TestApp};

async fn count(app: &TestApp, account: &Account, path: &str) -> usize {
    let page = app.get(&account.key, path).await.expect(200);
    page["data"].as_array().unwrap().len()
}

/// The secret that a page shows, if it does.
fn secret(page: &Answer) -> Option<String> {
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    let (_, rest) = page.text.split_once("class=\"secret\"")?;
    let (_, rest) = rest.split_once("<code>")?;
    Some(rest.split('<').next().unwrap().to_owned())
}

const HOOK: [(&str, &str); 2] = [
    ("url", "http://127.0.0.1:9/hook"),
    ("event", "generation.completed"),
];

/// A double click reaches two servers; the browser sees the second answer only.
#[sqlx::test]
async fn form_sent_twice_creates_one_key(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let replica = app.replica().await;
    let account = app.account("10").await;
    let browser = Browser::logged_in(&app, &account).await;
    let other = Browser {
        app: &replica,
        cookie: browser.cookie.clone(),
    };
    let token = form_token(&browser.page("/keys/new").await);
    let fields = [("name", "backend"), ("form", &token)];
    let (first, second) =
        tokio::join!(browser.post("/keys", &fields), other.post("/keys", &fields));
    let path = |answer: &Answer| {
        answer
            .header("location")
            .split('?')
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(path(&first), path(&second));
    assert_eq!(count(&app, &account, "/v1/api-keys").await, 2);
    let page = other.follow(&second).await;
    let key = secret(&page).expect("a key");
    assert!(key.starts_with("svc_") && key.len() == 44, "{key}");
    assert_eq!(secret(&browser.follow(&first).await), Some(key.clone()));
    app.get(&key, "/v1/auth/me").await.expect(200);
    for place in [first.header("location"), second.header("location")] {
        assert!(!place.contains(&key) && !place.contains(&token), "{place}");
    }
}

#[sqlx::test]
async fn secret_is_shown_once(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let browser = Browser::logged_in(&app, &account).await;
    for (form, path, fields) in [
        ("/keys/new", "/keys", vec![("name", "backend")]),
        ("/webhooks", "/webhooks", HOOK.to_vec()),
    ] {
        let token = form_token(&browser.page(form).await);
        let mut fields = fields.clone();
        fields.push(("form", &token));
        let made = browser.post(path, &fields).await;
        let page = browser.follow(&made).await;
        let shown = secret(&page).expect("a secret");
        let place = made.header("location");
        // The browser has dropped the token: a reload shows no secret, and creates nothing.
        assert!(page.text.contains("id=\"main\""));
        assert!(
            cookies(&page).contains("gensvc-shown=1"),
            "{}",
            cookies(&page)
        );
        assert_eq!(
            secret(&browser.get_with(place, &cookies(&page)).await),
            None
        );
        // The form, sent again from the browser's history.
        let again = browser.post(path, &fields).await;
        assert!(again.header("location").starts_with(place));
        let all = format!("{}; {}", cookies(&again), cookies(&page));
        let page = browser.get_with(again.header("location"), &all).await;
        assert_eq!(secret(&page), None, "{path}");
        assert!(
            words(&page.text).contains("This form was sent before"),
            "{path}"
        );
        // Later the secret is not offered again, to any browser.
        app.clock.advance(TimeDelta::minutes(11));
        let again = browser.post(path, &fields).await;
        assert_eq!(cookies(&again), "", "{path}");
        assert!(!page.text.contains(&shown));
    }
    assert_eq!(count(&app, &account, "/v1/api-keys").await, 2);
    assert_eq!(count(&app, &account, "/v1/webhooks").await, 1);
}

/// A cookie of one key's page shows nothing on another page, and no other account's secret.
#[sqlx::test]
async fn secret_is_shown_on_its_own_page_only(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("10").await, app.account("10").await);
    let browser = Browser::logged_in(&app, &account).await;
    let made = browser.post("/keys", &[("name", "first")]).await;
    let another = browser.post("/keys", &[("name", "second")]).await;
    assert_ne!(made.header("location"), another.header("location"));
    let set = made.header("set-cookie");
    let path = format!("Path={};", made.header("location"));
    for part in [path.as_str(), "HttpOnly", "SameSite=Strict"] {
        assert!(set.contains(part), "{set}");
    }
    let page = browser
        .get_with(another.header("location"), &cookies(&made))
        .await;
    assert_eq!(secret(&page), None);
    let theirs = Browser::logged_in(&app, &other).await;
    let page = theirs
        .get_with(made.header("location"), &cookies(&made))
        .await;
    assert_eq!(page.status, StatusCode::NOT_FOUND);
    browser
        .post(&format!("{}/revoke", made.header("location")), &[])
        .await;
    assert_eq!(secret(&browser.follow(&made).await), None);
}

/// The same token in the form of another account creates that account's own objects.
#[sqlx::test]
async fn accounts_do_not_share_form_tokens(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let accounts = [app.account("10").await, app.account("10").await];
    let token = form_token(
        &Browser::logged_in(&app, &accounts[0])
            .await
            .page("/keys/new")
            .await,
    );
    let mut keys = Vec::new();
    for account in &accounts {
        let browser = Browser::logged_in(&app, account).await;
        let made = browser
            .post("/keys", &[("name", "k"), ("form", &token)])
            .await;
        keys.push(secret(&browser.follow(&made).await).unwrap());
        let mut hook = HOOK.to_vec();
        hook.push(("form", &token));
        assert!(
            secret(
                &browser
                    .follow(&browser.post("/webhooks", &hook).await)
                    .await
            )
            .is_some()
        );
        assert_eq!(count(&app, account, "/v1/webhooks").await, 1);
    }
    assert_ne!(keys[0], keys[1]);
}

#[sqlx::test]
async fn template_form_makes_one_version(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let browser = Browser::logged_in(&app, &account).await;
    let token = form_token(&browser.page("/templates/new").await);
    let fields = [("name", "t"), ("prompt", "One {{ x }}"), ("form", &token)];
    let refused = [
        ("name", "t"),
        ("prompt", "{% set x = 1 %}"),
        ("form", &token),
    ];
    let answer = browser.post("/templates", &refused).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    let (made, again) = tokio::join!(
        browser.post("/templates", &fields),
        browser.post("/templates", &fields)
    );
    let path = made
        .header("location")
        .split('?')
        .next()
        .unwrap()
        .to_owned();
    assert!(again.header("location").starts_with(&path));
    assert_eq!(count(&app, &account, "/v1/templates").await, 1);

    let token = form_token(&browser.page(&path).await);
    let fields = [("name", "t"), ("prompt", "Two {{ x }}"), ("form", &token)];
    let saved = browser.post(&path, &fields).await;
    assert!(words(&browser.follow(&saved).await.text).contains("Saved, as a new version."));
    let again = browser.post(&path, &fields).await;
    assert!(words(&browser.follow(&again).await.text).contains("This form was sent before"));
    let stored = app.get(&account.key, &format!("/v1{path}")).await.json();
    assert_eq!(
        (&stored["version"], &stored["prompt"]),
        (&2.into(), &"Two {{ x }}".into())
    );
}

//! GET /v1/api-keys: pages, and last use.

use chrono::TimeDelta;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{KEYS, ME};
use crate::common::TestApp;

#[sqlx::test]
async fn a_list_is_paged_newest_first_and_of_one_account(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("1").await, app.account("1").await);
    for n in 0..4 {
        for id in [account.id, other.id] {
            app.key(id, json!({"name": format!("{n}")})).await;
        }
    }
    let mut names = Vec::new();
    let mut url = format!("{KEYS}?per_page=2");
    while !url.is_empty() {
        let answer = app.get(&account.key, &url).await;
        let page = answer.expect(200);
        assert_eq!(page["per_page"], 2);
        for key in page["data"].as_array().unwrap() {
            names.push(key["name"].as_str().unwrap().to_owned());
            let ours = format!("{KEYS}/{}", key["id"]);
            app.get(&other.key, &ours).await.error(404, "not_found");
            app.delete(&other.key, &ours).await.error(404, "not_found");
        }
        // New ones shift nothing.
        app.key(account.id, json!({"name": "later"})).await;
        url = answer.next_page();
        assert_eq!(url.is_empty(), page["next_cursor"].is_null());
    }
    assert_eq!(names, ["3", "2", "1", "0", "all"]);
    let whole = app.get(&account.key, &format!("{KEYS}?per_page=8")).await;
    assert_eq!(
        whole.expect(200)["next_cursor"],
        Value::Null,
        "exactly one page"
    );
}

#[sqlx::test]
async fn last_use_appears_and_lags_a_minute_at_most(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let made = app
        .post(&account.key, KEYS, &json!({"name": "used"}))
        .await
        .expect(201);
    let key = made["key"].as_str().unwrap();
    let used = || async {
        let path = format!("{KEYS}/{}", made["id"]);
        let found = app.get(&account.key, &path).await.expect(200);
        let text = found["last_used_at"].as_str()?.to_owned();
        Some(
            chrono::DateTime::parse_from_rfc3339(&text)
                .unwrap()
                .to_utc(),
        )
    };
    assert_eq!(used().await, None);
    app.get(key, ME).await.expect(200);
    assert_eq!(used().await, Some(app.now()));
    for seconds in [59, 1, 30, 600] {
        app.advance(TimeDelta::seconds(seconds));
        app.get(key, ME).await.expect(200);
        let lag = app.now() - used().await.unwrap();
        assert!(
            lag >= TimeDelta::zero() && lag <= TimeDelta::seconds(60),
            "{lag}"
        );
    }
}

//! /v1/models/stats: success rate and median time of each model.

use chrono::TimeDelta;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{Account, TestApp};

const PATH: &str = "/v1/models/stats";

/// Generates texts with this prompt, one after the other.
async fn prompt(app: &TestApp, account: &Account, times: usize, prompt: &str, status: u16) {
    for _ in 0..times {
        let body = json!({"prompt": prompt});
        app.text(&account.key, body).await.expect(status);
    }
}

/// The figures without the time from which they count.
async fn figures(app: &TestApp, account: &Account) -> Value {
    app.get(&account.key, PATH).await.expect(200)["data"].clone()
}

#[sqlx::test]
async fn figures_count_all_accounts_and_are_read_once_a_minute(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let (one, other) = (app.account("100").await, app.account("100").await);
    assert_eq!(figures(&app, &one).await, json!([]));

    prompt(&app, &one, 9, "rivers", 200).await;
    prompt(&app, &one, 1, "[[fail]]", 502).await;
    prompt(&app, &other, 8, "rivers", 200).await;
    prompt(&app, &other, 1, "[[fail]]", 502).await;
    app.advance(TimeDelta::seconds(61));
    assert_eq!(figures(&app, &one).await, json!([]), "19 are too few");
    prompt(&app, &other, 1, "rivers", 200).await;
    // Refused content is no failure of the provider.
    prompt(&app, &other, 1, "[[reject]]", 502).await;
    let video = json!({"prompt": "[[slow:60]] waves", "parameters": {"duration": 1}});
    let uuid = app.queue(&other, "video", &video).await;
    let cancel = format!("/v1/generate/{uuid}/cancel");
    app.post(&other.key, &cancel, &json!({})).await.expect(200);

    assert_eq!(figures(&app, &one).await, json!([]), "the cached ones");
    app.advance(TimeDelta::seconds(61));
    let found = figures(&app, &one).await;
    // One video is too few.
    let [text] = found.as_array().unwrap().as_slice() else {
        panic!("{found}");
    };
    let seconds = &text["median_seconds"];
    assert_eq!(
        *text,
        json!({"provider": "sandbox", "model": "sandbox-text-1", "type": "text",
            "success_rate": 0.9, "median_seconds": seconds})
    );
    assert!(seconds.is_f64(), "{text}");
    assert_eq!(figures(&app, &other).await, found);
}

#[sqlx::test]
async fn figures_are_of_the_last_day(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    prompt(&app, &account, 19, "rivers", 200).await;
    prompt(&app, &account, 1, "[[fail]]", 502).await;
    app.advance(TimeDelta::hours(20));
    prompt(&app, &account, 20, "rivers", 200).await;
    let found = figures(&app, &account).await;
    assert_eq!(found[0]["success_rate"], json!(0.975));
    app.advance(TimeDelta::hours(5));
    let stats = app.get(&account.key, PATH).await.expect(200);
    let since = (app.now() - TimeDelta::days(1)).to_rfc3339();
    assert_eq!(
        stats["since"].as_str().unwrap()[..19],
        since[..19],
        "{stats}"
    );
    assert_eq!(stats["data"][0]["success_rate"], json!(1.0));
    app.advance(TimeDelta::hours(20));
    assert_eq!(figures(&app, &account).await, json!([]));
}

#[sqlx::test]
async fn figures_are_for_callers_with_any_token(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    app.get("", PATH).await.error(401, "missing_token");
    app.get("svc_wrong", PATH).await.error(401, "invalid_token");
    let key = json!({"name": "small", "abilities": ["generate:audio"]});
    let key = app.key(account.id, key).await;
    app.get(&key, PATH).await.expect(200);
    let refused = app.get(&key, &format!("{PATH}?type=text")).await;
    assert_eq!(refused.fields()["type"], "unknown_field");
}

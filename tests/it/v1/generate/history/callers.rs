//! GET /v1/generate/history: `api_key`, with the other filters.

use chrono::{SecondsFormat, TimeDelta};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{HISTORY, list, uuids};
use crate::{
    common::{Account, PASSWORD, TestApp},
    ledger::count_usage,
};

/// All records of an account, newest first, whole: the list does not say who made them.
async fn everything(app: &TestApp, account: &Account) -> Vec<Value> {
    let mut records = Vec::new();
    for uuid in list(app, account, "per_page=100").await {
        records.push(app.record(account, &uuid).await);
    }
    records
}

/// What the callers' list finds, page by page, is what the list of everything has of them: what the
/// sums of usage count already, what they do not yet, and what runs.
#[sqlx::test]
async fn each_caller_finds_its_own(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("1000").await, app.account("1000").await);
    let key = app.key(account.id, json!({"name": "second"})).await;
    let login = json!({"email": account.email, "password": PASSWORD});
    let session = app.post("", "/v1/auth/login", &login).await.expect(200);
    let session = session["token"].as_str().unwrap();
    let image = json!({"prompt": "x", "parameters": {"size": "256x256"}});
    // Over hours and days, so that sums of several are looked into.
    for step in [0, 50, 11, 0, 600, 1_441, 3_000, 59, 1] {
        app.advance(TimeDelta::minutes(step));
        for token in [account.key.as_str(), &key, session, &other.key] {
            for prompt in ["x", "[[fail]] x"] {
                app.text(token, json!({"prompt": prompt})).await;
            }
            if step % 2 == 1 {
                let made = app.post(token, "/v1/generate/image", &image).await;
                made.expect(200);
            }
        }
        if step == 3_000 {
            count_usage(&app).await;
        }
    }
    let video = json!({"prompt": "[[slow:60]] x"});
    let job = app.post(&key, "/v1/generate/video", &video).await;
    job.expect(202);
    let all = everything(&app, &account).await;
    // One is deleted, which the sums still count.
    let gone = all.iter().rfind(|r| r["type"] == "image").unwrap()["uuid"].clone();
    let url = format!("/v1/generate/{}", gone.as_str().unwrap());
    app.delete(&account.key, &url).await.expect(204);
    let all = everything(&app, &account).await;
    let keys = app.get(&account.key, "/v1/api-keys").await.expect(200);
    let ids = keys["data"].as_array().unwrap().iter();
    let mut callers: Vec<(String, Value)> = ids
        .map(|key| (key["id"].to_string(), key["id"].clone()))
        .collect();
    callers.push(("none".to_owned(), Value::Null));
    let middle = app.now() - TimeDelta::hours(50);
    let middle = middle.to_rfc3339_opts(SecondsFormat::Micros, true);
    let mut found_any = 0;
    for (caller, id) in &callers {
        for (filter, fits) in [
            (String::new(), None),
            ("&status=failed".to_owned(), Some(("status", "failed"))),
            (
                "&status=completed".to_owned(),
                Some(("status", "completed")),
            ),
            ("&status=pending".to_owned(), Some(("status", "pending"))),
            ("&type=image".to_owned(), Some(("type", "image"))),
            (
                "&model=sandbox-text-1".to_owned(),
                Some(("model", "sandbox-text-1")),
            ),
            (
                format!("&created_after={middle}"),
                Some(("after", &*middle)),
            ),
            (
                format!("&created_before={middle}"),
                Some(("before", &*middle)),
            ),
        ] {
            let is_wanted = |record: &&Value| {
                let fits = fits.is_none_or(|(name, value)| {
                    let at = record["created_at"].as_str().unwrap();
                    match name {
                        "after" => at >= value,
                        "before" => at < value,
                        name => record[name] == value,
                    }
                });
                fits && record["metadata"]["api_key_id"] == *id
            };
            let wanted = all.iter().filter(is_wanted);
            let wanted: Vec<&str> = wanted.map(|r| r["uuid"].as_str().unwrap()).collect();
            found_any += wanted.len();
            let query = format!("api_key={caller}{filter}");
            let found = list(&app, &account, &format!("{query}&per_page=100")).await;
            assert_eq!(found, wanted, "{query}");
            // The same, page by page.
            let (mut url, mut paged) = (format!("{HISTORY}?{query}&per_page=3"), Vec::new());
            while !url.is_empty() {
                let answer = app.get(&account.key, &url).await;
                paged.extend(uuids(&answer));
                url = answer.next_page();
            }
            assert_eq!(paged, wanted, "{query}, page by page");
        }
    }
    assert!(found_any > 3 * all.len(), "{found_any} of {}", all.len());
}

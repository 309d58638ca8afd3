//! GET /v1/generate/history: pages, filters, truncation.

mod callers;
mod ids;
mod search;
mod times;

use chrono::TimeDelta;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{Account, Answer, TestApp, Upstream};

const HISTORY: &str = "/v1/generate/history";

async fn make(app: &TestApp, account: &Account, prompt: &str) -> String {
    let body = json!({"prompt": prompt, "parameters": {"max_tokens": 4}});
    let answer = app.text(&account.key, body).await.json();
    let record = answer.get("generation").unwrap_or(&answer);
    record["uuid"].as_str().unwrap().to_owned()
}

fn uuids(answer: &Answer) -> Vec<String> {
    let page = answer.expect(200);
    let rows = page["data"].as_array().unwrap().iter();
    rows.map(|r| r["uuid"].as_str().unwrap().to_owned())
        .collect()
}

async fn list(app: &TestApp, account: &Account, query: &str) -> Vec<String> {
    let url = format!("{HISTORY}?{query}");
    uuids(&app.get(&account.key, &url).await)
}

#[sqlx::test]
async fn pages_are_stable_while_rows_arrive(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("10").await, app.account("10").await);
    let replica = app.replica().await;
    let mut made = Vec::new();
    for n in 0..9 {
        // Several in one millisecond, then later ones.
        if n % 3 == 0 {
            app.advance(TimeDelta::milliseconds(1));
        }
        made.push(make(&app, &account, "x").await);
        make(&app, &other, "theirs").await;
    }
    made.reverse();
    for per_page in [1, 2, 3, 9] {
        let (mut found, mut pages) = (Vec::new(), 0);
        let mut url = format!("{HISTORY}?per_page={per_page}&created_before=2100-01-01T00:00:00Z");
        let before = list(&app, &account, "per_page=100").await.len() - made.len();
        while !url.is_empty() && found.len() < made.len() {
            let answer = app.get(&account.key, &url).await;
            let page = answer.expect(200);
            assert_eq!(page["per_page"], per_page);
            let mut rows = uuids(&answer);
            assert!(rows.len() <= per_page);
            rows.retain(|uuid| made.contains(uuid));
            found.extend(rows);
            pages += 1;
            url = answer.next_page();
            assert_eq!(url.is_empty(), page["next_cursor"].is_null());
            // The next link keeps the filters.
            assert!(url.is_empty() || url.contains("created_before=") && url.contains("per_page="));
            app.advance(TimeDelta::milliseconds(1));
            make(&replica, &account, "a new one").await;
        }
        assert_eq!(found, made, "by {per_page}");
        assert_eq!(pages, (before + made.len()).div_ceil(per_page));
    }
    let default = app.get(&account.key, HISTORY).await.expect(200);
    assert_eq!(default["per_page"], 20);
    assert_eq!(default["data"].as_array().unwrap().len(), 20);
}

#[sqlx::test]
async fn page_parameters_are_checked(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    for _ in 0..2 {
        make(&app, &account, "x").await;
    }
    app.key(account.id, json!({"name": "second"})).await;
    let cursor_of = |url: &'static str| {
        let (app, key) = (&app, &account.key);
        async move {
            let page = app.get(key, &format!("{url}?per_page=1")).await.expect(200);
            page["next_cursor"].as_str().unwrap().to_owned()
        }
    };
    let lists = [HISTORY, "/v1/credits/ledger", "/v1/api-keys"];
    let mut cursors = Vec::new();
    for list in lists {
        cursors.push(cursor_of(list).await);
    }
    for (at, list) in lists.iter().enumerate() {
        for (of, cursor) in cursors.iter().enumerate() {
            let url = format!("{list}?cursor={cursor}");
            let answer = app.get(&account.key, &url).await;
            if of == at {
                answer.expect(200);
            } else {
                assert_eq!(answer.fields()["cursor"], "invalid_format");
            }
        }
        for (query, param, code) in [
            ("per_page=0", "per_page", "out_of_range"),
            ("per_page=101", "per_page", "out_of_range"),
            ("per_page=-1", "per_page", "out_of_range"),
            ("per_page=x", "per_page", "invalid_type"),
            ("per_page=", "per_page", "invalid_type"),
            ("per_page=1.0", "per_page", "invalid_type"),
            ("per_page=1e1", "per_page", "invalid_type"),
            ("cursor=", "cursor", "invalid_format"),
            ("cursor=Zw", "cursor", "invalid_format"),
            ("cursor=%00", "cursor", "invalid_format"),
            (
                "cursor=0197c0de-0000-7000-8000-000000000000",
                "cursor",
                "invalid_format",
            ),
        ] {
            let fields = app
                .get(&account.key, &format!("{list}?{query}"))
                .await
                .fields();
            assert_eq!(fields[param], code, "{list} {query}");
        }
        for query in ["per_page=1", "per_page=100"] {
            app.get(&account.key, &format!("{list}?{query}"))
                .await
                .expect(200);
        }
    }
}

#[sqlx::test]
async fn filters_can_be_combined(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let mut all = Vec::new();
    for (provider, model, prompt) in [
        ("sandbox", "sandbox-text-1", "x"),
        ("sandbox", "sandbox-text-1", "[[reject]]"),
        ("openai", "gpt-6-luna", "x"),
        ("openai", "gpt-4o", "x"),
    ] {
        let body = json!({"prompt": prompt, "provider": provider, "model": model});
        let answer = app.text(&account.key, body).await.json();
        let record = answer.get("generation").unwrap_or(&answer);
        all.push(record["uuid"].as_str().unwrap().to_owned());
    }
    upstream.hold();
    let body = json!({"prompt": "slow", "provider": "openai"});
    let running = app
        .post_with(
            &account.key,
            "/v1/generate/text",
            &[("prefer", "respond-async")],
            &body,
        )
        .await
        .expect(202);
    all.push(running["uuid"].as_str().unwrap().to_owned());
    for (query, found) in [
        ("", vec![4, 3, 2, 1, 0]),
        ("type=text", vec![4, 3, 2, 1, 0]),
        ("type=audio", vec![]),
        ("status=completed", vec![3, 2, 0]),
        ("status=failed", vec![1]),
        ("status=processing", vec![4]),
        ("status=pending", vec![]),
        ("provider=openai", vec![4, 3, 2]),
        ("provider=sandbox&status=failed", vec![1]),
        ("provider=nope", vec![]),
        ("provider=", vec![]),
        ("provider=Openai", vec![]),
        ("model=gpt-4o", vec![3]),
        ("model=nope", vec![]),
        ("provider=sandbox&model=gpt-4o", vec![]),
        (
            "type=text&status=completed&provider=openai&model=gpt-6-luna",
            vec![2],
        ),
    ] {
        let expected: Vec<_> = found.into_iter().map(|at: usize| all[at].clone()).collect();
        assert_eq!(list(&app, &account, query).await, expected, "{query}");
    }
    for (query, param) in [
        ("type=speech", "type"),
        ("type=TEXT", "type"),
        ("status=cancelled", "status"),
        ("status=", "status"),
    ] {
        let url = format!("{HISTORY}?{query}");
        let fields = app.get(&account.key, &url).await.fields();
        assert_eq!(fields[param], "not_allowed", "{query}");
    }
    upstream.release(1);
}

#[sqlx::test]
async fn a_row_is_the_record_cut_and_without_its_bulk(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    // One scalar value, two UTF-16 units, four bytes.
    let long = "🦀".repeat(201);
    upstream.reply(crate::common::Reply::Text(long.clone(), 5, 5));
    let body = json!({"prompt": long, "provider": "openai"});
    let record = app.text(&account.key, body).await.expect(200);
    assert_eq!(record["result"], long);
    let page = app.get(&account.key, HISTORY).await.expect(200);
    let mut expected = record.clone();
    for name in ["inputs", "outputs", "parameters", "bill", "metadata"] {
        expected.as_object_mut().unwrap().remove(name).unwrap();
    }
    expected["prompt"] = json!("🦀".repeat(200));
    expected["result"] = json!("🦀".repeat(200));
    assert_eq!(page["data"], json!([expected]));
    let names: Vec<_> = page.as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, ["data", "per_page", "next_cursor"]);
    assert_eq!(page["next_cursor"], Value::Null);
    // Deleted ones are gone, and those of others are never visible.
    let other = app.account("1").await;
    assert_eq!(list(&app, &other, "").await, Vec::<String>::new());
    let path = format!("/v1/generate/{}", record["uuid"].as_str().unwrap());
    app.delete(&account.key, &path).await.expect(204);
    assert_eq!(list(&app, &account, "").await, Vec::<String>::new());
}

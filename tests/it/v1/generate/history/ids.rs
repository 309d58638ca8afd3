//! GET /v1/generate/history: `request_id` and `provider_request_id`.

use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{HISTORY, list, make, search::add_many, uuids};
use crate::common::{Account, TestApp};

/// Generates with a request id, and returns the uuid.
async fn post(app: &TestApp, account: &Account, kind: &str, id: &str, prompt: &str) -> String {
    let (path, headers) = (format!("/v1/generate/{kind}"), [("x-request-id", id)]);
    let body = json!({ "prompt": prompt });
    let answer = app.post_with(&account.key, &path, &headers, &body).await;
    let answer = answer.json();
    let record = answer.get("generation").unwrap_or(&answer);
    record["uuid"].as_str().unwrap().to_owned()
}

#[sqlx::test]
async fn request_ids_are_compared_as_a_whole(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("100").await, app.account("100").await);
    make(&app, &account, "another").await;
    post(&app, &other, "text", "order-1", "x").await;
    let first = post(&app, &account, "text", "order-1", "x").await;
    let failed = post(&app, &account, "text", "order-1", "[[fail]] x").await;
    let running = post(&app, &account, "video", "order-1", "[[slow:60]] x").await;
    for (query, expected) in [
        ("order-1", vec![&running, &failed, &first]),
        ("order-1&status=failed", vec![&failed]),
        ("order-1&status=completed", vec![&first]),
        ("order-1&type=video", vec![&running]),
        ("order-1&api_key=none", vec![]),
        ("order-1&prompt=FAIL", vec![&failed]),
        ("order-1&provider_request_id=x", vec![]),
        ("order", vec![]),
        ("ORDER-1", vec![]),
        ("order_1", vec![]),
        ("", vec![]),
    ] {
        let found = list(&app, &account, &format!("request_id={query}")).await;
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{query}");
    }
    let path = format!("/v1/generate/{first}");
    app.delete(&account.key, &path).await.expect(204);
    let left = list(&app, &account, "request_id=order-1").await;
    assert_eq!(left, [running, failed]);
}

#[sqlx::test]
async fn a_providers_id_is_found_while_it_runs_and_later(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("100").await, app.account("100").await);
    let text = make(&app, &account, "x").await;
    let job = post(&app, &account, "video", "order-1", "[[slow:60]] x").await;
    app.work().await;
    let task: String = sqlx::query_scalar("select remote_id from running_generations")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    let of_text = app.record(&account, &text).await["metadata"]["provider_request_id"].clone();
    let of_text = of_text.as_str().unwrap();
    let by_task = format!("provider_request_id={task}");
    assert_eq!(list(&app, &account, &by_task).await, [job.as_str()]);
    let by_text = format!("provider_request_id={of_text}");
    assert_eq!(list(&app, &account, &by_text).await, [text.as_str()]);
    for query in [by_task.as_str(), &by_text] {
        assert!(list(&app, &other, query).await.is_empty());
        let part = &query[..query.len() - 1];
        assert!(list(&app, &account, part).await.is_empty(), "{part}");
    }
    let done = app.until_finished(&account, &job).await;
    assert_eq!(done["metadata"]["provider_request_id"], task);
    assert_eq!(list(&app, &account, &by_task).await, [job]);
}

#[sqlx::test]
async fn a_page_looks_for_an_id_in_a_bounded_number_of_rows(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    post(&app, &account, "text", "order-1", "x").await;
    let year_2100 = 4_102_444_800_000;
    add_many(&app, &account, year_2100).await;
    let url = format!("{HISTORY}?request_id=order-1");
    let newest = app.get(&account.key, &url).await;
    assert!(uuids(&newest).is_empty());
    let older = app.get(&account.key, &newest.next_page()).await;
    assert_eq!(uuids(&older).len(), 1);
    assert_eq!(older.next_page(), "");
    let url = format!("{HISTORY}?provider_request_id=%00");
    let nul = app.get(&account.key, &url).await;
    assert_eq!(nul.status, 422);
}

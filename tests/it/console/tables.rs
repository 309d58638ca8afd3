//! Reports, where their figures lead, and tables as files.

use axum::{extract::ConnectInfo, response::Response};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tower::ServiceExt as _;

use super::{Browser, generate, operator::operator, words};
use crate::common::{Account, TestApp};

/// Each figure of the usage leads to the rows that it sums.
#[sqlx::test]
async fn usage_leads_to_the_rows_that_it_sums(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    let browser = Browser::logged_in(&app, &account).await;
    let other = app.key(account.id, json!({"name": "other"})).await;
    generate(&app, &account, "text", json!({"prompt": "by the first"})).await;
    app.text(&other, json!({"prompt": "by the other"}))
        .await
        .expect(200);
    app.text(&other, json!({"prompt": "[[fail]] by the other"}))
        .await
        .expect(502);
    browser
        .post(
            "/playground/image",
            &[("prompt", "by a person"), ("p.size", "256x256")],
        )
        .await;
    for (by, filters) in [
        (
            "day",
            vec![
                ("from=2027-01-15&to=2027-01-15", 4),
                (
                    "type=text&status=completed&from=2027-01-15&to=2027-01-15",
                    2,
                ),
            ],
        ),
        ("type", vec![("type=text", 3), ("type=image", 1)]),
        ("provider", vec![("provider=sandbox", 4)]),
        ("model", vec![("model=sandbox-text-1", 3)]),
        ("api_key", vec![("api_key=none", 1)]),
    ] {
        let page = browser.page(&format!("/usage?by={by}")).await;
        for (filter, rows) in filters {
            let days = "&from=2026-12-17&to=2027-01-15";
            let days = if by == "day" { "" } else { days };
            let link = format!("/generations?{filter}{days}");
            let escaped = link.replace('&', "&amp;");
            assert!(
                page.contains(&format!("href=\"{escaped}\"")),
                "{escaped} in {page}"
            );
            let listed = browser.page(&link).await;
            assert_eq!(
                listed.matches("href=\"/generations/").count(),
                rows,
                "{link}"
            );
        }
    }
    let keys = app.get(&account.key, "/v1/api-keys").await.json();
    let id = &keys["data"][0]["id"];
    let failed = browser
        .page(&format!("/generations?api_key={id}&status=failed"))
        .await;
    assert!(failed.contains("[[fail]] by the other") && !failed.contains("by the first"));
    app.get(&account.key, "/v1/generate/history?api_key=x")
        .await
        .error(422, "validation_failed");
    for path in ["/usage?from=monday", "/usage?to=2027-02-30"] {
        let page = words(&browser.page(path).await);
        assert!(page.contains("must be an RFC 3339 time"), "{page}");
        let csv = browser.get(&path.replace('?', ".csv?")).await;
        assert_eq!(csv.status, StatusCode::UNPROCESSABLE_ENTITY);
    }
    let csv = browser.get("/usage.csv?by=type").await;
    assert_eq!(csv.header("content-type"), "text/csv; charset=utf-8");
    assert!(
        csv.text
            .starts_with("type,charged,generations,completed,failed,"),
        "{}",
        csv.text
    );
    assert!(csv.text.contains("\r\nimage,1,1,1,0,"), "{}", csv.text);
    let history = browser.get("/generations.csv?status=failed").await;
    assert_eq!(history.text.lines().count(), 2, "{}", history.text);
    let ledger = browser.get("/ledger.csv").await;
    assert_eq!(ledger.text.lines().count(), 1 + 1 + 8, "{}", ledger.text);
}

/// So many grants that their list has many pages.
async fn grants(app: &TestApp, account: &Account, count: i32) {
    sqlx::query(
        "insert into ledger_entries (account_id, kind, amount, balance, held, created_at)
         select $1, 'grant', 1, n, 0, now() from generate_series(1, $2) n",
    )
    .bind(account.id.0)
    .bind(count)
    .execute(&app.pool)
    .await
    .unwrap();
}

/// A download, of which nothing is read yet.
async fn begin(browser: &Browser<'_>, path: &str) -> Response {
    let request = Request::get(path).header("cookie", &browser.cookie);
    let mut request = request.body(axum::body::Body::empty()).unwrap();
    let peer = std::net::SocketAddr::from(([127, 0, 0, 1], 9));
    request.extensions_mut().insert(ConnectInfo(peer));
    let router = browser.app.app.router.clone();
    router.oneshot(request).await.unwrap()
}

#[sqlx::test]
async fn long_tables_are_downloaded_whole(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    grants(&app, &account, 10_050).await;
    let browser = Browser::logged_in(&app, &account).await;
    let file = browser.get("/ledger.csv").await;
    assert_eq!(
        file.header("content-disposition"),
        "attachment; filename=\"ledger.csv\""
    );
    let ids = file.text.lines().skip(1);
    let ids: Vec<i64> = ids
        .map(|l| l.split(',').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(ids.len(), 10_051);
    assert!(ids.is_sorted_by(|a, b| a > b));
    // It was one request, however many pages it took.
    browser.page("/ledger").await;
}

/// A slow reader occupies a download slot; a download that is cut short ends with an error.
#[sqlx::test]
async fn downloads_are_few_and_end_with_their_session(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("10").await, app.account("10").await);
    grants(&app, &account, 1_000).await;
    let browser = Browser::logged_in(&app, &account).await;
    let (first, second) = (
        begin(&browser, "/ledger.csv").await,
        begin(&browser, "/ledger.csv").await,
    );
    let third = browser.get("/ledger.csv").await;
    assert_eq!(
        third.status,
        StatusCode::TOO_MANY_REQUESTS,
        "{}",
        third.text
    );
    let theirs = Browser::logged_in(&app, &other)
        .await
        .get("/ledger.csv")
        .await;
    assert_eq!(theirs.status, StatusCode::OK);
    drop(first);
    assert_eq!(browser.get("/ledger.csv").await.status, StatusCode::OK);
    browser.post("/logout", &[]).await;
    let read = second.into_body().collect().await;
    assert!(read.is_err(), "the file seems to be whole");
}

#[sqlx::test]
async fn every_table_is_a_file_too(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (account, other) = (operator(&app).await, app.account("10").await);
    let browser = Browser::logged_in(&app, &account).await;
    let template = json!({"name": "greet", "prompt": "Hello {{ name }} {{ place }}"});
    let hook = json!({"url": "http://127.0.0.1:9/hook"});
    for (path, body) in [("templates", &template), ("webhooks", &hook)] {
        let url = format!("/v1/{path}");
        app.post(&account.key, &url, body).await.expect(201);
    }
    generate(&app, &account, "text", json!({"prompt": "x"})).await;
    let video = json!({"prompt": "[[slow:60]] x"});
    generate(&app, &account, "video", video).await;
    let id = &app.get(&account.key, "/v1/webhooks").await.json()["data"][0]["id"];
    let deliveries = format!("/webhooks/{id}/deliveries.csv");
    for (path, rows, shown) in [
        ("/keys.csv", 1, "*"),
        ("/templates.csv", 1, "name place"),
        ("/webhooks.csv", 1, "generation.completed generation.failed"),
        (deliveries.as_str(), 1, "generation.completed"),
        ("/generations.csv", 2, "sandbox-text-1"),
        ("/operator/accounts.csv", 2, other.email.as_str()),
        ("/operator/jobs.csv", 1, "video"),
        ("/operator/providers.csv", 1, "sandbox-text-1"),
        ("/operator/spending.csv", 1, "sandbox-text-1"),
        ("/operator/spending.csv?by=account", 1, "Test"),
    ] {
        let file = browser.get(path).await;
        assert_eq!(file.status, StatusCode::OK, "{path}: {}", file.text);
        assert_eq!(file.header("content-type"), "text/csv; charset=utf-8");
        let mut lines = file.text.split_terminator("\r\n");
        let headings = lines.next().unwrap().split(',').count();
        let lines: Vec<&str> = lines.collect();
        assert_eq!(lines.len(), rows, "{path}: {}", file.text);
        assert!(
            file.text.contains(shown),
            "{shown} in {path}: {}",
            file.text
        );
        assert_eq!(
            lines[0].split(',').count(),
            headings,
            "{path}: {}",
            file.text
        );
    }
    let hers = Browser::logged_in(&app, &other).await;
    assert_eq!(hers.get(&deliveries).await.status, StatusCode::NOT_FOUND);
}

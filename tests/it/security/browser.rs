//! What a browser may do with our responses.

use http::{HeaderValue, Method};
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{TestApp, link};

#[sqlx::test]
async fn the_page_runs_only_its_own_scripts(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    for path in [
        "/docs",
        "/docs/page.css",
        "/docs/start.js",
        "/docs/swagger-ui-bundle.js",
        "/docs/swagger-ui.css",
    ] {
        let answer = app.get("", path).await;
        assert_eq!(answer.status, 200, "{path}");
        let policy = answer.header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self';",
            "connect-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(
            !policy.contains("http") && !policy.contains('*'),
            "{policy}"
        );
        assert_eq!(answer.header("referrer-policy"), "no-referrer");
    }
    // There is no inline script in the page, which the policy would block.
    let page = app.get("", "/docs").await.text;
    for script in page.split("<script").skip(1) {
        let (attributes, rest) = script.split_once('>').unwrap();
        assert!(attributes.starts_with(" src=\"/docs/"), "{attributes}");
        assert!(rest.starts_with("</script>"), "{rest}");
    }
    assert!(!page.contains("onload=") && !page.contains("javascript:"));
}

#[sqlx::test]
async fn no_answer_is_taken_for_another_type_than_it_has(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    for (token, path) in [
        ("", "/"),
        ("", "/docs"),
        ("", "/docs/swagger-ui.css"),
        ("", "/openapi.json"),
        ("", "/health"),
        ("", "/nowhere"),
        ("", "/metrics"),
        ("", "/v1/models"),
        ("", "/v1/auth/me"),
        (&account.key, "/v1/auth/me"),
        (&account.key, "/v1/generate/text"),
    ] {
        let answer = app.get(token, path).await;
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
    }
    let body = json!({"prompt": "x", "stream": true});
    let stream = app.text(&account.key, body).await;
    assert_eq!(stream.header("x-content-type-options"), "nosniff");
    let scrape = app.metrics(&[("host", "localhost")]).await;
    assert_eq!(scrape.header("x-content-type-options"), "nosniff");
}

/// Browsers get the console, programs JSON.
#[sqlx::test]
async fn the_front_says_what_this_is_to_programs(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let as_a_browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    for accept in [
        as_a_browser,
        "text/html",
        "application/json;q=0.5, text/HTML",
    ] {
        let headers = [("accept", accept)];
        let page = app.call(Method::GET, "", "/", &headers, None).await;
        assert_eq!(page.header("location"), "/login", "{accept}");
        assert_eq!(page.header("vary"), "accept");
    }
    for accept in [
        "*/*",
        "",
        "application/json",
        "text/html;q=0",
        "text/html;q=0.5,application/json",
    ] {
        let headers = [("accept", accept)];
        let answer = app.call(Method::GET, "", "/", &headers, None).await;
        let json = answer.expect(200);
        assert_eq!(json["docs"], "/docs", "{accept}");
        assert_eq!(json["health"], "/health", "{accept}");
    }
    app.get("", "/?x=1").await.error(422, "validation_failed");
}

#[sqlx::test]
async fn a_stored_file_runs_nothing(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let body = json!({"prompt": "<script>alert(1)</script>", "parameters": {"size": "256x256"}});
    let record = app
        .post(&account.key, "/v1/generate/image", &body)
        .await
        .expect(200);
    let path = link(&record["result"]);
    let file = app.get("", &path).await;
    let etag = file.header("etag").to_owned();
    for (status, header) in [
        (200, ("accept", "text/html")),
        (206, ("range", "bytes=0-9")),
        (304, ("if-none-match", etag.as_str())),
    ] {
        let answer = app.call(Method::GET, "", &path, &[header], None).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("content-type"), "image/png");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        let policy = answer.header("content-security-policy");
        assert!(
            policy.contains("default-src 'none'") && policy.contains("sandbox"),
            "{policy}"
        );
    }
}

/// There is nothing that a browser would send automatically, so no page of another site can act for
/// its visitor.
#[sqlx::test]
async fn no_answer_sets_a_cookie_or_asks_for_a_password(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let login = json!({"email": account.email, "password": crate::common::PASSWORD});
    let answers = [
        app.post("", "/v1/auth/login", &login).await,
        app.get("", "/v1/auth/me").await,
        app.get(&account.key, "/v1/auth/me").await,
        app.get("", "/docs").await,
        app.get("", "/nowhere").await,
    ];
    for answer in answers {
        assert!(!answer.headers.contains_key("set-cookie"));
        let asks = answer.headers.get("www-authenticate");
        assert!(asks.is_none_or(|v| v == HeaderValue::from_static("Bearer")));
    }
    let cookie = format!("token={0}; authorization=Bearer {0}", account.key);
    let headers = [("cookie", cookie.as_str())];
    let answer = app
        .call(Method::GET, "", "/v1/auth/me", &headers, None)
        .await;
    answer.error(401, "missing_token");
}

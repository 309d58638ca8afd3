//! Who may look at a page, where a change may come from, what a page may load.

use gensvc::console::OPERATIONS;
use http::{Method, StatusCode};
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{Browser, HTML, generate, words};
use crate::common::{Answer, PASSWORD, TestApp, bucket::Bucket};

/// Every page that needs nothing but an account.
const PAGES: [&str; 20] = [
    "/",
    "/playground/text",
    "/playground/image",
    "/playground/video",
    "/playground/audio",
    "/playground/text/compare",
    "/playground/image/compare",
    "/models",
    "/models?compare=sandbox%2Fsandbox-text-1",
    "/generations",
    "/usage",
    "/usage?by=model",
    "/usage?by=api_key",
    "/ledger",
    "/keys",
    "/keys/new",
    "/templates",
    "/templates/new",
    "/webhooks",
    "/settings",
];

#[sqlx::test]
async fn pages_are_for_those_who_are_logged_in(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let anonymous = Browser {
        app: &app,
        cookie: String::new(),
    };
    for path in PAGES {
        let answer = anonymous.get(path).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{path}");
        assert!(answer.header("location").starts_with("/login"), "{path}");
    }
    let wrong = [
        ("email", account.email.as_str()),
        ("password", "wrong password"),
    ];
    let answer = anonymous.post("/login", &wrong).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert!(!answer.headers.contains_key("set-cookie"));
    // A login redirects to the requested page, but never to another site.
    for (next, target) in [
        ("/keys?a=b", "/keys?a=b"),
        ("//evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/\tevil", "/"),
    ] {
        let fields = [
            ("email", account.email.as_str()),
            ("password", PASSWORD),
            ("next", next),
        ];
        let answer = anonymous.post("/login", &fields).await;
        assert_eq!(answer.header("location"), target);
        let cookie = answer.header("set-cookie");
        for part in ["; Path=/", "; HttpOnly", "; SameSite=Strict", "; Expires="] {
            assert!(cookie.contains(part), "{cookie}");
        }
        assert!(!cookie.contains("Secure"), "{cookie}");
    }
    let browser = Browser::logged_in(&app, &account).await;
    for path in PAGES {
        browser.page(path).await;
    }
    let answer = browser.post("/logout", &[]).await;
    assert_eq!(answer.header("location"), "/login");
    assert!(answer.header("set-cookie").contains("Max-Age=0"));
    assert_eq!(browser.get("/keys").await.status, StatusCode::SEE_OTHER);
}

#[sqlx::test]
async fn behind_https_the_cookie_is_for_https_alone(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let router = app.router_at("https://console.example").await;
    let body = format!("email={}&password={PASSWORD}", account.email);
    let request = http::Request::post("/login")
        .header("origin", "https://console.example")
        .header("host", "console.example")
        .header("content-type", "application/x-www-form-urlencoded")
        .extension(axum::extract::ConnectInfo(std::net::SocketAddr::from((
            [127, 0, 0, 1],
            9,
        ))))
        .body(axum::body::Body::from(body))
        .unwrap();
    let response = tower::ServiceExt::oneshot(router, request).await.unwrap();
    let cookie = response.headers()["set-cookie"].to_str().unwrap();
    assert!(
        cookie.starts_with("__Host-gensvc=") && cookie.ends_with("; Secure"),
        "{cookie}"
    );
}

/// A change whose session has ended is not done, which the login says instead of leading back to
/// what takes changes alone.
#[sqlx::test]
async fn a_change_without_a_session_says_so(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let browser = Browser::logged_in(&app, &account).await;
    browser.post("/logout", &[]).await;
    let lost = browser.post("/keys/7/revoke", &[]).await;
    assert_eq!(lost.header("location"), "/login?undone=1");
    let page = words(&browser.page("/login?undone=1").await);
    assert!(page.contains("this was not done"), "{page}");
    let looked = browser.get("/keys").await;
    assert_eq!(looked.header("location"), "/login?next=%2Fkeys");
    assert!(!words(&browser.page("/login").await).contains("not done"));
}

#[sqlx::test]
async fn everybody_can_log_out(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let suspended = Browser::logged_in(&app, &account).await;
    app.app
        .service
        .set_suspended(account.id, true, Some("unpaid"))
        .await
        .unwrap();
    assert_eq!(suspended.get("/").await.status, StatusCode::FORBIDDEN);
    let unknown = Browser {
        app: &app,
        cookie: "gensvc=svcs_unknown".to_owned(),
    };
    for browser in [suspended, unknown] {
        let answer = browser.post("/logout", &[]).await;
        assert_eq!(answer.header("location"), "/login");
        assert!(answer.header("set-cookie").contains("Max-Age=0"));
    }
}

/// Whatever a page is made of, it is one request of its session, and one line of the log.
#[sqlx::test]
async fn a_page_is_one_request(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let browser = Browser::logged_in(&app, &account).await;
    let left = |answer: &Answer| {
        answer
            .header("x-ratelimit-remaining")
            .parse::<u32>()
            .unwrap()
    };
    let mut before = left(&browser.get("/").await);
    for path in [
        "/generations",
        "/playground/text",
        "/keys",
        "/keys.csv",
        "/",
    ] {
        let answer = browser.get(path).await;
        assert_eq!(left(&answer), before - 1, "{path}");
        before -= 1;
        assert!(!answer.header("x-request-id").is_empty(), "{path}");
    }
    let missing = browser.get("/keys/7").await;
    assert!(
        missing.text.starts_with("<!DOCTYPE html>"),
        "{}",
        missing.text
    );
    let metrics = app.metrics(&[("host", "127.0.0.1")]).await.text;
    for (route, status) in [
        ("/keys", 200),
        ("/playground/{type}", 200),
        ("/keys/{id}", 404),
    ] {
        let counted = format!("route=\"{route}\",status=\"{status}\"}} 1");
        assert!(metrics.contains(&counted), "{counted} in {metrics}");
    }
}

#[sqlx::test]
async fn who_asked_too_much_can_log_out(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let browser = Browser::logged_in(&app, &account).await;
    browser.page("/").await;
    let full = "update rate_limits set tat = tat + 60000000000 where kind = 's'";
    sqlx::query(full).execute(&app.pool).await.unwrap();
    let refused = browser.get("/").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(
        words(&refused.text).contains("Too many requests"),
        "{}",
        refused.text
    );
    // Also with the cookie of a viewed account, and for what creates something.
    let cookies = format!("{}; gensvc-view=1", browser.cookie);
    let viewing = Browser {
        app: &app,
        cookie: cookies,
    };
    for page in ["/", "/keys", "/generations.csv"] {
        assert_eq!(
            viewing.get(page).await.status,
            StatusCode::TOO_MANY_REQUESTS
        );
    }
    let made = viewing.post("/keys", &[("name", "x")]).await;
    assert_eq!(made.status, StatusCode::TOO_MANY_REQUESTS);
    let answer = browser.post("/logout", &[]).await;
    assert!(answer.header("set-cookie").contains("Max-Age=0"));
    // Not only the cookie is gone.
    app.advance(chrono::TimeDelta::minutes(5));
    assert_eq!(browser.get("/keys").await.status, StatusCode::SEE_OTHER);
}

#[sqlx::test]
async fn without_the_database_pages_say_so_and_one_can_log_out(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let browser = Browser::logged_in(&app, &account).await;
    app.store.close(std::time::Duration::from_secs(5)).await;
    let answer = browser.get("/keys").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        words(&answer.text).contains("Not available at the moment"),
        "{}",
        answer.text
    );
    let answer = browser.post("/logout", &[]).await;
    assert_eq!(answer.header("location"), "/login");
    assert!(answer.header("set-cookie").contains("Max-Age=0"));
}

#[sqlx::test]
async fn who_is_not_known_sends_little(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let anonymous = Browser {
        app: &app,
        cookie: String::new(),
    };
    let long = "x".repeat(20_000);
    for path in ["/login", "/keys", "/templates"] {
        let answer = anonymous.post(path, &[("email", &long)]).await;
        // The bodies of other forms are not read.
        let expected = match path {
            "/login" => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::SEE_OTHER,
        };
        assert_eq!(answer.status, expected, "{path}");
    }
}

/// What another site, another page or a program without a page sends is refused.
#[sqlx::test]
async fn changes_come_from_our_own_pages_only(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let browser = Browser::logged_in(&app, &account).await;
    let form = ("content-type", "application/x-www-form-urlencoded");
    for headers in [
        vec![form],
        vec![form, ("origin", "null")],
        vec![form, ("origin", "https://evil.example")],
        vec![form, ("origin", "http://test.evil.example")],
        vec![
            form,
            ("origin", "http://test"),
            ("sec-fetch-site", "cross-site"),
        ],
        vec![
            form,
            ("origin", "http://test"),
            ("sec-fetch-site", "same-site"),
        ],
        vec![form, ("sec-fetch-site", "same-origin")],
    ] {
        for path in [
            "/login",
            "/logout",
            "/keys",
            "/playground/text",
            "/playground/text/compare",
            "/settings/password",
        ] {
            let body = "name=stolen&prompt=x".to_owned();
            let answer = browser.send(Method::POST, path, &headers, body).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path} {headers:?}");
        }
    }
    let keys = app.get(&account.key, "/v1/api-keys").await.json();
    assert_eq!(keys["data"].as_array().unwrap().len(), 1);
    browser.page("/keys").await;
}

#[sqlx::test]
async fn a_page_loads_and_runs_our_own_files_only(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let browser = Browser::logged_in(&app, &account).await;
    let record = generate(&app, &account, "text", json!({"prompt": "x"})).await;
    let receipt = format!("/generations/{}", record["uuid"].as_str().unwrap());
    let more = [
        "/login",
        "/connect",
        "/nowhere",
        "/generations/none",
        &receipt,
    ];
    for path in PAGES.iter().chain(&more) {
        let answer = browser.get(path).await;
        assert!(
            answer.header("content-type").starts_with("text/html"),
            "{path}"
        );
        assert_eq!(
            answer.header("content-security-policy"),
            "default-src 'none'; script-src 'self'; style-src 'self'; \
             img-src 'self' data: blob: http://test; media-src 'self' data: blob: http://test; \
             connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
            "{path}"
        );
        assert_eq!(answer.header("cache-control"), "no-store", "{path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        for wrong in [" style=\"", " onclick", " onload", "javascript:", "<style"] {
            assert!(!answer.text.contains(wrong), "{wrong} in {path}");
        }
        let mut size = answer.text.len();
        for (tag, attribute) in [
            ("<script", "src=\""),
            ("<link rel=\"stylesheet\"", "href=\""),
        ] {
            for element in answer.text.split(tag).skip(1) {
                let (_, rest) = element.split_once(attribute).unwrap();
                let file = rest.split('"').next().unwrap();
                assert!(file.starts_with("/assets/console-"), "{file}");
                let asset = browser.get(file).await;
                assert_eq!(asset.status, StatusCode::OK);
                assert!(asset.header("cache-control").contains("immutable"));
                size += asset.text.len();
            }
        }
        assert!(size < 100_000, "{path} loads {size} bytes");
    }
}

/// Files are redirected to the bucket, which the policy has to name too.
#[sqlx::test]
async fn a_page_shows_files_of_the_bucket(_: PgPoolOptions, options: PgConnectOptions) {
    let bucket = Bucket::start().await;
    let app = TestApp::with(options, &bucket.env()).await;
    let browser = Browser {
        app: &app,
        cookie: String::new(),
    };
    let answer = browser.get("/login").await;
    let policy = answer.header("content-security-policy");
    for sources in ["img-src", "media-src"] {
        let expected = format!("{sources} 'self' data: blob: http://test {};", bucket.url);
        assert!(policy.contains(&expected), "{policy}");
    }
}

/// Programs are answered as if there were no console.
#[sqlx::test]
async fn the_api_stays_as_it_is(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let browser = [("accept", HTML)];
    for path in [
        "/v1/nowhere",
        "/v1",
        "/openai/v1/nowhere",
        "/anthropic/v1/nowhere",
    ] {
        let answer = app.call(Method::GET, "", path, &browser, None).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        assert!(answer.json()["error"]["message"].is_string(), "{path}");
    }
    let answer = app.call(Method::GET, "", "/nowhere", &browser, None).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert!(
        answer.text.starts_with("<!DOCTYPE html>"),
        "{}",
        answer.text
    );
    app.get("", "/nowhere").await.error(404, "not_found");
    app.get("", "/").await.expect(200);
}

/// The console is a client of the API: it does nothing that the document does not have.
#[test]
fn each_action_is_an_operation_of_the_document() {
    let document = gensvc::api::openapi().unwrap();
    for operation in OPERATIONS {
        let method = operation.method.as_str().to_lowercase();
        assert!(
            document["paths"][operation.path][&method].is_object(),
            "{operation:?}"
        );
    }
}

/// The proxy appends its line; whatever the browser sends before it does not count.
#[sqlx::test]
async fn guesses_behind_a_proxy_are_counted_by_its_line(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let env = [("GENSVC__SERVER__TRUSTED_PROXIES", "127.0.0.1,10.0.0.0/8")];
    let app = TestApp::with(options, &env).await;
    let email = app.account("1").await.email;
    let anonymous = Browser {
        app: &app,
        cookie: String::new(),
    };
    let log_in = async |password: &str, forwarded: &[&str]| {
        let mut headers = vec![
            ("origin", "http://test"),
            ("sec-fetch-site", "same-origin"),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        headers.extend(forwarded.iter().map(|line| ("x-forwarded-for", *line)));
        let body = format!("email={email}&password={password}");
        let answer = anonymous.send(Method::POST, "/login", &headers, body).await;
        answer.status
    };
    for n in 0..10 {
        let invented = format!("9.9.9.{n}");
        let lines: &[&str] = match n % 3 {
            0 => &[&invented, "1.1.1.1"],
            1 => &[&invented, "8.8.8.8, 1.1.1.1", "10.0.0.3"],
            _ => &[&invented, "1.1.1.1,10.0.0.3"],
        };
        assert_eq!(log_in("wrong+password", lines).await, 401, "{n}");
    }
    for lines in [
        &["9.9.9.9", "1.1.1.1"][..],
        &["2.2.2.2, 1.1.1.1", "10.0.0.3"],
    ] {
        assert_eq!(log_in("wrong+password", lines).await, 429);
    }
    let password = PASSWORD.replace(' ', "+");
    assert_eq!(log_in(&password, &["1.1.1.1", "2.2.2.2"]).await, 303);
}

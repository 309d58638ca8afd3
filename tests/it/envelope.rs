//! What all routes share: methods, request ids, tokens, the order of checks, CORS.

mod bodies;
mod paths;
mod values;

use axum::body::Body;
use http::{Method, Request};
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{Answer, TestApp};

const TEXT: &str = "/v1/generate/text";

/// A request with a body of any kind.
pub fn raw(
    method: Method,
    path: &str,
    token: &str,
    headers: &[(&str, &str)],
    body: Body,
) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    if !token.is_empty() {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body).unwrap()
}

async fn options_of(app: &TestApp, path: &str, headers: &[(&str, &str)]) -> Answer {
    app.call(Method::OPTIONS, "", path, headers, None).await
}

#[sqlx::test]
async fn an_inbound_request_id_is_kept_if_it_is_harmless(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let long = "x".repeat(128);
    for kept in ["a", "A-Z_0.9", &long] {
        for path in ["/health/live", "/v1/auth/me", "/nowhere", "/docs"] {
            let headers = [("x-request-id", kept)];
            let answer = app.call(Method::GET, "", path, &headers, None).await;
            assert_eq!(answer.header("x-request-id"), kept, "{path}");
            if answer.status.is_client_error() {
                assert_eq!(answer.json()["error"]["request_id"], kept);
            }
        }
    }
    let too_long = "x".repeat(129);
    for replaced in ["", " ", "a b", "a/b", "a,b", "ä", "{}", &too_long] {
        let headers = [("x-request-id", replaced)];
        let answer = app.call(Method::GET, "", "/nowhere", &headers, None).await;
        let id = answer.header("x-request-id").to_owned();
        assert_eq!(uuid::Uuid::parse_str(&id).unwrap().get_version_num(), 7);
        answer.error(404, "not_found");
    }
    let (one, two) = (
        app.get("", "/health/live").await,
        app.get("", "/health/live").await,
    );
    assert_ne!(one.header("x-request-id"), two.header("x-request-id"));
}

#[sqlx::test]
async fn a_401_says_why_and_how(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let made_up = gensvc::domain::token::new_api_key().unwrap();
    let made_up = secrecy::ExposeSecret::expose_secret(&made_up.secret).to_owned();
    let me = |values: Vec<http::HeaderValue>| {
        let mut request = raw(Method::GET, "/v1/auth/me", "", &[], Body::empty());
        for value in values {
            request.headers_mut().append("authorization", value);
        }
        app.send(request)
    };
    let text = |text: &str| vec![http::HeaderValue::from_str(text).unwrap()];
    for (header, code) in [
        ("", "missing_token"),
        ("Bearer", "missing_token"),
        ("Bearer  ", "missing_token"),
        ("Basic YTpi", "missing_token"),
        (&account.key, "missing_token"),
        ("Bearer wrong", "invalid_token"),
        ("Bearer svc_", "invalid_token"),
        ("Bearer a b", "invalid_token"),
        (&format!("Bearer {made_up}"), "invalid_token"),
        (
            &format!("Bearer {}", account.key.to_lowercase()),
            "invalid_token",
        ),
        (&format!("Bearer {}x", account.key), "invalid_token"),
        (&format!("Bearer {}", &account.key[4..]), "invalid_token"),
        (&format!("Bearer {}", "x".repeat(43)), "invalid_token"),
    ] {
        let answer = me(text(header)).await;
        let error = answer.error(401, code);
        assert_eq!(error["type"], "authentication_error", "{header}");
        assert_eq!(answer.header("www-authenticate"), "Bearer");
        assert_eq!(error["retryable"], false);
    }
    me(Vec::new()).await.error(401, "missing_token");
    let good = format!("Bearer {}", account.key);
    let bytes = http::HeaderValue::from_bytes(b"Bearer \xff\xfe").unwrap();
    me(vec![bytes]).await.error(401, "invalid_token");
    me([text(&good), text(&good)].concat())
        .await
        .error(401, "invalid_token");
    for scheme in ["Bearer", "bearer", "BEARER"] {
        me(text(&format!("{scheme} {}", account.key)))
            .await
            .expect(200);
    }
}

#[sqlx::test]
async fn checks_come_in_the_order_of_the_contract(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let key = |abilities: &str, limit: u32| {
        app.key(
            account.id,
            json!({"name": "k", "abilities": [abilities], "rate_limit_per_minute": limit}),
        )
    };
    let (spent, unable) = (key("read:history", 1).await, key("read:history", 600).await);
    app.get(&spent, "/v1/auth/me").await.expect(200);
    let json = ("content-type", "application/json");
    let plain = ("content-type", "text/plain");
    let large = "x".repeat(262_145);
    // Everything is wrong with the request; each step fixes one mistake.
    for (path, token, content_type, body, status, code) in [
        ("/v1/nowhere", "", plain, "{", 404, "not_found"),
        (TEXT, "", plain, "{", 401, "missing_token"),
        (TEXT, &spent, plain, "{", 429, "rate_limited"),
        (TEXT, &unable, plain, "{", 403, "missing_ability"),
        (TEXT, &unable, json, &large, 403, "missing_ability"),
        (
            TEXT,
            &account.key,
            plain,
            "{",
            415,
            "unsupported_media_type",
        ),
        (TEXT, &account.key, json, &large, 413, "payload_too_large"),
        (TEXT, &account.key, json, "{", 400, "malformed_json"),
        (
            TEXT,
            &account.key,
            json,
            r#"{"prompt": "", "max_cost": 0}"#,
            422,
            "validation_failed",
        ),
        (
            TEXT,
            &account.key,
            json,
            r#"{"prompt": "x", "max_cost": 0}"#,
            402,
            "max_cost_exceeded",
        ),
    ] {
        for query in ["", "?zzz=1"] {
            // Unknown parameters are a validation error.
            let late = query.is_empty() || ![402, 422].contains(&status);
            let (status, code) = if late {
                (status, code)
            } else {
                (422, "validation_failed")
            };
            let url = format!("{path}{query}");
            let answer = app
                .call(
                    Method::POST,
                    token,
                    &url,
                    &[content_type],
                    Some(body.to_owned()),
                )
                .await;
            answer.error(status, code);
        }
    }
    app.get(&unable, "/v1/credits/ledger?zzz=1")
        .await
        .error(403, "missing_ability");
    app.get(&unable, "/v1/api-keys/none")
        .await
        .error(403, "missing_ability");
    // An expired key is reported as such, not as rate limited.
    let revoked = key("*", 1).await;
    app.get(&revoked, "/v1/auth/me").await.expect(200);
    sqlx::query("update api_keys set revoked_at = now() where rate_limit_per_minute = 1")
        .execute(&app.pool)
        .await
        .unwrap();
    app.get(&revoked, "/v1/auth/me")
        .await
        .error(401, "revoked_key");
}

#[sqlx::test]
async fn without_configured_origins_there_is_no_cors(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let origin = ("origin", "https://app.example.com");
    let method = ("access-control-request-method", "POST");
    let preflight = options_of(&app, TEXT, &[origin, method]).await;
    preflight.error(405, "method_not_allowed");
    let plain = app.call(Method::GET, "", "/health", &[origin], None).await;
    for answer in [preflight, plain] {
        let cors = |name: &http::HeaderName| name.as_str().starts_with("access-control-");
        assert!(!answer.headers.keys().any(cors), "{:?}", answer.headers);
    }
}

#[sqlx::test]
async fn configured_origins_may_call(_: PgPoolOptions, options: PgConnectOptions) {
    let env = [(
        "GENSVC__SERVER__CORS_ORIGINS",
        "https://app.example.com,https://b.example.com",
    )];
    let app = TestApp::with(options, &env).await;
    let good = ("origin", "https://app.example.com");
    for path in ["/health", "/v1/auth/me", "/nowhere", TEXT] {
        let answer = app.call(Method::GET, "", path, &[good], None).await;
        assert_eq!(
            answer.header("access-control-allow-origin"),
            good.1,
            "{path}"
        );
        let exposed = answer
            .header("access-control-expose-headers")
            .to_lowercase();
        for name in [
            "x-request-id",
            "x-ratelimit-remaining",
            "retry-after",
            "link",
            "location",
            "x-gensvc-left-out",
            "x-ratelimit-remaining-requests",
            "anthropic-ratelimit-requests-reset",
            "x-should-retry",
        ] {
            assert!(exposed.contains(name), "{name} is not exposed");
        }
        assert!(answer.header("vary").to_lowercase().contains("origin"));
    }
    let evil = ("origin", "https://evil.example.com");
    let answer = app.call(Method::GET, "", "/health", &[evil], None).await;
    assert_eq!(answer.header("access-control-allow-origin"), "");
    let wanted = [
        good,
        ("access-control-request-method", "PATCH"),
        (
            "access-control-request-headers",
            "authorization,idempotency-key",
        ),
    ];
    let preflight = options_of(&app, TEXT, &wanted).await;
    assert!(preflight.status.is_success());
    assert_eq!(preflight.header("access-control-allow-origin"), good.1);
    let methods = preflight.header("access-control-allow-methods").to_owned();
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
        assert!(methods.contains(method), "{methods}");
    }
    let headers = preflight
        .header("access-control-allow-headers")
        .to_lowercase();
    for name in [
        "authorization",
        "content-type",
        "idempotency-key",
        "prefer",
        "x-request-id",
        "user-agent",
        "openai-organization",
        "openai-project",
        "openai-beta",
        "anthropic-beta",
        "x-stainless-helper",
        "x-stainless-poll-helper",
        "x-stainless-async",
    ] {
        assert!(headers.contains(name), "{headers}");
    }
    assert_eq!(preflight.header("access-control-allow-credentials"), "");
    assert_ne!(
        preflight.header("x-request-id"),
        "",
        "every response has one"
    );
}

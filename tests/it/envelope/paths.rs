//! Unknown routes, wrong methods, HEAD, ids in paths, queries.

use std::collections::BTreeSet;

use http::Method;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::{
    common::{Answer, TestApp},
    openapi_walk::{objects, operations},
};

const UUID: &str = "0197c0de-0000-7000-8000-000000000000";

#[sqlx::test]
async fn unknown_routes_and_wrong_methods_are_told_in_the_envelope(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let record = format!("/v1/generate/{UUID}");
    let cases = [
        ("GET", "/v1", ""),
        ("GET", "/v2/models", ""),
        ("GET", "/V1/models", ""),
        ("POST", "/v1/nope", ""),
        // No redirects for trailing slashes.
        ("GET", "/v1/models/", ""),
        ("GET", "/v1/generate/history/", ""),
        ("POST", "/v1/generate/text/", ""),
        ("GET", "//health", ""),
        ("GET", "/docs/", ""),
        ("GET", "/docs/nope.js", ""),
        ("GET", "/docs/..%2f..%2fCargo.toml", ""),
        ("GET", "/v1/generate/text", "POST"),
        ("DELETE", "/v1/generate/text", "POST"),
        ("OPTIONS", "/v1/generate/text", "POST"),
        ("HEAD", "/v1/generate/text", "POST"),
        ("POST", "/v1/generate/history", "GET,HEAD"),
        ("PATCH", &record, "GET,HEAD,DELETE"),
        ("PUT", "/v1/api-keys/1", "GET,HEAD,DELETE"),
        ("PUT", "/v1/api-keys", "GET,HEAD,POST"),
        ("GET", "/v1/auth/login", "POST"),
        ("GET", "/v1/auth/logout", "POST"),
        ("POST", "/v1/auth/password", "PATCH"),
        ("POST", "/v1/auth/me", "GET,HEAD"),
        ("DELETE", "/v1/credits/balance", "GET,HEAD"),
        ("POST", "/health", "GET,HEAD"),
        ("POST", "/openapi.json", "GET,HEAD"),
        ("POST", "/docs", "GET,HEAD"),
        ("POST", "/", "GET,HEAD"),
        ("BREW", "/v1/models", "GET,HEAD"),
    ];
    let set =
        |text: &str| -> BTreeSet<String> { text.split(',').map(|m| m.trim().to_owned()).collect() };
    for (method, path, allowed) in cases {
        for token in ["", "wrong", &account.key] {
            let method: Method = method.parse().unwrap();
            let answer = app.call(method.clone(), token, path, &[], None).await;
            if allowed.is_empty() {
                answer.error(404, "not_found");
                assert_eq!(answer.header("allow"), "", "{path}");
                continue;
            }
            assert_eq!(answer.status, 405, "{method} {path}");
            if method != Method::HEAD {
                let error = answer.error(405, "method_not_allowed");
                assert_eq!(error["type"], "invalid_request");
                let message = error["message"].as_str().unwrap();
                let named = message.strip_prefix("this path does not take this method; it takes ");
                assert_eq!(set(named.unwrap()), set(allowed), "{method} {path}");
            }
            let found = set(answer.header("allow"));
            assert_eq!(found, set(allowed), "{method} {path}");
        }
    }
}

/// A refusal says what there is instead.
#[sqlx::test]
async fn refusals_name_what_was_probably_meant(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let key = account.key.as_str();
    let message = |answer: &Answer| {
        answer.json()["error"]["message"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let lost = app.post("", "/openai/v1/embeddings", &json!({})).await;
    assert_eq!(lost.status, 404);
    let said = message(&lost);
    assert!(
        said.starts_with("this server has no /openai/v1/embeddings; it has /openai/v1/"),
        "{said}"
    );
    assert!(
        said.contains("/openai/v1/images/generations") && !said.contains("/anthropic"),
        "{said}"
    );
    let said = message(&app.get("", "/v1/nowhere").await);
    assert_eq!(
        said,
        "this server has no /v1/nowhere; its paths are described at /docs"
    );

    for (body, sentence) in [
        (
            json!({"prompt": "x", "max_tokens": 5}),
            "belongs in `parameters`",
        ),
        (
            json!({"prompt": "x", "parameters": {"max_cost": "5"}}),
            "belongs at the top of the body, not in `parameters`",
        ),
        (
            json!({"prompt": "x", "model": "gpt-4o"}),
            "`gpt-4o` is not a text model of `sandbox`, the provider of this request; set \
             `provider`, or use sandbox-text-1",
        ),
        (
            json!({"prompt": "x", "model": "sandbox/gone", "provider": "route"}),
            "`sandbox/gone` is not a text route of this server; GET /v1/models lists the models",
        ),
        (
            json!({"promt": "x"}),
            "is not a field of this request (did you mean prompt?); it takes",
        ),
        (
            json!({"prompt": "x", "provider": "openai"}),
            "; openai is known here but not enabled (no key in OPENAI_API_KEY)",
        ),
        (
            json!({"prompt": "x", "provider": "sanbox"}),
            "; did you mean sandbox?",
        ),
    ] {
        let answer = app.post(key, "/v1/generate/text", &body).await;
        let errors = answer.json()["error"]["errors"].to_string();
        assert!(errors.contains(sentence), "{errors}");
    }
}

#[sqlx::test]
async fn head_answers_as_get(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let objects = objects(&app, &account).await;
    let mut urls: Vec<String> = operations()
        .iter()
        .filter(|o| o.method == Method::GET)
        .map(|o| o.url(&objects))
        .collect();
    for more in [
        "/openapi.json",
        "/docs",
        "/docs/swagger-ui.css",
        "/v1/credits/ledger?per_page=1",
        "/v1/generate/nope",
        "/nowhere",
    ] {
        urls.push(more.to_owned());
    }
    for url in urls {
        for token in ["", &account.key] {
            let get = app.get(token, &url).await;
            let head = app.call(Method::HEAD, token, &url, &[], None).await;
            assert_eq!(head.status, get.status, "{url}");
            for name in ["content-type", "link", "www-authenticate"] {
                assert_eq!(head.header(name), get.header(name), "{url} {name}");
            }
            assert_ne!(head.header("x-request-id"), "");
            if head.status.is_success() {
                assert_eq!(head.text, "", "{url}");
            }
        }
    }
}

#[sqlx::test]
async fn a_malformed_id_is_not_found_and_case_does_not_matter(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let simple = UUID.replace('-', "");
    for id in [
        "nope",
        "0",
        "text2",
        "%00",
        "%ff",
        "%20",
        &simple,
        &format!("%7B{UUID}%7D"),
        &format!("urn:uuid:{UUID}"),
        &UUID[..35],
        &"x".repeat(36),
        UUID,
    ] {
        for (method, path) in [
            (Method::GET, format!("/v1/generate/{id}")),
            (Method::DELETE, format!("/v1/generate/{id}")),
            (Method::POST, format!("/v1/generate/{id}/cancel")),
        ] {
            let answer = app.call(method, &account.key, &path, &[], None).await;
            answer.error(404, "not_found");
            app.call(
                Method::POST,
                "",
                &format!("/v1/generate/{id}/cancel"),
                &[],
                None,
            )
            .await
            .error(401, "missing_token");
        }
    }
    for id in [
        "nope",
        "-1",
        "+1",
        "1.0",
        "0x1",
        "1e3",
        "%00",
        "%ff",
        "%D9%A1",
        "0",
        "9223372036854775807",
        "9223372036854775808",
        "99999999999999999999999",
    ] {
        let path = format!("/v1/api-keys/{id}");
        app.get(&account.key, &path).await.error(404, "not_found");
        app.delete(&account.key, &path)
            .await
            .error(404, "not_found");
    }
    let objects = objects(&app, &account).await;
    let upper = objects.uuid.to_uppercase();
    let path = format!("/v1/generate/{upper}");
    let found = app.get(&account.key, &path).await.expect(200);
    assert_eq!(found["uuid"], objects.uuid);
    let ledger = format!("/v1/credits/ledger?generation={upper}");
    let entries = app.get(&account.key, &ledger).await.expect(200);
    assert_eq!(entries["data"].as_array().unwrap().len(), 2);
    app.post(&account.key, &format!("{path}/cancel"), &json!({}))
        .await
        .error(409, "already_finished");
    app.delete(&account.key, &path).await.expect(204);
    app.delete(&account.key, &path)
        .await
        .error(404, "not_found");
}

#[sqlx::test]
async fn a_query_is_read_strictly(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    for (url, param, code) in [
        ("/v1/generate/history?Type=text", "Type", "unknown_field"),
        ("/v1/generate/history?page=2", "page", "unknown_field"),
        (
            "/v1/generate/history?type=text&type=text",
            "type",
            "invalid_format",
        ),
        (
            "/v1/generate/history?type=text&%74ype=image",
            "type",
            "invalid_format",
        ),
        (
            "/v1/generate/history?provider=%00",
            "provider",
            "invalid_format",
        ),
        ("/v1/models?provider=a%00b", "provider", "invalid_format"),
        ("/v1/models?type=text&type=video", "type", "invalid_format"),
        ("/v1/models?type=", "type", "not_allowed"),
        (
            "/v1/api-keys?per_page=1&per_page=1",
            "per_page",
            "invalid_format",
        ),
        ("/v1/credits/ledger?=", "", "unknown_field"),
        ("/v1/credits/ledger?kind", "kind", "not_allowed"),
        ("/health?a", "a", "unknown_field"),
    ] {
        let answer = app.get(&account.key, url).await;
        let error = answer.error(422, "validation_failed");
        assert_eq!(error["type"], "validation_error");
        assert_eq!(error["param"], param, "{url}");
        let fields = answer.fields();
        assert_eq!(fields.get(param).map(String::as_str), Some(code), "{url}");
    }
    // Routes besides the table of operations.
    for url in ["/openapi.json?zzz=1", "/docs?zzz=1"] {
        assert_eq!(app.get("", url).await.fields()["zzz"], "unknown_field");
    }
    for url in [
        "/v1/generate/history?",
        "/v1/generate/history?&&",
        "/v1/generate/history?per%5Fpage=%31",
    ] {
        app.get(&account.key, url).await.expect(200);
    }
    let all = "/v1/generate/history?type=x&status=y&created_after=z&created_before=&per_page=0&cursor=!&a=1&b=2";
    let fields = app.get(&account.key, all).await.fields();
    let found: Vec<_> = fields
        .iter()
        .map(|(name, code)| (name.as_str(), code.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            ("a", "unknown_field"),
            ("b", "unknown_field"),
            ("created_after", "invalid_format"),
            ("created_before", "invalid_format"),
            ("cursor", "invalid_format"),
            ("per_page", "out_of_range"),
            ("status", "not_allowed"),
            ("type", "not_allowed"),
        ]
    );
}

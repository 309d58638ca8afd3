//! Every error has the shape of the SDK whose path it is on.

use axum::body::Body;
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    CHAT, MESSAGES, MODELS, PATHS, RESPONSES, ROUTES, ask, error, events, get, prompt, stream_of,
    with,
};
use crate::{
    common::{Reply, TestApp, Upstream},
    envelope::raw,
};

#[sqlx::test]
async fn what_is_wrong_with_a_request_is_told_in_its_dialect(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let env = [("GENSVC__SERVER__MAX_SDK_BODY_BYTES", "2048")];
    let app = TestApp::with(options, &env).await;
    let account = app.account("10").await;
    let narrow = json!({"name": "n", "abilities": ["read:history"]});
    let narrow = app.key(account.id, narrow).await;
    let one = json!({"name": "one", "rate_limit_per_minute": 1});
    let one = app.key(account.id, one).await;
    let body = ask(MODELS[0], "x").to_string();
    let long = ask(MODELS[0], &"x".repeat(2048)).to_string();
    let json = ("content-type", "application/json");
    let post = |path: &'static str, token: &str, kind, body: &str| {
        app.send(raw(
            Method::POST,
            path,
            token,
            &[kind],
            Body::from(body.to_owned()),
        ))
    };
    for (path, kinds) in [
        (
            CHAT,
            [
                "authentication_error",
                "permission_error",
                "rate_limit_error",
                "insufficient_credits",
            ],
        ),
        (
            MESSAGES,
            [
                "authentication_error",
                "permission_error",
                "rate_limit_error",
                "billing_error",
            ],
        ),
    ] {
        let missing = post(path, "", json, &body).await;
        assert_eq!(
            error(path, &missing, 401, "missing_token")["type"],
            kinds[0]
        );
        assert_eq!(missing.header("x-should-retry"), "false");
        assert_eq!(missing.header("www-authenticate"), "Bearer");
        let wrong = post(path, "svc_wrong", json, &body).await;
        assert_eq!(error(path, &wrong, 401, "invalid_token")["type"], kinds[0]);
        let narrow = post(path, &narrow, json, &body).await;
        let refused = error(path, &narrow, 403, "missing_ability");
        assert_eq!(
            (&refused["type"], &refused["required_ability"]),
            (&json!(kinds[1]), &json!("generate:text"))
        );
        let invalid = "invalid_request_error";
        for (kind, text, status, code) in [
            (json, "{", 400, "malformed_json"),
            (json, "[]", 400, "malformed_json"),
            (json, long.as_str(), 413, "payload_too_large"),
            (
                ("content-type", "text/plain"),
                body.as_str(),
                415,
                "unsupported_media_type",
            ),
        ] {
            let answer = post(path, &account.key, kind, text).await;
            assert_eq!(error(path, &answer, status, code)["type"], invalid);
            assert_eq!(answer.header("x-should-retry"), "false");
        }
        let method = app.call(Method::PUT, &account.key, path, &[], None).await;
        let refused = error(path, &method, 405, "method_not_allowed");
        assert_eq!(method.header("allow"), "POST");
        let message = refused["message"].as_str().unwrap();
        assert!(message.ends_with("it takes POST"), "{message}");
        let keyed = [("idempotency-key", "a b")];
        let keyed = app
            .post_with(&account.key, path, &keyed, &ask(MODELS[0], "x"))
            .await;
        error(path, &keyed, 400, "invalid_header");
        let poor = app.account("0").await;
        let poor = post(path, &poor.key, json, &body).await;
        let short = error(path, &poor, 402, "insufficient_credits");
        assert_eq!(short["type"], kinds[3]);
        assert_eq!(
            (&short["affordable"], &short["balance"]),
            (&json!(null), &json!("0"))
        );
        assert_eq!(poor.header("x-should-retry"), "false");
    }
    // The limit of the key is one for both.
    assert_eq!(post(CHAT, &one, json, &body).await.status, 200);
    for path in ROUTES {
        let answer = post(path, &one, json, &body).await;
        assert_eq!(
            error(path, &answer, 429, "rate_limited")["type"],
            "rate_limit_error"
        );
        assert_eq!(answer.header("x-should-retry"), "true");
        assert_eq!(answer.header("retry-after"), "60");
        assert_eq!(answer.header("retry-after-ms"), "60000");
    }
    let suspended = app.account("1").await;
    sqlx::query("update accounts set suspended_at = now() where id = $1")
        .bind(suspended.id.0)
        .execute(&app.pool)
        .await
        .unwrap();
    for path in ROUTES {
        let answer = post(path, &suspended.key, json, &body).await;
        error(path, &answer, 403, "account_suspended");
    }
}

#[sqlx::test]
async fn other_paths_are_json_in_the_dialect(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    for path in [
        "/openai",
        "/openai/",
        "/openai/v1",
        "/openai/v1/embeddings",
        "/openai/v1/chat/completions/x",
        "/anthropic/v1",
        "/anthropic/v1/complete",
        "/anthropic/api/other",
    ] {
        for method in [Method::GET, Method::POST] {
            let answer = app.call(method, "", path, &[], None).await;
            error(path, &answer, 404, "not_found");
            assert_eq!(answer.header("x-should-retry"), "false");
        }
    }
    // Paths of other names are none of theirs.
    for path in ["/openais", "/anthropics/v1/messages"] {
        app.get("", path).await.error(404, "not_found");
    }
    for path in ["/anthropic", "/anthropic/", "/anthropic/api/hello"] {
        assert_eq!(get(&app, &[], path).await.status, 200);
        let head = app.call(Method::HEAD, "", path, &[], None).await;
        assert_eq!((head.status.as_u16(), head.text.as_str()), (200, ""));
        assert_ne!(head.header("request-id"), "");
    }
}

#[sqlx::test]
async fn an_error_within_a_stream_has_the_dialects_shape(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let chunk = json!({"choices": [{"delta": {"content": "Hi"}}]});
    let message = json!({"type": "message_start", "message": {"usage": {"input_tokens": 9}}});
    let text = json!({"type": "text", "text": "Hi"});
    let block = json!({"type": "content_block_start", "index": 0, "content_block": text});
    let busy = json!({"type": "error", "error": {"type": "overloaded_error", "message": "no"}});
    let broken = json!({"error": {"message": "no", "type": "server_error", "code": null}});
    for (model, stream, code, kind) in [
        (
            MODELS[1],
            stream_of(&[chunk, broken]),
            "provider_error",
            "api_error",
        ),
        (
            MODELS[2],
            stream_of(&[message, block, busy]),
            "provider_overloaded",
            "overloaded_error",
        ),
    ] {
        upstream.reply(Reply::Raw(200, "text/event-stream", stream));
        for path in PATHS {
            let body = with(prompt(path, model, "x"), &json!({"stream": true}));
            let answer = app.post(&account.key, path, &body).await;
            assert_eq!(answer.status, 200);
            let last = events(path, &answer.text).pop().unwrap();
            let error = match path {
                RESPONSES => {
                    assert_eq!(last["type"], "response.failed");
                    assert_eq!(last["response"]["status"], "failed");
                    &last["response"]["error"]
                }
                _ => &last["error"],
            };
            assert!(error["message"].is_string(), "{last}");
            if path == MESSAGES {
                let names = (
                    &last["type"],
                    &error["type"],
                    &error["details"]["error_code"],
                );
                assert_eq!(names, (&json!("error"), &json!(kind), &json!(code)));
                assert_eq!(last["request_id"], answer.header("request-id"));
            } else {
                assert_eq!(error["code"], code, "{last}");
            }
            if path == CHAT {
                assert_eq!(error["type"], "server_error");
                assert_eq!(error["param"], Value::Null);
            }
        }
    }
    assert_eq!(app.balance(&account).await.0, "10");
    app.assert_settled().await;
}

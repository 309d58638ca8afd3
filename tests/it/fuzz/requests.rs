//! Mutated requests through the whole router, for every documented operation. Every response is a
//! documented one, and the credits agree.

mod made;
mod stage;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use axum::body::Body;
use http::{Method, Request};
use proptest::prelude::*;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    Size,
    bytes::{cut, cuts},
    check,
};
use crate::{
    common::{Answer, TestApp},
    openapi_walk::{Operation, every_operation},
    surfaces,
};
use made::{case, id, query};
use stage::Stage;

/// Cases that share an account.
const SHARED: usize = 40;

/// A documented response, and not an internal error.
fn assert_sound(operation: &Operation, answer: &Answer) {
    let status = answer.status.as_u16();
    assert_ne!(status, 500, "{}", answer.text);
    if status == 503 {
        assert_eq!(code_of(&operation.path, answer), "provider_overloaded");
    }
    if answer
        .header("content-type")
        .starts_with("text/event-stream")
    {
        assert_eq!(status, 200);
        if operation.is_for_sdks() {
            let last = surfaces::events(&operation.path, &answer.text)
                .pop()
                .unwrap();
            let ended = ["message_stop", "response.completed", "response.incomplete"];
            let ended = last == "[DONE]" || ended.iter().any(|kind| last["type"] == *kind);
            let last = last.get("response").unwrap_or(&last);
            assert!(ended || last["error"]["message"].is_string(), "{last}");
            return;
        }
        let (name, _) = answer.events().pop().unwrap();
        assert!(["completed", "failed"].contains(&name.as_str()), "{name}");
    } else {
        operation.check(answer, "made up");
    }
}

#[sqlx::test]
async fn every_operation_answers_as_documented(_: PgPoolOptions, options: PgConnectOptions) {
    let app = Arc::new(TestApp::new(options).await);
    let mut operations = every_operation();
    operations.retain(|o| !o.is_media());
    // Operations with a body are chosen more often.
    let bodies = every_operation();
    let bodies = bodies.into_iter().filter(|o| o.body_schema().is_some());
    operations.extend(bodies.flat_map(|o| {
        let again = || Operation {
            method: o.method.clone(),
            path: o.path.clone(),
            spec: o.spec.clone(),
        };
        [again(), again(), again()]
    }));
    let operations = Arc::new(operations);
    let stage: Arc<Mutex<Option<Arc<Stage>>>> = Arc::default();
    let count = Arc::new(AtomicUsize::new(0));
    let size = Size {
        small: 240,
        cost: 8,
    };
    let audited = Arc::clone(&app);
    check(size, case(), move |case| {
        let (app, operations) = (Arc::clone(&app), Arc::clone(&operations));
        let (stage, count) = (Arc::clone(&stage), Arc::clone(&count));
        async move {
            let n = count.fetch_add(1, Ordering::Relaxed);
            if n % SHARED == 0 {
                let next = Stage::new(&app).await;
                *stage.lock().unwrap() = Some(Arc::new(next));
                app.assert_verified().await;
            }
            let stage = stage.lock().unwrap().clone().unwrap();
            let operation = &operations[case.operation.index(operations.len())];
            let Some(request) = stage.request(&case, operation) else {
                return;
            };
            let path = request.uri().path().to_owned();
            let answer = if operation.waits_for_workers() {
                app.working(app.send(request)).await
            } else {
                app.send(request).await
            };
            if case.id.is_some() && !operation.path.is_empty() {
                // The path may have changed by now.
                assert_envelope(&answer, &path);
            } else {
                assert_sound(operation, &answer);
            }
        }
    })
    .await;
    audited.idle().await;
    audited.assert_verified().await;
}

/// The code of an error, which has the shape that its path asks for.
fn code_of(path: &str, answer: &Answer) -> String {
    let error = &answer.json()["error"];
    let status = answer.status.as_u16();
    let code = |code: &serde_json::Value| code.as_str().unwrap().to_owned();
    if surfaces::are_for_sdks(path) {
        let code = code(error.get("code").unwrap_or(&error["details"]["error_code"]));
        surfaces::error(path, answer, status, &code);
        return code;
    }
    let code = code(&error["code"]);
    answer.error(status, &code);
    code
}

/// Refusals use the error format, except for those of the console's pages, and nothing breaks.
fn assert_envelope(answer: &Answer, path: &str) {
    let status = answer.status.as_u16();
    assert!(status < 500, "{path}: {}", answer.text);
    let is_page = answer.text.starts_with("<!DOCTYPE html>");
    if is_page {
        assert!(!path.starts_with("/v1"), "{path}: {}", answer.text);
    } else if status >= 400 {
        code_of(path, answer);
    }
}

#[sqlx::test]
async fn any_path_and_method_gets_the_envelope(_: PgPoolOptions, options: PgConnectOptions) {
    let app = Arc::new(TestApp::new(options).await);
    let account = app.account("1").await;
    let known: Vec<String> = every_operation().into_iter().map(|o| o.path).collect();
    let known = prop::sample::select(known);
    let changed = (known, cuts(3)).prop_map(|(path, cuts)| {
        let mut bytes = path.into_bytes();
        cut(&mut bytes, &cuts);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let path = prop_oneof![3 => changed, 1 => "/[!-~]{0,60}", 1 => id().prop_map(|id| format!("/v1/{id}"))];
    let method = prop::sample::select(vec![
        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW",
    ]);
    let size = Size {
        small: 300,
        cost: 1,
    };
    check(
        size,
        (method, path, query()),
        move |(method, path, query)| {
            let (app, key) = (Arc::clone(&app), account.key.clone());
            async move {
                let method: Method = method.parse().unwrap();
                let request = Request::builder()
                    .method(method.clone())
                    .uri(format!("{path}?{query}"))
                    .header("authorization", format!("Bearer {key}"));
                let Ok(request) = request.body(Body::empty()) else {
                    return;
                };
                // An accidental logout or deletion is not this test's concern.
                let answer = app.send(request).await;
                if method == Method::HEAD {
                    assert!(answer.status.as_u16() < 500);
                } else {
                    assert_envelope(&answer, &path);
                }
            }
        },
    )
    .await;
}

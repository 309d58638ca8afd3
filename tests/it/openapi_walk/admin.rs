//! Admin operations with every kind of token, and the admin token on all other operations.

use std::collections::BTreeSet;

use http::Method;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{Operation, every_operation, objects, operations};
use crate::{
    common::{Account, Answer, TestApp},
    v1::admin::{operator, revoked_operator},
};

fn admin_operations() -> Vec<Operation> {
    let mut all = every_operation();
    all.retain(Operation::is_admin);
    assert!(all.len() >= 6, "only {}", all.len());
    all
}

/// Calls it for an account.
async fn call(app: &TestApp, operation: &Operation, token: &str, account: &Account) -> Answer {
    let url = operation.admin_url(&account.id.to_string(), None);
    assert!(!url.contains('{'), "a parameter that is new here: {url}");
    operation.call_at(app, token, &url).await
}

/// Exactly the routes under /v1/admin are declared as admin operations.
#[test]
fn what_is_under_admin_is_the_operators() {
    for operation in every_operation() {
        let at = format!("{} {}", operation.method, operation.path);
        let under = operation.path.starts_with("/v1/admin/");
        assert_eq!(operation.is_admin(), under, "{at}");
        assert_eq!(operation.ability() == "admin", under, "{at}");
    }
}

#[sqlx::test]
async fn without_an_admin_token_nothing_is_told_or_done(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let session = app.login(&account).await;
    let wrong = operator(&app).await;
    let typo = format!(
        "{}{}",
        &wrong[..43],
        if wrong.ends_with('x') { 'y' } else { 'x' }
    );
    let revoked = revoked_operator(&app).await;
    for operation in admin_operations() {
        let at = format!("{} {}", operation.method, operation.path);
        for (token, code) in [
            ("", "missing_token"),
            ("wrong", "invalid_token"),
            (&typo, "invalid_token"),
            (&revoked, "revoked_key"),
        ] {
            let answer = call(&app, &operation, token, &account).await;
            operation.check(&answer, token);
            answer.error(401, code);
            assert_eq!(answer.header("www-authenticate"), "Bearer", "{at}");
            assert_eq!(answer.header("x-ratelimit-limit"), "", "{at}");
        }
        for token in [&account.key, &session] {
            let answer = call(&app, &operation, token, &account).await;
            operation.check(&answer, "with a customer's token");
            let error = answer.error(403, "missing_ability");
            assert_eq!(error["required_ability"], "admin", "{at}");
            assert_ne!(answer.header("x-ratelimit-limit"), "", "{at}");
        }
    }
    // Nothing was changed.
    assert_eq!(app.balance(&account).await.0, "10");
    let accounts: i64 = sqlx::query_scalar("select count(*) from accounts")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(accounts, 1);
}

#[sqlx::test]
async fn an_admin_token_gets_what_is_the_operators_and_nothing_else(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let token = operator(&app).await;
    for operation in admin_operations() {
        // Some operations end the account.
        let account = app.account("10").await;
        let objects = objects(&app, &account).await;
        let url = operation.admin_url(&account.id.to_string(), Some(&objects));
        let answer = operation.call_at(&app, &token, &url).await;
        operation.check(&answer, "with an admin token");
        assert!(answer.status.is_success(), "{}", answer.text);
        assert_eq!(answer.header("x-ratelimit-limit"), "600");
    }
    let account = app.account("10").await;
    let objects = objects(&app, &account).await;
    for operation in operations() {
        let answer = operation.call(&app, &token, &objects).await;
        operation.check(&answer, "with an admin token");
        if operation.secured() {
            answer.error(401, "invalid_token");
            assert_eq!(answer.header("x-ratelimit-limit"), "");
        } else {
            // Public routes ignore it.
            assert_eq!(
                answer.status,
                operation.call(&app, "", &objects).await.status
            );
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn an_account_that_is_not_there_is_not_found(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let token = operator(&app).await;
    for operation in admin_operations() {
        if !operation.path.contains("{id}") {
            continue;
        }
        for id in [
            "0",
            "1",
            "9223372036854775807",
            "9223372036854775808",
            "-1",
            "x",
            "%00",
        ] {
            let url = operation.admin_url(id, None);
            let answer = operation.call_at(&app, &token, &url).await;
            operation.check(&answer, id);
            answer.error(404, "not_found");
        }
    }
}

#[sqlx::test]
async fn documented_queries_are_read_and_no_others(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let token = operator(&app).await;
    for operation in admin_operations() {
        let url = operation.admin_url(&account.id.to_string(), None);
        let answer = operation
            .call_at(&app, &token, &format!("{url}?zzz=1"))
            .await;
        operation.check(&answer, "with an unknown parameter");
        assert_eq!(answer.fields()["zzz"], "unknown_field", "{url}");
        let declared: BTreeSet<String> = operation.spec["parameters"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|p| p["in"] == "query")
            .map(|p| p["name"].as_str().unwrap().to_owned())
            .collect();
        let message = answer.json()["error"].to_string();
        for name in declared {
            assert!(message.contains(&name), "{url}: {name} is not offered");
            let path = format!("{url}?{name}=~");
            let answer = operation.call_at(&app, &token, &path).await;
            assert!(answer.status == 200 || answer.fields()[&name] != "unknown_field");
        }
        if operation.method == Method::POST && operation.body().is_none() {
            let body = json!({"zzz": 1});
            let answer = app.post(&token, &url, &body).await;
            assert_eq!(answer.fields()["zzz"], "unknown_field", "{url}");
        }
    }
}

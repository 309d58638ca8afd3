//! POST /v1/admin/accounts/{id}/credits

use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::operator;
use crate::common::{Account, Answer, TestApp};

fn path(account: &Account) -> String {
    format!("/v1/admin/accounts/{}/credits", account.id)
}

fn movement(amount: &str, kind: &str, reference: &str) -> Value {
    json!({"amount": amount, "kind": kind, "reference": reference})
}

async fn ledger(app: &TestApp, account: &Account) -> Vec<Value> {
    let page = app
        .get(&account.key, "/v1/credits/ledger")
        .await
        .expect(200);
    page["data"].as_array().unwrap().clone()
}

#[sqlx::test]
async fn fifty_parallel_posts_of_one_reference_are_one_grant(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let replica = app.replica().await;
    let account = app.account("1").await;
    let token = operator(&app).await;
    let (path, body) = (path(&account), movement("0.1", "grant", "invoice-17"));
    let servers = [&app, &replica].into_iter().cycle();
    let posts = servers.take(50).map(|s| s.post(&token, &path, &body));
    let answers: Vec<Answer> = join_all(posts).await;
    let made = answers.iter().filter(|a| a.status == 201).count();
    let repeated = answers.iter().filter(|a| a.status == 200).count();
    assert_eq!((made, repeated), (1, 49));
    let entries: Vec<Value> = answers.iter().map(Answer::json).collect();
    assert!(entries.iter().all(|entry| *entry == entries[0]));
    let now = app
        .now()
        .to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
    assert_eq!(
        entries[0],
        json!({"id": entries[0]["id"], "kind": "grant", "amount": "0.1", "balance": "1.1",
            "held": "0", "generation": null, "reference": "invoice-17", "created_at": now})
    );
    assert_eq!(app.balance(&account).await.0, "1.1");
    let ledger = ledger(&app, &account).await;
    assert_eq!(ledger.len(), 2);
    assert_eq!(ledger[0], entries[0]);
    app.assert_verified().await;
}

#[sqlx::test]
async fn a_reference_is_one_movement_of_an_account(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("0").await, app.account("0").await);
    let token = operator(&app).await;
    for (account, kind, reference) in [
        (&account, "grant", "r"),
        (&account, "adjustment", "s"),
        (&other, "grant", "r"),
    ] {
        let body = movement("5", kind, reference);
        let first = app.post(&token, &path(account), &body).await.expect(201);
        // The same amount in any notation.
        for amount in [json!("5"), json!("+5.000"), json!(5), json!(5.0)] {
            let body = json!({"amount": amount, "kind": kind, "reference": reference});
            let again = app.post(&token, &path(account), &body).await.expect(200);
            assert_eq!(again, first);
        }
        // Another amount or kind is a different movement.
        let other = if kind == "grant" {
            "adjustment"
        } else {
            "grant"
        };
        for body in [
            movement("6", kind, reference),
            movement("5", other, reference),
        ] {
            let answer = app.post(&token, &path(account), &body).await;
            let error = answer.error(422, "reference_reused");
            assert_eq!(error["type"], "validation_error");
            assert_eq!(error["retryable"], false);
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(&format!("{kind} 5 (ledger entry {}", first["id"])));
        }
    }
    // References differ by case and by spaces.
    for reference in ["R", "r "] {
        let body = movement("5", "grant", reference);
        app.post(&token, &path(&account), &body).await.expect(201);
    }
    assert_eq!(app.balance(&account).await.0, "20");
    assert_eq!(app.balance(&other).await.0, "5");
    app.assert_verified().await;
}

/// A repetition does not depend on the current balance.
#[sqlx::test]
async fn a_repetition_answers_the_first_entry_whatever_came_after(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let token = operator(&app).await;
    let path = path(&account);
    let back = movement("-8", "adjustment", "back");
    let first = app.post(&token, &path, &back).await.expect(201);
    assert_eq!(
        (&first["amount"], &first["balance"]),
        (&json!("-8"), &json!("2"))
    );
    assert_eq!(app.post(&token, &path, &back).await.expect(200), first);
    let most = (i64::MAX / 1_000_000 - 2).to_string();
    let much = movement(&most, "grant", "much");
    let large = app.post(&token, &path, &much).await.expect(201);
    assert_eq!(app.post(&token, &path, &much).await.expect(200), large);
    let body = movement("1", "grant", "too much");
    let answer = app.post(&token, &path, &body).await;
    assert_eq!(answer.fields()["amount"], "out_of_range");
    app.assert_verified().await;
}

#[sqlx::test]
async fn an_adjustment_takes_back_what_is_available_and_no_more(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let token = operator(&app).await;
    let path = path(&account);
    // Five are on hold.
    let video = json!({"prompt": "x", "parameters": {"duration": 1}});
    app.queue(&account, "video", &video).await;
    let held = app.balance(&account).await.1;
    assert_eq!(held, "5");
    let posts = (0..20).map(|n| {
        let body = movement("-1", "adjustment", &format!("r{n}"));
        let (app, token, path) = (&app, &token, &path);
        async move { app.post(token, path, &body).await }
    });
    let answers = join_all(posts).await;
    let (done, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|a| a.status == 201);
    assert_eq!((done.len(), refused.len()), (5, 15));
    for answer in refused {
        assert_eq!(answer.fields()["amount"], "out_of_range");
    }
    assert_eq!(app.balance(&account).await, ("5".to_owned(), held));
    app.assert_verified().await;
}

#[sqlx::test]
async fn every_field_of_a_movement_is_checked_at_once(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let token = operator(&app).await;
    let path = path(&account);
    let answer = app
        .post(
            &token,
            &path,
            &json!({"amount": "x", "kind": "hold", "reference": " ", "n": 1}),
        )
        .await;
    let found: Vec<_> = answer.fields().into_iter().collect();
    let expected = [
        ("amount", "invalid_format"),
        ("kind", "not_allowed"),
        ("n", "unknown_field"),
        ("reference", "required"),
    ];
    assert_eq!(found, expected.map(|(f, c)| (f.to_owned(), c.to_owned())));
    for (field, value, code) in [
        ("amount", json!("0"), "out_of_range"),
        ("amount", json!("-0"), "out_of_range"),
        ("amount", json!(0.000_000_1), "invalid_format"),
        ("amount", json!("-1"), "out_of_range"),
        ("amount", json!("-9223372036855"), "invalid_format"),
        ("amount", Value::Null, "required"),
        ("kind", json!("charge"), "not_allowed"),
        ("kind", json!("Grant"), "not_allowed"),
        ("reference", json!("x".repeat(256)), "too_long"),
        ("reference", json!("a\0"), "invalid_format"),
        ("reference", json!(7), "invalid_type"),
    ] {
        let mut body = movement("1", "grant", "r");
        body[field] = value;
        let answer = app.post(&token, &path, &body).await;
        assert_eq!(answer.fields()[field], code, "{body}");
    }
    let long = "é".repeat(255);
    let body = movement("1", "grant", &long);
    let entry = app.post(&token, &path, &body).await.expect(201);
    assert_eq!(entry["reference"], long);
    assert_eq!(ledger(&app, &account).await.len(), 2);
}

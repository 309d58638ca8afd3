//! Refunds, as the command line makes them.

use futures_util::future::join_all;
use gensvc::{
    domain::{credits::Credits, ids::GenerationId},
    service::{ServiceError, movements::Movement},
};
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{Account, TestApp};

/// A generation that has cost 5 credits.
async fn charged(app: &TestApp, account: &Account) -> GenerationId {
    let body = json!({"prompt": "x", "parameters": {"duration": 1}});
    let uuid = app.queue(account, "video", &body).await;
    let record = app.until_finished(account, &uuid).await;
    assert_eq!(record["credits"]["charged"], "5");
    GenerationId::parse(&uuid).unwrap()
}

async fn refund(
    app: &TestApp,
    generation: GenerationId,
    amount: Option<&str>,
    note: &str,
) -> Result<Movement, ServiceError> {
    let amount = amount.map(|a| a.parse::<Credits>().unwrap());
    let done = app.app.service.refund(generation, amount, note).await;
    done.map(|(_, movement)| movement)
}

/// The failing field of a refusal.
#[track_caller]
fn refused(result: Result<Movement, ServiceError>) -> String {
    match result {
        Err(ServiceError::Invalid(errors)) => errors[0].param.clone(),
        other => panic!("{other:?}"),
    }
}

#[sqlx::test]
async fn a_charge_is_given_back_once(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("20").await;
    let (whole, part) = (charged(&app, &account).await, charged(&app, &account).await);
    assert_eq!(
        refused(refund(&app, part, Some("5.000001"), "r").await),
        "amount"
    );
    assert_eq!(refused(refund(&app, part, Some("-1"), "r").await), "amount");
    assert_eq!(refused(refund(&app, part, Some("0"), "r").await), "amount");
    assert_eq!(refused(refund(&app, part, None, " ").await), "reference");
    assert_eq!(
        refused(refund(&app, part, None, &"x".repeat(201)).await),
        "reference"
    );
    let done = refund(&app, whole, None, "blurred").await.unwrap();
    assert!(done.moved);
    assert_eq!(done.entry.amount.to_string(), "5");
    assert_eq!(done.entry.kind, "adjustment");
    let reference = format!("refund of {whole}: blurred");
    assert_eq!(done.entry.reference, Some(reference));
    // The same command again is a repetition; another refund is refused.
    for amount in [None, Some("5")] {
        let again = refund(&app, whole, amount, "blurred").await.unwrap();
        assert!(!again.moved);
        assert_eq!(again.entry.id, done.entry.id);
    }
    assert_eq!(
        refused(refund(&app, whole, Some("1"), "blurred").await),
        "generation"
    );
    assert_eq!(
        refused(refund(&app, whole, None, "also late").await),
        "generation"
    );
    assert!(refund(&app, part, Some("1.5"), "x").await.unwrap().moved);
    assert_eq!(
        refused(refund(&app, part, Some("3.5"), "y").await),
        "generation"
    );
    assert_eq!(refused(refund(&app, part, None, "x").await), "generation");
    assert_eq!(app.balance(&account).await.0, "16.5");
    app.assert_settled().await;
}

#[sqlx::test]
async fn parallel_refunds_of_one_generation_are_one(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("20").await;
    let generation = charged(&app, &account).await;
    let notes: Vec<String> = (0..20).map(|n| format!("note {n}")).collect();
    let all = notes
        .iter()
        .map(|note| refund(&app, generation, Some("3"), note));
    let results = join_all(all).await;
    let moved = results.iter().filter(|r| r.as_ref().is_ok_and(|m| m.moved));
    assert_eq!(moved.count(), 1);
    for refusal in results.into_iter().filter(Result::is_err) {
        assert_eq!(refused(refusal), "generation");
    }
    assert_eq!(app.balance(&account).await.0, "18");
    app.assert_settled().await;
}

#[sqlx::test]
async fn what_was_not_charged_is_not_given_back(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("20").await;
    let failed = app
        .text(&account.key, json!({"prompt": "[[reject]]"}))
        .await;
    let failed = failed.expect(502)["generation"]["uuid"].clone();
    let body = json!({"prompt": "x", "parameters": {"duration": 1}});
    let running = app.queue(&account, "video", &body).await;
    for uuid in [failed.as_str().unwrap(), &running] {
        let id = GenerationId::parse(uuid).unwrap();
        assert_eq!(refused(refund(&app, id, None, "r").await), "generation");
    }
    let unknown = GenerationId::parse("0197c0de-0000-7000-8000-000000000000").unwrap();
    let missing = refund(&app, unknown, None, "r").await;
    assert!(matches!(missing, Err(ServiceError::NotFound)));
    // A deleted one was charged all the same.
    let record = app.until_finished(&account, &running).await;
    assert_eq!(record["status"], "completed");
    let path = format!("/v1/generate/{running}");
    app.delete(&account.key, &path).await.expect(204);
    let id = GenerationId::parse(&running).unwrap();
    assert!(refund(&app, id, None, "r").await.unwrap().moved);
    assert_eq!(app.balance(&account).await.0, "20");
    app.assert_settled().await;
}

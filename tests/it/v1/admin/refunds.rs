//! POST /v1/admin/accounts/{id}/credits with `kind` refund.

use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::operator;
use crate::common::{Account, Answer, TestApp};

/// A generation that cost 5 credits.
async fn charged(app: &TestApp, account: &Account) -> String {
    let body = json!({"prompt": "x", "parameters": {"duration": 1}});
    let uuid = app.queue(account, "video", &body).await;
    let record = app.until_finished(account, &uuid).await;
    assert_eq!(record["credits"]["charged"], "5");
    uuid
}

/// Admin requests for an account.
struct Desk<'a> {
    app: &'a TestApp,
    token: String,
    account: &'a Account,
}

impl<'a> Desk<'a> {
    async fn of(app: &'a TestApp, account: &'a Account) -> Self {
        let token = operator(app).await;
        Self {
            app,
            token,
            account,
        }
    }

    async fn post(&self, body: &Value) -> Answer {
        let path = format!("/v1/admin/accounts/{}/credits", self.account.id);
        self.app.post(&self.token, &path, body).await
    }

    async fn refund(&self, generation: &str, amount: Option<&str>, reference: &str) -> Answer {
        self.post(
            &json!({"kind": "refund", "generation": generation, "amount": amount,
            "reference": reference}),
        )
        .await
    }
}

#[track_caller]
fn refused(answer: &Answer, field: &str, code: &str) {
    let found: Vec<_> = answer.fields().into_iter().collect();
    assert_eq!(found, [(field.to_owned(), code.to_owned())]);
}

/// Whatever came in and was taken back, and however much is on hold.
#[sqlx::test]
async fn what_is_spent_is_charged_and_not_refunded(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("20").await;
    let desk = Desk::of(&app, &account).await;
    let path = format!("/v1/admin/accounts/{}", account.id);
    let spent = async || app.get(&desk.token, &path).await.expect(200)["spent"].clone();
    assert_eq!(spent().await, "0");
    let first = charged(&app, &account).await;
    charged(&app, &account).await;
    let running = json!({"prompt": "[[slow:60]] x", "parameters": {"duration": 1}});
    app.queue(&account, "video", &running).await;
    assert_eq!(spent().await, "10");
    desk.refund(&first, Some("2.5"), "a part").await.expect(201);
    assert_eq!(spent().await, "7.5");
    for (kind, amount) in [("grant", "100"), ("adjustment", "-3")] {
        let body = json!({"kind": kind, "amount": amount, "reference": kind});
        desk.post(&body).await.expect(201);
    }
    assert_eq!(spent().await, "7.5");
    let listed = app.get(&desk.token, "/v1/admin/accounts").await.expect(200);
    assert_eq!(listed["data"][0]["spent"], "7.5");
    let suspended = json!({"reason": "x"});
    let suspended = app
        .post(&desk.token, &format!("{path}/suspend"), &suspended)
        .await;
    assert_eq!(suspended.expect(200)["spent"], "7.5");
}

#[sqlx::test]
async fn a_charge_is_given_back_once(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("20").await;
    let desk = Desk::of(&app, &account).await;
    let (whole, part) = (charged(&app, &account).await, charged(&app, &account).await);
    for amount in ["5.000001", "-1", "0"] {
        let answer = desk.refund(&part, Some(amount), "r").await;
        refused(&answer, "amount", "out_of_range");
    }
    refused(
        &desk.refund(&part, None, " ").await,
        "reference",
        "required",
    );
    let done = desk.refund(&whole, None, "blurred").await.expect(201);
    let now = app
        .now()
        .to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
    assert_eq!(
        done,
        json!({"id": done["id"], "kind": "refund", "amount": "5", "balance": "15", "held": "0",
            "generation": whole, "reference": "blurred", "created_at": now})
    );
    // Repeating it has no effect; another refund is refused.
    for amount in [None, Some("5"), Some("5.0")] {
        assert_eq!(
            desk.refund(&whole, amount, "blurred").await.expect(200),
            done
        );
    }
    let other = desk.refund(&whole, Some("1"), "blurred").await;
    other.error(422, "reference_reused");
    refused(
        &desk.refund(&whole, None, "also late").await,
        "generation",
        "not_allowed",
    );
    // A partial refund counts too.
    desk.refund(&part, Some("1.5"), "x").await.expect(201);
    for amount in [Some("3.5"), None] {
        refused(
            &desk.refund(&part, amount, "y").await,
            "generation",
            "not_allowed",
        );
    }
    assert_eq!(app.balance(&account).await.0, "16.5");
    app.assert_settled().await;
    // The customer sees it in the ledger.
    let ledger = async |query: &str| {
        let path = format!("/v1/credits/ledger?{query}");
        let page = app.get(&account.key, &path).await.expect(200);
        let rows = page["data"].as_array().unwrap().iter();
        rows.map(|entry| entry["kind"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ledger("kind=refund").await, ["refund", "refund"]);
    assert_eq!(
        ledger(&format!("generation={whole}")).await,
        ["refund", "charge", "hold"]
    );
}

#[sqlx::test]
async fn parallel_refunds_of_one_generation_are_one(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let replica = app.replica().await;
    let account = app.account("20").await;
    let desks = [
        Desk::of(&app, &account).await,
        Desk::of(&replica, &account).await,
    ];
    let generation = charged(&app, &account).await;
    let posts = (0..20).map(|n| {
        let (desk, generation) = (&desks[n % 2], &generation);
        async move {
            let reference = format!("note {n}");
            desk.refund(generation, Some("3"), &reference).await
        }
    });
    let answers = join_all(posts).await;
    let (done, others): (Vec<_>, Vec<_>) = answers.iter().partition(|a| a.status == 201);
    assert_eq!((done.len(), others.len()), (1, 19));
    for answer in others {
        refused(answer, "generation", "not_allowed");
    }
    assert_eq!(app.balance(&account).await.0, "18");
    app.assert_settled().await;
}

#[sqlx::test]
async fn what_was_not_charged_is_not_given_back(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("20").await, app.account("20").await);
    let desk = Desk::of(&app, &account).await;
    let failed = app
        .text(&account.key, json!({"prompt": "[[reject]]"}))
        .await;
    let failed = failed.expect(502)["generation"]["uuid"].clone();
    let theirs = charged(&app, &other).await;
    let body = json!({"prompt": "x", "parameters": {"duration": 1}});
    let running = app.queue(&account, "video", &body).await;
    let unknown = "0197c0de-0000-7000-8000-000000000000";
    for uuid in [failed.as_str().unwrap(), &running, &theirs, unknown] {
        let answer = desk.refund(uuid, None, "r").await;
        refused(&answer, "generation", "not_allowed");
    }
    // A deleted one was charged all the same.
    let record = app.until_finished(&account, &running).await;
    assert_eq!(record["status"], "completed");
    let path = format!("/v1/generate/{running}");
    app.delete(&account.key, &path).await.expect(204);
    desk.refund(&running, None, "r").await.expect(201);
    assert_eq!(app.balance(&account).await.0, "20");
    assert_eq!(app.balance(&other).await.0, "15");
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_refund_names_its_generation_and_nothing_else_does(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("20").await;
    let desk = Desk::of(&app, &account).await;
    let uuid = charged(&app, &account).await;
    for (body, field, code) in [
        (json!({"kind": "refund"}), "generation", "required"),
        (
            json!({"kind": "refund", "generation": "x"}),
            "generation",
            "invalid_format",
        ),
        (
            json!({"kind": "refund", "generation": 7}),
            "generation",
            "invalid_type",
        ),
        (
            json!({"kind": "grant", "amount": "1", "generation": uuid}),
            "generation",
            "not_allowed",
        ),
        (json!({"kind": "grant"}), "amount", "required"),
        (json!({"kind": "adjustment"}), "amount", "required"),
    ] {
        let mut body = body;
        body["reference"] = json!("r");
        refused(&desk.post(&body).await, field, code);
    }
    assert_eq!(app.balance(&account).await.0, "15");
}

//! POST /v1/admin/accounts/{id}/credits with `kind` refund.

use std::time::Duration;

use chrono::DateTime;
use futures_util::future::join_all;
use gensvc::{
    domain::{
        credits::Credits,
        ids::{AccountId, GenerationId},
    },
    store::{
        MIGRATOR, Store,
        movements::{Move, Moved, NewMove},
    },
};
use serde_json::{Value, json};
use sqlx::{
    AssertSqlSafe, Executor as _, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

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
    let now = app.now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
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

/// In older versions refunds were adjustments with the generation in their reference.
#[sqlx::test(migrations = false)]
async fn refunds_of_older_versions_become_refunds(pool: PgPool) {
    let (before, after): (Vec<_>, Vec<_>) = MIGRATOR
        .iter()
        .partition(|m| m.version < 20_261_122_000_005);
    for migration in before {
        pool.execute(migration.sql.clone()).await.unwrap();
    }
    let (paid, failed, twice) = (
        "0197c0de-0000-7000-8000-000000000001",
        "0197c0de-0000-7000-8000-000000000002",
        "0197c0de-0000-7000-8000-000000000003",
    );
    let generation = |id: &str, status: &str, charged: i64, error: &str| {
        format!(
            "insert into generations (id, account_id, type, status, provider, model, prompt,
                 parameters, pricing, estimated, charged, error_code, created_at, completed_at)
             values ('{id}', 1, 'text', '{status}', 'p', 'm', 'x', '{{}}', '{{}}', 9, {charged},
                     {error}, now(), now());"
        )
    };
    let entry = |kind: &str, amount: i64, reference: String| {
        format!(
            "insert into ledger_entries (account_id, kind, amount, balance, held, reference, created_at)
             values (1, '{kind}', {amount}, 100, 0, '{reference}', now());"
        )
    };
    // A charged generation has been held and charged.
    let moved = |kind: &str, amount: i64, id: &str| {
        format!(
            "insert into ledger_entries (account_id, kind, amount, balance, held, generation_id, created_at)
             values (1, '{kind}', {amount}, 100, 0, '{id}', now());"
        )
    };
    let old = [
        "insert into accounts (name, balance, created_at) values ('a', 100, now());".to_owned(),
        generation(paid, "completed", 9, "null"),
        generation(failed, "failed", 0, "'cancelled'"),
        generation(twice, "completed", 5, "null"),
        moved("hold", 9, paid),
        moved("charge", 9, paid),
        moved("hold", 9, twice),
        moved("charge", 5, twice),
        moved("hold", 9, failed),
        moved("release", 9, failed),
        entry("adjustment", 4, format!("refund of {paid}: late")),
        entry("adjustment", 5, format!("refund of {twice}: a")),
        // None of these is the refund of a charge.
        entry("adjustment", 1, format!("refund of {twice}: b")),
        entry("adjustment", 1, format!("refund of {failed}: x")),
        entry("adjustment", -1, format!("refund of {paid}: back")),
        entry("adjustment", 1, "refund of it".to_owned()),
        // One reference for two movements, as was once allowed.
        entry("grant", 7, "i-1".to_owned()),
        entry("adjustment", 8, "i-1".to_owned()),
    ];
    pool.execute(AssertSqlSafe(old.concat())).await.unwrap();
    for migration in after {
        pool.execute(migration.sql.clone()).await.unwrap();
    }
    let rows: Vec<(String, i64, Option<String>)> = sqlx::query_as(
        "select kind, amount, generation_id::text from ledger_entries
             where kind not in ('hold', 'charge', 'release') order by id",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    let row = |kind: &str, amount, generation: Option<&str>| {
        (kind.to_owned(), amount, generation.map(str::to_owned))
    };
    let adjusted = |amount| row("adjustment", amount, None);
    assert_eq!(
        rows,
        [
            row("refund", 4, Some(paid)),
            row("refund", 5, Some(twice)),
            adjusted(1),
            adjusted(1),
            adjusted(-1),
            adjusted(1),
            row("grant", 7, None),
            adjusted(8),
        ]
    );
    // Entries are append-only again.
    assert!(
        pool.execute("update ledger_entries set amount = 1")
            .await
            .is_err()
    );
    let store = Store::connect_lazy(
        (*pool.connect_options()).clone(),
        4,
        Duration::from_secs(30),
    );
    let make = async |what, reference| {
        let new = NewMove {
            account: AccountId(1),
            what,
            reference: Some(reference),
            now: DateTime::UNIX_EPOCH,
        };
        store.move_credits(&new).await.unwrap()
    };
    let refund = |id| Move::Refund {
        generation: GenerationId::parse(id).unwrap(),
        amount: None,
    };
    for id in [paid, twice] {
        assert!(matches!(
            make(refund(id), "again").await,
            Moved::Refunded(_)
        ));
    }
    let micros = Credits::from_micros;
    for what in [Move::Grant(micros(7)), Move::Adjustment(micros(8))] {
        assert!(matches!(make(what, "i-1").await, Moved::Repeated(_)));
    }
    for what in [
        Move::Grant(micros(8)),
        Move::Adjustment(micros(7)),
        refund(paid),
    ] {
        assert!(matches!(make(what, "i-1").await, Moved::ReferenceUsed(_)));
    }
}

//! The ledger: what the audits find, what the database refuses, and random movements against a
//! model.

mod cast;
mod groups;
mod model;
mod mover;
mod property;
mod random;
mod steps;
mod tampering;
mod world;

use gensvc::store::{
    credits::Move,
    generations::{Completion, Outcome, Settlement},
    verify::Scope,
};
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::TestApp;
use mover::{Mover, micros};

/// Counts all usage: as soon as the transactions of other tests let it.
pub async fn count_usage(app: &TestApp) {
    let left = "select count(*) from finished_generations
        where settled >= (select upto from settled_cursors where name = 'usage')";
    let counted = async {
        loop {
            app.store.count_usage().await.unwrap();
            let left: i64 = sqlx::query_scalar(left).fetch_one(&app.pool).await.unwrap();
            if left == 0 {
                break;
            }
        }
    };
    let counted = tokio::time::timeout(std::time::Duration::from_mins(1), counted);
    counted.await.unwrap();
}

async fn run(app: &TestApp, statements: &[&str]) {
    for statement in statements {
        let done = sqlx::query(sqlx::AssertSqlSafe(*statement))
            .execute(&app.pool)
            .await;
        done.unwrap_or_else(|e| panic!("{statement}: {e}"));
    }
}

#[sqlx::test]
async fn what_keys_spend_and_usage_can_be_counted_anew(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let limited = json!({"name": "limited", "spend_limit": "1", "spend_period": "day"});
    let limited = app.key(account.id, limited).await;
    for key in [&account.key, &limited] {
        app.text(key, json!({"prompt": "x"})).await.expect(200);
        let video = json!({"prompt": "x", "parameters": {"duration": 1}});
        app.post(key, "/v1/generate/video", &video).await;
    }
    let running = json!({"prompt": "x", "parameters": {"format": "wav"}});
    app.queue(&account, "audio", &running).await;
    app.assert_verified().await;
    for tampering in [
        "update key_spend set spent = 0, spend_limit = null",
        "delete from key_spend",
        "update usage_sums set completed = 0, charged = 7",
        "delete from usage_sums",
    ] {
        count_usage(&app).await;
        run(&app, &[tampering]).await;
        let found = app
            .store
            .verify_ledger(Scope::Whole)
            .await
            .unwrap()
            .differences;
        assert_ne!(found, Vec::<String>::new(), "not found: {tampering}");
        app.store.recount().await.unwrap();
        app.assert_verified().await;
    }
    // More spent than the limit allows, as an older server may have admitted: the limit is enforced
    // again as soon as it can be.
    let lower = "update api_keys set spend_limit = 5000000 where spend_limit is not null";
    run(&app, &["update key_spend set spend_limit = null", lower]).await;
    let video = json!({"prompt": "x", "parameters": {"duration": 1}});
    let path = "/v1/generate/video";
    let other = app.post(&limited, path, &video).await;
    other.error(402, "spend_limit_exceeded");
    app.store.recount().await.unwrap();
    app.assert_verified().await;
    let most = sqlx::query_scalar::<_, i64>(
        "select count(*) from key_spend s join api_keys k on k.id = s.api_key_id
         where s.spend_limit is distinct from k.spend_limit",
    );
    assert_eq!(most.fetch_one(&app.pool).await.unwrap(), 0);
}

#[sqlx::test]
async fn the_database_itself_refuses_what_must_not_be(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("0.0001").await;
    let mover = Mover::new(&app, &account).await;
    let held = mover.hold(60).await.unwrap();
    assert_eq!(mover.hold(41).await, None);
    let id = account.id;
    for statement in [
        "insert into key_spend (api_key_id, period, spend_limit, spent)
         select id, '-infinity', 1, 2 from api_keys".to_owned(),
        "update ledger_entries set amount = 1".to_owned(),
        "update ledger_entries set reference = 'x' where false".to_owned(),
        "delete from ledger_entries where false".to_owned(),
        "truncate ledger_entries".to_owned(),
        format!("update accounts set held = -1 where id = {id}"),
        format!("update accounts set held = balance + 1 where id = {id}"),
        format!("update accounts set balance = held - 1 where id = {id}"),
        format!("update running_generations set estimated = -1 where id = '{held}'"),
        format!("update running_generations set status = 'done' where id = '{held}'"),
        format!("delete from accounts where id = {id}"),
        format!(
            "insert into ledger_entries (account_id, kind, amount, balance, held, generation_id, created_at)
             values ({id}, 'hold', 1, 100, 61, '{held}', now())"
        ),
        format!(
            "insert into ledger_entries (account_id, kind, amount, balance, held, created_at)
             values ({id}, 'grant', 0, 100, 60, now())"
        ),
        format!(
            "insert into ledger_entries (account_id, kind, amount, balance, held, created_at)
             values ({id}, 'charge', 1, 99, 60, now())"
        ),
        format!(
            "insert into ledger_entries (account_id, kind, amount, balance, held, created_at)
             values ({id}, 'refund', 1, 101, 60, now())"
        ),
        format!(
            "insert into ledger_entries (account_id, kind, amount, balance, held, generation_id, created_at)
             values ({id}, 'refund', -1, 99, 60, '{held}', now())"
        ),
        // Twice.
        format!(
            "insert into ledger_entries (account_id, kind, amount, balance, held, generation_id, created_at)
             select {id}, 'refund', 1, 101, 60, '{held}', now() from generate_series(1, 2)"
        ),
    ] {
        let done = sqlx::query(sqlx::AssertSqlSafe(statement.as_str()))
            .execute(&app.pool)
            .await;
        assert!(done.is_err(), "{statement}");
    }
    // More than was held cannot be charged; then nothing moves at all.
    let outcome = Outcome::Completed(Completion {
        result: Some("x".to_owned()),
        outputs: Vec::new(),
        answer: None,
        usage: json!({}),
        list_cost: None,
        charged: micros(61),
        finish_reason: None,
        receipt: None,
    });
    let settlement = Settlement {
        id: held,
        account_id: id,
        instance: None,
        outcome,
        attempts: None,
        provider_request_id: None,
        now: app.now(),
    };
    assert!(app.store.settle(&settlement).await.is_err());
    assert!(!mover.adjust(Move::Adjustment, -41).await);
    assert_eq!(mover.balance_and_unfinished().await, (100, 60));
    assert!(mover.adjust(Move::Adjustment, -40).await);
    assert_eq!(mover.balance_and_unfinished().await, (60, 60));
    assert!(mover.finish(held, Some(60)).await);
    assert!(!mover.finish(held, Some(60)).await);
    assert!(!mover.finish(held, None).await);
    assert_eq!(mover.balance_and_unfinished().await, (0, 0));
    // A hold of zero leaves no entry.
    let free = mover.hold(0).await.unwrap();
    assert!(mover.finish(free, Some(0)).await);
    app.assert_settled().await;
}

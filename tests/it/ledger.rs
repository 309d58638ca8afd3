//! The ledger: what the audit finds, what the database refuses, and random movements against a
//! model.

mod cast;
mod groups;
mod model;
mod mover;
mod property;
mod random;
mod steps;
mod world;

use gensvc::{
    domain::ids::GenerationId,
    store::{
        generations::{Completion, Outcome, Settlement},
        movements::Move,
    },
};
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::TestApp;
use mover::{Mover, micros};

#[sqlx::test]
async fn the_audit_finds_every_tampering(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("10").await, app.account("10").await);
    let mover = Mover::new(&app, &account).await;
    // Only what keys with a limit spend is counted.
    run(&app, &["update api_keys set spend_limit = 1000000"]).await;
    let charged = mover.hold(50).await.unwrap();
    let failed = mover.hold(60).await.unwrap();
    let free = mover.hold(70).await.unwrap();
    let running = mover.hold(80).await.unwrap();
    assert!(mover.finish(charged, Some(20)).await);
    assert!(mover.finish(failed, None).await);
    // Completed at no cost: released.
    assert!(mover.finish(free, Some(0)).await);
    let refunded = mover.hold(40).await.unwrap();
    assert!(mover.finish(refunded, Some(30)).await);
    assert!(mover.refund(refunded, 3).await);
    mover.adjust(Move::Adjustment, -5).await;
    mover.adjust(Move::Adjustment, 25).await;
    let others = Mover::new(&app, &other).await;
    let foreign = others.hold(50).await.unwrap();
    assert!(others.finish(foreign, Some(50)).await);
    app.assert_verified().await;

    let entry = |id: GenerationId, kind: &str| {
        format!("ledger_entries where generation_id = '{id}' and kind = '{kind}'")
    };
    let of = |id: GenerationId| format!("where id = '{id}'");
    let refund_of = |id: GenerationId| {
        format!(
            "update ledger_entries set kind = 'refund', generation_id = '{id}'
             where kind = 'adjustment' and amount = 25"
        )
    };
    let (mine, theirs) = (account.id, other.id);
    let tampering = [
        format!("update accounts set balance = balance + 1 where id = {mine}"),
        format!("update accounts set balance = balance - 1 where id = {theirs}"),
        format!("update accounts set held = held + 1 where id = {mine}"),
        format!("update accounts set held = held - 1 where id = {mine}"),
        format!("update accounts set jobs = jobs + 1 where id = {mine}"),
        format!("update accounts set jobs = 0 where id = {mine}"),
        "update ledger_entries set amount = amount + 1 where kind = 'grant'".to_owned(),
        "update ledger_entries set amount = -4 where kind = 'adjustment' and amount < 0".to_owned(),
        "update ledger_entries set balance = balance + 1 where kind = 'hold'".to_owned(),
        "update ledger_entries set held = held + 1 where kind = 'release'".to_owned(),
        "delete from ledger_entries where kind = 'grant'".to_owned(),
        "delete from ledger_entries where kind = 'adjustment'".to_owned(),
        format!("delete from {}", entry(charged, "hold")),
        format!("delete from {}", entry(charged, "charge")),
        format!("delete from {}", entry(failed, "release")),
        format!("delete from {}", entry(running, "hold")),
        format!("delete from ledger_entries where generation_id = '{failed}'"),
        format!("delete from ledger_entries where account_id = {theirs}"),
        format!("update ledger_entries set account_id = {theirs} where generation_id = '{failed}'"),
        format!(
            "update ledger_entries set generation_id = '{failed}' where generation_id = '{running}'"
        ),
        format!(
            "update ledger_entries set kind = 'release', amount = 50 where generation_id = '{charged}' and kind = 'charge'"
        ),
        format!(
            "update ledger_entries set kind = 'charge' where generation_id = '{failed}' and kind = 'release'"
        ),
        format!(
            "update finished_generations set charged = charged + 1 {}",
            of(charged)
        ),
        format!(
            "update finished_generations set charged = 0 {}",
            of(charged)
        ),
        format!("update finished_generations set charged = 1 {}", of(free)),
        format!(
            "update finished_generations set estimated = estimated + 1 {}",
            of(failed)
        ),
        format!(
            "update finished_generations set account_id = {theirs} {}",
            of(failed)
        ),
        format!(
            "update running_generations set estimated = estimated - 1 {}",
            of(running)
        ),
        format!("update running_generations set job = false {}", of(running)),
        format!("delete from running_generations {}", of(running)),
        format!("delete from finished_generations {}", of(failed)),
        format!(
            "insert into ledger_entries (account_id, kind, amount, balance, held, created_at)
             values ({mine}, 'grant', 1, 0, 0, now())"
        ),
        format!("delete from {}", entry(refunded, "refund")),
        // The account's sums stay right: more than the charge, twice, of a failure, of one that
        // cost nothing, of a running one, and of another account.
        refund_of(charged),
        refund_of(refunded),
        refund_of(failed),
        refund_of(free),
        refund_of(running),
        refund_of(foreign),
        "update key_spend set spent = spent + 1".to_owned(),
        "update key_spend set spend_limit = 10000000".to_owned(),
        "update key_spend set period = '2027-01-01'".to_owned(),
        "delete from key_spend".to_owned(),
        "update usage_sums set completed = completed + 1".to_owned(),
        "update usage_sums set failed = failed - 1".to_owned(),
        "update usage_sums set charged = charged + 1".to_owned(),
        "update usage_sums set input_tokens = input_tokens + 1".to_owned(),
        "update usage_sums set start = start + interval '1 day'".to_owned(),
        "update usage_sums set api_key_id = 0".to_owned(),
        "delete from usage_sums".to_owned(),
    ];
    count_usage(&app).await;
    run(&app, &SAVE).await;
    for statement in tampering {
        run(&app, &[&statement]).await;
        let found = app.store.verify_ledger().await.unwrap().differences;
        assert_ne!(found, Vec::<String>::new(), "not found: {statement}");
        run(&app, &RESTORE).await;
        app.assert_verified().await;
    }
    assert!(mover.finish(running, Some(80)).await);
    app.assert_settled().await;
}

/// Drops the constraints and keeps a copy.
const SAVE: [&str; 8] = [
    "create table saved_spend as table key_spend",
    "create table saved_usage as table usage_sums",
    "alter table ledger_entries disable trigger all",
    "drop index ledger_entries_once_for_each_generation",
    "create table saved_accounts as table accounts",
    "create table saved_running as table running_generations",
    "create table saved_finished as table finished_generations",
    "create table saved_entries as table ledger_entries",
];
const RESTORE: [&str; 11] = [
    "delete from key_spend",
    "insert into key_spend select * from saved_spend",
    "delete from usage_sums",
    "insert into usage_sums select * from saved_usage",
    "delete from ledger_entries",
    "insert into ledger_entries overriding system value select * from saved_entries",
    "update accounts a set balance = s.balance, held = s.held, jobs = s.jobs
     from saved_accounts s where s.id = a.id",
    "delete from running_generations",
    "insert into running_generations select * from saved_running",
    "delete from finished_generations",
    FINISHED_AGAIN,
];

/// All columns but the generated one.
const FINISHED_AGAIN: &str = "do $$ begin execute (
    select format('insert into finished_generations (%1$s) select %1$s from saved_finished',
                  string_agg(column_name, ', '))
    from information_schema.columns
    where table_name = 'finished_generations' and is_generated = 'NEVER'); end $$";

/// Counts all usage: as soon as the transactions of other tests let it.
async fn count_usage(app: &TestApp) {
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
        let found = app.store.verify_ledger().await.unwrap().differences;
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
        charged: micros(61),
        finish_reason: None,
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

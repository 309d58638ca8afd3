//! What the audits find when the database is tampered with.

use gensvc::{
    domain::ids::GenerationId,
    store::{credits::Move, verify::Scope},
};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{count_usage, mover::Mover, run};
use crate::common::TestApp;

#[sqlx::test]
async fn the_audit_finds_every_tampering(_: PgPoolOptions, options: PgConnectOptions) {
    finds_every_tampering(options, Scope::Whole).await;
}

#[sqlx::test]
async fn the_audit_of_what_is_new_finds_every_tampering_with_it(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    finds_every_tampering(options, Scope::SinceLast).await;
}

#[expect(clippy::too_many_lines, reason = "a list")]
async fn finds_every_tampering(options: PgConnectOptions, scope: Scope) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("10").await, app.account("10").await);
    let verified = async |scope| {
        let audit = app.store.verify_ledger(scope).await.unwrap();
        assert_eq!(audit.differences, Vec::<String>::new());
    };
    // What is there so far is not new any more.
    count_usage(&app).await;
    verified(Scope::SinceLast).await;
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
    verified(Scope::Whole).await;

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
        if scope == Scope::SinceLast && statement.contains("kind = 'grant'") {
            continue;
        }
        run(&app, &[&statement]).await;
        let audit = app.store.verify_ledger(scope).await.unwrap();
        assert_eq!(audit.whole, scope == Scope::Whole);
        assert_ne!(audit.differences, [""; 0], "not found: {statement}");
        run(&app, &RESTORE).await;
        verified(Scope::Whole).await;
    }
    assert!(mover.finish(running, Some(80)).await);
    app.assert_settled().await;
}

#[sqlx::test]
async fn the_audit_of_what_is_new_reads_no_more_than_that(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let mover = Mover::new(&app, &account).await;
    let audit = async |scope| {
        count_usage(&app).await;
        app.store.verify_ledger(scope).await.unwrap()
    };
    let old = mover.hold(50).await.unwrap();
    assert!(mover.finish(old, Some(20)).await);
    let running = mover.hold(60).await.unwrap();
    let first = audit(Scope::SinceLast).await;
    assert_eq!(
        (first.whole, first.entries, first.generations),
        (true, 4, 2)
    );

    let new = mover.hold(70).await.unwrap();
    assert!(mover.finish(new, None).await);
    assert!(mover.refund(old, 5).await);
    let second = audit(Scope::SinceLast).await;
    assert_eq!((second.whole, second.entries), (false, 3));
    assert_eq!(second.differences, [""; 0]);
    let third = audit(Scope::SinceLast).await;
    assert_eq!((third.whole, third.entries), (false, 0));

    // What it verified before it does not look at again, but what everything new rests on.
    run(&app, &SAVE).await;
    let (own, gone) = (account.id, running);
    for (statement, is_found) in [
        (format!("update ledger_entries set amount = 1 where generation_id = '{new}'"), false),
        ("update usage_sums set charged = charged + 1".to_owned(), false),
        (format!("update accounts set balance = balance + 1 where id = {own}"), true),
        ("update ledger_entries set balance = balance - 1 where kind = 'refund'".to_owned(), true),
        (
            format!(
                "with entry as (update ledger_entries set balance = balance - 1 where kind = 'refund')
                 update accounts set balance = balance - 1 where id = {own}"
            ),
            true,
        ),
        ("delete from ledger_entries where kind = 'refund'".to_owned(), true),
        (format!("delete from running_generations where id = '{gone}'"), true),
    ] {
        run(&app, &[&statement]).await;
        let found = audit(Scope::SinceLast).await.differences;
        assert_eq!(!found.is_empty(), is_found, "{statement}: {found:?}");
        assert_ne!(audit(Scope::Whole).await.differences, [""; 0], "{statement}");
        run(&app, &RESTORE).await;
    }
    assert!(mover.finish(running, Some(60)).await);
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

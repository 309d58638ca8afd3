//! Statements shared by several callers: each gets its own outcome, and none waits for another.

use std::sync::Arc;

use futures_util::future::join_all;
use gensvc::{
    domain::generation::Modality,
    store::{StoreError, generations::Settlement},
};
use serde_json::json;
use sqlx::{
    Postgres, Transaction,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use super::mover::{Mover, completed};
use crate::common::{Account, Answer, TestApp, Upstream};

/// Texts of an account, under way.
fn texts(app: &Arc<TestApp>, account: &Account, n: usize) -> Vec<tokio::task::JoinHandle<Answer>> {
    let one = |_| app.spawn_text(&account.key, json!({"prompt": "x"}));
    (0..n).map(one).collect()
}

/// A transaction that has locked an account.
async fn lock(app: &TestApp, account: &Account) -> Transaction<'static, Postgres> {
    let mut lock = app.pool.begin().await.unwrap();
    sqlx::query("select from accounts where id = $1 for update")
        .bind(account.id.0)
        .execute(&mut *lock)
        .await
        .unwrap();
    lock
}

async fn waits_for_a_lock(app: &TestApp) {
    let waits = "select count(*) > 0 from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'";
    loop {
        let waits: bool = sqlx::query_scalar(waits)
            .fetch_one(&app.pool)
            .await
            .unwrap();
        if waits {
            return;
        }
    }
}

#[sqlx::test]
async fn a_locked_account_holds_up_nobody_else(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let (locked, other) = (app.account("10").await, app.account("10").await);
    let settling = texts(&app, &locked, 10);
    upstream.arrived(10).await;
    let lock = lock(&app, &locked).await;
    // Ten settlements and ten holds wait for the row, in one lane.
    let holding = texts(&app, &locked, 10);
    upstream.release(usize::MAX >> 4);
    waits_for_a_lock(&app).await;
    for _ in 0..3 {
        for text in texts(&app, &other, 10) {
            text.await.unwrap().expect(200);
        }
        app.get("", "/health").await.expect(200);
    }
    assert!(
        settling
            .iter()
            .chain(&holding)
            .all(|text| !text.is_finished())
    );
    lock.rollback().await.unwrap();
    for text in settling.into_iter().chain(holding) {
        text.await.unwrap().expect(200);
    }
    app.assert_settled().await;
}

/// Also of what came together, in one statement.
#[sqlx::test]
async fn who_comes_with_a_locked_account_does_not_wait_for_it(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let (locked, other) = (app.account("1").await, app.account("1").await);
    let lock = lock(&app, &locked).await;
    let movers = [
        Mover::new(&app, &locked).await,
        Mover::new(&app, &other).await,
    ];
    let mut holds = [0, 1].map(|of| {
        let mover = movers[of].clone();
        (0..10)
            .map(|_| {
                let mover = mover.clone();
                tokio::spawn(async move { mover.hold(70).await.unwrap() })
            })
            .collect::<Vec<_>>()
    });
    let held = join_all(holds[1].drain(..)).await;
    assert!(holds[0].iter().all(|hold| !hold.is_finished()));
    lock.rollback().await.unwrap();
    let waited = join_all(holds[0].drain(..)).await;
    for (mover, held) in movers.iter().zip([waited, held]) {
        for id in held {
            assert!(mover.finish(id.unwrap(), Some(20)).await);
        }
        assert_eq!(mover.balance_and_unfinished().await, (999_800, 0));
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn one_that_fails_fails_alone(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("0.001").await;
    let mover = Mover::new(&app, &account).await;
    let mut held = Vec::new();
    for _ in 0..20 {
        held.push(mover.hold(50).await.unwrap());
    }
    // More than was held, in the middle of the others.
    let settling = held.iter().enumerate().map(|(n, &id)| {
        let charge = if n == 7 { 51 } else { 20 };
        let settlement = Settlement {
            id,
            account_id: account.id,
            instance: None,
            outcome: completed(charge),
            attempts: Some(1),
            provider_request_id: None,
            now: app.now(),
        };
        let store = app.store.clone();
        async move { store.settle(&settlement).await }
    });
    for (n, settled) in join_all(settling).await.into_iter().enumerate() {
        match settled {
            Ok(settled) => {
                assert_eq!(settled.unwrap().modality, Modality::Text);
                assert_ne!(n, 7);
            }
            Err(StoreError::Constraint(..)) => assert_eq!(n, 7),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(mover.balance_and_unfinished().await, (1000 - 19 * 20, 50));
    assert!(mover.finish(held[7], Some(50)).await);
    app.assert_settled().await;
}

/// All of an account's holds in a statement are placed, or none: then each is decided alone.
#[sqlx::test]
async fn of_holds_that_come_together_as_many_are_placed_as_fit(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let (poor, rich) = (app.account("0.0003").await, app.account("1").await);
    let (poor, rich) = (Mover::new(&app, &poor).await, Mover::new(&app, &rich).await);
    let holds = (0..40).map(|n| if n % 2 == 0 { &poor } else { &rich }.hold(70));
    let held = join_all(holds).await;
    let placed = |rest| held.iter().skip(rest).step_by(2).flatten().count();
    assert_eq!((placed(0), placed(1)), (4, 20));
    for (n, id) in held.into_iter().enumerate() {
        if let Some(id) = id {
            let mover = if n % 2 == 0 { &poor } else { &rich };
            assert!(mover.finish(id, Some(1)).await);
        }
    }
    app.assert_settled().await;
}

/// Statements of two servers wait for each other's commits, and decide by what those have left.
#[sqlx::test]
async fn of_holds_of_two_servers_as_many_are_placed_as_fit(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let replica = app.replica().await;
    let account = app.account("0.001").await;
    let movers = [
        Mover::new(&app, &account).await,
        Mover::new(&replica, &account).await,
    ];
    for _ in 0..10 {
        let holds = (0..40).map(|n| movers[n % 2].hold(70));
        let held: Vec<_> = join_all(holds).await.into_iter().flatten().collect();
        assert_eq!(held.len(), 14);
        let ends = held.into_iter().enumerate();
        let ends = ends.map(|(n, id)| movers[n % 2].finish(id, None));
        assert!(join_all(ends).await.into_iter().all(|ended| ended));
        assert_eq!(movers[0].balance_and_unfinished().await, (1000, 0));
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn usage_of_a_database_made_from_a_dump_is_counted_anew(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    for text in texts(&Arc::new(app.replica().await), &account, 5) {
        text.await.unwrap().expect(200);
    }
    let usage = app.get(&account.key, "/v1/credits/usage").await.expect(200);
    assert_eq!(usage["total"]["completed"], 5);
    // Transactions of the old cluster had higher numbers than the new one has reached.
    for statement in [
        "update finished_generations set settled = '1000000000000'",
        "update settled_cursors set upto = '1000000000001' where name = 'usage'",
        "update settled_cursors set upto = '5' where name = 'retention'",
    ] {
        sqlx::query(statement).execute(&app.pool).await.unwrap();
    }
    app.store.migrate().await.unwrap();
    // Retention looks at all of them again.
    let retention = "select upto::text from settled_cursors where name = 'retention'";
    let retention = sqlx::query_scalar::<_, String>(retention).fetch_one(&app.pool);
    assert_eq!(retention.await.unwrap(), "0");
    app.text(&account.key, json!({"prompt": "x"}))
        .await
        .expect(200);
    let usage = app.get(&account.key, "/v1/credits/usage").await.expect(200);
    assert_eq!(usage["total"]["completed"], 6, "{usage}");
    app.assert_settled().await;
}

//! Accounts and rows that another transaction has locked do not delay the recovery of others.

use super::*;

/// Takes all rows away from their servers, as of a dead one.
async fn abandon(app: &TestApp, is_submitted: bool) {
    let abandoning = "update running_generations set lease_token = gen_random_uuid(),
        submitted_at = case when $1 then created_at end";
    sqlx::query(abandoning)
        .bind(is_submitted)
        .execute(&app.pool)
        .await
        .unwrap();
}

#[sqlx::test]
async fn a_locked_account_delays_no_other(_: PgPoolOptions, options: PgConnectOptions) {
    let most = [("GENSVC__JOBS__MAX_PER_ACCOUNT", "1000")];
    let app = TestApp::with(options, &most).await;
    let (locked, other) = (app.account("100000").await, app.account("100").await);
    let body = json!({"prompt": "x"});
    // A whole batch of the sweep.
    for _ in 0..500 {
        app.queue(&locked, "audio", &body).await;
    }
    let uuid = app.queue(&other, "audio", &body).await;
    abandon(&app, true).await;
    let mut lock = app.pool.begin().await.unwrap();
    sqlx::query("select from accounts where id = $1 for update")
        .bind(locked.id.0)
        .execute(&mut *lock)
        .await
        .unwrap();
    let sweep = app.app.runner.sweep_step();
    let swept = tokio::time::timeout(Duration::from_mins(1), sweep).await;
    assert_eq!(swept.expect("it waits for each row").unwrap(), 1);
    let record = app.record(&other, &uuid).await;
    assert_eq!(record["error"]["code"], "interrupted", "{record}");
    lock.rollback().await.unwrap();
    assert_eq!(app.app.runner.sweep_step().await.unwrap(), 500);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_locked_row_delays_no_other(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let accounts = [app.account("100").await, app.account("100").await];
    let mut uuids = Vec::new();
    for account in &accounts {
        uuids.push(app.queue(account, "audio", &json!({"prompt": "x"})).await);
    }
    abandon(&app, false).await;
    let mut lock = app.pool.begin().await.unwrap();
    sqlx::query("select from running_generations where account_id = $1 for update")
        .bind(accounts[0].id.0)
        .execute(&mut *lock)
        .await
        .unwrap();
    assert_eq!(app.app.runner.sweep_step().await.unwrap(), 0);
    assert_eq!(app.work_once().await, 1);
    let record = app.record(&accounts[1], &uuids[1]).await;
    assert_eq!(record["status"], "completed", "{record}");
    lock.rollback().await.unwrap();
    assert_eq!(app.app.runner.sweep_step().await.unwrap(), 0);
    app.until_finished(&accounts[0], &uuids[0]).await;
    app.assert_settled().await;
}

//! Redelivery, deletion, and retention of the log.

use chrono::TimeDelta;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{HOOKS, deliveries, hook, only, receiver, text};
use crate::common::{Account, Reply, TestApp};

async fn again(app: &TestApp, account: &Account, hook: &Value) -> Value {
    let delivery = only(app, account, hook).await["id"].clone();
    let path = format!("{HOOKS}/{}/deliveries/{delivery}/redeliver", hook["id"]);
    let answer = app.post(&account.key, &path, &json!({})).await;
    answer.expect(202)
}

#[sqlx::test]
async fn whatever_became_of_it_it_can_be_sent_again(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let receiver = receiver().await;
    let hook = hook(&app, &account, &receiver).await;
    text(&app, &account).await;
    // Delivered.
    app.deliver().await;
    let record = again(&app, &account, &hook).await;
    assert_eq!(record["status"], "pending");
    assert_eq!(record["next_attempt_at"], record["created_at"], "due now");
    app.deliver().await;
    let delivery = only(&app, &account, &hook).await;
    assert_eq!(
        (&delivery["status"], &delivery["attempts"]),
        (&json!("delivered"), &json!(2))
    );
    // Pending, late in its backoff.
    receiver.reply(Reply::Status(500, json!({})));
    again(&app, &account, &hook).await;
    for _ in 0..6 {
        app.deliver().await;
        app.advance(TimeDelta::hours(3));
    }
    assert_eq!(receiver.count(), 8);
    app.deliver().await;
    again(&app, &account, &hook).await;
    app.deliver().await;
    assert_eq!(receiver.count(), 10);
    // The backoff has started over.
    app.advance(TimeDelta::seconds(10));
    app.deliver().await;
    assert_eq!(receiver.count(), 11);
    // Given up.
    while only(&app, &account, &hook).await["status"] == "pending" {
        app.advance(TimeDelta::hours(8));
        app.deliver().await;
    }
    receiver.reply(Reply::Raw(204, "text/plain", String::new()));
    again(&app, &account, &hook).await;
    app.deliver().await;
    let delivery = only(&app, &account, &hook).await;
    assert_eq!(
        (&delivery["status"], &delivery["response_status"]),
        (&json!("delivered"), &json!(204))
    );
    let ids: Vec<_> = receiver
        .requests()
        .iter()
        .map(|r| r.headers["webhook-id"].clone())
        .collect();
    assert!(ids.iter().all(|id| *id == ids[0]));
}

/// The end of a running attempt does not undo the owner's request.
#[sqlx::test]
async fn one_that_is_under_way_is_sent_once_more(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let receiver = receiver().await;
    let hook = hook(&app, &account, &receiver).await;
    text(&app, &account).await;
    receiver.hold();
    assert_eq!(app.app.dispatcher.step().await.unwrap(), 1);
    receiver.arrived(1).await;
    again(&app, &account, &hook).await;
    receiver.release(2);
    app.deliver().await;
    app.deliver().await;
    assert_eq!(receiver.count(), 2);
    let delivery = only(&app, &account, &hook).await;
    assert_eq!(
        (&delivery["status"], &delivery["attempts"]),
        (&json!("delivered"), &json!(2))
    );
}

#[sqlx::test]
async fn a_deleted_webhook_is_told_nothing_more(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let receiver = receiver().await;
    let (hook, other) = (
        hook(&app, &account, &receiver).await,
        hook(&app, &account, &receiver).await,
    );
    text(&app, &account).await;
    let delivery = only(&app, &account, &hook).await["id"].clone();
    let path = format!("{HOOKS}/{}", hook["id"]);
    app.delete(&account.key, &path).await.expect(204);
    text(&app, &account).await;
    app.deliver().await;
    assert_eq!(receiver.count(), 2, "only the other webhook's");
    for path in [path.clone(), format!("{path}/deliveries")] {
        app.get(&account.key, &path).await.error(404, "not_found");
    }
    let redeliver = format!("{path}/deliveries/{delivery}/redeliver");
    let answer = app.post(&account.key, &redeliver, &json!({})).await;
    answer.error(404, "not_found");
    let answer = app.delete(&account.key, &path).await;
    answer.error(404, "not_found");
    let list = app.get(&account.key, HOOKS).await.expect(200);
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
    // Nothing of it stays for long.
    let left = async |table: &str| -> i64 {
        let count = format!("select count(*) from {table}");
        sqlx::query_scalar(sqlx::AssertSqlSafe(count))
            .fetch_one(&app.pool)
            .await
            .unwrap()
    };
    let purge = async || {
        let now = app.now();
        let store = &app.store;
        while store
            .purge(now - TimeDelta::days(30), now, 100)
            .await
            .unwrap()
        {}
    };
    purge().await;
    assert_eq!(
        (left("webhook_deliveries").await, left("webhooks").await),
        (2, 2)
    );
    app.advance(TimeDelta::hours(2));
    purge().await;
    assert_eq!(
        (left("webhook_deliveries").await, left("webhooks").await),
        (2, 1)
    );
    assert_eq!(deliveries(&app, &account, &other).await.len(), 2);
}

#[sqlx::test]
async fn an_event_of_another_version_keeps_no_other_back(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let receiver = receiver().await;
    hook(&app, &account, &receiver).await;
    for _ in 0..3 {
        text(&app, &account).await;
    }
    sqlx::query(
        "update webhook_deliveries set event = 'generation.begun'
         where id = (select min(id) from webhook_deliveries)",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    app.deliver().await;
    assert_eq!(receiver.count(), 2);
}

#[sqlx::test]
async fn finished_deliveries_are_kept_for_a_while(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let receiver = receiver().await;
    let hook = hook(&app, &account, &receiver).await;
    for _ in 0..5 {
        text(&app, &account).await;
    }
    app.deliver().await;
    receiver.hold();
    text(&app, &account).await;
    let purge = async |days| {
        let (now, before) = (app.now(), app.now() - TimeDelta::days(days));
        app.store.purge(before, now, 2).await.unwrap()
    };
    app.advance(TimeDelta::days(6));
    assert!(!purge(30).await);
    assert_eq!(deliveries(&app, &account, &hook).await.len(), 6);
    for more in [true, true, false] {
        assert_eq!(purge(5).await, more);
    }
    assert_eq!(only(&app, &account, &hook).await["status"], "pending");
    // It was never attempted, so it is not its receiver's fault.
    app.advance(TimeDelta::days(2));
    assert!(!purge(30).await);
    assert_eq!(only(&app, &account, &hook).await["status"], "pending");
    sqlx::query("update webhook_deliveries set attempts = 1 where status = 'pending'")
        .execute(&app.pool)
        .await
        .unwrap();
    assert!(!purge(30).await);
    let delivery = only(&app, &account, &hook).await;
    assert_eq!(
        (&delivery["status"], &delivery["attempts"]),
        (&json!("failed"), &json!(1))
    );
    app.deliver().await;
    assert_eq!(receiver.count(), 5);
}

#[sqlx::test]
async fn deliveries_are_paged(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let receiver = receiver().await;
    let hook = hook(&app, &account, &receiver).await;
    let mut uuids = Vec::new();
    for _ in 0..5 {
        uuids.push(text(&app, &account).await["uuid"].clone());
    }
    uuids.reverse();
    let (mut found, mut path) = (
        Vec::new(),
        format!("{HOOKS}/{}/deliveries?per_page=2", hook["id"]),
    );
    while !path.is_empty() {
        let page = app.get(&account.key, &path).await;
        let rows = page.expect(200)["data"].as_array().unwrap().clone();
        found.extend(rows.iter().map(|row| row["generation"].clone()));
        path = page.next_page();
    }
    assert_eq!(found, uuids);
    // A cursor of another list.
    let list = app
        .get(&account.key, "/v1/generate/history?per_page=1")
        .await;
    let cursor = list.json()["next_cursor"].as_str().unwrap().to_owned();
    let path = format!("{HOOKS}/{}/deliveries?cursor={cursor}", hook["id"]);
    let answer = app.get(&account.key, &path).await;
    assert_eq!(answer.fields()["cursor"], "invalid_format");
}

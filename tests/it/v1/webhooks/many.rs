//! Many events, many receivers, several servers, and crashes.

use std::{collections::BTreeMap, sync::Arc};

use chrono::TimeDelta;
use futures_util::future::join_all;
use gensvc::domain::ids::WebhookId;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{deliveries, hook, only, receiver, text};
use crate::common::{Recorded, Reply, TestApp};

/// How often each event arrived.
fn arrivals(requests: &[Recorded]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in requests {
        let id = request.headers["webhook-id"].to_str().unwrap().to_owned();
        *counts.entry(format!("{} {id}", request.path)).or_default() += 1;
    }
    counts
}

#[sqlx::test]
async fn a_death_after_the_taking_loses_nothing(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let receiver = receiver().await;
    let hook = hook(&app, &account, &receiver).await;
    text(&app, &account).await;
    let id = WebhookId(hook["id"].as_i64().unwrap());
    let (now, lease) = (app.now(), app.now() + TimeDelta::seconds(55));
    let taken = app.store.take_deliveries(&[(id, 4)], now, lease).await;
    assert_eq!(taken.unwrap().len(), 1);
    let other = app.replica().await;
    other.deliver().await;
    assert_eq!(receiver.count(), 0, "it is being delivered");
    app.advance(TimeDelta::seconds(55));
    other.deliver().await;
    assert_eq!(receiver.count(), 1);
    let delivery = only(&app, &account, &hook).await;
    assert_eq!(
        (&delivery["status"], &delivery["attempts"]),
        (&json!("delivered"), &json!(2))
    );
}

#[sqlx::test]
async fn a_late_end_does_not_count(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let receiver = receiver().await;
    let hook = hook(&app, &account, &receiver).await;
    text(&app, &account).await;
    receiver.hold();
    assert_eq!(app.app.dispatcher.step().await.unwrap(), 1);
    receiver.arrived(1).await;
    let first = app.now().timestamp().to_string();
    receiver.play(move |request| {
        let late = request.headers["webhook-timestamp"] == first.as_str();
        Reply::Status(if late { 500 } else { 200 }, json!({}))
    });
    // It sleeps for longer than its lease.
    app.advance(TimeDelta::seconds(55));
    let other = app.replica().await;
    assert_eq!(other.app.dispatcher.step().await.unwrap(), 1);
    receiver.arrived(2).await;
    receiver.release(2);
    other.deliver().await;
    app.deliver().await;
    let delivery = only(&app, &account, &hook).await;
    assert_eq!(
        (&delivery["status"], &delivery["attempts"]),
        (&json!("delivered"), &json!(2))
    );
    assert_eq!(delivery["response_status"], 200);
    assert_eq!(receiver.count(), 2);
}

#[sqlx::test]
async fn a_stop_leaves_the_rest_to_the_next_server(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let receiver = receiver().await;
    let hook = hook(&app, &account, &receiver).await;
    text(&app, &account).await;
    receiver.hold();
    assert_eq!(app.app.dispatcher.step().await.unwrap(), 1);
    receiver.arrived(1).await;
    app.app.dispatcher.stop(std::time::Duration::ZERO).await;
    assert_eq!(app.app.dispatcher.running(), 0);
    text(&app, &account).await;
    assert_eq!(
        app.app.dispatcher.step().await.unwrap(),
        0,
        "it has stopped"
    );
    receiver.release(10);
    let other = app.replica().await;
    other.deliver().await;
    app.advance(TimeDelta::seconds(55));
    other.deliver().await;
    for delivery in deliveries(&app, &account, &hook).await {
        assert_eq!(delivery["status"], "delivered");
    }
    assert_eq!(receiver.count(), 3);
}

#[sqlx::test]
async fn several_servers_tell_each_event_once(_: PgPoolOptions, options: PgConnectOptions) {
    let app = Arc::new(TestApp::new(options).await);
    let other = Arc::new(app.replica().await);
    let receiver = receiver().await;
    let mut hooks = Vec::new();
    for _ in 0..4 {
        let account = app.account("100").await;
        hooks.push(hook(&app, &account, &receiver).await);
        for _ in 0..15 {
            text(&app, &account).await;
        }
    }
    loop {
        let rounds = [&app, &other, &app, &other].map(|app| {
            let app = Arc::clone(app);
            tokio::spawn(async move { app.deliver_once().await })
        });
        let taken: usize = join_all(rounds).await.into_iter().map(Result::unwrap).sum();
        if taken == 0 {
            break;
        }
    }
    let arrived = arrivals(&receiver.requests());
    assert_eq!(arrived.len(), 60);
    assert!(arrived.values().all(|&count| count == 1), "{arrived:?}");
}

#[sqlx::test]
async fn in_the_end_every_event_arrives(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let other = app.replica().await;
    let receiver = receiver().await;
    // Three of four events are refused at first, each in a different way.
    let seen = std::sync::Mutex::new(BTreeMap::<String, usize>::new());
    receiver.play(move |request| {
        let id = request.headers["webhook-id"].to_str().unwrap().to_owned();
        let mut seen = seen.lock().unwrap();
        let number = seen.len();
        let times = seen.entry(id).or_insert(number * 10);
        *times += 1;
        match (*times / 10 % 4, *times % 10) {
            (1, 1) => Reply::Status(500, json!({})),
            (2, 1) => Reply::Cut,
            (3, 1 | 2) => Reply::Redirect("/elsewhere".to_owned()),
            _ => Reply::Status(200, json!({})),
        }
    });
    let mut expected = Vec::new();
    let mut all = Vec::new();
    for _ in 0..3 {
        let account = app.account("1000").await;
        let hook = hook(&app, &account, &receiver).await;
        for prompt in ["x", "[[reject]]", "y", "[[fail]]", "z"] {
            let body = json!({"prompt": prompt, "parameters": {"max_tokens": 8}});
            let answer = app.text(&account.key, body).await.json();
            let record = answer.get("generation").unwrap_or(&answer);
            expected.push(record["uuid"].clone());
        }
        let body = json!({"prompt": "x", "parameters": {"duration": 1}});
        let uuid = app.queue(&account, "video", &body).await;
        let record = app.until_finished(&account, &uuid).await;
        assert_eq!(record["status"], "completed");
        expected.push(json!(uuid));
        all.push((account, hook));
    }
    for _ in 0..5 {
        tokio::join!(app.deliver(), other.deliver());
        app.advance(TimeDelta::hours(1));
    }
    let mut delivered = Vec::new();
    for (account, hook) in &all {
        for delivery in deliveries(&app, account, hook).await {
            assert_eq!(delivery["status"], "delivered", "{delivery}");
            delivered.push(delivery["generation"].clone());
        }
    }
    let text = |uuid: &Value| uuid.as_str().unwrap().to_owned();
    delivered.sort_by_key(text);
    expected.sort_by_key(text);
    assert_eq!(delivered, expected);
    assert!(receiver.count() > expected.len(), "nothing was refused");
    app.assert_settled().await;
}

/// A dead receiver with a long queue, first in every order, does not delay the others.
#[sqlx::test]
async fn the_others_do_not_wait_for_a_dead_receiver(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (dead, alive) = (app.account("10").await, app.account("10").await);
    let (silent, receiver) = (receiver().await, receiver().await);
    silent.hold();
    let queue = hook(&app, &dead, &silent).await;
    let hook = hook(&app, &alive, &receiver).await;
    let record = text(&app, &dead).await;
    sqlx::query(
        "insert into webhook_deliveries
             (webhook_id, account_id, generation_id, event, next_attempt_at, created_at)
         select $1, $2, $3::uuid, 'generation.completed', $4, $4
         from generate_series(1, 20000)",
    )
    .bind(queue["id"].as_i64().unwrap())
    .bind(dead.id.0)
    .bind(record["uuid"].as_str().unwrap())
    .bind(app.now() - TimeDelta::days(1))
    .execute(&app.pool)
    .await
    .unwrap();
    for round in 1..=3 {
        text(&app, &alive).await;
        while app.app.dispatcher.step().await.unwrap() > 0 {}
        receiver.arrived(round).await;
    }
    // As many attempts hang as one webhook may have.
    assert_eq!(silent.count(), 4);
    silent.release(1_000_000);
    app.app.dispatcher.stop(std::time::Duration::ZERO).await;
    let deliveries = deliveries(&app, &alive, &hook).await;
    assert_eq!(deliveries.len(), 3);
}

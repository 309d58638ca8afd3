//! Receivers that do not accept deliveries.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::{io::AsyncReadExt as _, net::TcpListener};

use super::{HOOKS, delivery::assert_signed, hook, only, receiver, text};
use crate::common::{Reply, TestApp};

fn time(value: &Value) -> DateTime<Utc> {
    value.as_str().unwrap().parse().unwrap()
}

#[sqlx::test]
async fn it_is_told_again_for_a_day(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let receiver = receiver().await;
    receiver.reply(Reply::Status(500, json!({"secret": "of the receiver"})));
    let hook = hook(&app, &account, &receiver).await;
    text(&app, &account).await;
    let start = app.now();
    let mut waits = Vec::new();
    for attempt in 1.. {
        app.deliver().await;
        assert_eq!(receiver.count(), attempt);
        let delivery = only(&app, &account, &hook).await;
        assert_eq!(delivery["attempts"], attempt);
        assert_eq!(delivery["response_status"], 500);
        assert_eq!(delivery["error"], "the answer was 500");
        assert_eq!(time(&delivery["last_attempt_at"]), app.now());
        assert_eq!(delivery["delivered_at"], Value::Null);
        if delivery["status"] == "failed" {
            assert_eq!(delivery["next_attempt_at"], Value::Null);
            break;
        }
        assert_eq!(delivery["status"], "pending");
        let wait = time(&delivery["next_attempt_at"]) - app.now();
        app.advance(wait - TimeDelta::microseconds(1));
        app.deliver().await;
        assert_eq!(receiver.count(), attempt, "delivered too early");
        app.advance(TimeDelta::microseconds(1));
        waits.push(wait.num_seconds());
    }
    assert!(waits[0] < 60 && waits.is_sorted(), "{waits:?}");
    let hours = (app.now() - start).num_hours();
    assert!((20..=28).contains(&hours), "{hours} hours");
    // No further attempts.
    app.advance(TimeDelta::days(2));
    app.deliver().await;
    let requests = receiver.requests();
    assert_eq!(requests.len(), waits.len() + 1);
    for request in &requests {
        assert_signed(request, &hook);
        let first = &requests[0];
        assert_eq!(request.headers["webhook-id"], first.headers["webhook-id"]);
        assert_eq!(request.text, first.text);
    }
    let stamps: Vec<_> = requests
        .iter()
        .map(|r| r.headers["webhook-timestamp"].clone())
        .collect();
    assert!(stamps.windows(2).all(|w| w[0] != w[1]));
}

#[sqlx::test]
async fn it_recovers_with_the_receiver(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let receiver = receiver().await;
    let hook = hook(&app, &account, &receiver).await;
    text(&app, &account).await;
    for (status, error) in [
        (404, "the answer was 404"),
        (410, "the answer was 410"),
        (503, "the answer was 503"),
        (304, "the answer was 304; redirects are not followed"),
    ] {
        receiver.reply(Reply::Raw(status, "text/plain", String::new()));
        app.deliver().await;
        let delivery = only(&app, &account, &hook).await;
        assert_eq!(delivery["response_status"], status);
        assert_eq!(delivery["error"], error);
        app.advance(TimeDelta::hours(8));
    }
    // The response body is not read, only its status.
    receiver.reply(Reply::Endless("application/json"));
    app.deliver().await;
    let delivery = only(&app, &account, &hook).await;
    assert_eq!(
        (&delivery["status"], &delivery["attempts"]),
        (&json!("delivered"), &json!(5))
    );
    assert_eq!(
        (&delivery["response_status"], &delivery["error"]),
        (&json!(200), &Value::Null)
    );
}

#[sqlx::test]
async fn redirects_are_not_followed(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let (receiver, target) = (receiver().await, receiver().await);
    receiver.reply(Reply::Redirect(format!("{}/inside", target.url())));
    let hook = hook(&app, &account, &receiver).await;
    text(&app, &account).await;
    app.deliver().await;
    assert_eq!((receiver.count(), target.count()), (1, 0));
    let delivery = only(&app, &account, &hook).await;
    assert_eq!(
        (&delivery["status"], &delivery["response_status"]),
        (&json!("pending"), &json!(302))
    );
}

#[sqlx::test]
async fn one_that_hangs_is_given_up(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::with(options, &[("GENSVC__WEBHOOKS__TIMEOUT_MS", "100")]).await;
    let account = app.account("10").await;
    let receiver = receiver().await;
    receiver.hold();
    let hook = hook(&app, &account, &receiver).await;
    text(&app, &account).await;
    app.deliver().await;
    let delivery = only(&app, &account, &hook).await;
    assert_eq!(delivery["status"], "pending");
    assert_eq!(delivery["response_status"], Value::Null);
    assert_eq!(delivery["error"], "there was no answer in time");
    assert_eq!(
        time(&delivery["next_attempt_at"]) - app.now(),
        TimeDelta::seconds(10)
    );
}

#[sqlx::test]
async fn one_that_breaks_off_or_is_gone(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    let body = json!({"url": url});
    let hook = app.post(&account.key, HOOKS, &body).await.expect(201);
    text(&app, &account).await;
    let receiver = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_u8().await.unwrap();
    });
    app.deliver().await;
    receiver.await.unwrap();
    let delivery = only(&app, &account, &hook).await;
    assert_eq!(
        delivery["error"],
        "the connection broke off before an answer"
    );
    // No listener now.
    app.advance(TimeDelta::seconds(10));
    app.deliver().await;
    let delivery = only(&app, &account, &hook).await;
    assert_eq!(delivery["error"], "no connection could be made");
    assert_eq!(delivery["attempts"], 2);
}

/// A name that was public when the webhook was created may resolve to a private address later.
#[sqlx::test]
async fn every_attempt_looks_at_the_address(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let receiver = receiver().await;
    let port = receiver.url().rsplit(':').next().unwrap().to_owned();
    let strict = app
        .replica_with(&[("GENSVC__WEBHOOKS__ALLOW_PRIVATE", "false")])
        .await;
    let mut hooks = Vec::new();
    for host in ["localhost", "127.0.0.1", "[::1]", "0x7f.1"] {
        let body = json!({"url": format!("http://{host}:{port}/")});
        hooks.push(app.post(&account.key, HOOKS, &body).await.expect(201));
    }
    text(&app, &account).await;
    strict.deliver().await;
    assert_eq!(receiver.count(), 0);
    for hook in &hooks {
        let delivery = only(&app, &account, hook).await;
        assert_eq!(delivery["attempts"], 1, "{hook}");
        assert_eq!(
            delivery["error"], "the host has no public address",
            "{hook}"
        );
    }
    app.advance(TimeDelta::seconds(10));
    app.deliver().await;
    assert!(receiver.count() >= 3, "[::1] does not listen");
}

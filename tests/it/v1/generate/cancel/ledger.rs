//! Effects of a cancelled text on the account: spend limits, usage sums, webhooks, replays.

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::*;

/// Streams, and cancels after the first half. Returns the record.
async fn cancelled(
    app: &TestApp,
    upstream: &Upstream,
    account: &Account,
    key: &str,
    headers: &[(&str, &str)],
) -> Value {
    let mut stream = Stream::post(app, key, headers, &ask("openai")).await;
    upstream.send_events(1);
    stream.until("delta", 1).await;
    let record = cancel(app, account, &stream.uuid()).await.expect(200);
    assert_first_half(&record);
    record
}

#[sqlx::test]
async fn caps_and_sums_count_it_as_any_other(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = stepwise().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1").await;
    // One hold: 82 tokens of input and 200 of output.
    let body = json!({"name": "capped", "spend_limit": "0.01082", "spend_period": "day"});
    let made = app.post(&account.key, "/v1/api-keys", &body).await;
    let made = made.expect(201);
    let key = made["key"].as_str().unwrap();
    let record = cancelled(&app, &upstream, &account, key, &[]).await;
    let charged = &record["credits"]["charged"];
    let path = format!("/v1/api-keys/{}", made["id"]);
    let found = app.get(&account.key, &path).await.expect(200);
    assert_eq!(found["spent"], *charged);
    // The charge is missing for another hold.
    let refused = app.text(key, ask("openai")).await;
    let error = refused.error(402, "spend_limit_exceeded");
    assert_eq!(error["spent"], *charged);
    let usage = app.get(&account.key, "/v1/credits/usage").await.expect(200);
    let total = &usage["total"];
    for (name, value) in [
        ("generations", &json!(1)),
        ("completed", &json!(1)),
        ("failed", &json!(0)),
        ("charged", charged),
        ("input_tokens", &record["usage"]["input_tokens"]),
        ("output_tokens", &record["usage"]["output_tokens"]),
    ] {
        assert_eq!(total[name], *value, "{name}: {usage}");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn webhooks_and_replays_say_it_too(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = stepwise().await;
    let receiver = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1").await;
    let hook = json!({"url": receiver.url()});
    app.post(&account.key, "/v1/webhooks", &hook)
        .await
        .expect(201);
    let keyed = [("idempotency-key", "k")];
    let record = cancelled(&app, &upstream, &account, &account.key, &keyed).await;
    app.deliver().await;
    let event = &receiver.requests()[0].body;
    assert_eq!(event["type"], "generation.completed");
    assert_eq!(event["data"], record);
    for stream in [false, true] {
        let mut body = ask("openai");
        body["stream"] = json!(stream);
        let path = "/v1/generate/text";
        let again = app.post_with(&account.key, path, &keyed, &body).await;
        assert_eq!(again.header("idempotent-replayed"), "true");
        if stream {
            let last = again.events().pop().unwrap();
            assert_eq!(last, ("completed".to_owned(), record.clone()));
        } else {
            assert_eq!(again.expect(200), record);
        }
    }
    assert_eq!(upstream.count(), 1);
    app.assert_settled().await;
}

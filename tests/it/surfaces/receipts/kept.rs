//! Which counts are kept, and for how long.

use chrono::TimeDelta;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    BYTES, CHAT, COUNT, COUNTED, LUNA, NEXT, counted, first, held, next, receipts, second, with,
};
use crate::common::{Reply, TestApp, Upstream};

#[sqlx::test]
async fn only_what_is_plausible_is_kept(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("100").await;
    let usage = |usage: Value| {
        let message = json!({"role": "assistant", "content": "Sure."});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        let body = json!({"id": "c", "object": "chat.completion", "model": "m",
            "choices": [choice], "usage": usage});
        Reply::Status(200, body)
    };
    let input = |tokens: i64| usage(json!({"prompt_tokens": tokens, "completion_tokens": 3}));
    for reply in [
        usage(json!(null)),
        usage(json!({"completion_tokens": 3})),
        usage(json!({"prompt_tokens": u64::MAX, "completion_tokens": 3})),
        input(-1),
        input(0),
    ] {
        upstream.reply(reply);
        assert_eq!(held(&app, &account, CHAT, &first(LUNA)).await, BYTES);
        assert_eq!(receipts(&app).await, 0);
    }
    upstream.reply(Reply::Status(500, json!({"error": {"message": "no"}})));
    app.post(&account.key, CHAT, &first(LUNA)).await.expect(502);
    upstream.reply(counted(COUNT));
    // Neither what is too short to gain anything, nor a text that is no dialogue.
    let short = json!([{"role": "user", "content": "x".repeat(4_000)}]);
    let short = with(first(LUNA), &json!({"messages": short}));
    held(&app, &account, CHAT, &short).await;
    let text = json!({"prompt": "x".repeat(9_000), "provider": "openai"});
    app.text(&account.key, text).await.expect(200);
    assert_eq!(receipts(&app).await, 0);

    // No token stands for more than 16 bytes.
    upstream.reply(input(1));
    held(&app, &account, CHAT, &first(LUNA)).await;
    let least = BYTES / 16;
    let bounded = held(&app, &account, CHAT, &second(LUNA)).await;
    assert_eq!(bounded, least + least / 64 + 256 + NEXT);
    let account = app.account("100").await;
    // Of the same input the larger count holds, and no dialogue has less than its beginning.
    upstream.reply(counted(COUNT));
    held(&app, &account, CHAT, &first(LUNA)).await;
    for count in [4_000, COUNT - 1] {
        upstream.reply(counted(count));
        held(&app, &account, CHAT, &first(LUNA)).await;
        held(&app, &account, CHAT, &second(LUNA)).await;
    }
    let mut third = second(LUNA);
    third["messages"].as_array_mut().unwrap().extend(next());
    assert_eq!(held(&app, &account, CHAT, &third).await, COUNTED + NEXT);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_settlement_does_not_wait_for_receipts(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    upstream.reply(counted(COUNT));
    let mut lock = app.pool.begin().await.unwrap();
    let table = "lock table prefix_receipts in exclusive mode";
    sqlx::query(table).execute(&mut *lock).await.unwrap();
    assert_eq!(held(&app, &account, CHAT, &first(LUNA)).await, BYTES);
    app.assert_settled().await;
    lock.rollback().await.unwrap();
    assert_eq!(receipts(&app).await, 0);
    assert_eq!(held(&app, &account, CHAT, &first(LUNA)).await, BYTES);
    assert_eq!(
        held(&app, &account, CHAT, &second(LUNA)).await,
        COUNTED + NEXT
    );
}

#[sqlx::test]
async fn they_are_removed_when_they_are_old(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    upstream.reply(counted(COUNT));
    held(&app, &account, CHAT, &first(LUNA)).await;
    app.advance(TimeDelta::hours(47));
    held(&app, &account, CHAT, &second(LUNA)).await;
    let purge = || app.app.runner.purge(TimeDelta::days(90), 100);
    purge().await.unwrap();
    assert_eq!(receipts(&app).await, 2);
    app.advance(TimeDelta::hours(1));
    purge().await.unwrap();
    assert_eq!(receipts(&app).await, 1);
}

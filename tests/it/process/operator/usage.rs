//! `gensvc usage`, and keys with a spend limit.

use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::Shell;
use crate::common::TestApp;

#[sqlx::test]
async fn usage_is_reported_by_account_and_over_all(_: PgPoolOptions, options: PgConnectOptions) {
    let shell = Shell::new(&options);
    let app = TestApp::new(options).await;
    let (ann, ben) = (app.account("10").await, app.account("10").await);
    let body = json!({"prompt": "hello", "parameters": {"n": 2, "size": "256x256"}});
    for key in [&ann.key, &ann.key, &ben.key] {
        app.post(key, "/v1/generate/image", &body).await.expect(200);
    }
    // The commands use the real clock.
    let span = [
        "--from",
        "2027-01-15T00:00:00Z",
        "--to",
        "2027-01-16T00:00:00Z",
    ];
    let by_type = [&["usage", "--group-by", "type"], &span[..]].concat();
    let all = shell.script(&by_type).await;
    assert_eq!(all["data"].as_array().unwrap().len(), 1, "{all}");
    assert_eq!(all["data"][0]["type"], "image");
    assert_eq!(
        (&all["total"]["images"], &all["total"]["charged"]),
        (&json!(6), &json!("6"))
    );
    let one = [&by_type[..], &["--email", &ann.email]].concat();
    let path = "/v1/credits/usage?group_by=type";
    assert_eq!(
        shell.script(&one).await,
        app.get(&ann.key, path).await.expect(200)
    );
    let people = shell.people(&one).await;
    assert!(
        people.contains("image  2") && people.contains("total  2"),
        "{people}"
    );
    shell
        .misuses(&["usage", "--group-by", "hour"], "must be any of day, type")
        .await;
    shell
        .fails(
            &["usage", "--email", "no@example.com"],
            "no account has a user with the email",
        )
        .await;
}

#[sqlx::test]
async fn a_key_may_be_made_with_a_limit(_: PgPoolOptions, options: PgConnectOptions) {
    let shell = Shell::new(&options);
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let create = ["key", "create", "--name", "x", "--email", &account.email];
    let limit = ["--spend-limit", "2.5", "--spend-period", "month"];
    let made = shell.script(&[&create[..], &limit].concat()).await;
    assert_eq!(
        (&made["spend_limit"], &made["spend_period"], &made["spent"]),
        (&json!("2.5"), &json!("month"), &json!("0"))
    );
    let list = shell
        .people(&["key", "list", "--email", &account.email])
        .await;
    assert!(list.contains("2.5 per month"), "{list}");
    shell
        .misuses(
            &[&create[..], &["--spend-period", "day"]].concat(),
            "--spend-limit",
        )
        .await;
    let past = [&create[..], &["--expires-at", "2020-01-31T12:00:00Z"]].concat();
    shell.fails(&past, "expires_at must be in the future").await;
    for (argument, value, sentence) in [
        ("--name", " ", "must not be blank"),
        ("--rate-limit", "0", "0 is not in 1..=1000000"),
        ("--abilities", "read:history,x", "x must be one of"),
        ("--expires-at", "tomorrow", "must be an ISO 8601 time"),
        ("--spend-limit", "-1", "must not be negative"),
        ("--spend-period", "year", "must be day or month"),
    ] {
        let create = ["key", "create", "--email", &account.email];
        let given = [&create[..], &[argument, value]].concat();
        shell.misuses(&given, sentence).await;
    }
}

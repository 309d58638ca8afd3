//! `gensvc credits`, and output to a closed pipe.

use std::process::Stdio;

use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{Shell, Site};
use crate::common::TestApp;

#[sqlx::test]
async fn credits_move_once_for_each_reference(_: PgPoolOptions, options: PgConnectOptions) {
    let shell = Shell::new(&options);
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let email = account.email.as_str();
    let grant = |amount: &'static str| {
        [
            "credits",
            "grant",
            "--email",
            email,
            "--reference",
            "i-1",
            "--amount",
            amount,
        ]
    };
    let first = shell.script(&grant("2")).await;
    assert_eq!(
        (&first["moved"], &first["balance"]),
        (&json!(true), &json!("12"))
    );
    let again = shell.script(&grant("2")).await;
    assert_eq!(
        (&again["moved"], &again["entry"]),
        (&json!(false), &first["entry"])
    );
    let again = shell.people(&grant("2")).await;
    assert!(again.contains("nothing was changed"), "{again}");
    shell
        .fails(
            &grant("3"),
            "the reference was used for another movement: grant 2",
        )
        .await;

    shell
        .fails(
            &grant("-5"),
            "amount must be positive; to take credits back, use an adjustment",
        )
        .await;

    let video = json!({"prompt": "x", "parameters": {"duration": 1}});
    let uuid = app.queue(&account, "video", &video).await;
    app.until_finished(&account, &uuid).await;
    let refund = [
        "credits",
        "refund",
        "--generation",
        &uuid,
        "--reference",
        "late",
    ];
    let too_much = [&refund[..], &["--amount", "6"]].concat();
    shell
        .fails(&too_much, "amount is more than the 5 credits")
        .await;
    let done = shell.script(&refund).await;
    assert_eq!(
        (&done["moved"], &done["balance"]),
        (&json!(true), &json!("12"))
    );
    assert_eq!(done["entry"]["amount"], "5");
    assert_eq!(done["entry"]["kind"], "refund");
    assert_eq!(done["entry"]["generation"], uuid);
    let again = shell.people(&refund).await;
    assert!(
        again.contains("was refunded before; nothing was changed"),
        "{again}"
    );
    let unknown = "0197c0de-0000-7000-8000-000000000000";
    let refund = [
        "credits",
        "refund",
        "--reference",
        "late",
        "--generation",
        unknown,
    ];
    shell
        .fails(&refund, "there is no generation 0197c0de")
        .await;
    let verify = ["ledger", "verify"];
    assert_eq!(shell.script(&verify).await["ok"], true);
    let since_last = [&verify[..], &["--since-last"]].concat();
    // A server counts usage, which this follows, once a second: until then it looks at all again.
    for _ in 0..2 {
        let audit = shell.script(&since_last).await;
        assert_eq!(audit["ok"], true, "{audit}");
    }
}

/// `gensvc config check | head -0`
#[tokio::test]
async fn a_reader_that_wants_no_more_is_no_failure() {
    let site = Site::new(&[]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = site.command();
    command
        .args(["config", "check"])
        .stdout(Stdio::from(writer));
    let output = command.output().await.unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert!(output.status.success(), "{}", output.status);
}

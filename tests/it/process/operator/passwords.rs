//! `gensvc account password`

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::Shell;
use crate::common::TestApp;

#[sqlx::test]
async fn a_password_is_set_from_stdin(_: PgPoolOptions, options: PgConnectOptions) {
    let shell = Shell::new(&options);
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let session = app.login(&account).await;
    let set = ["account", "password", "--email", &account.email];
    let (success, out, err) = shell.run_with(&set, "battery staple\n").await;
    assert!(success, "{err}");
    assert!(out.ends_with("and ended 1 session.\n"), "{out}");
    assert!(
        err.starts_with(
            "API keys of this account that still work: 1. List them with `gensvc key list --email "
        ),
        "{err}"
    );
    assert!(err.contains("gensvc key revoke --email"), "{err}");
    app.get(&session, "/v1/auth/me")
        .await
        .error(401, "invalid_token");
    let login = async |password: &str| {
        let body = json!({"email": account.email, "password": password});
        app.post("", "/v1/auth/login", &body).await
    };
    login("battery staple").await.expect(200);

    let script = [&set[..], &["--json"]].concat();
    let (_, out, _) = shell.run_with(&script, "staple battery\r\n").await;
    let done: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&done["account_id"], &done["email"], &done["sessions_ended"]),
        (&json!(account.id), &json!(account.email), &json!(1))
    );
    assert_eq!(done["live_keys"], 1);
    login("staple battery").await.expect(200);

    for (email, input, sentence) in [
        (account.email.as_str(), "short\n", "password must have 8"),
        (&account.email, "", "password must have 8"),
        (
            &account.email,
            "long enough\nlong enough\n",
            "a single line",
        ),
        (&account.email, "long\renough\n", "a single line"),
        (
            "no@example.com",
            "long enough",
            "no account has a user with the email",
        ),
    ] {
        let set = ["account", "password", "--email", email];
        let (success, out, err) = shell.run_with(&set, input).await;
        assert!(!success && out.is_empty(), "{out}");
        assert!(err.contains(sentence), "{err}");
    }
    login("staple battery").await.expect(200);
}

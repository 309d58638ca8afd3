//! The operator's commands, each its own process, on one database.

mod credits;
mod look;
mod passwords;
mod usage;

use std::process::{Output, Stdio};

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::io::AsyncWriteExt as _;

use super::Site;
use crate::common::{PASSWORD, TestApp};

/// The URL of a test's database.
pub fn database_url(options: &PgConnectOptions) -> String {
    let mut url: url::Url = std::env::var("DATABASE_URL").unwrap().parse().unwrap();
    url.set_path(options.get_database().unwrap());
    url.into()
}

/// Runs commands against a test's database.
struct Shell {
    site: Site,
    url: String,
}

impl Shell {
    fn new(options: &PgConnectOptions) -> Self {
        Self {
            site: Site::new(&[]),
            url: database_url(options),
        }
    }

    /// Whether it succeeded, with stdout and stderr.
    async fn run(&self, arguments: &[&str]) -> (bool, String, String) {
        self.run_with(arguments, "").await
    }

    /// The same, with `input` on stdin.
    async fn run_with(&self, arguments: &[&str], input: &str) -> (bool, String, String) {
        let mut command = self.site.command();
        command
            .env("DATABASE_URL", &self.url)
            .env_remove("GENSVC_LOG")
            .args(arguments)
            .stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // One that does not read it may have ended.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        said(child.wait_with_output().await.unwrap())
    }

    /// The human-readable output of a command.
    async fn people(&self, arguments: &[&str]) -> String {
        let (out, note) = self.people_with_note(arguments).await;
        assert_eq!(note, "");
        out
    }

    /// The same, and what it tells on stderr.
    async fn people_with_note(&self, arguments: &[&str]) -> (String, String) {
        let (success, out, err) = self.run(arguments).await;
        assert!(success, "{arguments:?}: {err}");
        (out, err)
    }

    /// The JSON output of a command.
    async fn script(&self, arguments: &[&str]) -> Value {
        let out = self.people(&[arguments, &["--json"]].concat()).await;
        serde_json::from_str(&out).unwrap()
    }

    /// The error message of a command.
    async fn fails(&self, arguments: &[&str], sentence: &str) {
        let (success, out, err) = self.run(arguments).await;
        assert!(!success && out.is_empty(), "{arguments:?}: {out}");
        assert_eq!(err.trim().lines().count(), 1, "{err}");
        assert!(err.contains(sentence), "{arguments:?}: {err}");
        let (_, _, err) = self.run(&[arguments, &["--json"]].concat()).await;
        let answer: Value = serde_json::from_str(&err).unwrap();
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(sentence), "{arguments:?}: {message}");
    }

    /// Arguments that are refused before anything is done.
    async fn misuses(&self, arguments: &[&str], sentence: &str) {
        let (success, out, err) = self.run(arguments).await;
        assert!(!success && out.is_empty(), "{arguments:?}: {out}");
        assert!(err.contains(sentence), "{arguments:?}: {err}");
        let (success, out, err) = self.run(&[arguments, &["--json"]].concat()).await;
        assert!(!success && out.is_empty(), "{arguments:?}: {out}");
        let answer: Value = serde_json::from_str(&err).unwrap();
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(sentence), "{arguments:?}: {message}");
    }
}

/// Whether it succeeded, with stdout and stderr.
fn said(output: Output) -> (bool, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.success(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[sqlx::test]
async fn a_command_with_a_database_of_its_own_leaves_no_files(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let shell = Shell::new(&options);
    shell.people(&["account", "list"]).await;
    assert!(!shell.site.folder.exists());
}

/// Without `DATABASE_URL`, where a private Postgres would have to be made or started.
#[tokio::test]
async fn wrong_arguments_are_refused_before_there_is_a_database() {
    let site = Site::new(&[]);
    let create = ["account", "create", "--password", PASSWORD, "--email"];
    let grant = ["credits", "grant", "--email", "ann@example.com", "--amount"];
    for (command, argument, sentence) in [
        (&create[..], "ann", "email must be an address with one @"),
        (
            &grant,
            "-5",
            "amount must be positive; to take credits back, use an adjustment",
        ),
        (&grant, "0", "amount must not be 0"),
        (
            &["account", "password", "--email"],
            "ann@example.com",
            "password must have 8 to 1,024 characters",
        ),
    ] {
        let mut gensvc = site.command();
        gensvc.args(command).arg(argument);
        let (success, out, err) = said(gensvc.output().await.unwrap());
        assert!(!success && out.is_empty(), "{argument}: {out}");
        assert!(err.contains(sentence), "{argument}: {err}");
    }
    assert!(!site.folder.exists());
}

#[sqlx::test]
async fn accounts_are_listed_shown_and_suspended(_: PgPoolOptions, options: PgConnectOptions) {
    let shell = Shell::new(&options);
    let app = TestApp::new(options).await;
    assert_eq!(
        shell.people(&["account", "list"]).await,
        "There is no account.\n"
    );
    let create = ["account", "create", "--password", PASSWORD, "--email"];
    let ann = [&create[..], &["ann@example.com", "--credits", "12.5"]].concat();
    let made = shell.script(&ann).await;
    assert_eq!(
        made,
        json!({"account_id": made["account_id"], "user_id": made["user_id"],
            "email": "ann@example.com", "balance": "12.5"})
    );
    shell
        .fails(&ann, "email already belongs to an account")
        .await;
    let bob = [
        "account",
        "create",
        "--json",
        "--email",
        "Bob@example.com",
        "--name",
        "Bob \u{1b}[2J",
    ];
    let (_, bob, _) = shell.run_with(&bob, &format!("{PASSWORD}\n")).await;
    let bob: Value = serde_json::from_str(&bob).unwrap();
    let login = json!({"email": "bob@example.com", "password": PASSWORD});
    app.post("", "/v1/auth/login", &login).await.expect(200);
    let id = |made: &Value| made["account_id"].as_i64().unwrap();
    assert_eq!(id(&bob), id(&made) + 1, "a refusal used up an id");

    let list = shell.people(&["account", "list"]).await;
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 3, "{list}");
    assert!(lines[0].starts_with("ID ") && lines[1].contains("Bob@example.com"));
    assert!(!list.contains('\u{1b}'), "{list:?}");
    let column = lines[0].find("BALANCE").unwrap();
    assert!(
        lines[2]
            .chars()
            .skip(column)
            .collect::<String>()
            .starts_with("12.5 "),
        "{list}"
    );
    let listed = shell
        .script(&["account", "list", "--email", "ANN@example.com"])
        .await;
    let id = made["account_id"].to_string();
    let shown = shell.script(&["account", "show", "--id", &id]).await;
    assert_eq!(listed, json!({"data": [shown]}));
    assert_eq!(
        shown,
        json!({"id": made["account_id"], "name": "ann", "email": "ann@example.com",
            "balance": "12.5", "held": "0", "available": "12.5", "spent": "0", "suspended_at": null, "suspended_reason": null,
            "deleted_at": null, "erased_at": null,
            "created_at": shown["created_at"]})
    );
    let none = ["account", "list", "--email", "none@example.com"];
    assert_eq!(shell.script(&none).await, json!({"data": []}));

    let who = ["--email", "ann@example.com"];
    let suspended = shell
        .script(&[&["account", "suspend"][..], &who].concat())
        .await;
    assert_eq!(
        (&suspended["suspended"], &suspended["id"]),
        (&json!(true), &made["account_id"])
    );
    let shown = shell
        .people(&[&["account", "show"][..], &who].concat())
        .await;
    assert!(
        shown.contains("available  12.5") && !shown.contains("suspended  -"),
        "{shown}"
    );
    shell.people(&["account", "resume", "--id", &id]).await;
    let user = app.app.service.user("ann@example.com").await.unwrap();
    let account = app.app.service.account(user.account_id).await.unwrap();
    assert_eq!(account.suspended_at, None);

    let missing = "no account has a user with the email \"no@example.com\"";
    for command in ["show", "suspend", "resume"] {
        shell
            .fails(&["account", command, "--email", "no@example.com"], missing)
            .await;
        shell
            .fails(
                &["account", command, "--id", "999"],
                "there is no account 999",
            )
            .await;
    }
}

#[sqlx::test]
async fn keys_are_listed_and_revoked(_: PgPoolOptions, options: PgConnectOptions) {
    let shell = Shell::new(&options);
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("1").await, app.account("1").await);
    let email = account.email.as_str();
    let create = [
        "key",
        "create",
        "--email",
        email,
        "--name",
        "shop",
        "--abilities",
    ];
    let made = shell
        .script(&[&create[..], &["generate:text,read:history"]].concat())
        .await;
    let key = made["key"].as_str().unwrap();
    app.get(key, "/v1/auth/me").await.expect(200);
    // `KEY=$(gensvc key create ...)`
    let email_of_other = ["--email", other.email.as_str()];
    let create_other = [&["key", "create", "--name", "x"][..], &email_of_other].concat();
    let (shown, note) = shell.people_with_note(&create_other).await;
    app.get(shown.trim_end(), "/v1/auth/me").await.expect(200);
    assert!(note.contains("cannot be shown again"), "{note}");
    let listed = shell.script(&["key", "list", "--email", email]).await;
    let rows = listed["data"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["id"]), (2, &made["id"]));
    assert_eq!(rows[0]["key"], Value::Null);
    let people = shell.people(&["key", "list", "--email", email]).await;
    assert_eq!(people.lines().count(), 3);
    assert!(people.contains("generate:text,read:history") && !people.contains(key));

    let id = made["id"].to_string();
    let revoke = ["key", "revoke", "--id", &id, "--email"];
    let of_another = [&revoke[..], &[&other.email]].concat();
    shell
        .fails(&of_another, &format!("{} has no API key {id}", other.email))
        .await;
    app.get(key, "/v1/auth/me").await.expect(200);
    let revoked = shell.script(&[&revoke[..], &[email]].concat()).await;
    assert_ne!(revoked["revoked_at"], Value::Null);
    app.get(key, "/v1/auth/me").await.error(401, "revoked_key");
    for command in ["list", "revoke"] {
        let more: &[&str] = if command == "revoke" {
            &["--id", "1"]
        } else {
            &[]
        };
        let arguments = [&["key", command, "--email", "no@example.com"], more].concat();
        shell
            .fails(&arguments, "no account has a user with the email")
            .await;
    }
}

#[sqlx::test]
async fn admin_tokens_are_made_listed_and_revoked(_: PgPoolOptions, options: PgConnectOptions) {
    let shell = Shell::new(&options);
    let app = TestApp::new(options).await;
    let made = shell
        .script(&["admin", "token", "create", "--name", "billing"])
        .await;
    let token = made["token"].as_str().unwrap();
    assert_eq!(made["name"], "billing");
    app.get(token, "/v1/admin/accounts").await.expect(200);
    let (other, note) = shell
        .people_with_note(&["admin", "token", "create", "--name", "other"])
        .await;
    app.get(other.trim_end(), "/v1/admin/accounts")
        .await
        .expect(200);
    assert!(note.contains("cannot be shown again"), "{note}");
    shell
        .misuses(
            &["admin", "token", "create", "--name", " "],
            "must not be blank",
        )
        .await;
    let listed = shell.script(&["admin", "token", "list"]).await;
    let names: Vec<_> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| &t["name"])
        .collect();
    assert_eq!(names, ["other", "billing"]);
    assert!(!listed.to_string().contains("adm_"));
    let people = shell.people(&["admin", "token", "list"]).await;
    assert_eq!(people.lines().count(), 3, "{people}");
    let id = made["id"].to_string();
    shell
        .people(&["admin", "token", "revoke", "--id", &id])
        .await;
    app.get(token, "/v1/admin/accounts")
        .await
        .error(401, "revoked_key");
    let unknown = ["admin", "token", "revoke", "--id", "999"];
    shell.fails(&unknown, "there is no admin token 999").await;
}

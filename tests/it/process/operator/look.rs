//! `gensvc ledger show` and `gensvc generation show`

use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::Shell;
use crate::common::TestApp;

#[sqlx::test]
async fn the_ledger_of_an_account_is_shown(_: PgPoolOptions, options: PgConnectOptions) {
    let shell = Shell::new(&options);
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("10").await, app.account("0").await);
    let show = ["ledger", "show", "--email", &account.email];
    let image = json!({"prompt": "x", "parameters": {"size": "256x256"}});
    let made = app.post(&account.key, "/v1/generate/image", &image).await;
    let made = made.expect(200);
    let shown = shell.script(&show).await;
    let listed = app
        .get(&account.key, "/v1/credits/ledger")
        .await
        .expect(200);
    assert_eq!(shown, json!({"data": listed["data"], "more": false}));
    let people = shell.people(&show).await;
    let lines: Vec<&str> = people.lines().collect();
    assert_eq!(lines.len(), 4, "{people}");
    assert!(lines[1].contains("charge") && lines[1].contains(made["uuid"].as_str().unwrap()));
    assert!(lines[3].contains("grant") && lines[3].contains("account creation"));

    let newest = [&show[..], &["--limit", "2"]].concat();
    let shown = shell.script(&newest).await;
    assert_eq!(
        (&shown["data"], &shown["more"]),
        (
            &json!(listed["data"].as_array().unwrap()[..2]),
            &json!(true)
        )
    );
    let (people, note) = shell.people_with_note(&newest).await;
    assert_eq!(people.lines().count(), 3, "{people}");
    assert!(
        note.contains("the newest 2 entries; set --limit to list more"),
        "{note}"
    );
    let people = shell
        .people(&["ledger", "show", "--email", &other.email])
        .await;
    assert!(people.contains("has no ledger entry"), "{people}");
    let missing = ["ledger", "show", "--email", "no@example.com"];
    shell
        .fails(&missing, "no account has a user with the email")
        .await;
    shell
        .misuses(&[&show[..], &["--limit", "0"]].concat(), "--limit")
        .await;
}

#[sqlx::test]
async fn a_generation_is_shown(_: PgPoolOptions, options: PgConnectOptions) {
    let shell = Shell::new(&options);
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let body = json!({"prompt": "a red door", "parameters": {"size": "256x256"}});
    let made = app.post(&account.key, "/v1/generate/image", &body).await;
    let uuid = made.expect(200)["uuid"].as_str().unwrap().to_owned();
    let path = format!("/v1/generate/{uuid}");
    let mut expected = app.get(&account.key, &path).await.expect(200);
    let mut shown = shell.script(&["generation", "show", &uuid]).await;
    assert_eq!(shown["account_id"], json!(account.id));
    shown.as_object_mut().unwrap().remove("account_id");
    // Links are signed by the clock, and lead to the configured host.
    for record in [&mut shown, &mut expected] {
        let link = record["result"].take();
        assert!(link.as_str().unwrap().contains(&uuid), "{link}");
        record["outputs"][0]["url"] = Value::Null;
    }
    assert_eq!(shown, expected);
    let people = shell.people(&["generation", "show", &uuid]).await;
    for part in [
        "completed",
        "a red door",
        &account.email,
        "charged",
        "/v1/media/",
    ] {
        assert!(people.contains(part), "{part}: {people}");
    }

    // What is left of a deleted one.
    app.call(Method::DELETE, &account.key, &path, &[], None)
        .await
        .expect(204);
    let left = shell
        .script(&["generation", "show", &uuid.to_uppercase()])
        .await;
    assert_eq!(
        (&left["credits"], &left["prompt"], &left["result"]),
        (&expected["credits"], &json!(""), &Value::Null)
    );
    let unknown = "0197c0de-0000-7000-8000-000000000000";
    shell
        .fails(
            &["generation", "show", unknown],
            "there is no generation 0197c0de",
        )
        .await;
    shell
        .misuses(&["generation", "show", "x"], "must be a uuid")
        .await;
}

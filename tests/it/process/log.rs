//! Log lines of requests and statements.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{Server, Site, operator::database_url};
use crate::common::{PASSWORD, TestApp};

const UUID: &str = "0197c0de-0000-7000-8000-000000000000";

#[sqlx::test]
async fn a_line_of_a_request_names_its_caller_its_route_and_its_error(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options.clone()).await;
    let account = app.account("1").await;
    let session = app.login(&account).await;
    let keys = app.get(&account.key, "/v1/api-keys").await.expect(200);
    let key_id = &keys["data"][0]["id"];
    let site = Site::new(&[
        ("DATABASE_URL", database_url(&options).leak()),
        ("GENSVC_LOG", "debug"),
        ("GENSVC_LOG_FORMAT", "json"),
    ]);
    let Server {
        mut child,
        url,
        client,
        mut stderr,
    } = site.serve().await;
    let written = tokio::spawn(async move {
        let mut lines = Vec::new();
        while let Some(line) = stderr.next_line().await.unwrap() {
            lines.push(serde_json::from_str::<Value>(&line).unwrap());
        }
        lines
    });
    let lookup = format!("/v1/generate/{UUID}");
    for (id, token, path) in [
        ("balance", account.key.as_str(), "/v1/credits/balance"),
        ("lookup", &account.key, &lookup),
        ("session", &session, "/v1/credits/balance"),
        ("stranger", "svc_nobody", "/v1/credits/balance"),
        ("nowhere", "", "/nowhere"),
        ("health", "", "/health"),
        ("asset", "", "/docs/favicon-32x32.png"),
        ("no-asset", "", "/assets/console-0.js"),
        ("page", "", "/login"),
    ] {
        let request = client.get(format!("{url}{path}")).bearer_auth(token);
        request.header("x-request-id", id).send().await.unwrap();
    }
    for (id, model) in [("sdk", "sandbox/sandbox-text-1"), ("sdk-nope", "nope")] {
        let request = client.post(format!("{url}/openai/v1/chat/completions"));
        let messages = json!([{"role": "user", "content": "x"}]);
        let request = request.json(&json!({"model": model, "messages": messages}));
        let request = request.bearer_auth(&account.key);
        request.header("x-request-id", id).send().await.unwrap();
    }
    for (id, password) in [("login", PASSWORD), ("guess", "guess")] {
        let login = json!({"email": account.email, "password": password});
        let request = client.post(format!("{url}/v1/auth/login")).json(&login);
        request.header("x-request-id", id).send().await.unwrap();
    }
    child.kill().await.unwrap();
    let lines = written.await.unwrap();
    let line = |id: &str| {
        let of_it = |line: &&Value| line["message"] == "answered" && line["spans"][0]["id"] == id;
        let found: Vec<_> = lines.iter().filter(of_it).collect();
        assert_eq!(found.len(), 1, "{id}: {found:?}");
        found[0].clone()
    };
    let balance = line("balance");
    for (name, value) in [
        ("level", json!("INFO")),
        ("account", json!(account.id)),
        ("key", key_id.clone()),
        ("route", json!("/v1/credits/balance")),
        ("status", json!(200)),
        ("code", Value::Null),
        // Once, in the list.
        ("span", Value::Null),
    ] {
        assert_eq!(balance[name], value, "{name}: {balance}");
    }
    let lookup = line("lookup");
    assert_eq!(lookup["route"], "/v1/generate/{uuid}");
    assert_eq!(lookup["code"], "not_found");
    assert_eq!(lookup["key"], *key_id);
    let session = line("session");
    assert_eq!(session["account"], json!(account.id));
    assert_eq!(session["key"], Value::Null);
    assert_eq!(line("login")["account"], json!(account.id));
    assert_eq!(line("guess")["account"], Value::Null);
    let stranger = line("stranger");
    assert_eq!(stranger["code"], "invalid_token");
    assert_eq!(stranger["account"], Value::Null);
    assert_eq!(line("nowhere")["route"], "unmatched");
    assert_eq!(line("health")["level"], "DEBUG");
    assert_eq!(line("asset")["level"], "DEBUG");
    assert_eq!(line("no-asset")["level"], "INFO");
    assert_eq!(line("page")["level"], "INFO");

    let ended = |id: &str| {
        let of_it = |line: &&Value| line.get("outcome").is_some() && line["spans"][0]["id"] == id;
        let found: Vec<_> = lines.iter().filter(of_it).collect();
        assert_eq!(found.len(), 1, "{id}: {found:?}");
        found[0].clone()
    };
    let sdk = ended("sdk");
    assert_eq!(sdk["surface"], "openai.chat");
    assert_eq!(sdk["model"], "sandbox/sandbox-text-1");
    assert_eq!(sdk["outcome"], "completed");
    assert!(sdk["generation"].is_string(), "{sdk}");
    assert_eq!(ended("sdk-nope")["outcome"], "validation_failed");

    let named = |line: &&Value| line["statement"] == "authenticate keys";
    assert!(lines.iter().any(|line| named(&line)));
    for line in &lines {
        let text = line.to_string().to_lowercase();
        let is_sql = [
            "select ",
            "insert into ",
            "update ",
            "set statement_timeout",
        ]
        .iter()
        .any(|word| text.contains(word));
        assert!(!is_sql, "{line}");
    }
}

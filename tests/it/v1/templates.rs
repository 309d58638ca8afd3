//! /v1/templates: create, list, look up, replace, delete.

mod used;

use chrono::{SecondsFormat, TimeDelta};
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{Account, Answer, TestApp};

pub const TEMPLATES: &str = "/v1/templates";

impl TestApp {
    pub async fn put(&self, token: &str, path: &str, body: &Value) -> Answer {
        let json = [("content-type", "application/json")];
        self.call(Method::PUT, token, path, &json, Some(body.to_string()))
            .await
    }

    /// Creates a template and returns its id.
    pub async fn template(&self, account: &Account, prompt: &str, system: Option<&str>) -> i64 {
        let body = json!({"name": "t", "prompt": prompt, "system_prompt": system});
        let made = self.post(&account.key, TEMPLATES, &body).await;
        made.expect(201)["id"].as_i64().unwrap()
    }
}

#[sqlx::test]
async fn an_account_has_a_thousand_and_each_keeps_a_hundred_versions(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let id = app.template(&account, "one", None).await;
    sqlx::query(
        "insert into templates (account_id, name, created_at, updated_at)
         select $1, 'x', now(), now() from generate_series(1, 998)",
    )
    .bind(account.id.0)
    .execute(&app.pool)
    .await
    .unwrap();
    app.template(&account, "the last", None).await;
    let body = json!({"name": "t", "prompt": "too many"});
    let answer = app.post(&account.key, TEMPLATES, &body).await;
    assert_eq!(answer.fields()["name"], "not_allowed");
    let path = format!("{TEMPLATES}/{id}");
    for _ in 0..105 {
        app.put(&account.key, &path, &body).await.expect(200);
    }
    let kept: Vec<i32> = sqlx::query_scalar(
        "select version from template_versions where template_id = $1 order by version",
    )
    .bind(id)
    .fetch_all(&app.pool)
    .await
    .unwrap();
    assert_eq!((kept.len(), kept[0], kept[99]), (100, 7, 106));
    let used = json!({"prompt": "x", "template_id": id});
    app.text(&account.key, used).await.expect(200);
}

#[sqlx::test]
async fn a_template_is_kept_replaced_and_deleted(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let session = app.login(&account).await;
    let body = json!({"name": "é", "prompt": "{{ b }} {{ a.x }} {{ prompt }}{% for i in a %}{{ i }}{% endfor %}",
        "system_prompt": "{{ c }} {{ a }}"});
    let made = app.post(&session, TEMPLATES, &body).await.expect(201);
    let time = || app.now().to_rfc3339_opts(SecondsFormat::Micros, true);
    let created = time();
    assert_eq!(
        made,
        json!({"id": made["id"], "name": "é", "version": 1, "prompt": body["prompt"], "system_prompt": body["system_prompt"],
            "variables": ["a", "b", "c"], "created_at": created, "updated_at": created})
    );
    assert!(made["id"].is_i64());
    let path = format!("{TEMPLATES}/{}", made["id"]);
    assert_eq!(app.get(&account.key, &path).await.expect(200), made);
    app.advance(TimeDelta::seconds(1));
    // Replaced as a whole.
    let body = json!({"name": "new", "prompt": "plain"});
    let put = app.put(&account.key, &path, &body).await.expect(200);
    assert_eq!(
        put,
        json!({"id": made["id"], "name": "new", "version": 2, "prompt": "plain", "system_prompt": null,
            "variables": [], "created_at": created, "updated_at": time()})
    );
    assert_eq!(app.get(&session, &path).await.expect(200), put);
    // A refused change has no effect.
    let bad = json!({"name": "new", "prompt": "{{"});
    assert_eq!(
        app.put(&session, &path, &bad).await.fields()["prompt"],
        "invalid_format"
    );
    assert_eq!(app.get(&session, &path).await.expect(200), put);
    let gone = app.delete(&account.key, &path).await;
    assert_eq!(gone.expect(204), Value::Null);
    app.get(&session, &path).await.error(404, "not_found");
    app.delete(&session, &path).await.error(404, "not_found");
    app.put(&session, &path, &body)
        .await
        .error(404, "not_found");
    let left: i64 = sqlx::query_scalar("select count(*) from template_versions")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(left, 0);
}

#[sqlx::test]
async fn every_mistake_is_named(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let key = &account.key;
    let sound = json!({"name": "x", "prompt": "{{ prompt }}"});
    for (field, value, code) in [
        ("name", json!(null), "required"),
        ("name", json!(" "), "required"),
        ("name", json!("é".repeat(101)), "too_long"),
        ("prompt", json!(""), "required"),
        ("prompt", json!(1), "invalid_type"),
        ("prompt", json!("é".repeat(10_001)), "too_long"),
        ("prompt", json!("{{ a"), "invalid_format"),
        ("prompt", json!("{% include 'x' %}"), "invalid_format"),
        (
            "prompt",
            json!("{{ x }}{{ 'x' * 10**9 }}"),
            "invalid_format",
        ),
        ("prompt", json!("a\u{0}"), "invalid_format"),
        ("system_prompt", json!("é".repeat(5_001)), "too_long"),
        (
            "system_prompt",
            json!("{% macro x() %}{% endmacro %}"),
            "invalid_format",
        ),
        ("system_prompt", json!([]), "invalid_type"),
        ("variables", json!(["a"]), "unknown_field"),
        ("version", json!(2), "unknown_field"),
    ] {
        let mut body = sound.clone();
        body[field] = value;
        let answer = app.post(key, TEMPLATES, &body).await;
        let fields: Vec<_> = answer.fields().into_iter().collect();
        assert_eq!(fields, [(field.to_owned(), code.to_owned())], "{body}");
    }
    let body = json!({"name": "", "prompt": "a\n{{ b }}\n{% endif %}", "system_prompt": "{{ x() }}", "zzz": 1});
    let answer = app.post(key, TEMPLATES, &body).await;
    let fields = answer.fields();
    let names: Vec<_> = fields.keys().map(String::as_str).collect();
    assert_eq!(names, ["name", "prompt", "system_prompt", "zzz"]);
    let errors = answer.json()["error"]["errors"].to_string();
    assert!(
        errors.contains("line 3") && errors.contains("line 1"),
        "{errors}"
    );
    let widest = json!({"name": "é".repeat(100), "prompt": "é".repeat(10_000), "system_prompt": "é".repeat(5_000)});
    app.post(key, TEMPLATES, &widest).await.expect(201);
    let listed = app.get(key, TEMPLATES).await.expect(200);
    assert_eq!(listed["data"].as_array().unwrap().len(), 1);
}

#[sqlx::test]
async fn a_list_is_paged_newest_first_and_of_one_account(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("1").await, app.account("1").await);
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(app.template(&account, "x", None).await);
        app.template(&other, "y", None).await;
    }
    ids.reverse();
    let mut found = Vec::new();
    let mut url = format!("{TEMPLATES}?per_page=2");
    while !url.is_empty() {
        let answer = app.get(&account.key, &url).await;
        let page = answer.expect(200);
        for row in page["data"].as_array().unwrap() {
            let path = format!("{TEMPLATES}/{}", row["id"]);
            assert_eq!(&app.get(&account.key, &path).await.expect(200), row);
            for token in [&other.key, &app.login(&other).await] {
                app.get(token, &path).await.error(404, "not_found");
                app.delete(token, &path).await.error(404, "not_found");
                let body = json!({"name": "x", "prompt": "x"});
                app.put(token, &path, &body).await.error(404, "not_found");
            }
            found.push(row["id"].as_i64().unwrap());
        }
        // New ones shift nothing, and changed ones keep their position.
        app.template(&account, "later", None).await;
        let first = format!("{TEMPLATES}/{}", ids[4]);
        let body = json!({"name": "t", "prompt": "changed"});
        app.put(&account.key, &first, &body).await.expect(200);
        url = answer.next_page();
        assert_eq!(url.is_empty(), page["next_cursor"].is_null());
    }
    assert_eq!(found, ids);
    let keys = app
        .get(&account.key, "/v1/api-keys?per_page=1&cursor=x")
        .await;
    assert_eq!(keys.fields()["cursor"], "invalid_format");
    for bad in ["0", "-1", "x", "1.0", "99999999999999999999"] {
        let path = format!("{TEMPLATES}/{bad}");
        app.get(&account.key, &path).await.error(404, "not_found");
    }
}

#[sqlx::test]
async fn parallel_replacements_each_make_one_version(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let replica = app.replica().await;
    let account = app.account("1").await;
    let id = app.template(&account, "v1", None).await;
    let path = format!("{TEMPLATES}/{id}");
    let puts = (2..42).map(|n| {
        let (app, path, key) = ([&app, &replica][n % 2], &path, &account.key);
        async move {
            let body = json!({"name": "t", "prompt": format!("text {n}")});
            app.put(key, path, &body).await.expect(200)
        }
    });
    let answers = futures_util::future::join_all(puts).await;
    let mut versions: Vec<_> = answers
        .iter()
        .map(|a| a["version"].as_i64().unwrap())
        .collect();
    versions.sort_unstable();
    assert_eq!(versions, (2..42).collect::<Vec<_>>());
    // Each version is what its update contained.
    for answer in &answers {
        let stored: String = sqlx::query_scalar(
            "select prompt from template_versions where template_id = $1 and version = $2",
        )
        .bind(id)
        .bind(i32::try_from(answer["version"].as_i64().unwrap()).unwrap())
        .fetch_one(&app.pool)
        .await
        .unwrap();
        assert_eq!(answer["prompt"], stored);
    }
    let last = answers.iter().find(|a| a["version"] == 41).unwrap();
    assert_eq!(&app.get(&account.key, &path).await.expect(200), last);
}

#[sqlx::test]
async fn only_a_session_or_a_star_manages(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let id = app.template(&account, "Say {{ prompt }}", None).await;
    let abilities = [
        "generate:text",
        "read:history",
        "read:credits",
        "generate:image",
        "generate:video",
        "generate:audio",
    ];
    let key = app
        .key(account.id, json!({"name": "k", "abilities": abilities}))
        .await;
    let path = format!("{TEMPLATES}/{id}");
    let body = json!({"name": "x", "prompt": "x"});
    for answer in [
        app.get(&key, TEMPLATES).await,
        app.get(&key, &path).await,
        app.post(&key, TEMPLATES, &body).await,
        app.put(&key, &path, &body).await,
        app.delete(&key, &path).await,
    ] {
        assert_eq!(
            answer.error(403, "missing_ability")["required_ability"],
            "*"
        );
    }
    // Using one is a different matter.
    let body = json!({"prompt": "hi", "template_id": id});
    let record = app.text(&key, body).await.expect(200);
    assert_eq!(record["prompt"], "Say hi");
    app.assert_settled().await;
}

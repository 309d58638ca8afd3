//! Values that are valid JSON but not valid in a request: U+0000, integers written as fractions,
//! null.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    TEXT,
    bodies::{JSON, post},
};
use crate::common::TestApp;

#[sqlx::test]
async fn a_nul_is_named_by_its_path_and_hides_no_other_mistake(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    for (path, body, param) in [
        (TEXT, json!({"prompt": "a\0b"}), "prompt"),
        (TEXT, json!({"prompt": "x", "provider": "\0"}), "provider"),
        (
            TEXT,
            json!({"prompt": "x", "template_id": 1, "template_variables": {"a": {"b": ["", "\0"]}}}),
            "template_variables.a.b[1]",
        ),
        ("/v1/api-keys", json!({"name": "\0"}), "name"),
        (
            "/v1/api-keys",
            json!({"name": "x", "abilities": ["\0"]}),
            "abilities[0]",
        ),
        (
            "/v1/auth/login",
            json!({"email": "a\0@b", "password": "whatever"}),
            "email",
        ),
        (
            "/v1/auth/login",
            json!({"email": "a@b", "password": "\0"}),
            "password",
        ),
    ] {
        let fields = app.post(&account.key, path, &body).await.fields();
        let code = fields.get(param).map(String::as_str);
        assert_eq!(code, Some("invalid_format"), "{path} {body}: {fields:?}");
    }
    // All failing fields, not only the first kind of failure.
    let body = json!({"prompt": "\0", "stream": 1, "zzz": 2});
    let fields = app.text(&account.key, body).await.fields();
    let names: Vec<_> = fields.keys().map(String::as_str).collect();
    assert_eq!(names, ["prompt", "stream", "zzz"]);
}

#[sqlx::test]
async fn an_integer_is_written_as_one_and_null_is_absent(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    for (number, code) in [
        ("1.0", "invalid_type"),
        ("1e2", "invalid_type"),
        ("1E0", "invalid_type"),
        ("10.5", "invalid_type"),
        ("\"5\"", "invalid_type"),
        ("true", "invalid_type"),
        ("[5]", "invalid_type"),
        ("0", "out_of_range"),
        ("-1", "out_of_range"),
        ("4097", "out_of_range"),
        ("9223372036854775808", "out_of_range"),
        ("18446744073709551616", "out_of_range"),
        ("-9223372036854775809", "out_of_range"),
        ("1", ""),
        ("4096", ""),
        ("null", ""),
    ] {
        let body = format!(r#"{{"prompt": "x", "parameters": {{"max_tokens": {number}}}}}"#);
        let answer = post(&app, &account, TEXT, &[JSON], body.into()).await;
        if code.is_empty() {
            answer.expect(200);
        } else {
            let fields = answer.fields();
            assert_eq!(fields["parameters.max_tokens"], code, "{number}");
        }
        let key = format!(r#"{{"name": "x", "rate_limit_per_minute": {number}}}"#);
        let answer = post(&app, &account, "/v1/api-keys", &[JSON], key.into()).await;
        if code == "invalid_type" {
            assert_eq!(answer.fields()["rate_limit_per_minute"], code, "{number}");
        }
    }
    let all_null = json!({"prompt": "x", "system_prompt": null, "provider": null, "model": null,
        "template_id": null, "template_variables": null, "max_cost": null, "stream": null,
        "parameters": null});
    let record = app.text(&account.key, all_null).await.expect(200);
    assert_eq!(record["parameters"], json!({"max_tokens": 1024}));
    let nothing = json!({"prompt": Value::Null});
    let fields = app.text(&account.key, nothing).await.fields();
    assert_eq!(fields["prompt"], "required");
}

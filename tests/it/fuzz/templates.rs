//! Hostile templates: accepted or refused, without side effects.

use std::sync::Arc;

use proptest::{collection::vec, prelude::*};
use serde_json::{Map, Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    Size, check,
    json::{text, value},
};
use crate::common::TestApp;

/// A template's source, made of meaningful pieces.
fn source() -> impl Strategy<Value = String> {
    let pieces = vec![
        "{{ ",
        " }}",
        "{{ prompt }}",
        "{% ",
        " %}",
        "{% for i in a %}",
        "{% endfor %}",
        "{% if b %}",
        "{% else %}",
        "{% endif %}",
        "{% set c = ",
        "{% macro m(x) %}",
        "{% endmacro %}",
        "{% include 'x' %}",
        "{% extends 'x' %}",
        "{% raw %}",
        "{% endraw %}",
        "{% filter upper %}",
        "{% endfilter %}",
        "{%- if a in b -%}",
        "{% elif a is defined %}",
        "{# ",
        " #}",
        "a",
        "b",
        "c",
        ".x",
        "[0]",
        "['a']",
        "[1:9999999999]",
        "|join",
        "|upper",
        "|tojson",
        "|replace('a', 'aaaaaaaaaaaaaaaa')",
        "|trim(a)",
        "|round(1000)",
        "|default(a)",
        "|length",
        "|sort",
        "|sort(attribute=b)",
        "|unique",
        "|reverse",
        "|first",
        "|int",
        "|list",
        " ~ a",
        " * 99999999",
        " + 1",
        " // 0",
        " ** 99",
        " in a",
        " == b",
        " if b else ",
        " is defined",
        " is startingwith a",
        "range(99999999)",
        "m(m(1))",
        "namespace()",
        "debug()",
        "loop",
        "self",
        "caller()",
        "'é'",
        "\"",
        "'",
        "1e400",
        "\\u0000",
        "\0",
        " ",
        "\n",
        "text",
    ];
    vec(prop::sample::select(pieces), 0..24).prop_map(|pieces| pieces.concat())
}

#[sqlx::test]
async fn templates_are_taken_or_refused(_: PgPoolOptions, options: PgConnectOptions) {
    let app = Arc::new(TestApp::new(options).await);
    let account = app.account("1000").await;
    let names = prop::sample::select(vec!["a", "b", "c", "prompt", "x", "é", ""]);
    let variables = vec((names, value()), 0..4).prop_map(|all| {
        let all = all
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value));
        Value::Object(all.collect::<Map<_, _>>())
    });
    let size = Size { small: 60, cost: 4 };
    let case = (source(), proptest::option::of(source()), variables, text());
    check(size, case, move |(prompt, system, variables, text)| {
        let (app, account) = (Arc::clone(&app), account.clone());
        async move {
            let body = json!({"name": "x", "prompt": prompt, "system_prompt": system});
            let made = app.post(&account.key, "/v1/templates", &body).await;
            if made.status != 201 {
                made.fields();
                return;
            }
            let id = made.json()["id"].clone();
            let mut body = json!({"prompt": text, "template_id": id,
                "template_variables": variables, "parameters": {"max_tokens": 1}});
            let answer = app.text(&account.key, body.clone()).await;
            match answer.status.as_u16() {
                200 => assert_eq!(answer.json()["metadata"]["template"]["id"], id),
                422 => assert!(!answer.fields().is_empty()),
                // A fault that the text requested from the sandbox.
                502 => assert_eq!(answer.json()["generation"]["credits"]["charged"], "0"),
                _ => panic!("{}: {}", answer.status, answer.text),
            }
            body["type"] = json!("text");
            let estimate = app.post(&account.key, "/v1/credits/estimate", &body).await;
            assert_eq!(
                estimate.status == 422,
                answer.status == 422,
                "{}",
                estimate.text
            );
            let path = format!("/v1/templates/{id}");
            app.delete(&account.key, &path).await.expect(204);
        }
    })
    .await;
}

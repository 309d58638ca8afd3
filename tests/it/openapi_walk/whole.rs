//! Properties of the whole document, so that clients can be generated from it.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{document, every_operation};
use crate::common::TestApp;

fn parameters(operation: &Value) -> BTreeSet<&str> {
    let all = operation["parameters"].as_array().into_iter().flatten();
    all.map(|p| p["name"].as_str().unwrap()).collect()
}

#[test]
fn every_operation_has_an_id_of_its_own() {
    let all = every_operation();
    let ids: BTreeSet<_> = all
        .iter()
        .map(|o| o.spec["operationId"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), all.len());
}

#[test]
fn every_link_leads_to_an_operation_that_takes_what_it_gives() {
    let all = every_operation();
    let mut links = 0;
    for from in &all {
        for response in from.spec["responses"].as_object().unwrap().values() {
            for link in response["links"].as_object().into_iter().flatten() {
                let target = &link.1["operationId"];
                let to = all.iter().find(|o| o.spec["operationId"] == *target);
                let to = to.unwrap_or_else(|| panic!("{target} is no operation"));
                for (name, value) in link.1["parameters"].as_object().unwrap() {
                    assert!(
                        parameters(&to.spec).contains(name.as_str()),
                        "{target} {name}"
                    );
                    assert!(value.as_str().unwrap().starts_with('$'), "{value}");
                }
                links += 1;
            }
        }
    }
    assert!(links >= 30, "only {links}");
}

/// Every path parameter of a created object is in the response that created it.
#[test]
fn what_is_made_leads_on() {
    for path in [
        "/v1/api-keys",
        "/v1/templates",
        "/v1/webhooks",
        "/v1/admin/accounts",
    ] {
        let links = &document()["paths"][path]["post"]["responses"]["201"]["links"];
        assert!(links.as_object().is_some_and(|l| l.len() >= 2), "{path}");
    }
}

#[sqlx::test]
async fn documented_values_of_a_query_are_taken_and_others_are_not(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let all = every_operation();
    let ledger = all.iter().find(|o| o.path == "/v1/credits/ledger").unwrap();
    let ledger = ledger.spec["parameters"].as_array().unwrap();
    let kind = ledger.iter().find(|p| p["name"] == "kind").unwrap();
    let kinds = kind["schema"]["enum"].as_array().unwrap().clone();
    assert_eq!(kinds.len(), 6);
    for kind in kinds.iter().map(|k| k.as_str().unwrap()) {
        let path = format!("/v1/credits/ledger?kind={kind}");
        app.get(&account.key, &path).await.expect(200);
    }
    let refused = app.get(&account.key, "/v1/credits/ledger?kind=gift").await;
    assert_eq!(refused.fields()["kind"], "not_allowed");
}

/// Request strings hold no U+0000, and the document says so for each that has no format of its own.
#[test]
fn every_string_of_a_request_has_a_form() {
    let document = document();
    let mut found = 0;
    for operation in every_operation() {
        let body = operation.body_schema().map_or(Value::Null, |name| {
            document["components"]["schemas"][&name].clone()
        });
        let parameters = operation.spec["parameters"].clone();
        for schema in [body["properties"].clone(), parameters] {
            strings(&schema, &mut |schema| {
                found += 1;
                let formed = ["pattern", "enum", "format", "const"];
                assert!(
                    formed.iter().any(|name| schema.get(name).is_some()),
                    "{} {}: {schema}",
                    operation.method,
                    operation.path
                );
            });
        }
    }
    assert!(found >= 40, "only {found}");
}

fn strings(schema: &Value, see: &mut impl FnMut(&Value)) {
    match schema {
        Value::Array(parts) => parts.iter().for_each(|part| strings(part, see)),
        Value::Object(members) => {
            let types = &schema["type"];
            if *types == "string" || *types == json!(["string", "null"]) {
                see(schema);
            }
            members.values().for_each(|member| strings(member, see));
        }
        _ => {}
    }
}

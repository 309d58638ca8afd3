//! The documented bodies and queries are exactly those that are accepted.

use serde_json::{Map, Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    document, every_operation, objects, operations,
    schema::{errors, properties},
};
use crate::{
    common::{Account, TestApp},
    v1::admin::operator,
};

/// A value that is valid for no field.
fn of_no_type() -> Value {
    json!([{}])
}

/// Sends a body and returns the failing fields. A body is validated before the objects in the path
/// are looked up.
async fn fields(
    app: &TestApp,
    account: &Account,
    operation: &str,
    body: &Value,
) -> std::collections::BTreeMap<String, String> {
    let (method, path) = operation.split_once(' ').unwrap();
    let path = path.replace("{id}", &account.id.to_string());
    let path = path.replace("{key}", "1");
    let token = if path.starts_with("/v1/admin/") {
        operator(app).await
    } else if path == "/v1/auth/password" {
        app.login(account).await
    } else {
        account.key.clone()
    };
    let json = [("content-type", "application/json")];
    let method = method.parse().unwrap();
    let answer = app.call(method, &token, &path, &json, Some(body.to_string()));
    answer.await.fields()
}

/// All bodies: method and path, and the schema. That of estimates depends on its type, and has
/// tests of its own.
fn bodies() -> Vec<(String, Value)> {
    let document = document();
    let all: Vec<_> = every_operation()
        .iter()
        .filter(|o| o.path != "/v1/credits/estimate" && !o.is_for_sdks())
        .filter_map(|o| {
            let name = o.body_schema()?;
            Some((
                format!("{} {}", o.method, o.path),
                document["components"]["schemas"][&name].clone(),
            ))
        })
        .collect();
    assert!(all.len() >= 11);
    all
}

#[sqlx::test]
async fn every_documented_field_is_read_and_no_other(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    for (path, schema) in bodies() {
        let mut expected = Vec::new();
        let mut body = Map::new();
        for (name, property) in properties(&schema) {
            let inner = properties(&property);
            if inner.is_empty() {
                let is_list = property["items"]["$ref"].is_string();
                let value = if is_list { json!({}) } else { of_no_type() };
                body.insert(name.clone(), value);
                expected.push(name);
                continue;
            }
            let mut nested: Map<String, Value> = Map::new();
            for (member, _) in inner {
                expected.push(format!("{name}.{member}"));
                nested.insert(member, of_no_type());
            }
            nested.insert("zzz".to_owned(), json!(1));
            expected.push(format!("{name}.zzz"));
            body.insert(name, nested.into());
        }
        body.insert("zzz".to_owned(), json!(1));
        expected.push("zzz".to_owned());
        expected.sort();
        let found = fields(&app, &account, &path, &body.into()).await;
        let names: Vec<_> = found.keys().cloned().collect();
        assert_eq!(names, expected, "{path}");
        for (name, code) in found {
            let unknown = name.rsplit('.').next() == Some("zzz");
            let expected = if unknown {
                "unknown_field"
            } else {
                "invalid_type"
            };
            assert_eq!(code, expected, "{path} {name}");
        }
    }
}

#[sqlx::test]
async fn exactly_the_documented_fields_are_required(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    for (path, schema) in bodies() {
        if !schema["required"].is_array() {
            continue;
        }
        // Null means absent.
        let nulls: Map<String, Value> = properties(&schema)
            .into_iter()
            .map(|(name, _)| (name, Value::Null))
            .collect();
        for body in [json!({}), Value::Object(nulls)] {
            let found = fields(&app, &account, &path, &body).await;
            let mut required: Vec<_> = schema["required"]
                .as_array()
                .unwrap()
                .iter()
                .map(|name| (name.as_str().unwrap().to_owned(), "required".to_owned()))
                .collect();
            required.sort();
            assert_eq!(found.into_iter().collect::<Vec<_>>(), required, "{path}");
        }
    }
}

/// Values just outside a property's documented bounds, with the code of each.
fn outside(property: &Value) -> Vec<(Value, &'static str)> {
    let mut found = Vec::new();
    if let Some(most) = property["maxLength"].as_u64() {
        let text = "é".repeat(usize::try_from(most).unwrap() + 1);
        found.push((json!(text), "too_long"));
    }
    let numbers = [(&property["minimum"], -1_i32), (&property["maximum"], 1)];
    for (bound, step) in numbers {
        if let Some(bound) = bound.as_i64() {
            found.push((json!(bound + i64::from(step)), "out_of_range"));
        } else if let Some(bound) = bound.as_f64() {
            found.push((json!(bound + 0.01 * f64::from(step)), "out_of_range"));
        }
    }
    found
}

#[sqlx::test]
async fn documented_bounds_are_kept(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let mut checked = 0;
    for (path, schema) in bodies() {
        for (name, property) in properties(&schema) {
            let inner = properties(&property);
            let name = name.as_str();
            let own = outside(&property).into_iter().map(|(value, code)| {
                let body = json!({ name: value });
                (name.to_owned(), body, code)
            });
            let nested = inner.iter().flat_map(|(member, property)| {
                outside(property).into_iter().map(move |(value, code)| {
                    let body = json!({ name: { member.as_str(): value } });
                    (format!("{name}.{member}"), body, code)
                })
            });
            for (field, body, code) in own.chain(nested).collect::<Vec<_>>() {
                let found = fields(&app, &account, &path, &body).await;
                assert_eq!(
                    found.get(&field).map(String::as_str),
                    Some(code),
                    "{path} {body}"
                );
                checked += 1;
            }
        }
    }
    assert!(checked >= 12, "only {checked}");
}

#[sqlx::test]
async fn every_documented_query_parameter_is_read_and_no_other(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    // The metrics ask for their token first, which this server does not have.
    for operation in operations().iter().filter(|o| o.path != "/metrics") {
        let objects = objects(&app, &account).await;
        let url = operation.url(&objects);
        let parameters = operation.spec["parameters"].as_array().cloned();
        let declared: Vec<String> = parameters
            .unwrap_or_default()
            .iter()
            .filter(|p| p["in"] == "query")
            .map(|p| p["name"].as_str().unwrap().to_owned())
            .collect();
        for name in &declared {
            let answer = operation
                .call_at(&app, &account.key, &format!("{url}?{name}=~"))
                .await;
            operation.check(&answer, name);
            if operation.is_media() {
                answer.error(403, "invalid_signature");
            } else if answer.status != 200 {
                assert_ne!(answer.fields()[name], "unknown_field", "{url} {name}");
            }
        }
        let token = if operation.ability() == "session" {
            app.login(&account).await
        } else {
            account.key.clone()
        };
        let answer = operation
            .call_at(&app, &token, &format!("{url}?zzz=1&per%5Fpage=~"))
            .await;
        assert_eq!(answer.fields()["zzz"], "unknown_field", "{url}");
        // Both are reported: the other is unknown, or not a number.
        assert!(answer.fields().contains_key("per_page"), "{url}");
        operation.check(&answer, "with an unknown parameter");
        let message = answer.json()["error"].to_string();
        for name in declared {
            assert!(message.contains(&name), "{url}: {name} is not offered");
        }
    }
}

/// Money may be written as a string or a number, as documented.
#[test]
fn credits_in_a_request_are_documented_as_they_are_read() {
    let request = json!({"$ref": "#/components/schemas/TextGenerationRequest"});
    for max_cost in [json!("0.5"), json!(0.5), json!(1), Value::Null] {
        let body = json!({"prompt": "x", "max_cost": max_cost});
        assert_eq!(errors(&request, &body), Vec::<String>::new());
    }
}

#[sqlx::test]
async fn a_refusal_and_a_failure_have_the_documented_shape(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let operations = operations();
    let text = operations
        .iter()
        .find(|o| o.path == "/v1/generate/text")
        .unwrap();
    for (body, headers, status) in [
        (json!({"prompt": "[[reject]]"}), vec![], 502),
        (json!({"prompt": "[[fail]]"}), vec![], 502),
        (json!({"prompt": "[[timeout]]"}), vec![], 504),
        (json!({"prompt": "x", "max_cost": "0.001"}), vec![], 402),
        (json!({"prompt": "", "zzz": 1}), vec![], 422),
        (
            json!({"prompt": "x"}),
            vec![("prefer", "respond-async")],
            202,
        ),
        (
            json!({"prompt": "x"}),
            vec![("idempotency-key", "a b")],
            400,
        ),
    ] {
        let answer = app
            .post_with(&account.key, &text.path, &headers, &body)
            .await;
        assert_eq!(answer.status, status, "{body}");
        text.check(&answer, &body.to_string());
    }
    // Failed ones in a list too.
    for path in ["/v1/generate/history", "/v1/credits/ledger"] {
        let list = operations.iter().find(|o| o.path == path).unwrap();
        list.check(&app.get(&account.key, path).await, "after failures");
    }
}

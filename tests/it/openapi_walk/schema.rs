//! A minimal JSON Schema validator: enough to check a response against its document.

use std::sync::LazyLock;

use serde_json::Value;

use super::{document, target};

/// Made once: there are many answers to check.
static DOCUMENT: LazyLock<Value> = LazyLock::new(document);

/// Violations of a schema by a value.
pub fn errors(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(&DOCUMENT, schema, value, "$", &mut found);
    found
}

fn walk(document: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    if schema.get("$ref").is_some() {
        walk(document, target(document, schema), value, at, found);
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        walk(document, part, value, at, found);
    }
    for choice in ["oneOf", "anyOf"] {
        let Some(parts) = schema[choice].as_array() else {
            continue;
        };
        let fits = |part: &&Value| {
            let mut errors = Vec::new();
            walk(document, part, value, at, &mut errors);
            errors.is_empty()
        };
        if !parts.iter().any(|part| fits(&part)) {
            found.push(format!("{at}: {value} is none of {choice}"));
        }
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !types.is_empty() && !types.iter().any(|name| is(name, value)) {
        found.push(format!("{at}: {value} is not {types:?}"));
    }
    if let Some(names) = schema["enum"].as_array()
        && !names.contains(value)
    {
        found.push(format!("{at}: {value} is not among {names:?}"));
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        if value.get(name.as_str().unwrap_or_default()).is_none() {
            found.push(format!("{at}: {name} is missing"));
        }
    }
    let properties = schema["properties"].as_object();
    for (name, property) in properties.into_iter().flatten() {
        if let Some(member) = value.get(name) {
            walk(document, property, member, &format!("{at}.{name}"), found);
        }
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        let at = format!("{at}[{index}]");
        walk(document, &schema["items"], item, &at, found);
    }
}

fn is(name: &str, value: &Value) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

/// The properties of a schema, through references and combinations.
pub fn properties(schema: &Value) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    collect(&DOCUMENT, schema, &mut found);
    found
}

fn collect(document: &Value, schema: &Value, found: &mut Vec<(String, Value)>) {
    if schema.get("$ref").is_some() {
        collect(document, target(document, schema), found);
    }
    for choice in ["allOf", "oneOf", "anyOf"] {
        for part in schema[choice].as_array().into_iter().flatten() {
            collect(document, part, found);
        }
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        found.push((name.clone(), property.clone()));
    }
}

/// The validator itself finds errors: one that finds nothing proves nothing.
#[test]
fn it_finds_what_is_wrong() {
    let balance = serde_json::json!({"$ref": "#/components/schemas/BalanceBody"});
    let good = serde_json::json!({"balance": "1", "held": "0", "available": "1"});
    assert_eq!(errors(&balance, &good), Vec::<String>::new());
    let bad = serde_json::json!({"balance": 1, "held": "0"});
    assert_eq!(errors(&balance, &bad).len(), 2);
}

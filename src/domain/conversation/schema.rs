//! JSON schemas of arguments, with the members that vendors require.

use serde_json::{Map, Value, json};

/// Members of a schema whose values are data, not schemas.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

/// Adds the members that vendors require to a schema of arguments. Returns whether any was missing.
pub fn complete_schema(schema: &mut Map<String, Value>) -> bool {
    let mut changed = false;
    // Arguments are an object in any case.
    let is_object = |kind: &Value| {
        let mut kinds = kind.as_array().into_iter().flatten();
        kind.is_null() || kinds.any(|kind| kind == "object")
    };
    if schema.get("type").is_none_or(is_object) {
        schema.insert("type".to_owned(), json!("object"));
        changed = true;
    }
    if schema["type"] == "object" && schema.get("properties").is_none_or(Value::is_null) {
        schema.insert("properties".to_owned(), json!({}));
        changed = true;
    }
    changed | complete_arrays(schema)
}

/// Adds `items` to the arrays that lack it. Returns whether any did.
fn complete_arrays(schema: &mut Map<String, Value>) -> bool {
    let is_array = match schema.get("type") {
        Some(Value::String(kind)) => kind == "array",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "array"),
        _ => false,
    };
    let mut changed = false;
    let has_items = ["items", "prefixItems"].map(|name| schema.contains_key(name));
    if is_array && has_items == [false; 2] {
        schema.insert("items".to_owned(), json!({}));
        changed = true;
    }
    for (name, value) in schema.iter_mut() {
        if DATA.contains(&name.as_str()) {
            continue;
        }
        match value {
            Value::Object(schema) => changed |= complete_arrays(schema),
            Value::Array(items) => {
                for item in items.iter_mut().filter_map(Value::as_object_mut) {
                    changed |= complete_arrays(item);
                }
            }
            _ => {}
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_get_what_vendors_require() {
        for (given, expected) in [
            (json!({}), Some(json!({"type": "object", "properties": {}}))),
            (
                json!({"type": "object"}),
                Some(json!({"type": "object", "properties": {}})),
            ),
            (
                json!({"properties": {"a": {"type": "array"}}}),
                Some(
                    json!({"properties": {"a": {"type": "array", "items": {}}}, "type": "object"}),
                ),
            ),
            (
                json!({"type": null, "properties": null}),
                Some(json!({"type": "object", "properties": {}})),
            ),
            (
                json!({"type": ["object", "null"], "properties": {"b": {}}}),
                Some(json!({"type": "object", "properties": {"b": {}}})),
            ),
            (
                json!({"type": "object", "properties": {"type": {"type": "string"},
                    "a": {"enum": [{"type": "array"}]}}, "default": {"type": "array"}}),
                None,
            ),
            (
                json!({"type": "object", "properties": {"a": {"anyOf": [
                    {"type": ["array", "null"]}, {"type": "array", "items": {"type": "string"}}]}}}),
                Some(json!({"type": "object", "properties": {"a": {"anyOf": [
                    {"type": ["array", "null"], "items": {}},
                    {"type": "array", "items": {"type": "string"}}]}}})),
            ),
        ] {
            let Value::Object(mut schema) = given.clone() else {
                panic!("{given}");
            };
            let changed = complete_schema(&mut schema);
            let found = changed.then_some(Value::Object(schema));
            assert_eq!(found, expected, "{given}");
        }
    }
}

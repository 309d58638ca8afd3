//! JSON schemas of arguments, with the members that vendors require.

use serde_json::{Map, Value, json};

/// Members of a schema whose values are data, not schemas.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

/// Members that combine schemas.
const COMBINING: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Adds the members that vendors require to a schema of arguments, and unless they accept `combined`
/// schemas at its root, makes one of these. Returns whether it changed.
pub fn complete_schema(schema: &mut Map<String, Value>, combined: bool) -> bool {
    let mut changed = !combined && flatten(schema);
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

/// Puts the properties of schemas that the root combines into it. Of alternatives, those are required
/// that all require. Returns whether there were any.
fn flatten(schema: &mut Map<String, Value>) -> bool {
    let root = Value::Object(schema.clone());
    let resolved = |schema: &Value| {
        let pointer = schema["$ref"].as_str().and_then(|to| to.strip_prefix('#'));
        let target = pointer.and_then(|pointer| root.pointer(pointer));
        target.unwrap_or(schema).clone()
    };
    let mut changed = false;
    if let Value::Object(target) = resolved(&root)
        && schema.shift_remove("$ref").is_some()
    {
        for (name, value) in target {
            schema.entry(name).or_insert(value);
        }
        changed = true;
    }
    for name in COMBINING {
        let Some(Value::Array(variants)) = schema.shift_remove(name) else {
            continue;
        };
        changed = true;
        let variants: Vec<Value> = variants.iter().map(resolved).collect();
        // A property that differs has the same combination.
        let mut properties: Map<String, Value> = Map::new();
        for (of, property) in variants
            .iter()
            .filter_map(|v| v["properties"].as_object())
            .flatten()
        {
            match properties.get_mut(of) {
                None => {
                    properties.insert(of.clone(), json!({ name: [property] }));
                }
                Some(Value::Object(known)) => {
                    if let Some(Value::Array(known)) = known.get_mut(name)
                        && !known.contains(property)
                    {
                        known.push(property.clone());
                    }
                }
                Some(_) => {}
            }
        }
        let own = schema.entry("properties").or_insert(Value::Null);
        if own.is_null() {
            *own = json!({});
        }
        for (of, mut combined) in properties {
            if let Some([only]) = combined[name].as_array().map(Vec::as_slice) {
                combined = only.clone();
            }
            if let Value::Object(own) = own {
                own.entry(of).or_insert(combined);
            }
        }
        let lists = |variant: &Value, name: &Value| {
            let names = variant["required"].as_array();
            names.is_some_and(|names| names.contains(name))
        };
        let mut needed = schema.get("required").and_then(Value::as_array).cloned();
        let names = variants.iter().filter_map(|v| v["required"].as_array());
        for of in names.flatten() {
            let is_needed = name == "allOf" || variants.iter().all(|variant| lists(variant, of));
            let all = needed.get_or_insert_default();
            if is_needed && !all.contains(of) {
                all.push(of.clone());
            }
        }
        if let Some(needed) = needed.filter(|needed| !needed.is_empty()) {
            schema.insert("required".to_owned(), needed.into());
        }
    }
    changed
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
            let changed = complete_schema(&mut schema, true);
            let found = changed.then_some(Value::Object(schema));
            assert_eq!(found, expected, "{given}");
        }
    }

    #[test]
    fn schemas_that_the_root_combines_become_one() {
        let of = |kind: &str| json!({"properties": {"kind": {"const": kind}, kind: {}}, "required": ["kind", kind]});
        let kinds = |name: &str| json!({ name: [{"const": "a"}, {"const": "b"}] });
        for (given, expected) in [
            (
                json!({"anyOf": [of("a"), of("b")]}),
                json!({"properties": {"kind": kinds("anyOf"), "a": {}, "b": {}}, "required": ["kind"]}),
            ),
            (
                json!({"type": "object", "properties": {"x": {}}, "required": ["x"],
                    "oneOf": [{"required": ["a"]}, {"$ref": "#/$defs/b"}], "$defs": {"b": of("b")}}),
                json!({"type": "object", "properties": {"x": {}, "kind": {"const": "b"}, "b": {}},
                    "required": ["x"], "$defs": {"b": of("b")}}),
            ),
            (
                json!({"allOf": [of("a"), of("b")], "properties": null}),
                json!({"properties": {"kind": kinds("allOf"), "a": {}, "b": {}},
                    "required": ["kind", "a", "b"]}),
            ),
            (
                json!({"$ref": "#/definitions/a", "definitions": {"a": of("a")}}),
                json!({"definitions": {"a": of("a")}, "properties": {"kind": {"const": "a"}, "a": {}},
                    "required": ["kind", "a"]}),
            ),
        ] {
            let Value::Object(mut schema) = given.clone() else {
                panic!("{given}");
            };
            assert!(complete_schema(&mut schema, false));
            let mut expected = expected;
            expected["type"] = json!("object");
            assert_eq!(Value::Object(schema), expected, "{given}");
        }
    }
}

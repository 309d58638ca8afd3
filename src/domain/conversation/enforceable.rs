//! JSON schemas for a vendor that enforces only some keywords.
//!
//! Source: anthropic 2.14.0 (`PyPI`) `anthropic/lib/_parse/_transform.py`, and platform.claude.com,
//! "Structured outputs".

use std::mem::take;

use serde_json::{Map, Value};

const FORMATS: [&str; 10] = [
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "time",
    "uri",
    "uuid",
];

/// Members that do not constrain values.
const LEFT_OUT: [&str; 3] = ["$comment", "$id", "$schema"];

/// The only members that the vendor accepts in an object with a reference.
const OF_REFERENCE: [&str; 3] = ["$defs", "$ref", "definitions"];

/// Keeps the keywords that the vendor enforces, and moves the others to the description, which the
/// model reads. Objects are closed, unless the schema says otherwise or combines them with others;
/// the vendor then reports the error.
pub fn make_enforceable(schema: &mut Value) {
    convert(schema, true);
}

/// `closes`: whether an object is closed.
fn convert(schema: &mut Value, closes: bool) {
    let close = |schema: &mut Value| convert(schema, true);
    let Value::Object(members) = schema else {
        return;
    };
    let given = take(members);
    let is_object = is_object(&given);
    let has_alternatives = given.contains_key("anyOf");
    let mut others = Map::new();
    for (mut name, mut value) in given {
        if name == "oneOf" && !has_alternatives {
            "anyOf".clone_into(&mut name);
        }
        let is_kept = match name.as_str() {
            "const" => is_primitive(&value),
            name if value.is_null() || LEFT_OUT.contains(&name) => continue,
            "$ref" | "additionalProperties" | "description" | "required" | "title" | "type" => true,
            "$defs" | "definitions" | "properties" => {
                let schemas = value.as_object_mut().into_iter();
                schemas.flat_map(Map::values_mut).for_each(close);
                true
            }
            "allOf" | "anyOf" => {
                let schemas = value.as_array_mut().into_iter().flatten();
                schemas.for_each(|schema| convert(schema, closes && name == "anyOf"));
                true
            }
            "items" => {
                close(&mut value);
                !value.is_array()
            }
            "enum" => value
                .as_array()
                .is_some_and(|values| !values.is_empty() && values.iter().all(is_primitive)),
            "format" => value.as_str().is_some_and(|name| FORMATS.contains(&name)),
            "minItems" => value == 0 || value == 1,
            _ => false,
        };
        let kept = if is_kept { &mut *members } else { &mut others };
        kept.insert(name, value);
    }
    if members.contains_key("$ref") {
        members.retain(|name, _| OF_REFERENCE.contains(&name.as_str()));
        return;
    }
    if closes && is_object && members.contains_key("properties") {
        let others = members.entry("additionalProperties");
        others.or_insert(false.into());
    }
    if !others.is_empty() {
        let others = Value::Object(others);
        let description = members.get("description").and_then(Value::as_str);
        let description = match description.filter(|text| !text.is_empty()) {
            Some(text) => format!("{text}\n\n{others}"),
            None => others.to_string(),
        };
        members.insert("description".to_owned(), description.into());
    }
}

fn is_object(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        None | Some(Value::Null) => schema.contains_key("properties"),
        Some(kind) => kind == "object",
    }
}

const fn is_primitive(value: &Value) -> bool {
    !matches!(value, Value::Array(_) | Value::Object(_))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keywords_that_are_not_enforced_become_descriptions() {
        for (given, expected) in [
            (
                json!({"type": "integer", "minimum": 1, "description": "d", "maximum": 9}),
                json!({"type": "integer", "description": "d\n\n{\"minimum\":1,\"maximum\":9}"}),
            ),
            (
                json!({"type": "string", "pattern": "^a", "format": "uuid", "title": "t"}),
                json!({"type": "string", "format": "uuid", "title": "t",
                    "description": "{\"pattern\":\"^a\"}"}),
            ),
            (
                json!({"type": "string", "format": "regex"}),
                json!({"type": "string", "description": "{\"format\":\"regex\"}"}),
            ),
            (
                json!({"type": ["array", "null"], "minItems": 1, "maxItems": 2,
                    "items": {"type": "number", "multipleOf": 2}}),
                json!({"type": ["array", "null"], "minItems": 1,
                    "items": {"type": "number", "description": "{\"multipleOf\":2}"},
                    "description": "{\"maxItems\":2}"}),
            ),
            (
                json!({"type": "array", "minItems": 2, "items": [{"type": "string"}]}),
                json!({"type": "array",
                    "description": "{\"minItems\":2,\"items\":[{\"type\":\"string\"}]}"}),
            ),
            (
                json!({"$schema": "s", "type": "object", "additionalProperties": null,
                    "properties": {"minimum": {"const": 1}, "a": {"enum": ["x", null]},
                        "b": {"enum": [{}]}, "c": true, "d": {"const": null, "format": null}},
                    "required": ["a"]}),
                json!({"type": "object", "properties": {"minimum": {"const": 1},
                    "a": {"enum": ["x", null]}, "b": {"description": "{\"enum\":[{}]}"}, "c": true,
                    "d": {"const": null}}, "required": ["a"], "additionalProperties": false}),
            ),
            (
                json!({"oneOf": [{"properties": {}}, {"$ref": "#/$defs/a", "description": "d"}],
                    "$defs": {"a": {"type": "string", "minLength": 1}}}),
                json!({"anyOf": [{"properties": {}, "additionalProperties": false},
                    {"$ref": "#/$defs/a"}],
                    "$defs": {"a": {"type": "string", "description": "{\"minLength\":1}"}}}),
            ),
            (
                json!({"$ref": "#/definitions/a", "default": 1, "definitions": {"a": {"maximum": 1}}}),
                json!({"$ref": "#/definitions/a",
                    "definitions": {"a": {"description": "{\"maximum\":1}"}}}),
            ),
            // Closing these objects would allow no value.
            (
                json!({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {"properties": {}}}}]}),
                json!({"allOf": [{"properties": {"a": {}}},
                    {"properties": {"b": {"properties": {}, "additionalProperties": false}}}]}),
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}}),
                json!({"type": "object", "additionalProperties": {"type": "string"}}),
            ),
            (json!({"type": "object"}), json!({"type": "object"})),
            (json!(true), json!(true)),
        ] {
            let mut schema = given.clone();
            make_enforceable(&mut schema);
            assert_eq!(schema, expected, "{given}");
            make_enforceable(&mut schema);
            assert_eq!(schema, expected, "{given} again");
        }
    }

    #[test]
    fn properties_keep_their_order() {
        let mut schema = json!({"type": "object", "properties": {"z": {"minimum": 1}, "a": {}}});
        make_enforceable(&mut schema);
        let names: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["z", "a"]);
    }
}

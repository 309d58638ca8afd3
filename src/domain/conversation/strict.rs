//! JSON schemas that OpenAI's strict mode accepts.
//!
//! Source: developers.openai.com, "Structured outputs", and openai 3.57.0 (`PyPI`)
//! `openai/lib/_pydantic.py`.

use serde_json::{Map, Value};

/// Keywords whose values need no check.
const KEYWORDS: [&str; 16] = [
    "$schema",
    "additionalProperties",
    "const",
    "description",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxItems",
    "maximum",
    "minItems",
    "minimum",
    "multipleOf",
    "pattern",
    "required",
    "title",
    "type",
];

const FORMATS: [&str; 9] = [
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "time",
    "uuid",
];

/// Whether OpenAI accepts a schema of arguments or of an answer as strict.
pub fn is_strict(schema: &Value) -> bool {
    schema["type"] == "object" && schema.get("anyOf").is_none() && is_accepted(schema)
}

fn is_accepted(schema: &Value) -> bool {
    let Value::Object(members) = schema else {
        return false;
    };
    if members.contains_key("$ref") {
        return members.len() == 1;
    }
    let accepts = |(name, value): (&String, &Value)| match name.as_str() {
        "$defs" | "definitions" | "properties" => value
            .as_object()
            .is_some_and(|schemas| schemas.values().all(is_accepted)),
        "anyOf" => value
            .as_array()
            .is_some_and(|schemas| schemas.iter().all(is_accepted)),
        "items" => is_accepted(value),
        "format" => value.as_str().is_some_and(|name| FORMATS.contains(&name)),
        name => KEYWORDS.contains(&name),
    };
    (members.contains_key("type") || members.contains_key("anyOf"))
        && (!is_of(members, "object") || is_closed(members))
        && (!is_of(members, "array") || members.contains_key("items"))
        && members.iter().all(accepts)
}

fn is_of(schema: &Map<String, Value>, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|one| one == kind),
        found => found.is_some_and(|one| one == kind),
    }
}

/// Whether an object has exactly the properties that it requires.
fn is_closed(schema: &Map<String, Value>) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &String| {
        let mut required = required.into_iter().flatten();
        required.any(|other| other == name)
    };
    let properties = schema.get("properties").and_then(Value::as_object);
    schema.get("additionalProperties") == Some(&Value::Bool(false))
        && properties.is_some_and(|properties| properties.keys().all(is_required))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(property: &Value) -> Value {
        json!({"type": "object", "properties": {"a": property}, "required": ["a"],
            "additionalProperties": false})
    }

    #[test]
    fn only_the_keywords_of_strict_mode_are_accepted() {
        let text = json!({"type": "string"});
        for (property, expected) in [
            (text.clone(), true),
            (
                json!({"type": ["string", "null"], "title": "A", "description": "d"}),
                true,
            ),
            (
                json!({"type": "string", "enum": ["a", "b"], "pattern": "^a"}),
                true,
            ),
            (json!({"type": "string", "const": {"not": 1}}), true),
            (json!({"type": "string", "format": "date-time"}), true),
            (json!({"type": "string", "format": "uri"}), false),
            (
                json!({"type": "integer", "minimum": 1, "exclusiveMaximum": 9}),
                true,
            ),
            (json!({"type": "array", "items": text, "minItems": 1}), true),
            (json!({"type": "array"}), false),
            (json!({"type": "array", "prefixItems": [text]}), false),
            (json!({"anyOf": [text, {"type": "null"}]}), true),
            (json!({"anyOf": [text, {"type": "object"}]}), false),
            (json!({"anyOf": [text, true]}), false),
            (json!({"$ref": "#/$defs/b"}), true),
            (json!({"$ref": "#/$defs/b", "description": "d"}), false),
            (json!({"allOf": [text]}), false),
            (json!({"oneOf": [text]}), false),
            (json!({"type": "string", "not": {"const": "x"}}), false),
            (json!({"type": "string", "if": text}), false),
            (json!({"type": "string", "default": "x"}), false),
            (json!({"type": "string", "minLength": 1}), false),
            (json!({}), false),
            (json!(true), false),
            (object(&text), true),
            (
                json!({"type": "object", "properties": {"default": text},
                "required": ["default"], "additionalProperties": false}),
                true,
            ),
            (json!({"type": ["object", "null"], "properties": {}}), false),
            (
                json!({"type": "object", "patternProperties": {}, "properties": {},
                "additionalProperties": false}),
                false,
            ),
        ] {
            let mut schema = object(&property);
            schema["$defs"] = json!({"b": {"type": "number"}});
            assert_eq!(is_strict(&schema), expected, "{property}");
            schema["$defs"] = json!({"b": property});
            schema["properties"] = json!({"a": {"type": "number"}});
            assert_eq!(is_strict(&schema), expected, "{property} in $defs");
        }
    }

    #[test]
    fn a_root_must_be_a_closed_object() {
        for schema in [
            json!({"anyOf": [object(&json!({"type": "string"}))]}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}),
            json!({"type": "object"}),
            json!({"type": "object", "properties": {}}),
            json!({"type": "object", "additionalProperties": false}),
            json!({"type": "object", "properties": {"a": {"type": "string"}},
                "additionalProperties": false}),
            json!({"type": "string"}),
            json!({"type": ["object", "null"], "properties": {}, "additionalProperties": false}),
        ] {
            assert!(!is_strict(&schema), "{schema}");
        }
        let schema = json!({"$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object", "properties": {}, "additionalProperties": false});
        assert!(is_strict(&schema));
    }
}

//! Tool calls and structured answers of the sandbox: always the same instance of a JSON schema.

use std::cell::Cell;

use serde_json::{Map, Value, json};

use super::seed::Seed;
use crate::domain::conversation::{Conversation, Format, Function, ToolCall, ToolChoice};

/// Maximum nesting of schemas. Deeper ones get no optional items.
const MAX_DEPTH: usize = 16;
/// Maximum bytes of all values of an answer, since a small schema can require any number of values.
/// Further values are null.
const MAX_BYTES: usize = 1 << 20;
const MAX_CALLS: usize = 64;

/// Returns the calls requested by the prompt's markers (an empty name: any function) or forced by
/// the request.
pub fn calls(conversation: &Conversation, markers: &[String], seed: &Seed) -> Vec<ToolCall> {
    let tools = &conversation.tools;
    let forced = match &tools.choice {
        ToolChoice::None => return Vec::new(),
        ToolChoice::Named(name) => Some(name.as_str()),
        ToolChoice::Auto | ToolChoice::Required => None,
    };
    let named = |name: &str| {
        let mut functions = tools.functions.iter();
        match forced.or_else(|| Some(name).filter(|name| !name.is_empty())) {
            Some(name) => functions.find(|function| function.name == name),
            None => functions.next(),
        }
    };
    let must = forced.is_some() || tools.choice == ToolChoice::Required;
    let mut functions: Vec<_> = markers.iter().filter_map(|name| named(name)).collect();
    if functions.is_empty() && must {
        functions.extend(named(""));
    }
    if tools.one_at_a_time {
        functions.truncate(1);
    }
    let (left, calls) = (Cell::new(MAX_BYTES), functions.into_iter().take(MAX_CALLS));
    calls
        .enumerate()
        .map(|(at, function)| call(function, at, seed, &left))
        .collect()
}

fn call(function: &Function, at: usize, seed: &Seed, left: &Cell<usize>) -> ToolCall {
    let schema = function.parameters.as_ref().map(|p| p.schema.value());
    ToolCall {
        id: format!("call_{:08x}{at}", seed.word(at)),
        name: function.name.clone(),
        arguments: schema.map_or_else(
            || "{}".to_owned(),
            |schema| instance(&schema, left).to_string(),
        ),
        thought_signature: None,
    }
}

/// Returns the answer in the requested format; `None` for plain text.
pub fn structured(format: &Format, text: &str) -> Option<String> {
    match format {
        Format::Text => None,
        Format::JsonObject => Some(json!({ "answer": text }).to_string()),
        Format::Schema(schema) => {
            let left = Cell::new(MAX_BYTES);
            Some(instance(&schema.schema.value(), &left).to_string())
        }
    }
}

/// Returns a minimal instance of a schema: only required properties, and an enum's first value.
fn instance(schema: &Value, left: &Cell<usize>) -> Value {
    value(schema, schema, 0, left)
}

/// Subtracts the value's bytes from the rest of [`MAX_BYTES`].
fn paid(value: Value, left: &Cell<usize>) -> Value {
    let bytes = match &value {
        // Their members are already counted.
        Value::Array(_) | Value::Object(_) => 2,
        value => value.to_string().len(),
    };
    take(value, bytes, left)
}

/// Returns a value that the schema contains.
fn copied(value: &Value, left: &Cell<usize>) -> Value {
    take(value.clone(), value.to_string().len(), left)
}

/// Returns the value, or null if fewer bytes are left.
fn take(value: Value, bytes: usize, left: &Cell<usize>) -> Value {
    match left.get().checked_sub(bytes) {
        Some(rest) => {
            left.set(rest);
            value
        }
        None => Value::Null,
    }
}

fn value(schema: &Value, root: &Value, depth: usize, left: &Cell<usize>) -> Value {
    let Some(rest) = left.get().checked_sub(1) else {
        return Value::Null;
    };
    left.set(rest);
    if depth > MAX_DEPTH {
        return Value::Null;
    }
    let within = |schema: &Value| value(schema, root, depth + 1, left);
    if let Some(path) = schema.get("$ref").and_then(Value::as_str) {
        let found = path.strip_prefix('#').and_then(|path| root.pointer(path));
        return found.map_or(Value::Null, within);
    }
    if let Some(only) = schema.get("const") {
        return copied(only, left);
    }
    for name in ["enum", "examples"] {
        if let Some(first) = schema.get(name).and_then(|values| values.get(0)) {
            return copied(first, left);
        }
    }
    for name in ["anyOf", "oneOf"] {
        if let Some(first) = schema.get(name).and_then(|schemas| schemas.get(0)) {
            return within(first);
        }
    }
    if let Some(all) = schema.get("allOf").and_then(Value::as_array) {
        return all_of(all.iter().map(within));
    }
    let kind = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().find(|kind| *kind != "null"),
        kind => kind,
    };
    let kind = kind.and_then(Value::as_str);
    let has = |name| schema.get(name).is_some();
    let made = match kind {
        Some("string") => text(schema),
        Some("integer") => json!(number(schema).ceil())
            .as_f64()
            .map_or(Value::Null, whole),
        Some("number") => json!(number(schema)),
        Some("boolean") => json!(true),
        Some("null") => Value::Null,
        Some("array") => array(schema, depth, left, within),
        Some("object") => object(schema, left, within),
        _ if has("properties") => object(schema, left, within),
        _ if has("items") => array(schema, depth, left, within),
        _ => json!({}),
    };
    paid(made, left)
}

fn all_of(values: impl Iterator<Item = Value>) -> Value {
    let mut merged = Map::new();
    let mut last = Value::Null;
    for value in values {
        match value {
            Value::Object(members) => merged.extend(members),
            other => last = other,
        }
    }
    if merged.is_empty() {
        last
    } else {
        Value::Object(merged)
    }
}

fn object(schema: &Value, left: &Cell<usize>, within: impl Fn(&Value) -> Value) -> Value {
    let required = schema.get("required").and_then(Value::as_array);
    let names = required.into_iter().flatten().filter_map(Value::as_str);
    let properties = schema.get("properties");
    let any = json!({});
    // Stops before a million required names become nulls.
    let members = names.take_while(|_| left.get() > 0).map(|name| {
        let property = properties.and_then(|properties| properties.get(name));
        (name.to_owned(), within(property.unwrap_or(&any)))
    });
    Value::Object(members.collect())
}

fn array(
    schema: &Value,
    depth: usize,
    left: &Cell<usize>,
    within: impl Fn(&Value) -> Value,
) -> Value {
    let bound = |name| schema.get(name).and_then(Value::as_u64);
    let least = bound("minItems").unwrap_or(0);
    let wanted = if depth < MAX_DEPTH / 2 {
        least.max(1)
    } else {
        least
    };
    let wanted = wanted.min(bound("maxItems").unwrap_or(u64::MAX)).min(100);
    match schema.get("items") {
        Some(items) => (0..wanted)
            .take_while(|_| left.get() > 0)
            .map(|_| within(items))
            .collect(),
        None => (0..least.min(100)).map(|_| json!({})).collect(),
    }
}

fn text(schema: &Value) -> Value {
    let text = match schema.get("format").and_then(Value::as_str) {
        Some("date") => "2026-01-31",
        Some("time") => "12:00:00Z",
        Some("date-time") => "2026-01-31T12:00:00Z",
        Some("email") => "sandbox@example.com",
        Some("uri") => "https://example.com/",
        Some("uuid") => "00000000-0000-4000-8000-000000000000",
        _ => "sandbox",
    };
    let bound = |name| {
        let bound = schema.get(name).and_then(Value::as_u64);
        bound.and_then(|bound| usize::try_from(bound).ok())
    };
    let least = bound("minLength").unwrap_or(0).min(10_000);
    let padding = "x".repeat(least.saturating_sub(text.len()));
    let most = bound("maxLength").unwrap_or(usize::MAX);
    json!(
        (text.to_owned() + &padding)
            .chars()
            .take(most)
            .collect::<String>()
    )
}

/// Returns 1, or the nearest number within the bounds.
fn number(schema: &Value) -> f64 {
    let bound = |name| schema.get(name).and_then(Value::as_f64);
    let step = bound("multipleOf").filter(|step| *step > 0.0);
    let (low, above) = (bound("minimum"), bound("exclusiveMinimum"));
    let (high, below) = (bound("maximum"), bound("exclusiveMaximum"));
    let highest = [high, below.map(|below| below - 1.0)];
    let lowest = [low, above.map(|above| above + 1.0)];
    let number = step.unwrap_or(1.0);
    let number = highest.into_iter().flatten().fold(number, f64::min);
    let number = lowest.into_iter().flatten().fold(number, f64::max);
    step.map_or(number, |step| (number / step).ceil() * step)
}

/// Writes whole numbers without a decimal point.
#[expect(
    clippy::cast_possible_truncation,
    reason = "it is whole, and bounds saturate"
)]
fn whole(number: f64) -> Value {
    json!(number as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_schema_asks_for_no_endless_value() {
        let mut many = json!({"type": "string", "minLength": 10_000});
        for _ in 0..6 {
            many = json!({"type": "array", "minItems": 100, "items": many});
        }
        let branches: Vec<Value> = (0..20).map(|n| json!(format!("b{n}"))).collect();
        let tree: Map<String, Value> = (0..20)
            .map(|n| (format!("b{n}"), json!({"$ref": "#"})))
            .collect();
        let tree = json!({"type": "object", "required": branches, "properties": tree});
        for schema in [many, tree] {
            let made = instance(&schema, &Cell::new(MAX_BYTES)).to_string();
            // Nulls, commas and names are not counted.
            assert!(made.len() < 16 * MAX_BYTES, "{}", made.len());
        }
    }

    #[test]
    fn an_instance_has_what_is_required() {
        let schema = json!({"type": "object", "required": ["city", "unit", "days", "tags", "at", "deep", "odd"],
            "properties": {
                "city": {"type": "string", "minLength": 9},
                "unit": {"enum": ["c", "f"]},
                "days": {"type": "integer", "minimum": 2, "maximum": 7},
                "tags": {"type": "array", "items": {"type": ["null", "boolean"]}, "minItems": 2},
                "at": {"type": "string", "format": "date"},
                "deep": {"$ref": "#/$defs/Deep"},
                "odd": {"type": "number", "exclusiveMinimum": 1, "multipleOf": 0.5},
                "left_out": {"type": "string"}},
            "$defs": {"Deep": {"anyOf": [{"type": "object", "required": ["x"],
                "properties": {"x": {"const": 3}}}, {"type": "null"}]}}});
        let expected = json!({"city": "sandboxxx", "unit": "c", "days": 2, "tags": [true, true],
            "at": "2026-01-31", "deep": {"x": 3}, "odd": 2.0});
        assert_eq!(instance(&schema, &Cell::new(MAX_BYTES)), expected);
    }

    #[test]
    fn a_schema_of_itself_ends() {
        let tree = json!({"type": "object", "required": ["leaves"],
            "properties": {"leaves": {"type": "array", "items": {"$ref": "#"}}}});
        assert!(instance(&tree, &Cell::new(MAX_BYTES))["leaves"][0]["leaves"].is_array());
        let circle = json!({"$ref": "#"});
        assert_eq!(instance(&circle, &Cell::new(MAX_BYTES)), Value::Null);
    }
}

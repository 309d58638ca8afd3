//! JSON schemas of arguments, with the members that vendors require.

use std::mem::take;

use serde_json::{Map, Value, json};

use super::Json;

/// Members of a schema whose values are data, not schemas.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

/// Members of a schema whose values are schemas by a name of the caller's.
const NAMED: [&str; 5] = [
    "$defs",
    "definitions",
    "dependentSchemas",
    "patternProperties",
    "properties",
];

/// Members that combine schemas.
const COMBINING: [&str; 4] = ["$ref", "allOf", "anyOf", "oneOf"];

/// Members that the root of a schema must not have either, if it must not combine schemas.
const REMOVED: [&str; 2] = ["enum", "not"];

/// Maximum number of schemas that one schema combines.
const MAX_VARIANTS: usize = 100;
/// Maximum nesting of schemas that others combine, references included.
const MAX_DEPTH: usize = 8;
/// Maximum memory of a schema that is flattened, in bytes.
const MAX_BYTES: usize = 1 << 20;
/// Maximum memory of copies: this multiple of the schema's own, and some for small schemas.
const MAX_COPIES: usize = 4;
const SPARE_BYTES: usize = 64 << 10;
/// Memory of one value, in bytes.
const VALUE_BYTES: usize = 72;

/// A schema of a function's arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    pub schema: Json,
    /// Whether every vendor should accept it unchanged, judged by its members.
    is_complete: bool,
}

impl Parameters {
    pub fn of(members: &Map<String, Value>) -> Self {
        Self {
            schema: Json::object(members),
            is_complete: is_complete(members),
        }
    }

    /// Returns the completed schema, see [`complete_schema`]; `None` if nothing is missing.
    pub fn completed(&self, combined: bool) -> Option<Self> {
        if self.is_complete {
            return None;
        }
        match self.schema.value() {
            Value::Object(mut schema) => {
                complete_schema(&mut schema, combined).then(|| Self::of(&schema))
            }
            _ => None,
        }
    }

    /// Returns its UTF-8 bytes.
    pub fn bytes(&self) -> usize {
        self.schema.as_str().len()
    }
}

fn is_complete(schema: &Map<String, Value>) -> bool {
    let is_combined = |name: &&str| schema.contains_key(*name);
    schema.get("type").is_some_and(|kind| kind == "object")
        && schema.get("properties").is_some_and(Value::is_object)
        && !COMBINING.iter().chain(&REMOVED).any(is_combined)
        && has_items(schema)
}

/// Adds the members that vendors require to a schema of arguments, and unless they accept `combined`
/// schemas at its root, makes one of these. A reference at the root is always replaced, because next
/// to it no vendor would read what is added. Returns whether it changed.
pub fn complete_schema(schema: &mut Map<String, Value>, combined: bool) -> bool {
    let mut changed = (!combined || schema.contains_key("$ref")) && flatten(schema);
    if combined && schema.contains_key("$ref") {
        return changed | edit_all(schema, &complete_array);
    }
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
    changed | edit_all(schema, &complete_array)
}

/// Replaces the schemas that the root combines by their properties. Of alternatives, only
/// properties required by all are required. A schema that is too large, or would keep references to
/// a removed part, stays unchanged, and the vendor reports the error. Returns whether it changed.
fn flatten(schema: &mut Map<String, Value>) -> bool {
    let is_combined = |name: &&str| schema.contains_key(*name);
    if !COMBINING.iter().chain(&REMOVED).any(is_combined) {
        return false;
    }
    let root = Value::Object(take(schema));
    let flat = Flattener::new(&root).and_then(|mut flattener| flattener.flat(&root, 0));
    let mut flattened = flat.map(|flat| {
        let mut members = flat.others;
        members.retain(|name, _| !REMOVED.contains(&name.as_str()));
        for name in ["$defs", "definitions"] {
            if let Some(schemas) = root.get(name) {
                members.insert(name.to_owned(), schemas.clone());
            }
        }
        members.insert("properties".to_owned(), flat.properties.into());
        if !flat.required.is_empty() {
            let names = flat.required.into_iter().map(|(name, _)| name);
            members.insert("required".to_owned(), names.collect());
        }
        Value::Object(members)
    });
    // Fails if references to a removed part remain.
    flattened.take_if(|flattened| !resolves(flattened, flattened));
    let is_changed = flattened.is_some();
    if let Value::Object(members) = flattened.unwrap_or(root) {
        *schema = members;
    }
    is_changed
}

/// Whether all references in `value` point to parts of `root`.
fn resolves(root: &Value, value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().all(|item| resolves(root, item)),
        Value::Object(members) => members.iter().all(|(name, value)| {
            let path = value.as_str().filter(|_| name == "$ref");
            let path = path.and_then(|to| to.strip_prefix('#'));
            path.is_none_or(|path| root.pointer(path).is_some()) && resolves(root, value)
        }),
        _ => true,
    }
}

/// A schema that combines no others.
#[derive(Default)]
struct Flat {
    properties: Map<String, Value>,
    /// The required names, in order.
    required: Map<String, Value>,
    others: Map<String, Value>,
}

/// Flattens combined schemas. References may repeat a schema any number of times, so the memory of
/// copies is limited.
struct Flattener<'a> {
    root: &'a Value,
    /// Bytes that may still be copied.
    left: usize,
}

impl<'a> Flattener<'a> {
    /// Returns `None` for a schema that is too large.
    fn new(root: &'a Value) -> Option<Self> {
        let left = MAX_BYTES;
        let mut own = Self { root, left };
        own.reserve(root)?;
        own.left = SPARE_BYTES + MAX_COPIES * (MAX_BYTES - own.left);
        Some(own)
    }

    fn reserve_bytes(&mut self, bytes: usize) -> Option<()> {
        self.left = self.left.checked_sub(bytes)?;
        Some(())
    }

    fn reserve(&mut self, value: &Value) -> Option<()> {
        self.reserve_bytes(VALUE_BYTES)?;
        match value {
            Value::String(text) => self.reserve_bytes(text.len()),
            Value::Array(items) => items.iter().try_for_each(|item| self.reserve(item)),
            Value::Object(members) => members.iter().try_for_each(|(name, value)| {
                self.reserve_bytes(name.len())?;
                self.reserve(value)
            }),
            _ => Some(()),
        }
    }

    fn flat(&mut self, schema: &Value, depth: usize) -> Option<Flat> {
        self.reserve_bytes(VALUE_BYTES)?;
        let mut flat = Flat::default();
        let Some(schema) = schema.as_object().filter(|_| depth <= MAX_DEPTH) else {
            // `true` has no properties.
            return schema.is_boolean().then_some(flat);
        };
        for (name, value) in schema {
            match (name.as_str(), value) {
                ("$defs" | "definitions", _) => {}
                (name, _) if COMBINING.contains(&name) => {}
                ("properties", Value::Object(properties)) => {
                    self.reserve(value)?;
                    flat.properties.clone_from(properties);
                }
                ("required", Value::Array(names)) => {
                    self.reserve(value)?;
                    let names = names.iter().filter_map(Value::as_str);
                    flat.required = names.map(|name| (name.to_owned(), Value::Null)).collect();
                }
                ("properties" | "required", Value::Null) => {}
                ("properties" | "required", _) => return None,
                _ => {
                    self.reserve(value)?;
                    flat.others.insert(name.clone(), value.clone());
                }
            }
        }
        for name in COMBINING {
            let variants = match schema.get(name) {
                None => continue,
                Some(Value::String(to)) if name == "$ref" => {
                    let target = self.root.pointer(to.strip_prefix('#')?)?;
                    let mut target = self.flat(target, depth + 1)?;
                    for (name, value) in take(&mut target.others) {
                        flat.others.entry(name).or_insert(value);
                    }
                    vec![target]
                }
                Some(Value::Array(variants)) if variants.len() <= MAX_VARIANTS => {
                    let variants = variants.iter().map(|variant| self.flat(variant, depth + 1));
                    variants.collect::<Option<_>>()?
                }
                Some(_) => return None,
            };
            flat.add(name, variants);
        }
        Some(flat)
    }
}

impl Flat {
    fn add(&mut self, combining: &str, variants: Vec<Self>) {
        let is_alternative = ["anyOf", "oneOf"].contains(&combining);
        for name in variants.iter().flat_map(|variant| variant.required.keys()) {
            let requires = |variant: &Self| variant.required.contains_key(name);
            if !is_alternative || variants.iter().all(requires) {
                self.required.insert(name.clone(), Value::Null);
            }
        }
        let mut different: Map<String, Value> = Map::new();
        for (name, property) in variants.into_iter().flat_map(|variant| variant.properties) {
            let known = different.entry(name).or_insert_with(|| json!([]));
            if let Value::Array(known) = known
                && !known.contains(&property)
            {
                known.push(property);
            }
        }
        for (name, property) in different {
            // A property that differs gets the same combination.
            let property = match property {
                Value::Array(mut known) if known.len() == 1 => known.remove(0),
                known => json!({ combining: known }),
            };
            self.properties.entry(name).or_insert(property);
        }
    }
}

/// Whether it allows arrays but does not say of which items.
fn lacks_items(schema: &Map<String, Value>) -> bool {
    let is_array = match schema.get("type") {
        Some(Value::String(kind)) => kind == "array",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "array"),
        _ => false,
    };
    let has = |name| schema.contains_key(name);
    is_array && !has("items") && !has("prefixItems")
}

/// Whether all arrays in it have `items`.
fn has_items(schema: &Map<String, Value>) -> bool {
    !lacks_items(schema) && within(schema).all(has_items)
}

/// The schemas that are members of one, or in a list or an object that is.
fn within(schema: &Map<String, Value>) -> impl Iterator<Item = &Map<String, Value>> {
    let members = schema.iter().flat_map(|(name, value)| match value {
        _ if DATA.contains(&name.as_str()) => Vec::new(),
        Value::Object(_) if !NAMED.contains(&name.as_str()) => vec![value],
        Value::Object(schemas) => schemas.values().collect(),
        Value::Array(schemas) => schemas.iter().collect(),
        _ => Vec::new(),
    });
    members.filter_map(Value::as_object)
}

/// As [`within`].
fn within_mut(schema: &mut Map<String, Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    let members = schema.iter_mut().flat_map(|(name, value)| match value {
        _ if DATA.contains(&name.as_str()) => Vec::new(),
        Value::Object(_) if !NAMED.contains(&name.as_str()) => vec![value],
        Value::Object(schemas) => schemas.values_mut().collect(),
        Value::Array(schemas) => schemas.iter_mut().collect(),
        _ => Vec::new(),
    });
    members.filter_map(Value::as_object_mut)
}

/// Edits a schema and all within it. Returns whether `edit` changed any.
fn edit_all(
    schema: &mut Map<String, Value>,
    edit: &impl Fn(&mut Map<String, Value>) -> bool,
) -> bool {
    let changed = edit(schema);
    within_mut(schema).fold(changed, |changed, schema| edit_all(schema, edit) | changed)
}

/// Adds `items` to an array that lacks it.
fn complete_array(schema: &mut Map<String, Value>) -> bool {
    let lacks = lacks_items(schema);
    if lacks {
        schema.insert("items".to_owned(), json!({}));
    }
    lacks
}

/// Removes what a vendor refuses next to a `$ref`: members whose names do not begin with `$`.
pub fn make_references_bare(schema: &mut Value) {
    let Value::Object(schema) = schema else {
        return;
    };
    edit_all(schema, &|schema| {
        let is_reference = schema.get("$ref").is_some_and(Value::is_string);
        if is_reference {
            schema.retain(|name, _| name.starts_with('$'));
        }
        is_reference
    });
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
            // A property may have the name of a keyword.
            (
                json!({"type": "object", "properties": {"default": {"type": "array"},
                    "properties": {"type": "array"}}}),
                Some(json!({"type": "object", "properties": {
                    "default": {"type": "array", "items": {}},
                    "properties": {"type": "array", "items": {}}}})),
            ),
            // Next to a reference, nothing is read.
            (
                json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object",
                    "properties": {"b": {"$ref": "#/$defs/a"}}, "required": ["b"]}}}),
                Some(json!({"type": "object", "$defs": {"a": {"type": "object",
                    "properties": {"b": {"$ref": "#/$defs/a"}}, "required": ["b"]}},
                    "properties": {"b": {"$ref": "#/$defs/a"}}, "required": ["b"]})),
            ),
            (json!({"$ref": "https://example.org/schema"}), None),
        ] {
            let parameters = Parameters::of(given.as_object().unwrap());
            let found = parameters.completed(true).map(|found| found.schema.value());
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
            (
                json!({"properties": {"x": {}}, "not": {"required": ["y"]}, "enum": [{}]}),
                json!({"properties": {"x": {}}}),
            ),
            // Combined by nested combinations.
            (
                json!({"allOf": [{"properties": {"id": {}}}, {"anyOf": [of("a"), of("b")]}]}),
                json!({"properties": {"id": {}, "kind": kinds("anyOf"), "a": {}, "b": {}},
                    "required": ["kind"]}),
            ),
            (
                json!({"$ref": "#/$defs/x", "$defs": {"x": {"$ref": "#/$defs/y"},
                    "y": {"$ref": "#/$defs/a", "additionalProperties": false}, "a": of("a")}}),
                json!({"properties": {"kind": {"const": "a"}, "a": {}}, "required": ["kind", "a"],
                    "additionalProperties": false, "$defs": {"x": {"$ref": "#/$defs/y"},
                    "y": {"$ref": "#/$defs/a", "additionalProperties": false}, "a": of("a")}}),
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

    #[test]
    fn references_become_bare() {
        for (given, expected) in [
            (
                json!({"type": "object", "properties": {
                    "a": {"$ref": "#/$defs/b", "description": "d", "default": 1},
                    "$ref": {"type": "string", "description": "d"},
                    "default": {"items": {"$ref": "#/$defs/b", "title": "t"}}},
                    "anyOf": [{"$ref": "#/$defs/b", "required": ["a"]}],
                    "examples": [{"$ref": "x", "description": "d"}],
                    "$defs": {"b": {"allOf": [{"$ref": "#/$defs/c", "$comment": "c", "type": "object"}]},
                        "c": {"const": {"$ref": "x", "a": 1}}}}),
                json!({"type": "object", "properties": {
                    "a": {"$ref": "#/$defs/b"},
                    "$ref": {"type": "string", "description": "d"},
                    "default": {"items": {"$ref": "#/$defs/b"}}},
                    "anyOf": [{"$ref": "#/$defs/b"}],
                    "examples": [{"$ref": "x", "description": "d"}],
                    "$defs": {"b": {"allOf": [{"$ref": "#/$defs/c", "$comment": "c"}]},
                        "c": {"const": {"$ref": "x", "a": 1}}}}),
            ),
            (
                json!({"$ref": "#/$defs/a", "title": "t", "$defs": {"a": {}}}),
                json!({"$ref": "#/$defs/a", "$defs": {"a": {}}}),
            ),
            (json!(true), json!(true)),
        ] {
            let mut schema = given.clone();
            make_references_bare(&mut schema);
            assert_eq!(schema, expected, "{given}");
        }
    }

    #[test]
    fn schemas_that_cannot_be_flattened_stay() {
        let many = |count: usize, variant: Value| vec![variant; count];
        let big = json!({"properties": {"a": {"description": "x".repeat(100_000)}}});
        let far = (0..3).map(|at| {
            let next = json!({"$ref": format!("#/$defs/d{}", at + 1)});
            (format!("d{at}"), json!({"anyOf": many(100, next)}))
        });
        let far: Map<String, Value> = far.chain([("d3".to_owned(), json!({}))]).collect();
        for given in [
            json!({"$ref": "https://example.org/schema"}),
            json!({"$ref": "#/$defs/none", "$defs": {}}),
            json!({"$ref": "#"}),
            json!({"anyOf": [{"properties": {"a": {}}},
                {"properties": {"b": {"$ref": "#/anyOf/0/properties/a"}}}]}),
            json!({"anyOf": [{"$defs": {"a": {}}, "properties": {"a": {"$ref": "#/anyOf/0/$defs/a"}}}]}),
            json!({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}),
            json!({"anyOf": many(101, json!({"properties": {"a": {}}}))}),
            json!({"anyOf": many(100, json!({"$ref": "#/$defs/b"})), "$defs": {"b": big}}),
            json!({"anyOf": many(20, big)}),
            json!({"$ref": "#/$defs/d0", "$defs": far}),
        ] {
            let Value::Object(members) = given.clone() else {
                panic!("{given}");
            };
            let mut schema = members.clone();
            complete_schema(&mut schema, false);
            let mut expected = members;
            expected.insert("type".to_owned(), json!("object"));
            expected.insert("properties".to_owned(), json!({}));
            assert!(schema == expected, "{:.200}", given.to_string());
        }
    }
}

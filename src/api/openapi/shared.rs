//! Moves responses and parameters that several operations share to `components`, and replaces
//! copies of a schema by references to it.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::operations;

pub(super) fn extract(document: &mut Value) {
    refer_to_schemas(&mut document["components"]["schemas"]);
    for kind in ["responses", "parameters"] {
        let mut counts: HashMap<Value, usize> = HashMap::new();
        for (_, item) in operations(&mut document["paths"]).flat_map(|o| items(o, kind)) {
            *counts.entry(item.clone()).or_default() += 1;
        }
        counts.retain(|_, count| *count > 1);
        let mut names: HashMap<Value, String> = HashMap::new();
        let mut components = Map::new();
        for (id, item) in operations(&mut document["paths"]).flat_map(|o| items(o, kind)) {
            if !counts.contains_key(item) {
                continue;
            }
            let name = names.entry(item.clone()).or_insert_with(|| {
                let mut name = name_of(item);
                if components.contains_key(&name) {
                    name = format!("{name}.{id}");
                }
                components.insert(name.clone(), item.clone());
                name
            });
            *item = json!({"$ref": format!("#/components/{kind}/{name}")});
        }
        document["components"][kind] = components.into();
    }
}

/// Returns the responses or parameters of an operation, each with the operation's id.
fn items<'a>(operation: &'a mut Value, kind: &str) -> Vec<(String, &'a mut Value)> {
    let id = operation["operationId"].as_str().unwrap_or_default();
    let id = id.to_owned();
    let items: Vec<&mut Value> = match operation.get_mut(kind) {
        Some(Value::Object(members)) => members.values_mut().collect(),
        Some(Value::Array(items)) => items.iter_mut().collect(),
        _ => Vec::new(),
    };
    items.into_iter().map(|item| (id.clone(), item)).collect()
}

/// Returns a parameter's own name, or the schema of a response and its first error code.
fn name_of(item: &Value) -> String {
    if let Some(name) = item["name"].as_str() {
        return name.to_owned();
    }
    let schema = &item["content"]["application/json"]["schema"]["$ref"];
    let schema = schema.as_str().and_then(|path| path.rsplit('/').next());
    let description = item["description"].as_str().unwrap_or_default();
    let code = description.split([',', ';', ' ']).next();
    let parts: Vec<&str> = schema.into_iter().chain(code).collect();
    parts.join(".")
}

/// Replaces the copies of schemas that generic types contain by references.
fn refer_to_schemas(schemas: &mut Value) {
    let members = schemas.as_object_mut().into_iter().flatten();
    let named: HashMap<Value, String> = members
        .filter(|(_, schema)| schema.get("properties").is_some())
        .map(|(name, schema)| (schema.clone(), name.clone()))
        .collect();
    for schema in schemas.as_object_mut().into_iter().flatten() {
        refer_within(schema.1, &named);
    }
}

fn refer_within(schema: &mut Value, named: &HashMap<Value, String>) {
    let parts: Vec<&mut Value> = match schema {
        Value::Object(members) => members.values_mut().collect(),
        Value::Array(items) => items.iter_mut().collect(),
        _ => return,
    };
    for part in parts {
        match named.get(part) {
            Some(name) => *part = json!({"$ref": format!("#/components/schemas/{name}")}),
            None => refer_within(part, named),
        }
    }
}

//! Settings that differ from the built-in ones, for `gensvc config check`.

use serde::Serialize;
use toml::{Table, Value};

use super::environment::Overrides;
use crate::domain::settings;

/// Settings whose values are never shown.
const SECRETS: [&str; 2] = ["database.url", "metrics.token"];

/// A setting that differs from the built-in one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The key, such as `server.bind`.
    pub key: String,
    /// `(set)` for a secret.
    pub value: String,
    /// The built-in value, if there is one.
    pub built_in: Option<String>,
    /// The environment variable that set it; `None`: the file.
    pub variable: Option<String>,
}

/// Returns the leaves of `tree` that differ from `defaults`.
pub(super) fn between(defaults: &Table, tree: &Table, overrides: &Overrides<'_>) -> Vec<Change> {
    let mut found = Vec::new();
    collect("", Some(defaults), tree, overrides, &mut found);
    found
}

fn collect(
    prefix: &str,
    defaults: Option<&Table>,
    tree: &Table,
    overrides: &Overrides<'_>,
    found: &mut Vec<Change>,
) {
    for (name, value) in tree {
        let key = format!("{prefix}{name}");
        let built_in = defaults.and_then(|table| table.get(name));
        if let Value::Table(inner) = value {
            let defaults = built_in.and_then(Value::as_table);
            collect(&format!("{key}."), defaults, inner, overrides, found);
            continue;
        }
        if let (Value::Array(models), Some(Value::Array(known))) = (value, built_in) {
            for model in models.iter().filter_map(Value::as_table) {
                let Some(Value::String(id)) = model.get("id") else {
                    continue;
                };
                let is_it = |known: &&Value| known.get("id") == model.get("id");
                if let Some(Value::Table(known)) = known.iter().find(is_it) {
                    let prefix = format!("{key}.{id}.");
                    collect(&prefix, Some(known), model, overrides, found);
                }
            }
        }
        let shown = shown(value);
        // An environment variable is text, whatever type the built-in value has.
        if built_in.is_some_and(|built_in| {
            built_in == value || self::shown(built_in) == shown || have_same_ids(built_in, value)
        }) {
            continue;
        }
        let built_in = built_in.map(self::shown);
        let is_secret = SECRETS.contains(&key.as_str()) || shown.contains('@');
        found.push(Change {
            variable: overrides.variable(&key).map(str::to_owned),
            value: if is_secret { "(set)".to_owned() } else { shown },
            built_in,
            key,
        });
    }
}

/// Whether both are lists of models with the same ids, in any order.
fn have_same_ids(one: &Value, other: &Value) -> bool {
    let ids = |list: &Value| -> Option<Vec<String>> {
        let id = |item: &Value| Some(item.get("id")?.as_str()?.to_owned());
        let mut ids: Vec<String> = list.as_array()?.iter().map(id).collect::<Option<_>>()?;
        ids.sort();
        Some(ids)
    };
    ids(one).is_some_and(|found| !found.is_empty() && ids(other) == Some(found))
}

/// Formats a value like a variable. Models are shown by name, because each is a table.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().any(Value::is_table) => {
            let name = |item: &Value| match item.get("id").and_then(Value::as_str) {
                Some(id) => id.to_owned(),
                None => shown(item),
            };
            items.iter().map(name).collect::<Vec<_>>().join(",")
        }
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(","),
        Value::Table(table) => {
            let entries = table
                .iter()
                .map(|(key, value)| format!("{key} = {}", shown(value)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        scalar => settings::shown(scalar),
    }
}

//! How a model of text counts images.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use toml::{Table, Value};

use super::super::ConfigError;
use crate::domain::{
    catalogue::Vision,
    settings::{read, read_table, shown},
};

/// `kind` of `limits.images`.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Patch32,
    Patch28,
    Tile512,
    Flat,
}

/// The key of an error is relative to the value.
pub(super) fn vision(value: Value) -> Result<Vision, ConfigError> {
    let Value::Table(mut table) = value else {
        let problem = format!("is {}: must be a table with keys", shown(&value));
        return Err(ConfigError::new("", problem));
    };
    let Some(kind) = table.remove("kind") else {
        let problem = "is missing: write one of patch32, patch28, tile512, flat";
        return Err(ConfigError::new("kind", problem));
    };
    let kind = read(kind).map_err(|error: ConfigError| error.under("kind"))?;
    Ok(match kind {
        Kind::Patch32 => Vision::Patch32(strict(table)?),
        Kind::Patch28 => Vision::Patch28(strict(table)?),
        Kind::Tile512 => Vision::Tile512(strict(table)?),
        Kind::Flat => Vision::Flat(strict(table)?),
    })
}

/// Refuses unknown keys, which the type itself does not: its schema would refuse `kind` then.
fn strict<T: DeserializeOwned + Serialize>(table: Table) -> Result<T, ConfigError> {
    let given: Vec<String> = table.keys().cloned().collect();
    let value: T = read_table(Some(Value::Table(table)))?;
    let known = Table::try_from(&value).unwrap_or_default();
    match given.into_iter().find(|key| !known.contains_key(key)) {
        None => Ok(value),
        Some(key) => {
            let known: Vec<&str> = known.keys().map(String::as_str).collect();
            let known = known.join(", ");
            let problem = format!("is not a known key: remove it or use one of {known}");
            Err(ConfigError::new(key, problem))
        }
    }
}

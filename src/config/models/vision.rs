//! How a model of text counts images.

use serde::Deserialize;
use toml::Value;

use super::super::ConfigError;
use crate::domain::{
    catalogue::Vision,
    settings::{read, shown},
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
    let rest = Value::Table(table);
    Ok(match kind {
        Kind::Patch32 => Vision::Patch32(read(rest)?),
        Kind::Patch28 => Vision::Patch28(read(rest)?),
        Kind::Tile512 => Vision::Tile512(read(rest)?),
        Kind::Flat => Vision::Flat(read(rest)?),
    })
}

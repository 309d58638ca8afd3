//! Settings: values that an operator writes, and errors that say what to mend.
//!
//! Here: how a value of TOML becomes a type by its `Deserialize`, and readers that many types
//! need; below: the types that check a range themselves ([`range`]), and the error. Not here:
//! which settings there are, and where they come from.

mod error;
pub mod range;
mod reader;

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeOwned},
};
use toml::{Table, Value};

pub use error::{ConfigError, quoted, shown};

/// Reads a value by its type. Text that spells a number, a boolean or a list counts as one,
/// because the environment knows only text. The key of an error is relative to the value.
pub fn read<T: DeserializeOwned>(value: Value) -> Result<T, ConfigError> {
    T::deserialize(reader::Reader(value))
}

/// As [`read`], of a table that may be left out, which is then an empty one.
pub fn read_table<T: DeserializeOwned>(value: Option<Value>) -> Result<T, ConfigError> {
    read(value.unwrap_or_else(|| Value::Table(Table::new())))
}

/// A word that must be one of `names`. The error is that of an enum with these names.
pub fn word<'de, D: Deserializer<'de>>(
    source: D,
    names: &'static [&'static str],
) -> Result<String, D::Error> {
    let text = String::deserialize(source)?;
    if names.contains(&text.as_str()) {
        return Ok(text);
    }
    Err(de::Error::unknown_variant(&text, names))
}

/// Text, where `""` takes the setting away.
pub fn blank_is_none<'de, D: Deserializer<'de>>(source: D) -> Result<Option<String>, D::Error> {
    String::deserialize(source).map(|text| Some(text).filter(|text| !text.is_empty()))
}

/// As [`word`], where `""` takes the setting away.
pub fn word_or_blank<'de, D: Deserializer<'de>>(
    source: D,
    names: &'static [&'static str],
) -> Result<Option<String>, D::Error> {
    match blank_is_none(source)? {
        Some(text) if !names.contains(&text.as_str()) => {
            Err(de::Error::unknown_variant(&text, names))
        }
        text => Ok(text),
    }
}

//! Settings: values written by an operator, and errors that say how to fix them.
//!
//! How a TOML value becomes a type by its `Deserialize`, and deserializers that many types share;
//! below, types that check their own range ([`range`]) and the error. Which settings exist, and
//! where they come from, is in `config`.

mod error;
pub mod range;
mod reader;

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeOwned},
};
use toml::{Table, Value};

pub use error::{ConfigError, MISSING, quoted, shown};

/// Deserializes a value. Text that spells a number, boolean or list counts as one, because
/// environment variables are text. The key of an error is relative to the value.
pub fn read<T: DeserializeOwned>(value: Value) -> Result<T, ConfigError> {
    T::deserialize(reader::Reader(value))
}

/// Like [`read`], for an optional table, which defaults to an empty one.
pub fn read_table<T: DeserializeOwned>(value: Option<Value>) -> Result<T, ConfigError> {
    read(value.unwrap_or_else(|| Value::Table(Table::new())))
}

/// A string that must be one of `names`; the error is that of an enum with these variants.
pub fn word<'de, T: From<String>, D: Deserializer<'de>>(
    source: D,
    names: &'static [&'static str],
) -> Result<T, D::Error> {
    let text = String::deserialize(source)?;
    if names.contains(&text.as_str()) {
        return Ok(text.into());
    }
    Err(de::Error::unknown_variant(&text, names))
}

/// Text; `""` unsets the setting.
pub fn blank_is_none<'de, D: Deserializer<'de>>(source: D) -> Result<Option<String>, D::Error> {
    String::deserialize(source).map(|text| Some(text).filter(|text| !text.is_empty()))
}

/// Like [`word`]; `""` unsets the setting.
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

/// Defines deserializers of settings that must be one of a few words, by [`word`] or
/// [`word_or_blank`].
macro_rules! words {
    ($($name:ident -> $type:ty = $read:ident($($word:expr),+);)+) => {$(
        fn $name<'de, D: serde::Deserializer<'de>>(source: D) -> Result<$type, D::Error> {
            crate::domain::settings::$read(source, &[$($word),+])
        }
    )+};
}

pub(crate) use words;

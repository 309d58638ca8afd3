//! Settings: values written by an operator, and errors that say how to fix them.
//!
//! Converts TOML values by `Deserialize`, with deserializers that many types share. Submodules:
//! types that check their own range ([`range`]) and the error. `config` defines the settings and
//! their sources.

pub mod range;
mod reader;

use std::fmt::Display;

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeOwned},
};
use toml::{Table, Value};

/// Deserializes a value. Text that spells a number, boolean or list is converted, because
/// environment variables are text. The key of an error is relative to the value.
pub fn read<T: DeserializeOwned>(value: Value) -> Result<T, ConfigError> {
    T::deserialize(reader::Reader(value))
}

/// Like [`read`], for an optional table, which defaults to an empty one.
pub fn read_table<T: DeserializeOwned>(value: Option<Value>) -> Result<T, ConfigError> {
    read(value.unwrap_or_else(|| Value::Table(Table::new())))
}

/// Reads a string that must be one of `names`; the error is that of an enum with these variants.
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

/// Reads text; `""` unsets the setting.
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

/// Maximum characters of an invalid value in an error.
const SHOWN: usize = 80;
/// The problem of a required key that is absent.
pub const MISSING: &str = "is missing: add it";

/// A configuration error: one sentence that names the key (or the variable that set it), the
/// invalid value unless it is a secret, and the fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} {problem}")]
pub struct ConfigError {
    /// The key with its tables.
    pub key: String,
    /// The problem; it continues the sentence that the key begins.
    pub problem: String,
}

impl ConfigError {
    /// Creates an error. `problem` continues the sentence that `key` begins.
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            problem: problem.into(),
        }
    }

    /// Returns the error for a value inside the table `path`.
    #[must_use]
    pub fn under(mut self, path: &str) -> Self {
        let dot = if self.key.is_empty() || self.key.starts_with('[') {
            ""
        } else {
            "."
        };
        self.key = format!("{path}{dot}{}", self.key);
        self
    }
}

/// Converts errors of serde to sentences that continue after the key.
impl de::Error for ConfigError {
    fn custom<T: Display>(problem: T) -> Self {
        Self::new("", problem.to_string())
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let known = expected.join(", ");
        let problem = format!("is not a known key: remove it or use one of {known}");
        Self::new(field, problem)
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let known = expected.join(", ");
        Self::custom(format_args!(
            "is {}: must be one of {known}",
            quoted(variant)
        ))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(field, MISSING)
    }
}

/// Formats an invalid value for an error: text is quoted, and truncated if long.
pub fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(flag) => flag.to_string(),
        Value::Datetime(time) => time.to_string(),
        Value::Array(_) => "a list".to_owned(),
        Value::Table(_) => "a table".to_owned(),
    }
}

/// Quotes text, truncated if long.
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

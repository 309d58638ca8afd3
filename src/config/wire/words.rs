//! Readers of words that a vendor knows.

use super::super::ConfigError;
use crate::domain::settings::quoted;

/// A setting that `""` takes away.
pub(super) fn blank_is_none(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// That a word is one of those that the vendor knows.
pub(super) fn known(key: &str, value: Option<&str>, names: &[&str]) -> Result<(), ConfigError> {
    match value {
        Some(value) if !names.contains(&value) => Err(ConfigError::new(
            key,
            format!("is {}: must be one of {}", quoted(value), names.join(", ")),
        )),
        _ => Ok(()),
    }
}

/// A word that the vendor knows, or its default.
pub(super) fn word(
    key: &str,
    raw: Option<String>,
    default: &str,
    names: &[&str],
) -> Result<String, ConfigError> {
    known(key, raw.as_deref(), names)?;
    Ok(raw.unwrap_or_else(|| default.to_owned()))
}

/// As [`word`]; `""` sends nothing.
pub(super) fn blankable(
    key: &str,
    raw: Option<String>,
    default: &str,
    names: &[&str],
) -> Result<Option<String>, ConfigError> {
    if raw.as_deref() == Some("") {
        return Ok(None);
    }
    word(key, raw, default, names).map(Some)
}

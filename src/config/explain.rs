//! Failures of the `config` crate and of serde, turned into our sentences.
//!
//! Here: key first, then the problem, and no value that may be a secret in the wrong place.
//! Not here: what the readers of single values say; that is a sentence already.

use serde::Deserialize;

use super::ConfigError;

/// A failure of the `config` crate or of serde as one of ours.
pub(super) fn explain(error: config::ConfigError) -> ConfigError {
    let error = in_our_terms(error);
    // The crate leaves out the dot that follows an index.
    let key = error.key.replace(']', "].").replace("].[", "][");
    let key = key.replace("]..", "].").trim_end_matches('.').to_owned();
    ConfigError { key, ..error }
}

fn in_our_terms(error: config::ConfigError) -> ConfigError {
    use config::ConfigError as Raw;
    match error {
        Raw::At { error, key, .. } => in_words(key.unwrap_or_default(), &message_of(&error)),
        Raw::Type {
            unexpected,
            expected,
            key,
            ..
        } => ConfigError::new(
            key.unwrap_or_default(),
            format!("is {unexpected}: must be {expected}"),
        ),
        Raw::NotFound(key) => ConfigError::new(key, "is missing: add it"),
        other => in_words(String::new(), &message_of(&other)),
    }
}

fn message_of(error: &config::ConfigError) -> String {
    match error {
        config::ConfigError::At { error, .. } => message_of(error),
        other => other.to_string(),
    }
}

/// serde's own phrases, turned into sentences that read on after the key.
fn in_words(key: String, message: &str) -> ConfigError {
    if let Some((name, rest)) = message
        .strip_prefix("unknown field `")
        .and_then(|rest| rest.split_once('`'))
    {
        let known = rest
            .trim_start_matches(", expected ")
            .trim_start_matches("one of ")
            .replace('`', "")
            .replace(" or ", ", ");
        let path = if key.is_empty() {
            name.to_owned()
        } else {
            format!("{key}.{name}")
        };
        return ConfigError::new(
            path,
            format!("is not a known key: remove it or use one of {known}"),
        );
    }
    if let Some((found, expected)) = message
        .strip_prefix("invalid type: ")
        .and_then(|rest| rest.split_once(", expected "))
    {
        // Text in place of a table may be a secret in the wrong place.
        let found = if found.starts_with("string") {
            "text (not shown)"
        } else {
            found
        };
        return ConfigError::new(key, format!("is {found}: must be {expected}"));
    }
    ConfigError::new(key, message)
}

/// Reads a table that was taken out of its tree; without it, an empty one. The key of an
/// error is relative to the table.
pub(super) fn table<T: Default + for<'de> Deserialize<'de>>(
    value: Option<config::Value>,
) -> Result<T, ConfigError> {
    value.map_or_else(
        || Ok(T::default()),
        |value| value.try_deserialize().map_err(explain),
    )
}

//! What the types of models have in common.

use serde::de::DeserializeOwned;
use toml::Value;

use super::super::ConfigError;
use crate::domain::settings::{quoted, read_table};

/// Reads the table `key` of a model; without it, an empty one.
pub(super) fn table<T: DeserializeOwned>(
    key: &str,
    value: Option<Value>,
) -> Result<T, ConfigError> {
    read_table(value).map_err(|error| error.under(key))
}

/// That a price is missing, and what to do.
pub(super) fn unpriced(key: &str, mend: &str) -> ConfigError {
    let problem = format!(
        "is missing: a model without a complete price is not served; \
         {mend} or set enabled = false"
    );
    ConfigError::new(key, problem)
}

/// That a list holds something, and nothing twice.
pub(super) fn check_list<T: PartialEq + AsRef<str>>(
    key: &str,
    items: &[T],
) -> Result<(), ConfigError> {
    if items.is_empty() {
        return Err(ConfigError::new(key, "is empty: name at least one"));
    }
    let twice = (1..items.len()).find(|&n| items[..n].contains(&items[n]));
    match twice {
        None => Ok(()),
        Some(n) => {
            let problem = format!("holds {} twice: keep one", quoted(items[n].as_ref()));
            Err(ConfigError::new(key, problem))
        }
    }
}

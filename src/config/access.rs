//! How a provider is reached: its base URL and its key.
//!
//! Adapters add the version path to the URL.

use std::collections::BTreeMap;

use url::Url;

use super::{ConfigError, environment::Overrides, net::http_url};

/// Checks that these are names of variables, not their values: names are shown, keys never. A blank
/// name is allowed.
pub(super) fn check_names(names: &[String]) -> Result<(), &'static str> {
    let is_name = |name: &String| {
        name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && !name.starts_with(|first: char| first.is_ascii_digit())
    };
    if names.iter().all(is_name) {
        return Ok(());
    }
    Err("is not the name of a variable (its value is not shown): \
         must be letters, digits and _, such as \"OPENAI_API_KEY\"")
}

/// The vendor's variable overrides the files, and a `GENSVC__` variable overrides both.
pub(super) fn base_url(
    path: &str,
    vendor_variable: Option<&str>,
    in_files: Option<&str>,
    env: &BTreeMap<String, String>,
    overrides: &Overrides<'_>,
) -> Result<Option<Url>, ConfigError> {
    let key = format!("{path}.base_url");
    let vendor = vendor_variable
        .filter(|_| overrides.variable(&key).is_none())
        .and_then(|variable| Some((variable, env.get(variable)?.trim())))
        .filter(|(_, value)| !value.is_empty());
    let (key, text) = match (vendor, in_files) {
        (Some((variable, value)), _) => (format!("{variable} ({key})"), value),
        (None, Some(text)) if !text.is_empty() => (key, text),
        (None, _) => return Ok(None),
    };
    let url = http_url(text).map_err(|problem| ConfigError::new(key, problem))?;
    Ok(Some(url))
}

/// The value of the first variable that is set and not blank.
pub(super) fn value<'a>(
    names: &[String],
    env: &'a BTreeMap<String, String>,
) -> Result<Option<&'a str>, ConfigError> {
    let found = names
        .iter()
        .filter_map(|name| Some((name, env.get(name)?.trim())))
        .find(|(_, value)| !value.is_empty());
    let Some((name, value)) = found else {
        return Ok(None);
    };
    if !value.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(ConfigError::new(
            name,
            "holds a space or another character that no key has (its value is not shown): \
             set it to the bare key",
        ));
    }
    Ok(Some(value))
}

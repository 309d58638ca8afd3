//! Readers of addresses: URLs, origins, networks.
//!
//! Errors never repeat a password in an address.

use std::net::SocketAddr;

use secrecy::SecretString;
use serde::{Deserialize, Deserializer, de::Error as _};
use url::Url;

use crate::domain::{party::Network, settings::quoted};

pub(super) fn address<'de, D: Deserializer<'de>>(source: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(source)?;
    text.parse().map_err(|_| {
        D::Error::custom(format_args!(
            "is {}: must be an IP address and a port, such as \"127.0.0.1:8080\"",
            quoted(&text)
        ))
    })
}

/// Reads the database's URL. Errors never repeat the value, which contains a password.
pub(super) fn database_url<'de, D: Deserializer<'de>>(
    source: D,
) -> Result<Option<SecretString>, D::Error> {
    let problem = "is not a Postgres URL (its value is not shown): \
                   must begin with postgres:// or postgresql://";
    let text = String::deserialize(source).map_err(|_| D::Error::custom(problem))?;
    if text.is_empty() {
        return Ok(None);
    }
    // The store parses the rest, which is not a standard URL if there are several hosts.
    match text.split_once("://") {
        Some(("postgres" | "postgresql", _)) => Ok(Some(text.into())),
        _ => Err(D::Error::custom(problem)),
    }
}

pub(super) fn public_url<'de, D: Deserializer<'de>>(source: D) -> Result<Option<String>, D::Error> {
    let url = optional_url(source)?;
    Ok(url.map(|url| url.as_str().trim_end_matches('/').to_owned()))
}

/// Reads a URL; `""` is `None`.
pub(super) fn optional_url<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Url>, D::Error> {
    let text = String::deserialize(source)?;
    if text.is_empty() {
        return Ok(None);
    }
    http_url(&text).map(Some).map_err(D::Error::custom)
}

/// Parses an absolute http(s) URL without query, fragment or credentials. The error repeats no URL
/// that may contain a password.
pub(super) fn http_url(text: &str) -> Result<Url, String> {
    let must = "must be an http or https URL, such as \"https://api.example.com\"";
    // Even an invalid URL may contain a password before an `@`.
    let bad = if text.contains('@') {
        "not shown, as it may hold a password".to_owned()
    } else {
        quoted(text)
    };
    let url = Url::parse(text).map_err(|_| format!("is {bad}: {must}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(format!("is {bad}: {must}"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("holds a user or password (not shown): take it out".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("holds a query or fragment (not shown): take out what follows the path".into());
    }
    Ok(url)
}

pub(super) fn origins<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<String>, D::Error> {
    let items = Vec::<String>::deserialize(source)?;
    if items.iter().any(|item| item == "*") {
        return if items.len() == 1 {
            Ok(items)
        } else {
            Err(D::Error::custom(
                "holds \"*\" and other origins: \"*\" must be the only one",
            ))
        };
    }
    items
        .iter()
        .map(|item| match http_url(item) {
            Ok(url) if url.path() == "/" => Ok(url.origin().ascii_serialization()),
            _ => Err(D::Error::custom(format!(
                "holds {}: must be origins, such as \"https://app.example.com\", or \"*\"",
                quoted(item)
            ))),
        })
        .collect()
}

pub(super) fn networks<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<Network>, D::Error> {
    let items = Vec::<String>::deserialize(source)?;
    items
        .iter()
        .map(|item| {
            Network::parse(item).ok_or_else(|| {
                D::Error::custom(format!(
                    "holds {}: must be addresses or networks, such as \"10.0.0.0/8\" or \"::1\"",
                    quoted(item)
                ))
            })
        })
        .collect()
}

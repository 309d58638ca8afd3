//! `[metrics]` and `[traces]`: what the operator can see of the server.

use std::time::Duration;

use config::{Value, ValueKind};
use secrecy::SecretString;
use serde::{Deserialize, Deserializer, de::Error as _};
use url::Url;

use super::{
    net::http_url,
    read::{Read, seconds, shown, strict},
};

/// `[metrics]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a section with keys")]
pub struct Metrics {
    /// What GET /metrics asks for as bearer token. `None`: it answers to this machine only.
    #[serde(deserialize_with = "token")]
    pub token: Option<SecretString>,
    /// Between two self-audits, 0 to 86,400 s; zero: none.
    #[serde(rename = "audit_seconds", deserialize_with = "seconds::<0, 86_400, _>")]
    pub audit_every: Duration,
}

/// `[traces]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a section with keys")]
pub struct Traces {
    /// The collector, without the path of its signal. `None`: no traces.
    #[serde(deserialize_with = "endpoint")]
    pub otlp_endpoint: Option<Url>,
    /// The name of this service in traces.
    #[serde(deserialize_with = "service_name")]
    pub service_name: String,
    /// The part of the requests that is traced, 0 to 1.
    #[serde(deserialize_with = "ratio")]
    pub sample_ratio: f64,
}

/// Never repeats the value.
fn token<'de, D: Deserializer<'de>>(source: D) -> Result<Option<SecretString>, D::Error> {
    let problem = "is no token (its value is not shown): must be text without spaces";
    let text =
        String::read(Value::deserialize(source)?.kind).map_err(|_| D::Error::custom(problem))?;
    if text.is_empty() {
        return Ok(None);
    }
    if !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(D::Error::custom(problem));
    }
    Ok(Some(text.into()))
}

fn endpoint<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Url>, D::Error> {
    let text: String = strict(source)?;
    if text.is_empty() {
        return Ok(None);
    }
    http_url(&text).map(Some).map_err(D::Error::custom)
}

fn service_name<'de, D: Deserializer<'de>>(source: D) -> Result<String, D::Error> {
    let text: String = strict(source)?;
    if text.is_empty() {
        return Err(D::Error::custom(
            "is empty: must be a name, such as \"gensvc\"",
        ));
    }
    Ok(text)
}

fn ratio<'de, D: Deserializer<'de>>(source: D) -> Result<f64, D::Error> {
    let kind = Value::deserialize(source)?.kind;
    let number = match &kind {
        ValueKind::Float(number) => Some(*number),
        ValueKind::I64(0) => Some(0.0),
        ValueKind::I64(1) => Some(1.0),
        ValueKind::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|n| (0.0..=1.0).contains(n)).ok_or_else(|| {
        let bad = shown(&kind);
        D::Error::custom(format!(
            "is {bad}: must be a number from 0 to 1, such as 0.1"
        ))
    })
}

//! `[metrics]` and `[traces]`.

use secrecy::SecretString;
use serde::{Deserialize, Deserializer, de::Error as _};
use toml::Value;
use url::Url;

use super::net::optional_url;
use crate::domain::settings::{
    self,
    range::{Bounded, Seconds},
    shown,
};

/// `[metrics]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Metrics {
    /// Bearer token of GET /metrics. `None`: it answers on `port` only.
    #[serde(deserialize_with = "token")]
    pub token: Option<SecretString>,
    /// Port on 127.0.0.1, without a token; 0 takes a free one.
    pub port: Bounded<u16, 0, 65_535>,
    /// Time between two self-audits; zero: none.
    pub audit_seconds: Seconds<0, 86_400>,
}

/// `[traces]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Traces {
    /// The collector, without the path of its signal. `None`: no traces.
    #[serde(deserialize_with = "optional_url")]
    pub otlp_endpoint: Option<Url>,
    /// The name of this service in traces.
    #[serde(deserialize_with = "service_name")]
    pub service_name: String,
    /// Fraction of requests that are traced, 0 to 1.
    #[serde(deserialize_with = "ratio")]
    pub sample_ratio: f64,
}

/// Never repeats the value.
fn token<'de, D: Deserializer<'de>>(source: D) -> Result<Option<SecretString>, D::Error> {
    let problem = "is no token (its value is not shown): must be text without spaces";
    let text = String::deserialize(source).map_err(|_| D::Error::custom(problem))?;
    if text.is_empty() {
        return Ok(None);
    }
    if !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(D::Error::custom(problem));
    }
    Ok(Some(text.into()))
}

fn service_name<'de, D: Deserializer<'de>>(source: D) -> Result<String, D::Error> {
    let text = String::deserialize(source)?;
    if text.is_empty() {
        return Err(D::Error::custom(
            "is empty: must be a name, such as \"gensvc\"",
        ));
    }
    Ok(text)
}

fn ratio<'de, D: Deserializer<'de>>(source: D) -> Result<f64, D::Error> {
    let value = Value::deserialize(source)?;
    settings::read(value.clone())
        .ok()
        .filter(|number: &f64| (0.0..=1.0).contains(number))
        .ok_or_else(|| {
            let bad = shown(&value);
            D::Error::custom(format_args!(
                "is {bad}: must be a number from 0 to 1, such as 0.1"
            ))
        })
}

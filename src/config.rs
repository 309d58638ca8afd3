//! The configuration: built-in defaults, a file, and environment variables.
//!
//! Vendors (`catalogue::vendor`) and the process environment are passed in. The rest of the program
//! gets values, not the configuration. Every error is one sentence that names the key, the invalid
//! value and the fix.

mod changes;
mod environment;
mod lifecycle;
pub mod load;
pub mod media;
pub mod models;
mod net;
pub mod providers;
mod reload;
mod routes;
pub mod sections;
pub mod summary;

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};

use serde::Deserialize;
use toml::Table;

pub use changes::Change;
pub use media::{Media, S3};
pub use models::ModelConfig;
pub use providers::{Provider, Status};
pub use sections::LogFormat;
pub use summary::Summary;

pub use crate::domain::settings::ConfigError;

use crate::{
    catalogue::{Catalogue, Route, vendor::Vendor},
    domain::generation::Modality,
};

/// A valid configuration. Its `Debug` output has no secret.
#[derive(Debug, Clone, Deserialize)]
pub struct Config {
    pub server: sections::Server,
    pub database: sections::Database,
    pub data: sections::Data,
    pub media: Media,
    pub retention: sections::Retention,
    pub log: sections::Log,
    pub jobs: sections::Jobs,
    pub submissions: sections::Submissions,
    pub webhooks: sections::Webhooks,
    pub sessions: sections::Sessions,
    pub idempotency: sections::Idempotency,
    pub defaults: sections::Defaults,
    pub pricing: sections::Pricing,
    pub credits: sections::Holds,
    pub demo: sections::Demo,
    pub metrics: sections::Metrics,
    pub traces: sections::Traces,
    /// Empty once they are resolved.
    #[serde(rename = "providers")]
    raw_providers: BTreeMap<String, providers::RawProvider>,
    /// Empty once they are resolved.
    #[serde(rename = "routes", default)]
    raw_routes: BTreeMap<String, routes::RawRoute>,
    #[serde(skip)]
    routes: Vec<Route>,
    /// Every configured provider, by name, whether enabled or not.
    #[serde(skip)]
    pub providers: Vec<Provider>,
    /// Warnings to log at startup, one sentence each.
    #[serde(skip)]
    pub warnings: Vec<String>,
    /// The settings that differ from the built-in ones.
    #[serde(skip)]
    pub changes: Vec<Change>,
    #[serde(skip)]
    origin: Origin,
}

/// The source of a configuration, and its settings.
#[derive(Clone, Default)]
struct Origin {
    file: Option<PathBuf>,
    env: BTreeMap<String, String>,
    vendors: Vec<&'static Vendor>,
    /// All layers, merged.
    tree: Table,
}

/// Hides the members, which contain secrets.
impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Config {
    pub fn enabled_providers(&self) -> Vec<Provider> {
        let enabled = |provider: &&Provider| provider.status == Status::Enabled;
        self.providers.iter().filter(enabled).cloned().collect()
    }

    /// Returns the catalogue of every enabled model of every enabled provider, and the routes.
    pub fn catalogue(&self) -> Catalogue {
        self.catalogue_of(|provider| provider.status == Status::Enabled)
    }

    /// Returns the catalogue of every enabled model of all providers, whether enabled or not.
    pub fn full_catalogue(&self) -> Catalogue {
        self.catalogue_of(|_| true)
    }

    /// Returns the catalogue of every enabled model of the providers that `is_served` selects.
    fn catalogue_of(&self, is_served: impl Fn(&Provider) -> bool) -> Catalogue {
        let served = self.providers.iter().filter(|provider| is_served(provider));
        let models = served.flat_map(|provider| provider.models.iter().map(|m| m.model.clone()));
        let preference = self
            .defaults
            .lists()
            .map(|(modality, names)| (modality, names.to_vec()));
        let disabled = self.providers.iter();
        let disabled = disabled.filter(|provider| !is_served(provider));
        let reason = |provider: &Provider| match provider.status {
            Status::Enabled => "added after startup: restart the server".to_owned(),
            _ => provider.reason(),
        };
        let disabled = disabled.map(|provider| (provider.name.clone(), reason(provider)));
        Catalogue::new(
            models.collect(),
            preference.into(),
            disabled.collect(),
            self.routes.clone(),
        )
    }

    /// Returns the URL of the server for clients, without a trailing slash: `server.public_url`,
    /// else `http://` and `server.bind`.
    pub fn public_url(&self) -> String {
        self.public_url_at(self.server.bind)
    }

    /// As [`Self::public_url`], with the bound address, since `server.bind` may have port 0. An
    /// unspecified address becomes loopback.
    pub fn public_url_at(&self, bound: SocketAddr) -> String {
        if let Some(url) = &self.server.public_url {
            return url.clone();
        }
        let ip = match bound.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        format!("http://{}", SocketAddr::new(ip, bound.port()))
    }

    /// Returns the default provider and model by type: `text -> openai/gpt-6-luna`.
    pub fn routes(&self) -> String {
        let catalogue = self.catalogue();
        let route = |modality: Modality| {
            let provider = catalogue.default_provider(modality)?;
            let model = catalogue.default_model(provider, modality)?;
            Some(format!("{modality} -> {provider}/{}", model.id))
        };
        let routes = Modality::ALL.iter().filter_map(|&modality| route(modality));
        routes.collect::<Vec<_>>().join(", ")
    }

    /// Refuses a configuration without an enabled provider. Only `serve` needs one.
    pub fn check_servable(&self) -> Result<(), ConfigError> {
        if self
            .providers
            .iter()
            .any(|provider| provider.status == Status::Enabled)
        {
            return Ok(());
        }
        let reasons: Vec<String> = self
            .providers
            .iter()
            .map(|provider| format!("{} ({})", provider.name, provider.reason()))
            .collect();
        Err(ConfigError::new(
            "no provider",
            format!(
                "is enabled: {}; set the key of one or \
                 GENSVC__PROVIDERS__SANDBOX__ENABLED=true",
                reasons.join(", ")
            ),
        ))
    }

    /// Returns the output of `gensvc config check`, which has no secret.
    pub const fn summary(&self) -> Summary<'_> {
        Summary(self)
    }
}

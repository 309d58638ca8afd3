//! What `gensvc config check` prints: for people by Display, for scripts by Serialize.
//!
//! Here: what is served, what is not and why. Not here: any secret; keys appear by the name
//! of their variable only.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::{Config, Provider, Status};
use crate::domain::generation::Modality;

/// The configuration in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Whether `serve` would start: at least one provider is enabled.
    pub servable: bool,
    /// Address to listen on.
    pub bind: String,
    /// The URL for clients.
    pub public_url: String,
    /// `configured`, or `private` for a Postgres of its own.
    pub database: &'static str,
    /// Where local files are.
    pub data_dir: String,
    /// `local` or `s3`.
    pub media: &'static str,
    /// Who serves requests that name no provider, by type.
    pub default_providers: BTreeMap<Modality, Option<String>>,
    /// Every configured provider, by name.
    pub providers: Vec<ProviderSummary>,
    /// What is odd, though no error.
    pub warnings: Vec<String>,
}

/// A provider in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProviderSummary {
    /// Its name in the API.
    pub name: String,
    /// Its kind in the config.
    pub kind: &'static str,
    /// Whether it is served.
    pub enabled: bool,
    /// Why, or why not.
    pub reason: String,
    /// Variables that may hold its key; empty when it needs none.
    pub api_key_env: Vec<String>,
    pub base_url: Option<String>,
    /// The models for requests that name none, by type.
    pub default_models: BTreeMap<Modality, String>,
    /// Ids of its enabled models.
    pub models: Vec<String>,
}

impl Summary {
    pub(super) fn of(config: &Config) -> Self {
        let catalogue = config.catalogue();
        Self {
            servable: config.check_servable().is_ok(),
            bind: config.server.bind.to_string(),
            public_url: config.public_url(),
            database: match config.database_url() {
                Some(_) => "configured",
                None => "private",
            },
            data_dir: config.data.dir.display().to_string(),
            media: match config.media.s3 {
                Some(_) => "s3",
                None => "local",
            },
            default_providers: Modality::ALL
                .iter()
                .map(|&m| (m, catalogue.default_provider(m).map(str::to_owned)))
                .collect(),
            providers: config.providers().iter().map(provider).collect(),
            warnings: config.warnings().to_vec(),
        }
    }
}

fn provider(provider: &Provider) -> ProviderSummary {
    let mut default_models = BTreeMap::new();
    for model in &provider.models {
        let first = !default_models.contains_key(&model.modality());
        if model.default || first {
            default_models.insert(model.modality(), model.id.clone());
        }
    }
    ProviderSummary {
        name: provider.name.clone(),
        kind: provider.vendor.kind,
        enabled: provider.status == Status::Enabled,
        reason: provider.reason(),
        api_key_env: provider.api_key_env.clone(),
        base_url: provider.base_url.as_ref().map(ToString::to_string),
        default_models,
        models: provider.models.iter().map(|m| m.id.clone()).collect(),
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = match self.database {
            "private" => format!("a private Postgres under {}", self.data_dir),
            _ => "Postgres as configured".to_owned(),
        };
        writeln!(f, "listens on    {}", self.bind)?;
        writeln!(f, "public URL    {}", self.public_url)?;
        writeln!(f, "database      {database}")?;
        writeln!(f, "data          {}", self.data_dir)?;
        writeln!(f, "media         {}", self.media)?;
        for (modality, default) in &self.default_providers {
            let default = default.as_deref().unwrap_or("nobody");
            writeln!(f, "{:<14}{default}", format!("{modality} default"))?;
        }
        writeln!(f, "providers")?;
        for provider in &self.providers {
            let mark = if provider.enabled { "on " } else { "off" };
            write!(f, "  {mark} {}: {}", provider.name, provider.reason)?;
            if provider.enabled {
                let count = provider.models.len();
                write!(f, "; models: {count}")?;
                for (modality, model) in &provider.default_models {
                    write!(f, ", {modality} default {model}")?;
                }
            }
            writeln!(f)?;
        }
        if !self.servable {
            writeln!(f, "no provider is enabled: serve would refuse to start")?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        Ok(())
    }
}

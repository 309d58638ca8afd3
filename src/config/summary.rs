//! The output of `gensvc config check`: text by `Display`, JSON by `Serialize`. It has no secret.

use std::{collections::BTreeMap, fmt};

use chrono::NaiveDate;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Change, Config, ModelConfig, Provider, Status};
use crate::domain::{generation::Modality, pricing::Prices};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Whether `serve` would start: at least one provider is enabled.
    pub servable: bool,
    pub bind: String,
    pub public_url: String,
    /// `configured`, or `private` for a Postgres of its own.
    pub database: &'static str,
    pub data_dir: String,
    /// `local` or `s3`.
    pub media: &'static str,
    /// Days after which generations are deleted; 0 keeps them for ever.
    pub retention_days: u32,
    pub limits: LimitsSummary,
    /// Default provider of each type.
    pub default_providers: BTreeMap<Modality, Option<String>>,
    pub providers: Vec<ProviderSummary>,
    pub changes: Vec<Change>,
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LimitsSummary {
    pub max_body_bytes: usize,
    pub max_sdk_body_bytes: usize,
    pub max_connections: usize,
    pub max_requests: usize,
    pub max_jobs_per_account: i32,
    pub memory_bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProviderSummary {
    pub name: String,
    pub kind: &'static str,
    pub enabled: bool,
    /// Why it is enabled or not.
    pub reason: String,
    /// Variables that may hold its key; empty when it needs none.
    pub api_key_env: Vec<String>,
    pub base_url: Option<String>,
    /// Default model of each type.
    pub default_models: BTreeMap<Modality, String>,
    /// Enabled models.
    pub models: Vec<ModelSummary>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelSummary {
    pub id: String,
    pub r#type: Modality,
    /// The day from which they apply, if they have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_from: Option<NaiveDate>,
    /// Credits, markup included.
    pub prices: Prices,
    /// Prices from later days on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub later_prices: Vec<(NaiveDate, Prices)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retiring: Option<NaiveDate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
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
            retention_days: *config.retention.days,
            limits: LimitsSummary {
                max_body_bytes: *config.server.max_body_bytes,
                max_sdk_body_bytes: *config.server.max_sdk_body_bytes,
                max_connections: *config.server.max_connections,
                max_requests: *config.server.max_requests,
                max_jobs_per_account: *config.jobs.max_per_account,
                memory_bytes: config.server.memory_bytes(),
            },
            default_providers: Modality::ALL
                .iter()
                .map(|&m| (m, catalogue.default_provider(m).map(str::to_owned)))
                .collect(),
            providers: config.providers().iter().map(provider).collect(),
            changes: config.changes().to_vec(),
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
        models: provider.models.iter().map(model).collect(),
    }
}

fn model(model: &ModelConfig) -> ModelSummary {
    ModelSummary {
        id: model.id.clone(),
        r#type: model.modality(),
        valid_from: model.valid_from,
        prices: model.prices(),
        later_prices: model
            .later
            .iter()
            .map(|(day, kind)| (*day, kind.prices()))
            .collect(),
        retiring: model.retiring,
        replacement: model.replacement.clone(),
        aliases: model.aliases.clone(),
    }
}

/// Prices in one line: `input_per_million 10, output_per_million 50`.
fn priced(prices: &Prices) -> String {
    let mut words = Vec::new();
    flatten("", &json!(prices), &mut words);
    words.join(", ")
}

fn flatten(name: &str, value: &Value, words: &mut Vec<String>) {
    let inner = |key: &str| match name {
        "" => key.to_owned(),
        _ => format!("{name}.{key}"),
    };
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                flatten(&inner(key), value, words);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                flatten(&inner(&(index + 1).to_string()), value, words);
            }
        }
        Value::Null => {}
        Value::String(text) => words.push(format!("{name} {text}")),
        other => words.push(format!("{name} {other}")),
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = match self.database {
            "private" => format!("a private Postgres under {}", self.data_dir),
            _ => "Postgres as configured".to_owned(),
        };
        writeln!(f, "The configuration is valid.")?;
        writeln!(f, "listens on    {}", self.bind)?;
        writeln!(f, "public URL    {}", self.public_url)?;
        writeln!(f, "database      {database}")?;
        writeln!(f, "data          {}", self.data_dir)?;
        writeln!(f, "media         {}", self.media)?;
        let retention = match self.retention_days {
            0 => "for ever".to_owned(),
            days => format!("{days} days"),
        };
        writeln!(f, "kept          {retention}")?;
        let limits = &self.limits;
        writeln!(
            f,
            "limits        {} connections, {} requests, {} jobs per account, bodies of {} bytes, \
             of SDKs {}, {} MiB of memory for requests",
            limits.max_connections,
            limits.max_requests,
            limits.max_jobs_per_account,
            limits.max_body_bytes,
            limits.max_sdk_body_bytes,
            limits.memory_bytes >> 20,
        )?;
        for (modality, default) in &self.default_providers {
            let default = default.as_deref().unwrap_or("none");
            writeln!(f, "{:<14}{default}", format!("{modality} default"))?;
        }
        writeln!(f, "providers")?;
        for provider in &self.providers {
            let mark = if provider.enabled { "on " } else { "off" };
            write!(f, "  {mark} {}: {}", provider.name, provider.reason)?;
            if provider.enabled {
                writeln!(f)?;
                for model in &provider.models {
                    let is_default = provider.default_models.get(&model.r#type) == Some(&model.id);
                    let default = if is_default { " (default)" } else { "" };
                    let (kind, id) = (model.r#type, &model.id);
                    write!(f, "      {kind} {id}{default}: {}", priced(&model.prices))?;
                    if let Some(day) = model.valid_from {
                        write!(f, " (from {day})")?;
                    }
                    for (day, prices) in &model.later_prices {
                        write!(f, "; from {day}: {}", priced(prices))?;
                    }
                    if let Some(day) = model.retiring {
                        write!(f, "; retires on {day}")?;
                    }
                    if let Some(replacement) = &model.replacement {
                        write!(f, ", replaced by {replacement}")?;
                    }
                    if !model.aliases.is_empty() {
                        write!(f, "; also {}", model.aliases.join(", "))?;
                    }
                    writeln!(f)?;
                }
            } else {
                writeln!(f)?;
            }
        }
        if self.changes.is_empty() {
            writeln!(f, "All settings are the built-in ones.")?;
        } else {
            writeln!(f, "differs from the built-in settings")?;
        }
        for change in &self.changes {
            let (key, value) = (&change.key, &change.value);
            write!(f, "  {key} = {value}")?;
            let origin = change.variable.as_deref().unwrap_or("the file");
            match &change.built_in {
                Some(built_in) if built_in.is_empty() => writeln!(f, " (by {origin})")?,
                Some(built_in) => writeln!(f, " (by {origin}; built-in: {built_in})")?,
                None => writeln!(f, " (by {origin})")?,
            }
        }
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        Ok(())
    }
}

//! The output of `gensvc config check`: text by `Display`, JSON by `Serialize`. Contains no secret.

use std::{collections::BTreeMap, fmt};

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use url::Url;

use super::{Config, ModelConfig, Provider, Status};
use crate::domain::{generation::Modality, pricing::Prices};

/// A configuration whose settings are shown.
#[derive(Debug)]
pub struct Summary<'a>(pub(super) &'a Config);

impl Serialize for Summary<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(config) = self;
        let (server, catalogue) = (&config.server, config.catalogue());
        let modalities = Modality::ALL.iter();
        let defaults = modalities.map(|&modality| (modality, catalogue.default_provider(modality)));
        let summary = json!({
            "servable": config.check_servable().is_ok(),
            "bind": server.bind.to_string(),
            "public_url": config.public_url(),
            "database": if config.database.url.is_some() { "configured" } else { "private" },
            "data_dir": config.data.dir.display().to_string(),
            "media": media(config),
            "retention_days": *config.retention.days,
            "limits": {
                "max_body_bytes": *server.max_body_bytes,
                "max_sdk_body_bytes": *server.max_sdk_body_bytes,
                "max_connections": *server.max_connections,
                "max_requests": *server.max_requests,
                "max_jobs_per_account": *config.jobs.max_per_account,
                "memory_bytes": server.memory_bytes(),
            },
            "default_providers": defaults.collect::<BTreeMap<_, _>>(),
            "providers": config.providers.iter().map(provider).collect::<Vec<_>>(),
            "changes": config.changes,
            "warnings": config.warnings,
        });
        summary.serialize(serializer)
    }
}

/// Returns `local` or `s3`.
fn media(config: &Config) -> &'static str {
    match config.media.s3 {
        Some(_) => "s3",
        None => "local",
    }
}

fn provider(provider: &Provider) -> Value {
    json!({
        "name": provider.name,
        "kind": provider.vendor.kind,
        "enabled": provider.status == Status::Enabled,
        "reason": provider.reason(),
        "api_key_env": provider.api_key_env,
        "base_url": provider.base_url.as_ref().map(Url::as_str),
        "default_models": default_models(provider),
        "models": provider.models.iter().map(model).collect::<Vec<_>>(),
    })
}

fn default_models(provider: &Provider) -> BTreeMap<Modality, &str> {
    let mut defaults = BTreeMap::new();
    for model in &provider.models {
        if model.default || !defaults.contains_key(&model.modality()) {
            defaults.insert(model.modality(), model.id.as_str());
        }
    }
    defaults
}

/// Returns a model without absent members.
fn model(model: &ModelConfig) -> Value {
    let later = model.later.iter();
    let later = later.map(|(day, (kind, _))| (*day, kind.prices()));
    let mut summary = json!({
        "id": model.id,
        "type": model.modality(),
        "valid_from": model.valid_from,
        "prices": model.prices(),
        "later_prices": later.collect::<Vec<_>>(),
        "retiring": model.retiring,
        "replacement": model.replacement,
        "aliases": model.aliases,
    });
    if let Value::Object(members) = &mut summary {
        members.retain(|_, value| !value.is_null() && *value != json!([]));
    }
    summary
}

/// Formats prices in one line: `input_per_million 10, output_per_million 50`.
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

/// Formats a size exactly, such as `256 KiB`.
fn bytes(size: usize) -> String {
    match size {
        size if size > 0 && size.trailing_zeros() >= 20 => format!("{} MiB", size >> 20),
        size if size > 0 && size.trailing_zeros() >= 10 => format!("{} KiB", size >> 10),
        size => format!("{size} bytes"),
    }
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(config) = self;
        let (server, data) = (&config.server, config.data.dir.display());
        let database = match config.database.url {
            None => format!("a private Postgres under {data}"),
            Some(_) => "Postgres as configured".to_owned(),
        };
        writeln!(f, "The configuration is valid.")?;
        writeln!(
            f,
            "This is the configuration of this command's environment, not of a running server."
        )?;
        writeln!(f, "listens on    {}", server.bind)?;
        writeln!(f, "public URL    {}", config.public_url())?;
        writeln!(f, "database      {database}")?;
        writeln!(f, "data          {data}")?;
        writeln!(f, "media         {}", media(config))?;
        let retention = match *config.retention.days {
            0 => "no limit".to_owned(),
            days => format!("{days} days"),
        };
        writeln!(f, "retention     {retention}")?;
        writeln!(
            f,
            "limits        {} connections, {} requests, {} jobs per account, bodies of {}, \
             on SDK routes {}, {} of memory for requests",
            *server.max_connections,
            *server.max_requests,
            *config.jobs.max_per_account,
            bytes(*server.max_body_bytes),
            bytes(*server.max_sdk_body_bytes),
            bytes(server.memory_bytes()),
        )?;
        let catalogue = config.catalogue();
        for &modality in Modality::ALL {
            let default = catalogue.default_provider(modality).unwrap_or("none");
            writeln!(f, "{:<14}{default}", format!("{modality} default"))?;
        }
        writeln!(f, "providers")?;
        for provider in &config.providers {
            let enabled = provider.status == Status::Enabled;
            let mark = if enabled { "on " } else { "off" };
            writeln!(f, "  {mark} {}: {}", provider.name, provider.reason())?;
            if !enabled {
                continue;
            }
            let defaults = default_models(provider);
            for model in &provider.models {
                let (kind, id) = (model.modality(), model.id.as_str());
                let is_default = defaults.get(&kind) == Some(&id);
                let default = if is_default { " (default)" } else { "" };
                write!(f, "      {kind} {id}{default}: {}", priced(&model.prices()))?;
                if let Some(day) = model.valid_from {
                    write!(f, " (from {day})")?;
                }
                for (day, (kind, _)) in &model.later {
                    write!(f, "; from {day}: {}", priced(&kind.prices()))?;
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
        }
        if config.changes.is_empty() {
            writeln!(f, "All settings are the built-in ones.")?;
        } else {
            writeln!(f, "differs from the built-in settings")?;
        }
        for change in &config.changes {
            let (key, value) = (&change.key, &change.value);
            write!(f, "  {key} = {value}")?;
            let origin = change.variable.as_deref().unwrap_or("the file");
            match &change.built_in {
                Some(built_in) if built_in.is_empty() => writeln!(f, " (by {origin})")?,
                Some(built_in) => writeln!(f, " (by {origin}; built-in: {built_in})")?,
                None => writeln!(f, " (by {origin})")?,
            }
        }
        for warning in &config.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        Ok(())
    }
}

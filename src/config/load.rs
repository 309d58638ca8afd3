//! The layers: built-in defaults, a file, the environment.
//!
//! Here: which layer wins and which environment variable means which key. Not here: what
//! the values mean. The environment comes as a parameter, so that a test needs no process
//! of its own and the binary reads `std::env` once.

use std::{collections::BTreeMap, path::Path};

use config::{File, FileFormat, Value, ValueKind};

use super::{Config, ConfigError, Provider, Raw, explain::explain, providers};
use crate::domain::generation::Modality;

/// The defaults, and the documentation of every key.
pub const DEFAULT_TOML: &str = include_str!("../../config/default.toml");

/// What every variable that names a key begins with.
const PREFIX: &str = "GENSVC__";

/// Variables with a name of their own. A `GENSVC__` name for the same key wins over them.
const SHORT_NAMES: &[(&str, &str)] = &[
    ("DATABASE_URL", "database.url"),
    ("GENSVC_BIND", "server.bind"),
    ("GENSVC_DATA_DIR", "data.dir"),
    ("GENSVC_LOG", "log.filter"),
    ("GENSVC_LOG_FORMAT", "log.format"),
    ("GENSVC_PUBLIC_URL", "server.public_url"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "traces.otlp_endpoint"),
    ("OTEL_SERVICE_NAME", "traces.service_name"),
];

/// Keys of a provider that a variable can set. Models are tables and need a file.
const PROVIDER_KEYS: &[&str] = &[
    "api_key_env",
    "base_url",
    "base_url_env",
    "enabled",
    "kind",
    "max_concurrent",
    "timeout_seconds",
];

/// The environment's part: by key, the variable and its value.
#[derive(Default)]
pub(super) struct Overrides<'a>(BTreeMap<String, (&'a str, &'a str)>);

impl Overrides<'_> {
    /// The variable that set a key.
    pub(super) fn variable(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|(variable, _)| *variable)
    }

    /// The same error, naming the variable where one set the key.
    fn name(&self, error: ConfigError) -> ConfigError {
        match self.variable(&error.key) {
            Some(variable) => {
                let key = format!("{variable} ({})", error.key);
                ConfigError { key, ..error }
            }
            None => error,
        }
    }
}

impl Config {
    /// Loads and validates. Later layers win: the built-in `config/default.toml`, then
    /// `file`, then `env`. `env` also holds the providers' keys and base URLs.
    pub fn load(file: Option<&Path>, env: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let mut layers = vec![parse("config/default.toml", DEFAULT_TOML)?];
        if let Some(path) = file {
            let name = format!("config file {}", path.display());
            let text = std::fs::read_to_string(path).map_err(|error| {
                let problem = format!("cannot be read ({error}): check the path of --config");
                ConfigError::new(name.clone(), problem)
            })?;
            layers.push(parse(&name, &text)?);
        }
        let files = merge(&layers, &Overrides::default())?;
        let overrides = overrides(env, &layers[0].cache, &files)?;
        let merged = merge(&layers, &overrides)?;
        let raw: Raw = merged
            .try_deserialize()
            .map_err(|error| overrides.name(explain(error)))?;
        Self::build(raw, env, &overrides).map_err(|error| overrides.name(error))
    }

    fn build(
        raw: Raw,
        env: &BTreeMap<String, String>,
        overrides: &Overrides<'_>,
    ) -> Result<Self, ConfigError> {
        let mut warnings = Vec::new();
        let providers = providers::resolve(raw.providers, env, overrides, &mut warnings)?;
        for (modality, wanted) in raw.defaults.lists() {
            check_names(modality, wanted, &providers)?;
        }
        let media = raw.media.resolve(env)?;
        if raw.server.bind.ip().is_unspecified() && raw.server.public_url.is_none() {
            warnings.push(format!(
                "server.public_url is empty and server.bind is {}, an address that no client \
                 can use: set GENSVC_PUBLIC_URL",
                raw.server.bind
            ));
        }
        Ok(Self {
            server: raw.server,
            database: raw.database,
            data: raw.data,
            media,
            retention: raw.retention,
            log: raw.log,
            jobs: raw.jobs,
            submissions: raw.submissions,
            webhooks: raw.webhooks,
            sessions: raw.sessions,
            idempotency: raw.idempotency,
            defaults: raw.defaults,
            demo: raw.demo,
            metrics: raw.metrics,
            traces: raw.traces,
            providers,
            warnings,
        })
    }
}

/// That a list of `[defaults]` names providers.
fn check_names(
    modality: Modality,
    wanted: &[String],
    providers: &[Provider],
) -> Result<(), ConfigError> {
    let names: Vec<&str> = providers.iter().map(|p| p.name.as_str()).collect();
    let Some(unknown) = wanted.iter().find(|name| !names.contains(&name.as_str())) else {
        return Ok(());
    };
    let problem = format!(
        "names {unknown:?}, which is no provider: use {}",
        names.join(", ")
    );
    Err(ConfigError::new(format!("defaults.{modality}"), problem))
}

/// One file, parsed alone, so that an error can name it.
fn parse(name: &str, text: &str) -> Result<config::Config, ConfigError> {
    config::Config::builder()
        .add_source(File::from_str(text, FileFormat::Toml))
        .build()
        .map_err(|error| not_toml(name, &error))
}

/// One tree of all layers. Tables are merged key by key; a list replaces a list.
fn merge(layers: &[config::Config], overrides: &Overrides<'_>) -> Result<Value, ConfigError> {
    let mut builder = config::Config::builder();
    for layer in layers {
        builder = builder.add_source(layer.clone());
    }
    for (key, (variable, value)) in &overrides.0 {
        builder = builder
            .set_override(key, *value)
            .map_err(|_| ConfigError::new(*variable, "is not the name of a setting: remove it"))?;
    }
    let tree = builder.build().map_err(explain)?;
    Ok(tree.cache)
}

/// The parser shows the line itself, which may hold a secret; only place and reason stay.
fn not_toml(name: &str, error: &config::ConfigError) -> ConfigError {
    let text = match error {
        config::ConfigError::FileParse { cause, .. } => cause.to_string(),
        other => other.to_string(),
    };
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let place = lines.next().unwrap_or_default();
    let place = place.strip_prefix("TOML parse error at ").unwrap_or(place);
    let reason = lines.next_back().unwrap_or("it cannot be parsed");
    ConfigError::new(name, format!("is not valid TOML: {place}: {reason}"))
}

fn overrides<'a>(
    env: &'a BTreeMap<String, String>,
    defaults: &Value,
    files: &Value,
) -> Result<Overrides<'a>, ConfigError> {
    let mut found = Overrides::default();
    for (variable, key) in SHORT_NAMES {
        // A blank variable is one that somebody meant to unset.
        if let Some(value) = env.get(*variable).filter(|value| !value.trim().is_empty()) {
            found.0.insert((*key).to_owned(), (*variable, value));
        }
    }
    for (variable, value) in env {
        if let Some(rest) = variable.strip_prefix(PREFIX) {
            let key = rest.to_lowercase().replace("__", ".");
            check_known(variable, &key, defaults, files)?;
            found.0.insert(key, (variable, value));
        }
    }
    Ok(found)
}

/// Refuses a variable that would set nothing: a typing error must not be ignored silently.
fn check_known(
    variable: &str,
    key: &str,
    defaults: &Value,
    files: &Value,
) -> Result<(), ConfigError> {
    let refuse = |problem: String| Err(ConfigError::new(variable, problem));
    let path: Vec<&str> = key.split('.').collect();
    match path.as_slice() {
        ["providers", name, setting] => {
            let names = keys(files, &["providers"]);
            if !names.iter().any(|known| known == name) {
                let names = names.join(", ");
                return refuse(format!(
                    "names {name:?}, which is no provider of the configuration: use one of {names}"
                ));
            }
            if *setting == "models" {
                return refuse(
                    "cannot be set by a variable: list the models in a config file".to_owned(),
                );
            }
            if !PROVIDER_KEYS.contains(setting) {
                let known = PROVIDER_KEYS.join(", ");
                return refuse(format!(
                    "is not a known setting: a provider has {known}; remove it or mend the name"
                ));
            }
            Ok(())
        }
        // A section, or a table in one.
        [table @ .., setting] if !table.is_empty() && table[0] != "providers" => {
            let known = keys(defaults, table);
            if known.is_empty() {
                return refuse(no_section(defaults));
            }
            let table = table.join(".");
            if !known.iter().any(|name| name == setting) {
                return refuse(format!(
                    "is not a known setting: [{table}] has {}; remove it or mend the name",
                    known.join(", ")
                ));
            }
            let inner = keys(defaults, &path);
            if inner.is_empty() {
                return Ok(());
            }
            refuse(format!(
                "names a table: set one of its keys, {variable}__KEY with KEY = {}",
                inner.join(", ").to_uppercase()
            ))
        }
        _ => refuse(no_section(defaults)),
    }
}

fn no_section(defaults: &Value) -> String {
    format!(
        "is not a known setting: write GENSVC__SECTION__KEY or GENSVC__PROVIDERS__NAME__KEY, \
         the sections are {}",
        keys(defaults, &[]).join(", ")
    )
}

/// The keys of the table at `path`, sorted; none when there is no table.
fn keys(tree: &Value, path: &[&str]) -> Vec<String> {
    let ValueKind::Table(table) = &tree.kind else {
        return Vec::new();
    };
    match path.split_first() {
        Some((first, rest)) => table.get(*first).map_or_else(Vec::new, |v| keys(v, rest)),
        None => {
            let mut names: Vec<String> = table.keys().cloned().collect();
            names.sort();
            names
        }
    }
}

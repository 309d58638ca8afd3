//! The layers: built-in defaults, a file, the environment.
//!
//! The environment is a parameter, so that tests need no process of their own.

use std::{collections::BTreeMap, path::Path};

use toml::{Table, Value};

use super::{
    Config, ConfigError, Provider, changes, lifecycle, merge, models::markup::check_margin,
    origin::Origin, providers, routes,
};
use crate::domain::{generation::Modality, settings, vendor::Vendor};

/// The defaults, with the documentation of every key.
pub const DEFAULT_TOML: &str = include_str!("../../config/default.toml");

/// Prefix of all variables of this program.
const OURS: &str = "GENSVC_";
/// Prefix of variables that name a key.
const PREFIX: &str = "GENSVC__";
/// Variables of the command line: those of its client, and the configuration file.
const COMMAND_LINE: [&str; 3] = ["GENSVC_API_KEY", "GENSVC_BASE_URL", "GENSVC_CONFIG"];
/// Names that other programs use for a setting, without the prefix, and the name here.
const ELSEWHERE: [(&str, &str); 6] = [
    ("ADDR", "GENSVC_BIND"),
    ("DB_URL", "DATABASE_URL"),
    ("HOST", "GENSVC_BIND"),
    ("LISTEN", "GENSVC_BIND"),
    ("LOG_LEVEL", "GENSVC_LOG"),
    ("PORT", "GENSVC_BIND"),
];

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
    "markup",
    "max_concurrent",
    "timeout_seconds",
];

/// Settings of the environment: by key, the variable and its value.
#[derive(Default)]
pub(super) struct Overrides<'a>(BTreeMap<String, (&'a str, &'a str)>);

impl Overrides<'_> {
    /// The variable that set a key.
    pub(super) fn variable(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|(variable, _)| *variable)
    }

    /// Adds the variable that set the key to an error.
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
    /// `file`, then `env`. `env` also holds the providers' keys and base URLs. A provider is
    /// of one of `vendors`.
    pub fn load(
        file: Option<&Path>,
        env: &BTreeMap<String, String>,
        vendors: &[&'static Vendor],
    ) -> Result<Self, ConfigError> {
        let defaults = parse("config/default.toml", DEFAULT_TOML)?;
        let mut tree = defaults.clone();
        if let Some(path) = file {
            let name = format!("config file {}", path.display());
            let text = std::fs::read_to_string(path).map_err(|error| {
                let problem = format!(
                    "cannot be read ({error}): check the path of --config or GENSVC_CONFIG"
                );
                ConfigError::new(name.clone(), problem)
            })?;
            merge::file(&mut tree, parse(&name, &text)?);
        }
        let overrides = overrides(env, &defaults, &tree)?;
        for (key, (_, value)) in &overrides.0 {
            set(&mut tree, key, value);
        }
        let changes = changes::between(&defaults, &tree, &overrides);
        let config: Result<Self, _> = settings::read(Value::Table(tree.clone()));
        let origin = Origin::new(file, env, vendors, tree);
        config
            .and_then(|config| config.resolve(env, &overrides, vendors))
            .map(|config| Self {
                changes,
                origin,
                ..config
            })
            .map_err(|error| overrides.name(error))
    }

    /// Checks related settings, and reads keys and base URLs from the environment.
    pub(super) fn resolve(
        mut self,
        env: &BTreeMap<String, String>,
        overrides: &Overrides<'_>,
        vendors: &[&'static Vendor],
    ) -> Result<Self, ConfigError> {
        let key = || "pricing.markup".to_owned();
        check_margin(key, Some(self.pricing.markup), &mut self.warnings);
        let raw = std::mem::take(&mut self.raw_providers);
        self.providers = providers::resolve(
            raw,
            self.pricing.markup,
            env,
            overrides,
            vendors,
            &mut self.warnings,
        )?;
        lifecycle::resolve(&mut self.providers, &mut self.warnings)?;
        for (modality, wanted) in self.defaults.lists() {
            check_names(modality, wanted, &self.providers)?;
        }
        let raw = std::mem::take(&mut self.raw_routes);
        self.routes = routes::resolve(raw, &self.catalogue(), &self.providers)?;
        self.media.resolve(env)?;
        let serves_sandbox = self.enabled_providers().iter().any(Provider::is_sandbox);
        if self.database.url.is_some() && serves_sandbox {
            self.warnings.push(
                "the sandbox is enabled, and its invented results are charged like others: in \
                 production disable it with GENSVC__PROVIDERS__SANDBOX__ENABLED=false"
                    .to_owned(),
            );
        }
        if self.server.bind.ip().is_unspecified() && self.server.public_url.is_none() {
            self.warnings.push(format!(
                "server.public_url is empty and server.bind is {}, an address that no client \
                 can use: set GENSVC_PUBLIC_URL",
                self.server.bind
            ));
        }
        Ok(self)
    }
}

/// Checks that a list of `[defaults]` names providers.
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

/// Parses a file. The error has the position and the reason, but not the line, which may hold a
/// secret.
fn parse(name: &str, text: &str) -> Result<Table, ConfigError> {
    text.parse().map_err(|error: toml::de::Error| {
        let start = error.span().map_or(0, |span| span.start);
        let before = text.get(..start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        let reason = error.message().replace('\n', ", ");
        let problem = format!("is not valid TOML: line {line}, column {column}: {reason}");
        ConfigError::new(name, problem)
    })
}

/// Sets one key. If its parent is not a table, reading that fails later.
fn set(tree: &mut Table, key: &str, value: &str) {
    match key.split_once('.') {
        None => {
            tree.insert(key.to_owned(), Value::from(value));
        }
        Some((table, key)) => {
            if let Some(Value::Table(table)) = tree.get_mut(table) {
                set(table, key, value);
            }
        }
    }
}

fn overrides<'a>(
    env: &'a BTreeMap<String, String>,
    defaults: &Table,
    files: &Table,
) -> Result<Overrides<'a>, ConfigError> {
    let mut found = Overrides::default();
    for (variable, key) in SHORT_NAMES {
        // A blank variable counts as unset.
        if let Some(value) = env.get(*variable).filter(|value| !value.trim().is_empty()) {
            found.0.insert((*key).to_owned(), (*variable, value));
        }
    }
    for (variable, value) in env {
        if let Some(rest) = variable.strip_prefix(PREFIX) {
            let rest = rest.to_lowercase();
            let path: Vec<&str> = rest.split("__").collect();
            check_known(variable, &path, defaults, files)?;
            found.0.insert(path.join("."), (variable, value));
        } else if variable.starts_with(OURS) && !is_known(variable, env) {
            let nearest = nearest(variable, defaults);
            let problem = format!("is not a known variable: did you mean {nearest}?");
            return Err(ConfigError::new(variable, problem));
        }
    }
    Ok(found)
}

/// Whether a variable has a meaning, here or elsewhere. Kubernetes gives each container of a
/// namespace variables for each service in it, such as `GENSVC_PORT` for one called `gensvc`.
fn is_known(variable: &str, env: &BTreeMap<String, String>) -> bool {
    let of_service = |name: &String| {
        let service = name.strip_suffix("_SERVICE_HOST");
        let rest = service.and_then(|service| variable.strip_prefix(service));
        rest.is_some_and(|rest| rest.starts_with("_SERVICE_") || rest.starts_with("_PORT"))
    };
    SHORT_NAMES.iter().any(|(short, _)| *short == variable)
        || COMMAND_LINE.contains(&variable)
        || env.keys().any(of_service)
}

/// The variable that was probably meant.
fn nearest(wrong: &str, defaults: &Table) -> String {
    // Where a prefix or an underline stands is what people forget.
    let bare = |name: &str| {
        let name = name.strip_prefix(OURS).unwrap_or(name).to_uppercase();
        name.trim_start_matches('_').replace("__", "_")
    };
    let wrong = bare(wrong);
    if let Some((_, here)) = ELSEWHERE.iter().find(|(name, _)| *name == wrong) {
        return (*here).to_owned();
    }
    let short = SHORT_NAMES.iter().map(|(name, _)| (*name).to_owned());
    let mut names: Vec<String> = short.collect();
    variables(defaults, PREFIX, &mut names);
    let likeness = |name: &String| strsim::jaro_winkler(&bare(name), &wrong);
    let nearest = |a: &String, b: &String| likeness(a).total_cmp(&likeness(b));
    // The last of those as near is taken: a short name.
    names.into_iter().rev().max_by(nearest).unwrap_or_default()
}

/// The variables of all keys in a table.
fn variables(table: &Table, prefix: &str, names: &mut Vec<String>) {
    for (key, value) in table {
        let name = format!("{prefix}{}", key.to_uppercase());
        match value {
            Value::Table(inner) => variables(inner, &format!("{name}__"), names),
            _ => names.push(name),
        }
    }
}

/// Refuses a variable that would set nothing: a typing error must not be ignored silently.
fn check_known(
    variable: &str,
    path: &[&str],
    defaults: &Table,
    files: &Table,
) -> Result<(), ConfigError> {
    let refuse = |problem: String| Err(ConfigError::new(variable, problem));
    match path {
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
                    "is not a known setting: a provider has {known}; remove it or correct the name"
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
                    "is not a known setting: [{table}] has {}; remove it or correct the name",
                    known.join(", ")
                ));
            }
            let inner = keys(defaults, path);
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

fn no_section(defaults: &Table) -> String {
    format!(
        "is not a known setting: write GENSVC__SECTION__KEY or GENSVC__PROVIDERS__NAME__KEY, \
         the sections are {}",
        keys(defaults, &[]).join(", ")
    )
}

/// The keys of the table at `path`, sorted; none when there is no table.
fn keys(tree: &Table, path: &[&str]) -> Vec<String> {
    match path.split_first() {
        None => tree.keys().cloned().collect(),
        Some((first, rest)) => match tree.get(*first) {
            Some(Value::Table(table)) => keys(table, rest),
            _ => Vec::new(),
        },
    }
}

//! Loads the layers: built-in defaults, a file, and environment variables.
//!
//! The environment is a parameter, so that tests need no separate process.

use std::{collections::BTreeMap, path::Path};

use toml::{Table, Value};

use super::{
    Config, ConfigError, Origin, Provider, changes,
    environment::{Overrides, overrides},
    lifecycle,
    providers::{self, check_margin},
    routes,
};
use crate::{
    catalogue::vendor::Vendor,
    domain::{generation::Modality, settings},
};

/// The defaults, with the documentation of every key.
pub const DEFAULT_TOML: &str = include_str!("../../config/default.toml");

impl Config {
    /// Loads and validates. Later layers take precedence: the built-in `config/default.toml`, then
    /// `file`, then `env`. `env` also has the providers' keys and base URLs. Each provider must be
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
            merge(&mut tree, parse(&name, &text)?);
        }
        let overrides = overrides(env, &defaults, &tree)?;
        for (key, (_, value)) in &overrides.0 {
            set(&mut tree, key, value);
        }
        let changes = changes::between(&defaults, &tree, &overrides);
        let config: Result<Self, _> = settings::read(Value::Table(tree.clone()));
        let origin = Origin {
            file: file.map(Path::to_owned),
            env: env.clone(),
            vendors: vendors.to_vec(),
            tree,
        };
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
    fn resolve(
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

/// Parses a file. The error has position and reason, but not the line, which may contain a secret.
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

/// Sets one key. If its parent is not a table, reading the parent fails later.
fn set(tree: &mut Table, key: &str, value: &str) {
    let (path, key) = key.rsplit_once('.').unwrap_or_default();
    let mut path = path.split('.');
    let table = path.try_fold(tree, |table, key| table.get_mut(key)?.as_table_mut());
    if let Some(table) = table {
        table.insert(key.to_owned(), Value::from(value));
    }
}

/// Merges a file into the built-in settings: tables by key, models by id; other values are
/// replaced. If a provider has another kind or `replace = true`, only the file's models remain.
fn merge(built_in: &mut Table, mut file: Table) {
    if let Some(Value::Table(providers)) = file.get_mut("providers") {
        for (name, provider) in providers {
            let known = built_in.get("providers").and_then(|all| all.get(name));
            let (Some(Value::Table(known)), Value::Table(provider)) = (known, provider) else {
                continue;
            };
            let is_other = |kind: &Value| Some(kind) != known.get("kind");
            let is_replaced = provider.get("replace") == Some(&Value::Boolean(true))
                || provider.get("kind").is_some_and(is_other);
            if let (false, Some(Value::Array(models)), Some(Value::Array(known))) =
                (is_replaced, provider.get_mut("models"), known.get("models"))
            {
                extend(models, known);
            }
        }
    }
    tables(built_in, file);
}

/// Prepends the built-in prices to a list that begins on a day, because they apply until then. The
/// list stays nested, so that errors use the indexes of the file.
fn keep_present_prices(built_in: &Table, changes: &mut Table) {
    if let (Some(prices @ Value::Array(_)), Some(present @ Value::Table(_))) =
        (changes.get_mut("prices"), built_in.get("prices"))
        && prices
            .get(0)
            .is_some_and(|first| first.get("valid_from").is_some())
    {
        *prices = Value::Array(vec![present.clone(), prices.clone()]);
    }
}

fn tables(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(base)), Value::Table(over)) => tables(base, over),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// Completes the models of a file with the built-in models of the same id, and appends the other
/// built-in models. The file's models keep their indexes, which errors name.
fn extend(models: &mut Vec<Value>, built_in: &[Value]) {
    let mut rest = built_in.to_vec();
    let is_default = |model: &Table| model.get("default") == Some(&Value::Boolean(true));
    let mut defaults = Vec::new();
    for (place, model) in models.iter_mut().enumerate() {
        let Value::Table(model) = model else { continue };
        let is_new_default = is_default(model);
        let is_it = |known: &Value| known.get("id").is_some() && known.get("id") == model.get("id");
        if let Some(known) = rest.iter().position(is_it)
            && let Value::Table(known) = rest.remove(known)
        {
            let mut changes = std::mem::replace(model, known);
            keep_present_prices(model, &mut changes);
            tables(model, changes);
        }
        if is_new_default {
            defaults.push((model.get("type").cloned(), place));
        }
    }
    models.append(&mut rest);
    // A default in the file replaces the built-in default of the same type.
    for (place, model) in models.iter_mut().enumerate() {
        let Value::Table(model) = model else { continue };
        let of_type = || {
            defaults
                .iter()
                .filter(|(of, _)| of.as_ref() == model.get("type"))
        };
        if of_type().count() > 0 && of_type().all(|(_, default)| *default != place) {
            model.remove("default");
        }
    }
}

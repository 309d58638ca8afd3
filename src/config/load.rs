//! The layers: built-in defaults, a file, the environment.
//!
//! The environment is a parameter, so that tests need no process of their own.

use std::{collections::BTreeMap, path::Path};

use toml::{Table, Value};

use super::{
    Config, ConfigError, Provider, changes,
    environment::{Overrides, overrides},
    lifecycle, merge,
    models::markup::check_margin,
    origin::Origin,
    providers, routes,
};
use crate::domain::{generation::Modality, settings, vendor::Vendor};

/// The defaults, with the documentation of every key.
pub const DEFAULT_TOML: &str = include_str!("../../config/default.toml");

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

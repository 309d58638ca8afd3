//! Reloads a changed file: some settings apply at once, others need a restart.

use std::collections::BTreeSet;

use toml::Table;

use super::{Config, ConfigError, Origin, Provider, changes, environment::Overrides};
use crate::catalogue::Catalogue;

/// The catalogue and settings of a changed file.
#[derive(Debug)]
pub struct Reloaded {
    /// The models of the enabled providers.
    pub catalogue: Catalogue,
    /// The enabled providers, with the file's models and earlier ones, which running work may need.
    pub providers: Vec<Provider>,
    pub settings: Table,
    pub needs_restart: Vec<String>,
    pub warnings: Vec<String>,
}

impl Config {
    /// Reads this configuration's file and environment again. `served`: the server's providers.
    pub fn reload(&self, served: &[Provider]) -> Result<Reloaded, ConfigError> {
        let Origin {
            file, env, vendors, ..
        } = &self.origin;
        let new = Self::load(file.as_deref(), env, vendors)?;
        let is_served = |provider: &Provider| served.iter().any(|old| old.name == provider.name);
        let mut providers = served.to_vec();
        for provider in &mut providers {
            if let Some(changed) = new.providers.iter().find(|new| new.name == provider.name) {
                extend(provider, changed)?;
            }
        }
        Ok(Reloaded {
            catalogue: new.catalogue_of(is_served),
            providers,
            needs_restart: fixed_changes(&self.origin.tree, &new.origin.tree),
            settings: new.origin.tree,
            warnings: new.warnings,
        })
    }

    /// All layers, merged.
    pub const fn settings(&self) -> &Table {
        &self.origin.tree
    }
}

/// Adds the models of a changed file to a provider. A model keeps its adapter settings while the
/// server runs, so that a request is planned and sent with the same settings.
fn extend(provider: &mut Provider, changed: &Provider) -> Result<(), ConfigError> {
    if changed.vendor.kind != provider.vendor.kind {
        let problem = "has changed: restart the server to apply it";
        return Err(ConfigError::new(
            format!("providers.{}.kind", provider.name),
            problem,
        ));
    }
    for model in &changed.models {
        let known = provider.models.iter().find(|known| known.id == model.id);
        match known {
            None => provider.models.push(model.clone()),
            Some(known) if format!("{:?}", known.settings) == format!("{:?}", model.settings) => {}
            Some(_) => {
                let problem = format!(
                    "has changed for {}/{}: restart the server to apply it",
                    provider.name, model.id
                );
                return Err(ConfigError::new(format!("{}.wire", model.path), problem));
            }
        }
    }
    Ok(())
}

/// Returns changed settings that are not part of the catalogue.
fn fixed_changes(old: &Table, new: &Table) -> Vec<String> {
    let none = Overrides::default();
    let found = [(old, new), (new, old)].map(|(from, to)| changes::between(from, to, &none));
    let keys = found.into_iter().flatten().map(|change| change.key);
    let fixed: BTreeSet<String> = keys.filter(|key| !is_reloaded(key)).collect();
    fixed.into_iter().collect()
}

/// Whether a setting belongs to the catalogue.
fn is_reloaded(key: &str) -> bool {
    let parts: Vec<&str> = key.split('.').collect();
    matches!(
        parts[..],
        ["pricing" | "defaults" | "routes", ..]
            | ["providers", _, "models" | "markup" | "replace", ..]
    )
}

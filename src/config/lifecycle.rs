//! Replacements and aliases of models, across providers.

use std::collections::{BTreeMap, BTreeSet};

use super::{ConfigError, ModelConfig, Provider, Status};
use crate::domain::settings::quoted;

/// Checks replacements and aliases, and converts replacements to `provider/id`.
pub(super) fn resolve(
    providers: &mut [Provider],
    warnings: &mut Vec<String>,
) -> Result<(), ConfigError> {
    let is_served = |provider: &Provider| provider.status == Status::Enabled;
    let served: BTreeSet<String> = models(providers)
        .filter(|(provider, _)| is_served(provider))
        .map(|(_, model)| model.name())
        .collect();
    let mut replacements = BTreeMap::new();
    for (provider, model) in models(providers) {
        if let Some(replacement) = &model.replacement {
            let key = format!("{}.replacement", model.path);
            let found = replacement_of(providers, provider, model, replacement)
                .map_err(|problem| ConfigError::new(key.clone(), problem))?;
            if is_served(provider) && !served.contains(&found) {
                warnings.push(format!(
                    "{key} is {found}, which is not enabled: once {} is retired, its aliases and \
                     defaults are refused too",
                    model.id
                ));
            }
            replacements.insert(model.name(), found);
        }
    }
    for (_, model) in models(providers) {
        let own = model.name();
        let next = |name: &&String| replacements.get(*name);
        // A loop without this model is reported for the models in it.
        let mut chain = std::iter::successors(next(&&own), next).take(replacements.len());
        if chain.any(|name| *name == own) {
            let problem = "leads back to this model: name one that stays";
            let key = format!("{}.replacement", model.path);
            return Err(ConfigError::new(key, problem));
        }
    }
    check_aliases(providers)?;
    for provider in providers {
        for model in &mut provider.models {
            model.model.replacement = replacements.remove(&model.name());
        }
    }
    Ok(())
}

fn models(providers: &[Provider]) -> impl Iterator<Item = (&Provider, &ModelConfig)> {
    let all = providers.iter();
    all.flat_map(|provider| provider.models.iter().map(move |model| (provider, model)))
}

/// Returns the `provider/id` of a replacement. The error continues the sentence after the key.
fn replacement_of(
    providers: &[Provider],
    own: &Provider,
    model: &ModelConfig,
    wanted: &str,
) -> Result<String, String> {
    let named = quoted(wanted);
    let of_another = wanted.split_once('/').and_then(|(provider, id)| {
        let is_it = |known: &&Provider| known.name == provider && known.has_model(id);
        Some((providers.iter().find(is_it)?, id))
    });
    let of_own = || Some((own, wanted)).filter(|_| own.has_model(wanted));
    let Some((provider, id)) = of_own().or(of_another) else {
        return Err(format!(
            "is {named}, which is no model of the configuration: use the id of a model of {}, or \
             \"provider/id\"",
            own.name
        ));
    };
    // A disabled model has no settings to check.
    let Some(found) = provider.models.iter().find(|known| known.id == id) else {
        return Ok(format!("{}/{id}", provider.name));
    };
    if found.modality() != model.modality() {
        return Err(format!(
            "is {named}, a model for {}: name one for {}",
            found.modality(),
            model.modality()
        ));
    }
    if let (Some(day), Some(own)) = (found.retiring, model.retiring)
        && day <= own
        && found.path != model.path
    {
        return Err(format!(
            "is {named}, which is retired on {day} and must outlast this model, retired on {own}: \
             name another"
        ));
    }
    if let (Some(day), Some(own)) = (found.valid_from, model.retiring)
        && day > own
    {
        return Err(format!(
            "is {named}, which is not served before {day}, after this model is retired on {own}: \
             name another"
        ));
    }
    Ok(found.name())
}

/// Checks that each alias names only one model.
fn check_aliases(providers: &[Provider]) -> Result<(), ConfigError> {
    let mut known: BTreeMap<&str, String> = BTreeMap::new();
    for (_, model) in models(providers) {
        for (index, alias) in model.aliases.iter().enumerate() {
            let is_id = |provider: &&Provider| {
                let rest = alias.strip_prefix(provider.name.as_str());
                let full = rest.and_then(|rest| rest.strip_prefix('/'));
                provider.has_model(alias) || full.is_some_and(|id| provider.has_model(id))
            };
            let taken = match providers.iter().find(is_id) {
                Some(provider) => Some(format!("a model of {}", provider.name)),
                None => known
                    .insert(alias, model.name())
                    .map(|other| format!("an alias of {other}")),
            };
            if let Some(taken) = taken {
                let problem = format!("is {}, already {taken}: choose another", quoted(alias));
                let key = format!("{}.aliases[{index}]", model.path);
                return Err(ConfigError::new(key, problem));
            }
        }
    }
    Ok(())
}

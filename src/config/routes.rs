//! `[routes.NAME]`: lists of models under one name.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{ConfigError, Provider};
use crate::{
    catalogue::{Catalogue, Route},
    domain::{
        generation::Modality,
        route::{MAX_MODELS, Order, PROVIDER, route_name},
        settings::quoted,
    },
    request::Target,
};

/// Maximum characters of a route's name.
const MAX_NAME: usize = 40;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct RawRoute {
    /// Models as `provider/model`.
    models: Vec<String>,
    order: Option<Order>,
}

/// Checks the routes against the enabled models.
pub(super) fn resolve(
    raw: BTreeMap<String, RawRoute>,
    catalogue: &Catalogue,
    providers: &[Provider],
) -> Result<Vec<Route>, ConfigError> {
    if providers.iter().any(|provider| provider.name == PROVIDER) {
        let problem = "is a name for routes: rename the provider";
        return Err(ConfigError::new(format!("providers.{PROVIDER}"), problem));
    }
    raw.into_iter()
        .map(|(name, raw)| route(name, &raw, catalogue, providers))
        .collect()
}

fn route(
    name: String,
    raw: &RawRoute,
    catalogue: &Catalogue,
    providers: &[Provider],
) -> Result<Route, ConfigError> {
    let key = format!("routes.{name}");
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b);
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(allowed) {
        let problem = format!(
            "is no name for a route: use 1 to {MAX_NAME} lower-case letters, digits, -, _ and ."
        );
        return Err(ConfigError::new(key, problem));
    }
    let key = format!("{key}.models");
    if raw.models.is_empty() || raw.models.len() > MAX_MODELS {
        let problem = format!(
            "has {} models: list 1 to {MAX_MODELS}, each as \"provider/model\"",
            raw.models.len()
        );
        return Err(ConfigError::new(key, problem));
    }
    let mut candidates: Vec<Target> = Vec::new();
    let mut first = None;
    for wanted in &raw.models {
        let refuse = |why: String| {
            let problem = format!("names {}, {why}", quoted(wanted));
            ConfigError::new(key.clone(), problem)
        };
        if route_name(wanted).is_some() {
            return Err(refuse(
                "a route: list the models themselves, as \"provider/model\"".to_owned(),
            ));
        }
        let Some((provider, id)) = wanted.split_once('/') else {
            return Err(refuse(
                "which has no provider: write it as \"provider/model\"".to_owned(),
            ));
        };
        let Some(model) = catalogue.find(provider, id) else {
            return Err(refuse(unknown(provider, catalogue, providers)));
        };
        let first = *first.get_or_insert(model);
        if first.modality() != model.modality() {
            return Err(refuse(format!(
                "a model for {}, after one for {}: a route has models of one type",
                model.modality(),
                first.modality()
            )));
        }
        let candidate = model.target();
        if candidates.contains(&candidate) {
            return Err(refuse("twice: list each model once".to_owned()));
        }
        candidates.push(candidate);
    }
    let Some(first) = first else {
        return Err(ConfigError::new(key, "is empty"));
    };
    let order = raw.order.unwrap_or(Order::Given);
    if order == Order::Fastest && first.modality() != Modality::Text {
        let problem = format!(
            "is \"fastest\", by the time to the first token, but its models are for {}: use \"given\" \
             or \"cheapest\"",
            first.modality()
        );
        return Err(ConfigError::new(format!("routes.{name}.order"), problem));
    }
    Ok(Route::new(name, order, candidates, first))
}

/// Returns why a provider does not have a model.
fn unknown(provider: &str, catalogue: &Catalogue, providers: &[Provider]) -> String {
    let configured = providers.iter().find(|known| known.name == provider);
    let models = catalogue.models().iter();
    let ids: Vec<&str> = models
        .filter(|model| model.provider == provider)
        .map(|model| model.id.as_str())
        .collect();
    match configured {
        None => {
            let names: Vec<&str> = catalogue.providers(None);
            format!(
                "whose provider does not exist: use one of {}",
                names.join(", ")
            )
        }
        Some(known) if ids.is_empty() => format!(
            "whose provider is not enabled ({}): enable it, or remove the model from the route",
            known.reason()
        ),
        Some(_) => format!(
            "which is no enabled model of {provider}: use one of {}",
            ids.join(", ")
        ),
    }
}

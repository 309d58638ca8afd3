//! Models: their prices, limits and defaults.
//!
//! A model is only offered with a complete price. Its limits are within those of the API and the
//! vendor. `catalogue` checks requests against them.

mod dated;
mod image;
mod rules;
mod speech;
mod text;
mod video;

use std::ops::Deref;

use chrono::NaiveDate;
use serde::{Deserialize, Deserializer, de::Error as _};
use toml::Value;

use super::ConfigError;
use crate::{
    catalogue::{
        Model, ModelKind,
        vendor::{SharedSettings, Vendor},
    },
    domain::{
        generation::Modality,
        pricing::Markup,
        settings::{blank_is_none, quoted, range::Bounded, shown},
    },
};

/// Maximum characters of a model id.
const MAX_ID_CHARS: usize = 200;

/// A model of a provider. Its replacement is unresolved until `lifecycle::resolve`.
#[derive(Debug, Clone)]
pub struct ModelConfig {
    /// Path of its key, for errors.
    pub(super) path: String,
    /// The model, with prices that include the markup.
    pub model: Model,
    pub settings: SharedSettings,
}

impl Deref for ModelConfig {
    type Target = Model;

    fn deref(&self) -> &Model {
        &self.model
    }
}

/// `[[providers.NAME.models]]`. Prices, limits and wire settings are read once the type is known.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct RawModel {
    id: Option<String>,
    #[serde(rename = "type")]
    modality: Option<Modality>,
    default: Option<bool>,
    enabled: Option<bool>,
    #[serde(default, deserialize_with = "day")]
    retiring: Option<NaiveDate>,
    #[serde(default, deserialize_with = "blank_is_none")]
    replacement: Option<String>,
    #[serde(default)]
    aliases: Vec<String>,
    prices: Option<Value>,
    pub(super) markup: Option<Markup>,
    limits: Option<Value>,
    overhead_tokens: Option<Bounded<u32, 0, 100_000>>,
    wire: Option<Value>,
}

/// Resolves the enabled models of a provider, and the ids of all its models. `markup` applies to
/// models without their own.
pub(super) fn resolve(
    provider: &str,
    vendor: &Vendor,
    markup: Markup,
    raw: Vec<RawModel>,
) -> Result<(Vec<ModelConfig>, Vec<String>), ConfigError> {
    let key = format!("providers.{provider}.models");
    let mut models: Vec<ModelConfig> = Vec::new();
    let mut ids: Vec<String> = Vec::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let path = format!("{key}[{index}]");
        let id = id(raw.id.clone()).map_err(|error| error.under(&path))?;
        for (index, alias) in raw.aliases.iter().enumerate() {
            if !is_id(alias) {
                let key = format!("{path}.aliases[{index}]");
                return Err(ConfigError::new(key, not_an_id(alias)));
            }
        }
        if let Some(first) = ids.iter().position(|known| *known == id) {
            let problem = format!("is {id:?}, as models[{first}] already is: keep one of them");
            return Err(ConfigError::new(format!("{path}.id"), problem));
        }
        ids.push(id.clone());
        if raw.enabled == Some(false) {
            continue;
        }
        let markup = raw.markup.unwrap_or(markup);
        let read = model(provider, vendor, markup, id, raw).map_err(|error| error.under(&path));
        let (model, settings) = read?;
        models.push(ModelConfig {
            path,
            model,
            settings,
        });
    }
    check_default(&key, &models)?;
    Ok((models, ids))
}

fn id(raw: Option<String>) -> Result<String, ConfigError> {
    let Some(id) = raw.filter(|id| !id.is_empty()) else {
        let problem = "is missing: give the provider's own name of the model";
        return Err(ConfigError::new("id", problem));
    };
    if !is_id(&id) {
        return Err(ConfigError::new("id", not_an_id(&id)));
    }
    Ok(id)
}

fn is_id(name: &str) -> bool {
    (1..=MAX_ID_CHARS).contains(&name.chars().count()) && !name.chars().any(char::is_control)
}

fn not_an_id(name: &str) -> String {
    let name = quoted(name);
    format!("is {name}: must have 1 to {MAX_ID_CHARS} characters, none of them a control character")
}

/// Checks that several models of a type have exactly one default, and that it is always offered.
fn check_default(key: &str, models: &[ModelConfig]) -> Result<(), ConfigError> {
    for modality in Modality::ALL {
        let of_it = || models.iter().filter(|m| m.modality() == *modality);
        let defaults: Vec<&str> = of_it()
            .filter(|m| m.default)
            .map(|m| m.id.as_str())
            .collect();
        if defaults.len() > 1 {
            let problem = format!(
                "has more than one default for {modality}, {}: keep default = true at one of them",
                defaults.join(", ")
            );
            return Err(ConfigError::new(key, problem));
        }
        if let Some((model, day)) = of_it()
            .filter(|model| model.default)
            .find_map(|model| Some((model, model.valid_from?)))
        {
            let problem = format!(
                "is {day}, but a default model must always be served: list its current prices first, without valid_from"
            );
            let key = format!("{}.prices[0].valid_from", model.path);
            return Err(ConfigError::new(key, problem));
        }
        if defaults.is_empty() && of_it().count() > 1 {
            let problem = format!(
                "has several enabled models for {modality} and none is the default: \
                 set default = true at one of them"
            );
            return Err(ConfigError::new(key, problem));
        }
    }
    Ok(())
}

fn model(
    provider: &str,
    vendor: &Vendor,
    markup: Markup,
    id: String,
    raw: RawModel,
) -> Result<(Model, SharedSettings), ConfigError> {
    let modality = modality(vendor, raw.modality)?;
    if modality != Modality::Text && raw.overhead_tokens.is_some() {
        let problem = format!("is not used by a model of type {modality}: remove it");
        return Err(ConfigError::new("overhead_tokens", problem));
    }
    let settings =
        (vendor.settings)(&id, modality, raw.wire).map_err(|error| error.under("wire"))?;
    let read = |prices: Option<Value>| {
        let limits = raw.limits.clone();
        let mut made = match modality {
            Modality::Text => ModelKind::Text(text::read(
                vendor,
                prices,
                limits,
                raw.overhead_tokens.as_deref().copied(),
                &*settings,
            )?),
            Modality::Image => ModelKind::Image(image::read(prices, limits, &*settings)?),
            Modality::Video => ModelKind::Video(video::read(vendor, prices, limits)?),
            Modality::Audio => ModelKind::Speech(speech::read(vendor, prices, limits, &*settings)?),
        };
        settings.check(&made)?;
        let list_prices = made.prices();
        made.mark_up(markup);
        Ok((made, list_prices))
    };
    let (valid_from, (kind, list_prices), later) = match raw.prices {
        Some(Value::Array(list)) => dated::read(list, read)?,
        prices => (None, read(prices)?, Vec::new()),
    };
    let model = Model {
        provider: provider.to_owned(),
        id,
        default: raw.default.unwrap_or(false),
        retiring: raw.retiring,
        replacement: raw.replacement,
        aliases: raw.aliases,
        retired: false,
        valid_from,
        kind,
        list_prices,
        later,
    };
    Ok((model, settings))
}

fn modality(vendor: &Vendor, raw: Option<Modality>) -> Result<Modality, ConfigError> {
    let names: Vec<String> = vendor
        .modalities
        .iter()
        .map(|modality| format!("\"{modality}\""))
        .collect();
    let names = names.join(" or ");
    let problem = match raw {
        Some(modality) if vendor.modalities.contains(&modality) => return Ok(modality),
        Some(modality) => format!(
            "is \"{modality}\": must be {names} for a provider of kind \"{}\"",
            vendor.kind
        ),
        None => format!("is missing: write type = {names}"),
    };
    Err(ConfigError::new("type", problem))
}

fn day<'de, D: Deserializer<'de>>(source: D) -> Result<Option<NaiveDate>, D::Error> {
    read_day(&Value::deserialize(source)?).map_err(D::Error::custom)
}

/// Reads a date or text; `""` unsets it.
fn read_day(value: &Value) -> Result<Option<NaiveDate>, String> {
    if value.as_str() == Some("") {
        return Ok(None);
    }
    let day = NaiveDate::parse_from_str(value.as_str().unwrap_or_default(), "%Y-%m-%d");
    let bad = |_| format!("is {}: must be a date, such as 2027-01-14", shown(value));
    day.map(Some).map_err(bad)
}

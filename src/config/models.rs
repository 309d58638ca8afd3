//! Models: their prices, limits and defaults.
//!
//! Here: that no model is served without a complete price, and that its limits lie within
//! the contract's. Not here: what a request may ask of a model (`domain::catalogue`).

use chrono::NaiveDate;
use config::Value;
use serde::Deserialize;

use super::{
    ConfigError, Kind,
    read::{Choice, optional, optional_whole, quoted},
    wire::{self, ANTHROPIC_SAMPLING_VERSION, Wire},
};
use crate::domain::{
    catalogue::{Model, ModelKind, TextLimits, TextModel},
    credits::Credits,
    generation::Modality,
    pricing::TextPrices,
};

/// Characters of a prompt that the API takes at most.
const MAX_PROMPT_CHARS: u32 = 10_000;
/// Output tokens that the API lets a caller ask for.
const MAX_TOKENS: u32 = 4_096;
/// Tokens that a provider's template adds to the caller's, unless the model says otherwise.
const OVERHEAD_TOKENS: u32 = 64;
/// Temperatures that the API takes.
const TEMPERATURE: [f64; 2] = [0.0, 2.0];
/// Characters of a model id.
const MAX_ID_CHARS: usize = 200;

/// An enabled model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The provider's own model id.
    pub id: String,
    /// Whether it serves requests that name no model.
    pub default: bool,
    /// The day from which the provider may have switched it off.
    pub retiring: Option<NaiveDate>,
    /// What it makes, at what price and within what limits.
    pub kind: ModelKind,
    /// How its provider wants to be asked.
    pub wire: Wire,
}

impl ModelConfig {
    /// Its entry in the catalogue.
    pub fn to_model(&self, provider: &str) -> Model {
        Model {
            provider: provider.to_owned(),
            id: self.id.clone(),
            default: self.default,
            retiring: self.retiring,
            kind: self.kind.clone(),
        }
    }

    /// What it makes.
    pub const fn modality(&self) -> Modality {
        match self.kind {
            ModelKind::Text(_) => Modality::Text,
        }
    }
}

/// The types that a model can have in this version.
#[derive(Clone, Copy)]
enum ModelType {
    Text,
}

impl Choice for ModelType {
    const NAMES: &'static [(&'static str, Self)] = &[("text", Self::Text)];
}

/// `[[providers.NAME.models]]` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with keys")]
pub(super) struct RawModel {
    #[serde(default, deserialize_with = "optional")]
    id: Option<String>,
    #[serde(default, rename = "type", deserialize_with = "optional")]
    kind: Option<ModelType>,
    #[serde(default, deserialize_with = "optional")]
    default: Option<bool>,
    #[serde(default, deserialize_with = "optional")]
    enabled: Option<bool>,
    #[serde(default, deserialize_with = "optional")]
    retiring: Option<NaiveDate>,
    #[serde(default)]
    prices: RawPrices,
    #[serde(default)]
    limits: RawLimits,
    #[serde(default, deserialize_with = "optional_whole::<u32, 0, 100_000, _>")]
    overhead_tokens: Option<u32>,
    wire: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields, expecting = "a table with keys")]
struct RawPrices {
    #[serde(deserialize_with = "optional")]
    input_per_million: Option<Credits>,
    #[serde(deserialize_with = "optional")]
    output_per_million: Option<Credits>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields, expecting = "a table with keys")]
struct RawLimits {
    #[serde(deserialize_with = "optional_whole::<u32, 1, MAX_PROMPT_CHARS, _>")]
    max_prompt_chars: Option<u32>,
    #[serde(deserialize_with = "optional_whole::<u32, 1, MAX_TOKENS, _>")]
    max_tokens: Option<u32>,
    #[serde(deserialize_with = "optional")]
    temperature: Option<Vec<f64>>,
}

/// The enabled models of one provider, whose table is at `path`.
pub(super) fn resolve(
    path: &str,
    kind: Kind,
    raw: Vec<RawModel>,
) -> Result<Vec<ModelConfig>, ConfigError> {
    let mut models: Vec<ModelConfig> = Vec::new();
    let mut ids: Vec<String> = Vec::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let path = format!("{path}.models[{index}]");
        let id = id(raw.id.clone()).map_err(|error| error.under(&path))?;
        if let Some(first) = ids.iter().position(|known| *known == id) {
            let problem = format!("is {id:?}, as models[{first}] already is: keep one of them");
            return Err(ConfigError::new(format!("{path}.id"), problem));
        }
        ids.push(id.clone());
        if raw.enabled == Some(false) {
            continue;
        }
        models.push(model(kind, id, raw).map_err(|error| error.under(&path))?);
    }
    check_default(path, &models)?;
    Ok(models)
}

fn id(raw: Option<String>) -> Result<String, ConfigError> {
    let Some(id) = raw.filter(|id| !id.is_empty()) else {
        let problem = "is missing: give the provider's own name of the model";
        return Err(ConfigError::new("id", problem));
    };
    if id.chars().count() > MAX_ID_CHARS || id.chars().any(char::is_control) {
        let problem = format!(
            "is {}: must have at most {MAX_ID_CHARS} characters, none of them a control character",
            quoted(&id)
        );
        return Err(ConfigError::new("id", problem));
    }
    Ok(id)
}

/// Exactly one default where there is a choice.
fn check_default(path: &str, models: &[ModelConfig]) -> Result<(), ConfigError> {
    let key = format!("{path}.models");
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

fn model(kind: Kind, id: String, raw: RawModel) -> Result<ModelConfig, ConfigError> {
    let Some(ModelType::Text) = raw.kind else {
        let problem = "is missing: write type = \"text\"";
        return Err(ConfigError::new("type", problem));
    };
    let wire = wire::read(kind, raw.wire).map_err(|error| error.under("wire"))?;
    let temperature = temperature(kind, raw.limits.temperature, &wire)
        .map_err(|problem| ConfigError::new("limits.temperature", problem))?;
    let max_prompt_chars = raw.limits.max_prompt_chars.unwrap_or(MAX_PROMPT_CHARS);
    let text = TextModel {
        prices: prices(&raw.prices)?,
        limits: TextLimits {
            max_prompt_chars: usize::try_from(max_prompt_chars).unwrap_or(usize::MAX),
            max_tokens: raw.limits.max_tokens.unwrap_or(MAX_TOKENS),
            temperature,
        },
        overhead_tokens: raw.overhead_tokens.unwrap_or(OVERHEAD_TOKENS),
    };
    Ok(ModelConfig {
        id,
        default: raw.default.unwrap_or(false),
        retiring: raw.retiring,
        kind: ModelKind::Text(text),
        wire,
    })
}

fn prices(raw: &RawPrices) -> Result<TextPrices, ConfigError> {
    let unpriced = "a model without a complete price is not served";
    let (key, mend) = match (raw.input_per_million, raw.output_per_million) {
        (Some(input_per_million), Some(output_per_million)) => {
            return Ok(TextPrices {
                input_per_million,
                output_per_million,
            });
        }
        (None, None) => ("prices", "add input_per_million and output_per_million"),
        (None, Some(_)) => ("prices.input_per_million", "add it"),
        (Some(_), None) => ("prices.output_per_million", "add it"),
    };
    let problem = format!("is missing: {unpriced}; {mend} or set enabled = false");
    Err(ConfigError::new(key, problem))
}

/// The range a model takes; `None` when it takes none. Left out, it is none for the vendors'
/// models, most of which refuse or ignore a temperature today, and the API's own for
/// compatible servers and the sandbox, which take it. The error reads on after the key.
fn temperature(
    kind: Kind,
    range: Option<Vec<f64>>,
    wire: &Wire,
) -> Result<Option<[f64; 2]>, String> {
    let Some(range) = range else {
        let taken = matches!(kind, Kind::Sandbox | Kind::OpenAiCompatible);
        return Ok(taken.then_some(TEMPERATURE));
    };
    let [low, high] = match range.as_slice() {
        [] => return Ok(None),
        [low, high] if TEMPERATURE[0] <= *low && low <= high && *high <= TEMPERATURE[1] => {
            [*low, *high]
        }
        _ => {
            return Err(format!(
                "is {range:?}: must be the lowest and the highest value within 0.0 to 2.0, \
                 such as [0.0, 2.0], or [] for none"
            ));
        }
    };
    if let Wire::Anthropic(wire) = wire
        && (wire.version != ANTHROPIC_SAMPLING_VERSION || high > 1.0)
    {
        return Err(format!(
            "is {range:?}: Anthropic takes 0.0 to 1.0 and only with wire.version = \
             \"{ANTHROPIC_SAMPLING_VERSION}\"; set both or leave it out"
        ));
    }
    Ok(Some([low, high]))
}

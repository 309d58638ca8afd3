//! Models of text.

use std::sync::Arc;

use serde::Deserialize;
use toml::Value;

use super::{
    super::{ConfigError, values::Price},
    rules::{table, unpriced},
    vision::vision,
};
use crate::domain::{
    catalogue::{TextLimits, TextModel},
    credits::Credits,
    pricing::{PriceTier, TextPrices, TokenPrices},
    request::{MAX_TOKENS, TEXT_PROMPT_CHARS},
    settings::range::Bounded,
    vendor::{ModelSettings, Vendor},
};

/// Tokens that a provider's template adds to the caller's, unless the model says otherwise.
const OVERHEAD_TOKENS: u32 = 64;
/// More tokens than any model takes.
const MOST_TOKENS: usize = 100_000_000;
/// Tiers of a model.
const MAX_TIERS: usize = 8;
/// Temperatures that the API takes.
const TEMPERATURE: [f64; 2] = [0.0, 2.0];

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct RawPrices {
    input_per_million: Option<Price>,
    cached_input_per_million: Option<Price>,
    cache_write_per_million: Option<Price>,
    cache_write_long_per_million: Option<Price>,
    output_per_million: Option<Price>,
    tiers: Vec<RawTier>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct RawTier {
    above_input_tokens: Option<Bounded<u64, 1, MOST_TOKENS>>,
    input_per_million: Option<Price>,
    cached_input_per_million: Option<Price>,
    cache_write_per_million: Option<Price>,
    cache_write_long_per_million: Option<Price>,
    output_per_million: Option<Price>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct RawLimits {
    max_prompt_chars: Option<Bounded<usize, 1, TEXT_PROMPT_CHARS>>,
    max_tokens: Option<Bounded<u32, 1, { MAX_TOKENS as usize }>>,
    temperature: Option<Vec<f64>>,
    max_input_tokens: Option<Bounded<u32, 1, MOST_TOKENS>>,
    max_output_tokens: Option<Bounded<u32, 1, MOST_TOKENS>>,
    images: Option<Value>,
}

pub(super) fn read(
    vendor: &Vendor,
    prices: Option<Value>,
    limits: Option<Value>,
    overhead_tokens: Option<u32>,
    settings: &dyn ModelSettings,
) -> Result<TextModel, ConfigError> {
    let limits: RawLimits = table("limits", limits)?;
    let temperature = temperature(vendor, limits.temperature.as_deref())
        .map_err(|problem| ConfigError::new("limits.temperature", problem))?;
    let images = limits.images.map(vision).transpose();
    let images = images.map_err(|error| error.under("limits.images"))?;
    let max_tokens = limits.max_tokens.map_or(MAX_TOKENS, |n| *n);
    Ok(TextModel {
        prices: Arc::new(complete(&table("prices", prices)?)?),
        limits: TextLimits {
            max_prompt_chars: limits.max_prompt_chars.map_or(TEXT_PROMPT_CHARS, |n| *n),
            max_tokens,
            temperature,
            max_input_tokens: limits.max_input_tokens.map(|n| *n),
            max_output_tokens: limits.max_output_tokens.map_or(max_tokens, |n| *n),
            images,
        },
        dialogue: settings.dialogue(vendor.dialogue),
        overhead_tokens: overhead_tokens.unwrap_or(OVERHEAD_TOKENS),
        cache_writes: settings.cache_writes(),
        always_thinks: settings.always_thinks(),
    })
}

fn complete(raw: &RawPrices) -> Result<TextPrices, ConfigError> {
    let (key, mend) = match (raw.input_per_million, raw.output_per_million) {
        (Some(Price(input_per_million)), Some(Price(output_per_million))) => {
            let base = TokenPrices {
                input_per_million,
                cached_input_per_million: raw.cached_input_per_million.map(|price| price.0),
                cache_write_per_million: raw.cache_write_per_million.map(|price| price.0),
                cache_write_long_per_million: raw.cache_write_long_per_million.map(|price| price.0),
                output_per_million,
            };
            let tiers = tiers(&base, &raw.tiers)?;
            return Ok(TextPrices { base, tiers });
        }
        (None, None) => ("prices", "add input_per_million and output_per_million"),
        (None, Some(_)) => ("prices.input_per_million", "add it"),
        (Some(_), None) => ("prices.output_per_million", "add it"),
    };
    Err(unpriced(key, mend))
}

fn tiers(base: &TokenPrices, raw: &[RawTier]) -> Result<Vec<PriceTier>, ConfigError> {
    if raw.len() > MAX_TIERS {
        let problem = format!("has {} tiers: must have at most {MAX_TIERS}", raw.len());
        return Err(ConfigError::new("prices.tiers", problem));
    }
    let mut tiers: Vec<PriceTier> = Vec::new();
    for (index, raw) in raw.iter().enumerate() {
        let tier =
            tier(base, raw).map_err(|error| error.under(&format!("prices.tiers[{index}]")))?;
        let above = tier.above_input_tokens;
        if let Some(before) = tiers.last().filter(|t| t.above_input_tokens >= above) {
            let before = before.above_input_tokens;
            let problem = format!("is {above}: must be above the {before} of the tier before it");
            let key = format!("prices.tiers[{index}].above_input_tokens");
            return Err(ConfigError::new(key, problem));
        }
        tiers.push(tier);
    }
    Ok(tiers)
}

/// A tier, which must have exactly the prices that the model has.
fn tier(base: &TokenPrices, raw: &RawTier) -> Result<PriceTier, ConfigError> {
    let missing = |key: &str, mend: &str| ConfigError::new(key, format!("is missing: {mend}"));
    let Some(above_input_tokens) = raw.above_input_tokens else {
        let mend = "name the input tokens above which the tier applies";
        return Err(missing("above_input_tokens", mend));
    };
    let amount =
        |key: &str, of_model: Option<Credits>, of_tier: Option<Price>| match (of_model, of_tier) {
            (Some(_), None) => Err(missing(key, "add it, as the model has it")),
            (None, Some(_)) => {
                let problem = "is a price that the model has not: add it there or remove it";
                Err(ConfigError::new(key, problem))
            }
            (_, price) => Ok(price.map(|price| price.0)),
        };
    let required = |key: &str, of_model: Credits, of_tier: Option<Price>| {
        amount(key, Some(of_model), of_tier).map(|price| price.unwrap_or(of_model))
    };
    Ok(PriceTier {
        above_input_tokens: *above_input_tokens,
        prices: TokenPrices {
            input_per_million: required(
                "input_per_million",
                base.input_per_million,
                raw.input_per_million,
            )?,
            cached_input_per_million: amount(
                "cached_input_per_million",
                base.cached_input_per_million,
                raw.cached_input_per_million,
            )?,
            cache_write_per_million: amount(
                "cache_write_per_million",
                base.cache_write_per_million,
                raw.cache_write_per_million,
            )?,
            cache_write_long_per_million: amount(
                "cache_write_long_per_million",
                base.cache_write_long_per_million,
                raw.cache_write_long_per_million,
            )?,
            output_per_million: required(
                "output_per_million",
                base.output_per_million,
                raw.output_per_million,
            )?,
        },
    })
}

/// The range a model takes; `None` when it takes none. The error reads on after the key.
fn temperature(vendor: &Vendor, range: Option<&[f64]>) -> Result<Option<[f64; 2]>, String> {
    match range {
        None => Ok(vendor.temperature),
        Some([]) => Ok(None),
        Some([low, high]) if TEMPERATURE[0] <= *low && low <= high && *high <= TEMPERATURE[1] => {
            Ok(Some([*low, *high]))
        }
        Some(range) => Err(format!(
            "is {range:?}: must be the lowest and the highest value within 0.0 to 2.0, \
             such as [0.0, 2.0], or [] for none"
        )),
    }
}

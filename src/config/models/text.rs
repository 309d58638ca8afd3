//! Models of text.

use serde::Deserialize;
use toml::Value;

use super::{
    super::{ConfigError, values::Price},
    rules::{table, unpriced},
};
use crate::domain::{
    catalogue::{TextLimits, TextModel},
    pricing::TextPrices,
    request::{MAX_TOKENS, TEXT_PROMPT_CHARS},
    settings::range::Bounded,
    vendor::Vendor,
};

/// Tokens that a provider's template adds to the caller's, unless the model says otherwise.
const OVERHEAD_TOKENS: u32 = 64;
/// Temperatures that the API takes.
const TEMPERATURE: [f64; 2] = [0.0, 2.0];

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct RawPrices {
    input_per_million: Option<Price>,
    output_per_million: Option<Price>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct RawLimits {
    max_prompt_chars: Option<Bounded<usize, 1, TEXT_PROMPT_CHARS>>,
    max_tokens: Option<Bounded<u32, 1, { MAX_TOKENS as usize }>>,
    temperature: Option<Vec<f64>>,
}

pub(super) fn read(
    vendor: &Vendor,
    prices: Option<Value>,
    limits: Option<Value>,
    overhead_tokens: Option<u32>,
) -> Result<TextModel, ConfigError> {
    let limits: RawLimits = table("limits", limits)?;
    let temperature = temperature(vendor, limits.temperature.as_deref())
        .map_err(|problem| ConfigError::new("limits.temperature", problem))?;
    Ok(TextModel {
        prices: complete(&table("prices", prices)?)?,
        limits: TextLimits {
            max_prompt_chars: limits.max_prompt_chars.map_or(TEXT_PROMPT_CHARS, |n| *n),
            max_tokens: limits.max_tokens.map_or(MAX_TOKENS, |n| *n),
            temperature,
        },
        overhead_tokens: overhead_tokens.unwrap_or(OVERHEAD_TOKENS),
    })
}

fn complete(raw: &RawPrices) -> Result<TextPrices, ConfigError> {
    let (key, mend) = match (raw.input_per_million, raw.output_per_million) {
        (Some(Price(input_per_million)), Some(Price(output_per_million))) => {
            return Ok(TextPrices {
                input_per_million,
                output_per_million,
            });
        }
        (None, None) => ("prices", "add input_per_million and output_per_million"),
        (None, Some(_)) => ("prices.input_per_million", "add it"),
        (Some(_), None) => ("prices.output_per_million", "add it"),
    };
    Err(unpriced(key, mend))
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

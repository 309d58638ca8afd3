//! Models of text.

use serde::Deserialize;
use toml::Value;

use super::{
    super::{
        ConfigError, Kind,
        values::Price,
        wire::{ANTHROPIC_SAMPLING_VERSION, Wire},
    },
    rules::{table, unpriced},
};
use crate::domain::{
    catalogue::{TextLimits, TextModel},
    pricing::TextPrices,
    request::{MAX_TOKENS, TEXT_PROMPT_CHARS},
    settings::range::Bounded,
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

/// Reads one.
pub(super) fn read(
    kind: Kind,
    prices: Option<Value>,
    limits: Option<Value>,
    overhead_tokens: Option<u32>,
    wire: &Wire,
) -> Result<TextModel, ConfigError> {
    let limits: RawLimits = table("limits", limits)?;
    let temperature = temperature(kind, limits.temperature, wire)
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

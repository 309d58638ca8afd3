//! Models of speech.

use serde::Deserialize;
use toml::Value;

use super::{
    super::{ConfigError, values::Price},
    rules::{check_list, table, unpriced},
};
use crate::domain::{
    catalogue::{SpeechLimits, SpeechModel},
    pricing::SpeechPrices,
    request::{SPEECH_PROMPT_CHARS, SpeechFormat},
    settings::{quoted, range::Bounded},
    vendor::Vendor,
};

/// Characters of a voice that the API takes at most.
const MAX_VOICE_CHARS: usize = 100;

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct RawPrices {
    per_1000_characters: Option<Price>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct RawLimits {
    max_prompt_chars: Option<Bounded<usize, 1, SPEECH_PROMPT_CHARS>>,
    voices: Option<Vec<String>>,
    default_voice: Option<String>,
    formats: Option<Vec<String>>,
    speed: Option<Vec<f64>>,
}

pub(super) fn read(
    vendor: &Vendor,
    prices: Option<Value>,
    limits: Option<Value>,
) -> Result<SpeechModel, ConfigError> {
    let prices: RawPrices = table("prices", prices)?;
    let Price(per_1000_characters) = prices
        .per_1000_characters
        .ok_or_else(|| unpriced("prices.per_1000_characters", "add it"))?;
    let limits: RawLimits = table("limits", limits)?;
    let default_voice = default_voice(vendor, limits.voices.as_deref(), limits.default_voice)?;
    Ok(SpeechModel {
        prices: SpeechPrices {
            per_1000_characters,
        },
        limits: SpeechLimits {
            max_prompt_chars: limits.max_prompt_chars.map_or(SPEECH_PROMPT_CHARS, |n| *n),
            voices: limits.voices,
            default_voice,
            formats: formats(vendor, limits.formats)?,
            speed: speed(vendor, limits.speed)?,
        },
    })
}

/// The voice of requests that name none, once all voices are known to be sound.
fn default_voice(
    vendor: &Vendor,
    voices: Option<&[String]>,
    default: Option<String>,
) -> Result<String, ConfigError> {
    let signs = vendor.speech.voice_signs;
    let sound = |voice: &str| {
        (1..=MAX_VOICE_CHARS).contains(&voice.len())
            && voice
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || signs.as_bytes().contains(&b))
    };
    let must = if signs.is_empty() {
        "must be a voice id of letters and digits"
    } else {
        "must be a voice id of letters, digits, - and _"
    };
    if let Some(voices) = voices {
        let key = "limits.voices";
        if let Some(bad) = voices.iter().find(|voice| !sound(voice)) {
            let problem = format!("holds {}: each {must}", quoted(bad));
            return Err(ConfigError::new(key, problem));
        }
        check_list(key, voices)?;
    }
    let key = "limits.default_voice";
    let Some(default) = default else {
        let problem = "is missing: name the voice of a request that names none";
        return Err(ConfigError::new(key, problem));
    };
    if !sound(&default) {
        let problem = format!("is {}: {must}", quoted(&default));
        return Err(ConfigError::new(key, problem));
    }
    if voices.is_some_and(|voices| !voices.contains(&default)) {
        let problem = format!("is {}: must be one of limits.voices", quoted(&default));
        return Err(ConfigError::new(key, problem));
    }
    Ok(default)
}

fn formats(vendor: &Vendor, raw: Option<Vec<String>>) -> Result<Vec<SpeechFormat>, ConfigError> {
    let key = "limits.formats";
    let makes = vendor.speech.formats;
    let Some(names) = raw else {
        return Ok(makes.to_vec());
    };
    check_list(key, &names)?;
    names
        .iter()
        .map(|name| {
            SpeechFormat::parse(name)
                .filter(|format| makes.contains(format))
                .ok_or_else(|| {
                    let known: Vec<&str> = makes.iter().map(|format| format.as_str()).collect();
                    let problem = format!(
                        "holds {}: must be {} for a provider of kind \"{}\"",
                        quoted(name),
                        known.join(" or "),
                        vendor.kind
                    );
                    ConfigError::new(key, problem)
                })
        })
        .collect()
}

fn speed(vendor: &Vendor, raw: Option<Vec<f64>>) -> Result<Option<[f64; 2]>, ConfigError> {
    let Some(range) = raw else {
        return Ok(None);
    };
    let bounds = vendor.speech.speed;
    match range.as_slice() {
        [low, high] if bounds[0] <= *low && *low <= 1.0 && 1.0 <= *high && *high <= bounds[1] => {
            Ok(Some([*low, *high]))
        }
        _ => {
            let problem = format!(
                "is {range:?}: must be the lowest and the highest value within {} to {}, \
                 with 1.0 between them; leave it out for a model without speed",
                bounds[0], bounds[1]
            );
            Err(ConfigError::new("limits.speed", problem))
        }
    }
}

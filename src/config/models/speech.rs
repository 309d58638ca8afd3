//! Models of speech.

use toml::{Value, toml};

use super::{
    super::ConfigError,
    rules::{check_list, limits, prices},
};
use crate::{
    catalogue::{
        SpeechLimits, SpeechModel,
        vendor::{ModelSettings, Vendor},
    },
    domain::settings::quoted,
    request::{SPEECH_PROMPT_CHARS, SpeechFormat},
};

pub(super) fn read(
    vendor: &Vendor,
    given_prices: Option<Value>,
    given_limits: Option<Value>,
    settings: &dyn ModelSettings,
) -> Result<SpeechModel, ConfigError> {
    let prices = prices(given_prices)?;
    let mut defaults = toml! { max_prompt_chars = SPEECH_PROMPT_CHARS };
    let makes = vendor.speech.formats.iter();
    let makes: Vec<Value> = makes.map(|format| format.as_str().into()).collect();
    defaults.insert("formats".to_owned(), makes.into());
    let limits: SpeechLimits = limits(given_limits, defaults)?;
    check_voices(vendor, &limits)?;
    check_formats(vendor, &limits)?;
    check_speed(vendor, &limits)?;
    Ok(SpeechModel {
        prices,
        has_pcm: settings.makes_pcm() && limits.formats.contains(&SpeechFormat::Wav),
        takes_instructions: settings.takes_instructions(),
        voice_ids: vendor.speech.voice_ids,
        limits,
    })
}

fn check_voices(vendor: &Vendor, limits: &SpeechLimits) -> Result<(), ConfigError> {
    let ids = vendor.speech.voice_ids;
    let must = format!("must be {ids}");
    if let Some(voices) = &limits.voices {
        let key = "limits.voices";
        if let Some(bad) = voices.iter().find(|voice| !ids.accept(voice)) {
            let problem = format!("holds {}: each {must}", quoted(bad));
            return Err(ConfigError::new(key, problem));
        }
        check_list(key, voices)?;
    }
    let default = &limits.default_voice;
    let problem = if !ids.accept(default) {
        &must
    } else if limits
        .voices
        .as_ref()
        .is_some_and(|voices| !voices.contains(default))
    {
        "must be one of limits.voices"
    } else {
        return Ok(());
    };
    let problem = format!("is {}: {problem}", quoted(default));
    Err(ConfigError::new("limits.default_voice", problem))
}

fn check_formats(vendor: &Vendor, limits: &SpeechLimits) -> Result<(), ConfigError> {
    let makes = vendor.speech.formats;
    check_list("limits.formats", &limits.formats)?;
    let Some(other) = limits.formats.iter().find(|format| !makes.contains(format)) else {
        return Ok(());
    };
    let known: Vec<&str> = makes.iter().map(|format| format.as_str()).collect();
    let problem = format!(
        "holds \"{other}\": must be {} for a provider of kind \"{}\"",
        known.join(" or "),
        vendor.kind
    );
    Err(ConfigError::new("limits.formats", problem))
}

fn check_speed(vendor: &Vendor, limits: &SpeechLimits) -> Result<(), ConfigError> {
    let [lowest, highest] = vendor.speech.speed;
    match limits.speed {
        Some([low, high]) if !(lowest <= low && low <= 1.0 && 1.0 <= high && high <= highest) => {
            let problem = format!(
                "is [{low:?}, {high:?}]: must be the lowest and the highest value within {lowest} \
                 to {highest}, with 1.0 between them; leave it out for a model without speed"
            );
            Err(ConfigError::new("limits.speed", problem))
        }
        _ => Ok(()),
    }
}

//! Gemini's configuration.

use std::sync::Arc;

use toml::Value;

use super::{
    Gemini, GeminiModel,
    omni::{GeminiOmni, OmniModel},
    speech::{GeminiSpeech, GeminiSpeechModel},
};
use crate::{
    domain::{
        catalogue::Dialogue,
        conversation::Spelling,
        generation::Modality,
        request::SpeechFormat,
        settings::{ConfigError, read_table},
        vendor::{SharedSettings, SpeechRange, Vendor, no_settings, read_settings},
    },
    providers::setup::Adapters,
};

pub const ADAPTERS: Adapters = Adapters {
    vendor: Vendor {
        speech: SpeechRange {
            formats: &[SpeechFormat::Wav],
            ..SpeechRange::ALL
        },
        dialogue: Dialogue {
            late_instructions: false,
            thinking: false,
            one_at_a_time: false,
            strict_tools: false,
            reasoning_fields: false,
            free_arguments: false,
            alternating_roles: true,
            // google-genai 3.6.1 `FunctionDeclaration.name`; colons are newer than the rest.
            names: Spelling {
                symbols: Some("_.-"),
                max_chars: 64,
                starts_with_letter: true,
            },
            // google-genai 3.6.1 `GenerateContentConfig.stop_sequences`.
            max_stops: 5,
            image_urls: false,
            result_images: false,
            image_detail: false,
            gifs: false,
            documents: true,
            ..Dialogue::ALL
        },
        ..Vendor::new(
            "gemini",
            &[Modality::Text, Modality::Video, Modality::Audio],
            |_, modality, wire| match modality {
                Modality::Video => read_settings::<OmniModel>(wire),
                Modality::Audio => {
                    no_settings::<GeminiSpeechModel>("Gemini's speech", wire.as_ref())
                }
                Modality::Text | Modality::Image => text(wire),
            },
        )
    },
    add: |registry, setup| {
        let name = || setup.name.clone();
        registry.text.insert(name(), Arc::new(Gemini::new(setup)?));
        let speech = GeminiSpeech::new(setup)?;
        registry.speech.insert(name(), Arc::new(speech));
        let video = GeminiOmni::new(setup)?;
        registry.video.insert(name(), Arc::new(video));
        Ok(())
    },
};

fn text(wire: Option<Value>) -> Result<SharedSettings, ConfigError> {
    let model: GeminiModel = read_table(wire)?;
    if model.thinking_level.is_some() && model.thinking_budget.is_some() {
        return Err(ConfigError::new(
            "",
            "sets both thinking_level and thinking_budget: keep the one that the model takes",
        ));
    }
    Ok(Arc::new(model))
}

//! Configuration of OpenAI and compatible servers.

use std::sync::Arc;

use serde::de::Error as _;
use toml::{Table, Value};

use super::{
    OpenAi, OpenAiModel,
    images::{OpenAiImageModel, OpenAiImages},
    speech::{OpenAiSpeech, OpenAiSpeechModel},
};
use crate::{
    domain::{
        catalogue::Dialogue,
        generation::{Modality, Surface},
        pricing::CacheWrites,
        settings::ConfigError,
        vendor::{Access, SharedSettings, Vendor, read_settings},
    },
    providers::setup::Adapters,
};

/// Values of `reasoning_effort`; each model supports a subset.
const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];
const TIERS: &[&str] = &["auto", "default", "flex", "scale", "priority", "fast"];

const DIALOGUE: Dialogue = Dialogue {
    thinking: false,
    reasoning_fields: false,
    result_images: false,
    thought_signatures: false,
    own: Some(Surface::OpenAiChat),
    // From gpt-5.6 on; earlier ones have no price for it.
    cache_writes: CacheWrites::Short,
    ..Dialogue::ALL
};

/// `OpenAI`.
pub const ADAPTERS: Adapters = Adapters {
    vendor: Vendor {
        dialogue: DIALOGUE,
        ..Vendor::new(
            "openai",
            &[Modality::Text, Modality::Image, Modality::Audio],
            |modality, wire| match modality {
                Modality::Image => read_settings::<OpenAiImageModel>(wire),
                Modality::Audio => read_settings::<OpenAiSpeechModel>(wire),
                Modality::Text | Modality::Video => text(wire),
            },
        )
    },
    add: |registry, setup| {
        let name = || setup.name.clone();
        registry.text.insert(name(), Arc::new(OpenAi::new(setup)?));
        let images = OpenAiImages::new(setup)?;
        registry.image.insert(name(), Arc::new(images));
        let speech = OpenAiSpeech::new(setup)?;
        registry.speech.insert(name(), Arc::new(speech));
        Ok(())
    },
};

/// A server that is compatible with `OpenAI`'s Chat Completions.
pub const COMPATIBLE: Adapters = Adapters {
    vendor: Vendor {
        access: Access::OptionalKey,
        temperature: Some([0.0, 2.0]),
        dialogue: Dialogue {
            // It would fetch them from within the operator's network.
            image_urls: false,
            // Google's own is such a server.
            thought_signatures: true,
            reasoning_fields: true,
            ..DIALOGUE
        },
        ..Vendor::new("openai_compatible", &[Modality::Text], |_, wire| {
            read_settings::<OpenAiModel>(wire)
        })
    },
    add: |registry, setup| {
        let adapter = OpenAi::new(setup)?;
        registry.text.insert(setup.name.clone(), Arc::new(adapter));
        Ok(())
    },
};

/// `OpenAI` itself: other defaults, and checked values.
fn text(wire: Option<Value>) -> Result<SharedSettings, ConfigError> {
    let mut table = Table::from_iter([
        ("token_field".to_owned(), "max_completion_tokens".into()),
        ("system_role".to_owned(), "developer".into()),
        ("service_tier".to_owned(), "default".into()),
        ("no_obfuscation".to_owned(), true.into()),
    ]);
    match wire {
        None => {}
        Some(Value::Table(given)) => table.extend(given),
        Some(other) => return read_settings::<OpenAiModel>(Some(other)),
    }
    for (key, names) in [("reasoning_effort", EFFORTS), ("service_tier", TIERS)] {
        if let Some(word) = table.get(key).and_then(Value::as_str)
            && !names.contains(&word)
        {
            return Err(ConfigError::unknown_variant(word, names).under(key));
        }
    }
    read_settings::<OpenAiModel>(Some(Value::Table(table)))
}

//! OpenAI Chat Completions and Responses, for OpenAI itself and for compatible servers.
//!
//! One adapter, because compatible servers differ only in details, which are settings of a
//! model, as is the API. Submodules: of Chat Completions [`request`] with [`message`], [`response`]
//! with [`calls`], [`own_members`] and [`usage`]; [`responses`]; [`errors`], and the other modalities, [`images`] and
//! [`speech`]. Not here: which model takes which parameter; that is in the catalogue. Source: openai 3.51.0 (`PyPI`) `openai/types/chat/`, and recorded bodies of the
//! compatible servers; checked against requests recorded from the package.

mod calls;
pub mod errors;
pub mod images;
pub mod message;
mod own_members;
pub mod request;
pub mod response;
mod responses;
pub mod speech;
mod usage;

use async_trait::async_trait;
use reqwest::header::AUTHORIZATION;
use serde::de::Error as _;
use toml::{Table, Value};

use super::{
    DeltaSink, ProviderError, TextAnswer, TextCall, TextProvider,
    exchange::{count, exchange},
    http::{SetupError, VendorClient, base_url::VersionPath},
    setup::{Adapter, Adapters, Setup},
};
use crate::{
    catalogue::{
        Dialogue,
        vendor::{Access, SharedSettings, Vendor, read_settings},
    },
    domain::{
        conversation::Spelling,
        generation::{Modality, Surface},
        pricing::CacheWrites,
        settings::ConfigError,
    },
};
use images::{OpenAiImageModel, OpenAiImages};
pub use request::{Api, OpenAiModel, SystemRole, TokenField};
use response::ResponseParser;
use responses::response::ResponseParser as ResponsesParser;
use speech::OpenAiSpeech;

/// Values of `reasoning_effort`; each model supports a subset.
const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];
const TIERS: &[&str] = &["auto", "default", "flex", "scale", "priority", "fast"];

const DIALOGUE: Dialogue = Dialogue {
    thinking: false,
    reasoning_fields: false,
    result_images: false,
    thought_signatures: false,
    instructions_only: true,
    names: Spelling {
        symbols: Some("_-"),
        max_chars: 64,
        starts_with_letter: false,
    },
    max_stops: 4,
    own: Some(Surface::OpenAiChat),
    // Only gpt-5.6 and later have a price for cache writes.
    cache_writes: CacheWrites::Short,
    ..Dialogue::ALL
};

/// `OpenAI`.
pub const ADAPTERS: Adapters = Adapters {
    vendor: Vendor {
        dialogue: Dialogue {
            custom_tools: true,
            combined_schemas: false,
            // Other servers themselves generate longer ids.
            ids: Spelling {
                max_chars: 40,
                ..Spelling::ANY
            },
            ..DIALOGUE
        },
        ..Vendor::new(
            "openai",
            &[Modality::Text, Modality::Image, Modality::Audio],
            |id, modality, wire| match modality {
                Modality::Image => read_settings::<OpenAiImageModel>(wire),
                Modality::Audio => speech::settings(id, wire),
                Modality::Text | Modality::Video => text(id, wire),
            },
        )
    },
    add: |registry, setup| {
        registry.add_text(setup, OpenAi::new(setup, client)?);
        registry.add_image(setup, OpenAiImages::new(setup, client)?);
        registry.add_speech(setup, OpenAiSpeech::new(setup, speech::client)?);
        Ok(())
    },
};

/// A server that is compatible with `OpenAI`'s Chat Completions or Images.
pub const COMPATIBLE: Adapters = Adapters {
    vendor: Vendor {
        access: Access::OptionalKey,
        temperature: Some([0.0, 2.0]),
        dialogue: Dialogue {
            // The chat templates of many models refuse them.
            late_instructions: false,
            // Unless a model's instructions use that role.
            developer_role: false,
            null_members: false,
            // The server would fetch them from within the operator's network.
            image_urls: false,
            reasoning_fields: true,
            ..DIALOGUE
        },
        ..Vendor::new(
            "openai_compatible",
            &[Modality::Text, Modality::Image],
            |id, modality, wire| match modality {
                Modality::Image => compatible_image(wire),
                _ => compatible_text(id, wire),
            },
        )
    },
    add: |registry, setup| {
        registry.add_text(setup, OpenAi::new(setup, client)?);
        registry.add_image(setup, OpenAiImages::new(setup, client)?);
        Ok(())
    },
};

/// Reads image settings. Fields that only `OpenAI` has are not sent unless configured.
fn compatible_image(wire: Option<Value>) -> Result<SharedSettings, ConfigError> {
    let blank = |name: &str| (name.to_owned(), Value::from(""));
    let mut table = Table::from_iter(["output_format", "moderation"].map(blank));
    table.insert("takes_background".to_owned(), false.into());
    read_settings::<OpenAiImageModel>(Some(over(table, wire)))
}

/// Reads text settings. Google's server, and others with its models, accept their signatures back;
/// strict servers refuse them.
fn compatible_text(id: &str, wire: Option<Value>) -> Result<SharedSettings, ConfigError> {
    let name = id.rsplit('/').next().unwrap_or(id);
    let is_gemini = name.to_ascii_lowercase().contains("gemini");
    let table = Table::from_iter([("thought_signatures".to_owned(), is_gemini.into())]);
    read_settings::<OpenAiModel>(Some(over(table, wire)))
}

/// Overrides defaults with the settings of a file.
fn over(mut defaults: Table, wire: Option<Value>) -> Value {
    match wire {
        None => {}
        Some(Value::Table(given)) => defaults.extend(given),
        Some(other) => return other,
    }
    Value::Table(defaults)
}

/// Reads text settings for `OpenAI` itself, with other defaults and checked values.
fn text(id: &str, wire: Option<Value>) -> Result<SharedSettings, ConfigError> {
    let api = if has_responses(id) {
        "responses"
    } else {
        "chat"
    };
    let table = Table::from_iter([
        ("api".to_owned(), api.into()),
        ("token_field".to_owned(), "max_completion_tokens".into()),
        ("system_role".to_owned(), "developer".into()),
        ("service_tier".to_owned(), "default".into()),
        ("no_obfuscation".to_owned(), true.into()),
    ]);
    let wire = over(table, wire);
    for (key, names) in [("reasoning_effort", EFFORTS), ("service_tier", TIERS)] {
        if let Some(word) = wire.get(key).and_then(Value::as_str)
            && !names.contains(&word)
        {
            return Err(ConfigError::unknown_variant(word, names).under(key));
        }
    }
    read_settings::<OpenAiModel>(Some(wire))
}

/// Whether a model uses the Responses API unless configured otherwise: from gpt-5.4 on, and models
/// that have no other API.
fn has_responses(id: &str) -> bool {
    let name = id.strip_prefix("ft:").unwrap_or(id);
    let Some(rest) = name.strip_prefix("gpt-") else {
        return false;
    };
    let mut words = rest.split(['-', ':']);
    let version = words.next().unwrap_or_default();
    let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
    let version = major.parse::<u32>().ok().zip(minor.parse::<u32>().ok());
    version.is_some_and(|version| version >= (5, 4)) || words.any(|w| ["codex", "pro"].contains(&w))
}

pub type OpenAi = Adapter<OpenAiModel>;

/// Builds the client of all modalities. Without a key no `Authorization` is sent.
fn client(setup: &Setup) -> Result<VendorClient, SetupError> {
    let version = VersionPath::Anywhere("v1");
    let key = (AUTHORIZATION, "Bearer ");
    VendorClient::new(setup, version, key, errors::error_info)
}

#[async_trait]
impl TextProvider for OpenAi {
    async fn generate(
        &self,
        call: &TextCall,
        deltas: Option<&DeltaSink>,
    ) -> Result<TextAnswer, ProviderError> {
        let settings = self.settings(&call.model);
        let path: &[&str] = match settings.api {
            Api::Chat => &["chat", "completions"],
            Api::Responses => &["responses"],
        };
        let body = request::json(call, &settings, deltas.is_some())?;
        let post = (self.client.url(path), body);
        match settings.api {
            Api::Chat => exchange::<ResponseParser<'_>>(&self.client, post, call, deltas).await,
            Api::Responses => {
                exchange::<ResponsesParser<'_>>(&self.client, post, call, deltas).await
            }
        }
    }

    async fn count_input(&self, call: &TextCall) -> Result<u64, ProviderError> {
        let body = responses::request::count_json(call, &self.settings(&call.model))?;
        let url = self.client.url(&["responses", "input_tokens"]);
        count(&self.client, (url, body), "input_tokens").await
    }

    fn may_hide_reasoning(&self, call: &TextCall) -> bool {
        let settings = self.settings(&call.model);
        settings.reasoning && request::sent_effort(call, &settings) != Some("none")
    }
}

#[cfg(test)]
mod tests;

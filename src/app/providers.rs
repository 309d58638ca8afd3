//! Adapters from the configuration.

mod media;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use secrecy::SecretString;

use super::AppError;
use crate::{
    config::{self, AnthropicWire, Config, EnabledProvider, GeminiWire, Kind, OpenAiWire, Wire},
    domain::clock::SharedClock,
    providers::{
        Registry,
        anthropic::{Anthropic, AnthropicModel},
        elevenlabs::ElevenLabs,
        gemini::{Gemini, GeminiModel, omni::GeminiOmni, speech::GeminiSpeech},
        http::{HttpClient, SetupError},
        openai::{
            OpenAi, OpenAiModel, SystemRole, TokenField, images::OpenAiImages, speech::OpenAiSpeech,
        },
        runway::Runway,
        sandbox::{SandboxImage, SandboxSpeech, SandboxText, SandboxVideo, video::USUAL_WORK},
        stability::Stability,
    },
};

/// Between two words of a streamed sandbox text: slow enough to be seen, fast enough for tests.
const SANDBOX_WORD_DELAY: Duration = Duration::from_millis(5);

/// The adapters of every enabled provider.
pub(super) fn registry(config: &Config, clock: &SharedClock) -> Result<Registry, AppError> {
    let http = HttpClient::new().map_err(AppError::HttpClient)?;
    let mut registry = Registry::default();
    for provider in config.enabled_providers() {
        let name = provider.name.clone();
        add(&mut registry, &provider, &http, clock)
            .map_err(|source| AppError::Provider { name, source })?;
    }
    Ok(registry)
}

fn add(
    registry: &mut Registry,
    provider: &EnabledProvider,
    http: &HttpClient,
    clock: &SharedClock,
) -> Result<(), SetupError> {
    let base = provider.base_url.as_ref().map_or("", |url| url.as_str());
    let (name, timeout) = (provider.name.clone(), provider.timeout);
    let blank = SecretString::default();
    let key = provider.api_key.as_ref();
    let needed = key.unwrap_or(&blank);
    let (n, http) = (|| name.clone(), || http.clone());
    let Registry {
        text,
        image,
        speech,
        video,
        seats,
    } = registry;
    seats.set(&name, provider.max_concurrent);
    match provider.kind {
        Kind::Sandbox => {
            text.insert(n(), Arc::new(SandboxText::new(SANDBOX_WORD_DELAY)));
            image.insert(n(), Arc::new(SandboxImage));
            speech.insert(n(), Arc::new(SandboxSpeech));
            let film = SandboxVideo::new(Arc::clone(clock), USUAL_WORK);
            video.insert(n(), Arc::new(film));
        }
        Kind::OpenAi | Kind::OpenAiCompatible => {
            let models = wires(provider, openai);
            let adapter = OpenAi::new(n(), http(), base, key, timeout, models)?;
            text.insert(n(), Arc::new(adapter));
            if provider.kind == Kind::OpenAi {
                let models = wires(provider, media::openai_image);
                let adapter = OpenAiImages::new(n(), http(), base, key, timeout, models)?;
                image.insert(n(), Arc::new(adapter));
                let models = wires(provider, media::openai_speech);
                let adapter = OpenAiSpeech::new(n(), http(), base, key, timeout, models)?;
                speech.insert(n(), Arc::new(adapter));
            }
        }
        Kind::Anthropic => {
            let models = wires(provider, anthropic);
            let adapter = Anthropic::new(n(), http(), base, needed, timeout, models)?;
            text.insert(n(), Arc::new(adapter));
        }
        Kind::Gemini => {
            let models = wires(provider, gemini);
            let adapter = Gemini::new(n(), http(), base, needed, timeout, models)?;
            text.insert(n(), Arc::new(adapter));
            let adapter = GeminiSpeech::new(n(), http(), base, needed, timeout)?;
            speech.insert(n(), Arc::new(adapter));
            let models = wires(provider, media::omni);
            let adapter = GeminiOmni::new(n(), http(), base, needed, timeout, models)?;
            video.insert(n(), Arc::new(adapter));
        }
        Kind::Stability => {
            let models = wires(provider, media::stability);
            let adapter = Stability::new(n(), http(), base, needed, timeout, models)?;
            image.insert(n(), Arc::new(adapter));
        }
        Kind::Runway => {
            let models = wires(provider, media::runway);
            let adapter = Runway::new(n(), http(), base, needed, timeout, models)?;
            video.insert(n(), Arc::new(adapter));
        }
        Kind::ElevenLabs => {
            let models = wires(provider, media::elevenlabs);
            let adapter = ElevenLabs::new(n(), http(), base, needed, timeout, models)?;
            speech.insert(n(), Arc::new(adapter));
        }
    }
    Ok(())
}

/// The settings of the provider's models, by model id.
fn wires<T>(
    provider: &EnabledProvider,
    convert: impl Fn(&Wire) -> Option<T>,
) -> BTreeMap<String, T> {
    provider
        .models
        .iter()
        .filter_map(|model| Some((model.id.clone(), convert(&model.wire)?)))
        .collect()
}

fn openai(wire: &Wire) -> Option<OpenAiModel> {
    let Wire::OpenAi(OpenAiWire {
        token_field,
        system_role,
        reasoning_effort,
        explicit_cache,
        service_tier,
        stream_usage,
        no_obfuscation,
    }) = wire
    else {
        return None;
    };
    Some(OpenAiModel {
        token_field: match token_field {
            config::TokenField::MaxTokens => TokenField::MaxTokens,
            config::TokenField::MaxCompletionTokens => TokenField::MaxCompletionTokens,
        },
        system_role: match system_role {
            config::SystemRole::System => SystemRole::System,
            config::SystemRole::Developer => SystemRole::Developer,
        },
        reasoning_effort: reasoning_effort.clone(),
        explicit_cache: *explicit_cache,
        service_tier: service_tier.clone(),
        stream_usage: *stream_usage,
        no_obfuscation: *no_obfuscation,
    })
}

fn anthropic(wire: &Wire) -> Option<AnthropicModel> {
    let Wire::Anthropic(AnthropicWire {
        version,
        effort,
        thinking,
    }) = wire
    else {
        return None;
    };
    let thinking = thinking.map(|thinking| match thinking {
        config::Thinking::Disabled => "disabled",
        config::Thinking::BetweenTools => "between_tools",
        config::Thinking::Adaptive => "adaptive",
    });
    Some(AnthropicModel {
        version: version.clone(),
        effort: effort.clone(),
        thinking: thinking.map(str::to_owned),
    })
}

fn gemini(wire: &Wire) -> Option<GeminiModel> {
    let Wire::Gemini(GeminiWire {
        thinking_level,
        thinking_budget,
    }) = wire
    else {
        return None;
    };
    Some(GeminiModel {
        thinking_level: thinking_level.clone(),
        thinking_budget: thinking_budget.map(i64::from),
    })
}

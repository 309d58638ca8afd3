//! Adapters from the configuration.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::AppError;
use crate::{
    config::{self, AnthropicWire, Config, EnabledProvider, GeminiWire, Kind, OpenAiWire, Wire},
    providers::{
        Registry, TextProvider,
        anthropic::{Anthropic, AnthropicModel},
        gemini::{Gemini, GeminiModel},
        http::{HttpClient, SetupError},
        openai::{OpenAi, OpenAiModel, SystemRole, TokenField},
        sandbox::SandboxText,
    },
};

/// Between two words of a streamed sandbox text: slow enough to be seen, fast enough for tests.
const SANDBOX_WORD_DELAY: Duration = Duration::from_millis(5);

/// The adapters of every enabled provider.
pub(super) fn registry(config: &Config) -> Result<Registry, AppError> {
    let http = HttpClient::new().map_err(AppError::HttpClient)?;
    let mut registry = Registry::default();
    for provider in config.enabled_providers() {
        let adapter = text(&provider, &http).map_err(|source| AppError::Provider {
            name: provider.name.clone(),
            source,
        })?;
        registry.text.insert(provider.name, adapter);
    }
    Ok(registry)
}

fn text(
    provider: &EnabledProvider,
    http: &HttpClient,
) -> Result<Arc<dyn TextProvider>, SetupError> {
    let base_url = provider.base_url.as_ref().map_or("", |url| url.as_str());
    let (name, http, timeout) = (provider.name.clone(), http.clone(), provider.timeout);
    let blank = secrecy::SecretString::default();
    let key = provider.api_key.as_ref();
    Ok(match provider.kind {
        Kind::Sandbox => Arc::new(SandboxText::new(SANDBOX_WORD_DELAY)),
        Kind::OpenAi | Kind::OpenAiCompatible => {
            let models = wires(provider, openai);
            Arc::new(OpenAi::new(name, http, base_url, key, timeout, models)?)
        }
        Kind::Anthropic => {
            let (key, models) = (key.unwrap_or(&blank), wires(provider, anthropic));
            Arc::new(Anthropic::new(name, http, base_url, key, timeout, models)?)
        }
        Kind::Gemini => {
            let (key, models) = (key.unwrap_or(&blank), wires(provider, gemini));
            Arc::new(Gemini::new(name, http, base_url, key, timeout, models)?)
        }
    })
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

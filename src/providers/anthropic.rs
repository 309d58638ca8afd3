//! Anthropic Messages.
//!
//! Here: the settings and the call. Submodules: the request ([`request`]), response parsing
//! ([`response`]) and error types ([`errors`]). Not here: which model takes a temperature; that is in the
//! catalogue. Source: anthropic 2.10.0 (`PyPI`) `anthropic/types/*.py`; checked against requests
//! recorded from the package.

pub mod errors;
pub mod request;
pub mod response;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use reqwest::header::{HeaderMap, HeaderValue};
use serde::{Deserialize, Deserializer};
use url::Url;

use super::{
    DeltaSink, ProviderError, Released, TextAnswer, TextCall, TextProvider,
    exchange::{count, exchange},
    http::{
        HttpClient, JsonPost, SetupError,
        base_url::{VersionPath, endpoint},
        secret_header,
    },
    setup::{Adapters, Setup},
};
use crate::domain::{
    catalogue::{Dialogue, ModelKind},
    conversation::Spelling,
    generation::{Modality, Surface},
    settings::{ConfigError, word},
    vendor::{ModelSettings, Vendor, read_settings},
};
use response::ResponseParser;

pub const ADAPTERS: Adapters = Adapters {
    vendor: Vendor {
        dialogue: Dialogue {
            top_p_with_temperature: false,
            json_object: false,
            free_arguments: false,
            blank_texts: false,
            alternating_roles: true,
            combined_schemas: false,
            names: Spelling {
                max_chars: 128,
                ..WORDS
            },
            ids: WORDS,
            image_detail: false,
            reasoning_fields: false,
            thought_signatures: false,
            documents: true,
            searches: true,
            own: Some(Surface::AnthropicMessages),
            ..Dialogue::ALL
        },
        ..Vendor::new("anthropic", &[Modality::Text], |_, _, wire| {
            read_settings::<AnthropicModel>(wire)
        })
    },
    add: |registry, setup| {
        let adapter = Anthropic::new(setup)?;
        registry.text.insert(setup.name.clone(), Arc::new(adapter));
        Ok(())
    },
};

/// `^[a-zA-Z0-9_-]+$`
const WORDS: Spelling = Spelling {
    symbols: Some("_-"),
    ..Spelling::ANY
};
const VERSION: &str = "anthropic-version";
/// The least thinking of models that cannot do without.
const BETWEEN_TOOLS: &str = "between_tools";
/// Of models whose thinking cannot be changed.
const ALWAYS: &str = "always";
/// The current `anthropic-version`, which answers 400 to a temperature.
pub const CURRENT_VERSION: &str = "2026-10-21";
/// The last version that takes a temperature, for older models.
const SAMPLING_VERSION: &str = "2023-06-01";

/// Settings of one model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AnthropicModel {
    /// `anthropic-version`: [`CURRENT_VERSION`], or `2023-06-01` for a model that is offered
    /// with a temperature (0 to 1).
    #[serde(deserialize_with = "version")]
    pub version: String,
    /// `output_config.effort`. `None` sends nothing.
    #[serde(deserialize_with = "effort")]
    pub effort: Option<String>,
    /// `thinking.type`, as the model takes it; [`ALWAYS`] where it takes none. `None` sends
    /// nothing either.
    #[serde(deserialize_with = "thinking")]
    pub thinking: Option<String>,
}

impl Default for AnthropicModel {
    fn default() -> Self {
        Self {
            version: CURRENT_VERSION.to_owned(),
            effort: None,
            thinking: None,
        }
    }
}

fn version<'de, D: Deserializer<'de>>(source: D) -> Result<String, D::Error> {
    word(source, &[CURRENT_VERSION, SAMPLING_VERSION])
}

fn effort<'de, D: Deserializer<'de>>(source: D) -> Result<Option<String>, D::Error> {
    word(source, &["low", "medium", "high", "xhigh", "max"]).map(Some)
}

fn thinking<'de, D: Deserializer<'de>>(source: D) -> Result<Option<String>, D::Error> {
    word(source, &["disabled", BETWEEN_TOOLS, "adaptive", ALWAYS]).map(Some)
}

impl ModelSettings for AnthropicModel {
    fn always_thinks(&self) -> bool {
        matches!(self.thinking.as_deref(), Some(ALWAYS | BETWEEN_TOOLS))
    }

    fn check(&self, model: &ModelKind) -> Result<(), ConfigError> {
        let ModelKind::Text(text) = model else {
            return Ok(());
        };
        match text.limits.temperature {
            Some([low, high]) if self.version != SAMPLING_VERSION || high > 1.0 => {
                let problem = format!(
                    "is [{low:?}, {high:?}]: Anthropic takes 0.0 to 1.0 and only with \
                     wire.version = \"{SAMPLING_VERSION}\"; set both or leave it out"
                );
                Err(ConfigError::new("limits.temperature", problem))
            }
            _ => Ok(()),
        }
    }
}

/// The text adapter of Anthropic.
#[derive(Debug)]
pub struct Anthropic {
    name: String,
    http: HttpClient,
    url: Url,
    count_url: Url,
    headers: HeaderMap,
    timeout: Duration,
    /// Settings, and the version as a header value.
    models: BTreeMap<String, (AnthropicModel, HeaderValue)>,
}

impl Anthropic {
    /// A model without settings gets the defaults.
    ///
    /// The key is sent as `x-api-key`, which the API and every gateway accept; the SDK 2.x sends it
    /// as a bearer token.
    pub fn new(setup: &Setup) -> Result<Self, SetupError> {
        let mut headers = HeaderMap::new();
        headers.insert("x-api-key", secret_header("", &setup.key())?);
        let url = |path: &[&str]| endpoint(&setup.base_url, VersionPath::Last("v1"), path);
        let count_url = url(&["messages", "count_tokens"])?;
        let url = url(&["messages"])?;
        let models = setup
            .models::<AnthropicModel>()
            .into_iter()
            .map(|(id, settings)| {
                let version =
                    HeaderValue::from_str(&settings.version).map_err(|_| SetupError::Header)?;
                Ok((id, (settings, version)))
            })
            .collect::<Result<_, SetupError>>()?;
        Ok(Self {
            name: setup.name.clone(),
            http: setup.http.clone(),
            url,
            count_url,
            headers,
            timeout: setup.timeout,
            models,
        })
    }

    /// The settings of a call's model, and the headers, with those of the caller.
    fn settings(&self, call: &TextCall) -> (AnthropicModel, HeaderMap) {
        let (settings, mut version) = self.models.get(&call.model).cloned().unwrap_or_else(|| {
            (
                AnthropicModel::default(),
                HeaderValue::from_static(CURRENT_VERSION),
            )
        });
        let mut headers = self.headers.clone();
        let original = call.original.as_ref().map(Released::get);
        for (name, value) in original.iter().flat_map(|original| &original.headers) {
            // They came in a header.
            if let Ok(value) = HeaderValue::from_str(value) {
                if *name == VERSION {
                    version = value;
                } else {
                    headers.insert(*name, value);
                }
            }
        }
        headers.insert(VERSION, version);
        (settings, headers)
    }
}

#[async_trait]
impl TextProvider for Anthropic {
    async fn generate(
        &self,
        call: &TextCall,
        deltas: Option<&DeltaSink>,
    ) -> Result<TextAnswer, ProviderError> {
        let (settings, headers) = self.settings(call);
        let post = JsonPost {
            url: self.url.clone(),
            headers,
            body: request::json(call, &settings, deltas.is_some())?,
            timeout: self.timeout,
        };
        exchange::<ResponseParser<'_>>(&self.http, post, &self.name, call, deltas).await
    }

    async fn count_input(&self, call: &TextCall) -> Result<u64, ProviderError> {
        let (settings, headers) = self.settings(call);
        let post = JsonPost {
            url: self.count_url.clone(),
            headers,
            body: request::count_json(call, &settings)?,
            timeout: self.timeout,
        };
        let member = "input_tokens";
        count(&self.http, post, &self.name, member, errors::error_info).await
    }

    fn may_hide_reasoning(&self, call: &TextCall) -> bool {
        let settings = self.models.get(&call.model).map(|(settings, _)| settings);
        request::may_think(call, settings.unwrap_or(&AnthropicModel::default()))
    }
}

#[cfg(test)]
mod tests;

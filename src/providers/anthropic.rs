//! Anthropic Messages.
//!
//! Here: the request, its settings, and the call. Submodules: response parsing ([`response`])
//! and error types ([`errors`]). Not here: which model takes a temperature; that is in the
//! catalogue. Source: anthropic 2.10.0 (`PyPI`) `anthropic/types/*.py`; checked against requests
//! recorded from the package.

pub mod errors;
pub mod response;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use reqwest::header::{HeaderMap, HeaderValue};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use url::Url;

use super::{
    DeltaSink, ProviderError, TextAnswer, TextCall, TextProvider,
    exchange::exchange,
    http::{
        HttpClient, JsonPost, SetupError,
        base_url::{VersionPath, endpoint},
        secret_header,
    },
    setup::{Adapters, Setup},
};
use crate::domain::{
    catalogue::{Dialogue, ModelKind},
    conversation::{Message, Part, Role},
    generation::Modality,
    settings::{ConfigError, word},
    vendor::{ModelSettings, Vendor, read_settings},
};
use response::ResponseParser;

pub const ADAPTERS: Adapters = Adapters {
    vendor: Vendor {
        dialogue: Dialogue {
            top_p_with_temperature: false,
            ..Dialogue::ALL
        },
        ..Vendor::new("anthropic", &[Modality::Text], |_, wire| {
            read_settings::<AnthropicModel>(wire)
        })
    },
    add: |registry, setup| {
        let adapter = Anthropic::new(setup)?;
        registry.text.insert(setup.name.clone(), Arc::new(adapter));
        Ok(())
    },
};

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
    /// `thinking.type`, as the model takes it. `None` sends nothing.
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
    word(source, &["disabled", "between_tools", "adaptive"]).map(Some)
}

impl ModelSettings for AnthropicModel {
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

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    messages: Vec<WireMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    stop_sequences: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<bool>,
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: Content<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(&'a str),
    Blocks(Vec<Block<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text { text: &'a str },
}

impl<'a> From<&'a Message> for WireMessage<'a> {
    fn from(message: &'a Message) -> Self {
        let role = match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        let content = match &message.parts[..] {
            [Part::Text(text)] => Content::Text(text),
            parts => Content::Blocks(parts.iter().map(Block::from).collect()),
        };
        Self { role, content }
    }
}

impl<'a> From<&'a Part> for Block<'a> {
    fn from(part: &'a Part) -> Self {
        match part {
            Part::Text(text) => Self::Text { text },
        }
    }
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    effort: &'a str,
}

#[derive(Serialize)]
struct Thinking<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
}

fn body(call: &TextCall, settings: &AnthropicModel, streaming: bool) -> Value {
    let messages = call.conversation.messages.iter();
    let body = Body {
        model: &call.model,
        max_tokens: call.max_tokens,
        messages: messages.map(WireMessage::from).collect(),
        system: call.conversation.system.as_deref(),
        // Sent even where the version refuses it: never silently dropped.
        temperature: call.sampling.temperature,
        top_p: call.sampling.top_p,
        stop_sequences: &call.sampling.stop,
        output_config: settings
            .effort
            .as_deref()
            .map(|effort| OutputConfig { effort }),
        thinking: settings.thinking.as_deref().map(|kind| Thinking { kind }),
        stream: streaming.then_some(true),
    };
    // Strings and numbers only: this cannot fail.
    serde_json::to_value(body).unwrap_or_default()
}

/// The text adapter of Anthropic.
#[derive(Debug)]
pub struct Anthropic {
    name: String,
    http: HttpClient,
    url: Url,
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
        let url = endpoint(&setup.base_url, VersionPath::Last("v1"), &["messages"])?;
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
            headers,
            timeout: setup.timeout,
            models,
        })
    }
}

#[async_trait]
impl TextProvider for Anthropic {
    async fn generate(
        &self,
        call: &TextCall,
        deltas: Option<&DeltaSink>,
    ) -> Result<TextAnswer, ProviderError> {
        let (settings, version) = self.models.get(&call.model).cloned().unwrap_or_else(|| {
            (
                AnthropicModel::default(),
                HeaderValue::from_static(CURRENT_VERSION),
            )
        });
        let body = body(call, &settings, deltas.is_some());
        let mut headers = self.headers.clone();
        headers.insert("anthropic-version", version);
        let post = JsonPost {
            url: self.url.clone(),
            headers,
            body: &body,
            timeout: self.timeout,
        };
        exchange::<ResponseParser<'_>>(&self.http, post, &self.name, &call.model, deltas).await
    }
}

#[cfg(test)]
mod tests;

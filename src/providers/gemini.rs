//! Google Gemini `generateContent` and `streamGenerateContent`.
//!
//! Here: the text request, its settings, and the call. Submodules: response parsing
//! ([`response`]), errors ([`errors`]), and the other modalities, [`speech`] and video
//! ([`omni`]). Source: google-genai 3.3.0 (`PyPI`) `google/genai/models.py`, `types.py`; checked
//! against requests recorded from the package.

pub mod errors;
pub mod omni;
pub mod response;
pub mod speech;
pub mod vendor;

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use reqwest::header::HeaderMap;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use url::Url;

use super::{
    DeltaSink, ProviderError, TextAnswer, TextCall, TextProvider,
    exchange::exchange,
    http::{
        HttpClient, JsonPost, SetupError,
        base_url::{BaseUrlError, VersionPath, endpoint},
        secret_header,
    },
    setup::Setup,
};
use crate::domain::{
    conversation::{Conversation, Message, Part, Role},
    settings::{range::bounded, word},
    vendor::ModelSettings,
};
use response::ResponseParser;

/// Settings of one model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GeminiModel {
    /// `thinkingConfig.thinkingLevel`, from the 3.x family on. `None` sends nothing.
    #[serde(deserialize_with = "thinking_level")]
    pub thinking_level: Option<String>,
    /// `thinkingConfig.thinkingBudget` in tokens, 2.5 family; 0 is off. `None` sends nothing.
    #[serde(deserialize_with = "thinking_budget")]
    pub thinking_budget: Option<i64>,
}

fn thinking_level<'de, D: Deserializer<'de>>(source: D) -> Result<Option<String>, D::Error> {
    word(source, &["MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"]).map(Some)
}

fn thinking_budget<'de, D: Deserializer<'de>>(source: D) -> Result<Option<i64>, D::Error> {
    bounded::<_, 0, 32_768, _>(source).map(Some)
}

impl ModelSettings for GeminiModel {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    contents: Vec<Content<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Content<'a>>,
    generation_config: GenerationConfig<'a>,
}

#[derive(Serialize)]
struct Content<'a> {
    role: &'static str,
    parts: Vec<WirePart<'a>>,
}

#[derive(Serialize)]
struct WirePart<'a> {
    text: &'a str,
}

impl<'a> From<&'a Message> for Content<'a> {
    fn from(message: &'a Message) -> Self {
        let role = match message.role {
            // Refused before: there are no instructions between messages.
            Role::System | Role::User => "user",
            Role::Assistant => "model",
        };
        let parts = message.parts.iter().map(WirePart::from).collect();
        Self { role, parts }
    }
}

impl<'a> From<&'a Part> for WirePart<'a> {
    fn from(part: &'a Part) -> Self {
        match part {
            Part::Text(text) => Self { text },
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig<'a> {
    max_output_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    stop_sequences: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<ThinkingConfig<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ThinkingConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<i64>,
}

fn body(call: &TextCall, settings: &GeminiModel) -> Value {
    let Conversation { system, messages } = &call.conversation;
    let thinking = ThinkingConfig {
        thinking_level: settings.thinking_level.as_deref(),
        thinking_budget: settings.thinking_budget,
    };
    let wanted = thinking.thinking_level.is_some() || thinking.thinking_budget.is_some();
    let body = Body {
        contents: messages.iter().map(Content::from).collect(),
        system_instruction: system.as_deref().map(|text| Content {
            // Ignored upstream; it is what the SDK sends.
            role: "user",
            parts: vec![WirePart { text }],
        }),
        generation_config: GenerationConfig {
            max_output_tokens: call.max_tokens,
            temperature: call.sampling.temperature,
            top_p: call.sampling.top_p,
            stop_sequences: &call.sampling.stop,
            thinking_config: wanted.then_some(thinking),
        },
    };
    // Strings and numbers only: this cannot fail.
    serde_json::to_value(body).unwrap_or_default()
}

/// The text adapter of Gemini.
#[derive(Debug)]
pub struct Gemini {
    name: String,
    http: HttpClient,
    base_url: String,
    headers: HeaderMap,
    timeout: Duration,
    models: BTreeMap<String, GeminiModel>,
}

impl Gemini {
    /// A base URL without a version path gets `/v1beta`; a given one (`/v1`) is kept. The key is
    /// sent in a header, since query strings end up in logs. A model without settings
    /// gets the defaults.
    pub fn new(setup: &Setup) -> Result<Self, SetupError> {
        let mut headers = HeaderMap::new();
        headers.insert("x-goog-api-key", secret_header("", &setup.key())?);
        let gemini = Self {
            name: setup.name.clone(),
            http: setup.http.clone(),
            base_url: setup.base_url.clone(),
            headers,
            timeout: setup.timeout,
            models: setup.models(),
        };
        gemini.url("any", false)?;
        Ok(gemini)
    }

    fn url(&self, model: &str, streaming: bool) -> Result<Url, BaseUrlError> {
        let method = if streaming {
            "streamGenerateContent"
        } else {
            "generateContent"
        };
        let path = ["models", &format!("{model}:{method}")];
        let mut url = endpoint(&self.base_url, VersionPath::Last("v1beta"), &path)?;
        if streaming {
            url.set_query(Some("alt=sse"));
        }
        Ok(url)
    }
}

#[async_trait]
impl TextProvider for Gemini {
    async fn generate(
        &self,
        call: &TextCall,
        deltas: Option<&DeltaSink>,
    ) -> Result<TextAnswer, ProviderError> {
        let settings = self.models.get(&call.model).cloned().unwrap_or_default();
        let body = body(call, &settings);
        let model = call.model.strip_prefix("models/").unwrap_or(&call.model);
        let url = self.url(model, deltas.is_some())?;
        let headers = self.headers.clone();
        let post = JsonPost {
            url,
            headers,
            body: &body,
            timeout: self.timeout,
        };
        exchange::<ResponseParser<'_>>(&self.http, post, &self.name, model, deltas).await
    }
}

#[cfg(test)]
mod tests;

//! Google Gemini `generateContent` and `streamGenerateContent`.
//!
//! Here: the settings and the call of a text. Submodules: its request ([`request`]), response
//! parsing ([`response`]), errors ([`errors`]), and the other modalities, [`speech`] and video
//! ([`omni`]). Source: google-genai 3.3.0 (`PyPI`) `google/genai/models.py`, `types.py`; checked
//! against requests recorded from the package.

pub mod errors;
pub mod omni;
pub mod request;
pub mod response;
pub mod speech;
pub mod vendor;

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use reqwest::header::HeaderMap;
use serde::{Deserialize, Deserializer};
use url::Url;

use super::{
    DeltaSink, ProviderError, TextAnswer, TextCall, TextProvider,
    exchange::{count, exchange},
    http::{
        HttpClient, JsonPost, SetupError,
        base_url::{BaseUrlError, VersionPath, endpoint},
        secret_header,
    },
    setup::Setup,
};
use crate::domain::{
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
        let mut url = self.url_of(model, method)?;
        if streaming {
            url.set_query(Some("alt=sse"));
        }
        Ok(url)
    }

    fn url_of(&self, model: &str, method: &str) -> Result<Url, BaseUrlError> {
        let path = ["models", &format!("{model}:{method}")];
        endpoint(&self.base_url, VersionPath::Last("v1beta"), &path)
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
        let model = call.model.strip_prefix("models/").unwrap_or(&call.model);
        let url = self.url(model, deltas.is_some())?;
        let headers = self.headers.clone();
        let post = JsonPost {
            url,
            headers,
            body: request::json(call, &settings)?,
            timeout: self.timeout,
        };
        exchange::<ResponseParser<'_>>(&self.http, post, &self.name, call, deltas).await
    }

    async fn count_input(&self, call: &TextCall) -> Result<u64, ProviderError> {
        let settings = self.models.get(&call.model).cloned().unwrap_or_default();
        let model = call.model.strip_prefix("models/").unwrap_or(&call.model);
        let post = JsonPost {
            url: self.url_of(model, "countTokens")?,
            headers: self.headers.clone(),
            body: request::count_json(call, &settings)?,
            timeout: self.timeout,
        };
        let member = "totalTokens";
        count(&self.http, post, &self.name, member, errors::error_info).await
    }

    fn may_hide_reasoning(&self, call: &TextCall) -> bool {
        let settings = self.models.get(&call.model).cloned().unwrap_or_default();
        request::may_think(call.sampling.reasoning, &settings)
    }
}

#[cfg(test)]
mod tests;

//! OpenAI Chat Completions and Responses, for OpenAI itself and for compatible servers.
//!
//! One adapter, because compatible servers differ only in details, which are settings of a
//! model, as is the API. Submodules: of Chat Completions [`request`] with [`message`], [`response`]
//! with [`calls`] and [`usage`]; [`responses`]; [`errors`], and the other modalities, [`images`] and
//! [`speech`]. Not here: which model takes which parameter; that is in the catalogue. Source: openai 3.51.0 (`PyPI`) `openai/types/chat/`, and recorded bodies of the
//! compatible servers; checked against requests recorded from the package.

mod calls;
pub mod errors;
pub mod images;
pub mod message;
pub mod request;
pub mod response;
mod responses;
pub mod speech;
pub mod split;
mod usage;
pub mod vendor;

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use url::Url;

use super::{
    DeltaSink, ProviderError, TextAnswer, TextCall, TextProvider,
    exchange::{count, exchange},
    http::{
        HttpClient, JsonPost, SetupError,
        base_url::{VersionPath, endpoint},
        secret_header,
    },
    setup::Setup,
};
pub use request::{Api, OpenAiModel, SystemRole, TokenField};
use response::ResponseParser;

/// The text adapter of `OpenAI` and of compatible servers.
#[derive(Debug)]
pub struct OpenAi {
    name: String,
    http: HttpClient,
    chat_url: Url,
    responses_url: Url,
    count_url: Url,
    headers: HeaderMap,
    timeout: Duration,
    models: BTreeMap<String, OpenAiModel>,
}

impl OpenAi {
    /// Without a key no `Authorization` is sent. A model without settings gets the
    /// defaults.
    pub fn new(setup: &Setup) -> Result<Self, SetupError> {
        let url = |path: &[&str]| endpoint(&setup.base_url, VersionPath::Anywhere("v1"), path);
        Ok(Self {
            name: setup.name.clone(),
            http: setup.http.clone(),
            chat_url: url(&["chat", "completions"])?,
            responses_url: url(&["responses"])?,
            count_url: url(&["responses", "input_tokens"])?,
            headers: authorization(setup)?,
            timeout: setup.timeout,
            models: setup.models(),
        })
    }
}

fn authorization(setup: &Setup) -> Result<HeaderMap, SetupError> {
    let mut headers = HeaderMap::new();
    if let Some(key) = &setup.api_key {
        headers.insert(AUTHORIZATION, secret_header("Bearer ", key)?);
    }
    Ok(headers)
}

#[async_trait]
impl TextProvider for OpenAi {
    async fn generate(
        &self,
        call: &TextCall,
        deltas: Option<&DeltaSink>,
    ) -> Result<TextAnswer, ProviderError> {
        let settings = self.models.get(&call.model).cloned().unwrap_or_default();
        let streaming = deltas.is_some();
        let url = match settings.api {
            Api::Chat => &self.chat_url,
            Api::Responses => &self.responses_url,
        };
        let post = JsonPost {
            url: url.clone(),
            headers: self.headers.clone(),
            body: request::json(call, &settings, streaming)?,
            timeout: self.timeout,
        };
        let (http, name) = (&self.http, &self.name);
        match settings.api {
            Api::Chat => exchange::<ResponseParser<'_>>(http, post, name, call, deltas).await,
            Api::Responses => {
                exchange::<responses::response::ResponseParser<'_>>(http, post, name, call, deltas)
                    .await
            }
        }
    }

    async fn count_input(&self, call: &TextCall) -> Result<u64, ProviderError> {
        let settings = self.models.get(&call.model).cloned().unwrap_or_default();
        let post = JsonPost {
            url: self.count_url.clone(),
            headers: self.headers.clone(),
            body: responses::request::count_json(call, &settings)?,
            timeout: self.timeout,
        };
        let member = "input_tokens";
        count(&self.http, post, &self.name, member, errors::error_info).await
    }

    fn may_hide_reasoning(&self, call: &TextCall) -> bool {
        let settings = self.models.get(&call.model).cloned().unwrap_or_default();
        settings.reasoning && request::sent_effort(call, &settings) != Some("none")
    }
}

#[cfg(test)]
mod tests;

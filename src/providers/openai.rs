//! OpenAI Chat Completions, for OpenAI itself and for compatible servers.
//!
//! One adapter, because compatible servers differ only in details, which are settings of a
//! model. Submodules: [`request`] with [`message`], [`response`] with [`calls`] and [`usage`],
//! [`errors`], and the other modalities, [`images`] and [`speech`]. Not here: which model takes which parameter; that is in the
//! catalogue. Source: openai 3.51.0 (`PyPI`) `openai/types/chat/`, and recorded bodies of the
//! compatible servers; checked against requests recorded from the package.

mod calls;
pub mod errors;
pub mod images;
pub mod message;
pub mod request;
pub mod response;
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
    exchange::exchange,
    http::{
        HttpClient, JsonPost, SetupError,
        base_url::{VersionPath, endpoint},
        secret_header,
    },
    setup::Setup,
};
pub use request::{OpenAiModel, SystemRole, TokenField};
use response::ResponseParser;

/// The text adapter of `OpenAI` and of compatible servers.
#[derive(Debug)]
pub struct OpenAi {
    name: String,
    http: HttpClient,
    url: Url,
    headers: HeaderMap,
    timeout: Duration,
    models: BTreeMap<String, OpenAiModel>,
}

impl OpenAi {
    /// Without a key no `Authorization` is sent. A model without settings gets the
    /// defaults.
    pub fn new(setup: &Setup) -> Result<Self, SetupError> {
        let url = endpoint(
            &setup.base_url,
            VersionPath::Anywhere("v1"),
            &["chat", "completions"],
        )?;
        Ok(Self {
            name: setup.name.clone(),
            http: setup.http.clone(),
            url,
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
        let post = JsonPost {
            url: self.url.clone(),
            headers: self.headers.clone(),
            body: request::json(call, &settings, deltas.is_some())?,
            timeout: self.timeout,
        };
        exchange::<ResponseParser<'_>>(&self.http, post, &self.name, call, deltas).await
    }

    fn may_hide_reasoning(&self, call: &TextCall) -> bool {
        let settings = self.models.get(&call.model).cloned().unwrap_or_default();
        settings.reasoning && request::sent_effort(call, &settings) != Some("none")
    }
}

#[cfg(test)]
mod tests;

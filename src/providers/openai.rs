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

use async_trait::async_trait;
use reqwest::header::AUTHORIZATION;

use super::{
    DeltaSink, ProviderError, TextAnswer, TextCall, TextProvider,
    exchange::{count, exchange},
    http::{SetupError, VendorClient, base_url::VersionPath},
    setup::{Adapter, Setup},
};
pub use request::{Api, OpenAiModel, SystemRole, TokenField};
use response::ResponseParser;

/// The text adapter of `OpenAI` and of compatible servers.
pub type OpenAi = Adapter<OpenAiModel>;

impl OpenAi {
    pub fn new(setup: &Setup) -> Result<Self, SetupError> {
        Ok(Self::with_client(client(setup)?, setup))
    }
}

/// The client of all modalities. Without a key no `Authorization` is sent.
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
        let post = (self.client.url(path)?, body);
        match settings.api {
            Api::Chat => exchange::<ResponseParser<'_>>(&self.client, post, call, deltas).await,
            Api::Responses => {
                exchange::<responses::response::ResponseParser<'_>>(
                    &self.client,
                    post,
                    call,
                    deltas,
                )
                .await
            }
        }
    }

    async fn count_input(&self, call: &TextCall) -> Result<u64, ProviderError> {
        let body = responses::request::count_json(call, &self.settings(&call.model))?;
        let url = self.client.url(&["responses", "input_tokens"])?;
        count(&self.client, (url, body), "input_tokens").await
    }

    fn may_hide_reasoning(&self, call: &TextCall) -> bool {
        let settings = self.settings(&call.model);
        settings.reasoning && request::sent_effort(call, &settings) != Some("none")
    }
}

#[cfg(test)]
mod tests;

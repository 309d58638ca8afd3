//! OpenAI Chat Completions, for OpenAI itself and for compatible servers.
//!
//! One adapter, because compatible servers differ only in details, which are settings of a
//! model. Submodules: [`request`], [`response`], [`errors`], and the other modalities,
//! [`images`] and [`speech`]. Not here: which model takes which parameter; that is in the
//! catalogue. Source: openai 3.51.0 (`PyPI`) `openai/types/chat/`, and recorded bodies of the
//! compatible servers; checked against requests recorded from the package.

pub mod errors;
pub mod images;
pub mod request;
pub mod response;
pub mod speech;
pub mod split;
pub mod vendor;

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use url::Url;

use super::{
    DeltaSink, ProviderError, TextAnswer, TextCall, TextProvider,
    answer::TextBuffer,
    http::{
        Answer, HttpClient, JsonPost, SetupError, TEXT_BODY_CAP,
        base_url::{VersionPath, endpoint},
        classify, secret_header,
    },
    setup::Setup,
};
pub use request::{OpenAiModel, SystemRole, TokenField};
use response::{Place, ResponseParser};

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

    async fn plain(&self, call: &TextCall, answer: Answer) -> Result<TextAnswer, ProviderError> {
        let head = answer.head().clone();
        let root = answer.json(TEXT_BODY_CAP).await?;
        let mut parser = ResponseParser::new(&self.name, &call.model, &head, TextBuffer::new(None));
        parser.feed(&root, Place::Message)?;
        parser.end(false)
    }

    async fn streamed(
        &self,
        call: &TextCall,
        answer: Answer,
        deltas: &DeltaSink,
    ) -> Result<TextAnswer, ProviderError> {
        let head = answer.head().clone();
        let mut events = answer.events();
        let mut parser = ResponseParser::new(
            &self.name,
            &call.model,
            &head,
            TextBuffer::new(Some(deltas)),
        );
        while let Some(event) = events
            .next()
            .await
            .map_err(|error| head.with_context(error))?
        {
            if event.data.trim() == "[DONE]" {
                break;
            }
            let root =
                serde_json::from_str(&event.data).map_err(|_| head.failed("event is not JSON"))?;
            if event.name.as_deref() == Some("error") {
                return Err(classify::from_error_in_body(
                    &self.name,
                    &head,
                    &errors::error_info(Some(&root)),
                ));
            }
            parser.feed(&root, Place::Delta)?;
        }
        parser.end(true)
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
        let body = request::body(call, &settings, deltas.is_some());
        let post = JsonPost {
            url: self.url.clone(),
            headers: self.headers.clone(),
            body: &body,
            timeout: self.timeout,
        };
        let answer = self.http.post_json(post).await?;
        if !answer.head().is_success() {
            let (head, body) = answer.error_json().await;
            return Err(classify::answered(
                &self.name,
                &head,
                &errors::error_info(body.as_ref()),
            ));
        }
        match deltas {
            None => self.plain(call, answer).await,
            Some(deltas) => self.streamed(call, answer, deltas).await,
        }
    }
}

#[cfg(test)]
mod tests;

//! Speech by `audio/speech`: `OpenAI` and compatible servers.
//!
//! A long text is split by [`split`](super::split); the caller joins the parts. Source: openai
//! 3.52.0 (`PyPI`) `openai/types/audio/speech_create_params.py`; checked against a request
//! recorded from the package.

use async_trait::async_trait;
use bytes::Bytes;
use reqwest::header::ACCEPT;
use serde::{Deserialize, Serialize};

use super::{
    super::{
        ProviderError, SpeechAnswer, SpeechCall, SpeechProvider,
        http::{Models, RequestJson, SPEECH_CAP, SetupError, VendorClient},
        setup::Setup,
    },
    client,
    split::split,
};
use crate::domain::{
    settings::{blank_is_none, range::bounded},
    vendor::ModelSettings,
};

/// Settings of one model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OpenAiSpeechModel {
    /// Characters per call; a longer text is split.
    #[serde(deserialize_with = "bounded::<usize, 1, 4_096, _>")]
    pub max_chars: usize,
    /// `instructions` for the speaking style; not for `tts-1`. `None` sends nothing.
    #[serde(deserialize_with = "blank_is_none")]
    pub instructions: Option<String>,
}

impl Default for OpenAiSpeechModel {
    fn default() -> Self {
        Self {
            max_chars: 4096,
            instructions: None,
        }
    }
}

impl ModelSettings for OpenAiSpeechModel {}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    input: &'a str,
    voice: &'a str,
    response_format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    speed: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
}

fn body<'a>(call: &'a SpeechCall, input: &'a str, settings: &'a OpenAiSpeechModel) -> Body<'a> {
    Body {
        model: &call.model,
        input,
        voice: &call.voice,
        response_format: call.format.as_str(),
        speed: call.speed.total_cmp(&1.0).is_ne().then_some(call.speed),
        instructions: settings.instructions.as_deref(),
    }
}

/// The speech adapter of `OpenAI` and of compatible servers.
#[derive(Debug)]
pub struct OpenAiSpeech {
    client: VendorClient,
    models: Models<OpenAiSpeechModel>,
}

impl OpenAiSpeech {
    /// The timeout bounds each call of a split text.
    pub fn new(setup: &Setup) -> Result<Self, SetupError> {
        Ok(Self {
            client: client(setup)?.with(ACCEPT, "application/octet-stream"),
            models: setup.models(),
        })
    }

    /// One call; returns the file and the request id.
    async fn part(
        &self,
        body: &Body<'_>,
        cap: usize,
    ) -> Result<(Bytes, Option<String>), ProviderError> {
        let url = self.client.url(&["audio", "speech"])?;
        let answer = self.client.post(url, RequestJson::of(body)?).await?;
        let request_id = answer.head().request_id.clone();
        Ok((answer.file(cap).await?, request_id))
    }
}

#[async_trait]
impl SpeechProvider for OpenAiSpeech {
    async fn generate(&self, call: &SpeechCall) -> Result<SpeechAnswer, ProviderError> {
        let settings = self.models.get(&call.model);
        let mut parts = Vec::new();
        let mut request_id = None;
        let mut left = SPEECH_CAP;
        for input in split(&call.text, settings.max_chars) {
            let body = body(call, input, &settings);
            let (part, id) = self.part(&body, left).await.map_err(|mut error| {
                // The earlier calls were made and are billed.
                error.not_started &= parts.is_empty();
                error.is_refused &= parts.is_empty();
                error
            })?;
            left -= part.len();
            parts.push(part);
            request_id = id.or(request_id);
        }
        if parts.is_empty() {
            return Err(ProviderError::rejected("nothing to speak"));
        }
        Ok(SpeechAnswer { parts, request_id })
    }

    fn has_model(&self, model: &str) -> bool {
        self.models.has(model)
    }
}

#[cfg(test)]
mod tests;

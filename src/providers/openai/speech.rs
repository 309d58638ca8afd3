//! Speech by `audio/speech`: `OpenAI` and compatible servers.
//!
//! A long text is split by [`split`]; the caller joins the parts. Source: openai
//! 3.52.0 (`PyPI`) `openai/types/audio/speech_create_params.py`; checked against a request
//! recorded from the package.

use async_trait::async_trait;
use bytes::Bytes;
use reqwest::header::ACCEPT;
use serde::Deserialize;
use serde_json::Value;

use super::{
    super::{
        ProviderError, SpeechAnswer, SpeechCall, SpeechProvider,
        http::{RequestJson, SPEECH_CAP, SetupError, VendorClient},
        setup::{Adapter, Setup},
        split::split,
    },
    over,
};
use crate::{
    catalogue::vendor::{ModelSettings, SharedSettings, read_settings},
    domain::{
        conversation::WireObject,
        settings::{ConfigError, blank_is_none, range::bounded},
    },
};

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OpenAiSpeechModel {
    /// Maximum characters per call; a longer text is split.
    #[serde(deserialize_with = "bounded::<usize, 1, 4_096, _>")]
    pub max_chars: usize,
    /// `instructions` for the speaking style, unless the request has its own; not for `tts-1`.
    /// `None` sends nothing.
    #[serde(deserialize_with = "blank_is_none")]
    pub instructions: Option<String>,
    pub takes_instructions: bool,
}

impl Default for OpenAiSpeechModel {
    fn default() -> Self {
        Self {
            max_chars: 4096,
            instructions: None,
            takes_instructions: true,
        }
    }
}

impl ModelSettings for OpenAiSpeechModel {
    fn takes_instructions(&self) -> bool {
        self.takes_instructions
    }
}

/// Reads the settings of a model; `tts-1` and `tts-1-hd` support no instructions.
pub fn settings(id: &str, wire: Option<toml::Value>) -> Result<SharedSettings, ConfigError> {
    let takes_instructions = !id.starts_with("tts-1");
    let defaults = [("takes_instructions".to_owned(), takes_instructions.into())];
    read_settings::<OpenAiSpeechModel>(Some(over(defaults.into_iter().collect(), wire)))
}

impl OpenAiSpeechModel {
    /// Returns the maximum characters of the text of a call, at least half of `max_chars`: its
    /// instructions use a part of the model's input.
    fn max_chars(&self, call: &SpeechCall) -> usize {
        let instructions = call.characters() - call.text.chars().count();
        self.max_chars - instructions.min(self.max_chars / 2)
    }
}

fn body(
    call: &SpeechCall,
    input: &str,
    settings: &OpenAiSpeechModel,
) -> Result<RequestJson, ProviderError> {
    let speed = call.speed.total_cmp(&1.0).is_ne().then_some(call.speed);
    let instructions = call
        .instructions
        .as_ref()
        .or(settings.instructions.as_ref());
    let body = WireObject::default()
        .with("model", &call.model)
        .with("input", input)
        .with("voice", &call.voice)
        .with("response_format", call.format.as_str())
        .with_some("speed", speed.map(Value::from))
        .with_some("instructions", instructions);
    RequestJson::of(&body)
}

/// The speech adapter of `OpenAI` and of compatible servers.
pub type OpenAiSpeech = Adapter<OpenAiSpeechModel>;

/// Builds the client. The timeout applies to each call of a split text.
pub fn client(setup: &Setup) -> Result<VendorClient, SetupError> {
    Ok(super::client(setup)?.with(ACCEPT, "application/octet-stream"))
}

impl OpenAiSpeech {
    /// Makes one call. Returns the file and the request id.
    async fn part(
        &self,
        body: RequestJson,
        cap: usize,
    ) -> Result<(Bytes, Option<String>), ProviderError> {
        let url = self.client.url(&["audio", "speech"]);
        let answer = self.client.post(url, body).await?;
        let request_id = answer.head().request_id.clone();
        Ok((answer.file(cap).await?, request_id))
    }
}

#[async_trait]
impl SpeechProvider for OpenAiSpeech {
    async fn generate(&self, call: &SpeechCall) -> Result<SpeechAnswer, ProviderError> {
        let settings = self.settings(&call.model);
        let mut parts = Vec::new();
        let mut request_id = None;
        let mut left = SPEECH_CAP;
        for input in split(&call.text, settings.max_chars(call)) {
            let body = body(call, input, &settings)?;
            let (part, id) = self.part(body, left).await.map_err(|mut error| {
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
        self.models.contains_key(model)
    }
}

#[cfg(test)]
mod tests;

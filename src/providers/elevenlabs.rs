//! ElevenLabs text to speech.
//!
//! Here: the call and its settings; in [`errors`]: what the errors mean. Sources: elevenlabs
//! 2.78.0 (`PyPI`) `elevenlabs/text_to_speech/raw_client.py`, `types/voice_settings.py`;
//! checked against a request that the package really sends.

pub mod errors;

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use super::{
    ProviderError, SpeechAnswer, SpeechCall, SpeechFormat, SpeechProvider,
    http::{
        HttpClient, JsonPost, SPEECH_CAP, SetupError,
        base_url::{BaseUrlError, VersionPath, endpoint},
        classify, rejected, secret_header,
    },
};

/// Longest id of a voice that is believed to be one; real ones have 20 characters.
const VOICE_CAP: usize = 64;

/// How to ask one model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ElevenLabsModel {
    /// `output_format` of mp3. 192 kbit/s needs a dearer plan.
    pub mp3: String,
    /// `output_format` of wav. 44.1 kHz needs a dearer plan.
    pub wav: String,
}

impl Default for ElevenLabsModel {
    fn default() -> Self {
        Self {
            mp3: "mp3_44100_128".to_owned(),
            wav: "wav_24000".to_owned(),
        }
    }
}

#[derive(Serialize)]
struct Body<'a> {
    text: &'a str,
    model_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    voice_settings: Option<VoiceSettings>,
}

/// Only what is asked for: the rest stays as the voice's owner has set it.
#[derive(Serialize)]
struct VoiceSettings {
    speed: f64,
}

fn body(call: &SpeechCall) -> Value {
    let speed = call.speed.total_cmp(&1.0).is_ne().then_some(call.speed);
    let body = Body {
        text: &call.text,
        model_id: &call.model,
        voice_settings: speed.map(|speed| VoiceSettings { speed }),
    };
    // Strings and numbers only: this cannot fail, and null would be refused upstream.
    serde_json::to_value(body).unwrap_or_default()
}

/// The speech adapter of ElevenLabs.
#[derive(Debug)]
pub struct ElevenLabs {
    name: String,
    http: HttpClient,
    base_url: String,
    headers: HeaderMap,
    timeout: Duration,
    models: BTreeMap<String, ElevenLabsModel>,
}

impl ElevenLabs {
    /// `name` is the provider's in our API and in the log. `base_url` may hold the version
    /// path or not. `timeout` bounds one call from connecting to the last byte. A model that
    /// is not in `models` gets the default settings.
    pub fn new(
        name: impl Into<String>,
        http: HttpClient,
        base_url: &str,
        api_key: &SecretString,
        timeout: Duration,
        models: BTreeMap<String, ElevenLabsModel>,
    ) -> Result<Self, SetupError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert("xi-api-key", secret_header("", api_key)?);
        let elevenlabs = Self {
            name: name.into(),
            http,
            base_url: base_url.to_owned(),
            headers,
            timeout,
            models,
        };
        elevenlabs.url("any", "any")?;
        Ok(elevenlabs)
    }

    fn url(&self, voice: &str, format: &str) -> Result<Url, BaseUrlError> {
        let path = ["text-to-speech", voice];
        let mut url = endpoint(&self.base_url, VersionPath::Last("v1"), &path)?;
        url.query_pairs_mut().append_pair("output_format", format);
        Ok(url)
    }
}

/// A voice is a segment of the path: nothing but letters and digits may get there.
fn is_voice(voice: &str) -> bool {
    (1..=VOICE_CAP).contains(&voice.len()) && voice.bytes().all(|b| b.is_ascii_alphanumeric())
}

#[async_trait]
impl SpeechProvider for ElevenLabs {
    async fn generate(&self, call: &SpeechCall) -> Result<SpeechAnswer, ProviderError> {
        if !is_voice(&call.voice) {
            return Err(rejected("no id of a voice"));
        }
        let settings = self.models.get(&call.model).cloned().unwrap_or_default();
        let format = match call.format {
            SpeechFormat::Mp3 => &settings.mp3,
            SpeechFormat::Wav => &settings.wav,
        };
        let url = self.url(&call.voice, format)?;
        let body = body(call);
        let post = JsonPost {
            url,
            headers: self.headers.clone(),
            body: &body,
            timeout: self.timeout,
        };
        let answer = self.http.post_json(post).await?;
        if !answer.head().is_success() {
            let (head, body) = answer.error_json().await;
            let finding = errors::finding(body.as_ref());
            return Err(classify::answered(&self.name, &head, &finding));
        }
        let request_id = answer.head().request_id.clone();
        Ok(SpeechAnswer {
            parts: vec![answer.file(SPEECH_CAP).await?],
            request_id,
        })
    }
}

#[cfg(test)]
mod tests;

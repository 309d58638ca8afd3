//! Gemini text to speech, by `generateContent` with audio output.
//!
//! WAV only: Gemini does not produce mp3.
//! Sources: google-genai 3.4.0 (`PyPI`) `google/genai/types.py` (`SpeechConfig`); checked
//! against a request recorded from the package. RFC 2586 for `audio/L16`.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use url::Url;

use super::{
    super::{
        ProviderError, ProviderErrorKind, SpeechAnswer, SpeechCall, SpeechProvider,
        answer::{self, note_model},
        http::{
            HttpClient, JsonPost, RequestJson, SPEECH_CAP, SetupError,
            base_url::{BaseUrlError, VersionPath, endpoint},
            classify::{self, ErrorInfo, Head, clean_id},
            secret_header,
        },
        setup::Setup,
    },
    errors, response,
};
use crate::{
    domain::{
        catalogue::ModelKind, request::SpeechFormat, settings::ConfigError, vendor::ModelSettings,
    },
    media::wav,
};

/// Speech in base64: 16,384 tokens, a model's maximum, are some 42 MB at 25 per second.
const BODY_CAP: usize = 64 << 20;
/// The sample rate of PCM that does not state one.
const RATE: u32 = 24_000;

/// A model has no settings.
#[derive(Debug, Default)]
pub struct GeminiSpeechModel;

impl ModelSettings for GeminiSpeechModel {
    fn check(&self, model: &ModelKind) -> Result<(), ConfigError> {
        if let ModelKind::Speech(speech) = model
            && let Some(range) = speech.limits.speed
        {
            let problem = format!("is {range:?}: Gemini has no field for it; leave it out");
            return Err(ConfigError::new("limits.speed", problem));
        }
        Ok(())
    }
}

/// The speech adapter of Gemini.
#[derive(Debug)]
pub struct GeminiSpeech {
    name: String,
    http: HttpClient,
    base_url: String,
    headers: HeaderMap,
    timeout: Duration,
}

impl GeminiSpeech {
    /// As [`Gemini::new`](super::Gemini::new).
    pub fn new(setup: &Setup) -> Result<Self, SetupError> {
        let mut headers = HeaderMap::new();
        headers.insert("x-goog-api-key", secret_header("", &setup.key())?);
        let speech = Self {
            name: setup.name.clone(),
            http: setup.http.clone(),
            base_url: setup.base_url.clone(),
            headers,
            timeout: setup.timeout,
        };
        speech.url("any")?;
        Ok(speech)
    }

    fn url(&self, model: &str) -> Result<Url, BaseUrlError> {
        let model = model.strip_prefix("models/").unwrap_or(model);
        let path = ["models", &format!("{model}:generateContent")];
        endpoint(&self.base_url, VersionPath::Last("v1beta"), &path)
    }
}

fn read(
    provider: &str,
    model: &str,
    head: &Head,
    root: &Value,
) -> Result<SpeechAnswer, ProviderError> {
    if errors::error_of(root).is_some() {
        let error_info = errors::error_info(Some(root));
        return Err(classify::from_error_in_body(provider, head, &error_info));
    }
    let asked = model.strip_prefix("models/").unwrap_or(model);
    note_model(provider, asked, root.get("modelVersion"));
    let text = |path: &str| root.pointer(path).and_then(Value::as_str);
    let blocked = text("/promptFeedback/blockReason");
    if let Some(reason) = blocked.filter(|r| *r != "BLOCKED_REASON_UNSPECIFIED") {
        return Err(head.refused(Some(reason)));
    }
    match text("/candidates/0/finishReason") {
        None | Some("STOP" | "FINISH_REASON_UNSPECIFIED") => {}
        Some(reason) if response::is_policy(reason) => return Err(head.refused(Some(reason))),
        // MAX_TOKENS too: a truncated recording is a failure.
        Some(reason) => {
            let error_info = ErrorInfo {
                code: Some(reason.to_owned()),
                kind: (reason == "PUP_LIMITED_DISABLED").then_some(ProviderErrorKind::Account),
                ..ErrorInfo::default()
            };
            return Err(classify::from_error_in_body(provider, head, &error_info));
        }
    }
    let parts = root
        .pointer("/candidates/0/content/parts")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|part| part.get("inlineData"))
        .map(|data| part(data).map_err(|error| head.with_context(error)))
        .collect::<Result<Vec<_>, _>>()?;
    if parts.is_empty() {
        return Err(head.failed("answer without audio"));
    }
    if parts.iter().map(Bytes::len).sum::<usize>() > SPEECH_CAP {
        return Err(head.failed("speech over the cap"));
    }
    let id = root.get("responseId").and_then(Value::as_str);
    Ok(SpeechAnswer {
        parts,
        request_id: head.request_id.clone().or_else(|| id.and_then(clean_id)),
    })
}

fn body(call: &SpeechCall) -> Value {
    json!({
        "contents": [{"role": "user", "parts": [{"text": call.text}]}],
        "generationConfig": {
            "responseModalities": ["AUDIO"],
            "speechConfig": {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": call.voice}}},
        },
    })
}

/// A WAV file: as received, or raw PCM with a header prepended.
fn part(data: &Value) -> Result<Bytes, ProviderError> {
    let text = |name: &str| data.get(name).and_then(Value::as_str);
    let bytes = answer::file(text("data").unwrap_or_default(), SPEECH_CAP)?;
    if bytes.starts_with(b"RIFF") {
        return Ok(bytes);
    }
    let kind = text("mimeType").unwrap_or_default().to_ascii_lowercase();
    let mut words = kind.split(';').map(str::trim);
    if !matches!(words.next(), Some("audio/l16" | "audio/pcm" | "audio/raw")) {
        return Err(ProviderError::failed("audio of another type"));
    }
    let (mut rate, mut channels) = (RATE, 1);
    for word in words {
        match word.split_once('=') {
            Some(("rate", value)) => {
                rate = value
                    .parse()
                    .map_err(|_| ProviderError::failed("no sample rate"))?;
            }
            Some(("channels", value)) => {
                channels = value
                    .parse()
                    .map_err(|_| ProviderError::failed("no channels"))?;
            }
            _ => {}
        }
    }
    // L16 is big-endian by its RFC, but Gemini's is little-endian, like WAV.
    wav(channels, rate, &[&bytes]).ok_or_else(|| ProviderError::failed("impossible audio"))
}

#[async_trait]
impl SpeechProvider for GeminiSpeech {
    async fn generate(&self, call: &SpeechCall) -> Result<SpeechAnswer, ProviderError> {
        if call.format != SpeechFormat::Wav {
            return Err(ProviderError::rejected("no such format"));
        }
        if call.speed.total_cmp(&1.0).is_ne() {
            return Err(ProviderError::rejected("no such field as speed"));
        }
        let body = body(call);
        let url = self.url(&call.model)?;
        let post = JsonPost {
            url,
            headers: self.headers.clone(),
            body: RequestJson::of(&body)?,
            timeout: self.timeout,
        };
        let answer = self.http.post_json(post).await?;
        let answer = answer
            .error_for_status(&self.name, errors::error_info)
            .await?;
        let (provider, model) = (self.name.clone(), call.model.clone());
        let read = move |head: &Head, root| read(&provider, &model, head, &root);
        answer.json_files(BODY_CAP, read).await
    }
}

#[cfg(test)]
mod tests;

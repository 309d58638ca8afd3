//! Gemini text to speech, by `generateContent` with audio output.
//!
//! WAV only: Gemini does not produce mp3.
//! Sources: google-genai 3.4.0 (`PyPI`) `google/genai/types.py` (`SpeechConfig`); checked
//! against a request recorded from the package. RFC 2586 for `audio/L16`.

use std::collections::HashMap;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    super::{
        ProviderError, ProviderErrorKind, SpeechAnswer, SpeechCall, SpeechProvider,
        answer::{self, note_model},
        http::{
            RequestJson, SPEECH_CAP, VendorClient,
            classify::{Head, clean_id},
        },
        setup::Adapter,
        split::split,
    },
    bare_name, error_of, method_url, response,
};
use crate::{
    catalogue::{ModelKind, vendor::ModelSettings},
    domain::settings::ConfigError,
    media::wav,
    request::SpeechFormat,
};

/// Maximum bytes of a response. A model's maximum of 16,384 tokens is about 42 MB in base64, at 25
/// tokens per second.
const BODY_CAP: usize = 64 << 20;
/// Maximum seconds per call: 15,000 of the model's 16,384 output tokens.
const MAX_SECONDS: usize = 600;
/// Characters per call of a split text. In Chinese they take 500 s.
const SLOW_CHARS: usize = 2_000;
/// The sample rate of PCM that states none, in Hz.
const RATE: u32 = 24_000;

#[derive(Debug, Default, Clone)]
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

pub type GeminiSpeech = Adapter<GeminiSpeechModel>;

fn read(
    client: &VendorClient,
    model: &str,
    head: &Head,
    root: &Value,
) -> Result<SpeechAnswer, ProviderError> {
    if error_of(root).is_some() {
        return Err(client.error(head, Some(root)));
    }
    note_model(&client.name, bare_name(model), root.get("modelVersion"));
    let text = |path: &str| root.pointer(path).and_then(Value::as_str);
    let blocked = text("/promptFeedback/blockReason");
    if let Some(reason) = blocked.filter(|r| *r != "BLOCKED_REASON_UNSPECIFIED") {
        return Err(head.refused(Some(reason)));
    }
    match text("/candidates/0/finishReason") {
        None | Some("STOP" | "FINISH_REASON_UNSPECIFIED") => {}
        Some(reason) if response::is_policy(reason) => return Err(head.refused(Some(reason))),
        // A truncated recording is a failure, and a retry would be truncated too.
        Some(reason @ "MAX_TOKENS") => {
            let kind = Some(ProviderErrorKind::Rejected);
            let mut error = client.error_of_code(head, reason, kind);
            error.vendor_message =
                Some("the speech is too long for the model; shorten the text".to_owned());
            return Err(error);
        }
        Some(reason) => {
            let is_account = reason == "PUP_LIMITED_DISABLED";
            let kind = is_account.then_some(ProviderErrorKind::Account);
            return Err(client.error_of_code(head, reason, kind));
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
    let id = root["responseId"].as_str();
    Ok(SpeechAnswer {
        parts,
        request_id: head.request_id.clone().or_else(|| id.and_then(clean_id)),
    })
}

fn body(call: &SpeechCall, text: &str) -> Value {
    json!({
        "contents": [{"role": "user", "parts": [{"text": text}]}],
        "generationConfig": {
            "responseModalities": ["AUDIO"],
            "speechConfig": {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": call.voice}}},
        },
    })
}

/// Returns a WAV file: as received, or raw PCM with a header prepended.
fn part(data: &Value) -> Result<Bytes, ProviderError> {
    let text = |name: &str| data[name].as_str();
    let bytes = answer::file(text("data").unwrap_or_default(), SPEECH_CAP)?;
    if bytes.starts_with(b"RIFF") {
        return Ok(bytes);
    }
    let kind = text("mimeType").unwrap_or_default().to_ascii_lowercase();
    let mut words = kind.split(';').map(str::trim);
    if !matches!(words.next(), Some("audio/l16" | "audio/pcm" | "audio/raw")) {
        return Err(ProviderError::failed("audio of another type"));
    }
    let parameters: HashMap<&str, &str> = words.filter_map(|word| word.split_once('=')).collect();
    let rate = parameters.get("rate").map_or(Ok(RATE), |rate| rate.parse());
    let rate = rate.map_err(|_| ProviderError::failed("no sample rate"))?;
    let channels = parameters.get("channels").map_or(Ok(1_u16), |n| n.parse());
    let channels = channels.map_err(|_| ProviderError::failed("no channels"))?;
    // L16 is big-endian by its RFC, but Gemini's is little-endian, like WAV.
    wav(channels, rate, &[&bytes]).ok_or_else(|| ProviderError::failed("impossible audio"))
}

/// Returns the maximum characters per call. Each call derives its style from its own text, so a
/// text is split only if the model might not speak it in one call.
fn max_chars(text: &str) -> usize {
    let chars = text.chars().count();
    // Scripts such as Chinese have 4 characters per second, others 15.
    let slow = text.chars().filter(|char| char.len_utf8() > 2).count();
    if slow / 4 + (chars - slow) / 15 > MAX_SECONDS {
        SLOW_CHARS
    } else {
        chars.max(1)
    }
}

impl GeminiSpeech {
    /// Calls the vendor for a piece of the text.
    async fn piece(&self, call: &SpeechCall, text: &str) -> Result<SpeechAnswer, ProviderError> {
        let url = method_url(&self.client, &call.model, "generateContent");
        let body = RequestJson::of(&body(call, text))?;
        let answer = self.client.post(url, body).await?;
        let (client, model) = (self.client.clone(), call.model.clone());
        let read = move |head: &Head, root| read(&client, &model, head, &root);
        answer.json_files(BODY_CAP, read).await
    }
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
        let mut parts = Vec::new();
        let mut request_id = None;
        for text in split(&call.text, max_chars(&call.text)) {
            let piece = self.piece(call, text).await.map_err(|mut error| {
                // The earlier calls were made and are billed.
                error.not_started &= parts.is_empty();
                error.is_refused &= parts.is_empty();
                error
            })?;
            parts.extend(piece.parts);
            request_id = piece.request_id.or(request_id);
            if parts.iter().map(Bytes::len).sum::<usize>() > SPEECH_CAP {
                return Err(ProviderError::failed("speech over the cap"));
            }
        }
        if parts.is_empty() {
            return Err(ProviderError::rejected("nothing to speak"));
        }
        Ok(SpeechAnswer { parts, request_id })
    }
}

#[cfg(test)]
mod tests;

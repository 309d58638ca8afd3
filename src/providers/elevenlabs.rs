//! ElevenLabs text to speech.
//!
//! Sources: elevenlabs 2.78.0 (`PyPI`) `elevenlabs/text_to_speech/raw_client.py`,
//! `types/voice_settings.py`; checked against a request recorded from the package.

use async_trait::async_trait;
use reqwest::header::{ACCEPT, HeaderName};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ProviderError, ProviderErrorKind, SpeechAnswer, SpeechCall, SpeechProvider,
    http::{
        RequestJson, SPEECH_CAP, SetupError, VendorClient,
        base_url::VersionPath,
        classify::{ErrorInfo, machine_code},
        vendor_message::VendorMessage,
    },
    setup::{Adapter, Adapters, Setup},
};
use crate::{
    catalogue::vendor::{ModelSettings, SpeechRange, Vendor, read_settings},
    domain::{generation::Modality, settings::words},
    request::{SpeechFormat, VoiceIds},
};

/// A voice is a path segment in this API. Its ids have 20 characters.
pub const ADAPTERS: Adapters = Adapters {
    vendor: Vendor {
        speech: SpeechRange {
            speed: [0.7, 1.2],
            voice_ids: VoiceIds {
                signs: "",
                max_chars: 64,
            },
            ..SpeechRange::ALL
        },
        ..Vendor::new("elevenlabs", &[Modality::Audio], |_, _, wire| {
            read_settings::<ElevenLabsModel>(wire)
        })
    },
    add: |registry, setup| {
        registry.add_speech(setup, ElevenLabs::new(setup, client)?);
        Ok(())
    },
};

/// Settings of one model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ElevenLabsModel {
    /// `output_format` of mp3. 192 kbit/s needs a higher plan.
    #[serde(deserialize_with = "mp3")]
    pub mp3: String,
    /// `output_format` of wav. 44.1 kHz needs a higher plan.
    #[serde(deserialize_with = "wav")]
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

words! {
    mp3 -> String = word(
        "mp3_22050_32", "mp3_24000_48", "mp3_44100_32", "mp3_44100_64", "mp3_44100_96",
        "mp3_44100_128", "mp3_44100_192"
    );
    wav -> String = word(
        "wav_8000", "wav_16000", "wav_22050", "wav_24000", "wav_32000", "wav_44100", "wav_48000"
    );
}

impl ModelSettings for ElevenLabsModel {
    fn makes_pcm(&self) -> bool {
        self.wav == "wav_24000"
    }
}

fn body(call: &SpeechCall) -> Value {
    let mut body = json!({"text": call.text, "model_id": call.model});
    if call.speed.total_cmp(&1.0).is_ne() {
        // Other settings keep their values of the voice.
        body["voice_settings"] = json!({"speed": call.speed});
    }
    body
}

pub type ElevenLabs = Adapter<ElevenLabsModel>;

fn client(setup: &Setup) -> Result<VendorClient, SetupError> {
    let key = (HeaderName::from_static("xi-api-key"), "");
    let client = VendorClient::new(setup, VersionPath::Last("v1"), key, error_info)?;
    Ok(client.with(ACCEPT, "*/*"))
}

#[async_trait]
impl SpeechProvider for ElevenLabs {
    async fn generate(&self, call: &SpeechCall) -> Result<SpeechAnswer, ProviderError> {
        let settings = self.settings(&call.model);
        let format = match call.format {
            SpeechFormat::Mp3 => &settings.mp3,
            SpeechFormat::Wav => &settings.wav,
        };
        let mut url = self.client.url(&["text-to-speech", &call.voice]);
        url.query_pairs_mut().append_pair("output_format", format);
        let answer = self.client.post(url, RequestJson::of(&body(call))?).await?;
        let request_id = answer.head().request_id.clone();
        Ok(SpeechAnswer {
            parts: vec![answer.file(SPEECH_CAP).await?],
            request_id,
        })
    }

    fn has_model(&self, model: &str) -> bool {
        self.models.contains_key(model)
    }
}

/// Reads `{"detail": {"status", "message"}}`. With 422 `detail` is a list of fields; sometimes it
/// is a bare string. Newer bodies may have `code` and `type` in addition to `status`.
///
/// Source: elevenlabs/elevenlabs-docs `developer-guides/error-messages.mdx`.
fn error_info(root: Option<&Value>) -> ErrorInfo {
    let Some(detail) = root.and_then(|root| root.get("detail")) else {
        return ErrorInfo::default();
    };
    let text = |value: Option<&Value>| {
        // `only_for_creator+`
        value
            .and_then(Value::as_str)
            .and_then(|text| machine_code(text.trim_end_matches('+')))
            .map(str::to_owned)
    };
    let codes: Vec<String> = ["status", "code", "type"]
        .into_iter()
        .filter_map(|name| text(detail.get(name)))
        .chain(text(Some(detail)))
        .collect();
    ErrorInfo {
        kind: codes.iter().find_map(|code| kind(code)),
        code: codes.into_iter().next(),
        vendor_message: VendorMessage::read(root),
        ..ErrorInfo::default()
    }
}

/// Returns the kind of billing codes, which override the status, and of content policy.
fn kind(code: &str) -> Option<ProviderErrorKind> {
    let has = |words: &[&str]| words.iter().any(|word| code.contains(word));
    if has(&["quota", "payment", "billing", "insufficient_credits"]) {
        Some(ProviderErrorKind::Account)
    } else if has(&[
        "against_policy",
        "content_policy",
        "moderation",
        "prohibited",
    ]) {
        Some(ProviderErrorKind::ContentPolicy)
    } else {
        None
    }
}

#[cfg(test)]
mod tests;

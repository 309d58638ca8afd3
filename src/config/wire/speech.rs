//! How to ask a model of speech: the settings of the adapters, with their defaults.

use serde::Deserialize;

use super::{
    super::ConfigError,
    Wire,
    words::{blank_is_none, word},
};
use crate::domain::settings::range::Bounded;

/// How to ask a speech model of OpenAI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAiSpeechWire {
    /// Characters of one call, 1 to 4,096 (the default); a longer text is split.
    pub max_chars: usize,
    /// `instructions` for the way of speaking; `None` sends nothing.
    pub instructions: Option<String>,
}

/// How to ask a model of ElevenLabs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElevenLabsWire {
    /// `output_format` of mp3; default `mp3_44100_128`.
    pub mp3: String,
    /// `output_format` of wav; default `wav_24000`.
    pub wav: String,
}

const MP3_FORMATS: &[&str] = &[
    "mp3_22050_32",
    "mp3_24000_48",
    "mp3_44100_32",
    "mp3_44100_64",
    "mp3_44100_96",
    "mp3_44100_128",
    "mp3_44100_192",
];
const WAV_FORMATS: &[&str] = &[
    "wav_8000",
    "wav_16000",
    "wav_22050",
    "wav_24000",
    "wav_32000",
    "wav_44100",
    "wav_48000",
];

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawOpenAiSpeech {
    max_chars: Option<Bounded<usize, 1, 4_096>>,
    instructions: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawElevenLabs {
    mp3: Option<String>,
    wav: Option<String>,
}

pub(super) fn open_ai_speech(raw: RawOpenAiSpeech) -> Wire {
    Wire::OpenAiSpeech(OpenAiSpeechWire {
        max_chars: raw.max_chars.map_or(4_096, |n| *n),
        instructions: blank_is_none(raw.instructions),
    })
}

pub(super) fn elevenlabs(raw: RawElevenLabs) -> Result<Wire, ConfigError> {
    Ok(Wire::ElevenLabs(ElevenLabsWire {
        mp3: word("mp3", raw.mp3, "mp3_44100_128", MP3_FORMATS)?,
        wav: word("wav", raw.wav, "wav_24000", WAV_FORMATS)?,
    }))
}

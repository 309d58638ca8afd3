//! Speech of the `openai` packages (openai 3.51.0, `openai/types/audio/speech_create_params.py`).
//! The response is the file.

use serde_json::json;

use crate::{
    domain::{
        generation::Surface,
        named::named_enum,
        validate::{Fields, Object, SchemaName, number, only, text, words},
    },
    request::{MODEL_NAME, SPEED, SpeechFormat, SpeechRequest, Target, VOICE},
};

/// `OpenAI`'s maximum.
const INSTRUCTION_CHARS: usize = 4_096;

named_enum!(
    /// The format of the answer.
    SpokenFormat {
        Mp3 = "mp3",
        Wav = "wav",
        /// The samples of a WAV, without its header.
        Pcm = "pcm",
    }
);

#[derive(Debug, Clone, PartialEq)]
pub struct SpokenRequest(pub SpeechRequest);

impl Object for SpokenRequest {
    const SCHEMA: SchemaName = (
        "SpeechRequest",
        "A text to be spoken. Other fields of OpenAI's are refused by name.",
    );
    const EXAMPLE: &'static str =
        r#"{"model": "sandbox/sandbox-speech-1", "input": "Good morning.", "voice": "aria"}"#;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        fields.take_unknown_nulls();
        let about = "The text to speak; not blank. The model may bound it further.";
        let input = fields.required("input", about, text(usize::MAX).not_blank());
        let about = "`provider/model` of GET /v1/models?type=audio, or just `model`.";
        let model = fields.required("model", about, MODEL_NAME);
        let voice = fields.required("voice", "A voice of the model.", VOICE);
        let about = "File format; `pcm` is 24 kHz, 16 bits, little endian, mono, without a header. \
                     Default mp3.";
        let format = fields.optional("response_format", about, words::<SpokenFormat>());
        let about = "Playback rate. Default 1.0. Not every model takes one.";
        let speed = fields.optional("speed", about, number(SPEED[0]..=SPEED[1]));
        let about = "Only the default is supported.";
        fields.optional("stream_format", about, only([json!("audio")]));
        let about = "How to speak, for models that take instructions. Charged like the text.";
        let instructions = fields.optional("instructions", about, text(INSTRUCTION_CHARS));
        Some(Self(SpeechRequest {
            surface: Surface::OpenAiSpeech,
            prompt: input?,
            target: Target {
                provider: None,
                model: Some(model?),
                fallbacks: Vec::new(),
            },
            voice: Some(voice?),
            speed,
            instructions: instructions.filter(|text| !text.trim().is_empty()),
            format: format.map(|format| match format {
                SpokenFormat::Mp3 => SpeechFormat::Mp3,
                SpokenFormat::Wav | SpokenFormat::Pcm => SpeechFormat::Wav,
            }),
            is_pcm: format == Some(SpokenFormat::Pcm),
            max_cost: None,
        }))
    }
}

//! Generation requests after static validation: the interface's own limits, before any
//! template, model or account is looked at.

mod media;
mod text;

use serde_json::{Map, Value};

pub use media::{
    ImageRequest, Quality, Ratio, SIZES, SpeechFormat, SpeechRequest, Style, VideoRequest,
};
pub use text::TextRequest;

use super::{
    generation::Modality,
    validate::{Errors, FieldCode, FieldError, Fields},
};

/// Characters in a text prompt.
pub const TEXT_PROMPT_CHARS: usize = 10_000;
/// Characters in a system prompt.
pub const SYSTEM_PROMPT_CHARS: usize = 5_000;
/// Upper bound of `parameters.max_tokens`.
pub const MAX_TOKENS: u32 = 4096;
/// `parameters.max_tokens` when it is left out.
pub const DEFAULT_MAX_TOKENS: u32 = 1024;
/// Characters in an image prompt.
pub const IMAGE_PROMPT_CHARS: usize = 5_000;
/// Characters in a negative prompt.
pub const NEGATIVE_PROMPT_CHARS: usize = 2_000;
/// Characters in a video prompt.
pub const VIDEO_PROMPT_CHARS: usize = 5_000;
/// Characters in a text to speak.
pub const SPEECH_PROMPT_CHARS: usize = 10_000;
/// Upper bound of a video's `parameters.duration`, in seconds.
pub const MAX_DURATION: u32 = 60;
/// Lowest and highest `parameters.speed`.
pub const SPEED: [f64; 2] = [0.25, 4.0];
/// Characters in a voice id.
const VOICE_CHARS: usize = 100;
/// Characters in a provider or model name.
pub const NAME_CHARS: usize = 200;

/// What is asked of a provider, in any modality.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// Provider name; the account's or the server's default when absent.
    pub provider: Option<String>,
    /// Model id of the resolved provider; its default when absent.
    pub model: Option<String>,
}

/// A prompt template to be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateUse {
    pub id: i64,
    /// Values for its placeholders.
    pub variables: Map<String, Value>,
}

/// A generation request of any modality.
#[derive(Debug, Clone, PartialEq)]
pub enum GenerationRequest {
    Text(TextRequest),
    Image(ImageRequest),
    Video(VideoRequest),
    Audio(SpeechRequest),
}

impl GenerationRequest {
    pub const fn modality(&self) -> Modality {
        match self {
            Self::Text(_) => Modality::Text,
            Self::Image(_) => Modality::Image,
            Self::Video(_) => Modality::Video,
            Self::Audio(_) => Modality::Audio,
        }
    }

    pub const fn target(&self) -> &Target {
        match self {
            Self::Text(request) => &request.target,
            Self::Image(request) => &request.target,
            Self::Video(request) => &request.target,
            Self::Audio(request) => &request.target,
        }
    }

    pub const fn prompt(&self) -> &String {
        match self {
            Self::Text(request) => &request.prompt,
            Self::Image(request) => &request.prompt,
            Self::Video(request) => &request.prompt,
            Self::Audio(request) => &request.prompt,
        }
    }
}

/// A body with failing fields.
#[derive(Debug)]
pub struct Unreadable<T> {
    pub errors: Vec<FieldError>,
    /// What could be read; failing fields are absent or empty.
    pub read: Box<T>,
}

impl<T> Unreadable<T> {
    /// What was read, if nothing failed.
    fn into_result(errors: &Errors, read: T) -> Result<T, Self> {
        let errors = errors.take();
        if errors.is_empty() {
            return Ok(read);
        }
        Err(Self {
            errors,
            read: Box::new(read),
        })
    }
}

fn read_target(fields: &Fields<'_>) -> Target {
    let name = |field| {
        let name = fields.text(field, NAME_CHARS)?;
        if name.is_empty() {
            fields.error(field, FieldCode::InvalidFormat, "must not be empty");
            return None;
        }
        Some(name.to_owned())
    };
    Target {
        provider: name("provider"),
        model: name("model"),
    }
}

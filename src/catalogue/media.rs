//! Image, video and speech models.

use std::fmt::Display;

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use toml::Value;
use utoipa::ToSchema;

use super::InputLimits;
use crate::{
    domain::{
        generation::Surface,
        pricing::{ImagePrices, Quality, SpeechPrices, VideoPrices},
        settings::{
            range::{Bounded, bounded, span},
            shown,
        },
        validate::{FieldCode, FieldError, too_long},
    },
    request::{
        IMAGE_PROMPT_CHARS, ImageRequest, MAX_DURATION, Ratio, SDK_SIZES, SIZES,
        SPEECH_PROMPT_CHARS, SpeechFormat, SpeechRequest, Style, VIDEO_PROMPT_CHARS, VideoRequest,
        VoiceIds, size_names,
    },
};

/// How a model supports an optional field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Support {
    /// By its own field.
    Native,
    /// A sentence in the prompt.
    Guided,
    /// Not at all.
    Unsupported,
}

/// Limits of an image model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ImageLimits {
    /// Maximum characters of a prompt.
    pub max_prompt_chars: usize,
    /// Maximum UTF-16 code units of a prompt, as for videos.
    #[serde(skip_serializing)]
    pub max_prompt_utf16: Option<usize>,
    /// Supported sizes.
    pub sizes: Vec<String>,
    /// Supported quality tiers.
    pub qualities: Vec<Quality>,
    /// Maximum of `parameters.n`.
    pub max_n: u32,
    /// How `parameters.style` is supported.
    pub style: Support,
    /// How `negative_prompt` is supported.
    pub negative_prompt: Support,
    /// Accepted input images; null: none.
    pub inputs: Option<InputLimits>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageModel {
    /// Prices of every size and quality in the limits.
    pub prices: ImagePrices,
    pub limits: ImageLimits,
    /// Sizes that the model generates itself, in pixels. Empty if it extends its source.
    pub native_sizes: Vec<(u32, u32)>,
    /// Whether it supports a background.
    pub takes_background: bool,
}

/// Limits of a video model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VideoLimits {
    /// Maximum characters of a prompt.
    #[serde(deserialize_with = "bounded::<_, 1, VIDEO_PROMPT_CHARS, _>")]
    pub max_prompt_chars: usize,
    /// Maximum UTF-16 code units of a prompt, if the provider counts in them. A character has one
    /// or two.
    #[serde(skip_serializing)]
    pub max_prompt_utf16: Option<Bounded<usize, 1, 10_000>>,
    /// Supported durations in seconds, ascending.
    #[serde(deserialize_with = "durations")]
    pub durations: Vec<u32>,
    /// Default duration.
    #[serde(deserialize_with = "bounded::<_, 1, { MAX_DURATION as usize }, _>")]
    pub default_duration: u32,
    /// Supported aspect ratios; null: any.
    pub ratios: Option<Vec<String>>,
    /// Accepted input images; null: none.
    pub inputs: Option<InputLimits>,
}

/// Reads a list of seconds, or the shortest and the longest duration.
fn durations<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<u32>, D::Error> {
    let value = Value::deserialize(source)?;
    let seconds = |value: &Value| {
        let number = u32::try_from(value.as_integer()?).ok()?;
        (1..=MAX_DURATION).contains(&number).then_some(number)
    };
    let list: Option<Vec<u32>> = match &value {
        Value::Array(items) => items.iter().map(seconds).collect(),
        Value::Table(table) if table.len() == 2 => {
            let bound = |key| table.get(key).and_then(seconds);
            bound("min")
                .zip(bound("max"))
                .map(|(min, max)| (min..=max).collect())
        }
        _ => None,
    };
    list.filter(|list| !list.is_empty() && list.is_sorted_by(|a, b| a < b))
        .ok_or_else(|| {
            let bad = shown(&value);
            D::Error::custom(format_args!(
                "is {bad}: must be seconds from 1 to {MAX_DURATION}, \
                 ascending such as [4, 6, 8], or {{ min = 2, max = 10 }}"
            ))
        })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VideoModel {
    pub prices: VideoPrices,
    pub limits: VideoLimits,
}

/// Limits of a speech model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SpeechLimits {
    /// Maximum characters of a text.
    #[serde(deserialize_with = "bounded::<_, 1, SPEECH_PROMPT_CHARS, _>")]
    pub max_prompt_chars: usize,
    /// Supported voices; null: any voice id of the provider.
    pub voices: Option<Vec<String>>,
    /// Default voice.
    pub default_voice: String,
    /// Supported file formats.
    pub formats: Vec<SpeechFormat>,
    /// Lowest and highest `parameters.speed`; null: 1.0 only.
    #[serde(default, deserialize_with = "span")]
    pub speed: Option<[f64; 2]>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SpeechModel {
    pub prices: SpeechPrices,
    pub limits: SpeechLimits,
    /// Whether `pcm` is supported, for SDKs: the samples of a WAV of 24 kHz, mono.
    pub has_pcm: bool,
    pub takes_instructions: bool,
    /// The form of a voice if the limits list none.
    pub voice_ids: VoiceIds,
}

pub(super) fn not_supported(param: &str, allowed: &str) -> FieldError {
    let message = format!("must be {allowed} for this model");
    FieldError::new(param, FieldCode::NotSupported, message)
}

fn one_of(allowed: &[impl Display]) -> String {
    let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
    format!("one of {}", allowed.join(", "))
}

pub(super) fn prompt_too_long(chars: usize, max: usize) -> Option<FieldError> {
    let message = || format!("{} for this model", too_long(max));
    (chars > max).then(|| FieldError::new("prompt", FieldCode::TooLong, message()))
}

/// Checks a prompt's length in characters, and in UTF-16 code units if there is such a limit.
fn prompt_violation(prompt: &str, max: usize, max_utf16: Option<usize>) -> Option<FieldError> {
    prompt_too_long(prompt.chars().count(), max).or_else(|| {
        let max = max_utf16.filter(|&max| prompt.encode_utf16().count() > max)?;
        let message = format!("must be at most {max} UTF-16 code units for this model");
        Some(FieldError::new("prompt", FieldCode::TooLong, message))
    })
}

impl ImageModel {
    /// Returns the entries of `sizes` that a model with these native sizes can serve: the same and
    /// smaller ones of the same aspect ratio.
    pub fn servable(sizes: &[(u32, u32)], native: &[(u32, u32)]) -> Vec<(u32, u32)> {
        let is_servable = |&size: &(u32, u32)| Self::nearest(native, size).is_some();
        sizes.iter().copied().filter(is_servable).collect()
    }

    /// Returns the native size at which `size` is generated: the nearest larger one of the same
    /// aspect ratio, or any size if the model extends its source.
    pub fn native(&self, size: (u32, u32)) -> Option<(u32, u32)> {
        let inputs = self.limits.inputs.as_ref();
        if inputs.is_some_and(|inputs| inputs.outpaints) {
            return Some(size);
        }
        Self::nearest(&self.native_sizes, size)
    }

    fn nearest(native: &[(u32, u32)], (width, height): (u32, u32)) -> Option<(u32, u32)> {
        let same_shape = |&(w, h): &(u32, u32)| {
            u64::from(w) * u64::from(height) == u64::from(h) * u64::from(width)
        };
        native
            .iter()
            .copied()
            .filter(same_shape)
            .filter(|&(w, _)| w >= width)
            .min()
    }

    /// Returns every field of a request that this model does not support.
    pub fn violations(&self, request: &ImageRequest) -> Vec<FieldError> {
        let limits = &self.limits;
        let (chars, utf16) = (limits.max_prompt_chars, limits.max_prompt_utf16);
        let mut errors = Vec::from_iter(prompt_violation(&request.prompt, chars, utf16));
        if request.size.is_some_and(|size| self.native(size).is_none()) {
            let sizes = match request.surface {
                Surface::OpenAiImages => &SDK_SIZES[..],
                _ => &SIZES,
            };
            let sizes = Self::servable(sizes, &self.native_sizes);
            let allowed = format!("one of {}", size_names(&sizes, ", "));
            errors.push(not_supported("parameters.size", &allowed));
        }
        if request
            .quality
            .is_some_and(|q| !limits.qualities.contains(&q))
        {
            let allowed = one_of(&limits.qualities);
            errors.push(not_supported("parameters.quality", &allowed));
        }
        if request.n.is_some_and(|n| n > limits.max_n) {
            let allowed = format!("between 1 and {}", limits.max_n);
            errors.push(not_supported("parameters.n", &allowed));
        }
        if request.style.is_some() && limits.style == Support::Unsupported {
            errors.push(not_supported("parameters.style", "left out"));
        }
        if request.background.is_some() && !self.takes_background {
            errors.push(not_supported("parameters.background", "auto"));
        }
        if request.negative_prompt.is_some() && limits.negative_prompt == Support::Unsupported {
            errors.push(not_supported("negative_prompt", "left out"));
        }
        if !errors.iter().any(|error| error.param == "prompt") {
            errors.extend(self.guide_violation(request));
        }
        errors
    }

    /// The field that makes the prompt too long, which is not too long alone.
    fn guide_violation(&self, request: &ImageRequest) -> Option<FieldError> {
        let (style, negative) = (request.style, request.negative_prompt.as_deref());
        let limits = &self.limits;
        // The API's maximum is that of the caller's text: models that have it take more.
        let chars = Some(limits.max_prompt_chars).filter(|max| *max < IMAGE_PROMPT_CHARS);
        let violation = |prompt: &str| {
            prompt_violation(prompt, chars.unwrap_or(usize::MAX), limits.max_prompt_utf16)
        };
        let error = violation(&self.guided_prompt(&request.prompt, negative, style))?;
        let param = if violation(&self.guided_prompt(&request.prompt, None, style)).is_some() {
            "parameters.style"
        } else {
            "negative_prompt"
        };
        let message = format!("is appended to the prompt, which {}", error.message);
        Some(FieldError::new(param, FieldCode::TooLong, message))
    }

    /// The prompt, with fields that the model does not have appended as sentences.
    pub fn guided_prompt(
        &self,
        prompt: &str,
        negative_prompt: Option<&str>,
        style: Option<Style>,
    ) -> String {
        let mut text = prompt.to_owned();
        if let (Some(style), Support::Guided) = (style, self.limits.style) {
            text.push_str(match style {
                Style::Vivid => "\n\nStyle: vivid, dramatic and hyper-real.",
                Style::Natural => "\n\nStyle: natural, plain and true to life.",
            });
        }
        if let (Some(avoid), Support::Guided) = (negative_prompt, self.limits.negative_prompt)
            && !avoid.trim().is_empty()
        {
            text.push_str("\n\nDo not include: ");
            text.push_str(avoid.trim());
        }
        text
    }
}

impl VideoModel {
    /// Returns every field of a request that this model does not support.
    pub fn violations(&self, request: &VideoRequest) -> Vec<FieldError> {
        let limits = &self.limits;
        let utf16 = limits.max_prompt_utf16.map(|n| *n);
        let violation = prompt_violation(&request.prompt, limits.max_prompt_chars, utf16);
        let mut errors = Vec::from_iter(violation);
        if request
            .duration
            .is_some_and(|d| !limits.durations.contains(&d))
        {
            let allowed = one_of(&limits.durations);
            errors.push(not_supported("parameters.duration", &allowed));
        }
        if let (Some(asked), Some(allowed)) = (request.ratio, &limits.ratios)
            && !allowed
                .iter()
                .any(|r| Ratio::parse(r).map(Ratio::reduced) == Some(asked.reduced()))
        {
            errors.push(not_supported("parameters.ratio", &one_of(allowed)));
        }
        errors
    }

    /// Returns the default ratio: 16:9, or the model's first if it does not support 16:9.
    pub fn default_ratio(&self) -> Ratio {
        let wide = Ratio {
            width: 16,
            height: 9,
        };
        match &self.limits.ratios {
            Some(ratios) if !ratios.iter().any(|r| Ratio::parse(r) == Some(wide)) => {
                ratios.first().and_then(|r| Ratio::parse(r)).unwrap_or(wide)
            }
            _ => wide,
        }
    }
}

impl SpeechModel {
    /// Returns every field of a request that this model does not support.
    pub fn violations(&self, request: &SpeechRequest) -> Vec<FieldError> {
        let limits = &self.limits;
        let chars = request.prompt.chars().count();
        let mut errors = Vec::from_iter(prompt_too_long(chars, limits.max_prompt_chars));
        if let Some(voice) = &request.voice {
            let allowed = match &limits.voices {
                Some(voices) => (!voices.contains(voice)).then(|| one_of(voices)),
                None => (!self.voice_ids.accept(voice)).then(|| self.voice_ids.to_string()),
            };
            errors.extend(allowed.map(|allowed| not_supported("parameters.voice", &allowed)));
        }
        match (request.speed, limits.speed) {
            (Some(speed), Some([low, high])) if !(low..=high).contains(&speed) => {
                let allowed = format!("between {low} and {high}");
                errors.push(not_supported("parameters.speed", &allowed));
            }
            (Some(speed), None) if (speed - 1.0).abs() > f64::EPSILON => {
                errors.push(not_supported("parameters.speed", "1.0 or left out"));
            }
            _ => {}
        }
        if request.instructions.is_some() && !self.takes_instructions {
            errors.push(not_supported("parameters.instructions", "left out"));
        }
        let is_missing = |format| !limits.formats.contains(&format);
        if request.format.is_some_and(is_missing) || request.is_pcm && !self.has_pcm {
            let is_sdk = request.surface == Surface::OpenAiSpeech;
            let pcm = (is_sdk && self.has_pcm).then_some("pcm");
            let formats = limits.formats.iter().map(|format| format.as_str());
            let allowed: Vec<&str> = formats.chain(pcm).collect();
            errors.push(not_supported("parameters.format", &one_of(&allowed)));
        }
        errors
    }

    /// Returns the default format: mp3, or the model's first if it does not support mp3.
    pub fn default_format(&self) -> SpeechFormat {
        let formats = &self.limits.formats;
        if formats.contains(&SpeechFormat::Mp3) {
            return SpeechFormat::Mp3;
        }
        formats.first().copied().unwrap_or(SpeechFormat::Mp3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_sizes_of_the_same_shape_are_made_from_larger_ones() {
        let gpt = [(1024, 1024), (1024, 1792), (1792, 1024)];
        assert_eq!(ImageModel::servable(&SIZES, &gpt), SIZES);
        assert_eq!(ImageModel::nearest(&gpt, (256, 256)), Some((1024, 1024)));
        let square = [(1024, 1024), (512, 512)];
        assert_eq!(ImageModel::nearest(&square, (256, 256)), Some((512, 512)));
        assert_eq!(ImageModel::nearest(&square, (1792, 1024)), None);
        assert_eq!(
            ImageModel::servable(&SIZES, &[(512, 512)]),
            [(256, 256), (512, 512)]
        );
        assert_eq!(ImageModel::servable(&SDK_SIZES, &gpt), SIZES);
        assert_eq!(
            ImageModel::servable(&SDK_SIZES, &[(1536, 1024)]),
            [(1536, 1024)]
        );
    }
}

//! How to ask a model of images: the settings of the adapters, with their defaults.

use serde::Deserialize;

use super::{
    super::ConfigError,
    Wire,
    words::{blank_is_none, blankable, known, word},
};

/// How to ask an image model of OpenAI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAiImageWire {
    /// `quality` of our standard tier; default `medium`.
    pub standard: String,
    /// `quality` of our hd tier; default `high`.
    pub hd: String,
    /// `output_format`; default `png`, `None` sends nothing.
    pub output_format: Option<String>,
    /// `moderation`; default `auto`, `None` sends nothing.
    pub moderation: Option<String>,
}

/// Which endpoint of Stability makes an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StabilityEndpoint {
    /// Stable Image Core.
    Core,
    /// Stable Image Ultra.
    Ultra,
    /// Stable Diffusion 3.5, one of several models.
    Sd3,
}

/// One way to make an image at Stability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StabilityTarget {
    /// Where.
    pub endpoint: StabilityEndpoint,
    /// `model`, of sd3 only; `None` sends nothing.
    pub model: Option<String>,
}

/// How to ask a model of Stability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StabilityWire {
    /// What makes our standard tier.
    pub standard: StabilityTarget,
    /// What makes our hd tier; there exactly when the model has a price for it.
    pub hd: Option<StabilityTarget>,
    /// `style_preset` of our style vivid; `None` sends nothing.
    pub vivid: Option<String>,
    /// `style_preset` of our style natural; `None` sends nothing.
    pub natural: Option<String>,
}

const QUALITIES: &[&str] = &["low", "medium", "high", "xhigh", "max"];
const IMAGE_FORMATS: &[&str] = &["png", "jpeg", "webp"];
const MODERATIONS: &[&str] = &["auto", "low"];
const PRESETS: &[&str] = &[
    "3d-model",
    "analog-film",
    "anime",
    "cinematic",
    "comic-book",
    "digital-art",
    "enhance",
    "fantasy-art",
    "isometric",
    "line-art",
    "low-poly",
    "modeling-compound",
    "neon-punk",
    "origami",
    "photographic",
    "pixel-art",
    "tile-texture",
];

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawOpenAiImage {
    standard: Option<String>,
    hd: Option<String>,
    output_format: Option<String>,
    moderation: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawStability {
    standard: Option<RawTarget>,
    hd: Option<RawTarget>,
    vivid: Option<String>,
    natural: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct RawTarget {
    endpoint: Option<StabilityEndpoint>,
    model: Option<String>,
}

pub(super) fn open_ai_image(raw: RawOpenAiImage) -> Result<Wire, ConfigError> {
    Ok(Wire::OpenAiImage(OpenAiImageWire {
        standard: word("standard", raw.standard, "medium", QUALITIES)?,
        hd: word("hd", raw.hd, "high", QUALITIES)?,
        output_format: blankable("output_format", raw.output_format, "png", IMAGE_FORMATS)?,
        moderation: blankable("moderation", raw.moderation, "auto", MODERATIONS)?,
    }))
}

pub(super) fn stability(raw: RawStability) -> Result<Wire, ConfigError> {
    let (vivid, natural) = (blank_is_none(raw.vivid), blank_is_none(raw.natural));
    known("vivid", vivid.as_deref(), PRESETS)?;
    known("natural", natural.as_deref(), PRESETS)?;
    let target = |key: &str, raw: RawTarget| {
        let Some(endpoint) = raw.endpoint else {
            let problem = "is missing: write one of core, ultra, sd3";
            return Err(ConfigError::new(format!("{key}.endpoint"), problem));
        };
        let model = blank_is_none(raw.model);
        if model.is_some() && endpoint != StabilityEndpoint::Sd3 {
            let problem = "is used by the endpoint sd3 only: remove it";
            return Err(ConfigError::new(format!("{key}.model"), problem));
        }
        Ok(StabilityTarget { endpoint, model })
    };
    Ok(Wire::Stability(StabilityWire {
        standard: target("standard", raw.standard.unwrap_or_default())?,
        hd: raw.hd.map(|hd| target("hd", hd)).transpose()?,
        vivid,
        natural,
    }))
}

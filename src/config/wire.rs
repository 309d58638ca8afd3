//! How to ask one model: vendor settings that are no business of the caller.
//!
//! Here: plain values, checked against what each vendor knows, since a typing error would
//! fail every call; those of [`images`], [`video`] and [`speech`] below. Not here: how they look on the wire; the adapters have types of their
//! own, into which `app` converts these.

pub mod images;
pub mod speech;
pub mod video;
mod words;

use serde::Deserialize;
use toml::Value;

use self::{
    images::{OpenAiImageWire, StabilityWire},
    speech::{ElevenLabsWire, OpenAiSpeechWire},
    video::{OmniWire, RunwayWire},
    words::{blank_is_none, known},
};
use super::{ConfigError, Kind};
use crate::domain::{
    generation::Modality,
    settings::{range::Bounded, read_table as table},
};

/// The settings of one model, by the kind of its provider and by its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wire {
    /// The sandbox has none.
    Sandbox,
    /// Text of OpenAI and of compatible servers.
    OpenAi(OpenAiWire),
    /// Images of OpenAI.
    OpenAiImage(OpenAiImageWire),
    /// Speech of OpenAI.
    OpenAiSpeech(OpenAiSpeechWire),
    /// Text of Anthropic.
    Anthropic(AnthropicWire),
    /// Text of Gemini.
    Gemini(GeminiWire),
    /// Video of Gemini.
    Omni(OmniWire),
    /// Speech of Gemini, which has none.
    GeminiSpeech,
    /// Images of Stability AI.
    Stability(StabilityWire),
    /// Video of Runway.
    Runway(RunwayWire),
    /// Speech of ElevenLabs.
    ElevenLabs(ElevenLabsWire),
}

/// Which field carries the token limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenField {
    /// `max_tokens`: what every compatible server heeds.
    MaxTokens,
    /// `max_completion_tokens`: OpenAI and Groq.
    MaxCompletionTokens,
}

/// Which role carries the system prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SystemRole {
    /// `system`: known everywhere.
    System,
    /// `developer`: what OpenAI's reasoning models want.
    Developer,
}

/// Whether a Claude model thinks first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// `disabled`: not at all.
    Disabled,
    /// `between_tools`: not before a plain answer.
    BetweenTools,
    /// `adaptive`: as the model likes.
    Adaptive,
}

/// How to ask a model of OpenAI or of a compatible server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAiWire {
    /// Field of the token limit; default `max_completion_tokens` at OpenAI, else `max_tokens`.
    pub token_field: TokenField,
    /// Role of the system prompt; default `developer` at OpenAI, else `system`.
    pub system_role: SystemRole,
    /// `reasoning_effort`; `None` sends nothing.
    pub reasoning_effort: Option<String>,
    /// Whether to send `prompt_cache_options: {"mode": "explicit"}`, so that no input is
    /// billed as a cache write (1.25 times the input price; gpt-5.6 and later).
    pub explicit_cache: bool,
    /// `service_tier`; default `default` at OpenAI, else nothing is sent.
    pub service_tier: Option<String>,
    /// Whether to send `stream_options.include_usage` when streaming; default true.
    pub stream_usage: bool,
    /// Whether to send `stream_options.include_obfuscation: false`; default true at OpenAI.
    pub no_obfuscation: bool,
}

/// How to ask a Claude model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnthropicWire {
    /// Header `anthropic-version`; default [`ANTHROPIC_VERSION`].
    pub version: String,
    /// `output_config.effort`; `None` sends nothing.
    pub effort: Option<String>,
    /// `thinking.type`; `None` sends nothing.
    pub thinking: Option<Thinking>,
}

/// How to ask a Gemini model. At most one of the two is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeminiWire {
    /// `thinkingConfig.thinkingLevel`, in capitals; `None` sends nothing.
    pub thinking_level: Option<String>,
    /// `thinkingConfig.thinkingBudget`, 0 (off) to 32,768 tokens; the 2.5 family only.
    pub thinking_budget: Option<u32>,
}

/// The version that Anthropic's own SDK sends.
pub const ANTHROPIC_VERSION: &str = "2026-10-21";
/// The last version that takes a temperature, from older models.
pub const ANTHROPIC_SAMPLING_VERSION: &str = "2023-06-01";

const OPENAI_EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];
const OPENAI_TIERS: &[&str] = &["auto", "default", "flex", "scale", "priority", "fast"];
const ANTHROPIC_EFFORTS: &[&str] = &["low", "medium", "high", "xhigh", "max"];
const GEMINI_LEVELS: &[&str] = &["MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"];

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct RawOpenAi {
    token_field: Option<TokenField>,
    system_role: Option<SystemRole>,
    reasoning_effort: Option<String>,
    explicit_cache: Option<bool>,
    service_tier: Option<String>,
    stream_usage: Option<bool>,
    no_obfuscation: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct RawAnthropic {
    version: Option<String>,
    effort: Option<String>,
    thinking: Option<Thinking>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct RawGemini {
    thinking_level: Option<String>,
    thinking_budget: Option<Bounded<u32, 0, 32_768>>,
}

/// Reads the `wire` table of a model that its provider can have. The error's key is relative
/// to the table.
pub(super) fn read(
    kind: Kind,
    modality: Modality,
    raw: Option<Value>,
) -> Result<Wire, ConfigError> {
    match (kind, modality) {
        (Kind::Sandbox, _) => unused(raw.as_ref(), "the sandbox", Wire::Sandbox),
        (Kind::OpenAi, Modality::Image) => images::open_ai_image(table(raw)?),
        (Kind::OpenAi, Modality::Audio) => Ok(speech::open_ai_speech(table(raw)?)),
        (Kind::OpenAi | Kind::OpenAiCompatible, _) => open_ai(kind, table(raw)?),
        (Kind::Anthropic, _) => anthropic(table(raw)?),
        (Kind::Gemini, Modality::Video) => video::omni(table(raw)?),
        (Kind::Gemini, Modality::Audio) => {
            unused(raw.as_ref(), "Gemini's speech", Wire::GeminiSpeech)
        }
        (Kind::Gemini, _) => gemini(table(raw)?),
        (Kind::Stability, _) => images::stability(table(raw)?),
        (Kind::Runway, _) => video::runway(table(raw)?),
        (Kind::ElevenLabs, _) => speech::elevenlabs(table(raw)?),
    }
}

fn unused(raw: Option<&Value>, by: &str, wire: Wire) -> Result<Wire, ConfigError> {
    let problem = || ConfigError::new("", format!("is not used by {by}: remove it"));
    raw.map_or(Ok(wire), |_| Err(problem()))
}

fn open_ai(kind: Kind, raw: RawOpenAi) -> Result<Wire, ConfigError> {
    let vendor = kind == Kind::OpenAi;
    // A compatible server may know other names.
    if vendor {
        known(
            "reasoning_effort",
            raw.reasoning_effort.as_deref(),
            OPENAI_EFFORTS,
        )?;
        known("service_tier", raw.service_tier.as_deref(), OPENAI_TIERS)?;
    }
    Ok(Wire::OpenAi(OpenAiWire {
        token_field: raw.token_field.unwrap_or(if vendor {
            TokenField::MaxCompletionTokens
        } else {
            TokenField::MaxTokens
        }),
        system_role: raw.system_role.unwrap_or(if vendor {
            SystemRole::Developer
        } else {
            SystemRole::System
        }),
        reasoning_effort: blank_is_none(raw.reasoning_effort),
        explicit_cache: raw.explicit_cache.unwrap_or(false),
        service_tier: blank_is_none(raw.service_tier)
            .or_else(|| vendor.then(|| "default".to_owned())),
        stream_usage: raw.stream_usage.unwrap_or(true),
        no_obfuscation: raw.no_obfuscation.unwrap_or(vendor),
    }))
}

fn anthropic(raw: RawAnthropic) -> Result<Wire, ConfigError> {
    known("effort", raw.effort.as_deref(), ANTHROPIC_EFFORTS)?;
    let version = raw.version.unwrap_or_else(|| ANTHROPIC_VERSION.to_owned());
    let versions = [ANTHROPIC_VERSION, ANTHROPIC_SAMPLING_VERSION];
    known("version", Some(&version), &versions)?;
    Ok(Wire::Anthropic(AnthropicWire {
        version,
        effort: raw.effort,
        thinking: raw.thinking,
    }))
}

fn gemini(raw: RawGemini) -> Result<Wire, ConfigError> {
    known(
        "thinking_level",
        raw.thinking_level.as_deref(),
        GEMINI_LEVELS,
    )?;
    if raw.thinking_level.is_some() && raw.thinking_budget.is_some() {
        return Err(ConfigError::new(
            "",
            "sets both thinking_level and thinking_budget: keep the one that the model takes",
        ));
    }
    Ok(Wire::Gemini(GeminiWire {
        thinking_level: raw.thinking_level,
        thinking_budget: raw.thinking_budget.map(|n| *n),
    }))
}

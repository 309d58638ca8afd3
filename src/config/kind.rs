//! Kinds of providers: which adapter speaks to one, and what it can make.

use super::read::Choice;
use crate::domain::generation::Modality;

/// Which adapter speaks to a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Built in; no network.
    Sandbox,
    /// OpenAI.
    OpenAi,
    /// A server that imitates OpenAI's Chat Completions.
    OpenAiCompatible,
    /// Anthropic.
    Anthropic,
    /// Google Gemini.
    Gemini,
    /// Stability AI.
    Stability,
    /// Runway.
    Runway,
    /// ElevenLabs.
    ElevenLabs,
}

impl Choice for Kind {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("sandbox", Self::Sandbox),
        ("openai", Self::OpenAi),
        ("openai_compatible", Self::OpenAiCompatible),
        ("anthropic", Self::Anthropic),
        ("gemini", Self::Gemini),
        ("stability", Self::Stability),
        ("runway", Self::Runway),
        ("elevenlabs", Self::ElevenLabs),
    ];
}

impl Kind {
    /// Its name in the config.
    pub fn as_str(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(_, kind)| *kind == self)
            .map_or("", |(name, _)| *name)
    }

    /// The types that its models can have: those its adapter speaks.
    pub const fn modalities(self) -> &'static [Modality] {
        match self {
            Self::Sandbox => Modality::ALL,
            Self::OpenAi => &[Modality::Text, Modality::Image, Modality::Audio],
            Self::OpenAiCompatible | Self::Anthropic => &[Modality::Text],
            Self::Gemini => &[Modality::Text, Modality::Video, Modality::Audio],
            Self::Stability => &[Modality::Image],
            Self::Runway => &[Modality::Video],
            Self::ElevenLabs => &[Modality::Audio],
        }
    }

    /// Whether it is never called without a key.
    pub(super) const fn needs_key(self) -> bool {
        !matches!(self, Self::Sandbox | Self::OpenAiCompatible)
    }
}

//! Kinds of providers: which adapter speaks to one, and what it can make.

use crate::domain::{generation::Modality, named::named_enum};

named_enum!(
    /// Which adapter speaks to a provider.
    Kind {
        /// Built in; no network.
        Sandbox = "sandbox",
        /// OpenAI.
        OpenAi = "openai",
        /// A server that imitates OpenAI's Chat Completions.
        OpenAiCompatible = "openai_compatible",
        /// Anthropic.
        Anthropic = "anthropic",
        /// Google Gemini.
        Gemini = "gemini",
        /// Stability AI.
        Stability = "stability",
        /// Runway.
        Runway = "runway",
        /// ElevenLabs.
        ElevenLabs = "elevenlabs",
    }
);

impl Kind {
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

//! Prices, the ceiling that is held, and the charge that is made. Pure; property-tested:
//! no charge of an honest provider is above its ceiling, and every division rounds up.

mod exact;
mod text;

use serde::Serialize;
use utoipa::ToSchema;

pub use exact::{
    ImageCeiling, ImagePrices, QualityPrices, SpeechCeiling, SpeechPrices, VideoCeiling,
    VideoPrices,
};
pub use text::{TextCeiling, TextPrices};

use super::credits::Credits;

/// The price row of a model, by its modality.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Prices {
    /// Text.
    Text(TextPrices),
    /// Images.
    Image(ImagePrices),
    /// Video.
    Video(VideoPrices),
    /// Speech.
    Speech(SpeechPrices),
}

/// What a request can cost at most, and from what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ceiling {
    /// Text: an upper bound.
    Text(TextCeiling),
    /// Images: the exact price.
    Image(ImageCeiling),
    /// Video: the exact price.
    Video(VideoCeiling),
    /// Speech: the exact price.
    Speech(SpeechCeiling),
}

impl Ceiling {
    /// The credits to hold. What overflows is above every balance.
    pub fn hold(&self) -> Credits {
        let hold = match self {
            Self::Text(text) => text.hold(),
            Self::Image(image) => image.price(image.n),
            Self::Video(video) => video.price(video.seconds),
            Self::Speech(speech) => speech.price(speech.characters),
        };
        hold.unwrap_or(Credits::from_micros(i64::MAX))
    }

    /// The deciding parameter and its largest value, at most the one asked for, whose hold
    /// fits into `available`; `None` when none does.
    pub fn affordable(&self, available: Credits) -> Option<(&'static str, u64)> {
        match self {
            Self::Text(text) => Some(("max_tokens", text.affordable(available)?.into())),
            Self::Image(image) => Some(("n", image.affordable(available)?.into())),
            Self::Video(video) => Some(("duration", video.affordable(available)?.into())),
            Self::Speech(speech) => Some(("characters", speech.affordable(available)?)),
        }
    }
}

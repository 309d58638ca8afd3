//! Prices, the ceiling to hold, and the charge. Pure and property-tested: with correct usage from
//! the provider no charge exceeds its ceiling, and every division rounds up.

mod bill;
mod exact;
mod markup;
mod text;

use serde::Serialize;
use utoipa::ToSchema;

pub use bill::{Bill, BillLine};
pub use exact::{
    ANY_SIZE, ImageCeiling, ImagePrices, InputCeiling, QualityPrices, SpeechCeiling, SpeechPrices,
    VideoCeiling, VideoPrices,
};
pub use markup::Markup;
pub use text::{CacheWrites, PriceTier, TextCeiling, TextPrices, TokenPrices};

use super::credits::Credits;

/// The member of stored prices that has the vendor's list prices. Callers do not see it, and prices
/// that earlier releases stored do not have it.
pub const LIST: &str = "list";

/// The price row of a model, by modality.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Prices {
    Text(TextPrices),
    Image(ImagePrices),
    Video(VideoPrices),
    Speech(SpeechPrices),
}

/// The maximum cost of a request, and what it is computed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ceiling {
    Text(TextCeiling),
    Image(ImageCeiling),
    Video(VideoCeiling),
    Speech(SpeechCeiling),
}

impl Ceiling {
    /// The amount to hold; on overflow the maximum, which exceeds every balance.
    pub fn hold(&self) -> Credits {
        let hold = match self {
            Self::Text(text) => text.hold(),
            Self::Image(image) => image.price(image.n),
            Self::Video(video) => video.price(video.seconds),
            Self::Speech(speech) => speech.price(speech.characters),
        };
        hold.unwrap_or(Credits::from_micros(i64::MAX))
    }

    /// The parameter that drives the cost, and its largest value (at most the requested one) whose
    /// hold fits into `available`; `None` when none fits.
    pub fn affordable(&self, available: Credits) -> Option<(&'static str, u64)> {
        match self {
            Self::Text(text) => Some(("max_tokens", text.affordable(available)?)),
            Self::Image(image) => Some(("n", image.affordable(available)?.into())),
            Self::Video(video) => Some(("duration", video.affordable(available)?.into())),
            Self::Speech(speech) => Some(("characters", speech.affordable(available)?)),
        }
    }
}

/// The largest number from 1 to `most` that fits; all below one that fits must fit too.
fn largest(most: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    if !fits(1) {
        return None;
    }
    let (mut fitting, mut beyond) = (1, most.saturating_add(1));
    while beyond - fitting > 1 {
        let middle = fitting + (beyond - fitting) / 2;
        if fits(middle) {
            fitting = middle;
        } else {
            beyond = middle;
        }
    }
    Some(fitting)
}

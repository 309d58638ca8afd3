//! Prices, the maximum cost to hold, and the charge. Pure and property-tested: if the provider's
//! usage is correct, no charge exceeds its hold. Every division rounds up.

mod bill;
mod exact;
mod text;

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use toml::Value;
use utoipa::ToSchema;

pub use bill::{Bill, BillLine};
pub use exact::{
    ANY_SIZE, ImagePrices, InputCeiling, PER_THOUSAND, Quality, QualityPrices, SpeechPrices,
    UnitCeiling, VideoPrices,
};
pub use text::{CacheWrites, PriceTier, TextCeiling, TextPrices, TokenPrices};

use super::{credits::Credits, settings::shown};

/// The member of stored prices with the vendor's list prices. Callers do not see it, and prices
/// stored by earlier releases do not have it.
pub const LIST: &str = "list";

/// The prices of a model, by modality.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Prices {
    Text(TextPrices),
    Image(ImagePrices),
    Video(VideoPrices),
    Speech(SpeechPrices),
}

/// The maximum cost of a request, and the values that determine it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ceiling {
    Text(TextCeiling),
    Units(UnitCeiling),
}

impl Ceiling {
    /// Returns the amount to hold; on overflow the maximum, which exceeds every balance.
    pub fn hold(&self) -> Credits {
        let hold = match self {
            Self::Text(text) => text.hold(),
            Self::Units(ceiling) => ceiling.price(ceiling.units),
        };
        hold.unwrap_or(Credits::from_micros(i64::MAX))
    }

    /// Returns the parameter that determines the cost, and its largest value (at most the requested
    /// one) whose hold fits into `available`; `None` if none fits.
    pub fn affordable(&self, available: Credits) -> Option<(&'static str, u64)> {
        match self {
            Self::Text(text) => Some(("max_tokens", text.affordable(available)?)),
            Self::Units(ceiling) => Some((ceiling.parameter, ceiling.affordable(available)?)),
        }
    }
}

/// Returns the largest number from 1 to `most` for which `fits` is true; `fits` must be monotonic.
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

/// The lowest factor: a model without a price is not offered.
const MIN_MARKUP: Credits = Credits::from_micros(1);
/// The highest factor.
const MAX_MARKUP: Credits = Credits::from_micros(1_000_000_000);

/// A factor on the catalogue's prices, with as many digits as credits have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Markup(Credits);

impl Markup {
    /// Whether it lowers prices.
    pub const fn is_below_cost(self) -> bool {
        self.0.micros() < 1_000_000
    }

    /// Multiplies each price, rounded up to a micro-credit; at most the maximum, which exceeds
    /// every balance.
    pub fn apply<'a>(self, prices: impl IntoIterator<Item = &'a mut Credits>) {
        let millionths = self.0.micros().cast_unsigned();
        for price in prices {
            *price = Credits::pro_rata(&[(*price, millionths)], 1_000_000)
                .unwrap_or(Credits::from_micros(i64::MAX));
        }
    }
}

/// Reads a number or text with at most as many digits as credits have.
impl<'de> Deserialize<'de> for Markup {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(source)?;
        let text = match &value {
            Value::String(text) => text.trim().to_owned(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            _ => String::new(),
        };
        let factor = text.parse::<Credits>().ok();
        factor
            .filter(|factor| (MIN_MARKUP..=MAX_MARKUP).contains(factor))
            .map(Self)
            .ok_or_else(|| {
                D::Error::custom(format_args!(
                    "is {}: must be a factor from {MIN_MARKUP} to {MAX_MARKUP} with at most six digits after \
                     the point, such as 1.2",
                    shown(&value)
                ))
            })
    }
}

impl fmt::Display for Markup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_rounded_up() {
        let mut prices = [0, 1, 10_000_000, i64::MAX].map(Credits::from_micros);
        Markup(Credits::from_micros(1_200_000)).apply(&mut prices);
        assert_eq!(prices.map(Credits::micros), [0, 2, 12_000_000, i64::MAX]);
        Markup(Credits::from_micros(1_000_000)).apply(&mut prices);
        assert_eq!(prices.map(Credits::micros), [0, 2, 12_000_000, i64::MAX]);
    }
}

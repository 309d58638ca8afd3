//! Prices, the ceiling to hold, and the charge. Pure and property-tested: with correct usage from
//! the provider no charge exceeds its ceiling, and every division rounds up.

mod bill;
mod exact;
mod text;

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use toml::Value;
use utoipa::ToSchema;

pub use bill::{Bill, BillLine};
pub use exact::{
    ANY_SIZE, ImagePrices, InputCeiling, PER_THOUSAND, QualityPrices, SpeechPrices, UnitCeiling,
    VideoPrices,
};
pub use text::{CacheWrites, PriceTier, TextCeiling, TextPrices, TokenPrices};

use super::{credits::Credits, settings::shown};

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
    Units(UnitCeiling),
}

impl Ceiling {
    /// The amount to hold; on overflow the maximum, which exceeds every balance.
    pub fn hold(&self) -> Credits {
        let hold = match self {
            Self::Text(text) => text.hold(),
            Self::Units(ceiling) => ceiling.price(ceiling.units),
        };
        hold.unwrap_or(Credits::from_micros(i64::MAX))
    }

    /// The parameter that drives the cost, and its largest value (at most the requested one) whose
    /// hold fits into `available`; `None` when none fits.
    pub fn affordable(&self, available: Credits) -> Option<(&'static str, u64)> {
        match self {
            Self::Text(text) => Some(("max_tokens", text.affordable(available)?)),
            Self::Units(ceiling) => Some((ceiling.parameter, ceiling.affordable(available)?)),
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

/// The lowest factor: without a price, no service.
const MIN_MARKUP: Credits = Credits::from_micros(1);
/// The highest factor.
const MAX_MARKUP: Credits = Credits::from_micros(1_000_000_000);

/// A factor on the catalogue's prices, with as many digits as credits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Markup(Credits);

impl Markup {
    /// Whether it makes prices smaller.
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

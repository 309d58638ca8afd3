//! The operator's margin.

use std::fmt;

use serde::{Deserialize, Deserializer, de::Error as _};
use toml::Value;

use crate::domain::{credits::Credits, settings::shown};

/// The lowest factor: without a price, no service.
const MIN: Credits = Credits::from_micros(1);
/// The highest factor.
const MAX: Credits = Credits::from_micros(1_000_000_000);

/// A factor on the catalogue's prices, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Markup {
    millionths: u64,
}

impl Markup {
    pub const fn from_millionths(millionths: u64) -> Self {
        Self { millionths }
    }

    /// Whether it makes prices smaller.
    pub const fn is_below_cost(self) -> bool {
        self.millionths < 1_000_000
    }

    /// Multiplies each price, rounded up to a micro-credit; at most the maximum, which exceeds
    /// every balance.
    pub fn apply<'a>(self, prices: impl IntoIterator<Item = &'a mut Credits>) {
        for price in prices {
            *price = Credits::pro_rata(&[(*price, self.millionths)], 1_000_000)
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
            .filter(|factor| (MIN..=MAX).contains(factor))
            .map(|factor| Self::from_millionths(factor.micros().cast_unsigned()))
            .ok_or_else(|| {
                D::Error::custom(format_args!(
                    "is {}: must be a factor from {MIN} to {MAX} with at most six digits after \
                     the point, such as 1.2",
                    shown(&value)
                ))
            })
    }
}

impl fmt::Display for Markup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It has as many digits after the point.
        Credits::from_micros(self.millionths.cast_signed()).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_rounded_up() {
        let mut prices = [0, 1, 10_000_000, i64::MAX].map(Credits::from_micros);
        Markup::from_millionths(1_200_000).apply(&mut prices);
        assert_eq!(prices.map(Credits::micros), [0, 2, 12_000_000, i64::MAX]);
        Markup::from_millionths(1_000_000).apply(&mut prices);
        assert_eq!(prices.map(Credits::micros), [0, 2, 12_000_000, i64::MAX]);
    }
}

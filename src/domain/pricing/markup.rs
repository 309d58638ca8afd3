//! The operator's margin.

use std::fmt;

use crate::domain::credits::Credits;

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

//! Text: priced per token, held at its ceiling, charged by usage.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::{credits::Credits, usage::TextUsage};

/// Text prices are per this many tokens.
const PER_MILLION: u64 = 1_000_000;

/// Prices of a text model, in credits per 1,000,000 tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TextPrices {
    /// Input tokens.
    pub input_per_million: Credits,
    /// Output tokens.
    pub output_per_million: Credits,
}

/// The maximum cost of a text request, and what it is computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextCeiling {
    pub prices: TextPrices,
    /// Upper bound of input tokens: the UTF-8 bytes of prompt and system prompt plus the model's
    /// overhead, which a byte-level tokenizer cannot exceed.
    pub input_tokens: u64,
    /// Upper bound of output tokens: `max_tokens`.
    pub max_tokens: u32,
}

impl TextPrices {
    /// Rounded up once. `None` on overflow.
    pub fn cost(&self, input_tokens: u64, output_tokens: u64) -> Option<Credits> {
        Credits::pro_rata(
            &[
                (self.input_per_million, input_tokens),
                (self.output_per_million, output_tokens),
            ],
            PER_MILLION,
        )
    }

    /// The charge for `usage`: its price, capped at the hold. The second value is the excess, which
    /// the operator bears when the provider counted more than the ceiling.
    pub fn charge(&self, usage: &TextUsage, held: Credits) -> (Credits, Credits) {
        let exact = self
            .cost(usage.input_tokens, usage.output_tokens)
            .unwrap_or(Credits::from_micros(i64::MAX));
        let charged = exact.min(held);
        (charged, exact.minus_or_zero(charged))
    }
}

impl TextCeiling {
    /// The amount to hold. `None` on overflow.
    pub fn hold(&self) -> Option<Credits> {
        self.prices
            .cost(self.input_tokens, u64::from(self.max_tokens))
    }

    /// The largest `max_tokens`, at most the requested one, whose hold fits into `available`;
    /// `None` when not even 1 fits.
    pub fn affordable(&self, available: Credits) -> Option<u32> {
        let fits = |tokens: u32| {
            Self {
                max_tokens: tokens,
                ..*self
            }
            .hold()
            .is_some_and(|hold| hold <= available)
        };
        if !fits(1) {
            return None;
        }
        // The hold grows with max_tokens: a binary search finds the largest that fits.
        let (mut fitting, mut beyond) = (1, self.max_tokens.saturating_add(1));
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
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::usage::TokenCounts;

    fn ceiling(input_price: i64, output_price: i64, input_tokens: u64, max: u32) -> TextCeiling {
        TextCeiling {
            prices: TextPrices {
                input_per_million: Credits::from_micros(input_price),
                output_per_million: Credits::from_micros(output_price),
            },
            input_tokens,
            max_tokens: max,
        }
    }

    fn usage(input: u64, output: u64) -> TextUsage {
        let counts = TokenCounts {
            input: Some(input),
            output: Some(output),
            ..TokenCounts::default()
        };
        TextUsage::from_counts(counts, 0, 0)
    }

    #[test]
    fn a_known_bill() {
        // 10 and 50 credits per million: 100 + 1024 tokens.
        let c = ceiling(10_000_000, 50_000_000, 100, 1024);
        assert_eq!(c.hold().unwrap().to_string(), "0.0522");
        assert_eq!(
            c.prices
                .charge(&usage(10, 20), c.hold().unwrap())
                .0
                .to_string(),
            "0.0011"
        );
    }

    proptest! {
        #[test]
        fn an_honest_charge_is_within_the_hold(
            pin in 0..1_000_000_000_i64, pout in 0..1_000_000_000_i64,
            tokens in 1..60_000_u64, max in 1..=4096_u32, a in 0..=1000_u64, b in 0..=1000_u64
        ) {
            let c = ceiling(pin, pout, tokens, max);
            let hold = c.hold().unwrap();
            let used = usage(tokens * a / 1000, u64::from(max) * b / 1000);
            let (charged, excess) = c.prices.charge(&used, hold);
            prop_assert!(charged <= hold);
            prop_assert_eq!(excess, Credits::ZERO);
            prop_assert_eq!(Some(charged), c.prices.cost(used.input_tokens, used.output_tokens));
        }

        #[test]
        fn a_lying_count_never_charges_above_the_hold(
            input in 0..u64::MAX, output in 0..u64::MAX, held in 0..1_000_000_000_i64
        ) {
            let c = ceiling(10_000_000, 50_000_000, 1, 1);
            let held = Credits::from_micros(held);
            prop_assert!(c.prices.charge(&usage(input, output), held).0 <= held);
        }

        #[test]
        fn affordable_is_the_largest_that_fits(
            pin in 0..100_000_000_i64, pout in 1..100_000_000_i64,
            tokens in 1..60_000_u64, max in 1..=4096_u32, available in 0..1_000_000_i64
        ) {
            let c = ceiling(pin, pout, tokens, max);
            let available = Credits::from_micros(available);
            let hold = |m: u32| TextCeiling { max_tokens: m, ..c }.hold().unwrap();
            match c.affordable(available) {
                Some(m) => {
                    prop_assert!(m <= max && hold(m) <= available);
                    prop_assert!(m == max || hold(m + 1) > available);
                }
                None => prop_assert!(hold(1) > available),
            }
        }
    }
}

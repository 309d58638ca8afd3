//! Text, which is priced per token and charged by usage.

mod ceiling;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use ceiling::{CacheWrites, TextCeiling};

use crate::domain::{credits::Credits, usage::TextUsage};

/// Text prices are per this many tokens.
pub(super) const PER_MILLION: u64 = 1_000_000;

/// Prices of a text model, in credits per 1,000,000 tokens.
///
/// A generation is charged `((input_tokens - cached_input_tokens - cache_write_tokens) ×
/// input_per_million + cached_input_tokens × cached_input_per_million + (cache_write_tokens -
/// cache_write_long_tokens) × cache_write_per_million + cache_write_long_tokens ×
/// cache_write_long_per_million + output_tokens × output_per_million) ÷ 1,000,000 + searches ×
/// per_search`, by its `usage`: cached and written tokens are parts of the input, long writes a part
/// of the writes, a difference is at least 0, and a count that is absent is 0. The sum is rounded up
/// once to a millionth of a credit, and is at most `credits.estimated`. The prices are those of the
/// last tier whose `above_input_tokens` is below `input_tokens`, cached ones included; where there
/// is none, the model's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TextPrices {
    #[serde(flatten)]
    pub base: TokenPrices,
    /// Prices of requests with more input, ascending. The last tier that applies determines the
    /// prices of the whole request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<PriceTier>,
    /// Credits for each web search at the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_search: Option<Credits>,
}

/// Prices of requests with much input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PriceTier {
    /// Applies to requests with more input tokens than this, cached ones included.
    pub above_input_tokens: u64,
    #[serde(flatten)]
    pub prices: TokenPrices,
}

/// Prices of each kind of token, in credits per 1,000,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenPrices {
    /// Input tokens.
    pub input_per_million: Credits,
    /// Input tokens from the provider's cache; absent: as other input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_input_per_million: Option<Credits>,
    /// Input tokens that the provider wrote to its cache; absent: as other input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_per_million: Option<Credits>,
    /// Input tokens that the provider wrote to its cache for an hour or more; absent: as other
    /// input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_long_per_million: Option<Credits>,
    /// Output tokens, reasoning included.
    pub output_per_million: Credits,
}

impl TextPrices {
    /// Returns the tier for this number of input tokens; `None` if the base prices apply.
    pub(super) fn tier(&self, input_tokens: u64) -> Option<&PriceTier> {
        let applies = |tier: &&PriceTier| input_tokens > tier.above_input_tokens;
        self.tiers.iter().rev().find(applies)
    }

    fn at(&self, input_tokens: u64) -> &TokenPrices {
        let tier = self.tier(input_tokens);
        tier.map_or(&self.base, |tier| &tier.prices)
    }

    /// Returns label, price per million and count of each kind of token.
    pub(super) fn parts(&self, usage: &TextUsage) -> [(&'static str, Credits, u64); 5] {
        let prices = self.at(usage.input_tokens);
        let cached = usage.cached_input_tokens.unwrap_or(0);
        let written = usage.cache_write_tokens.unwrap_or(0);
        let long = usage.cache_write_long_tokens.unwrap_or(0);
        let short = written.saturating_sub(long);
        let plain = usage
            .input_tokens
            .saturating_sub(cached.saturating_add(written));
        let (input, output) = (prices.input_per_million, prices.output_per_million);
        let read = prices.cached_input_per_million.unwrap_or(input);
        let write = prices.cache_write_per_million.unwrap_or(input);
        let store = prices.cache_write_long_per_million.unwrap_or(input);
        [
            ("Input tokens", input, plain),
            ("Cached input tokens", read, cached),
            ("Tokens written to the cache", write, short),
            ("Tokens written to the cache, long lifetime", store, long),
            ("Output tokens", output, usage.output_tokens),
        ]
    }

    /// Returns the price of a search and the number of searches.
    pub(super) fn searches(&self, usage: &TextUsage) -> (Credits, u64) {
        let price = self.per_search.unwrap_or(Credits::ZERO);
        (price, usage.searches.unwrap_or(0))
    }

    /// Returns the price, rounded up once; `None` on overflow.
    pub fn cost(&self, usage: &TextUsage) -> Option<Credits> {
        let parts = self.parts(usage);
        let tokens = Credits::pro_rata(&parts.map(|(_, price, count)| (price, count)), PER_MILLION);
        tokens?.checked_add(Credits::pro_rata(&[self.searches(usage)], 1)?)
    }

    /// Returns the charge for `usage`: its price, at most the hold. Also returns the excess, which
    /// the operator pays if the provider counted more than the hold covers.
    pub fn charge(&self, usage: &TextUsage, held: Credits) -> (Credits, Credits) {
        let exact = self.cost(usage).unwrap_or(Credits::from_micros(i64::MAX));
        let charged = exact.min(held);
        (charged, exact.minus_or_zero(charged))
    }

    pub fn amounts(&mut self) -> impl Iterator<Item = &mut Credits> {
        let tiers = self.tiers.iter_mut().map(|tier| &mut tier.prices);
        std::iter::once(&mut self.base)
            .chain(tiers)
            .flat_map(TokenPrices::amounts)
            .chain(&mut self.per_search)
    }
}

impl TokenPrices {
    fn amounts(&mut self) -> impl Iterator<Item = &mut Credits> {
        [&mut self.input_per_million, &mut self.output_per_million]
            .into_iter()
            .chain(&mut self.cached_input_per_million)
            .chain(&mut self.cache_write_per_million)
            .chain(&mut self.cache_write_long_per_million)
    }
}

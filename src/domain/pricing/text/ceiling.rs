//! The maximum cost of a text request.

use std::sync::Arc;

use super::{PER_MILLION, TextPrices, TokenPrices};
use crate::domain::{credits::Credits, pricing::largest};

/// The cache writes that a request may cause. Each variant includes the previous ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheWrites {
    #[default]
    None,
    Short,
    Long,
}

/// The maximum cost of a text request, and the values that determine it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextCeiling {
    pub prices: Arc<TextPrices>,
    /// Maximum input tokens: the UTF-8 bytes of prompt and system prompt plus the model's overhead,
    /// which a byte-level tokenizer cannot exceed, or fewer if there is a [receipt].
    ///
    /// [receipt]: crate::domain::receipt
    pub input_tokens: u64,
    /// Maximum output tokens of each choice: `max_tokens`.
    pub max_tokens: u32,
    /// The least `max_tokens` that the model accepts.
    pub min_tokens: u32,
    /// Choices that are asked for (`n` of a chat), at least 1.
    pub choices: u32,
    /// Maximum web searches at the provider, and input tokens held for the results of each.
    pub searches: u32,
    pub search_tokens: u32,
    /// Cache writes that the provider may bill for the body that is sent.
    pub cache_writes: CacheWrites,
}

impl TextCeiling {
    /// Returns the amount to hold; `None` on overflow.
    pub fn hold(&self) -> Option<Credits> {
        self.hold_of(self.max_tokens.into())
    }

    /// The largest `max_tokens`, at most the requested one, whose hold fits into `available`;
    /// `None` when not even the least that the model accepts fits.
    pub fn affordable(&self, available: Credits) -> Option<u64> {
        let most = largest(self.max_tokens.into(), |tokens| {
            self.hold_of(tokens).is_some_and(|hold| hold <= available)
        });
        most.filter(|&most| most >= self.min_tokens.into())
    }

    /// Returns the maximum cost of any input. A tier may be cheaper than the one below it, so this
    /// is the maximum over the largest input of each tier.
    fn hold_of(&self, output_tokens: u64) -> Option<Credits> {
        let searches = u64::from(self.searches);
        let results = searches * u64::from(self.search_tokens);
        // The model reads the prompt again after each search, from the cache or not.
        let prompts = self.input_tokens.saturating_mul(searches + 1);
        let most_input = prompts.saturating_add(results);
        let all_output = output_tokens.saturating_mul(self.choices.into());
        let price = self.prices.per_search.unwrap_or(Credits::ZERO);
        let searches = Credits::pro_rata(&[(price, searches)], 1)?;
        let tiers = self.prices.tiers.iter().map(|tier| tier.above_input_tokens);
        let tokens = tiers
            .filter(|&end| end < most_input)
            .chain([most_input])
            .try_fold(Credits::ZERO, |most, input_tokens| {
                let prices = self.prices.at(input_tokens);
                let input = (prices.dearest_input(self.cache_writes), input_tokens);
                let output = (prices.output_per_million, all_output);
                let cost = Credits::pro_rata(&[input, output], PER_MILLION)?;
                Some(most.max(cost))
            });
        tokens?.checked_add(searches)
    }
}

impl TokenPrices {
    /// Returns the maximum price of input, whether or not the cache is used.
    fn dearest_input(&self, writes: CacheWrites) -> Credits {
        let write = self.cache_write_per_million;
        let long = self.cache_write_long_per_million;
        [
            self.cached_input_per_million,
            write.filter(|_| writes >= CacheWrites::Short),
            long.filter(|_| writes >= CacheWrites::Long),
        ]
        .into_iter()
        .flatten()
        .fold(self.input_per_million, Ord::max)
    }
}

//! The usage of a generation, in the units that are billed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum plausible count: the largest integer that every JSON parser keeps.
pub const MAX_COUNT: u64 = (1 << 53) - 1;
/// Maximum web searches of one request.
pub const MAX_SEARCHES: u32 = 1_000;

/// Token counts reported by a provider. Counts that are missing, negative or not integers are
/// `None`; these, and zeros for content that is not empty, are estimated from bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// All input tokens, cached ones included.
    pub input: Option<u64>,
    /// All output tokens, reasoning included.
    pub output: Option<u64>,
    /// The part of the input that came from the provider's cache.
    pub cached_input: Option<u64>,
    /// The part of the input that was written to the provider's cache.
    pub cache_write: Option<u64>,
    /// The part of `cache_write` with a long lifetime.
    pub cache_write_long: Option<u64>,
    /// The part of the output that was hidden reasoning.
    pub reasoning: Option<u64>,
    /// Web searches at the provider.
    pub searches: Option<u64>,
    /// Bytes of the text after `output` was counted, in a cancelled stream.
    pub uncounted_bytes: usize,
}

/// Tokens of a completed text generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TextUsage {
    /// All input tokens, cached ones included.
    pub input_tokens: u64,
    /// All output tokens, reasoning included.
    pub output_tokens: u64,
    /// Sum of input and output tokens.
    pub total_tokens: u64,
    /// The part of the input that came from the provider's cache; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input_tokens: Option<u64>,
    /// The part of the input that was written to the provider's cache; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_tokens: Option<u64>,
    /// The part of the cache writes that is kept for an hour or more; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_long_tokens: Option<u64>,
    /// The part of the output that was hidden reasoning, at the same price; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
    /// Web searches at the provider; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub searches: Option<u64>,
    /// Whether a count was missing upstream and was estimated from bytes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl TokenCounts {
    pub fn believed_input(&self) -> Option<u64> {
        self.input.filter(|&count| count <= MAX_COUNT)
    }
}

impl TextUsage {
    /// Completes reported counts. A count that is missing, or zero for content that is not empty,
    /// becomes bytes ÷ 4, rounded up, and the usage is marked as estimated.
    pub fn from_counts(counts: TokenCounts, input_bytes: usize, output_bytes: usize) -> Self {
        let estimate = |bytes: usize| (bytes as u64).div_ceil(4);
        let believed = |count: Option<u64>| count.filter(|&c| c <= MAX_COUNT);
        let input = counts
            .believed_input()
            .filter(|&c| c > 0 || input_bytes == 0);
        let output = believed(counts.output).filter(|&c| c > 0 || output_bytes == 0);
        let input_tokens = input.unwrap_or_else(|| estimate(input_bytes));
        // At least the provider's own count, and at least one token for the rest.
        let output_tokens = output.map_or_else(
            || estimate(output_bytes),
            |counted| counted + estimate(counts.uncounted_bytes),
        );
        // No part exceeds the whole. Overlapping parts are kept: without them, all of the input
        // would be charged at the full input price.
        let part = |count| believed(count).map(|n| n.min(input_tokens));
        let cached = part(counts.cached_input);
        let written = part(counts.cache_write);
        let long = believed(counts.cache_write_long).zip(written);
        Self {
            input_tokens,
            output_tokens,
            total_tokens: input_tokens.saturating_add(output_tokens),
            cached_input_tokens: cached,
            cache_write_tokens: written,
            cache_write_long_tokens: long.map(|(long, written)| long.min(written)),
            reasoning_tokens: believed(counts.reasoning).filter(|&c| c <= output_tokens),
            searches: counts
                .searches
                .map(|c| c.min(MAX_SEARCHES.into()))
                .filter(|&c| c > 0),
            estimated: input.is_none() || output.is_none() || counts.uncounted_bytes > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_count_is_estimated_and_said() {
        let counts = TokenCounts {
            input: Some(7),
            ..TokenCounts::default()
        };
        let usage = TextUsage::from_counts(counts, 100, 9);
        assert_eq!(
            (usage.input_tokens, usage.output_tokens, usage.total_tokens),
            (7, 3, 10)
        );
        assert!(usage.estimated);
    }

    #[test]
    fn no_output_tokens_are_a_count_only_without_a_text() {
        let counts = TokenCounts {
            input: Some(7),
            output: Some(0),
            ..TokenCounts::default()
        };
        let usage = TextUsage::from_counts(counts, 100, 5);
        assert_eq!((usage.output_tokens, usage.estimated), (2, true));
        let usage = TextUsage::from_counts(counts, 100, 0);
        assert_eq!((usage.output_tokens, usage.estimated), (0, false));
    }

    #[test]
    fn no_input_tokens_are_a_count_only_without_content() {
        for (input, bytes, tokens, estimated) in [
            (Some(0), 2_000, 500, true),
            (Some(0), 1, 1, true),
            (Some(0), 0, 0, false),
            (Some(1), 2_000, 1, false),
        ] {
            let counts = TokenCounts {
                input,
                output: Some(5),
                ..TokenCounts::default()
            };
            let usage = TextUsage::from_counts(counts, bytes, 9);
            assert_eq!((usage.input_tokens, usage.estimated), (tokens, estimated));
        }
    }

    #[test]
    fn what_came_after_a_count_is_estimated() {
        let counts = |output| TokenCounts {
            input: Some(7),
            output,
            uncounted_bytes: 5,
            ..TokenCounts::default()
        };
        let usage = TextUsage::from_counts(counts(Some(40)), 100, 20);
        assert_eq!((usage.output_tokens, usage.estimated), (42, true));
        let usage = TextUsage::from_counts(counts(None), 100, 20);
        assert_eq!((usage.output_tokens, usage.estimated), (5, true));
    }

    #[test]
    fn an_absurd_count_is_not_believed() {
        let counts = TokenCounts {
            input: Some(u64::MAX),
            output: Some(5),
            cached_input: Some(1000),
            reasoning: Some(6),
            ..TokenCounts::default()
        };
        let usage = TextUsage::from_counts(counts, 4, 4);
        assert_eq!((usage.input_tokens, usage.estimated), (1, true));
        assert_eq!(
            (usage.cached_input_tokens, usage.reasoning_tokens),
            (Some(1), None)
        );
    }

    #[test]
    fn no_part_of_the_input_is_above_it() {
        let some = |n| Some(n);
        for (cached, written, long, believed) in [
            (some(4), some(6), some(6), [some(4), some(6), some(6)]),
            (some(0), some(0), some(0), [some(0), some(0), some(0)]),
            (some(10), None, None, [some(10), None, None]),
            // Together more than the input: each keeps its count.
            (some(5), some(6), some(1), [some(5), some(6), some(1)]),
            (some(5), some(6), some(6), [some(5), some(6), some(6)]),
            (some(u64::MAX), some(6), None, [None, some(6), None]),
            (some(4), some(u64::MAX), some(1), [some(4), None, None]),
            // More than the whole of which it is a part.
            (some(11), some(1), some(1), [some(10), some(1), some(1)]),
            (None, some(6), some(7), [None, some(6), some(6)]),
            (None, None, some(1), [None, None, None]),
        ] {
            let counts = TokenCounts {
                input: Some(10),
                output: Some(1),
                cached_input: cached,
                cache_write: written,
                cache_write_long: long,
                ..TokenCounts::default()
            };
            let usage = TextUsage::from_counts(counts, 0, 1);
            let got = [
                usage.cached_input_tokens,
                usage.cache_write_tokens,
                usage.cache_write_long_tokens,
            ];
            assert_eq!(got, believed, "{cached:?} {written:?} {long:?}");
        }
    }
}

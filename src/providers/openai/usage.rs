//! Token counts of a Chat Completions response.
//!
//! Servers agree on the names of the three main counts, but neither on what these include nor on
//! the names of other counts. Source: openai 3.57.0, groq 1.7.0, mistralai 3.7.0, openrouter
//! 1.3.84, litellm 1.110.2 (`PyPI`); `@ai-sdk/` alibaba, deepinfra, deepseek, mistral, moonshotai,
//! xai (npm); docs.x.ai, platform.kimi.ai, api-docs.deepseek.com.

use serde_json::{Map, Value};

use super::super::answer::count;
use crate::domain::usage::TokenCounts;

/// Pointers to the usage, by precedence: all servers; Moonshot's streams; older streams of Groq.
const USAGE: &[&str] = &["/usage", "/choices/0/usage", "/x_groq/usage"];
const INPUT: &[&str] = &["/prompt_tokens", "/input_tokens"];
const OUTPUT: &[&str] = &["/completion_tokens", "/output_tokens"];
/// Input tokens from a cache.
const CACHED: &[&str] = &[
    // OpenAI, xAI, Groq, OpenRouter, Together, Fireworks, Cerebras, Alibaba, Z.ai, vLLM, SGLang.
    "/prompt_tokens_details/cached_tokens",
    // Mistral.
    "/prompt_token_details/cached_tokens",
    "/num_cached_tokens",
    // Moonshot, Together, MiniMax.
    "/cached_tokens",
    // DeepSeek.
    "/prompt_cache_hit_tokens",
    // Servers that use the names of the Responses API.
    "/input_tokens_details/cached_tokens",
    // LiteLLM, Databricks and other proxies of Anthropic.
    "/cache_read_input_tokens",
    "/prompt_tokens_details/cache_read_input_tokens",
    // GigaChat, which does not include them in `prompt_tokens`.
    "/precached_prompt_tokens",
];
/// Input tokens written to a cache.
const WRITTEN: &[&str] = &[
    // OpenAI, OpenRouter.
    "/prompt_tokens_details/cache_write_tokens",
    "/input_tokens_details/cache_write_tokens",
    // LiteLLM.
    "/prompt_tokens_details/cache_creation_tokens",
    // Alibaba.
    "/prompt_tokens_details/cache_creation_input_tokens",
    // LiteLLM, Databricks and other proxies of Anthropic.
    "/cache_creation_input_tokens",
];
/// The cache writes with a long lifetime.
const WRITTEN_LONG: &[&str] = &[
    // OpenAI, for twelve hours.
    "/input_tokens_details/cache_write_tokens_details/ttl_12h_tokens",
    // Proxies of Anthropic and LiteLLM, for an hour.
    "/cache_creation/ephemeral_1h_input_tokens",
    "/prompt_tokens_details/cache_creation_token_details/ephemeral_1h_input_tokens",
];
const REASONING: &[&str] = &[
    "/completion_tokens_details/reasoning_tokens",
    "/output_tokens_details/reasoning_tokens",
    // Perplexity, Together.
    "/reasoning_tokens",
];

/// Finds the usage of a response or a chunk.
pub fn find(root: &Value) -> Option<&Map<String, Value>> {
    let mut found = USAGE
        .iter()
        .filter_map(|place| root.pointer(place)?.as_object());
    found.find(|usage| !usage.is_empty())
}

/// Reads the counts of a usage. Input includes cached tokens and cache writes, output includes
/// reasoning.
///
/// xAI reports reasoning outside of `completion_tokens`, and some proxies of Anthropic report
/// cached tokens outside of `prompt_tokens`. The total decides: its excess over their sum is cached
/// input or reasoning, as far as these counts explain it, and otherwise ignored.
pub fn counts(usage: &Map<String, Value>) -> TokenCounts {
    let usage = Value::Object(usage.clone());
    let largest = |names: &[&str]| {
        let counts = names.iter().filter_map(|name| count(usage.pointer(name)));
        counts.max()
    };
    let (input, output) = (largest(INPUT), largest(OUTPUT));
    let (cached, written) = (largest(CACHED), largest(WRITTEN));
    let reasoning = largest(REASONING);
    let (extra_input, extra_output) = extra(
        [input, output].map(|count| count.unwrap_or(0)),
        [cached, written].map(|count| count.unwrap_or(0)),
        reasoning.unwrap_or(0),
        count(usage.get("total_tokens")),
    );
    TokenCounts {
        input: input.map(|input| input.saturating_add(extra_input)),
        output: output.map(|output| output.saturating_add(extra_output)),
        cached_input: cached,
        cache_write: written,
        cache_write_long: largest(WRITTEN_LONG),
        reasoning,
        ..TokenCounts::default()
    }
}

/// Returns the input and output tokens that the main counts exclude.
fn extra(
    [input, output]: [u64; 2],
    [cached, written]: [u64; 2],
    reasoning: u64,
    total: Option<u64>,
) -> (u64, u64) {
    let rest = total.and_then(|total| total.checked_sub(input)?.checked_sub(output));
    let all = cached.saturating_add(written);
    // A part larger than the input must be outside of it.
    let is_possible = |outside: &u64| cached.max(written) <= input.saturating_add(*outside);
    let explained = |outside: u64| {
        let left = rest?.checked_sub(outside)?;
        let output = left.min(reasoning);
        Some((left - output, outside, output))
    };
    let choices = [0, cached, written, all].into_iter().filter(is_possible);
    match choices.filter_map(explained).min() {
        Some((_, input, output)) => (input, output),
        None => (
            if is_possible(&0) { 0 } else { all },
            rest.map_or(0, |rest| rest.min(reasoning)),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::domain::{
        credits::Credits,
        pricing::{CacheWrites, TextCeiling, TextPrices, TokenPrices},
        usage::TextUsage,
    };

    fn main_counts(usage: &Value) -> [Option<u64>; 4] {
        let counts = counts(usage.as_object().unwrap());
        [
            counts.input,
            counts.output,
            counts.cached_input,
            counts.cache_write,
        ]
    }

    #[test]
    fn the_total_says_what_the_main_counts_leave_out() {
        let usage = |input: u64,
                     output: u64,
                     total: Option<u64>,
                     cached: u64,
                     written: u64,
                     reasoning: u64| {
            json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": total,
                "cache_read_input_tokens": cached, "cache_creation_input_tokens": written,
                "completion_tokens_details": {"reasoning_tokens": reasoning}})
        };
        for (usage, input, output) in [
            // Cached tokens, cache writes or both are outside.
            (usage(400, 20, Some(12_420), 12_000, 0, 0), 12_400, 20),
            (usage(20_000, 20, Some(32_020), 12_000, 0, 0), 32_000, 20),
            (usage(400, 20, Some(12_920), 12_000, 500, 0), 12_900, 20),
            (usage(400, 20, Some(920), 0, 500, 0), 900, 20),
            (usage(12_400, 20, Some(12_920), 12_000, 500, 0), 12_900, 20),
            (usage(900, 20, Some(12_920), 12_000, 500, 0), 12_900, 20),
            // Reasoning is outside (xAI), or both are.
            (usage(400, 20, Some(740), 0, 0, 320), 400, 340),
            (usage(400, 20, Some(740), 100, 0, 320), 400, 340),
            (usage(400, 20, Some(12_740), 12_000, 0, 320), 12_400, 340),
            (usage(400, 400, Some(12_800), 12_000, 0, 320), 12_400, 400),
            // Nothing is outside.
            (usage(12_400, 20, Some(12_420), 12_000, 0, 10), 12_400, 20),
            (usage(10_000, 1, Some(10_001), 9_984, 128, 0), 10_000, 1),
            // The total is missing or wrong.
            (usage(12_400, 20, None, 12_000, 0, 10), 12_400, 20),
            (usage(400, 20, None, 12_000, 0, 10), 12_400, 20),
            (usage(400, 20, None, 12_000, 100, 10), 12_500, 20),
            (usage(400, 20, Some(420), 12_000, 0, 10), 12_400, 20),
            (usage(400, 20, Some(1), 0, 0, 10), 400, 20),
            (usage(400, 20, Some(0), 0, 0, 10), 400, 20),
            (usage(400, 20, Some(99_999), 0, 0, 10), 400, 30),
            (usage(400, 20, Some(99_999), 0, 0, 0), 400, 20),
            (usage(400, 20, Some(12_425), 12_000, 0, 0), 12_400, 20),
            (usage(20_000, 20, Some(32_025), 12_000, 0, 0), 32_000, 20),
        ] {
            let [found_input, found_output, ..] = main_counts(&usage);
            assert_eq!(
                (found_input, found_output),
                (Some(input), Some(output)),
                "{usage}"
            );
        }
    }

    #[test]
    fn cached_tokens_are_read_wherever_a_server_reports_them() {
        for more in [
            json!({"prompt_tokens_details": {"cached_tokens": 900}}),
            json!({"prompt_token_details": {"cached_tokens": 900}}),
            json!({"num_cached_tokens": 900, "prompt_tokens_details": null}),
            json!({"cached_tokens": 900, "prompt_tokens_details": {"cached_tokens": 0}}),
            json!({"prompt_cache_hit_tokens": 900, "prompt_cache_miss_tokens": 100}),
            json!({"input_tokens_details": {"cached_tokens": 900}}),
            json!({"cache_read_input_tokens": 900, "prompt_tokens_details": {"cached_tokens": 900}}),
        ] {
            let mut usage = more.clone();
            usage["prompt_tokens"] = json!(1_000);
            usage["completion_tokens"] = json!(5);
            for total in [json!(1_005), Value::Null] {
                usage["total_tokens"] = total;
                let expected = [Some(1_000), Some(5), Some(900), None];
                assert_eq!(main_counts(&usage), expected, "{usage}");
            }
        }
        let outside = json!({"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105,
            "precached_prompt_tokens": 900});
        let expected = [Some(1_000), Some(5), Some(900), None];
        assert_eq!(main_counts(&outside), expected);
    }

    #[test]
    fn a_usage_is_found_in_each_place() {
        let usage = json!({"prompt_tokens": 1});
        for root in [
            json!({"usage": usage, "choices": []}),
            json!({"usage": null, "choices": [{"usage": usage}]}),
            json!({"usage": {}, "x_groq": {"usage": usage}}),
        ] {
            assert_eq!(find(&root), usage.as_object(), "{root}");
        }
        assert_eq!(find(&json!({"usage": [usage]})), None);
    }

    proptest! {
        /// Each count has its own price, and the sum of the charges is within the hold.
        #[test]
        fn counts_of_cache_writes_are_charged_at_their_prices(
            parts in prop::array::uniform5(0..200_000_u64),
            row in prop::array::uniform5(0..1_000_000_000_i64),
        ) {
            let [plain, read, short, long, output] = parts;
            let input = plain + read + short + long;
            let usage = json!({"input_tokens": input, "output_tokens": output,
                "total_tokens": input + output, "input_tokens_details": {
                    "cached_tokens": read, "cache_write_tokens": short + long,
                    "cache_write_tokens_details": {
                        "ttl_30m_tokens": short, "ttl_12h_tokens": long}}});
            let counts = counts(usage.as_object().unwrap());
            let used = TextUsage::from_counts(counts, 0, 0);
            let price = |at: usize| Credits::from_micros(row[at]);
            let prices = TextPrices {
                base: TokenPrices {
                    input_per_million: price(0),
                    cached_input_per_million: Some(price(1)),
                    cache_write_per_million: Some(price(2)),
                    cache_write_long_per_million: Some(price(3)),
                    output_per_million: price(4),
                },
                tiers: Vec::new(),
                per_search: None,
            };
            let exact: i128 = parts.iter().zip(row).map(|(n, price)| i128::from(*n) * i128::from(price)).sum();
            let cost = prices.cost(&used).unwrap();
            prop_assert_eq!(i128::from(cost.micros()), (exact + 999_999) / 1_000_000);
            let ceiling = TextCeiling {
                prices: Arc::new(prices),
                input_tokens: input,
                max_tokens: u32::try_from(output).unwrap(),
                min_tokens: 1,
                choices: 1,
                searches: 0,
                search_tokens: 0,
                cache_writes: CacheWrites::Long,
            };
            prop_assert!(cost <= ceiling.hold().unwrap());
        }
    }

    #[test]
    fn invalid_counts_are_missing() {
        for count in [
            json!(-1),
            json!(4.5),
            json!("7"),
            json!(u64::MAX),
            json!([7]),
            Value::Null,
        ] {
            let usage = json!({"prompt_tokens": count, "completion_tokens": count,
                "total_tokens": count, "cached_tokens": count});
            assert_eq!(main_counts(&usage), [None; 4], "{usage}");
        }
    }
}

mod dialogues;

use std::sync::Arc;

use proptest::{collection::btree_map, prelude::*};

use super::*;
use crate::domain::usage::TokenCounts;

fn credits(text: &str) -> Credits {
    text.parse().unwrap()
}

/// Prices of a model without a cache.
fn plain(input: i64, output: i64) -> TextPrices {
    let base = TokenPrices {
        input_per_million: Credits::from_micros(input),
        cached_input_per_million: None,
        cache_write_per_million: None,
        cache_write_long_per_million: None,
        output_per_million: Credits::from_micros(output),
    };
    TextPrices {
        base,
        tiers: Vec::new(),
        per_search: None,
    }
}

fn usage(input: u64, output: u64) -> TextUsage {
    with_cache(input, [0, 0, 0], output)
}

/// `cache`: tokens read, written for a short time, and written for long.
fn with_cache(input: u64, [read, short, long]: [u64; 3], output: u64) -> TextUsage {
    let counts = TokenCounts {
        input: Some(input),
        output: Some(output),
        cached_input: Some(read),
        cache_write: Some(short + long),
        cache_write_long: Some(long),
        ..TokenCounts::default()
    };
    TextUsage::from_counts(counts, 0, 0)
}

/// Returns the sum in millionths of micro-credits, before rounding.
fn exact(prices: &TextPrices, usage: &TextUsage) -> i128 {
    let mut of = prices.base;
    for tier in &prices.tiers {
        if usage.input_tokens > tier.above_input_tokens {
            of = tier.prices;
        }
    }
    let count = |tokens: Option<u64>| i128::from(tokens.unwrap());
    let read = count(usage.cached_input_tokens);
    let long = count(usage.cache_write_long_tokens);
    let short = count(usage.cache_write_tokens) - long;
    let price = |price: Option<Credits>| i128::from(price.unwrap_or(of.input_per_million).micros());
    (i128::from(usage.input_tokens) - read - short - long) * price(None)
        + read * price(of.cached_input_per_million)
        + short * price(of.cache_write_per_million)
        + long * price(of.cache_write_long_per_million)
        + i128::from(usage.output_tokens) * i128::from(of.output_per_million.micros())
        + i128::from(usage.searches.unwrap_or(0))
            * prices
                .per_search
                .map_or(0, |price| i128::from(price.micros()))
            * 1_000_000
}

/// Prices with up to three tiers that begin below `most` tokens, not necessarily cheaper.
fn prices(most: u64) -> impl Strategy<Value = TextPrices> {
    let price = 0..1_000_000_000_i64;
    let row = [
        price.clone(),
        price.clone(),
        price.clone(),
        price.clone(),
        price,
    ];
    let tiers = btree_map(1..most, row.clone(), 0..=3);
    let per_search = prop::option::of(0..100_000_i64);
    (any::<[bool; 3]>(), row, tiers, per_search).prop_map(|(has, base, tiers, per_search)| {
        let row = |[input, output, cached, short, long]: [i64; 5]| {
            let optional = |at: usize, price| has[at].then_some(Credits::from_micros(price));
            TokenPrices {
                input_per_million: Credits::from_micros(input),
                cached_input_per_million: optional(0, cached),
                cache_write_per_million: optional(1, short),
                cache_write_long_per_million: optional(2, long),
                output_per_million: Credits::from_micros(output),
            }
        };
        let tiers = tiers
            .into_iter()
            .map(|(above_input_tokens, prices)| PriceTier {
                above_input_tokens,
                prices: row(prices),
            });
        TextPrices {
            base: row(base),
            tiers: tiers.collect(),
            per_search: per_search.map(Credits::from_micros),
        }
    })
}

fn writes() -> impl Strategy<Value = CacheWrites> {
    prop_oneof![
        Just(CacheWrites::None),
        Just(CacheWrites::Short),
        Just(CacheWrites::Long)
    ]
}

fn ceilings() -> impl Strategy<Value = TextCeiling> {
    let searches = (0..=8_u32, 0..=20_000_u32);
    let ceiling = (
        prices(60_000),
        1..60_000_u64,
        (1..=4096_u32, 1..=16_u32),
        1..=8_u32,
        searches,
        writes(),
    );
    ceiling.prop_map(
        |(prices, input_tokens, tokens, choices, (searches, search_tokens), cache_writes)| {
            let (max_tokens, min_tokens) = tokens;
            TextCeiling {
                prices: Arc::new(prices),
                input_tokens,
                max_tokens: max_tokens.max(min_tokens),
                min_tokens,
                choices,
                searches,
                search_tokens,
                cache_writes,
            }
        },
    )
}

/// Returns a usage within a ceiling, scaled by thousandths.
fn honest(ceiling: &TextCeiling, parts: [u64; 5]) -> TextUsage {
    let [input, output, read, short, long] = parts;
    let searches = u64::from(ceiling.searches);
    let results = searches * u64::from(ceiling.search_tokens);
    let input = (ceiling.input_tokens * (searches + 1) + results) * input / 1000;
    let output = u64::from(ceiling.max_tokens * ceiling.choices) * output / 1000;
    let read = input * read / 1000;
    let short = (input - read) * short / 1000;
    let long = (input - read - short) * long / 1000;
    let may = |kind, tokens| {
        if ceiling.cache_writes >= kind {
            tokens
        } else {
            0
        }
    };
    let cache = [
        read,
        may(CacheWrites::Short, short),
        may(CacheWrites::Long, long),
    ];
    TextUsage {
        searches: Some(searches),
        ..with_cache(input, cache, output)
    }
}

#[test]
fn a_known_bill() {
    // 10 and 50 credits per million: 100 + 1024 tokens.
    let ceiling = TextCeiling {
        prices: Arc::new(plain(10_000_000, 50_000_000)),
        input_tokens: 100,
        max_tokens: 1024,
        min_tokens: 1,
        choices: 1,
        searches: 0,
        search_tokens: 0,
        cache_writes: CacheWrites::None,
    };
    let hold = ceiling.hold().unwrap();
    assert_eq!(hold, credits("0.0522"));
    let (charged, _) = ceiling.prices.charge(&usage(10, 20), hold);
    assert_eq!(charged, credits("0.0011"));
}

#[test]
fn each_kind_of_input_has_its_price() {
    // claude-haiku-5-5, with five times the prices above 100,000 tokens.
    let row = |[input, read, short, long, output]: [&str; 5]| TokenPrices {
        input_per_million: credits(input),
        cached_input_per_million: Some(credits(read)),
        cache_write_per_million: Some(credits(short)),
        cache_write_long_per_million: Some(credits(long)),
        output_per_million: credits(output),
    };
    let prices = TextPrices {
        base: row(["10", "1", "12.5", "20", "50"]),
        tiers: vec![PriceTier {
            above_input_tokens: 100_000,
            prices: row(["50", "5", "62.5", "100", "250"]),
        }],
        per_search: Some(credits("1")),
    };
    let usage = TextUsage {
        searches: Some(3),
        ..with_cache(100_000, [0, 0, 0], 0)
    };
    assert_eq!(prices.cost(&usage), Some(credits("4")));
    for (input, cache, output, cost) in [
        (100_000, [0, 0, 0], 0, "1"),
        (100_000, [100_000, 0, 0], 1_000, "0.15"),
        (100_000, [10_000, 20_000, 30_000], 0, "1.26"),
        // Cached input counts too, and the tier depends on all tokens.
        (100_001, [0, 0, 0], 0, "5.00005"),
        (100_001, [100_001, 0, 0], 1_000, "0.750005"),
        (200_000, [50_000, 50_000, 50_000], 0, "10.875"),
    ] {
        let usage = with_cache(input, cache, output);
        assert_eq!(prices.cost(&usage), Some(credits(cost)), "{usage:?}");
    }
    // A missing price is that of input, even if other prices of its kind exist.
    let mut prices = TextPrices {
        tiers: Vec::new(),
        ..prices
    };
    prices.base.cache_write_long_per_million = None;
    let usage = with_cache(100_000, [0, 10_000, 90_000], 0);
    assert_eq!(prices.cost(&usage), Some(credits("1.025")));
}

#[test]
fn a_tier_may_be_cheaper_than_the_one_below() {
    let tier = PriceTier {
        above_input_tokens: 1_000,
        prices: plain(1_000_000, 1_000_000).base,
    };
    let ceiling = TextCeiling {
        prices: Arc::new(TextPrices {
            tiers: vec![tier],
            ..plain(4_000_000, 1_000_000)
        }),
        input_tokens: 2_000,
        max_tokens: 1,
        min_tokens: 1,
        choices: 1,
        searches: 0,
        search_tokens: 0,
        cache_writes: CacheWrites::None,
    };
    // 1,000 tokens at 4, although 2,000 would cost 1 each.
    assert_eq!(ceiling.hold(), Some(credits("0.004001")));
}

#[test]
fn absent_prices_are_left_out() {
    let mut prices = plain(10_000_000, 50_000_000);
    let shown = serde_json::json!(prices);
    let bare = serde_json::json!({"input_per_million": "10", "output_per_million": "50"});
    assert_eq!(shown, bare);
    prices.base.cached_input_per_million = Some(credits("1"));
    let tier = PriceTier {
        above_input_tokens: 7,
        prices: prices.base,
    };
    prices.tiers.push(tier);
    let shown = serde_json::json!(prices);
    let row = serde_json::json!({"above_input_tokens": 7, "input_per_million": "10",
        "cached_input_per_million": "1", "output_per_million": "50"});
    assert_eq!(shown["tiers"], serde_json::json!([row]));
    assert_eq!(shown["cached_input_per_million"], "1");
}

proptest! {
    #[test]
    fn an_honest_charge_is_exact_and_within_the_hold(
        ceiling in ceilings(), parts in prop::array::uniform5(0..=1000_u64)
    ) {
        let hold = ceiling.hold().unwrap();
        let used = honest(&ceiling, parts);
        let (charged, excess) = ceiling.prices.charge(&used, hold);
        prop_assert!(charged <= hold && charged >= Credits::ZERO);
        prop_assert_eq!(excess, Credits::ZERO);
        // Rounded up once.
        let exact = exact(&ceiling.prices, &used);
        let charged = i128::from(charged.micros());
        prop_assert!(charged * 1_000_000 >= exact && (charged - 1) * 1_000_000 < exact);
    }

    #[test]
    fn some_usage_costs_the_whole_hold(
        prices in prices(6), input in 1..6_u64, max in 1..=3_u32, writes in writes()
    ) {
        let ceiling = TextCeiling {
            prices: Arc::new(prices), input_tokens: input, max_tokens: max, min_tokens: 1, choices: 1, searches: 0, search_tokens: 0,
                cache_writes: writes
        };
        let mut dearest = Credits::ZERO;
        for input in 0..=input {
            let all = [
                Some([0, 0, 0]),
                Some([input, 0, 0]),
                (writes >= CacheWrites::Short).then_some([0, input, 0]),
                (writes >= CacheWrites::Long).then_some([0, 0, input]),
            ];
            for cache in all.into_iter().flatten() {
                let cost = ceiling.prices.cost(&with_cache(input, cache, max.into()));
                dearest = dearest.max(cost.unwrap());
            }
        }
        prop_assert_eq!(ceiling.hold(), Some(dearest));
    }

    #[test]
    fn a_lying_count_never_charges_above_the_hold(
        prices in prices(60_000),
        counts in prop::array::uniform5(prop::option::of(prop_oneof![0..100_000_u64, any::<u64>()])),
        bytes in 0..100_000_usize, held in 0..1_000_000_000_i64
    ) {
        let [input, output, cached_input, cache_write, cache_write_long] = counts;
        let counts = TokenCounts {
            input, output, cached_input, cache_write, cache_write_long, ..TokenCounts::default()
        };
        let used = TextUsage::from_counts(counts, bytes, bytes);
        let held = Credits::from_micros(held);
        let (charged, _) = prices.charge(&used, held);
        prop_assert!(charged <= held && charged >= Credits::ZERO);
    }

    #[test]
    fn affordable_is_the_largest_that_fits(ceiling in ceilings(), available in 0..100_000_000_i64) {
        let available = Credits::from_micros(available);
        let max = u64::from(ceiling.max_tokens);
        let hold = |tokens: u64| {
            let max_tokens = u32::try_from(tokens).unwrap();
            TextCeiling { max_tokens, ..ceiling.clone() }.hold().unwrap()
        };
        match ceiling.affordable(available) {
            Some(m) => {
                prop_assert!(m >= ceiling.min_tokens.into());
                prop_assert!(m <= max && hold(m) <= available);
                prop_assert!(m == max || hold(m + 1) > available);
            }
            None => prop_assert!(hold(ceiling.min_tokens.into()) > available),
        }
    }
}

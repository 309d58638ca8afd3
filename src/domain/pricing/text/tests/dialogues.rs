//! Dialogues of any length with any plausible counts of the vendor: every possible charge is within
//! the hold, whether bytes or an earlier count determined it.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::*;
use crate::domain::{
    conversation::{Conversation, Message, Part, Role},
    generation::Surface,
    receipt::{Blank, Prefixes, Receipt},
};

/// Maximum tokens of the vendor's template.
const OVERHEAD: u64 = 64;

/// A message: characters of one to four bytes, and how many thousandths of its maximum the vendor
/// counts.
type Said = (char, usize, u64);

#[derive(Debug, Clone)]
struct Turn {
    said: Vec<Said>,
    template: u64,
    /// Whether the vendor drops all earlier messages from here on.
    drops: bool,
    /// Whether the vendor reports its counts.
    tells: bool,
    output: u64,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let letter = prop::sample::select(vec!['x', 'é', '語', '😀']);
    let said = (letter, 1..4_000_usize, 0..=1_000_u64);
    let turn = (
        prop::collection::vec(said, 1..5),
        0..=OVERHEAD,
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.9),
        0..=1_000_u64,
    );
    let turn = turn.prop_map(|(said, template, drops, tells, output)| Turn {
        said,
        template,
        drops,
        tells,
        output,
    });
    prop::collection::vec(turn, 1..8)
}

/// Returns the most expensive usages of this many tokens: all of one kind.
fn extremes(input: u64, output: u64, writes: CacheWrites) -> Vec<TextUsage> {
    let mut all = vec![[0, 0, 0], [input, 0, 0]];
    if writes >= CacheWrites::Short {
        all.push([0, input, 0]);
    }
    if writes >= CacheWrites::Long {
        all.push([0, 0, input]);
    }
    let all = all.into_iter();
    all.map(|cache| with_cache(input, cache, output)).collect()
}

proptest! {
    #[test]
    fn what_a_dialogue_can_cost_is_held(
        prices in prices(60_000), turns in turns(), max_tokens in 1..=4096_u32,
        cache_writes in writes()
    ) {
        let prices = Arc::new(prices);
        let mut kept: HashMap<_, Receipt> = HashMap::new();
        let (mut messages, mut counted) = (Vec::new(), 0);
        let mut conversation = Conversation::default();
        for turn in turns {
            if turn.drops {
                counted = 0;
            }
            for (letter, letters, thousandths) in turn.said {
                let text = letter.to_string().repeat(letters);
                counted += (text.len() as u64 + 8) * thousandths / 1_000;
                let roles = [("user", Role::User), ("assistant", Role::Assistant)];
                let (name, role) = roles[messages.len() % 2];
                messages.push(json!({"role": name, "content": text}));
                conversation.messages.push(Message { role, parts: vec![Part::text(text)] });
            }
            let body = json!({"model": "m", "max_tokens": max_tokens, "messages": messages});
            let body: Map<String, Value> = body.as_object().unwrap().clone();
            let bound = conversation.most_tokens() as u64 + OVERHEAD;
            let prefixes = Prefixes::of(Surface::AnthropicMessages, &body, &[]).unwrap();
            let keys = prefixes.keys(&"an account and a model");
            let found = keys.iter().find_map(|key| kept.get(key)).copied();
            let input_tokens = found.map_or(bound, |receipt| receipt.most(bound));

            let input = counted + turn.template;
            prop_assert!(input <= input_tokens && input_tokens <= bound);
            let ceiling = TextCeiling {
                prices: Arc::clone(&prices), input_tokens, max_tokens, min_tokens: 1, choices: 1, searches: 0, search_tokens: 0,
                cache_writes
            };
            let hold = ceiling.hold().unwrap();
            for output in [0, u64::from(max_tokens) * turn.output / 1_000, max_tokens.into()] {
                for usage in extremes(input, output, cache_writes) {
                    let (charged, excess) = prices.charge(&usage, hold);
                    prop_assert_eq!(excess, Credits::ZERO);
                    prop_assert_eq!(Some(charged), prices.cost(&usage));
                }
            }
            let begun = found.map_or(0, |receipt| receipt.tokens);
            let blank = Blank { key: keys[0], bound, begun };
            let told = TokenCounts {
                input: turn.tells.then_some(input),
                ..TokenCounts::default()
            };
            kept.extend(blank.counted(&told).map(|receipt| (blank.key, receipt)));
        }
    }
}

//! Compares a catalogue with the prices and limits that `LiteLLM` publishes in
//! `model_prices_and_context_window.json`.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};

use super::{Catalogue, Model, ModelKind, TextLimits};
use crate::domain::{
    credits::Credits,
    pricing::{Prices, TextPrices, TokenPrices},
};

/// Credits per million tokens for one US dollar per token. A credit is a US cent.
const CREDITS_PER_DOLLAR: f64 = 1e8;

#[derive(Debug, Default, Serialize)]
pub struct Comparison {
    /// Number of models in the list.
    pub compared: usize,
    pub differences: Vec<Difference>,
    /// Text models that are not in the list, as `provider/id`.
    pub unlisted: Vec<String>,
}

/// A setting that differs from the list.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// `provider/id`
    pub model: String,
    /// Such as `prices.input_per_million`.
    pub setting: String,
    /// `none` if it is not set.
    pub here: String,
    pub published: String,
}

impl Comparison {
    /// Compares the prices before the markup, and the limits, of a catalogue's text models.
    pub fn of(catalogue: &Catalogue, list: &Map<String, Value>) -> Self {
        let mut comparison = Self::default();
        for model in catalogue.models() {
            let (ModelKind::Text(text), Prices::Text(prices)) = (&model.kind, &model.list_prices)
            else {
                continue;
            };
            match entry(model, list) {
                Some(entry) => {
                    comparison.compared += 1;
                    comparison.compare(&model.name(), prices, &text.limits, entry);
                }
                None => comparison.unlisted.push(model.name()),
            }
        }
        comparison
    }

    fn compare(&mut self, model: &str, prices: &TextPrices, limits: &TextLimits, entry: &Value) {
        let mut differences = Vec::new();
        let mut differ = |setting: String, here: Option<String>, published: Option<String>| {
            // Skips settings that the list does not have.
            if let Some(published) = published.filter(|published| here.as_ref() != Some(published))
            {
                differences.push(Difference {
                    model: model.to_owned(),
                    setting,
                    here: here.unwrap_or_else(|| "none".to_owned()),
                    published,
                });
            }
        };
        for (name, of, field) in PRICES {
            let here = Some(shown(of(&prices.base)));
            differ(format!("prices.{name}"), here, price(&entry[field]));
        }
        for above in thresholds(entry, prices) {
            let tier = prices
                .tiers
                .iter()
                .find(|tier| tier.above_input_tokens == above);
            for (name, of, field) in PRICES {
                let here = tier.map(|tier| shown(of(&tier.prices)));
                let published = &entry[format!("{field}_above_{}k_tokens", above / 1_000)];
                let setting = format!("prices.tiers.above_input_tokens={above}.{name}");
                differ(setting, here, price(published));
            }
        }
        for (name, here) in [
            ("max_input_tokens", limits.max_input_tokens),
            ("max_output_tokens", Some(limits.max_output_tokens)),
        ] {
            let here = here.map(|most| most.to_string());
            let published = entry[name].as_u64().map(|count| count.to_string());
            differ(format!("limits.{name}"), here, published);
        }
        self.differences.append(&mut differences);
    }
}

/// Finds the entry of a model: by provider and id, or by the id alone if it is the provider's.
fn entry<'a>(model: &Model, list: &'a Map<String, Value>) -> Option<&'a Value> {
    let own = |entry: &&Value| entry["litellm_provider"] == *model.provider;
    list.get(&model.name())
        .or_else(|| list.get(&model.id).filter(own))
}

/// A price: our name, our value, and the list's field.
type Price = (&'static str, fn(&TokenPrices) -> Credits, &'static str);

/// Without their own prices, cache reads and writes cost as much as input.
const PRICES: [Price; 5] = [
    (
        "input_per_million",
        |prices| prices.input_per_million,
        "input_cost_per_token",
    ),
    (
        "cached_input_per_million",
        |prices| (prices.cached_input_per_million).unwrap_or(prices.input_per_million),
        "cache_read_input_token_cost",
    ),
    (
        "cache_write_per_million",
        |prices| (prices.cache_write_per_million).unwrap_or(prices.input_per_million),
        "cache_creation_input_token_cost",
    ),
    (
        "cache_write_long_per_million",
        |prices| (prices.cache_write_long_per_million).unwrap_or(prices.input_per_million),
        "cache_creation_input_token_cost_above_1hr",
    ),
    (
        "output_per_million",
        |prices| prices.output_per_million,
        "output_cost_per_token",
    ),
];

/// Returns the input tokens above which other prices apply, here or in the list.
fn thresholds(entry: &Value, prices: &TextPrices) -> BTreeSet<u64> {
    let published = entry.as_object().into_iter().flat_map(Map::keys);
    let published = published.filter_map(|field| {
        let rest = field.strip_prefix("input_cost_per_token_above_")?;
        Some(rest.strip_suffix("k_tokens")?.parse::<u64>().ok()? * 1_000)
    });
    let here = prices.tiers.iter().map(|tier| tier.above_input_tokens);
    here.chain(published).collect()
}

fn shown(credits: Credits) -> String {
    credits.to_string()
}

/// Converts dollars per token to credits per million.
fn price(published: &Value) -> Option<String> {
    let credits = published.as_f64()? * CREDITS_PER_DOLLAR;
    format!("{credits:.6}").parse::<Credits>().ok().map(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_per_token_become_credits_per_million() {
        for (dollars, credits) in [
            ("2.5e-06", Some("250")),
            ("1.25e-07", Some("12.5")),
            ("0.0", Some("0")),
            ("3e-14", Some("0.000003")),
            ("null", None),
            ("\"1\"", None),
        ] {
            let published = serde_json::from_str(dollars).unwrap();
            assert_eq!(price(&published).as_deref(), credits, "{dollars}");
        }
    }
}

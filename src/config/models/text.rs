//! Models of text.

use std::sync::Arc;

use serde::Deserialize;
use toml::{Table, Value};

use super::{super::ConfigError, rules};
use crate::{
    catalogue::{
        TextLimits, TextModel, Vision,
        vendor::{ModelSettings, Vendor},
    },
    domain::{
        pricing::{PriceTier, TextPrices, TokenPrices},
        settings::{self, range::Bounded, read_table, shown},
        usage::MAX_SEARCHES,
    },
    request::{MAX_TOKENS, TEXT_PROMPT_CHARS},
};

/// Default of the tokens that a provider's template adds.
const OVERHEAD_TOKENS: u32 = 64;
/// Maximum of a limit in tokens.
const MOST_TOKENS: usize = 100_000_000;
const MAX_TIERS: usize = 8;
/// The API's range of temperatures.
const TEMPERATURE: [f64; 2] = [0.0, 2.0];

#[derive(Deserialize)]
struct Limits {
    max_prompt_chars: Option<Bounded<usize, 1, TEXT_PROMPT_CHARS>>,
    max_tokens: Option<Bounded<u32, 1, { MAX_TOKENS as usize }>>,
    temperature: Option<Vec<f64>>,
    max_input_tokens: Option<Bounded<u32, 1, MOST_TOKENS>>,
    max_output_tokens: Option<Bounded<u32, 1, MOST_TOKENS>>,
    images: Option<Value>,
    searches: Option<Bounded<u32, 0, { MAX_SEARCHES as usize }>>,
    search_tokens: Option<Bounded<u32, 1, MOST_TOKENS>>,
}

pub(super) fn read(
    vendor: &Vendor,
    prices: Option<Value>,
    limits: Option<Value>,
    overhead_tokens: Option<u32>,
    settings: &dyn ModelSettings,
) -> Result<TextModel, ConfigError> {
    let limits: Limits = rules::limits(limits, Table::new())?;
    let temperature = temperature(vendor, limits.temperature.as_deref())
        .map_err(|problem| ConfigError::new("limits.temperature", problem))?;
    let images = limits.images.map(vision).transpose();
    let images = images.map_err(|error| error.under("limits.images"))?;
    let prices = text_prices(prices).map_err(rules::priced)?;
    let searches = limits.searches.map_or(0, |n| *n);
    let dialogue = settings.dialogue(vendor.dialogue);
    if searches > 0 {
        if !dialogue.searches {
            let problem = format!(
                "is {searches}: this model's API has no web search at the provider; remove it"
            );
            return Err(ConfigError::new("limits.searches", problem));
        }
        let missing = |key| {
            let problem = "is missing: add it, or remove limits.searches";
            Err(ConfigError::new(key, problem))
        };
        if prices.per_search.is_none() {
            return missing("prices.per_search");
        }
        if limits.search_tokens.is_none() {
            return missing("limits.search_tokens");
        }
    }
    let max_tokens = limits.max_tokens.map_or(MAX_TOKENS, |n| *n);
    Ok(TextModel {
        prices: Arc::new(prices),
        limits: TextLimits {
            max_prompt_chars: limits.max_prompt_chars.map_or(TEXT_PROMPT_CHARS, |n| *n),
            max_tokens,
            temperature,
            max_input_tokens: limits.max_input_tokens.map(|n| *n),
            max_output_tokens: limits.max_output_tokens.map_or(max_tokens, |n| *n),
            images,
            searches,
            search_tokens: limits.search_tokens.map_or(0, |n| *n),
        },
        dialogue,
        overhead_tokens: overhead_tokens.unwrap_or(OVERHEAD_TOKENS),
        cache_writes: settings.cache_writes(),
        always_thinks: settings.always_thinks(),
    })
}

fn text_prices(given: Option<Value>) -> Result<TextPrices, ConfigError> {
    let mut base: Table = read_table(given)?;
    let tiers = base
        .remove("tiers")
        .unwrap_or_else(|| Vec::<Value>::new().into());
    let tiers: Vec<Table> =
        settings::read(tiers).map_err(|error: ConfigError| error.under("tiers"))?;
    let per_search = base.remove("per_search").map(settings::read).transpose();
    let mut prices = TextPrices {
        base: token_prices(&base, "per_search, tiers")?,
        tiers: Vec::new(),
        per_search: per_search.map_err(|error: ConfigError| error.under("per_search"))?,
    };
    if tiers.len() > MAX_TIERS {
        let problem = format!("has {} tiers: must have at most {MAX_TIERS}", tiers.len());
        return Err(ConfigError::new("tiers", problem));
    }
    for (index, given) in tiers.into_iter().enumerate() {
        let path = format!("tiers[{index}]");
        let tier = tier(&base, given).map_err(|error| error.under(&path))?;
        let above = tier.above_input_tokens;
        if let Some(before) = prices.tiers.last().map(|tier| tier.above_input_tokens)
            && before >= above
        {
            let problem = format!("is {above}: must be above the {before} of the tier before it");
            return Err(ConfigError::new(
                format!("{path}.above_input_tokens"),
                problem,
            ));
        }
        prices.tiers.push(tier);
    }
    Ok(prices)
}

/// Reads a tier, which must have exactly the model's prices.
fn tier(base: &Table, mut given: Table) -> Result<PriceTier, ConfigError> {
    let key = "above_input_tokens";
    let Some(above) = given.remove(key) else {
        let problem = "is missing: name the input tokens above which the tier applies";
        return Err(ConfigError::new(key, problem));
    };
    let above: Bounded<u64, 1, MOST_TOKENS> =
        settings::read(above).map_err(|error: ConfigError| error.under(key))?;
    if let Some(missing) = base.keys().find(|key| !given.contains_key(*key)) {
        let problem = "is missing: add it, as the model has it";
        return Err(ConfigError::new(missing, problem));
    }
    let prices = token_prices(&given, key)?;
    if let Some(surplus) = given.keys().find(|key| !base.contains_key(*key)) {
        let problem = "is a price that the model has not: add it there or remove it";
        return Err(ConfigError::new(surplus, problem));
    }
    Ok(PriceTier {
        above_input_tokens: *above,
        prices,
    })
}

/// Reads the prices of a table, in which the key `also` is allowed.
fn token_prices(table: &Table, also: &str) -> Result<TokenPrices, ConfigError> {
    settings::read(Value::Table(table.clone())).map_err(|mut error: ConfigError| {
        if error.problem.starts_with("is not a known key") {
            error.problem = format!("{}, {also}", error.problem);
        }
        error
    })
}

/// Returns the temperature range of a model; `None`: not supported. The error continues the
/// sentence after the key.
fn temperature(vendor: &Vendor, range: Option<&[f64]>) -> Result<Option<[f64; 2]>, String> {
    match range {
        None => Ok(vendor.temperature),
        Some([]) => Ok(None),
        Some([low, high]) if TEMPERATURE[0] <= *low && low <= high && *high <= TEMPERATURE[1] => {
            Ok(Some([*low, *high]))
        }
        Some(range) => Err(format!(
            "is {range:?}: must be the lowest and the highest value within 0.0 to 2.0, \
             such as [0.0, 2.0], or [] for none"
        )),
    }
}

/// `kind` of `limits.images`.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Patch32,
    Patch28,
    Tile512,
    Flat,
}

/// Reads how images are counted. The key of an error is relative to the value.
fn vision(value: Value) -> Result<Vision, ConfigError> {
    let Value::Table(mut table) = value else {
        let problem = format!("is {}: must be a table with keys", shown(&value));
        return Err(ConfigError::new("", problem));
    };
    let Some(kind) = table.remove("kind") else {
        let problem = "is missing: write one of patch32, patch28, tile512, flat";
        return Err(ConfigError::new("kind", problem));
    };
    let kind = settings::read(kind).map_err(|error: ConfigError| error.under("kind"))?;
    let rest = Value::Table(table);
    Ok(match kind {
        Kind::Patch32 => Vision::Patch32(settings::read(rest)?),
        Kind::Patch28 => Vision::Patch28(settings::read(rest)?),
        Kind::Tile512 => Vision::Tile512(settings::read(rest)?),
        Kind::Flat => Vision::Flat(settings::read(rest)?),
    })
}

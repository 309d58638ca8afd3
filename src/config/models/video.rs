//! Models of video.

use serde::{Deserialize, Deserializer, de::Error as _};
use toml::Value;

use super::{
    super::{ConfigError, values::Price},
    inputs::{self, RawInputs},
    rules::{check_list, table, unpriced},
};
use crate::domain::{
    catalogue::{VideoLimits, VideoModel},
    pricing::VideoPrices,
    request::{InputRole, MAX_DURATION, Ratio, VIDEO_PROMPT_CHARS},
    settings::{quoted, range::Bounded, shown},
    vendor::{Access, Vendor},
};

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct RawPrices {
    per_second: Option<Price>,
    per_input_image: Option<Price>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct RawLimits {
    max_prompt_chars: Option<Bounded<usize, 1, VIDEO_PROMPT_CHARS>>,
    // A character has one or two units.
    max_prompt_utf16: Option<Bounded<usize, 1, 10_000>>,
    durations: Option<Durations>,
    default_duration: Option<Bounded<u32, 1, { MAX_DURATION as usize }>>,
    ratios: Option<Vec<String>>,
    inputs: Option<RawInputs>,
}

const ROLES: [InputRole; 3] = [
    InputRole::FirstFrame,
    InputRole::LastFrame,
    InputRole::Reference,
];

/// Seconds, ascending.
struct Durations(Vec<u32>);

/// A list, or the shortest and the longest.
impl<'de> Deserialize<'de> for Durations {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(source)?;
        let seconds = |value: &Value| {
            let number = value.as_integer()?;
            let number = u32::try_from(number).ok()?;
            (1..=MAX_DURATION).contains(&number).then_some(number)
        };
        let list: Option<Vec<u32>> = match &value {
            Value::Array(items) => items.iter().map(seconds).collect(),
            Value::Table(table) if table.len() == 2 => {
                let bound = |key| table.get(key).and_then(seconds);
                bound("min")
                    .zip(bound("max"))
                    .map(|(min, max)| (min..=max).collect())
            }
            _ => None,
        };
        list.filter(|list| !list.is_empty() && list.is_sorted_by(|a, b| a < b))
            .map(Self)
            .ok_or_else(|| {
                let bad = shown(&value);
                D::Error::custom(format_args!(
                    "is {bad}: must be seconds from 1 to {MAX_DURATION}, \
                     ascending such as [4, 6, 8], or {{ min = 2, max = 10 }}"
                ))
            })
    }
}

pub(super) fn read(
    vendor: &Vendor,
    prices: Option<Value>,
    limits: Option<Value>,
) -> Result<VideoModel, ConfigError> {
    let prices: RawPrices = table("prices", prices)?;
    let Price(per_second) = prices
        .per_second
        .ok_or_else(|| unpriced("prices.per_second", "add it"))?;
    let limits: RawLimits = table("limits", limits)?;
    let missing = |key: &str, mend: &str| {
        let problem = format!("is missing: {mend}");
        ConfigError::new(format!("limits.{key}"), problem)
    };
    let Some(Durations(durations)) = limits.durations else {
        let mend = "list the seconds that the model takes, such as [4, 6, 8]";
        return Err(missing("durations", mend));
    };
    let Some(default_duration) = limits.default_duration.map(|n| *n) else {
        let mend = "name the seconds of a request that names none";
        return Err(missing("default_duration", mend));
    };
    if !durations.contains(&default_duration) {
        let problem = format!("is {default_duration}: must be one of limits.durations");
        return Err(ConfigError::new("limits.default_duration", problem));
    }
    if limits.ratios.is_none() && vendor.access != Access::BuiltIn {
        let mend = "list those that the model takes, such as [\"16:9\", \"9:16\"]";
        return Err(missing("ratios", mend));
    }
    if let Some(ratios) = &limits.ratios {
        check_ratios(ratios).map_err(|error| error.under("limits"))?;
    }
    let inputs = inputs::read(limits.inputs, &ROLES).map_err(|error| error.under("limits"))?;
    Ok(VideoModel {
        prices: VideoPrices {
            per_second,
            per_input_image: inputs::price(inputs.as_ref(), prices.per_input_image)?,
        },
        limits: VideoLimits {
            max_prompt_chars: limits.max_prompt_chars.map_or(VIDEO_PROMPT_CHARS, |n| *n),
            durations,
            default_duration,
            ratios: limits.ratios,
            inputs,
        },
        max_prompt_utf16: limits.max_prompt_utf16.map(|n| *n),
    })
}

/// That each is a ratio, and none is another in other numbers.
fn check_ratios(ratios: &[String]) -> Result<(), ConfigError> {
    let reduced: Vec<String> = ratios
        .iter()
        .map(|text| {
            let ratio = Ratio::parse(text).map(|ratio| ratio.reduced().to_string());
            ratio.ok_or_else(|| {
                let problem = format!("holds {}: must be ratios, such as \"16:9\"", quoted(text));
                ConfigError::new("ratios", problem)
            })
        })
        .collect::<Result<_, _>>()?;
    check_list("ratios", &reduced)
}

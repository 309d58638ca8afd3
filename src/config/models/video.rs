//! Models of video.

use serde::{Deserialize, Deserializer, de::Error as _};
use toml::Value;

use super::{
    super::{ConfigError, Kind, Wire, values::Price},
    rules::{check_list, table, unpriced},
};
use crate::domain::{
    catalogue::{VideoLimits, VideoModel},
    pricing::VideoPrices,
    request::{MAX_DURATION, Ratio, VIDEO_PROMPT_CHARS},
    settings::{quoted, range::Bounded, shown},
};

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct RawPrices {
    per_second: Option<Price>,
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
}

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

/// Reads one.
pub(super) fn read(
    kind: Kind,
    prices: Option<Value>,
    limits: Option<Value>,
    wire: &Wire,
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
    if limits.ratios.is_none() && kind != Kind::Sandbox {
        let mend = "list those that the model takes, such as [\"16:9\", \"9:16\"]";
        return Err(missing("ratios", mend));
    }
    check_ratios(limits.ratios.as_deref(), wire).map_err(|error| error.under("limits"))?;
    Ok(VideoModel {
        prices: VideoPrices { per_second },
        limits: VideoLimits {
            max_prompt_chars: limits.max_prompt_chars.map_or(VIDEO_PROMPT_CHARS, |n| *n),
            durations,
            default_duration,
            ratios: limits.ratios,
        },
        max_prompt_utf16: limits.max_prompt_utf16.map(|n| *n),
    })
}

/// That each is a ratio, and one that the vendor can be asked for.
fn check_ratios(ratios: Option<&[String]>, wire: &Wire) -> Result<(), ConfigError> {
    let Some(ratios) = ratios else {
        return Ok(());
    };
    let refuse = |problem| Err(ConfigError::new("ratios", problem));
    let mut reduced = Vec::new();
    for text in ratios {
        let Some(ratio) = Ratio::parse(text) else {
            return refuse(format!(
                "holds {}: must be ratios, such as \"16:9\"",
                quoted(text)
            ));
        };
        let ratio = ratio.reduced().to_string();
        match wire {
            Wire::Runway(wire) if !wire.ratios.contains_key(&ratio) => {
                return refuse(format!(
                    "holds \"{text}\", which wire.ratios does not have: add it there"
                ));
            }
            Wire::Omni(_) if !["16:9", "9:16"].contains(&ratio.as_str()) => {
                return refuse(format!(
                    "holds \"{text}\": Gemini Omni makes 16:9 and 9:16 only"
                ));
            }
            _ => reduced.push(ratio),
        }
    }
    check_list("ratios", &reduced)
}

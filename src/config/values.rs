//! Values that several settings have: credits, days, ranges.

use chrono::NaiveDate;
use serde::{Deserialize, Deserializer, de::Error as _};
use toml::Value;

use crate::domain::{
    credits::Credits,
    settings::{quoted, shown},
};

/// Credits that are not negative.
#[derive(Clone, Copy)]
pub(super) struct Price(pub(super) Credits);

impl<'de> Deserialize<'de> for Price {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        price(source).map(Self)
    }
}

/// Reads credits. A fraction that is no text may have lost digits already.
pub(super) fn price<'de, D: Deserializer<'de>>(source: D) -> Result<Credits, D::Error> {
    let text = match Value::deserialize(source)? {
        Value::String(text) => text.trim().to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => {
            return Err(D::Error::custom(format_args!(
                "is {number}: write credits in quotes, such as \"10.5\", \
                 so that no digit is lost"
            )));
        }
        other => {
            let bad = shown(&other);
            return Err(D::Error::custom(format_args!(
                "is {bad}: must be credits in quotes"
            )));
        }
    };
    let refused = |problem: &str| D::Error::custom(format_args!("is {}: {problem}", quoted(&text)));
    let credits = text
        .parse::<Credits>()
        .map_err(|error| refused(&error.to_string()))?;
    if credits < Credits::ZERO {
        return Err(refused("must not be negative"));
    }
    Ok(credits)
}

/// Reads a day that may be left out, as a date or as text.
pub(super) fn day<'de, D: Deserializer<'de>>(source: D) -> Result<Option<NaiveDate>, D::Error> {
    let value = Value::deserialize(source)?;
    let text = value.as_str().unwrap_or_default();
    let day = NaiveDate::parse_from_str(text, "%Y-%m-%d").map_err(|_| {
        let bad = shown(&value);
        D::Error::custom(format_args!("is {bad}: must be a date, such as 2027-01-14"))
    })?;
    Ok(Some(day))
}

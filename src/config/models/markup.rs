//! The operator's margin.

use serde::{Deserialize, Deserializer, de::Error as _};
use toml::Value;

use crate::domain::{credits::Credits, pricing::Markup, settings::shown};

/// The lowest factor: without a price, no service.
const MIN: Credits = Credits::from_micros(1);
/// The highest factor.
const MAX: Credits = Credits::from_micros(1_000_000_000);

/// `[pricing]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pricing {
    /// Of models for which neither they nor their provider say otherwise.
    #[serde(deserialize_with = "markup")]
    pub markup: Markup,
}

/// Reads a factor, as a number or as text. It has as many digits as credits have.
fn markup<'de, D: Deserializer<'de>>(source: D) -> Result<Markup, D::Error> {
    let value = Value::deserialize(source)?;
    let text = match &value {
        Value::String(text) => text.trim().to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        _ => String::new(),
    };
    let factor = text.parse::<Credits>().ok();
    factor
        .filter(|factor| (MIN..=MAX).contains(factor))
        .and_then(|factor| u64::try_from(factor.micros()).ok())
        .map(Markup::from_millionths)
        .ok_or_else(|| {
            D::Error::custom(format_args!(
                "is {}: must be a factor from {MIN} to {MAX} with at most six digits after \
                 the point, such as 1.2",
                shown(&value)
            ))
        })
}

/// As [`markup`], where it may be left out.
pub(in crate::config) fn optional_markup<'de, D: Deserializer<'de>>(
    source: D,
) -> Result<Option<Markup>, D::Error> {
    markup(source).map(Some)
}

/// Tells of a factor below 1, such as a margin that was written as a share. `key`: where it is.
pub(in crate::config) fn check_margin(
    key: impl FnOnce() -> String,
    markup: Option<Markup>,
    warnings: &mut Vec<String>,
) {
    if let Some(markup) = markup.filter(|markup| markup.is_below_cost()) {
        warnings.push(format!(
            "{} is {markup}: prices are below the provider's",
            key()
        ));
    }
}

//! Numeric types that check their own range.

use std::{ops::Deref, time::Duration};

use serde::{Deserialize, Deserializer, de::Error as _};
use toml::Value;

use super::shown;

/// A whole number from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounded<T, const MIN: usize, const MAX: usize>(T);

/// A time of `MIN` to `MAX` units, each `UNIT` milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time<const UNIT: u64, const MIN: usize, const MAX: usize>(Duration);

pub type Seconds<const MIN: usize, const MAX: usize> = Time<1_000, MIN, MAX>;
pub type Millis<const MIN: usize, const MAX: usize> = Time<1, MIN, MAX>;

/// Reads a whole number from `MIN` to `MAX` into a primitive; refuses 3.7 instead of rounding it.
pub fn bounded<'de, T: TryFrom<usize>, const MIN: usize, const MAX: usize, D: Deserializer<'de>>(
    source: D,
) -> Result<T, D::Error> {
    let value = Value::deserialize(source)?;
    let number = match &value {
        Value::Integer(number) => Some(*number),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number
        .and_then(|number| usize::try_from(number).ok())
        .filter(|number| (MIN..=MAX).contains(number))
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| {
            let bad = shown(&value);
            D::Error::custom(format_args!(
                "is {bad}: must be a whole number from {MIN} to {MAX}"
            ))
        })
}

impl<'de, T: TryFrom<usize>, const MIN: usize, const MAX: usize> Deserialize<'de>
    for Bounded<T, MIN, MAX>
{
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        bounded::<_, MIN, MAX, _>(source).map(Self)
    }
}

/// Reads a list of the lowest and the highest value; an empty list is `None`.
pub fn span<'de, D: Deserializer<'de>>(source: D) -> Result<Option<[f64; 2]>, D::Error> {
    match Vec::deserialize(source)?[..] {
        [] => Ok(None),
        [low, high] => Ok(Some([low, high])),
        ref range => Err(D::Error::custom(format_args!(
            "is {range:?}: must be the lowest and the highest value"
        ))),
    }
}

impl<'de, const UNIT: u64, const MIN: usize, const MAX: usize> Deserialize<'de>
    for Time<UNIT, MIN, MAX>
{
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let units: u64 = bounded::<_, MIN, MAX, _>(source)?;
        Ok(Self(Duration::from_millis(units * UNIT)))
    }
}

impl<T, const MIN: usize, const MAX: usize> Deref for Bounded<T, MIN, MAX> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<const UNIT: u64, const MIN: usize, const MAX: usize> Deref for Time<UNIT, MIN, MAX> {
    type Target = Duration;

    fn deref(&self) -> &Duration {
        &self.0
    }
}

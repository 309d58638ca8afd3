//! Numbers that lie in a range by their type.

use std::{ops::Deref, time::Duration};

use serde::{Deserialize, Deserializer, de::Error as _};
use toml::Value;

use super::error::shown;

/// A whole number of `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounded<T, const MIN: usize, const MAX: usize>(T);

/// A number of seconds, `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seconds<const MIN: usize, const MAX: usize>(Duration);

/// A number of milliseconds, `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Millis<const MIN: usize, const MAX: usize>(Duration);

/// Whole numbers only: 3.7 is refused, not rounded.
fn whole<'de, D: Deserializer<'de>>(source: D, min: usize, max: usize) -> Result<usize, D::Error> {
    let value = Value::deserialize(source)?;
    let number = match &value {
        Value::Integer(number) => Some(*number),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number
        .and_then(|number| usize::try_from(number).ok())
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| {
            let bad = shown(&value);
            D::Error::custom(format_args!(
                "is {bad}: must be a whole number from {min} to {max}"
            ))
        })
}

impl<'de, T: TryFrom<usize>, const MIN: usize, const MAX: usize> Deserialize<'de>
    for Bounded<T, MIN, MAX>
{
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let number = whole(source, MIN, MAX)?;
        let number = number
            .try_into()
            .map_err(|_| D::Error::custom(format_args!("is {number}: too large for this machine")));
        number.map(Self)
    }
}

impl<'de, const MIN: usize, const MAX: usize> Deserialize<'de> for Seconds<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let number = whole(source, MIN, MAX)?;
        Ok(Self(Duration::from_secs(number as u64)))
    }
}

impl<'de, const MIN: usize, const MAX: usize> Deserialize<'de> for Millis<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let number = whole(source, MIN, MAX)?;
        Ok(Self(Duration::from_millis(number as u64)))
    }
}

impl<T, const MIN: usize, const MAX: usize> Deref for Bounded<T, MIN, MAX> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<const MIN: usize, const MAX: usize> Deref for Seconds<MIN, MAX> {
    type Target = Duration;

    fn deref(&self) -> &Duration {
        &self.0
    }
}

impl<const MIN: usize, const MAX: usize> Deref for Millis<MIN, MAX> {
    type Target = Duration;

    fn deref(&self) -> &Duration {
        &self.0
    }
}

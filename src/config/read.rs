//! Strict readers of single values.
//!
//! Here: what each kind of value may look like. The `config` crate would turn 3.7 into 4
//! and `true` into 1; with money and time limits that is a trap, so these readers refuse.
//! The one liberty: text that spells a number or a boolean counts as one, because the
//! environment knows only text. Not here: which keys exist, and the path of a
//! failing one ([`super::explain`]).

use std::{net::SocketAddr, time::Duration};

use chrono::NaiveDate;
use config::{Value, ValueKind};
use serde::{Deserialize, Deserializer, de::Error as _};

use crate::domain::credits::Credits;

/// Characters of a bad value that an error repeats.
const SHOWN: usize = 80;

/// A value that can be read strictly. The error reads on after the key.
pub(super) trait Read: Sized {
    /// Reads it.
    fn read(kind: ValueKind) -> Result<Self, String>;
}

/// A setting with a closed set of names.
pub(super) trait Choice: Copy + 'static {
    /// The names in the config and what they mean.
    const NAMES: &'static [(&'static str, Self)];
}

/// Reads a value that must be there.
pub(super) fn strict<'de, T: Read, D: Deserializer<'de>>(source: D) -> Result<T, D::Error> {
    T::read(Value::deserialize(source)?.kind).map_err(D::Error::custom)
}

/// Reads a value that may be left out.
pub(super) fn optional<'de, T: Read, D: Deserializer<'de>>(
    source: D,
) -> Result<Option<T>, D::Error> {
    strict(source).map(Some)
}

/// Reads a whole number of `MIN` to `MAX`.
pub(super) fn whole<'de, T, const MIN: u32, const MAX: u32, D>(source: D) -> Result<T, D::Error>
where
    T: TryFrom<u32>,
    D: Deserializer<'de>,
{
    let kind = Value::deserialize(source)?.kind;
    let number = match &kind {
        ValueKind::I64(n) => Some(*n),
        ValueKind::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number
        .and_then(|n| u32::try_from(n).ok())
        .filter(|n| (MIN..=MAX).contains(n))
        .and_then(|n| T::try_from(n).ok())
        .ok_or_else(|| {
            let bad = shown(&kind);
            D::Error::custom(format!(
                "is {bad}: must be a whole number from {MIN} to {MAX}"
            ))
        })
}

/// As [`whole`], for a value that may be left out.
pub(super) fn optional_whole<'de, T, const MIN: u32, const MAX: u32, D>(
    source: D,
) -> Result<Option<T>, D::Error>
where
    T: TryFrom<u32>,
    D: Deserializer<'de>,
{
    whole::<T, MIN, MAX, D>(source).map(Some)
}

/// A number of seconds, `MIN` to `MAX`.
pub(super) fn seconds<'de, const MIN: u32, const MAX: u32, D: Deserializer<'de>>(
    source: D,
) -> Result<Duration, D::Error> {
    whole::<u64, MIN, MAX, D>(source).map(Duration::from_secs)
}

/// A number of milliseconds, `MIN` to `MAX`.
pub(super) fn millis<'de, const MIN: u32, const MAX: u32, D: Deserializer<'de>>(
    source: D,
) -> Result<Duration, D::Error> {
    whole::<u64, MIN, MAX, D>(source).map(Duration::from_millis)
}

/// A bad value as an error shows it: text in quotes, cut when long.
pub(super) fn shown(kind: &ValueKind) -> String {
    match kind {
        ValueKind::String(text) => quoted(text),
        ValueKind::Nil => "nothing".to_owned(),
        ValueKind::Table(_) => "a table".to_owned(),
        ValueKind::Array(_) => "a list".to_owned(),
        other => other.to_string(),
    }
}

/// Text in quotes, cut when long.
pub(super) fn quoted(text: &str) -> String {
    if text.chars().count() > SHOWN {
        let start: String = text.chars().take(SHOWN).collect();
        return format!("{start:?}...");
    }
    format!("{text:?}")
}

impl Read for String {
    fn read(kind: ValueKind) -> Result<Self, String> {
        match kind {
            ValueKind::String(text) => Ok(text.trim().to_owned()),
            other => Err(format!("is {}: must be text in quotes", shown(&other))),
        }
    }
}

impl Read for bool {
    fn read(kind: ValueKind) -> Result<Self, String> {
        match &kind {
            ValueKind::Boolean(flag) => Some(*flag),
            ValueKind::String(text) => match text.trim().to_ascii_lowercase().as_str() {
                "true" | "1" => Some(true),
                "false" | "0" => Some(false),
                _ => None,
            },
            _ => None,
        }
        .ok_or_else(|| format!("is {}: must be true or false", shown(&kind)))
    }
}

/// A list of texts; a single text is split at its commas, so that a variable can hold one.
impl Read for Vec<String> {
    fn read(kind: ValueKind) -> Result<Self, String> {
        match kind {
            ValueKind::String(text) => Ok(text
                .split(',')
                .map(|item| item.trim().to_owned())
                .filter(|item| !item.is_empty())
                .collect()),
            ValueKind::Array(items) => items
                .into_iter()
                .map(|item| String::read(item.kind))
                .collect::<Result<_, _>>()
                .map_err(|problem| format!("holds an item that {problem}")),
            other => Err(format!("is {}: must be a list of texts", shown(&other))),
        }
    }
}

impl Read for Vec<f64> {
    fn read(kind: ValueKind) -> Result<Self, String> {
        let ValueKind::Array(items) = kind else {
            return Err(format!("is {}: must be a list of numbers", shown(&kind)));
        };
        items
            .into_iter()
            .map(|item| match item.kind {
                ValueKind::Float(number) => Ok(number),
                ValueKind::I64(number) => {
                    // Bounds are checked by the caller; what does not fit is out of them.
                    Ok(i32::try_from(number).map_or(f64::INFINITY, f64::from))
                }
                other => Err(format!("holds {}: must be numbers", shown(&other))),
            })
            .collect()
    }
}

impl Read for Credits {
    fn read(kind: ValueKind) -> Result<Self, String> {
        let text = match &kind {
            ValueKind::String(text) => text.trim().to_owned(),
            ValueKind::I64(number) => number.to_string(),
            ValueKind::Float(number) => {
                return Err(format!(
                    "is {number}: write credits in quotes, such as \"10.5\", \
                     so that no digit is lost"
                ));
            }
            other => return Err(format!("is {}: must be credits in quotes", shown(other))),
        };
        let credits: Self = text
            .parse()
            .map_err(|error| format!("is {}: {error}", quoted(&text)))?;
        if credits < Self::ZERO {
            return Err(format!("is {}: must not be negative", quoted(&text)));
        }
        Ok(credits)
    }
}

impl Read for SocketAddr {
    fn read(kind: ValueKind) -> Result<Self, String> {
        let text = String::read(kind)?;
        text.parse().map_err(|_| {
            format!(
                "is {}: must be an IP address and a port, such as \"127.0.0.1:8080\"",
                quoted(&text)
            )
        })
    }
}

impl Read for NaiveDate {
    fn read(kind: ValueKind) -> Result<Self, String> {
        let bad = shown(&kind);
        let problem = || format!("is {bad}: must be a date, such as 2027-01-14");
        let ValueKind::String(text) = kind else {
            return Err(problem());
        };
        Self::parse_from_str(&text, "%Y-%m-%d").map_err(|_| problem())
    }
}

impl<T: Choice> Read for T {
    fn read(kind: ValueKind) -> Result<Self, String> {
        let found = match &kind {
            ValueKind::String(text) => T::NAMES.iter().find(|(name, _)| name == text),
            _ => None,
        };
        found.map(|(_, choice)| *choice).ok_or_else(|| {
            let names: Vec<&str> = T::NAMES.iter().map(|(name, _)| *name).collect();
            format!("is {}: must be one of {}", shown(&kind), names.join(", "))
        })
    }
}

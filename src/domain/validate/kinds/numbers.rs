//! Numbers and credits.

use std::{fmt::Display, marker::PhantomData, ops::RangeInclusive};

use serde_json::{Value, json};

use super::{
    super::{Field, FieldCode, Schemas},
    Kind, accepted, typed,
};
use crate::domain::credits::Credits;

/// Maximum whole credits in 64 bits of micro-credits.
const MAX_WHOLE: i64 = i64::MAX / 1_000_000;

/// A number within bounds; digits in a query.
#[derive(Debug)]
pub struct Integer<T> {
    range: RangeInclusive<i64>,
    value: PhantomData<T>,
}

/// Creates the kind of a JSON integer (not `1.0` or `1e2`).
pub fn integer<T: TryFrom<i64>>(range: RangeInclusive<i64>) -> Integer<T> {
    let value = PhantomData;
    Integer { range, value }
}

impl<T: TryFrom<i64>> Kind for Integer<T> {
    type Value = T;

    fn read(&self, value: &Value, at: Field<'_>) -> Option<T> {
        // The parser reads numbers beyond 64 bits as floats. They are out of range in any notation.
        let huge = |v: &Value| {
            v.as_f64()
                .filter(|f| f.abs() >= 9_223_372_036_854_775_808.0)
        };
        let far = |f: f64| if f < 0.0 { i64::MIN } else { i64::MAX };
        let number = match value {
            Value::String(digits) if at.fields.is_query => digits.parse().ok(),
            value => value.as_i64().or_else(|| huge(value).map(far)),
        };
        let number = typed(at, "an integer", number)?;
        T::try_from(within(number, &self.range, at)?).ok()
    }

    fn schema(&self, _: &mut Schemas) -> Value {
        let format = format!("int{}", 8 * size_of::<T>());
        let mut schema =
            json!({"type": "integer", "format": format, "minimum": self.range.start()});
        if *self.range.end() < i64::MAX {
            schema["maximum"] = json!(self.range.end());
        }
        schema
    }
}

fn within<T: PartialOrd + Display>(
    number: T,
    range: &RangeInclusive<T>,
    at: Field<'_>,
) -> Option<T> {
    if range.contains(&number) {
        return Some(number);
    }
    let message = format!("must be between {} and {}", range.start(), range.end());
    at.error(FieldCode::OutOfRange, message);
    None
}

#[derive(Debug)]
pub struct Number(RangeInclusive<f64>);

pub fn number(range: RangeInclusive<f64>) -> Number {
    Number(range)
}

impl Kind for Number {
    type Value = f64;

    fn read(&self, value: &Value, at: Field<'_>) -> Option<f64> {
        within(typed(at, "a number", value.as_f64())?, &self.0, at)
    }

    fn schema(&self, _: &mut Schemas) -> Value {
        json!({"type": "number", "format": "double", "minimum": self.0.start(), "maximum": self.0.end()})
    }
}

#[derive(Debug)]
pub struct GivenCredits {
    signed: bool,
}

/// Creates the kind of credits that are not negative, as a string or a JSON number.
pub fn credits() -> GivenCredits {
    GivenCredits { signed: false }
}

/// Creates the kind of credits that may be negative, as a string or a JSON number.
pub fn signed_credits() -> GivenCredits {
    GivenCredits { signed: true }
}

impl Kind for GivenCredits {
    type Value = Credits;

    fn read(&self, value: &Value, at: Field<'_>) -> Option<Credits> {
        let text = match value {
            Value::String(text) => Some(text.clone()),
            // Rust formats a float in full, without an exponent.
            Value::Number(number) if number.is_f64() => number.as_f64().map(|f| f.to_string()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let text = typed(at, "credits, as a string or a number", text)?;
        let credits = text.parse::<Credits>();
        let credits = credits.map_err(|e| (FieldCode::InvalidFormat, e.to_string().into()));
        let credits = accepted(at, credits)?;
        if credits < Credits::ZERO && !self.signed {
            at.error(FieldCode::OutOfRange, "must not be negative");
            return None;
        }
        Some(credits)
    }

    /// A number is exact in six digits.
    fn schema(&self, _: &mut Schemas) -> Value {
        let (sign, min) = if self.signed {
            ("[-+]", -MAX_WHOLE)
        } else {
            ("[+]", 0)
        };
        json!({"oneOf": [
            {"type": "string", "pattern": format!(r"^{sign}?[0-9]+(\.[0-9]{{1,6}}0*)?$")},
            {"type": "number", "minimum": min, "maximum": MAX_WHOLE},
        ]})
    }
}

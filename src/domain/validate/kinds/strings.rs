//! Strings, and values written as strings.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::{
    super::{Field, FieldCode, Refusal, Schemas, group, too_long},
    Kind, accepted, typed,
};
use crate::domain::ids::GenerationId;

/// A string with limits on its length in Unicode scalar values.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Text {
    min: usize,
    max: usize,
    /// The error for a blank string.
    blank: Option<FieldCode>,
}

/// Creates the kind of a string of at most `max` characters.
pub const fn text(max: usize) -> Text {
    Text {
        min: 0,
        max,
        blank: None,
    }
}

impl Text {
    /// Sets the minimum length.
    pub const fn min(self, min: usize) -> Self {
        Self { min, ..self }
    }

    /// Refuses strings of only white space.
    pub const fn not_blank(self) -> Self {
        self.not_blank_by(FieldCode::Required)
    }

    pub const fn not_blank_by(self, code: FieldCode) -> Self {
        let min = if self.min == 0 { 1 } else { self.min };
        Self {
            min,
            blank: Some(code),
            ..self
        }
    }

    pub fn check(self, text: &str) -> Result<(), Refusal> {
        let chars = text.chars().count();
        if chars > self.max {
            return Err((FieldCode::TooLong, too_long(self.max).into()));
        }
        if chars < self.min && self.min > 1 {
            let (min, max) = (self.min, group(&self.max.to_string()));
            let message = format!("must have {min} to {max} characters");
            return Err((FieldCode::OutOfRange, message.into()));
        }
        match self.blank {
            Some(code) if text.trim().is_empty() => Err((code, "must not be blank".into())),
            None if chars < self.min => Err((FieldCode::InvalidFormat, "must not be empty".into())),
            _ => Ok(()),
        }
    }

    /// Returns the schema, whose pattern excludes U+0000.
    pub fn json_schema(self) -> Value {
        let pattern = if self.blank.is_some() {
            r"^\s*[^\s\x00][^\x00]*$"
        } else {
            r"^[^\x00]*$"
        };
        let mut schema = json!({"type": "string", "pattern": pattern});
        if self.min > 0 {
            schema["minLength"] = json!(self.min);
        }
        if self.max < usize::MAX {
            schema["maxLength"] = json!(self.max);
        }
        schema
    }

    /// Returns the schema with another pattern.
    pub fn with_pattern(self, pattern: &str) -> Value {
        let mut schema = self.json_schema();
        schema["pattern"] = json!(pattern);
        schema
    }
}

impl Kind for Text {
    type Value = String;

    fn read(&self, value: &Value, at: Field<'_>) -> Option<String> {
        let text = typed(at, "a string", value.as_str())?;
        accepted(at, self.check(text))?;
        Some(text.to_owned())
    }

    fn schema(&self, _: &mut Schemas) -> Value {
        self.json_schema()
    }
}

/// A string with its own format.
#[derive(Debug, Clone, Copy)]
pub struct Parsed<T> {
    schema: fn() -> Value,
    parse: fn(&str) -> Result<T, Refusal>,
}

pub const fn parsed<T>(schema: fn() -> Value, parse: fn(&str) -> Result<T, Refusal>) -> Parsed<T> {
    Parsed { schema, parse }
}

impl<T> Parsed<T> {
    /// Parses a string outside of JSON, such as a command's argument.
    pub fn parse(&self, text: &str) -> Result<T, String> {
        (self.parse)(text).map_err(|(_, message)| message.into_owned())
    }
}

impl<T> Kind for Parsed<T> {
    type Value = T;

    fn read(&self, value: &Value, at: Field<'_>) -> Option<T> {
        let text = typed(at, "a string", value.as_str())?;
        accepted(at, (self.parse)(text))
    }

    fn schema(&self, _: &mut Schemas) -> Value {
        (self.schema)()
    }
}

fn read_time(text: &str, message: &'static str) -> Result<DateTime<Utc>, Refusal> {
    use chrono::{Datelike as _, SubsecRound as _};
    // Truncated to microseconds, the precision of Postgres.
    let time = DateTime::parse_from_rfc3339(text).map(|time| time.to_utc().trunc_subsecs(6));
    let time = time.ok().filter(|time| (1..=9999).contains(&time.year()));
    time.ok_or((FieldCode::InvalidFormat, message.into()))
}

fn time_schema() -> Value {
    json!({"type": "string", "format": "date-time"})
}

pub const fn timestamp() -> Parsed<DateTime<Utc>> {
    parsed(time_schema, |text| {
        let message = "must be an ISO 8601 time with an offset, such as 2030-01-31T12:00:00Z";
        read_time(text, message)
    })
}

/// Creates the kind of a time in a query, where an unencoded plus sign arrives as a blank.
pub const fn query_timestamp() -> Parsed<DateTime<Utc>> {
    parsed(time_schema, |text| {
        let message = "must be an RFC 3339 time, such as 2030-01-31T12:00:00Z";
        read_time(&text.replace(' ', "+"), message)
    })
}

pub const fn generation_id() -> Parsed<GenerationId> {
    parsed(
        || json!({"type": "string", "format": "uuid"}),
        |text| {
            let id = GenerationId::parse(text);
            id.ok_or((FieldCode::InvalidFormat, "must be a uuid".into()))
        },
    )
}

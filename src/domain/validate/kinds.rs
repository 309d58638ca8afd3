//! The kinds of values that a request holds: each reads one, and describes itself.

use std::{fmt::Display, marker::PhantomData, ops::RangeInclusive};

use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};

use super::{Field, FieldCode, Refusal, Schemas, component, too_long};
use crate::domain::{
    ability::{self, AbilitiesError, Ability},
    credits::Credits,
    ids::GenerationId,
    named::Named,
};

/// Whole credits that 64 bits of micro-credits hold.
const MAX_WHOLE: i64 = i64::MAX / 1_000_000;

/// A kind of value.
pub trait Kind {
    type Value;

    /// Reads a value that is there; what is wrong with it goes to `at`.
    fn read(&self, value: &Value, at: Field<'_>) -> Option<Self::Value>;

    /// The JSON schema, without what it refers to in `schemas`.
    fn schema(&self, schemas: &mut Schemas) -> Value;
}

/// What `read` makes of the value, which is of another type where that is nothing.
fn typed<T>(at: Field<'_>, expected: &str, read: Option<T>) -> Option<T> {
    if read.is_none() {
        at.error(FieldCode::InvalidType, format!("must be {expected}"));
    }
    read
}

fn accepted<T>(at: Field<'_>, read: Result<T, Refusal>) -> Option<T> {
    read.map_err(|(code, message)| at.error(code, message)).ok()
}

/// A string, by its length in Unicode scalar values.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Text {
    min: usize,
    max: usize,
    /// What a blank one is refused with.
    blank: Option<FieldCode>,
}

/// A string of at most `max` characters.
pub const fn text(max: usize) -> Text {
    Text {
        min: 0,
        max,
        blank: None,
    }
}

impl Text {
    /// No shorter than this.
    pub const fn min(self, min: usize) -> Self {
        Self { min, ..self }
    }

    /// More than white space.
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
            let (min, max) = (self.min, super::group(self.max));
            let message = format!("must have {min} to {max} characters");
            return Err((FieldCode::OutOfRange, message.into()));
        }
        match self.blank {
            Some(code) if text.trim().is_empty() => Err((code, "must not be blank".into())),
            None if chars < self.min => Err((FieldCode::InvalidFormat, "must not be empty".into())),
            _ => Ok(()),
        }
    }

    /// No string may contain U+0000.
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

    /// The same with another pattern.
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

/// A string of a form of its own.
#[derive(Debug, Clone, Copy)]
pub struct Parsed<T> {
    schema: fn() -> Value,
    parse: fn(&str) -> Result<T, Refusal>,
}

pub const fn parsed<T>(schema: fn() -> Value, parse: fn(&str) -> Result<T, Refusal>) -> Parsed<T> {
    Parsed { schema, parse }
}

impl<T> Parsed<T> {
    pub fn check(&self, text: &str) -> Result<(), Refusal> {
        (self.parse)(text).map(|_| ())
    }

    /// Reads one that is not in JSON, such as an argument of a command.
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
    // In whole microseconds, as Postgres keeps it.
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

/// A time in a query, where a plus sign that was not encoded arrives as a blank.
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

/// A number within bounds; in a query, its digits.
#[derive(Debug)]
pub struct Integer<T> {
    range: RangeInclusive<i64>,
    value: PhantomData<T>,
}

/// A JSON integer (`1.0` and `1e2` are none).
pub fn integer<T: TryFrom<i64>>(range: RangeInclusive<i64>) -> Integer<T> {
    let value = PhantomData;
    Integer { range, value }
}

impl<T: TryFrom<i64>> Kind for Integer<T> {
    type Value = T;

    fn read(&self, value: &Value, at: Field<'_>) -> Option<T> {
        // Beyond 64 bits the parser keeps a float; it is far out of range however it was written.
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
pub struct Boolean;

pub fn boolean() -> Boolean {
    Boolean
}

impl Kind for Boolean {
    type Value = bool;

    fn read(&self, value: &Value, at: Field<'_>) -> Option<bool> {
        typed(at, "true or false", value.as_bool())
    }

    fn schema(&self, _: &mut Schemas) -> Value {
        json!({"type": "boolean"})
    }
}

#[derive(Debug)]
pub struct GivenCredits {
    signed: bool,
}

/// Credits, as a string or a JSON number; not negative.
pub fn credits() -> GivenCredits {
    GivenCredits { signed: false }
}

/// Credits, as a string or a JSON number; may be negative.
pub fn signed_credits() -> GivenCredits {
    GivenCredits { signed: true }
}

impl Kind for GivenCredits {
    type Value = Credits;

    fn read(&self, value: &Value, at: Field<'_>) -> Option<Credits> {
        let text = match value {
            Value::String(text) => Some(text.clone()),
            // Rust prints a float in full, without an exponent.
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

/// One of a few names.
#[derive(Debug)]
pub struct Words<T> {
    message: Option<&'static str>,
    value: PhantomData<T>,
}

pub fn words<T: Named>() -> Words<T> {
    Words {
        message: None,
        value: PhantomData,
    }
}

impl<T> Words<T> {
    /// What another name is refused with.
    pub fn or_say(self, message: &'static str) -> Self {
        Self {
            message: Some(message),
            ..self
        }
    }
}

fn one_of<T: Named>() -> String {
    let names: Vec<_> = T::ALL.iter().map(|word| word.as_str()).collect();
    format!("must be one of {}", names.join(", "))
}

fn names<T: Named>(schemas: &mut Schemas) -> Value {
    let names: Vec<_> = T::ALL.iter().map(|word| word.as_str()).collect();
    component(
        schemas,
        T::NAME,
        |_| json!({"type": "string", "enum": names}),
    )
}

impl<T: Named> Kind for Words<T> {
    type Value = T;

    fn read(&self, value: &Value, at: Field<'_>) -> Option<T> {
        let word = T::parse(typed(at, "a string", value.as_str())?);
        if word.is_none() {
            let message = self.message.map_or_else(one_of::<T>, str::to_owned);
            at.error(FieldCode::NotAllowed, message);
        }
        word
    }

    fn schema(&self, schemas: &mut Schemas) -> Value {
        names::<T>(schemas)
    }
}

fn strings<'a>(value: &'a Value, at: Field<'_>) -> Option<Vec<&'a str>> {
    let strings = value
        .as_array()
        .and_then(|items| items.iter().map(Value::as_str).collect());
    typed(at, "an array of strings", strings)
}

/// Names, each at most once.
#[derive(Debug)]
pub struct Set<T> {
    empty: &'static str,
    value: PhantomData<T>,
}

/// Names, each at most once. `empty`: what an array of none is refused with.
pub fn set<T: Named>(empty: &'static str) -> Set<T> {
    let value = PhantomData;
    Set { empty, value }
}

impl<T: Named + PartialEq> Kind for Set<T> {
    type Value = Vec<T>;

    fn read(&self, value: &Value, at: Field<'_>) -> Option<Vec<T>> {
        let names = strings(value, at)?;
        if names.is_empty() {
            at.error(FieldCode::NotAllowed, self.empty);
        }
        let mut set = Vec::new();
        for (index, name) in names.into_iter().enumerate() {
            let message = match T::parse(name) {
                None => one_of::<T>(),
                Some(known) if set.contains(&known) => "is named more than once".to_owned(),
                Some(known) => {
                    set.push(known);
                    continue;
                }
            };
            at.item_error(index, FieldCode::NotAllowed, message);
        }
        Some(set)
    }

    fn schema(&self, schemas: &mut Schemas) -> Value {
        let items = names::<T>(schemas);
        json!({"type": "array", "items": items, "minItems": 1, "uniqueItems": true})
    }
}

#[derive(Debug)]
pub struct Abilities;

impl Kind for Abilities {
    type Value = ability::Abilities;

    fn read(&self, value: &Value, at: Field<'_>) -> Option<ability::Abilities> {
        let abilities = ability::Abilities::parse(&strings(value, at)?);
        for error in abilities.as_ref().err().into_iter().flatten() {
            let code = FieldCode::NotAllowed;
            match error {
                AbilitiesError::Unknown(index) | AbilitiesError::Duplicate(index) => {
                    at.item_error(*index, code, error.to_string());
                }
                AbilitiesError::Empty | AbilitiesError::StarNotAlone => {
                    at.error(code, error.to_string());
                }
            }
        }
        abilities.ok()
    }

    fn schema(&self, schemas: &mut Schemas) -> Value {
        component(schemas, "Abilities", |_| {
            json!({
                "type": "array",
                "description": "What a key may call: each ability once, `*` alone.",
                "items": {"$ref": "#/components/schemas/Ability"},
                "minItems": 1, "uniqueItems": true,
                "anyOf": [{"maxItems": 1}, {"items": {"not": {"const": Ability::All.as_str()}}}],
            })
        })
    }
}

/// An object of any members.
#[derive(Debug)]
pub struct AnyObject;

pub fn any_object() -> AnyObject {
    AnyObject
}

impl Kind for AnyObject {
    type Value = Map<String, Value>;

    fn read(&self, value: &Value, at: Field<'_>) -> Option<Map<String, Value>> {
        typed(at, "an object", value.as_object()).cloned()
    }

    fn schema(&self, _: &mut Schemas) -> Value {
        json!({"type": "object"})
    }
}

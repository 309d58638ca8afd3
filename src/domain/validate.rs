//! Reading an untrusted object field by field: every failing field is reported, not the first.

use std::{cell::RefCell, fmt::Display, ops::RangeInclusive};

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::credits::Credits;

/// Failing fields that one answer names at most.
pub const MAX_ERRORS: usize = 100;

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FieldCode {
    /// Missing, null, or blank.
    Required,
    /// More characters than allowed.
    TooLong,
    /// A number or a count outside its bounds.
    OutOfRange,
    /// A value that is not among the allowed ones.
    NotAllowed,
    /// Another JSON type.
    InvalidType,
    /// The right type, but not of the right form.
    InvalidFormat,
    /// A field that does not exist.
    UnknownField,
    /// A provider that is not on this server.
    UnknownProvider,
    /// A model that the resolved provider does not have.
    UnknownModel,
    /// A value or modality that the resolved model or provider does not support.
    NotSupported,
    /// A template that does not exist.
    UnknownTemplate,
    /// A template variable without a value.
    MissingVariable,
}

/// One failing field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// Path of the field, such as `parameters.max_tokens`.
    pub param: String,
    /// What is wrong, for programs.
    pub code: FieldCode,
    /// What is wrong, for people; reads on after the path.
    pub message: String,
}

impl FieldError {
    pub fn new(param: impl Into<String>, code: FieldCode, message: impl Into<String>) -> Self {
        Self {
            param: param.into(),
            code,
            message: message.into(),
        }
    }
}

/// Where the errors of a whole request come together.
#[derive(Debug, Default)]
pub struct Errors(RefCell<Vec<FieldError>>);

impl Errors {
    /// Adds one. Beyond [`MAX_ERRORS`] they are dropped: nobody mends more at once, and an
    /// answer must not be many times larger than what it answers.
    pub fn add(&self, param: impl Into<String>, code: FieldCode, message: impl Into<String>) {
        let mut errors = self.0.borrow_mut();
        if errors.len() < MAX_ERRORS {
            errors.push(FieldError::new(param, code, message));
        }
    }

    /// Whether a field of that path has failed already.
    pub fn has(&self, param: &str) -> bool {
        self.0.borrow().iter().any(|e| e.param == param)
    }

    /// Takes all of them out.
    pub fn take(&self) -> Vec<FieldError> {
        self.0.take()
    }
}

/// A reader over one object. Every name that is asked for is known; [`Fields::finish`] reports
/// the others.
#[derive(Debug)]
pub struct Fields<'a> {
    members: Option<&'a Map<String, Value>>,
    prefix: String,
    known: RefCell<Vec<&'static str>>,
    errors: &'a Errors,
    noun: &'static str,
}

impl<'a> Fields<'a> {
    /// A reader over the request's top-level object.
    pub fn new(members: &'a Map<String, Value>, errors: &'a Errors) -> Self {
        Self {
            members: Some(members),
            prefix: String::new(),
            known: RefCell::default(),
            errors,
            noun: "a field of this request",
        }
    }

    /// A reader over the parameters of a query.
    pub fn query(members: &'a Map<String, Value>, errors: &'a Errors) -> Self {
        Self {
            noun: "a query parameter of this route",
            ..Self::new(members, errors)
        }
    }

    /// The full path of a field.
    pub fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub fn error(&self, name: &str, code: FieldCode, message: impl Into<String>) {
        self.errors.add(self.path(name), code, message);
    }

    /// The raw member; null counts as absent.
    pub fn value(&self, name: &'static str) -> Option<&'a Value> {
        self.known.borrow_mut().push(name);
        self.members?.get(name).filter(|v| !v.is_null())
    }

    fn typed<T>(
        &self,
        name: &'static str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.value(name)?;
        let read = read(value);
        if read.is_none() {
            self.error(name, FieldCode::InvalidType, format!("must be {expected}"));
        }
        read
    }

    pub fn string(&self, name: &'static str) -> Option<&'a str> {
        self.typed(name, "a string", Value::as_str)
    }

    /// A string of at most `max` Unicode scalar values.
    pub fn text(&self, name: &'static str, max: usize) -> Option<&'a str> {
        let text = self.string(name)?;
        if text.chars().count() > max {
            self.error(name, FieldCode::TooLong, too_long(max));
            return None;
        }
        Some(text)
    }

    /// A string that must be there, not blank, of at most `max` Unicode scalar values.
    pub fn required_text(&self, name: &'static str, max: usize) -> Option<&'a str> {
        let absent = self
            .members
            .is_none_or(|m| m.get(name).is_none_or(Value::is_null));
        if absent {
            self.value(name);
            self.error(name, FieldCode::Required, "is required");
            return None;
        }
        let text = self.text(name, max)?;
        if text.trim().is_empty() {
            self.error(name, FieldCode::Required, "must not be blank");
            return None;
        }
        Some(text)
    }

    /// A JSON integer (`1.0` and `1e2` are none) within bounds.
    pub fn integer(&self, name: &'static str, range: RangeInclusive<i64>) -> Option<i64> {
        let number = self.typed(name, "an integer", |v| {
            // Beyond 64 bits the parser keeps a float; it is far out of range however it was
            // written.
            let huge = |v: &Value| {
                v.as_f64()
                    .filter(|f| f.abs() >= 9_223_372_036_854_775_808.0)
            };
            let far = |f: f64| if f < 0.0 { i64::MIN } else { i64::MAX };
            v.as_i64().or_else(|| huge(v).map(far))
        })?;
        self.within(name, number, &range)
    }

    /// A JSON number within bounds.
    pub fn number(&self, name: &'static str, range: RangeInclusive<f64>) -> Option<f64> {
        let number = self.typed(name, "a number", Value::as_f64)?;
        self.within(name, number, &range)
    }

    fn within<T: PartialOrd + Display>(
        &self,
        name: &str,
        number: T,
        range: &RangeInclusive<T>,
    ) -> Option<T> {
        if range.contains(&number) {
            return Some(number);
        }
        let message = format!("must be between {} and {}", range.start(), range.end());
        self.error(name, FieldCode::OutOfRange, message);
        None
    }

    pub fn boolean(&self, name: &'static str) -> Option<bool> {
        self.typed(name, "true or false", Value::as_bool)
    }

    /// Credits, as a string or a JSON number; not negative.
    pub fn credits(&self, name: &'static str) -> Option<Credits> {
        let credits = self.signed_credits(name)?;
        if credits < Credits::ZERO {
            self.error(name, FieldCode::OutOfRange, "must not be negative");
            return None;
        }
        Some(credits)
    }

    /// Credits, as a string or a JSON number; may be negative.
    pub fn signed_credits(&self, name: &'static str) -> Option<Credits> {
        let text = self.typed(name, "credits, as a string or a number", |v| match v {
            Value::String(text) => Some(text.clone()),
            // Rust prints a float in full, without an exponent.
            Value::Number(number) if number.is_f64() => number.as_f64().map(|f| f.to_string()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        })?;
        match text.parse::<Credits>() {
            Ok(credits) => Some(credits),
            Err(error) => {
                self.error(name, FieldCode::InvalidFormat, error.to_string());
                None
            }
        }
    }

    /// An array of strings.
    pub fn strings(&self, name: &'static str) -> Option<Vec<&'a str>> {
        self.typed(name, "an array of strings", |v| {
            v.as_array()?.iter().map(Value::as_str).collect()
        })
    }

    /// A nested object; an absent one reads as empty.
    #[must_use]
    pub fn object(&self, name: &'static str) -> Self {
        Self {
            members: self.typed(name, "an object", Value::as_object),
            prefix: format!("{}.", self.path(name)),
            known: RefCell::default(),
            errors: self.errors,
            noun: self.noun,
        }
    }

    /// Reports every member that was never asked for, with the names that exist.
    pub fn finish(self) {
        let known = self.known.borrow();
        for name in self.members.into_iter().flat_map(Map::keys) {
            if !known.contains(&name.as_str()) {
                let message = if known.is_empty() {
                    format!("is not {}, which takes none", self.noun)
                } else {
                    format!("is not {}; it takes {}", self.noun, known.join(", "))
                };
                if self.errors.0.borrow().len() >= MAX_ERRORS {
                    break;
                }
                let shown: String = name.chars().take(100).collect();
                self.error(
                    &shown.replace('\0', "\u{fffd}"),
                    FieldCode::UnknownField,
                    message,
                );
            }
        }
    }
}

/// The sentence for a length over its limit.
pub fn too_long(max: usize) -> String {
    format!("must be at most {} characters", group(max))
}

/// `10000` as `10,000`.
fn group(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn codes(body: &Value, read: impl FnOnce(&Fields<'_>)) -> Vec<(String, FieldCode)> {
        let errors = Errors::default();
        let fields = Fields::new(body.as_object().unwrap(), &errors);
        read(&fields);
        fields.finish();
        errors
            .take()
            .into_iter()
            .map(|e| (e.param, e.code))
            .collect()
    }

    #[test]
    fn all_failing_fields_are_reported() {
        let body = json!({"prompt": " ", "parameters": {"n": 1.0, "t": 3, "x": 1}, "extra": 0});
        let found = codes(&body, |f| {
            f.required_text("prompt", 10);
            let p = f.object("parameters");
            p.integer("n", 1..=4);
            p.number("t", 0.0..=2.0);
            p.finish();
        });
        assert_eq!(
            found,
            [
                ("prompt".to_owned(), FieldCode::Required),
                ("parameters.n".to_owned(), FieldCode::InvalidType),
                ("parameters.t".to_owned(), FieldCode::OutOfRange),
                ("parameters.x".to_owned(), FieldCode::UnknownField),
                ("extra".to_owned(), FieldCode::UnknownField),
            ]
        );
    }

    #[test]
    fn null_is_absent_and_lengths_are_scalar_values() {
        let body =
            json!({"a": null, "b": "ééééé", "c": "éééééé", "d": 18_446_744_073_709_551_615_u64});
        let found = codes(&body, |f| {
            assert_eq!(f.string("a"), None);
            assert_eq!(f.text("b", 5), Some("ééééé"));
            f.text("c", 5);
            f.integer("d", 1..=4);
        });
        assert_eq!(
            found,
            [
                ("c".to_owned(), FieldCode::TooLong),
                ("d".to_owned(), FieldCode::OutOfRange)
            ]
        );
        assert_eq!(too_long(10_000), "must be at most 10,000 characters");
    }

    #[test]
    fn credits_come_as_string_or_number() {
        let body = json!({"a": "12.5", "b": 0.1, "c": -1, "d": "1e3", "e": true, "f": 0.000_000_1, "g": 0.000_009});
        let found = codes(&body, |f| {
            assert_eq!(f.credits("a"), Some(Credits::from_micros(12_500_000)));
            assert_eq!(f.credits("b"), Some(Credits::from_micros(100_000)));
            assert_eq!(f.credits("g"), Some(Credits::from_micros(9)));
            for name in ["c", "d", "e", "f"] {
                f.credits(name);
            }
        });
        let found: Vec<_> = found.into_iter().map(|(_, c)| c).collect();
        assert_eq!(
            found,
            [
                FieldCode::OutOfRange,
                FieldCode::InvalidFormat,
                FieldCode::InvalidType,
                FieldCode::InvalidFormat
            ]
        );
    }
}

//! The kinds of values in requests. Each reads a value and describes itself.

mod numbers;
mod strings;
mod words;

use serde_json::{Map, Value, json};

use super::{Field, FieldCode, Refusal, Schemas};

pub use numbers::{credits, integer, number, signed_credits};
pub use strings::{Parsed, Text, generation_id, parsed, query_timestamp, text, timestamp};
pub use words::{Abilities, set, words};

pub trait Kind {
    type Value;

    /// Reads a present value; errors go to `at`.
    fn read(&self, value: &Value, at: Field<'_>) -> Option<Self::Value>;

    /// Returns the JSON schema, without the schemas that it refers to, which are added to
    /// `schemas`.
    fn schema(&self, schemas: &mut Schemas) -> Value;
}

/// Returns the value read, or reports another type if there is none.
fn typed<T>(at: Field<'_>, expected: &str, read: Option<T>) -> Option<T> {
    if read.is_none() {
        at.error(FieldCode::InvalidType, format!("must be {expected}"));
    }
    read
}

fn accepted<T>(at: Field<'_>, read: Result<T, Refusal>) -> Option<T> {
    read.map_err(|(code, message)| at.error(code, message)).ok()
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

/// Reads an object with any members by a function.
#[derive(Debug)]
pub struct AnyObject<T>(fn(&Map<String, Value>) -> T);

pub fn any_object<T>(make: fn(&Map<String, Value>) -> T) -> AnyObject<T> {
    AnyObject(make)
}

impl<T> Kind for AnyObject<T> {
    type Value = T;

    fn read(&self, value: &Value, at: Field<'_>) -> Option<T> {
        typed(at, "an object", value.as_object()).map(self.0)
    }

    fn schema(&self, _: &mut Schemas) -> Value {
        json!({"type": "object"})
    }
}

//! Reads an untrusted object field by field, and reports every failing field, not only the first.
//! The same calls describe the object for the OpenAPI document.

mod describe;
mod errors;
mod fields;
mod kinds;
mod lists;

use std::cell::RefCell;

use serde_json::{Map, Value};

use describe::Description;
pub use describe::{Schemas, component};
pub use errors::{Errors, FieldCode, FieldError, MAX_ERRORS, Refusal};
pub use fields::{Field, Fields, Others};
pub use kinds::{
    Abilities, Kind, Parsed, Text, any_object, boolean, credits, generation_id, integer, number,
    parsed, query_timestamp, set, signed_credits, text, timestamp, words,
};
pub use lists::{List, only, sequences};

/// The input of a request, read field by field.
pub trait Input: Sized {
    /// Reads the fields in the order in which their errors are reported. Returns `None` if a
    /// required part failed.
    fn read(fields: &Fields<'_>) -> Option<Self>;
}

pub type SchemaName = (&'static str, &'static str);

/// A JSON body that describes itself.
pub trait Body: Sized {
    const NAME: &'static str;
    /// Whether the body may contain pictures, which allows a larger body.
    const HAS_PICTURES: bool = false;
    /// Whether the body may also be sent as `multipart/form-data`.
    const TAKES_FORMS: bool = false;

    /// Returns what could be read, with failing fields absent or empty, and the errors.
    fn parse(members: &Map<String, Value>) -> (Option<Self>, Vec<FieldError>);

    /// Returns the schema, without the schemas that it refers to, which are added to `schemas`.
    fn schema(schemas: &mut Schemas) -> Value;
}

/// A JSON body that is one list of fields.
pub trait Object: Sized {
    const SCHEMA: SchemaName;
    /// The example in the OpenAPI document, as JSON.
    const EXAMPLE: &'static str;
    /// As [`Body::HAS_PICTURES`].
    const HAS_PICTURES: bool = false;
    /// As [`Body::TAKES_FORMS`].
    const TAKES_FORMS: bool = false;

    /// As [`Input::read`].
    fn read(fields: &Fields<'_>) -> Option<Self>;
}

impl<T: Object> Input for T {
    fn read(fields: &Fields<'_>) -> Option<Self> {
        <Self as Object>::read(fields)
    }
}

impl<T: Object> Body for T {
    const NAME: &'static str = T::SCHEMA.0;
    const HAS_PICTURES: bool = T::HAS_PICTURES;
    const TAKES_FORMS: bool = T::TAKES_FORMS;

    fn parse(members: &Map<String, Value>) -> (Option<Self>, Vec<FieldError>) {
        read_fields(members)
    }

    fn schema(schemas: &mut Schemas) -> Value {
        let mut schema = description::<Self>(schemas).object(Self::SCHEMA.1);
        // A test compares the document with `docs/openapi.json`, so an invalid example is found.
        schema["example"] = serde_json::from_str(Self::EXAMPLE).unwrap_or_default();
        schema
    }
}

fn description<T: Input>(schemas: &mut Schemas) -> Description {
    let errors = Errors::default();
    let fields = Fields {
        description: Some(RefCell::default()),
        ..Fields::new(None, &errors)
    };
    T::read(&fields);
    let mut description = fields.description.unwrap_or_default().into_inner();
    schemas.append(&mut description.schemas);
    description
}

/// Returns a query's parameters, as in the OpenAPI document.
pub fn query_parameters<T: Input>(schemas: &mut Schemas) -> Vec<Value> {
    description::<T>(schemas).parameters()
}

pub fn read_fields<T: Input>(members: &Map<String, Value>) -> (Option<T>, Vec<FieldError>) {
    let errors = Errors::default();
    read(&Fields::new(Some(members), &errors))
}

/// Reads the parameters of a query, whose values are all strings.
pub fn read_query<T: Input>(members: &Map<String, Value>) -> (Option<T>, Vec<FieldError>) {
    let errors = Errors::default();
    read(&Fields {
        is_query: true,
        ..Fields::new(Some(members), &errors)
    })
}

fn read<T: Input>(fields: &Fields<'_>) -> (Option<T>, Vec<FieldError>) {
    let value = T::read(fields);
    fields.finish();
    (value, fields.errors.take())
}

impl Input for () {
    fn read(_: &Fields<'_>) -> Option<Self> {
        Some(())
    }
}

/// Returns the error for a length over its limit.
pub fn too_long(max: usize) -> String {
    format!("must be at most {} characters", group(&max.to_string()))
}

/// Formats `10000` as `10,000`.
pub fn group(digits: &str) -> String {
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests;

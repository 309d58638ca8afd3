//! The reader; and that the description matches what is read.

use serde_json::json;

use super::*;
use crate::domain::{credits::Credits, spend::SpendPeriod};

fn codes(body: &Value, read: impl FnOnce(&Fields<'_>)) -> Vec<(String, FieldCode)> {
    let errors = Errors::default();
    let fields = Fields::new(body.as_object(), &errors);
    read(&fields);
    fields.finish();
    let errors = errors.take().into_iter();
    errors.map(|e| (e.param, e.code)).collect()
}

#[test]
fn all_failing_fields_are_reported() {
    let body = json!({"prompt": " ", "parameters": {"n": 1.0, "t": 3, "x": 1}, "extra": 0});
    let found = codes(&body, |f| {
        f.required("prompt", "", text(10).not_blank());
        f.object("parameters", "", ("", ""), |p| {
            p.optional("n", "", integer::<u32>(1..=4));
            p.optional("t", "", number(0.0..=2.0));
        });
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
    let body = json!({"a": null, "b": "ééééé", "c": "éééééé", "d": 18_446_744_073_709_551_615_u64});
    let found = codes(&body, |f| {
        assert_eq!(f.optional("a", "", text(1)), None);
        assert_eq!(f.optional("b", "", text(5)).as_deref(), Some("ééééé"));
        f.optional("c", "", text(5));
        f.optional("d", "", integer::<u32>(1..=4));
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
        for (name, micros) in [("a", 12_500_000), ("b", 100_000), ("g", 9)] {
            let read = f.optional(name, "", credits());
            assert_eq!(read, Some(Credits::from_micros(micros)));
        }
        for name in ["c", "d", "e", "f"] {
            f.optional(name, "", credits());
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

/// Digits are numbers only in a query, and an absent object's required fields are not reported.
#[test]
fn where_a_value_stands_matters() {
    struct N(Option<u32>);
    impl Input for N {
        fn read(fields: &Fields<'_>) -> Option<Self> {
            let n = fields.optional("n", "", integer(1..=4));
            fields.object("o", "", ("", ""), |o| o.required("x", "", boolean()));
            Some(Self(n))
        }
    }
    let sent = json!({"n": "3"});
    let sent = sent.as_object().unwrap();
    let (read, errors) = read_query::<N>(sent);
    assert_eq!((read.unwrap().0, errors), (Some(3), Vec::new()));
    let (_, errors) = read_fields::<N>(sent);
    assert_eq!(
        errors,
        [FieldError::new(
            "n",
            FieldCode::InvalidType,
            "must be an integer"
        )]
    );
    let (_, errors) = read_fields::<N>(json!({"o": {}}).as_object().unwrap());
    assert_eq!(
        errors,
        [FieldError::new("o.x", FieldCode::Required, "is required")]
    );
}

#[test]
fn what_is_read_is_described() {
    struct Limit;
    impl Object for Limit {
        const SCHEMA: SchemaName = ("Limit", "A limit.");
        const EXAMPLE: &'static str = r#"{"name": "x"}"#;

        fn read(fields: &Fields<'_>) -> Option<Self> {
            fields.required("name", "A name.", text(5).not_blank());
            fields.optional("limit", "A limit.", credits());
            fields.optional("period", "Its period.", words::<SpendPeriod>());
            fields.needs("period", "limit", "needs a limit");
            fields.object("more", "More.", ("More", "Much more."), |more| {
                more.optional("n", "How many.", integer::<u32>(1..=4));
            });
            Some(Self)
        }
    }
    let mut schemas = Schemas::new();
    let period = json!({"$ref": "#/components/schemas/SpendPeriod", "description": "Its period."});
    let more = json!({"$ref": "#/components/schemas/More", "description": "More."});
    assert_eq!(
        Limit::schema(&mut schemas),
        json!({
            "type": "object", "description": "A limit.", "additionalProperties": false,
            "example": {"name": "x"}, "required": ["name"],
            "dependentSchemas": {"period": {"anyOf": [
                {"properties": {"period": {"type": "null"}}},
                {"properties": {"limit": {"type": ["string", "number"]}}, "required": ["limit"]},
            ]}},
            "properties": {
                "name": {"type": "string", "description": "A name.", "minLength": 1,
                    "maxLength": 5, "pattern": r"^\s*[^\s\x00][^\x00]*$"},
                "limit": {"description": "A limit.", "oneOf": [
                    {"type": "string", "pattern": r"^[+]?[0-9]+(\.[0-9]{1,6}0*)?$"},
                    {"type": "number", "minimum": 0, "maximum": 9_223_372_036_854_i64},
                    {"type": "null"},
                ]},
                "period": {"oneOf": [period, {"type": "null"}]},
                "more": {"oneOf": [more, {"type": "null"}]},
            },
        })
    );
    assert_eq!(
        schemas["SpendPeriod"],
        json!({"type": "string", "enum": ["day", "month"]})
    );
    assert_eq!(
        schemas["More"]["properties"]["n"],
        json!({"type": ["integer", "null"], "format": "int32", "minimum": 1, "maximum": 4,
            "description": "How many."})
    );
    let body = json!({"name": "x", "period": "day"});
    let (_, errors) = Limit::parse(body.as_object().unwrap());
    assert_eq!(
        errors,
        [FieldError::new(
            "period",
            FieldCode::NotAllowed,
            "needs a limit"
        )]
    );
}

//! Lists of objects and of strings, and fields with only one meaning.

use serde_json::{Value, json};

use super::{Field, FieldCode, Fields, Kind, SchemaName, Schemas, component};

/// A field that is an array of objects, at least one.
#[must_use]
#[derive(Debug, Clone, Copy)]
pub struct List<T> {
    about: &'static str,
    schema: SchemaName,
    required: bool,
    /// Converts a string that is allowed instead of the array.
    short: Option<fn(&str) -> T>,
}

impl<T> List<T> {
    pub const fn new(about: &'static str, schema: SchemaName) -> Self {
        Self {
            about,
            schema,
            required: false,
            short: None,
        }
    }

    pub const fn required(self) -> Self {
        Self {
            required: true,
            ..self
        }
    }

    /// Also accepts a string, converted by `short`.
    pub const fn or_text(self, short: fn(&str) -> T) -> Self {
        Self {
            short: Some(short),
            ..self
        }
    }

    /// Like [`Self::read`], but an empty array counts as absent.
    pub fn read_any(
        &self,
        fields: &Fields<'_>,
        name: &'static str,
        read: impl Fn(&Fields<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        match fields.value(name) {
            Some(Value::Array(items)) if items.is_empty() => None,
            _ => self.read(fields, name, read),
        }
    }

    /// Reads the field and each of its objects with `read`.
    pub fn read(
        &self,
        fields: &Fields<'_>,
        name: &'static str,
        read: impl Fn(&Fields<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.read_up_to(None, fields, name, read)
    }

    /// Like [`Self::read`], with at most `most` objects.
    pub fn read_up_to(
        &self,
        most: Option<usize>,
        fields: &Fields<'_>,
        name: &'static str,
        read: impl Fn(&Fields<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        if fields.description.is_some() {
            let inner = fields.inner(None, String::new());
            read(&inner);
            let mut inner = inner.description.unwrap_or_default().into_inner();
            fields.describe(name, self.about, self.required, |schemas| {
                schemas.append(&mut inner.schemas);
                let item = component(schemas, self.schema.0, |_| inner.object(self.schema.1));
                let mut list = json!({"type": "array", "items": item, "minItems": 1});
                if let Some(most) = most {
                    list["maxItems"] = most.into();
                }
                match self.short {
                    Some(_) => json!({"oneOf": [super::text(usize::MAX).json_schema(), list]}),
                    None => list,
                }
            });
        }
        match (fields.value(name), self.short) {
            (Some(Value::Array(items)), _) if most.is_some_and(|most| items.len() > most) => {
                let most = most.unwrap_or_default();
                let message = format!("must have at most {most} items");
                fields.error(name, FieldCode::OutOfRange, message);
                None
            }
            (Some(Value::Array(items)), _) if !items.is_empty() => {
                let items = items.iter().enumerate();
                let read = items.map(|(at, item)| {
                    let path = format!("{name}[{at}]");
                    let Some(members) = item.as_object() else {
                        fields.error(&path, FieldCode::InvalidType, "must be an object");
                        return None;
                    };
                    let inner = fields.inner(Some(members), format!("{}{path}.", fields.prefix));
                    let value = read(&inner);
                    inner.finish();
                    value
                });
                // Reads all objects, to report the errors of later ones too.
                read.collect::<Vec<_>>().into_iter().collect()
            }
            (Some(Value::String(text)), Some(short)) => Some(vec![short(text)]),
            (Some(Value::Array(_)), _) => {
                fields.error(name, FieldCode::Required, "must not be empty");
                None
            }
            (Some(_), short) => {
                let or = short.map_or("", |_| " or a string");
                let message = format!("must be an array of objects{or}");
                fields.error(name, FieldCode::InvalidType, message);
                None
            }
            (None, _) => {
                if self.required && fields.members.is_some() {
                    fields.error(name, FieldCode::Required, "is required");
                }
                None
            }
        }
    }
}

/// A field of which only some values, all with the same meaning, are supported.
#[derive(Debug)]
pub struct Only(Vec<Value>);

impl Only {
    /// Whether a value is one of them, in any notation of a number.
    pub(super) fn has(&self, value: &Value) -> bool {
        let number = value.as_f64();
        let same = |one: &Value| one == value || number.is_some() && one.as_f64() == number;
        self.0.iter().any(same)
    }
}

pub fn only(values: impl Into<Vec<Value>>) -> Only {
    Only(values.into())
}

impl Kind for Only {
    type Value = ();

    fn read(&self, value: &Value, at: Field<'_>) -> Option<()> {
        if self.has(value) {
            return Some(());
        }
        let values: Vec<String> = self.0.iter().map(Value::to_string).collect();
        let message = format!("is supported only as {}", values.join(" or "));
        at.error(FieldCode::NotSupported, message);
        None
    }

    fn schema(&self, _: &mut Schemas) -> Value {
        json!({"oneOf": [{"enum": self.0}]})
    }
}

/// A limited number of non-empty strings.
#[derive(Debug)]
pub struct Sequences {
    most: usize,
    alone: bool,
}

/// Maximum characters of a string; they are stored with the generation.
const MOST_CHARS: usize = 500;

/// Creates an array of at most `most` strings. `alone`: also accepts a string, as an array of one.
pub fn sequences(most: usize, alone: bool) -> Sequences {
    Sequences { most, alone }
}

impl Kind for Sequences {
    type Value = Vec<String>;

    fn read(&self, value: &Value, at: Field<'_>) -> Option<Vec<String>> {
        let strings = match value {
            Value::String(text) if self.alone => Some(vec![text.clone()]),
            Value::Array(items) => {
                let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
                texts.collect()
            }
            _ => None,
        };
        let Some(strings) = strings else {
            at.error(FieldCode::InvalidType, "must be an array of strings");
            return None;
        };
        let fits = |text: &String| (1..=MOST_CHARS).contains(&text.chars().count());
        if strings.len() > self.most || !strings.iter().all(fits) {
            let most = self.most;
            let message = format!("must be at most {most} strings of 1 to {MOST_CHARS} characters");
            at.error(FieldCode::OutOfRange, message);
            return None;
        }
        Some(strings)
    }

    fn schema(&self, _: &mut Schemas) -> Value {
        let text = super::text(MOST_CHARS).min(1).json_schema();
        let list = json!({"type": "array", "items": text, "maxItems": self.most});
        if self.alone {
            json!({"oneOf": [text, list]})
        } else {
            list
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::domain::validate::{Input, boolean, read_fields, text};

    struct Sample(Option<Vec<String>>);

    impl Input for Sample {
        fn read(fields: &Fields<'_>) -> Option<Self> {
            let list = List::new("", ("Part", ""))
                .required()
                .or_text(str::to_owned);
            fields.optional("store", "", only([json!(false)]));
            fields.optional("penalty", "", only([json!(0)]));
            fields.unsupported(&["tools"]);
            Some(Self(list.read(fields, "parts", |part| {
                part.optional("more", "", boolean());
                part.required("text", "", text(5))
            })))
        }
    }

    fn read(body: Value) -> Result<Vec<String>, Vec<String>> {
        let members: Map<String, Value> = serde_json::from_value(body).unwrap();
        let (sample, errors) = read_fields::<Sample>(&members);
        if errors.is_empty() {
            return Ok(sample.and_then(|sample| sample.0).unwrap());
        }
        let error = |error: super::super::FieldError| format!("{} {:?}", error.param, error.code);
        Err(errors.into_iter().map(error).collect())
    }

    #[test]
    fn a_list_names_every_failing_field_of_every_object() {
        let body =
            json!({"parts": [{"text": "a", "more": 1}, 2, {"text": "too long", "x": 1}, {}]});
        let expected = [
            "parts[0].more InvalidType",
            "parts[1] InvalidType",
            "parts[2].text TooLong",
            "parts[2].x UnknownField",
            "parts[3].text Required",
        ];
        assert_eq!(read(body).unwrap_err(), expected);
        assert_eq!(read(json!({"parts": []})).unwrap_err(), ["parts Required"]);
        assert_eq!(
            read(json!({"parts": 1})).unwrap_err(),
            ["parts InvalidType"]
        );
        assert_eq!(read(json!({"parts": "short"})).unwrap(), ["short"]);
        let two = json!({"parts": [{"text": "a"}, {"text": "b"}]});
        assert_eq!(read(two).unwrap(), ["a", "b"]);
    }

    #[test]
    fn what_is_not_served_is_refused_unless_it_asks_for_nothing() {
        let body = json!({"parts": "x", "store": false, "penalty": 0.0, "tools": null});
        assert!(read(body).is_ok());
        let body = json!({"parts": "x", "store": true, "tools": []});
        assert_eq!(
            read(body).unwrap_err(),
            ["store NotSupported", "tools NotSupported"]
        );
    }

    struct Stops(Option<Vec<String>>);

    impl Input for Stops {
        fn read(fields: &Fields<'_>) -> Option<Self> {
            Some(Self(fields.optional("stop", "", sequences(2, true))))
        }
    }

    #[test]
    fn sequences_are_few_and_short() {
        let longest = "é".repeat(MOST_CHARS);
        for (stop, taken) in [
            (json!(longest), true),
            (json!(["a", longest]), true),
            (json!(format!("{longest}x")), false),
            (json!([""]), false),
            (json!(["a", "b", "c"]), false),
            (json!([1]), false),
        ] {
            let members = json!({ "stop": stop }).as_object().cloned().unwrap();
            let (stops, errors) = read_fields::<Stops>(&members);
            let read = stops.and_then(|stops| stops.0);
            assert_eq!(
                (read.is_some(), errors.is_empty()),
                (taken, taken),
                "{stop}"
            );
        }
    }
}

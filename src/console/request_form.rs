//! Form inputs and request bodies, derived from the schema of a request: types, bounds and names
//! are those that the API checks and documents.

use maud::{Markup, html};
use serde_json::{Map, Value};

use super::{form::Form, parts, problem::Problem};
use crate::domain::validate::{Body, Schemas};

/// Maximum characters of a field that is a single line. Its surrounding white space is removed.
const LINE_CHARS: u64 = 255;

/// The fields of a request.
pub struct RequestForm(Value);

impl RequestForm {
    pub fn new<T: Body>() -> Self {
        Self(T::schema(&mut Schemas::new()))
    }

    fn fields(&self) -> impl Iterator<Item = (&str, &Value)> {
        let fields = self.0["properties"].as_object().into_iter().flatten();
        fields.map(|(name, schema)| (name.as_str(), schema))
    }

    /// Renders the input of one field, with its error in `problem`, or else a hint.
    pub fn input(
        &self,
        (name, label, hint): (&str, &str, &str),
        form: &Form,
        problem: Option<&Problem>,
    ) -> Markup {
        let schema = &self.0["properties"][name];
        let required = self.0["required"].as_array();
        let is_required = required.is_some_and(|names| names.iter().any(|n| n == name));
        let kind = match (name, form_kind(schema)) {
            ("email" | "url", _) => name,
            (_, FormKind::Number) => "number",
            (_, FormKind::Day) => "date",
            _ if name.contains("password") => "password",
            _ => "text",
        };
        let minimum = schema["minLength"].as_u64().filter(|least| *least > 1);
        parts::field(
            problem,
            label,
            name,
            hint,
            &html! {
                input type=(kind) name=(name) required[is_required]
                    value=[(kind != "password").then(|| form.get(name))]
                    autocomplete=[password_hint(name)]
                    inputmode=[(form_kind(schema) == FormKind::Credits).then_some("decimal")]
                    minlength=[minimum] maxlength=[schema["maxLength"].as_u64()]
                    min=[schema["minimum"].as_i64()] max=[schema["maximum"].as_i64()];
            },
        )
    }

    /// Converts a form to a request body. Empty fields and lists are left out. A day becomes the
    /// end of that day in UTC.
    pub fn body(&self, form: &Form) -> Map<String, Value> {
        let mut body = Map::new();
        for (name, schema) in self.fields() {
            match form_kind(schema) {
                FormKind::List => {}
                FormKind::Number => form.put_number(&mut body, name, name),
                FormKind::Text => form.put_text(&mut body, name),
                FormKind::Day | FormKind::Line | FormKind::Credits => {
                    let word = form.word(name);
                    // The API refuses what is not a day.
                    let day = parts::start_of(word, 1)
                        .filter(|_| form_kind(schema) == FormKind::Day)
                        .unwrap_or_else(|| word.to_owned());
                    if !day.is_empty() {
                        body.insert(name.to_owned(), Value::String(day));
                    }
                }
            }
        }
        body
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FormKind {
    Text,
    /// A short text, or a value of an enumeration.
    Line,
    Number,
    Credits,
    Day,
    List,
}

fn form_kind(schema: &Value) -> FormKind {
    let is = |name: &str| match &schema["type"] {
        Value::Array(types) => types.iter().any(|t| t == name),
        one => one == name,
    };
    if is("array") || is("object") {
        FormKind::List
    } else if is("integer") {
        FormKind::Number
    } else if schema["format"] == "date-time" {
        FormKind::Day
    } else if !is("string") {
        // Credits are a string with a pattern or a number; an enumeration is a `$ref`.
        let kinds = schema["oneOf"].as_array().into_iter().flatten();
        let has_pattern = kinds.clone().any(|kind| kind["pattern"].is_string());
        if has_pattern {
            FormKind::Credits
        } else {
            FormKind::Line
        }
    } else if schema["maxLength"]
        .as_u64()
        .is_none_or(|most| most <= LINE_CHARS)
    {
        FormKind::Line
    } else {
        FormKind::Text
    }
}

fn password_hint(name: &str) -> Option<&'static str> {
    match name {
        "current_password" => Some("current-password"),
        _ if name.contains("password") => Some("new-password"),
        _ => None,
    }
}

//! The fields of a submitted form, in page order; and inputs and request bodies derived from a
//! request's schema, so that types, bounds and names are those that the API checks and documents.

use std::time::Duration;

use axum::{
    body::Body,
    extract::{FromRequest, Request},
};
use http::{header, request::Parts};
use maud::{Markup, html};
use serde_json::{Map, Number, Value};
use url::form_urlencoded;

use super::{Console, guard, parts, problem::Problem};
use crate::domain::validate::{self, Schemas};

/// Maximum bytes of a form: a template of two long texts, percent-encoded.
const MAX_BYTES: usize = 512 << 10;
/// Maximum time for a form to arrive.
const IN_TIME: Duration = Duration::from_secs(30);

/// A form that a page of this server submitted.
#[derive(Debug, Clone, Default)]
pub struct Form(Vec<(String, String)>);

impl Form {
    pub fn of_query(query: Option<&str>) -> Self {
        Self::parse(query.unwrap_or_default().as_bytes())
    }

    fn parse(bytes: &[u8]) -> Self {
        Self(form_urlencoded::parse(bytes).into_owned().collect())
    }

    pub fn push(&mut self, name: &str, value: &str) {
        self.0.push((name.to_owned(), value.to_owned()));
    }

    /// Returns the value of a field; empty if it is missing.
    pub fn get(&self, name: &str) -> &str {
        let field = self.0.iter().find(|(n, _)| n == name);
        field.map_or("", |(_, value)| value)
    }

    /// Returns the value without surrounding white space.
    pub fn word(&self, name: &str) -> &str {
        self.get(name).trim()
    }

    /// Returns the values of all fields with a name, such as ticked boxes.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let fields = self.0.iter().filter(|(n, _)| n == name);
        fields.map(|(_, value)| value.as_str()).collect()
    }

    /// Returns the fields whose names begin with `prefix`, by the rest of their names.
    pub fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let named =
            move |(n, value): &'a (String, String)| Some((n.strip_prefix(prefix)?, &**value));
        self.0.iter().filter_map(named)
    }

    /// Fills in the prompt, model and parameters of a record. The members of an object parameter
    /// become fields `p.NAME.MEMBER`.
    pub fn refill(&mut self, record: &Value) {
        let model = format!(
            "{}/{}",
            parts::plain(&record["provider"]),
            parts::plain(&record["model"])
        );
        self.push("prompt", &parts::plain(&record["prompt"]));
        self.push("model", &model);
        let parameters = record["parameters"].as_object().into_iter().flatten();
        for (name, value) in parameters.filter(|(_, value)| !value.is_null()) {
            if let Some(members) = value.as_object() {
                for (member, value) in members {
                    self.push(&format!("p.{name}.{member}"), &parts::plain(value));
                }
            } else {
                self.push(&format!("p.{name}"), &parts::plain(value));
            }
        }
    }

    /// Adds a text field to a body, unless it is empty. Converts the browser's CRLF to LF.
    pub fn put_text(&self, body: &mut Map<String, Value>, name: &str) {
        let text = self.get(name).replace("\r\n", "\n");
        if !text.is_empty() {
            body.insert(name.to_owned(), Value::String(text));
        }
    }

    /// Adds a number to a body, unless it is empty. The API refuses texts that are not numbers.
    pub fn put_number(&self, body: &mut Map<String, Value>, name: &str, field: &str) {
        let text = self.word(field);
        if text.is_empty() {
            return;
        }
        let whole = || text.parse::<u64>().ok().map(Number::from);
        let number = whole().or_else(|| Number::from_f64(text.parse().ok()?));
        let value = number.map_or_else(|| Value::String(text.to_owned()), Value::Number);
        body.insert(name.to_owned(), value);
    }

    /// Reads a form of at most `most` bytes.
    pub async fn read(
        parts: &Parts,
        body: Body,
        console: &Console,
        most: usize,
    ) -> Result<Self, Problem> {
        guard::check_origin(&parts.method, &parts.headers, console)?;
        let content_type = parts.headers.get(header::CONTENT_TYPE);
        let urlencoded = "application/x-www-form-urlencoded";
        if !content_type.is_some_and(|v| v.as_bytes().starts_with(urlencoded.as_bytes())) {
            let message = format!("send the form as {urlencoded}");
            return Err(Problem::bad_form(&message));
        }
        let reading = axum::body::to_bytes(body, most);
        match tokio::time::timeout(IN_TIME, reading).await {
            Ok(Ok(bytes)) => Ok(Self::parse(&bytes)),
            Ok(Err(_)) => Err(Problem::large_form()),
            Err(_elapsed) => Err(Problem::slow_form()),
        }
    }
}

impl FromRequest<Console> for Form {
    type Rejection = Problem;

    async fn from_request(request: Request, console: &Console) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        Self::read(&parts, body, console, MAX_BYTES).await
    }
}

/// Maximum characters of a field that is a single line. Its surrounding white space is removed.
const LINE_CHARS: u64 = 255;

/// The fields of a request.
pub struct RequestForm(Value);

impl RequestForm {
    pub fn new<T: validate::Body>() -> Self {
        Self(T::schema(&mut Schemas::new()))
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
        for (name, schema) in self.0["properties"].as_object().into_iter().flatten() {
            match form_kind(schema) {
                FormKind::List => {}
                FormKind::Number => form.put_number(&mut body, name, name),
                FormKind::Text => form.put_text(&mut body, name),
                FormKind::Day | FormKind::Line | FormKind::Credits => {
                    let word = form.word(name);
                    // The API refuses texts that are not days.
                    let day = parts::start_of(word, 1)
                        .filter(|_| form_kind(schema) == FormKind::Day)
                        .unwrap_or_else(|| word.to_owned());
                    if !day.is_empty() {
                        body.insert(name.clone(), Value::String(day));
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
    /// A short text, or a value of an enum.
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
        // Credits are a string with a pattern or a number; an enum is a `$ref`.
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

//! JSON that is passed on unchanged, and objects of requests and answers.
//!
//! The objects take little memory beyond the conversation: they borrow texts, and create the items
//! of a list one by one while it is written.

use std::borrow::Cow;

use serde::{Serialize, Serializer, ser::Error as _};
use serde_json::{Map, Value, value::RawValue};

use super::{DocumentData, ImageSource, Parameters};
use crate::domain::json::without_escaped_nul;

/// A JSON value in its original text, with its members in the order in which a model sees or wrote
/// them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json(String);

impl Json {
    /// Parses JSON; `None` if it is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let value: &RawValue = serde_json::from_str(text).ok()?;
        Some(Self(value.get().to_owned()))
    }

    pub fn object(members: &Map<String, Value>) -> Self {
        // Serializing a JSON value cannot fail.
        Self(serde_json::to_string(members).unwrap_or_default())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Replaces U+0000, which callers could not send back.
    #[must_use]
    pub fn without_nul(self) -> Self {
        match without_escaped_nul(&self.0) {
            (Cow::Owned(replaced), _) => Self(replaced),
            (Cow::Borrowed(_), _) => self,
        }
    }

    pub fn value(&self) -> Value {
        // The text was parsed before.
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Self {
        // Serializing a JSON value cannot fail.
        Self(serde_json::to_string(value).unwrap_or_default())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value: &RawValue = serde_json::from_str(&self.0).map_err(S::Error::custom)?;
        value.serialize(serializer)
    }
}

#[derive(Serialize)]
#[serde(untagged)]
pub enum WireValue<'a> {
    Text(&'a str),
    Value(Value),
    Json(Cow<'a, Json>),
    Borrowed(&'a Value),
    Object(WireObject<'a>),
    List(#[serde(serialize_with = "write_list")] Items<'a>),
    Array(Vec<Self>),
    Image(WireUrl<'a>),
    Document(DocumentData<'a>),
}

type Items<'a> = Box<dyn Fn() -> Box<dyn Iterator<Item = WireValue<'a>> + 'a> + 'a>;

fn write_list<S: Serializer>(items: &Items<'_>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(items())
}

impl<'a> WireValue<'a> {
    pub fn list<I>(items: impl Fn() -> I + 'a) -> Self
    where
        I: Iterator<Item: Into<Self>> + 'a,
    {
        let make = move || -> Box<dyn Iterator<Item = Self> + 'a> {
            Box::new(items().map(Into::<Self>::into))
        };
        Self::List(Box::new(make))
    }
}

impl<'a> From<&'a str> for WireValue<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for WireValue<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl From<Value> for WireValue<'_> {
    fn from(value: Value) -> Self {
        Self::Value(value)
    }
}

impl<'a> From<&'a Json> for WireValue<'a> {
    fn from(json: &'a Json) -> Self {
        Self::Json(Cow::Borrowed(json))
    }
}

impl<'a> From<&'a Parameters> for WireValue<'a> {
    fn from(parameters: &'a Parameters) -> Self {
        (&parameters.schema).into()
    }
}

impl From<Json> for WireValue<'_> {
    fn from(json: Json) -> Self {
        Self::Json(Cow::Owned(json))
    }
}

impl<'a> From<WireObject<'a>> for WireValue<'a> {
    fn from(object: WireObject<'a>) -> Self {
        Self::Object(object)
    }
}

/// An object whose members are written in the order of their addition.
#[derive(Default)]
pub struct WireObject<'a>(Vec<(&'static str, WireValue<'a>)>);

impl<'a> WireObject<'a> {
    /// Creates an object with a member `type`.
    pub fn with_type(name: &'static str) -> Self {
        Self::default().with("type", name)
    }

    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<WireValue<'a>>) -> Self {
        self.0.push((name, value.into()));
        self
    }

    /// Adds a member, unless it is `None`.
    #[must_use]
    pub fn with_some(self, name: &'static str, value: Option<impl Into<WireValue<'a>>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds a list of the items, converted by `write`, unless it is empty.
    #[must_use]
    pub fn with_list<T, V>(self, name: &'static str, items: &'a [T], write: fn(&'a T) -> V) -> Self
    where
        T: 'a,
        V: Into<WireValue<'a>> + 'a,
    {
        if items.is_empty() {
            return self;
        }
        self.with(name, WireValue::list(move || items.iter().map(write)))
    }

    /// Returns `None` if the object has no members.
    pub fn non_empty(self) -> Option<Self> {
        (!self.0.is_empty()).then_some(self)
    }
}

impl Serialize for WireObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// A URL, or the data as a data URL.
pub struct WireUrl<'a>(pub &'a ImageSource);

impl Serialize for WireUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            ImageSource::Url(url) => serializer.serialize_str(url),
            // `collect_str` writes the data without copying it.
            ImageSource::Base64 {
                media_type, data, ..
            } => {
                let data = data.as_str();
                serializer.collect_str(&format_args!("data:{media_type};base64,{data}"))
            }
        }
    }
}

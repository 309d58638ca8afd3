//! JSON that is passed on.

use serde::{Serialize, Serializer, ser::Error as _};
use serde_json::{Value, value::RawValue};

/// A JSON value as it was written, which a model sees, and answers, in the order of its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json(String);

impl Json {
    /// `None` where it is no JSON.
    pub fn parse(text: &str) -> Option<Self> {
        let value: &RawValue = serde_json::from_str(text).ok()?;
        Some(Self(value.get().to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn value(&self) -> Value {
        // It was parsed before.
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Self {
        // Values of JSON: this cannot fail.
        Self(serde_json::to_string(value).unwrap_or_default())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value: &RawValue = serde_json::from_str(&self.0).map_err(S::Error::custom)?;
        value.serialize(serializer)
    }
}

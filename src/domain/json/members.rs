//! A JSON object that keeps the bytes of its members.

use std::fmt;

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::{Error as _, SerializeMap as _},
};
use serde_json::value::RawValue;

/// An object whose members keep their order and their bytes. Values are slices of the parsed
/// buffer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members(Vec<(String, Bytes)>);

impl Members {
    pub fn parse(bytes: &Bytes) -> Result<Self, serde_json::Error> {
        let Slices(members) = serde_json::from_slice(bytes)?;
        let members = members.into_iter();
        let shared = members.map(|(name, value)| (name, bytes.slice_ref(value.get().as_bytes())));
        Ok(Self(shared.collect()))
    }

    /// Returns the names, and the JSON of the values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns the memory of all members in bytes.
    pub fn bytes(&self) -> usize {
        self.index_bytes() + self.0.iter().map(|(_, value)| value.len()).sum::<usize>()
    }

    /// Returns the memory of all members in bytes, without their values, which share the body.
    pub fn index_bytes(&self) -> usize {
        let names = self.0.iter().map(|(name, _)| name);
        names.map(|name| Self::entry_bytes(name)).sum()
    }

    pub(super) const fn entry_bytes(name: &str) -> usize {
        size_of::<(String, Bytes)>() + name.len()
    }

    pub fn get(&self, name: &str) -> Option<&Bytes> {
        let found = self.0.iter().find(|(member, _)| member == name);
        found.map(|(_, value)| value)
    }

    /// Replaces the value of a member, or appends a member.
    pub fn set(&mut self, name: &str, value: &impl Serialize) {
        // Numbers, strings and objects of them always serialize.
        let Ok(value) = serde_json::to_vec(value).map(Bytes::from) else {
            return;
        };
        match self.0.iter_mut().find(|(member, _)| member == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// Copies the other values, so that the body can be freed once this value is replaced.
    pub fn copy_all_but(&mut self, name: &str) {
        for (_, value) in self.0.iter_mut().filter(|(other, _)| other != name) {
            *value = Bytes::copy_from_slice(value);
        }
    }

    pub fn remove(&mut self, name: &str) {
        self.retain(|member, _| member != name);
    }

    pub fn retain(&mut self, keep: impl Fn(&str, &Bytes) -> bool) {
        self.0.retain(|(name, value)| keep(name, value));
    }
}

impl From<Vec<(String, Bytes)>> for Members {
    fn from(members: Vec<(String, Bytes)>) -> Self {
        Self(members)
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            let value: &RawValue = serde_json::from_slice(value).map_err(S::Error::custom)?;
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// The members of an object, borrowed from its text.
struct Slices<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Slices<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Slices<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = access.next_entry()? {
                    members.push(member);
                }
                Ok(Slices(members))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_keeps_its_bytes() {
        let text = r#"{"b": [1.0, {"z":1,"a":"\u00e9"}],"model":"x","a":1e3 }"#;
        let body = Bytes::from_static(text.as_bytes());
        let mut members = Members::parse(&body).unwrap();
        members.set("model", &"y");
        members.set("n", &1);
        members.remove("none");
        let expected = r#"{"b":[1.0, {"z":1,"a":"\u00e9"}],"model":"y","a":1e3,"n":1}"#;
        assert_eq!(serde_json::to_string(&members).unwrap(), expected);
        assert_eq!(members.get("a"), Some(&Bytes::from_static(b"1e3")));
        assert_eq!(
            members.get("a").unwrap().as_ptr(),
            text[text.len() - 5..].as_ptr()
        );
        members.remove("a");
        assert_eq!(members.get("a"), None);
    }
}

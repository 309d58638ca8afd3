//! An object as it was written, member by member.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap as _,
};
use serde_json::value::RawValue;

/// An object whose members keep their order and their bytes.
#[derive(Debug, Clone, Default)]
pub struct Members(Vec<(String, Box<RawValue>)>);

impl Members {
    pub fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// The JSON of a member.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(member, _)| member == name);
        found.map(|(_, value)| value.get())
    }

    /// Replaces a member where it stands, or adds it at the end.
    pub fn set(&mut self, name: &str, value: &impl Serialize) {
        // Numbers, strings and objects of them: this cannot fail.
        let Ok(value) = serde_json::value::to_raw_value(value) else {
            return;
        };
        match self.0.iter_mut().find(|(member, _)| member == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(member, _)| member != name);
    }
}

impl PartialEq for Members {
    fn eq(&self, other: &Self) -> bool {
        let members = |of: &Self| -> Vec<(String, String)> {
            let members = of.0.iter();
            members
                .map(|(name, value)| (name.clone(), value.get().to_owned()))
                .collect()
        };
        members(self) == members(other)
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = access.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
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
        let mut members = Members::parse(text.as_bytes()).unwrap();
        members.set("model", &"y");
        members.set("n", &1);
        members.remove("none");
        let expected = r#"{"b":[1.0, {"z":1,"a":"\u00e9"}],"model":"y","a":1e3,"n":1}"#;
        assert_eq!(serde_json::to_string(&members).unwrap(), expected);
        assert_eq!(members.get("a"), Some("1e3"));
        members.remove("a");
        assert_eq!(members.get("a"), None);
    }
}

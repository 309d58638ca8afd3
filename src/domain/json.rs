//! Strict JSON: no duplicate members, bounded nesting, no U+0000 ([`nul`]). [`fingerprint()`]
//! identifies equal requests.

mod fingerprint;
mod members;
mod nul;
mod object;

use std::{cell::Cell, fmt};

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value, map::Entry};

pub use fingerprint::fingerprint;
pub use members::Members;
pub use nul::{may_have_nul, nul_paths, without_escaped_nul, without_nul};
pub use object::parse_object;

/// Maximum nesting of arrays and objects in a body.
pub const MAX_DEPTH: usize = 64;
/// Maximum number of values in a body. A value of two bytes takes 72 bytes of memory.
const MAX_VALUES: usize = 1_000_000;

/// Memory of one value, in bytes.
const VALUE_BYTES: usize = 72;
/// Bytes of memory that a parser reserves at a time.
const RESERVED_BYTES: usize = 64 << 10;

/// Parses a body strictly. The error message is shown to the caller, with the position.
pub fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    parse_within(bytes, &|_| true)
}

/// As [`parse`]. Calls `reserve` repeatedly with the additional bytes of memory that the value
/// takes; fails once it returns `false`.
pub fn parse_within(
    bytes: &[u8],
    reserve: &dyn Fn(usize) -> bool,
) -> Result<Value, serde_json::Error> {
    Limits::new(true, reserve).parse(bytes)
}

/// Parses JSON of a provider, with at most a million values. The last of duplicate members counts.
pub fn parse_lenient(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    Limits::new(false, &|_| true).parse(bytes)
}

/// The limits of a document, and its size so far.
struct Limits<'a> {
    is_strict: bool,
    values: Cell<usize>,
    /// Bytes of memory that are not reserved yet.
    unreserved: Cell<usize>,
    reserve: &'a dyn Fn(usize) -> bool,
}

impl<'a> Limits<'a> {
    fn new(is_strict: bool, reserve: &'a dyn Fn(usize) -> bool) -> Self {
        Self {
            is_strict,
            values: Cell::new(0),
            unreserved: Cell::new(0),
            reserve,
        }
    }

    fn parse(&self, bytes: &[u8]) -> Result<Value, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let whole = Strict {
            depth: 0,
            limits: self,
        };
        let value = whole.deserialize(&mut deserializer)?;
        deserializer.end()?;
        self.reserve_rest()
            .then_some(value)
            .ok_or_else(|| serde_json::Error::custom(NO_MEMORY))
    }

    fn reserve_rest(&self) -> bool {
        (self.reserve)(self.unreserved.get())
    }

    fn count_value<E: serde::de::Error>(&self) -> Result<(), E> {
        let values = self.values.get() + 1;
        if values > MAX_VALUES {
            return Err(E::custom(format!("more than {MAX_VALUES} values")));
        }
        self.values.set(values);
        self.count(VALUE_BYTES)
    }

    fn count<E: serde::de::Error>(&self, bytes: usize) -> Result<(), E> {
        let unreserved = self.unreserved.get() + bytes;
        if unreserved < RESERVED_BYTES {
            self.unreserved.set(unreserved);
            return Ok(());
        }
        self.unreserved.set(0);
        let reserved = (self.reserve)(unreserved);
        reserved.then_some(()).ok_or_else(|| E::custom(NO_MEMORY))
    }
}

const NO_MEMORY: &str = "no memory is left for it";

struct Strict<'a> {
    depth: usize,
    limits: &'a Limits<'a>,
}

impl Strict<'_> {
    /// Returns the limits for a value within this one.
    fn deeper<E: serde::de::Error>(&self) -> Result<Self, E> {
        if self.limits.is_strict && self.depth >= MAX_DEPTH {
            return Err(E::custom(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        Ok(Self {
            depth: self.depth + 1,
            limits: self.limits,
        })
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.limits.count_value()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.limits.count(value.len())?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self.deeper()?)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            let member = access.next_value_seed(self.deeper()?)?;
            self.limits.count(name.len())?;
            match members.entry(name) {
                Entry::Occupied(entry) if self.limits.is_strict => {
                    let name = entry.key();
                    return Err(A::Error::custom(format!("duplicate member {name:?}")));
                }
                Entry::Occupied(mut entry) => {
                    entry.insert(member);
                }
                Entry::Vacant(entry) => {
                    entry.insert(member);
                }
            }
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn too_many_values_are_refused() {
        let array = |items: usize| format!("[{}0]", "0,".repeat(items - 1));
        // The array itself is a value.
        assert!(parse(array(MAX_VALUES - 1).as_bytes()).is_ok());
        let error = parse(array(MAX_VALUES).as_bytes()).unwrap_err();
        assert!(error.to_string().contains("more than 1000000 values"));
    }

    #[test]
    fn memory_is_reserved_as_it_is_used() {
        let body = format!("[{}\"{}\"]", "0,".repeat(10_000), "a".repeat(100_000));
        let reserved = Cell::new(0);
        let reserve = |bytes| {
            reserved.set(reserved.get() + bytes);
            reserved.get() <= 900_000
        };
        assert!(parse_within(body.as_bytes(), &reserve).is_ok());
        assert_eq!(reserved.get(), 10_002 * VALUE_BYTES + 100_000);
        reserved.set(100_000);
        assert!(parse_within(body.as_bytes(), &reserve).is_err());
        assert!(reserved.get() < 1_100_000);
    }

    #[test]
    fn providers_may_repeat_members() {
        let value = parse_lenient(br#"{"a":1,"a":2}"#).unwrap();
        assert_eq!(value, json!({"a": 2}));
        let array = format!("[{}0]", "0,".repeat(MAX_VALUES));
        assert!(parse_lenient(array.as_bytes()).is_err());
    }

    #[test]
    fn duplicates_and_depth_are_refused() {
        assert!(
            parse(br#"{"a":1,"a":2}"#)
                .unwrap_err()
                .to_string()
                .contains("duplicate member")
        );
        assert!(parse(br#"{"o":{"a":1,"\u0061":2}}"#).is_err());
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert!(parse(nested(MAX_DEPTH + 1).as_bytes()).is_err());
        assert!(parse(nested(100_000).as_bytes()).is_err());
        assert!(parse(b"{} x").is_err());
    }

    proptest! {
        /// Accepted texts equal what `serde_json` parses; only duplicates and depth are refused in
        /// addition.
        #[test]
        fn noise_is_read_as_others_read_it(pieces in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"a\"", "\"b\"", "\"\\u0061\"", "\"\\u0000\"", "\"\\ud800\"",
            "\"é\"", "1", "-0", "1.0", "1e5", "1e999", "18446744073709551616", "01", "null", "true",
            " ", "\n", "\"a\":1", "\"a\":[", "NaN", "\u{feff}",
        ]), 0..16)) {
            let text = pieces.concat();
            let theirs = serde_json::from_str::<Value>(&text);
            match parse(text.as_bytes()) {
                Ok(value) => {
                    prop_assert_eq!(&value, &theirs.unwrap());
                    let _paths = nul_paths(&value);
                    // The last bit of a long float may change when it is parsed again.
                    let again = parse(value.to_string().as_bytes()).unwrap();
                    if let (Value::Object(body), Value::Object(again)) = (&value, &again)
                        && !text.contains("18446744073709551616")
                    {
                        prop_assert_eq!(fingerprint("/", body), fingerprint("/", again));
                    }
                }
                Err(error) => prop_assert!(
                    theirs.is_err() || error.to_string().contains("duplicate member"),
                    "{error}: {text}"
                ),
            }
        }

        #[test]
        fn bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let ours = parse(&bytes).is_ok();
            prop_assert!(!ours || serde_json::from_slice::<Value>(&bytes).is_ok());
        }
    }
}

//! Strict JSON: no duplicate members, bounded nesting, no U+0000.

mod members;
mod object;

use std::{
    cell::Cell,
    fmt,
    io::{self, Write as _},
};

use memchr::memmem;
use serde::{
    Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value, map::Entry};
use sha2::{Digest as _, Sha256};

pub use members::Members;
pub use object::parse_object;

/// Maximum nesting of arrays and objects in a body.
pub const MAX_DEPTH: usize = 64;
/// Maximum number of values in a body: each takes 72 bytes of memory, and as few as two in the body.
const MAX_VALUES: usize = 1_000_000;

/// Memory of one value.
const VALUE_BYTES: usize = 72;
/// Memory that a parser reserves at once.
const RESERVED_BYTES: usize = 64 << 10;

/// Parses a body strictly. The error message is shown to the caller, with the position.
pub fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    parse_within(bytes, &|_| true)
}

/// As [`parse`]. `reserve` is called with the bytes of memory that the value takes, bit by bit;
/// parsing fails once it returns `false`.
pub fn parse_within(
    bytes: &[u8],
    reserve: &dyn Fn(usize) -> bool,
) -> Result<Value, serde_json::Error> {
    Limits::new(true, reserve).parse(bytes)
}

/// Parses JSON of a provider: with at most a million values. Of duplicate members the last one
/// counts.
pub fn parse_lenient(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    Limits::new(false, &|_| true).parse(bytes)
}

/// What a document may have, and has so far.
struct Limits<'a> {
    is_strict: bool,
    values: Cell<usize>,
    /// Memory that is not reserved yet.
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

/// SHA-256 over a route and the JSON value of a body without `stream`: equal exactly for "the same
/// request". Members are sorted, and `1` and `1.0` are the same number.
pub fn fingerprint(route: &str, body: &Map<String, Value>) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(route.as_bytes());
    hash.update(b"\n");
    let skipped = Some("stream");
    let members = body;
    digest(&mut hash, &CanonicalObject { members, skipped });
    hash.finalize().into()
}

/// Adds the JSON text of `value` to a digest.
fn digest(hash: &mut Sha256, value: &impl Serialize) {
    struct Digest<'a>(&'a mut Sha256);

    impl io::Write for Digest<'_> {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.update(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut text = io::BufWriter::new(Digest(hash));
    // Values of JSON and strings: this cannot fail.
    let written = serde_json::to_writer(&mut text, value).is_ok() && text.flush().is_ok();
    debug_assert!(written);
}

/// The same without U+0000 in any string, which Postgres cannot store.
pub fn without_nul<T: Serialize + DeserializeOwned>(value: T) -> T {
    let text = serde_json::to_string(&value).unwrap_or_default();
    if !text.contains("\\u0000") {
        return value;
    }
    let replaced = serde_json::from_str(&text).map(replace_nul);
    replaced.and_then(serde_json::from_value).unwrap_or(value)
}

fn replace_nul(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace('\0', "\u{fffd}")),
        Value::Array(items) => items.into_iter().map(replace_nul).collect(),
        Value::Object(members) => {
            let members = members.into_iter();
            let replaced =
                |(name, member): (String, _)| (name.replace('\0', "\u{fffd}"), replace_nul(member));
            Value::Object(members.map(replaced).collect())
        }
        other => other,
    }
}

/// Limits on reported paths and on the characters of a name in them: an error must not be many
/// times larger than the request.
const MAX_PATHS: usize = 100;
const MAX_NAME: usize = 100;

/// Whether strings of a valid document may contain U+0000, which is always escaped.
pub fn may_have_nul(bytes: &[u8]) -> bool {
    memmem::find(bytes, b"\\u0000").is_some()
}

/// Paths of strings and member names that contain U+0000, which Postgres cannot store; the first
/// hundred of them.
pub fn nul_paths(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut trail = Vec::new();
    walk(value, &mut trail, &mut found);
    found
}

/// A step into a value. A path is only built where something is found.
enum Step<'a> {
    Item(usize),
    Member(&'a str),
}

fn walk<'a>(value: &'a Value, trail: &mut Vec<Step<'a>>, found: &mut Vec<String>) {
    if found.len() >= MAX_PATHS {
        return;
    }
    match value {
        Value::String(text) if text.contains('\0') => found.push(path(trail)),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                trail.push(Step::Item(at));
                walk(item, trail, found);
                trail.pop();
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                trail.push(Step::Member(name));
                if name.contains('\0') && found.len() < MAX_PATHS {
                    found.push(path(trail));
                }
                walk(member, trail, found);
                trail.pop();
            }
        }
        _ => {}
    }
}

fn path(trail: &[Step<'_>]) -> String {
    let mut path = String::new();
    for step in trail {
        match step {
            Step::Item(at) => path.extend(["[", &at.to_string(), "]"]),
            Step::Member(name) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.extend(
                    name.chars()
                        .take(MAX_NAME)
                        .map(|c| if c == '\0' { '\u{fffd}' } else { c }),
                );
            }
        }
    }
    path
}

/// Serialises a value with sorted members and canonical numbers.
struct Canonical<'a>(&'a Value);

struct CanonicalObject<'a> {
    members: &'a Map<String, Value>,
    skipped: Option<&'static str>,
}

impl Serialize for Canonical<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Number(number) => canonical_number(number).serialize(serializer),
            Value::Array(items) => serializer.collect_seq(items.iter().map(Canonical)),
            Value::Object(members) => {
                let skipped = None;
                CanonicalObject { members, skipped }.serialize(serializer)
            }
            other => other.serialize(serializer),
        }
    }
}

impl Serialize for CanonicalObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let members = self.members.iter();
        let mut members: Vec<_> = members
            .filter(|(name, _)| self.skipped != Some(name.as_str()))
            .collect();
        members.sort_by_key(|(name, _)| *name);
        serializer.collect_map(
            members
                .into_iter()
                .map(|(name, value)| (name, Canonical(value))),
        )
    }
}

fn canonical_number(number: &Number) -> Number {
    match number.as_f64() {
        // Below 2^53 every integral float is exactly one integer.
        Some(float)
            if number.is_f64() && float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0 =>
        {
            #[expect(clippy::cast_possible_truncation, reason = "integral and below 2^53")]
            let integer = float as i64;
            Number::from(integer)
        }
        _ => number.clone(),
    }
}

struct Strict<'a> {
    depth: usize,
    limits: &'a Limits<'a>,
}

impl Strict<'_> {
    /// For a value within this one.
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
        // The array is one of them.
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

    #[test]
    fn a_fingerprint_sees_the_value_not_the_spelling() {
        let print = |text: &str| {
            let Value::Object(map) = parse(text.as_bytes()).unwrap() else {
                panic!("no object")
            };
            fingerprint("/v1/generate/text", &map)
        };
        assert_eq!(
            print(r#"{"a":1,"b":[1.0,{"d":1,"c":2}]}"#),
            print(r#"{ "b":[1,{"c":2,"d":1}], "a":1e0 }"#)
        );
        assert_ne!(print(r#"{"a":1}"#), print(r#"{"a":"1"}"#));
        assert_ne!(print(r#"{"a":1}"#), print(r#"{"a":1.5}"#));
    }

    #[test]
    fn fingerprints_are_stable_between_releases() {
        let body = r#"{"b":[1.0,{"d":1.5,"c":"\u00e9\n"}],"a":1e3}"#;
        let Value::Object(map) = parse(body.as_bytes()).unwrap() else {
            panic!("no object")
        };
        let text = "/x\n{\"a\":1000,\"b\":[1,{\"c\":\"é\\n\",\"d\":1.5}]}";
        let expected: [u8; 32] = Sha256::digest(text).into();
        assert_eq!(fingerprint("/x", &map), expected);
    }

    #[test]
    fn nul_is_found_wherever_it_hides() {
        let found = nul_paths(&json!({"a": "x\0", "b": {"c": ["", "\0"]}, "d\0": 1}));
        assert_eq!(found, ["a", "b.c[1]", "d\u{fffd}"]);
    }

    #[test]
    fn a_hostile_body_is_not_answered_at_many_times_its_size() {
        let body = json!({"A".repeat(100_000): vec!["\0"; 1500]});
        let found = nul_paths(&body);
        assert_eq!(found.len(), MAX_PATHS);
        assert!(found.iter().all(|path| path.len() < 120));
    }

    proptest! {
        /// Anything accepted equals what serde_json parses; only duplicates and depth are refused
        /// in addition.
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

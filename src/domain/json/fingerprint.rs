//! A digest of a body by its value.

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
};

use serde::{Serialize, Serializer};
use serde_json::{Map, Number, Value};
use sha2::{Digest as _, Sha256};

/// Returns the SHA-256 of a route and the JSON value of a body without `stream`; equal exactly for
/// equal requests. Members are sorted, and `1` and `1.0` are the same number.
pub fn fingerprint(route: &str, body: &Map<String, Value>) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(route.as_bytes());
    hash.update(b"\n");
    let mut members = sorted(body);
    members.remove("stream");
    digest(&mut hash, &members);
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
    // JSON values and strings always serialize.
    let written = serde_json::to_writer(&mut text, value).is_ok() && text.flush().is_ok();
    debug_assert!(written);
}

/// Serialises a value with sorted members and canonical numbers.
struct Canonical<'a>(&'a Value);

impl Serialize for Canonical<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Number(number) => canonical_number(number).serialize(serializer),
            Value::Array(items) => serializer.collect_seq(items.iter().map(Canonical)),
            Value::Object(members) => sorted(members).serialize(serializer),
            other => other.serialize(serializer),
        }
    }
}

fn sorted(members: &Map<String, Value>) -> BTreeMap<&str, Canonical<'_>> {
    let members = members.iter();
    let members = members.map(|(name, value)| (name.as_str(), Canonical(value)));
    members.collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::json::parse;

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
}

//! Parses the values of a body and the bytes of its members in one pass.

use std::{cell::Cell, marker::PhantomData};

use bytes::Bytes;
use serde::de::{DeserializeSeed, IgnoredAny};
use serde_json::{Map, Value, map::Entry};

use super::{Limits, Members, Strict, parse_within};

/// As [`parse_within`]. Also returns the original bytes of the members of an object.
pub fn parse_object(
    bytes: &Bytes,
    reserve: &dyn Fn(usize) -> bool,
) -> Result<(Value, Members), serde_json::Error> {
    let (is_refused, reserved) = (Cell::new(false), Cell::new(0));
    // After a refusal, no more memory is requested.
    let reserve = |bytes| {
        is_refused.set(is_refused.get() || !reserve(bytes));
        if !is_refused.get() {
            reserved.set(reserved.get() + bytes);
        }
        !is_refused.get()
    };
    let limits = Limits::new(true, &reserve);
    let object = Scanner { bytes, at: 0 }.object(&limits);
    if let Some((values, members)) = object.filter(|_| limits.reserve_rest()) {
        return Ok((Value::Object(values), members));
    }
    // Parses the body again if it is not a valid object, because errors have positions in the whole
    // body. Uses the memory that the first pass reserved before it reserves more.
    let unused = Cell::new(reserved.get());
    let value = parse_within(bytes, &|bytes| {
        let known = unused.get().min(bytes);
        unused.set(unused.get() - known);
        !is_refused.get() && (known == bytes || reserve(bytes - known))
    })?;
    let members = match value {
        Value::Object(_) => Members::parse(bytes)?,
        _ => Members::default(),
    };
    Ok((value, members))
}

/// The unparsed rest of a document.
struct Scanner<'a> {
    bytes: &'a Bytes,
    at: usize,
}

impl<'a> Scanner<'a> {
    /// Parses the document; `None` if it is not a valid object.
    fn object(mut self, limits: &Limits<'_>) -> Option<(Map<String, Value>, Members)> {
        let (mut values, mut members) = (Map::new(), Vec::new());
        limits.count_value::<serde_json::Error>().ok()?;
        let depth = 1;
        let mut next = self.symbol(b"{")?;
        if self.symbol(b"}").is_some() {
            next = b'}';
        }
        while next != b'}' {
            let name: String = self.value(PhantomData)?;
            self.symbol(b":")?;
            self.skip_space();
            let from = self.at;
            let value = self.value(Strict { depth, limits })?;
            let entry = name.len() + Members::entry_bytes(&name);
            limits.count::<serde_json::Error>(entry).ok()?;
            members.push((name.clone(), self.bytes.slice(from..self.at)));
            match values.entry(name) {
                Entry::Occupied(_) => return None,
                Entry::Vacant(entry) => entry.insert(value),
            };
            next = self.symbol(b",}")?;
        }
        self.skip_space();
        (self.at == self.bytes.len()).then(|| (values, Members::from(members)))
    }

    fn value<S: DeserializeSeed<'a>>(&mut self, seed: S) -> Option<S::Value> {
        let mut deserializer = serde_json::Deserializer::from_slice(self.bytes.get(self.at..)?);
        let value = seed.deserialize(&mut deserializer).ok()?;
        self.at += deserializer.into_iter::<IgnoredAny>().byte_offset();
        Some(value)
    }

    /// Returns the next byte other than white space, if it is one of these.
    fn symbol(&mut self, symbols: &[u8]) -> Option<u8> {
        self.skip_space();
        let symbol = *self.bytes.get(self.at)?;
        let found = symbols.contains(&symbol);
        self.at += usize::from(found);
        found.then_some(symbol)
    }

    fn skip_space(&mut self) {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.at += rest.iter().take_while(is_space).count();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scan(bytes: &Bytes, reserve: &dyn Fn(usize) -> bool) -> Option<Members> {
        let limits = Limits::new(true, reserve);
        let object = Scanner { bytes, at: 0 }.object(&limits)?;
        limits.reserve_rest().then_some(object.1)
    }

    #[test]
    fn valid_objects_are_parsed_in_one_pass() {
        for text in [
            "{}",
            " { } \n",
            r#"{"a":1}"#,
            "{\t\"a\" : [1.0 , {\"b\":\"\\u00e9\"} ] ,\r\"c\":\n null\n}\n",
        ] {
            let bytes = Bytes::copy_from_slice(text.as_bytes());
            assert_eq!(
                scan(&bytes, &|_| true),
                Members::parse(&bytes).ok(),
                "{text}"
            );
        }
        for text in [
            "",
            "[]",
            "1",
            "{",
            "{,}",
            r#"{"a":1,}"#,
            r#"{"a"}"#,
            r#"{"a":1 "b":2}"#,
            r#"{"a":1x}"#,
            "{} x",
            "{1:2}",
        ] {
            assert_eq!(scan(&Bytes::from(text), &|_| true), None, "{text}");
        }
    }

    #[test]
    fn one_pass_reserves_a_value_and_its_members() {
        let body = format!(
            "{{\"a\":[{}0],\"b\":\"{}\"}}",
            "0,".repeat(10_000),
            "b".repeat(100_000)
        );
        let bytes = Bytes::from(body);
        let reserved = Cell::new(0);
        let reserve = |bytes| {
            reserved.set(reserved.get() + bytes);
            true
        };
        parse_within(&bytes, &reserve).unwrap();
        let of_value = reserved.replace(0);
        assert!(scan(&bytes, &reserve).is_some());
        let entries = ["a", "b"].map(Members::entry_bytes).iter().sum::<usize>();
        assert_eq!(reserved.get(), of_value + entries);
    }

    #[test]
    fn an_error_at_the_end_reserves_nothing_twice() {
        let bytes = Bytes::from(format!("{{\"a\":[{}0]}} x", "0,".repeat(10_000)));
        let reserved = Cell::new(0);
        let reserve = |bytes| {
            reserved.set(reserved.get() + bytes);
            true
        };
        assert!(scan(&bytes, &reserve).is_none());
        let of_one_pass = reserved.replace(0);
        assert!(parse_object(&bytes, &reserve).is_err());
        assert_eq!(reserved.get(), of_one_pass);
    }

    #[test]
    fn memory_is_refused_once() {
        let refusals = Cell::new(0);
        let reserve = |_| {
            refusals.set(refusals.get() + 1);
            false
        };
        for values in [1, 10_000] {
            refusals.set(0);
            let bytes = Bytes::from(format!("{{\"a\":[{}0]}}", "0,".repeat(values)));
            assert!(parse_object(&bytes, &reserve).is_err());
            assert_eq!(refusals.get(), 1);
        }
    }

    proptest! {
        #[test]
        fn one_pass_gives_what_two_give(members in prop::collection::vec(prop::sample::select(vec![
            "\"a\":1", "\"b\" : [1.0 , {\"a\":\"\\u00e9\\\"\"}]", " \"c\":\t\"x\\\\\"\n", "\"d\":-0", "\"e\":1e5 ",
            "\"\\u0061\":null", "\"é\":{}", "\"f\":{\"a\":1,\"a\":2}", "\"g\":01", "x", "", "\"h\":\"\\ud800\"",
        ]), 0..6), end in prop::sample::select(vec!["}", "} ", "", "}}", "} 1"])) {
            let bytes = Bytes::from(format!("{{{}{end}", members.join(",")));
            match (super::super::parse(&bytes), parse_object(&bytes, &|_| true)) {
                (Ok(value), Ok((values, members))) => {
                    prop_assert_eq!(value, values);
                    prop_assert_eq!(members, Members::parse(&bytes).unwrap());
                }
                (Err(one), Err(other)) => prop_assert_eq!(one.to_string(), other.to_string()),
                (one, other) => panic!("{one:?} {other:?}"),
            }
        }
    }
}

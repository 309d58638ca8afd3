//! Finds and replaces U+0000, which Postgres cannot store.

use std::borrow::Cow;

use memchr::memmem;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Returns a copy without U+0000 in any string.
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

/// The escape of U+0000 in JSON, and that of its replacement.
const ESCAPED: &str = "\\u0000";
const REPLACEMENT: &str = "\\ufffd";

/// Replaces the escapes of U+0000 in JSON, which may be cut off. The second text is the end, if an
/// escape may begin there.
pub fn without_escaped_nul(json: &str) -> (Cow<'_, str>, &str) {
    let mut replaced = String::new();
    let (mut copied, mut at) = (0, 0);
    let mut end = json.len();
    while let Some(found) = json[at..].find('\\') {
        at += found;
        let rest = &json[at..];
        if rest.starts_with(ESCAPED) {
            replaced += &json[copied..at];
            replaced += REPLACEMENT;
            at += ESCAPED.len();
            copied = at;
        } else if ESCAPED.starts_with(rest) {
            end = at;
            break;
        } else {
            at += 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
        }
    }
    let text = if copied == 0 {
        Cow::Borrowed(&json[..end])
    } else {
        Cow::Owned(replaced + &json[copied..end])
    };
    (text, &json[end..])
}

/// Limits on reported paths and on the characters of a name in them: an error must not be many
/// times larger than the request.
const MAX_PATHS: usize = 100;
const MAX_NAME: usize = 100;

/// Whether strings of a valid document may contain U+0000, which is always escaped.
pub fn may_have_nul(bytes: &[u8]) -> bool {
    memmem::find(bytes, b"\\u0000").is_some()
}

/// Returns the paths of the first hundred strings and member names that contain U+0000.
pub fn nul_paths(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut trail = Vec::new();
    walk(value, &mut trail, &mut found);
    found
}

/// A step into a value. Paths are built only for findings.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nul_is_found_wherever_it_hides() {
        let found = nul_paths(&json!({"a": "x\0", "b": {"c": ["", "\0"]}, "d\0": 1}));
        assert_eq!(found, ["a", "b.c[1]", "d\u{fffd}"]);
    }

    #[test]
    fn escapes_are_replaced_wherever_json_is_cut() {
        let json = r#"{"a":"\u0000 \\u0000 \\\u0000\n\u00e9\"\u0000","\u0000":"\é"}"#;
        let expected = r#"{"a":"\ufffd \\u0000 \\\ufffd\n\u00e9\"\ufffd","\ufffd":"\é"}"#;
        assert_eq!(without_escaped_nul(json), (expected.into(), ""));
        for (at, _) in json.char_indices() {
            let (begin, rest) = without_escaped_nul(&json[..at]);
            let more = format!("{rest}{}", &json[at..]);
            let (end, rest) = without_escaped_nul(&more);
            assert_eq!((format!("{begin}{end}"), rest), (expected.to_owned(), ""));
        }
    }

    #[test]
    fn a_hostile_body_is_not_answered_at_many_times_its_size() {
        let body = json!({"A".repeat(100_000): vec!["\0"; 1500]});
        let found = nul_paths(&body);
        assert_eq!(found.len(), MAX_PATHS);
        assert!(found.iter().all(|path| path.len() < 120));
    }
}

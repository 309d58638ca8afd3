//! Random mutations of valid values.

use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::{Map, Value, json};

/// A mutation of a value. The part is chosen by an index into all of them.
#[derive(Debug, Clone)]
pub enum Edit {
    /// Removes a part.
    Drop(Index),
    /// Replaces a part.
    Replace(Index, Value),
    /// Replaces a part by another part.
    Copy(Index, Index),
    /// Adds a member to an object, or an item to a list.
    Add(Index, String, Value),
    /// Wraps it into that many lists.
    Wrap(Index, usize),
    /// Repeats the items of a list, or a text, that many times.
    Repeat(Index, usize),
}

/// Texts that are often handled wrongly.
pub fn text() -> impl Strategy<Value = String> {
    let odd = [
        "",
        " ",
        "\0",
        "a\0b",
        "\u{feff}",
        "\u{202e}x",
        "é",
        "😀",
        "𝒳\u{301}",
        "null",
        "true",
        "0",
        "-1",
        "1e9",
        "NaN",
        "Infinity",
        "0x10",
        "9223372036854775808",
        "1.0000001",
        "12.5",
        "*",
        "..",
        "/",
        "\\",
        "\"",
        "'",
        "';--",
        "%00",
        "%s",
        "{{",
        "{{ prompt }}",
        "{% raw %}",
        "data: [DONE]\n\n",
        "\r\n",
        "text",
        "image",
        "sandbox",
        "openai",
        "[[fail]]",
        "[[reject]]",
        "1024x1024",
        "16:9",
        "0:0",
        "mp3",
        "day",
        "2027-02-30T00:00:00Z",
        "2099-01-01T00:00:00+23:59",
        "9999999999-01-01T00:00:00Z",
        "0197c0de-0000-7000-8000-000000000000",
        "http://[::1]:0/",
        "https://\u{ff0e}/",
    ];
    prop_oneof![
        4 => prop::sample::select(odd.to_vec()).prop_map(str::to_owned),
        2 => ".{0,20}",
        1 => "[a-z_]{1,12}",
        1 => (prop::sample::select(vec!["x", "é", "\u{0}", " ", "[["]), 0..12_000_usize)
            .prop_map(|(part, times)| part.repeat(times)),
    ]
}

/// Values other than lists and objects.
fn scalar() -> impl Strategy<Value = Value> {
    let numbers = [
        json!(0),
        json!(-0.0),
        json!(1),
        json!(-1),
        json!(0.5),
        json!(1.0),
        json!(4096),
        json!(1e308),
        json!(-1e308),
        json!(5e-324),
        json!(1e-7),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(9_007_199_254_740_993_i64),
        json!(1e19),
    ];
    prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        3 => prop::sample::select(numbers.to_vec()),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        4 => text().prop_map(Value::from),
    ]
}

/// The values of `inner`, and lists and objects of them.
fn nested<S>(inner: impl Fn() -> S) -> impl Strategy<Value = Value>
where
    S: Strategy<Value = Value>,
{
    let object =
        |members: Vec<_>| Value::Object(members.into_iter().collect::<Map<String, Value>>());
    prop_oneof![
        4 => inner(),
        1 => vec(inner(), 0..4).prop_map(Value::from),
        1 => vec((text(), inner()), 0..4).prop_map(object),
    ]
}

/// Any value.
pub fn value() -> impl Strategy<Value = Value> {
    nested(|| nested(scalar))
}

/// Up to `most` mutations of a value.
pub fn edits(most: usize) -> impl Strategy<Value = Vec<Edit>> {
    let at = || any::<Index>();
    let one = prop_oneof![
        3 => at().prop_map(Edit::Drop),
        6 => (at(), value())
                .prop_map(|(at, v)| Edit::Replace(at, v)),
        2 => (at(), at())
                .prop_map(|(at, from)| Edit::Copy(at, from)),
        2 => (at(), text(), value())
                .prop_map(|(at, n, v)| Edit::Add(at, n, v)),
        1 => (at(), 1..80_usize)
                .prop_map(|(at, n)| Edit::Wrap(at, n)),
        1 => (at(), 2..40_usize)
                .prop_map(|(at, n)| Edit::Repeat(at, n)),
    ];
    vec(one, 0..=most)
}

/// Applies the mutations.
pub fn edit(value: &mut Value, edits: &[Edit]) {
    for edit in edits {
        let all = places(value);
        let place = |at: &Index| all[at.index(all.len())].clone();
        match edit {
            Edit::Drop(at) => drop_at(value, &place(at)),
            Edit::Replace(at, new) => *part(value, &place(at)) = new.clone(),
            Edit::Copy(at, from) => {
                let copied = part(value, &place(from)).clone();
                *part(value, &place(at)) = copied;
            }
            Edit::Add(at, name, new) => match part(value, &place(at)) {
                Value::Object(members) => {
                    members.insert(name.clone(), new.clone());
                }
                Value::Array(items) => items.push(new.clone()),
                other => *other = json!({ name.as_str(): new }),
            },
            Edit::Wrap(at, levels) => {
                let part = part(value, &place(at));
                for _ in 0..*levels {
                    *part = Value::Array(vec![part.take()]);
                }
            }
            Edit::Repeat(at, times) => match part(value, &place(at)) {
                Value::Array(items) if items.len() < 1000 => {
                    let all = std::iter::repeat_n(items.clone(), *times);
                    *items = all.flatten().collect();
                }
                Value::String(text) if text.len() < 10_000 => *text = text.repeat(*times),
                _ => {}
            },
        }
    }
}

/// Paths of all parts of a value, itself first.
fn places(value: &Value) -> Vec<String> {
    fn walk(value: &Value, at: &str, found: &mut Vec<String>) {
        found.push(at.to_owned());
        match value {
            Value::Array(items) => {
                for (n, item) in items.iter().enumerate().take(50) {
                    walk(item, &format!("{at}/{n}"), found);
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    let name = name.replace('~', "~0").replace('/', "~1");
                    walk(member, &format!("{at}/{name}"), found);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(value, "", &mut found);
    found
}

fn part<'a>(value: &'a mut Value, place: &str) -> &'a mut Value {
    value.pointer_mut(place).unwrap()
}

fn drop_at(value: &mut Value, place: &str) {
    let Some((parent, name)) = place.rsplit_once('/') else {
        *value = Value::Null;
        return;
    };
    match part(value, parent) {
        Value::Object(members) => {
            members.remove(&name.replace("~1", "/").replace("~0", "~"));
        }
        Value::Array(items) => {
            items.remove(name.parse().unwrap());
        }
        _ => {}
    }
}

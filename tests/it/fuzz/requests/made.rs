//! Generated requests.

use gensvc::domain::page::Cursor;
use proptest::{collection::vec, option, prelude::*, sample::Index};
use serde_json::Value;

use crate::fuzz::{
    bytes::{Cut, cut, cuts},
    json::{Edit, edits, text, value},
};

/// The credential.
#[derive(Debug, Clone)]
pub enum Who {
    Key,
    Session,
    Operator,
    Anonymous,
    /// A mutated key.
    Mangled(Vec<Cut>),
    Header(Vec<u8>),
}

/// The body.
#[derive(Debug, Clone)]
pub enum Sent {
    /// One of the valid bodies, mutated as a value and then as text.
    Changed(Index, Vec<Edit>, Vec<Cut>),
    Value(Value),
    Bytes(Vec<u8>),
    Long(usize),
}

#[derive(Debug, Clone)]
pub struct Case {
    pub operation: Index,
    pub who: Who,
    pub sent: Sent,
    pub content_type: Vec<u8>,
    pub headers: Vec<(&'static str, Vec<u8>)>,
    pub query: Option<String>,
    /// Replaces an id in the path.
    pub id: Option<String>,
}

fn who() -> impl Strategy<Value = Who> {
    prop_oneof![
        20 => Just(Who::Key),
        4 => Just(Who::Session),
        1 => Just(Who::Operator),
        1 => Just(Who::Anonymous),
        2 => cuts(3).prop_map(Who::Mangled),
        1 => vec(any::<u8>(), 0..60).prop_map(Who::Header),
        1 => text().prop_map(|text| Who::Header(format!("Bearer {text}").into_bytes())),
    ]
}

fn sent() -> impl Strategy<Value = Sent> {
    let whole = (any::<Index>(), edits(3)).prop_map(|(at, e)| Sent::Changed(at, e, Vec::new()));
    prop_oneof![
        12 => whole,
        5 => (any::<Index>(), edits(1), cuts(3)).prop_map(|(at, e, c)| Sent::Changed(at, e, c)),
        1 => value().prop_map(Sent::Value),
        1 => vec(any::<u8>(), 0..60).prop_map(Sent::Bytes),
        1 => (262_100..262_200_usize).prop_map(Sent::Long),
    ]
}

fn header() -> impl Strategy<Value = (&'static str, Vec<u8>)> {
    let free = prop_oneof![
        text().prop_map(String::into_bytes),
        vec(any::<u8>(), 0..300),
        "[!-~]{1,260}".prop_map(String::into_bytes),
    ];
    // No real waiting: `wait` with a number has its own tests.
    let prefer = [
        "respond-async",
        "wait",
        "wait=",
        "wait=0",
        "wait=-1",
        "respond-async, respond-async;x=\"",
        "handling=lenient",
        ",,;=",
    ];
    let names = [
        "idempotency-key",
        "x-request-id",
        "accept",
        "content-encoding",
        "range",
        "origin",
        "x-forwarded-for",
        "traceparent",
        "if-none-match",
        "host",
    ];
    prop_oneof![
        3 => (prop::sample::select(names.to_vec()), free),
        1 => prop::sample::select(prefer.to_vec()).prop_map(|v| ("prefer", v.into())),
    ]
}

/// A cursor of some list, possibly mutated.
fn cursor() -> impl Strategy<Value = String> {
    let made = prop_oneof![
        (prop::sample::select(b"kltwdasg".to_vec()), any::<i64>())
            .prop_map(|(kind, id)| Cursor::Number(kind, id)),
        any::<u128>().prop_map(|id| Cursor::Generation(uuid::Uuid::from_u128(id))),
    ];
    (made, cuts(2)).prop_map(|(cursor, cuts)| {
        let mut bytes = cursor.encode().into_bytes();
        cut(&mut bytes, &cuts);
        escaped(&bytes)
    })
}

fn escaped(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                char::from(*byte).to_string()
            }
            _ => format!("%{byte:02x}"),
        })
        .collect()
}

pub fn query() -> impl Strategy<Value = String> {
    let names = [
        "cursor",
        "per_page",
        "type",
        "status",
        "provider",
        "model",
        "created_after",
        "created_before",
        "kind",
        "generation",
        "from",
        "to",
        "group_by",
        "email",
        "zzz",
    ];
    let values = prop_oneof![
        2 => cursor(),
        2 => text().prop_map(|text| escaped(text.chars().take(300).collect::<String>().as_bytes())),
        1 => prop::sample::select(vec!["1", "100", "101", "day,type", "api_key,api_key", "charge",
            "text", "completed", "2027-01-15T00:00:00Z", "%ff", "%", "%zz", "a%00"])
            .prop_map(str::to_owned),
    ];
    let pairs = vec((prop::sample::select(names.to_vec()), values), 1..4);
    let pairs = pairs.prop_map(|pairs| {
        let pairs: Vec<_> = pairs.iter().map(|(n, v)| format!("{n}={v}")).collect();
        pairs.join("&")
    });
    prop_oneof![4 => pairs, 1 => "[!-~]{0,40}"]
}

pub fn id() -> impl Strategy<Value = String> {
    prop_oneof![
        text().prop_map(|text| escaped(text.chars().take(60).collect::<String>().as_bytes())),
        "[!-~]{1,40}",
        any::<i64>().prop_map(|id| id.to_string()),
        any::<u128>().prop_map(|id| uuid::Uuid::from_u128(id).to_string()),
    ]
}

pub fn case() -> impl Strategy<Value = Case> {
    let json = b"application/json".to_vec();
    let content_type = prop_oneof![
        15 => Just(json),
        1 => text().prop_map(String::into_bytes),
        1 => Just(b"application/json; charset=latin1; x=\"".to_vec()),
    ];
    (
        any::<Index>(),
        who(),
        sent(),
        content_type,
        vec(header(), 0..3),
        option::weighted(0.2, query()),
        option::weighted(0.1, id()),
    )
        .prop_map(
            |(operation, who, sent, content_type, headers, query, id)| Case {
                operation,
                who,
                sent,
                content_type,
                headers,
                query,
                id,
            },
        )
}

//! Joins characters beyond U+FFFF that a server splits over two JSON strings, as escaped
//! surrogates.
//!
//! `serde_json` refuses a lone surrogate, and a `String` cannot hold one. [`parse`] writes a mark
//! in its place. A [`Joiner`] combines the marks at the end of one piece and the beginning of the
//! next into one character.

use std::mem::{discriminant, take};

use serde_json::Value;

use crate::domain::{
    conversation::Delta,
    json::{may_have_nul, parse_lenient, without_escaped_nul},
};

/// First character of a mark: a noncharacter, which texts should not contain.
const MARK: char = '\u{fdd0}';
/// Second character of a mark: this plus the surrogate's offset from [`FIRST`].
const BASE: u32 = 0xe000;
const FIRST: u32 = 0xd800;
const FIRST_LOW: u32 = 0xdc00;
const LAST: u32 = 0xdfff;
const REPLACEMENT: char = '\u{fffd}';

/// Parses an event of a stream. Lone surrogates become marks.
pub fn parse(text: &str) -> Result<Value, serde_json::Error> {
    lenient(text.as_bytes(), mark)
}

/// Parses a whole body, with or without a byte order mark. Lone surrogates become U+FFFD.
pub fn parse_whole(body: &[u8]) -> Result<Value, serde_json::Error> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    lenient(body, |_| REPLACEMENT.to_string())
}

/// U+0000 becomes U+FFFD: Postgres cannot store it, and callers could not send it back.
fn lenient(body: &[u8], replace: fn(u32) -> String) -> Result<Value, serde_json::Error> {
    let text = may_have_nul(body).then(|| std::str::from_utf8(body));
    let replaced = text.and_then(Result::ok).map(|text| {
        let (text, rest) = without_escaped_nul(text);
        text + rest
    });
    let body = replaced.as_deref().map_or(body, str::as_bytes);
    parse_lenient(body).or_else(|error| {
        let text = std::str::from_utf8(body).ok();
        match text.and_then(|text| without_lone(text, replace)) {
            Some(text) => parse_lenient(text.as_bytes()),
            None => Err(error),
        }
    })
}

fn mark(surrogate: u32) -> String {
    let second = char::from_u32(surrogate - FIRST + BASE);
    [MARK, second.unwrap_or(REPLACEMENT)].iter().collect()
}

/// Replaces the escapes of lone surrogates; `None` if there are none.
fn without_lone(text: &str, replace: fn(u32) -> String) -> Option<String> {
    let mut replaced = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(found) = text.get(at..).and_then(|rest| rest.find('\\')) {
        at += found;
        match (escaped(text, at), escaped(text, at + 6)) {
            (Some(FIRST..FIRST_LOW), Some(FIRST_LOW..=LAST)) => at += 12,
            (Some(surrogate @ FIRST..=LAST), _) => {
                replaced += &text[copied..at];
                replaced += &replace(surrogate);
                at += 6;
                copied = at;
            }
            _ => at += 2,
        }
    }
    (copied > 0).then(|| replaced + &text[copied..])
}

/// Returns the code unit of a `\uXXXX` at this position.
fn escaped(text: &str, at: usize) -> Option<u32> {
    let hex = text.get(at..at + 6)?.strip_prefix("\\u")?;
    u32::from_str_radix(hex, 16).ok()
}

/// Joins the marks of consecutive pieces of one text.
#[derive(Debug, Default)]
pub struct Joiner {
    /// A high surrogate at the end of the text, and an empty piece of that text.
    pending: Option<(u32, Delta)>,
}

impl Joiner {
    /// Adds a piece. Returns the completed end of the previous text, if it changed, and this piece.
    pub fn join(&mut self, mut piece: Delta) -> impl Iterator<Item = Delta> + use<> {
        let mut ended = None;
        let is_blank = text_of(&mut piece).is_some_and(|text| text.is_empty());
        if let Some((_, text)) = &self.pending {
            if is_same(text, &piece) {
                if let (Some((high, _)), Some(text)) = (self.pending.take(), text_of(&mut piece)) {
                    text.insert_str(0, &mark(high));
                }
            } else if !is_blank {
                ended = self.end();
            }
        }
        match &mut piece {
            Delta::ToolCall(call) => {
                call.name = resolved(&call.name).0;
                call.id = resolved(&call.id).0;
            }
            Delta::Opaque(block) if block.to_string().contains(MARK) => {
                let (text, _) = resolved(&block.to_string());
                *block = serde_json::from_str(&text).unwrap_or_default();
            }
            _ => {}
        }
        if let Some(text) = text_of(&mut piece).filter(|text| text.contains(MARK)) {
            let (whole, high) = resolved(&take(text));
            if let Some(high) = high {
                self.pending = Some((high, empty(&piece)));
            }
            if let Some(text) = text_of(&mut piece) {
                *text = whole;
            }
        }
        [ended, Some(piece)].into_iter().flatten()
    }

    /// Returns the end of a text whose last surrogate has no pair.
    pub fn end(&mut self) -> Option<Delta> {
        let (_, mut piece) = self.pending.take()?;
        text_of(&mut piece)?.push(REPLACEMENT);
        Some(piece)
    }
}

fn is_same(text: &Delta, piece: &Delta) -> bool {
    match (text, piece) {
        (Delta::Reasoning(a, _), Delta::Reasoning(b, _)) => a == b,
        (text, piece) => discriminant(text) == discriminant(piece),
    }
}

fn text_of(piece: &mut Delta) -> Option<&mut String> {
    match piece {
        Delta::Text(text)
        | Delta::Thinking(text)
        | Delta::Reasoning(_, text)
        | Delta::Signature(text)
        | Delta::Redacted(text)
        | Delta::Arguments(text) => Some(text),
        Delta::ToolCall(call) => Some(&mut call.arguments),
        Delta::Opaque(_) => None,
    }
}

/// Returns an empty piece that continues this piece's text.
fn empty(piece: &Delta) -> Delta {
    match piece {
        Delta::ToolCall(_) => Delta::Arguments(String::new()),
        piece => {
            let mut empty = piece.clone();
            if let Some(text) = text_of(&mut empty) {
                text.clear();
            }
            empty
        }
    }
}

/// Resolves the marks of a text: pairs become characters, others U+FFFD. A high surrogate at the
/// end is returned instead.
fn resolved(text: &str) -> (String, Option<u32>) {
    let mut units = Vec::new();
    let mut whole = String::with_capacity(text.len());
    let flush = |units: &mut Vec<u16>, whole: &mut String| {
        whole.push_str(&String::from_utf16_lossy(units));
        units.clear();
    };
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let unit = chars.peek().filter(|_| c == MARK).and_then(|second| {
            let offset = u32::from(*second).checked_sub(BASE)?;
            u16::try_from(offset + FIRST).ok()
        });
        match unit.filter(|&unit| u32::from(unit) <= LAST) {
            Some(unit) => {
                chars.next();
                units.push(unit);
            }
            None => {
                flush(&mut units, &mut whole);
                whole.push(c);
            }
        }
    }
    let high = units.last().copied().map(u32::from);
    let high = high.filter(|unit| (FIRST..FIRST_LOW).contains(unit));
    if high.is_some() {
        units.pop();
    }
    flush(&mut units, &mut whole);
    (whole, high)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::domain::conversation::{Part, ToolCall};

    fn joined(pieces: impl IntoIterator<Item = Delta>) -> Vec<Part> {
        let (mut joiner, mut parts) = (Joiner::default(), Vec::new());
        for piece in pieces {
            // `PartBuffer` also drops empty pieces.
            let complete = joiner.join(piece).filter(|piece| piece.bytes() > 0);
            complete.for_each(|piece| piece.add_to(&mut parts));
        }
        if let Some(piece) = joiner.end() {
            piece.add_to(&mut parts);
        }
        parts
    }

    fn text(json: &str) -> String {
        parse(json).unwrap().as_str().unwrap().to_owned()
    }

    #[test]
    fn halves_become_one_character() {
        for (pieces, whole) in [
            (&[r#""a\ud83d""#, r#""\uDE00b""#][..], "a\u{1f600}b"),
            (&[r#""\ud83d""#, r#""""#, r#""\ude00""#], "\u{1f600}"),
            (&[r#""\ud83d""#, r#""x""#], "\u{fffd}x"),
            (&[r#""\ud83d""#], "\u{fffd}"),
            (&[r#""\ude00\ud83d""#, r#""\ude00""#], "\u{fffd}\u{1f600}"),
            (&[r#""\ud83d\ud83d""#, r#""\ude00""#], "\u{fffd}\u{1f600}"),
            (&[r#""\\ud83d\ude00""#], "\\ud83d\u{fffd}"),
            (&[r#""\ud83d\ude00\ud83d""#], "\u{1f600}\u{fffd}"),
            (&["\"\u{fdd0}\u{fdd0}x\""], "\u{fdd0}\u{fdd0}x"),
        ] {
            let deltas = pieces.iter().map(|piece| Delta::Text(text(piece)));
            assert_eq!(joined(deltas), [Part::text(whole)], "{pieces:?}");
        }
        let call = |arguments: &str| ToolCall {
            id: "1".to_owned(),
            name: "f".to_owned(),
            arguments: arguments.to_owned(),
            thought_signature: None,
        };
        let pieces = [
            Delta::ToolCall(call(&text(r#""{\"e\":\"\ud83d""#))),
            Delta::Text(String::new()),
            Delta::Arguments(text(r#""\ude00\"}""#)),
        ];
        let whole = "{\"e\":\"\u{1f600}\"}";
        let parts = joined(pieces);
        assert_eq!(parts[0], Part::ToolCall(call(whole)), "{parts:?}");
    }

    #[test]
    fn nul_is_replaced_except_in_json_within_a_string() {
        let json = r#"{"a\u0000":"\u0000","b":"{\"c\":\"\\u0000\"}"}"#;
        let expected = json!({"a\u{fffd}": "\u{fffd}", "b": "{\"c\":\"\\u0000\"}"});
        assert_eq!(parse(json).unwrap(), expected);
        assert_eq!(parse_whole(json.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn another_text_ends_a_half() {
        let pieces = [
            Delta::Thinking(text(r#""\ud83d""#)),
            Delta::Text(text(r#""\ude00""#)),
        ];
        let signature = String::new();
        let thinking = Part::Thinking {
            text: "\u{fffd}".to_owned(),
            signature,
        };
        assert_eq!(joined(pieces), [thinking, Part::text("\u{fffd}")]);
    }

    #[test]
    fn a_whole_body_has_no_marks() {
        let body = br#"{"a":"\ud83d","b\udead":["\ud83d\ude00"]}"#;
        let expected = json!({"a": "\u{fffd}", "b\u{fffd}": ["\u{1f600}"]});
        assert_eq!(parse_whole(body).unwrap(), expected);
        for body in [&b"{"[..], br#""\ud83"#, br#""\ud83d"#, b"\xff", br#""\x""#] {
            assert!(parse_whole(body).is_err());
        }
    }

    proptest! {
        /// Splitting a text between any two UTF-16 code units does not change it.
        #[test]
        fn cuts_change_nothing(whole in "[a\u{e9}\\\\\"\u{1f600}\u{10ffff}\n]{0,20}", cuts in prop::collection::vec(1_usize..4, 1..20)) {
            let units: Vec<u16> = whole.encode_utf16().collect();
            let (mut at, mut pieces) = (0, Vec::new());
            for cut in cuts.iter().cycle() {
                if at >= units.len() {
                    break;
                }
                let piece = &units[at..(at + cut).min(units.len())];
                let escaped: Vec<String> = piece.iter().map(|unit| format!("\\u{unit:04x}")).collect();
                pieces.push(Delta::Text(text(&format!("\"{}\"", escaped.concat()))));
                at += cut;
            }
            let parts = joined(pieces);
            let found = parts.iter().map(|part| match part {
                Part::Text { text } => text.as_str(),
                _ => "",
            });
            prop_assert_eq!(found.collect::<String>(), whole);
        }
    }
}

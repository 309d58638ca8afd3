//! The message for people in the body of an error.
//!
//! Finds the message of each vendor and removes keys, hosts and ids of the operator. Submodule:
//! messages about a request that is too long ([`overflow`]).

mod overflow;

use std::time::Duration;

use serde_json::Value;

use super::retry_after;
use crate::domain::context::ContextOverflow;

/// Maximum characters of a message that is passed on.
const MAX_CHARS: usize = 500;
const REMOVED: &str = "[removed]";
/// Prefixes of keys, and of the ids of the operator's organisation, project or account.
const PREFIXES: &str = "\
    sk- sk_ pk- pk_ rk_ gsk_ xai- hf_ r8_ nvapi- pplx- csk- fw_ tgp_ AIza AQ. ya29. AKIA \
    ASIA eyJ ghp_ github_pat_ svc_ adm_ org- org_ proj_ acct_ cus_ projects/ \
    organizations/";
/// Top-level domains of hosts to remove.
const ZONES: &str = "\
    com net org io ai dev app cloud internal intranet local localdomain lan corp home svc \
    cluster co eu us uk de fr cn jp xyz tech";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VendorMessage {
    /// The message without keys, hosts and ids of the operator.
    pub text: Option<String>,
    /// Whether the request is too long for the model.
    pub overflow: Option<ContextOverflow>,
    /// The delay in a message such as "Please try again in 20s".
    pub retry_after: Option<Duration>,
}

impl VendorMessage {
    pub fn read(root: Option<&Value>) -> Self {
        let Some(root) = root else {
            return Self::default();
        };
        let error = error(root);
        let text = message(root);
        Self {
            overflow: overflow::find(error, text.as_deref().unwrap_or_default()),
            retry_after: text.as_deref().and_then(retry_after::from_sentence),
            text: text.as_deref().map(clean).filter(|text| !text.is_empty()),
        }
    }
}

/// Returns the object with the code and the message. Some gateways wrap the body in an array.
pub fn error(root: &Value) -> &Value {
    let root = root.get(0).unwrap_or(root);
    match root.get("error") {
        None | Some(Value::Null) => root,
        Some(error) => error,
    }
}

/// Finds the message: `error.message`, `error`, `message`, `detail` of `FastAPI` and `ElevenLabs`,
/// or `errors` of Stability. A gateway may have the vendor's own error in `metadata.raw`
/// (`OpenRouter`).
fn message(root: &Value) -> Option<String> {
    let error = error(root);
    if let Some(raw) = error.pointer("/metadata/raw").and_then(Value::as_str) {
        let inner: Option<Value> = serde_json::from_str(raw).ok();
        return inner
            .filter(Value::is_object)
            .map_or_else(|| Some(raw.to_owned()), |inner| message(&inner));
    }
    let members = ["message", "msg", "detail", "errors"];
    let found = members.iter().find_map(|name| text(error.get(*name)?));
    found.or_else(|| text(error))
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => {
            let texts: Vec<String> = items.iter().filter_map(text).collect();
            (!texts.is_empty()).then(|| texts.join("; "))
        }
        Value::Object(members) => {
            let names = ["message", "msg", "detail"].iter();
            let message = names
                .into_iter()
                .find_map(|name| text(members.get(*name)?))?;
            let place = members.get("loc").and_then(Value::as_array);
            let place = place.into_iter().flatten().map(|step| match step {
                Value::String(name) => name.clone(),
                other => other.to_string(),
            });
            let place = place.collect::<Vec<_>>().join(".");
            Some(match place.as_str() {
                "" => message,
                place => format!("{place}: {message}"),
            })
        }
        _ => None,
    }
}

/// Returns the message on one line, with at most [`MAX_CHARS`] characters and no secrets of the
/// operator.
fn clean(message: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || "_-.:/@+%?&#~*=".contains(c);
    let mut cleaned = String::new();
    let mut rest = message.trim();
    let mut after_bearer = false;
    while let Some(first) = rest.chars().next() {
        if !is_word(first) {
            let shown = if first.is_whitespace() || first.is_control() {
                ' '
            } else {
                first
            };
            if shown != ' ' || !cleaned.ends_with(' ') {
                cleaned.push(shown);
            }
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let core = word.trim_end_matches(['.', ':', '?', '/', '-', '=']);
        let is_removed = after_bearer || is_host(core) || core.split('=').any(is_secret);
        if is_removed {
            cleaned.push_str(REMOVED);
            cleaned.push_str(&word[core.len()..]);
        } else {
            cleaned.push_str(word);
        }
        after_bearer = core.eq_ignore_ascii_case("bearer");
        rest = after;
    }
    let cap = cleaned.char_indices().nth(MAX_CHARS);
    if let Some((at, _)) = cap {
        cleaned.truncate(at);
    }
    cleaned
}

fn is_secret(word: &str) -> bool {
    let of_prefix = |prefix: &str| {
        let rest = word.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.len() >= 6 || rest.contains('*'))
    };
    let has = |of: fn(&char) -> bool| word.chars().any(|c| of(&c));
    let is_long = word.len() >= 32;
    let is_mixed = has(char::is_ascii_lowercase) && has(char::is_ascii_uppercase);
    let is_hex = word.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    word.contains('@')
        || PREFIXES.split(' ').any(of_prefix)
        || is_long && has(char::is_ascii_digit) && (is_mixed || is_hex)
}

/// Whether a word is a URL, an address or a host name.
fn is_host(word: &str) -> bool {
    if word.contains("://") {
        return true;
    }
    let host = word.split('/').next().unwrap_or_default();
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => {
            (name, Some(port))
        }
        _ => (host, None),
    };
    let labels: Vec<&str> = name.split('.').collect();
    let is_label = |label: &&str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    if name.is_empty() || !labels.iter().all(is_label) {
        return false;
    }
    let last = labels[labels.len() - 1].to_ascii_lowercase();
    let is_address = labels.len() == 4 && labels.iter().all(|label| label.parse::<u8>().is_ok());
    let is_name = labels.len() > 1 && ZONES.split(' ').any(|zone| zone == last);
    let has_port = port.is_some_and(|port| {
        let is_lower = name.bytes().all(|b| !b.is_ascii_uppercase());
        let starts = name.as_bytes()[0].is_ascii_alphabetic();
        is_lower && starts && (4..=5).contains(&port.len())
    });
    name == "localhost" || is_address || is_name || has_port
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_form_of_a_message_is_found() {
        for (body, expected) in [
            (json!({"error": {"message": "a"}}), Some("a")),
            (
                json!([{"error": {"message": "a", "status": "INVALID_ARGUMENT"}}]),
                Some("a"),
            ),
            (
                json!({"type": "error", "error": {"type": "invalid_request_error", "message": "a"}}),
                Some("a"),
            ),
            (json!({"object": "error", "message": "a"}), Some("a")),
            (json!({"error": "a"}), Some("a")),
            (json!({"detail": "a"}), Some("a")),
            (
                json!({"detail": {"status": "x", "message": "a"}}),
                Some("a"),
            ),
            (
                json!({"detail": [{"loc": ["body", "messages", 0], "msg": "a"}, {"msg": "b"}]}),
                Some("body.messages.0: a; b"),
            ),
            (
                json!({"object": "error", "message": {"detail": [{"loc": ["n"], "msg": "a"}]}}),
                Some("n: a"),
            ),
            (
                json!({"name": "bad_request", "errors": ["a", "b"]}),
                Some("a; b"),
            ),
            (
                json!({"error": {"message": "Provider returned error", "metadata": {"raw": "{\"error\":{\"message\":\"a\"}}"}}}),
                Some("a"),
            ),
            (json!({"error": {"message": null, "code": 5}}), None),
            (json!({}), None),
        ] {
            assert_eq!(
                VendorMessage::read(Some(&body)).text.as_deref(),
                expected,
                "{body}"
            );
        }
        assert_eq!(VendorMessage::read(None), VendorMessage::default());
    }

    #[test]
    fn keys_hosts_and_ids_are_removed_and_nothing_else() {
        for (given, expected) in [
            (
                "Incorrect key sk-proj-abc123def456: see it.",
                "Incorrect key [removed]: see it.",
            ),
            ("with key=sk-abc123def", "with [removed]"),
            ("masked 'sk-ab***yz'", "masked '[removed]'"),
            ("for org-AbC123xyz on tokens", "for [removed] on tokens"),
            ("at https://api.example.com/v1/x?key=1.", "at [removed]."),
            ("no route to 10.0.0.7:8000", "no route to [removed]"),
            (
                "ask vllm-3.svc.cluster.local or ollama:11434",
                "ask [removed] or [removed]",
            ),
            ("Bearer abc", "Bearer [removed]"),
            ("mail ops@example.com", "mail [removed]"),
            (
                "messages.3.content.0: text is empty; gpt-4.1 takes e.g. 4096 tokens (id f:0)",
                "messages.3.content.0: text is empty; gpt-4.1 takes e.g. 4096 tokens (id f:0)",
            ),
            (
                "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
                "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
            ),
            ("two\n\n lines\tand \u{7} more", "two lines and more"),
        ] {
            assert_eq!(clean(given), expected);
        }
        assert_eq!(clean(&"é".repeat(600)).chars().count(), MAX_CHARS);
    }
}

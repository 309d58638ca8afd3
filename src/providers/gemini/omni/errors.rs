//! What the errors of the Interactions API mean: `{"error": {"code": "invalid_request",
//! "message"}}` with a word as its code, or the numeric form of Google's front end.
//!
//! Two messages are read, because no code says as much: that of an unknown id, and that of a
//! request refused for its content. Neither is kept.

use serde_json::Value;

use super::super::{
    super::{
        ProviderErrorKind,
        http::classify::{ErrorInfo, machine_code},
    },
    errors,
};

/// What a refusal is called, in codes (any case) and in messages.
const POLICY: [&str; 8] = [
    "safety",
    "prohibited_content",
    "prohibited content",
    "blocklist",
    "spii",
    "recitation",
    "content_policy",
    "content policy",
];

/// Whether `root` holds an error in place of an interaction.
pub fn is_error(root: &Value) -> bool {
    errors::error_of(root).is_some()
}

/// The code of an error body and what it means.
pub fn error_info(root: Option<&Value>) -> ErrorInfo {
    let mut found = errors::error_info(root);
    if let Some(error) = root.and_then(errors::error_of) {
        let word = error
            .get("code")
            .and_then(Value::as_str)
            .and_then(machine_code);
        found.code = found.code.or(word.map(str::to_owned));
        if found.kind.is_none() && is_refusal(error) {
            found.kind = Some(ProviderErrorKind::ContentPolicy);
        }
    }
    found
}

/// An error object, also one inside an interaction.
pub fn is_refusal(error: &Value) -> bool {
    let is_policy = |text: &str| {
        let text = text.to_lowercase();
        POLICY.iter().any(|word| text.contains(word))
    };
    let details = error.get("details").and_then(Value::as_array);
    ["code", "status", "message"]
        .into_iter()
        .filter_map(|name| error.get(name))
        .chain(
            details
                .into_iter()
                .flatten()
                .filter_map(|detail| detail.get("reason")),
        )
        .filter_map(Value::as_str)
        .any(is_policy)
}

/// An unknown id is 400 "Invalid interaction name" (live); 404 is what it should be. Any
/// other 400 may be passing trouble (live).
pub fn is_unknown_task(status: u16, root: Option<&Value>) -> bool {
    let message = || {
        root.and_then(errors::error_of)?
            .get("message")?
            .as_str()
            .map(str::to_lowercase)
    };
    match status {
        404 => true,
        400 => message().is_some_and(|text| text.contains("invalid interaction name")),
        _ => false,
    }
}

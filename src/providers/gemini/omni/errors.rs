//! Errors of the Interactions API: `{"error": {"code": "invalid_request",
//! "message"}}` with a word as its code, or the numeric form of Google's front end.
//!
//! Two messages are matched, because no code identifies them: that of an unknown id, and that of
//! a request refused for its content. Neither is kept.

use serde_json::Value;

use super::super::{
    super::{
        ProviderErrorKind,
        http::classify::{self, ErrorInfo},
    },
    errors,
};

/// Words for a refusal, in codes (any case) and in messages.
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

/// Whether `root` is an error instead of an interaction.
pub fn is_error(root: &Value) -> bool {
    errors::error_of(root).is_some()
}

pub fn error_info(root: Option<&Value>) -> ErrorInfo {
    let mut found = errors::error_info(root);
    if let Some(error) = root.and_then(errors::error_of) {
        let word = classify::code(error.get("code"));
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
    let details = error["details"].as_array();
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

/// An unknown id is 400 "Invalid interaction name" (live), or 404. Any other 400 may be
/// transient (live).
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

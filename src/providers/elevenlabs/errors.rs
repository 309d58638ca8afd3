//! What ElevenLabs's errors mean: `{"detail": {"status", "message"}}`; with 422 `detail` is a
//! list of fields, sometimes it is a bare string.
//!
//! Source: elevenlabs/elevenlabs-docs `developer-guides/error-messages.mdx`. Newer bodies may
//! have `code` and `type` in addition to `status`.

use serde_json::Value;

use super::super::{
    ProviderErrorKind,
    http::{
        classify::{ErrorInfo, machine_code},
        vendor_message::VendorMessage,
    },
};

pub fn error_info(root: Option<&Value>) -> ErrorInfo {
    let Some(detail) = root.and_then(|root| root.get("detail")) else {
        return ErrorInfo::default();
    };
    let text = |value: Option<&Value>| {
        // `only_for_creator+`
        value
            .and_then(Value::as_str)
            .and_then(|text| machine_code(text.trim_end_matches('+')))
            .map(str::to_owned)
    };
    let codes: Vec<String> = ["status", "code", "type"]
        .into_iter()
        .filter_map(|name| text(detail.get(name)))
        .chain(text(Some(detail)))
        .collect();
    ErrorInfo {
        kind: codes.iter().find_map(|code| kind(code)),
        code: codes.into_iter().next(),
        vendor_message: VendorMessage::read(root),
        ..ErrorInfo::default()
    }
}

/// Billing, which takes precedence over the status, and content policy.
fn kind(code: &str) -> Option<ProviderErrorKind> {
    let has = |words: &[&str]| words.iter().any(|word| code.contains(word));
    if has(&["quota", "payment", "billing", "insufficient_credits"]) {
        Some(ProviderErrorKind::Account)
    } else if has(&[
        "against_policy",
        "content_policy",
        "moderation",
        "prohibited",
    ]) {
        Some(ProviderErrorKind::ContentPolicy)
    } else {
        None
    }
}

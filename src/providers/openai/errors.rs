//! Error codes of `OpenAI` and compatible servers.
//!
//! Classifies by codes and types only, since the wording of messages changes. Source: openai 3.52.0
//! (`PyPI`) `openai/types/responses/response_error.py` for the policy codes.

use serde_json::Value;

use super::super::{
    ProviderErrorKind,
    http::{
        classify::{self, ErrorInfo, by_status},
        vendor_message::{self, VendorMessage},
    },
};

/// Whether `root` is an error instead of an answer: an `error` in any form, or Mistral's flat
/// `{"object": "error", ...}`.
pub fn is_error(root: &Value) -> bool {
    let set = match root.get("error") {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(_) => true,
    };
    set || root["object"].as_str() == Some("error")
}

/// Reads the enveloped, flat or bare string form. `code` may be a string, a number or null.
pub fn error_info(root: Option<&Value>) -> ErrorInfo {
    let Some(root) = root else {
        return ErrorInfo::default();
    };
    let error = vendor_message::error(root);
    let number = error["code"].as_u64();
    let code = classify::code(error.get("code"));
    let named = classify::code(error.get("type")).or_else(|| classify::code(Some(error)));
    let by_number = number
        .or_else(|| code.and_then(|code| code.parse().ok()))
        .and_then(|number| u16::try_from(number).ok())
        .filter(|status| (400..600).contains(status))
        .map(|status| by_status(status).0);
    ErrorInfo {
        code: code
            .or(named)
            .map(str::to_owned)
            .or(number.map(|n| n.to_string())),
        // OpenRouter's moderation is a 403.
        kind: (error.pointer("/metadata/flagged_input"))
            .map(|_| ProviderErrorKind::ContentPolicy)
            .or(code.and_then(kind))
            .or(named.and_then(kind)),
        hint: code.and_then(hint).or(named.and_then(hint)).or(by_number),
        retry_after: None,
        vendor_message: VendorMessage::read(Some(root)),
    }
}

/// Returns the kind for content policy and billing codes, which take precedence over the status.
fn kind(code: &str) -> Option<ProviderErrorKind> {
    let policy = matches!(
        code,
        "invalid_prompt" | "moderation_blocked" | "content_filter" | "data_inspection_failed"
    ) || code.contains("content_policy")
        || code.ends_with("_policy")
        || code.ends_with("policy_violation");
    let funds = [
        "insufficient_quota",
        "credit_balance",
        "spend_limit",
        "usage_limit",
        "billing",
    ]
    .iter()
    .any(|word| code.contains(word));
    if policy {
        Some(ProviderErrorKind::ContentPolicy)
    } else {
        funds.then_some(ProviderErrorKind::Account)
    }
}

/// Returns the kind of a code for responses without an error status.
fn hint(code: &str) -> Option<ProviderErrorKind> {
    match code {
        "invalid_api_key" | "authentication_error" | "permission_error" | "permission_denied" => {
            Some(ProviderErrorKind::Account)
        }
        "rate_limit_exceeded"
        | "rate_limit_error"
        | "overloaded_error"
        | "server_overloaded"
        | "slow_down" => Some(ProviderErrorKind::Overloaded),
        "model_not_found" | "context_length_exceeded" | "invalid_request_error" => {
            Some(ProviderErrorKind::Rejected)
        }
        // Codes of a failed response such as `invalid_image_url` and `image_too_large`.
        code if code.contains("image") => Some(ProviderErrorKind::Rejected),
        _ => None,
    }
}

//! What Anthropic's error codes and types mean.
//!
//! `details.error_code` is more specific than `type`. Source: anthropic
//! 2.13.0 (`PyPI`) `anthropic/types/shared/*_error.py`.

use serde_json::Value;

use super::super::{
    ProviderErrorKind,
    http::{
        classify::{self, ErrorInfo},
        vendor_message::VendorMessage,
    },
};

/// Reads an error body or an `error` event; the most specific code wins.
pub fn error_info(root: Option<&Value>) -> ErrorInfo {
    let Some(error) = root.and_then(|root| root.get("error")) else {
        return ErrorInfo::default();
    };
    let code = classify::code(error.pointer("/details/error_code"));
    let kind_name = classify::code(error.get("type"));
    let vendor_message = VendorMessage::read(root);
    // An account without funds is reported as a 400 without a code.
    let message = vendor_message.text.as_deref().unwrap_or_default();
    let has_no_funds = message.starts_with("Your credit balance is too low");
    ErrorInfo {
        kind: (code.and_then(kind))
            .or(kind_name.and_then(kind))
            .or(has_no_funds.then_some(ProviderErrorKind::Account)),
        hint: kind_name.and_then(hint),
        code: code.or(kind_name).map(str::to_owned),
        retry_after: None,
        vendor_message,
    }
}

/// Codes that take precedence over the status: `organization_on_hold` comes with a 400, and a 503
/// whose outcome is unknown, unlike others, may have started the work.
fn kind(code: &str) -> Option<ProviderErrorKind> {
    let account =
        code.contains("spend_limit") || code.contains("billing") || code == "organization_on_hold";
    if account {
        Some(ProviderErrorKind::Account)
    } else if code.ends_with("_outcome_unknown") {
        Some(ProviderErrorKind::Failed)
    } else if code == "image_dimensions_too_large" {
        Some(ProviderErrorKind::Rejected)
    } else {
        None
    }
}

/// What a type means inside a stream, where there is no status.
fn hint(kind: &str) -> Option<ProviderErrorKind> {
    match kind {
        "authentication_error" | "permission_error" => Some(ProviderErrorKind::Account),
        "overloaded_error" | "rate_limit_error" => Some(ProviderErrorKind::Overloaded),
        "timeout_error" => Some(ProviderErrorKind::Timeout),
        "invalid_request_error" | "not_found_error" | "request_too_large" => {
            Some(ProviderErrorKind::Rejected)
        }
        _ => None,
    }
}

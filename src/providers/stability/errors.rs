//! Stability's errors: `{"id", "name": "bad_request", "errors": ["..."]}`.
//!
//! Only `name` decides what an error means.

use serde_json::Value;

use super::super::{
    ProviderErrorKind,
    http::{
        classify::{self, ErrorInfo},
        vendor_message::VendorMessage,
    },
};

pub fn error_info(root: Option<&Value>) -> ErrorInfo {
    let name = classify::code(root.and_then(|root| root.get("name")));
    ErrorInfo {
        code: name.map(str::to_owned),
        kind: name.and_then(kind),
        vendor_message: VendorMessage::read(root),
        ..ErrorInfo::default()
    }
}

/// A moderated prompt is reported as 403, which otherwise means an invalid key.
fn kind(name: &str) -> Option<ProviderErrorKind> {
    match name {
        "content_moderation" | "content_filtered" => Some(ProviderErrorKind::ContentPolicy),
        "payment_required" | "insufficient_credits" | "insufficient_balance" => {
            Some(ProviderErrorKind::Account)
        }
        _ => None,
    }
}

//! Gemini's error objects.
//!
//! `{"error": {"code", "status", "message", "details": [...]}}`, sometimes in an array of one.
//! Source: google-genai 3.3.0 (`PyPI`) `google/genai/errors.py`; `google/rpc/error_details.proto`
//! for `ErrorInfo`, `RetryInfo` and `QuotaFailure`.

use std::time::Duration;

use serde_json::Value;

use super::super::{
    ProviderErrorKind,
    http::{
        classify::{self, ErrorInfo, by_status},
        retry_after,
        vendor_message::VendorMessage,
    },
};

/// The wait of a per-day quota, for which `RetryInfo` wrongly gives seconds too.
const DAY_QUOTA_WAIT: Duration = Duration::from_hours(1);

pub fn error_of(root: &Value) -> Option<&Value> {
    let root = root.get(0).unwrap_or(root);
    root.get("error").filter(|error| error.is_object())
}

pub fn error_info(root: Option<&Value>) -> ErrorInfo {
    let Some(error) = root.and_then(error_of) else {
        return ErrorInfo::default();
    };
    let details = || error["details"].as_array().into_iter().flatten();
    let reason = details().find_map(|detail| classify::code(detail.get("reason")));
    let status = classify::code(error.get("status"));
    let stated = details()
        .filter_map(|detail| detail.get("retryDelay")?.as_str())
        .find_map(retry_after::from_proto);
    let per_day = details()
        .filter_map(|detail| detail.get("violations")?.as_array())
        .flatten()
        .filter_map(|violation| violation.get("quotaId")?.as_str())
        .any(|quota| quota.contains("PerDay"));
    // An invalid key and an account without billing are reported as 400.
    let account = reason.is_some_and(|reason| reason.starts_with("API_KEY_"))
        || status == Some("FAILED_PRECONDITION");
    ErrorInfo {
        kind: account.then_some(ProviderErrorKind::Account),
        hint: error["code"]
            .as_u64()
            .and_then(|code| u16::try_from(code).ok())
            .map(|code| by_status(code).0),
        code: reason.or(status).map(str::to_owned),
        vendor_message: VendorMessage::read(root),
        retry_after: if per_day {
            stated.max(Some(DAY_QUOTA_WAIT))
        } else {
            stated
        },
    }
}

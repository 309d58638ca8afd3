//! Error statuses and codes of `OpenAI` and of compatible servers.

use std::time::Duration;

use super::*;

/// The `type` of a 400 with most of the codes.
const INVALID: &str = "invalid_request_error";

async fn check(status: u16, body: &str, kind: ProviderErrorKind, not_started: bool, code: &str) {
    for streaming in [false, true] {
        let headers = [("retry-after", "7"), ("x-request-id", "req-2")];
        let (result, deltas, seen) = ask(Reply::status(status, &headers, body), streaming).await;
        let error = result.unwrap_err();
        let what = (error.kind, error.not_started);
        assert_eq!(what, (kind, not_started), "{status} {body}");
        let mut detail = format!("status {status}");
        if !code.is_empty() {
            detail = format!("{detail}, code {code}");
        }
        assert_eq!(error.detail, detail, "{status} {body}");
        assert_eq!(error.request_id.as_deref(), Some("req-2"));
        assert_eq!(error.status, Some(status));
        assert_eq!(error.retry_after, Some(Duration::from_secs(7)));
        // Clients get only messages about their input.
        let is_about_input = matches!(status, 400 | 413 | 422)
            && matches!(
                kind,
                ProviderErrorKind::Rejected | ProviderErrorKind::ContextLength
            );
        // An HTML page has no message.
        let has_message = body.starts_with('{') && body.contains("secret");
        let is_passed_on = error.message().contains("secret");
        assert_eq!(is_passed_on, is_about_input && has_message, "{body}");
        assert_eq!((deltas.len(), seen.len()), (0, 1));
    }
}

#[tokio::test]
async fn enveloped_errors() {
    use ProviderErrorKind::{Account, ContentPolicy, ContextLength, Failed, Overloaded, Rejected};
    for (status, kind_name, code, kind, not_started) in [
        (400, INVALID, "unsupported_parameter", Rejected, false),
        (
            400,
            INVALID,
            "context_length_exceeded",
            ContextLength,
            false,
        ),
        (400, INVALID, "", Rejected, false),
        (
            400,
            INVALID,
            "content_policy_violation",
            ContentPolicy,
            false,
        ),
        (400, INVALID, "invalid_prompt", ContentPolicy, false),
        (400, INVALID, "moderation_blocked", ContentPolicy, false),
        (400, INVALID, "content_filter", ContentPolicy, false),
        (400, INVALID, "bio_policy", ContentPolicy, false),
        (
            400,
            INVALID,
            "misalignment_policy_violation",
            ContentPolicy,
            false,
        ),
        (
            403,
            INVALID,
            "content_policy_violation",
            ContentPolicy,
            false,
        ),
        (400, "x", "billing_hard_limit_reached", Account, false),
        (401, INVALID, "", Account, false),
        (401, INVALID, "invalid_api_key", Account, false),
        (
            403,
            INVALID,
            "unsupported_country_region_territory",
            Account,
            false,
        ),
        (404, INVALID, "model_not_found", Rejected, false),
        (404, "not_found_error", "", Rejected, false),
        (409, "conflict", "", Failed, false),
        (422, "unprocessable", "", Rejected, false),
        (429, "requests", "rate_limit_exceeded", Overloaded, true),
        (
            429,
            "insufficient_quota",
            "insufficient_quota",
            Account,
            false,
        ),
        (429, "insufficient_quota", "", Account, false),
        (429, "x", "credit_balance_exhausted", Account, false),
        (
            429,
            "x",
            "organization_spend_limit_exceeded",
            Account,
            false,
        ),
        (429, "x", "project_spend_limit_exceeded", Account, false),
        (
            429,
            "x",
            "organization_usage_limit_exceeded",
            Account,
            false,
        ),
        (500, "server_error", "", Failed, false),
        (500, INVALID, "rate_limit_exceeded", Failed, false),
        (503, "server_error", "slow_down", Overloaded, true),
    ] {
        let stated = if code.is_empty() {
            Value::Null
        } else {
            json!(code)
        };
        let body = json!({"error": {"message": "secret", "type": kind_name, "code": stated}});
        let shown = if code.is_empty() { kind_name } else { code };
        check(status, &body.to_string(), kind, not_started, shown).await;
    }
}

#[tokio::test]
async fn other_bodies_and_none() {
    use ProviderErrorKind::{Account, ContentPolicy, Failed, Overloaded, Rejected, Timeout};
    let moderated = r#"{"error": {"code": 403, "metadata": {"flagged_input": "secret"}}}"#;
    let html = "<html>secret</html>";
    let flat =
        r#"{"object": "error", "message": "secret", "type": "rate_limited", "code": "1300"}"#;
    let number = r#"{"error": {"code": 429, "message": "secret"}}"#;
    for (status, body, kind, not_started, code) in [
        (402, "", Account, false, ""),
        (403, html, Account, false, ""),
        (403, moderated, ContentPolicy, false, "403"),
        (405, "", Rejected, false, ""),
        (408, "", Timeout, false, ""),
        (413, html, Rejected, false, ""),
        (415, "", Rejected, false, ""),
        (
            422,
            r#"{"detail": [{"loc": ["body"]}]}"#,
            Rejected,
            false,
            "",
        ),
        (429, flat, Overloaded, true, "1300"),
        (429, number, Overloaded, true, "429"),
        (502, number, Failed, false, "429"),
        (
            429,
            r#"{"error": "a secret message"}"#,
            Overloaded,
            true,
            "",
        ),
        (
            400,
            r#"{"error": "model_missing"}"#,
            Rejected,
            false,
            "model_missing",
        ),
        (
            429,
            r#"[{"error": {"code": "busy"}}]"#,
            Overloaded,
            true,
            "busy",
        ),
        (429, "", Overloaded, true, ""),
        (502, html, Failed, false, ""),
        (503, html, Overloaded, true, ""),
        (504, "", Timeout, false, ""),
        (529, "", Overloaded, true, ""),
        (301, "", Failed, false, ""),
    ] {
        check(status, body, kind, not_started, code).await;
    }
}

#[tokio::test]
async fn the_sdk_header_forbids_a_repeat() {
    let headers = [("x-should-retry", "false"), ("retry-after-ms", "1500")];
    let error = ask(Reply::status(429, &headers, "{}"), false)
        .await
        .0
        .unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::Overloaded);
    assert!(!error.not_started);
    assert_eq!(error.retry_after, Some(Duration::from_millis(1500)));
}

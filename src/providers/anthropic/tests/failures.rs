//! Failures of a Messages call.

use std::time::Duration;

use super::*;
use crate::domain::conversation::Stop;

fn error(kind: &str, code: Option<&str>) -> Value {
    let mut error = json!({"type": kind, "message": "secret prompt"});
    if let Some(code) = code {
        error["details"] = json!({"error_code": code});
    }
    json!({"type": "error", "error": error, "request_id": "req_body"})
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one table of answers")]
async fn error_answers() {
    use ProviderErrorKind::{Account, Failed, Overloaded, Rejected, Timeout};
    for (status, kind_name, code, kind, not_started) in [
        (400, "invalid_request_error", None, Rejected, false),
        (
            400,
            "invalid_request_error",
            Some("organization_on_hold"),
            Account,
            false,
        ),
        (401, "authentication_error", None, Account, false),
        (402, "billing_error", None, Account, false),
        (
            402,
            "billing_error",
            Some("linked_organization_spend_limit_reached"),
            Account,
            false,
        ),
        (403, "permission_error", None, Account, false),
        (404, "not_found_error", None, Rejected, false),
        (408, "timeout_error", None, Timeout, false),
        (409, "conflict_error", None, Failed, false),
        (413, "request_too_large", None, Rejected, false),
        (422, "invalid_request_error", None, Rejected, false),
        (429, "rate_limit_error", None, Overloaded, true),
        (
            429,
            "rate_limit_error",
            Some("ramp_limit_exceeded"),
            Overloaded,
            true,
        ),
        (
            429,
            "rate_limit_error",
            Some("enforced_spend_limit_reached"),
            Account,
            false,
        ),
        (
            429,
            "rate_limit_error",
            Some("contract_spend_limit_reached"),
            Account,
            false,
        ),
        (431, "invalid_request_error", None, Failed, false),
        (499, "cancelled", None, Failed, false),
        (500, "api_error", None, Failed, false),
        (503, "api_error", None, Overloaded, true),
        (
            503,
            "api_error",
            Some("change_outcome_unknown"),
            Failed,
            false,
        ),
        (
            503,
            "overloaded_error",
            Some("request_outcome_unknown"),
            Failed,
            false,
        ),
        (
            529,
            "overloaded_error",
            Some("batch_outcome_unknown"),
            Failed,
            false,
        ),
        (
            503,
            "api_error",
            Some("outcome_unknown_to_nobody"),
            Overloaded,
            true,
        ),
        (
            400,
            "invalid_request_error",
            Some("image_dimensions_too_large"),
            Rejected,
            false,
        ),
        (
            500,
            "api_error",
            Some("image_dimensions_too_large"),
            Rejected,
            false,
        ),
        (504, "timeout_error", None, Timeout, false),
        (529, "overloaded_error", None, Overloaded, true),
    ] {
        for streaming in [false, true] {
            let body = error(kind_name, code).to_string();
            let reply = Reply::status(
                status,
                &[("retry-after", "12"), ("request-id", "req_2")],
                &body,
            );
            let (result, deltas, seen) = ask(reply, streaming).await;
            let error = result.unwrap_err();
            let detail = format!("status {status}, code {}", code.unwrap_or(kind_name));
            assert_eq!(
                (error.kind, error.not_started, error.detail),
                (kind, not_started, detail)
            );
            assert_eq!(
                (error.status, error.request_id.as_deref()),
                (Some(status), Some("req_2"))
            );
            assert_eq!(error.retry_after, Some(Duration::from_secs(12)));
            assert_eq!((deltas.len(), seen.len()), (0, 1));
        }
    }
    for body in ["", "<html>502</html>", "[]", "{\"error\": 7}"] {
        let error = ask(Reply::status(502, &[], body), false)
            .await
            .0
            .unwrap_err();
        assert_eq!(
            (error.kind, error.detail.as_str()),
            (Failed, "status 502"),
            "{body}"
        );
    }
}

#[tokio::test]
async fn unusable_answers() {
    use ProviderErrorKind::{ContentPolicy, Failed, Overloaded};
    let none = Value::Null;
    let refused = |content: &Value, details: &Value| {
        let mut refused = message(content, "refusal", &none);
        refused["stop_details"] = details.clone();
        refused.to_string()
    };
    let details = json!({"type": "refusal", "category": "bio", "explanation": "about your prompt"});
    for (body, kind, detail) in [
        (
            refused(&json!([]), &none),
            ContentPolicy,
            "status 200, code refusal",
        ),
        (
            refused(&json!([text("Sorry.")]), &details),
            ContentPolicy,
            "status 200, code bio",
        ),
        (
            message(&json!([]), "end_turn", &none).to_string(),
            Failed,
            "empty answer",
        ),
        (
            message(&json!([text("")]), "end_turn", &none).to_string(),
            Failed,
            "empty answer",
        ),
        (
            message(&json!([{"type": "tool_use"}]), "tool_use", &none).to_string(),
            Failed,
            "block without its content",
        ),
        (
            message(&json!([]), "tool_use", &none).to_string(),
            Failed,
            "empty answer",
        ),
        (
            message(&json!("Hi"), "end_turn", &none).to_string(),
            Failed,
            "content is no array",
        ),
        (
            message(&none, "end_turn", &none).to_string(),
            Failed,
            "content is no array",
        ),
        (
            message(&json!([{"type": "text", "text": 7}]), "end_turn", &none).to_string(),
            Failed,
            "block without its content",
        ),
        (
            message(&json!([text("Hi")]), "some_new_reason", &none).to_string(),
            Failed,
            "generation ended in an error",
        ),
        (
            json!({"content": [text("Hi")], "stop_reason": null}).to_string(),
            Failed,
            "answer without a stop reason",
        ),
        ("{}".to_owned(), Failed, "content is no array"),
        ("7".to_owned(), Failed, "content is no array"),
        (String::new(), Failed, "empty body"),
        ("<html>".to_owned(), Failed, "body is not JSON"),
        (
            error("overloaded_error", None).to_string(),
            Overloaded,
            "status 200, code overloaded_error",
        ),
    ] {
        let error = ask(Reply::status(200, &[], &body), false)
            .await
            .0
            .unwrap_err();
        assert_eq!(
            (error.kind, error.not_started, error.detail.as_str()),
            (kind, false, detail),
            "{body}"
        );
    }
    let endless = Reply::Endless("HTTP/1.1 200 X\r\n\r\n".to_owned(), " ".repeat(65_536));
    assert_eq!(
        ask(endless, false).await.0.unwrap_err().detail,
        "body over the cap"
    );
}

#[tokio::test]
async fn a_refusal_keeps_the_text_before_it() {
    let mut refusal = end("refusal");
    refusal["delta"]["stop_details"] = json!({"type": "refusal", "category": "cyber"});
    let items = [start(), delta("Hi"), refusal.clone(), stop()];
    let (result, deltas, _) = ask(Reply::events(&items), true).await;
    let got = result.unwrap();
    assert_eq!(
        (got.stop.clone(), got.text().as_str()),
        (Stop::ContentFilter, "Hi")
    );
    assert_eq!(
        (got.usage.output, &deltas[..]),
        (Some(30), &["Hi".to_owned()][..])
    );
    let (result, ..) = ask(Reply::events(&[start(), refusal, stop()]), true).await;
    assert_eq!(result.unwrap_err().detail, "status 200, code cyber");
}

#[tokio::test]
async fn broken_streams() {
    use ProviderErrorKind::{Account, Failed, Overloaded, Rejected, Timeout};
    let after = |items: &[Value]| {
        let mut all = vec![start(), delta("Hi")];
        all.extend_from_slice(items);
        all
    };
    for (items, kind) in [
        (after(&[]), Failed),
        (after(&[end("end_turn")]), Failed),
        (after(&[json!("{\"type\":")]), Failed),
        (after(&[json!({"no": "type"})]), Failed),
        (
            after(&[json!({"type": "content_block_delta", "delta": {"type": "text_delta"}})]),
            Failed,
        ),
        (after(&[end("refusal")]), Failed),
        (after(&[end("some_new_reason"), stop()]), Failed),
        (after(&[stop()]), Failed),
        (after(&[error("overloaded_error", None)]), Overloaded),
        (after(&[error("rate_limit_error", None)]), Overloaded),
        (
            after(&[error(
                "rate_limit_error",
                Some("contract_spend_limit_reached"),
            )]),
            Account,
        ),
        (after(&[error("api_error", None)]), Failed),
        (after(&[error("timeout_error", None)]), Timeout),
        (after(&[error("invalid_request_error", None)]), Rejected),
        (after(&[error("authentication_error", None)]), Account),
        (after(&[json!({"type": "error"})]), Failed),
    ] {
        let (result, deltas, _) = ask(Reply::events(&items), true).await;
        let error = result.unwrap_err();
        assert_eq!(
            (error.kind, error.not_started, error.status),
            (kind, false, Some(200)),
            "{items:?}"
        );
        assert_eq!(deltas, ["Hi"], "{items:?}");
    }
    let mut uncounted = end("end_turn");
    uncounted["usage"]["output_tokens"] = json!(0);
    let empty = [start(), uncounted, stop()];
    assert_eq!(
        ask(Reply::events(&empty), true).await.0.unwrap_err().detail,
        "empty answer"
    );
    for body in ["", "<html>"] {
        let error = ask(Reply::status(200, &[], body), true)
            .await
            .0
            .unwrap_err();
        assert_eq!(error.detail, "stream was cut", "{body}");
    }
    let body = format!("event: content_block_delta\ndata: {}\n\n", delta("Hi"));
    let (result, deltas, _) = ask(Reply::cut(&body), true).await;
    assert_eq!((result.unwrap_err().kind, deltas.len()), (Failed, 1));
}

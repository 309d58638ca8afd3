//! Gemini's error statuses.

use std::time::Duration;

use super::*;

fn reason(reason: &str) -> Value {
    json!([{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}])
}

fn quota(id: &str) -> Value {
    json!([
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": id}]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.4s"},
    ])
}

async fn check(status: u16, body: &Value, streaming: bool) -> ProviderError {
    let reply = Reply::status(status, &[], &body.to_string());
    let (result, deltas, seen) = ask(reply, streaming).await;
    assert_eq!((deltas.len(), seen.len()), (0, 1));
    result.unwrap_err()
}

#[tokio::test]
async fn error_answers() {
    use ProviderErrorKind::{Account, Failed, Overloaded, Rejected, Timeout};
    for (status, name, kind, not_started) in [
        (400, "INVALID_ARGUMENT", Rejected, false),
        (400, "FAILED_PRECONDITION", Account, false),
        (401, "UNAUTHENTICATED", Account, false),
        (403, "PERMISSION_DENIED", Account, false),
        (404, "NOT_FOUND", Rejected, false),
        (408, "DEADLINE_EXCEEDED", Timeout, false),
        (429, "RESOURCE_EXHAUSTED", Overloaded, true),
        (499, "CANCELLED", Failed, false),
        (500, "INTERNAL", Failed, false),
        (503, "UNAVAILABLE", Overloaded, true),
        (504, "DEADLINE_EXCEEDED", Timeout, false),
    ] {
        let body = error(status, name, &json!("no array"));
        // The body is sometimes in an array of one.
        for (body, streaming) in [(json!([body]), false), (body.clone(), false), (body, true)] {
            let error = check(status, &body, streaming).await;
            assert_eq!(
                (error.kind, error.not_started),
                (kind, not_started),
                "{body}"
            );
            assert_eq!(error.detail, format!("status {status}, code {name}"));
            assert_eq!(error.retry_after, None);
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
async fn details_tell_more_than_the_status() {
    let body = error(400, "INVALID_ARGUMENT", &reason("API_KEY_INVALID"));
    let got = check(400, &body, false).await;
    assert_eq!(got.kind, ProviderErrorKind::Account);
    assert_eq!(got.detail, "status 400, code API_KEY_INVALID");
    for (id, millis) in [
        ("GenerateRequestsPerMinutePerProjectPerModel", 34_400),
        (
            "GenerateRequestsPerDayPerProjectPerModel-FreeTier",
            3_600_000,
        ),
    ] {
        let got = check(429, &error(429, "RESOURCE_EXHAUSTED", &quota(id)), false).await;
        assert_eq!(
            (got.kind, got.not_started),
            (ProviderErrorKind::Overloaded, true)
        );
        assert_eq!(got.retry_after, Some(Duration::from_millis(millis)), "{id}");
    }
}

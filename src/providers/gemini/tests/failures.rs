//! Refusals, and responses with status 200 that are not answers.

use super::*;
use crate::domain::conversation::Stop;

#[tokio::test]
async fn refusals_in_every_form() {
    for block in [
        "SAFETY",
        "OTHER",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "IMAGE_SAFETY",
        "MODEL_ARMOR",
        "JAILBREAK",
        "NEW",
    ] {
        let body = json!({"promptFeedback": {"blockReason": block}, "usageMetadata": {"promptTokenCount": 9}});
        for (reply, streaming) in [(Reply::json(&body), false), (Reply::events(&[body]), true)] {
            let error = ask(reply, streaming).await.0.unwrap_err();
            assert_eq!(error.kind, ProviderErrorKind::ContentPolicy, "{block}");
            assert_eq!(error.detail, format!("status 200, code {block}"));
        }
    }
    for (kind, finishes) in [
        (
            ProviderErrorKind::ContentPolicy,
            &[
                "SAFETY",
                "RECITATION",
                "BLOCKLIST",
                "PROHIBITED_CONTENT",
                "SPII",
                "MODEL_ARMOR",
                "ESCALATION",
                "IMAGE_SAFETY",
                "IMAGE_PROHIBITED_CONTENT",
                "IMAGE_RECITATION",
            ][..],
        ),
        (ProviderErrorKind::Account, &["PUP_LIMITED_DISABLED"]),
        (
            ProviderErrorKind::Failed,
            &[
                "LANGUAGE",
                "OTHER",
                "MALFORMED_FUNCTION_CALL",
                "UNEXPECTED_TOOL_CALL",
                "TOO_MANY_TOOL_CALLS",
                "NO_IMAGE",
                "IMAGE_OTHER",
                "MALFORMED_RESPONSE",
                "MISSING_THOUGHT_SIGNATURE",
                "NEW",
            ],
        ),
    ] {
        for finish in finishes {
            let last = answer(&Value::Null, Some(finish), &Value::Null);
            let whole = answer(&hi(), Some(finish), &Value::Null);
            let error = ask(Reply::json(&whole), false).await.0.unwrap_err();
            assert_eq!((error.kind, error.not_started), (kind, false), "{finish}");
            let items = [answer(&hi(), None, &Value::Null), last];
            let (result, deltas, _) = ask(Reply::events(&items), true).await;
            let stop = match *finish {
                "NEW" => None,
                "MALFORMED_FUNCTION_CALL" => Some(Stop::MalformedFunctionCall),
                _ if kind == ProviderErrorKind::ContentPolicy => Some(Stop::ContentFilter),
                _ => Some(Stop::Other),
            };
            assert_eq!(result.map(|answer| answer.stop).ok(), stop, "{finish}");
            assert_eq!(deltas, ["Hi"], "{finish}");
        }
    }
}

#[tokio::test]
async fn unusable_answers() {
    let none = Value::Null;
    for (body, detail) in [
        (
            answer(&json!([]), Some("STOP"), &none).to_string(),
            "empty answer",
        ),
        (
            answer(
                &json!([{"text": "hm", "thought": true}]),
                Some("STOP"),
                &none,
            )
            .to_string(),
            "empty answer",
        ),
        (
            answer(&json!([{"text": 7}]), Some("STOP"), &none).to_string(),
            "text is no string",
        ),
        (
            answer(&json!("Hi"), Some("STOP"), &none).to_string(),
            "parts are no array",
        ),
        (
            json!({"candidates": 7}).to_string(),
            "candidates are no array",
        ),
        (json!({"candidates": []}).to_string(), "empty answer"),
        ("{}".to_owned(), "empty answer"),
        ("[]".to_owned(), "answer is no object"),
        ("7".to_owned(), "answer is no object"),
        (String::new(), "empty body"),
        ("<html>".to_owned(), "body is not JSON"),
    ] {
        let error = ask(Reply::status(200, &[], &body), false)
            .await
            .0
            .unwrap_err();
        assert_eq!(
            (error.kind, error.detail.as_str()),
            (ProviderErrorKind::Failed, detail),
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
async fn broken_streams() {
    use ProviderErrorKind::{Failed, Overloaded, Rejected};
    let first = answer(&hi(), None, &Value::Null);
    for (last, kind) in [
        (None, Failed),
        (Some(json!("{\"candidates\":")), Failed),
        (Some(json!([])), Failed),
        (Some(error(503, "UNAVAILABLE", &json!([]))), Overloaded),
        (
            Some(json!([error(429, "RESOURCE_EXHAUSTED", &json!([]))])),
            Overloaded,
        ),
        (Some(error(400, "INVALID_ARGUMENT", &json!([]))), Rejected),
        (Some(error(500, "INTERNAL", &json!([]))), Failed),
    ] {
        let items: Vec<Value> = [Some(first.clone()), last].into_iter().flatten().collect();
        let (result, deltas, _) = ask(Reply::events(&items), true).await;
        let error = result.unwrap_err();
        assert_eq!(
            (error.kind, error.not_started, error.status),
            (kind, false, Some(200)),
            "{items:?}"
        );
        assert_eq!(deltas, ["Hi"]);
    }
    for body in ["", "<html>"] {
        let error = ask(Reply::status(200, &[], body), true)
            .await
            .0
            .unwrap_err();
        assert_eq!(error.detail, "stream was cut", "{body}");
    }
    let (result, deltas, _) = ask(Reply::cut(&format!("data: {first}\n\n")), true).await;
    assert_eq!((result.unwrap_err().kind, deltas.len()), (Failed, 1));
}

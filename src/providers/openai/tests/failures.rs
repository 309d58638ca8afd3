//! Responses with status 200 that are not answers.

use std::time::Duration;

use super::*;

#[tokio::test]
async fn unusable_answers() {
    use ProviderErrorKind::{ContentPolicy, Failed, Overloaded, Rejected};
    let none = Value::Null;
    let mut refusal = answer(&none, "stop", &none);
    refusal["choices"][0]["message"]["refusal"] = json!("I cannot help with that.");
    for (body, kind) in [
        (refusal.to_string(), ContentPolicy),
        (
            answer(&json!("some"), "content_filter", &none).to_string(),
            ContentPolicy,
        ),
        (answer(&none, "stop", &none).to_string(), Failed),
        (answer(&json!(""), "stop", &none).to_string(), Failed),
        (answer(&none, "tool_calls", &none).to_string(), Failed),
        (answer(&json!(7), "stop", &none).to_string(), Failed),
        (answer(&json!("x"), "error", &none).to_string(), Failed),
        (json!({"choices": []}).to_string(), Failed),
        (json!({"choices": null}).to_string(), Failed),
        (json!({"choices": {"0": 1}}).to_string(), Failed),
        (json!({"choices": [null]}).to_string(), Failed),
        (json!({"choices": [{"message": "Hi"}]}).to_string(), Failed),
        (json!({}).to_string(), Failed),
        ("[]".to_owned(), Failed),
        ("null".to_owned(), Failed),
        ("\"Hi\"".to_owned(), Failed),
        ("<html>".to_owned(), Failed),
        (String::new(), Failed),
        (
            json!({"error": {"code": 429, "message": "m"}}).to_string(),
            Overloaded,
        ),
        (
            json!({"object": "error", "code": 400, "message": "m"}).to_string(),
            Rejected,
        ),
        (json!({"error": "broken"}).to_string(), Failed),
    ] {
        let error = ask(Reply::status(200, &[], &body), false)
            .await
            .0
            .unwrap_err();
        assert_eq!((error.kind, error.not_started), (kind, false), "{body}");
        assert_eq!(error.status, Some(200), "{body}");
    }
    let null_error = answer(&json!("Hi"), "stop", &none);
    let null_error = json!({"error": null, "choices": null_error["choices"]});
    assert_eq!(
        ask(Reply::json(&null_error), false).await.0.unwrap().text(),
        "Hi"
    );
    let long = answer(&json!("x".repeat(5 << 20)), "stop", &none);
    assert_eq!(
        ask(Reply::json(&long), false).await.0.unwrap_err().detail,
        "text over the cap"
    );
    let endless = Reply::Endless("HTTP/1.1 200 X\r\n\r\n".to_owned(), " ".repeat(65_536));
    assert_eq!(
        ask(endless, false).await.0.unwrap_err().detail,
        "body over the cap"
    );
}

#[tokio::test]
async fn broken_streams() {
    use ProviderErrorKind::{Account, ContentPolicy, Failed, Overloaded, Rejected};
    let hi = chunk(&json!({"content": "Hi"}), None);
    let with_error = |error: &Value| vec![hi.clone(), json!({"error": error})];
    for (items, kind) in [
        (vec![hi.clone()], Failed),
        (vec![hi.clone(), json!("[DONE]")], Failed),
        (vec![hi.clone(), chunk(&json!({}), Some(""))], Failed),
        (vec![hi.clone(), json!("{\"choices\": [")], Failed),
        (vec![hi.clone(), json!(7)], Failed),
        (
            vec![hi.clone(), chunk(&json!({"content": {"a": 1}}), None)],
            Failed,
        ),
        (
            vec![hi.clone(), chunk(&json!({"refusal": "I cannot"}), None)],
            Failed,
        ),
        (
            vec![hi.clone(), chunk(&json!({}), Some("network_error"))],
            Failed,
        ),
        (
            vec![
                hi.clone(),
                json!({"type": "error", "message": "m", "code": 503}),
            ],
            Overloaded,
        ),
        (
            with_error(&json!({"message": "m", "type": "server_error", "code": null})),
            Failed,
        ),
        (with_error(&json!({"message": "m", "code": 502})), Failed),
        (
            with_error(&json!({"message": "m", "code": "rate_limit_exceeded"})),
            Overloaded,
        ),
        (
            with_error(&json!({"message": "m", "type": "insufficient_quota"})),
            Account,
        ),
        (
            with_error(&json!({"message": "m", "code": "invalid_prompt"})),
            ContentPolicy,
        ),
        (
            with_error(&json!({"message": "m", "type": "invalid_request_error"})),
            Rejected,
        ),
        (with_error(&json!("it broke")), Failed),
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
    let empty = [
        chunk(&json!({"content": ""}), Some("stop")),
        json!("[DONE]"),
    ];
    assert_eq!(
        ask(Reply::events(&empty), true).await.0.unwrap_err().detail,
        "empty answer"
    );
    for body in ["", "<html>"] {
        let error = ask(Reply::status(200, &[], body), true)
            .await
            .0
            .unwrap_err();
        assert_eq!(
            (error.kind, error.detail.as_str()),
            (Failed, "stream was cut"),
            "{body}"
        );
    }
    // JSON without a content type is a whole answer.
    let body = answer(&json!("Hi"), "stop", &Value::Null).to_string();
    let (result, ..) = ask(Reply::status(200, &[], &body), true).await;
    assert_eq!(result.unwrap().text(), "Hi");
}

#[tokio::test]
async fn a_stream_cut_on_the_wire() {
    for finish in [None, Some("stop")] {
        let body = format!("data: {}\n\n", chunk(&json!({"content": "Hi"}), finish));
        let (result, deltas, _) = ask(Reply::cut(&body), true).await;
        let error = result.unwrap_err();
        assert_eq!(
            (error.kind, error.not_started, deltas.len()),
            (ProviderErrorKind::Failed, false, 1)
        );
    }
    let piece = format!(": {}\n\n", "x".repeat(65_536));
    let head = "HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\n\r\n".to_owned();
    let error = ask(Reply::Endless(head, piece), true).await.0.unwrap_err();
    assert_eq!(
        (error.kind, error.detail.as_str()),
        (ProviderErrorKind::Failed, "stream over the cap")
    );
}

#[tokio::test]
async fn a_stream_that_stalls_is_a_timeout() {
    let event = format!("data: {}\n\n", chunk(&json!({"content": "Hi"}), None));
    let head = "HTTP/1.1 200 X\r\nx-request-id: req-3\r\n\r\n";
    let upstream = Upstream::start(Reply::Stalled(format!("{head}{event}"))).await;
    let wait = Duration::from_millis(500);
    let adapter = OpenAi::new(&setup(&upstream.base, wait), client).unwrap();
    let (result, deltas) = streamed(&adapter, &call()).await;
    let error = result.unwrap_err();
    assert_eq!(
        (error.kind, error.not_started),
        (ProviderErrorKind::Timeout, false)
    );
    assert_eq!(error.request_id.as_deref(), Some("req-3"));
    assert_eq!(deltas, ["Hi"]);
}

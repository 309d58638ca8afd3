//! States of an interaction.

use super::*;

#[tokio::test]
async fn an_interaction_under_way() {
    for status in ["queued", "in_progress", "idle", "dreaming"] {
        let body = json!({"id": "v1_abc", "status": status});
        assert!(matches!(
            poll(Reply::json(&body)).await.unwrap(),
            VideoStatus::Running { progress: None }
        ));
    }
}

#[tokio::test]
async fn an_interaction_that_is_done() {
    let video = |uri: &str| json!({"type": "video", "mime_type": "video/mp4", "uri": uri});
    let uri = "https://a.test/files/x:download?alt=media";
    let top = json!({"status": "completed", "output_video": video(uri)});
    let idle = |mut body: Value| {
        body["status"] = json!("idle");
        body
    };
    for body in [
        idle(said(&json!([video(uri)]))),
        idle(said(
            &json!([{"type": "text", "text": "Here."}, video(uri)]),
        )),
        idle(top.clone()),
        said(&json!([video(uri)])),
        said(&json!([{"type": "text", "text": "Here."}, video(uri)])),
        top,
    ] {
        match poll(Reply::json(&body)).await.unwrap() {
            VideoStatus::Done(VideoOutput::Url { url, header: None }) => {
                assert_eq!(url.as_str(), uri);
            }
            other => panic!("{body}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn an_interaction_that_failed() {
    use ProviderErrorKind::{ContentPolicy, Failed};
    let words = said(&json!([{"type": "text", "text": "I cannot make that."}]));
    let mut lost = words.clone();
    lost["usage"] = json!({"output_tokens_by_modality": [{"modality": "VIDEO", "tokens": 46336}]});
    let listed = |code: &str| json!({"status": "failed", "errors": [{"code": code, "message": "your prompt"}]});
    let rpc =
        json!({"code": 3, "message": "blocked", "details": [{"reason": "PROHIBITED_CONTENT"}]});
    let mut idle = words.clone();
    idle["status"] = json!("idle");
    for (body, kind) in [
        (idle, ContentPolicy),
        (words, ContentPolicy),
        (lost, Failed),
        (said(&json!([])), Failed),
        (said(&json!([{"type": "text", "text": " "}])), Failed),
        (
            said(&json!([{"type": "video", "mime_type": "video/mp4"}])),
            Failed,
        ),
        (said(&json!([{"type": "video", "uri": "files/a"}])), Failed),
        (json!({"status": "completed"}), Failed),
        (listed("SAFETY"), ContentPolicy),
        (listed("prohibited_content"), ContentPolicy),
        (listed("BLOCKLIST"), ContentPolicy),
        (listed("SPII"), ContentPolicy),
        (listed("INTERNAL"), Failed),
        (json!({"status": "failed"}), Failed),
        (
            json!({"status": "failed", "steps": [{"type": "model_output", "error": rpc}]}),
            ContentPolicy,
        ),
        (
            json!({"status": "failed", "error": {"code": "internal", "message": "m"}}),
            Failed,
        ),
        (json!({"status": "cancelled"}), Failed),
        (json!({"status": "incomplete"}), Failed),
        (json!({"status": "budget_exceeded"}), Failed),
        (json!({"status": "requires_action"}), Failed),
        (json!({"status": "requires_continuation"}), Failed),
    ] {
        match poll(Reply::json(&body)).await.unwrap() {
            VideoStatus::Failed(error) => {
                assert_eq!((error.kind, error.not_started), (kind, false), "{body}");
                assert!(!error.detail.contains("prompt"), "{}", error.detail);
            }
            other => panic!("{body}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn gone_or_not_to_be_seen() {
    let unknown = json!({"error": {"code": "invalid_request", "message": "Invalid interaction name: v1_abc"}});
    let numeric = json!([{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "Invalid interaction name."}}]);
    for (status, body) in [
        (400, unknown.to_string()),
        (400, numeric.to_string()),
        (404, String::new()),
    ] {
        let status = poll(Reply::status(status, &[], &body)).await.unwrap();
        assert!(matches!(status, VideoStatus::Gone), "{body}");
    }
    for (reply, kind) in [
        (
            Reply::status(
                400,
                &[],
                "{\"error\": {\"code\": \"invalid_request\", \"message\": \"Busy\"}}",
            ),
            ProviderErrorKind::Rejected,
        ),
        (
            Reply::status(400, &[], "<html>"),
            ProviderErrorKind::Rejected,
        ),
        (Reply::status(401, &[], "{}"), ProviderErrorKind::Account),
        (Reply::status(503, &[], ""), ProviderErrorKind::Overloaded),
        (Reply::status(200, &[], "<html>"), ProviderErrorKind::Failed),
        (Reply::status(200, &[], ""), ProviderErrorKind::Failed),
        (
            Reply::json(&json!({"id": "v1_abc"})),
            ProviderErrorKind::Failed,
        ),
        (
            Reply::json(&json!({"error": {"code": 503, "status": "UNAVAILABLE"}})),
            ProviderErrorKind::Overloaded,
        ),
    ] {
        assert_eq!(poll(reply).await.unwrap_err().kind, kind);
    }
}

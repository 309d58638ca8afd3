//! States of a task.

use super::*;

#[tokio::test]
async fn a_task_under_way() {
    for (body, want) in [
        (json!({"status": "PENDING"}), None),
        (
            json!({"status": "THROTTLED", "estimatedCost": {"credits": 60}}),
            None,
        ),
        (json!({"status": "RUNNING", "progress": 0.0}), Some(0)),
        (json!({"status": "RUNNING", "progress": 0.42}), Some(42)),
        (json!({"status": "RUNNING", "progress": 1}), Some(100)),
        (json!({"status": "RUNNING", "progress": 42}), Some(100)),
        (json!({"status": "RUNNING", "progress": -1}), Some(0)),
        (json!({"status": "RUNNING", "progress": "half"}), None),
        (json!({"status": "DREAMING"}), None),
    ] {
        match poll(Reply::json(&body)).await.unwrap() {
            VideoStatus::Running { progress } => assert_eq!(progress, want, "{body}"),
            other => panic!("{body}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_task_that_is_done() {
    let output = "https://x.cloudfront.net/a.mp4?_jwt=b";
    let done = |output: &str| json!({"status": "SUCCEEDED", "output": [output, "b"]});
    match poll(Reply::json(&done(output))).await.unwrap() {
        VideoStatus::Done(VideoOutput::Url { url, header: None }) => {
            assert_eq!(url.as_str(), output);
        }
        other => panic!("{other:?}"),
    }
    // No key, not even for our own origin.
    let upstream = Upstream::start(Reply::json(&done("http://127.0.0.1/a.mp4"))).await;
    assert!(matches!(
        poll(Reply::json(&done(&format!("{}/a.mp4", upstream.base))))
            .await
            .unwrap(),
        VideoStatus::Done(VideoOutput::Url { header: None, .. })
    ));
    for output in [
        json!([]),
        json!(null),
        json!([7]),
        json!(["a.mp4"]),
        json!("x"),
    ] {
        let body = json!({"status": "SUCCEEDED", "output": output});
        match poll(Reply::json(&body)).await.unwrap() {
            VideoStatus::Failed(error) => assert_eq!(error.kind, ProviderErrorKind::Failed),
            other => panic!("{body}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_task_that_failed() {
    use ProviderErrorKind::{ContentPolicy, Failed, Rejected};
    let failed =
        |code: &str| json!({"status": "FAILED", "failure": "your prompt", "failureCode": code});
    for (body, kind, code) in [
        (
            failed("SAFETY.INPUT.TEXT"),
            ContentPolicy,
            "SAFETY.INPUT.TEXT",
        ),
        (
            failed("SAFETY.OUTPUT.VIDEO"),
            ContentPolicy,
            "SAFETY.OUTPUT.VIDEO",
        ),
        (
            failed("INPUT_PREPROCESSING.SAFETY.TEXT"),
            ContentPolicy,
            "INPUT_PREPROCESSING.SAFETY.TEXT",
        ),
        (
            failed("INPUT_PREPROCESSING.INTERNAL"),
            Failed,
            "INPUT_PREPROCESSING.INTERNAL",
        ),
        (
            failed("INTERNAL.BAD_OUTPUT.CODE01"),
            Failed,
            "INTERNAL.BAD_OUTPUT.CODE01",
        ),
        (failed("INTERNAL"), Failed, "INTERNAL"),
        (
            failed("THIRD_PARTY.UNAVAILABLE"),
            Failed,
            "THIRD_PARTY.UNAVAILABLE",
        ),
        (failed("ASSET.INVALID"), Rejected, "ASSET.INVALID"),
        (json!({"status": "FAILED"}), Failed, "FAILED"),
        (
            json!({"status": "CANCELLED", "cost": {"credits": 0}}),
            Failed,
            "CANCELLED",
        ),
    ] {
        match poll(Reply::json(&body)).await.unwrap() {
            VideoStatus::Failed(error) => {
                assert_eq!((error.kind, error.not_started), (kind, false), "{body}");
                assert_eq!(error.detail, format!("status 200, code {code}"));
            }
            other => panic!("{body}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_task_that_is_gone_or_cannot_be_seen() {
    let lost = Reply::status(404, &[], "{\"error\": \"Not found\"}");
    assert!(matches!(poll(lost).await.unwrap(), VideoStatus::Gone));
    // A failed poll does not fail the task.
    for (reply, kind) in [
        (Reply::status(401, &[], "{}"), ProviderErrorKind::Account),
        (Reply::status(429, &[], "{}"), ProviderErrorKind::Overloaded),
        (Reply::status(502, &[], "<html>"), ProviderErrorKind::Failed),
        (Reply::status(200, &[], "<html>"), ProviderErrorKind::Failed),
        (Reply::status(200, &[], ""), ProviderErrorKind::Failed),
        (Reply::json(&json!({"id": TASK})), ProviderErrorKind::Failed),
        (Reply::json(&json!([])), ProviderErrorKind::Failed),
        (Reply::Raw(String::new()), ProviderErrorKind::Failed),
    ] {
        assert_eq!(poll(reply).await.unwrap_err().kind, kind);
    }
}

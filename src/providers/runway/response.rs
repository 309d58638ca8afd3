//! Parses a task: its state, the URL of its video, and why it failed.
//!
//! Sources: runwayml 5.24.0 (`PyPI`) `runwayml/types/task_retrieve_response.py`;
//! docs.dev.runwayml.com errors/task-failures; issue 28 of runwayml/sdk-node for the lack of
//! credits.

use serde_json::Value;
use url::Url;

use super::super::{
    ProviderError, ProviderErrorKind, VideoOutput, VideoStatus,
    http::{
        VendorClient,
        classify::{ErrorInfo, Head},
        vendor_message::VendorMessage,
    },
};

/// `{"error": "a sentence"}` has no code, and an account without credits is reported only by its
/// sentence, with status 400.
pub fn error_info(root: Option<&Value>) -> ErrorInfo {
    let text = root
        .and_then(|root| root.get("error")?.as_str())
        .unwrap_or_default();
    let broke = text.to_lowercase().contains("enough credits");
    ErrorInfo {
        code: broke.then(|| "no_credits".to_owned()),
        kind: broke.then_some(ProviderErrorKind::Account),
        vendor_message: VendorMessage::read(root),
        ..ErrorInfo::default()
    }
}

/// Fails when `root` is not a task.
pub fn status(
    client: &VendorClient,
    head: &Head,
    root: &Value,
) -> Result<VideoStatus, ProviderError> {
    let Some(status) = root["status"].as_str() else {
        return Err(head.failed("answer without a status"));
    };
    Ok(match status {
        "SUCCEEDED" => succeeded(head, root),
        "FAILED" | "CANCELLED" => {
            let code = root["failureCode"].as_str();
            let kind = code.and_then(kind);
            VideoStatus::Failed(client.error_of_code(head, code.unwrap_or(status), kind))
        }
        // PENDING; THROTTLED, which is our account's limit of running tasks; RUNNING; unknown
        // states.
        _ => VideoStatus::Running {
            progress: progress(root),
        },
    })
}

/// The output is on another host and needs no key.
fn succeeded(head: &Head, root: &Value) -> VideoStatus {
    let url = root.pointer("/output/0").and_then(Value::as_str);
    match url.and_then(|url| Url::parse(url).ok()) {
        Some(url) => VideoStatus::Done(VideoOutput::Url { url, header: None }),
        None => VideoStatus::Failed(head.failed("task without an output")),
    }
}

/// `SAFETY.INPUT.TEXT`, `INPUT_PREPROCESSING.SAFETY.TEXT`, `THIRD_PARTY.SAFETY`: a refusal
/// wherever `SAFETY` occurs. `ASSET.INVALID` is an invalid request. The rest
/// (`INTERNAL.*`, `INPUT_PREPROCESSING.INTERNAL`, `THIRD_PARTY.*`) is the provider's.
fn kind(code: &str) -> Option<ProviderErrorKind> {
    if code.split('.').any(|word| word == "SAFETY") {
        Some(ProviderErrorKind::ContentPolicy)
    } else if code.starts_with("ASSET.") {
        Some(ProviderErrorKind::Rejected)
    } else {
        None
    }
}

/// A fraction from 0 to 1 as percent.
fn progress(root: &Value) -> Option<u8> {
    let fraction = root.get("progress")?.as_f64()?;
    let percent = (fraction.clamp(0.0, 1.0) * 100.0).round();
    (0..=100_u8).find(|whole| f64::from(*whole) >= percent)
}

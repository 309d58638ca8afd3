//! Parses an interaction: its state, the URL of its video, and errors.
//!
//! Errors are `{"error": {"code": "invalid_request", "message"}}` with a word as the code, or the
//! numeric form of Google's front end. Two errors have no code and are matched by message: an
//! unknown id, and a request refused for its content. Neither message is kept.
//!
//! Source: google-genai 3.4.0 (`PyPI`) `_gaos/types/interactions/interaction.py`,
//! `modeloutputstep.py`, `videocontent.py`, `usage.py`.

use serde_json::Value;
use url::Url;

use super::super::{
    super::{
        ProviderError, ProviderErrorKind, VideoOutput, VideoStatus,
        http::{
            VendorClient,
            classify::{self, ErrorInfo, Head, machine_code},
        },
    },
    error_info as gemini_error_info, error_of,
};

/// Words that mark a refusal, in codes (any case) and messages.
const POLICY: [&str; 8] = [
    "safety",
    "prohibited_content",
    "prohibited content",
    "blocklist",
    "spii",
    "recitation",
    "content_policy",
    "content policy",
];

/// Reads the state of an interaction. The caller adds the header that the file may need. Fails if
/// `root` is not an interaction.
pub fn status(
    client: &VendorClient,
    head: &Head,
    root: &Value,
) -> Result<VideoStatus, ProviderError> {
    if error_of(root).is_some() && root.get("status").is_none() {
        return Err(client.error(head, Some(root)));
    }
    let Some(status) = root["status"].as_str() else {
        return Err(head.failed("answer without a status"));
    };
    Ok(match status {
        "completed" => completed(head, root),
        "idle" if has_output(root) => completed(head, root),
        "failed"
        | "cancelled"
        | "incomplete"
        | "budget_exceeded"
        | "requires_action"
        | "requires_continuation" => VideoStatus::Failed(failure(client, head, root, status)),
        // Queued, running, or an unknown state.
        _ => VideoStatus::Running { progress: None },
    })
}

fn completed(head: &Head, root: &Value) -> VideoStatus {
    let own = root.get("output_video");
    let video = contents(root)
        .filter(|content| content["type"].as_str() == Some("video"))
        .chain(own)
        .next();
    if let Some(video) = video {
        let url = video["uri"].as_str();
        return match url.and_then(|url| Url::parse(url).ok()) {
            Some(url) => VideoStatus::Done(VideoOutput::Url { url, header: None }),
            None => VideoStatus::Failed(head.failed("video without an address")),
        };
    }
    let spoke = contents(root)
        .filter_map(|content| content.get("text"))
        .chain(root.get("output_text"))
        .filter_map(Value::as_str)
        .any(|text| !text.trim().is_empty());
    // A refusal is text instead of a video (live).
    VideoStatus::Failed(if spoke && !has_video_tokens(root) {
        head.refused(None)
    } else {
        head.failed("completed without a video")
    })
}

/// Whether an interaction that is not running has an output. `idle` does not always mean the end.
fn has_output(root: &Value) -> bool {
    let own = ["output_video", "output_text"];
    contents(root).next().is_some() || own.iter().any(|name| root.get(name).is_some())
}

/// Returns the model's output, without its input.
fn contents(root: &Value) -> impl Iterator<Item = &Value> {
    steps(root)
        .filter(|step| step["type"].as_str() == Some("model_output"))
        .filter_map(|step| step.get("content")?.as_array())
        .flatten()
}

fn steps(root: &Value) -> impl Iterator<Item = &Value> {
    root["steps"].as_array().into_iter().flatten()
}

fn has_video_tokens(root: &Value) -> bool {
    root.pointer("/usage/output_tokens_by_modality")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .any(|count| {
            let modality = count["modality"].as_str();
            modality.is_some_and(|word| word.eq_ignore_ascii_case("video"))
                && count["tokens"].as_u64() > Some(0)
        })
}

fn failure(client: &VendorClient, head: &Head, root: &Value, status: &str) -> ProviderError {
    let listed = root["errors"].as_array().into_iter().flatten();
    let errors: Vec<&Value> = listed
        .chain(steps(root).filter_map(|step| step.get("error")))
        .chain(root.get("error"))
        .collect();
    let refusal = errors.iter().any(|error| is_refusal(error));
    let code = errors
        .iter()
        .filter_map(|error| error.get("code")?.as_str())
        .find_map(machine_code);
    let kind = refusal.then_some(ProviderErrorKind::ContentPolicy);
    client.error_of_code(head, code.unwrap_or(status), kind)
}

pub fn error_info(root: Option<&Value>) -> ErrorInfo {
    let mut found = gemini_error_info(root);
    if let Some(error) = root.and_then(error_of) {
        let word = classify::code(error.get("code"));
        found.code = found.code.or(word.map(str::to_owned));
        if found.kind.is_none() && is_refusal(error) {
            found.kind = Some(ProviderErrorKind::ContentPolicy);
        }
    }
    found
}

/// Whether an error object, also one inside an interaction, is a content refusal.
pub fn is_refusal(error: &Value) -> bool {
    let is_policy = |text: &str| {
        let text = text.to_lowercase();
        POLICY.iter().any(|word| text.contains(word))
    };
    let details = error["details"].as_array().into_iter().flatten();
    let reasons = details.filter_map(|detail| detail.get("reason"));
    ["code", "status", "message"]
        .into_iter()
        .filter_map(|name| error.get(name))
        .chain(reasons)
        .filter_map(Value::as_str)
        .any(is_policy)
}

/// Whether the task is unknown: 400 "Invalid interaction name" (live), or 404. Any other 400 may be
/// transient (live).
pub fn is_unknown_task(status: u16, root: Option<&Value>) -> bool {
    let message = || {
        root.and_then(error_of)?
            .get("message")?
            .as_str()
            .map(str::to_lowercase)
    };
    match status {
        404 => true,
        400 => message().is_some_and(|text| text.contains("invalid interaction name")),
        _ => false,
    }
}

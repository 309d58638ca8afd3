//! Parses an interaction: its state and the URL of its video.
//!
//! Source: google-genai 3.4.0 (`PyPI`) `_gaos/types/interactions/interaction.py`,
//! `modeloutputstep.py`, `videocontent.py`, `usage.py`.

use serde_json::Value;
use url::Url;

use super::{
    super::super::{
        ProviderError, ProviderErrorKind,
        http::{
            VendorClient,
            classify::{Head, machine_code},
        },
    },
    errors,
};

#[derive(Debug)]
pub enum State {
    /// Queued, running, or an unknown state.
    Running,
    Done(Url),
    Failed(ProviderError),
}

/// Fails when `root` is not an interaction.
pub fn state(client: &VendorClient, head: &Head, root: &Value) -> Result<State, ProviderError> {
    if errors::is_error(root) && root.get("status").is_none() {
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
        | "requires_continuation" => State::Failed(failure(client, head, root, status)),
        _ => State::Running,
    })
}

fn completed(head: &Head, root: &Value) -> State {
    let own = root.get("output_video");
    let video = contents(root)
        .filter(|content| content["type"].as_str() == Some("video"))
        .chain(own)
        .next();
    if let Some(video) = video {
        let url = video["uri"].as_str();
        return match url.and_then(|url| Url::parse(url).ok()) {
            Some(url) => State::Done(url),
            None => State::Failed(head.failed("video without an address")),
        };
    }
    let spoke = contents(root)
        .filter_map(|content| content.get("text"))
        .chain(root.get("output_text"))
        .filter_map(Value::as_str)
        .any(|text| !text.trim().is_empty());
    // A refusal is text instead of a video (live).
    State::Failed(if spoke && !has_video_tokens(root) {
        head.refused(None)
    } else {
        head.failed("completed without a video")
    })
}

/// Whether an interaction that is not running has an output: `idle` is not always the end.
fn has_output(root: &Value) -> bool {
    let own = ["output_video", "output_text"];
    contents(root).next().is_some() || own.iter().any(|name| root.get(name).is_some())
}

/// The model's output, not its input.
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
    let refusal = errors.iter().any(|error| errors::is_refusal(error));
    let code = errors
        .iter()
        .filter_map(|error| error.get("code")?.as_str())
        .find_map(machine_code);
    let kind = refusal.then_some(ProviderErrorKind::ContentPolicy);
    client.error_of_code(head, code.unwrap_or(status), kind)
}

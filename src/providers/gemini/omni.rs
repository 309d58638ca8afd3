//! Gemini Omni: video through the Interactions API, in background mode.
//!
//! Submodule: parsing of interactions ([`response`]). Sources: google-genai 3.4.0 (`PyPI`)
//! `google/genai/_gaos/types/interactions/`; checked against requests recorded from the package.
//! Rules marked "live" come from live responses in the tests of a public adapter.

pub mod response;

use async_trait::async_trait;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::{
    super::{
        InputPicture, ProviderError, VideoCall, VideoOutput, VideoProvider, VideoStatus,
        answer::task_id,
        http::{Answer, RequestJson, SetupError, TEXT_BODY_CAP, VendorClient},
        media_call::inputs_with_role,
        setup::{Adapter, Setup},
    },
    KEY, error_of,
};
use crate::{
    catalogue::{ModelKind, vendor::ModelSettings},
    domain::{
        inputs::InputRole,
        settings::{ConfigError, words},
    },
    request::Ratio,
};

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OmniModel {
    /// `resolution`, which determines the price.
    #[serde(deserialize_with = "resolution")]
    pub resolution: String,
}

impl Default for OmniModel {
    fn default() -> Self {
        Self {
            resolution: "720p".to_owned(),
        }
    }
}

words! {
    resolution -> String = word("360p", "720p", "1080p", "4k");
}

impl ModelSettings for OmniModel {
    fn check(&self, model: &ModelKind) -> Result<(), ConfigError> {
        let ModelKind::Video(video) = model else {
            return Ok(());
        };
        let makes = |text: &str| {
            let ratio = Ratio::parse(text).map(|ratio| ratio.reduced().to_string());
            matches!(ratio.as_deref(), Some("16:9" | "9:16"))
        };
        let mut ratios = video.limits.ratios.iter().flatten();
        match ratios.find(|text| !makes(text)) {
            None => Ok(()),
            Some(other) => Err(ConfigError::new(
                "limits.ratios",
                format!("holds \"{other}\": Gemini Omni makes 16:9 and 9:16 only"),
            )),
        }
    }
}

/// Builds the body. Without `background` the call would take as long as the generation (live).
fn body(call: &VideoCall, settings: &OmniModel) -> Value {
    let (width, height) = call.ratio;
    let mut body = json!({
        "model": call.model,
        "input": input(call),
        "background": true,
        "response_format": {
            "type": "video",
            "delivery": "uri",
            "aspect_ratio": format!("{width}:{height}"),
            "resolution": settings.resolution,
            // A bare number is refused (live).
            "duration": format!("{}s", call.duration),
        },
    });
    let is_frame = |picture: &InputPicture| picture.role == InputRole::FirstFrame;
    if !call.inputs.is_empty() {
        let task = if call.inputs.iter().any(is_frame) {
            "image_to_video"
        } else {
            "reference_to_video"
        };
        body["generation_config"] = json!({"video_config": {"task": task}});
    }
    body
}

/// Returns the pictures, if any, followed by the prompt. The first frame precedes the last frame.
fn input(call: &VideoCall) -> Value {
    if call.inputs.is_empty() {
        return json!(call.prompt);
    }
    let roles = [
        InputRole::FirstFrame,
        InputRole::LastFrame,
        InputRole::Reference,
    ];
    let pictures = roles
        .iter()
        .flat_map(|&role| inputs_with_role(&call.inputs, role));
    let pictures = pictures.map(|picture| {
        json!({
            "type": "image",
            "data": picture.base64(),
            "mime_type": picture.content_type,
        })
    });
    let prompt = json!({"type": "text", "text": call.prompt});
    pictures.chain([prompt]).collect()
}

pub type GeminiOmni = Adapter<OmniModel>;

/// Builds the client. The timeout bounds one call (a submission or a poll), not the generation.
pub fn client(setup: &Setup) -> Result<VendorClient, SetupError> {
    let mut client = super::client(setup)?;
    client.error_info = response::error_info;
    Ok(client)
}

impl GeminiOmni {
    /// Calls a task. Returns the response, or `None` if the task is unknown.
    async fn task(&self, method: Method, path: &[&str]) -> Result<Option<Answer>, ProviderError> {
        let url = self.client.url(&[&["interactions"], path].concat());
        let answer = self.client.bare(method, url).await?;
        if answer.head().is_success() {
            return Ok(Some(answer));
        }
        let (head, body) = answer.error_json().await;
        if response::is_unknown_task(head.status, body.as_ref()) {
            return Ok(None);
        }
        Err(self.client.error(&head, body.as_ref()))
    }

    /// Returns the output. The file is on the API's own host and needs the key.
    fn output(&self, mut url: Url) -> VideoOutput {
        let own = url.origin() == self.client.url(&[]).origin();
        if own && !url.query_pairs().any(|(name, _)| name == "alt") {
            url.query_pairs_mut().append_pair("alt", "media");
        }
        let key = self.client.headers.get(KEY).filter(|_| own);
        VideoOutput::Url {
            url,
            header: key.map(|key| (KEY, key.clone())),
        }
    }
}

#[async_trait]
impl VideoProvider for GeminiOmni {
    async fn submit(&self, call: &VideoCall) -> Result<String, ProviderError> {
        let body = RequestJson::of(&body(call, &self.settings(&call.model)))?;
        let url = self.client.url(&["interactions"]);
        let answer = self.client.post(url, body).await?;
        let (head, root) = answer.json(TEXT_BODY_CAP).await?;
        if error_of(&root).is_some() {
            return Err(self.client.error(&head, Some(&root)));
        }
        task_id(root.get("id")).ok_or_else(|| head.failed("answer without a task id"))
    }

    /// Polls once. Returns [`VideoStatus::Gone`] as soon as the provider does; the caller decides
    /// whether that can be replication lag after the submission.
    async fn poll(&self, task: &str, _call: &VideoCall) -> Result<VideoStatus, ProviderError> {
        let Some(answer) = self.task(Method::GET, &[task]).await? else {
            return Ok(VideoStatus::Gone);
        };
        let (head, root) = answer.json(TEXT_BODY_CAP).await?;
        match response::status(&self.client, &head, &root)? {
            VideoStatus::Done(VideoOutput::Url { url, .. }) => {
                Ok(VideoStatus::Done(self.output(url)))
            }
            status => Ok(status),
        }
    }

    /// Cancels a task. An unknown or finished task counts as cancelled.
    async fn cancel(&self, task: &str) -> Result<(), ProviderError> {
        self.task(Method::POST, &[task, "cancel"]).await?;
        Ok(())
    }

    fn has_model(&self, model: &str) -> bool {
        self.models.contains_key(model)
    }
}

#[cfg(test)]
mod tests;

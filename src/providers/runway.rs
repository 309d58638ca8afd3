//! Runway: video from text or from pictures, and images, as a task that is polled.
//!
//! Here: the calls and videos; in [`image`]: images; in [`response`]: tasks and failure codes. Sources:
//! runwayml 5.24.0 (`PyPI`) `runwayml/types/text_to_video_create_params.py`,
//! `task_retrieve_response.py`, `resources/tasks.py`; docs.dev.runwayml.com
//! errors/task-failures; checked against requests recorded from the package; `image_to_video_create_params.py`
//! for pictures.

pub mod image;
pub mod response;
pub mod settings;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use reqwest::{
    Method,
    header::{AUTHORIZATION, HeaderMap, HeaderValue},
};
use serde::Serialize;
use serde_json::Value;
use url::Url;

use super::{
    InputPicture, ProviderError, VideoCall, VideoProvider, VideoStatus,
    answer::task_id,
    http::{
        Answer, HttpClient, JsonPost, RequestJson, SetupError, TEXT_BODY_CAP,
        base_url::{BaseUrlError, VersionPath, endpoint},
        secret_header,
    },
    setup::{Adapters, Setup},
};
use crate::domain::{
    generation::Modality,
    request::InputRole,
    vendor::{Vendor, read_settings},
};
pub use image::RunwayImageModel;
pub use settings::RunwayModel;

pub const ADAPTERS: Adapters = Adapters {
    vendor: Vendor::new(
        "runway",
        &[Modality::Image, Modality::Video],
        |_, modality, wire| match modality {
            Modality::Image => read_settings::<RunwayImageModel>(wire),
            _ => read_settings::<RunwayModel>(wire),
        },
    ),
    add: |registry, setup| {
        let adapter = Arc::new(Runway::new(setup)?);
        registry.image.insert(setup.name.clone(), adapter.clone());
        registry.video.insert(setup.name.clone(), adapter);
        Ok(())
    },
};

/// The implemented API version; the header is required.
const VERSION: HeaderValue = HeaderValue::from_static("2024-11-06");

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    model: &'a str,
    prompt_text: &'a str,
    ratio: &'a str,
    duration: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolution: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    audio: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    prompt_image: Vec<PromptImage>,
}

/// A picture as a data URI of at most 5 MB; a reference if it has no position.
#[derive(Serialize)]
struct PromptImage {
    uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<&'static str>,
}

impl From<&InputPicture> for PromptImage {
    fn from(picture: &InputPicture) -> Self {
        Self {
            uri: picture.data_uri(),
            position: match picture.role {
                InputRole::FirstFrame => Some("first"),
                InputRole::LastFrame => Some("last"),
                _ => None,
            },
        }
    }
}

fn body(call: &VideoCall, settings: &RunwayModel) -> Option<Value> {
    let (width, height) = call.ratio;
    let body = Body {
        model: &call.model,
        prompt_text: &call.prompt,
        ratio: settings.ratios.get(&format!("{width}:{height}"))?,
        duration: call.duration,
        resolution: settings.resolution.as_deref(),
        audio: settings.audio,
        prompt_image: call.inputs.iter().map(PromptImage::from).collect(),
    };
    serde_json::to_value(body).ok()
}

/// The image and video adapter of Runway.
#[derive(Debug, Clone)]
pub struct Runway {
    name: String,
    http: HttpClient,
    base_url: String,
    headers: HeaderMap,
    timeout: Duration,
    /// Between two polls of an image.
    poll_interval: Duration,
    models: BTreeMap<String, RunwayModel>,
}

impl Runway {
    /// The timeout bounds each call. For images it also bounds the whole generation. A model without
    /// settings gets the default ones.
    pub fn new(setup: &Setup) -> Result<Self, SetupError> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, secret_header("Bearer ", &setup.key())?);
        headers.insert("x-runway-version", VERSION);
        let runway = Self {
            name: setup.name.clone(),
            http: setup.http.clone(),
            base_url: setup.base_url.clone(),
            headers,
            timeout: setup.timeout,
            poll_interval: setup.poll_interval,
            models: setup.models(),
        };
        runway.url(&[])?;
        Ok(runway)
    }

    fn url(&self, path: &[&str]) -> Result<Url, BaseUrlError> {
        endpoint(&self.base_url, VersionPath::Last("v1"), path)
    }

    /// A call about a task.
    async fn bare(&self, method: Method, task: &str) -> Result<Answer, ProviderError> {
        let url = self.url(&["tasks", task])?;
        let headers = self.headers.clone();
        self.http.bare(method, url, headers, self.timeout).await
    }

    /// Creates a task and returns its id.
    async fn create(&self, path: &str, body: RequestJson) -> Result<String, ProviderError> {
        let post = JsonPost {
            url: self.url(&[path])?,
            headers: self.headers.clone(),
            body,
            timeout: self.timeout,
        };
        let answer = self.http.post_json(post).await?;
        let answer = answer
            .error_for_status(&self.name, response::error_info)
            .await?;
        let head = answer.head().clone();
        let root = answer.json(TEXT_BODY_CAP).await?;
        task_id(root.get("id")).ok_or_else(|| head.failed("answer without a task id"))
    }

    /// Polls a task once. A 404 is [`VideoStatus::Gone`]; the caller decides whether that can be lag
    /// right after the submission.
    async fn status(&self, task: &str) -> Result<VideoStatus, ProviderError> {
        let answer = self.bare(Method::GET, task).await?;
        if answer.head().status == 404 {
            return Ok(VideoStatus::Gone);
        }
        let answer = answer
            .error_for_status(&self.name, response::error_info)
            .await?;
        let head = answer.head().clone();
        let root = answer.json(TEXT_BODY_CAP).await?;
        response::status(&self.name, &head, &root)
    }
}

#[async_trait]
impl VideoProvider for Runway {
    async fn submit(&self, call: &VideoCall) -> Result<String, ProviderError> {
        let settings = self.models.get(&call.model).cloned().unwrap_or_default();
        let body =
            body(call, &settings).ok_or_else(|| ProviderError::rejected("no such aspect ratio"))?;
        let path = if call.inputs.is_empty() {
            "text_to_video"
        } else {
            "image_to_video"
        };
        self.create(path, RequestJson::of(&body)?).await
    }

    async fn poll(&self, task: &str, _call: &VideoCall) -> Result<VideoStatus, ProviderError> {
        self.status(task).await
    }

    /// Deletes the output of a finished task. An unknown task counts as cancelled.
    async fn cancel(&self, task: &str) -> Result<(), ProviderError> {
        let answer = self.bare(Method::DELETE, task).await?;
        if answer.head().status != 404 {
            answer
                .error_for_status(&self.name, response::error_info)
                .await?;
        }
        Ok(())
    }

    fn has_model(&self, model: &str) -> bool {
        self.models.contains_key(model)
    }
}

#[cfg(test)]
mod tests;

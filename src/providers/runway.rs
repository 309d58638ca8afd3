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

use std::sync::Arc;

use async_trait::async_trait;
use reqwest::{
    Method,
    header::{AUTHORIZATION, HeaderName},
};
use serde_json::{Value, json};

use super::{
    InputPicture, ProviderError, VideoCall, VideoProvider, VideoStatus,
    answer::task_id,
    http::{Answer, RequestJson, SetupError, TEXT_BODY_CAP, VendorClient, base_url::VersionPath},
    setup::{Adapter, Adapters, Setup},
    wire::WireObject,
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
const VERSION: &str = "2024-11-06";

/// A picture as a data URI of at most 5 MB; a reference if it has no position.
fn picture(picture: &InputPicture) -> WireObject<'_> {
    let position = match picture.role {
        InputRole::FirstFrame => Some("first"),
        InputRole::LastFrame => Some("last"),
        _ => None,
    };
    WireObject::default()
        .with("uri", Value::from(picture.data_uri()))
        .with_some("position", position)
}

fn body(call: &VideoCall, settings: &RunwayModel) -> Result<RequestJson, ProviderError> {
    let (width, height) = call.ratio;
    let ratio = settings.ratios.get(&format!("{width}:{height}"));
    let ratio = ratio.ok_or_else(|| ProviderError::rejected("no such aspect ratio"))?;
    let body = WireObject::default()
        .with("model", &call.model)
        .with("promptText", &call.prompt)
        .with("ratio", ratio)
        .with("duration", json!(call.duration))
        .with_some("resolution", settings.resolution.as_ref())
        .with_some("audio", settings.audio.map(Value::from))
        .with_list("promptImage", &call.inputs, picture);
    RequestJson::of(&body)
}

/// The image and video adapter of Runway.
pub type Runway = Adapter<RunwayModel>;

impl Runway {
    /// The timeout bounds each call. For images it also bounds the whole generation.
    pub fn new(setup: &Setup) -> Result<Self, SetupError> {
        let key = (AUTHORIZATION, "Bearer ");
        let client = VendorClient::new(setup, VersionPath::Last("v1"), key, response::error_info)?;
        let client = client.with(HeaderName::from_static("x-runway-version"), VERSION);
        Ok(Self::with_client(client, setup))
    }

    /// A call about a task: its response, or `None` if the task is unknown.
    async fn task(&self, method: Method, task: &str) -> Result<Option<Answer>, ProviderError> {
        let url = self.client.url(&["tasks", task])?;
        let answer = self.client.bare(method, url).await?;
        if answer.head().status == 404 {
            return Ok(None);
        }
        self.client.check(answer).await.map(Some)
    }

    /// Creates a task and returns its id.
    async fn create(&self, path: &str, body: RequestJson) -> Result<String, ProviderError> {
        let answer = self.client.post(self.client.url(&[path])?, body).await?;
        let (head, root) = answer.json(TEXT_BODY_CAP).await?;
        task_id(root.get("id")).ok_or_else(|| head.failed("answer without a task id"))
    }

    /// Polls a task once. The caller decides whether [`VideoStatus::Gone`] can be lag right after
    /// the submission.
    async fn status(&self, task: &str) -> Result<VideoStatus, ProviderError> {
        let Some(answer) = self.task(Method::GET, task).await? else {
            return Ok(VideoStatus::Gone);
        };
        let (head, root) = answer.json(TEXT_BODY_CAP).await?;
        response::status(&self.client, &head, &root)
    }
}

#[async_trait]
impl VideoProvider for Runway {
    async fn submit(&self, call: &VideoCall) -> Result<String, ProviderError> {
        let settings = self.settings(&call.model);
        let body = body(call, &settings)?;
        let path = if call.inputs.is_empty() {
            "text_to_video"
        } else {
            "image_to_video"
        };
        self.create(path, body).await
    }

    async fn poll(&self, task: &str, _call: &VideoCall) -> Result<VideoStatus, ProviderError> {
        self.status(task).await
    }

    /// Deletes the output of a finished task. An unknown task counts as cancelled.
    async fn cancel(&self, task: &str) -> Result<(), ProviderError> {
        self.task(Method::DELETE, task).await?;
        Ok(())
    }

    fn has_model(&self, model: &str) -> bool {
        self.models.contains_key(model)
    }
}

#[cfg(test)]
mod tests;

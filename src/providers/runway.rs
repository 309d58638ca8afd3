//! Runway: video from text or images, and images, as tasks that are polled.
//!
//! Submodule: images ([`image`]). Sources: runwayml 5.24.0 (`PyPI`)
//! `runwayml/types/text_to_video_create_params.py`, `task_retrieve_response.py`,
//! `resources/tasks.py`; docs.dev.runwayml.com errors/task-failures; checked against requests
//! recorded from the package; `image_to_video_create_params.py` for input images; issue 28 of
//! runwayml/sdk-node for the lack of credits.

pub mod image;

use std::collections::BTreeMap;

use async_trait::async_trait;
use reqwest::{
    Method,
    header::{AUTHORIZATION, HeaderName},
};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Value, json};
use url::Url;

use super::{
    InputPicture, ProviderError, ProviderErrorKind, VideoCall, VideoOutput, VideoProvider,
    VideoStatus,
    answer::task_id,
    http::{
        Answer, RequestJson, SetupError, TEXT_BODY_CAP, VendorClient,
        base_url::VersionPath,
        classify::{ErrorInfo, Head},
        vendor_message::VendorMessage,
    },
    setup::{Adapter, Adapters, Setup},
};
use crate::{
    catalogue::{
        ModelKind,
        vendor::{ModelSettings, Vendor, read_settings},
    },
    domain::{
        conversation::WireObject,
        generation::Modality,
        inputs::InputRole,
        settings::{ConfigError, blank_is_none, quoted},
    },
    request::Ratio,
};
pub use image::RunwayImageModel;

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
        let adapter = Runway::new(setup, client)?;
        registry.add_image(setup, adapter.clone());
        registry.add_video(setup, adapter);
        Ok(())
    },
};

/// Settings of one model. The default suits `gen4.5`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunwayModel {
    /// Maps our ratio to the model's value, mostly pixels: `"16:9" = "1280:720"`. Other ratios are
    /// rejected.
    #[serde(deserialize_with = "ratios")]
    pub ratios: BTreeMap<String, String>,
    /// `resolution` of models that take a named one (`768p`). `None` sends nothing.
    #[serde(deserialize_with = "blank_is_none")]
    pub resolution: Option<String>,
    /// `audio` of models where it is optional; it changes the price. `None` sends nothing.
    pub audio: Option<bool>,
}

impl Default for RunwayModel {
    fn default() -> Self {
        let ratio = |ours: &str, theirs: &str| (ours.to_owned(), theirs.to_owned());
        Self {
            ratios: BTreeMap::from([ratio("16:9", "1280:720"), ratio("9:16", "720:1280")]),
            resolution: None,
            audio: None,
        }
    }
}

/// Reads the ratios, with keys in lowest terms like the ratios of calls.
fn ratios<'de, D: Deserializer<'de>>(source: D) -> Result<BTreeMap<String, String>, D::Error> {
    let mut reduced = BTreeMap::new();
    for (ours, theirs) in BTreeMap::<String, String>::deserialize(source)? {
        let Some(ratio) = Ratio::parse(&ours) else {
            let bad = quoted(&ours);
            let problem = format!("holds {bad}: must be ratios, such as \"16:9\"");
            return Err(D::Error::custom(problem));
        };
        if theirs.is_empty() {
            let problem = format!("has nothing for \"{ours}\": name the model's word");
            return Err(D::Error::custom(problem));
        }
        let ratio = ratio.reduced().to_string();
        if reduced.insert(ratio, theirs).is_some() {
            let problem = format!("has the ratio of \"{ours}\" twice: keep one");
            return Err(D::Error::custom(problem));
        }
    }
    Ok(reduced)
}

impl ModelSettings for RunwayModel {
    fn check(&self, model: &ModelKind) -> Result<(), ConfigError> {
        let ModelKind::Video(video) = model else {
            return Ok(());
        };
        let has = |text: &str| {
            let ratio = Ratio::parse(text).map(|ratio| ratio.reduced().to_string());
            ratio.is_some_and(|ratio| self.ratios.contains_key(&ratio))
        };
        let mut ratios = video.limits.ratios.iter().flatten();
        match ratios.find(|text| !has(text)) {
            None => Ok(()),
            Some(other) => Err(ConfigError::new(
                "limits.ratios",
                format!("holds \"{other}\", which wire.ratios does not have: add it there"),
            )),
        }
    }
}

/// The implemented API version; the header is required.
const VERSION: &str = "2024-11-06";

/// Converts a picture to a data URI of at most 5 MB; without a position it is a reference.
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

pub type Runway = Adapter<RunwayModel>;

/// Builds the client. The timeout applies to each call; for images it also applies to the whole
/// generation.
fn client(setup: &Setup) -> Result<VendorClient, SetupError> {
    let key = (AUTHORIZATION, "Bearer ");
    let client = VendorClient::new(setup, VersionPath::Last("v1"), key, error_info)?;
    Ok(client.with(HeaderName::from_static("x-runway-version"), VERSION))
}

impl Runway {
    /// Calls a task. Returns the response, or `None` if the task is unknown.
    async fn task(&self, method: Method, task: &str) -> Result<Option<Answer>, ProviderError> {
        let url = self.client.url(&["tasks", task]);
        let answer = self.client.bare(method, url).await?;
        if answer.head().status == 404 {
            return Ok(None);
        }
        self.client.check(answer).await.map(Some)
    }

    async fn create(&self, path: &str, body: RequestJson) -> Result<String, ProviderError> {
        let answer = self.client.post(self.client.url(&[path]), body).await?;
        let (head, root) = answer.json(TEXT_BODY_CAP).await?;
        task_id(root.get("id")).ok_or_else(|| head.failed("answer without a task id"))
    }

    /// Polls a task once. The caller decides whether [`VideoStatus::Gone`] can be replication lag
    /// after the submission.
    async fn status(&self, task: &str) -> Result<VideoStatus, ProviderError> {
        let Some(answer) = self.task(Method::GET, task).await? else {
            return Ok(VideoStatus::Gone);
        };
        let (head, root) = answer.json(TEXT_BODY_CAP).await?;
        read_status(&self.client, &head, &root)
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

    /// Cancels a task, or deletes a finished one's output. An unknown task counts as cancelled.
    async fn cancel(&self, task: &str) -> Result<(), ProviderError> {
        self.task(Method::DELETE, task).await?;
        Ok(())
    }

    fn has_model(&self, model: &str) -> bool {
        self.models.contains_key(model)
    }
}

/// Reads `{"error": "a sentence"}`, which has no code. Only the sentence of a 400 reports an
/// account without credits.
fn error_info(root: Option<&Value>) -> ErrorInfo {
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

/// Reads the state of a task. Fails if `root` is not a task.
fn read_status(
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
        // PENDING; THROTTLED (our account's limit of running tasks); RUNNING; unknown states.
        _ => VideoStatus::Running {
            progress: progress(root),
        },
    })
}

/// Reads the output, which is on another host and needs no key.
fn succeeded(head: &Head, root: &Value) -> VideoStatus {
    let url = root.pointer("/output/0").and_then(Value::as_str);
    match url.and_then(|url| Url::parse(url).ok()) {
        Some(url) => VideoStatus::Done(VideoOutput::Url { url, header: None }),
        None => VideoStatus::Failed(head.failed("task without an output")),
    }
}

/// Returns the kind of a failure code. Codes with `SAFETY` anywhere are refusals
/// (`SAFETY.INPUT.TEXT`, `INPUT_PREPROCESSING.SAFETY.TEXT`, `THIRD_PARTY.SAFETY`). `ASSET.INVALID`
/// is an invalid request. Others (`INTERNAL.*`, `INPUT_PREPROCESSING.INTERNAL`, `THIRD_PARTY.*`)
/// are failures of the provider.
fn kind(code: &str) -> Option<ProviderErrorKind> {
    if code.split('.').any(|word| word == "SAFETY") {
        Some(ProviderErrorKind::ContentPolicy)
    } else if code.starts_with("ASSET.") {
        Some(ProviderErrorKind::Rejected)
    } else {
        None
    }
}

/// Converts a fraction from 0 to 1 to percent.
fn progress(root: &Value) -> Option<u8> {
    let fraction = root.get("progress")?.as_f64()?;
    let percent = (fraction.clamp(0.0, 1.0) * 100.0).round();
    (0..=100_u8).find(|whole| f64::from(*whole) >= percent)
}

#[cfg(test)]
mod tests;

//! Images from a text and references, as a task that is polled until it ends.
//!
//! Source: runwayml 5.24.0 (`PyPI`) `runwayml/types/text_to_image_create_params.py`. Each task
//! makes one image, so `n` is 1.
//!
//! The task's id is only in memory. If the process stops, or the response with the id is lost, the
//! task runs to its end at the operator's cost.

use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::Value;
use tokio::{
    runtime::Handle,
    time::{Instant, sleep, timeout_at},
};
use url::Url;

use super::{Runway, picture};
use crate::{
    catalogue::{ModelKind, Support, vendor::ModelSettings},
    domain::{conversation::WireObject, inputs::InputRole, settings::ConfigError},
    providers::{
        ImageAnswer, ImageCall, ImageProvider, ProviderError, ProviderErrorKind, VideoOutput,
        VideoProvider as _, VideoStatus, http::RequestJson,
    },
};

/// Sizes of `gen4_image` and `gen4_image_turbo` from which the API's sizes can be made.
const SIZES: [(u32, u32); 3] = [(720, 720), (1024, 1024), (1080, 1080)];
/// Maximum references of a request.
const MAX_REFERENCES: u32 = 3;
/// How long after its creation a task may be unknown at the vendor.
const REPLICATION_LAG: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunwayImageModel {}

impl ModelSettings for RunwayImageModel {
    fn check(&self, model: &ModelKind) -> Result<(), ConfigError> {
        let ModelKind::Image(image) = model else {
            return Ok(());
        };
        let error = |key: &str, problem: &str| Err(ConfigError::new(key, problem));
        let limits = &image.limits;
        if image.native_sizes.iter().any(|size| !SIZES.contains(size)) {
            let problem =
                "holds a size that the model does not make: use 720x720, 1024x1024, 1080x1080";
            return error("limits.native_sizes", problem);
        }
        if limits.max_n != 1 {
            return error("limits.max_n", "must be 1: a task makes one image");
        }
        for (key, support) in [
            ("limits.style", limits.style),
            ("limits.negative_prompt", limits.negative_prompt),
        ] {
            if support == Support::Native {
                let problem = "must be \"guided\" or \"unsupported\": there is no such field";
                return error(key, problem);
            }
        }
        let roles = limits.inputs.iter().flat_map(|inputs| &inputs.roles);
        let mut roles =
            roles.map(|(role, most)| *role == InputRole::Reference && *most <= MAX_REFERENCES);
        if roles.any(|is_supported| !is_supported) {
            return error("limits.inputs", "must have only reference, at most 3");
        }
        Ok(())
    }
}

fn body(call: &ImageCall) -> Result<RequestJson, ProviderError> {
    // Pixels.
    let ratio = format!("{}:{}", call.size.0, call.size.1);
    let body = WireObject::default()
        .with("model", &call.model)
        .with("promptText", &call.prompt)
        .with("ratio", Value::from(ratio))
        .with_list("referenceImages", &call.inputs, picture);
    RequestJson::of(&body)
}

/// Cancels its task on drop, because a task without a waiting caller is charged too. Set `task` to
/// `None` once the task has ended.
struct CancelOnDrop {
    runway: Runway,
    task: Option<String>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let (Some(task), Ok(runtime)) = (self.task.take(), Handle::try_current()) else {
            return;
        };
        let runway = self.runway.clone();
        runtime.spawn(async move {
            if let Err(error) = runway.cancel(&task).await {
                tracing::warn!(provider = runway.client.name, %error, "could not cancel an image task");
            }
        });
    }
}

impl Runway {
    /// Polls a task until it ends. Failed polls are repeated, since the task continues.
    async fn wait_for_image(&self, task: &str) -> Result<Url, ProviderError> {
        let created = Instant::now();
        loop {
            sleep(self.client.poll_interval).await;
            match self.status(task).await {
                Ok(VideoStatus::Done(VideoOutput::Url { url, .. })) => return Ok(url),
                Ok(VideoStatus::Failed(error)) => return Err(error),
                Ok(VideoStatus::Gone) if created.elapsed() >= REPLICATION_LAG => {
                    let message = "the provider no longer knows the task";
                    return Err(ProviderError::failed(message));
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(provider = self.client.name, %error, "polling a task failed");
                }
            }
        }
    }
}

#[async_trait]
impl ImageProvider for Runway {
    /// Polls until the task ends. The task is cancelled when the timeout passes or the caller drops
    /// the call.
    async fn generate(&self, call: &ImageCall) -> Result<ImageAnswer, ProviderError> {
        let until = Instant::now() + self.client.timeout;
        let body = body(call)?;
        // Runs as its own task, so that the vendor's task is cancelled even if the caller left
        // before its id was known.
        let runway = self.clone();
        let creating = tokio::spawn(async move {
            let task = runway.create("text_to_image", body).await?;
            let running = CancelOnDrop {
                runway,
                task: Some(task.clone()),
            };
            Ok::<_, ProviderError>((task, running))
        });
        let Ok(created) = creating.await else {
            let message = "the creation of the task was interrupted";
            return Err(ProviderError::failed(message));
        };
        let (task, mut running) = created?;
        let Ok(ended) = timeout_at(until, self.wait_for_image(&task)).await else {
            let message = "the task did not end in time";
            return Err(ProviderError::new(ProviderErrorKind::Timeout, message));
        };
        running.task = None;
        Ok(ImageAnswer {
            urls: vec![ended?],
            request_id: Some(task),
            ..ImageAnswer::default()
        })
    }
}

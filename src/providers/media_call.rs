//! Calls, answers and traits of the image, speech and video adapters.
//!
//! A video is a task that is submitted once and polled.

use std::time::Duration;

use async_trait::async_trait;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use url::Url;

use super::ProviderError;
use crate::{
    domain::{inputs::InputRole, pricing::Quality},
    request::{Background, Outpaint, SpeechFormat, Style},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputPicture {
    pub role: InputRole,
    /// `image/png`, `image/jpeg` or `image/webp`; `video/mp4` for a video to extend.
    pub content_type: String,
    pub bytes: Bytes,
}

impl InputPicture {
    pub fn base64(&self) -> String {
        BASE64_STANDARD.encode(&self.bytes)
    }

    /// Returns the picture as a `data:` URI.
    pub fn data_uri(&self) -> String {
        format!("data:{};base64,{}", self.content_type, self.base64())
    }

    /// Returns a file name with the extension of the type, which some vendors check.
    pub fn file_name(&self) -> String {
        let extension = self.content_type.trim_start_matches("image/");
        format!("{}.{extension}", self.role.as_str())
    }
}

/// Returns the pictures with a role, in order.
pub fn inputs_with_role(
    pictures: &[InputPicture],
    role: InputRole,
) -> impl Iterator<Item = &InputPicture> {
    pictures.iter().filter(move |picture| picture.role == role)
}

/// An image generation as every adapter receives it. Options for which the model has no field are
/// already part of the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageCall {
    /// The provider's own model id.
    pub model: String,
    pub prompt: String,
    /// Content to avoid; only for models with a field for it.
    pub negative_prompt: Option<String>,
    /// Width and height in pixels, a native size of the model.
    pub size: (u32, u32),
    /// Pixels to add to the sides of the source; only for models that extend images. `size` is the
    /// size of the result.
    pub outpaint: Option<Outpaint>,
    pub quality: Quality,
    /// Only for models with a field for it.
    pub style: Option<Style>,
    /// Only for models that support a background.
    pub background: Option<Background>,
    /// Number of images, 1 to 4.
    pub n: u32,
    pub inputs: Vec<InputPicture>,
}

/// PNG, JPEG or WebP images, at least one and at most as many as requested.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageAnswer {
    /// At most 20 MiB each, not validated.
    pub images: Vec<Bytes>,
    /// More images, for the caller to download; untrusted.
    pub urls: Vec<Url>,
    pub request_id: Option<String>,
    /// Tokens of the inputs, if the provider counts them.
    pub input_image_tokens: Option<u64>,
}

#[async_trait]
pub trait ImageProvider: Send + Sync {
    /// Submits once, without retries. If a vendor makes one image per request, `n` requests are one
    /// submission: the answer has the images that succeeded, and if none did, it fails with the
    /// first error. `not_started` is set only if no request was started.
    async fn generate(&self, call: &ImageCall) -> Result<ImageAnswer, ProviderError>;
}

/// A speech generation as every adapter receives it.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeechCall {
    /// The provider's own model id.
    pub model: String,
    pub text: String,
    /// The provider's own voice id.
    pub voice: String,
    /// Playback rate, 0.25 to 4.0. 1.0 is sent only if the vendor requires a rate.
    pub speed: f64,
    /// Speaking style; only for models that take instructions.
    pub instructions: Option<String>,
    pub format: SpeechFormat,
}

impl SpeechCall {
    /// Returns the characters that are charged.
    pub fn characters(&self) -> usize {
        let instructions = self.instructions.as_deref().unwrap_or_default();
        self.text.chars().count() + instructions.chars().count()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpeechAnswer {
    /// One file per call, in order, of the requested format (headers may be those of a stream).
    /// The caller joins and validates them. At most 100 MiB in total.
    pub parts: Vec<Bytes>,
    /// The provider's id of the last request.
    pub request_id: Option<String>,
}

#[async_trait]
pub trait SpeechProvider: Send + Sync {
    /// Submits once, without retries. A text above the vendor's limit is split at sentence ends
    /// into several calls; `not_started` is set only if none was started.
    async fn generate(&self, call: &SpeechCall) -> Result<SpeechAnswer, ProviderError>;

    /// Whether this server has the settings of a model. Another server may have them, and may have
    /// accepted its job.
    fn has_model(&self, _model: &str) -> bool {
        true
    }
}

/// A video generation as every adapter receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VideoCall {
    /// The provider's own model id.
    pub model: String,
    pub prompt: String,
    /// Seconds.
    pub duration: u32,
    /// Aspect ratio in lowest terms.
    pub ratio: (u32, u32),
    /// The input pictures; empty in most polls.
    pub inputs: Vec<InputPicture>,
}

#[derive(Debug, Clone)]
pub enum VideoStatus {
    Running {
        /// 0 to 100, if the provider reports it.
        progress: Option<u8>,
    },
    Done(VideoOutput),
    /// Ended without a result.
    Failed(ProviderError),
    /// The provider no longer knows the task.
    Gone,
}

#[derive(Debug, Clone)]
pub enum VideoOutput {
    /// For the caller to download; untrusted.
    Url {
        url: Url,
        /// The provider's key, only when `url` has the base URL's own origin.
        header: Option<(HeaderName, HeaderValue)>,
    },
    Bytes(Bytes),
}

#[async_trait]
pub trait VideoProvider: Send + Sync {
    /// Submits once, without retries. Returns the provider's task id at once.
    async fn submit(&self, call: &VideoCall) -> Result<String, ProviderError>;

    /// Polls a task once. An error means that the poll failed and will be retried, not that the
    /// task failed.
    async fn poll(&self, task: &str, call: &VideoCall) -> Result<VideoStatus, ProviderError>;

    /// As [`SpeechProvider::has_model`].
    fn has_model(&self, _model: &str) -> bool {
        true
    }

    /// Whether the next poll needs the call's inputs. The sandbox does, to make the result.
    fn poll_needs_inputs(&self, _task: &str) -> bool {
        false
    }

    /// Returns the poll interval if it may be shorter than the configured one.
    fn poll_interval(&self) -> Option<Duration> {
        None
    }

    /// Cancels a task. Does nothing if the provider cannot cancel.
    async fn cancel(&self, task: &str) -> Result<(), ProviderError>;
}

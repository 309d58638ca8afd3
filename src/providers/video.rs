//! The interface of video adapters: a task that is submitted once and polled.

use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderName, HeaderValue};
use url::Url;

use super::{InputPicture, ProviderError};

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
    Bytes(bytes::Bytes),
}

#[async_trait]
pub trait VideoProvider: Send + Sync {
    /// One submission, without retries; returns the provider's task id at once.
    async fn submit(&self, call: &VideoCall) -> Result<String, ProviderError>;

    /// Polls a task once. An error means that the poll failed (and will be retried), not the task.
    async fn poll(&self, task: &str, call: &VideoCall) -> Result<VideoStatus, ProviderError>;

    /// Whether this server has the settings of a model. Another one may, and have accepted its job.
    fn has_model(&self, _model: &str) -> bool {
        true
    }

    /// Returns whether the next poll needs the inputs of its call, as the sandbox does to make the
    /// result.
    fn poll_needs_inputs(&self, _task: &str) -> bool {
        false
    }

    /// The time between two polls, where it may be shorter than the configured one.
    fn poll_interval(&self) -> Option<Duration> {
        None
    }

    /// Cancels a task; does nothing where the provider has no such call.
    async fn cancel(&self, task: &str) -> Result<(), ProviderError>;
}

//! What a video adapter is asked and answers: a task that is submitted once and polled.

use async_trait::async_trait;
use http::{HeaderName, HeaderValue};
use url::Url;

use super::ProviderError;

/// A video generation as every vendor's adapter receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VideoCall {
    /// The provider's own model id.
    pub model: String,
    pub prompt: String,
    /// Seconds.
    pub duration: u32,
    /// Aspect ratio, reduced: (16, 9).
    pub ratio: (u32, u32),
}

/// Where a task stands.
#[derive(Debug, Clone)]
pub enum VideoStatus {
    Running {
        /// 0 to 100, where the provider tells.
        progress: Option<u8>,
    },
    /// Done: where the file is.
    Done(VideoOutput),
    /// Ended without a result.
    Failed(ProviderError),
    /// The provider does not know the task any more.
    Gone,
}

#[derive(Debug, Clone)]
pub enum VideoOutput {
    /// To be fetched by the caller, who checks the address.
    Url {
        url: Url,
        /// The provider's key, only when `url` has the base URL's own origin.
        header: Option<(HeaderName, HeaderValue)>,
    },
    Bytes(bytes::Bytes),
}

#[async_trait]
pub trait VideoProvider: Send + Sync {
    /// One submission, never repeated inside; answers the provider's task id at once.
    async fn submit(&self, call: &VideoCall) -> Result<String, ProviderError>;

    /// One look at a task. An error says that the look failed (and will be repeated), not
    /// that the task did.
    async fn poll(&self, task: &str, call: &VideoCall) -> Result<VideoStatus, ProviderError>;

    /// Asks the provider to stop a task; where it has no such call, nothing is done.
    async fn cancel(&self, task: &str) -> Result<(), ProviderError>;
}

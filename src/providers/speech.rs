//! The interface of speech adapters.

use async_trait::async_trait;
use bytes::Bytes;

use super::ProviderError;
use crate::domain::request::SpeechFormat;

/// A speech generation as every adapter receives it.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeechCall {
    /// The provider's own model id.
    pub model: String,
    pub text: String,
    /// The provider's own voice id.
    pub voice: String,
    /// Playback rate, 0.25 to 4.0; 1.0 is sent only where the vendor requires it.
    pub speed: f64,
    pub format: SpeechFormat,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpeechAnswer {
    /// One file per call, in order, of the requested format (headers may be those of a stream).
    /// The caller joins and validates them. At most 100 MiB in total.
    pub parts: Vec<Bytes>,
    /// The provider's id of the (last) request.
    pub request_id: Option<String>,
}

#[async_trait]
pub trait SpeechProvider: Send + Sync {
    /// One submission, without retries. A text beyond the vendor's limit is split at sentence ends
    /// into several calls; `not_started` only if none was started.
    async fn generate(&self, call: &SpeechCall) -> Result<SpeechAnswer, ProviderError>;

    /// Whether this server has the settings of a model. Another one may, and have accepted its job.
    fn has_model(&self, _model: &str) -> bool {
        true
    }
}

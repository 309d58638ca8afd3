//! What a speech adapter is asked and answers.

use async_trait::async_trait;
use bytes::Bytes;

use super::ProviderError;
use crate::domain::request::SpeechFormat;

/// A speech generation as every vendor's adapter receives it.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeechCall {
    /// The provider's own model id.
    pub model: String,
    /// The text to speak.
    pub text: String,
    /// The provider's own voice id.
    pub voice: String,
    /// Playback rate, 0.25 to 4.0; 1.0 is sent only where the vendor needs it.
    pub speed: f64,
    pub format: SpeechFormat,
}

/// Speech as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpeechAnswer {
    /// The pieces in order, one a call, each a file of the format asked for (headers may be
    /// those of a stream). The caller joins and checks them. At most 100 MiB in all.
    pub parts: Vec<Bytes>,
    /// The provider's id of the (last) request.
    pub request_id: Option<String>,
}

#[async_trait]
pub trait SpeechProvider: Send + Sync {
    /// One submission, never repeated inside. A text beyond the vendor's limit is split at
    /// sentence ends into several calls; `not_started` is said only when none was started.
    async fn generate(&self, call: &SpeechCall) -> Result<SpeechAnswer, ProviderError>;
}

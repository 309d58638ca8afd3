//! A generation: modality, status, record.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub use super::conversation::FinishReason;
use super::{
    conversation::Answered,
    credits::Credits,
    ids::{AccountId, ApiKeyId, GenerationId, TemplateId},
    named::named_enum,
    route::Routed,
};

named_enum!(
    /// The modality of a generation; `type` on the wire.
    Modality {
        Text = "text",
        Image = "image",
        Video = "video",
        Audio = "audio",
    }
);

named_enum!(
    Status {
        /// A job that waits for a free worker.
        Pending = "pending",
        Processing = "processing",
        Completed = "completed",
        /// Ended without a result; nothing was charged.
        Failed = "failed",
    }
);

impl Status {
    /// Whether the status is final.
    pub const fn is_finished(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}

named_enum!(
    /// Why a generation failed.
    FailureCode {
        /// The provider failed, or returned an unusable response.
        ProviderError = "provider_error",
        /// The provider refused the request.
        ProviderRejected = "provider_rejected",
        /// The request does not fit the model's context.
        ContextLengthExceeded = "context_length_exceeded",
        /// The provider refused the content.
        ContentPolicy = "content_policy",
        /// The provider timed out.
        ProviderTimeout = "provider_timeout",
        /// The provider has no capacity.
        ProviderOverloaded = "provider_overloaded",
        /// The result could not be stored.
        StorageUnavailable = "storage_unavailable",
        /// Cancelled by the caller.
        Cancelled = "cancelled",
        /// The server stopped during a call that cannot be resumed.
        Interrupted = "interrupted",
        /// Past its deadline, or the provider lost the task.
        Expired = "expired",
    }
);

named_enum!(
    /// The API of a request.
    Surface {
        /// /v1/generate/...
        Generate = "generate",
        /// /openai/v1/chat/completions
        OpenAiChat = "openai.chat",
        /// /openai/v1/responses
        OpenAiResponses = "openai.responses",
        /// /openai/v1/images/generations
        OpenAiImages = "openai.images",
        /// /openai/v1/audio/speech
        OpenAiSpeech = "openai.speech",
        /// /anthropic/v1/messages
        AnthropicMessages = "anthropic.messages",
    }
);

impl Surface {
    /// Returns the path of the list of models in this API.
    pub const fn models_path(self) -> &'static str {
        match self {
            Self::Generate => "/v1/models",
            Self::AnthropicMessages => "/anthropic/v1/models",
            Self::OpenAiChat | Self::OpenAiResponses | Self::OpenAiImages | Self::OpenAiSpeech => {
                "/openai/v1/models"
            }
        }
    }
}

impl FailureCode {
    /// Whether an identical request may succeed later. [`Failure::is_retryable`] also considers why
    /// the provider failed.
    const fn retryable(self) -> bool {
        match self {
            Self::ProviderError
            | Self::ProviderTimeout
            | Self::ProviderOverloaded
            | Self::StorageUnavailable
            | Self::Interrupted
            | Self::Expired => true,
            Self::ProviderRejected
            | Self::ContextLengthExceeded
            | Self::ContentPolicy
            | Self::Cancelled => false,
        }
    }
}

/// Why a generation failed, as shown to its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: FailureCode,
    /// Contains no upstream text except the provider's message about the caller's input.
    pub message: String,
    /// The retry delay that the provider requests, for callers that wait for the end. Not stored.
    pub retry_after: Option<Duration>,
}

/// The message of a generation that failed because the provider refused the server's own account.
pub const ACCOUNT_REFUSED: &str =
    "the provider refuses this server's account; its operator must act";

impl Failure {
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            retry_after: None,
        }
    }

    /// Whether an identical request may succeed later.
    pub fn is_retryable(&self) -> bool {
        // The code is shared with other errors of the provider; the message is stored too.
        self.code.retryable() && self.message != ACCOUNT_REFUSED
    }
}

/// A stored file of a generation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Key in the media store.
    pub key: String,
    pub content_type: String,
    pub bytes: u64,
    /// SHA-256 in hexadecimal digits.
    pub sha256: String,
    /// Pixels; images and videos only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Pixels; images and videos only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    /// Seconds; videos and speech only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// The template that was used, and its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = RecordTemplate)]
pub struct TemplateUse {
    /// Its id.
    pub id: TemplateId,
    /// Its version.
    pub version: i32,
}

/// The member of a generation's stored parameters with the id of the request that created it;
/// request parameters cannot have this name. A deletion, also by an older server, removes all
/// parameters and with them this member.
pub const REQUEST_ID: &str = "X-Request-Id";

#[derive(Debug, Clone)]
pub struct Generation {
    pub id: GenerationId,
    pub account_id: AccountId,
    pub modality: Modality,
    pub surface: Surface,
    pub status: Status,
    pub provider: String,
    pub model: String,
    pub prompt: String,
    /// The parameters, with [`REQUEST_ID`] and the inputs.
    pub parameters: Value,
    /// The text; `None` for stored files.
    pub result: Option<String>,
    pub outputs: Vec<Output>,
    /// 0 to 100; null if the provider does not report it.
    pub progress: Option<i16>,
    /// `None` until the generation is completed.
    pub usage: Option<Value>,
    /// The credits held at creation.
    pub estimated: Credits,
    /// `None` until finished, zero if it failed.
    pub charged: Option<Credits>,
    pub failure: Option<Failure>,
    /// Why a completed text may be incomplete.
    pub finish_reason: Option<FinishReason>,
    /// The parts of the answer that are not in its text.
    pub answer: Option<Answered>,
    /// `None` for requests of a session.
    pub api_key_id: Option<ApiKeyId>,
    pub template: Option<TemplateUse>,
    /// The price row at creation.
    pub pricing: Value,
    /// Number of submissions to the provider.
    pub attempts: i32,
    /// The provider's request id.
    pub provider_request_id: Option<String>,
    /// Number of SDK retries that were answered with it.
    pub joined: i32,
    /// `None` if it had only one candidate.
    pub route: Option<Box<Routed>>,
    pub created_at: DateTime<Utc>,
    pub started_at: Option<DateTime<Utc>>,
    pub completed_at: Option<DateTime<Utc>>,
}

impl Generation {
    /// Returns the current hold: `estimated` until it is finished, then zero.
    pub fn held(&self) -> Credits {
        if self.status.is_finished() {
            Credits::ZERO
        } else {
            self.estimated
        }
    }

    pub fn is_cancelled(&self) -> bool {
        self.finish_reason == Some(FinishReason::Cancelled)
            || matches!(&self.failure, Some(failure) if failure.code == FailureCode::Cancelled)
    }
}

//! A generation: its type, its states, and the record.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    credits::Credits,
    ids::{AccountId, ApiKeyId, GenerationId, TemplateId},
    named::named_enum,
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
    /// Where a generation stands.
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
    /// Whether nothing will change any more.
    pub const fn is_finished(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}

named_enum!(
    /// Why a generation failed.
    FailureCode {
        /// The provider failed, or its answer could not be used.
        ProviderError = "provider_error",
        /// The provider refused the request.
        ProviderRejected = "provider_rejected",
        /// The provider refused the content.
        ContentPolicy = "content_policy",
        /// No answer in time.
        ProviderTimeout = "provider_timeout",
        /// The provider has no capacity.
        ProviderOverloaded = "provider_overloaded",
        /// The result could not be kept.
        StorageUnavailable = "storage_unavailable",
        /// Cancelled by the caller.
        Cancelled = "cancelled",
        /// The server stopped during a call that cannot be resumed.
        Interrupted = "interrupted",
        /// Past its deadline, or the provider's task is gone.
        Expired = "expired",
    }
);

named_enum!(
    /// Why a text ends where it ends, where it was not the provider that ended it.
    FinishReason {
        /// Its caller cancelled it, and keeps what was delivered by then.
        Cancelled = "cancelled",
    }
);

impl FailureCode {
    /// Whether the same request may succeed later without any change.
    pub const fn retryable(self) -> bool {
        match self {
            Self::ProviderError
            | Self::ProviderTimeout
            | Self::ProviderOverloaded
            | Self::StorageUnavailable
            | Self::Interrupted
            | Self::Expired => true,
            Self::ProviderRejected | Self::ContentPolicy | Self::Cancelled => false,
        }
    }
}

/// Why a generation failed, in words that its owner may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: FailureCode,
    /// One sentence, never upstream text.
    pub message: String,
}

impl Failure {
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

/// A stored file of a generation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Its name in the store.
    pub key: String,
    pub content_type: String,
    pub bytes: u64,
    /// SHA-256, hexadecimal.
    pub sha256: String,
    /// Pixels, of images and videos.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Pixels, of images and videos.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    /// Length in time, of videos and speech.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// Which template a prompt was rendered from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TemplateUse {
    pub id: TemplateId,
    /// Its version, from 1.
    pub version: i32,
}

/// A generation as stored.
#[derive(Debug, Clone)]
pub struct Generation {
    pub id: GenerationId,
    pub account_id: AccountId,
    pub modality: Modality,
    pub status: Status,
    pub provider: String,
    pub model: String,
    pub prompt: String,
    pub parameters: Value,
    /// The text itself; `None` for stored files.
    pub result: Option<String>,
    pub outputs: Vec<Output>,
    /// How far it is, 0 to 100, where the provider tells.
    pub progress: Option<i16>,
    /// What it used; `None` until completed.
    pub usage: Option<Value>,
    /// The ceiling that was held at creation.
    pub estimated: Credits,
    /// What was charged; `None` until finished, zero when failed.
    pub charged: Option<Credits>,
    pub failure: Option<Failure>,
    /// Why it was completed early.
    pub finish_reason: Option<FinishReason>,
    /// The key that made it; `None` for sessions.
    pub api_key_id: Option<ApiKeyId>,
    /// The template that the prompt was rendered from.
    pub template: Option<TemplateUse>,
    /// The price row at creation.
    pub pricing: Value,
    /// Submissions to the provider.
    pub attempts: i32,
    /// The provider's own id of the request.
    pub provider_request_id: Option<String>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    pub started_at: Option<DateTime<Utc>>,
    pub completed_at: Option<DateTime<Utc>>,
}

impl Generation {
    /// What is on hold for it now: all of the ceiling until it is finished, then nothing.
    pub fn held(&self) -> Credits {
        if self.status.is_finished() {
            Credits::ZERO
        } else {
            self.estimated
        }
    }

    /// Whether a cancel ended it.
    pub fn is_cancelled(&self) -> bool {
        self.finish_reason == Some(FinishReason::Cancelled)
            || matches!(&self.failure, Some(failure) if failure.code == FailureCode::Cancelled)
    }
}

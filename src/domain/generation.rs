//! A generation: its type, its states, and the record.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;

use super::{
    credits::Credits,
    ids::{AccountId, ApiKeyId, GenerationId},
};

macro_rules! named_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $text)] $variant,)+
        }

        impl $name {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in API, code, database and docs.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The one of that name.
            pub fn parse(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$variant),)+ _ => None }
            }
        }

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .enum_values(Some([$($text,)+]))
                    .into()
            }
        }

        impl utoipa::ToSchema for $name {
            fn name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

named_enum!(
    /// The modality of a generation; `type` on the wire.
    Modality {
        /// Text.
        Text = "text",
        /// Images.
        Image = "image",
        /// Video.
        Video = "video",
        /// Speech.
        Audio = "audio",
    }
);

named_enum!(
    /// Where a generation stands.
    Status {
        /// A job that waits for a free worker.
        Pending = "pending",
        /// Work goes on.
        Processing = "processing",
        /// Done and charged.
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
        /// Cancelled by the caller.
        Cancelled = "cancelled",
        /// The server stopped during a call that cannot be resumed.
        Interrupted = "interrupted",
        /// Past its deadline, or the provider's task is gone.
        Expired = "expired",
    }
);

impl FailureCode {
    /// Whether the same request may succeed later without any change.
    pub const fn retryable(self) -> bool {
        match self {
            Self::ProviderError
            | Self::ProviderTimeout
            | Self::ProviderOverloaded
            | Self::Interrupted
            | Self::Expired => true,
            Self::ProviderRejected | Self::ContentPolicy | Self::Cancelled => false,
        }
    }
}

/// Why a generation failed, in words that its owner may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The code.
    pub code: FailureCode,
    /// One sentence, never upstream text.
    pub message: String,
}

impl Failure {
    /// A failure.
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

/// A generation as stored.
#[derive(Debug, Clone)]
pub struct Generation {
    /// Its uuid.
    pub id: GenerationId,
    /// Its owner.
    pub account_id: AccountId,
    /// Modality.
    pub modality: Modality,
    /// Where it stands.
    pub status: Status,
    /// Resolved provider.
    pub provider: String,
    /// Resolved model.
    pub model: String,
    /// The caller's prompt.
    pub prompt: String,
    /// Resolved parameters.
    pub parameters: Value,
    /// The text itself, or the first stored file.
    pub result: Option<String>,
    /// What it used; `None` until completed.
    pub usage: Option<Value>,
    /// The ceiling that was held at creation.
    pub estimated: Credits,
    /// What was charged; `None` until finished, zero when failed.
    pub charged: Option<Credits>,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// The key that made it; `None` for sessions.
    pub api_key_id: Option<ApiKeyId>,
    /// The price row at creation.
    pub pricing: Value,
    /// Submissions to the provider.
    pub attempts: i32,
    /// The provider's own id of the request.
    pub provider_request_id: Option<String>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When work began.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
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
}

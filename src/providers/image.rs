//! What an image adapter is asked and answers.

use async_trait::async_trait;
use bytes::Bytes;

use super::ProviderError;
use crate::domain::request::{Quality, Style};

/// An image generation as every vendor's adapter receives it. What a model has no field for
/// has been folded into the prompt before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageCall {
    /// The provider's own model id.
    pub model: String,
    pub prompt: String,
    /// What to avoid; only for models with a field for it.
    pub negative_prompt: Option<String>,
    /// Width and height to ask for, in pixels: a size that the model makes itself.
    pub size: (u32, u32),
    pub quality: Quality,
    /// How it should look; only for models with a field for it.
    pub style: Option<Style>,
    /// How many, 1 to 4.
    pub n: u32,
}

/// Images as they came: PNG, JPEG or WebP, at least one, at most as many as asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageAnswer {
    /// The files' bytes, at most 20 MiB each; what they claim to be is checked by the caller.
    pub images: Vec<Bytes>,
    /// The provider's id of the request.
    pub request_id: Option<String>,
}

#[async_trait]
pub trait ImageProvider: Send + Sync {
    /// One submission, never repeated inside. Where a vendor makes one image a request, `n`
    /// requests are one submission: those that came are the answer, and only if none came the
    /// first error is. `not_started` is said only when no request was started.
    async fn generate(&self, call: &ImageCall) -> Result<ImageAnswer, ProviderError>;
}

//! The interface of image adapters.

use async_trait::async_trait;
use bytes::Bytes;
use url::Url;

use super::{InputPicture, ProviderError};
use crate::domain::request::{Outpaint, Quality, Style};

/// An image generation as every adapter receives it. What a model has no field for
/// is already part of the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageCall {
    /// The provider's own model id.
    pub model: String,
    pub prompt: String,
    /// What to avoid; only for models with a field for it.
    pub negative_prompt: Option<String>,
    /// Width and height in pixels, a native size of the model.
    pub size: (u32, u32),
    /// Pixels to add to the sides of the source; only for models that do nothing else. `size` is
    /// that of the result.
    pub outpaint: Option<Outpaint>,
    pub quality: Quality,
    /// Only for models with a field for it.
    pub style: Option<Style>,
    /// How many, 1 to 4.
    pub n: u32,
    /// The input pictures.
    pub inputs: Vec<InputPicture>,
}

/// PNG, JPEG or WebP images, at least one and at most as many as requested.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// One submission, without retries. Where a vendor makes one image per request, `n` requests
    /// are one submission: the images that succeed are the answer, and the first error only if
    /// none does. `not_started` only if no request was started.
    async fn generate(&self, call: &ImageCall) -> Result<ImageAnswer, ProviderError>;
}

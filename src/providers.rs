//! Upstream providers: one trait a modality, one file a vendor.
//!
//! Here: wire structs and the conversion both ways. Not here: credits, SQL, our status
//! codes; a provider knows one call and says how it ended.

pub mod answer;
pub mod anthropic;
pub mod delta;
pub mod elevenlabs;
pub mod error;
#[cfg(test)]
mod fake;
pub mod gemini;
pub mod http;
pub mod image;
pub mod openai;
pub mod runway;
pub mod sandbox;
pub mod setup;
pub mod speech;
pub mod sse;
pub mod stability;
pub mod vendors;
pub mod video;

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;

use crate::domain::limiter::{Limiter, Permit};
pub use delta::DeltaSink;
pub use error::{ProviderError, ProviderErrorKind};
pub use image::{ImageAnswer, ImageCall, ImageProvider};
pub use setup::Setup;
pub use speech::{SpeechAnswer, SpeechCall, SpeechProvider};
pub use vendors::VENDORS;
pub use video::{VideoCall, VideoOutput, VideoProvider, VideoStatus};

use crate::domain::{conversation::Conversation, usage::TokenCounts};

/// A text generation as every vendor's adapter receives it.
#[derive(Debug, Clone, PartialEq)]
pub struct TextCall {
    /// The provider's own model id.
    pub model: String,
    pub conversation: Conversation,
    /// Upper bound of output tokens, 1 to 4096; always sent.
    pub max_tokens: u32,
    /// Sampling temperature; sent only when given.
    pub temperature: Option<f64>,
}

/// A finished text generation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TextAnswer {
    /// The whole text. Empty when reasoning ate the token limit.
    pub text: String,
    /// What the provider counted.
    pub usage: TokenCounts,
    /// The provider's id of the request.
    pub request_id: Option<String>,
}

#[async_trait]
pub trait TextProvider: Send + Sync {
    /// One submission, never repeated inside. With `deltas` the provider's streaming form is
    /// used and every piece of visible text is pushed as it arrives; the answer then holds the
    /// concatenation. The text is capped at 1 MiB.
    async fn generate(
        &self,
        call: &TextCall,
        deltas: Option<&DeltaSink>,
    ) -> Result<TextAnswer, ProviderError>;
}

/// The providers of this server, by name and modality.
#[derive(Default, Clone)]
pub struct Registry {
    /// Those that make text.
    pub text: BTreeMap<String, Arc<dyn TextProvider>>,
    /// Those that make images.
    pub image: BTreeMap<String, Arc<dyn ImageProvider>>,
    /// Those that make speech.
    pub speech: BTreeMap<String, Arc<dyn SpeechProvider>>,
    /// Those that make videos.
    pub video: BTreeMap<String, Arc<dyn VideoProvider>>,
    /// How many calls each may have at once from this process, by provider.
    pub limiters: BTreeMap<String, Limiter>,
}

/// One call to a provider, while it lasts; `None` inside where the provider has no limit.
#[derive(Debug)]
pub struct ProviderPermit(#[expect(dead_code, reason = "held, not read")] Option<Permit>);

impl Registry {
    /// A permit for a call to `provider`, or `None` where it is at its limit.
    pub fn try_acquire(&self, provider: &str) -> Option<ProviderPermit> {
        let permit = match self.limiters.get(provider) {
            Some(limiter) => Some(limiter.try_acquire(())?),
            None => None,
        };
        Some(ProviderPermit(permit))
    }
}

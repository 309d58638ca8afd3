//! What a text adapter is asked and answers.

use async_trait::async_trait;

use super::{DeltaSink, ProviderError};
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
#[derive(Debug, Clone, PartialEq)]
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

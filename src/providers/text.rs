//! The interface of text adapters.

use async_trait::async_trait;

use super::{DeltaSink, ProviderError};
use crate::domain::{
    conversation::{Conversation, Part, ReplacedNames, Sampling, Stop, texts},
    request::Original,
    usage::TokenCounts,
};

/// A text generation as every adapter receives it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TextCall {
    /// The provider's own model id.
    pub model: String,
    pub conversation: Conversation,
    /// Upper bound of the tokens of its images.
    pub image_tokens: usize,
    /// Upper bound of output tokens; always sent.
    pub max_tokens: u32,
    /// What vendors refuse more input tokens than; `None`: not known.
    pub max_input_tokens: Option<u32>,
    pub sampling: Sampling,
    /// Names of functions that the vendor is sent in place of the caller's.
    pub replaced_names: ReplacedNames,
    /// A dialogue of an SDK, whose caller chooses what the vendor's cache does.
    pub is_dialogue: bool,
    /// The body as it came, for a vendor that speaks its dialect: sent in place of all the above
    /// but the model and the limit.
    pub original: Option<Box<Original>>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct TextAnswer {
    /// In order; none when reasoning used up the token limit.
    pub parts: Vec<Part>,
    pub stop: Stop,
    pub usage: TokenCounts,
    /// The provider's id of the request.
    pub request_id: Option<String>,
}

impl TextAnswer {
    /// The visible text.
    pub fn text(&self) -> String {
        texts(&self.parts, "")
    }

    /// Bytes of all that was written.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(Part::bytes).sum()
    }
}

#[async_trait]
pub trait TextProvider: Send + Sync {
    /// One submission, without retries. With `deltas` the response is streamed and every piece is
    /// pushed as it arrives; the answer is their concatenation, at most 4 MiB.
    async fn generate(
        &self,
        call: &TextCall,
        deltas: Option<&DeltaSink>,
    ) -> Result<TextAnswer, ProviderError>;

    /// Whether the model may reason without showing all of it. Only the counts at the end of such
    /// an answer say what it costs.
    fn may_hide_reasoning(&self, _call: &TextCall) -> bool {
        true
    }
}

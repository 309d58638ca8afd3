//! Text models.

use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;

use super::{
    Dialogue, Vision,
    media::{not_supported, prompt_too_long},
};
use crate::domain::{
    context::ContextOverflow,
    conversation::{Conversation, Image, LEAST_BYTES_PER_TOKEN},
    pricing::{CacheWrites, TextPrices},
    validate::{FieldCode, FieldError},
};

pub(super) const NOT_TAKEN: &str = "is not supported by this model; leave it out";

/// Limits of a text model.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct TextLimits {
    /// Maximum characters of a prompt.
    pub max_prompt_chars: usize,
    /// Maximum of `parameters.max_tokens`.
    pub max_tokens: u32,
    /// Lowest and highest `parameters.temperature`; null: not supported.
    pub temperature: Option<[f64; 2]>,
    /// Maximum input tokens of a dialogue; null: not known.
    pub max_input_tokens: Option<u32>,
    /// Maximum output tokens of a dialogue, reasoning included.
    pub max_output_tokens: u32,
    /// How it counts the images of a dialogue; null: it accepts none.
    pub images: Option<Vision>,
    /// Maximum web searches at the provider per request; 0: searches are refused.
    pub searches: u32,
    /// Input tokens held for the results of each search. The hold also covers the prompt once more
    /// per search, because the model reads it again.
    pub search_tokens: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TextModel {
    pub prices: Arc<TextPrices>,
    pub limits: TextLimits,
    /// Input tokens that the provider's chat template may add.
    pub overhead_tokens: u32,
    pub dialogue: Dialogue,
    /// Cache writes that the provider bills without a request for them, for the body that POST
    /// /v1/generate/text sends. SDKs' bodies have their own cache writes.
    pub cache_writes: CacheWrites,
    /// Whether the provider refuses to switch thinking off.
    pub always_thinks: bool,
}

impl TextModel {
    /// Returns every field of a request that this model does not support.
    pub fn violations(
        &self,
        prompt_chars: usize,
        max_tokens: Option<u32>,
        temperature: Option<f64>,
    ) -> Vec<FieldError> {
        let limits = &self.limits;
        let mut errors = Vec::from_iter(prompt_too_long(prompt_chars, limits.max_prompt_chars));
        if max_tokens.is_some_and(|n| n > limits.max_tokens) {
            let allowed = format!("between 1 and {}", limits.max_tokens);
            errors.push(not_supported("parameters.max_tokens", &allowed));
        }
        errors.extend(self.temperature_violation("parameters.temperature", temperature));
        errors
    }

    pub(super) fn temperature_violation(
        &self,
        param: &str,
        temperature: Option<f64>,
    ) -> Option<FieldError> {
        match (temperature?, self.limits.temperature) {
            (_, None) => Some(FieldError::new(param, FieldCode::NotSupported, NOT_TAKEN)),
            (t, Some([low, high])) if !(low..=high).contains(&t) => {
                Some(not_supported(param, &format!("between {low} and {high}")))
            }
            _ => None,
        }
    }

    /// Returns a dialogue's maximum input tokens by its bytes. `others`: bytes only vendors read.
    pub fn input_bound(&self, conversation: &Conversation, others: usize) -> u64 {
        let most = conversation.most_tokens() + self.image_tokens(conversation) + others;
        most as u64 + u64::from(self.overhead_tokens)
    }

    /// Returns how a dialogue exceeds the model's context, if it is certain to exceed it.
    pub fn overflow(&self, conversation: &Conversation) -> Option<ContextOverflow> {
        let maximum = u64::from(self.limits.max_input_tokens?);
        // A cheap upper bound of the count below.
        let bytes = conversation.bytes() as u64;
        if bytes / LEAST_BYTES_PER_TOKEN <= maximum || conversation.least_tokens() <= maximum {
            return None;
        }
        let estimate = self.estimated_input(conversation);
        Some(ContextOverflow::default().or(Some(maximum), estimate))
    }

    /// Limits a number of input tokens to the model's maximum.
    pub fn taken_input(&self, tokens: u64) -> u64 {
        let limit = self.limits.max_input_tokens;
        limit.map_or(tokens, |limit| tokens.min(limit.into()))
    }

    /// Returns the maximum tokens of a dialogue's images.
    pub fn image_tokens(&self, conversation: &Conversation) -> usize {
        let images = self.limits.images.map(|vision| {
            let images = conversation.images();
            images.map(|image| vision.most_tokens(image)).sum()
        });
        images.unwrap_or(0)
    }

    /// Returns the bytes by which a dialogue's images are estimated if no provider counts them:
    /// their own, but at most four for each of their maximum tokens.
    pub fn uncounted_image_bytes(&self, conversation: &Conversation) -> usize {
        let images = self.limits.images.map(|vision| {
            let bytes = |image: &Image| image.source.bytes().min(4 * vision.most_tokens(image));
            conversation.images().map(bytes).sum()
        });
        images.unwrap_or(0)
    }

    /// Estimates the input tokens of a dialogue that no provider counts.
    pub fn estimated_input(&self, conversation: &Conversation) -> u64 {
        let bytes = conversation.bytes() + self.uncounted_image_bytes(conversation);
        bytes.div_ceil(4) as u64
    }
}

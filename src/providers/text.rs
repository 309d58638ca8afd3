//! The interface of text adapters.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio::sync::Notify;

use super::{DeltaSink, ProviderError};
use crate::{
    domain::{
        conversation::{Conversation, Json, Part, ReplacedNames, Sampling, Stop, choices, texts},
        json::Members,
        lock::lock,
        usage::TokenCounts,
    },
    request::Original,
};

/// A text generation as every adapter receives it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TextCall {
    /// The provider's own model id.
    pub model: String,
    pub conversation: Released<Conversation>,
    /// Maximum tokens of its images, or of the whole input if it has PDFs.
    pub media_tokens: usize,
    /// Maximum output tokens of each choice; always sent.
    pub max_tokens: u32,
    /// Choices that the caller's body requests; 0 means one.
    pub n: u32,
    /// Maximum input tokens that vendors accept; `None` if unknown.
    pub max_input_tokens: Option<u32>,
    pub sampling: Sampling,
    /// Function names that are sent to the vendor in place of the caller's.
    pub replaced_names: ReplacedNames,
    /// Whether it is a dialogue of an SDK, whose caller controls the vendor's cache.
    pub is_dialogue: bool,
    /// The caller's body, for a vendor that speaks its dialect. Sent instead of the conversation,
    /// with the model and the limit of this call.
    pub original: Option<Released<Original>>,
    /// Members of the caller's body that are sent with the conversation.
    pub shared: Members,
}

impl TextCall {
    pub fn choices(&self) -> u32 {
        self.n.max(1)
    }

    /// Returns a member of the caller's body that is sent with the conversation.
    pub fn shared(&self, name: &str) -> Option<Json> {
        Json::parse(str::from_utf8(self.shared.get(name)?).ok()?)
    }

    /// Drops the parts that only a submission needs, once the provider has accepted one.
    pub fn release(&self) {
        self.conversation.release();
        if let Some(original) = &self.original {
            original.release();
        }
    }
}

/// A large part of a call that is dropped before the rest.
#[derive(Debug, Default)]
pub struct Released<T> {
    value: Mutex<Arc<T>>,
    released: Notify,
}

impl<T> Released<T> {
    pub fn of(value: Arc<T>) -> Self {
        Self {
            value: Mutex::new(value),
            released: Notify::new(),
        }
    }
}

impl<T: Default> Released<T> {
    /// Returns the value, or an empty one after [`Self::release`].
    pub fn get(&self) -> Arc<T> {
        Arc::clone(&lock(&self.value))
    }

    pub fn release(&self) {
        *lock(&self.value) = Arc::default();
        self.released.notify_one();
    }

    /// Waits for [`Self::release`]. Supports one waiter.
    pub async fn released(&self) {
        self.released.notified().await;
    }
}

impl<T> From<T> for Released<T> {
    fn from(value: T) -> Self {
        Self::of(Arc::new(value))
    }
}

impl<T: Default> Clone for Released<T> {
    fn clone(&self) -> Self {
        Self::of(self.get())
    }
}

impl<T: Default + PartialEq> PartialEq for Released<T> {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct TextAnswer {
    /// In order; empty if reasoning used up the token limit.
    pub parts: Vec<Part>,
    pub stop: Stop,
    pub usage: TokenCounts,
    /// Members of the vendor's answer that exist only in its dialect.
    pub own: Map<String, Value>,
    /// The provider's id of the request.
    pub request_id: Option<String>,
}

impl TextAnswer {
    /// Returns the visible text, of the first choice if there are several.
    pub fn text(&self) -> String {
        texts(choices(&self.parts)[0].1, "")
    }

    pub fn bytes(&self) -> usize {
        self.parts.iter().map(Part::bytes).sum()
    }
}

#[async_trait]
pub trait TextProvider: Send + Sync {
    /// Submits once, without retries. With `deltas` the response is streamed, and every piece is
    /// pushed as it arrives; the answer is their concatenation, at most 4 MiB.
    async fn generate(
        &self,
        call: &TextCall,
        deltas: Option<&DeltaSink>,
    ) -> Result<TextAnswer, ProviderError>;

    /// Returns the vendor's own count of a call's input tokens, which is free.
    async fn count_input(&self, _call: &TextCall) -> Result<u64, ProviderError> {
        Err(ProviderError::failed("this provider cannot count tokens"))
    }

    /// Whether the model may reason without showing all of it. Only the final counts then say what
    /// the answer costs.
    fn may_hide_reasoning(&self, _call: &TextCall) -> bool {
        true
    }
}

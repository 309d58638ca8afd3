//! A dialogue, in whichever dialect it was written.

use super::TEXT_PROMPT_CHARS;
use crate::domain::{
    conversation::{Conversation, Sampling},
    generation::Surface,
    json::Members,
    pricing::CacheWrites,
    receipt::Prefixes,
    validate::Others,
};

#[derive(Debug, Clone, PartialEq)]
pub struct DialogueRequest {
    pub surface: Surface,
    /// `provider/model`, or just `model`.
    pub model: String,
    pub conversation: Conversation,
    /// What the record shows: the text of the last user message, up to its limit.
    pub prompt: String,
    /// Without it: what the account can pay for.
    pub max_tokens: Option<u32>,
    pub sampling: Sampling,
    pub stream: bool,
    /// Fields that change no answer and that the provider is not sent.
    pub left_out: Vec<&'static str>,
    /// What only the dialect's own vendors know.
    pub others: Others,
    /// As it came, for them.
    pub original: Option<Box<Original>>,
    /// What its beginnings are known by.
    pub prefixes: Option<Prefixes>,
}

/// A body as it came.
#[derive(Debug, Clone, PartialEq)]
pub struct Original {
    pub members: Members,
    /// Headers that belong to it, by their names.
    pub headers: Vec<(&'static str, String)>,
    /// What its cache markers may have written.
    pub cache_writes: CacheWrites,
}

impl DialogueRequest {
    /// Not streamed, and without anything that a dialogue need not have.
    pub fn new(surface: Surface, model: String, conversation: Conversation) -> Self {
        let prompt = conversation.last_user_text();
        Self {
            surface,
            model,
            prompt: prompt.chars().take(TEXT_PROMPT_CHARS).collect(),
            conversation,
            max_tokens: None,
            sampling: Sampling::default(),
            stream: false,
            left_out: Vec::new(),
            others: Others::default(),
            original: None,
            prefixes: None,
        }
    }

    /// About as much memory as it takes.
    pub fn bytes(&self) -> usize {
        let images = self.conversation.images().map(|image| image.source.bytes());
        let bytes = self.conversation.bytes() + images.sum::<usize>();
        // The original is as long again.
        bytes * if self.original.is_some() { 2 } else { 1 }
    }
}

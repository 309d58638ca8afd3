//! A dialogue in any dialect.

use std::sync::Arc;

use super::TEXT_PROMPT_CHARS;
use crate::domain::{
    conversation::{Conversation, Part, Sampling, Visibility},
    generation::Surface,
    json::Members,
    pricing::CacheWrites,
    receipt::Prefixes,
    validate::Others,
};

/// Web searches that the vendor may run for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Search {
    /// The request's own limit.
    pub most: Option<u32>,
    /// Index of the tool with the limit, if the request itself does not have it.
    pub tool: Option<usize>,
}

/// An unchanged body, for a vendor that speaks its dialect.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Original {
    pub members: Members,
    /// Headers that belong to the body, by name.
    pub headers: Vec<(&'static str, String)>,
    /// Cache writes that its cache markers allow.
    pub cache_writes: CacheWrites,
    /// Whether messages of a chat have members without a value.
    pub has_empty_members: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DialogueRequest {
    pub surface: Surface,
    /// `provider/model`, or just `model`.
    pub model: String,
    /// Shared by copies of the request until one changes it.
    pub conversation: Arc<Conversation>,
    /// The prompt in the record: the text of the last user message, up to its limit.
    pub prompt: String,
    /// `None`: as many as the account can pay for.
    pub max_tokens: Option<u32>,
    /// Number of choices, each with this limit.
    pub choices: u32,
    pub sampling: Sampling,
    /// A search tool that the vendor runs.
    pub search: Option<Search>,
    pub stream: bool,
    /// Whether a chat has custom tools or calls of them, which not every chat server supports.
    pub has_custom_tools: bool,
    /// Whether a caller of Responses asked for encrypted thinking.
    pub includes_encrypted: bool,
    /// Fields that change no answer and that the provider is not sent.
    pub left_out: Vec<&'static str>,
    /// Fields that only vendors of the dialect know.
    pub others: Others,
    /// The unchanged body, for these vendors.
    pub original: Option<Box<Original>>,
    pub prefixes: Option<Prefixes>,
}

impl DialogueRequest {
    /// Creates a request that is not streamed and has no optional parts.
    pub fn new(surface: Surface, model: String, conversation: Conversation) -> Self {
        let prompt = conversation.last_user_text();
        Self {
            surface,
            model,
            prompt: prompt.chars().take(TEXT_PROMPT_CHARS).collect(),
            conversation: Arc::new(conversation),
            max_tokens: None,
            choices: 1,
            sampling: Sampling::default(),
            search: None,
            stream: false,
            has_custom_tools: false,
            includes_encrypted: false,
            left_out: Vec::new(),
            others: Others::default(),
            original: None,
            prefixes: None,
        }
    }

    /// The pieces of the answer that the caller is sent.
    pub fn visibility(&self) -> Visibility {
        let own = Visibility::of(self.surface);
        let is_requested = self.includes_encrypted && self.surface == Surface::OpenAiResponses;
        Visibility {
            encrypted: own.encrypted || is_requested,
            ..own
        }
    }

    /// Leaves out the thinking of chat servers, which other vendors refuse.
    pub fn leave_out_reasoning_fields(&mut self) {
        let is_reasoning = |part: &Part| part.reasoning_field().is_some();
        if !self.conversation.parts().any(is_reasoning) {
            return;
        }
        let messages = &mut Arc::make_mut(&mut self.conversation).messages;
        for message in messages.iter_mut() {
            message.parts.retain(|part| !is_reasoning(part));
        }
        messages.retain(|message| !message.parts.is_empty());
    }

    pub fn leave_out_blank_system(&mut self) {
        if self.conversation.has_blank_system() {
            Arc::make_mut(&mut self.conversation).system = None;
        }
    }
}

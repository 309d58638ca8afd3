//! A dialogue, in whichever dialect it was written.

use std::sync::Arc;

use super::{Original, TEXT_PROMPT_CHARS};
use crate::domain::{
    conversation::{Conversation, Part, Sampling, Visibility},
    generation::Surface,
    receipt::Prefixes,
    validate::Others,
};

/// Web searches at the vendor that a request allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Search {
    /// The limit that the request sets.
    pub most: Option<u32>,
    /// Index of the tool that has the limit, if the request itself does not have it.
    pub tool: Option<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DialogueRequest {
    pub surface: Surface,
    /// `provider/model`, or just `model`.
    pub model: String,
    /// Copies of the request share it until one changes it.
    pub conversation: Arc<Conversation>,
    /// The prompt in the record: the text of the last user message, up to its limit.
    pub prompt: String,
    /// Without it: what the account can pay for.
    pub max_tokens: Option<u32>,
    /// Answers to choose from, each with this limit.
    pub choices: u32,
    pub sampling: Sampling,
    /// A search tool that runs at the vendor.
    pub search: Option<Search>,
    pub stream: bool,
    /// Whether a chat has custom tools, or calls of them, which not every chat server accepts.
    pub has_custom_tools: bool,
    /// Whether a caller of Responses asked for encrypted thinking.
    pub includes_encrypted: bool,
    /// Fields that change no answer and that the provider is not sent.
    pub left_out: Vec<&'static str>,
    /// Fields that only the vendors of the dialect know.
    pub others: Others,
    /// The unchanged body, for these vendors.
    pub original: Option<Box<Original>>,
    /// Digests of the beginnings of the dialogue.
    pub prefixes: Option<Prefixes>,
}

impl DialogueRequest {
    /// Not streamed, and without anything that a dialogue need not have.
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

    /// Leaves out the signatures of Gemini's thoughts, which other vendors refuse.
    pub fn leave_out_thought_signatures(&mut self) {
        if !self.conversation.parts().any(Part::has_thought_signature) {
            return;
        }
        let messages = &mut Arc::make_mut(&mut self.conversation).messages;
        for part in messages.iter_mut().flat_map(|message| &mut message.parts) {
            if let Part::ToolCall(call) = part {
                call.thought_signature = None;
            }
        }
        if let Some(original) = &mut self.original {
            original.leave_out_extra_content();
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

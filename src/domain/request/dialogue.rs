//! A dialogue, in whichever dialect it was written.

use serde_json::{Map, Value};

use super::TEXT_PROMPT_CHARS;
use crate::domain::{
    conversation::{Conversation, Part, Sampling, Visibility},
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
    /// The pieces of an answer that the caller is sent.
    pub visibility: Visibility,
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
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Original {
    pub members: Members,
    /// Headers that belong to it, by their names.
    pub headers: Vec<(&'static str, String)>,
    /// What its cache markers may have written.
    pub cache_writes: CacheWrites,
}

impl Original {
    /// Leaves out what a chat's calls have for other vendors.
    fn leave_out_extra_content(&mut self) {
        let Some(messages) = self.members.get("messages") else {
            return;
        };
        let Ok(mut messages) = serde_json::from_slice::<Vec<Map<String, Value>>>(messages) else {
            return;
        };
        let calls = messages
            .iter_mut()
            .filter_map(|message| message.get_mut("tool_calls"));
        for call in calls.filter_map(Value::as_array_mut).flatten() {
            if let Value::Object(call) = call {
                call.shift_remove("extra_content");
            }
        }
        self.members.set("messages", &messages);
    }
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
            visibility: Visibility::of(surface),
            left_out: Vec::new(),
            others: Others::default(),
            original: None,
            prefixes: None,
        }
    }

    /// Leaves out the signatures of Gemini's thoughts, which other vendors refuse.
    pub fn leave_out_thought_signatures(&mut self) {
        let messages = self.conversation.messages.iter_mut();
        let mut found = false;
        for part in messages.flat_map(|message| &mut message.parts) {
            if let Part::ToolCall(call) = part {
                found |= call.thought_signature.take().is_some();
            }
        }
        if let Some(original) = self.original.as_mut().filter(|_| found) {
            original.leave_out_extra_content();
        }
    }

    /// Leaves out the thinking of chat servers, which other vendors refuse.
    pub fn leave_out_reasoning_fields(&mut self) {
        let messages = &mut self.conversation.messages;
        for message in messages.iter_mut() {
            message
                .parts
                .retain(|part| part.reasoning_field().is_none());
        }
        messages.retain(|message| !message.parts.is_empty());
    }
}

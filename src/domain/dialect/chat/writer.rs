//! Writes the answers of a chat.

use std::collections::BTreeMap;

use super::{
    answer::{
        ChatAnswer, ChatCall, ChatChoice, ChatCompletion, ChatCompletionChunk, ChatDelta,
        ChatPiece, ChatUsage, ChunkUsage, FINISH_REASONS, finish_reason,
    },
    text_of,
};
use crate::domain::{
    conversation::{Choice, Delta, Part, ReasoningField, choices, reasoning, texts},
    dialect::{Answer, Head, Writer},
};

/// Writes an answer.
#[derive(Debug)]
pub struct ChatWriter {
    head: Head,
    include_usage: bool,
    /// The choice of the last piece.
    choice: u32,
    /// The choices that have begun, each with the calls that have.
    calls: BTreeMap<u32, usize>,
}

impl ChatWriter {
    pub const fn new(head: Head, include_usage: bool) -> Self {
        Self {
            head,
            include_usage,
            choice: 0,
            calls: BTreeMap::new(),
        }
    }

    fn id(&self) -> String {
        format!("chatcmpl-{}", self.head.id)
    }

    fn chunk(&self, choices: Vec<ChatDelta>, usage: Option<ChatUsage>) -> String {
        let chunk = ChatCompletionChunk {
            id: self.id(),
            object: "chat.completion.chunk",
            created: self.head.created,
            model: self.head.model.clone(),
            choices,
            usage: self
                .include_usage
                .then(|| usage.map_or(ChunkUsage::NotYet, ChunkUsage::Whole)),
        };
        format!("data: {}\n\n", text_of(&chunk))
    }

    fn delta(&self, delta: ChatPiece, finish_reason: Option<&'static str>) -> String {
        let choice = ChatDelta {
            index: self.choice,
            delta,
            logprobs: (),
            finish_reason,
        };
        self.chunk(vec![choice], None)
    }
}

fn message(parts: &[Part]) -> ChatAnswer {
    let text = texts(parts, "");
    let calls = parts.iter().filter_map(|part| match part {
        Part::ToolCall(call) => Some(ChatCall::of(call, None)),
        _ => None,
    });
    let tool_calls: Vec<_> = calls.collect();
    ChatAnswer {
        role: "assistant",
        content: (!text.is_empty() || tool_calls.is_empty()).then_some(text),
        reasoning_content: reasoning(parts, ReasoningField::ReasoningContent),
        reasoning: reasoning(parts, ReasoningField::Reasoning),
        refusal: (),
        tool_calls,
    }
}

/// Why a choice ended; of an answer with one, the answer says so.
fn reason(choice: &Choice, answer: &Answer) -> &'static str {
    let named = choice.finish_reason.as_deref();
    let mut known = FINISH_REASONS.into_iter();
    let found = known.find(|known| Some(*known) == named);
    found.unwrap_or_else(|| finish_reason(&answer.stop))
}

impl Writer for ChatWriter {
    fn whole(&self, answer: &Answer) -> String {
        let choices = choices(&answer.parts).into_iter();
        text_of(&ChatCompletion {
            id: self.id(),
            object: "chat.completion",
            created: self.head.created,
            model: self.head.model.clone(),
            choices: choices
                .map(|(choice, parts)| ChatChoice {
                    index: choice.index,
                    message: message(parts),
                    logprobs: (),
                    finish_reason: reason(&choice, answer),
                })
                .collect(),
            usage: ChatUsage::from(&answer.usage),
        })
    }

    fn begin(&mut self) -> String {
        self.calls.entry(self.choice).or_default();
        let role = ChatPiece {
            role: Some("assistant"),
            content: Some(String::new()),
            ..ChatPiece::default()
        };
        self.delta(role, None)
    }

    fn piece(&mut self, delta: &Delta) -> String {
        if let Some(choice) = delta.choice() {
            self.choice = choice.index;
            return if self.calls.contains_key(&self.choice) {
                String::new()
            } else {
                self.begin()
            };
        }
        let calls = self.calls.entry(self.choice).or_default();
        let piece = match delta {
            Delta::Text(text) => ChatPiece {
                content: Some(text.clone()),
                ..ChatPiece::default()
            },
            Delta::Reasoning(ReasoningField::ReasoningContent, text) => ChatPiece {
                reasoning_content: Some(text.clone()),
                ..ChatPiece::default()
            },
            Delta::Reasoning(ReasoningField::Reasoning, text) => ChatPiece {
                reasoning: Some(text.clone()),
                ..ChatPiece::default()
            },
            Delta::ToolCall(call) => {
                *calls += 1;
                ChatPiece {
                    tool_calls: vec![ChatCall::of(call, Some(*calls - 1))],
                    ..ChatPiece::default()
                }
            }
            Delta::Arguments(arguments) => ChatPiece {
                tool_calls: vec![ChatCall::more(calls.saturating_sub(1), arguments)],
                ..ChatPiece::default()
            },
            // This dialect has no fields for these; an empty chunk keeps the connection alive.
            Delta::Thinking(_) | Delta::Signature(_) | Delta::Redacted(_) | Delta::Opaque(_) => {
                ChatPiece::default()
            }
        };
        self.delta(piece, None)
    }

    fn keep_alive(&mut self) -> String {
        self.delta(ChatPiece::default(), None)
    }

    fn end(&mut self, answer: &Answer) -> String {
        let mut events = String::new();
        for (choice, _) in choices(&answer.parts) {
            events += &self.piece(&Delta::from(choice.clone()));
            let reason = reason(&choice, answer);
            events += &self.delta(ChatPiece::default(), Some(reason));
        }
        if self.include_usage {
            events += &self.chunk(Vec::new(), Some(ChatUsage::from(&answer.usage)));
        }
        events + "data: [DONE]\n\n"
    }

    fn failed(&mut self, error: &str) -> String {
        format!("data: {error}\n\n")
    }
}

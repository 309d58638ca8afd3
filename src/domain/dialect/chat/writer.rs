//! Writes the answers of a chat.

use super::{
    answer::{
        ChatAnswer, ChatCall, ChatChoice, ChatCompletion, ChatCompletionChunk, ChatDelta,
        ChatPiece, ChatUsage, ChunkUsage, finish_reason,
    },
    text_of,
};
use crate::domain::{
    conversation::{Delta, Part, ReasoningField, reasoning},
    dialect::{Answer, Head, Writer},
};

/// Writes an answer.
#[derive(Debug)]
pub struct ChatWriter {
    head: Head,
    include_usage: bool,
    /// Calls that have begun.
    calls: usize,
}

impl ChatWriter {
    pub const fn new(head: Head, include_usage: bool) -> Self {
        Self {
            head,
            include_usage,
            calls: 0,
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
            index: 0,
            delta,
            logprobs: (),
            finish_reason,
        };
        self.chunk(vec![choice], None)
    }
}

impl Writer for ChatWriter {
    fn whole(&self, answer: &Answer) -> String {
        let text = answer.text();
        let calls = answer.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(ChatCall::of(call, None)),
            _ => None,
        });
        let tool_calls: Vec<_> = calls.collect();
        text_of(&ChatCompletion {
            id: self.id(),
            object: "chat.completion",
            created: self.head.created,
            model: self.head.model.clone(),
            choices: vec![ChatChoice {
                index: 0,
                message: ChatAnswer {
                    role: "assistant",
                    content: (!text.is_empty() || tool_calls.is_empty()).then_some(text),
                    reasoning_content: reasoning(&answer.parts, ReasoningField::ReasoningContent),
                    reasoning: reasoning(&answer.parts, ReasoningField::Reasoning),
                    refusal: (),
                    tool_calls,
                },
                logprobs: (),
                finish_reason: finish_reason(&answer.stop),
            }],
            usage: ChatUsage::from(&answer.usage),
        })
    }

    fn begin(&mut self) -> String {
        let role = ChatPiece {
            role: Some("assistant"),
            content: Some(String::new()),
            ..ChatPiece::default()
        };
        self.delta(role, None)
    }

    fn piece(&mut self, delta: &Delta) -> String {
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
                self.calls += 1;
                ChatPiece {
                    tool_calls: vec![ChatCall::of(call, Some(self.calls - 1))],
                    ..ChatPiece::default()
                }
            }
            Delta::Arguments(arguments) => ChatPiece {
                tool_calls: vec![ChatCall::more(self.calls.saturating_sub(1), arguments)],
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
        let reason = finish_reason(&answer.stop);
        let mut events = self.delta(ChatPiece::default(), Some(reason));
        if self.include_usage {
            events += &self.chunk(Vec::new(), Some(ChatUsage::from(&answer.usage)));
        }
        events + "data: [DONE]\n\n"
    }

    fn failed(&mut self, error: &str) -> String {
        format!("data: {error}\n\n")
    }
}

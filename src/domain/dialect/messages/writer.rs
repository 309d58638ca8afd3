//! Writes the answers of a dialogue.

use super::{
    answer::{Block, BlockDelta, Message, MessageEnd, MessageEvent, MessageUsage, no_arguments},
    text_of,
};
use crate::domain::{
    conversation::{Delta, Stop},
    dialect::{Answer, Head, Writer},
};

/// Writes an answer.
#[derive(Debug)]
pub struct MessagesWriter {
    head: Head,
    /// The block that is open.
    open: Option<Open>,
    /// The signature that the open block of thinking ends with.
    signature: Option<&'static str>,
    /// Blocks that have begun.
    blocks: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Text,
    Thinking,
    /// Thinking that has ended, but for more of its signature.
    Signed,
    Tool,
}

impl MessagesWriter {
    pub const fn new(head: Head) -> Self {
        Self {
            head,
            open: None,
            signature: None,
            blocks: 0,
        }
    }

    fn message(&self, content: Vec<Block>, stop: Option<&Stop>, usage: MessageUsage) -> Message {
        let end = stop.map(MessageEnd::from);
        Message {
            id: format!("msg_{}", self.head.id),
            r#type: "message",
            role: "assistant",
            model: self.head.model.clone(),
            content,
            stop_reason: end.as_ref().map(|end| end.stop_reason),
            stop_sequence: end.and_then(|end| end.stop_sequence),
            usage,
        }
    }

    fn close(&mut self) -> String {
        let index = self.blocks.saturating_sub(1);
        let signature = self.signature.take().map(str::to_owned);
        let signed = signature.map(|signature| self.add(BlockDelta::SignatureDelta { signature }));
        let closed = self.open.take();
        let closed = closed.map(|_| event(&MessageEvent::ContentBlockStop { index }));
        signed.into_iter().chain(closed).collect()
    }

    /// Closes the block before and begins another.
    fn start(&mut self, open: Open, content_block: Block) -> String {
        let closed = self.close();
        self.open = Some(open);
        self.blocks += 1;
        let index = self.blocks - 1;
        closed
            + &event(&MessageEvent::ContentBlockStart {
                index,
                content_block,
            })
    }

    fn add(&self, delta: BlockDelta) -> String {
        let index = self.blocks.saturating_sub(1);
        event(&MessageEvent::ContentBlockDelta { index, delta })
    }

    /// A block that is begun with all that it has.
    fn complete(&mut self, block: Block) -> String {
        self.start(Open::Tool, block) + &self.close()
    }

    fn thinking(&mut self, continued: bool) -> String {
        if continued {
            return String::new();
        }
        let block = Block::Thinking {
            thinking: String::new(),
            signature: String::new(),
        };
        self.start(Open::Thinking, block)
    }
}

fn event(event: &MessageEvent) -> String {
    let name = match event {
        MessageEvent::MessageStart { .. } => "message_start",
        MessageEvent::Ping => "ping",
        MessageEvent::ContentBlockStart { .. } => "content_block_start",
        MessageEvent::ContentBlockDelta { .. } => "content_block_delta",
        MessageEvent::ContentBlockStop { .. } => "content_block_stop",
        MessageEvent::MessageDelta { .. } => "message_delta",
        MessageEvent::MessageStop => "message_stop",
    };
    format!("event: {name}\ndata: {}\n\n", text_of(event))
}

impl Writer for MessagesWriter {
    fn whole(&self, answer: &Answer) -> String {
        let usage = MessageUsage::from(&answer.usage);
        let content = answer.parts.iter().flat_map(Block::of).collect();
        text_of(&self.message(content, Some(&answer.stop), usage))
    }

    fn begin(&mut self) -> String {
        let usage = MessageUsage {
            input_tokens: self.head.input_tokens,
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: 0,
            output_tokens: 1,
            output_tokens_details: None,
        };
        let message = self.message(Vec::new(), None, usage);
        event(&MessageEvent::MessageStart { message })
    }

    fn piece(&mut self, delta: &Delta) -> String {
        match delta {
            Delta::Text(text) => {
                let empty = Block::Text {
                    text: String::new(),
                };
                let begun = match self.open {
                    Some(Open::Text) => String::new(),
                    _ => self.start(Open::Text, empty),
                };
                let text = text.clone();
                begun + &self.add(BlockDelta::TextDelta { text })
            }
            Delta::Thinking(thinking) => {
                let continued = self.open == Some(Open::Thinking) && self.signature.is_none();
                let begun = self.thinking(continued);
                let thinking = thinking.clone();
                begun + &self.add(BlockDelta::ThinkingDelta { thinking })
            }
            Delta::Reasoning(field, thinking) => {
                let continued = self.signature == Some(field.signature());
                let begun = self.thinking(continued);
                self.signature = Some(field.signature());
                let thinking = thinking.clone();
                begun + &self.add(BlockDelta::ThinkingDelta { thinking })
            }
            Delta::Signature(signature) => {
                let open = matches!(self.open, Some(Open::Thinking | Open::Signed))
                    && self.signature.is_none();
                let begun = self.thinking(open);
                self.open = Some(Open::Signed);
                let signature = signature.clone();
                begun + &self.add(BlockDelta::SignatureDelta { signature })
            }
            Delta::Redacted(data) => self.complete(Block::RedactedThinking { data: data.clone() }),
            Delta::ToolCall(call) => {
                let mut events = String::new();
                if let Some(Block::Thinking { signature, .. }) = Block::signature_of(call) {
                    events += &self.thinking(false);
                    events += &self.add(BlockDelta::SignatureDelta { signature });
                }
                events += &self.start(Open::Tool, Block::call(call, no_arguments()));
                if !call.arguments.is_empty() {
                    let partial_json = call.arguments.clone();
                    events += &self.add(BlockDelta::InputJsonDelta { partial_json });
                }
                events
            }
            Delta::Arguments(partial_json) => {
                let partial_json = partial_json.clone();
                self.add(BlockDelta::InputJsonDelta { partial_json })
            }
            Delta::Opaque(block) => self.complete(Block::Opaque(block.clone())),
        }
    }

    fn keep_alive(&mut self) -> String {
        event(&MessageEvent::Ping)
    }

    fn end(&mut self, answer: &Answer) -> String {
        let closed = self.close();
        let end = event(&MessageEvent::MessageDelta {
            delta: MessageEnd::from(&answer.stop),
            usage: MessageUsage::from(&answer.usage),
        });
        closed + &end + &event(&MessageEvent::MessageStop)
    }

    fn failed(&mut self, error: &str) -> String {
        format!("event: error\ndata: {error}\n\n")
    }
}

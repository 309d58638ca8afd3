//! Writes the answers of a dialogue.

use serde::Serialize;
use serde_json::{Value, json};

use super::text_of;
use crate::domain::{
    conversation::{Delta, Json, Part, Stop, ToolCall},
    dialect::{Answer, GEMINI, Head, Writer},
    usage::TextUsage,
};

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

#[derive(Serialize)]
struct Message<'a> {
    id: String,
    r#type: &'static str,
    role: &'static str,
    model: &'a str,
    content: Vec<Block>,
    stop_reason: Option<&'static str>,
    stop_sequence: Option<&'a str>,
    usage: Value,
}

/// A type of its own, because a tree of values would change the notation of numbers in `input`.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        text: String,
    },
    Thinking {
        thinking: String,
        signature: String,
    },
    RedactedThinking {
        data: String,
    },
    ToolUse {
        id: String,
        name: String,
        input: Json,
    },
    #[serde(untagged)]
    Opaque(Value),
}

/// The event for one token, serialized directly.
#[derive(Serialize)]
struct Added<'a> {
    r#type: &'static str,
    index: u32,
    delta: Piece<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum Piece<'a> {
    #[serde(rename = "text_delta")]
    Text { text: &'a str },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: &'a str },
    #[serde(rename = "signature_delta")]
    Signature { signature: &'a str },
    #[serde(rename = "input_json_delta")]
    Json { partial_json: &'a str },
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

    fn message<'a>(
        &'a self,
        content: Vec<Block>,
        stop: Option<&'a Stop>,
        usage: Value,
    ) -> Message<'a> {
        let (stop_reason, stop_sequence) = stop.map(stop_of).unzip();
        Message {
            id: format!("msg_{}", self.head.id),
            r#type: "message",
            role: "assistant",
            model: &self.head.model,
            content,
            stop_reason,
            stop_sequence: stop_sequence.flatten(),
            usage,
        }
    }

    fn close(&mut self) -> String {
        let index = self.blocks.saturating_sub(1);
        let signature = self.signature.take();
        let signed = signature.map(|signature| self.add(Piece::Signature { signature }));
        let closed = self.open.take();
        let closed = closed.map(|_| event(&json!({"type": "content_block_stop", "index": index})));
        signed.into_iter().chain(closed).collect()
    }

    /// Closes the block before and begins another.
    fn start(&mut self, open: Open, block: &Block) -> String {
        let closed = self.close();
        self.open = Some(open);
        let index = self.blocks;
        self.blocks += 1;
        let start = json!({"type": "content_block_start", "index": index, "content_block": block});
        closed + &event(&start)
    }

    fn add(&self, delta: Piece<'_>) -> String {
        let r#type = "content_block_delta";
        let index = self.blocks.saturating_sub(1);
        let added = Added {
            r#type,
            index,
            delta,
        };
        format!("event: {}\ndata: {}\n\n", r#type, text_of(&added))
    }

    /// A block that is begun with all that it has.
    fn complete(&mut self, block: &Block) -> String {
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
        self.start(Open::Thinking, &block)
    }
}

fn event(data: &Value) -> String {
    let name = data["type"].as_str().unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n")
}

fn usage_of(usage: &TextUsage) -> Value {
    let cached = usage.cached_input_tokens.unwrap_or(0);
    let written = usage.cache_write_tokens.unwrap_or(0);
    let mut value = json!({
        "input_tokens": usage.input_tokens.saturating_sub(cached + written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.output_tokens,
    });
    if let Some(tokens) = usage.reasoning_tokens {
        value["output_tokens_details"] = json!({"thinking_tokens": tokens});
    }
    if let Some(searches) = usage.searches {
        value["server_tool_use"] = json!({"web_search_requests": searches});
    }
    value
}

/// The stop reason, and the stop sequence.
fn stop_of(stop: &Stop) -> (&'static str, Option<&str>) {
    match stop {
        Stop::Done | Stop::MalformedFunctionCall | Stop::Other => ("end_turn", None),
        Stop::Paused => ("pause_turn", None),
        Stop::ContentFilter => ("refusal", None),
        Stop::Limit => ("max_tokens", None),
        Stop::Tools => ("tool_use", None),
        Stop::Sequence(sequence) => ("stop_sequence", Some(sequence)),
    }
}

impl Block {
    /// The blocks of a part: a call of Gemini's has its signature before it.
    fn of(part: &Part) -> Vec<Self> {
        match part {
            Part::Text { text } => vec![Self::Text { text: text.clone() }],
            Part::Thinking { text, signature } => vec![Self::Thinking {
                thinking: text.clone(),
                signature: signature.clone(),
            }],
            Part::Redacted { data } => vec![Self::RedactedThinking { data: data.clone() }],
            Part::ToolCall(call) => {
                // A model may write anything: an agent must see that, instead of no arguments.
                let unread = || Json::from(&json!({"INVALID_JSON": call.arguments}));
                let block = Self::call(call, call.object().unwrap_or_else(unread));
                let signature = gemini_signature(call).map(|signature| Self::Thinking {
                    thinking: String::new(),
                    signature,
                });
                signature.into_iter().chain([block]).collect()
            }
            // No answer has one.
            Part::ToolResult(_) | Part::Image(_) | Part::Document(_) => Vec::new(),
            Part::Opaque { block } => vec![Self::Opaque(block.clone())],
        }
    }

    fn call(call: &ToolCall, input: Json) -> Self {
        Self::ToolUse {
            id: call.id.clone(),
            name: call.name.clone(),
            input,
        }
    }
}

fn gemini_signature(call: &ToolCall) -> Option<String> {
    let signature = call.thought_signature.as_ref()?;
    Some(format!("{GEMINI}{signature}"))
}

impl Writer for MessagesWriter {
    fn whole(&self, answer: &Answer) -> String {
        let content = answer.parts.iter().flat_map(Block::of).collect();
        text_of(&self.message(content, Some(&answer.stop), usage_of(&answer.usage)))
    }

    fn begin(&mut self) -> String {
        let usage = json!({
            "input_tokens": self.head.input_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 1,
        });
        let message = self.message(Vec::new(), None, usage);
        event(&json!({"type": "message_start", "message": message}))
    }

    fn piece(&mut self, delta: &Delta) -> String {
        match delta {
            Delta::Text(text) => {
                let begun = if self.open == Some(Open::Text) {
                    String::new()
                } else {
                    let text = String::new();
                    self.start(Open::Text, &Block::Text { text })
                };
                begun + &self.add(Piece::Text { text })
            }
            Delta::Thinking(thinking) => {
                let continued = self.open == Some(Open::Thinking) && self.signature.is_none();
                let begun = self.thinking(continued);
                begun + &self.add(Piece::Thinking { thinking })
            }
            Delta::Reasoning(field, thinking) => {
                let continued = self.signature == Some(field.signature());
                let begun = self.thinking(continued);
                self.signature = Some(field.signature());
                begun + &self.add(Piece::Thinking { thinking })
            }
            Delta::Signature(signature) => {
                let open = matches!(self.open, Some(Open::Thinking | Open::Signed))
                    && self.signature.is_none();
                let begun = self.thinking(open);
                self.open = Some(Open::Signed);
                begun + &self.add(Piece::Signature { signature })
            }
            Delta::Redacted(data) => self.complete(&Block::RedactedThinking { data: data.clone() }),
            Delta::ToolCall(call) => {
                let mut events = String::new();
                if let Some(signature) = &gemini_signature(call) {
                    events += &self.thinking(false);
                    events += &self.add(Piece::Signature { signature });
                }
                let no_arguments = Json::from(&json!({}));
                events += &self.start(Open::Tool, &Block::call(call, no_arguments));
                if !call.arguments.is_empty() {
                    let partial_json = &call.arguments;
                    events += &self.add(Piece::Json { partial_json });
                }
                events
            }
            Delta::Arguments(partial_json) => self.add(Piece::Json { partial_json }),
            Delta::Opaque(block) => self.complete(&Block::Opaque(block.clone())),
        }
    }

    fn keep_alive(&mut self) -> String {
        event(&json!({"type": "ping"}))
    }

    fn end(&mut self, answer: &Answer) -> String {
        let closed = self.close();
        let (stop_reason, stop_sequence) = stop_of(&answer.stop);
        let end = event(&json!({
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason, "stop_sequence": stop_sequence},
            "usage": usage_of(&answer.usage),
        }));
        closed + &end + &event(&json!({"type": "message_stop"}))
    }

    fn failed(&mut self, error: &str) -> String {
        format!("event: error\ndata: {error}\n\n")
    }
}
